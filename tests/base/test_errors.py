"""What errors say, and what they keep of it for whoever handles them."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import (
    DiffError,
    ManifestError,
    Refused,
    TreeError,
    Unreachable,
    UsageError,
    listed,
    refusing,
)


def test_problems_are_counted_and_each_has_a_line() -> None:
    assert listed(["x: is required"]) == "1 problem\n  x: is required"
    assert listed(["a", "b"]) == "2 problems\n  a\n  b"


def test_errors_of_files_say_where_they_are() -> None:
    manifest = ManifestError("a/mod.toml", ("x: is required",), hint="write it")
    assert str(manifest) == manifest.message == "a/mod.toml: 1 problem\n  x: is required"
    assert (manifest.where, manifest.problems) == ("a/mod.toml", ("x: is required",))
    diff = DiffError("x.patch", 3, "no hunk", hint="look")
    assert (diff.where, diff.line, diff.why, diff.message) == (
        *("x.patch", 3, "no hunk"),
        "x.patch:3: no hunk",
    )
    assert [one.hint for one in (manifest, diff)] == ["write it", "look"]


def test_a_tree_that_cannot_be_read_is_a_refusal_with_nothing_changed() -> None:
    with pytest.raises(Refused) as caught, refusing():
        raise Unreachable("no network", hint="try again")
    assert caught.value.message == "nothing was changed: no network"
    assert (caught.value.hint, caught.value.plan) == ("try again", None)
    assert isinstance(caught.value.__cause__, TreeError)
    with pytest.raises(UsageError), refusing():
        raise UsageError("another thing")
