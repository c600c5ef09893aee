"""receipt.json: what was applied to a tree, by hash. Pure: bytes ↔ ``Receipt``.

It lies in the tree, so it holds nothing that differs between two equal applies: no
time, no host name. The bytes are canonical (sorted keys), so equal receipts are equal files.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, NamedTuple

from vllm_mods import __version__
from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, Refused, listed
from vllm_mods.base.model import FileChange
from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.formats.schema import Spelled, decode, encode, matching, object_of, repeated

SCHEMA = 1
STATE = ".vllm-mods"
"""The folder in the site root that holds everything this tool keeps there."""
RECEIPT = f"{STATE}/receipt.json"
ORIGINALS = f"{STATE}/originals"
MODS = f"{STATE}/mods"  # one file for each
TEMPLATES = f"{STATE}/templates"
TOOL = f"vllm-mods {__version__}"

FILE = "file"
RECORD = "record"
BYTECODE = "bytecode"
FOLDER = "folder"


def _path(value: str) -> str | None:
    return None if is_plain_path(value.removeprefix("/")) else f"{value!r} is not a plain path"


_Path = Annotated[str, _path]
_Sha256 = Annotated[str, matching(r"[0-9a-f]{64}\Z", "is not a sha256")]
_Mode = Annotated[str, matching(r"[0-7]{4}\Z", "must be four octal digits, as in 0644")]
_IS_KIND = matching(r"(file|record|bytecode|folder)\Z", "must be file, record, bytecode or folder")
_Kind = Annotated[str, _IS_KIND]


class FileHash(NamedTuple):
    """A file's sha256 before and after one mod; None stands for "no such file"."""

    path: _Path
    before: _Sha256 | None
    after: _Sha256 | None


def hashes(changes: Iterable[FileChange]) -> tuple[FileHash, ...]:
    """Return what is kept of a mod's changes."""
    return tuple(FileHash(one.path, sha256(one.before), sha256(one.after)) for one in changes)


class ReceiptFile(NamedTuple):
    """The net change of one file from the untouched tree to now.

    ``kind`` is ``file``, ``record`` (a distribution's RECORD, kept true), ``bytecode`` (a stale
    ``.pyc`` that was removed) or ``folder`` (one that a mod needed; both hashes are None).
    ``mode`` (permission bits) and ``size`` (bytes) are those after the change.
    """

    path: _Path
    before: _Sha256 | None
    after: _Sha256 | None
    kind: _Kind = FILE
    mode: Annotated[int, Spelled(_Mode, lambda text: int(text, 8))] | None = None
    size: int | None = None


class ReceiptMod(NamedTuple):
    """An applied mod. ``files`` starts from what the mods before it left."""

    name: str
    version: str
    digest: _Sha256
    variant: str
    verdict: str
    files: tuple[FileHash, ...]


class Receipt(NamedTuple):
    """Everything that is in a tree, mods in the order they went in.

    ``vllm`` is the version the tree gave, ``workspace`` the absolute folder outside the
    site root that chat templates went to.
    """

    vllm: str | None
    mods: tuple[ReceiptMod, ...]
    files: tuple[ReceiptFile, ...]
    workspace: Annotated[str, matching("/", "must be an absolute path")] | None = None
    tool: str = TOOL

    def mod(self, name: str) -> ReceiptMod | None:
        """Return the entry of a mod, None if it is not in."""
        return next((mod for mod in self.mods if mod.name == name), None)

    def file(self, path: str) -> ReceiptFile | None:
        """Return the entry of a path, None if it was not touched."""
        return next((file for file in self.files if file.path == path), None)


def without(receipt: Receipt, paths: Collection[str]) -> Receipt:
    """Return a receipt that says nothing of some paths."""
    return receipt._replace(files=tuple(one for one in receipt.files if one.path not in paths))


def kept(name: str) -> str:
    """Return the path of the file that an applied mod is kept in whole (see ``keep``)."""
    return f"{MODS}/{name}.json"


def original(path: str) -> str:
    """Return where the untouched form of a file is kept, relative to the site root."""
    return f"{ORIGINALS}/@workspace{path}" if path.startswith("/") else f"{ORIGINALS}/{path}"


def untouched(file: ReceiptFile, read: Callable[[str], bytes | None]) -> bytes | None:
    """Return a file as it was before any mod, None if its original is missing or damaged; ``read`` gives files by path."""
    data = read(original(file.path))
    return data if data is not None and sha256(data) == file.before else None


def dump(receipt: Receipt) -> bytes:
    """Return the canonical bytes: sorted keys, files sorted by path, mods as they went in."""
    raw = encode(receipt)
    raw["files"].sort(key=lambda file: file["path"])
    for file in raw["files"]:
        file["mode"] = None if file["mode"] is None else f"{file['mode']:04o}"
    return (json.dumps({"schema": SCHEMA, **raw}, sort_keys=True, indent=1) + "\n").encode()


def parse(data: bytes, where: str = RECEIPT) -> Receipt:
    """Read a receipt. Raises ``Refused`` with every problem found, each with its key path."""
    if len(data) > limits.RECEIPT:
        raise _broken(where, [f"it has more than {limits.RECEIPT}"])
    try:
        raw = object_of(data, where)
        if (schema := raw.pop("schema", None)) != SCHEMA:
            why = f"{where}: it has schema {schema!r}, but this version of vllm-mods ({__version__}) reads schema {SCHEMA}"
            hint = f"use the version that wrote it: {raw.get('tool', 'a newer vllm-mods')}"
            raise Refused(why, hint=hint)
        read = decode(Receipt, raw, where, whole=True)
    except ManifestError as error:
        raise _broken(where, error.problems) from None
    twice = [f"mods: {name} appears twice" for name in repeated(one.name for one in read.mods)]
    twice += [f"files: {path} appears twice" for path in repeated(one.path for one in read.files)]
    if twice:
        raise _broken(where, twice)
    return read


def _broken(where: str, problems: Sequence[str]) -> Refused:
    return Refused(
        f"{where}: the receipt is damaged, {listed(problems)}",
        hint=f"restore the file from a copy of this tree; or start over: remove the {STATE} folder and reinstall vLLM with `pip install --force-reinstall --no-deps`",
    )
