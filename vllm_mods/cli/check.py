"""``vllm-mods check`` and ``diff``: whether mods fit a vLLM tree, and what they would change in it."""

from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import choose, other_packages
from vllm_mods.api.plan import CheckResult, check
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, options
from vllm_mods.library.catalog import Library
from vllm_mods.report import checked as report
from vllm_mods.report.reply import Reply


@click.command(name="check")
@options.plan_terms
@options.target_tree
@options.platform
@options.target_in_image
@options.option("--model MODEL", "Also check that mods are for this model: a folder or Hub id.")
@options.access_to_commits
@options.verify
@options.others
@options.option("--explain", "Also list what was not checked, and why.")
@options.option(
    "--plugin DIST",
    "Check a vLLM plugin instead of mods: pypi:NAME==VERSION, a wheel, an sdist, a folder of sources, or an installed package's folder.",
)
@options.option("--made-for TREE", "The vLLM that DIST was made for [the newest that DIST names].")
@options.form("The output format: text, GitHub annotations or SARIF.", ("text", "github", "sarif"))
@options.json_output
def check_command(
    *, explain: bool, form: str, plugin: str | None, made_for: str | None, **given: Any
) -> Reply:
    """Check whether mods apply to a vLLM tree; change nothing.

    MOD is the name of a mod in a library, the folder of a mod (./mods/fix), or a patch (fix.patch). With neither MOD nor --pairing, check the bundled mods that `vllm-mods list` marks as [default]. Exit code 0 if every
    mod fits (`applies`, `moved`) or is not needed (`applied`, `upstream`) and, with --model, is meant for that model.
    With --plugin, exit code 0 if the vLLM in --target breaks no part of the plugin. Parts that do not work with --made-for either do not count.
    """
    if plugin is not None or made_for is not None:
        given |= {"explain": explain, "form": form != "text"}
        return _check_plugin(plugin=plugin, made_for=made_for, **given)
    result = _check(**given)
    reply = report.check(result, answers.paint, explain=explain)
    if form == "text":
        return reply
    from vllm_mods.report import annotations, sarif  # noqa: PLC0415  (10 ms)

    write = annotations.workflow_commands if form == "github" else sarif.render
    return Reply(reply.data, write(annotations.of_check(result)), reply.ok, is_file=True)


@click.command(name="diff")
@options.plan_terms
@options.target_tree
@options.access
@options.others
@options.json_output
def diff_command(**given: Any) -> Reply:
    """Show what mods would change in a vLLM tree, as one diff; change nothing.

    To apply the diff, run `git apply` or `patch -p1` in the folder that contains vllm/. With neither MOD nor --pairing, show the
    bundled mods that `vllm-mods list` marks as [default]. If a mod does not apply, no diff is printed and the exit code is 1.
    """
    return report.diff(_check(**given), answers.paint)


def _check_plugin(
    *, plugin: str | None, made_for: str | None, access: Access, target: str, **given: Any
) -> Reply:
    """Hold a plugin against the tree; what is ``given`` of mods does not go with it."""
    opening = {name: given.pop(name) for name in ("workspace", "verify", "platform", "in_image")}
    hint = "vllm-mods check --plugin DIST [--made-for TREE] --target TREE"
    if plugin is None:
        raise UsageError("--made-for needs --plugin", hint=hint)
    options.refuse_beside("--plugin", {name for name in given if given[name]}, hint)
    from vllm_mods.api.plugin_check import plugin_check  # noqa: PLC0415  (where one is named)

    tree, known = access.open(target, **opening), made_for and access.open(made_for)
    result = plugin_check(plugin, tree, made_for=known, access=access)
    return report.plugin_check(result, answers.paint)


def _check(
    mods: tuple[str, ...],
    pairing: str | None,
    library: Library,
    access: Access,
    *,
    target: str,
    others: Sequence[str],
    workspace: str | None,
    base: str | None,
    strict_version: bool,
    only_supported: bool,
    model: str | None = None,
    **opening: Any,
) -> CheckResult:
    """Open the tree, read the mods and hold them against it; print on stderr what is left out."""
    tree = access.open(target, workspace=workspace, others=other_packages(others), **opening)
    chosen = choose(library, mods, pairing)
    other_packages(others, chosen.mods)
    paired = chosen.pairing
    result = check(
        chosen.mods,
        tree,
        model=model,
        revision=paired.revision if paired is not None and paired.model == model else None,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        base=None if base is None else access.open(base),
    )
    options.tell_left_out(result.plan, chosen)
    return result
