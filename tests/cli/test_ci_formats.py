"""``check --format``: the same answer and exit code, as a CI reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


@pytest.mark.parametrize("form", ["text", "github"])
def test_the_exit_code_is_that_of_the_text(call: Call, site: Path, form: str) -> None:
    check = ("check", "fast", "--target", site, "--format", form)
    assert call(*check).code == 0
    (site / "vllm/loader.py").write_text("gone\n")
    assert call(*check).code == 1


def test_a_mod_that_does_not_fit_is_shown_at_its_manifest(
    call: Call, site: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "vllm/loader.py").write_text("gone\n")
    monkeypatch.chdir(library)
    found = call("check", "fast", "limit", "--target", site, "--json").json
    first = found["mods"][0]["findings"][0]
    lines = call("check", "fast", "limit", "--target", site, "--format", "github").out.splitlines()
    assert lines[0] == (
        "::error file=patches/fast/mod.toml,title=fast 1.0.0%3A missing"
        "::missing: a file, class or function that the mod changes is not in this tree"
    )
    assert f"title=fast 1.0.0%3A {first['code']}::vllm/loader.py" in lines[1]
    assert first["message"].split("\n")[0] in lines[1]


def test_json_comes_before_another_form(call: Call, site: Path) -> None:
    arguments = ("check", "fast", "--target", site, "--json")
    assert call(*arguments, "--format", "github").out == call(*arguments).out
