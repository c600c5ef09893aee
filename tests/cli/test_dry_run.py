"""``apply --dry-run`` says what apply would, ends as it would, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.site import journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


def everything(site: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(one): (
            one.read_bytes() if one.is_file() else b"",
            one.stat().st_mode,
            one.stat().st_mtime_ns,
        )
        for one in [site, *site.rglob("*")]
    }


def test_it_says_what_apply_then_does_and_writes_nothing(call: Call, site: Path) -> None:
    before = everything(site)
    words = ("apply", "fast", "limit", "--target", site)
    told = call(*words, "--dry-run")
    as_data = call(*words, "--dry-run", "--json").json
    assert everything(site) == before
    done = call(*words, "--json")
    assert (told.code, done.code) == (0, 0)
    assert as_data == {**done.json, "dry_run": True}
    assert done.json["dry_run"] is False
    assert f"{len(done.json['changed'])} files would be changed" in told.out
    assert all(path in told.out for path in done.json["changed"])
    again = call(*words, "--dry-run")
    assert (again.code, "nothing to do" in again.out) == (0, True)


def test_what_does_not_fit_is_refused_as_by_apply(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").write_text("gone\n")
    words = ("apply", "fast", "--target", site)
    told, done = call(*words, "--dry-run"), call(*words)
    assert (told.code, told.out, told.err) == (done.code, done.out, done.err)
    assert told.code == 3


def test_what_cannot_be_written_is_refused_as_by_apply(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").rename(site / "elsewhere.py")
    (site / "vllm/loader.py").symlink_to(site / "elsewhere.py")
    words = ("apply", "fast", "--target", site)
    told, done = call(*words, "--dry-run"), call(*words)
    assert (told.code, told.err) == (done.code, done.err)
    assert told.code == 3


@pytest.mark.parametrize("spec", ["pypi:0.21.0", "nowhere"])
def test_a_target_that_apply_does_not_take_is_not_taken(call: Call, spec: str) -> None:
    words = ("apply", "fast", "--target", spec)
    told, done = call(*words, "--dry-run"), call(*words)
    assert (told.code, told.err) == (done.code, done.err)
    assert told.code == 2


def test_a_tree_with_an_interrupted_run_is_left_as_it_is(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "unfinished", lambda _root: "work")
        before = everything(site)
        told = call("apply", "limit", "--target", site, "--dry-run")
    assert told.code == 3
    assert "an earlier run was interrupted" in told.err
    assert everything(site) == before
