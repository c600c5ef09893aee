"""A refusal that a person reads: at most five lines of 100 columns, and the last one is what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from mod_making import diff_of, write_mod
from small_site import RECORD

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, ModPlan, Plan, Verdict
from vllm_mods.report import text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

MINE = "# mine\n\n\ndef f(a, b):\n    return a + b\n"
USES = "from vllm.mine import f\n\nprint(f(1, 2))\n"
BODY = "".join(f"        v{i} = {i}\n" for i in range(12))
TWICE = f"class A:\n    def f(self):\n{BODY}\n\nclass B:\n    def f(self):\n{BODY}"
BOTH = f"def f():\n    a = 1\n    return a\n\n\nclass C:\n{BODY}\n\ndef h():\n    z = 3\n    return z\n"
ONE = BOTH.replace("a = 1", "a = 2")
AGAIN = "\n\nhint: pip install --force-reinstall --no-deps vllm==0.19.1"


class Case(NamedTuple):
    """A mod of the file as it was released, the file as it is now, and the command that helps."""

    verdict: str
    before: str
    after: str
    now: str | None
    hint: str


PORT = "\n\nhint: vllm-mods port mine --to "
CASES = [
    Case("conflict", MINE, MINE.replace("a + b", "a - b"), MINE.replace("a + b", "b + a"), PORT),
    Case(
        "misplaced",
        TWICE,
        TWICE.replace("v6 = 6", "v6 = 7", 1),
        "# new\n" + TWICE,
        "\n\nhint: vllm-mods check mine --library ",
    ),
    Case("missing", MINE, MINE.replace("a + b", "a - b"), None, PORT),
    Case("partial", BOTH, ONE.replace("z = 3", "z = 4"), ONE, AGAIN),
    Case(
        "unfit",
        MINE,
        MINE.replace("def f(", "def g("),
        MINE,
        "\n\nhint: vllm-mods show mine --library ",
    ),
]


@pytest.fixture
def small(site: Path, library: Path, request: pytest.FixtureRequest) -> Path:
    """Return a site with the case's file as it is now, and have its mod in the library."""
    case: Case = request.param
    write_mod(library, "mine", diff_of("vllm/mine.py", case.before, case.after))
    if case.now is not None:
        (site / "vllm/mine.py").write_text(case.now)
    (site / "vllm/uses.py").write_text(USES)
    (site / RECORD).with_name("INSTALLER").write_text("pip\n")
    if case.verdict == "partial":
        rows = (site / RECORD).read_text()
        (site / RECORD).write_text(f"{rows}vllm/mine.py,sha256=AAAA,1\n")
    return site


@pytest.mark.parametrize(
    ("small", "case"),
    [(one, one) for one in CASES],
    indirect=["small"],
    ids=lambda one: one.verdict,
)
@pytest.mark.parametrize("command", ["check", "apply"])
def test_a_refusal_has_five_lines_at_most_and_ends_with_the_next_command(
    call: Call, small: Path, case: Case, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    answer = call(command, "mine", "--target", small.name)
    assert answer.code == (1 if command == "check" else 3)
    said = answer.out + answer.err
    lines = [line for line in said.splitlines() if line]
    assert case.verdict in said
    assert len(lines) <= 5, said
    *findings, hint = lines
    assert all(len(line) <= 100 for line in findings), said
    assert f"\n\n{hint}\n" in said
    assert case.hint in said
    if command == "apply":
        as_json = call(command, "mine", "--target", small.name, "--json").json
        assert f"hint: {as_json['error']['hint']}" == hint


def test_the_findings_of_a_refusal_are_coloured_as_its_verdict_and_notes_are_not() -> None:
    from mod_making import mod, variant

    found = (
        Finding(FindingCode.TEXT, "word " * 30, path="vllm/a.py"),
        Finding(FindingCode.LEFTOVER, "a note", level=Level.NOTE),
    )
    one = ModPlan(mod(variant()), None, Verdict.CONFLICT, in_range=True, findings=found)
    said = text.plan(
        Plan("site", "0.19.1", (one,), ()),
        lambda verdict, words=None: f"<{verdict}:{verdict if words is None else words}>",
    ).splitlines()
    assert said[1].startswith("  mod 1.0.0  <conflict:conflict>: ")
    assert said[2].startswith("    <conflict:word ")
    assert said[3].startswith("    <conflict:  word ")
    assert said[4] == "    note: a note [leftover]"


def test_words_are_broken_between_paths_and_commands_and_never_inside() -> None:
    command = "`vllm-mods check hybrid --target pypi:0.21.0`"
    path = "vllm/model_executor/layers/quantization/compressed-tensors.py"
    lines = text.folded(f"{path}: {'word ' * 5}{path} {command} end", 60)
    assert [line for line in lines if path in line] == [f"{path}:", path]
    assert [line for line in lines if command in line]
    assert text.folded("short", 60) == ["short"]
