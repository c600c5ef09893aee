"""Commands of a script as they are called, which of them it survives, and where it may end.

Of a command: its words, what it reads, and where what it prints goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from vllm_mods.base import limits
from vllm_mods.making import commands, words
from vllm_mods.making.effects import (
    Assume,
    Edit,
    Effect,
    Install,
    Patch,
    Remove,
    ScriptPlace,
    Whole,
    changes,
)
from vllm_mods.making.shell_state import (
    DONE,
    EndedError,
    PossibleEnd,
    Result,
    ShellCommand,
    ShellState,
    short,
)
from vllm_mods.scripts.statements import Call, If, Pipe, Redirect, Statement

_T = TypeVar("_T")


class Probe(NamedTuple):
    """What statements would do, and the shell as it would be after them."""

    effects: tuple[Effect, ...]
    ended: EndedError | None
    shell: CallingShell

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


class CallingShell(ShellState):
    """A state in which commands are called, and steps may fail."""

    def probe(self, body: Sequence[Statement]) -> Probe:
        """Tell what statements would do, and forget it."""
        inner = self.subshell()
        inner.files, inner.effects, inner.printed = dict(self.files), [], []
        inner.made, inner.gone, inner.doubts = set(self.made), set(self.gone), []
        ended = None
        try:
            inner.run(body)
        except EndedError as error:
            ended = error
        inner.loops = self.loops
        return Probe(tuple(inner.effects), ended, inner)

    def would_last(self, body: Sequence[Statement]) -> bool:
        """Tell whether statements would change what outlives the script."""
        return bool(self.probe(body).lasting)

    # --- commands ---------------------------------------------------------------

    def pipe(self, one: Pipe) -> Result:
        """Run ``a | b``: each reads what the one before it prints."""
        fed: str | None = None  # also where only a run tells
        result = Result()
        inner, since = self, len(self.effects)
        for i, stage in enumerate(one.stages):
            if i and not self.pipefail:
                self.survive(since)  # the last stage alone tells whether a pipe succeeds
            since = len(self.effects)
            inner = self.subshell()
            inner.printed = []
            if isinstance(stage, Call):
                result = inner.call(stage, fed, piped=bool(i))
            elif i and self.would_last([stage]):
                place = ScriptPlace(self.file, one.line)
                return self.left(place, one.text, "what goes through this pipe is not followed")
            else:
                result = inner.run([stage])
            fed = inner.output()
        self.printed += inner.printed
        return result

    def call(self, one: Call, stdin: str | None = None, *, piped: bool = False) -> Result:
        """Run a command: a function of the script, or one that is known; what is ``piped`` it reads."""
        place = ScriptPlace(self.file, one.line)
        reads, source = piped, None
        for redirect in one.redirects:
            if redirect.operator in {"<", "<<", "<<<"} and redirect.descriptor in {"", "0"}:
                stdin, reads = self.input(redirect), True
                source = words.value(self, redirect.target) if redirect.operator == "<" else None
        argv: list[str] = []
        pure = False
        for word in one.argv:
            items = words.values(self, word)
            if items is None:
                known = argv[0] if argv else ""
                if known not in commands.PURE - {"set"} or known in self.functions:
                    return self.left(place, one.text, f"`{word.text}` is known only when it runs")
                pure = True
                continue
            argv += items
        before = {name: self.variables.get(name) for name, _ in one.assignments}
        for name, word in one.assignments:
            self.variables[name] = words.text(self, word)
        command = ShellCommand(place, one.text, argv, stdin, reads, source)
        since = len(self.printed)
        # of a command that only asks, with words that are not known, nothing is known
        result = Result() if pure else self.invoke(command) if argv else DONE
        if one.argv:
            self.variables.update(before)
        if len(self.printed) > since:  # by a function or a script
            out = None if None in self.printed[since:] else "".join(map(str, self.printed[since:]))
            del self.printed[since:]
            result = result._replace(out=out)
        self.printed.append(self.outputs(one, place, result))
        return result

    def invoke(self, command: ShellCommand) -> Result:
        """Run a command whose words are known."""
        function = self.functions.get(command.argv[0])
        if function is None:
            return commands.run(self, command)
        if self.depth >= limits.SCRIPT_CALLS:
            return self.left(command.place, command.text, "functions call each other without end")
        before, self.arguments = self.arguments, tuple(command.argv[1:])
        loops, self.loops = self.loops, 0
        self.depth += 1
        doubts = len(self.doubts)
        try:
            result = self.run(function.body)
            self.settle({"return"}, doubts)
        except EndedError as ended:
            if ended.word != "return":
                raise
            return Result()
        else:
            return result
        finally:
            self.arguments, self.loops = before, loops
            self.depth -= 1

    def input(self, redirect: Redirect) -> str | None:
        """Return what a command is given to read."""
        known = words.text(self, redirect.target)
        if redirect.operator != "<" or known is None:
            return f"{known}\n" if redirect.operator == "<<<" and known is not None else known
        return self.text(known)

    def outputs(self, one: Call, place: ScriptPlace, result: Result) -> str | None:
        """Write what a command prints to where it goes, and return what still stands to be read."""
        out = result.out
        for redirect in one.redirects:
            if redirect.operator not in {">", ">>", "&>", ">|"} or redirect.descriptor == "2":
                continue
            name = words.value(self, redirect.target)
            path = None if name is None else self.path(name)
            data = None if out is None else out.encode("utf-8", "surrogateescape")
            if redirect.operator == ">>" and path is not None and data is not None:
                there = self.read(path)
                if there is None and self.is_file(path) is not False and self.lasts(path):
                    self.effects.append(Edit(place, short(one.text), "it adds to a file"))
                    out = ""
                    continue
                data = (there or b"") + data
            self.write(place, one.text, path, data)
            out = ""
        return out

    # --- what may fail, and end ---------------------------------------------------

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
        name: one for name, one in first.items() if all(other.get(name) == one for other in others)
    }
