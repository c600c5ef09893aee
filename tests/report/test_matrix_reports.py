"""A matrix as text, Markdown and JUnit XML."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from matrix_making import cell, every_verdict, example, hostile, large

from vllm_mods import __version__
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Verdict
from vllm_mods.matrices.cell import CellProblem, MatrixResult
from vllm_mods.report import html, junit, matrix_forms, matrix_grid, matrix_markdown
from vllm_mods.report.matrix_forms import FORMS
from vllm_mods.report.text import between

if TYPE_CHECKING:
    from matrix_making import Make


# --- what they have in common -------------------------------------------------------------------


@pytest.mark.parametrize("report", FORMS)
@pytest.mark.parametrize("make", [example, hostile])
def test_a_report_is_a_function_of_the_matrix(report: str, make: Make) -> None:
    first, second = (FORMS[report](make()) for _ in range(2))
    assert first == second
    assert first.endswith("\n")
    first.encode()  # half a surrogate pair could not be written to a file


@pytest.mark.parametrize("report", FORMS)
def test_an_empty_matrix_is_reported(report: str) -> None:
    assert "0 mods on 0 vLLM trees" in html.render(MatrixResult(()))
    assert FORMS[report](MatrixResult(())).endswith("\n")


def test_spans_name_stretches_and_trees_that_the_matrix_does_not_have() -> None:
    of = matrix_grid.grid(MatrixResult(tuple(cell("m", f"0.{n}.0") for n in range(5))))
    said = matrix_grid.spans(of, ("pypi:0.0.0", "pypi:0.1.0", "pypi:0.4.0", "wheel:x"))
    assert said == "0.0.0 to 0.1.0, 0.4.0, wheel:x"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("/c",), "/c"),
        (("0.9.0", "0.9.0 build 1", "0.10.0"), "0.9.0 to 0.10.0"),
        (("0.10.0", "0.9.0"), "0.10.0, 0.9.0"),
        (("0.9.0 build 0", "0.9.0"), "0.9.0 build 0, 0.9.0"),
        (("0.9.0", "/c", "/a"), "0.9.0, /c, /a"),
    ],
)
def test_a_range_is_of_versions_in_their_order(labels: tuple[str, ...], said: str) -> None:
    assert between(labels) == said


# --- text ---------------------------------------------------------------------------------------


def test_neighbours_that_say_the_same_are_one_line() -> None:
    cells = [cell("m", f"0.{n}.0", "moved", offsets=(n - 2,)) for n in range(4)]
    cells.append(cell("m", "0.4.0", "conflict", meant=False))
    text = matrix_forms.text(MatrixResult(tuple(cells)))
    assert text.splitlines()[3:6] == [
        "m 1.0.0",
        "  0.0.0 to 0.3.0  moved          variant one, by -2 to +1 lines",
        "  0.4.0           (conflict)     variant one",
    ]


def test_what_lies_beside_is_said_with_its_versions() -> None:
    cells = [
        cell(version=f"0.2{at}.0", packages=(("transformers", version),))
        for at, version in enumerate(("5.10.0", "5.9.0", "5.10.0"))
    ]
    text = matrix_forms.text(MatrixResult(tuple(cells)))
    assert "0.20.0 to 0.22.0  applies        variant one, with transformers 5.9.0 to 5.10.0" in text


def test_text_is_a_block_for_each_mod_the_problems_and_why_each_bad_cell_is_bad() -> None:
    assert (
        matrix_forms.text(example())
        == """\
2 mods on 4 vLLM trees, 0.19.1 to 0.22.0
(in brackets: outside the mod's range)

good 1.0.0
  0.19.1  applies        variant one
  0.20.0  moved          variant one, by -1 to +2 lines
  0.21.0  (upstream)     variant one
  0.22.0  applies        variant two

bad 1.0.0
  0.19.1  (unsupported)
  0.20.0  applies        variant one
  0.21.0  conflict       variant one
  0.22.0  unknown

problems of ranges and locks
  bad on 0.21.0: says `>=0.20`, and is conflict [range-too-wide]

bad on 0.21.0: conflict
  hunk 1: its text is not in the file; nearest is line 3 [text]

bad on 0.22.0: unknown
  hunk 1: its text is not in the file; nearest is line 3 [text]

2 of 6 cells should work, but do not.
"""
    )


@pytest.mark.slow
def test_text_fits_80_columns_however_many_mods_and_releases() -> None:
    text = matrix_forms.text(large(30, 200))
    assert max(map(len, text.splitlines())) <= 80


def test_colour_does_not_move_the_columns() -> None:
    def paint(verdict: Verdict) -> str:
        return f"\033[1m{verdict.value}\033[0m"

    plain = matrix_forms.text(example())
    assert (
        matrix_forms.text(example(), paint=paint).replace("\033[1m", "").replace("\033[0m", "")
        == plain
    )


# --- JSON ----


def test_json_has_every_field_of_a_cell_and_the_problems() -> None:
    whole = example()
    last = whole.cells[5]._replace(packages=(("transformers", "5"),))
    expected = json.loads(FORMS["json"](whole._replace(cells=(last,))))
    assert expected == {
        "schema": 1,
        "cells": [
            {
                "mod": "bad",
                "version": "0.21.0",
                "tree": "pypi:0.21.0",
                "variant": "one",
                "verdict": "conflict",
                "in_range": True,
                "computed": True,
                "packages": {"transformers": "5"},
                "left_out": [],
                "findings": [one._asdict() for one in last.findings],
            }
        ],
        "problems": [one._asdict() for one in whole.problems],
    }


# --- Markdown -----------------------------------------------------------------------------------


def columns(line: str) -> int:
    """Count the cells of a row as GFM does: a ``|`` with a backslash does not part them."""
    return len(re.split(r"(?<!\\)\|", line)) - 2


@pytest.mark.parametrize("make", [example, hostile])
def test_every_row_of_a_markdown_table_has_the_columns_of_its_head(make: Make) -> None:
    blocks = matrix_markdown.render(make()).split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) == 1
    for table in tables:
        assert {columns(line) for line in table} == {columns(table[0])}


def test_markdown_has_nothing_of_others_outside_code() -> None:
    text = matrix_markdown.render(hostile())
    fenced = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", fenced)
    for word in ("alert", "@here", "<script", "<!--"):
        assert word in text
        assert word not in spans


def test_markdown_is_a_summary_a_table_the_problems_and_the_findings() -> None:
    head, _, foot = matrix_markdown.render(example()).partition("\n\n<sub>")
    assert foot == (
        f"vllm-mods {__version__}. In the mod's range: ✓ applies, or is applied · ✗ does not apply · "
        "? not computed. (In brackets): outside the range.</sub>\n"
    )
    assert (
        head
        == """\
**2 of 6 cells should work, but do not.** 2 mods on 4 vLLM trees, 0.19.1 to 0.22.0.

| mod | vLLM | verdict |  |
| --- | --- | --- | --- |
| `good` `1.0.0` | 0.19.1 | ✓ applies | variant one |
|  | 0.20.0 | ✓ moved | variant one, by -1 to +2 lines |
|  | 0.21.0 | (upstream) | variant one |
|  | 0.22.0 | ✓ applies | variant two |
| `bad` `1.0.0` | 0.19.1 | (unsupported) |  |
|  | 0.20.0 | ✓ applies | variant one |
|  | 0.21.0 | ✗ **conflict** | variant one |
|  | 0.22.0 | ? **unknown** |  |

### Problems of ranges and locks

* ``bad on 0.21.0: says `>=0.20`, and is conflict [range-too-wide]``

### What does not apply

`bad` on 0.21.0: ✗ **conflict**

```text
hunk 1: its text is not in the file; nearest is line 3 [text]
```

`bad` on 0.22.0: ? **unknown**

```text
hunk 1: its text is not in the file; nearest is line 3 [text]
```"""
    )


def test_each_sign_of_markdown_is_what_the_legend_says() -> None:
    result = every_verdict()
    lines = matrix_markdown.render(result).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("|")]
    for mod in ("meant", "other"):
        start = next(at for at, row in enumerate(rows) if f"`{mod}`" in row[0])
        own = [one for one in result.cells if one.mod == mod]
        for row, one in zip(rows[start:], own, strict=False):
            sign = ("✓" if one.verdict.ok else "✗") if one.computed else "?"
            assert row[2].replace("*", "") == (
                f"{sign} {one.word}" if one.meant else f"({one.word})"
            )
    legend = "✓ applies, or is applied · ✗ does not apply · ? not computed. (In brackets): outside the range."
    assert legend in lines[-1]


def test_an_optional_patch_that_is_left_out_is_in_its_cell_and_parts_the_run() -> None:
    cells = [
        cell(version=f"0.2{at}.0", left_out=("one/extra.patch",) * (at > 1)) for at in range(4)
    ]
    result = MatrixResult(tuple(cells))
    assert matrix_forms.text(result).splitlines()[3:5] == [
        "  0.20.0 to 0.21.0  applies        variant one",
        "  0.22.0 to 0.23.0  applies        variant one, without one/extra.patch",
    ]
    markdown = matrix_markdown.render(result)
    assert "| 0.22.0 to 0.23.0 | ✓ applies | `variant one, without one/extra.patch` |" in markdown
    assert json.loads(FORMS["json"](result))["cells"][3]["left_out"] == ["one/extra.patch"]
    page = html.render(result)
    assert page.count("applies, without an optional patch</span>") == 2
    assert page.count('"without":["one/extra.patch"]') == 2


# --- JUnit --------------------------------------------------------------------------------------


def outcomes(text: str) -> dict[str, str]:
    root = ET.fromstring(text)  # noqa: S314  (our own)
    return {
        case.get("name") or "": next(
            (child.tag for child in case if child.tag != "system-out"), "passed"
        )
        for case in root.iter("testcase")
    }


def test_a_cell_is_a_test_case() -> None:
    text = junit.render(example())
    assert outcomes(text) == {
        "good on vLLM 0.19.1": "passed",
        "good on vLLM 0.20.0": "passed",
        "good on vLLM 0.21.0": "passed",
        "good on vLLM 0.22.0": "passed",
        "bad on vLLM 0.19.1": "skipped",
        "bad on vLLM 0.20.0": "passed",
        "bad on vLLM 0.21.0": "failure",
        "bad on vLLM 0.22.0": "error",
    }
    bad = ET.fromstring(text).findall("testsuite")[1]  # noqa: S314
    counts = [bad.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "1", "1"]
    assert "[range-too-wide]" in (bad.findtext("system-out") or "")


def test_each_finding_of_a_case_is_a_line_behind_what_the_verdict_means() -> None:
    texts = tuple(Finding(FindingCode.TEXT, f"hunk {n} is lost") for n in (1, 2))
    bad = cell("m", "0.20.0", "conflict", findings=texts)
    fine = cell("m", "0.21.0", "moved", offsets=(2,), findings=texts)
    root = ET.fromstring(junit.render(MatrixResult((bad, fine))))  # noqa: S314
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.attrib == {
        "message": "conflict: the source does not match the patch, or another mod excludes this one",
        "type": "conflict",
    }
    assert failure.text == "hunk 1 is lost [text]\nhunk 2 is lost [text]"
    assert root.findtext(".//system-out") == (
        "moved: every hunk matches, at another line\nvariant one, by +2 lines\n"
        "hunk 1 is lost [text]\nhunk 2 is lost [text]"
    )
    suite = root.find("testsuite")
    assert suite is not None
    assert (root.attrib, suite.get("name")) == ({"name": "vllm-mods matrix"}, "m 1.0.0")


def test_what_cannot_be_read_is_an_error_also_where_no_range_names_it() -> None:
    unread = cell("m", "0.20.0", "unreadable", meant=False)
    assert outcomes(junit.render(MatrixResult((unread,)))) == {"m on vLLM 0.20.0": "error"}


def test_junit_is_xml_whatever_is_in_it() -> None:
    root = ET.fromstring(junit.render(hostile()))  # noqa: S314
    shown = "</script><script>alert(1)</script>|`@here` \ufffd\ufffd\ufffd<!--&amp;"
    assert (root.findtext(".//failure") or "") == f"{shown} [text]"
    every = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF, 0xD800)))
    strange = cell("m", "0.20.0", "conflict", findings=(Finding(FindingCode.TEXT, every),))
    ET.fromstring(junit.render(MatrixResult((strange,))))  # noqa: S314


def test_a_dot_in_the_name_of_a_mod_makes_no_package() -> None:
    text = junit.render(MatrixResult((cell("qwen3.5", "0.20.0"),)))
    assert 'classname="vllm-mods.qwen3_5"' in text


def test_problems_that_differ_in_the_tree_only_are_one() -> None:
    said = "a range of m includes vLLM {0} (pypi:{0}), where its verdict is `conflict`"
    versions = ("0.9.0", "0.10.0", "0.12.0")
    found = [
        CellProblem(FindingCode.RANGE_TOO_WIDE, "m", f"pypi:{one}", said.format(one))
        for one in versions
    ]
    found += [
        CellProblem(FindingCode.NEEDLESS, "m", None, f"it can go {number}") for number in (1, 2)
    ]
    cells = tuple(cell("m", f"0.{minor}.0") for minor in range(9, 13))
    result = MatrixResult(cells, tuple(found))
    of = matrix_grid.grid(result)
    assert [matrix_grid.problem(of, one) for one in matrix_grid.problems(result)] == [
        f"m on 0.9.0 to 0.10.0, 0.12.0: {said.format('0.9.0')} [range-too-wide]",
        "m: it can go 1 [needless]",
        "m: it can go 2 [needless]",
    ]
