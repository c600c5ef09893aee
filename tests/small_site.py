"""A small site root: a vllm package with bytecode and a RECORD, old mtimes, and all of it hashable."""

from __future__ import annotations

import base64
import hashlib
import os
import py_compile
from typing import TYPE_CHECKING

from vllm_mods.base.model import FileChange, Finding
from vllm_mods.formats.receipt import ReceiptMod, hashes
from vllm_mods.site import integrity
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transitions import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = {
    "vllm/__init__.py": b"",
    "vllm/a.py": b"A = 1\n",
    "vllm/b.py": b"B = 1\n",
    "vllm/sub/__init__.py": b"",
    "vllm/sub/c.py": b"C = 1\n",
}
RECORD = "vllm-0.19.1.dist-info/RECORD"
PYC = "vllm/__pycache__/a.cpython-311.pyc"
OLD = 1_500_000_000_123_456_789
Snapshot = dict[str, tuple[object, ...]]


def verify(root: str) -> tuple[Finding, ...]:
    state = read_state(root)
    return integrity.findings(state, integrity.undone_in(state).paths)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def row(path: str, data: bytes) -> bytes:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={encoded},{len(data)}\n".encode()


def build(root: Path, files: Mapping[str, bytes] = FILES, *, installed: bool = True) -> Path:
    """Make the site. ``installed`` gives it a dist-info, as pip leaves it."""
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o644)
    if installed:
        (root / RECORD).parent.mkdir(exist_ok=True)
        rows = b"".join(row(path, data) for path, data in files.items())
        (root / RECORD).write_bytes(rows + f"{RECORD},,\n".encode())
        (root / "numpy-2.0.dist-info").mkdir()
        (root / "numpy-2.0.dist-info/RECORD").write_bytes(b"numpy/__init__.py,,\n")
    (root / "vllm/b.py").chmod(0o4755)
    os.utime(root / "vllm/a.py", ns=(OLD, OLD))  # bytecode holds it
    py_compile.compile(str(root / "vllm/a.py"), cfile=str(root / PYC), dfile="vllm/a.py")
    (root / "vllm/__pycache__/a.cpython-312.opt-2.pyc").write_bytes(b"another interpreter's")
    (root / "vllm/__pycache__/__init__.cpython-311.pyc").write_bytes(b"not touched")
    age(root)
    return root


def age(root: Path) -> None:
    """Give everything an old mtime, each its own."""
    for n, path in enumerate(sorted([root, *root.rglob("*")], reverse=True)):
        os.utime(path, ns=(OLD + n, OLD + n))


def snapshot(*roots: Path) -> Snapshot:
    """Return bytes, mode, owner, mtime, link count and attributes of everything below the roots."""
    found: Snapshot = {}
    for root in roots:
        for path in (root, *root.rglob("*")):
            info = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = (
                oct(info.st_mode),
                (info.st_uid, info.st_gid),
                info.st_mtime_ns,
                info.st_nlink if is_file else None,
                path.read_bytes() if is_file else None,
                os.readlink(path) if path.is_symlink() else None,
                tuple(os.listxattr(path, follow_symlinks=False)),
            )
    return found


write = FileChange


def entry(name: str, *changes: FileChange) -> ReceiptMod:
    """Return a mod's entry for the receipt."""
    return ReceiptMod(
        name=name,
        version="1.0.0",
        digest="0" * 64,
        variant="v",
        verdict="applies",
        files=hashes(changes),
    )


def transition(
    *changes: FileChange, name: str = "one", before: tuple[ReceiptMod, ...] = ()
) -> Transition:
    """Return the transition that puts one mod in, after those that are in before."""
    return Transition(
        changes=changes,
        before=before,
        mods=(*before, entry(name, *changes)),
        vllm="0.19.1",
        sources=((name, b"# " + name.encode()),),
    )


ONE = transition(
    write("vllm/a.py", FILES["vllm/a.py"], b"A = 2\n"),
    write("vllm/sub/c.py", FILES["vllm/sub/c.py"], None),
    write("vllm/new/deep/d.py", None, b"D = 1\n"),
)
"""Changes a file that has bytecode, deletes one, and brings one in a new folder."""
TWO = transition(
    write("vllm/a.py", b"A = 2\n", b"A = 3\n"),
    write("vllm/b.py", FILES["vllm/b.py"], b"B = 2\n"),
    name="two",
    before=ONE.mods,
)
"""A second mod, on top of ``ONE``."""
