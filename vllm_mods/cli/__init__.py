"""The command line: parse, call one function, render, return an exit code.

click is imported in this package only. The module of a command is loaded when it is called. Every
error becomes a message and an exit code in ``run`` and nowhere else.
"""

import importlib
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods import __version__
from vllm_mods.base.errors import EXIT_OK
from vllm_mods.cli import terminal
from vllm_mods.cli.examples import epilog

GROUPS = {
    "Use": {
        "list": "List the mods and pairings.",
        "show": "Show one mod or pairing: what it changes and needs.",
        "check": "Check whether mods apply to a vLLM tree; change nothing.",
        "diff": "Show what mods would change in a vLLM tree, as a diff.",
        "apply": "Apply mods to an installed vLLM, all of them or none.",
        "status": "Show which mods are applied to a vLLM.",
        "verify": "Check that patched files are unchanged.",
        "revert": "Remove mods from a vLLM.",
        "with": "Run a command on a copy of vLLM with mods; the installed vLLM is only read.",
    },
    "Share": {
        "add": "Add someone else's library to the project, and lock its version.",
        "sync": "Apply the project's mods to a vLLM, and revert all others.",
        "update": "Update the project's libraries, and lock them.",
        "remove": "Remove a library from the project.",
    },
    "Pair and build": {
        "suggest": "Show which mods, chat template and pairing a model needs.",
        "template": "Render chat templates, and check them with conversations.",
        "serve-check": "Check whether a vLLM accepts a serve command.",
        "lock": "Write a pairing's lock file: the hashes of everything in its image.",
        "build": "Build a pairing's image, exactly as its lock says.",
        "image": "Show what is in an image, and whether it is intact.",
        "upgrade": "Move a pairing to another vLLM version.",
        "up": "Lock, build and start a pairing, and wait until it serves.",
        "run": "Start a pairing's image as a container that serves.",
        "ps": "List the containers that `run` started, and whether the mods' code ran.",
        "evidence": "Check in a server's log whether the mods' code ran.",
        "bench": "Compare the speed and answers of a server with and without mods.",
    },
    "Make and keep": {
        "new": "Make a mod from a diff, two trees or a command.",
        "import": "Convert a spark-vllm-docker recipe to a pairing, or a folder with a run.sh to a mod.",
        "export": "Export a mod as a folder for spark-vllm-docker, or a pairing as a recipe.",
        "port": "Make a variant of a mod for another vLLM version.",
        "keep": "Keep a library up to date with vLLM's releases, on git branches.",
    },
    "Find out": {
        "matrix": "Check mods against many vLLM releases.",
        "bisect": "Find the commit at which a mod's verdict changes.",
        "doctor": "Examine this installation and a tree, and report what is wrong.",
        "explain": "Explain a verdict or a code, and say what to do next.",
        "completion": "Print the shell code that completes vllm-mods commands.",
    },
}
"""The commands by who needs them, each with what it does."""
COMMANDS = {name: words for group in GROUPS.values() for name, words in group.items()}

# A submodule named `list` would stand in for what has that name in this package; `import` and `with` are no names.
_MODULES = {
    **dict.fromkeys(("list", "show"), "listing"),
    "import": "import_command",
    **dict.fromkeys(("with", "bench"), "with_command"),
    **dict.fromkeys(("suggest", "serve-check"), "serve_check"),
    "diff": "check",
    "keep": "port",
    "bisect": "matrix",
    **dict.fromkeys(("lock", "upgrade"), "build"),
    **dict.fromkeys(("add", "remove", "update"), "project"),
    **dict.fromkeys(("status", "verify", "revert", "sync"), "installed"),
    **dict.fromkeys(("up", "run", "ps", "evidence"), "containers"),
    **dict.fromkeys(("doctor", "explain", "completion"), "helping"),
}


class _Commands(click.Group):
    """Loads a command's module when the command is called, so that the others cost nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"vllm_mods.cli.{_MODULES.get(cmd_name, cmd_name)}")
        commands = (one for one in vars(module).values() if isinstance(one, click.Command))
        command = next(one for one in commands if one.name == cmd_name)
        _add_examples(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), words) for name, words in group.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415  (when a shell asks)

        begun = [(name, words) for name, words in COMMANDS.items() if name.startswith(incomplete)]
        return [CompletionItem(name, help=words) for name, words in begun]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in COMMANDS or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:  # a TAB is no place to say it
            import difflib  # noqa: PLC0415

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            more = f"; did you mean `{near[0]}`?" if near else "; `vllm-mods --help` lists them"
            raise click.UsageError(f"there is no command `{args[0]}`{more}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)


def _add_examples(command: click.Command, path: str) -> None:
    command.epilog = epilog(path)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        _add_examples(inner, f"{path} {name}")


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog(""),
)
@click.version_option(
    __version__, "-V", "--version", prog_name="vllm-mods", message="%(prog)s %(version)s"
)
@click.pass_context
def main(context: click.Context) -> None:
    """Check, apply and revert mods: patches for an installed vLLM.

    A mod has variants: versions of its patch, each for a range of vLLM releases. A library is a folder of mods. A pairing is a model with the image, mods, chat
    template and serve command that it needs. A verdict says whether a mod applies; `vllm-mods explain VERDICT` explains it. TREE is a vLLM to read: a path to the vllm package,
    its parent folder or its environment, or one of pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV, image:REF. In the help of a command, [brackets] hold an option's default.

    \b
    Exit codes: 0 done; 1 the answer is no; 2 wrong usage or a bad manifest; 3 refused
    or rolled back: the tree is unchanged; 4 the tree was changed and could not
    be restored; 70 a bug; 130 interrupted.
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; every error ends here."""
    outcome: dict[str, object] = {"arguments": arguments}  # and whether JSON was `answered`
    with terminal.streams():
        try:
            code = main.main(
                args=list(arguments), prog_name="vllm-mods", standalone_mode=False, obj=outcome
            )
            sys.stdout.flush()
        except BaseException as error:  # noqa: BLE001  (the one place where an error is turned into an exit code)
            from vllm_mods.cli import ending  # noqa: PLC0415

            wants_json = "--json" in itertools.takewhile("--".__ne__, arguments)
            return ending.end(error, arguments, as_json=wants_json and "answered" not in outcome)
    return code if isinstance(code, int) else EXIT_OK
