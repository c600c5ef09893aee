"""Say where a class or function is now that it is not where a patch expects it."""

import posixpath
import re
from collections.abc import Iterator, Sequence

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.tree import Tree

# Each read of a remote tree is a request of its own, and `check` may move a megabyte in all.
_REMOTE_LIMIT = 12
# A release brings about a hundred new files; a port may take the time to ask for them.
_NEW = 200


def search(tree: Tree, name: str, path: str) -> tuple[FindingCode, str]:
    """Tell where a class or function that is gone from ``path`` is defined at the top of other files.

    Looks in every Python file of a tree on disk, likeliest first, and in the
    likeliest ones only of a remote tree. The code is ``superseded`` where nothing in the whole tree
    has the name any more, else ``scope-gone``; the words say what was looked at.
    """
    others = _rank(tree, path)
    looked = _likeliest(tree, others)
    lines = {other: _defined_at(tree, other, name, top=True) for other in looked}
    places = [f"{other}:{line}" for other, line in lines.items() if line is not None]
    if places:
        return FindingCode.SCOPE_GONE, f"`{name}` is defined in {', '.join(places[:3])}"
    top = path.split("/", 1)[0]
    if looked != others:
        likeliest = f"the {len(looked)} likeliest of {len(others)} files"
        return FindingCode.SCOPE_GONE, f"{likeliest} do not define it; the others were not read"
    word = re.compile(rb"\b%s\b" % re.escape(name.encode()))
    named = next((other for other in looked if word.search(_read(tree, other))), None)
    if named is not None:
        why = f"no file of {top}/ defines `{name}`, but {named} contains the name"
        return FindingCode.SCOPE_GONE, why
    why = f"none of the {len(looked)} Python files of {top}/ contains the name"
    return FindingCode.SUPERSEDED, f"this version no longer has it: {why}"


def defining(
    tree: Tree, path: str, names: Sequence[str], base: Tree | None = None
) -> Iterator[str]:
    """Yield the files other than ``path`` that define all of ``names``, likeliest first.

    Those that ``base``, the tree before, has not got come before all others, and are looked in of a remote tree too.
    """
    old = None if base is None else frozenset(base.paths(path.split("/", 1)[0]))
    others = _rank(tree, path)
    new = [other for other in others if old is not None and other not in old]
    for other in dict.fromkeys((*new[:_NEW], *_likeliest(tree, others))):
        if all(_defined_at(tree, other, name) is not None for name in names):
            yield other


def _likeliest(tree: Tree, others: list[str]) -> list[str]:
    return others[:_REMOTE_LIMIT] if tree.remote else others


def _rank(tree: Tree, path: str) -> list[str]:
    paths = tree.paths(path.split("/", 1)[0])
    others = (other for other in paths if other.endswith(".py") and other != path)
    return sorted(others, key=lambda other: (-_likeness(other, path), other))


def _defined_at(tree: Tree, path: str, name: str, *, top: bool = False) -> int | None:
    """Return the line in a file at which a class or function of that name begins, in column 0 if ``top``."""
    data = _read(tree, path)
    word = name.encode()
    if word not in data:
        return None
    indent = b"" if top else rb"[ \t]*"
    needle = rb"^%s(?:class|(?:async[ \t]+)?def)[ \t]+%s\b" % (indent, re.escape(word))
    hit = re.search(needle, data, re.MULTILINE)
    return None if hit is None else data.count(b"\n", 0, hit.start()) + 1


def _read(tree: Tree, path: str) -> bytes:
    try:
        return tree.read(path) or b""
    except TreeError:
        return b""  # a link or a special file, which no mod could touch either


def _likeness(path: str, lost: str) -> float:
    folders, _, file = path.rpartition("/")
    lost_folders, _, lost_file = lost.rpartition("/")
    stem, lost_stem = file.removesuffix(".py"), lost_file.removesuffix(".py")
    shared = len(posixpath.commonprefix([f"{one}/".split("/") for one in (folders, lost_folders)]))
    score = shared / (1 + abs(folders.count("/") - lost_folders.count("/")) / 4)
    if lost_stem in folders.split("/"):
        score += 4  # a module that became a package
    if stem == lost_stem:
        score += 5
    elif lost_stem in stem or stem in lost_stem:
        score += 1
    return score
