"""``vllm-mods`` alone: the vLLMs of this machine, what is in them, what fits, and what to do next.

Environments are found by their folders; nothing is started, and no engine is asked: `ps` has its containers.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence

import click

from vllm_mods.api.status import status
from vllm_mods.applying.outcomes import Status
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.versions import in_range
from vllm_mods.cli import answers, options
from vllm_mods.diagnosis import search
from vllm_mods.diagnosis.search import Installed
from vllm_mods.formats.pairing import Pairing
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.report import text
from vllm_mods.running import engine
from vllm_mods.trees.open import open_tree

_WIDTH = 100
_MOST = 8  # vLLMs that are told: it is one screen
_ELSEWHERE = """\
no vLLM is in the environments here
  of a release:  vllm-mods check --target pypi:VERSION
  of an image:   vllm-mods check --target image:REF
  of a folder:   vllm-mods check --target DIR  # VLLM_MODS_TARGET=DIR names it once and for all"""


def show() -> None:
    """Print one screen: each vLLM with what is in it and what fits, and the next command."""
    named = os.environ.get(options.TARGET)
    places = (Installed(named, options.TARGET),) if named else search.installed(os.environ)
    wrong: list[str] = []
    library = _library(wrong)
    seen = [tree for one in places[:_MOST] if (tree := _tree(one, wrong)) is not None]
    if places[_MOST:]:
        click.echo(f"and {len(places) - _MOST} more vLLMs; vllm-mods status --target DIR")
    if not places:
        click.echo(_ELSEWHERE)
    if seen:
        _fits(library, seen[0])
    meant = [
        pairing.name
        for pairing in _pairings(library)
        if any(in_range(tree.version, pairing.vllm or "") for tree in seen)
    ]
    if meant:
        lines = text.wrapped(f"pairings for these: {', '.join(meant)}", _WIDTH)
        click.echo("\n" + "\n".join(lines))
    click.echo("\nvllm-mods --help lists the commands; vllm-mods list, the mods and pairings")
    answers.hint(wrong[0] if wrong else _next(seen, meant))


def _library(wrong: list[str]) -> Library:
    """Open all libraries; where that fails, say so and what to do, and go on with the bundled one."""
    try:
        library = options.LibraryArguments().open()
        library.names(), library.pairing_names()
    except VllmModsError as error:
        click.echo(f"{error.message}\n")
        wrong += [error.hint] if error.hint else []
        return Library()
    return library


def _tree(place: Installed, wrong: list[str]) -> Status | None:
    """Print what is in a vLLM; say in ``wrong`` what to do where something is."""
    try:
        state = status(place.root)
    except VllmModsError as error:  # a tree that is no folder, or is damaged, is not all there is
        click.echo(f"{place.root}, {place.owner}\n  {error.message}")
        wrong.append(f"vllm-mods doctor --target {shlex.quote(place.root)}")
        return None
    click.echo(f"{text.tree_name(state.version, place.root)}, {place.owner}")
    for entry in state.mods:
        click.echo(f"  {entry.name} {entry.version}{text.STANDING[state.standing(entry)]}")
    if not state.mods:
        click.echo("  no mods are in")
    wrong += [state.hint] if state.hint else []
    return state


def _fits(library: Library, state: Status) -> None:
    """Print which of the library's other mods would go into a tree, each planned alone."""
    tree = open_tree(state.target)
    inside = {entry.name for entry in state.mods}
    good: list[str] = []
    bad: list[str] = []
    for name in library.names():
        if name.rpartition("/")[2] in inside:
            continue
        try:
            verdict = planner.plan_alone(library.load(name), tree).verdict
        except VllmModsError:  # `check` has the whole of it
            bad.append(f"{name} (unreadable)")
            continue
        (good if verdict.ok else bad).append(name if verdict.ok else f"{name} ({verdict.value})")
    for title, names in (("would fit", good), ("would not", bad)):
        if names:
            click.echo("\n".join(text.wrapped(f"  {title}: {', '.join(names)}", _WIDTH)))


def _pairings(library: Library) -> Iterator[Pairing]:
    """Yield the pairings that can be read: of the others `check --pairing` has the whole of it."""
    for name in library.pairing_names():
        with contextlib.suppress(VllmModsError):
            yield library.pairing(name)


def _next(seen: Sequence[Status], pairings: Sequence[str]) -> str:
    inside = [one.target for one in seen if one.mods]
    if inside:
        return f"vllm-mods verify --target {shlex.quote(inside[0])}"
    if pairings and engine.found():
        return f"vllm-mods lock {pairings[0]}  # then build it, and run it"
    if seen:
        return f"vllm-mods suggest MODEL --target {shlex.quote(seen[0].target)}  # what your model needs of these"
    return "vllm-mods list"
