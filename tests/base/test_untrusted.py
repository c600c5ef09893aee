"""What anybody may have written: read, or refused with one kind of error that says where."""

from __future__ import annotations

import pytest

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import is_deep, is_plain_path, is_whole, json_of, number_of, toml_of


def test_a_key_that_is_there_twice_is_refused_where_once_is_asked_for() -> None:
    text = '{"a": 1, "A": {"b": 2}}'
    assert json_of(text) == {"a": 1, "A": {"b": 2}}
    with pytest.raises(ValueError, match="'a' appears twice"):
        json_of(text, once=True)
    assert json_of('{"a": {"b": 1}, "b": 2}', once=True) == {"a": {"b": 1}, "b": 2}


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\ud800": 1}', '[{"a": ["\\udfff"]}]'])
def test_half_of_a_character_is_found_at_any_depth(text: str) -> None:
    with pytest.raises(ValueError, match="it has half of a surrogate pair"):
        json_of(text)


def test_half_of_a_character_that_stands_for_a_byte_is_one() -> None:
    assert [is_whole(text) for text in ("a", "é", "\udc80", "\udcff", "\ud800", "\udc7f")] == [
        *(True, True, True, True, False, False)
    ]


def test_a_number_has_as_many_digits_as_64_bits() -> None:
    assert (number_of("9" * 18), number_of("9" * 19)) == (10**18 - 1, None)


@pytest.mark.parametrize(
    ("path", "is_plain"),
    [
        ("a/b.py", True),
        ("..a/b..", True),
        ("/a", False),
        ("a/", False),
        ("a//b", False),
        ("a/./b", False),
        ("a/../b", False),
        ("a\0b", False),
        ("", False),
    ],
)
def test_a_plain_path_leads_nowhere_else(path: str, is_plain: bool) -> None:  # noqa: FBT001
    assert is_plain_path(path) is is_plain


@pytest.mark.parametrize(
    ("data", "problem", "hint"),
    [
        (b"a = \xff", "not UTF-8: byte 4", None),
        (b"a = ", "not TOML: Invalid value", "https://toml.io/en/v1.0.0 has the syntax"),
        (b"a = " + b"[" * 101 + b"]" * 101, "not a manifest: it is nested too deeply", None),
        (b"a" + b".a" * 1001 + b" = 1", "a line has more than 1,000 dots", None),
    ],
)
def test_toml_that_is_none_says_why(data: bytes, problem: str, hint: str | None) -> None:
    with pytest.raises(ManifestError) as caught:
        toml_of(data, "x/mod.toml")
    assert (caught.value.where, caught.value.hint) == ("x/mod.toml", hint)
    assert caught.value.problems[0].startswith(problem)


def test_toml_within_the_limits_is_read() -> None:
    assert toml_of(b'a.b = ["\xc3\xa9"]', "x") == {"a": {"b": ["é"]}}
    line = b"# " + b"." * limits.DOTS + b"\n"
    assert toml_of(line * 3 + b"a = 1", "x") == {"a": 1}


def test_depth_is_counted_in_lists_and_tables() -> None:
    value: object = 1
    for n in range(limits.NESTING - 1):
        value = [value] if n % 2 else {"a": value}
    assert not is_deep(value)
    assert is_deep((value,))
