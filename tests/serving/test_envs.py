"""Variables of the environment against the table of the release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant
from serve_asking import ask, changed, messages, planned
from serve_tree import FILES

from vllm_mods.base.model import FileChange
from vllm_mods.serving.check import check
from vllm_mods.serving.envs import EnvVariable, variables
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.source import ModuleSources
from vllm_mods.serving.template import Serving

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "environment_variables = {"


def messages_of(env: Mapping[str, str], *lines: str, unknown: tuple[str, ...] = ()) -> list[str]:
    files = changed("vllm/envs.py", (TABLE, "\n".join((TABLE, *lines))))
    return messages(ask("", env=env, files=files, unknown=unknown))


@pytest.mark.parametrize(
    ("reader", "variable"),
    [
        ('lambda: int(os.getenv("X", "0"))', EnvVariable(number="int")),
        ('lambda: float(os.environ["X"])', EnvVariable()),
        ('lambda: float(os.environ.get("X"))', EnvVariable(number="float")),
        ('lambda: int(environ.get("X", 1)) if a else b', EnvVariable(number="int")),
        ('lambda: int(os.getenv("Y", "0"))', EnvVariable()),
        ('lambda: int(strip("X")) + float(os.getenv("X"))', EnvVariable(number="float")),
        ('lambda: int() or int(3) or int(f()) or int(os.getenv("X"))', EnvVariable(number="int")),
        ('lambda: bool(os.getenv("X"))', EnvVariable()),
        ('env_with_choices("X", "a", ["a", "b"])', EnvVariable(("a", "b"))),
        ('x.env_with_choices("X", "a", ("a", 1))', EnvVariable(("a", "1"))),
        ('env_with_choices("X", "a", ["a"], False)', EnvVariable(("a",), any_case=True)),
        ('env_with_choices("X", "a", ["a"], case_sensitive=False)', EnvVariable(("a",), True)),
        ('env_with_choices("X", "a", ["a"], other=1)', EnvVariable(("a",))),
        ('env_with_choices("X", "a", computed())', EnvVariable()),
        ('env_with_choices("X", "a", 1)', EnvVariable()),
        ('env_with_choices("X", "a")', EnvVariable()),
        ('other("X", "a", ["a"])', EnvVariable()),
        ("1", EnvVariable()),
    ],
)
def test_what_a_reader_takes(reader: str, variable: EnvVariable) -> None:
    text = f'environment_variables: dict = {{**more, 1: 2, "X": {reader}}}\n'
    sources = ModuleSources(MemoryTree({"vllm/envs.py": text.encode()}))
    assert variables(sources) == {"X": variable}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("VLLM_PORT", "8000", ""),
        ("VLLM_PORT", "x", "'x' is not a whole number, which vLLM needs"),
        ("VLLM_PORT", "1.5", "'1.5' is not a whole number, which vLLM needs"),
        ("VLLM_SHARE", "1.5", ""),
        ("VLLM_SHARE", "x", "'x' is not a number, which vLLM needs"),
        ("VLLM_LEVEL", "LOW", "'LOW' is not accepted: did you mean 'low'? expected low, high"),
        ("VLLM_ANY", "AbC", ""),
        ("VLLM_ANY", "X", "'x' is not accepted: expected abc, def"),
        ("VLLM_ATOMIC_ADD", "any", ""),
        ("HF_PORT", "x", ""),
        (
            "VLLM_POTR",
            "x",
            "vLLM 0.19.1 knows no such variable and ignores it; did you mean VLLM_PORT?",
        ),
        ("VLLM_FOO", "x", "vLLM 0.19.1 knows no such variable and ignores it"),
        ("VLLM_PORT", "$P", ""),
    ],
)
def test_what_is_said_of_a_variable(name: str, value: str, message: str) -> None:
    more = (
        '"VLLM_SHARE": lambda: float(os.getenv("VLLM_SHARE")),',
        '"VLLM_ANY": env_with_choices("VLLM_ANY", "a", ["Abc", "deF"], case_sensitive=False),',
    )
    faults = messages_of({name: value}, *more, unknown=("$P",))
    assert [one for one in faults if "$P" not in one] == ([f"{name}: {message}"] if message else [])


def test_a_file_that_mentions_a_variable_makes_a_note() -> None:
    assert messages_of({"VLLM_ELSEWHERE": "1"}) == [
        "note: VLLM_ELSEWHERE: is not in vllm/envs.py, but vllm/other.py mentions it"
    ]


def test_without_a_table_nothing_is_checked() -> None:
    files = changed("vllm/envs.py", (TABLE, "x = {"))
    assert messages(ask("", env={"VLLM_PROT": "1", "VLLM_B": "1"}, files=files)) == [
        "note: vllm/envs.py: has no table of variables to check against"
    ]
    assert messages(ask("", env={"HF_HOME": "1"}, files=files)) == []


def test_of_a_remote_tree_only_what_mods_change_is_read_for_a_mention() -> None:
    tree = MemoryTree({**FILES, "vllm/mine.py": b'os.environ["VLLM_MINE"]\n'}, remote=True)
    changes = (FileChange("vllm/mine.py", None, b""),)
    mods = (planned(mod(variant()))._replace(changes=changes),)
    env = {"VLLM_MINE": "1"}
    assert messages(check(KnownFlags(tree), Serving(("m",), env, mods=mods))) == [
        "note: VLLM_MINE: is not in vllm/envs.py, but vllm/mine.py mentions it"
    ]
    assert messages(check(KnownFlags(tree), Serving(("m",), env))) == [
        "VLLM_MINE: vLLM 0.19.1 knows no such variable and ignores it"
    ]
