"""A command line read as bash reads it; bash itself is asked."""

from __future__ import annotations

import subprocess

import pytest

from vllm_mods.base import limits
from vllm_mods.scripts import command_line

READ = {
    "words": "vllm serve a  b\tc",
    "single quotes": """vllm '{"a": 1}' 'b c'd""",
    "double quotes": r'''vllm "{\"a\": 1}" "b\c \\ \$x"''',
    "empty words": """vllm '' "" x""",
    "an escaped blank": r"vllm a\ b \'c\' \\",
    "a lone backslash at the end": "vllm a\\",
    "continued lines": "vllm \\\n  --a 1 \\\n\\\n  --b",
    "a continued word": "vllm --na\\\nme x",
    "a continued word in double quotes": 'vllm "a\\\nb"',
    "a line feed in quotes": "vllm 'a\nb'",
    "a comment": "vllm a # b c",
    "a hash within a word": "vllm a#b --c=#d",
    "a comment before it": "# first\nvllm a",
    "a comment that ends the command": "vllm a \\\n# b \\\n",
    "a backslash that continues no comment": "vllm a # \\\n",
    "a lone dollar": "vllm 5$ $ '$x'",
    "braces that stay": "vllm {} {a} '{a,b}'",
    "assignments in front": "A=1 B='x y' vllm a C=2",
    "a redirection": "vllm a >/dev/null b 2>&1 c",
    "another redirection": "vllm a &>/dev/null b",
    "a redirection behind a digit that ends a word": "vllm a2>/dev/null 3 >/dev/null",
    "a redirection in front": "</dev/null vllm a",
    "a redirection onto a quoted name": "vllm a > '/dev/null' b",
    "a separator": "vllm a; true",
    "a command in the background": "vllm a & true",
    "a pipe without blanks": "vllm a|true",
    "two commands in a row": "vllm a || vllm b",
    "something behind an empty word": "vllm ''a b''",
    "quotes of both kinds in one word": """vllm a'b "c'"d 'e"f""",
    "a backslash before a letter": r'''vllm \a '\b' "\\c"''',
    "a tilde within a word": "vllm a~b",
    "an equals sign alone": "vllm =1 A=",
    "carriage return in a word": "vllm a\rb",
}


def of_bash(script: str) -> list[str]:
    """Return the words that bash passes to a command named vllm."""
    spy = "vllm() { printf 'vllm\\0' >&3; [ $# = 0 ] || printf '%s\\0' \"$@\" >&3; }\n"
    answer = subprocess.run(
        ["bash", "-c", f"exec 3>&1 >/dev/null\n{spy}{script}"], capture_output=True, check=False
    )
    return answer.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("case", READ)
def test_words_are_those_of_bash(case: str) -> None:
    script = command_line.read(READ[case])
    assert list(script.commands[0].argv) == of_bash(READ[case])


def test_assignments_in_front_are_kept_apart() -> None:
    (command,) = command_line.read("A=1 B='x y' vllm serve m C=2").commands
    assert command.assignments == (("A", "1"), ("B", "x y"))
    assert command.argv == ("vllm", "serve", "m", "C=2")


def test_each_command_has_the_line_that_it_begins_in() -> None:
    script = command_line.read("export A=1\n\nvllm serve m \\\n  --a\n--b 2 && --c\n")
    assert [(one.line, one.argv[0]) for one in script.commands] == [
        (1, "export"),
        (3, "vllm"),
        (5, "--b"),
        (5, "--c"),
    ]


def test_what_is_exported_is_what_stands_alone_or_behind_export() -> None:
    text = "export A=1 B='x y' C\nD=2 vllm serve m\nE=3 F=4\necho G=5\nA=6\n"
    assert command_line.exported(command_line.read(text)) == {
        "A": "6", "B": "x y", "E": "3", "F": "4"
    }  # fmt: skip


def test_what_is_exported_is_what_the_last_of_its_lines_says() -> None:
    text = "A=1\nexport A=2 B=3=4\nC=5\nexport C\nvllm D=6\n"
    assert command_line.exported(command_line.read(text)) == {"A": "2", "B": "3=4", "C": "5"}


def test_every_part_has_the_line_that_it_stands_in() -> None:
    script = command_line.read("# one\na \"b\n$C\" `d`\n\n  # two\ne $'f' $1 $@ ${h} 5$\n")
    assert [(one.line, one.argv) for one in script.commands] == [
        (2, ("a", "b\n$C", "`d`")),
        (6, ("e", "$f", "$1", "$@", "${h}", "5$")),
    ]
    unknown = [(3, "$C"), (3, "`d`"), (6, "$"), (6, "$1"), (6, "$@"), (6, "${h}")]
    assert [(one.line, one.text) for one in script.unknown] == unknown
    assert script.comments == ((1, "# one"), (5, "# two"))


def test_a_command_longer_than_people_write_is_refused() -> None:
    with pytest.raises(command_line.ShellError, match="the limit is") as caught:
        command_line.read("x" * (limits.SERVE_COMMAND + 1))
    assert caught.value.line == 1
    assert command_line.read("x" * limits.SERVE_COMMAND).commands


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("vllm serve $HOME/m", ["$HOME"]),
        ('vllm serve "${MODEL:-x}"', ["${MODEL:-x}"]),
        ("vllm serve $(cat m) `cat m`", ["$(cat m)", "`cat m`"]),
        ("vllm serve *.json ~/m", ["*.json", "~/m"]),
        ("vllm serve {a,b} {1..3}", ["{a,b}", "{1..3}"]),
        ("vllm serve m > log", ["> log"]),
        ("vllm 2> log 1>&2 <in", ["2> log", "1>&2", "<in"]),
        ("vllm $(a (b) c) ${a{b}c} d", ["$(a (b) c)", "${a{b}c}"]),
        ("vllm a~b {a} x[1] a? b", ["x[1]", "a?"]),
        ('vllm "$a$b"c', ["$a", "$b"]),
        ("vllm $\"f\" $'g'", ["$", "$"]),
        ("A=$B vllm 'x'*y", ["$B", "'x'*y"]),
        ("vllm $? $! $- $% $", ["$?", "$!", "$-"]),
        ("vllm serve '$HOME' \"a*b\" \\$x", []),
    ],
)
def test_what_only_a_shell_can_fill_in_is_listed(text: str, unknown: list[str]) -> None:
    assert [one.text for one in command_line.read(text).unknown] == unknown


@pytest.mark.parametrize(
    ("text", "line"), [("a\nb 'c\n", 2), ('a "b', 1), ("\n\na $(b", 3), ("a `b", 1), ("a ${b", 1)]
)
def test_what_is_not_closed_is_named_with_its_line(text: str, line: int) -> None:
    with pytest.raises(command_line.ShellError, match="not closed") as caught:
        command_line.read(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("serve --aa_bb 1 --aa-bb=x=y --other", "x=y"),
        ("--aa-bb 1 -a 2", "2"),
        ("--aa-b 1", "1"),
        ("--other --aa-bb", ""),
        ("--aa-bb --other", ""),
        ("aa-bb 1 -aa", None),
    ],
)
def test_a_flag_has_the_value_of_its_last_place(words: str, value: str | None) -> None:
    assert command_line.flag_value(tuple(words.split()), "--aa-bb", "-a") == value
