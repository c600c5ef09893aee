"""What encloses a line of Python, by name; and what a hunk's changes are enclosed by."""

from __future__ import annotations

from textwrap import dedent

import pytest
from mod_making import diff_of

from vllm_mods.formats.diff import Hunk, parse
from vllm_mods.placing import enclosure
from vllm_mods.placing.chains import CodeBlock, read_blocks
from vllm_mods.placing.enclosure import ChangedRun, Identity
from vllm_mods.placing.resemblance import look_alikes
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.placing.target import Target


def rows(source: str) -> list[tuple[str, int, int]]:
    """Return the chain of each block with its first and last line."""
    return [(" / ".join(one.chain), one.head, one.end) for one in read_blocks(source.encode())]


def test_a_block_is_described_whole() -> None:
    source = (
        "@a\n@b(\n 1)\nclass C:\n    @p\n    async def f(self):\n        if x:\n            y\n"
    )
    assert read_blocks(source.encode()) == (
        CodeBlock("class", "C", 1, 4, 8, 0, ("C",)),
        CodeBlock("def", "f", 5, 6, 8, 4, ("C", "f")),
        CodeBlock("branch", "<if x>", 7, 7, 8, 8, ("C", "f", "<if x>")),
    )
    assert [one.named for one in read_blocks(source.encode())] == [True, True, False]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "if a:\n  b\nelif  c \\\n  .d:\n  e\nelse:\n  f\n",
            [("<if a>", 1, 2), ("<if c \\ .d>", 3, 5), ("<else c \\ .d>", 6, 7)],
        ),
        ("if a:\n  b\nelse:\n  if c:\n    d\n", [("<if a>", 1, 2), ("<else a>", 3, 5), ("<else a> / <if c>", 4, 5)]),
        ("for a in b:\n  c\nelse:\n  d\n", [("<for a in b>", 1, 2), ("<else a in b>", 3, 4)]),
        ("async for a, b in c: d\n", [("<for a, b in c>", 1, 1)]),
        ("while a:\n  b\nelse:\n\n  # c\n  @d\n  def e(): f\n", [("<while a>", 1, 2), ("<else a>", 3, 7), ("<else a> / e", 7, 7)]),
        ("with a as b, c(1):\n  d\n", [("<with a, c(1)>", 1, 2)]),
        ("async with a:\n  b\n", [("<with a>", 1, 2)]),
        (
            "try:\n  a\nexcept B as c:\n  d\nexcept:\n  e\nelse:\n  f\nfinally:\n  g\n",
            [("<try>", 1, 2), ("<except B>", 3, 4), ("<except>", 5, 6), ("<else>", 7, 8), ("<finally>", 9, 10)],
        ),
        ("try: a\nexcept* B: c\n", [("<try>", 1, 1), ("<except B>", 2, 2)]),
        ("match a:\n  case 1:\n    b\n  case C(d=2) if e:\n    f\n", [("<case 1>", 2, 3), ("<case C(d=2)>", 4, 5)]),
        ("a = b = [\n 1]\n", [("a =", 1, 2)]),
        ("a: int = (\n 1)\n", [("a =", 1, 2)]),
        ("a += (\n 1)\n", [("a =", 1, 2)]),
        ("from ..a import (\n b)\n", [("from ..a import", 1, 2)]),
        ("from . import (\n b)\n", [("from . import", 1, 2)]),
        ("a.b(\n 1)\n", [("a.b(1)", 1, 2)]),
        ("a.b(c,\n 1)\na(\n)\n", [("a.b()", 1, 2), ("a()", 3, 4)]),
        ("def f():\n  return {\n 1}\n", [("f", 1, 3), ("f / return", 2, 3)]),
        ("def f():\n  return g(\n 1)\n", [("f", 1, 3)]),
        ("a\nimport b\nx = 1\nassert (\n 1)\n", []),
        (
            "a = {\n 'x': [\n 1],\n 'y': 2,\n z: {\n 3},\n 4: {\n 'q': (\n 5)}, **w}\n",
            [("a =", 1, 9), ("a = / ['x']", 2, 3), ("a = / [4]", 7, 9), ("a = / [4] / ['q']", 8, 9)],
        ),
        ("x = 1\rdef f():\n  y\n", []),
        ("def f(:\n", []),
        ("é = f('ü',\n 1)\n", [("é =", 1, 2)]),
        ("f('ü',\n 1)\n", [("f('ü')", 1, 2)]),
    ],
)  # fmt: skip
def test_what_encloses_lines_has_a_name_of_its_own(
    source: str, expected: list[tuple[str, int, int]]
) -> None:
    assert rows(source) == expected


def test_a_long_condition_is_named_by_its_beginning_and_a_hash() -> None:
    just = "a" * 72
    ((name, *_),) = rows(f"if {just}:\n  b\n")
    assert name == f"<if {just}>"
    longer = [rows(f"if {'a' * 72}{end}:\n  b\n")[0][0] for end in "xy"]
    assert len(set(longer)) == 2
    assert {name[:67] for name in longer} == {f"<if {'a' * 63}"}
    assert {len(name) for name in longer} == {len("<if >") + 72}
    assert {name[67] for name in longer} == {"…"}


# --- what a hunk changes ------------------------------------------------------------------------------


def hunk(*lines: str, section: str = "") -> Hunk:
    old, new = (sum(line[0] != kind for line in lines) for kind in "+-")
    text = f"--- a/x.py\n+++ b/x.py\n@@ -1,{old} +1,{new} @@ {section}".rstrip()
    (file,) = parse("\n".join([text, *lines, ""]).encode(), "x.patch")
    return file.hunks[0]


def test_lines_that_change_together_know_the_line_above_and_their_indents() -> None:
    made = hunk(" a", " ", "-  b", "-", "+    c", "+  d", " e", "+f", " g", "-h")
    assert list(enclosure.runs_of(made)) == [
        ChangedRun(0, ((2,), (4, 2))),
        ChangedRun(4, ((), (0,))),
        ChangedRun(5, ((0,), ())),
    ]
    assert list(enclosure.runs_of(hunk("+a", " b"))) == [ChangedRun(-1, ((), (0,)))]


SOURCE = dedent("""\
    class A:
        def f(self):
            if x:
                a = 1
                b = 2
            c = 3
            call(
                1,
                2,
            )

        def g(self):
            a = 1

    T = {
        "k": 1,
        "l": 2,
    }
    """)
THERE = Target(SOURCE.encode(), read_scopes)


def changed(old: str, new: str, *, context: int = 1, section: str = "") -> tuple[Hunk, int]:
    """Return a hunk of the source, and the line that it stands at."""
    patch = diff_of("x.py", SOURCE, SOURCE.replace(old, new), context=context, section=section)
    (file,) = parse(patch, "x.patch")
    return file.hunks[0], file.hunks[0].old_start


@pytest.mark.parametrize(
    ("old", "new", "chains"),
    [
        ("b = 2", "b = 3", ("A.f.<if x>",)),
        ("            b = 2", "        b = 2", ("A.f.<if x>", "A.f")),
        ("c = 3", "c = 4", ("A.f",)),
        ("        c = 3\n", "            d\n        c = 3\n        d\n", ("A.f.<if x>", "A.f")),
        ("            2,\n", "", ("A.f.call(1)",)),
        ('    "l": 2,\n', '    "l": 2,\n    "m": 3,\n', ("T =",)),
        ("T = {", "T = dict(", ("",)),
        ("    def g(self):", "    def h(self):", ("A",)),
        ("\n    def g(self):", "\n\n    def g(self):", ("A.f.call(1)",)),
    ],
)
def test_a_hunk_knows_what_encloses_what_it_changes(
    old: str, new: str, chains: tuple[str, ...]
) -> None:
    made, line = changed(old, new)
    assert enclosure.texts_at(made, THERE, line) == chains
    result = Target(SOURCE.replace(old, new).encode(), read_scopes)
    if "dict" not in new:
        assert set(enclosure.texts_at(made.reversed(), result, line)) == set(chains)


@pytest.mark.parametrize(
    ("old", "new", "more", "expected"),
    [
        ("b = 2", "b = 3", {}, ((("A", "f"),), ((),), False, False, False)),
        ("b = 2", "b = 3", {"section": "def f(self):"}, ((("A", "f"),), ((1,),), False, False, False)),
        ("b = 2", "b = 3", {"section": "class A:"}, ((("A", "f"),), ((0,),), False, False, False)),
        ("b = 2", "b = 3", {"context": 3, "section": "class A:"}, ((("A", "f"),), ((0, 1),), True, True, False)),
        ("b = 2", "b = 3", {"context": 2, "section": "class A:"}, ((("A", "f"),), ((0,),), False, False, False)),
        ("self):\n        a = 1", "self):\n        a = 3", {"section": "class A:"}, ((("A", "g"),), ((0, 1),), True, True, False)),
        ("        2,\n", "        3,\n", {"context": 2, "section": "def f(self):"}, ((("A", "f"),), ((1,),), False, False, True)),
        ('"l": 2', '"l": 3', {"context": 2}, ((("T =",),), ((0,),), True, True, False)),
        ('"l": 2', '"l": 3', {"section": "T = {"}, ((("T =",),), ((0,),), True, True, False)),
        ("T = {", "T = dict(", {}, (((),), ((),), False, False, False)),
        ("T = {", "T = dict(", {"section": "class A:"}, (((),), ((),), True, True, False)),
    ],
)  # fmt: skip
def test_a_patch_names_what_it_shows_and_what_its_header_says(
    old: str, new: str, more: dict[str, object], expected: tuple[object, ...]
) -> None:
    made, line = changed(old, new, **more)  # type: ignore[arg-type]
    identity = Identity.read(made, THERE, line)
    known = tuple(tuple(sorted(one)) for one in identity.known)
    assert (identity.homes, known, *identity[2:]) == expected


def identity(home: tuple[str, ...], *known: int) -> Identity:
    return Identity((home,), (frozenset(known),), whole=False, exact=False, inside_statement=False)


def test_a_place_that_the_patch_names_otherwise_is_another_one() -> None:
    home = ("A", "f")
    assert identity(home, 0, 1).named
    assert not identity(home, 1).named
    assert identity(()).named
    for known, theirs, admits, agrees in [
        ((), ("B", "f"), True, True),
        ((), ("A", "g"), True, True),
        ((), ("A", "f"), True, True),
        ((), ("f",), True, True),
        ((0,), ("B", "f"), False, False),
        ((0,), ("A", "g"), True, True),
        ((1,), ("B", "f"), True, True),
        ((1,), ("A", "g"), False, False),
        ((1,), ("f",), True, False),
        ((1,), ("X", "A", "f"), True, False),
        ((1,), ("g",), False, False),
        ((0, 1), ("A", "f"), True, True),
    ]:
        here = identity(home, *known)
        assert (here.admits((theirs,)), here.agrees((theirs,))) == (admits, agrees), (known, theirs)
    assert identity(()).admits(((),))
    assert not identity(()).admits((("A",),))
    assert not identity(home, 0, 1).admits((home, ("A", "g")))


def test_what_encloses_a_place_that_only_resembles_a_hunk_is_read_at_its_own_indent() -> None:
    body = [
        "if x:",
        "    alpha = one(1)",
        "    beta = two(2)",
        "    gamma = three(3)",
        "delta = four(4)",
    ]
    deep = "\n".join(
        [
            "class B:",
            "    def h(self):",
            *(f"        {text}" for text in body[:2]),
            "            # more",
            *(f"        {text}" for text in body[2:]),
        ]
    )
    flat = "\n".join(["def g():", *(f"    {text}" for text in body)])
    there = Target(f"{flat}\n\n\n{deep}\n".encode(), read_scopes)
    for changed_line, chain in ((2, ("B.h.<if x>",)), (4, ("B.h",)), (0, ("B.h",))):
        lines = [f" {'    '}{text}" for text in body]
        lines[changed_line : changed_line + 1] = [
            f"-{lines[changed_line][1:]}",
            f"+{lines[changed_line][1:]}0",
        ]
        made = hunk(*lines)
        (match,) = look_alikes(made.old, there, range(2, 7))
        assert enclosure.texts(enclosure.chains_like(made, there, match)) == chain
        assert match.line == 11
