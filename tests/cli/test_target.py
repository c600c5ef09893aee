"""Without --target, a command takes what is named in the environment, else the one vLLM that is active."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES
from small_site import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

COMMANDS = (["check", "fast"], ["apply", "fast"], ["status"], ["verify"], ["revert"])


@pytest.fixture
def active(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the site root of the only environment that is active."""
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "VLLM_MODS_TARGET"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "venv/lib/python3.12/site-packages"
    place.parent.mkdir(parents=True)
    site.rename(place)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    return place


@pytest.mark.slow
def test_the_one_vllm_that_is_active_is_taken_and_named(call: Call, active: Path) -> None:
    for words in COMMANDS:
        answer = call(*words, "--json")
        assert (answer.code, answer.json["tree"]["spec"]) == (0, str(active)), words
        assert answer.err.startswith(f"note: --target {active}: the vLLM of the active"), words
    assert not (active / ".vllm-mods").exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_of_several_none_is_taken(
    words: list[str], call: Call, active: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conda = build(tmp_path / "conda/lib/python3.12/site-packages", FILES)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    answer = call(*words)
    assert answer.code == 2
    assert f"several vLLMs: {active}, {conda}" in answer.err
    typed = " ".join(word for word in words if word in {words[0], "fast"})  # the mod stays
    assert f"hint: vllm-mods {typed} --target {active}" in answer.err


@pytest.mark.slow
def test_one_that_is_not_active_is_named_and_not_taken(
    call: Call, active: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "empty"))
    program = tmp_path / "venv/bin/python3"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    answer = call("apply", "fast")
    assert answer.code == 2
    assert f"the active environment has no vLLM; vLLM is installed in {active}" in answer.err
    assert f"hint: vllm-mods apply fast --target {active}" in answer.err
    monkeypatch.delenv("VIRTUAL_ENV")  # its python3 is what one would type
    assert call("status", "--json").json["tree"]["spec"] == str(active)


@pytest.mark.slow
def test_what_the_environment_names_is_taken_first_and_an_option_before_it(
    call: Call, active: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = build(tmp_path / "named", FILES)
    monkeypatch.setenv("VLLM_MODS_TARGET", str(named))
    for words in (["status"], ["verify"], ["revert"]):
        assert call(*words, "--json").json["tree"]["spec"] == str(named)
        assert call(*words, "--json", "--target", active).json["tree"]["spec"] == str(active)
    assert call("doctor", "--json").json["target"]["spec"] == str(named)
