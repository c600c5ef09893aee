"""Whether a mod's code ran, by what a server said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mod_making as making
import pytest
from lowering import lower

from vllm_mods.base.errors import TreeError
from vllm_mods.library.catalog import Library
from vllm_mods.running import evidence
from vllm_mods.running.evidence import Evidence

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = "(EngineCore pid=9) INFO 11-23 10:00:00"
LOADED = f"{ENGINE} [inc_hybrid_fp8.py:400] Hybrid INT4+FP8: block FP8 weights are loaded\n"
NO_LAYERS = "Hybrid INT4+FP8: no FP8 layers in /m, nothing changes"
TRITON = f"{ENGINE} [gdn_linear_attn.py:1] Using Triton/FLA GDN prefill kernel\n"
NONE = "GDN prefill goes without FlashQLA: the package flash-qla is not installed."
WITHOUT = f"{ENGINE} [flashqla_prefill.py:77] {NONE}\n"
CHOSEN = f"{ENGINE} [flashqla_prefill.py:78] FlashQLA is chosen for GDN prefill (requested=auto)\n"
COMPUTES = "FlashQLA computes GDN prefill: 16 key heads, 64 value heads"
RUNS = f"{ENGINE} [flashqla_prefill.py:173] {COMPUTES}\n"
LATER = (
    f"{ENGINE} [qwen_gdn_linear_attn.py:1] Using FlashInfer GDN prefill kernel (requested=auto).\n"
)


def of(name: str, log: str) -> tuple[str, str | None]:
    (mod,) = evidence.of_mods([Library().load(name)], log.encode()).mods
    return mod.state, mod.text


@pytest.mark.parametrize(
    ("name", "log", "said"),
    [
        ("hybrid-int4-fp8", LOADED, ("ran", "Hybrid INT4+FP8: block FP8 weights are loaded")),
        (
            "hybrid-int4-fp8",
            f"(APIServer pid=1) INFO 11-23 10:00:00 [inc_hybrid_fp8.py:309] {NO_LAYERS}\n",
            ("other", NO_LAYERS),
        ),
        ("hybrid-int4-fp8", TRITON, ("silent", None)),
        ("flashqla", CHOSEN + RUNS, ("ran", COMPUTES)),
        ("flashqla", CHOSEN, ("silent", None)),
        ("flashqla", TRITON, ("other", "Using Triton/FLA GDN prefill kernel")),
        ("flashqla", LATER, ("other", "Using FlashInfer GDN prefill kernel")),
        ("flashqla", WITHOUT + TRITON, ("other", NONE)),
        ("flashqla", "\xff\0" * 99, ("silent", None)),
    ],
)
def test_the_bundled_mods_are_seen_by_what_vllm_says(
    name: str, log: str, said: tuple[str, str | None]
) -> None:
    assert of(name, log) == said


def test_a_log_does_not_tell_of_a_template() -> None:
    state, text = of("qwen3.5-enhanced", LOADED)
    assert state == "untold"
    assert "POST /tokenize" in (text or "")


def test_what_runs_beside_the_matching_is_not_what_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert of("flashqla", RUNS) == ("ran", COMPUTES)


def judged(text: str, **patterns: str) -> Evidence:
    mod = making.mod(
        making.variant(making.diff_of("vllm/sub/a.py", "A = 1\n", "A = 2\n")),
        evidence=tuple(patterns.items()),
        directory="/m",
    )
    (judgement,) = evidence.of_mods([mod], text.encode()).mods
    return judgement


API = "(APIServer pid=1) INFO 11-23 10:00:00"


@pytest.mark.parametrize(
    ("log", "state", "text"),
    [
        (f"{ENGINE} [a.py:1] it ran 1\n{ENGINE} [a.py:1] it ran 2\n", "ran", "ran 1"),
        (f"{ENGINE} [b.py:1] it ran 1\n", "silent", None),
        (f"{API} [a.py:1] it ran 1\n{ENGINE} [b.py:1] x\n", "silent", None),
        (f"{ENGINE} [a.py:1] it ran 1\n{API} [a.py:1] no, not it\n", "other", "not it"),
        (f"{ENGINE} [b.py:1] not it\n", "other", "not it"),
        (f"{API} [b.py:1] not it\n{ENGINE} [b.py:1] x\n", "silent", None),
    ],
)
def test_a_mod_is_seen_by_its_own_files_in_an_engine(
    log: str, state: str, text: str | None
) -> None:
    expected = Evidence("mod", state, text)
    assert judged(log, log=r"ran \d", instead="not it") == expected
    assert expected.ok is (state == "ran")


def test_without_a_word_for_what_runs_instead_the_log_alone_counts() -> None:
    assert judged(f"{ENGINE} [a.py:1] ran\n", log="ran") == Evidence("mod", "ran", "ran")


@pytest.mark.parametrize("patterns", [{"behaviour": "look"}, {"behaviour": "look", "instead": "x"}])
def test_of_a_mod_without_a_pattern_a_log_does_not_tell(patterns: dict[str, str]) -> None:
    judgement = judged(f"{ENGINE} [a.py:1] x\n", **patterns)
    assert judgement == Evidence("mod", "untold", "look")
    assert judgement.ok


def test_a_server_is_well_if_it_serves_and_nothing_speaks_against_a_mod() -> None:
    start = f"{API} [utils.py:1] vLLM API server version 1\n"
    ready = f"{API} [a.py:1] Starting vLLM API server 0\n"
    for log, is_ready, restarts in (
        ("", False, 0),
        (start, False, 0),
        (3 * start + ready, True, 2),
    ):
        seen = evidence.of_mods([], log.encode())
        assert (seen.ready, seen.restarts, seen.ok) == (is_ready, restarts, is_ready)
    silent = evidence.ServerEvidence((Evidence("mod", "silent", None),), ready=True, restarts=0)
    assert not silent.ok


def test_a_pattern_that_runs_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "EVIDENCE_SECONDS", 0.01)
    with pytest.raises(TreeError) as caught:
        judged(f"{ENGINE} [a.py:1] x\n", log="x")
    why = "searching the log for mod.toml's [evidence] took more than 0.01 seconds"
    assert caught.value.message == f"mod: {why}"
    hint = "use a pattern without nested repeats in /m/mod.toml, or a shorter log"
    assert caught.value.hint == hint


def test_a_pattern_that_is_none_cannot_be_looked_for() -> None:
    with pytest.raises(
        TreeError, match=r"mod: searching the log for mod.toml's \[evidence\] failed"
    ):
        judged(f"{ENGINE} [a.py:1] x\n", log="(")
