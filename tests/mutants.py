"""Change the code in small ways, one at a time, and see whether the nearest tests notice; name what they don't.

    python tests/mutants.py [ROOM…] [--sample N] [--seed N] [--most PERCENT] [--jobs N]

mutmut (https://mutmut.readthedocs.io) says what to change, but for sentences, annotations and imports; here
conditions are negated, and statements and named arguments left out besides. Each mutant is run in a copy of the checkout, by
the tests of its room until one fails; one that takes too long is noticed. Exits with 1 if more of a room's
survive than ``--most``, or if a room's tests fail as it is.
"""

from __future__ import annotations

import argparse
import codecs
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
NEEDED = ("vllm_mods", "tests", "patches", "templates", "pairings", "pyproject.toml")


class Room(NamedTuple):
    """Modules, and the tests that are nearest to them, the quickest first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "site": Room(
        ("site/transaction", "site/journal", "site/open_folders", "site/site", "site/step_list"),
        (
            "site/test_site.py",
            "site/test_held.py",
            "site/test_journal.py",
            "site/test_steps.py",
            "site/test_transaction.py",
            "scenario/test_race.py",
            "scenario/test_kill.py",
        ),
    ),
    "placing": Room(
        ("placing/locate", "placing/headers", "placing/target", "placing/nearest", "base/diff3"),
        (
            "placing/test_locate.py",
            "planning/test_plan.py",
            "placing/test_placing_families.py",
            "property/test_placing_properties.py",
        ),
    ),
    "planning": Room(
        (
            "planning/planner",
            "planning/context",
            "planning/applied",
            "planning/refusal",
            "planning/patching",
            "planning/known_trees",
            "planning/origins",
            "planning/carried_parts",
            "planning/dependencies",
        ),
        (
            "planning/test_plan.py",
            "placing/test_placing_families.py",
            "cli/test_life_of_a_mod.py",
            "property/test_placing_properties.py",
        ),
    ),
}


class Mutant(NamedTuple):
    """One change of one module: a node, and what takes its place."""

    path: str
    function: str
    line: int
    module: cst.Module
    old: cst.CSTNode
    new: cst.CSTNode

    def source(self) -> str:
        changed = self.module.deep_replace(self.old, self.new)
        assert isinstance(changed, cst.Module)
        return changed.code

    def __str__(self) -> str:
        old, new = (
            " ".join(cst.Module([]).code_for_node(one).split()) for one in (self.old, self.new)
        )
        return f"{self.path}:{self.line} {self.function}: {_cut(old)} -> {_cut(new)}"


def _cut(text: str) -> str:
    return text if len(text) <= 90 else f"{text[:60]} … {text[-27:]}"


def _says_nothing(node: cst.CSTNode) -> bool:
    """Tell whether what is said of a node's mutants would say nothing of the tests."""
    if isinstance(node, cst.Assign):
        return node.value.deep_equals(cst.Name("False"))  # None is as false
    if not isinstance(node, cst.SimpleString) or " " in node.value:
        return isinstance(node, cst.SimpleString)  # a sentence
    try:
        codecs.lookup(str(node.evaluated_value))  # its name, upper or lower, is the same
    except (LookupError, ValueError):
        return False
    return True


def _changes(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Yield a node, or one in it, and what could take its place."""
    if _says_nothing(node):
        return
    for kind, operator in mutation_operators:
        # a call with None, or without what it needs, fails in any test
        if isinstance(node, kind) and operator is not operator_arg_removal:
            yield from ((node, new) for new in operator(node))
    if isinstance(node, cst.Call):
        for n, argument in enumerate(node.args):
            if argument.keyword is not None:
                yield node, node.with_changes(args=[*node.args[:n], *node.args[n + 1 :]])
    if isinstance(node, cst.If | cst.While):
        inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.test, cst.UnaryOperation(cst.Not(), inner)
    if isinstance(node, cst.SimpleStatementLine) and isinstance(
        node.body[0], cst.Raise | cst.Expr | cst.Continue | cst.Break | cst.Return
    ):
        is_text = isinstance(node.body[0], cst.Expr) and isinstance(
            node.body[0].value, cst.BaseString
        )
        if not is_text:
            yield node.body[0], cst.Pass()


class _Collector(cst.CSTVisitor):
    """Collects the mutants of functions, their annotations and decorators aside."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: str, module: cst.Module) -> None:
        self.path, self.module = path, module
        self.functions: list[str] = []
        self.found: list[Mutant] = []

    def visit_Annotation(self, node: cst.Annotation) -> bool:  # noqa: ARG002
        return False

    def visit_Decorator(self, node: cst.Decorator) -> bool:  # noqa: ARG002
        return False

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> bool:  # noqa: ARG002
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:  # noqa: ARG002
        self.functions.pop()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.functions:
            line = self.get_metadata(PositionProvider, node).start.line
            for old, new in _changes(node):
                one = Mutant(self.path, ".".join(self.functions), line, self.module, old, new)
                self.found.append(one)
        return super().on_visit(node)


def mutants(path: str) -> list[Mutant]:
    wrapper = MetadataWrapper(cst.parse_module((ROOT / path).read_bytes()))
    collector = _Collector(path, wrapper.module)
    wrapper.visit(collector)
    return collector.found


def compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.source(), mutant.path, "exec")
    except (SyntaxError, cst.CSTValidationError):
        return False
    return True


class Checkout:
    """A copy of what the tests need, in which one module at a time is another."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder = folder
        for name in NEEDED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / name)
        # bytecode is told from its source by time and size, which a mutant's may well share
        self.env = {**os.environ, "VLLM_MODS_TEST_SEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}

    def passes(self, tests: Sequence[str], seconds: float | None = None) -> bool:
        options = ("-x", "-q", "-n0", "--no-header", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *options, *(f"tests/{name}" for name in tests)]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as run:
            try:
                return run.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, 9)
                return False

    def survives(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
        file = self.folder / mutant.path
        before = file.read_bytes()
        file.write_text(mutant.source(), encoding="utf-8")
        try:
            return self.passes(tests, seconds)
        finally:
            file.write_bytes(before)


def examine(
    name: str, sample: int, seed: str, checkouts: SimpleQueue[Checkout], jobs: int
) -> float:
    """Run a sample of a room's mutants, print those that survive; return how many do, in percent."""
    room = ROOMS[name]
    found = [one for module in room.modules for one in mutants(f"vllm_mods/{module}.py")]
    drawn = random.Random(f"{seed} {name}").sample(found, len(found))
    chosen = [one for one in drawn[: sample * 2] if compiles(one)][:sample]
    first = checkouts.get()
    begin = time.monotonic()
    if not first.passes(room.tests):
        sys.exit(f"{name}: {' '.join(room.tests)} fail without a mutant")
    seconds = 4 * (time.monotonic() - begin) + 20
    checkouts.put(first)

    def survives(mutant: Mutant) -> bool:
        checkout = checkouts.get()
        try:
            return checkout.survives(mutant, room.tests, seconds)
        finally:
            checkouts.put(checkout)

    survived = 0
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            survived += alive
            if alive:
                print(f"survived: {mutant}", flush=True)
    percent = 100 * survived / len(chosen)
    print(
        f"{name}: {survived} of {len(chosen)} mutants survived ({percent:.1f} %), of {len(found)} in all",
        flush=True,
    )
    return percent


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Name mutants that the nearest tests do not notice."
    )
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], default=[*ROOMS])
    parser.add_argument("--sample", type=int, default=60, help="how many mutants of each room")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--most", type=float, default=8, help="percent that may survive")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"--seed {options.seed} draws the same mutants", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        checkouts: SimpleQueue[Checkout] = SimpleQueue()
        for number in range(options.jobs):
            place = Path(folder) / str(number)
            place.mkdir()
            checkouts.put(Checkout(place, options.seed))
        rates = [
            examine(name, options.sample, options.seed, checkouts, options.jobs)
            for name in options.rooms
        ]
    return 1 if any(rate > options.most for rate in rates) else 0


if __name__ == "__main__":
    sys.exit(main())
