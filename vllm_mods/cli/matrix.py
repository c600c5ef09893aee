"""``vllm-mods matrix`` and ``bisect``: mods on many releases, and the commit at which a verdict changed."""

import os
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.against import against
from vllm_mods.api.libraries import other_packages
from vllm_mods.api.matrix import bisect, choose_mods, choose_own_mods, matrix, write_locks
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, named_files, options, terminal
from vllm_mods.matrices.locks import Updated
from vllm_mods.planning.next_step import update_lock
from vllm_mods.report import against as against_forms, bisect as report, checked, matrix_forms, text
from vllm_mods.report.reply import Reply


@click.command(name="matrix")
@options.mods
@options.pairing
@options.option("--vllm SPEC", "Only releases in this range, such as '>=0.19,<0.22'.")
@options.option("--pre", "Include pre-releases.")
@options.option("--tree TREE", "Check these trees instead of releases.", "trees", multiple=True)
@options.option(
    "--against BASE..HEAD",
    "Print only what changes between two releases, or between two revisions of a clone of vLLM. The clone is that of --commits [the current folder].",
    "span",
)
@options.option(
    "--plugin DIST",
    "Check a vLLM plugin instead of mods: all its releases (pypi:NAME), or one as for `check --plugin`.",
)
@options.option("--update-lock", "Write the results to mod.lock; other entries stay.", "relock")
@options.option(
    "--strict",
    "Ignore mod.lock, and find the place of each hunk with a second parser. Exit code 1 also if a mod.lock is out of date, a range is wrong, a result is worse than in mod.lock, or no release needs a mod.",
)
@options.option("--jobs N", "The number of processes [one per CPU].", type=click.IntRange(min=1))
@options.option("--no-cache", "Check everything again; neither use nor fill the cache.")
@options.others
@options.verify
@options.form("The output format.", matrix_forms.FORMS)
@options.option("--output FILE", "Write this format to a file, and also print the text.")
@options.folders
@options.access_to_commits
@options.json_flag
def matrix_command(
    folders: tuple[str, ...],
    access: Access,
    *,
    mods: tuple[str, ...],
    pairing: str | None,
    trees: tuple[str, ...],
    span: str | None,
    plugin: str | None,
    others: tuple[str, ...],
    relock: bool,
    no_cache: bool,
    form: str,
    output: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Check mods against many vLLM releases.

    Without MOD and --pairing, check all mods of your libraries, or the bundled mods if you name no library. Without --vllm and --tree, check
    every release in the mods' ranges, and the three newest releases after them. If a wheel was uploaded twice, both builds are checked; `0.20.1 build 0`
    is the first one. Exit code 0 if every mod applies, or is already present, on every release in its ranges. With --against, exit code 0 if no verdict
    got worse. With --plugin, check each release of the plugin on the vLLM releases of --vllm; without --vllm, on the one that it was made for and the next three. Exit code 0 if none breaks the plugin.
    """
    if relock and (trees or others):
        why = "--update-lock records results for releases as published, so it cannot be used with --tree or --with"
        raise UsageError(why)
    form = "json" if as_json else form
    if plugin is not None:
        return _check_plugin(plugin, given["vllm"], form, access)
    if span is not None:
        beside = {name: given[name] for name in ("vllm", "pre", "strict")}
        _refuse_beside_against(form, **beside, tree=trees, **{"update-lock": relock})
    library = options.open_libraries(folders, own=relock)
    chosen = choose_mods(library, mods, pairing)
    given |= {"others": other_packages(others), "kept": not no_cache, "progress": _show_progress}
    if span is not None:
        compared = against(chosen, span, access=access, **given)
        words = against_forms.text(compared, answers.paint)
        return _print(form, against_forms.FORMS[form](compared), words, output, ok=compared.ok)
    mine = choose_own_mods(library, chosen, mods, answers.note) if relock else ()
    result = matrix(chosen, trees, relock=relock, explain=form == "html", access=access, **given)
    words = matrix_forms.text(result, paint=answers.paint)
    code = _print(form, matrix_forms.FORMS[form](result), words, output, ok=result.ok)
    for mod, updated in write_locks(mine, result.cells, access) if mine else ():
        _tell_lock(mod, updated)
    return code


def _print(form: str, written: str, words: str, output: str | None, *, ok: bool) -> int:
    """Print an answer in a form, or as words and the form to a file; return the exit code."""
    if output is not None:
        named_files.write(output, written.encode())
    if output is not None or form == "text":
        click.echo(words, nl=False)
    else:
        terminal.file(written)
        click.get_current_context().obj["answered"] = True
    return EXIT_OK if ok else EXIT_NO


def _check_plugin(plugin: str, vllm: str | None, form: str, access: Access) -> int:
    """Hold a plugin against releases, and print it; options of mods do not go with it."""
    context = click.get_current_context()
    own = {"plugin", "vllm", "form", "as_json", "folders", "access"}
    params = (param for param in context.command.params if param.name not in own)
    more = [param.opts[0] for param in params if context.params.get(param.name or "")]
    more += [] if form in {"text", "json"} else [f"--format {form}"]
    if more:
        why = f"these cannot be used with --plugin: {', '.join(more)}"
        raise UsageError(why, hint="vllm-mods matrix --plugin DIST --vllm SPEC")
    from vllm_mods.api.plugin_check import plugin_matrix  # noqa: PLC0415  (where one is named)

    result = plugin_matrix(plugin, vllm, access=access, progress=answers.show_line)
    answers.show_line("", last=True)
    return answers.print_reply(checked.plugin_matrix(result), as_json=form == "json")


def _refuse_beside_against(form: str, **given: Any) -> None:
    beside = [f"--{name}" for name, value in given.items() if value]
    beside += [] if form in against_forms.FORMS else [f"--format {form}"]
    if beside:
        why = f"{beside[0]} cannot be used with --against, which only prints what changes"
        hint = "vllm-mods matrix --tree BASE --tree HEAD  # checks the mods on both trees"
        raise UsageError(why, hint=hint)


def _show_progress(done: int, total: int) -> None:
    answers.show_line(f"{done} of {total} checks", last=done == total)


def _tell_lock(mod: Mod, updated: Updated) -> None:
    click.echo(f"wrote {os.path.join(mod.directory, 'mod.lock')}", err=True)
    if updated.kept:
        others = text.counted(len(updated.kept), "other release")
        answers.note(f"the entries of {others} in mod.lock are unchanged")
    if updated.why is not None:
        of = f" for {', '.join(updated.lost)}" if updated.lost else ""
        answers.note(f"entries of the previous mod.lock{of} were removed: the file {updated.why}")
    if updated.lost:
        wanted = f">={updated.lost[0]},<={updated.lost[-1]}"
        answers.hint(update_lock(mod, f"--vllm '{wanted}'"))


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@options.option("--repo REPO", "A clone of vLLM's repository.", required=True)
@options.option("--good REV", "The older revision.", required=True)
@options.option("--bad REV", "The newer revision, where the verdict is different.", required=True)
@options.option("--variant ID", "Check only this variant of the mod.")
@options.library
@options.json_output
def bisect_command(good: str, bad: str, repo: str, **given: Any) -> Reply:
    """Find the commit at which a mod's verdict changes.

    The clone's working tree does not change. `bisect` follows first parents, and each check halves the commits
    that are left. Exit code 0 if a change was found, 1 if the verdict is the same at both revisions.
    """
    result = bisect(good=good, bad=bad, repo=repo, **given)
    return report.bisect(result, good, bad, repository=repo, paint=answers.paint)
