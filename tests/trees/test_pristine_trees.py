"""A tree as it was before any mod, by the receipt in it."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from small_site import row, sha

from vllm_mods.base.errors import TreeError
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.trees import receipt_tree

OWN, ROWS = "vllm-0.19.1.dist-info/RECORD", row("vllm/a.py", b"old")
FILES = {
    "vllm/a.py": b"new",
    "vllm/same.py": b"same",
    "vllm/n/new.py": b"new",
    OWN: row("vllm/a.py", b"new"),
    receipt.original("vllm/a.py"): b"old",
    receipt.original("vllm/gone.py"): b"gone",
    receipt.original("vllm/x.pyc"): b"code",
    receipt.original("vllm/damaged.py"): b"other",
    receipt.original(OWN): ROWS,
}
TOUCHED = (
    ReceiptFile("vllm/a.py", sha(b"old"), sha(b"new")),
    ReceiptFile("vllm/n", None, None, receipt.FOLDER),
    ReceiptFile("vllm/n/new.py", None, sha(b"new")),
    ReceiptFile("vllm/gone.py", sha(b"gone"), None),
    ReceiptFile("vllm/x.pyc", sha(b"code"), None, receipt.BYTECODE),
    ReceiptFile("vllm/damaged.py", sha(b"damaged"), None),
    ReceiptFile("vllm/lost.py", sha(b"lost"), None),
    ReceiptFile(OWN, sha(ROWS), sha(FILES[OWN]), receipt.RECORD),
)
APPLIED = Receipt("0.19.0", (), TOUCHED)


def before() -> receipt_tree.Pristine:
    tree = MemoryTree(FILES, released={"vllm/same.py": b"same"})
    seen = receipt_tree.pristine(tree, APPLIED)
    assert isinstance(seen, receipt_tree.Pristine)
    return seen


def test_files_are_as_they_were() -> None:
    tree = before()
    assert tree.version == "0.19.0"
    assert tree.read("vllm/a.py") == b"old"
    assert tree.read("vllm/same.py") == b"same"
    assert tree.read("vllm/n/new.py") is None
    assert tree.read("vllm/gone.py") == b"gone"
    assert tree.read("vllm/none.py") is None
    assert tree.read(OWN) == ROWS


@pytest.mark.parametrize(
    ("path", "what"), [("vllm/damaged.py", "damaged"), ("vllm/lost.py", "missing")]
)
@pytest.mark.parametrize("version", ["0.19.0", None])
def test_an_original_that_is_of_no_use_is_said(path: str, what: str, version: str | None) -> None:
    tree = receipt_tree.Pristine(MemoryTree(FILES), APPLIED._replace(vllm=version))
    with pytest.raises(TreeError) as caught:
        tree.read(path)
    message = f"memory: {receipt.original(path)}, the original of {path}, is {what}"
    assert caught.value.message == message
    named = "vLLM 0.19.0" if version else "this vLLM"
    assert (caught.value.hint or "").startswith(f"reinstall {named} from its original source")


def test_paths_are_those_that_were_there() -> None:
    left = {"vllm/same.py", "vllm/a.py", "vllm/gone.py", "vllm/damaged.py", "vllm/lost.py"}
    assert sorted(before().paths()) == sorted(left)
    assert sorted(before().paths("vllm/n")) == []
    assert set(before().paths("")) >= left - {"vllm/same.py"}


def test_the_record_is_the_one_that_was_there() -> None:
    tree = before()
    assert tree.is_released("vllm/a.py", b"old") is True
    assert tree.is_released("vllm/a.py", b"new") is False
    assert tree.is_released("vllm/same.py", b"same") is True
    assert tree.is_released("vllm/none.py", b"") is None


def test_a_tree_without_a_receipt_is_as_it_is() -> None:
    tree = MemoryTree({})
    assert receipt_tree.pristine(tree, None) is tree
    assert receipt_tree.pristine(tree, APPLIED._replace(files=())) is tree
    assert receipt_tree.receipt_of(tree) is None
    tree.files[receipt.RECEIPT] = receipt.dump(APPLIED)
    read = receipt_tree.receipt_of(tree)
    assert read is not None
    assert read.vllm == "0.19.0"
    tree.remote = True
    assert receipt_tree.receipt_of(tree) is None
