"""What the config classes of a tree refuse: its own code, followed on the values of the command.

Only what is raised whatever the model, the machine and the environment are is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vllm_mods.base.untrusted import json_of
from vllm_mods.serve import command, flags, values, whole
from vllm_mods.serve.command import Parsed, Use
from vllm_mods.serve.faults import ServeFault
from vllm_mods.serve.known import KnownFlags
from vllm_mods.serve.meaning import UNKNOWN, CodeReference, KnownObject, RefusedError
from vllm_mods.serve.source import ClassPlace
from vllm_mods.serve.statements import Statements

_CLASS = "AsyncEngineArgs"
# What is followed: the arguments, the config classes, and the names that these look up. Not what
# holds them all: it asks the model and the machine before everything else.
_FOLLOWED = ("vllm.config", "vllm.engine.arg_utils", "vllm.v1.attention.backends.registry")
_WHOLE = "vllm.config.vllm"
# Numbers of processes: where no bound is stated, the executor that is asked for none fails.
_LEAST = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}


def faults(
    known: KnownFlags, parsed: Parsed, filled_in: Callable[[str], bool]
) -> Iterator[ServeFault]:
    """Yield what is refused of a command that has no other fault.

    ``filled_in`` tells of a value that a shell knows first. Raises ``TreeError``.
    """
    running = Statements(known.sources.only(_FOLLOWED, _WHOLE))
    given: dict[str, Any] = {"model": UNKNOWN, "tokenizer": UNKNOWN, "model_tag": UNKNOWN}
    typed: dict[str, str] = {}
    refused = False
    for uses in _by_flag(parsed.uses):
        name = _attribute(uses[-1])
        typed[name] = uses[-1].typed
        try:
            given[name] = _value(known, running, uses, filled_in)
            _count(name, given[name])
        except RefusedError as error:
            refused = True
            yield ServeFault("refused", uses[-1].typed, str(error))
    cls = known.sources.find_class(flags.ENGINE, _CLASS)
    if refused or cls is None:
        return
    try:
        _run(known, running, cls, given)
    except RefusedError as error:
        subject = ", ".join(typed[n] for n in dict.fromkeys(error.names) if n in typed)
        yield ServeFault("refused", subject or "vllm serve", str(error))


def _count(name: str, value: object) -> None:
    """Refuse numbers for which no bound is stated everywhere, and with which nothing starts."""
    if type(value) is int and value < _LEAST.get(name, value):
        raise RefusedError(f"{value} is out of range: it has to be >= {_LEAST[name]}")
    if name == "max_model_len" and value == 0:
        raise RefusedError("a model of no length cannot be served: -1 and auto leave it to vLLM")


def _by_flag(uses: tuple[Use, ...]) -> Iterator[list[Use]]:
    """Yield the uses of each flag that count: all by key, else the last one."""
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        before = grouped.get(_attribute(use), [])
        grouped[_attribute(use)] = [*before, use] if use.keys else [use]
    yield from grouped.values()


def _attribute(use: Use) -> str:
    assert use.flag is not None  # noqa: S101  (a command without a fault has known flags only)
    return use.flag.name.removeprefix("--").replace("-", "_")


def _value(  # noqa: PLR0911 - an answer per kind of flag
    known: KnownFlags, running: Statements, uses: list[Use], filled_in: Callable[[str], bool]
) -> Any:
    use = uses[-1]
    assert use.flag is not None  # noqa: S101  (as above)
    shape = known.shape(use.flag)
    if any(filled_in(value) for one in uses for value in one.values):
        return UNKNOWN
    if use.keys:
        data: Any = {}
        for one in uses:
            data = _merged(data, command.nested(one))
    elif not shape.takes_value:
        return not use.negated
    elif shape.append or "action" in use.flag.given or not use.values:
        return UNKNOWN
    elif shape.optional and use.values in {("",), ("None",)}:
        return None
    elif shape.kind in {"json", "json-or-text"}:
        text = use.values[0]
        if shape.kind == "json-or-text" and not text.strip().startswith("{"):
            return text
        data = json_of(
            values.plain_json(text, human=known.flags.rules.human_json and shape.validated)
        )
    else:
        read = [values.read(shape, value) for value in use.values]
        return read if shape.nargs is not None else read[0]
    if shape.validated and shape.config is not None and isinstance(data, dict):
        return running.make(shape.config, data)
    return data


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = _merged(one[key], other[key])
    return both


def _run(known: KnownFlags, running: Statements, cls: ClassPlace, given: dict[str, Any]) -> None:
    args = KnownObject(cls, dict(given))
    extra = {"usage_context": UNKNOWN, "headless": given.get("headless", False)}
    for name in ("__post_init__", "create_engine_config"):
        method = known.sources.method(cls, name)
        if method is not None:
            taken = {one.arg for one in method.node.args.args}
            told = {name: value for name, value in extra.items() if name in taken}
            running.call(CodeReference(method, args), [], told)
    whole.check(known.sources, running.whole)
