"""JSON as a type: what fits comes back as it was, and of what does not every problem has its place."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mods.formats.decode import DecodeError, decode, encode


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
    with pytest.raises(DecodeError) as caught:
        decode(Whole, raw, more=more)
    return caught.value.problems


def test_what_may_be_none_or_has_a_default_may_be_left_out() -> None:
    whole = Whole((Part("a", 1),), (1, "x"), Colour.RED, None, {"a": "b"})
    assert decode(Whole, RAW) == whole
    assert decode(Whole, {**encode(whole), "colour": "red"}) == whole


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"parts": None}, "parts: must be a list"),
        ({"parts": [{"name": 1, "size": 1}]}, "parts[0].name: must be text"),
        ({"parts": [{"name": "a"}]}, "parts[0].size: is missing"),
        ({"parts": [{"name": "a", "size": True}]}, "parts[0].size: must be a whole number"),
        ({"parts": [{"name": "a", "size": -1}]}, "parts[0].size: is less than nothing"),
        ({"parts": [["a", 1]]}, "parts[0]: must be an object"),
        ({"pair": [1]}, "pair: must be a list of 2"),
        ({"colour": "green"}, "colour: must be one of red, blue"),
        ({"colour": ["red"]}, "colour: must be one of red, blue"),
        ({"labels": {"a": None}}, "labels.a: must be text"),
        ({"labels": []}, "labels: must be an object"),
        ({"deep": 1}, "deep: must be true or false"),
        ({"other": 1}, "other: is not known"),
    ],
)
def test_every_problem_has_its_place(change: dict[str, Any], problem: str) -> None:
    assert problems({**RAW, **change}) == (problem,)


def test_nothing_may_be_left_out_of_what_is_read_whole() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Whole, RAW, whole=True)
    assert caught.value.problems == ("owner: is missing", "deep: is missing", "more: is missing")


def test_all_problems_are_told_at_once() -> None:
    assert problems({"pair": 1, "colour": 1, "labels": {}, "parts": [1, 2]}) == (
        "parts[0]: must be an object",
        "parts[1]: must be an object",
        "pair: must be a list",
        "colour: must be one of red, blue",
    )
    assert problems([]) == ("the file: must be an object",)


def test_keys_of_others_are_passed_over_where_that_is_asked_for() -> None:
    assert decode(Whole, {**RAW, "other": 1}, more=True).colour is Colour.RED
    assert problems({**RAW, "other": 1, "pair": 0}, more=True) == ("pair: must be a list",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["parts", "name", "size", "pair", "colour", "labels"]), inner
        )
    ),
)


@given(JSON)
def test_anything_else_is_one_kind_of_error(raw: object) -> None:
    with contextlib.suppress(DecodeError):
        assert isinstance(decode(Whole, raw), Whole)
