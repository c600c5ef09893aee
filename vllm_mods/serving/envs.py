"""The environment of a serve command against the table of variables in ``vllm/envs.py``."""

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import ModPlan
from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import values
from vllm_mods.serving.faults import ServeFault, note, of
from vllm_mods.serving.shape import FlagShape
from vllm_mods.serving.source import ModuleSources, text_of
from vllm_mods.serving.template import Serving

_PATH = "vllm/envs.py"
_PREFIX = "VLLM_"
_TABLE = "environment_variables"
_RUST = "VLLM_USE_RUST_FRONTEND"


class EnvVariable(NamedTuple):
    """A variable that vLLM reads. ``number`` is ``int`` or ``float`` where its value has to be one."""

    choices: tuple[str, ...] = ()
    any_case: bool = False
    number: str = ""


def faults(sources: ModuleSources, serving: Serving) -> Iterator[ServeFault]:
    """Yield what is wrong with variables. Raises ``TreeError`` if a file of the tree cannot be read."""
    named = {k: v for k, v in serving.env.items() if k.startswith(_PREFIX)}
    table = variables(sources) if named else {}
    if table is None:
        yield note(FindingCode.ENV_UNCLEAR, _PATH, "has no table of variables to check against")
        return
    version = sources.tree.version or "this version"
    for name, value in named.items():
        if name in table:
            if not serving.fills_in(value):
                yield from of(name, _variable_problems(table[name], value))
        elif (reader := _find_mention(sources, name, serving.mods)) is not None:
            message = f"is not in {_PATH}, but {reader} mentions it"
            yield note(FindingCode.ENV_ELSEWHERE, name, message)
        else:
            # what all have in common is no likeness
            plain = {known.removeprefix(_PREFIX): known for known in table}
            near = plain.get(values.nearest(name.removeprefix(_PREFIX), plain), "")
            meant = f"; did you mean {near}?" if near else ""
            message = f"vLLM {version} knows no such variable and ignores it{meant}"
            yield ServeFault(FindingCode.ENV_UNKNOWN, name, message, near)


def renders_with_minijinja(sources: ModuleSources, env: Mapping[str, str]) -> bool:
    """Tell whether this vLLM, with this environment, has its Rust frontend render templates."""
    is_on = env.get(_RUST, "0").strip() not in {"", "0"}
    return is_on and _RUST in (variables(sources) or {})


def _variable_problems(variable: EnvVariable, value: str) -> Iterator[ServeFault]:
    if variable.choices:
        offered = variable.choices
        if variable.any_case:
            value, offered = value.lower(), tuple(one.lower() for one in offered)
        for fault in values.choice_problems(value, offered):
            yield fault._replace(code=FindingCode.ENV_VALUE)
    elif variable.number:
        try:
            values.read(FlagShape(variable.number), value)
        except ValueError as error:
            yield ServeFault(FindingCode.ENV_VALUE, "", f"{error}, which vLLM needs")


def variables(sources: ModuleSources) -> Mapping[str, EnvVariable] | None:
    """Return the variables by name; ``None`` if the tree does not say them in one table."""
    value = sources.value(_PATH, _TABLE)
    if not isinstance(value, ast.Dict):
        return None
    rows = ((text_of(key), reader) for key, reader in zip(value.keys, value.values, strict=True))
    return {name: _variable(name, reader) for name, reader in rows if name is not None}


def _find_mention(sources: ModuleSources, name: str, mods: Sequence[ModPlan]) -> str | None:
    """Return a file of Python that mentions a name: what mods change; of a local tree, any file."""
    tree = sources.tree
    changed = {change.path for mod in mods for change in mod.changes}
    for path in sorted(changed if tree.remote else changed.union(tree.paths())):
        if path.endswith(".py") and path != _PATH and name.encode() in (tree.read(path) or b""):
            return path
    return None


def _variable(name: str, reader: ast.expr) -> EnvVariable:
    if isinstance(reader, ast.Call) and (dotted(reader.func) or "").endswith("env_with_choices"):
        any_case = len(reader.args) > 3 or "case_sensitive" in {one.arg for one in reader.keywords}
        with contextlib.suppress(IndexError, TypeError, ValueError):  # computed ones
            return EnvVariable(tuple(map(str, ast.literal_eval(reader.args[2]))), any_case)
    # `int(os.getenv("X", "0"))` and nothing around the value itself
    reads = rf"\b(int|float)\([\w.]*(?:getenv|environ|environ\.get)\({re.escape(repr(name))}(?:, .*?)?\)[,)]"
    number = re.search(reads, ast.unparse(reader))
    return EnvVariable(number=number[1] if number else "")
