"""Secrets in what is passed on: found with the key path of each, and not repeated."""

from __future__ import annotations

import pytest

from vllm_mods.base import secrets

TOKEN = "hf_" + "a" * 16
WEB = "eyJ" + "b" * 8 + ".eyJ" + "c" * 8
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TOKEN, "hf_…"),
        (f"x {TOKEN}", "hf_…"),
        (f"x{TOKEN}", None),
        (TOKEN[:-1], None),
        ("sk-" + "a-" * 8, "sk-…"),
        ("org/sk-" + "a-" * 8, None),
        (WEB, "eyJ…"),
        (KEY, "-----BEGIN … PRIVATE KEY-----"),
        ("-----BEGIN PUBLIC KEY-----", None),
    ],
)
def test_how_a_secret_begins(text: str, kind: str | None) -> None:
    assert secrets.kind(text) == kind


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"env": {"A": TOKEN, "B": "b", "C": 1}}, ["env.A"]),
        ({"command": ["vllm", ["--key", TOKEN]]}, ["command[1][1]"]),
        ({"a": ({"b": KEY}, WEB)}, ["a[0].b", "a[1]"]),
        ({"env": {TOKEN: "x"}}, [f"env.{secrets.HIDDEN}"]),
        ({TOKEN: {"x": TOKEN}}, [secrets.HIDDEN, f"{secrets.HIDDEN}.x"]),
        ({"a": [None, 1, "b"]}, []),
    ],
)
def test_each_secret_is_refused_at_its_place(value: object, places: list[str]) -> None:
    problems = secrets.problems(value)
    assert [problem.partition(": ")[0] for problem in problems] == places
    assert not any(TOKEN in problem for problem in problems)


def test_a_place_begins_with_the_one_that_is_given() -> None:
    (problem,) = secrets.problems([TOKEN], "mod")
    assert problem.startswith("mod[0]: contains what looks like a secret (hf_…)")
