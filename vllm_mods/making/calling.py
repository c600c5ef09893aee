"""Commands of a script as they are called: their words, what they read, and where what they print goes."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.making import commands, words
from vllm_mods.making.effects import Edit, ScriptPlace
from vllm_mods.making.shell_state import DONE, EndedError, Result, ShellCommand, ShellState, short
from vllm_mods.scripts.statements import Call, Pipe, Redirect


class Fed(NamedTuple):
    """What comes through a pipe; None where only a run tells."""

    text: str | None


class CallingShell(ShellState):
    """A state in which commands are called."""

    def pipe(self, one: Pipe) -> Result:
        """Run ``a | b``: each reads what the one before it prints."""
        fed: Fed | None = None
        result = Result()
        inner, since = self, len(self.effects)
        for stage in one.stages:
            if fed is not None and not self.pipefail:
                self.survive(since)  # the last stage alone tells whether a pipe succeeds
            since = len(self.effects)
            inner = self.subshell()
            inner.printed = []
            if isinstance(stage, Call):
                result = inner.call(stage, fed)
            elif fed is not None and self.would_last([stage]):
                place = ScriptPlace(self.file, one.line)
                return self.left(place, one.text, "what goes through this pipe is not followed")
            else:
                result = inner.run([stage])
            fed = Fed(inner.output())
        self.printed += inner.printed
        return result

    def call(self, one: Call, fed: Fed | None = None) -> Result:
        """Run a command: a function of the script, or one that is known."""
        place = ScriptPlace(self.file, one.line)
        stdin, reads = (fed.text, True) if fed is not None else (None, False)
        source = None
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
        path = self.path(known)
        data = None if path is None else self.read(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

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
