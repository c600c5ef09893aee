"""The text of a pull request: a forge does nothing of what strangers wrote in it, and takes it whole."""

from __future__ import annotations

import pytest

from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import Proposal, PullRequest, RequestText
from vllm_mods.report import keep

MARK = "\u200b"
MESSAGE = (
    "fast: a variant for vLLM 0.21.0\n\n| | vLLM 0.21.0 |\n| --- | --- |\n| before | conflict |\n"
)


@pytest.mark.parametrize(
    ("text", "inert"),
    [
        ("ask @octocat", f"ask @{MARK}octocat"),
        ("@org/team", f"@{MARK}org/team"),
        ("vllm-project/vllm#12", f"vllm-project/vllm#{MARK}12"),
        ("Closes #12", f"Closes{MARK} #{MARK}12"),
        ("fixes GH-12", f"fixes{MARK} GH-12"),
        ("Resolved: ABC-1, ABC-2", f"Resolved{MARK}: ABC-1, ABC-2"),
        ("implements issues 12", f"implements{MARK} issues 12"),
        ("closing https://x.test/issues/1", f"closing{MARK} https:{MARK}//x.test/issues/1"),
        ("see !12", f"see !{MARK}12"),
        ("<img src=x>", f"<{MARK}img src=x>"),
        ("</details><!-- x -->", f"<{MARK}/details><{MARK}!-- x -->"),
        ("![x](y)", f"![x]{MARK}(y)"),
        ("[x][y] [z]: w", f"[x]{MARK}[y] [z]{MARK}: w"),
        ("www.x.test", f"www{MARK}.x.test"),
        ("/merge", f"/{MARK}merge"),
        ("a\n/close", f"a\n/{MARK}close"),
        ("a\u202eb\x1b[0m", "a\ufffdb\ufffd[0m"),
    ],
)
def test_what_a_forge_would_act_on_has_a_mark_in_it(text: str, inert: str) -> None:
    assert keep.inert(text) == inert
    assert keep.inert(inert) == inert


@pytest.mark.parametrize(
    "text",
    [
        "`git checkout b`, edit patches/fix/.port-0.22, then `vllm-mods port fix --continue --library .`",
        "`Loader.load` of vllm/loader.py: the target changed the same lines",
        "a < b, a <= b, x[0] # note, mail: none",
    ],
)
def test_other_words_are_as_they_were(text: str) -> None:
    assert keep.inert(text) == text


def test_what_is_left_to_a_person_is_inert_and_one_line_each() -> None:
    kept = KeptRelease("fast", "0.21.0", "left", "conflict", left=("a\n\n# Closes #1 @you",))
    assert keep.message(kept).endswith(f"\n\n* a # Closes{MARK} #{MARK}1 @{MARK}you\n")


def test_a_request_has_the_message_and_the_diff_and_a_mark_of_both() -> None:
    diff = "--- a\n+++ b\n ```\n ````\n+@property\n+Closes a/b#1\n"
    text = keep.request(MESSAGE, diff)
    assert text.title == "fast: a variant for vLLM 0.21.0"
    assert text.body.startswith("| | vLLM 0.21.0 |")
    assert (
        f"`````diff\n--- a\n+++ b\n ```\n ````\n+@property\n+Closes{MARK} a/b#1\n`````" in text.body
    )
    assert text.stamp
    assert text == keep.request(MESSAGE, diff)
    others = [keep.request(MESSAGE, diff + "+\n"), keep.request(MESSAGE + "* more\n", diff)]
    assert text.stamp not in {other.stamp for other in others}


def test_a_text_without_a_diff_has_none() -> None:
    text = keep.request(MESSAGE, "")
    assert "diff" not in text.body
    assert text.stamp


def test_a_long_diff_is_cut_at_a_line_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "_ROOM", 500)
    text = keep.request(MESSAGE, "+12345678\n" * 1000)
    assert "\n+12345678\n… and more: see the branch\n```" in text.body
    assert len(text.body) < 700
    long = keep.request(MESSAGE + "* a\n" * 1000, "+\n" * 1000)
    assert len(long.body) < 700
    assert "* a\n… and more: see the branch\n\n" in long.body


@pytest.mark.parametrize(
    ("did", "line", "dry"),
    [
        ("opened", "b: a pull request was opened", "b: a pull request would be opened"),
        (
            "updated",
            "b: the pull request was updated, u",
            "b: the pull request would be updated, u",
        ),
        ("current", "b: the pull request is up to date, u", None),
        ("merged", "b: the pull request is already merged, u", None),
        (
            "declined",
            "b: the pull request was closed without a merge, so it is not opened again, u",
            None,
        ),
    ],
)
def test_a_line_says_what_became_of_a_request(did: str, line: str, dry: str | None) -> None:
    request = PullRequest(1, "b", "open", RequestText("", ""), "u")
    proposal = Proposal("b", None, None, did, None if did == "opened" else request)
    assert keep.line(proposal) == line
    assert keep.line(proposal, dry_run=True) == dry or line
