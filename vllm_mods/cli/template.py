"""``vllm-mods template``."""

import os
from typing import Any

import click

from vllm_mods.api import template_check
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import named_files, options
from vllm_mods.cli.options import option
from vllm_mods.formats.schema import object_of
from vllm_mods.library.catalog import Library
from vllm_mods.report import template as report
from vllm_mods.report.reply import Reply
from vllm_mods.templates import conversation
from vllm_mods.templates.source import open_template

_complete = options.completer(Library.template_names)
_conversations = option(
    "--conversations NAME|DIR",
    "Use the conversations of the template NAME, or those in the folder DIR [those beside the template].",
    "conversations_of",
    shell_complete=_complete,
)


@click.group(name="template")
def command() -> None:
    """Render chat templates, and check them with conversations.

    TEMPLATE is the name of a template in a library, or a file. It is rendered as in vLLM, by Jinja's sandbox.
    The process cannot open files, and has at most 20 seconds and 1 GiB.
    """


@command.command(name="list")
@options.library
@options.json_output
def list_(library: Library) -> Reply:
    """List the chat templates: the bundled ones and those of --library."""
    return report.listed(*template_check.list_templates(library))


@command.command(name="check")
@click.argument("templates", nargs=-1, metavar="[TEMPLATE]...", shell_complete=_complete)
@_conversations
@option("--parsers", "Check in a sandbox that --target's parsers can read the template's format.")
@option("--target TREE", "The vLLM for --parsers, such as a folder or pypi:VERSION.")
@option("--tool-call-parser NAME", "Tool parser [from template.toml, else all].", "tool")
@option("--reasoning-parser NAME", "Reasoning parser [from template.toml, else all].", "reasoner")
@option(
    "--in TREE",
    "Find TEMPLATE in this TREE (sdist:FILE, pypi:VERSION, …). With image:REF, TEMPLATE is an absolute path.",
    "inside",
)
@options.library
@options.access
@options.json_output
def check(
    templates: tuple[str, ...],
    *,
    parsers: bool,
    target: str | None,
    tool: str | None,
    reasoner: str | None,
    **given: Any,
) -> Reply:
    """Check that templates make the right prompts.

    Without TEMPLATE, all templates are checked. `check` also shows which content format each release of vLLM detects in a template, and which arguments
    the template reads. A template.toml, if there is one, must agree with that. Exit code 1 if anything is wrong.
    """
    if parsers != (target is not None) or ((tool or reasoner) and not parsers):
        why = "--parsers and --target need each other, and --tool-call-parser and --reasoning-parser need both"
        hint = "vllm-mods template check TEMPLATE --parsers --target pypi:VERSION"
        raise UsageError(why, hint=hint)
    results = template_check.template_check(
        names=templates, parsers_of=target, parsers=(tool, reasoner), **given
    )
    return report.checked(results)


@command.command(name="clients")
@click.argument("templates", nargs=-1, metavar="[TEMPLATE]...", shell_complete=_complete)
@options.library
@options.json_output
def clients(templates: tuple[str, ...], library: Library) -> Reply:
    """Show which clients work with templates.

    The clients are Claude Code, Codex, OpenCode, Cline and others. `clients` prints the table in clients.toml, which lies beside the templates. The table was made by running the code of each vLLM release on the requests that these clients send.
    """
    return report.clients(template_check.template_clients(library, templates))


@command.command(name="render")
@click.argument("template", shell_complete=_complete)
@click.argument("messages")
@option("--chat-template-kwargs JSON", "Arguments for the template, as in a request.", "kwargs")
@options.library
@options.json_output
def render(template: str, messages: str, kwargs: str | None, library: Library) -> Reply:
    """Print the prompt that a template makes from MESSAGES.

    MESSAGES is a file, - for standard input, or the name of a conversation beside the template. The file has a list of messages,
    or the body of a request to /v1/chat/completions. The template gets the content of each message unchanged.
    """
    opened = open_template(library, template)
    asked = next((one for one in opened.conversations if one.name == messages), None)
    if asked is None and messages != "-" and not os.path.exists(messages):
        names = ", ".join(one.name for one in opened.conversations)
        what = f"{messages} is neither a file nor a conversation beside {template}"
        raise UsageError(what, hint=f"one of {names}" if names else "name a file, or - for stdin")
    if asked is None:
        where = "stdin" if messages == "-" else messages
        asked = conversation.request(named_files.read(messages), where)
    more = object_of((kwargs or "{}").encode(), "--chat-template-kwargs")
    prompt, unread = template_check.render_template(opened, asked, more)
    return report.rendered(opened, prompt, unread)


@command.command(name="diff")
@click.argument("old", shell_complete=_complete)
@click.argument("new", shell_complete=_complete)
@_conversations
@options.library
@options.json_output
def diff(old: str, new: str, **given: Any) -> Reply:
    """Show how the prompts of two templates differ.

    `diff` also shows how much of the prefix cache each template can reuse. The conversations are those of --conversations,
    else those beside the templates, else the ones built into `template check`. Exit code 1 if any prompt differs.
    """
    return report.diff(*template_check.compare_templates(old=old, new=new, **given), (old, new))
