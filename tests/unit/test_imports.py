"""Imports point one way; what is slow to import stays out of the fast path's modules."""

from __future__ import annotations

import ast
from pathlib import Path

import vllm_mods

PACKAGE = Path(vllm_mods.__file__).parent
# Lower layers first. A module may import from layers below its own, and from its own package.
# A part of a package may have a layer of its own, and then no other part of it is its own.
LAYERS = (
    ("model",),
    ("errors",),
    ("untrusted", "decode"),
    (
        "versions",
        "digest",
        "diff_names",
        "diff_forms",
        "table",
        "shell",
        "bash",
        "recipe_yaml",
        "syntax_tree",
        "rebinding",
        "tars",
        "zips",
        "toml_text",
        "output",
        "sessions",
        "trees/cache",
        "trees/names",
        "image/base",
    ),
    ("image/sources", "concrete_syntax"),
    ("manifest", "pairing", "repair", "receipt", "lock", "diff", "scopes", "view"),
    ("recipe", "pairing_lock"),
    ("recipe_writing", "lines"),
    ("locate", "whereabouts", "diff3"),
    ("unified",),
    ("fit",),
    ("attempt", "together"),
    ("vouch",),
    ("carrying",),
    ("planner",),
    ("pinning",),
    ("library",),
    ("template",),
    ("keep", "lint", "next_step"),
    ("trees",),
    ("origins",),
    ("site", "record", "signals", "draft"),
    ("held", "journal_text"),
    ("journal", "bytecode"),
    ("folders", "state"),
    ("steps",),
    ("drafting",),
    ("transaction", "transitions", "integrity", "nodes"),
    ("applying",),
    ("image",),
    ("locking",),
    ("grid", "port", "making"),
    ("bisect", "upstream"),
    ("serve", "doctor"),
    ("report",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
HOT = (
    "errors",
    "model",
    "table",
    "manifest",
    "receipt",
    "lock",
    "digest",
    "diff",
    "diff_names",
    "diff_forms",
    "library",
    "keep",
    "planner",
    "attempt",
    "together",
    "vouch",
    "locate",
    "view",
    "versions",
    "site",
    "held",
    "journal_text",
    "untrusted",
    "journal",
    "record",
    "transaction",
    "draft",
    "drafting",
    "steps",
    "folders",
    "bytecode",
    "signals",
    "state",
    "applying",
    "transitions",
    "integrity",
    "pairing",
    "shell",
    "toml_text",
    "trees/folder",
    "trees/open",
)
SLOW = {
    "pathlib",
    "packaging",
    "unidiff",
    "libcst",
    "requests",
    "git",
    "subprocess",
    "logging",
    "tempfile",
    "shutil",
    "inspect",
    "importlib",
    "tomllib",
    "difflib",
    "yaml",
    "zipfile",
    "tarfile",
    "jinja2",
}


def imports(path: Path, *, top_only: bool) -> set[str]:
    """Return the dotted names a module imports at run time."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = tree.body if top_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages = {
                f"vllm_mods{one}"
                for one in ("", ".trees", ".fit", ".image", ".serve", ".grid", ".template")
            }
            if node.module in packages:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
    return found


def layer(name: str) -> str:
    """Return the part that a module (``trees/open``) belongs to: the longest that has a layer."""
    while name and name not in RANK:
        name = name.rpartition("/")[0]
    return name


def modules() -> list[tuple[str, Path]]:
    return [
        (str(path.relative_to(PACKAGE)).removesuffix(".py"), path)
        for path in PACKAGE.rglob("*.py")
        if "_data" not in path.parts
    ]


def test_imports_point_down() -> None:
    wrong = []
    for name, path in modules():
        part = layer(name)
        if name == "__init__":
            continue
        for imported in imports(path, top_only=False):
            top, _, rest = imported.partition(".")
            other = layer(rest.replace(".", "/")) if top == "vllm_mods" else ""
            if other and other != part and RANK[other] >= RANK[part]:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_the_planner_and_the_writer_meet_in_one_module() -> None:
    both = {"vllm_mods.planner", "vllm_mods.transaction"}
    assert [name for name, path in modules() if both <= imports(path, top_only=False)] == [
        "applying"
    ]


def test_every_module_has_its_layer() -> None:
    assert [name for name, _ in modules() if not layer(name)] == ["__init__"]


def test_modules_on_the_fast_path_import_nothing_slow() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules()
        if name in HOT
        for imported in imports(path, top_only=True)
        if imported.split(".")[0] in SLOW
    ]
    assert not wrong


def test_the_program_of_an_exported_mod_is_text_to_the_package() -> None:
    """It writes a tree in a way of its own, where this package is not; here the transaction does."""
    assert not [
        name
        for name, path in modules()
        if any("applier" in one for one in imports(path, top_only=False))
    ]
