"""``explain`` says what the words mean that commands end with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Verdict
from vllm_mods.report.text import MEANING
from vllm_mods.report.words import NEXT, code_groups, does, endings, findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

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
    assert not [one for one in endings() if "``" in one.meaning]


def test_of_another_word_the_nearest_is_named(call: Call) -> None:
    answer = call("explain", "conflct")
    assert answer.code == 2
    assert "hint: vllm-mods explain conflict" in answer.err
    far = call("explain", "nosuch")
    assert far.code == 2
    assert "hint: vllm-mods explain WORD" in far.err


def test_the_code_of_every_finding_is_explained() -> None:
    entries = {entry.word: entry for entry in findings()}
    assert entries.keys() == set(FindingCode)
    for group in code_groups().values():
        for code, meaning in group.codes.items():
            entry = entries[code]
            assert (entry.meaning, entry.kind) == (meaning, f"finding of {group.commands}")
            assert (ROOT / group.page).is_file()


def test_a_code_is_printed_with_its_next_step(call: Call) -> None:
    assert call("explain", "json-key-unused").out == (
        "json-key-unused (finding of serve-check): vLLM or the chat template ignores a key of a flag's JSON object.\n"
    )
    assert call("explain", "stale-lock").err == "\nhint: vllm-mods matrix MOD --update-lock\n"
    assert call("explain", "offset").err == ""


def test_a_word_that_is_a_verdict_too_is_explained_as_one(call: Call) -> None:
    assert call("explain", "conflict").out.startswith("conflict (verdict)")
    assert call("explain", "unreadable").out.startswith("unreadable (verdict)")
    assert "hint: vllm-mods explain fit-call\n" in call("explain", "fit-cal").err
