"""What a patch of ``lookalike.py`` was written for, and what an answer to it is worth."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import placing
from lookalike_places import Chain, Places, changed_in, grouped, home, places, shape, shown, window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lookalike_places import Edit
    from lookalike_sites import Site
    from placing import Answer, Made

AROUND = 8
"""So many lines before and behind a place say what it is."""
ORDER = ("elsewhere", "followed", "own")
IS_IN = {"own": "right", "followed": "followed", "elsewhere": "falsely in"}


class Target(NamedTuple):
    """A file to plan on.

    ``is_in`` says that the patch is in it, ``never_in`` that upstream had not made the change yet; in a ``later``
    release it had, and the change may be in. ``expected`` is what the file becomes, where that is
    known: then the patch is not in it either.
    """

    name: str
    release: str
    data: bytes
    is_in: bool = False
    never_in: bool = False
    later: bool = False
    expected: bytes | None = None


class Window(NamedTuple):
    """The text of a hunk on one side; ``core`` are those of its lines that changed, or the two around a gap."""

    text: bytes
    core: range

    @classmethod
    def of(cls, base: Places, group: list[Edit], context: int, *, new: bool) -> Window:
        text = window(base.lines, group, context, new=new)
        above = min(context, group[0].at)
        below = min(context, len(base.lines) - group[-1].at - group[-1].removed)
        end = text.count(b"\n") - below
        return cls(text, range(above, end) or range(max(0, above - 1), end + 1))


class Truth(NamedTuple):
    """What a patch was written for: the ``chains`` of ``base``, each with the lines around it; it has to change all of one of
    those that are ``needed``.

    ``before`` and ``after`` are its hunks, ``brings`` the lines that it adds and that ``base`` has nowhere;
    ``removed`` are those that it removes, if it does nothing else, ``gone`` the chains that it removes whole.
    """

    base: Places
    chains: dict[Chain, frozenset[bytes]]
    needed: tuple[frozenset[Chain], ...]
    before: tuple[Window, ...]
    after: tuple[Window, ...]
    brings: frozenset[bytes]
    removed: Counter[bytes]
    gone: frozenset[Chain]

    @classmethod
    def of(cls, mod: Made, site: Site, context: int) -> Truth:
        base, result = places(mod.base), places(mod.result)
        assert base is not None
        assert result is not None
        groups = grouped(site.edits, context)
        before, after = (
            tuple(Window.of(base, group, context, new=new) for group in groups)
            for new in (False, True)
        )
        ways = [changed_in(base, result, slid=slid) for slid in (False, True)]
        chains = {chain: near(base, at) for way in ways for chain, at in way.items()}
        needed = tuple(map(frozenset, ways))
        brings = long_lines(result.lines) - long_lines(base.lines)
        counts = Counter(base.lines), Counter(result.lines)
        removed = Counter() if counts[1] - counts[0] else counts[0] - counts[1]
        if any(line.strip() for line in removed):
            removed = Counter({line: n for line, n in removed.items() if line.strip()})
        gone = frozenset(chain for chain in chains if chain not in result.spans)
        return cls(base, chains, needed, before, after, brings, removed, gone)

    def is_removed(self, target: Places) -> bool:
        """Tell whether somebody has removed the lines, too, or not written them yet: there are fewer of them, and none in their place."""
        counts = Counter(target.lines)
        here = Counter(line for n, line in enumerate(target.lines) if target.at(n) in self.chains)
        before = Counter(
            line for n, line in enumerate(self.base.lines) if self.base.at(n) in self.chains
        )
        return (
            bool(self.removed)
            and all((chain in target.spans) != (chain in self.gone) for chain in self.chains)
            and all(
                chain[:-1] in target.spans
                or any(chain[:n] in self.gone for n in range(1, len(chain)))
                for chain in self.gone
                if chain[:-1]
            )
            and all(
                counts[line] <= self.base.lines.count(line) - n and here[line] <= before[line] - n
                for line, n in self.removed.items()
            )
        )

    @property
    def adds_imports_alone(self) -> bool:
        """Whether all that it brings are imports of a line each: a second one, where upstream has made it part of a longer one, does nothing."""
        return all(line.startswith((b"import ", b"from ")) for line in self.brings)

    def where(self, target: Places, hunk: Window) -> str:
        """Say where a hunk's text stands: in its ``own`` place, in one that ``followed`` it, or ``elsewhere``."""
        data = b"".join(target.lines)
        best = "elsewhere"
        at = data.find(hunk.text)
        while at >= 0:
            first = data.count(b"\n", 0, at)
            lines = [line for line in (first + n for n in hunk.core) if line < len(target.lines)]
            if not at or data[at - 1 : at] == b"\n":
                if any(self.known(target.at(line)) in self.chains for line in lines):
                    return "own"
                if any(self.is_followed(target, target.at(line), line) for line in lines):
                    best = "followed"
            at = data.find(hunk.text, at + 1)
        return best

    def where_all(self, target: Places, hunks: Iterable[Window]) -> str:
        """Say where the hunk that is farthest away stands."""
        return min((self.where(target, hunk) for hunk in hunks), key=ORDER.index)

    def known(self, chain: Chain) -> Chain:
        """Return the innermost part of a chain that the base has too."""
        while chain not in self.base.spans:
            chain = chain[:-1]
        return chain

    def is_followed(self, target: Places, chain: Chain, index: int) -> bool:
        """Tell whether upstream carried the code into a place: it is new, and has what the old place has lost.

        A copy is no such place: it has what the old place still has, too.
        """
        if chain in self.base.spans:
            return False
        here = near(target, index)
        for old, around in self.chains.items():
            gone = old not in target.spans
            if wraps(old, chain) or wraps(chain, old) or (gone and renames(old, chain)):
                return True
            own = (
                line
                for n, line in enumerate(target.lines)
                if abs(n - index) > AROUND and home(target.at(n))[: len(home(old))] == home(old)
            )
            stayed = around & long_lines(own)
            lost = around - stayed
            if len(lost & here) >= len(lost) / 2 > 0 and len(lost & here) > len(stayed & here):
                return True
        return False

    def landed(self, target: Places, after: Places) -> tuple[str, set[Chain]]:
        """Say where a change went, with the places that are not those that it was written for."""
        ways = (
            self.landed_as(changed_in(target, after, slid=slid), target) for slid in (False, True)
        )
        return max(ways, key=lambda way: ORDER.index(way[0]))

    def landed_as(self, changed: dict[Chain, int], target: Places) -> tuple[str, set[Chain]]:
        other = {chain: at for chain, at in changed.items() if chain not in self.chains}
        wrong = {chain for chain, at in other.items() if not self.is_followed(target, chain, at)}
        if wrong:
            return "elsewhere", wrong
        if other:
            return "followed", set(other)
        missing = [need - set(changed) for need in self.needed]
        return ("own", set()) if frozenset() in missing else ("elsewhere", set(missing[0]))


def near(file: Places, index: int) -> frozenset[bytes]:
    return long_lines(file.lines[max(0, index - AROUND) : index + AROUND + 1])


def long_lines(lines: Iterable[bytes]) -> frozenset[bytes]:
    """Return the lines that are long enough to say something."""
    return frozenset(line.strip() for line in lines if len(line.strip()) > 8)


def wraps(inner: Chain, outer: Chain) -> bool:
    """Tell whether a place is another one with more around it."""
    labels = iter(outer)
    within = all(label in labels for label in inner)
    return within and inner[-1:] == outer[-1:] and home(inner) == home(outer)


def renames(old: Chain, new: Chain) -> bool:
    """Tell whether two branches, tables or calls in the same place are of a kind, with other words.

    So are those whose calls and tables alone have other names.
    """
    if without_calls(old) == without_calls(new) != old:
        return True
    kinds = {
        shape(old),
        shape(new),
        *(chain[-1].split()[0] for chain in (old, new) if is_branch(chain)),
    }
    same = kinds == {"table or call"} or (is_branch(old) and is_branch(new) and len(kinds) == 2)
    return same and old[:-1] == new[:-1]


def without_calls(chain: Chain) -> Chain:
    """Return the definitions and branches of a chain."""
    return tuple(label for n, label in enumerate(chain) if shape(chain[: n + 1]) != "table or call")


def is_branch(chain: Chain) -> bool:
    return shape(chain) == "branch"


def judged(answer: Answer, truth: Truth, target: Target) -> tuple[str, str]:
    """Say what an answer is worth, in the words of ``lookalike.py``, and where the change went."""
    file = places(target.data)
    assert file is not None
    if answer.words.startswith(placing.CRASH):
        return "wrong", "crash"
    if answer.text is None and not answer.is_in:
        may_stand = not target.is_in and not target.later
        stands = may_stand and truth.where_all(file, truth.before) == "own"
        return ("refused, text there" if stands else "refused"), ""
    if answer.text is None or answer.text == target.data:
        lacks = not truth.brings <= long_lines(file.lines)
        absent = target.expected is not None or (target.never_in and lacks)
        where = "elsewhere" if absent else truth.where_all(file, truth.after)
        if where == "elsewhere" and truth.is_removed(file):
            where = "own"
        return ("right" if target.is_in or target.later else IS_IN[where]), ""
    return judged_text(answer.text, file, truth, target)


def judged_text(text: bytes, file: Places, truth: Truth, target: Target) -> tuple[str, str]:
    """Say what the change that a tool made is worth."""
    homes = set(map(home, truth.chains))
    own = (line for n, line in enumerate(file.lines) if home(file.at(n)) in homes)
    has = len(truth.brings & long_lines(own))
    later = target.later and has > 0.8 * len(truth.brings) > 0
    if target.is_in or (later and not truth.adds_imports_alone):
        return "wrong", "a second time"
    after = places(text)
    if after is None:
        return "wrong", "no Python"
    where, chains = truth.landed(file, after)
    landed = ", ".join(sorted(map(shown, chains)))
    if where == "elsewhere":
        far = {home(chain) for chain in chains} - {home(chain) for chain in truth.chains}
        return ("wrong, another definition" if far else "wrong"), landed
    if where == "own" and target.expected not in (None, text):
        return "wrong", "another spot of the same place"
    return ("followed" if where == "followed" else "right"), landed
