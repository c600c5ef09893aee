"""Who uses what a patch changes: the lines of other files whose code names it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from fit_tree import users_of, world_of

from vllm_mods.fit import users
from vllm_mods.fit.signatures import children, every

CHANGED = "vllm/a.py"
FILES = {"vllm/__init__.py": "", CHANGED: "def hook(x): ...\n"}


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("from vllm.a import hook\nhook(1)", {1, 2}),
        ("import vllm.a\nvllm.a.hook(1)", {2}),
        ("x = 1  # hook\n# as hook does", set()),
        ('"""What hook\ndoes."""\nf(help="the hook of it")', set()),
        ("f('''hook\n is''')\nf('a # hook')", set()),
        ("def hook(): ...\nasync def hook(): ...", set()),
        ("f('hook', \"vllm.a.hook\")", {1}),
        ("f(f'the {hook(1)} of it')\ng(f'''{\nhook(2)}''')", {1, 3}),
        ("f('\\'', hook)\nf('#', hook)\nf(\"it's\", hook)", {1, 2, 3}),
        ("f('''it's''', hook)  # it's hook\nhook", {1, 2}),
    ],
)
def test_the_lines_whose_code_names_what_is_changed(code: str, lines: set[int]) -> None:
    files = {**FILES, "vllm/use.py": f"{code}\n"}
    worlds = world_of(files), world_of(files, {CHANGED: "def hook(x, y): ...\n"})
    used, names = users_of(*worlds, CHANGED)
    assert used == ({"vllm/use.py": lines} if lines else {})
    assert names == {"hook"}


def test_the_nodes_below_a_node_are_those_of_ast() -> None:
    leaves = ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop
    tree = ast.parse(
        Path(users.__file__).read_text("utf-8")
        + "{**a, 1: 2}\nasync def f(a, /, *b: int, c=1, **d): await g(x for x in y if not z)\n"
        "try: pass\nexcept* A as e: raise B from e\nglobal x\ny: int = lambda: (yield)\ndel x[1:2]\n"
        "match a:\n case {'b': [1, *c], **d} | A(x=1) as e if f'{a!r:>{b}}' < b: a @= ~1\n"
    )
    for node in ast.walk(tree):
        below = [one for one in ast.iter_child_nodes(node) if not isinstance(one, leaves)]
        assert children(node) == below
    assert {*every(tree)} == {one for one in ast.walk(tree) if not isinstance(one, leaves)}
