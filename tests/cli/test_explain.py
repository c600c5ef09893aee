"""``explain`` says what the words mean that commands end with."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.model import Verdict
from vllm_mods.report.text import MEANING
from vllm_mods.report.words import NEXT, PAGES, does, findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Answer

    Call = Callable[..., Answer]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_is_explained_with_what_to_do(call: Call, verdict: Verdict) -> None:
    answer = call("explain", verdict.value)
    assert answer.code == 0
    assert answer.out.startswith(f"{verdict.value} (verdict): {MEANING[verdict]}\n")
    assert does(verdict) in answer.out
    assert answer.err == f"\nhint: {NEXT[verdict]}\n"


@pytest.mark.parametrize("number", ["0", "1", "2", "3", "4", "70", "130"])
def test_every_exit_code_is_explained(call: Call, number: str) -> None:
    found = call("explain", number, "--json").json
    assert (found["word"], found["kind"]) == (number, "exit code")
    assert found["meaning"] in " ".join(call("--help").out.split())


def test_the_code_of_an_error_is_explained(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").write_text("gone\n")
    error = call("apply", "fast", "--target", site, "--json").json["error"]
    told = call("explain", error["code"], "--json").json
    assert (told["word"], told["kind"], told["follows"]) == ("refused", "error", "exit code 3")


def test_of_another_word_the_nearest_is_named(call: Call) -> None:
    answer = call("explain", "conflct")
    assert answer.code == 2
    assert "hint: vllm-mods explain conflict" in answer.err


@pytest.mark.parametrize(
    ("code", "page", "said"),
    [
        ("fit-call", "fit.md", "Do the arguments of a call bind"),
        (
            "flag-unknown",
            "serve-check.md",
            "`flag-unknown`, `flag-ambiguous`: no flag has this name",
        ),
        ("fail-open", "making.md", "… || true`"),
        ("license-unstated", "making.md", "else no SPDX expression"),
        ("stale-lock", "matrix-answers.md", "`mod.lock` is missing"),
        ("no-vllm", "doctor.md", "`vllm/__init__.py` is empty"),
    ],
)
def test_the_code_of_a_finding_has_the_row_of_its_page(
    call: Call, code: str, page: str, said: str
) -> None:
    answer = call("explain", code)
    assert answer.code == 0
    first, last = answer.out.splitlines()
    assert first.startswith(f"{code} (finding of ")
    assert said in first
    assert last == f"  docs/{page}"


def test_every_page_has_a_table_of_codes_and_the_package_brings_it() -> None:
    found = list(findings())
    assert {one.follows for one in found} == {f"docs/{page}" for page in PAGES.values()}
    brought = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    brought = brought["targets"]["wheel"]["force-include"]
    assert {
        one.follows: f"vllm_mods/_data/{one.follows}" for one in found
    }.items() <= brought.items()


def test_a_word_that_is_a_verdict_too_is_explained_as_one(call: Call) -> None:
    assert call("explain", "conflict").out.startswith("conflict (verdict)")
    assert call("explain", "unreadable").out.startswith("unreadable (verdict)")
    assert "hint: vllm-mods explain fit-call\n" in call("explain", "fit-cal").err
