"""How mods get on with each other: in which order they go in, and which exclude others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_mods.base.errors import UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan


def order(mods: Sequence[Mod]) -> tuple[Mod, ...]:
    """Sort mods so that each follows what it ``requires`` and is ``after``; else as given."""
    names = {mod.name: mod for mod in mods}
    done: dict[str, Mod] = {}
    pending: list[str] = []

    def take(mod: Mod) -> None:
        if mod.name in done:
            return
        if mod.name in pending:
            circle = " → ".join((*pending[pending.index(mod.name) :], mod.name))
            raise UsageError(
                f"mods wait for each other in a circle: {circle}",
                hint="take one `requires` or `after` out of their manifests",
            )
        pending.append(mod.name)
        for name in (*mod.requires, *mod.after):
            if name in names:
                take(names[name])
        pending.pop()
        done[mod.name] = mod

    for mod in mods:
        take(mod)
    return tuple(done.values())


def objections(
    mod: Mod,
    mods: Sequence[Mod],
    done: Mapping[str, ModPlan],
    applied: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    """Yield why a mod cannot go in beside the others, whatever the tree.

    ``mods`` are all that were asked for, ``done`` what became of those before this one,
    ``applied`` those that are in the tree already, each with the names in its ``conflicts``.
    """
    for other in mods:
        if other.name != mod.name and (other.name in mod.conflicts or mod.name in other.conflicts):
            message = f"{mod.name} and {other.name} do not go together: the manifest of one names the other in `conflicts`"
            yield Finding(FindingCode.CONFLICTING_MOD, message)
    asked = {other.name for other in mods}
    for name, others in applied.items():
        if name not in asked and (name in mod.conflicts or mod.name in others):
            message = f"{mod.name} does not go together with {name}, which is in"
            yield Finding(FindingCode.CONFLICTING_MOD, message)
    for name in mod.requires:
        if name in done and not done[name].verdict.ok:
            message = f"{mod.name} requires {name}, which does not go in (`{done[name].verdict}`)"
            yield Finding(FindingCode.REQUIRED_MOD, message)
        elif name not in done and name not in applied:
            yield Finding(FindingCode.REQUIRED_MOD, f"{mod.name} requires {name}, which is not in")
