"""Streams that are checked as they are read, and what is learnt and kept of a layer's tar."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from making_images import OLD, File, Folder, Image, Link, Thing, digest, layer as tar_of, zstd

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import layer, streams
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_mods.images.model import Base

DATA = b"0123456789"
DAMAGED = "the copy is damaged: get the image again"


def checked(
    data: bytes = DATA, size: int | None = len(DATA), on_read: Callable[[int], None] | None = None
) -> streams.CheckedStream:
    return streams.CheckedStream(io.BytesIO(data), digest(DATA), size, "it", on_read)


@pytest.mark.parametrize("size", [len(DATA), None])
@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_a_blob_is_read_whole_in_pieces_or_passed_over(kind: str, size: int | None) -> None:
    def opened() -> streams.CheckedStream:
        of = f"{kind}:{hashlib.new(kind, DATA).hexdigest()}"
        return streams.CheckedStream(io.BytesIO(DATA), of, size, "it")

    assert opened().read() == DATA
    stream = opened()
    assert [stream.read(4), stream.read(0), stream.read(4), stream.read(4)] == [
        *(b"0123", b"", b"4567", b"89")
    ]
    assert stream.read(4) == b""


def test_the_bytes_so_far_are_told() -> None:
    seen: list[int] = []
    stream = checked(on_read=seen.append)
    for _ in range(3):
        stream.read(6)
    assert seen == [6, 10]


@pytest.mark.parametrize(
    ("data", "size", "why", "hint"),
    [
        (DATA[:9], 10, "it should have 10 bytes, but has 9", "incomplete"),
        (DATA + b"x", 10, "it should have 10 bytes, but has more", "incomplete"),
        (b"x" * 10, 10, f"its contents do not match {digest(DATA)}", "damaged: get"),
        (DATA[:9], None, f"its contents do not match {digest(DATA)}", "damaged: get"),
    ],
)
def test_a_blob_that_is_another_is_refused_at_its_end(
    data: bytes, size: int | None, why: str, hint: str
) -> None:
    hints = {"incomplete": "the copy is damaged or incomplete: get the image again"}
    with pytest.raises(TreeError) as caught:
        checked(data, size).read()
    wanted = hints.get(hint, DAMAGED)
    assert (caught.value.message, caught.value.hint) == (f"it: {why}", wanted)


def test_a_digest_of_another_kind_is_refused() -> None:
    with pytest.raises(TreeError) as caught:
        streams.CheckedStream(io.BytesIO(), "md5:a", 0, "it")
    assert caught.value.message == "it: its digest has an unsupported kind: md5:a"
    assert caught.value.hint == "vllm-mods supports the digests sha256 and sha512"


ZSTD = zstd(DATA * 9)


@pytest.mark.parametrize(
    ("packed", "data"),
    [
        (gzip.compress(DATA * 9, mtime=0), DATA * 9),
        (ZSTD, DATA * 9),
        (DATA, DATA),
        (b"", b""),
        (b"\x1f", b"\x1f"),
        (ZSTD[:3], ZSTD[:3]),
    ],
)
def test_how_a_stream_is_packed_is_seen_by_its_first_bytes(packed: bytes, data: bytes) -> None:
    whole = streams.unpacked(io.BytesIO(packed))
    assert b"".join(iter(lambda: whole.read(7), b"")) == data


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_a_layer_is_compared_to_its_end(pack: Callable[[bytes], bytes]) -> None:
    packed = pack(tar_of(THINGS) + bytes(1 << 20))
    source = streams.CheckedStream(io.BytesIO(packed), digest(packed), len(packed), "it")
    assert layer.scan(source, "it").names
    with pytest.raises(TreeError, match="its contents do not match"):
        layer.scan(streams.CheckedStream(io.BytesIO(packed), digest(DATA), None, "it"), "it")


def test_all_of_a_stream_is_hashed() -> None:
    hashed = hashlib.sha256()
    stream = streams.Forward(io.BytesIO(DATA), hashed)
    assert stream.read(3) == b"012"
    stream.finish()
    assert hashed.hexdigest() == hashlib.sha256(DATA).hexdigest()


def test_a_stream_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "LAYER", 8)
    stream = streams.Forward(io.BytesIO(DATA))
    assert stream.read(4) == b"0123"
    with pytest.raises(ValueError, match="it unpacks to more than 8 bytes"):
        stream.read(5)


def member(kind: bytes, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo("x")
    info.type, info.size, info.mode, info.mtime = kind, 7, 0o107755, 9
    info.uid, info.gid, info.linkname = 1, 2, "to"
    for name, value in fields.items():
        setattr(info, name, value)
    return info


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (tarfile.REGTYPE, ("file", "", 7)),
        (tarfile.LNKTYPE, ("file", "", 0)),
        (tarfile.DIRTYPE, ("dir", "", 0)),
        (tarfile.SYMTYPE, ("link", "to", 0)),
        (tarfile.FIFOTYPE, ("other", "", 0)),
        (tarfile.CHRTYPE, ("other", "", 0)),
    ],
)
def test_a_member_as_an_entry(kind: bytes, expected: tuple[str, str, int]) -> None:
    name, target, size = expected
    entry = streams.entry(member(kind, mtime=9.75), "a/x")
    assert entry == ("a/x", name, 0o7755, 1, 2, 9, target, size)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("odd"), "odd"),
        (EOFError("cut"), "cut"),
        (ValueError("wrong"), "wrong"),
    ],
)
def test_what_is_wrong_with_a_tar_is_told(error: Exception, words: str) -> None:
    with pytest.raises(TreeError) as caught, streams.reading("it", "do that"):
        raise error
    message = f"it: broken or cut short: {words}"
    assert (caught.value.message, caught.value.hint) == (message, "do that")


SITE = "srv/x-packages"
THINGS: dict[str, Thing] = {
    "a/.wh.gone": b"",
    "a/.wh..wh..opq": b"",
    ".wh.top": b"",
    "a/b": File(b"data", 0o4755, uid=3),
    "a/second": Link("./a/b", hard=True),
    "a/second of none": Link("a/none", hard=True),
    f"{SITE}/vllm/a.py": b"A = 1\n",
}


def test_what_is_learnt_of_a_layer() -> None:
    tar = tar_of(THINGS)
    read = layer.scan(io.BytesIO(gzip.compress(tar)), "it")
    assert read.gone == {"a/gone", "top"}
    assert read.opaque == {"a"}
    assert read.names == {"a/second": "a/b", "a/second of none": "a/none"}
    assert read.diff_id == digest(tar)
    folders = {"a", "srv", SITE, f"{SITE}/vllm"}
    files = {path for path in THINGS if ".wh." not in path}
    assert read.entries.keys() == folders | files
    assert read.entries["a/b"] == ("a/b", "file", 0o4755, 3, 3, OLD, "", 4)
    assert [read.entries[path].size for path in read.names] == [4, 0]
    assert read.kept.keys() == {f"{SITE}/vllm/a.py"}


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"{SITE}/a.py", True),
        (f"{SITE}/a.so", False),
        ("a.py", False),
        ("srv/packages/a.py", False),
        *((f"srv/vllm/a{ending}", True) for ending in (".py", ".pyi", ".pth", ".jinja", ".json")),
        *((f"srv/vllm/a{ending}", True) for ending in (".patch", ".toml", ".lock", ".cfg")),
        ("vllm", False),
        ("srv/vllm/large.py", False),
        ("srv/v.dist-info/RECORD", True),
        ("srv/.vllm-mods/originals/a.so", True),
        ("srv/vllm/link.py", False),
    ],
)
def test_python_files_and_what_tells_of_packages_are_kept(
    monkeypatch: pytest.MonkeyPatch, path: str, *, kept: bool
) -> None:
    monkeypatch.setattr(layer, "_LARGEST_KEPT", 4)
    thing = Link("a") if "link" in path else b"x" * (5 if "large" in path else 4)
    read = layer.scan(io.BytesIO(tar_of({path: thing})), "it")
    assert (path in read.kept) is kept


def test_no_more_is_kept_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "_MOST_KEPT", 1)
    read = layer.scan(io.BytesIO(tar_of({"vllm/a.py": b"a", "vllm/b.py": b"b"})), "it")
    assert list(read.kept) == ["vllm/a.py"]


def test_a_layer_of_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "LAYER_FILES", 2)
    tar = tar_of({"a": b"", "b": b""})
    assert len(layer.scan(io.BytesIO(tar), "it").entries) == 2
    with pytest.raises(TreeError) as caught:
        layer.scan(io.BytesIO(tar_of({"a": b"", "b": b"", "c": b""})), "it")
    message = "it: more than 2 files in one layer"
    assert (caught.value.message, caught.value.hint) == (message, DAMAGED)


def test_a_layer_that_is_none() -> None:
    with pytest.raises(TreeError, match="it: broken or cut short: ") as caught:
        layer.scan(io.BytesIO(b"x" * 512), "it")
    assert caught.value.hint == DAMAGED
    with pytest.raises(TreeError, match=r"it: 'a/\.\./b' points outside the image") as caught:
        layer.scan(io.BytesIO(tar_of({"x": Link("a/../b", hard=True)})), "it")
    assert caught.value.hint == "do not use this image"


def test_one_file_is_read_out_of_a_layer() -> None:
    tar = tar_of(THINGS)
    assert layer.extract(io.BytesIO(gzip.compress(tar)), "a/b", "it") == b"data"
    for path in ("a", "a/second", "none"):
        with pytest.raises(TreeError) as caught:
            layer.extract(io.BytesIO(tar), path, "it")
        message = f"it: {path} is no longer in this layer"
        assert (caught.value.message, caught.value.hint) == (message, DAMAGED)


def test_a_layer_is_kept_and_comes_back_as_it_was(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    read = layer.scan(io.BytesIO(tar_of(THINGS)), "it")
    assert layer.load(cache, "sha256:a") is None
    layer.keep(cache, "sha256:a", read)
    assert layer.load(cache, "sha256:a") == read
    assert layer.load(cache, "sha256:b") is None


@pytest.mark.parametrize(
    "record", [b"{", b"[]", b"7", b'{"pack": "0"}', b'{"pack": 7}', b'{"pack": ""}']
)
def test_a_record_of_a_layer_that_is_broken_counts_for_nothing(
    tmp_path: Path, record: bytes
) -> None:
    cache = Cache(str(tmp_path))
    layer.keep(cache, "sha256:a", layer.scan(io.BytesIO(tar_of(THINGS)), "it"))
    cache.record("layers", "3", "sha256:a", data=record)
    assert layer.load(cache, "sha256:a") is None


def test_a_layer_of_which_a_part_was_lost_is_read_again(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    layer.keep(cache, "sha256:a", layer.scan(io.BytesIO(tar_of(THINGS)), "it"))
    for blob in [path for path in tmp_path.rglob("*") if path.is_file()]:
        away = blob.rename(tmp_path / "away")
        assert layer.load(cache, "sha256:a") is None
        away.rename(blob)
    assert layer.load(cache, "sha256:a") is not None


def image_of(tmp_path: Path, *layers: dict[str, Thing], **how: object) -> Base:
    image = Image([tar_of(things) for things in layers])
    place = image.layout(tmp_path / "l")
    return open_base(f"oci:{place}", cache_dir=str(tmp_path / "cache"), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("high", "left"),
    [
        ({"a/.wh.b": b""}, ["a/d"]),
        ({".wh.a": b""}, None),
        ({"a/.wh..wh..opq": b""}, []),
        ({"a/b/.wh..wh..opq": b""}, ["a/b", "a/d"]),
        ({"a/b/.wh..wh..opq": b"", "a/b/n": b""}, ["a/b", "a/b/n", "a/d"]),
        ({"a/b": Link("d")}, ["a/b", "a/d"]),
        ({"a": b"a file"}, None),
        ({"a/b": Folder(0o700)}, ["a/b", "a/b/c", "a/d"]),
        ({".wh..wh..opq": b""}, None),
        ({"ab": b""}, ["a/b", "a/b/c", "a/d"]),
    ],
)
def test_what_a_layer_takes_away_of_those_below(
    tmp_path: Path, high: dict[str, Thing], left: list[str] | None
) -> None:
    low: dict[str, Thing] = {"a/b/c": b"", "a/d": b""}
    base = image_of(tmp_path, low, high)
    assert sorted(entry.path for entry in base.paths("a")) == (left or [])
    top = {"a": None} if left is None else {"a": "dir"}
    entry = base.entry("a")
    assert (entry and entry.kind) == ("file" if high.get("a") == b"a file" else top["a"])
    for path in ("a/b", "a/b/c", "a/d"):
        assert (base.entry(path) is not None) is (path in (left or [])), path


def test_what_is_in_several_layers_is_listed_once_and_of_the_highest(tmp_path: Path) -> None:
    base = image_of(tmp_path, {"a/b": b"1", "c": b""}, {"a/b": b"22", "d": b""})
    listed = sorted((entry.path, entry.size) for entry in base.paths(""))
    assert listed == [("a", 0), ("a/b", 2), ("c", 0), ("d", 0)]
    assert base.read("a/b") == b"22"
    assert base.read("a") is None
    base.close()


def test_who_reads_layers_is_told_how_far(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    progress = lambda *words: seen.append(words)  # noqa: E731
    base = image_of(tmp_path, {"a": b""}, {"b": b""}, progress=progress)
    size = len(tar_of({"a": b""}))
    assert base.entry("a") is not None
    places = list(dict.fromkeys((place, total) for place, _, total in seen))
    assert places == [("reading layer 2 of 2", size), ("reading layer 1 of 2", size)]
    assert seen[-1][1] == size


def test_a_layer_that_unpacks_to_another_than_is_stated(tmp_path: Path) -> None:
    image = Image([tar_of({"a": b""})])
    place = image.layout(tmp_path / "l", "gzip")
    base = open_base(f"oci:{place}", cache_dir=str(tmp_path / "cache"))
    (blob,) = base.blobs
    base.blobs = (blob._replace(diff_id="sha256:0"),)
    with pytest.raises(TreeError) as caught:
        base.read("a")
    assert caught.value.message == (
        f"oci:{place}: layer {blob.digest[:19]}: it unpacks to {digest(image.layers[0])}, but the "
        "configuration says sha256:0: the layer was replaced"
    )
    assert caught.value.hint == "do not use this image: get it again from its source"


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("none", "{0} is not an OCI layout: it has no index.json", "name an OCI layout; `skopeo copy docker://NAME oci:{0}` makes one"),
        ("file", "{0} is not an OCI layout: it has no index.json", "skopeo copy docker-archive:{0} oci:FOLDER"),
        ("empty", "{0} is not an OCI layout: it has no index.json", "name an OCI layout; `skopeo copy docker://NAME oci:{0}` makes one"),
    ],
)  # fmt: skip
def test_places_that_are_no_layout(tmp_path: Path, path: str, message: str, hint: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    place = tmp_path / path
    with pytest.raises(UsageError) as caught:
        open_base(f"oci:{place}")
    assert caught.value.message == f"oci:{place}: {message.format(place)}"
    assert caught.value.hint == hint.format(place, tmp_path)


def test_a_layout_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        open_base("oci:none")
    assert caught.value.hint == "name an OCI layout; `skopeo copy docker://NAME oci:none` makes one"


@pytest.mark.parametrize("place", ["index.json", "blob"])
def test_a_layout_of_which_a_file_cannot_be_read(tmp_path: Path, place: str) -> None:
    image = Image([tar_of({"a": b""})])
    folder = image.layout(tmp_path / "l")
    path = (
        folder / place
        if place != "blob"
        else folder / f"blobs/{digest(image.config)}".replace(":", "/")
    )
    path.unlink()
    path.mkdir()
    with pytest.raises(TreeError) as caught:
        open_base(f"oci:{folder}")
    assert (caught.value.message, caught.value.hint) == (
        f"{path}: Is a directory",
        f"namei -l {path}  # shows who may read it",
    )


@pytest.mark.parametrize(
    "form", ["{}", "{}:latest", "{}:host/x:1", "{}:", "{}@{digest}", "{}:{digest}", "{}:x@sha256:0"]
)
def test_a_layout_is_named_with_a_tag_or_without(tmp_path: Path, form: str) -> None:
    image = Image([tar_of({"a": b"a"})], name="host/x:1")
    folder = image.layout(tmp_path / "a:b")
    index = folder / "index.json"
    index.write_bytes(index.read_bytes().replace(b'ref.name": "1"', b'ref.name": "latest"'))
    name = form.format(folder, digest=digest(image.blobs()[0]))
    if name.endswith("sha256:0"):
        with pytest.raises(UsageError, match="is not an OCI layout"):
            open_base(f"oci:{name}")
    else:
        assert open_base(f"oci:{name}", cache_dir=str(tmp_path / "cache")).read("a") == b"a"
