"""Change the code in small ways, one at a time, and see whether the nearest tests notice; name what they don't.

    python tests/mutants.py [ROOM…] [--sample N] [--seed N] [--jobs N]

mutmut (https://mutmut.readthedocs.io) says what to change, but for sentences, annotations and imports; here
conditions are negated, and statements and named arguments left out besides. The tests of a room are collected
once; then each mutant takes its place in a fork, and in the processes that it starts, where they run until
one fails. One that takes too long is noticed, too. Exits with 1 if more than 12 % of a room's survive (8 % of the rooms that decide what is written),
or if its tests fail as it is.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]


class Room(NamedTuple):
    """Modules, and the tests that are nearest to them, the quickest first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_NEAREST = {
    "api": ("api", "cli", "sharing/test_projects.py"),
    "applying": (
        "applying",
        "scenario/test_interrupted_apply.py",
        "api",
        "attack/test_edited_receipts.py",
        "cli/test_reinstalled.py",
        "cli/test_dry_run.py",
        "cli/test_life_of_a_mod.py",
        "cli/test_pairings.py",
    ),
    "base": (
        *("base", "property/test_secret_properties.py", "formats", "trees"),
        *("attack/test_servers.py", "attack/test_limit_table.py", "sharing/test_signatures.py"),
    ),
    "building": (
        "building",
        "cli/test_image.py",
        "attack/test_files_for_images.py",
        "attack/test_tampered_images.py",
        "cli/test_lock_and_build.py",
        "cli/test_upgrade.py",
    ),
    "checkpoints": ("checkpoints", "cli/test_suggest.py", "attack/test_hostile_checkpoints.py"),
    "cli": ("cli", "sharing/test_projects.py"),
    "diagnosis": ("diagnosis", "cli/test_doctor.py"),
    "fit": (
        *(
            f"fit/test_{name}.py"
            for name in ("problems", "python_signatures", "summary", "walk", "world")
        ),
        *(
            f"fit/test_{name}.py"
            for name in ("checks_on_their_own", "gates", "overlay", "grammar", "cycles")
        ),
        *(f"fit/test_{name}.py" for name in ("fit", "second_level", "types", "run_time")),
    ),
    "formats": (
        "formats",
        "library",
        "placing/test_scopes.py",
        "cli/test_lock_and_build.py",
        "attack/test_limits.py",
    ),
    "images": ("images", "trees", "building", "attack/test_tampered_images.py"),
    "keeping": ("keeping", "cli/test_keep.py", "scenario/test_maintainer.py"),
    "library": (
        "library",
        "formats",
        "cli/test_life_of_a_mod.py",
        "attack/test_writing_libraries.py",
        "attack/test_trust.py",
        "attack/test_files_of_a_library.py",
    ),
    "making": (
        *("making", "cli/test_new.py", "cli/test_import_mods.py", "cli/test_recording.py"),
        *("cli/test_fetching.py", "attack/test_hostile_recordings.py"),
    ),
    "matrices": (
        *("matrices", "attack/test_kept_answers.py", "cli/test_matrix.py"),
        *("cli/test_bisect_command.py", "cli/test_against.py"),
    ),
    "placing": (
        "placing",
        "planning",
        "porting/test_merges.py",
        "property/test_placing_properties.py",
    ),
    "planning": (
        "planning",
        "placing/test_evidence.py",
        "placing/test_placing_families.py",
        "property/test_placing_properties.py",
    ),
    "porting": ("porting", "attack/test_merges_by_statement.py", "cli/test_port.py"),
    "recipes": ("recipes", "cli/test_pairings.py"),
    "report": ("report", "cli"),
    "running": (
        "running",
        "cli/test_run_command.py",
        "cli/test_evidence_command.py",
        "attack/test_forged_evidence.py",
    ),
    "scripts": ("scripts", "serving", "recipes"),
    "serving": ("serving", "cli/test_serve_check.py"),
    "sharing": (
        "sharing",
        "attack/test_trust.py",
        "attack/test_edited_locks_of_libraries.py",
        "attack/test_hostile_libraries.py",
    ),
    "site": (
        "site",
        "attack/test_planted_journals.py",
        "attack/test_hard_links.py",
        "attack/test_in_the_way.py",
        "scenario/test_race.py",
        "scenario/test_kill.py",
    ),
    "templates": (
        "templates",
        "cli/test_template.py",
        "attack/test_hostile_templates.py",
        "attack/test_templates_that_do_not_render.py",
    ),
}
"""The tests of rooms that have more than the folder of their name, the quickest first."""
_FEWER = {"placing", "planning", "site", "sharing", "images"}
_MOST, _FEWEST = 12, 8
"""How many percent of a room's mutants may survive, and of those that decide what is written."""
_INSIDE = "vllm_mods/making/inside/"
ROOMS = sorted(path.parent.name for path in ROOT.glob("vllm_mods/*/__init__.py"))


def room_of(name: str) -> Room:
    """Return all modules of a room, and its nearest tests."""
    package = ROOT / "vllm_mods"
    modules = sorted(
        str(path.relative_to(package).with_suffix("")) for path in package.glob(f"{name}/**/*.py")
    )
    return Room(tuple(modules), _NEAREST.get(name, (name,)))


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
        # None is as false; and where a text is needed, any test fails with it
        return any(map(node.value.deep_equals, (cst.Name("False"), cst.SimpleString('""'))))
    if not isinstance(node, cst.SimpleString) or " " in node.value:
        return isinstance(node, cst.SimpleString)  # a sentence
    try:
        codecs.lookup(str(node.evaluated_value))  # its name, upper or lower, is the same
    except (LookupError, ValueError):
        return False
    return True


_HEADERS = frozenset(
    [
        "accept",
        "accept-encoding",
        "authorization",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "docker-content-digest",
        "etag",
        "if-match",
        "if-none-match",
        "if-range",
        "location",
        "range",
        "retry-after",
        "www-authenticate",
    ]
)


def _reads_the_same(old: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Tell whether two strings name one header of HTTP, or one number, as upper and lower letters do."""
    if not isinstance(old, cst.SimpleString) or not isinstance(new, cst.SimpleString):
        return False
    names = {str(one.evaluated_value).lower() for one in (old, new)}
    return len(names) == 1 and names <= {*_HEADERS, "inf"}


def _changes(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Yield a node, or one in it, and what could take its place."""
    if _says_nothing(node):
        return
    for kind, operator in mutation_operators:
        # a call with None, or without what it needs, fails in any test
        if isinstance(node, kind) and operator is not operator_arg_removal:
            yield from ((node, new) for new in operator(node) if not _reads_the_same(node, new))
    if isinstance(node, cst.Call):
        for n, argument in enumerate(node.args):
            if argument.keyword is not None and not _holds_nothing(argument):
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


def _returns_nothing(node: cst.CSTNode) -> bool:
    """Tell whether a statement, the last one of a function, does what would be done without it: None is as false."""
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Return):
        return False
    value = node.body[0].value
    return value is None or any(value.deep_equals(cst.Name(name)) for name in ("None", "False"))


def _last(block: cst.BaseSuite) -> Iterator[cst.CSTNode]:
    """Yield the statements behind which a function ends whose last block this is."""
    last: cst.CSTNode | None = block.body[-1]
    while last is not None:
        yield last
        if isinstance(last, cst.Try):
            for handler in last.handlers:
                yield from _last(handler.body)
        if isinstance(last, cst.If | cst.Else | cst.With) or (
            isinstance(last, cst.Try) and last.orelse is None
        ):
            yield from _last(last.body)
        last = last.orelse if isinstance(last, cst.If | cst.Try) else None


def _holds_nothing(node: cst.Arg) -> bool:
    """Tell whether an argument is for people alone: how the name of a scratch folder begins, or that ``zip`` is strict.

    Strict it is where both are of one length whatever comes: it says so to the reader, as an assertion does.
    """
    keyword = node.keyword.value if node.keyword is not None else ""
    if keyword == "prefix":
        return isinstance(node.value, cst.SimpleString) and node.value.value.startswith('"')
    return keyword == "strict" and node.value.deep_equals(cst.Name("True"))


def _counts_others(node: cst.Subscript) -> Iterator[cst.CSTNode]:
    """Yield how often a text is split whose first part alone is read, or the last of one split from its end."""
    match node:
        case cst.Subscript(
            value=cst.Call(func=cst.Attribute(attr=cst.Name(how)), args=[_, cst.Arg(value=count)]),
            slice=[cst.SubscriptElement(slice=cst.Index(value=index))],
        ) if isinstance(count, cst.Integer):
            if (how, cst.Module([]).code_for_node(index)) in {("split", "0"), ("rsplit", "-1")}:
                yield count


_ALWAYS_THERE = {"end_lineno", "end_col_offset"}
"""What every parsed node has: what stands behind ``or`` is for the type checker alone."""


class _Collector(cst.CSTVisitor):
    """Collects the mutants of functions, their annotations and decorators aside."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: str, module: cst.Module) -> None:
        self.path, self.module = path, module
        self.functions: list[str] = []
        self.found: list[Mutant] = []
        self.needless: set[cst.CSTNode] = set()
        self.unread: set[cst.CSTNode] = set()

    def visit_Annotation(self, node: cst.Annotation) -> bool:  # noqa: ARG002
        return False

    def visit_Decorator(self, node: cst.Decorator) -> bool:  # noqa: ARG002
        return False

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> bool:  # noqa: ARG002
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        return not _holds_nothing(node)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.append(node.name.value)
        self.needless |= {one for one in _last(node.body) if _returns_nothing(one)}

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        if isinstance(node.left, cst.Attribute) and node.left.attr.value in _ALWAYS_THERE:
            self.unread.add(node.right)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        self.unread |= {*_counts_others(node)}

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:  # noqa: ARG002
        self.functions.pop()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.functions and node not in self.unread:
            for old, new in _changes(node):
                if isinstance(new, cst.Pass) and node in self.needless:
                    continue
                line = self.get_metadata(PositionProvider, node).start.line
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


class Fork(NamedTuple):
    """A process in which the tests run on a mutant, or on the code as it is; and how it tells what came of it."""

    mutant: Mutant | None
    process: int
    heard: int
    since: float
    folder: tempfile.TemporaryDirectory[str]


class Forks:
    """A pytest plugin that runs the collected tests in forks of this process, one for each mutant."""

    def __init__(self, chosen: Sequence[Mutant], jobs: int) -> None:
        self.chosen, self.jobs = chosen, jobs
        self.wrong = "no test"  # what fails on the code as it is
        self.seconds = 600.0
        self.survivors: list[Mutant] = []
        self.order: list[
            pytest.Item
        ] = []  # what noticed a mutant is asked first about the next one

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        # that an example fails is all there is to know
        phases = [Phase.explicit, Phase.reuse, Phase.generate]
        settings.register_profile("mutants", settings.default, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.order = [*session.items]
        self.run(session, [None])
        if not self.wrong:
            self.run(session, self.chosen)
        return True

    def run(self, session: pytest.Session, some: Sequence[Mutant | None]) -> None:
        left, running = [*reversed(some)], list[Fork]()
        while left or running:
            while left and len(running) < self.jobs:
                running.append(self.forked(session, left.pop()))
            running = [one for one in running if not self.ended(one)]
            time.sleep(0.005)

    def forked(self, session: pytest.Session, mutant: Mutant | None) -> Fork:
        heard, tell = os.pipe()
        folder = tempfile.TemporaryDirectory()
        process = os.fork()
        if process == 0:
            said = "0"
            try:
                os.setsid()
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
                if mutant is not None:
                    take_place(mutant)
                lie_in_front(mutant, Path(folder.name))
                session.config._tmp_path_factory._basetemp = Path(folder.name).resolve()  # type: ignore[attr-defined]
                said = self.noticed(session)
            finally:
                os.write(tell, said.encode())
                os._exit(0)
        os.close(tell)
        return Fork(mutant, process, heard, time.monotonic(), folder)

    def noticed(self, session: pytest.Session) -> str:
        """Run the tests until one fails; return its place among them, or that none did."""
        for at, item in enumerate(self.order):
            after = self.order[at + 1] if at + 1 < len(self.order) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.testsfailed:
                return str(at)
        return "none"

    def ended(self, fork: Fork) -> bool:
        """Tell whether a fork has ended, and note what it said; one that takes too long is ended."""
        took = time.monotonic() - fork.since
        if os.waitpid(fork.process, os.WNOHANG)[0] == 0:
            if took > self.seconds:
                os.killpg(fork.process, signal.SIGKILL)
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(fork.process, signal.SIGKILL)  # what the tests left
        said = os.read(fork.heard, 100).decode()
        os.close(fork.heard)
        fork.folder.cleanup()
        if fork.mutant is None:
            self.wrong = "" if said == "none" else self.order[int(said)].nodeid
            self.seconds = 4 * took + 20
        elif said == "none":
            self.survivors.append(fork.mutant)
            print(f"survived: {fork.mutant}", flush=True)
        elif said:
            self.order.insert(0, self.order.pop(int(said)))
        return True


def take_place(mutant: Mutant) -> None:
    """Give the functions of a loaded module the code of those of its mutant."""
    name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if mutant.path.startswith(_INSIDE):
        _run_inside(mutant)
    there = vars(importlib.import_module(name))
    made = {**there}
    exec(compile(mutant.source(), mutant.path, "exec"), made)  # noqa: S102
    for old, new in _functions(there, made, name):
        old.__code__, old.__defaults__ = new.__code__, new.__defaults__
        old.__kwdefaults__ = new.__kwdefaults__
    changed = [
        (there[key], value)
        for key, value in made.items()
        if value and _is_data(value) and there[key] != value
    ]
    for module in [one for one in sys.modules.values() if hasattr(one, "__dict__")]:
        for key, value in list(vars(module).items()):
            for before, after in changed:
                if value is before:
                    setattr(module, key, after)


def _is_data(value: object) -> bool:
    """Tell whether something is a table that a module made when it was imported, of nothing but texts and numbers."""
    if isinstance(value, dict):
        return all(map(_is_part, (*value, *value.values())))
    return isinstance(value, tuple | list | frozenset) and all(map(_is_part, value))


def _is_part(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | int | float) or _is_data(value)


def lie_in_front(mutant: Mutant | None, folder: Path) -> None:
    """Have processes that this one starts import the package with the mutant in it, as sandboxes do."""
    package = shutil.copytree(
        ROOT / "vllm_mods", folder / "in-front/vllm_mods", copy_function=os.symlink
    )
    if mutant is not None:
        (package.parent / mutant.path).unlink()
        (package.parent / mutant.path).write_text(mutant.source())
    for name in ("patches", "templates", "pairings"):  # what is bundled lies beside it
        (package.parent / name).symlink_to(ROOT / name)
    places = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    sys.path.insert(0, places[0])


def _run_inside(mutant: Mutant) -> None:
    """Have sandboxes, which get their programs as files, run a mutant of one."""
    from vllm_mods.making import sandbox

    program, own = sandbox.program, Path(mutant.path).name
    sandbox.program = lambda name: mutant.source().encode() if name == own else program(name)


def _functions(
    there: Mapping[str, object], made: Mapping[str, object], module: str
) -> Iterator[tuple[FunctionType, FunctionType]]:
    """Yield the functions of a module, those in its classes included, each with the other of its name."""
    for name, old in there.items():
        new = made.get(name)
        if isinstance(old, type) and isinstance(new, type) and old.__module__ == module:
            yield from _functions(vars(old), vars(new), module)
        bare, other = _bare(old), _bare(new)
        if isinstance(bare, FunctionType) and bare.__module__ == module:
            assert isinstance(other, FunctionType)
            yield bare, other


def _bare(function: object) -> object:
    """Return what decorators were given: of a property, of a command, and of any number that wrap."""
    for name in ("fget", "func", "__func__", "callback"):
        function = getattr(function, name, function)
    while isinstance(inner := getattr(function, "__wrapped__", None), FunctionType):
        function = inner
    return function


def examine(name: str, sample: int, seed: str, jobs: int) -> float:
    """Run a sample of a room's mutants, print those that survive; return how many do, in percent."""
    room = room_of(name)
    found = [one for module in room.modules for one in mutants(f"vllm_mods/{module}.py")]
    drawn = random.Random(f"{seed} {name}").sample(found, len(found))
    chosen = [*islice(filter(compiles, drawn), sample)]
    forks = Forks(chosen, jobs)
    tests = [str(ROOT / "tests" / one) for one in room.tests]
    offline = "not network and not engines and not browser"
    arguments = ["-qq", "-s", "-n0", "-p", "no:cacheprovider", "-m", offline, *tests]
    pytest.main(arguments, plugins=[forks])
    if forks.wrong:
        sys.exit(f"{name}: {forks.wrong} fails without a mutant")
    percent = 100 * len(forks.survivors) / len(chosen)
    print(
        f"{name}: {len(forks.survivors)} of {len(chosen)} mutants survived ({percent:.1f} %), of {len(found)} in all",
        flush=True,
    )
    return percent


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Name mutants that the nearest tests do not notice."
    )
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], default=ROOMS)
    parser.add_argument("--sample", type=int, default=60, help="how many mutants of each room")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"--seed {options.seed} draws the same mutants", flush=True)
    os.environ["VLLM_MODS_TEST_SEED"] = options.seed
    os.environ["CI"] = "true"  # tests of a sandbox that does not start fail, and are not skipped
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        rates = {
            name: examine(name, options.sample, options.seed, options.jobs)
            for name in options.rooms
        }
    most = {name: _FEWEST if name in _FEWER else _MOST for name in rates}
    return 1 if any(rate > most[name] for name, rate in rates.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
