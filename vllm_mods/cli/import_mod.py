"""The part of ``vllm-mods import`` that takes a mod: a diff, a mod of ours, or a launcher's folder or zip, which is run."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from vllm_mods.api.access import Access, open_image
from vllm_mods.api.libraries import other_packages
from vllm_mods.base import limits as bounds
from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import is_final
from vllm_mods.cli import answers, named_files, shown
from vllm_mods.library import mod_folder, writing
from vllm_mods.making import compose, exporting, folder, from_diff, over_releases, recording
from vllm_mods.making.compose import Composed, Wanted
from vllm_mods.making.fetching import Fetcher
from vllm_mods.making.folder import ModSource
from vllm_mods.making.over_releases import Release, ReleaseRow
from vllm_mods.making.recording import Limits, Recording
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.planning import planner
from vllm_mods.report.data import finding


class ImportArguments(NamedTuple):
    """What the caller wants of a mod; None for what nobody said."""

    path: str
    library: str | None
    name: str | None
    tree: str | None
    image: str | None
    summary: str | None
    terms: str | None
    spec: str | None
    fetch: bool
    limits: Limits
    others: tuple[str, ...]
    access: Access
    as_json: bool

    def wanted(self, name: str) -> Wanted:
        """Return what the mod is to say of itself; ``name`` is what it is called if nobody said."""
        slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
        return Wanted(self.name or slug, self.summary, self.terms, self.spec)

    def open_tree(self) -> Tree | None:
        """Open the tree or image that the mod was written for, None where none is named."""
        if self.tree is None and self.others:
            raise UsageError("--with says what is beside --tree", hint="--tree pypi:VERSION")
        if self.image is not None:
            return open_image(self.access, f"image:{self.image}")
        if self.tree is None:
            return None
        return self.access.open(self.tree, others=other_packages(self.others))


class ImportedMod(NamedTuple):
    """A mod by its files, what the tree says of it (None without one), and what is left to say."""

    name: str
    files: dict[str, bytes]
    planned: ModPlan | None = None
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    releases: tuple[ReleaseRow, ...] = ()


def is_diff(path: str) -> bool:
    """Return True if a file is a diff by its name."""
    return path.endswith((".patch", ".diff"))


def run(asked: ImportArguments) -> int:
    """Make a mod of what a diff changes, or a script does, or take one that is a mod already."""
    mod = _from_diff(asked) if is_diff(asked.path) else _from_source(asked)
    if asked.others:
        other_packages(asked.others, (mod_folder.load_files(mod.name, mod.files),))
    place = None
    if asked.library is not None:
        place = writing.write_mod(asked.library, mod.name, mod.files)
    return _report(asked, mod, place)


def _from_diff(asked: ImportArguments) -> ImportedMod:
    if (tree := asked.open_tree()) is None:
        raise UsageError("which vLLM was the diff made on?", hint="--tree TREE")
    with named_files.opened(asked.path) as file:
        data = file.read(bounds.MOD_BYTES + 1)
    if len(data) > bounds.MOD_BYTES:
        raise UsageError(f"{asked.path} has more than {bounds.MOD_BYTES}", hint="split the diff")
    changes, meant = from_diff.changes(data, asked.path, tree)
    notes = tuple(f"{one.named} is {one.path}" for one in meant if one.named != one.path)
    stem = os.path.splitext(os.path.basename(asked.path))[0]
    return _composed(compose.compose(asked.wanted(stem), changes, {}, tree), notes)


def _composed(composed: Composed, notes: tuple[str, ...]) -> ImportedMod:
    mod = composed.mod
    return ImportedMod(mod.name, composed.files, composed.planned, composed.unknown, notes)


def _from_source(asked: ImportArguments) -> ImportedMod:
    source = folder.read(asked.path)
    if folder.SCRIPT not in source.files:
        mod = mod_folder.load_files(asked.name or source.name, source.files)
        return _taken(asked, mod, source.files)
    if (exported := exporting.exported_mod(source.files)) is not None:
        return _taken(asked, *exported)
    if asked.tree is not None and asked.image is not None:
        raise UsageError("--tree and --image both name the vLLM to run it on", hint="give one")
    if asked.tree is None and asked.image is None:
        if asked.spec is None:
            raise UsageError(
                f"{asked.path} has a {folder.SCRIPT}, and only a run tells what it does: on which vLLM?",
                hint="--tree pypi:VERSION, --image REF, or --vllm SPEC for a variant per release",
            )
        return _over_releases(asked, source)
    return _recorded(asked, source)


def _taken(asked: ImportArguments, mod: Mod, files: dict[str, bytes]) -> ImportedMod:
    """Take what is a mod of ours already, as it is."""
    if asked.name not in {None, mod.name} or any((asked.summary, asked.terms, asked.spec)):
        raise UsageError(
            f"{asked.path} is a mod of vllm-mods already, and is taken back as it was",
            hint=f"vllm-mods import {asked.path} --library DIR",
        )
    tree = asked.open_tree()
    planned = None if tree is None else planner.plan_alone(mod, tree)
    return ImportedMod(mod.name, files, planned)


def _recorded(asked: ImportArguments, source: ModSource) -> ImportedMod:
    """Make a mod of what the script does when it is run on a tree, or in an image."""
    tree = asked.open_tree()
    assert tree is not None  # noqa: S101  (one of the two is named)
    container = None if asked.image is None else recording.container_of(tree)
    wanted = asked.wanted(source.name)
    done = recording.record(
        *([f"./{folder.SCRIPT}"], source.name, source.files, tree, asked.limits),
        container=container,
        fetcher=Fetcher(answers.note) if asked.fetch else None,
    )
    wanted = wanted._replace(python=done.python, env=done.env, fetched=done.fetched)
    return _composed(compose.compose(wanted, done.changes, done.templates, tree), done.notes)


def _over_releases(asked: ImportArguments, source: ModSource) -> ImportedMod:
    """Make a mod of what the script does on every release of the range."""
    index = asked.access.releases
    specs = choose_releases((), index.files(), asked.spec)
    versions = [one.removeprefix("pypi:") for one in specs if not one.endswith(".whl")]
    versions = [one for one in versions if is_final(one)] or versions
    if not versions:
        raise UsageError(f"no release of vLLM is in {asked.spec}", hint="--vllm '>=0.19,<0.22'")
    beside = other_packages(asked.others)
    releases = [Release(one, index.open(one, named=beside)) for one in versions]
    wanted = asked.wanted(source.name)._replace(vllm=None)
    fetcher = Fetcher(answers.note) if asked.fetch else None

    def record(tree: Tree) -> Recording:
        argv = [f"./{folder.SCRIPT}"]
        return recording.record(
            argv, source.name, source.files, tree, asked.limits, fetcher=fetcher
        )

    over = over_releases.make(wanted, releases, record, _show_progress)
    return ImportedMod(wanted.name, over.files, None, over.unknown, over.notes, over.rows)


def _show_progress(text: str) -> None:
    if answers.watched():
        answers.show_line(text, last=False)


def _release_lines(rows: Sequence[ReleaseRow]) -> list[str]:
    """Return a line for each stretch of releases with the same variant, or the same reason for none."""
    lines = []
    for _, group in itertools.groupby(rows, key=lambda row: (row.variant, row.why)):
        first, *others = group
        span = f"{first.version} to {others[-1].version}" if others else first.version
        answer = f"variant `{first.variant}`" if first.variant else f"no variant: {first.why}"
        lines.append(f"{span}: {answer}")
    return lines


def _report(asked: ImportArguments, mod: ImportedMod, place: str | None) -> int:
    findings = () if mod.planned is None else mod.planned.findings
    if asked.as_json:
        answers.print_json(
            {
                "kind": "mod",
                "path": asked.path,
                "ok": True,
                "name": mod.name,
                "folder": place,
                "files": sorted(mod.files),
                "verdict": mod.planned and mod.planned.verdict.value,
                "findings": [finding(one) for one in findings],
                "notes": list(mod.notes),
                "unknown": list(mod.unknown),
                "releases": [row._asdict() for row in mod.releases],
            }
        )
        return EXIT_OK
    for line in (*mod.notes, *(one.message for one in findings), *_release_lines(mod.releases)):
        answers.note(line)
    for line in mod.unknown:
        click.echo(f"to be said by you, in mod.toml: {line}", err=True)
    if place is None:
        shown.file(mod.files[mod_folder.MANIFEST].decode())
        answers.hint(
            f"vllm-mods import {asked.path} --library DIR  # writes it to DIR/patches/{mod.name}"
        )
        return EXIT_OK
    verdict = "" if mod.planned is None else f": {mod.planned.verdict}"
    lines = [f"wrote {place}{verdict}", *(f"  {path}" for path in sorted(mod.files))]
    if mod.planned is None and not mod.releases:
        lines.append(f"hint: vllm-mods check {mod.name} --library {asked.library} --target TREE")
    click.echo("\n".join(lines))
    return EXIT_OK
