"""``template.toml``: what a chat template says of itself. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.schema import NAME, NAME_IN_WORDS, Table, reading

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
    with reading(toml_of(data, where), where, SCHEMA) as top:
        return About(
            name=top.match("name", NAME, NAME_IN_WORDS, required=True),
            version=top.text("version", required=True),
            summary=top.text("summary", required=True),
            license=top.text("license", required=True),
            content_format=top.choice("content_format", (STRING, OPENAI), STRING, required=True),
            families=top.strings("families"),
            tool_call_parser=top.get("tool_call_parser", str),
            reasoning_parser=top.get("reasoning_parser", str),
            kwargs=tuple(top.named("kwargs", _kwarg).values()),
        )


def _kwarg(table: Table) -> Kwarg:
    table.known.add("default")
    if "default" not in table.raw:
        table.problem("default", "is required")
    return Kwarg(
        name=table.name,
        type=table.choice("type", _TYPES, ""),
        default=table.raw.get("default"),
        summary=table.text("summary"),
    )
