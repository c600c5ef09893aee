"""What was read in a mod's script, for people and for scripts."""

from __future__ import annotations

import itertools
import posixpath
import shlex
from collections.abc import Sequence
from typing import Any

from vllm_mods.making import effects
from vllm_mods.making.each_entry import EachMade
from vllm_mods.making.from_script import Understood
from vllm_mods.making.over_releases import ReleaseRow
from vllm_mods.report.data import SCHEMA, fields


def text(understood: Understood) -> list[str]:
    """Return a line per effect, in the script's order."""
    return [f"{one.place}: {says}" for one, says in _said(understood)]


def releases(rows: Sequence[ReleaseRow]) -> list[str]:
    """Return a line for each stretch of releases of which the same is to be said."""
    lines = []
    for _, group in itertools.groupby(rows, key=lambda row: (row.variant, row.ran_on, row.why)):
        first, *others = group
        span = f"{first.version} to {others[-1].version}" if others else first.version
        how = f", as a run on {first.ran_on} did" if first.ran_on else ""
        said = f"variant `{first.variant}`{how}" if first.variant else f"no variant: {first.why}"
        lines.append(f"{span}: {said}")
    return lines


def each(made: EachMade) -> list[str]:
    """Return a line for each entry of a registry, and what was done to know it."""
    lines = [f"{made.where}: {len(made.mods)} mods of its entries, by {made.runs} runs"]
    for one in made.mods:
        needs = f", requires {', '.join(one.requires)}" if one.requires else ""
        lines.append(f"{one.where}: {one.name}{needs}")
    lines += [f"note: {where}: no mod: it does nothing there: {why}" for where, why in made.idle]
    lines += [f"note: {line}" for line in made.told]
    return lines + [f"to be said by you, in each mod.toml: {line}" for line in made.unknown]


def each_data(made: EachMade) -> dict[str, Any]:
    """Return the mods of a registry's entries as ``import --each --json`` prints them."""
    return {
        "schema": SCHEMA,
        "kind": "mods",
        "ok": True,
        "where": made.where,
        "mods": [
            {**fields(one, "name", "where", "requires"), "files": sorted(one.files)}
            for one in made.mods
        ],
        "idle": [{"where": where, "why": why} for where, why in made.idle],
        "notes": made.told,
        **fields(made, "unknown", "runs"),
    }


def data(understood: Understood) -> list[dict[str, Any]]:
    """Return the effects as ``import --json`` prints them."""
    return [
        {"kind": type(one).__name__.lower(), **fields(one.place, "file", "line"), "message": says}
        for one, says in _said(understood)
    ]


def _said(understood: Understood) -> list[tuple[effects.Effect, str]]:
    return [
        (one, _patch(one, [part.path for part in understood.patches[i]]))
        if isinstance(one, effects.Patch)
        else (one, _one(one))
        for i, one in enumerate(understood.effects)
    ]


def _patch(one: effects.Patch, paths: list[str]) -> str:
    back = ", taken out" if one.reverse else ""
    free = ", optional: the script survives it where it does not go in" if one.optional else ""
    return f"patch {one.source}{back}: {', '.join(dict.fromkeys(paths))}{free}"


def _one(one: effects.Effect) -> str:  # noqa: C901, PLR0911  (one for each kind)
    if isinstance(one, effects.Whole):
        path = effects.in_site(one.path)
        return f"whole file {path}" if path else f"chat template {posixpath.basename(one.path)}"
    if isinstance(one, effects.Remove):
        return f"removes {effects.in_site(one.path)}"
    if isinstance(one, effects.Install):
        return f"installs {one.requirement}: the mod states it, and `apply` does not install it"
    if isinstance(one, effects.Export):
        said = (
            "the mod brings it to a pairing, as its [env]"
            if one.brought
            else "the mod is without it"
        )
        return f"{one.name}={one.value} ends with the script: {said}"
    if isinstance(one, effects.Advise):
        return (
            f"says that vLLM is to be served with {shlex.join(one.args)}: [serve] args of the mod"
        )
    if isinstance(one, effects.Fetch):
        return f"has {one.url} from the network: taken, sha256 {one.sha256}"
    if isinstance(one, effects.OutsideFile):
        return f"whole file {one.path}, outside of Python's packages: only an image gets it"
    if isinstance(one, effects.Clear):
        return f"clears {one.what}: `apply` removes stale bytecode, and keeps originals, by itself"
    if isinstance(one, effects.Assume):
        return f"`{one.text}`: {one.how}"
    if isinstance(one, effects.Edit):
        return f"`{one.text}`: {one.what}, and only a run tells what comes out"
    assert isinstance(one, effects.Left)  # noqa: S101  (patches have been told)
    return f"not understood: `{one.text}`: {one.why}"
