"""What ``import vllm_mods`` gives, from the docstrings of what is public."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import vllm_mods
from reference.markdown import code, table

if TYPE_CHECKING:
    from collections.abc import Callable


def names() -> list[str]:
    """Return the public names, in the order in which the door lists them."""
    return list(vllm_mods._HOMES)  # noqa: SLF001  (`dir` sorts them)


def library() -> str:
    """Return a table of the public names, then a section for each: call, docstring, methods."""
    rows = (
        (f"[{code(name)}](#{name})", _text(_first(getattr(vllm_mods, name)))) for name in names()
    )
    return "\n\n".join([table(("name", "what it is"), rows), *map(_section, names())])


def _section(name: str) -> str:
    thing = getattr(vllm_mods, name)
    parts = [f"## {name} {{ #{name} }}"]
    if not inspect.isclass(thing):
        parts.append(_call(name, thing))
    elif fields := getattr(thing, "__match_args__", ()):
        parts.append(f"Fields: {', '.join(map(code, fields))}.")
    parts.append(_body(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing):
        parts += [
            f"### {name}.{method.__name__} {{ #{name}.{method.__name__} }}\n\n"
            f"{_call(method.__name__, method)}\n\n{_body(inspect.getdoc(method) or '')}"
            for method in vars(thing).values()
            if inspect.isfunction(method) and not method.__name__.startswith("_")
        ]
    return "\n\n".join(parts)


def _call(name: str, function: Callable[..., object]) -> str:
    """Return how something is called, one parameter on a line, as it is in the code."""
    signature = inspect.signature(function)
    shown = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        shown.append(_short(str(parameter)))
    gives = _short(inspect.formatannotation(signature.return_annotation))
    arguments = "".join(f"\n    {one}," for one in shown)
    return f"```text\n{name}({arguments}{chr(10) * bool(shown)}) -> {gives}\n```"


def _short(annotation: str) -> str:
    named = re.sub(r"<function .*? at 0x\w+>", "…", annotation)  # a default that is a function
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", named)


def _first(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0]


def _body(doc: str) -> str:
    """Return a docstring as Markdown, its example as a session."""
    told, _, example = doc.partition(">>> ")
    session = f"\n\n```pycon\n>>> {example.strip()}\n```" if example else ""
    return _text(told.strip()) + session


def _text(doc: str) -> str:
    return re.sub(
        r"``(.+?)``", r"`\1`", doc.replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n\n")
    )
