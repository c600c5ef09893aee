"""Libraries in registries that were made to do harm, and registries that send something else than was asked for."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from making_images import MANIFEST, digest
from mod_making import diff_of, write_mod
from small_registry import SmallRegistry, small_registry

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, TreeError, UsageError, VllmModsError
from vllm_mods.building import signing
from vllm_mods.sharing import artifact, library_tar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = {"patches/x/mod.toml": b"x", "patches/x/x.patch": b"y"}
GOOD = library_tar.pack(FILES)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRegistry]:
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    with small_registry() as made:
        yield made


def put(registry: SmallRegistry, layer: bytes, *, tag: str = "1", **more: Any) -> str:
    """Put a library with this layer there, and return its name; ``more`` goes into the layer's descriptor."""
    entry = {"mediaType": artifact.LAYER, "digest": digest(layer), "size": len(layer), **more}
    registry.put(manifest(entry), layer, tag=tag)
    return f"{registry.host}/me/mods:{tag}"


def manifest(*layers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"mediaType": MANIFEST, "artifactType": artifact.KIND, "layers": layers, **more}


def test_a_good_one_is_taken(registry: SmallRegistry) -> None:
    assert artifact.pull(put(registry, GOOD)).files == FILES


# --- what is in it -----------------------------------------------------------------------


def tarred(*members: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return stream.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in more.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../patches/x", "leads out of the library"),
        ("patches/../../x", "leads out of the library"),
        ("/etc/cron.d/x", "leads out of the library"),
        ("patches//x", "leads out of the library"),
        ("patches/x/.", "leads out of the library"),
        (".git/hooks/post-checkout", "lies in none of"),
        ("vllm-mods.toml", "lies in none of"),
        ("patches", "lies in none of"),
        ("patches/.git/config", "is hidden, or a cache"),
        ("patches/x/__pycache__/x.pyc", "is hidden, or a cache"),
        ("patches/x\\..\\x", "has a character"),
        ("patches/x\x1b]0;y\x07", "has a character"),
        ("patches/\u202excod.toml", "has a character"),
        (f"patches/{'x' * 256}", "has a name of more than 255 bytes"),
    ],
)
def test_a_name_that_no_file_of_a_library_has(registry: SmallRegistry, name: str, why: str) -> None:
    ref = put(registry, tarred(member("patches/a"), member(name), form=tarfile.PAX_FORMAT))
    with pytest.raises(TreeError, match=f"{why}.*nothing of it was taken"):
        artifact.pull(ref)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member("patches/x", tarfile.SYMTYPE, linkname="/etc/shadow")], "is a link"),
        ([member("patches/x", tarfile.LNKTYPE, linkname="/etc/shadow")], "is a link"),
        ([member("patches/x", tarfile.FIFOTYPE)], "is no regular file"),
        ([member("patches/x", tarfile.CHRTYPE, devmajor=1, devminor=5)], "is no regular file"),
        ([member("patches/x", tarfile.BLKTYPE)], "is no regular file"),
        ([member("patches/x", tarfile.DIRTYPE)], "is no regular file"),
        ([member("patches/x"), member("patches/x", size=1)], "is in it twice"),
        ([member("patches/x"), member("patches/x/y")], "lies in what is a file"),
        ([member("patches/y"), member("patches/x")], "is not as `vllm-mods publish` writes one"),
        ([member("patches/x", mode=0o4755)], "is not as `vllm-mods publish` writes one"),
        ([member("patches/x", uid=0, uname="root")], "is not as `vllm-mods publish` writes one"),
        ([], "is not as `vllm-mods publish` writes one"),
    ],
)
def test_a_member_that_is_no_plain_file(
    registry: SmallRegistry, members: list[tarfile.TarInfo], why: str
) -> None:
    ref = put(registry, tarred(*members))
    with pytest.raises(TreeError, match=why):
        artifact.pull(ref)


def sparse() -> bytes:
    """A file of 8 GiB that takes no bytes, by GNU's extended headers."""
    pax = {"GNU.sparse.major": "0", "GNU.sparse.size": str(8 << 30), "GNU.sparse.map": "0,0"}
    return tarred(member("patches/x", pax_headers=pax), form=tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    "layer",
    [
        gzip.compress(bytes(64 << 20)),
        gzip.compress(GOOD),
        b"\x28\xb5\x2f\xfd" + bytes(99),
        sparse(),
        tarred(member("patches/x", pax_headers={"path": "../x"}), form=tarfile.PAX_FORMAT),
        tarred(member("patches/x", pax_headers={"size": "-1"}), form=tarfile.PAX_FORMAT),
        GOOD + b"more",
        GOOD + GOOD,
        GOOD[:-1],
        GOOD[:700],
        b"",
        b"x" * 10_240,
    ],
    ids=range(12),
)
def test_nothing_but_the_tar_that_is_written_is_read(registry: SmallRegistry, layer: bytes) -> None:
    with pytest.raises(TreeError, match="nothing of it was taken"):
        artifact.pull(put(registry, layer))


def test_too_many_files(registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIBRARY_FILES", limits.Limit(1, "files", "a library"))
    with pytest.raises(TreeError, match="more than 1 members"):
        artifact.pull(put(registry, GOOD))


# --- what names it -----------------------------------------------------------------------


def test_a_layer_of_any_size_is_not_asked_for(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD, size=1 << 40)
    with pytest.raises(TreeError, match="take 1,099,511,627,776 bytes, and 512 MiB is the most"):
        artifact.pull(ref)
    assert not [path for _, path, _ in registry.asked if "/blobs/" in path]


@pytest.mark.parametrize("size", [len(GOOD) - 1, len(GOOD) + 1])
def test_a_layer_of_another_size(registry: SmallRegistry, size: int) -> None:
    with pytest.raises(TreeError, match=r"it should have|broke off"):
        artifact.pull(put(registry, GOOD, size=size))


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [{"mediaType": artifact.LAYER, "digest": digest(GOOD), "size": len(GOOD)}] * 2,
        [{"mediaType": artifact.LAYER, "digest": "../../../etc/passwd", "size": 1}],
        [{"mediaType": artifact.LAYER, "digest": digest(GOOD), "size": -1}],
        [{"mediaType": artifact.LAYER, "digest": f"md5:{'0' * 32}", "size": 1}],
        ["x"],
    ],
)
def test_a_manifest_without_one_layer(registry: SmallRegistry, layers: list[Any]) -> None:
    registry.put(manifest(*layers))
    with pytest.raises(TreeError, match="does not name one layer"):
        artifact.pull(f"{registry.host}/me/mods:1")


def test_a_layer_of_another_kind(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD, mediaType="application/vnd.oci.image.layer.v1.tar+gzip")
    with pytest.raises(TreeError, match="its layer is of the kind"):
        artifact.pull(ref)


def test_a_manifest_that_is_two_things_is_no_library(registry: SmallRegistry) -> None:
    entry = {"mediaType": artifact.LAYER, "digest": digest(GOOD), "size": len(GOOD)}
    registry.put(manifest(entry, manifests=[]), GOOD)
    with pytest.raises(UsageError, match="and no library of vllm-mods"):
        artifact.pull(f"{registry.host}/me/mods:1")


def test_annotations_without_end_are_not_read(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER", limits.Limit(1 << 20, "bytes", "a manifest"))
    registry.put(manifest(annotations={"x": "y" * (1 << 20)}))
    with pytest.raises(TreeError, match="has more than 1 MiB"):
        artifact.pull(f"{registry.host}/me/mods:1")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[]", b"\xff", b"{}"])
def test_a_manifest_that_is_none(registry: SmallRegistry, data: bytes) -> None:
    registry.lies["/manifests/1"] = (200, data, {"Content-Type": MANIFEST})
    with pytest.raises(VllmModsError, match=r"not JSON|not a JSON object|no library of vllm-mods"):
        artifact.pull(f"{registry.host}/me/mods:1")


def test_annotations_say_nothing_that_counts(registry: SmallRegistry) -> None:
    entry = {"mediaType": artifact.LAYER, "digest": digest(GOOD), "size": len(GOOD)}
    registry.put(manifest(entry, annotations={"vllm-mods.mods": 7, "": ["../x"]}), GOOD)
    assert artifact.pull(f"{registry.host}/me/mods:1").files == FILES


# --- who sends it ------------------------------------------------------------------------


def other() -> bytes:
    return library_tar.pack({**FILES, "patches/x/x.patch": b"z"})


def test_another_manifest_for_a_digest(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD)
    pinned = artifact.pull(ref).digest
    put(registry, other())
    registry.manifests[pinned] = registry.manifests["1"]
    with pytest.raises(TreeError, match=f"has the digest sha256:.*, not {pinned}"):
        artifact.pull(f"{ref}@{pinned}")


def test_a_tag_that_is_moved_after_it_was_resolved(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD)
    pinned = artifact.pull(ref).digest
    put(registry, other())
    assert artifact.pull(ref).digest != pinned
    assert artifact.pull(f"{ref}@{pinned}") == (pinned, FILES)


def test_a_registry_that_says_one_digest_and_sends_another(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD)
    lie = {"Content-Type": MANIFEST, "Docker-Content-Digest": digest(b"x")}
    registry.lies["/manifests/1"] = (200, registry.manifests["1"], lie)
    with pytest.raises(TreeError, match=f"not {digest(b'x')}"):
        artifact.pull(ref)


def test_a_layer_with_other_bytes(registry: SmallRegistry) -> None:
    ref = put(registry, GOOD)
    registry.blobs[digest(GOOD)] = other()
    with pytest.raises(TreeError, match="its bytes are not those of sha256:"):
        artifact.pull(ref)


@pytest.mark.parametrize("to", ["http://elsewhere.example/x", "file:///etc/passwd"])
def test_a_layer_that_lies_elsewhere_without_tls(registry: SmallRegistry, to: str) -> None:
    ref = put(registry, GOOD)
    registry.lies[f"/blobs/{digest(GOOD)}"] = (307, b"", {"Location": to})
    with pytest.raises(TreeError, match="refused"):
        artifact.pull(ref)


# --- who signed it -----------------------------------------------------------------------


@pytest.fixture
def mods(tmp_path: Path) -> Path:
    write_mod(tmp_path / "mods", "tiny", diff_of("vllm/a.py", "a\n", "b\n"))
    return tmp_path / "mods"


def key(folder: Path) -> tuple[str, str]:
    """Make a key, and a file of signers that lets it sign everything."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("not installed: ssh-keygen")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "me"], check=True)
    (folder / "signers").write_text(f"me@here {(folder / 'me.pub').read_text()}")
    return str(folder / "me"), str(folder / "signers")


def attached(registry: SmallRegistry, statement: bytes, by: str, namespace: str) -> None:
    """Attach a signature to what the tag names, without asking what it is of."""
    (signed,) = signing.signature(statement, signing.signer(by), namespace).artifacts
    subject = {"mediaType": MANIFEST, "digest": digest(registry.manifests["1"]), "size": 1}
    layers = [
        {"mediaType": kind, "digest": digest(data), "size": len(data)}
        for kind, data in signed.blobs
    ]
    registry.put(
        {"artifactType": signed.kind, "layers": layers, "subject": subject},
        *(data for _, data in signed.blobs),
        tag="signature",
    )


def statement_of(*digests: str) -> bytes:
    subjects = [{"digest": {"sha256": one.removeprefix("sha256:")}} for one in digests]
    return json.dumps({"subject": subjects}).encode()


@pytest.mark.parametrize(
    ("of", "namespace", "said"),
    [
        (lambda _: statement_of(digest(b"x")), "vllm-mods", f"is of {digest(b'x')}, and this is"),
        (lambda one: statement_of(one, digest(b"x")), "vllm-mods", "is of sha256:.*, sha256:"),
        (lambda _: b"0  patches/x/mod.toml\n", "vllm-mods", "is of nothing"),
        (statement_of, "vllm-mods-image", "is by nobody in"),
        (statement_of, "git", "is by nobody in"),
    ],
)
def test_a_good_signature_of_something_else(
    registry: SmallRegistry,
    mods: Path,
    tmp_path: Path,
    *,
    of: Callable[[str], bytes],
    namespace: str,
    said: str,
) -> None:
    """Whoever may write to the registry attaches there what a trusted key has signed elsewhere."""
    private, signers = key(tmp_path)
    ref = f"{registry.host}/me/mods:1"
    made = artifact.publish(artifact.prepare(str(mods), ref))
    attached(registry, of(made.digest), private, namespace)
    with pytest.raises(Refused, match=f"{said}.*nothing of it was taken"):
        artifact.pull(ref, signers=signers)
    attached(registry, statement_of(made.digest), private, "vllm-mods")
    assert artifact.pull(ref, signers=signers).digest == made.digest


def test_a_signature_of_what_the_tag_was_before(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    private, signers = key(tmp_path)
    ref = f"{registry.host}/me/mods:1"
    artifact.publish(artifact.prepare(str(mods), ref, sign=private))
    put(registry, GOOD)
    with pytest.raises(Refused, match="no signature of vllm-mods is attached"):
        artifact.pull(ref, signers=signers)


# --- what is published -------------------------------------------------------------------


@pytest.mark.parametrize("place", ["patches/tiny/secret", "patches/secret", "pairings"])
@pytest.mark.parametrize("kind", ["file", "folder", "fifo"])
def test_what_is_linked_into_a_library_is_not_published(
    registry: SmallRegistry, mods: Path, tmp_path: Path, place: str, kind: str
) -> None:
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("secret")
    if kind == "fifo":
        os.mkfifo(mods / place)
    else:
        (mods / place).symlink_to(tmp_path / "home" / (".ssh" if kind == "folder" else ".ssh/id"))
    with pytest.raises(VllmModsError, match=r"is a symbolic link|is a named pipe|Not a directory"):
        artifact.prepare(str(mods), f"{registry.host}/me/mods:1")
    assert not registry.asked


@pytest.mark.parametrize("name", ["a\\b", "a\x1bb", "a\nb", os.fsdecode(b"a\xff")])
def test_a_name_that_nobody_would_take_is_not_published(
    registry: SmallRegistry, mods: Path, name: str
) -> None:
    (mods / "patches" / name).write_bytes(b"")
    with pytest.raises(UsageError, match="so it cannot be published"):
        artifact.prepare(str(mods), f"{registry.host}/me/mods:1")
