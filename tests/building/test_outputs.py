"""Where an image goes, without a real engine or registry: what is left when something goes wrong."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import FileIO
from typing import TYPE_CHECKING, ClassVar, cast

import pytest
from folder_base import FolderBase

from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.building import oci, outputs, tarball
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import engine, files, registry
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images import oci as reading
from vllm_mods.images.model import Blob, Descriptor, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase
    from pathlib import Path

BELOW = b"the base's layer" * 100
TAG = "p:1-2"


def based(root: Path, data: bytes = BELOW) -> FolderBase:
    found = FolderBase(root)
    digest = digest_of(BELOW)
    found.diff_ids = (digest,)
    found.configure({})
    found.layers = (Descriptor(oci.LAYER, digest, len(BELOW)),)
    found.blobs = (Blob(digest, len(BELOW), lambda: cast("RawIOBase", io.BytesIO(data)), digest),)
    return found


def built(base: FolderBase, text: bytes = b"1") -> BuiltImage:
    layer = tarball.write([TarEntry("etc/a", text, 0o644)])
    return oci.append(
        json.loads(base.config), base.layers, layer, created_by="x", labels={}, epoch=0
    )


def test_a_layout_holds_every_blob_under_its_digest(tmp_path: Path) -> None:
    base = based(tmp_path)
    one, two = built(base), built(base, b"2")
    place = tmp_path / "layout"
    files.layout([(one, base)], str(place), TAG)
    files.layout([(one, base)], str(place), TAG)
    files.layout([(two, base)], str(place), "p:other")
    for blob in (place / "blobs/sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    index = json.loads((place / "index.json").read_bytes())
    names = [
        entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"]
    ]
    assert names == ["1-2", "other"]
    for entry in index["manifests"]:
        manifest = json.loads((place / oci.blob_path(entry["digest"])).read_bytes())
        for layer in manifest["layers"]:
            assert (place / oci.blob_path(layer["digest"])).stat().st_size == layer["size"]
    before = sorted(path.name for path in place.rglob("*"))
    with pytest.raises(Refused, match="vllm-mods does not move a tag;"):
        files.layout([(two, base)], str(place), TAG)
    assert sorted(path.name for path in place.rglob("*")) == before


def test_a_damaged_base_leaves_nothing_behind(tmp_path: Path) -> None:
    base = based(tmp_path, b"other bytes")
    place = tmp_path / "there/x"
    place.parent.mkdir()
    with pytest.raises((TreeError, ValueError)):
        files.layout([(built(base), base)], str(place), TAG)
    assert os.listdir(place.parent) == []


def test_something_else_in_the_way_is_left_alone(tmp_path: Path) -> None:
    base = based(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_bytes(b"")
    with pytest.raises(Refused, match="is not an OCI layout;"):
        files.layout([(built(base), base)], str(tmp_path / "mine"), TAG)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_layout_whose_build_was_killed_is_built_again(tmp_path: Path) -> None:
    base, place = based(tmp_path), tmp_path / "layout"
    for path in (".vllm-mods-0/blobs/sha256/0", "blobs/sha256/0", "oci-layout", ".index.json.new"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(b"begun")
        files.layout([(built(base), base)], str(place), TAG)
        (place / "index.json").unlink()  # as if it had not come so far
    (place / "mine").write_bytes(b"")
    with pytest.raises(Refused, match="is not an OCI layout;"):
        files.layout([(built(base), base)], str(place), TAG)


def test_layers_that_only_an_engine_has_are_not_made_up(tmp_path: Path) -> None:
    base = FolderBase(tmp_path, where="podman", reference="podman:small")
    with pytest.raises(Refused, match="podman cannot export the layers of podman:small"):
        files.layout([(built(base), base)], str(tmp_path / "layout"), TAG)


@pytest.mark.parametrize("text", ["oci", "oci:", "tar:x", "registry", "thin:x", "oci-archive:x"])
def test_no_such_place(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--output {text}: unknown kind of output"):
        outputs.parse(text, FolderBase(tmp_path))


def test_without_an_output_it_is_the_bases_engine(tmp_path: Path) -> None:
    assert outputs.parse(None, FolderBase(tmp_path, where="podman")).kind == outputs.ENGINE
    with pytest.raises(UsageError, match="is not in a local engine"):
        outputs.parse(None, FolderBase(tmp_path))


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called docker that keeps one file per tag and does what ``mood`` says."""
    folder = tmp_path / "docker"
    folder.mkdir()
    program = folder / "docker"
    program.write_text(
        f"#!/bin/sh\ncd {folder}\n"
        'if [ "$1" = image ]; then cat id 2>/dev/null || { echo "No such image: $5" >&2; exit 1; }\n'
        "else cat > loaded; cat mood >&2; [ -s mood ] && exit 1; cp next id; fi\n"
    )
    program.chmod(0o755)
    (folder / "mood").write_bytes(b"")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def into_engine(made: BuiltImage, where: str) -> None:
    engine.write(made, where, TAG)


def test_an_engine_gets_the_new_layer_alone(docker: Path, tmp_path: Path) -> None:
    made = built(based(tmp_path))
    (docker / "next").write_text(made.config_digest)
    into_engine(made, "docker")
    assert (docker / "loaded").read_bytes() == engine.thin(made, TAG)
    (docker / "loaded").unlink()
    into_engine(made, "docker")
    assert not (docker / "loaded").exists()


def test_a_tag_of_another_image_is_not_moved(docker: Path, tmp_path: Path) -> None:
    (docker / "id").write_text(f"sha256:{'e' * 64}")
    with pytest.raises(Refused, match=f"{TAG} already names sha256:e+"):
        into_engine(built(based(tmp_path)), "docker")
    assert not (docker / "loaded").exists()


@pytest.mark.parametrize(
    ("mood", "error", "said"),
    [
        ("no space left on device", TreeError, "docker load: no space left on device; no tag"),
        ("open /x/layer.tar: no such file", Refused, "no longer has every layer of the base"),
    ],
)
def test_an_engine_that_fails(
    docker: Path, tmp_path: Path, mood: str, error: type[Exception], said: str
) -> None:
    (docker / "mood").write_text(mood)
    with pytest.raises(error, match=said):
        into_engine(built(based(tmp_path)), "docker")


def test_an_engine_that_takes_it_for_another_image(docker: Path, tmp_path: Path) -> None:
    (docker / "next").write_text(f"sha256:{'e' * 64}")
    with pytest.raises(
        TreeError, match=r"docker loaded the image as sha256:e+, but its ID should be"
    ):
        into_engine(built(based(tmp_path)), "docker")


def test_podman_wants_a_manifest(docker: Path, tmp_path: Path) -> None:
    (docker / "podman").symlink_to("docker")
    base = based(tmp_path)
    base.layers = None
    with pytest.raises(Refused, match="podman does not have the registry digests"):
        into_engine(built(base), "podman")


class Fake(BaseHTTPRequestHandler):
    """A registry that answers as ``mounts`` and ``writes`` say, and remembers what it was sent."""

    mounts = 201
    writes = 201
    disable_nagle_algorithm = True
    there: bytes | None = None  # the manifest of the tag
    sent: ClassVar[list[tuple[str, str, int]]] = []

    def do_HEAD(self) -> None:
        # As docker's registry does: what is no answer to "Accept" is not there.
        kind = json.loads(self.there or b"{}").get("mediaType", reading.MANIFEST)
        taken = kind in (self.headers.get("Accept") or kind)
        self._answer(404 if self.there is None or not taken else 200)

    def do_GET(self) -> None:
        self._answer(200)
        self.wfile.write(self.there or b"")

    def do_POST(self) -> None:
        mounting = "mount=" in self.path
        self._answer(self.mounts if mounting else 202 if self.writes == 201 else self.writes)

    def do_PUT(self) -> None:
        self._answer(self.writes)

    def do_DELETE(self) -> None:
        self._answer(204)

    def _answer(self, code: int) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        self.sent.append((self.command, self.path, length))
        self.send_response(code)
        self.send_header("Location", "/v2/me/it/blobs/uploads/1")
        self.send_header("Content-Length", str(len(self.there or b"")))
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Fake, "sent", [])
    server = HTTPServer(("127.0.0.1", 0), Fake)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def from_registry(host: str, root: Path) -> FolderBase:
    base = based(root)
    base.where, base.reference = "registry", f"registry:{host}/lib/base:1"
    return base


def pushed_to(made: BuiltImage, base: FolderBase, ref: str, tag: str) -> tuple[str, str, int]:
    return registry.push([(made, base)], ref, tag)


def test_a_push_sends_what_is_new_and_the_manifest_last(host: str, tmp_path: Path) -> None:
    base = from_registry(host, tmp_path)
    made = built(base)
    name, digest, sent = pushed_to(made, base, f"{host}/me/it", TAG)
    assert (name, digest) == (f"{host}/me/it:1-2", made.manifest_digest)
    puts = [(path, size) for method, path, size in Fake.sent if method == "PUT"]
    assert [size for _, size in puts] == [
        len(made.layer_blob[1]),
        len(made.config),
        len(made.manifest or b""),
    ]
    assert puts[-1][0] == "/v2/me/it/manifests/1-2"
    assert sent == sum(size for _, _, size in Fake.sent)
    mount = next(path for method, path, _ in Fake.sent if "mount=" in path)
    assert mount.endswith("from=lib%2Fbase")


def test_a_registry_that_refuses_mounts_gets_nothing(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "mounts", 202)
    base = from_registry(host, tmp_path)
    with pytest.raises(
        Refused, match=r"cannot mount that layer from lib/base\. vllm-mods does not upload layers"
    ):
        pushed_to(built(base), base, f"{host}/me/it:x", TAG)
    assert sum(size for _, _, size in Fake.sent) == 0
    assert ("DELETE", "/v2/me/it/blobs/uploads/1", 0) in Fake.sent


@pytest.mark.parametrize(
    ("code", "hint"), [(401, "docker login"), (403, "docker login"), (500, "")]
)
def test_a_registry_that_does_not_let_us_write(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    monkeypatch.setattr(Fake, "writes", code)
    base = from_registry(host, tmp_path)
    with pytest.raises(TreeError, match=f"answered {code}.*no tag was moved") as error:
        pushed_to(built(base), base, f"{host}/me/it:x", TAG)
    assert hint in (error.value.hint or "")
    assert not [path for method, path, _ in Fake.sent if method == "PUT" and "manifests" in path]


def test_an_index_comes_after_all_that_it_names(host: str, tmp_path: Path) -> None:
    base = from_registry(host, tmp_path)
    images = [(built(base), base), (built(base, b"2"), base)]
    _, digest, _ = registry.push(images, f"{host}/me/it", TAG)
    puts = [path for method, path, _ in Fake.sent if method == "PUT" and "/manifests/" in path]
    named = [f"/v2/me/it/manifests/{one.manifest_digest}" for one, _ in images]
    assert puts == [*named, "/v2/me/it/manifests/1-2"]
    assert digest == digest_of(oci.top([one for one, _ in images]))


def test_a_tag_of_an_index_is_not_moved_by_an_image(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = from_registry(host, tmp_path)
    there = {"mediaType": reading.INDEX, "manifests": []}
    monkeypatch.setattr(Fake, "there", json.dumps(there).encode())
    with pytest.raises(Refused, match="vllm-mods does not move a tag;"):
        pushed_to(built(base), base, f"{host}/me/it:x", TAG)
    assert not [path for method, path, _ in Fake.sent if method == "PUT"]


def test_an_image_that_another_zlib_packed_is_there_already(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = from_registry(host, tmp_path)
    made = built(base)
    there = {"config": {"digest": made.config_digest}, "layers": []}
    monkeypatch.setattr(Fake, "there", json.dumps(there).encode())
    _, digest, _ = pushed_to(made, base, f"{host}/me/it:x", TAG)
    assert digest != made.manifest_digest
    assert not [path for method, path, _ in Fake.sent if method == "PUT"]
    there["config"] = {"digest": "sha256:0"}
    monkeypatch.setattr(Fake, "there", json.dumps(there).encode())
    with pytest.raises(Refused):
        pushed_to(made, base, f"{host}/me/it:x", TAG)


def test_the_readers_of_layers_can_be_linked(tmp_path: Path) -> None:
    """A layer that is a file on the disk gets a second name, and no byte is copied."""
    layer = tmp_path / "blob"
    layer.write_bytes(BELOW)
    base = based(tmp_path)
    base.blobs = (base.blobs[0]._replace(open=lambda: FileIO(str(layer))),)
    files.layout([(built(base), base)], str(tmp_path / "layout"), TAG)
    place = tmp_path / "layout" / oci.blob_path(digest_of(BELOW))
    assert place.samefile(layer)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("docker", (outputs.ENGINE, "")),
        ("oci:a/b", (outputs.OCI, "a/b")),
        ("registry:h.io/a:1", (outputs.REGISTRY, "h.io/a:1")),
    ],
)
def test_a_place_is_named_by_its_kind(tmp_path: Path, text: str, output: tuple[str, str]) -> None:
    assert outputs.parse(text, FolderBase(tmp_path, where="containerd")) == output


def test_a_place_is_refused_with_the_forms_there_are(tmp_path: Path) -> None:
    base = FolderBase(tmp_path, reference="oci:x")
    forms = "one of docker, oci:DIR, registry:REF"
    for text in ("tar:x", "oci"):
        with pytest.raises(UsageError) as caught:
            outputs.parse(text, base)
        message = f"--output {text}: unknown kind of output"
        assert (caught.value.message, caught.value.hint) == (message, forms)
    for engine_of in (None, "docker"):
        with pytest.raises(UsageError) as caught:
            outputs.parse(engine_of, base)
        why = "so no engine can add a layer to it"
        assert caught.value.message == f"oci:x is not in a local engine (oci-layout), {why}"
        assert caught.value.hint == "--output oci:DIR, or --output registry:REF"
    with pytest.raises(UsageError, match="not an image name:"):
        outputs.parse("registry:A", base)
    # nothing can be put under a digest: it went under `latest`, which nobody had named
    with pytest.raises(UsageError, match="an image gets a tag there") as caught:
        outputs.parse(f"registry:h.x/a@sha256:{'0' * 64}", base)
    assert caught.value.hint == "--output registry:h.x/a"


def test_what_was_done_is_said(
    docker: Path, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = from_registry(host, tmp_path)
    ours = built(base)
    written = outputs.write(outputs.Output("oci", "out"), [(ours, base)], TAG)
    assert written == (f"wrote {TAG} to out", None)
    assert (tmp_path / "out/index.json").exists()
    pushed = outputs.write(outputs.Output("registry", f"{host}/me/it"), [(ours, base)], TAG)
    sent = sum(size for _, _, size in Fake.sent)
    assert pushed.message == f"pushed {host}/me/it:1-2@{ours.manifest_digest}: {sent:,} bytes sent"
    assert pushed.pushed == ours.manifest_digest
    (docker / "next").write_text(ours.config_digest)
    base.where = "docker"
    loaded = outputs.write(outputs.Output("docker"), [(ours, base)], TAG)
    size = f"{len(ours.layer):,}"
    assert loaded == (f"loaded {TAG} into docker: {size} bytes added to the base", None)


@pytest.mark.parametrize("tag", [TAG, "h.io/p:1-2"])
def test_podman_gets_a_file_under_the_name_that_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    ours = built(based(tmp_path))
    name = tag if tag != TAG else f"localhost/{TAG}"
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncd {program.parent}\necho "$@" >> calls\n'
        "[ $1 = image ] && { echo no such image >&2; exit 1; }\n"
        f"cp ${{3#oci-archive:}} loaded\necho Loaded; echo {ours.config_digest[7:]}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    engine.write(ours, "podman", tag)
    assert (program.parent / "loaded").read_bytes() == engine.thin(ours, name)
    inspect, pull = (program.parent / "calls").read_text().splitlines()
    assert inspect == f"image inspect --format {{{{.Id}}}} {name}"
    assert pull.startswith("pull --quiet oci-archive:")
    assert not os.path.exists(pull.partition("oci-archive:")[2])


def test_an_engine_that_names_an_id_without_its_kind(docker: Path, tmp_path: Path) -> None:
    ours = built(based(tmp_path))
    (docker / "id").write_text(ours.config_digest.removeprefix("sha256:"))
    into_engine(ours, "docker")
    assert not (docker / "loaded").exists()


def test_the_manifest_is_the_id_in_dockers_other_store(docker: Path, tmp_path: Path) -> None:
    ours = built(based(tmp_path))
    (docker / "next").write_text(str(ours.manifest_digest))
    into_engine(ours, "containerd")
    assert (docker / "loaded").exists()


def test_an_engine_that_cannot_be_asked_for_a_tag(docker: Path, tmp_path: Path) -> None:
    (docker / "docker").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with pytest.raises(TreeError) as caught:
        into_engine(built(based(tmp_path)), "docker")
    message = "docker load: broken; no tag was moved"
    assert (caught.value.message, caught.value.hint) == (message, "docker info")


def test_what_goes_wrong_with_an_engine_has_a_next_step(docker: Path, tmp_path: Path) -> None:
    ours = built(based(tmp_path))
    hints = []
    (docker / "next").write_text("sha256:0")
    with pytest.raises(TreeError) as failed:
        into_engine(ours, "docker")
    hints.append(failed.value.hint)
    with pytest.raises(Refused) as refused:
        into_engine(ours, "docker")  # the tag is another's by now
    hints.append(refused.value.hint)
    (docker / "id").unlink()
    for mood in ("layer.tar does not exist", "no such file"):
        (docker / "mood").write_text(mood)
        with pytest.raises(Refused) as refused:
            into_engine(ours, "docker")
        assert refused.value.message == (
            f"{TAG}: docker no longer has every layer of the base ({mood}); no tag was moved"
        )
        hints.append(refused.value.hint)
    base = based(tmp_path)
    base.layers = None
    with pytest.raises(Refused) as refused:
        into_engine(built(base), "podman")
    hints.append(refused.value.hint)
    again = "pull or build the base again, then run the command again"
    assert hints == [
        f"docker rmi {TAG}  # then run the command again, or with `--output oci:DIR`",
        "--tag another-name:tag, or remove the old image first",
        again,
        again,
        "--base registry:REF --output oci:DIR, then `podman pull oci:DIR`",
    ]


def test_an_image_without_a_manifest_goes_into_docker(docker: Path, tmp_path: Path) -> None:
    base = based(tmp_path)
    base.layers = None
    ours = built(base)
    (docker / "next").write_text(ours.config_digest)
    into_engine(ours, "docker")
    assert (docker / "loaded").read_bytes() == engine.thin(ours, TAG)


@pytest.mark.parametrize(
    ("where", "store"), [("podman", "containers-storage"), ("docker", "docker-daemon")]
)
def test_how_the_layers_of_an_engine_are_had(tmp_path: Path, where: str, store: str) -> None:
    bases = [based(tmp_path), based(tmp_path)]
    bases[0].layers, bases[1].blobs = None, ()
    for base in bases:
        base.where, base.reference = where, f"{where}:small"
        with pytest.raises(Refused) as caught:
            files.layout([(built(based(tmp_path)), base)], str(tmp_path / "layout"), TAG)
        hint = f"skopeo copy {store}:small oci:DIR, then --base oci:DIR; or build in {where} and save that image"
        assert caught.value.hint == hint


BROKEN_INDEXES = (
    *(b"{", b"[]", b"{}", b'{"manifests":null}', b'{"manifests":{"a":1}}', b'{"manifests":[1]}'),
    *(b'{"manifests":[{"annotations":"x"}]}', None),
)


@pytest.mark.parametrize("index", BROKEN_INDEXES)
def test_a_layout_whose_index_cannot_be_read_is_left_alone(
    tmp_path: Path, index: bytes | None
) -> None:
    place = tmp_path / "layout"
    place.mkdir()
    if index is None:
        (place / "index.json").mkdir()
    else:
        (place / "index.json").write_bytes(index)
    base = based(tmp_path)
    with pytest.raises(TreeError, match=f"^{place}/index.json cannot be read: ") as caught:
        files.layout([(built(base), base)], str(place), TAG)
    assert caught.value.hint == "--output oci:DIR with a new folder"
    assert os.listdir(place) == ["index.json"]


def test_a_tag_that_only_a_whole_name_says_is_not_moved(tmp_path: Path) -> None:
    # nerdctl and containerd write the whole name, and no tag beside it
    place = tmp_path / "layout"
    place.mkdir()
    other = {"digest": f"sha256:{'0' * 64}", "size": 1, "mediaType": reading.MANIFEST}
    name = {"io.containerd.image.name": "docker.io/library/small:1"}
    before = json.dumps({"manifests": [{**other, "annotations": name}]})
    (place / "index.json").write_text(before)
    base = based(tmp_path)
    with pytest.raises(Refused, match="small:1 already names sha256:000"):
        files.layout([(built(base), base)], str(place), "small:1")
    assert (place / "index.json").read_text() == before


def test_an_empty_folder_becomes_a_layout(tmp_path: Path) -> None:
    place = tmp_path / "layout"
    place.mkdir()
    base = based(tmp_path)
    files.layout([(built(base), base)], str(place), TAG)
    assert (place / "oci-layout").read_bytes() == oci.LAYOUT
    assert (place / "index.json").stat().st_mode & 0o777 == 0o644
    assert all(blob.stat().st_mode & 0o777 == 0o644 for blob in place.glob("blobs/*/*"))


@pytest.mark.parametrize(("number", "hint"), [(28, "df -h "), (122, "df -h "), (13, "ls -la ")])
def test_a_disk_that_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    base = based(tmp_path)
    place = tmp_path / "layout"

    def full(*_given: object, **_more: object) -> None:
        raise OSError(number, "so it is")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(Refused) as caught:
        files.layout([(built(base), base)], str(place), TAG)
    assert caught.value.message == f"{place} cannot be written: so it is; nothing was changed"
    assert caught.value.hint == f"{hint}{tmp_path}"
    assert not place.exists()
