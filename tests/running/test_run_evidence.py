"""Whether a mod's code ran, by what a server said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.model import Mod
from vllm_mods.library.catalog import Library
from vllm_mods.running import evidence

if TYPE_CHECKING:
    from pathlib import Path

HYBRID = b"(EngineCore pid=9) INFO [inc_hybrid_fp8.py:300] Hybrid INT4+FP8: 18 FP8 layers in /m, blocks of 128x128\n"
TRITON = b"INFO 01-01 [gdn.py:1] Using Triton/FLA GDN prefill kernel\n"
WITHOUT = b"INFO GDN prefill goes without FlashQLA: the package flash-qla is not installed.\n"
CHOSEN = b"INFO FlashQLA is chosen for GDN prefill (requested=auto)\n"
RUNS = b"INFO FlashQLA computes GDN prefill: 16 key heads, 64 value heads\n"
LATER = b"INFO Using FlashInfer GDN prefill kernel (requested=auto, head_k_dim=128).\n"


def of(name: str, log: bytes) -> tuple[str, str | None]:
    (found,) = evidence.of_mods([Library().load(name)], log)
    return found.state, found.text


@pytest.mark.parametrize(
    ("name", "log", "said"),
    [
        ("hybrid-int4-fp8", HYBRID, ("ran", "Hybrid INT4+FP8: 18 FP8 layers")),
        (
            "hybrid-int4-fp8",
            b"INFO Hybrid INT4+FP8: no FP8 layers in /m, nothing changes\n",
            ("other", "Hybrid INT4+FP8: no FP8 layers in /m, nothing changes"),
        ),
        ("hybrid-int4-fp8", TRITON, ("silent", None)),
        ("flashqla", CHOSEN + RUNS, ("ran", RUNS.decode().strip().removeprefix("INFO "))),
        ("flashqla", CHOSEN, ("silent", None)),
        ("flashqla", TRITON, ("other", "Using Triton/FLA GDN prefill kernel")),
        ("flashqla", LATER, ("other", "Using FlashInfer GDN prefill kernel")),
        ("flashqla", WITHOUT + TRITON, ("other", WITHOUT.decode().strip().removeprefix("INFO "))),
        ("flashqla", TRITON + RUNS, ("ran", RUNS.decode().strip().removeprefix("INFO "))),
        ("flashqla", b"\xff\xfe\0" * 99, ("silent", None)),
    ],
)
def test_the_bundled_mods_are_seen_by_what_vllm_says(
    name: str, log: bytes, said: tuple[str, str | None]
) -> None:
    assert of(name, log) == said


def test_a_log_does_not_tell_of_a_template() -> None:
    state, text = of("qwen3.5-enhanced", HYBRID)
    assert state == "untold"
    assert "POST /tokenize" in (text or "")


def test_what_runs_beside_the_matching_is_not_what_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    mod = Mod("m", "1", "s", "MIT", "", "", evidence=(("log", "a.c"),))
    assert evidence.of_mods([mod], b"xabcx")[0].text == "abc"
