"""JSON as a type: what fits comes back as it was, and of what does not every problem has its place."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from vllm_mods.base.errors import ManifestError
from vllm_mods.formats.schema import decode, encode


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(NamedTuple):
    name: str
    size: Annotated[int, lambda size: None if size >= 0 else "is less than nothing"]


class Whole(NamedTuple):
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    colour: Colour
    owner: str | None
    labels: Mapping[str, str]
    deep: bool = False
    more: Any = None


RAW: dict[str, Any] = {
    "parts": [{"name": "a", "size": 1}],
    "pair": [1, "x"],
    "colour": "red",
    "labels": {"a": "b"},
}


def problems(raw: object, *, more: bool = False) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        decode(Whole, raw, more=more)
    return caught.value.problems


def test_what_may_be_none_or_has_a_default_may_be_left_out() -> None:
    whole = Whole((Part("a", 1),), (1, "x"), Colour.RED, None, {"a": "b"})
    assert decode(Whole, RAW) == whole
    assert decode(Whole, {**encode(whole), "colour": "red"}) == whole


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"parts": None}, "parts: expected an array, found None"),
        ({"parts": [{"name": 1, "size": 1}]}, "parts[0].name: expected a string, found an integer"),
        ({"parts": [{"name": "a"}]}, "parts[0].size: is required"),
        (
            {"parts": [{"name": "a", "size": True}]},
            "parts[0].size: expected an integer, found true or false",
        ),
        ({"parts": [{"name": "a", "size": -1}]}, "parts[0].size: is less than nothing"),
        ({"parts": [["a", 1]]}, "parts[0]: expected a table, found an array"),
        ({"pair": [1]}, "pair: expected an array of 2, found an array"),
        ({"colour": "green"}, "colour: expected one of red, blue, found a string"),
        ({"colour": ["red"]}, "colour: expected one of red, blue, found an array"),
        ({"labels": {"a": None}}, "labels.a: expected a string, found None"),
        ({"labels": []}, "labels: expected a table, found an array"),
        ({"deep": 1}, "deep: expected true or false, found an integer"),
        ({"colours": 1}, "colours: unknown key; did you mean 'colour'?"),
    ],
)
def test_every_problem_has_its_place(change: dict[str, Any], problem: str) -> None:
    assert problems({**RAW, **change}) == (problem,)


def test_nothing_may_be_left_out_of_what_is_read_whole() -> None:
    with pytest.raises(ManifestError) as caught:
        decode(Whole, RAW, whole=True)
    assert caught.value.problems == ("owner: is required", "deep: is required", "more: is required")


def test_all_problems_are_told_at_once() -> None:
    assert problems({"pair": 1, "colour": 1, "labels": {}, "parts": [1, 2]}) == (
        "parts[0]: expected a table, found an integer",
        "parts[1]: expected a table, found an integer",
        "pair: expected an array, found an integer",
        "colour: expected one of red, blue, found an integer",
    )
    assert problems([]) == ("the file: expected a table, found an array",)


def test_keys_of_others_are_passed_over_where_that_is_asked_for() -> None:
    assert decode(Whole, {**RAW, "other": 1}, more=True).colour is Colour.RED
    assert problems({**RAW, "other": 1, "pair": 0}, more=True) == (
        "pair: expected an array, found an integer",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["parts", "name", "size", "pair", "colour", "labels"]), inner
        )
    ),
)


@pytest.mark.slow
@given(JSON)
def test_anything_else_is_one_kind_of_error(raw: object) -> None:
    with contextlib.suppress(ManifestError):
        assert isinstance(decode(Whole, raw), Whole)
