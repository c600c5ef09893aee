"""Elements that the mod adds to a bracket: they are beside their neighbour, and nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from vllm_mods.porting import statements

Elements = dict[str, int]
"""Elements by their names."""


def merged(base: str, ours: str, theirs: str) -> str | None:
    done = statements.merge(*(one.encode() for one in (base, ours, theirs)))
    return None if done is None else done.decode()


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "wanted"),
    [
        ("f(a=1, b=2)\n", "f(a=1, b=2, m=3)\n", "f(a=4)\n", None),
        ("f(a=1)\n", "f(a=1, m=2)\n", "f(a=3)\n", "f(a=3, m=2)\n"),
        ("f(g(a=1))\n", "f(g(a=1, m=2))\n", "f(g(a=1, t=3))\n", "f(g(a=1, t=3, m=2))\n"),
        ("d = {'a': 1, 'b': 2}\n", "d = {'a': 3, 'b': 2}\n", "d = {'b': 2, 'a': 1}\n", None),
        (
            "f(\n    a=1,\n    b=2,\n)\n",
            "f(\n    a=1,\n    m=3,\n    b=2,\n)\n",
            "if x:\n    pass\nf(\n    a=1,\n    t=4,\n    b=2,\n)\n",
            "if x:\n    pass\nf(\n    a=1,\n    t=4,\n    m=3,\n    b=2,\n)\n",
        ),
        (
            "f(\n    a=1,\n    b=2\n)\n",
            "f(\n    a=1,\n    b=2,\n    m=3\n)\n",
            "f(\n    a=4,\n    b=2\n)\n",
            "f(\n    a=4,\n    b=2,\n    m=3,\n)\n",
        ),
        (
            "n = 1\nb = 1\n",
            "n, k = pair()\nb = 1\n",
            "n = 1\nb = 1\nm = n\n",
            "n, k = pair()\nb = 1\nm = n\n",
        ),
        ("a()\n# old\nb()\nc()\n", "a()\nc()\n", "a()\n# new\nb()\nc(1)\n", "a()\nc(1)\n"),
    ],
)
def test_what_the_mod_adds_goes_beside_its_neighbour(
    base: str, ours: str, theirs: str, wanted: str | None
) -> None:
    assert merged(base, ours, theirs) == wanted


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param("f(a=1)\n", "f(a=2)\n", "f(a=3)\n", id="both-change-one"),
        pytest.param(
            "f(a=1, b=2)\n", "f(a=3, b=2)\n", "f(a=1, b=4)\n", id="each-changes-another-one"
        ),
        pytest.param(
            "x = [\n    # first\n    1,\n]\n",
            "x = [\n    2,\n    # first\n    1,\n]\n",
            "x = [\n    # first\n    1,\n    3,\n]\n",
            id="a-comment-above-the-first",
        ),
        pytest.param("x = f(1)\n", "x = f(1, a=2)\n", "x = f(1)(2)\n", id="called-again"),
        pytest.param("x = [1, 2]\n", "x = [1, 2, 3]\n", "x = [2, 1]\n", id="another-order-there"),
        pytest.param(
            "f(a=1, b=2)\n", "f(a=1)\n", "f(a=4, b=2)\n", id="takes-out-what-is-left-alone"
        ),
        pytest.param(
            "f(\n    a=1,\n)\n",
            "f(\n    a=1,\n    # why\n    m=2,\n)\n",
            "f(a=1, t=3)\n",
            id="a-comment",
        ),
        pytest.param(
            "f(a=1, b=2)\n", "f(b=2)\n", "f(a=3, b=2)\n", id="one-takes-out-another-changes"
        ),
        pytest.param(
            "f(a=1, b=2)\n", "f(a=3, b=2)\n", "f(b=2)\n", id="one-changes-another-takes-out"
        ),
        pytest.param("f(a=1)\n", "g(a=1)\n", "f(a=1, t=2)\n", id="another-is-called"),
        pytest.param(
            "x = f(a=1)\n", "x = f(a=1, m=2)\n", "x = g(a=1)\n", id="another-is-called-there"
        ),
        pytest.param("f(x, y)\n", "f(z, y)\n", "f(x, w)\n", id="told-by-place-alone"),
        pytest.param("f(x, y)\n", "f(y)\n", "f(x, y, a=1)\n", id="fewer-by-place"),
        pytest.param("x = a + b\n", "x = c + b\n", "x = a + d\n", id="an-expression"),
        pytest.param("x = a or b\n", "x = c or b\n", "x = a or d\n", id="a-condition"),
        pytest.param("x = 1, 2\n", "x = 3, 2\n", "x = 1, 4\n", id="a-tuple"),
        pytest.param("f(a=1, b=2)\n", "f(b=2, a=1)\n", "f(a=1, b=2, t=1)\n", id="another-order"),
        pytest.param("x = [1]\n", "x = [1, 2]\n", "x = [3]\n", id="no-neighbour-left"),
        pytest.param("x = [1]\n", "x = [1, 2, 2]\n", "x = [1, 3]\n", id="twice-the-same"),
        pytest.param(
            "def f(a):\n    pass\n",
            "def f(a, m=1):\n    pass\n",
            "def f(a, t=1):\n    pass\n",
            id="two-parameters-at-one-place",
        ),
        pytest.param(
            "@a\ndef f(x):\n    pass\n",
            "@b\ndef f(x):\n    pass\n",
            "@c\ndef f(x, t=1):\n    pass\n",
            id="two-decorators",
        ),
        pytest.param(
            "x = [\n    1,  # one\n]\n",
            "x = [\n    1,  # uno\n    2,\n]\n",
            "x = [\n    1,  # one\n    3,\n]\n",
            id="a-comment-of-the-mod-would-be-lost",
        ),
        pytest.param(
            "x = [\n    1,\n    # of two\n    2,\n]\n",
            "x = [\n    1,\n]\n",
            "x = [\n    1,\n    # of two\n    2,\n    3,\n]\n",
            id="a-comment-above-what-goes",
        ),
        pytest.param(
            "f(a=1, b=2)\n",
            "f(\n    a=1,\n    m=[\n        1,\n    ],\n    b=2,\n)\n",
            "f(a=4, b=2)\n",
            id="several-lines-into-one",
        ),
        pytest.param(
            "if x:\n    f(\n        a=1,\n    )\n",
            'if x:\n    f(\n        a=1,\n        m="""\n        text""",\n    )\n',
            "if x:\n    f(\n            a=2,\n    )\n",
            id="a-text-would-move",
        ),
        pytest.param("f(x)\n", "f(x, y)\n", "f(x, t=2)\n", id="more-by-place"),
        pytest.param("f(x)\n", "f(z)\n", "f(x, y)\n", id="more-by-place-there"),
        pytest.param(
            "d = {'a': 1, **b}\n",
            "d = {'a': 2, **b}\n",
            "d = {'a': 1, **b, 't': 1}\n",
            id="unpacked",
        ),
        pytest.param(
            '"""One word."""\n', '"""Two word."""\n', '"""Three word."""\n', id="one-word"
        ),
        pytest.param("# a\nb()\n", "# c\nb()\n", "# d\nb()\n", id="one-word-of-a-comment"),
        pytest.param(
            "# first and second\na()\n",
            "# 1st and second\na()\n",
            "# first and 2nd\na()\n",
            id="two-words-of-a-comment",
        ),
        pytest.param(
            "a()\n# w\nb()\nc()\n",
            "a()\n# m\nb()\nc()\n",
            "a()\nc(1)\n",
            id="a-comment-whose-statement-is-gone",
        ),
        pytest.param(
            "x = [\n    1,\n    2,\n    3,\n]\n",
            "x = [\n    1,\n    3,\n]\n",
            "x = [\n    1,\n    # about two\n    2,\n    3,\n    4,\n]\n",
            id="a-comment-of-theirs-above-what-goes",
        ),
        pytest.param("f(a=1,\n  b=2)\n", "f(b=2)\n", "f(a=1,\n  b=3)\n", id="a-line-would-move-up"),
        pytest.param(
            "def f(a):\n    pass\n",
            "def f():\n    pass\n",
            "def f(a) -> int:\n    pass\n",
            id="the-only-element-goes",
        ),
        pytest.param(
            "def f():\n    pass\n",
            "def f(m=1):\n    pass\n",
            "def f() -> int:\n    pass\n",
            id="into-an-empty-bracket",
        ),
        pytest.param(
            "def f(a):\n    pass\n",
            "def f(a, m=1):\n    pass\n",
            "async def f(a):\n    pass\n",
            id="of-another-kind",
        ),
        pytest.param(
            "x: L['a', 'b'] = 1\n",
            "x: L['a'] = 1\n",
            "x: L['a', 'b', 't'] = 1\n",
            id="a-bracket-that-is-none-any-more",
        ),
        pytest.param(
            "x = [1, 1]\n", "x = [1, 1, 2]\n", "x = [1, 1, 3]\n", id="twice-from-the-start"
        ),
        pytest.param(
            "def f(a):\n    return 1\n",
            "def f(a, m=1): return 1\n",
            "def f(a):\n    return 2\n",
            id="a-body-on-the-line-of-its-head",
        ),
        pytest.param(
            "a()\n# w\nb()\nc = 1\n",
            "a()\n# m\nb()\nc = 2\n",
            "a()\nc = 1\nd = 1\n",
            id="a-comment-whose-statement-is-gone-beside-a-change",
        ),
        pytest.param(
            "a = 1\nb = 2\n",
            "a = 1\n# c\nm = 1\nb = 2\n",
            "a = 1\n# c\nt = 1\nb = 2\n",
            id="one-comment-above-two",
        ),
        pytest.param(
            'def f():\n    """A.\n\n    B."""\n',
            'def f():\n    """A.\n    B."""\n',
            'def f():\n    """A. B."""\n',
            id="nothing-of-the-mod-is-left",
        ),
    ],
)
def test_what_is_not_certain_is_refused(base: str, ours: str, theirs: str) -> None:
    assert merged(base, ours, theirs) is None


NAMES = ["a", "b", "c", "d", "e", "f"]


def shown(form: str, elements: Elements, layout: int, draw: random.Random) -> str:
    """Write a statement that leaves its elements in ``got``, on one line or each on its own."""
    written = [
        {
            "call": f"{name}={value}",
            "dict": f"'{name}': {value}",
            "parameters": f"{name}={value}",
            "keyword-only": f"{name}={value}",
            "nested": f"{name}=dict(v={value})",
            "list": f"('{name}', {value})",
        }[form]
        for name, value in elements.items()
    ]
    if layout == 0:
        inner = ", ".join(written)
    else:
        blank = "    " * layout
        rows = [f"{blank}{one},{draw.choice(['', '  # why'])}\n" for one in written]
        inner = "\n" + "".join(rows)
    head = {
        "call": "got = dict({})",
        "nested": "got = dict({})",
        "dict": "got = {{{}}}",
        "list": "got = [{}]",
        "parameters": "def fun({}):\n    return dict(locals())",
        "keyword-only": "def fun(*, {}):\n    return dict(locals())",
    }[form]
    return head.format(inner) + "\n"


def got(form: str, source: str) -> object:
    space: dict[str, object] = {}
    exec(source, space)  # noqa: S102
    if "fun" in space:
        return space["fun"]()  # type: ignore[operator]
    value = dict(space["got"])  # type: ignore[call-overload]
    return {name: one["v"] for name, one in value.items()} if form == "nested" else value


def edited(elements: Elements, draw: random.Random, free: Sequence[str]) -> Elements:
    rows = list(elements.items())
    for _ in range(draw.randint(1, 2)):
        kind = draw.random()
        if kind < 0.5 and free:
            new = draw.choice(free)
            if new not in dict(rows):
                rows.insert(draw.randint(0, len(rows)), (new, draw.randint(10, 99)))
        elif kind < 0.8 and rows:
            at = draw.randrange(len(rows))
            rows[at] = (rows[at][0], draw.randint(10, 99))
        elif len(rows) > 1:
            rows.pop(draw.randrange(len(rows)))
    return dict(rows)


def both(base: Elements, ours: Elements, theirs: Elements) -> Elements | None:
    """Return what two edits make of elements by their names; None where both do something to one."""
    result = {}
    for name in {*base, *ours, *theirs}:
        values = [side.get(name) for side in (base, ours, theirs)]
        if values[1] != values[0] != values[2] and values[1] != values[2]:
            return None
        value = values[1] if values[1] != values[0] else values[2]
        if value is not None:
            result[name] = value
    return result


def wrong(seed: int) -> str | None:
    """Tell what is wrong with a merge of two drawn edits of one bracket, "" if nothing, None without a merge."""
    draw = random.Random(seed)
    form = draw.choice(["call", "dict", "parameters", "keyword-only", "nested", "list"])
    base = dict.fromkeys(draw.sample(NAMES[:4], draw.randint(1, 3)), 1)
    free = [name for name in NAMES if name not in base]
    cut = draw.randint(0, len(free))
    ours, theirs = edited(base, draw, free[:cut]), edited(base, draw, free[cut:])
    layouts = [draw.choice([0, 1, 1]) for _ in range(3)]
    if draw.random() < 0.7:
        layouts = layouts[:1] * 3
    sides = [
        shown(form, one, layout, random.Random(draw.randint(0, 9)))
        for one, layout in zip((base, ours, theirs), layouts, strict=True)
    ]
    done = merged(*sides)
    if done is None:
        return None
    wanted = both(base, ours, theirs)
    return "" if got(form, done) == wanted else "\n---\n".join([*sides, done])


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, 1500, 500))
def test_drawn_edits_of_one_bracket_are_all_there_or_refused(start: int) -> None:
    found = [wrong(seed) for seed in range(start, start + 500)]
    assert [one for one in found if one] == []
    assert found.count("") > 50, "too few merges to tell"
