"""The part of ``vllm-mods import`` that takes a mod of a launcher: a folder, or its zip."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import is_final
from vllm_mods.cli import answers, manner, new, options, shown
from vllm_mods.library import mod_folder
from vllm_mods.making import (
    building,
    compose,
    each_entry,
    exporting,
    folder,
    from_script,
    over_releases,
    reading,
    recording,
)
from vllm_mods.making.effects import Effect, Left, ScriptPlace
from vllm_mods.making.fetching import Fetcher
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.from_script import Understood
from vllm_mods.making.over_releases import ReleaseRow
from vllm_mods.making.recording import Limits
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.planning import planner
from vllm_mods.report import script
from vllm_mods.report.data import finding
from vllm_mods.scripts.statements import BashError

_OLDEST = ">=0.15"
"""Which releases a script is run on if nobody says."""


class ImportArguments(NamedTuple):
    """What the caller wants of a mod; None for what nobody said, and no ``limits`` where nothing is to run."""

    path: str
    library: str | None
    name: str | None
    tree: str | None
    summary: str | None
    terms: str | None
    spec: str | None
    limits: Limits | None
    fetch: bool
    others: tuple[str, ...]
    each: bool

    def opened(self) -> Tree | None:
        """Open the tree that the mod was written for, None where none is named."""
        if self.tree is None and self.others:
            raise UsageError("--with says what is beside --tree", hint="--tree pypi:VERSION")
        if self.tree is None:
            return None
        return options.open_tree(self.tree, others=options.beside(self.others))


class Made(NamedTuple):
    """A mod by its files, what the tree says of it (None without one), and what is left to say."""

    files: dict[str, bytes]
    planned: ModPlan | None
    unknown: tuple[str, ...]
    told: tuple[str, ...] = ()
    releases: tuple[ReleaseRow, ...] = ()


def run(asked: ImportArguments) -> int:
    """Make a mod of what a script does. Exit code 1, and nothing written, if something is left."""
    if folder.is_dockerfile(asked.path):
        return _built(asked)
    source = folder.read(asked.path)
    if (exported := exporting.taken_back(source.files)) is not None:
        return _take_back(asked, *exported)
    if asked.limits is not None and asked.tree is None:
        return _over_releases(asked, source)
    if asked.each:
        return _each(asked, source)
    fetcher = Fetcher(answers.note)
    tree = asked.opened()

    def read(fetched: Mapping[str, bytes]) -> tuple[Effect, ...]:
        return reading.read(source.name, source.files, tree, fetched)

    try:
        effects = _effects(asked, fetcher, read)
    except BashError as error:
        if asked.limits is None:
            raise UsageError(
                f"{asked.path}/{folder.SCRIPT}: line {error.line}: {error.why}",
                hint=f"bash -n {asked.path}/{folder.SCRIPT}",
            ) from error
        effects = (Left(ScriptPlace(folder.SCRIPT, error.line), folder.SCRIPT, error.why),)
    return _finish(asked, source, effects, tree, fetcher)


def _effects(
    asked: ImportArguments,
    fetcher: Fetcher,
    read: Callable[[Mapping[str, bytes]], tuple[Effect, ...]],
) -> tuple[Effect, ...]:
    """Read what a script does, with what it fetches if that is to be taken."""
    if asked.fetch:
        fetcher.until_read(read)
    return read(fetcher.taken)


def _built(asked: ImportArguments) -> int:
    """Make a mod of what the last stage of a Dockerfile does."""
    if asked.limits is not None:
        raise UsageError(
            f"{asked.path} is a Dockerfile, and --record runs a run.sh", hint="docker build"
        )
    tree = asked.opened()
    fetcher = Fetcher(answers.note)
    try:
        source = folder.build(asked.path)
        text = source.files[source.script].decode("utf-8", "surrogateescape")

        def read(fetched: Mapping[str, bytes]) -> tuple[Effect, ...]:
            shell = reading.ReadShell(source.name, source.files, tree, fetched)
            return building.read(shell, text, source.script)

        effects = _effects(asked, fetcher, read)
    except BashError as error:
        why = f"{asked.path}: line {error.line}: {error.why}"
        raise UsageError(why, hint="docker build --check") from error
    return _finish(asked, source, effects, tree, fetcher)


def _finish(
    asked: ImportArguments,
    source: LauncherFolder,
    effects: Sequence[Effect],
    tree: Tree | None,
    fetcher: Fetcher,
) -> int:
    """Make the mod of what was read, or of a run, and say what it is."""
    understood = from_script.understand(effects, tree)
    name = asked.name or _slug(source.name)
    made: Made | None = None
    wanted = from_script.stated(
        compose.Wanted(name, asked.summary, asked.terms, asked.spec), effects
    )
    wanted = wanted._replace(fetched=fetcher.files())
    if asked.limits is not None:
        wanted = wanted._replace(python=from_script.installed(effects))
        made = _recorded(asked, wanted, source, tree, fetcher)
    elif not understood.left:
        made = _made(wanted, understood, tree)
    return _written(asked, name, understood, made)


def _over_releases(asked: ImportArguments, source: LauncherFolder) -> int:
    """Make a mod of what the script does on every release asked for: read where that tells, else run."""
    index = options.open_releases()
    specs = choose_releases((), index.files(), asked.spec or _OLDEST)
    versions = [one.removeprefix("pypi:") for one in specs if not one.endswith(".whl")]
    finals = [one for one in versions if is_final(one)] or versions
    if not finals:
        raise UsageError(f"no release of vLLM is in {asked.spec}", hint="--vllm '>=0.19,<0.22'")
    named = options.beside(asked.others)
    releases = [over_releases.Release(one, index.open(one, named=named)) for one in finals]
    name = asked.name or _slug(source.name)
    wanted = compose.Wanted(name, asked.summary, asked.terms)
    fetcher = Fetcher(answers.note)

    def read(fetched: Mapping[str, bytes]) -> tuple[Effect, ...]:
        return reading.read(source.name, source.files, None, fetched)

    with contextlib.suppress(BashError):  # the run says what is wrong with the script
        wanted = from_script.stated(wanted, _effects(asked, fetcher, read))
    limits = (asked.limits or Limits())._replace(fetched=fetcher.taken)
    takes = fetcher if asked.fetch else None
    made, handed = from_script.make(source, wanted, releases, limits, _progress, fetcher=takes)
    if handed:
        answers.note(f"it was run, because reading does not tell: {handed}")
    told = Made(made.files, None, made.unknown, made.told, made.rows)
    return _written(asked, name, Understood((), {}), told)


def _each(asked: ImportArguments, source: LauncherFolder) -> int:
    """Make a mod of each entry of a registry."""
    tree = asked.opened()
    assert tree is not None and asked.limits is not None  # noqa: PT018, S101  (the options were held against each other)
    name = asked.name or _slug(source.name)
    wanted = compose.Wanted(name, asked.summary, asked.terms, asked.spec)
    made = each_entry.make(source, wanted, tree, asked.limits, _progress)
    options.beside(asked.others, [mod_folder.load_files(one.name, one.files) for one in made.mods])
    if asked.library is not None:
        new.write_all(asked.library, {one.name: one.files for one in made.mods})
    for line in script.each(made) if not manner.as_json() else ():
        click.echo(line, err=True)
    words = f"wrote {len(made.mods)} mods to {asked.library}/patches"
    again = f"vllm-mods import {asked.path} --record --each --tree {asked.tree} --library DIR"
    return answers.answer(
        {**script.each_data(made), "path": asked.path, "name": name},
        None if asked.library is None else words,
        next_step=None if asked.library else f"{again}  # writes them to DIR/patches",
    )


def _take_back(asked: ImportArguments, mod: Mod, files: dict[str, bytes]) -> int:
    """Take the mod out of a folder that ``export`` wrote."""
    if asked.name not in {None, mod.name} or any((asked.summary, asked.terms, asked.spec)):
        raise UsageError(
            f"{asked.path} was written by `vllm-mods export`, and is taken back as it was",
            hint=f"vllm-mods import {asked.path} --library DIR",
        )
    planned = None
    options.beside(asked.others, (mod,))
    if (tree := asked.opened()) is not None:
        planned = planner.plan_alone(mod, tree)
    return _written(asked, mod.name, Understood((), {}), Made(files, planned, ()))


def _made(wanted: compose.Wanted, understood: Understood, tree: Tree | None) -> Made:
    if tree is not None:
        made = from_script.on_tree(understood, wanted, tree)
        return Made(made.files, made.planned, made.unknown)
    files = from_script.without_tree(understood, wanted)
    mod_folder.load_files(wanted.name, files)
    return Made(files, None, tuple(compose.unknown(wanted, None)))


def _written(asked: ImportArguments, name: str, understood: Understood, made: Made | None) -> int:
    """Write the mod where one was made and a library is named, and say what it is.

    Raises ``UsageError`` for a version of a package that the mod does not change.
    """
    place = None
    if made is not None and asked.others:
        options.beside(asked.others, (mod_folder.load_files(name, made.files),))
    if made is not None and asked.library is not None:
        place = new.write(asked.library, name, made.files)
    _tell(asked, name, understood, made, place)
    return EXIT_NO if made is None else EXIT_OK


def _recorded(
    asked: ImportArguments,
    wanted: compose.Wanted,
    source: LauncherFolder,
    tree: Tree | None,
    fetcher: Fetcher,
) -> Made:
    """Make a mod of what the script does when it is run; say what else it did."""
    assert tree is not None and asked.limits is not None  # noqa: PT018, S101  (the options were held against each other)
    fed = fetcher if asked.fetch else None
    done = recording.fed(source.name, source.files, tree, asked.limits, fed)
    wanted = wanted._replace(fetched=fetcher.files())
    python = dict.fromkeys((*wanted.python, *done.python))
    wanted = wanted._replace(python=tuple(python))
    made = compose.compose(wanted, done.changes, done.templates, tree)
    return Made(made.files, made.planned, made.unknown, done.lost)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")


def _progress(text: str) -> None:
    if answers.watched():
        answers.show_line(text, last=False)


def _way(path: str, understood: Understood) -> str:
    """Return what helps with what is left."""
    if folder.is_dockerfile(path):
        return "--tree TREE; or vllm-mods new NAME --from-trees image:BASE image:BUILT"
    if all(isinstance(one, Left) and "--tree TREE" in one.why for one in understood.left):
        return "--tree TREE  # the vLLM that it was written for"
    return "--record --tree TREE  # run on a copy of that vLLM"


def _tell(
    asked: ImportArguments, name: str, understood: Understood, made: Made | None, place: str | None
) -> None:
    planned = None if made is None else made.planned
    findings = () if planned is None else planned.findings
    if manner.as_json():
        held = made or Made({}, None, ())
        answers.print_json(
            {
                "kind": "mod",
                "path": asked.path,
                "ok": made is not None,
                "name": name,
                "folder": place,
                "files": sorted(held.files),
                "verdict": planned and planned.verdict.value,
                "findings": [finding(one) for one in findings],
                "effects": script.data(understood),
                "notes": list(held.told),
                "unknown": list(held.unknown),
                "releases": [one._asdict() for one in held.releases],
            }
        )
        return
    for line in script.text(understood):
        click.echo(line, err=True)
    if made is None:
        click.echo(
            f"\n{len(understood.left)} of {asked.path} left to you: nothing was written", err=True
        )
        answers.hint(f"vllm-mods import {asked.path} {_way(asked.path, understood)}")
        return
    for line in (*made.told, *(one.message for one in findings), *script.releases(made.releases)):
        answers.note(line)
    for line in made.unknown:
        click.echo(f"to be said by you, in mod.toml: {line}", err=True)
    if place is None:
        shown.file(made.files["mod.toml"].decode())
        writes = f"# writes it to DIR/patches/{name}"
        answers.hint(f"vllm-mods import {asked.path} --library DIR  {writes}")
        return
    verdict = "" if planned is None else f": {planned.verdict}"
    lines = [f"wrote {place}{verdict}", *(f"  {path}" for path in sorted(made.files))]
    if planned is None and not made.releases:
        lines.append(f"hint: vllm-mods check {name} --library {asked.library} --target TREE")
    click.echo("\n".join(lines))
