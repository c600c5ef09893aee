"""What a script survives, and where it may end: what is said of the effects behind such a place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from vllm_mods.making.calling import CallingShell
from vllm_mods.making.effects import (
    Assume,
    Effect,
    Install,
    Patch,
    Remove,
    ScriptPlace,
    Whole,
    changes,
)
from vllm_mods.making.shell_state import EndedError, PossibleEnd, ShellState
from vllm_mods.scripts.statements import If, Statement

_T = TypeVar("_T")


class Probe(NamedTuple):
    """What statements would do, and the shell as it would be after them."""

    effects: tuple[Effect, ...]
    ended: EndedError | None
    shell: SurvivingShell

    @property
    def ends(self) -> bool:
        """Whether what stands behind them in the script, the function or the loop is not run."""
        return self.ended is not None

    @property
    def fails(self) -> bool:
        """Whether the script ends there, and not as done."""
        return self.ended is not None and self.ended.fails and self.ended.word == "exit"

    @property
    def lasting(self) -> tuple[Effect, ...]:
        """The effects that last, without their places, to compare."""
        return lasting(self.effects)


class SurvivingShell(CallingShell):
    """A shell in which steps may fail."""

    @abstractmethod
    def probe(self, body: Sequence[Statement]) -> Probe:
        """Tell what statements would do, and forget it."""

    def survive(self, since: int, together: ScriptPlace | None = None) -> None:
        """Note that the script goes on where the patches of these effects do not go in.

        ``together`` is where what follows one of them is not done then.
        """
        done = [one for one in self.effects[since:] if changes(one)]
        if together is not None and any(isinstance(one, Patch) for one in done[:-1]):
            why = "the script survives it, and then what follows is not done either"
            self.left(together, "&&", why)
            return
        for i, one in enumerate(self.effects[since:], since):
            if isinstance(one, Patch) and one not in self.guarded:
                self.effects[i] = one._replace(optional=True)

    def settle(self, words: set[str], doubts: int) -> None:
        """Look at what lasts behind a place where a loop or a function may have ended."""
        ends = [one for one in self.doubts[doubts:] if one.word in words]
        self.doubts[doubts:] = [one for one in self.doubts[doubts:] if one.word not in words]
        for one in ends:
            done = [effect for effect in self.effects[one.at :] if changes(effect)]
            if any(isinstance(effect, Whole | Remove | Install) for effect in done):
                why = "whether it ends what it stands in is known only when it runs"
                self.left(self.here, one.word, why)
                break
            self.survive(one.at)
        if ends:
            self.agree([self.probe([]).shell, *(one.shell for one in ends)])

    def fallback(
        self, bodies: Sequence[Sequence[Statement]], since: int, place: ScriptPlace
    ) -> None:
        """Look at what runs only if something that changes files fails: it may not change others."""
        done = lasting(self.effects[since:])
        others = [self.probe(body) for body in bodies] if done else []
        if any(isinstance(one, Assume) for other in others for one in other.effects):
            # which of its branches is taken is not known: any of them may end the script
            inside = [body for one in bodies[0] if isinstance(one, If) for _, body in one.branches]
            others += [self.probe(body) for body in inside]
            bodies = [*bodies, *inside]
        for body, other in zip(bodies, others, strict=False):
            if other.lasting and other.lasting != done:
                self.left(place, body[0].text, "it runs only if what stands before it fails")
                return
        if any(other.fails for other in others):
            self.guarded.update(self.effects[since:])
            return
        for other in (one for one in others if not one.lasting):
            if other.ended is None or not other.ended.fails:
                self.survive(since, place)
                self.doubt(other)
            if other.ended is not None and other.ended.word == "exit":
                self.left(
                    place, "exit 0", "the script counts as done where what is before it fails"
                )

    def doubt(self, probe: Probe) -> None:
        """Note a place behind which a loop or a function may not go on."""
        if probe.ended is not None and probe.ended.word != "exit":
            self.doubts.append(PossibleEnd(probe.ended.word, len(self.effects), probe.shell))

    def agree(self, shells: Sequence[ShellState]) -> None:
        """Go on with what is the same after every branch that may have been taken."""
        names = {name for shell in shells for name in shell.variables}
        for name in names:
            values = {shell.variables.get(name, "") for shell in shells}
            self.variables[name] = values.pop() if len(values) == 1 else None
        folders = {shell.cwd for shell in shells}
        self.cwd = folders.pop() if len(folders) == 1 else None
        self.arrays = _common([shell.arrays for shell in shells])
        self.functions = _common([shell.functions for shell in shells])
        if len({shell.arguments for shell in shells}) > 1:
            self.left(self.here, "shift", "how many arguments are left is known only when it runs")
        for shell in shells:
            self.effects += [one for one in shell.effects if one not in self.effects]


def lasting(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the effects that last, to compare: without their places, or what is survived."""
    found = (one._replace(place=ScriptPlace("", 0)) for one in effects if changes(one))
    return tuple(one._replace(optional=False) if isinstance(one, Patch) else one for one in found)


def _common(found: Sequence[dict[str, _T]]) -> dict[str, _T]:
    """Return what is the same in all."""
    first, *others = found
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }
