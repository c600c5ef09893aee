"""The part of ``vllm-mods import`` that takes a mod of a launcher: a folder, or its zip."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Mod, ModPlan, Tree
from vllm_mods.base.versions import is_final
from vllm_mods.cli import new, options, shown
from vllm_mods.grid.choose import choose_releases
from vllm_mods.library import mod_folder
from vllm_mods.making import (
    advice,
    building,
    compose,
    each_entry,
    exporting,
    folder,
    from_folder,
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
from vllm_mods.planning import planner
from vllm_mods.report import script
from vllm_mods.report.data import finding
from vllm_mods.scripts.statements import BashError
from vllm_mods.trees.release import Releases

_OLDEST = ">=0.15"
"""Which releases a script is run on if nobody says."""


class ImportArguments(NamedTuple):
    """What the caller wants of a mod; None for what nobody said."""

    path: str
    library: str | None
    name: str | None
    tree: str | None
    summary: str | None
    terms: str | None
    spec: str | None
    record: tuple[bool, float, tuple[str, ...], tuple[str, ...]] | None
    """``recording.Limits`` of a run; None to run nothing."""
    offline: bool
    as_json: bool
    fetch: bool = False
    others: tuple[str, ...] = ()
    each: bool = False

    def opened(self) -> Tree | None:
        """Open the tree that the mod was written for, None where none is named."""
        if self.tree is None and self.others:
            raise UsageError("--with says what is beside --tree", hint="--tree pypi:VERSION")
        if self.tree is None:
            return None
        named = options.beside(self.others)
        return options.open_tree(self.tree, offline=self.offline, others=named)


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
    if asked.record is not None and asked.tree is None:
        return _over_releases(asked, source)
    if asked.each:
        return _each(asked, source)
    fetcher = Fetcher(options.note)
    tree = asked.opened()
    effects: tuple[Effect, ...]
    try:
        if asked.fetch:
            fetcher.until_read(
                lambda fetched: reading.read(source.name, source.files, tree, fetched)
            )
        effects = reading.read(source.name, source.files, tree, fetcher.taken)
    except BashError as error:
        if asked.record is None:
            raise UsageError(
                f"{asked.path}/{folder.SCRIPT}: line {error.line}: {error.why}",
                hint=f"bash -n {asked.path}/{folder.SCRIPT}",
            ) from error
        effects = (Left(ScriptPlace(folder.SCRIPT, error.line), folder.SCRIPT, error.why),)
    return _finish(asked, source, effects, tree, fetcher)


def _built(asked: ImportArguments) -> int:
    """Make a mod of what the last stage of a Dockerfile does."""
    if asked.record is not None:
        raise UsageError(
            f"{asked.path} is a Dockerfile, and --record runs a run.sh", hint="docker build"
        )
    tree = asked.opened()
    fetcher = Fetcher(options.note)
    try:
        source = folder.build(asked.path)
        text = source.files[source.script].decode("utf-8", "surrogateescape")

        def read(fetched: Mapping[str, bytes]) -> tuple[Effect, ...]:
            shell = reading.ReadShell(source.name, source.files, tree, fetched)
            return building.read(shell, text, source.script)

        if asked.fetch:
            fetcher.until_read(read)
        effects = read(fetcher.taken)
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
    wanted = advice.stated(compose.Wanted(name, asked.summary, asked.terms, asked.spec), effects)
    wanted = wanted._replace(fetched=fetcher.files())
    if asked.record is not None:
        wanted = wanted._replace(python=from_script.installed(effects))
        made = _recorded(asked, wanted, source, tree, fetcher)
    elif not understood.left:
        made = _made(wanted, understood, tree)
    place = None
    if made is not None:
        _check_others(asked, name, made)
    if made is not None and asked.library is not None:
        place = new.write(asked.library, name, made.files)
    _tell(asked, name, understood, made, place)
    return EXIT_NO if made is None else EXIT_OK


def _over_releases(asked: ImportArguments, source: LauncherFolder) -> int:
    """Make a mod of what the script does on every release asked for: read where that tells, else run."""
    index = Releases(offline=asked.offline, progress=options.progress(), note=options.note)
    specs = [
        one
        for one in choose_releases((), index.files(), asked.spec or _OLDEST)
        if one[-4:] != ".whl"
    ]
    versions = [one.removeprefix("pypi:") for one in specs]
    finals = [one for one in versions if is_final(one)] or versions
    if not finals:
        raise UsageError(f"no release of vLLM is in {asked.spec}", hint="--vllm '>=0.19,<0.22'")
    named = options.beside(asked.others)
    releases = [over_releases.Release(one, index.open(one, named=named)) for one in finals]
    name = asked.name or _slug(source.name)
    wanted = compose.Wanted(name, asked.summary, asked.terms)
    fetcher = Fetcher(options.note)

    def read(fetched: Mapping[str, bytes]) -> tuple[Effect, ...]:
        return reading.read(source.name, source.files, None, fetched)

    with contextlib.suppress(BashError):  # the run says what is wrong with the script
        if asked.fetch:
            fetcher.until_read(read)
        wanted = advice.stated(wanted, read(fetcher.taken))
    limits = Limits(*(asked.record or ()))._replace(fetched=fetcher.taken)
    takes = fetcher if asked.fetch else None
    made, handed = from_folder.make(source, wanted, releases, limits, _progress, fetcher=takes)
    if handed:
        options.note(f"it was run, because reading does not tell: {handed}")
    told = Made(made.files, None, made.unknown, made.told, made.rows)
    _check_others(asked, name, told)
    place = None if asked.library is None else new.write(asked.library, name, made.files)
    _tell(asked, name, Understood((), {}), told, place)
    return EXIT_OK


def _each(asked: ImportArguments, source: LauncherFolder) -> int:
    """Make a mod of each entry of a registry."""
    tree = asked.opened()
    if tree is None or asked.record is None:
        raise UsageError("on which vLLM is it to run?", hint=f"--record --tree TREE {asked.path}")
    name = asked.name or _slug(source.name)
    wanted = compose.Wanted(name, asked.summary, asked.terms, asked.spec)
    made = each_entry.make(source, wanted, tree, Limits(*asked.record), _progress)
    options.beside(asked.others, [mod_folder.load_files(one.name, one.files) for one in made.mods])
    if asked.library is not None:
        new.write_all(asked.library, {one.name: one.files for one in made.mods})
    if asked.as_json:
        options.print_json({**script.each_data(made), "path": asked.path, "name": name})
        return EXIT_OK
    for line in script.each(made):
        click.echo(line, err=True)
    if asked.library is None:
        hint = f"vllm-mods import {asked.path} --record --each --tree {asked.tree} --library DIR"
        click.echo(f"\nhint: {hint}  # writes them to DIR/patches", err=True)
        return EXIT_OK
    click.echo(f"wrote {len(made.mods)} mods to {asked.library}/patches")
    return EXIT_OK


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
    place = None if asked.library is None else new.write(asked.library, mod.name, files)
    _tell(asked, mod.name, Understood((), {}), Made(files, planned, ()), place)
    return EXIT_OK


def _made(wanted: compose.Wanted, understood: Understood, tree: Tree | None) -> Made:
    if tree is not None:
        made = from_script.on_tree(understood, wanted, tree)
        return Made(made.files, made.planned, made.unknown)
    files = from_script.without_tree(understood, wanted)
    mod_folder.load_files(wanted.name, files)
    return Made(files, None, tuple(compose.unknown(wanted, None)))


def _check_others(asked: ImportArguments, name: str, made: Made) -> None:
    """Raise ``UsageError`` for a version of a package that the mod does not change."""
    if asked.others:
        options.beside(asked.others, (mod_folder.load_files(name, made.files),))


def _recorded(
    asked: ImportArguments,
    wanted: compose.Wanted,
    source: LauncherFolder,
    tree: Tree | None,
    fetcher: Fetcher,
) -> Made:
    """Make a mod of what the script does when it is run; say what else it did."""
    if tree is None or asked.record is None:
        raise UsageError("on which vLLM is it to run?", hint=f"--record --tree TREE {asked.path}")
    fed = fetcher if asked.fetch else None
    done = recording.fed(source.name, source.files, tree, Limits(*asked.record), fed)
    wanted = wanted._replace(fetched=fetcher.files())
    python = dict.fromkeys((*wanted.python, *done.python))
    wanted = wanted._replace(python=tuple(python))
    made = compose.compose(wanted, done.changes, done.templates, tree)
    return Made(made.files, made.planned, made.unknown, done.lost)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")


def _progress(text: str) -> None:
    if options.watched():
        options.show_line(text, last=False)


def _way(path: str, understood: Understood) -> str:
    """Return what helps with what is left."""
    if folder.is_dockerfile(path):
        return "--tree TREE; or vllm-mods new NAME --from-trees image:BASE image:BUILT"
    if all(isinstance(one, Left) and "--tree TREE" in one.why for one in understood.left):
        return "--tree TREE  # the vLLM that it was written for"
    return "--record --tree TREE  # run on a copy of that vLLM"


def _tell(
    asked: ImportArguments,
    name: str,
    understood: Understood,
    made: Made | None,
    place: str | None,
) -> None:
    findings = () if made is None or made.planned is None else made.planned.findings
    if asked.as_json:
        options.print_json(
            {
                "schema": 1,
                "kind": "mod",
                "path": asked.path,
                "ok": made is not None,
                "name": name,
                "folder": place,
                "files": [] if made is None else sorted(made.files),
                "verdict": None
                if made is None or made.planned is None
                else made.planned.verdict.value,
                "findings": [finding(one) for one in findings],
                "effects": script.data(understood),
                "notes": [] if made is None else list(made.told),
                "unknown": [] if made is None else list(made.unknown),
                "releases": [] if made is None else [one._asdict() for one in made.releases],
            }
        )
        return
    for line in script.text(understood):
        click.echo(line, err=True)
    if made is None:
        click.echo(
            f"\n{len(understood.left)} of {asked.path} left to you: nothing was written\n\n"
            f"hint: vllm-mods import {asked.path} {_way(asked.path, understood)}",
            err=True,
        )
        return
    for line in (*made.told, *(one.message for one in findings), *script.releases(made.releases)):
        options.note(line)
    for line in made.unknown:
        click.echo(f"to be said by you, in mod.toml: {line}", err=True)
    if place is None:
        shown.file(made.files["mod.toml"].decode())
        hint = f"vllm-mods import {asked.path} --library DIR  # writes it to DIR/patches/{name}"
        click.echo(f"\nhint: {hint}", err=True)
        return
    verdict = "" if made.planned is None else f": {made.planned.verdict}"
    click.echo(f"wrote {place}{verdict}")
    for path in sorted(made.files):
        click.echo(f"  {path}")
    if made.planned is None and not made.releases:
        click.echo(f"hint: vllm-mods check {name} --library {asked.library} --target TREE")
