"""Whether a mod's code ran, by what a server said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.library.catalog import Library
from vllm_mods.running import evidence

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
