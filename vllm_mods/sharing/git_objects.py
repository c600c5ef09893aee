"""The files of a commit, proven by git's own objects: each object must have the hash that names it. Pure.

A commit names a tree, a tree names the trees and blobs in it, each by the hash of its content
(https://git-scm.com/book/en/v2/Git-Internals-Git-Objects). Whoever has these few objects needs neither git nor
a network to tell which bytes the commit has under a path.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.sharing import contents

Reader = Callable[[str], bytes]
"""Returns an object by its hash as git hashes it, the header included. Raises ``LookupError`` if it is missing."""

_TREE = b"40000"
_REGULAR = frozenset({b"100644", b"100755", b"100664"})
_LINKS = {b"120000": "a symbolic link", b"160000": "a submodule"}
_FIRST_LINE = re.compile(rb"tree ([0-9a-f]{40,64})\n")


def with_header(kind: str, content: bytes) -> bytes:
    """Return an object as git hashes it."""
    return b"%s %d\0" % (kind.encode(), len(content)) + content


def has_hash(data: bytes, name: str) -> bool:
    """Return True if an object, header included, has the hash ``name``: SHA-1, or SHA-256 where the name is longer."""
    algorithm = "sha256" if len(name) == 64 else "sha1"
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == name


def library_files(commit: str, folder: str, read: Reader, source: str) -> Iterator[tuple[str, str]]:
    """Yield path and blob of each file of the library in ``folder`` of a commit, ``""`` for its root.

    ``source`` is what messages call it. Raises ``TreeError`` for objects that are missing or have another
    hash, for links and submodules, for paths that no library has, and past the limits of a library.
    """
    root = _root(commit, folder, read, source)
    pending = [("", root)] if root else []
    folders, files = 0, set()
    while pending:
        above, tree = pending.pop()
        folders += 1
        for mode, name, of in _entries(read, tree, source):
            path = f"{above}{name}"
            if not contents.is_part(path):
                continue
            if why := "is in its tree twice" if path in files else _why_not(mode, name, path):
                raise refusal(source, f"{path!r} {why}")
            if mode == _TREE:
                pending.append((f"{path}/", of))
            else:
                files.add(path)
                yield path, of
        if max(len(files), folders + len(pending)) > limits.LIBRARY_FILES:
            most = limits.LIBRARY_FILES
            raise refusal(source, f"has more than {most}, the limit for {most.what}")


def _root(commit: str, folder: str, read: Reader, source: str) -> str | None:
    """Return the tree of a folder in a commit, None if there is no such folder."""
    match = _FIRST_LINE.match(_content(read, commit, "commit", source))
    if match is None:
        raise refusal(source, f"the commit {commit} names no tree")
    tree = match[1].decode()
    for part in folder.split("/") if folder else ():
        below = {name: of for mode, name, of in _entries(read, tree, source) if mode == _TREE}
        if part not in below:
            return None
        tree = below[part]
    return tree


def _why_not(mode: bytes, name: str, path: str) -> str:
    if mode == _TREE:
        return "points outside the repository" if name in {"", ".", ".."} or "/" in name else ""
    if mode not in _REGULAR:
        return f"is {_LINKS.get(mode, 'no file')}, and a library can contain only regular files"
    return "has an invalid name" if "/" in name else contents.why_not(path)


def _entries(read: Reader, tree: str, source: str) -> Iterator[tuple[bytes, str, str]]:
    """Yield mode, name and hash of what a tree names."""
    data, size = _content(read, tree, "tree", source), len(tree) // 2
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        mode, space, name = data[at:end].partition(b" ")
        mode = mode.lstrip(b"0")  # which some old programs wrote before a tree's
        at = end + 1 + size
        if end < 0 or not space or at > len(data):
            raise refusal(source, f"the tree {tree} is damaged")
        yield mode, os.fsdecode(name), data[end + 1 : at].hex()


def _content(read: Reader, name: str, kind: str, source: str) -> bytes:
    try:
        data = read(name)
    except LookupError as error:
        raise refusal(source, f"the {kind} {name} was not sent by its server") from error
    header, _, content = data.partition(b"\0")
    if header != b"%s %d" % (kind.encode(), len(content)) or not has_hash(data, name):
        raise refusal(source, f"the {kind} {name} has another hash")
    return content


def refusal(source: str, why: str) -> TreeError:
    """Return the refusal of what only its author can mend."""
    return TreeError(f"{source}: {why}", hint="report this to its author")
