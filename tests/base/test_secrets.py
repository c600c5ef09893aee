"""What a traceback may not show."""

from __future__ import annotations

import pytest

from vllm_mods.base import secrets

HIDDEN = secrets.HIDDEN


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("https://me:pass@host/x", f"https://{HIDDEN}@host/x"),
        ("Authorization: Bearer abcdefgh1", f"Authorization: {HIDDEN}"),
        ("--api-key abc", f"--api-key {HIDDEN}"),
        ("x?sig=abc&y=1", f"x?sig={HIDDEN}&y=1"),
        ("hf_abcdefgh1", HIDDEN),
        ("author=me", "author=me"),
        ("name:tag@sha256:00", "name:tag@sha256:00"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, cleaned: str) -> None:
    assert secrets.clean(text, {}) == cleaned


def test_values_of_variables_that_are_named_so() -> None:
    environ = {"HF_TOKEN": "abcde", "SHORT_TOKEN": "abc", "URL": "https://u:longone@h/"}
    assert secrets.clean("abcde abc longone", environ) == f"{HIDDEN} abc {HIDDEN}"


def test_the_home_folder_is_a_tilde() -> None:
    environ = {"HOME": "/home/me/"}
    assert secrets.clean("/home/me/x /home/me2 /home/me", environ) == "~/x /home/me2 ~"
