"""The rooms stand as their contracts say; what is slow to import stays out of the fast path's modules."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

from importlinter.cli import lint_imports

import vllm_mods

PACKAGE = Path(vllm_mods.__file__).parent
CONTRACTS = Path(__file__).parents[2] / "pyproject.toml"
# What `apply` loads on a tree that mod.lock knows.
HOT = (
    "api/installed",
    "api/plan",
    "applying/carry_out",
    "applying/ground",
    "applying/outcomes",
    "base/digest",
    "base/errors",
    "base/line_diff",
    "base/model",
    "base/tree",
    "base/untrusted",
    "base/versions",
    "site/bytecode",
    "site/staging",
    "formats/diff",
    "formats/diff_forms",
    "formats/diff_names",
    "formats/diff_reader",
    "formats/file_diff",
    "formats/manifest",
    "formats/mod_lock",
    "formats/pairing",
    "formats/receipt",
    "formats/record",
    "formats/schema",
    "formats/toml_writer",
    "site/open_folders",
    "site/integrity",
    "site/journal",
    "site/journal_text",
    "library/catalog",
    "library/packed_mod",
    "placing/headers",
    "placing/locate",
    "placing/target",
    "planning/applied",
    "planning/context",
    "planning/known_trees",
    "planning/layered_tree",
    "planning/patching",
    "planning/planner",
    "planning/refusal",
    "scripts/command_line",
    "site/site",
    "trees/receipt_tree",
    "site/state_folder",
    "site/step_list",
    "site/transaction",
    "site/transitions",
    "trees/folder",
    "trees/open",
)
SLOW = {
    "difflib",
    "git",
    "importlib",
    "inspect",
    "jinja2",
    "libcst",
    "logging",
    "pathlib",
    "requests",
    "shutil",
    "subprocess",
    "tarfile",
    "tempfile",
    "unidiff",
    "yaml",
    "zipfile",
}


@functools.cache
def modules() -> dict[str, str]:
    return {
        str(path.relative_to(PACKAGE)): path.read_text()
        for path in sorted(PACKAGE.rglob("*.py"))
        if "_data" not in path.parts
    }


def imported(tree: ast.Module) -> set[str]:
    """Return the dotted names that a module imports as it is loaded."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_contracts_of_the_rooms_are_kept() -> None:
    assert lint_imports(config_filename=str(CONTRACTS), no_cache=True) == 0


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for name, text in modules().items():
        for found in re.findall(r"^ *class _*(\w+)[(:]", text, re.MULTILINE):
            places[found].append(name)
    assert {one: where for one, where in places.items() if len(where) > 1} == {}


def test_no_module_has_over_400_lines() -> None:
    assert {name: n for name, text in modules().items() if (n := text.count("\n")) > 400} == {}


def test_modules_on_the_fast_path_import_nothing_slow() -> None:
    wrong = [
        f"{name} imports {one}"
        for name in HOT
        for one in imported(ast.parse(modules()[f"{name}.py"]))
        if one.split(".")[0] in SLOW
    ]
    assert not wrong
