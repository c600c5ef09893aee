"""What the config classes of a tree refuse: its own code, followed on the values of the command.

Only what is raised whatever the model, the machine and the environment are is a fault.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.serving import command, configs, flags, values
from vllm_mods.serving.command import Parsed, Use
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.known import KnownFlags
from vllm_mods.serving.meaning import UNKNOWN, CodeReference, KnownObject, RefusedError
from vllm_mods.serving.source import ClassPlace, FunctionPlace, ModuleSources, dotted, text_of
from vllm_mods.serving.statements import Statements

_CLASS = "AsyncEngineArgs"
# What is followed: the arguments, the config classes, and the names that these look up. Not what
# holds them all: it asks the model and the machine before everything else.
_FOLLOWED = ("vllm.config", "vllm.engine.arg_utils", "vllm.v1.attention.backends.registry")
_WHOLE = "vllm.config.vllm"
# Numbers of processes: where no bound is stated, the executor that is asked for none fails.
_LEAST = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}

_LOADERS = "vllm/model_executor/model_loader/__init__.py"
_TABLE = "_LOAD_FORMAT_TO_MODEL_LOADER"
_CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/factory.py"
_FACTORY = "KVConnectorFactory"
_NEAR = ("vllm.config", "vllm.model_executor.model_loader", _CONNECTORS[:-3].replace("/", "."))


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
    for name, uses in _by_flag(parsed.uses).items():
        typed[name] = uses[-1].typed
        try:
            given[name] = _value(known, running, uses, filled_in)
            _count(name, given[name])
        except RefusedError as error:
            refused = True
            yield ServeFault(FindingCode.REFUSED, uses[-1].typed, str(error))
    cls = known.sources.find_class(flags.ENGINE, _CLASS)
    if refused or cls is None:
        return
    try:
        _run(known, running, cls, given)
    except RefusedError as error:
        subject = ", ".join(typed[n] for n in dict.fromkeys(error.names) if n in typed)
        yield ServeFault(FindingCode.REFUSED, subject or "vllm serve", str(error))


def _count(name: str, value: object) -> None:
    """Refuse numbers for which no bound is stated everywhere, and with which nothing starts."""
    if type(value) is int and value < _LEAST.get(name, value):
        raise RefusedError(f"{value} is out of range: it has to be >= {_LEAST[name]}")
    if name == "max_model_len" and value == 0:
        raise RefusedError("a model of no length cannot be served: -1 and auto leave it to vLLM")


def _by_flag(uses: tuple[Use, ...]) -> dict[str, list[Use]]:
    """Return the uses of each flag that count, by its attribute: all by key, else the last one."""
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        name = use.name.removeprefix("--").replace("-", "_")
        grouped[name] = [*grouped.get(name, []), use] if use.keys else [use]
    return grouped


def _value(
    known: KnownFlags, running: Statements, uses: list[Use], filled_in: Callable[[str], bool]
) -> Any:
    use = uses[-1]
    assert use.flag is not None  # noqa: S101  (a command without a fault has known flags only)
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
    else:
        read = [values.read(shape, value) for value in use.values]
        data = read if shape.nargs is not None else read[0]
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
    check_whole(known.sources, running.whole)


def check_whole(sources: ModuleSources, given: dict[str, Any]) -> None:
    """Look at what the config class that holds all others is made of. Raises ``RefusedError``.

    It asks the model and the machine before everything else, so of it only that is followed which does
    not depend on them; then the loader, and the table of connectors.
    """
    running = Statements(sources.only(_NEAR, ""))
    cls = sources.find_class("vllm/config/vllm.py", "VllmConfig")
    if cls is None:
        return
    fields = configs.fields(running.sources, cls)
    for name, value in given.items():
        if isinstance(value, (str, int, float, list, dict)) and name in fields:
            running.validated(cls, fields[name], value)
    _loader(running, given.get("load_config"))
    _connector(running, cls, given)


def _loader(running: Statements, config: Any) -> None:
    """Make the loader of a format, as far as it looks at its configuration."""
    table = running.sources.value(_LOADERS, _TABLE)
    wanted = running.attribute(config, "load_format")
    for key, value in (
        zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ()
    ):
        cls = running.sources.find_class(_LOADERS, dotted(value))
        made = cls and running.sources.method(cls, "__init__")
        if isinstance(key, ast.Constant) and key.value == wanted and cls and made:
            names = {"self": KnownObject(cls), "load_config": config}
            _follow(
                running, made, lambda one: "super()" not in one, names, "model_loader_extra_config"
            )


def _connector(running: Statements, cls: ClassPlace, given: dict[str, Any]) -> None:
    """Look a connector up, where that is done whatever else is so."""
    config, post = given.get("kv_transfer_config"), running.sources.method(cls, "__post_init__")
    there = running.sources.parse(_CONNECTORS) is not None
    if not isinstance(config, KnownObject) or post is None or not there:
        return
    name = running.attribute(config, "kv_connector")
    if name is UNKNOWN or running.attribute(config, "kv_connector_module_path") is not None:
        return
    register = f"{_FACTORY}.register_connector"
    known = [
        text_of(one.args[0]) or "…"
        for one in running.sources.nodes(_CONNECTORS)
        if isinstance(one, ast.Call) and one.args and dotted(one.func) == register
    ]
    if name in known or "…" in known:
        return
    # Without a name, it is refused where it is looked up.
    nameless = KnownObject(config.cls, {**config.attrs, "kv_connector": None})
    whole = {"self": KnownObject(cls, {**given, "kv_transfer_config": nameless})}
    try:
        _follow(running, post, _looks_up, whole, "kv_transfer_config")
    except RefusedError as error:
        why = str(error) if name is None else f"kv_connector {name!r} is none of {', '.join(known)}"
        raise RefusedError(why, error.names) from None


def _looks_up(statement: str) -> bool:
    return "_kv_transfer_config()" in statement or (
        _FACTORY in statement and statement.startswith("if ")
    )


def _follow(
    running: Statements,
    method: FunctionPlace,
    kept: Callable[[str], bool],
    names: dict[str, Any],
    flag: str,
) -> None:
    """Follow those statements of a method that are kept, by their text."""
    body = [one for one in method.node.body if kept(ast.unparse(one))]
    try:
        running.follow(body, method.path, names)
    except RefusedError as error:
        raise RefusedError(str(error), (flag,)) from None
