"""Merges by statements: what has a key of its own meets its namesake, and what is not certain is refused."""

from __future__ import annotations

import ast
import random
import textwrap

import pytest
from hypothesis import example, given, strategies as st

from vllm_mods.base import line_diff
from vllm_mods.porting import statements, suites, text
from vllm_mods.porting.suites import BothChangedError


def code(source: str) -> bytes:
    return textwrap.dedent(source).lstrip("\n").encode()


def merged(base: str, ours: str, theirs: str) -> str | None:
    done = statements.merge(code(base), code(ours), code(theirs))
    return None if done is None else done.decode()


BASE = """
    def start(self, config):
        self.name = config.name
        self.size = 1
        return self
"""


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        pytest.param(
            BASE.replace("size = 1", "size = 2"),
            BASE.replace("config.name", "config.title"),
            BASE.replace("size = 1", "size = 2").replace("config.name", "config.title"),
            id="neighbours",
        ),
        pytest.param(
            BASE.replace("    return", "    self.mine = 1\n        return"),
            BASE.replace("    return", "    self.theirs = Other(self)\n        return"),
            BASE.replace(
                "    return", "    self.mine = 1\n        self.theirs = Other(self)\n        return"
            ),
            id="two-insertions",
        ),
        pytest.param(
            BASE.replace("    self.name", "    # why\n        import mine\n\n        self.name"),
            BASE.replace("config.name", "config.title"),
            BASE.replace(
                "    self.name = config.name",
                "    # why\n        import mine\n\n        self.name = config.title",
            ),
            id="a-comment-goes-along",
        ),
        pytest.param(
            BASE.replace("        self.size = 1\n", ""),
            BASE.replace("config.name", "config.title"),
            BASE.replace("        self.size = 1\n", "").replace("config.name", "config.title"),
            id="a-removal-beside-a-change",
        ),
        pytest.param(
            BASE.replace("        self.size = 1\n", ""),
            BASE.replace("size = 1", "size = 3"),
            None,
            id="removed-here-and-changed-there",
        ),
        pytest.param(
            BASE.replace("size = 1", "size = 2"),
            BASE.replace("size = 1", "size = 3"),
            None,
            id="one-value-twice",
        ),
        pytest.param(
            BASE.replace("    return", "    self.count = 1\n        return"),
            BASE.replace("    return", "    self.total = self.count\n        return"),
            None,
            id="theirs-reads-what-ours-binds",
        ),
        pytest.param(
            BASE.replace("    return", "    total = 1\n        return"),
            BASE.replace("    return", "    total = 2\n        return"),
            None,
            id="both-add-one-name",
        ),
        pytest.param(
            BASE.replace("    return", "    self.mine = 1\n        return"),
            BASE.replace(
                "    return", "    if self.size:\n            return None\n        return"
            ),
            None,
            id="theirs-may-leave",
        ),
        pytest.param(
            BASE.replace(
                "    return self", "    if fast():\n            return fast\n        return self"
            ),
            BASE.replace("    return self", "    self.tuned = tune()\n        return self"),
            None,
            id="ours-leaves-before-what-others-count-on",
        ),
        pytest.param(
            BASE.replace(
                "    return self", "    if fast():\n            return fast\n        return self"
            ),
            BASE.replace("    return self", "    tuned = tune()\n        return self"),
            BASE.replace(
                "    return self",
                "    if fast():\n            return fast\n        tuned = tune()\n        return self",
            ),
            id="ours-leaves-before-what-ends-with-the-function",
        ),
        pytest.param(
            BASE.replace("    self.size = 1", "    self.extra = 2\n        self.size = 1"),
            "def start(self, config):\n    other()\n    return self\n",
            None,
            id="both-neighbours-gone",
        ),
        pytest.param(
            BASE.replace("self.size = 1", "self.size = 2"),
            BASE.replace("        self.size = 1\n", "        x = 1; self.size = 1\n"),
            None,
            id="two-statements-on-a-line",
        ),
    ],
)
def test_statements_meet_their_namesakes(ours: str, theirs: str, wanted: str | None) -> None:
    assert merged(BASE, ours, theirs) == (None if wanted is None else code(wanted).decode())


OPTION = 'group.add_argument("--{}", choices=[{}], default=None)\n'


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "wanted"),
    [
        ('x = ["a"]\n', 'x = ["a", "m"]\n', 'x = ["a", "t"]\n', 'x = ["a", "t", "m"]\n'),
        ('x = ["a"]\n', 'x = ["m", "a"]\n', 'x = ["a", "t"]\n', 'x = ["m", "a", "t"]\n'),
        (
            'x = ["a", "b"]\n',
            'x = ["a", "m", "b"]\n',
            'x = ["a", "b", "t"]\n',
            'x = ["a", "m", "b", "t"]\n',
        ),
        ('x = ["a"]\n', 'x = ["a", "m"]\n', 'x = ["b"]\n', None),
        ('x = ["a"]\n', 'x = ["a", "m"]\n', 'x = ["a", "m"]\n', None),
        ("f(1, a=1)\n", "f(1, a=1, m=2)\n", "f(1, a=1, t=3)\n", "f(1, a=1, t=3, m=2)\n"),
        ("f(1, a=1)\n", "f(1, 2, a=1)\n", "f(1, 3, a=1)\n", None),
        ("f(1, a=1)\n", "f(1, a=1, m=2)\n", "f(1, a=1, m=3)\n", None),
        ("x, y = f()\n", "x, y, m = f()\n", "x, y, t = f()\n", None),
        ("return_ = a and b\n", "return_ = a and b and m\n", "return_ = a and b and t\n", None),
        (
            "from x import a\n",
            "from x import a, m\n",
            "from x import a, t\n",
            "from x import a, t, m\n",
        ),
        (
            'x: Literal["a", "b"] | None = None\n',
            'x: (\n    Literal["a", "b", "m"] | None\n) = None\n',
            'x: Literal["a", "b", "t"] | None = None\n',
            'x: Literal["a", "b", "t", "m"] | None = None\n',
        ),
        (
            OPTION.format("k", '"a"'),
            OPTION.format("k", '"a", "m"'),
            OPTION.format("k", '"a", "t"'),
            OPTION.format("k", '"a", "t", "m"'),
        ),
        (
            'x = [\n    "a",  # first\n]\n',
            'x = [\n    "a",  # first\n    "m",\n]\n',
            'x = [\n    "a",  # first\n    "é",\n]\n',
            'x = [\n    "a",  # first\n    "é",\n    "m",\n]\n',
        ),
    ],
)
def test_what_both_add_to_a_bracket_goes_in(
    base: str, ours: str, theirs: str, wanted: str | None
) -> None:
    done = statements.merge(base.encode(), ours.encode(), theirs.encode())
    assert (None if done is None else done.decode()) == wanted


def test_two_statements_on_a_line_are_refused() -> None:
    text = "a = 1; b = 2\n"
    with pytest.raises(BothChangedError):
        suites.read(ast.parse(text).body, line_diff.split(text.encode()), 1)


@pytest.mark.parametrize("seed", range(70))
def test_a_choice_never_lands_among_those_of_another_option(seed: int) -> None:
    """As a prototype had it: `"flashqla"` among the choices of a neighbour of the same shape."""
    draw = random.Random(seed)
    names = draw.sample(["gdn-prefill", "kda-decode", "kda-prefill", "attention", "moe"], 4)
    kept = names[: draw.randint(1, 3)]
    meant = draw.choice(kept)
    choices = ", ".join(f'"{one}"' for one in draw.sample(["triton", "native", "cute"], 2))
    more = draw.choice(["", ', "sycl"', ', "aiter"'])
    base = "".join(OPTION.format(name, choices) for name in kept)
    ours = base.replace(
        OPTION.format(meant, choices), OPTION.format(meant, f'{choices}, "flashqla"')
    )
    new = [*kept]
    for name in names[len(kept) :]:
        new.insert(draw.randint(0, len(new)), name)
    theirs = "".join(OPTION.format(name, choices + more) for name in new)
    done = statements.merge(base.encode(), ours.encode(), theirs.encode())
    assert done is not None
    for line in done.decode().splitlines():
        assert ('"flashqla"' in line) == (f'"--{meant}"' in line)


@pytest.mark.parametrize("seed", range(70))
def test_an_early_return_between_two_neighbours_that_are_gone_is_refused(seed: int) -> None:
    """As a prototype had it: behind the selection that it should leave before."""
    draw = random.Random(seed)
    before, after = draw.sample(
        ["backend = 'auto'", "log('x')", "supported = cuda()", "if cuda():\n    a()"], 2
    )
    head, tail = draw.choice(["super().__init__()\n", ""]), draw.choice(["finish()\n", ""])
    hook = "if resolve() == NAME:\n    self.method = forward\n    return\n"
    select = "chosen = pick(config)\nif chosen == 'x':\n    self.method = x\nelse:\n    self.method = y\n"

    def function(body: str) -> bytes:
        return ("def __init__(self):\n" + textwrap.indent(body, "    ")).encode()

    done = statements.merge(
        function(f"{head}{before}\n{after}\n{tail}"),
        function(f"{head}{before}\n{hook}{after}\n{tail}"),
        function(f"{head}{select}{tail}"),
    )
    assert done is None


@pytest.mark.parametrize("seed", range(70))
def test_words_that_both_add_to_one_expression_are_refused(seed: int) -> None:
    """As a prototype had it: `and self.use_deep_gemm and self.use_deep_gemm`."""
    draw = random.Random(seed)
    parts = draw.sample(
        ["self.block_quant", "cuda()", "size > 1", "not self.off"], draw.randint(1, 3)
    )
    word = draw.choice([" and self.use_deep_gemm", " or self.fast", " + 1", ".flag"])
    joined = " and ".join(parts)
    form = draw.choice(["self.use = {}\n", "if {}:\n    go()\n", "run({}, a=1)\n", "x = [{}]\n"])
    mine = draw.choice(
        [f"{joined}{word}", f"({joined}{word})", f"{joined}{word}".replace(" and ", "  and ")]
    )
    theirs = draw.choice([f"{joined}{word}{word}", f"({joined}){word} and more()"])
    done = statements.merge(*(form.format(one).encode() for one in (joined, mine, theirs)))
    assert done is None


SUITE = st.lists(
    st.sampled_from(
        ["a = 1", "b = a", "c()", "if a:\n    b = 2", "d = [1]", "d = [1, 2]", "# e\nf(a)"]
    ),
    max_size=5,
    unique=True,
)


def joined(suite: list[str]) -> bytes:
    return "".join(f"{one}\n" for one in suite).encode()


@given(SUITE, SUITE)
def test_what_one_side_changed_is_what_comes_out(base: list[str], other: list[str]) -> None:
    for sides in ((base, other, base), (base, base, other)):
        done = statements.merge(*map(joined, sides))
        assert done in {None, joined(other)}


def names(suite: list[str], context: type[ast.expr_context]) -> set[str]:
    found = ast.walk(ast.parse(joined(suite)))
    return {one.id for one in found if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


@example(base=["# e\nf(a)"], ours=["a = 1", "b = a", "# e\nf(a)"], theirs=["c()"])
@given(SUITE, SUITE, SUITE)
def test_what_comes_out_carries_back(base: list[str], ours: list[str], theirs: list[str]) -> None:
    done = statements.merge(*map(joined, (base, ours, theirs)))
    if done is not None:
        back = statements.merge(joined(theirs), done, joined(base))
        if back is None:  # one of the changes binds what the other reads or binds
            its, mine = ([*{*base} ^ {*side}] for side in (theirs, ours))
            bound, read = names(its, ast.Store), names(its, ast.Load)
            own = names(mine, ast.Store)
            assert (bound | read) & own or bound & names(mine, ast.Load)
        else:
            assert ast.dump(ast.parse(back)) == ast.dump(ast.parse(joined(ours)))


def test_a_port_whose_lines_clash_and_whose_statements_do_not_says_so() -> None:
    base, ours, theirs = (
        code(BASE),
        code(BASE.replace("size = 1", "size = 2")),
        code(BASE.replace("config.name", "config.title")),
    )
    done = text.port(base, ours, theirs, python=True)
    assert done.proof == "statements"
    assert done.text == theirs.replace(b"size = 1", b"size = 2")


def test_a_port_that_leaves_before_what_the_target_makes_since_is_left_to_a_person() -> None:
    """Lines do not clash: `self.tuned` is two lines behind the mod's return."""
    base = code(BASE).replace(b"    return", b"    one()\n    two()\n    return")
    ours = base.replace(b"    self.name", b"    if fast():\n        return self\n    self.name")
    theirs = base.replace(b"    return", b"    self.tuned = 1\n    return")
    done = text.port(base, ours, theirs, python=True)
    assert [(one.code, one.scope) for one in done.problems] == [("skips", "start")]
    assert "line 3, " in done.problems[0].message
    assert "self.tuned" in done.problems[0].message
    (whole,) = done.stretches
    assert b"".join(line for line in whole if isinstance(line, bytes)).count(b"return self") == 2

    known = theirs.replace(b"self.tuned", b"tuned")
    assert text.port(base, ours, known, python=True).text is not None
