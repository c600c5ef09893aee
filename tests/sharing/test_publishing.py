"""A library goes into a registry whole, checked before anything is sent, and comes out as it went in."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import lone_project
import pytest
from making_images import Image, digest
from mod_making import diff_of, write_mod
from small_registry import SmallRegistry, small_registry

from vllm_mods.base.errors import ManifestError, Refused, TreeError, UsageError
from vllm_mods.cli import run
from vllm_mods.sharing import artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

PATCH = diff_of("vllm/a.py", "a\nb\nc\n", "a\nz\nc\n")
PAIRING = """\
schema = 1
name = "small"
summary = "s"
model = "org/m"
base = "base:1"
mods = ["tiny"]
command = "vllm serve org/m"
"""
# What the library below is, on every machine and for good.
DIGEST = "sha256:98d85f585836fb364a34f28863b2e051ff08c01cb034f2750a9fd69143377755"


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lone_project.without_logins(tmp_path, monkeypatch)


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


@pytest.fixture
def mods(tmp_path: Path) -> Path:
    return library(tmp_path / "mods")


def library(folder: Path) -> Path:
    write_mod(folder, "tiny", PATCH)
    (folder / "pairings").mkdir()
    (folder / "pairings/small.toml").write_text(PAIRING)
    return folder


def published(folder: Path, reference: str, **more: str) -> artifact.Published:
    return artifact.publish(artifact.prepare(str(folder), reference, **more))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_is_pulled_is_what_was_published(registry: SmallRegistry, mods: Path) -> None:
    ref = f"{registry.host}/me/mods:1"
    made = published(mods, ref)
    for name in (ref, f"{registry.host}/me/mods@{made.digest}", f"{ref}@{made.digest}"):
        assert artifact.pull(name) == (made.digest, contents(mods))
    assert made.bytes_sent == sum(map(len, (*registry.blobs.values(), registry.manifests["1"])))
    assert registry.written[-1] == "/v2/me/mods/manifests/1"
    registry.asked.clear()
    assert published(mods, ref) == (ref, made.digest, 0)
    assert not registry.written


def test_the_same_files_have_the_same_digest_wherever_they_lie(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere/of another name"
    before = os.umask(0o077)
    try:
        for path, data in reversed(contents(mods).items()):
            (other / path).parent.mkdir(parents=True, exist_ok=True)
            (other / path).write_bytes(data)
            (other / path).chmod(0o700)
            os.utime(other / path, (7, 7))
    finally:
        os.umask(before)
    for name in (".git/config", "patches/.port-1/x", "patches/tiny/__pycache__/x.pyc", "README"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text("mine")
    one = artifact.prepare(str(mods), f"{registry.host}/me/mods:1")
    two = artifact.prepare(str(other), f"{registry.host}/they/theirs:v2")
    assert one.digest == two.digest == DIGEST
    assert one.library.files == two.library.files == contents(mods)


def test_the_manifest_says_what_is_in_it(registry: SmallRegistry, mods: Path) -> None:
    either = write_mod(mods, "other", PATCH) / "mod.toml"
    either.write_text(either.read_text().replace('"MIT"', '"MIT OR Apache-2.0"'))
    published(mods, f"{registry.host}/me/mods:1")
    manifest = json.loads(registry.manifests["1"])
    assert manifest["artifactType"] == artifact.KIND
    assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert manifest["annotations"] == {
        "org.opencontainers.image.licenses": "MIT AND (MIT OR Apache-2.0)",
        "org.opencontainers.image.title": "other, tiny",
        "org.opencontainers.image.version": "1.0.0",
        "vllm-mods.mods": "other 1.0.0, tiny 1.0.0",
        "vllm-mods.pairings": "small",
    }


def test_a_tag_that_is_something_else_is_not_moved(registry: SmallRegistry, mods: Path) -> None:
    ref = f"{registry.host}/me/mods:1"
    published(mods, ref)
    (mods / "patches/tiny/x.patch").write_bytes(PATCH.replace(b"+z", b"+y"))
    registry.asked.clear()
    with pytest.raises(Refused, match=f"{ref} is sha256:.* already, and .* a tag is not moved"):
        published(mods, ref)
    assert not registry.written
    assert published(mods, f"{registry.host}/me/mods:2").bytes_sent


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("patches/tiny/x.patch", "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1,9 +1 @@\n", "x.patch"),
        ("patches/tiny/mod.toml", "name = 1\n", "patches/tiny/mod.toml"),
        ("pairings/small.toml", PAIRING.replace("small", "large"), "is not the name of its file"),
        ("pairings/small.lock", "{}", "pairings/small.lock"),
        ("patches/tiny/mod.toml", "LicenseRef-unstated", r"passed on \[license-unstated\]"),
        ("SHA256SUMS", "", "is in no list of hashes"),
    ],
)
def test_a_faulty_library_is_not_published(
    registry: SmallRegistry, mods: Path, path: str, text: str, said: str
) -> None:
    if text.startswith("License"):
        text = (mods / path).read_text().replace("MIT", text)
    (mods / path).write_text(text)
    with pytest.raises((ManifestError, Refused), match=said):
        published(mods, f"{registry.host}/me/mods:1")
    assert not registry.asked


def test_everything_that_is_wrong_is_said_at_once(registry: SmallRegistry, mods: Path) -> None:
    (mods / "patches/tiny/mod.toml").write_text("name = 1\n")
    (mods / "pairings/small.toml").write_text("")
    with pytest.raises(ManifestError) as caught:
        published(mods, f"{registry.host}/me/mods:1")
    assert len(caught.value.problems) == 2


def test_a_list_of_hashes_travels_with_its_library(registry: SmallRegistry, mods: Path) -> None:
    sums = [f"{hashlib.sha256(data).hexdigest()}  {path}" for path, data in contents(mods).items()]
    (mods / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    published(mods, f"{registry.host}/me/mods:1")
    assert artifact.pull(f"{registry.host}/me/mods:1").files == contents(mods)


def test_a_folder_without_any_of_it_is_no_library(registry: SmallRegistry, tmp_path: Path) -> None:
    (tmp_path / "empty/patches").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds no mod, no template and no pairing"):
        published(tmp_path / "empty", f"{registry.host}/me/mods:1")
    with pytest.raises(UsageError, match="has no patches, templates, pairings"):
        published(tmp_path, f"{registry.host}/me/mods:1")


@pytest.mark.parametrize("end", ["/me/mods", f"/me/mods:1@{digest(b'')}"])
def test_a_tag_has_to_be_named(registry: SmallRegistry, mods: Path, end: str) -> None:
    with pytest.raises(UsageError, match="is published under a tag") as caught:
        published(mods, f"{registry.host}{end}")
    assert caught.value.hint == f"{registry.host}/me/mods:1"


@pytest.mark.parametrize("failing", ["/blobs/uploads/1", "/manifests/1"])
def test_a_registry_that_fails_has_no_tag(
    registry: SmallRegistry, mods: Path, failing: str
) -> None:
    registry.refused = failing
    with pytest.raises(TreeError, match=r"answered 507 .*no tag was moved"):
        published(mods, f"{registry.host}/me/mods:1")
    assert "1" not in registry.manifests


def test_an_image_is_no_library(registry: SmallRegistry) -> None:
    manifest, blobs = Image([gzip.compress(b"")]).blobs()
    registry.put(json.loads(manifest), *blobs.values())
    with pytest.raises(UsageError, match="is an image, and no library") as caught:
        artifact.pull(f"{registry.host}/me/mods:1")
    assert caught.value.hint == f"vllm-mods image inspect registry:{registry.host}/me/mods:1"
    registry.put({"manifests": []})
    with pytest.raises(UsageError, match="is an index of images, and no library"):
        artifact.pull(f"{registry.host}/me/mods:1")
    registry.put({"artifactType": "application/vnd.cncf.helm"})
    with pytest.raises(UsageError, match=r"is of the kind 'application/vnd\.cncf\.helm', and no"):
        artifact.pull(f"{registry.host}/me/mods:1")


def test_logins_are_dockers_own_and_appear_nowhere(
    registry: SmallRegistry, mods: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = base64.b64encode(b"me:hunter2").decode()
    registry.login = f"Basic {text}"
    ref = f"{registry.host}/me/mods:1"
    assert run(["publish", str(mods), ref]) == 3
    assert "docker login" in capfd.readouterr().err
    (tmp_path / "home/.docker").mkdir(parents=True)
    logins = {"auths": {registry.host: {"auth": text}}}
    (tmp_path / "home/.docker/config.json").write_text(json.dumps(logins))
    assert run(["publish", "-v", str(mods), ref]) == 0
    assert artifact.pull(ref).files == contents(mods)
    said = "".join(capfd.readouterr())
    sent = b"".join((*registry.blobs.values(), *registry.manifests.values())).decode()
    assert not {text, "hunter2"} & {word for word in (text, "hunter2") if word in said + sent}


# --- signatures --------------------------------------------------------------------------


def key(folder: Path, name: str = "me", namespace: str = "vllm-mods") -> tuple[str, str]:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("not installed: ssh-keygen")
    private = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private], check=True)
    signers = folder / f"{name}.signers"
    public = private.with_suffix(".pub").read_text()
    signers.write_text(f'{name}@here namespaces="{namespace}" {public}')
    return str(private), str(signers)


@pytest.mark.slow
def test_a_signature_is_attached_and_verified(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    private, signers = key(tmp_path)
    _, others = key(tmp_path, "they")
    ref = f"{registry.host}/me/mods:1"
    unsigned = published(mods, ref)
    with pytest.raises(
        Refused, match=f"no signature of vllm-mods is attached to {unsigned.digest}"
    ):
        artifact.pull(ref, signers=signers)
    signed = published(mods, ref, sign=private)
    assert (signed.digest, bool(signed.bytes_sent)) == (unsigned.digest, True)
    assert published(mods, ref, sign=private).bytes_sent == 0
    assert artifact.pull(ref, signers=signers).digest == signed.digest
    with pytest.raises(Refused, match=f"is by nobody in {others}"):
        artifact.pull(ref, signers=others)


def test_a_signature_that_a_mirror_lists_without_its_kind_is_found(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    private, signers = key(tmp_path)
    ref = f"{registry.host}/me/mods:1"
    made = published(mods, ref, sign=private)
    registry.put({"artifactType": "x/y", "layers": 7, "subject": {"digest": made.digest}}, tag="2")
    index = json.loads(registry.referrers(made.digest))
    for one in index["manifests"]:
        del one["artifactType"]
    registry.lies[f"/referrers/{made.digest}"] = (200, json.dumps(index).encode(), {})
    assert artifact.pull(ref, signers=signers).digest == made.digest


def test_a_signature_is_there_before_the_tag(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    made = published(mods, f"{registry.host}/me/mods:1", sign=key(tmp_path)[0])
    *_, library, _statement, _signature, attached, tag = registry.written
    assert (library, tag) == (f"/v2/me/mods/manifests/{made.digest}", "/v2/me/mods/manifests/1")
    assert attached.startswith("/v2/me/mods/manifests/sha256:")


@pytest.mark.parametrize("code", [0, 1])
def test_cosign_signs_what_is_published_before_it_has_a_tag(
    registry: SmallRegistry, mods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A stand-in for cosign, which says how it was called."""
    program = tmp_path / "bin/cosign"
    program.parent.mkdir()
    said = f'#!/bin/sh\necho "$@" >>{tmp_path}/log\n[ "$1" = version ] || exit {code}\n'
    program.write_text(said)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    ref = f"{registry.host}/me/mods:1"
    ready = artifact.prepare(str(mods), ref, sign="awskms:///x")
    if code:
        with pytest.raises(Refused, match=r"cosign does not sign .*; no tag was moved"):
            artifact.publish(ready)
    else:
        artifact.publish(ready)
    assert ("1" in registry.manifests) == (not code)
    words = (tmp_path / "log").read_text().splitlines()[-1].split()
    assert (words[0], words[-1]) == ("sign", f"{registry.host}/me/mods@{ready.digest}")


def test_a_key_that_does_not_sign_sends_nothing(
    registry: SmallRegistry, mods: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("no key")
    with pytest.raises(UsageError, match="ssh-keygen does not sign with"):
        published(mods, f"{registry.host}/me/mods:1", sign=str(tmp_path / "key"))
    assert not registry.asked


# --- the command -------------------------------------------------------------------------


def test_the_command_says_what_others_type(
    registry: SmallRegistry, mods: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = f"{registry.host}/me/mods:1"
    assert run(["publish", str(mods), ref, "--dry-run"]) == 0
    dry = capsys.readouterr().out.splitlines()
    assert not registry.written
    assert dry[:3] == [
        "tiny 1.0.0  MIT  s",
        "pairings: small",
        f"would publish {ref}: 3 files, {sum(map(len, contents(mods).values())):,} bytes",
    ]
    assert dry[3:6] == [f"  {path}" for path in contents(mods)]
    assert run(["publish", str(mods), ref]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-2:] == dry[-2:]
    assert told[-1] == f"others type: vllm-mods add oci:{ref}@{artifact.pull(ref).digest}"
    assert run(["publish", str(mods), ref, "--dry-run"]) == 0
    assert f"\n{ref} is this already: 3 files" in capsys.readouterr().out


def test_the_command_answers_in_json_and_takes_the_folder_it_is_in(
    registry: SmallRegistry,
    mods: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(mods)
    ref = f"{registry.host}/me/mods:1"
    assert run(["publish", ref, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["source"] == f"oci:{ref}@{told['digest']}"
    assert told["mods"] == [{"name": "tiny", "version": "1.0.0", "license": "MIT"}]
    assert told["files"].keys() == contents(mods).keys()
    assert (told["there"], told["signed"], told["dry_run"]) == (False, False, False)
    assert artifact.pull(ref).digest == told["digest"]
    assert run(["publish", "a", "b", ref]) == 2
