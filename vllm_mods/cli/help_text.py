"""Help as it is shown: options in groups where there are many, and examples below."""

from __future__ import annotations

import click

from vllm_mods.cli.examples import EXAMPLES

_MANY = 6
"""Up to so many options stand in one list."""
_GROUPS = {
    "Which mods": (
        *("--pairing", "--library"),
        *("--variant", "--strict-version", "--only-supported"),
    ),
    "Which vLLM": (
        *("--target", "--tree", "--from-diff", "--from-trees", "--from", "--to", "--vllm", "--pre"),
        *("--repo", "--good", "--bad", "--base", "--workspace"),
    ),
    "What it runs": ("--record", "--also", "--timeout", "--env", "--allow-network"),
    "Where from, and how fast": ("--offline", "--verify", "--jobs", "--executor", "--no-cache"),
    "What it prints": ("--format", "--output", "--explain", "--json"),
}


def explained(command: click.Command, path: str) -> click.Command:
    """Return a command, named by its ``path`` below the program, with all that its help should show."""
    if isinstance(command, click.Group):
        inner = {
            name: explained(one, f"{path} {name}".strip()) for name, one in command.commands.items()
        }
        return _Group(command.name, commands=inner, params=command.params, help=command.help)
    return _HelpCommand(
        command.name,
        params=command.params,
        callback=command.callback,
        context_settings=command.context_settings,
        help=command.help,
        epilog=path,
    )


def write_examples(formatter: click.HelpFormatter, path: str) -> None:
    """Write the examples of a command, each on a line of its own however long it is."""
    with formatter.section("Examples"):
        for line in EXAMPLES.get(path, ()):
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class _HelpCommand(click.Command):
    """One command. Its ``epilog`` is the path that its examples are under."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            one.opts[-1]: record
            for one in self.get_params(ctx)
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)) is not None
        }
        if len(records) > _MANY:
            for title, names in _GROUPS.items():
                listed = [records.pop(name) for name in names if name in records]
                if listed:
                    with formatter.section(title):
                        formatter.write_dl(listed)
        with formatter.section("Options"):
            formatter.write_dl(list(records.values()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_examples(formatter, self.epilog or "")


class _Group(click.Group):
    """A command of commands, with the examples of its own name."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_examples(formatter, self.name or "")
