"""Limits as people read them, and files that are held to one."""

from __future__ import annotations

import io

import pytest

from vllm_mods.base.errors import TreeError
from vllm_mods.base.limits import Limit, bounded


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1 << 30, "bytes", "1 GiB"),
        (3 << 29, "bytes", "1536 MiB"),
        (64 << 20, "bytes", "64 MiB"),
        (8 << 10, "bytes", "8 KiB"),
        (1023, "bytes", "1,023 bytes"),
        (1025, "bytes", "1,025 bytes"),
        (1 << 20, "letters", "1,048,576 letters"),
        (9, "files", "9 files"),
    ],
)
def test_a_limit_is_read_in_the_largest_unit_that_it_is_whole_in(
    value: int, unit: str, text: str
) -> None:
    assert str(Limit(value, unit, "x")) == text


def test_a_file_is_read_up_to_its_limit_and_refused_beyond() -> None:
    most = Limit(4, "bytes", "a page")
    assert bounded(io.BytesIO(b"1234"), most, "a.html") == b"1234"
    file = io.BytesIO(b"123456789")
    with pytest.raises(TreeError) as caught:
        bounded(file, most, "a.html")
    assert caught.value.message == ("a.html has more than 4 bytes, the limit for a page")
    assert caught.value.hint == "ls -la a.html  # is this the right file?"
    assert file.tell() == 5
