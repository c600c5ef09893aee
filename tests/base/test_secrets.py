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
        ("me:passw0rd@host/x", f"me:{HIDDEN}@host/x"),
        ("me:pass@host/x", "me:pass@host/x"),
        ("--hf-token=abc x", f"--hf-token={HIDDEN} x"),
        ("--tokenizer abc", f"--tokenizer {HIDDEN}"),
        ("X_PASSWORD='a b' c", f"X_PASSWORD={HIDDEN} c"),
        ('{"secret": "a b", "c": 1}', f'{{"secret": {HIDDEN}, "c": 1}}'),
        ("bearer abcdefgh", f"bearer {HIDDEN}"),
        ("bearer of news", "bearer of news"),
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


@pytest.mark.parametrize(
    ("environ", "text", "cleaned"),
    [
        ({"A": "https://someone@h/"}, "by someone", f"by {HIDDEN}"),
        ({"A": "https://x:longone@h/"}, "x:longone", HIDDEN),
        ({"MY_KEY": "abcdef"}, "abcdef", HIDDEN),
        ({"KEYS": "abcdef"}, "abcdef", "abcdef"),
        # the longer one first, so that nothing is left of it
        ({"A_KEY": "abcde", "B_KEY": "abcdefgh"}, "abcdefgh abcde", f"{HIDDEN} {HIDDEN}"),
        ({"HOME": ""}, "/x", "/x"),
        ({"HOME": "/"}, "/x", "/x"),
        ({"HOME": "/a.b"}, "/a.b /aXb /a.b-c /a.b.c", "~ /aXb /a.b-c /a.b.c"),
        ({}, "/x", "/x"),
    ],
)
def test_what_variables_hold_is_not_shown(environ: dict[str, str], text: str, cleaned: str) -> None:
    assert secrets.clean(text, environ) == cleaned
