"""What is refused behind the config classes: by the one that holds them all, by the loader, by the table of connectors.

``VllmConfig`` asks the model and the machine before everything else, so of it only that is followed which
does not depend on them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from vllm_mods.serve import configs
from vllm_mods.serve.meaning import UNKNOWN, KnownObject, RefusedError
from vllm_mods.serve.source import ClassPlace, FunctionPlace, ModuleSources, dotted, text_of
from vllm_mods.serve.statements import Statements

CLASS = "VllmConfig"
_FILE = "vllm/config/vllm.py"
_LOADERS = "vllm/model_executor/model_loader/__init__.py"
_TABLE = "_LOAD_FORMAT_TO_MODEL_LOADER"
_CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/factory.py"
_FACTORY = "KVConnectorFactory"
_NEAR = ("vllm.config", "vllm.model_executor.model_loader", _CONNECTORS[:-3].replace("/", "."))


def check(sources: ModuleSources, given: dict[str, Any]) -> None:
    """Look at what ``VllmConfig`` is made of. Raises ``RefusedError``."""
    running = Statements(sources.only(_NEAR, ""))
    cls = sources.find_class(_FILE, CLASS)
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
            _run(
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
        _run(running, post, _looks_up, whole, "kv_transfer_config")
    except RefusedError as error:
        why = str(error) if name is None else f"kv_connector {name!r} is none of {', '.join(known)}"
        raise RefusedError(why, error.names) from None


def _looks_up(statement: str) -> bool:
    return "_kv_transfer_config()" in statement or (
        _FACTORY in statement and statement.startswith("if ")
    )


def _run(
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
