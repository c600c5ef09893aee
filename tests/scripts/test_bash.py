"""A script read by bash's grammar: statements, words, what is known of them."""

from __future__ import annotations

import subprocess

import pytest

from vllm_mods.scripts import bash, statements
from vllm_mods.scripts.statements import Assign, Call, Chain, For, If, Other, Pipe


def only(text: str) -> statements.Statement:
    (one,) = bash.read(text).body
    return one


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cp a 'b c' \"d e\"", ["cp", "a", "b c", "d e"]),
        ('cp "$ROOT/x" ${ROOT}/y', ["cp", "/r/x", "/r/y"]),
        ('cp "${NONE:-/d/$ROOT}" ${NONE:-e}', ["cp", "/d//r", "e"]),
        ('cp "$NONE" $(pwd) *.py', ["cp", None, None, None]),
        ('echo "a \\"b\\" \\$c" x\\ y', ["echo", 'a "b" $c', "x y"]),
        ('echo "$ROOT $ROOT"', ["echo", "/r /r"]),
        ("echo 1 -p1 --x=2", ["echo", "1", "-p1", "--x=2"]),
    ],
)
def test_words(text: str, values: list[str | None]) -> None:
    one = only(text)
    assert isinstance(one, Call)
    assert [word.value({"ROOT": "/r"}) for word in one.argv] == values


@pytest.mark.parametrize(
    "text",
    [
        "a 'b c'",
        'a "x y"z',
        'a "q\\"r"',
        "a b\\ c",
        'a "one $H two"',
        'a "${H}/${N:-d e}/f"',
        "a x=1",
    ],
)
def test_words_are_what_bash_makes_of_them(text: str) -> None:
    one = only(text)
    assert isinstance(one, Call)
    values = [word.value({"H": "home"}) or "" for word in one.argv]
    script = f"a() {{ printf '%s\\n' a \"$@\"; }}; H=home; {text}"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == values


def test_words_behind_a_redirect_are_the_commands() -> None:
    call = only("cp a >/dev/null b 2>&1 c\n")
    assert isinstance(call, Call)
    assert [word.text for word in call.argv] == ["cp", "a", "b", "c"]
    call = only("> log cp a b\n")
    assert isinstance(call, Call)
    assert [word.text for word in call.argv] == ["cp", "a", "b"]


def test_a_redirect_belongs_to_the_last_command_of_a_list() -> None:
    one = only('cd "$ROOT" && patch -p1 < x.patch || echo "done"')
    assert isinstance(one, Chain)
    assert one.operator == "||"
    assert isinstance(one.left, Chain)
    patch = one.left.right
    assert isinstance(patch, Call)
    assert [(r.operator, r.target.text) for r in patch.redirects] == [("<", "x.patch")]


@pytest.mark.parametrize(
    ("text", "kind", "body"),
    [
        ("python3 - <<'PY' || true\nx = '$A'\nPY\n", Chain, "x = '$A'\n"),
        ("cat <<EOF | patch -p1\na\nEOF\n", Pipe, "a\n"),
        ("cat > out <<EOF\na $A\nEOF\n", Call, "a 1\n"),
        ('cat <<EOF\n"$A" \\$1 $ 5$\n$1\nEOF\n', Call, '"1" $1 $ 5$\nx\n'),
        ("cat <<-'EOF'\n\ta\n\t\tb\n\tEOF\n", Call, "a\nb\n"),
        ("cat <<-EOF\n\ta $A\t$A\n\t\t$A b\n\tEOF\n", Call, "a 1\t1\n1 b\n"),
    ],
)
def test_here_documents(text: str, kind: type, body: str) -> None:
    one = only(text)
    assert isinstance(one, kind)
    call = next(part for part in (one, *statements.inside(one)) if isinstance(part, Call))
    here = next(redirect for redirect in call.redirects if redirect.operator == "<<")
    assert here.target.value({"A": "1", "1": "x"}) == body


def test_branches_loops_and_functions() -> None:
    script = bash.read(
        "if a; then b; c; elif d; then e; else f; fi\n"
        'for x in 1 2; do g "$x"; done\nh() { i; }\nwhile j; do k; done\ncase $x in y) l;; esac\nm &\n'
    )
    condition, loop, function, other, case, background = script.body
    assert isinstance(condition, If)
    texts = [[[one.text for one in part] for part in branch] for branch in condition.branches]
    assert texts == [[["a"], ["b", "c"]], [["d"], ["e"]], [[], ["f"]]]
    assert isinstance(loop, For)
    assert (loop.name, [word.text for word in loop.values]) == ("x", ["1", "2"])
    assert [one.text for one in statements.inside(function)] == ["i"]
    assert [one.text for one in statements.inside(other)] == ["j", "k"]
    assert [one.text for one in statements.inside(case)] == ["l"]
    assert isinstance(background, Other)
    assert background.kind == "background"


def test_what_goes_into_a_block_is_not_forgotten() -> None:
    block, loop, quiet = bash.read(
        "( cd x; patch -p1 ) < fix.patch\nfor x in 1; do echo $x; done > list\n{ a; } > /dev/null 2>&1\n"
    ).body
    for one in (block, loop):
        assert isinstance(one, Other)
        assert one.kind == "redirected_statement"
    assert [type(one) for one in statements.inside(block)] == [statements.Block]
    assert isinstance(quiet, statements.Block)


def test_assignments_above_a_command_are_none_of_its_own() -> None:
    script = bash.read(
        "A=1 B=2\n[ -n x ]\nC=3 D=4 \\\ne f\nG=5 H=6\nI=7 j <k\nL=8 M=9\ncat <<E\nx\nE\n"
    )
    told = [
        (type(one).__name__, one.line)
        for one in statements.walk(script.body)
        if isinstance(one, Assign | Call | statements.Test)
    ]
    assert told == [
        *[("Assign", 1), ("Assign", 1), ("Test", 2), ("Call", 3)],
        *[("Assign", 5), ("Assign", 5), ("Call", 6), ("Assign", 7), ("Assign", 7), ("Call", 8)],
    ]
    calls = [one for one in statements.walk(script.body) if isinstance(one, Call)]
    assert [len(one.assignments) for one in calls] == [2, 1, 0]
    assert [len(one.redirects) for one in calls] == [0, 1, 1]


def test_assignments() -> None:
    one, two = bash.read("#!/bin/bash -e\nA=${B:-c}\nexport D=1\n").body
    assert isinstance(one, Assign)
    assert isinstance(two, Assign)
    assert (one.name, one.value.value({}), one.exported) == ("A", "c", False)
    assert (two.name, two.exported, two.line) == ("D", True, 3)
    assert bash.read("#!/bin/bash -e\n").interpreter == "/bin/bash -e"


@pytest.mark.parametrize(("text", "line"), [("a\nif b; then c\n", 3), ("a 'b", 1), ("a\n\n)\n", 3)])
def test_what_bash_would_not_read_is_refused(text: str, line: int) -> None:
    with pytest.raises(statements.BashError) as caught:
        bash.read(text)
    assert caught.value.line == line
