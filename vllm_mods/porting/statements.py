"""Three-way merge of Python, statement by statement, for what clashes line by line. Pure.

Lines that touch clash, although they may be two statements that have nothing to do with each other. Here a
statement has a key, as a definition has a name (``key``), and what one side does to a statement meets what
the other does to the one of the same key only:

* changes of statements with different keys do not clash;
* where both sides change one statement, they may do it in different parts of its body, or the mod may add
  elements to one of its brackets; other tokens are never merged;
* two insertions at one place both go in, the mod's first, where neither binds what the other reads and the
  target's cannot leave the function; where both old neighbours of an insertion are gone, nothing says
  where it belongs, and it is refused.

What comes out is believed only if it is the same merge backwards: what it adds to the target, taken to the base, gives
what the mod made of the base; and if nothing lasting that the target makes is left out where the mod leaves a function.
"""

import ast
import warnings
from collections.abc import Iterable, Sequence

from vllm_mods.base import line_diff
from vllm_mods.base.diff3 import Clash, Lines, Stretches
from vllm_mods.formats import syntax_tree
from vllm_mods.porting import brackets, independence, suites
from vllm_mods.porting.suites import BothChangedError, KeyedStatement, Suite, is_text


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge what the mod does (``base`` to ``ours``) with what the target has; None if that is not certain."""
    sides = (base, ours, theirs)
    if len({(b"\r\n" in one, one[-1:] == b"\n") for one in sides if one}) > 1:
        return None  # lines of two kinds
    try:
        merged = _merge(base, ours, theirs)
        back = _merge(theirs, merged, base, back=True)
    except BothChangedError:
        return None
    if merged == theirs or not _compiles(merged) or _meaning(back) != _meaning(ours):
        return None
    if any(independence.skipped(base, ours, theirs, merged)):
        return None
    return merged


def _meaning(data: bytes) -> str | None:
    """Return a file's syntax tree as text; None if it does not parse."""
    module = syntax_tree.module(data)
    return None if module is None else ast.dump(module)


def _compiles(data: bytes) -> bool:
    """Tell whether the compiler, which is stricter than the parser, takes a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "merged", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def agrees(text: bytes, stretches: Stretches) -> bool:
    """Tell whether a text is what was merged line by line, with something in the place of each clash."""
    at = 0
    for n, stretch in enumerate(stretches):
        if isinstance(stretch, Clash):
            continue
        piece = b"".join(stretch)
        if n == len(stretches) - 1:
            return text.endswith(piece) and len(text) - len(piece) >= at
        start = text.find(piece, at)
        if start < 0 or (n == 0 and start):
            return False
        at = start + len(piece)
    return True


def _merge(base: bytes, ours: bytes, theirs: bytes, *, back: bool = False) -> bytes:
    sides = []
    for data in (base, ours, theirs):
        module = syntax_tree.module(data)
        if module is None:
            raise BothChangedError
        lines = line_diff.split(data)
        suite = suites.read(module.body, lines, 1)
        end = max((one.start + len(one.text) - 1 for one in suite.values()), default=0)
        sides.append((suite, tuple(lines[end:])))
    (b, tail_b), (o, tail_o), (t, tail_t) = sides
    return b"".join([*_suite(b, o, t, back=back), *_pick(tail_b, tail_o, tail_t)])


def _pick(base: Lines, ours: Lines, theirs: Lines) -> Lines:
    """Return what is not as in the base. Raises ``BothChangedError`` where neither side is."""
    if ours in {base, theirs}:
        return theirs
    if theirs == base:
        return ours
    raise BothChangedError


def _suite(base: Suite, ours: Suite, theirs: Suite, *, back: bool) -> list[bytes]:
    """Merge blocks: the target's statements in its order, with those of the mod where they belong."""
    _check(base, ours, theirs, back=back)
    added = _places(base, ours, theirs, back=back)
    out: list[bytes] = []
    for n, name in enumerate(theirs):
        out += _lines(added.get(n, ()))
        if name not in base:
            out += _lines([theirs[name]])
        elif name in ours:
            out += _statement(base[name], ours[name], theirs[name], back=back)
    out += _lines(added.get(len(theirs), ()))
    return out


def _check(base: Suite, ours: Suite, theirs: Suite, *, back: bool) -> None:
    """Raise ``BothChangedError`` for blocks that cannot be merged statement by statement."""
    suites.check_order(base, ours, theirs)
    indented = (one.text[0] for side in (base, ours, theirs) for one in side.values())
    if len({line[: len(line) - len(line.lstrip())] for line in indented}) > 1:
        raise BothChangedError  # a line of one would belong to another block among those of another
    if not back and any(_lacks(base, *pair) for pair in ((ours, theirs), (theirs, ours))):
        raise BothChangedError
    for name in base:
        gone = [side for side in (ours, theirs) if name not in side]
        kept = [side[name] for side in (ours, theirs) if name in side]
        if len(gone) == 1 and kept[0].text != base[name].text:
            raise BothChangedError
        if gone == [theirs] and _comments(kept) != _comments([base[name]]):
            raise BothChangedError  # what the mod says about it would be lost


def _lacks(base: Suite, side: Suite, other: Suite) -> bool:
    """Tell whether the other side has come to read what this side has done away with."""
    gone = [one.node for name, one in base.items() if name not in side]
    was = {name: one.node for name, one in base.items()}
    texts = {name: one.text for name, one in base.items()}
    bound = [one.node for name, one in side.items() if one.text != texts.get(name)]
    new = [(one.node, was.get(name)) for name, one in other.items() if one.text != texts.get(name)]
    return bool(gone) and any(independence.lacks(gone, bound, node, old) for node, old in new)


def _lines(some: Iterable[KeyedStatement]) -> list[bytes]:
    return [line for one in some for line in (*one.lead, *one.text)]


def _places(
    base: Suite, ours: Suite, theirs: Suite, *, back: bool
) -> dict[int, list[KeyedStatement]]:
    """Return, by the number of the target's statement that they stand before, what the mod inserts."""
    groups: dict[int, list[KeyedStatement]] = {}
    for before, after, names in suites.added(base, ours):
        group = [ours[name] for name in names]
        groups.setdefault(_place(base, theirs, (before, after), group, back=back), []).extend(group)
    return groups


def _place(
    base: Suite,
    theirs: Suite,
    neighbours: tuple[str | None, str | None],
    group: Sequence[KeyedStatement],
    *,
    back: bool,
) -> int:
    """Find the place of a group between two old neighbours, None for the ends of the block."""
    before, after = neighbours
    known, order = list(base), list(theirs)
    replaced = known[_after(known, before) : _upto(known, after)]
    lo = _after(order, before) if before is None or before in theirs else None
    hi = _upto(order, after) if after is None or after in theirs else None
    if replaced:
        if lo is None or hi is None or order[lo:hi] != replaced:
            raise BothChangedError
        return lo
    if lo is not None and (before, after) != (None, None):
        end = next((n for n in range(lo, len(order)) if order[n] in base), len(order))
        between, at = order[lo:end], lo
    elif hi is not None and after is not None:
        start = next((n + 1 for n in range(hi - 1, -1, -1) if order[n] in base), 0)
        between, at = order[start:hi], hi
    else:
        raise BothChangedError
    beside = [theirs[name] for name in between]
    nodes = [one.node for one in group], [one.node for one in beside]
    if beside and not back and not independence.holds(*nodes):
        raise BothChangedError
    if any(is_text(one.node) for one in beside) or _comments(group) & _comments(beside):
        raise BothChangedError  # a docstring goes first; a comment that both stand below is there twice
    return at


def _comments(some: Iterable[KeyedStatement]) -> set[bytes]:
    return {line.strip() for one in some for line in one.lead} - {b""}


def _after(names: list[str], name: str | None) -> int:
    return 0 if name is None else names.index(name) + 1


def _upto(names: list[str], name: str | None) -> int:
    return len(names) if name is None else names.index(name)


def _statement(
    base: KeyedStatement, ours: KeyedStatement, theirs: KeyedStatement, *, back: bool
) -> list[bytes]:
    lead = _pick(base.lead, ours.lead, theirs.lead)
    try:
        return [*lead, *_pick(base.text, ours.text, theirs.text)]
    except BothChangedError:
        parts = [suites.parts(one) for one in (base, ours, theirs)]
    if not any(parts):
        return [*lead, brackets.add(base, ours, theirs, back=back)]
    if not parts[0] or len({len(some) for some in parts}) > 1:
        raise BothChangedError
    out = list(lead)
    for n, (b, o, t) in enumerate(zip(*parts, strict=True)):
        if n or isinstance(base.node, ast.Match):
            for side, other in ((o, t), (t, o)):
                if side.head != b.head and _lines(other.suite.values()) != _lines(b.suite.values()):
                    raise BothChangedError  # another part may have taken its place
        out += [*_pick(b.head, o.head, t.head), *_suite(b.suite, o.suite, t.suite, back=back)]
    return out
