"""``vllm-mods matrix`` and ``bisect``: mods on many releases, and the commit at which a verdict changed."""

import glob
import os
import re
import time
from collections.abc import Callable
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.against import against
from vllm_mods.api.libraries import other_packages
from vllm_mods.api.matrix import bisect, choose_mods, choose_own_mods, matrix, write_locks
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError, refusing_to_write
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, named_files, options, terminal
from vllm_mods.matrices.against import Earlier, read_earlier
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.matrices.locks import Updated
from vllm_mods.planning.next_step import update_lock
from vllm_mods.report import against as against_forms, bisect as report, checked, matrix_forms, text
from vllm_mods.report.reply import Reply

_Publish = Callable[[MatrixResult], tuple[str, list[Earlier]]]


@click.command(name="matrix")
@options.mods
@options.pairing
@options.option("--vllm SPEC", "Only releases in this range, such as '>=0.19,<0.22'.")
@options.option("--pre", "Include pre-releases.")
@options.option("--tree TREE", "Check these trees instead of releases.", "trees", multiple=True)
@options.option(
    "--against BASE..HEAD",
    "Print only what changes between two releases or two revisions of vLLM. Revisions are read from the clone in --commits; without --commits, from the current folder.",
    "span",
)
@options.option(
    "--plugin DIST",
    "Check a vLLM plugin instead of mods: pypi:NAME (all its releases), pypi:NAME==VERSION, a wheel, an sdist or a folder.",
)
@options.option("--update-lock", "Write the results to mod.lock; other entries stay.", "relock")
@options.option(
    "--strict",
    "Ignore mod.lock, and also place hunks with a second parser. Exit code 1 also if a mod.lock or a range is wrong, a result got worse, or a mod is needed nowhere in its range.",
)
@options.option("--jobs N", "The number of processes [one per CPU].", type=click.IntRange(min=1))
@options.option("--no-cache", "Check everything again; neither use nor fill the cache.")
@options.others
@options.verify
@options.form("The output format.", matrix_forms.FORMS)
@options.option(
    "--output FILE", "Write the result in --format to FILE (site: a folder); also print the text."
)
@options.option(
    "--since DATE|FILE",
    "With --format site: also show what changed since the result of DATE, or the result in FILE [the last different result].",
)
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
    since: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Check mods against many vLLM releases.

    With neither MOD nor --pairing, check all mods of your libraries, or the bundled mods if you name no library. Without --vllm and --tree, check
    every release in the mods' ranges, and the newest three after them. If a wheel was uploaded twice, both are checked; `0.20.1 build 0` means the first. Exit code 0 if every mod applies, or is already present, on every release in its ranges. With --against, exit code 0 if no verdict
    got worse. With --plugin, check each release of the plugin on every vLLM release in --vllm. With --plugin but without --vllm, use the vLLM that each plugin release was made for, and the next three vLLM releases. With --plugin, exit code 0 if no vLLM release breaks the plugin.
    """
    if relock and (trees or others):
        why = "--update-lock records results for published releases only, so it cannot be used with --tree or --with"
        raise UsageError(why)
    form = "json" if as_json else form
    if plugin is not None:
        return _check_plugin(plugin, given["vllm"], form, access)
    if span is not None:
        hint = "vllm-mods matrix --tree BASE --tree HEAD  # checks the mods on both trees"
        names = {"vllm", "pre", "strict", "trees", "relock", "since"}
        names |= set() if form in against_forms.FORMS else {"form"}
        options.refuse_beside("--against", names, hint)
    publish = _site(form, output, since) if since is not None or form == "site" else None
    library = options.open_libraries(folders, own=relock)
    chosen = choose_mods(library, mods, pairing)
    given |= {"others": other_packages(others), "kept": not no_cache, "progress": _show_progress}
    if span is not None:
        compared = against(chosen, span, access=access, **given)
        words = against_forms.text(compared, answers.paint)
        return _print(form, against_forms.FORMS[form](compared), words, output, ok=compared.ok)
    mine = choose_own_mods(library, chosen, mods, answers.note) if relock else ()
    given["explain"] = form in {"html", "site"}
    result = matrix(chosen, trees, relock=relock, access=access, **given)
    words = matrix_forms.text(result, paint=answers.paint)
    output, earlier = publish(result) if publish else (output, [])
    code = _print(form, matrix_forms.FORMS[form](result, *earlier), words, output, ok=result.ok)
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


def _site(form: str, folder: str | None, since: str | None) -> _Publish:
    """Read what a folder has of earlier results, one for each day with another; return what keeps one there.

    The same result gives the same files on any day. One with cells that nobody could compute now is not kept for later.
    """
    if form != "site" or not folder:
        hint = "vllm-mods matrix --format site --output DIR --since DATE"
        raise UsageError("--format site needs --output, and --since needs both", hint=hint)
    page, last, history = (f"{folder}/{x}" for x in ("index.html", "matrix.json", "history"))
    if os.path.lexists(page) or os.path.lexists(last):
        read_earlier(last, named_files.read(last))  # or they are somebody else's
    today = f"{history}/{time.strftime('%Y-%m-%d', time.gmtime())}.json"
    days = sorted(x for x in glob.glob(f"{glob.escape(history)}/????-??-??.json") if x < today)
    kept = [read_earlier(day, named_files.read(day)) for day in days[-2:]]
    if since is not None and re.fullmatch(r"\d{4}-\d\d-\d\d", since):
        since = f"{history}/{since}.json"
        since = max((day for day in days if day <= since), default=since)
    chosen = [read_earlier(since, named_files.read(since))] if since is not None else []

    def keep(result: MatrixResult) -> tuple[str, list[Earlier]]:
        data = matrix_forms.FORMS["json"](result).encode()
        now = read_earlier(last, data)
        others = [one for one in kept if one.cells != now.cells]
        is_other = others[-1:] == kept[-1:]
        with refusing_to_write(history):
            os.makedirs(history, exist_ok=True)
            if not is_other and os.path.lexists(today):  # of a change that is undone
                os.unlink(today)
        if is_other and all(cell.computed for cell in result.cells):
            named_files.write(today, data)
        named_files.write(last, data)
        return page, (chosen or others)[-1:]

    return keep


def _check_plugin(plugin: str, vllm: str | None, form: str, access: Access) -> int:
    """Hold a plugin against releases, and print it; options of mods do not go with it."""
    fine = {"plugin", "vllm", "as_json", "folders", *["form"] * (form in {"text", "json"})}
    names = click.get_current_context().params.keys() - fine
    options.refuse_beside("--plugin", names, "vllm-mods matrix --plugin DIST --vllm SPEC")
    from vllm_mods.api.plugin_check import plugin_matrix  # noqa: PLC0415  (where one is named)

    result = plugin_matrix(plugin, vllm, access=access, progress=answers.show_line)
    answers.show_line("", last=True)
    return answers.print_reply(checked.plugin_matrix(result), as_json=form == "json")


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
