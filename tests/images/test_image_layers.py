"""Images in layouts and archives: what the layers make together, and what is broken about some."""

from __future__ import annotations

import gc
import io
import json
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from making_images import Folder, Image, Link, Thing, digest, layer

from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.images.model import resolve
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.images.model import Base

LOW: dict[str, Thing] = {
    "usr/lib/a.py": b"low",
    "lib": Link("usr/lib"),
    "opt/old/x.py": b"x",
    "opt/old/deep/y.py": b"y",
    "opt/replaced/z.py": b"z",
    "etc/name": b"n",
    "etc/other": Link("etc/name", hard=True),
    "tmp": Folder(0o1777, uid=7),
    "site/dist-packages/vllm/a.py": b"A = 1\n",
}
HIGH: dict[str, Thing] = {
    "usr/lib/b.py": b"high",
    "opt/old/.wh..wh..opq": b"",
    "opt/old/new.py": b"new",
    "opt/replaced": b"a file now",
    "etc/.wh.name": b"",
    "site/dist-packages/vllm/a.py": b"A = 2\n",
}
IMAGE = Image([layer(LOW), layer(HIGH)], {"Env": ["PATH=/usr/bin"]})


def opened(reference: str, tmp_path: Path) -> Base:
    return open_base(reference, cache_dir=str(tmp_path / "cache"))


@pytest.fixture(params=["", "gzip", "zstd"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    """Return the image with its layers packed in each way."""
    return opened(f"oci:{IMAGE.layout(tmp_path / 'l', request.param)}", tmp_path)


def test_layers_cover_each_other(base: Base) -> None:
    contents = {
        path: base.read(path)
        for path in ("usr/lib/a.py", "usr/lib/b.py", "opt/old/x.py", "opt/old/deep/y.py",
                     "opt/old/new.py", "opt/replaced", "opt/replaced/z.py", "etc/name", "lib/a.py",
                     "site/dist-packages/vllm/a.py")
    }  # fmt: skip
    assert contents == {
        "usr/lib/a.py": b"low",
        "usr/lib/b.py": b"high",
        "opt/old/x.py": None,
        "opt/old/deep/y.py": None,
        "opt/old/new.py": b"new",
        "opt/replaced": b"a file now",
        "opt/replaced/z.py": None,
        "etc/name": None,
        "lib/a.py": None,
        "site/dist-packages/vllm/a.py": b"A = 2\n",
    }
    assert sorted(entry.path for entry in base.paths("opt")) == [
        "opt/old",
        "opt/old/new.py",
        "opt/replaced",
    ]
    tmp = base.entry("tmp")
    assert tmp is not None
    assert (tmp.kind, tmp.mode, tmp.uid, tmp.mtime) == ("dir", 0o1777, 7, 1_500_000_000)
    root = base.entry("")
    assert root is not None
    assert root.kind == "dir"


def test_what_the_image_says_of_itself(base: Base) -> None:
    assert base.config == IMAGE.config
    assert base.config_digest == digest(IMAGE.config)
    assert base.diff_ids == tuple(digest(one) for one in IMAGE.layers)
    if base.manifest is not None:
        assert base.manifest_digest == digest(base.manifest)
        assert base.layers is not None
        assert len(base.layers) == 2


@pytest.mark.parametrize("suffix", ["py", "so"])
def test_a_second_name_has_what_the_first_had_in_its_own_layer(tmp_path: Path, suffix: str) -> None:
    # a layer above changes or removes one name, which the other does not notice
    low: dict[str, Thing] = {
        f"p/vllm/a.{suffix}": b"low",
        f"p/vllm/b.{suffix}": Link(f"p/vllm/a.{suffix}", hard=True),
        f"p/vllm/c.{suffix}": Link(f"p/vllm/b.{suffix}", hard=True),
        "p/vllm/link": Link("a.py"),
        "p/vllm/same": Link("p/vllm/link", hard=True),
    }
    tops: list[dict[str, Thing]] = [
        {f"p/vllm/a.{suffix}": b"higher"},
        {f"p/vllm/.wh.a.{suffix}": b""},
        {f"p/vllm/.wh.b.{suffix}": b""},
        # this one has its first name two layers below it
        {f"p/vllm/d.{suffix}": Link(f"p/vllm/a.{suffix}", hard=True)},
    ]
    for number, top in enumerate(tops):
        image = Image([layer(low), layer(top), layer({f"p/vllm/a.{suffix}": b"highest"})])
        base = opened(f"oci:{image.layout(tmp_path / str(number))}", tmp_path)
        names = {1: "bc", 2: "c", 3: "bcd"}.get(number, "bc")
        for name in names:
            entry = base.entry(f"p/vllm/{name}.{suffix}")
            assert entry is not None
            assert (entry.kind, base.read(entry.path)) == ("file", b"low")
        same = base.entry("p/vllm/same")
        assert same is not None
        assert (same.kind, same.target) == ("link", "a.py")
        assert base.read(f"p/vllm/a.{suffix}") == b"highest"


def test_second_names_in_a_circle_have_no_content(tmp_path: Path) -> None:
    links = {"vllm/a.py": "vllm/a.py", "vllm/b.py": "vllm/c.py", "vllm/c.py": "vllm/b.py"}
    image = Image([layer({name: Link(first, hard=True) for name, first in links.items()})])
    base = opened(f"oci:{image.layout(tmp_path / 'l')}", tmp_path)
    for name in links:
        with pytest.raises(TreeError, match="is no longer in this layer"):
            base.read(name)


@pytest.mark.parametrize("suffix", ["py", "so"])
def test_of_a_path_that_a_layer_has_twice_the_last_counts(tmp_path: Path, suffix: str) -> None:
    names = [f"p/vllm/{name}.{suffix}" for name in "abc"]
    last = {names[1]: b"last", names[2]: b"last"}
    first: dict[str, Thing] = {names[0]: b"a", names[1]: b"first", names[2]: Link(names[0], True)}
    # two tars, one behind the other: the end of the first is taken off
    both = layer(first).rstrip(b"\0")
    both += bytes(-len(both) % 512) + layer(dict(last))
    base = opened(f"oci:{Image([both]).layout(tmp_path / 'l')}", tmp_path)
    assert [base.read(name) for name in names] == [b"a", b"last", b"last"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/lib/x.py", "usr/lib/x.py"),
        ("lib/a.py", "usr/lib/a.py"),
        ("/../../lib/../usr/lib/a.py", "usr/usr/lib/a.py"),
        ("/../../lib/../lib/a.py", "usr/lib/a.py"),
        ("/abs/a.py", "usr/lib/a.py"),
        ("up/etc", "etc"),
        ("lib/../nothing/there", "usr/nothing/there"),
        ("lib/a.py/under/a/file", "usr/lib/a.py/under/a/file"),
        ("", ""),
    ],
)
def test_links_are_resolved_inside_the_image(tmp_path: Path, path: str, expected: str) -> None:
    links: dict[str, Thing] = {"abs": Link("/lib"), "up": Link("../../../../.."), "usr/lib/c": b""}
    base = opened(f"oci:{Image([layer(LOW), layer(links)]).layout(tmp_path / 'l')}", tmp_path)
    assert resolve(base, path) == expected


def test_links_in_a_circle(tmp_path: Path) -> None:
    image = Image([layer({"a": Link("b"), "b": Link("/a")})])
    base = opened(f"oci:{image.layout(tmp_path / 'l')}", tmp_path)
    with pytest.raises(TreeError, match="loop of symbolic links"):
        resolve(base, "/a/x")


def test_layers_are_read_once_and_from_the_top_down(tmp_path: Path) -> None:
    folder = IMAGE.layout(tmp_path / "l")
    base = opened(f"oci:{folder}", tmp_path)
    low = folder / "blobs" / digest(IMAGE.layers[0]).replace(":", "/")
    low.rename(tmp_path / "away")
    assert base.read("usr/lib/b.py") == b"high"
    with pytest.raises(TreeError, match="is missing"):
        base.read("usr/lib/a.py")
    (tmp_path / "away").rename(low)
    assert base.read("site/dist-packages/vllm/a.py") == b"A = 2\n"
    assert base.read("usr/lib/a.py") == b"low"
    low.unlink()
    # Python files of a package folder were kept, and so was the list of what is in the layer.
    again = opened(f"oci:{folder}", tmp_path)
    assert again.entry("usr/lib/a.py") is not None
    with pytest.raises(TreeError, match="is missing"):
        again.read("usr/lib/a.py")


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
@pytest.mark.parametrize("fault", ["short", "long", "changed", "gone"])
def test_a_layer_that_is_not_what_its_digest_says(tmp_path: Path, packing: str, fault: str) -> None:
    folder = IMAGE.layout(tmp_path / "l", packing)
    manifest = json.loads((folder / "index.json").read_bytes())["manifests"][0]["digest"]
    layers = json.loads((folder / "blobs" / manifest.replace(":", "/")).read_bytes())["layers"]
    blob = folder / "blobs" / layers[1]["digest"].replace(":", "/")
    data = blob.read_bytes()
    if fault == "gone":
        blob.unlink()
    else:
        middle = len(data) // 2
        changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        blob.write_bytes({"short": data[:-9], "long": data + b"x", "changed": changed}[fault])
    base = opened(f"oci:{folder}", tmp_path)
    with pytest.raises(TreeError) as caught:
        base.read("usr/lib/b.py")
    assert caught.value.hint
    assert not list((tmp_path / "cache").rglob("layers/*/*"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../../b", "/../x"])
def test_a_path_that_leads_out_of_the_image(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:") as archive:
        info = tarfile.TarInfo(name)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    base = opened(f"oci:{Image([stream.getvalue()]).layout(tmp_path / 'l')}", tmp_path)
    with pytest.raises(TreeError, match="points outside the image"):
        base.read("x")


def test_a_header_as_large_as_memory_is_refused(tmp_path: Path) -> None:
    # An extended header that says it has 4 GiB, which packs to next to nothing.
    info = tarfile.TarInfo("PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 1 << 32
    tar = info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)
    base = opened(f"oci:{Image([tar]).layout(tmp_path / 'l', 'gzip')}", tmp_path)
    with pytest.raises(TreeError, match="the limit is"):
        base.read("x")


def test_a_layer_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "LAYER", 1 << 20)
    bomb = layer({"big": bytes(3 << 20)})
    base = opened(f"oci:{Image([bomb]).layout(tmp_path / 'l', 'gzip')}", tmp_path)
    with pytest.raises(TreeError, match="it unpacks to more than"):
        base.read("x")


def test_an_index_of_several(tmp_path: Path) -> None:
    folder = IMAGE.layout(tmp_path / "l")
    other = Image([layer({"only": b"other"})], name="localhost/other:2")
    manifest, blobs = other.blobs()
    for name, data in blobs.items():
        (folder / "blobs" / name.replace(":", "/")).write_bytes(data)
    index = json.loads((folder / "index.json").read_bytes())
    index["manifests"] += json.loads(other.index(manifest))["manifests"]
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="it has 2 images; there are: 2, latest"):
        opened(f"oci:{folder}", tmp_path)
    assert opened(f"oci:{folder}:2", tmp_path).read("only") == b"other"
    assert opened(f"oci:{folder}@{digest(manifest)}", tmp_path).read("only") == b"other"
    assert opened(f"oci:{folder}:localhost/other:2", tmp_path).read("only") == b"other"


def test_an_index_of_platforms(tmp_path: Path) -> None:
    folder = IMAGE.layout(tmp_path / "l")
    ours = json.loads((folder / "index.json").read_bytes())["manifests"][0]
    machine = json.loads(IMAGE.config)["architecture"]
    listed = [
        {**ours, "platform": {"os": "linux", "architecture": machine}},
        {
            **ours,
            "digest": f"sha256:{'1' * 64}",
            "platform": {"os": "linux", "architecture": "s390x"},
        },
        {
            **ours,
            "digest": f"sha256:{'2' * 64}",
            "platform": {"os": "unknown", "architecture": "unknown"},
        },
    ]
    nested = json.dumps({"schemaVersion": 2, "manifests": listed}).encode()
    (folder / "blobs" / digest(nested).replace(":", "/")).write_bytes(nested)
    entry = {"mediaType": "x", "digest": digest(nested), "size": len(nested)}
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    assert opened(f"oci:{folder}", tmp_path).read("usr/lib/b.py") == b"high"
    for one in listed:
        one["platform"] = {"os": "linux", "architecture": "s390x"}
    nested = json.dumps({"schemaVersion": 2, "manifests": listed}).encode()
    (folder / "blobs" / digest(nested).replace(":", "/")).write_bytes(nested)
    entry = {"mediaType": "x", "digest": digest(nested), "size": len(nested)}
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    with pytest.raises(UsageError, match=f"0 of its 3 images are for linux/{machine}"):
        opened(f"oci:{folder}", tmp_path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        ("nothing", "no index.json"),
        ("empty", "no index.json"),
        ("rubbish", "not JSON"),
        ("list", "not a JSON object"),
        ("not a digest", "index.json is broken"),
        ("bad digest", "index.json is broken"),
        ("no layers", "does not name a configuration and layers"),
        ("fewer", "names 1 layers, but the configuration names 2"),
    ],
)
def test_layouts_that_are_none(tmp_path: Path, make: str, said: str) -> None:
    folder = tmp_path / "l"
    if make == "empty":
        folder.mkdir()
    elif make != "nothing":
        IMAGE.layout(folder)
    index = folder / "index.json"
    if make == "rubbish":
        index.write_text("{")
    elif make == "list":
        index.write_text("[]")
    elif make == "not a digest":
        index.write_text('{"manifests": [{"size": 1}]}')
    elif make == "bad digest":
        index.write_text('{"manifests": [{"size": 1, "digest": "sha256:../../x"}]}')
    elif make in {"no layers", "fewer"}:
        manifest = json.loads(IMAGE.blobs()[0])
        if make == "fewer":
            del manifest["layers"][0]
        else:
            del manifest["layers"]
        data = json.dumps(manifest).encode()
        (folder / "blobs" / digest(data).replace(":", "/")).write_bytes(data)
        entry = {"mediaType": "x", "digest": digest(data), "size": len(data)}
        index.write_text(json.dumps({"manifests": [entry]}))
    with pytest.raises(VllmModsError, match=said) as caught:
        opened(f"oci:{folder}", tmp_path)
    assert caught.value.hint


# docker's library leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_references_that_name_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no image given"):
        open_base("")
    with pytest.raises(UsageError, match="needs a name after the colon"):
        open_base("docker:")
    with pytest.raises(
        UsageError, match=r"(?s)no engine on this machine.*no docker engine responds"
    ):
        open_base("localhost/x:1")
    with pytest.raises(TreeError, match="no docker engine responds at unix"):
        open_base("docker:x")
    with pytest.raises(TreeError, match="podman cannot be run: No such file or directory"):
        open_base("podman:x")
    gc.collect()
    os.mkdir(tmp_path / "folder")
    with pytest.raises(UsageError, match="is a file or a folder") as caught:
        open_base(str(tmp_path / "folder"))
    assert caught.value.hint == f"oci:{tmp_path / 'folder'}"
