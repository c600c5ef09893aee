"""What the config classes of a tree refuse: their own code is followed on the command's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.serving import command, flags, values
from vllm_mods.serving.command import Parsed, Use
from vllm_mods.serving.evaluation import (
    UNKNOWN,
    ConfigObject,
    RefusedError,
)
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.following import Follower
from vllm_mods.serving.known import KnownFlags

_CLASS = "AsyncEngineArgs"
# What is followed: the arguments and the config classes. Not what holds them all: it asks the model and the machine first.
_FOLLOWED = ("vllm.config", "vllm.engine.arg_utils")
_WHOLE = "vllm.config.vllm"
# Numbers of processes: where no bound is stated, the executor that is asked for none fails.
_LEAST = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}


def faults(
    known: KnownFlags, parsed: Parsed, filled_in: Callable[[str], bool]
) -> Iterator[ServeFault]:
    """Yield what is refused of a command that has no other fault.

    ``filled_in`` tells of a value that a shell knows first. Raises ``TreeError``.
    """
    follower = Follower(known.sources.only(_FOLLOWED, _WHOLE))
    given: dict[str, Any] = {"model": UNKNOWN, "tokenizer": UNKNOWN, "model_tag": UNKNOWN}
    typed: dict[str, str] = {}
    refused = False
    for name, uses in _by_flag(parsed.uses).items():
        typed[name] = uses[-1].typed
        try:
            given[name] = _value(known, follower, uses, filled_in)
            _count(name, given[name])
        except RefusedError as error:
            refused = True
            yield ServeFault(FindingCode.REFUSED, uses[-1].typed, str(error))
    cls = known.sources.find_class(flags.ENGINE, _CLASS)
    if refused or cls is None:
        return
    try:
        args = ConfigObject(cls, follower.defaults(cls) | given)
        for name in ("__post_init__", "create_engine_config"):
            if method := known.sources.method(cls, name):
                follower.run(method, args, {"headless": given.get("headless", False)})
    except RefusedError as error:
        subject = ", ".join(typed[n] for n in dict.fromkeys(error.names) if n in typed)
        yield ServeFault(FindingCode.REFUSED, subject or "vllm serve", str(error))


def _count(name: str, value: object) -> None:
    """Refuse numbers with which nothing starts, though not every release states a bound."""
    if type(value) is int and value < _LEAST.get(name, value):
        raise RefusedError(f"{value} is out of range: it has to be >= {_LEAST[name]}")
    if name == "max_model_len" and value == 0:
        raise RefusedError("a model of no length cannot be served: -1 and auto leave it to vLLM")


def _by_flag(uses: tuple[Use, ...]) -> dict[str, list[Use]]:
    """Return the uses of each flag that count, by attribute: every ``--flag.key``, else the last use."""
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        name = use.name.removeprefix("--").replace("-", "_")
        grouped[name] = [*grouped.get(name, []), use] if use.keys else [use]
    return grouped


def _value(
    known: KnownFlags, follower: Follower, uses: list[Use], filled_in: Callable[[str], bool]
) -> Any:
    use = uses[-1]
    assert use.flag is not None  # noqa: S101  (a command without a fault has known flags only)
    shape = known.shape(use.flag)
    if any(filled_in(value) for one in uses for value in one.values):
        return UNKNOWN
    if use.keys:
        data: Any = {}
        for keyed in uses:
            data = _merge(data, command.as_object(keyed))
    elif not shape.takes_value:
        return not use.negated
    elif shape.append or "action" in use.flag.given or not use.values:
        return UNKNOWN
    else:
        read = [values.read(shape, value) for value in use.values]
        data = read if shape.nargs is not None else read[0]
    if shape.validated and shape.config is not None and isinstance(data, dict):
        return follower.make(shape.config, data)
    return data


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {**first, **second}
    for key in first.keys() & second.keys():
        if isinstance(first[key], dict) and isinstance(second[key], dict):
            both[key] = _merge(first[key], second[key])
    return both
