"""``check --format`` and ``lint --format``: the same answer and exit code, as a CI reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


@pytest.mark.parametrize("form", ["text", "github"])
def test_the_exit_code_is_that_of_the_text(
    call: Call, site: Path, tmp_path: Path, form: str
) -> None:
    (tmp_path / "bad.sh").write_text("patch < x || true\n")
    (tmp_path / "good.sh").write_text("true\n")
    check = ("check", "fast", "--target", site, "--format", form)
    assert call(*check).code == 0
    (site / "vllm/loader.py").write_text("gone\n")
    assert call(*check).code == 1
    assert call("lint", tmp_path / "bad.sh", "--format", form).code == 1
    assert call("lint", tmp_path / "good.sh", "--format", form).code == 0


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
        "::missing: what it changes is gone"
    )
    assert f"title=fast 1.0.0%3A {first['code']}::vllm/loader.py" in lines[1]
    assert first["message"].split("\n")[0] in lines[1]


def test_what_lint_finds_has_its_file_and_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.sh").write_text("#!/bin/bash\nset -e\npatch < x || true\n")
    answer = call("lint", "a,b.sh", "--format", "github")
    assert answer.out.startswith("::error file=a%2Cb.sh,line=3,title=fail-open::`patch` may fail")


def test_two_answers_at_once_are_refused(call: Call, site: Path) -> None:
    answer = call("check", "fast", "--target", site, "--json", "--format", "github")
    assert answer.code == 2
    assert "--json and --format github are two answers" in answer.err
    assert call("lint", site, "--json", "--format", "github").code == 2
