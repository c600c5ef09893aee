"""The environment variables that a vLLM reads: the table in ``vllm/envs.py``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from vllm_mods.serve.source import ModuleSources, dotted, text_of

PATH = "vllm/envs.py"
PREFIX = "VLLM_"
_TABLE = "environment_variables"
_READERS = ("environ.get", "getenv", "environ")


class EnvVariable(NamedTuple):
    """A variable that vLLM reads. ``number`` is ``int`` or ``float`` where its value has to be one."""

    name: str
    choices: tuple[str, ...] = ()
    any_case: bool = False
    number: str = ""


def variables(sources: ModuleSources) -> Mapping[str, EnvVariable] | None:
    """Return the variables by name; ``None`` if the tree does not say them in one table."""
    found = sources.find(PATH, _TABLE)
    value = getattr(found.node, "value", None) if found is not None else None
    if not isinstance(value, ast.Dict):
        return None
    table: dict[str, EnvVariable] = {}
    for key, reader in zip(value.keys, value.values, strict=True):
        if key is not None and (name := text_of(key)) is not None:
            table[name] = _variable(name, reader)
    return table


def mentioning(sources: ModuleSources, name: str, changed: frozenset[str]) -> str | None:
    """Return a file of Python that mentions a name: what mods change; of a local tree, any file."""
    tree = sources.tree
    paths = sorted(changed if tree.remote else changed | set(tree.paths()))
    for path in paths:
        if path.endswith(".py") and path != PATH and name.encode() in (tree.read(path) or b""):
            return path
    return None


def _variable(name: str, reader: ast.expr) -> EnvVariable:
    if isinstance(reader, ast.Call) and (dotted(reader.func) or "").endswith("env_with_choices"):
        choices = reader.args[2] if len(reader.args) > 2 else None
        if isinstance(choices, (ast.List, ast.Tuple)):
            values = [one.value for one in choices.elts if isinstance(one, ast.Constant)]
            if len(values) == len(choices.elts):
                any_case = len(reader.args) > 3 or any(
                    one.arg == "case_sensitive" for one in reader.keywords
                )
                return EnvVariable(name, tuple(str(value) for value in values), any_case)
    for node in ast.walk(reader):
        # `int(os.getenv("X", "0"))` and nothing around the value itself
        if isinstance(node, ast.Call) and dotted(node.func) in {"int", "float"} and node.args:
            inner = node.args[0]
            called = dotted(inner.func) if isinstance(inner, ast.Call) else None
            own = isinstance(inner, ast.Call) and inner.args and inner.args[0]
            if called and called.endswith(_READERS) and own and text_of(own) == name:
                return EnvVariable(name, number=dotted(node.func) or "")
    return EnvVariable(name)
