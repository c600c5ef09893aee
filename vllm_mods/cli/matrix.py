"""``vllm-mods matrix``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import other_packages
from vllm_mods.api.matrix import (
    MatrixTerms,
    choose_mods,
    choose_own_mods,
    explain_cell,
    run_matrix,
    write_locks,
)
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, manner, named_files, options, terminal
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.matrices.locks import Updated
from vllm_mods.report import explain as explaining
from vllm_mods.report import matrix_data, matrix_text
from vllm_mods.report.matrix_forms import EXPLAINING, FORMS

# Seconds between two lines of progress where no line can be taken back.
_EVERY = 30.0


@click.command(name="matrix")
@options.mods
@options.pairing
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.")
@option("--pre", "Pre-releases too.")
@option(
    "--tree TREE",
    "These trees instead of releases; also a folder of wheels, or git:REPO@REV1..REV2.",
    "trees",
    multiple=True,
)
@option(
    "--since FILE",
    "Say what has changed since an earlier matrix: FILE is its answer as JSON.",
)
@option(
    "--update-lock",
    "Write what was found into each mod's mod.lock; what it says of other releases stays.",
    "relock",
)
@option(
    "--strict",
    "Plan without the locks, and hold the reader of scopes against a second one; exit code 1 also for a stale lock, a range that the trees "
    "contradict, a tree that got worse, a mod that is needed nowhere.",
)
@option("--jobs N", "Processes to spread over [one per CPU].", type=click.IntRange(min=1))
@option("--executor WHERE", "`ray` or ray://HOST:PORT: spread over a Ray cluster (vllm-mods[ray]).")
@option("--no-cache", "Compute every cell anew, and keep none.")
@options.others
@options.verify
@option(
    "--format",
    "How to print it.",
    "form",
    type=click.Choice(tuple(FORMS)),
    default="text",
    show_default=True,
)
@option("--output FILE", "Write it there, and print the text as well.")
@option(
    "--explain MOD TREE",
    "Show one cell whole: every hunk beside the target, and what changed upstream.",
    "cell",
    nargs=2,
)
@options.libraries
@options.access_to_commits
@manner.json_flag
def command(
    libraries: LibraryArguments,
    access: Access,
    *,
    mods: tuple[str, ...],
    pairing: str | None,
    trees: tuple[str, ...],
    since: str | None,
    others: tuple[str, ...],
    relock: bool,
    no_cache: bool,
    form: str,
    output: str | None,
    cell: tuple[str, str] | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Check mods against many vLLM releases.

    Without MOD and --pairing, all mods; without --vllm and --tree, every release that a mod's ranges
    name, rebuilt wheels included, and the newest three beyond. Exit code 0 if every mod
    would end up in every tree that its ranges name.
    """
    if relock and (trees or others):
        raise UsageError(
            "--update-lock writes what is known of releases as they were, and --tree and --with name others"
        )
    if cell is not None and (mods or pairing or trees or relock or given["strict"] or output):
        raise UsageError("--explain is about the one cell that it names", hint="--explain MOD TREE")
    form = "json" if as_json else form
    terms = MatrixTerms(
        kept=not no_cache,
        relock=relock,
        explain=form in EXPLAINING,
        since=None if since is None else named_files.read(since),
        since_name=since or "",
        others=other_packages(others),
        progress=progress(),
        **given,
    )
    library = libraries.open_own() if relock else libraries.open()
    if cell is not None:
        return _explain(choose_mods(library, cell[:1], None), cell, terms, access, form)
    chosen = choose_mods(library, mods, pairing)
    mine = choose_own_mods(library, chosen, mods, answers.note) if relock else ()
    result, computed = run_matrix(chosen, trees, terms, access)
    text = FORMS[form](result, result.explanations)
    if output is not None:
        named_files.write(output, text.encode())
    if output is not None or form == "text":
        click.echo(matrix_text.render(result, paint=answers.paint), nl=False)
    else:
        terminal.file(text)
        answers.remember("answered", thing=True)
    for mod, updated in write_locks(mine, computed, access) if mine else ():
        _tell_lock(mod, updated)
    return EXIT_OK if result.ok else EXIT_NO


def _explain(
    mods: tuple[Mod, ...], cell: tuple[str, str], terms: MatrixTerms, access: Access, form: str
) -> int:
    result = explain_cell(mods, *cell, terms, access)
    answer = Reply(
        matrix_data.explanation(result),
        explaining.explanation(result, answers.paint),
        result.cell.verdict.ok,
    )
    return answer.print(as_json=form == "json")


def progress(clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """Return a function that shows on stderr how far it is and how long the rest may take.

    One line that takes itself back; where nobody watches, a line of its own every half minute.
    """
    watched = answers.watched()
    whole = before = -1
    begun = printed = clock()

    def show(done: int, total: int) -> None:
        nonlocal whole, before, begun, printed
        now = clock()
        if total != whole:
            whole, before, begun = total, done, now
        rest = (total - done) * (now - begun) / (done - before) if done > before else 0.0
        text = f"{done} of {total} cells" + (f", {_about(rest)} left" if rest else "")
        if watched:
            answers.show_line(text, last=done == total)
        elif now - printed >= _EVERY:
            printed = now
            click.echo(text, err=True)

    return show


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _tell_lock(mod: Mod, updated: Updated) -> None:
    click.echo(f"wrote {os.path.join(mod.directory, 'mod.lock')}", err=True)
    if updated.kept:
        what = "it was" if len(updated.kept) == 1 else "they were"
        answers.note(f"kept {_releases(updated.kept)} as {what}")
    if updated.why is not None:
        what = "nothing of it is kept"
        if updated.lost:
            what = f"what it said of {_releases(updated.lost)} is gone ({', '.join(updated.lost)})"
        answers.note(f"the mod.lock that was there {updated.why}: {what}")
        if updated.lost:
            wanted = f">={updated.lost[0]},<={updated.lost[-1]}"
            answers.hint(f"vllm-mods matrix {mod.name} --vllm '{wanted}' --update-lock")


def _releases(labels: Sequence[str]) -> str:
    return "1 release" if len(labels) == 1 else f"{len(labels)} releases"
