"""Generated pairings and recipes: there and back, and the words that bash itself makes of a command."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import Any

import pytest
import yaml  # noqa: TID251  (what launchers read them with)
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from recipe_texts import SOUND
from sampling import examples

from vllm_mods.base.errors import ManifestError
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.recipes import recipe_yaml
from vllm_mods.recipes.recipe_yaml import write
from vllm_mods.scripts import command_line

BASH = shutil.which("bash") or "bash"
QUICK = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
MODS = ("fast", "hybrid-int4-fp8", "qwen3.5-enhanced")
TEMPLATES = ("t", "u")
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,6}[a-z0-9]", fullmatch=True)
VARIABLES = st.from_regex(r"[A-Z][A-Z0-9_]{0,4}", fullmatch=True)
# what goes wrong lives in these
AWKWARD = st.sampled_from(
    ['"', "\\", "{", "}", "#", " ", "\t", ":", "- ", "yes", "1e3", "null", "é", "\u2028", "~", "|", "%", "😀"]
)  # fmt: skip
TEXT = st.lists(AWKWARD | st.text("abc01._/-'", max_size=4), max_size=6).map("".join)
LINE = TEXT.map(str.strip).filter(bool)
SCALAR = TEXT | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.booleans()
VALUES = SCALAR.filter(lambda value: "'" not in str(value))
DEEP = st.recursive(
    SCALAR,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXT, one, max_size=3),
    max_leaves=6,
)
WORDS = st.lists(
    st.lists(AWKWARD | st.sampled_from(["--a", "'", "$y", "*", "\n", "a=b"]), max_size=5).map("".join),
    max_size=6,
)  # fmt: skip


@st.composite
def pairings_of_recipes(draw: st.DrawFn) -> Pairing:
    """Return a pairing as an import could have made it."""
    defaults = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    parts = [shlex.quote(word).replace("{", "{{").replace("}", "}}") for word in draw(WORDS)]
    parts += [f"'{{{name}}}'" for name in defaults]
    joints = st.sampled_from([" ", " \\\n  ", "  "])
    command = "vllm serve m" + "".join(draw(joints) + part for part in draw(st.permutations(parts)))
    mods = tuple(draw(st.lists(st.sampled_from(MODS), unique=True)))
    templates = tuple(draw(st.lists(st.sampled_from(TEMPLATES), unique=True)))
    return Pairing(
        name=draw(NAMES),
        summary=draw(LINE),
        model=draw(st.sampled_from(["a/b", "/models/x"])),
        revision=draw(st.none() | NAMES),
        base="image:1",
        vllm=draw(st.none() | st.sampled_from([">=0.21,<0.22", "0.21.0"])),
        mods=mods,
        templates=templates,
        defaults=defaults,
        env=draw(st.dictionaries(VARIABLES, TEXT, max_size=3)),
        command=command + draw(st.sampled_from(["", "\n"])),
        topology=draw(st.sampled_from(pairings.TOPOLOGIES)),
        recipe=Recipe(
            version=draw(st.sampled_from(["1", "2"])),
            name=draw(LINE),
            mods={name: f"mods/{name}" for name in (*mods, *templates)},
            keys=draw(st.dictionaries(NAMES.map(lambda name: f"x_{name}"), DEEP, max_size=3)),
        ),
    )


def launched(text: str, *, solo: bool) -> str:
    """Render as the launcher of version 1 does."""
    raw: dict[str, Any] = yaml.safe_load(text)
    values = dict(raw.get("defaults") or {})
    if solo:
        values["tensor_parallel"] = 1
    made: str = raw["command"].format(**values)
    if solo or "--distributed-executor-backend" in raw["command"]:  # no --ray
        made = re.sub(r"--distributed-executor-backend\s+\S+", "", made)
        made = "\n".join(line for line in made.split("\n") if line.strip() not in ("", "\\"))
    made = made.rstrip()
    return (made.rstrip("\\\n").rstrip() if made.endswith("\\") else made).strip()


def of_bash(script: str) -> tuple[str, ...] | None:
    """Return the words that bash passes to a command named vllm, None if it cannot read the script."""
    spy = "vllm() { printf '%s\\0' vllm \"$@\" >&3; exit; }\n"
    answer = subprocess.run(
        [BASH, "--norc", "-c", f"exec 3>&1 >/dev/null\n{spy}{script}"],
        capture_output=True,
        env={"LC_ALL": "C.UTF-8", "PATH": ""},
        check=False,
    )
    return tuple(answer.stdout.decode().split("\0")[:-1]) if answer.stdout else None


@pytest.mark.slow
@QUICK
@given(pairing=pairings_of_recipes())
def test_toml_holds_a_pairing(pairing: Pairing) -> None:
    assert pairings.parse(pairings.dump(pairing), "p.toml") == pairing


@pytest.mark.slow
@QUICK
@given(pairing=pairings_of_recipes())
def test_a_recipe_holds_a_pairing_and_renders_the_same(pairing: Pairing) -> None:
    text = write(pairing)
    assert recipe_yaml.read(text, "p.yaml", known=(*MODS, *TEMPLATES)).pairing == pairing
    assert launched(text, solo=pairing.topology == "solo") == pairings.rendered(pairing)


@pytest.mark.slow
@QUICK
@given(pairing=pairings_of_recipes())
def test_the_words_of_a_command_are_those_of_bash(pairing: Pairing) -> None:
    assert pairings.arguments(pairing) == of_bash(pairings.rendered(pairing))


@QUICK
@given(
    st.lists(st.sampled_from(["a", " ", "'", '"', "\\", "\n", "#", "\t", "=", "-b"]), max_size=14).map(
        "".join
    )
)  # fmt: skip
def test_any_text_is_read_as_bash_reads_it(text: str) -> None:
    assume(not text.endswith("\\"))  # at the very end bash has two minds, and `rendered` has none
    script = f"vllm x{text}"
    words = of_bash(script)
    try:
        read = command_line.read(script)
    except command_line.ShellError:
        # bash runs what is before the line that it cannot read
        unread = subprocess.run([BASH, "-n", "-c", script], capture_output=True, check=False)
        assert unread.returncode != 0
    else:
        assert read.commands[0].argv == words


@QUICK
@given(
    cuts=st.lists(st.tuples(st.integers(0, len(SOUND)), st.integers(1, 30)), min_size=1, max_size=4)
)
def test_a_damaged_recipe_is_read_or_refused_with_every_problem_placed(
    cuts: list[tuple[int, int]],
) -> None:
    text = SOUND
    for at, length in cuts:
        text = text[:at] + text[at + length :]
    assume(text != SOUND)
    try:
        pairing = recipe_yaml.read(text, "r.yaml", known=MODS).pairing
    except ManifestError as error:
        for problem in error.problems:
            assert re.search(r"line \d+: |is required|--name", problem)
    else:
        assert pairings.parse(pairings.dump(pairing), "p.toml") == pairing
