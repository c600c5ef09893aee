"""The environment of a serve command against the variables that a tree reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from vllm_mods.base.model import ModPlan
from vllm_mods.serve import envs, values
from vllm_mods.serve.faults import ServeFault, fault_of, note
from vllm_mods.serve.source import ModuleSources
from vllm_mods.serve.values import ValueProblem

_RUST = "VLLM_USE_RUST_FRONTEND"


def faults(
    sources: ModuleSources,
    env: Mapping[str, str],
    mods: Sequence[ModPlan],
    filled_in: Callable[[str], bool],
) -> Iterator[ServeFault]:
    """Yield what is wrong with variables; ``filled_in`` tells of a value that a shell knows first.

    Raises ``TreeError`` if a file of the tree cannot be read.
    """
    named = {k: v for k, v in env.items() if k.startswith(envs.PREFIX)}
    table = envs.variables(sources) if named else {}
    if table is None:
        yield note("env-unclear", envs.PATH, "has no table of variables: they are not checked")
        return
    for name, value in named.items():
        if name not in table:
            yield _no_variable(sources, name, table, mods)
        elif not filled_in(value):
            yield from (fault_of(name, one) for one in _variable_problems(table[name], value))


def renders_with_minijinja(sources: ModuleSources, env: Mapping[str, str]) -> bool:
    """Tell whether this vLLM, with this environment, has its Rust frontend render templates."""
    if env.get(_RUST, "0").strip() in {"", "0"}:
        return False
    return _RUST in (envs.variables(sources) or {})


def _no_variable(
    sources: ModuleSources,
    name: str,
    table: Mapping[str, envs.EnvVariable],
    mods: Sequence[ModPlan],
) -> ServeFault:
    changed = frozenset(change.path for mod in mods for change in mod.changes)
    reader = envs.mentioning(sources, name, changed)
    if reader is not None:
        return note("env-elsewhere", name, f"is not in {envs.PATH}, but {reader} mentions it")
    near = values.nearest(name, table)
    meant = f"; did you mean {near}?" if near else ""
    message = f"vLLM {sources.tree.version or 'this version'} knows no such variable and ignores it{meant}"
    return ServeFault("env-unknown", name, message, near)


def _variable_problems(variable: envs.EnvVariable, value: str) -> Iterator[ValueProblem]:
    if variable.choices:
        offered = variable.choices
        if variable.any_case:
            value, offered = value.lower(), tuple(one.lower() for one in offered)
        for one in values.chosen(value, offered):
            yield one._replace(code="env-value")
    elif variable.number:
        try:
            (int if variable.number == "int" else float)(value)
        except ValueError:
            what = "a whole number" if variable.number == "int" else "a number"
            yield values.ValueProblem(
                "env-value", f"{value!r} is not {what}, which vLLM makes of it"
            )
