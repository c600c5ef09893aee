"""``template.toml``: what a chat template says of itself. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.toml_table import NAME, Table

SCHEMA = 1
STRING, OPENAI = "string", "openai"
"""How vLLM hands a message's content over: ``--chat-template-content-format``."""
_TYPES = ("boolean", "string", "integer", "number", "array", "object")


class Kwarg(NamedTuple):
    """A chat template argument; ``type`` is JSON schema's word."""

    name: str
    type: str
    default: Any
    summary: str


class About(NamedTuple):
    """A template.toml that has no problems; ``families`` are values of ``model_type`` in config.json."""

    name: str
    version: str
    summary: str
    license: str
    content_format: str
    families: tuple[str, ...]
    tool_call_parser: str | None
    reasoning_parser: str | None
    kwargs: tuple[Kwarg, ...]


def parse(data: bytes, where: str) -> About:
    """Read a template.toml. Raises ``ManifestError`` with every problem."""
    top = Table(toml_of(data, where), "", [])
    top.check_schema(SCHEMA)
    kwargs = top.table("kwargs")
    found = About(
        name=top.match("name", NAME, "lower case letters, digits, '.', '_' and '-'", required=True),
        version=top.get("version", str, required=True) or "",
        summary=top.get("summary", str, required=True) or "",
        license=top.get("license", str, required=True) or "",
        content_format=top.choice("content_format", (STRING, OPENAI), STRING),
        families=top.strings("families"),
        tool_call_parser=top.get("tool_call_parser", str),
        reasoning_parser=top.get("reasoning_parser", str),
        kwargs=tuple(_kwarg(kwargs.table(name), name) for name in kwargs.raw),
    )
    if "content_format" not in top.raw:
        top.problem("content_format", "is required")
    top.refuse_unknown()
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    return found


def _kwarg(table: Table, name: str) -> Kwarg:
    table.known.add("default")
    if "default" not in table.raw:
        table.problem("default", "is required")
    found = Kwarg(
        name=name,
        type=table.choice("type", _TYPES, ""),
        default=table.raw.get("default"),
        summary=table.get("summary", str) or "",
    )
    table.refuse_unknown()
    return found
