"""receipt.json: canonical, checked whole, and the same for the same tree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lowering import lower

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import FileHash, Receipt, ReceiptFile, ReceiptMod

A, B = "a" * 64, "b" * 64
RECEIPT = Receipt(
    vllm="0.19.1",
    workspace="/workspace",
    mods=(
        ReceiptMod(
            name="two",
            version="1.0.0",
            digest=A,
            variant="0.19",
            verdict="moved",
            files=(FileHash(path="vllm/a.py", before=A, after=B),),
        ),
        ReceiptMod(name="one", version="2", digest=B, variant="", verdict="applies", files=()),
    ),
    files=(
        ReceiptFile(path="/workspace/t.jinja", before=None, after=B, mode=0o644, size=3),
        ReceiptFile(path="vllm/a.py", before=A, after=B, mode=0o4755, size=0),
        ReceiptFile(path="vllm/new", before=None, after=None, kind=receipt.FOLDER),
    ),
)


def raw() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(receipt.dump(RECEIPT))
    return loaded


def problems(data: object) -> str:
    with pytest.raises(Refused) as caught:
        receipt.parse(json.dumps(data).encode(), "there/receipt.json")
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert caught.value.message.startswith("there/receipt.json: ")
    return caught.value.message


def test_what_is_written_is_read_back() -> None:
    assert receipt.parse(receipt.dump(RECEIPT)) == RECEIPT


def test_equal_receipts_are_equal_bytes_and_mods_keep_their_order() -> None:
    shuffled = RECEIPT._replace(files=tuple(reversed(RECEIPT.files)))
    data = receipt.dump(RECEIPT)
    assert receipt.dump(shuffled) == data
    assert data.endswith(b"}\n")
    assert [mod["name"] for mod in raw()["mods"]] == ["two", "one"]
    assert data == (json.dumps(raw(), sort_keys=True, indent=1) + "\n").encode()


def test_modes_are_octal_for_readers() -> None:
    assert [file["mode"] for file in raw()["files"]] == ["0644", "4755", None]


def test_every_problem_is_named_with_its_place() -> None:
    broken = raw()
    broken["mods"][0]["digest"] = "abc"
    broken["mods"][1].pop("version")
    broken["mods"][0]["files"][0]["path"] = "../etc/passwd"
    broken["files"][0]["kind"] = "device"
    broken["files"][1]["size"] = "3"
    broken["files"][1]["mode"] = "rwx"
    broken["workspace"] = "here"
    broken["colour"] = "red"
    message = problems(broken)
    for expected in (
        "8 problems",
        "mods[0].digest: is not a sha256",
        "mods[1].version: is required",
        "mods[0].files[0].path: '../etc/passwd' is not a plain path",
        "files[0].kind: must be file",
        "files[1].size: expected an integer, found a string",
        "files[1].mode: must be four octal digits",
        "workspace: must be an absolute path",
        "colour: unknown key",
    ):
        assert expected in message


@pytest.mark.parametrize("data", [[], "x", 3, None])
def test_json_that_is_no_object(data: object) -> None:
    assert "expected an object, found" in problems(data)


@pytest.mark.parametrize("key", ["mods", "files"])
def test_lists_must_be_lists_of_objects_and_hold_nothing_twice(key: str) -> None:
    assert f"{key}: expected an array" in problems({**raw(), key: {}})
    assert f"{key}[0]: expected a table" in problems({**raw(), key: [1]})
    assert "appears twice" in problems({**raw(), key: raw()[key][:1] * 2})


def test_null_is_no_string() -> None:
    assert "tool: expected a string" in problems({**raw(), "tool": None})


@pytest.mark.parametrize("key", ["before", "after", "mode", "size"])
def test_what_is_none_has_to_say_so(key: str) -> None:
    """Without it, a file that was there before the mods would be taken for one of theirs."""
    broken = raw()
    del broken["files"][1][key]
    assert f"files[1].{key}: is required" in problems(broken)


def test_bytes_that_are_no_json() -> None:
    with pytest.raises(Refused, match="not JSON"):
        receipt.parse(b"\xff{")


def test_a_newer_schema_names_the_tool_that_wrote_it() -> None:
    with pytest.raises(Refused, match="schema 2") as caught:
        receipt.parse(json.dumps({**raw(), "schema": 2, "tool": "vllm-mods 9.0"}).encode())
    assert "vllm-mods 9.0" in (caught.value.hint or "")


def test_originals_of_a_workspace_lie_apart() -> None:
    assert receipt.original("vllm/a.py") == ".vllm-mods/originals/vllm/a.py"
    assert receipt.original("/w/t.jinja") == ".vllm-mods/originals/@workspace/w/t.jinja"
    assert receipt.kept("fast") == ".vllm-mods/mods/fast.json"


def test_a_file_is_as_it_was_if_its_original_has_the_hash() -> None:
    data = b"A = 1\n"
    file = ReceiptFile(path="vllm/a.py", before=sha256(data), after=B)
    place = receipt.original(file.path)
    for kept, untouched in (({place: data}, data), ({place: b"x"}, None), ({}, None)):
        assert receipt.untouched(file, kept.get) == untouched


def test_entries_are_found_by_their_names() -> None:
    assert RECEIPT.mod("one") == RECEIPT.mods[1]
    assert RECEIPT.mod("none") is None
    assert RECEIPT.file("vllm/new") == RECEIPT.files[2]
    assert RECEIPT.file("vllm") is None
    assert receipt.without(RECEIPT, {"vllm/new"}).files == RECEIPT.files[:2]
    changes = (FileChange("a", None, b"x"), FileChange("b", b"x", None))
    assert receipt.hashes(changes) == (
        FileHash("a", None, sha256(b"x")),
        FileHash("b", sha256(b"x"), None),
    )


def test_a_receipt_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = receipt.dump(RECEIPT)
    lower(monkeypatch, "RECEIPT", len(data))
    assert receipt.parse(data) == RECEIPT
    lower(monkeypatch, "RECEIPT", len(data) - 1)
    with pytest.raises(Refused, match=r"is damaged, 1 problem\n  it has more than") as caught:
        receipt.parse(data)
    assert caught.value.hint == (
        "restore the file from a copy of this tree; or start over: remove the .vllm-mods folder and "
        "reinstall vLLM with `pip install --force-reinstall --no-deps`"
    )
