"""A mod's ``run.sh`` read as a launcher would run it, and nothing run: effects in order, and what is left.

What only a run could tell is decided by what is at stake: of two branches, one of which changes nothing, the
other one is taken, and that is said. Where that does not decide, the statement is left to a person.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping, Sequence

from vllm_mods.base import limits
from vllm_mods.base.tree import Tree
from vllm_mods.making import words
from vllm_mods.making.calling import CallingShell
from vllm_mods.making.effects import Effect, ScriptPlace
from vllm_mods.making.shell_state import DONE, MODS, EndedError, Result, short
from vllm_mods.scripts import bash, statements
from vllm_mods.scripts.statements import (
    Assign,
    BashError,
    BashFunction,
    Block,
    Call,
    Chain,
    For,
    If,
    Not,
    Other,
    Pipe,
    Statement,
    Test,
)


def read(
    name: str,
    files: Mapping[str, bytes],
    tree: Tree | None,
    fetched: Mapping[str, bytes] = {},
) -> tuple[Effect, ...]:
    """Read the ``run.sh`` of a mod of these files.

    ``tree`` tells which files of vLLM there are, ``fetched`` what lies at URLs. Raises ``BashError`` for a script that bash would not read.
    """
    shell = ReadShell(name, files, tree, fetched)
    shell.source(f"{MODS}/{name}/run.sh", ())
    return tuple(shell.effects)


class ReadShell(CallingShell):
    """A shell, and how statements change it."""

    # --- scripts ----------------------------------------------------------------

    def source(self, path: str, arguments: tuple[str, ...], *, ends: bool = True) -> None:
        """Run a script of the mod in this shell. Raises ``BashError``.

        ``ends`` says that an ``exit`` ends that script only.
        """
        data = self.read(path) or b""
        before = self.file, self.script, self.arguments
        self.file = posixpath.relpath(path, self.home)
        self.script, self.arguments = path, arguments
        script = bash.read(data.decode("utf-8", "surrogateescape"))
        if ends:
            self.set_flags(script.interpreter.split()[1:])
        doubts = len(self.doubts)
        try:
            self.run(script.body)
            self.settle({"return"}, doubts)
        except EndedError as ended:
            if not ends and ended.word == "exit":
                raise
        finally:
            self.file, self.script, self.arguments = before

    def substitute(self, inner: str) -> str | None:
        """Return what ``$(…)`` prints. What it changes is taken note of."""
        shell = self.subshell()
        shell.printed = []
        try:
            body = bash.read(inner).body
        except BashError:
            return None
        with contextlib.suppress(EndedError):
            down = self.here.line - 1  # it begins so many lines further down
            shell.run([one._replace(line=one.line + down) for one in body])
        out = shell.output()
        return None if out is None else out.rstrip("\n")

    def run(self, body: Sequence[Statement]) -> Result:
        """Run statements one after the other. Without ``set -e``, those before the last may fail."""
        result = Result(status=True)
        for i, one in enumerate(body, 1):
            since, place = len(self.effects), ScriptPlace(self.file, one.line)
            chained = isinstance(one, Chain) and one.operator == "&&"
            try:
                result = self.one(one)
            except EndedError:
                if (chained or isinstance(one, If)) and i < len(body):
                    self.fallback([body[i:]], since, place)
                raise
            if i < len(body) and (chained or not self.errexit):
                self.survive(since, place if chained else None)
        return result

    def spend(self, text: str | None) -> None:
        """Count a command, and 256 letters that it makes as one more. Raises ``BashError`` when that takes too long."""
        self.spent[0] += 1 + len(text or "") // 256
        if self.spent[0] > limits.SCRIPT_COMMANDS:
            why = f"it comes to more than {limits.SCRIPT_COMMANDS}, or prints without end"
            raise BashError(self.here.line, why)

    def one(self, one: Statement) -> Result:
        """Run one statement."""
        result = self._one(one)
        self.spend(result.out)
        return result

    def _one(self, one: Statement) -> Result:  # noqa: C901, PLR0911  (one for each kind)
        self.here = place = ScriptPlace(self.file, one.line)
        if isinstance(one, Call):
            return self.call(one)
        if isinstance(one, Assign):
            return self.assign(one)
        if isinstance(one, Pipe):
            return self.pipe(one)
        if isinstance(one, Chain):
            return self.chain(one)
        if isinstance(one, Not):
            inner = self.one(one.inner)
            return Result(None if inner.status is None else not inner.status)
        if isinstance(one, If):
            return self.branch(one)
        if isinstance(one, For):
            return self.loop(one)
        if isinstance(one, Block):
            try:
                return (self.subshell() if one.subshell else self).run(one.body)
            except EndedError as ended:
                if not one.subshell or ended.word != "exit":
                    raise
                return Result()
        if isinstance(one, BashFunction):
            self.functions[one.name] = one
            return DONE
        if isinstance(one, Test):
            return Result(words.test(self, one.text), "")
        return self.other(one, place)

    def other(self, one: Other, place: ScriptPlace) -> Result:
        """Run what is not read further, if nothing depends on it."""
        if one.kind in {"declaration_command", "variable_assignments"}:
            for part in one.body:
                self.one(part)
            if not one.body and one.text.startswith("export "):
                for name in one.text.split()[1:]:
                    self.export(place, name, self.variables.get(name), "")
            return DONE
        if one.kind in {"unset_command", "comment"}:
            for name in one.text.split()[1:]:
                self.variables[name] = ""
            return DONE
        writes = one.kind in {"redirected_statement", "background"}
        if writes or any(self.would_last((part,)) for part in one.body):  # one may end the others
            kind = one.kind.removesuffix("_statement").replace("_", " ")
            return self.left(place, one.text, f"what it does is known only when it runs ({kind})")
        for part in statements.walk(one.body):  # whatever it sets is not known from here on
            if isinstance(part, Assign):
                self.variables[part.name] = None
        return Result()

    # --- control flow -------------------------------------------------------------

    def chain(self, one: Chain) -> Result:
        """Run ``a && b`` or ``a || b``."""
        since = len(self.effects)
        left = self.one(one.left)
        wanted = one.operator == "&&"
        place = ScriptPlace(self.file, one.right.line)
        if left.status is (not wanted):
            self.fallback([(one.right,)], since, place)
            return left
        if left.status is None:
            there = self.probe([one.right])
            if there.ends or there.lasting:
                self.assume(ScriptPlace(self.file, one.line), one.left.text)
            if there.ended is not None:
                if there.lasting:
                    self.left(place, one.right.text, "whether the script ends here is not known")
                self.doubt(there)
                return Result()
            if not there.lasting:
                without = self.probe([]).shell
                right = self.one(one.right)
                self.agree([without, self])
                return Result(right.status if right.status is not wanted else None)
        return self.one(one.right)

    def branch(self, one: If) -> Result:
        """``if``: a branch whose condition is known, or the only one that changes something."""
        place = ScriptPlace(self.file, one.line)
        pending = list(one.branches)
        while pending:
            condition, body = pending.pop(0)
            since = len(self.effects)
            status = self.run(condition).status if condition else True
            did = len(self.effects) > since
            if status is True:
                if did:
                    rest = one._replace(branches=tuple(pending))
                    self.fallback([(rest,)] if pending else [()], since, place)
                return self.run(body)
            if status is None:
                return self.undecided([body, *self.others(pending)], condition, place)
            if did:
                self.fallback([body], since, place)
        return Result()

    def others(
        self, branches: Sequence[tuple[tuple[Statement, ...], tuple[Statement, ...]]]
    ) -> list[tuple[Statement, ...]]:
        """Return the bodies of further branches, and an empty one where there is no ``else``."""
        bodies = [(*condition, *body) for condition, body in branches]
        return bodies if branches and not branches[-1][0] else [*bodies, ()]

    def undecided(
        self,
        bodies: Sequence[tuple[Statement, ...]],
        condition: Sequence[Statement],
        place: ScriptPlace,
    ) -> Result:
        """Take the branch that changes something, if there is one only."""
        probes = [self.probe(body) for body in bodies]
        asked = f"if {short(condition[-1].text)} …"
        changing = [i for i, probe in enumerate(probes) if probe.lasting]
        if len({probes[i].lasting for i in changing}) > 1:
            why = "which branch is taken is not known, and several change something"
            return self.left(place, asked, why)
        if changing:
            probe = probes[changing[0]]
            if probe.ends and not all(other.ends for other in probes):
                return self.left(place, asked, "whether the script ends here is not known")
            self.assume(place, condition[-1].text)
            return self.run(bodies[changing[0]])
        going = [probe for probe in probes if not probe.ends]
        if not going:
            return self.run(bodies[0])
        if len(going) < len(probes):
            self.assume(place, condition[-1].text)
        self.agree([probe.shell for probe in going])
        for probe in probes:
            self.doubt(probe)
        return Result()

    def loop(self, one: For) -> Result:
        """``for`` over words that are known."""
        place = ScriptPlace(self.file, one.line)
        found = [] if one.values or " in" in one.text.split(";")[0] else list(self.arguments)
        for word in one.values:
            items = words.values(self, word)
            if items is None:
                self.variables[one.name] = None
                if self.probe(one.body).lasting:
                    why = "over what it goes is known only when it runs"
                    return self.left(place, f"for {one.name} in {word.text}", why)
                return Result()
            found += items
        result, begun = DONE, len(self.doubts)
        for item in found:
            self.variables[one.name] = item
            doubts = len(self.doubts)
            self.loops += 1
            try:
                result = self.run(one.body)
            except EndedError as ended:
                if ended.word == "break":
                    break
                if ended.word != "continue":
                    raise
            finally:
                self.loops -= 1
            self.settle({"continue"}, doubts)
        self.settle({"break"}, begun)
        return result

    def assign(self, one: Assign) -> Result:
        """``NAME=value``."""
        items = words.array(self, one.value)
        if items is not None:
            self.arrays[one.name] = items
            return DONE
        known = words.text(self, one.value)
        self.spend(known)
        self.variables[one.name] = known
        if one.exported:
            self.export(ScriptPlace(self.file, one.line), one.name, known, one.value.text)
        return Result(status=None if known is None else True, out="")
