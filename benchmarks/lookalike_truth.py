"""What a patch of ``lookalike.py`` was written for, and what an answer to it is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import placing
from lookalike_places import Chain, Places, changed_in, grouped, home, places, shown, window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lookalike_sites import Site
    from placing import Answer, Made

AROUND = 8
"""So many lines before and behind a place say what it is."""


class Target(NamedTuple):
    """A file to plan on. ``is_in`` says that the patch is in it, ``never_in`` that upstream had not made the change.

    In one of a ``later`` release it was, and may still be. ``expected`` is what the file becomes, where
    that is known: then the patch is not in it either.
    """

    name: str
    release: str
    data: bytes
    is_in: bool = False
    never_in: bool = False
    later: bool = False
    expected: bytes | None = None


class Truth(NamedTuple):
    """What a patch was written for: the ``chains`` of ``base``, each with the lines around it that say something.

    ``before`` and ``after`` are the texts of its hunks, ``brings`` lines that it adds and ``base`` has nowhere.
    """

    base: Places
    chains: dict[Chain, frozenset[bytes]]
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    brings: frozenset[bytes]

    @classmethod
    def of(cls, made: Made, site: Site, context: int) -> Truth:
        base, result = places(made.base), places(made.result)
        assert base is not None
        assert result is not None
        groups = grouped(site.edits, context)
        before, after = (
            tuple(window(base.lines, group, context, new=new) for group in groups)
            for new in (False, True)
        )
        chains = {chain: near(base, at) for chain, at in changed_in(base, result).items()}
        return cls(base, chains, before, after, said(result.lines) - said(base.lines))

    def where(self, target: Places, text: bytes) -> str:
        """Say where a text stands: ``own`` place, one that ``followed`` it, or ``elsewhere``."""
        data = b"".join(target.lines)
        found = "elsewhere"
        at = data.find(text)
        while at >= 0:
            first = data.count(b"\n", 0, at)
            lines = range(first, min(first + text.count(b"\n"), len(target.lines)))
            if not at or data[at - 1 : at] == b"\n":
                if any(target.at(line) in self.chains for line in lines):
                    return "own"
                if any(self.followed(target, target.at(line), line) for line in lines):
                    found = "followed"
            at = data.find(text, at + 1)
        return found

    def all_in(self, target: Places, texts: Iterable[bytes]) -> str:
        """Say where the one of some texts is that is farthest away."""
        return min((self.where(target, text) for text in texts), key=ORDER.index)

    def followed(self, target: Places, chain: Chain, index: int) -> bool:
        """Tell whether upstream carried the one into a place: it is new, and has what the one has lost.

        A copy of the one is no such place: it has what the one still has, too.
        """
        if chain in self.base.spans:
            return False
        if any(wraps(one, chain) or wraps(chain, one) for one in self.chains):
            return True
        here = near(target, index)
        for one, around in self.chains.items():
            own = (
                line
                for n, line in enumerate(target.lines)
                if abs(n - index) > AROUND and home(target.at(n))[: len(home(one))] == home(one)
            )
            stayed = around & said(own)
            lost = around - stayed
            if len(lost & here) >= len(lost) / 2 > 0 and len(lost & here) > len(stayed & here):
                return True
        return False

    def lacks(self, target: Places) -> bool:
        """Tell whether a file has not got all that the patch adds."""
        return not self.brings <= said(target.lines)

    def is_brought(self, target: Places) -> bool:
        """Tell whether nearly all that the patch adds is in a file already."""
        return len(self.brings & said(target.lines)) > 0.8 * len(self.brings) > 0

    def landed(self, target: Places, after: Places) -> tuple[str, set[Chain]]:
        """Say where a change went, with the places that are not those that it was written for."""
        changed = changed_in(target, after)
        other = {chain: at for chain, at in changed.items() if chain not in self.chains}
        wrong = {chain for chain, at in other.items() if not self.followed(target, chain, at)}
        if wrong:
            return "elsewhere", wrong
        if other:
            return "followed", set(other)
        missing = set(self.chains) - set(changed)
        return ("elsewhere", missing) if missing else ("own", set())


ORDER = ("elsewhere", "followed", "own")


def near(lines: Places, index: int) -> frozenset[bytes]:
    """Return the lines around one that say something."""
    return said(lines.lines[max(0, index - AROUND) : index + AROUND + 1])


def wraps(inner: Chain, outer: Chain) -> bool:
    """Tell whether a place is another one with more around it."""
    labels = iter(outer)
    return (
        inner[-1:] == outer[-1:] and home(inner) == home(outer) and all(x in labels for x in inner)
    )


def said(lines: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(line.strip() for line in lines if len(line.strip()) > 8)


def judged(answer: Answer, truth: Truth, target: Target) -> tuple[str, str]:  # noqa: PLR0911
    """Say what an answer is worth, in the words of ``lookalike.py``, and where the change went."""
    there = places(target.data)
    assert there is not None
    if answer.words.startswith(placing.CRASH):
        return "wrong", "crash"
    if answer.text is None and not answer.is_in:
        new = not target.is_in and not target.later
        stays = new and truth.all_in(there, truth.before) == "own"
        return ("refused, text there" if stays else "refused"), ""
    if answer.text is None or answer.text == target.data:
        absent = target.expected is not None or (target.never_in and truth.lacks(there))
        seen = "elsewhere" if absent else truth.all_in(there, truth.after)
        return ("right" if target.is_in or target.later else IS_IN[seen]), ""
    if target.is_in or (target.later and truth.is_brought(there)):
        return "wrong", "a second time"
    after = places(answer.text)
    if after is None:
        return "wrong", "no Python"
    where, chains = truth.landed(there, after)
    landed = ", ".join(sorted(map(shown, chains)))
    if where == "elsewhere":
        far = {home(chain) for chain in chains} - {home(chain) for chain in truth.chains}
        return ("wrong, another definition" if far else "wrong"), landed
    if where == "own" and target.expected not in (None, answer.text):
        return "wrong", "another spot of the same place"
    return ("followed" if where == "followed" else "right"), landed


IS_IN = {"own": "right", "followed": "followed", "elsewhere": "falsely in"}
