"""A variant carried over release by release: what a release between has is asked of the target again."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_ports import PATH, ported

from vllm_mods.api.port import PortResult
from vllm_mods.porting.writing import lay_out
from vllm_mods.report import port as report

BASE = "def load(path):\n    return open(path)\n"
MOD = BASE.replace("open(path)", "open(path).read()")
AGAIN = BASE.replace("open(path)", "open(path, 'rb')")


@pytest.mark.slow
def test_what_only_a_release_between_had_is_not_in_the_target(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, MOD, AGAIN)
    assert not outcome.carried
    assert outcome.left


@pytest.mark.slow
def test_what_came_into_a_release_between_and_changed_since_is_left_to_a_person(
    tmp_path: Path,
) -> None:
    outcome = ported(tmp_path, BASE, MOD, MOD, MOD.replace("open(path)", "open(path, 'rb')"))
    assert outcome.left
    assert outcome.steps == ("0.21.0",)


@pytest.mark.slow
def test_no_part_of_a_change_is_lost_on_the_way(tmp_path: Path) -> None:
    space = "\n\n\n"
    base = f"LIMIT = 1\n{space}{BASE}{space}DEPTH = 1\n"
    changed = base.replace("= 1", "= 2")
    took = base.replace("LIMIT = 1", "LIMIT = 2")
    back = base.replace("LIMIT = 1", "LIMIT = 1 + 7")
    assert not ported(tmp_path, base, changed, took, back).clean


def renamed_and_rewritten() -> tuple[str, str, str, str, str]:
    """Return a file, what a mod makes of it, and three releases: one renames what the next ones rewrite."""
    body = [f"    step_{n}(path, {n})\n" for n in range(12)]
    near = "\n\ndef close(path):\n    return path.close()\n"
    base = "def load(path):\n" + "".join(body) + near
    changed = base.replace("step_5(path, 5)", "step_5(path, 5, fast=True)").replace(
        "path.close()", "path.close(now=True)"
    )
    renamed = base.replace("def load(path)", "def load_weights(path)")
    other = [line if 4 <= n <= 6 else f"    other_{n}()\n" for n, line in enumerate(body)]
    rewritten = "def load_weights(path):\n" + "".join(other) + near
    clashing = rewritten.replace("path.close()", "path.shut()")
    return base, changed, renamed, rewritten, clashing


@pytest.mark.slow
def test_what_the_steps_have_solved_is_not_left_to_a_person(tmp_path: Path) -> None:
    base, changed, renamed, rewritten, clashing = renamed_and_rewritten()
    direct = ported(tmp_path / "direct", base, changed, clashing)
    assert [one.scope for one in direct.files[0].ported.problems] == ["load", "close"]
    for releases, steps in (
        ((renamed, rewritten, clashing), ("0.21.0", "0.22.0")),
        ((renamed, clashing, clashing), ("0.21.0",)),  # the steps end before the target
    ):
        outcome = ported(tmp_path / str(len(steps)), base, changed, *releases)
        assert (outcome.left, outcome.steps) == (True, steps)
        (file,) = outcome.files
        assert [one.scope for one in file.ported.problems] == ["close"]
        work = lay_out(outcome)
        assert work is not None
        text = Path(work.edited(PATH)).read_text()
        assert "step_5(path, 5, fast=True)" in text.partition("<<<<<<<")[0]
        assert "path.close(now=True)" in text
        assert f"vLLM {steps[-1]}" in text  # what the lines in the middle are of
        words = report.ported(PortResult(outcome, unfinished=work)).words or ""
        assert f"a port to {steps[-1]} would need no edits" in words


@pytest.mark.slow
def test_steps_that_solve_nothing_more_leave_the_jump_as_it_is(tmp_path: Path) -> None:
    base, changed, _, _, _ = renamed_and_rewritten()
    clashing = base.replace("path.close()", "path.shut()")
    outcome = ported(tmp_path, base, changed, f"{base}\n\nA = 1\n", clashing)
    assert outcome.steps == ("0.21.0",)
    assert outcome.changes[0].before == base.encode()


SPACED = f"import os\n\n\n{BASE}"


@pytest.mark.slow
def test_a_port_that_goes_in_is_a_variant_more_in_the_manifest(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, SPACED)
    assert (outcome.clean, outcome.fits, outcome.left, outcome.carried) == (
        True,
        True,
        False,
        False,
    )
    assert (outcome.steps, outcome.origin, dict(outcome.homes)) == ((), "0.20.0", {PATH: PATH})
    assert outcome.new is not None
    assert outcome.left_places == (0, 0, 0)
    assert sorted(outcome.new.files) == ["mod.toml", "new/x.patch"]
    manifest = outcome.new.files["mod.toml"].decode()
    assert manifest.endswith(
        "\n\n# Ported from `a` (vLLM 0.20.0) to vLLM 0.21.0.\n[[variant]]\n"
        'id = "new"\nvllm = ">=0.21"\npatches = ["new/x.patch"]\n'
    )
    (cut,) = outcome.cuts
    assert (cut.path, cut.before, cut.after) == (
        *(PATH, SPACED.encode()),
        SPACED.replace("open(path)", "open(path).read()").encode(),
    )
    assert outcome.repaired == ()


def test_what_the_target_has_already_needs_no_variant(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, MOD)
    assert (outcome.carried, outcome.clean, outcome.new, outcome.cuts) == (True, True, None, ())
    assert not outcome.left


@pytest.mark.slow
def test_what_is_left_is_counted_by_whether_a_marker_shows_it(tmp_path: Path) -> None:
    clashes = ported(tmp_path / "a", BASE, MOD, AGAIN)
    assert (clashes.left_places, clashes.fits, clashes.removed) == ((0, 1, 0), False, ())
    gone = ported(tmp_path / "b", f"{BASE}\n\nA = 1\n", f"{MOD}\n\nA = 1\n", "A = 1\n")
    assert gone.left_places == (1, 0, 0)


@pytest.mark.slow
def test_what_was_merged_and_would_not_work_is_left_with_its_errors(tmp_path: Path) -> None:
    base = f"def assist(path):\n    return path\n\n\n{BASE}"
    outcome = ported(tmp_path, base, base.replace("open(path)", "assist(path)"), BASE)
    assert outcome.new is not None
    assert outcome.new.planned.verdict == "unfit"
    assert (outcome.clean, outcome.fits, outcome.left) == (True, False, True)
    assert outcome.left_places == (0, 0, 1)


def test_steps_between_are_asked_only_where_something_is_left(tmp_path: Path) -> None:
    assert ported(tmp_path / "a", BASE, MOD, AGAIN, SPACED).steps == ()
