"""Values as TOML: as a person writes them, and read back as they were."""

from __future__ import annotations

import datetime as dt
import tomllib

import pytest

from vllm_mods.formats import toml_writer


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", '"a b"'),
        ('{"a": 1}', "'{\"a\": 1}'"),
        ('it\'s "x"', '"it\'s \\"x\\""'),
        ('"\n', '"\\"\\n"'),
        ("é\x7f", '"é\\u007f"'),
        ("", '""'),
        (True, "true"),
        (1, "1"),
        (1.5, "1.5"),
        (float("inf"), "inf"),
        ([1, "a"], '[1, "a"]'),
        ((), "[]"),
        ({}, "{}"),
        ({"a b": 1, "c-d_E9": [True]}, '{ "a b" = 1, c-d_E9 = [true] }'),
        (dt.date(2026, 3, 1), "2026-03-01"),
        (dt.time(7, 30), "07:30:00"),
        (dt.datetime(2026, 3, 1, 7, tzinfo=dt.UTC), "2026-03-01T07:00:00+00:00"),
    ],
)
def test_a_value_on_one_line(value: object, text: str) -> None:
    assert toml_writer.value(value) == text
    read = tomllib.loads(f"x = {text}")["x"]
    assert read == ([*value] if isinstance(value, tuple) else value)


def test_what_has_no_form_is_no_value() -> None:
    with pytest.raises(TypeError, match="NoneType has no form in TOML"):
        toml_writer.value(None)


def test_rows_have_keys_quoted_where_they_have_to_be() -> None:
    assert toml_writer.rows({"a": 1, "b.c": "x"}) == ["a = 1", '"b.c" = "x"']


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\nb\n", "'''\na\nb\n'''"),
        ("a", '"a"'),
        ("a\n'", '"a\\n\'"'),
        ("a\n'''b", "\"a\\n'''b\""),
        ("a\n\tb", "'''\na\n\tb'''"),
        ("a\n\r", '"a\\n\\r"'),
        ("a\n\x0b", '"a\\n\\u000b"'),
        ("a\n\x7f", '"a\\n\\u007f"'),
    ],
)
def test_text_of_several_lines_is_written_as_it_is_where_that_can_be(
    text: str, written: str
) -> None:
    assert toml_writer.lines(text) == written
    assert tomllib.loads(f"x = {written}")["x"] == text
