"""The flags that are read from a tree against those of its real parser, and what both refuse.

Needs ``VLLM_MODS_BEHAVIOUR_PYTHON`` and ``VLLM_MODS_BEHAVIOUR_TREES``, as ``test_hybrid_dispatch``
says. vLLM is imported, in that other Python; no GPU is used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from vllm_mods.base.model import Level
from vllm_mods.serving import command, configs
from vllm_mods.serving.check import check
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = os.environ.get("VLLM_MODS_BEHAVIOUR_PYTHON", "")
TREES = [t for t in os.environ.get("VLLM_MODS_BEHAVIOUR_TREES", "").split(os.pathsep) if t]
SCRIPT = os.path.join(os.path.dirname(__file__), "serve_parser.py")
VALUES = (
    "5",
    "-1",
    "x",
    "1.5",
    "32k",
    "1.5K",
    "auto",
    "None",
    "",
    '{"a": 1}',
    "{}",
    "[1]",
    "{a:1}",
)
JSON_VALUES = ("1", '"x"', "true", "[]", "null")
# What the parser lets through, and what is looked up behind it, is not compared here.
LATER = {"flag-alone", "env-unknown", "template-missing"}

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(
        not (PYTHON and TREES),
        reason="set VLLM_MODS_BEHAVIOUR_PYTHON and VLLM_MODS_BEHAVIOUR_TREES",
    ),
]


class Both(NamedTuple):
    """One tree, and what its own parser says."""

    known: KnownFlags
    commands: list[list[str]]
    real: dict[str, Any]


def _commands(known: KnownFlags) -> Iterator[list[str]]:
    """Yield commands with one flag each: every name, many values, every key of JSON objects."""
    for flag in known.flags:
        if flag.name in {"--config", "--model"}:
            continue  # a file, and what `vllm serve` does not hand to the parser
        taken = known.shape(flag)
        values = [*VALUES, *(str(one) for one in taken.choices or ()), "nonesuch"]
        yield from ([flag.name, value] for value in values)
        yield [flag.name]
        yield [f"{flag.name}=5"]
        yield [f"--no-{flag.name[2:]}"]
        yield [flag.name[:-1], "5"]
        yield [f"{flag.name}x", "5"]
        yield [flag.name.replace("--enable-", "--disable-")]
        yield from ([name, "5"] for name in flag.names[1:])
        if taken.config is not None:
            yield [flag.name, '{"nonesuch": 1}']
            for key in configs.fields(known.sources, taken.config):
                yield from ([flag.name, f'{{"{key}": {value}}}'] for value in JSON_VALUES)
                yield [f"{flag.name}.{key}", "1"]


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: os.path.basename(tree.rstrip("/")))
def both(request: pytest.FixtureRequest) -> Both:
    known = KnownFlags(open_tree(request.param))
    commands = list(_commands(known))
    paths = [request.param, *filter(None, [os.environ.get("VLLM_MODS_BEHAVIOUR_PATH")])]
    done = subprocess.run(
        [PYTHON, SCRIPT],
        input=json.dumps([["m", *words] for words in commands]),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    answers = re.findall(r"^ANSWER (.*)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stderr[-4000:]
    real = json.loads(answers[0])
    assert real["vllm"].startswith(request.param)
    return Both(known, commands, real)


def test_the_names_are_those_of_the_real_parser(both: Both) -> None:
    for action in both.real["flags"]:
        names = set(action["names"])
        if names == {"-h", "--help"}:
            continue
        mine = [flag for flag in both.known.flags if names & set(flag.names)]
        assert len(mine) == 1, names
        possible = set(mine[0].names)
        if both.known.shape(mine[0]).kind == "switch":
            long = [name for name in mine[0].names if name.startswith("--")]
            possible |= {f"--no-{name[2:]}" for name in long}
            possible.update(*map(both.known.rules.inverted, long))
        assert names <= possible
    real = {name for action in both.real["flags"] for name in action["names"]}
    assert {name for flag in both.known.flags for name in flag.names} <= real


def test_the_shapes_are_those_of_the_real_parser(both: Both) -> None:
    wrong: list[tuple[object, ...]] = []
    for action in both.real["flags"]:
        flag = next(
            (both.known.by_name[n] for n in action["names"] if n in both.known.by_name), None
        )
        if flag is None:
            continue
        mine = both.known.shape(flag)
        if mine.takes_value and mine.nargs != action["nargs"]:
            wrong.append((flag.name, "nargs", mine.nargs, action["nargs"]))
        choices = None if mine.choices is None else {str(one) for one in mine.choices}
        real = None if action["choices"] is None else set(action["choices"]) - {"None"}
        if choices != real and not mine.open:
            wrong.append((flag.name, "choices", choices, real))
    assert not wrong


def test_nothing_is_refused_that_the_real_parser_takes_and_little_is_missed(both: Both) -> None:
    false, missed, refused = [], [], 0
    for words, real in zip(both.commands, both.real["refused"], strict=True):
        answer = check(both.known, Serving(("m", *words)))
        wrong = [
            fault
            for fault in answer.faults
            if fault.level is Level.ERROR and fault.code not in LATER
        ]
        refused += real is not None
        if real is not None and not wrong:
            missed.append((words, real))
        elif real is None and wrong and not _looked_up_later(both, words):
            false.append((words, wrong))
    assert not false
    assert len(missed) < 0.04 * refused, missed


def _looked_up_later(both: Both, words: list[str]) -> bool:
    """Tell whether vLLM judges the value after parsing: a registry, an enumeration, a range."""
    (use, *_) = command.parse(words, both.known).uses
    if use.flag is None:
        return False
    taken = both.known.shape(use.flag)
    is_made = taken.config is not None and use.flag.given.get("type") is None  # by the parser
    return taken.choices is None and not is_made
