"""``vllm-mods matrix``."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import click

from vllm_mods.base import versions
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, manner, named_files, options, shown
from vllm_mods.cli.manner import option
from vllm_mods.formats import mod_lock
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.library.writing import replace
from vllm_mods.matrices import choose, locks, ranges, run, spread, work
from vllm_mods.matrices import since as earlier_matrix
from vllm_mods.matrices.cell import Cell, MatrixResult
from vllm_mods.matrices.run import Computed
from vllm_mods.report import data, matrix_text
from vllm_mods.report import explain as explaining
from vllm_mods.report.matrix_forms import EXPLAINING, FORMS

# Seconds between two lines of progress where no line can be taken back.
_EVERY = 30.0


@click.command(name="matrix")
@options.mods
@options.pairing
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.", "spec")
@option("--pre", "Pre-releases too.")
@option(
    "--tree TREE",
    "These trees instead of releases; also a folder of wheels, or git:REPO@REV1..REV2.",
    "trees",
    multiple=True,
)
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
@option("--since FILE", "Say what has changed since an earlier matrix: FILE is its answer as JSON.")
@option(
    "--update-lock",
    "Write what was found into each mod's mod.lock; what it says of other releases stays.",
)
@option(
    "--strict",
    "Plan without the locks, and hold the reader of scopes against a second one; exit code 1 also for a stale lock, a range that the trees "
    "contradict, a tree that got worse, a mod that is needed nowhere.",
)
@option("--jobs N", "Processes to spread over [one per CPU].", type=click.IntRange(min=1))
@option("--executor WHERE", "`ray` or ray://HOST:PORT: spread over a Ray cluster (vllm-mods[ray]).")
@option("--no-cache", "Compute every cell anew, and keep none.")
@options.commits
@options.others
@options.libraries
@manner.offline
@options.verify
@manner.json_output
def command(
    *,
    mods: tuple[str, ...],
    spec: str | None,
    trees: tuple[str, ...],
    form: str,
    output: str | None,
    jobs: int | None,
    executor: str | None,
    cell: tuple[str, str] | None,
    since: str | None,
    pairing: str | None,
    commits: str | None,
    others: tuple[str, ...],
    pre: bool,
    update_lock: bool,
    strict: bool,
    no_cache: bool,
    verify: bool,
) -> int:
    """Check mods against many vLLM releases.

    Without MOD and --pairing, all mods; without --vllm and --tree, every release that a mod's ranges
    name, rebuilt wheels included, and the newest three beyond. Exit code 0 if every mod
    would end up in every tree that its ranges name.
    """
    if update_lock and (trees or others):
        raise UsageError(
            "--update-lock writes what is known of releases as they were, and --tree and --with name others"
        )
    if cell is not None and (mods or pairing or trees or update_lock or strict or output):
        raise UsageError("--explain is about the one cell that it names", hint="--explain MOD TREE")
    form = "json" if manner.as_json() else form
    earlier = None if since is None else _earlier(since)
    library = (options.own_library if update_lock else options.open_library)()
    if cell is not None:
        mods = cell[:1]
    paired = () if pairing is None else library.mods_of(library.pairing(pairing))
    chosen = library.select((*paired, *mods) if pairing is not None else mods or _every(library))
    mine = _own(library, chosen, mods) if update_lock else ()
    # what an old lock says must not lean on itself
    planned = tuple(mod._replace(lock=None) for mod in chosen) if update_lock or strict else chosen
    setting = work.Setting(
        planned,
        cache_folder(os.environ),
        offline=manner.is_offline(),
        store=not no_cache,
        strict=strict,
        commits=commits,
        others=options.beside(others, chosen),
    )
    workshop = work.Workshop(setting, note=answers.note)
    specs = choose.specs(workshop.releases.files, chosen, trees, spec, pre=pre)
    if cell is not None:
        trees = (_spec(cell[1]),)
        specs = _with(specs, trees[0])
    _verify(specs if verify else ())
    matrix = run.Matrix(
        workshop,
        setting,
        _executor(executor, jobs, workshop),
        named=frozenset(trees),
        progress=progress(),
    )
    computed = matrix.compute(specs)
    cells = run.cells(chosen, computed)
    if cell is not None:
        return _explain(matrix, cells, cell[0], trees[0], form)
    problems = ranges.range_problems(chosen, cells)
    if strict:
        problems += locks.against_committed(chosen, computed)
    changes = None if earlier is None else earlier_matrix.changes(earlier, cells)
    result = MatrixResult(cells, matrix.together(computed), problems, changes, chosen)
    explained = matrix.explain(cells, cells) if form in EXPLAINING else {}
    workshop.sweep()
    if output is not None:
        named_files.write(output, FORMS[form](result, explained).encode())
    if output is not None or form == "text":
        click.echo(matrix_text.render(result, paint=answers.paint), nl=False)
    else:
        shown.file(FORMS[form](result, explained))
        answers.remember("answered", thing=True)
    if update_lock:
        _verify(locks.news(mine, computed), unstated=True)
        _write_locks(mine, computed)
    bad = [cell for cell in cells if cell.meant and not cell.verdict.ok]
    return EXIT_NO if bad or (strict and problems) else EXIT_OK


def _every(library: Library) -> tuple[str, ...]:
    """Return the names of all mods. Raises ``UsageError`` where two have one: a tree holds one of them."""
    names = library.names()
    if twice := [name for name in names if "/" in name]:
        owner = twice[0].partition("/")[0]
        beside = [name for name in names if library.owner(library.load(name).directory) == owner]
        raise UsageError(
            f"{', '.join(twice)}: mods of several libraries have one name, and a tree holds one of them",
            hint=f"vllm-mods matrix {shlex.join(beside)}  # those of one library",
        )
    return names


def _spec(tree: str) -> str:
    """Return a tree as one is written; a bare version is a release."""
    return f"pypi:{tree}" if tree[:1].isdigit() and not os.path.exists(tree) else tree


def _with(specs: tuple[str, ...], tree: str) -> tuple[str, ...]:
    """Put a tree behind the releases that come before it; one that is no release comes last."""
    if tree in specs:
        return specs
    mine = versions.sort_key(run.named_version(tree))
    place = sum(versions.sort_key(run.named_version(spec)) <= mine for spec in specs)
    return (*specs[: place if mine[0] else len(specs)], tree)


def _explain(matrix: run.Matrix, cells: Sequence[Cell], mod: str, tree: str, form: str) -> int:
    cell = next(one for one in cells if (one.mod, one.tree) == (mod, tree))
    shown = matrix.explain(cells, [cell])[mod, tree]
    if form == "json":
        answers.print_json(data.explanation(shown))
    else:
        click.echo(explaining.explanation(shown, answers.paint))
    return EXIT_OK if cell.verdict.ok else EXIT_NO


def _executor(where: str | None, jobs: int | None, workshop: work.Workshop) -> work.Executor:
    if where is None:
        return spread.local(jobs or len(os.sched_getaffinity(0)), workshop)
    if where != "ray" and not where.startswith("ray://"):
        raise UsageError(f"there is no executor called {where!r}", hint="ray, or ray://HOST:10001")
    from vllm_mods.matrices.cluster import ray_executor  # noqa: PLC0415  (ray: seconds)

    return ray_executor(where)


def progress(clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """Return a function that shows on stderr how far it is and how long the rest may take.

    One line that takes itself back; where nobody watches, a line of its own every half minute.
    """
    watched = answers.watched()
    whole = before = -1
    begun = said = clock()

    def show(done: int, total: int) -> None:
        nonlocal whole, before, begun, said
        now = clock()
        if total != whole:
            whole, before, begun = total, done, now
        rest = (total - done) * (now - begun) / (done - before) if done > before else 0.0
        text = f"{done} of {total} cells" + (f", {_about(rest)} left" if rest else "")
        if watched:
            answers.show_line(text, last=done == total)
        elif now - said >= _EVERY:
            said = now
            click.echo(text, err=True)

    return show


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _verify(specs: Iterable[str], *, unstated: bool = False) -> None:
    """Have the wheels of some releases as a whole, one after the other, each once. Raises ``TreeError``.

    With ``unstated``, one of which the index states no hash is passed over with a note.
    """
    releases = options.open_releases()
    for spec in specs:
        kind, _, name = spec.partition(":")
        if kind == "pypi":
            releases.verify(name, unstated=unstated)


def _write_locks(mods: Sequence[Mod], computed: Sequence[Computed]) -> None:
    unread = [
        one.spec for one in computed if not all(one.answers[mod.name].readable for mod in mods)
    ]
    if unread:
        raise UsageError(
            f"no mod.lock was written: {unread[0]} could not be read",
            hint="run it again when every release can be read",
        )
    made = [(mod, locks.updated(mod, computed)) for mod in mods]
    for root in dict.fromkeys(map(root_of, mods)):
        replace(
            root,
            {
                f"patches/{mod.name}/mod.lock": mod_lock.dump(new.lock)
                for mod, new in made
                if root_of(mod) == root
            },
        )
    for mod, new in made:
        _say_written(mod, new)


def _own(library: Library, chosen: Sequence[Mod], named: Sequence[str]) -> tuple[Mod, ...]:
    """Return the mods whose lock may be written. Raises ``UsageError`` for a named one that may not."""
    mine = tuple(mod for mod in chosen if library.is_writable(mod.directory))
    for mod in chosen:
        if mod not in mine:
            if mod.name in named or not mine:
                options.check_own(library, mod)
            answers.note(f"{mod.name} came with vllm-mods: its mod.lock stays as it is")
    return mine


def _say_written(mod: Mod, made: locks.Updated) -> None:
    click.echo(f"wrote {os.path.join(mod.directory, 'mod.lock')}", err=True)
    if made.kept:
        what = "it was" if len(made.kept) == 1 else "they were"
        answers.note(f"kept {_releases(made.kept)} as {what}")
    if made.why is not None:
        what = "nothing of it is kept"
        if made.lost:
            what = f"what it said of {_releases(made.lost)} is gone ({', '.join(made.lost)})"
        answers.note(f"the mod.lock that was there {made.why}: {what}")
        if made.lost:
            wanted = f">={made.lost[0]},<={made.lost[-1]}"
            answers.hint(f"vllm-mods matrix {mod.name} --vllm '{wanted}' --update-lock")


def _releases(labels: Sequence[str]) -> str:
    return "1 release" if len(labels) == 1 else f"{len(labels)} releases"


def _earlier(path: str) -> Mapping[tuple[str, str], str]:
    with named_files.opened(path) as file:
        return earlier_matrix.earlier(file.read(), path)
