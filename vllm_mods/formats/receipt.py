"""receipt.json: what was applied to a tree, by hash. Pure: bytes ↔ ``Receipt``.

It lies in the tree, so it holds nothing that differs between two equal applies: no
time, no host name. The bytes are canonical (sorted keys), so equal receipts are equal files.
"""

# No `from __future__ import annotations`: see model.py.

import json
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from vllm_mods import __version__
from vllm_mods.base.errors import Refused
from vllm_mods.base.untrusted import json_of

SCHEMA = 1
STATE = ".vllm-mods"
"""The folder in the site root that holds everything this tool keeps there."""
RECEIPT = f"{STATE}/receipt.json"
ORIGINALS = f"{STATE}/originals"
MODS = f"{STATE}/mods"  # one file for each
TEMPLATES = f"{STATE}/templates"
TOOL = f"vllm-mods {__version__}"

FILE, RECORD, BYTECODE, FOLDER = "file", "record", "bytecode", "folder"
_KINDS = (FILE, RECORD, BYTECODE, FOLDER)
_SHA256 = r"[0-9a-f]{64}\Z"
_MODE = r"[0-7]{4}\Z"


class FileHash(NamedTuple):
    """A file's sha256 before and after one mod; None stands for "no such file"."""

    path: str
    before: str | None
    after: str | None


class ReceiptFile(NamedTuple):
    """The net change of one file from the untouched tree to now.

    ``kind`` is ``file``, ``record`` (a distribution's RECORD, kept true), ``bytecode`` (a stale
    ``.pyc`` that was removed) or ``folder`` (one that a mod needed; both hashes are None).
    ``mode`` (permission bits) and ``size`` (bytes) are those after the change.
    """

    path: str
    before: str | None
    after: str | None
    kind: str = FILE
    mode: int | None = None
    size: int | None = None


class ReceiptMod(NamedTuple):
    """An applied mod. ``files`` starts from what the mods before it left."""

    name: str
    version: str
    digest: str
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
    workspace: str | None = None
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


def dump(receipt: Receipt) -> bytes:
    """Return the canonical bytes: sorted keys, files sorted by path, mods as they went in."""
    raw = {
        "schema": SCHEMA,
        "tool": receipt.tool,
        "vllm": receipt.vllm,
        "workspace": receipt.workspace,
        "mods": [
            {
                "name": mod.name,
                "version": mod.version,
                "digest": mod.digest,
                "variant": mod.variant,
                "verdict": mod.verdict,
                "files": [
                    {"path": file.path, "before": file.before, "after": file.after}
                    for file in mod.files
                ],
            }
            for mod in receipt.mods
        ],
        "files": [
            {
                "path": file.path,
                "before": file.before,
                "after": file.after,
                "kind": file.kind,
                "mode": None if file.mode is None else f"{file.mode:04o}",
                "size": file.size,
            }
            for file in sorted(receipt.files, key=lambda file: file.path)
        ],
    }
    return (json.dumps(raw, sort_keys=True, indent=1) + "\n").encode()


def parse(data: bytes, where: str = RECEIPT) -> Receipt:
    """Read a receipt. Raises ``Refused`` with every problem found, each with its key path."""
    try:
        raw = json_of(data)
    except ValueError as error:
        raise _broken(where, [f"not JSON: {error}"]) from None
    if isinstance(raw, dict) and raw.get("schema") != SCHEMA:
        raise Refused(
            f"{where}: written as schema {raw.get('schema')!r}, and this version of vllm-mods "
            f"({__version__}) reads schema {SCHEMA}",
            hint=f"use the version that wrote it: {raw.get('tool', 'a newer vllm-mods')}",
        )
    problems: list[str] = []
    receipt = _receipt(_ReceiptReader(raw, "", problems))
    if problems:
        raise _broken(where, problems)
    return receipt


def _broken(where: str, problems: list[str]) -> Refused:
    noun = "problem" if len(problems) == 1 else "problems"
    lines = "".join(f"\n  {problem}" for problem in problems)
    return Refused(
        f"{where}: the receipt is damaged, {len(problems)} {noun}{lines}",
        hint="put the file back from a copy of this tree; or start over: remove the "
        f"{STATE} folder and reinstall vLLM with `pip install --force-reinstall --no-deps`",
    )


class _ReceiptReader:
    """One JSON object: typed getters that note a problem and go on."""

    def __init__(self, raw: object, where: str, problems: list[str]) -> None:
        self.raw: dict[str, Any] = raw if isinstance(raw, dict) else {}
        self.where = where
        self.problems = problems
        self.known: set[str] = {"schema"} if not where else set()
        if not isinstance(raw, dict):
            problems.append(f"{where or 'the file'}: must be an object")

    def key(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def text(self, name: str, check: Callable[[str], str | None] | None = None) -> str:
        value = self.optional(name, check)
        if value is None and name in self.raw and self.raw[name] is None:
            self.problems.append(f"{self.key(name)}: must be a string")
        return value or ""

    def optional(self, name: str, check: Callable[[str], str | None] | None = None) -> str | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.problems.append(f"{self.key(name)}: must be a string")
            return None
        if check is not None and (problem := check(value)):
            self.problems.append(f"{self.key(name)}: {problem}")
        return value

    def number(self, name: str) -> int | None:
        value = self.take(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            self.problems.append(f"{self.key(name)}: must be a whole number")
            return None
        return value

    def objects(self, name: str) -> list["_ReceiptReader"]:
        value = self.take(name)
        if not isinstance(value, list):
            if name in self.raw:
                self.problems.append(f"{self.key(name)}: must be a list")
            return []
        return [
            _ReceiptReader(one, f"{self.key(name)}[{i}]", self.problems)
            for i, one in enumerate(value)
        ]

    def take(self, name: str) -> object:
        self.known.add(name)
        if name not in self.raw and self.raw:
            self.problems.append(f"{self.key(name)}: is missing")
        return self.raw.get(name)

    def done(self) -> None:
        self.problems += [f"{self.key(name)}: unknown" for name in self.raw.keys() - self.known]


def _receipt(reader: _ReceiptReader) -> Receipt:
    receipt = Receipt(
        tool=reader.text("tool"),
        vllm=reader.optional("vllm"),
        workspace=reader.optional("workspace", _absolute),
        mods=tuple(_mod(one) for one in reader.objects("mods")),
        files=tuple(_file(one) for one in reader.objects("files")),
    )
    reader.done()
    for what, names in (
        ("mods", [mod.name for mod in receipt.mods]),
        ("files", [file.path for file in receipt.files]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        reader.problems += [f"{what}: {name} is there twice" for name in twice]
    return receipt


def _mod(reader: _ReceiptReader) -> ReceiptMod:
    mod = ReceiptMod(
        name=reader.text("name"),
        version=reader.text("version"),
        digest=reader.text("digest", _digest),
        variant=reader.text("variant"),
        verdict=reader.text("verdict"),
        files=tuple(_file_hash(one) for one in reader.objects("files")),
    )
    reader.done()
    return mod


def _file_hash(reader: _ReceiptReader) -> FileHash:
    file = FileHash(
        path=reader.text("path", _path),
        before=reader.optional("before", _digest),
        after=reader.optional("after", _digest),
    )
    reader.done()
    return file


def _file(reader: _ReceiptReader) -> ReceiptFile:
    mode = reader.optional("mode", _octal)
    file = ReceiptFile(
        path=reader.text("path", _path),
        before=reader.optional("before", _digest),
        after=reader.optional("after", _digest),
        kind=reader.text("kind", _kind),
        mode=int(mode, 8) if mode is not None and re.match(_MODE, mode) else None,
        size=reader.number("size"),
    )
    reader.done()
    return file


def _digest(value: str) -> str | None:
    return None if re.match(_SHA256, value) else "is no sha256"


def _octal(value: str) -> str | None:
    return None if re.match(_MODE, value) else "must be four octal digits, as in 0644"


def _kind(value: str) -> str | None:
    return None if value in _KINDS else f"must be one of {', '.join(_KINDS)}"


def _absolute(value: str) -> str | None:
    return None if value.startswith("/") else "must be an absolute path"


def _path(value: str) -> str | None:
    parts = value.removeprefix("/").split("/")
    if "\0" in value or any(part in {"", ".", ".."} for part in parts):
        return f"{value!r} is no plain path"
    return None
