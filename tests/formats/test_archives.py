"""Zips, tars, headers of safetensors: what is true in them is read, what cannot be is refused in words."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from typing import Any

import pytest
from lowering import lower

from vllm_mods.base.errors import TreeError
from vllm_mods.formats import safetensors, tars, zips
from vllm_mods.formats.safetensors import Tensor


def zipped(files: dict[str, bytes], comment: bytes = b"") -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.comment = comment
    return bytearray(buffer.getvalue())


@pytest.mark.parametrize("comment", [b"", b"c" * 500, b"c" * 65_535])
def test_a_zip_is_read_whatever_its_comment(comment: bytes) -> None:
    archive = zips.opened(io.BytesIO(zipped({"a/": b"", "a/x": b"12", "y": b""}, comment)))
    infos = zips.files(archive)
    assert [info.filename for info in infos] == ["a/x", "y"]
    assert zips.content(archive, infos[0]) == b"12"
    assert zips.content(archive, infos[0], most=2) == b"12"
    with pytest.raises(ValueError, match=r"it unpacks to 2 bytes; the limit is 1"):
        zips.content(archive, infos[0], most=1)


def test_a_zip_that_states_too_long_a_directory_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = zipped({"x": b"12"}, b"c" * 500)
    size = int.from_bytes(data[data.rfind(b"PK\5\6") + 12 :][:4], "little")
    lower(monkeypatch, "ZIP_DIRECTORY", size)
    zips.opened(io.BytesIO(data))
    lower(monkeypatch, "ZIP_DIRECTORY", size - 1)
    with pytest.raises(
        zipfile.BadZipFile, match=f"its directory takes {size} bytes, which is impossible"
    ):
        zips.opened(io.BytesIO(data))
    wide = b"PK\6\6".ljust(40, b"\0") + size.to_bytes(8, "little") + bytes(zipped({}))
    with pytest.raises(zipfile.BadZipFile, match="which is impossible"):
        zips.opened(io.BytesIO(wide))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (42, 0, "'y' overlaps 'x'"),  # where the second one starts
        (20, 10_000, "'y' does not end before the directory"),  # its packed size
    ],
)
def test_a_directory_that_cannot_be_true(field: int, value: int, why: str) -> None:
    data = zipped({"x": b"12", "y": b"34"})
    row = data.rfind(b"PK\1\2") + field
    data[row : row + 4] = struct.pack("<I", value)
    with pytest.raises(zipfile.BadZipFile, match=why):
        zips.files(zips.opened(io.BytesIO(data)))


def test_an_entry_without_a_name_is_none() -> None:
    archive = zips.opened(io.BytesIO(zipped({"x": b"12"})))
    archive.infolist()[0].filename = ""
    with pytest.raises(zipfile.BadZipFile, match="an entry has no name"):
        zips.files(archive)


@pytest.mark.parametrize("stated", [0, 1, 3])
def test_a_file_of_another_size_than_is_stated_is_refused(stated: int) -> None:
    archive = zips.opened(io.BytesIO(zipped({"x": b"12"})))
    (info,) = zips.files(archive)
    info.file_size = stated
    with pytest.raises(zipfile.BadZipFile):
        zips.content(archive, info)


def tarred(*names: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, **more) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"12"))
    return buffer.getvalue()


def test_the_members_of_a_tar_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "TAR_MEMBERS", 2)
    assert [one.name for one in tars.members(io.BytesIO(tarred("a", "b")))] == ["a", "b"]
    with pytest.raises(tarfile.ReadError, match="it has more than 2 members"):
        list(tars.members(io.BytesIO(tarred("a", "b", "c"))))


def test_an_extended_header_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tarred("a", pax_headers={"comment": "x" * 100})
    size = tarfile.TarInfo.frombuf(data[:512], "utf-8", "strict").size
    lower(monkeypatch, "TAR_HEADER", size)
    assert [one.name for one in tars.members(io.BytesIO(data))] == ["a"]
    lower(monkeypatch, "TAR_HEADER", size - 1)
    with pytest.raises(tarfile.ReadError, match=f"a member takes {size} bytes; the limit is .*"):
        list(tars.members(io.BytesIO(data)))
    assert list(tars.members(io.BytesIO(tarred("b" * 90))))  # a file may be as large as it is


def test_a_size_below_none_is_no_size() -> None:
    header = bytearray(tarred("a")[:512])
    header[124:136] = b"\xff" * 12  # -1, in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(tarfile.ReadError, match="'a' has -1 bytes"):
        list(tars.members(io.BytesIO(bytes(header))))


def test_how_long_a_header_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "SAFETENSORS_HEADER", 10)
    ten = (10).to_bytes(8, "little")
    assert safetensors.header_length(ten, 18, "x") == 10
    for data, size in ((ten, 17), (ten[:7], 18), (bytes(8), 18), (b"", 0)):
        with pytest.raises(TreeError) as caught:
            safetensors.header_length(data, size, "x")
        assert caught.value.message == "x: cut off, or not a safetensors file"
        hint = "download the file again, and compare its size with the size on the Hub"
        assert caught.value.hint == hint
    with pytest.raises(TreeError, match="x: its header has 11 bytes; ") as caught:
        safetensors.header_length((11).to_bytes(8, "little"), 1000, "x")
    assert caught.value.hint == "the format has that limit, so this is not a safetensors file"


def test_the_tensors_of_a_header() -> None:
    raw = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [2, 0], "data_offsets": [0, 0]},
        "b": {"dtype": "F8_E4M3", "shape": []},
        "c": {"dtype": "BF16", "shape": [2], "data_offsets": [3, 7]},
    }
    data = json.dumps(raw).encode()
    assert safetensors.header(data, 7, "x") == {
        "a": Tensor("BF16", (2, 0), 0, "x"),
        "b": Tensor("F8_E4M3", (), 0, "x"),
        "c": Tensor("BF16", (2,), 4, "x"),
    }
    with pytest.raises(TreeError) as caught:
        safetensors.header(data, 6, "x")
    assert (
        caught.value.message == "x: the file is cut off: it has 6 bytes of weights, but c ends at 7"
    )
    hint = "download the file again, and compare its size with the size on the Hub"
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "entry",
    [
        *({}, [], {"dtype": "BF16"}, {"dtype": 1, "shape": []}, {"dtype": "BF16", "shape": "2"}),
        *({"dtype": "BF16", "shape": [-1]}, {"dtype": "BF16", "shape": [True]}),
        {"dtype": "BF16", "shape": [1.0]},
        *(
            {"dtype": "BF16", "shape": [], "data_offsets": each}
            for each in ([2, 1], [-1, 2], [0], 7, ["0", "1"])
        ),
    ],
)
def test_what_is_no_tensor(entry: object) -> None:
    with pytest.raises(TreeError) as caught:
        safetensors.header(json.dumps({"a": entry}).encode(), 9, "x")
    assert caught.value.message == "x: 'a' has no dtype and shape in its header"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "x: not JSON: "),
        (b"[]", "x: not an object of JSON, or nested too deeply"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "x: not "),
    ],
)
def test_what_is_no_object(data: bytes, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        safetensors.table(data, "x")
    assert caught.value.message.startswith(why)


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({"a": "../x.safetensors"}, "x: its weight_map names '../x.safetensors'"),
        ({"a": "x.bin", "b": "y.safetensors"}, "x: its weight_map names 'x.bin'"),
        ({}, "x: it has no weight_map"),
        ([], "x: it has no weight_map"),
        ({"a": 1}, "x: it has no weight_map"),
    ],
)
def test_an_index_that_names_no_files_beside_it(weights: object, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        safetensors.files_of_index(json.dumps({"weight_map": weights}).encode(), "x")
    assert caught.value.message == why
    assert caught.value.hint == "the index of a checkpoint names the safetensors files beside it"


def test_an_index_names_as_many_files_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"c": "2.safetensors", "a": "1.safetensors", "b": "1.safetensors"}
    data = json.dumps({"weight_map": names}).encode()
    lower(monkeypatch, "SHARDS", 2)
    assert safetensors.files_of_index(data, "x") == ("1.safetensors", "2.safetensors")
    lower(monkeypatch, "SHARDS", 1)
    with pytest.raises(TreeError, match="x names 2 files; "):
        safetensors.files_of_index(data, "x")
