"""``vllm-mods matrix``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
from vllm_mods.cli import answers, manner, named_files, options, shown
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.matrices.locks import Updated
from vllm_mods.report import data, matrix_text
from vllm_mods.report import explain as explaining
from vllm_mods.report.matrix_forms import EXPLAINING, FORMS

# Seconds between two lines of progress where no line can be taken back.
_EVERY = 30.0


class MatrixArguments(NamedTuple):
    """Which cells are wanted, and how they are computed."""

    mods: tuple[str, ...]
    pairing: str | None
    vllm: str | None
    pre: bool
    trees: tuple[str, ...]
    others: tuple[str, ...]
    since: str | None
    update_lock: bool
    strict: bool
    jobs: int | None
    executor: str | None
    no_cache: bool
    verify: bool


declared = options.grouped(
    "asked",
    MatrixArguments,
    options.verify,
    options.others,
    option("--no-cache", "Compute every cell anew, and keep none."),
    option(
        "--executor WHERE", "`ray` or ray://HOST:PORT: spread over a Ray cluster (vllm-mods[ray])."
    ),
    option("--jobs N", "Processes to spread over [one per CPU].", type=click.IntRange(min=1)),
    option(
        "--strict",
        "Plan without the locks, and hold the reader of scopes against a second one; exit code 1 also for a stale lock, a range that the trees "
        "contradict, a tree that got worse, a mod that is needed nowhere.",
    ),
    option(
        "--update-lock",
        "Write what was found into each mod's mod.lock; what it says of other releases stays.",
    ),
    option(
        "--since FILE",
        "Say what has changed since an earlier matrix: FILE is its answer as JSON.",
    ),
    option(
        "--tree TREE",
        "These trees instead of releases; also a folder of wheels, or git:REPO@REV1..REV2.",
        "trees",
        multiple=True,
    ),
    option("--pre", "Pre-releases too."),
    option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'."),
    options.pairing,
    options.mods,
)


@click.command(name="matrix")
@declared
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
@manner.json_output
def command(
    asked: MatrixArguments,
    libraries: LibraryArguments,
    access: Access,
    *,
    form: str,
    output: str | None,
    cell: tuple[str, str] | None,
    as_json: bool,
) -> int:
    """Check mods against many vLLM releases.

    Without MOD and --pairing, all mods; without --vllm and --tree, every release that a mod's ranges
    name, rebuilt wheels included, and the newest three beyond. Exit code 0 if every mod
    would end up in every tree that its ranges name.
    """
    if asked.update_lock and (asked.trees or asked.others):
        raise UsageError(
            "--update-lock writes what is known of releases as they were, and --tree and --with name others"
        )
    others_given = asked.mods or asked.pairing or asked.trees or asked.update_lock or asked.strict
    if cell is not None and (others_given or output):
        raise UsageError("--explain is about the one cell that it names", hint="--explain MOD TREE")
    form = "json" if as_json else form
    terms = _terms(asked, explain=form in EXPLAINING)
    library = libraries.open_own() if asked.update_lock else libraries.open()
    if cell is not None:
        return _explain(choose_mods(library, cell[:1], None), cell, terms, access, form)
    mods = choose_mods(library, asked.mods, asked.pairing)
    mine: tuple[Mod, ...] = ()
    if asked.update_lock:
        mine = choose_own_mods(library, mods, asked.mods, answers.note)
    result, computed = run_matrix(mods, asked.trees, terms, access)
    text = FORMS[form](result, result.explanations)
    if output is not None:
        named_files.write(output, text.encode())
    if output is not None or form == "text":
        click.echo(matrix_text.render(result, paint=answers.paint), nl=False)
    else:
        shown.file(text)
        answers.remember("answered", thing=True)
    for mod, updated in write_locks(mine, computed, access) if mine else ():
        _print_lock(mod, updated)
    return EXIT_OK if result.ok else EXIT_NO


def _terms(asked: MatrixArguments, *, explain: bool) -> MatrixTerms:
    earlier = None
    if asked.since is not None:
        with named_files.opened(asked.since) as file:
            earlier = file.read()
    return MatrixTerms(
        vllm=asked.vllm,
        pre=asked.pre,
        jobs=asked.jobs,
        executor=asked.executor,
        kept=not asked.no_cache,
        strict=asked.strict,
        relock=asked.update_lock,
        verify=asked.verify,
        explain=explain,
        since=earlier,
        since_name=asked.since or "",
        others=other_packages(asked.others),
        progress=progress(),
    )


def _explain(
    mods: tuple[Mod, ...], cell: tuple[str, str], terms: MatrixTerms, access: Access, form: str
) -> int:
    result = explain_cell(mods, *cell, terms, access)
    if form == "json":
        answers.print_json(data.explanation(result))
    else:
        click.echo(explaining.explanation(result, answers.paint))
    return EXIT_OK if result.cell.verdict.ok else EXIT_NO


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


def _print_lock(mod: Mod, updated: Updated) -> None:
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
