"""A reference of the command line, from click's own tree of commands."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from reference.markdown import code, plain, table
from vllm_mods.cli import main
from vllm_mods.cli.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator


def all_commands() -> str:
    """Return a section per command, in the order of ``vllm-mods --help``."""
    return "\n\n".join(_section(command, context) for command, context in walk())


def walk() -> Iterator[tuple[Any, Any]]:
    """Yield each command that does something, with a context that knows its whole name."""
    pending = [main.context_class(main, info_name="vllm-mods", **main.context_settings)]
    while pending:
        context = pending.pop(0)
        group: Any = context.command
        names: list[str] = group.list_commands(context) if hasattr(group, "list_commands") else []
        below = [group.get_command(context, name) for name in names]
        pending[:0] = [
            command.context_class(command, info_name=name, parent=context)
            for name, command in zip(names, below, strict=True)
        ]
        if not names:
            yield context.command, context


def _section(command: Any, context: Any) -> str:  # click's, which only cli/ imports
    name = context.command_path.removeprefix("vllm-mods ")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f"## {name} {{ #{name.replace(' ', '-')} }}",
        f"```text\n{usage}\n```",
        _prose(command.help or ""),
        table(
            ("option", "meaning"),
            (
                (code(names), plain(said))
                for one in command.get_params(context)
                for names, said in filter(None, [one.get_help_record(context)])
                if said
            ),
        ),
        _examples(name),
    ]
    return "\n\n".join(part for part in parts if part)


def _examples(name: str) -> str:
    lines = examples(name)
    return "```text\n" + "\n".join(lines) + "\n```" if lines else ""


def _prose(text: str) -> str:
    r"""Return a help text; a paragraph behind ``\b`` keeps its lines."""
    made = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            made.append(f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```")
        else:
            made.append(plain(" ".join(paragraph.split())))
    return "\n\n".join(made)
