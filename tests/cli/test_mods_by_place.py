"""``check`` and ``diff`` take a mod by its folder, and a patch alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

CHANGE = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["mine.patch", "./mine.diff", "sub/2026 Fix.patch"])
def test_a_patch_is_a_mod_without_a_name(call: Call, site: Path, here: Path, name: str) -> None:
    (site / "vllm/a.py").write_text("A = 1\n")
    (here / "sub").mkdir()
    (here / name).write_bytes(CHANGE)
    answer = call("check", name, "--target", site)
    assert (answer.code, answer.err) == (0, "")
    assert "applies: every hunk matches at its stated line" in answer.out
    assert "+A = 2" in call("diff", name, "--target", site).out


def test_github_shows_a_patch_at_itself(call: Call, site: Path, here: Path) -> None:
    (site / "vllm/a.py").write_text("A = 5\n")
    (here / "mine.patch").write_bytes(CHANGE)
    answer = call("check", "mine.patch", "--target", site, "--format", "github")
    assert answer.out.startswith("::error file=mine.patch,title=mine%3A conflict::")


def test_a_patch_that_does_not_fit_leads_to_a_mod_that_can_be_ported(
    call: Call, site: Path, here: Path
) -> None:
    (site / "vllm/a.py").write_text("A = 5\n")
    (here / "my fix.patch").write_bytes(CHANGE)
    answer = call("check", "my fix.patch", "--target", site)
    assert answer.code == 1
    assert "hunk 1 of my fix.patch" in answer.out
    assert "vllm-mods new my-fix --from-diff 'my fix.patch' --tree auto" in answer.err


def test_a_patch_with_several_places_leads_to_the_release_that_it_was_made_on(
    call: Call, site: Path, here: Path
) -> None:
    (site / "vllm/a.py").write_text("def f():\n    x = 1\n\n\ndef g():\n    x = 1\n")
    (here / "x.patch").write_text(
        "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -9 +9 @@\n-    x = 1\n+    x = 2\n"
    )
    answer = call("check", "x.patch", "--target", site)
    assert "hint: vllm-mods new x --from-diff x.patch --tree pypi:VERSION" in answer.err


def test_the_folder_of_a_mod_needs_no_dot_in_front(
    call: Call, library: Path, site: Path, here: Path
) -> None:
    shutil.copytree(library / "patches/fast", here / "mods/fast")
    assert call("check", "mods/fast", "--target", site).code == 0
    assert "there is no mod named `mods/gone`" in call("check", "mods/gone", "--target", site).err


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("vllm/a.py", "A = (\n"),
        ("vllm/a.py", "from vllm.b import gone\n"),
        ("vllm/never.py", "A = 2\n"),
    ],
)
def test_a_patch_that_no_port_helps_is_not_led_to_one(
    call: Call, site: Path, here: Path, path: str, after: str
) -> None:
    (site / "vllm/a.py").write_text("A = 1\n")
    (here / "my.patch").write_bytes(diff_of(path, "A = 1\n", after))
    answer = call("check", "my.patch", "--target", site)
    assert answer.code == 1
    assert "--from-diff" not in answer.err
    assert "hint: vllm-mods explain fi" in answer.err  # file-gone, fit-…


def test_the_folder_of_a_mod_stands_for_it(call: Call, library: Path, site: Path) -> None:
    answer = call("check", f"{library}/patches/fast", "--target", site)
    assert answer.code == 0
    assert "fast 1.0.0  applies" in answer.out


def test_a_folder_outside_of_a_library_is_told_where_it_belongs(
    call: Call, library: Path, site: Path, here: Path
) -> None:
    shutil.copytree(library / "patches/fast", here / "fast")
    (site / "vllm/loader.py").write_text("gone = 1\n")
    answer = call("check", "./fast", "--target", site)
    assert answer.code == 1
    assert "hint: move it to LIBRARY/patches/fast" in answer.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.patch", "gone.patch: no such file or folder"),
        ("./gone", "./gone: no such file or folder"),
        ("./empty", "./empty is a folder without a mod.toml"),
        ("./prose.patch", "./prose.patch:1: this file contains no diff"),
    ],
)
def test_what_is_no_mod_is_said(
    call: Call, site: Path, here: Path, name: str, message: str
) -> None:
    (here / "empty").mkdir()
    (here / "prose.patch").write_text("hello\n")
    answer = call("check", name, "--target", site)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {message}")


def test_what_goes_into_a_vllm_has_a_name(call: Call, site: Path, here: Path) -> None:
    (here / "mine.patch").write_bytes(CHANGE)
    answer = call("apply", "mine.patch", "--target", site)
    assert answer.code == 2
    assert "mine.patch is a path; `apply` takes the name of a mod" in answer.err
    assert (
        "hint: vllm-mods new mine --from-diff mine.patch --tree auto --library mods" in answer.err
    )
    (here / "elsewhere/mine").mkdir(parents=True)
    answer = call("apply", "./elsewhere/mine", "--target", site)
    assert "hint: move it to LIBRARY/patches/mine, then give mine" in answer.err


def test_a_folder_in_a_library_is_applied_by_the_command_that_the_hint_names(
    call: Call, library: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    answer = call("apply", f"{library}/patches/fast/", "--target", site)
    assert answer.code == 2
    assert f"hint: vllm-mods apply fast --library {library}" in answer.err
    assert call("apply", "fast", "--library", library, "--target", site).code == 0


def test_two_patches_of_one_name_are_not_taken_for_one(call: Call, site: Path, here: Path) -> None:
    (site / "vllm/a.py").write_text("A = 1\n")
    for folder, after in (("one", "A = 2\n"), ("two", "A = 3\n")):
        (here / folder).mkdir()
        (here / folder / "fix.patch").write_bytes(diff_of("vllm/a.py", "A = 1\n", after))
    answer = call("check", "one/fix.patch", "two/fix.patch", "--target", site)
    assert (answer.code, answer.out) == (2, "")
    assert "two of these mods are named fix, and a tree can hold only one of them" in answer.err
    assert call("check", "one/fix.patch", "./one/fix.patch", "--target", site).code == 0
