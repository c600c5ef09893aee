"""A command line taken apart as vLLM's own parser takes it."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from serve_tree import FILES, LATER

from vllm_mods.base.errors import UsageError
from vllm_mods.serving.command import as_object, parse, words
from vllm_mods.serving.shape import KnownFlags

KNOWN, PAIRED = (KnownFlags(MemoryTree(dict(files))) for files in (FILES, LATER))


@pytest.mark.parametrize(
    ("argv", "behind"),
    [
        (("vllm", "serve", "m", "--x"), ("m", "--x")),
        (("nice", "/usr/bin/vllm", "serve"), ()),
        (("python3", "-m", "vllm.entrypoints.openai.api_server", "--x"), ("--x",)),
        (("python3", "/x/api_server.py", "serve"), ("serve",)),
        (("vllm", "run", "vllm", "serve", "m"), ("m",)),
    ],
)
def test_the_words_behind_what_serves(argv: tuple[str, ...], behind: tuple[str, ...]) -> None:
    assert words(argv) == behind


def test_a_command_that_does_not_serve_is_shown_by_its_beginning() -> None:
    message = "`vllm bench serve` does not start a server: it has no `vllm serve`"
    with pytest.raises(UsageError) as error:
        words(("vllm", "bench", "serve", "m"))
    assert (error.value.message, error.value.hint) == (
        message,
        "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE",
    )
    with pytest.raises(UsageError):
        words(("serve", "vllm"))


@pytest.mark.parametrize(
    ("line", "uses", "model", "loose"),
    [
        ("m --dtype auto", [("--dtype", "--dtype", "auto")], "m", []),
        ("--dtype auto m n", [("--dtype", "--dtype", "auto")], "m", ["n"]),
        ("-b 1 2", [("-b", "--batch", "1")], "2", []),
        ("--names a b -- c", [("--names", "--names", "a b")], "c", []),
        ("-- --dtype -- x", [], "--dtype", ["--", "x"]),
        ("-qawq", [("-qawq", "--quantization", "awq")], None, []),
        ("-b=5 m", [("-b", "--batch", "5")], "m", []),
        ("--share -1 -.5 -x", [("--share", "--share", "-1"), ("-x", "", "")], "-.5", []),
        ("--share -1.5x", [("--share", "--share", ""), ("-1.5x", "", "")], None, []),
        ("--names -b_x -", [("--names", "--names", ""), ("-b_x", "--batch", "_x")], "-", []),
        ("--hf_overrides.a_b.c 1 2", [("--hf-overrides.a_b.c", "--hf-overrides", "1")], "2", []),
        ("--dtype=a=b", [("--dtype", "--dtype", "a=b")], None, []),
        ("--max_model_len=a_b", [("--max-model-len", "--max-model-len", "a_b")], None, []),
        ("-h --help=x m", [], "m", []),
        ("--zzz a b --quiet", [("--zzz", "", "a b"), ("--quiet", "--quiet", "")], None, []),
        ("--zzz=a b", [("--zzz", "", "a")], "b", []),
        ("--quiet m", [("--quiet", "--quiet", "")], "m", []),
        ("--quiet.a b m", [("--quiet.a", "--quiet", "b")], "m", []),
        ("-O3 m", [("--optimization-level", "--optimization-level", "3")], "m", []),
        ("-O=2 m", [("--optimization-level", "--optimization-level", "2")], "m", []),
        ("-O 1 m", [("--optimization-level", "--optimization-level", "1")], "m", []),
        ("m -O 0", [("--optimization-level", "--optimization-level", "0")], "m", []),
        ("-O 4", [("-O", "", "4")], None, []),
        ("-O.a 1", [("-O.a", "", "1")], None, []),
        ("\u2013port m", [], None, ["\u2013port", "m"]),
        ("\u2013", [], "\u2013", []),
    ],
)
def test_which_word_is_a_flag_and_which_one_its_value(
    line: str, uses: list[tuple[str, str, str]], model: str | None, loose: list[str]
) -> None:
    parsed = parse(line.split(" "), KNOWN)
    assert [(use.typed, use.name, " ".join(use.values)) for use in parsed.uses] == uses
    assert parsed.model == model
    assert [word for word, _ in parsed.loose] == loose


def test_a_word_with_blanks_is_no_flag_unless_it_begins_with_one() -> None:
    parsed = parse(["m", "-- a", "--dtype=a b", "\u2014 x"], KNOWN)
    assert [use.values for use in parsed.uses] == [("a b",)]
    assert [word for word, _ in parsed.loose] == ["-- a", "\u2014 x"]


def test_a_loose_word_knows_the_flag_before_it() -> None:
    parsed = parse(["m", "a", "--quiet", "b", "--port", "1", "c"], KNOWN)
    assert [(word, use and use.name) for word, use in parsed.loose] == [
        ("a", None),
        ("b", "--quiet"),
        ("c", "--port"),
    ]


@pytest.mark.parametrize(
    ("word", "name", "negated", "shortened", "candidates"),
    [
        ("--trust-remote-code", "--trust-remote-code", False, "", ()),
        ("--no-trust-remote-code", "--trust-remote-code", True, "", ()),
        ("--no-trust", "--trust-remote-code", True, "--no-trust-remote-code", ()),
        ("--trust", "--trust-remote-code", False, "--trust-remote-code", ()),
        ("--no-quiet", "", False, "", ()),
        ("--no-dtype", "", False, "", ()),
        ("--ma", "--max-model-len", False, "--max-model-len", ()),
        ("--mi.a", "--middleware", False, "--middleware", ()),
        ("--d", "", False, "", ("--device", "--dtype")),
        ("-b", "--batch", False, "", ()),
        ("--model", "--model", False, "", ()),
        ("--no-tp", "", False, "", ()),
    ],
)
def test_what_a_word_names(
    word: str, name: str, *, negated: bool, shortened: str, candidates: tuple[str, ...]
) -> None:
    (use,) = parse([word], KNOWN).uses
    assert (use.name, use.negated, use.shortened) == (name, negated, shortened)
    assert use.candidates == candidates
    assert not use.attached


def test_values_behind_an_equals_sign_are_attached() -> None:
    assert [use.attached for use in parse(["--port=1", "-b2", "--port", "1"], KNOWN).uses] == [
        True,
        True,
        False,
    ]


def test_a_paired_switch_is_turned_off_by_the_other_word() -> None:
    (use,) = parse(["--disable-prefix-caching"], PAIRED).uses
    assert (use.name, use.negated) == ("--enable-prefix-caching", True)
    (use,) = parse(["--disable-auto-tool-choice"], PAIRED).uses
    assert (use.name, use.negated) == ("--enable-auto-tool-choice", True)
    assert parse(["--disable-prefix-caching"], KNOWN).uses[0].flag is None


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("-pc.mode", "1", {"mode": 1}),
        ("-pc.passes.fuse", "true", {"passes": {"fuse": True}}),
        ("-pc.a.b.c", "x", {"a": {"b": {"c": "x"}}}),
        ("-pc.sizes+", "1,2", {"sizes": ["1", "2"]}),
        ("-pc.free", '{"a": null}', {"free": {"a": None}}),
        ("-pc.free", "{a", {"free": "{a"}),
    ],
)
def test_the_object_that_a_key_stands_for(word: str, value: str, expected: object) -> None:
    (use,) = parse([word, value], KNOWN).uses
    assert use.keys == tuple(word.split(".")[1:])
    assert as_object(use) == expected
