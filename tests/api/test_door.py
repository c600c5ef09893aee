"""The library's door: what ``import vllm_mods`` gives, and what holds whoever calls it."""

from __future__ import annotations

import ast
import doctest
import inspect
import pydoc
import subprocess
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, build, snapshot

import vllm_mods as vm
from vllm_mods.formats import receipt
from vllm_mods.site import transaction

if TYPE_CHECKING:
    from collections.abc import Callable

LOADER = 'import os\n\n\nclass Loader:\n    def load(self, name):\n        return os.path.join("weights", name)\n'
LIMIT = "LIMIT = 1\n"
PUBLIC = [name for name in dir(vm) if not name.startswith("_")]


def test_the_public_names_are_these() -> None:
    functions = {name for name in PUBLIC if not inspect.isclass(getattr(vm, name))}
    assert functions == {
        *(
            "apply",
            "begin_record",
            "bench",
            "bisect",
            "build",
            "check",
            "image_verify",
            "lock",
            "matrix",
            "new",
            "open_library",
        ),
        *(
            "open_tree",
            "plan",
            "plugin_check",
            "plugin_matrix",
            "port",
            "read_record",
            "revert",
            "serve_check",
            "shadow",
            "status",
            "suggest",
            "sync",
        ),
        *("template_check", "verify"),
    }
    assert set(PUBLIC) - functions == {
        *(
            "Access",
            "Applied",
            "BenchLoad",
            "BenchResult",
            "Recorded",
            "BisectOutcome",
            "Cell",
            "CheckResult",
            "DiffError",
        ),
        *("FileChange", "Finding", "ImageVerified", "Library", "ManifestError"),
        *(
            "MatrixResult",
            "Shadow",
            "Mod",
            "ModPlan",
            "NewMod",
            "NotRendered",
            "NotRestored",
            "Pairing",
        ),
        *(
            "BuildResult",
            "ReadLock",
            "Plan",
            "PluginChecked",
            "PluginMatrix",
            "PortResult",
            "Refused",
            "Reverted",
            "ServeChecked",
            "Status",
            "Suggested",
        ),
        *("Synced", "TemplateChecked", "Tree", "TreeError", "Unreachable", "UsageError"),
        *("Verdict", "Verified", "VllmModsError"),
    }
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        vm.nothing_like_it  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder that the examples run in: a small vLLM, and a library with faulty mods too."""
    files = {**FILES, "vllm/loader.py": LOADER.encode(), "vllm/limit.py": LIMIT.encode()}
    build(tmp_path / "site-packages", files)
    library = tmp_path / "library"
    fast = LOADER.replace("weights", "fast")
    old = LOADER.replace("weights", "checkpoints")
    write_mod(library, "fast", diff_of("vllm/loader.py", LOADER, fast))
    write_mod(library, "limit", diff_of("vllm/limit.py", LIMIT, "LIMIT = 2\n"))
    write_mod(library, "stale", diff_of("vllm/loader.py", old, fast))
    write_mod(library, "torn", b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1,3 +1,3 @@\n A = 1\n")
    write_mod(library, "broken", b"")
    (library / "patches/broken/mod.toml").write_text('schema = 1\nname = "broken"\n')
    write_mod(tmp_path / "good", "fast", diff_of("vllm/loader.py", LOADER, fast))
    build(tmp_path / "newer", {**files, "vllm/loader.py": f"import sys\n{LOADER}".encode()})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_says_what_it_is_and_its_example_runs(name: str) -> None:
    thing = getattr(vm, name)
    assert inspect.getdoc(thing)
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(thing) or "", {"vm": vm, "Path": Path}, name, None, None
    )
    # a type is shown in use where the function stands that returns it
    assert example.examples or inspect.isclass(thing)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_hint_of_what_is_public_resolves(name: str) -> None:
    thing = getattr(vm, name)
    if not inspect.isclass(thing):
        hints = typing.get_type_hints(thing)
        assert hints.keys() == {*inspect.signature(thing).parameters, "return"}
        return
    typing.get_type_hints(thing)
    own: list[typing.Any] = [one for one in vars(thing).values() if inspect.isfunction(one)]
    own += [one.fget for one in vars(thing).values() if isinstance(one, property) and one.fget]
    for function in own:
        if not function.__name__.startswith("_") or function.__name__ == "__init__":
            typing.get_type_hints(function)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_a_function_returns_is_public(name: str) -> None:
    thing = getattr(vm, name)
    if not inspect.isclass(thing):
        kind = typing.get_type_hints(thing)["return"]
        kinds = [one for one in (typing.get_args(kind) or (kind,)) if one is not ...]
        assert {one.__name__ for one in kinds} <= {*PUBLIC, "str"}


def test_a_plan_is_read_on_a_screen_and_not_taken_apart_by_accident(place: Path) -> None:
    library = vm.Library(place / "library")
    planned = vm.plan(library.mods("fast", "stale"), "site-packages")
    many = vm.Plan(planned.spec, planned.version, planned.mods * 40, planned.changes)
    assert repr(many).count("\n") < 24
    assert repr(many).endswith("and 62 more>")
    with pytest.raises(TypeError):
        list(planned)  # type: ignore[call-overload]
    with pytest.raises(AttributeError):
        planned.spec = "another"  # type: ignore[misc]
    assert len(repr(planned.mods[0])) < 100


def test_a_checker_sees_what_is_there_at_run_time() -> None:
    tree = ast.parse(Path(vm.__file__).with_suffix(".pyi").read_text())
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"vllm_mods.{home}.{name}" for name, home in vm._HOMES.items()}


@pytest.mark.slow
def test_importing_it_loads_nothing_and_a_name_loads_its_module() -> None:
    code = (
        "import sys, vllm_mods as vm\n"
        "print([name for name in sys.modules if name.startswith('vllm_mods.')])\n"
        "vm.plan, vm.apply, vm.Library, vm.open_tree\n"
        "heavy = {'libcst', 'requests', 'click', 'unidiff', 'git', 'yaml', 'jinja2'}\n"
        "print(sorted(heavy & sys.modules.keys()), vm.plan.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[] vllm_mods.api.plan"]


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """A module named ``plan`` would be what ``vllm_mods.plan`` is, as soon as anything imports it."""
    folder = Path(vm.__file__).parent
    assert not [
        name for name in PUBLIC if (folder / name).exists() or (folder / f"{name}.py").exists()
    ]


def test_help_fits_two_screens() -> None:
    told = pydoc.plain(pydoc.render_doc(vm))
    before, _, after = told.partition("PACKAGE CONTENTS")
    assert len(before.splitlines()) <= 60
    rest = after.partition("\n\n")[2]
    assert len(rest.splitlines()) <= 15
    for name in PUBLIC:
        assert name in before


@pytest.mark.slow
def test_the_script_of_the_docs(place: Path) -> None:
    """As in docs/library.md, on the small vLLM."""
    library = vm.Library("library")
    mods = library.mods("fast", "limit")
    planned = vm.plan(mods, vm.open_tree("site-packages"))
    assert_type(planned, vm.Plan)
    assert [(one.mod.name, one.verdict) for one in planned.mods] == [
        ("fast", vm.Verdict.APPLIES),
        ("limit", vm.Verdict.APPLIES),
    ]
    before = snapshot(place / "site-packages")
    done = vm.apply(mods, place / "site-packages")
    assert done.target == str(place / "site-packages")
    assert {"vllm/loader.py", "vllm/limit.py"} <= set(done.changed)
    assert [mod.name for mod in vm.status(done.target).mods] == ["fast", "limit"]
    assert vm.verify(done.target).ok
    again = vm.plan(mods, vm.open_tree(done.target))
    assert [one.verdict for one in again.mods] == [vm.Verdict.APPLIED] * 2
    assert vm.revert(done.target).reverted == ("fast", "limit")
    assert snapshot(place / "site-packages") == before
    grid = vm.matrix(mods, ["site-packages"])
    assert [cell.verdict for cell in grid.cells] == [vm.Verdict.APPLIES] * 2


def test_half_a_plan_is_never_put_in(place: Path) -> None:
    before = snapshot(place / "site-packages")
    seen: list[vm.Plan] = []
    with pytest.raises(vm.Refused, match=r"stale 1\.0\.0: conflict") as caught:
        vm.apply(vm.Library("library").mods("fast", "stale"), "site-packages", planned=seen.append)
    assert caught.value.plan is seen[0]
    assert [one.verdict.ok for one in seen[0].mods] == [True, False]
    assert snapshot(place / "site-packages") == before


def test_what_only_supported_leaves_out_is_not_in_the_plan(place: Path) -> None:
    write_mod(place / "library", "later", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"), vllm=">=9")
    mods = vm.Library("library").mods("fast", "later")
    whole = vm.plan(mods, vm.open_tree("site-packages"), strict_version=True)
    assert [one.verdict.value for one in whole.mods] == ["applies", "unsupported"]
    done = vm.apply(mods, "site-packages", strict_version=True, only_supported=True)
    assert [one.mod.name for one in done.plan.mods] == ["fast"]


@pytest.mark.parametrize("inside", ["", "vllm", "vllm/sub", "vllm/__pycache__"])
def test_whatever_folder_of_it_is_named_the_tree_is_the_site_root(place: Path, inside: str) -> None:
    tree = vm.open_tree(place / "site-packages" / inside)
    assert tree.read("vllm/a.py") == FILES["vllm/a.py"]
    assert vm.status(place / "site-packages" / inside).target == str(place / "site-packages")


def test_a_folder_that_merely_lies_beside_a_vllm_is_not_of_it(place: Path) -> None:
    for name in (place, place / "site-packages/numpy-2.0.dist-info", place / "library"):
        with pytest.raises(vm.UsageError, match="has no vLLM"):
            vm.open_tree(name)


@pytest.mark.parametrize(
    ("call", "parsed"),
    [
        (lambda mods: vm.plan(mods, vm.open_tree("site-packages")), 1),
        (lambda mods: vm.apply(mods, "site-packages"), 1),
        (lambda mods: vm.apply((*mods, *vm.Library("library").mods("limit")), "site-packages"), 2),
        (lambda _: vm.status("site-packages"), 1),
        (lambda _: vm.verify("site-packages"), 1),
        (lambda _: vm.revert("site-packages"), 2),
    ],
    ids=["plan", "apply", "apply-more", "status", "verify", "revert"],
)
@pytest.mark.usefixtures("place")
def test_a_receipt_is_parsed_once_and_again_under_the_lock(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[typing.Any], object], parsed: int
) -> None:
    mods = vm.Library("library").mods("fast")
    vm.apply(mods, "site-packages")
    real, read = receipt.parse, []

    def counting(data: bytes, *where: str) -> receipt.Receipt:
        read.append(data)
        return real(data, *where)

    monkeypatch.setattr(receipt, "parse", counting)
    call(mods)
    assert len(read) == parsed


@pytest.mark.usefixtures("place")
def test_a_receipt_that_changed_since_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and the lock another process may have put mods in."""
    library = vm.Library("library")
    real = transaction.commit

    def late(*given: typing.Any, **more: typing.Any) -> transaction.Outcome:
        monkeypatch.setattr(transaction, "commit", real)
        vm.apply(library.mods("limit"), "site-packages")
        return real(*given, **more)

    monkeypatch.setattr(transaction, "commit", late)
    with pytest.raises(vm.Refused, match="another vllm-mods has"):
        vm.apply(library.mods("fast"), "site-packages")
    assert [mod.name for mod in vm.status("site-packages").mods] == ["limit"]


@pytest.mark.usefixtures("place")
def test_what_is_no_mod_is_told() -> None:
    with pytest.raises(vm.UsageError, match="this is not a mod: 'f'"):
        vm.plan("fast", vm.open_tree("site-packages"))  # type: ignore[arg-type]
    with pytest.raises(vm.UsageError, match="no mod is named"):
        vm.Library().mods()


@pytest.mark.usefixtures("place")
def test_a_tree_of_ones_own_will_do() -> None:
    class Mine(vm.Tree):
        spec, version, pristine = "mine", "0.19.1", True

        def read(self, path: str) -> bytes | None:
            return LOADER.encode() if path == "vllm/loader.py" else None

        def paths(self, under: str = "vllm") -> list[str]:
            return [path for path in ["vllm/loader.py"] if path.startswith(f"{under}/")]

    with Mine() as tree:
        planned = vm.plan(vm.Library("library").mods("fast"), tree)
    assert planned.ok
