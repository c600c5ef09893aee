"""What an earlier run left: in the tree, and in the cache."""

from __future__ import annotations

import json
import os

from fuzz.contract import Target
from fuzz.parts import joined, taken
from vllm_mods.base.digest import sha256
from vllm_mods.formats import receipt, record
from vllm_mods.site import integrity, journal, journal_text, transaction
from vllm_mods.site.journal_text import Folder, Journal, JournalPlace, Step
from vllm_mods.site.state_folder import read_state
from vllm_mods.trees import receipt_tree
from vllm_mods.trees.folder import FolderTree

X = b"x = 1\n"


def _site(folder: str) -> str:
    root = os.path.join(folder, "site")
    os.makedirs(f"{root}/vllm")
    for name, data in (("__init__.py", b""), ("x.py", X)):
        with open(f"{root}/vllm/{name}", "wb") as file:
            file.write(data)
    return root


def _receipt(data: bytes, folder: str) -> None:
    root = _site(folder)
    os.makedirs(f"{root}/.vllm-mods/originals/vllm")
    with open(f"{root}/{receipt.RECEIPT}", "wb") as file:
        file.write(data)
    with open(f"{root}/{receipt.original('vllm/x.py')}", "wb") as file:
        file.write(b"x = 0\n")
    there = receipt.parse(data)
    tree = FolderTree(root)
    before = receipt_tree.pristine(tree, there)
    for path in ("vllm/x.py", "vllm/__init__.py"):
        before.is_released(path, before.read(path) or b"")
    list(before.paths())
    state = read_state(root)
    integrity.findings(state, integrity.undone_in(state).paths)
    assert receipt.parse(receipt.dump(there)) == there


def _receipt_seeds() -> tuple[bytes, ...]:
    before, after = sha256(b"x = 0\n"), sha256(X)
    made = receipt.Receipt(
        tool="vllm-mods 1",
        vllm="0.19.1",
        workspace=None,
        mods=(
            receipt.ReceiptMod(
                name="mod",
                version="1",
                digest="0" * 64,
                variant="one",
                verdict="applies",
                files=(receipt.FileHash("vllm/x.py", before, after),),
            ),
        ),
        files=(receipt.ReceiptFile("vllm/x.py", before, after, receipt.FILE, None, len(X)),),
    )
    return (receipt.dump(made),)


def _journal(data: bytes, folder: str) -> None:
    """A journal that lies in the tree names what is put back, and nothing outside is touched."""
    root = _site(folder)
    outside = os.path.join(folder, "outside")
    with open(outside, "wb") as file:
        file.write(X)
    work = f"{root}/{journal.PREFIX}1"
    os.mkdir(work, 0o700)
    # who packs a tree cannot know the inode of its folders: here it is guessed
    data = data.replace(b'"folder": 0', b'"folder": %d' % os.stat(work).st_ino)
    for name, text in (("0", b"x = 0\n"), (journal.FILE, data)):
        with open(f"{work}/{name}", "wb") as file:
            file.write(text)
    try:
        transaction.recover(root)
    finally:
        with open(outside, "rb") as file:
            assert file.read() == X, "a file outside of the tree was changed"
        assert sorted(os.listdir(folder)) == ["outside", "site"], os.listdir(folder)


def _journal_seeds() -> tuple[bytes, ...]:
    before, after = sha256(b"x = 0\n"), sha256(X)
    step = Step("vllm/x.py", before, after, "0", "/vllm/.x.py.vllm-mods0")
    kept, gone = Folder("vllm", 0o755, 0, 0, 1), Folder("vllm/old", 0o755, 0, 0, 1)
    journal = Journal((step,), (kept,), ("vllm/new",), (gone,))
    return (journal_text.dump(journal, JournalPlace(0, None)),)


def _record(data: bytes, _folder: str) -> None:
    made = record.edit(
        data, {"vllm/x.py": ("0" * 64, 3), "vllm/n.py": ("1" * 64, 4), "vllm/o": None}
    )
    assert record.lists(made, "vllm/n.py") or not record.takes(data, "vllm/n.py")
    record.agrees(data, "vllm/x.py", "0" * 64, 3)


def _kept_answers(data: bytes, folder: str) -> None:
    """What the matrix keeps, in a cache that somebody wrote into."""
    import hashlib
    import zlib

    from vllm_mods.base.cache import Cache
    from vllm_mods.matrices.store import AnswerStore

    cache = Cache(os.path.join(folder, "cache"))
    for packed in (zlib.compress(data), data):
        digest = hashlib.sha256(b"k\0i" + packed).digest()
        cache.record("answers", "k", "i", data=digest + packed)
        AnswerStore(cache).known("k", "i")


def _kept_seeds() -> tuple[bytes, ...]:
    from matrix_making import cell

    from vllm_mods.formats.schema import encode

    return (json.dumps(encode(cell())).encode(),)


def _installed(data: bytes, folder: str) -> None:
    """Three texts of an installed tree: its RECORD, its version, its PKG-INFO."""
    root = _site(folder)
    rows, version, info = taken(data, 3)
    os.mkdir(f"{root}/vllm-0.19.1.dist-info")
    os.mkdir(f"{root}/other-1.dist-info")
    for name, text in (
        ("vllm-0.19.1.dist-info/RECORD", rows),
        ("other-1.dist-info/RECORD", rows),
        ("vllm/_version.py", version),
        ("PKG-INFO", info),
    ):
        with open(f"{root}/{name}", "wb") as file:
            file.write(text)
    tree = FolderTree(root)
    tree.is_released("vllm/x.py", X)
    assert tree.version is None or tree.version


TARGETS = (
    Target("receipt", _receipt, _receipt_seeds),
    Target("journal", _journal, _journal_seeds),
    Target(
        "record",
        _record,
        lambda: (b"vllm/__init__.py,,0\nvllm/x.py,sha256=abc,3\n", b'"a,b",,\r\nvllm/x.py,,\r\n'),
    ),
    Target("kept-answers", _kept_answers, _kept_seeds),
    Target(
        "installed",
        _installed,
        lambda: (
            joined("vllm/x.py,sha256=abc,3\n", "__version__ = '0.19.1'\n", "Version: 0.19.1\n"),
        ),
    ),
)
