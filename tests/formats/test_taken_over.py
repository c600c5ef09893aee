"""What a pairing takes over of its mods: variables and flags, its own value first."""

from __future__ import annotations

import pytest
from mod_making import mod, variant

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Mod
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import environment, taken_over

PAIRING = Pairing(
    name="p", summary="s", model="org/m", base="b", command="vllm serve {model} \\\n  --port 8000"
)


def one(name: str = "one", *args: str, **env: str) -> Mod:
    return mod(variant(), name=name)._replace(serve_args=args, env=tuple(env.items()))


def words(command: str, *mods: Mod) -> list[str]:
    return list(pairings.arguments(taken_over(PAIRING._replace(command=command), mods).pairing))


def test_variables_and_flags_of_a_mod_come_in_and_are_said() -> None:
    made, said = taken_over(PAIRING, [one("one", "--quiet", "--level", "a b", VLLM_A="1 x")])
    assert made.env == {"VLLM_A": "1 x"}
    assert made.command == "vllm serve {model} --quiet --level 'a b' \\\n  --port 8000"
    assert said == (
        ("one", "sets VLLM_A='1 x', and the pairing uses it"),
        ("one", "sets --quiet, and the pairing uses it"),
        ("one", "sets --level 'a b', and the pairing uses it"),
    )


@pytest.mark.parametrize(
    ("command", "env"),
    [("vllm serve {model}", {"A": "2"}), ("A=2 vllm serve {model}", {}),
     ("env A=2 vllm serve {model}", {}), ("export A=2; vllm serve {model}", {})],
)  # fmt: skip
def test_a_value_of_the_pairings_own_stays_and_that_is_said(
    command: str, env: dict[str, str]
) -> None:
    asked = PAIRING._replace(command=command, env=env)
    made, said = taken_over(asked, [one(A="1"), one("two", A="3"), one("same", A="2")])
    assert (made, environment(made)) == (asked, {"A": "2"})
    assert said == (
        ("one", "sets A=1, but the pairing keeps its own A=2"),
        ("two", "sets A=3, but the pairing keeps its own A=2"),
    )


@pytest.mark.parametrize(
    ("mods", "named"),
    [((one("one", A="1"), one("two", A="2")), "env.A: `one` sets A=1 and `two` sets A=2"),
     ((one("one", "--a", "1"), one("two", "--a=2")), "command: --a: `one` sets --a 1 and `two`"),
     ((one("one", "--a"), one("two", "--no-a")), "command: --a: `one` sets --a and `two`"),
     ((one("one", "--a", "{}"), one("two", "--a.b", "2")), "command: --a: `one` sets")],
)  # fmt: skip
def test_two_mods_that_want_different_values_are_both_named(
    mods: tuple[Mod, ...], named: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        taken_over(PAIRING, mods)
    assert named in str(caught.value)
    assert "pairings/p.toml" in (caught.value.hint or "")


def test_two_mods_that_want_the_same_give_it_once() -> None:
    both = [one("one", "--a", "1", B="2"), one("two", "--a", "1", B="2")]
    made, said = taken_over(PAIRING, both)
    assert pairings.arguments(made)[2:5] == ("org/m", "--a", "1")
    assert [name for name, _ in said] == ["one", "two", "one", "two"]


@pytest.mark.parametrize(
    "own", ["--level 3", "--level=3", "--no-level", "--level.deep 3", "--level '{{}}'"]
)
def test_a_flag_that_the_command_has_is_left_to_it(own: str) -> None:
    command = f"vllm serve {{model}} {own}"
    assert words(command, one("one", "--level", "1")) == words(command)


def test_another_key_of_the_same_flag_goes_in_beside_it() -> None:
    found = words("vllm serve {model} --c.a 1", one("one", "--c.b", "2", "--c.d", "3"))
    assert found[3:] == ["--c.b", "2", "--c.d", "3", "--c.a", "1"]


def test_a_flag_that_takes_several_times_is_brought_whole() -> None:
    found = words("vllm serve {model}", one("one", "--x", "1", "--y", "--x", "2"))
    assert found[3:] == ["--x", "1", "--x", "2", "--y"]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("vllm serve {model}", 3),
        ("exec env A=1 vllm serve 'org/m' --port 1", 3),
        ("vllm serve --port 1", 2),
        ("python3 -m vllm.entrypoints.openai.api_server --model {model}", 3),
        ("# vllm serve x\necho vllm serve\nvllm \\\n serve {model}", None),
        ("# vllm serve x\necho 'vllm serve y'\nvllm serve {model} | tee log", 3),
        ("vllm serve $MODEL --port 1", 2),
        ("./start.sh {model}", None),
    ],
)
def test_flags_go_behind_the_model_and_nowhere_else(command: str, place: int | None) -> None:
    before = words(command)
    found = words(command, one("one", "--j", '{"a": "{b}"}'))
    new = ["--j", '{"a": "{b}"}']
    assert found == (before if place is None else [*before[:place], *new, *before[place:]])
