"""What a pairing takes over of its mods: their variables, and flags for the command that serves. Pure.

The pairing's own value always stays. Flags go in behind the model, in front of all that the pairing has
itself: of a flag that is given twice under two names vLLM takes the last.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Mod
from vllm_mods.formats import pairing as pairings
from vllm_mods.scripts import command_line

_MODEL = r"""(?:'[^']*'|"[^"]*"|\{\w+\}|[^\s\\'"{}$;&|<>()`-][^\s\\'"{}$;&|<>()`]*)"""
_SERVES = rf"(?:vllm[ \t]+serve|vllm\.entrypoints\.openai\.api_server)(?:(?:[ \t]|\\\n)+{_MODEL})?"


class TakenOver(NamedTuple):
    """A pairing with what its mods bring; ``remarks`` are mods, each with what was taken of it, or why not."""

    pairing: pairings.Pairing
    remarks: tuple[tuple[str, str], ...]


class _Brought(NamedTuple):
    """A value that mods want: ``shown`` as a shell takes it."""

    words: tuple[str, ...]
    shown: str
    mods: tuple[str, ...]


def taken_over(pairing: pairings.Pairing, mods: Sequence[Mod]) -> TakenOver:
    """Return a pairing with the variables and flags of its mods.

    Raises ``ManifestError`` where two mods want different values and the pairing has none of its own,
    ``UsageError`` for a command that no shell reads.
    """
    serving, _ = pairings.serve_command(pairing)
    own = environment(pairing)
    given = [_named(word) for word in serving.argv if word.startswith("-")]
    remarks: list[tuple[str, str]] = []
    problems: list[str] = []
    env: dict[str, str] = {}
    env_of = ((mod.name, *pair) for mod in mods for pair in mod.env)
    rows = ((mod, name, (name, v), f"{name}={shlex.quote(v)}") for mod, name, v in env_of)
    for name, wanted in _grouped(rows):
        if name in own:
            remarks += _kept(wanted, f"{name}={shlex.quote(own[name])}")
        elif len(wanted) > 1:
            problems.append(_conflict(f"env.{name}", wanted, f"{name} under [env]"))
        else:
            env[name] = wanted[0].words[1]
            remarks += _taken(wanted[0])
    flags: list[_Brought] = []
    for name, wanted in _grouped((mod.name, *flag) for mod in mods for flag in _flags(mod)):
        if any(_same(name, one) for one in given):
            continue  # the check of the command says where it differs
        if len(wanted) > 1:
            problems.append(_conflict(f"command: {name}", wanted, f"{name} in the command"))
        flags.append(wanted[0])
    if problems:
        hint = f"set the value that you want in pairings/{pairing.name}.toml"
        raise ManifestError(f"pairing {pairing.name}", tuple(problems), hint=hint)
    words = tuple(word for one in flags for word in one.words)
    changed = _with_words(pairing, words) if words else None
    remarks += [line for one in flags for line in _taken(one) if changed]
    return TakenOver((changed or pairing)._replace(env={**pairing.env, **env}), tuple(remarks))


def environment(pairing: pairings.Pairing) -> dict[str, str]:
    """Return the variables of what serves: the pairing's, and those of its command. Raises ``UsageError``."""
    serving, script = pairings.serve_command(pairing)
    return {**pairing.env, **command_line.exported(script), **dict(serving.assignments)}


def _flags(mod: Mod) -> Iterator[tuple[str, tuple[str, ...], str]]:
    groups: dict[str, list[str]] = {}
    last: list[str] = []
    for word in mod.serve_args:
        if re.match(r"--?[A-Za-z]", word):
            last = groups.setdefault(_named(word), [])
        last.append(word)
    for name, group in groups.items():
        yield name, tuple(group), shlex.join(group)


def _grouped(
    rows: Iterator[tuple[str, str, tuple[str, ...], str]],
) -> list[tuple[str, list[_Brought]]]:
    """Return the different values of each name; one name may be the head of another (``--a``, ``--a.b``)."""
    groups: dict[str, dict[tuple[str, ...], _Brought]] = {}
    for mod, name, words, shown in rows:
        group = groups.setdefault(next((known for known in groups if _same(known, name)), name), {})
        before = group.get(words, _Brought(words, shown, ()))
        group[words] = before._replace(mods=(*before.mods, mod))
    return [(name, [*group.values()]) for name, group in groups.items()]


def _named(word: str) -> str:
    """Return the name of a flag, the same for one that turns it off; keys behind a dot stay."""
    name, dot, key = word.partition("=")[0].partition(".")
    name = re.sub(r"^--no-", "--", name.replace("_", "-"))
    return f"{name}{dot}{key}"


def _same(name: str, other: str) -> bool:
    return name == other or f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")


def _conflict(key: str, wanted: Sequence[_Brought], way: str) -> str:
    values = " and ".join(f"`{', '.join(one.mods)}` sets {one.shown}" for one in wanted)
    return f"{key}: {values}, so the pairing must set {way}"


def _taken(value: _Brought) -> list[tuple[str, str]]:
    return [(mod, f"sets {value.shown}, and the pairing uses it") for mod in value.mods]


def _kept(wanted: Sequence[_Brought], own: str) -> list[tuple[str, str]]:
    others = ((mod, one.shown) for one in wanted if one.shown != own for mod in one.mods)
    return [(mod, f"sets {shown}, but the pairing keeps its own {own}") for mod, shown in others]


def _with_words(pairing: pairings.Pairing, words: tuple[str, ...]) -> pairings.Pairing | None:
    """Put words behind the model of the command that serves; None where no place does that and no more."""
    text = shlex.join(words).replace("{", "{{").replace("}", "}}")
    for match in re.finditer(_SERVES, pairing.command):
        command = f"{pairing.command[: match.end()]} {text}{pairing.command[match.end() :]}"
        changed = pairing._replace(command=command)
        if not pairings.faults(changed) and _adds(pairing, changed, words):
            return changed
    return None


def _adds(pairing: pairings.Pairing, changed: pairings.Pairing, words: tuple[str, ...]) -> bool:
    (old, before), (new, after) = (pairings.serve_command(one) for one in (pairing, changed))
    commands, others = list(before.commands), list(after.commands)
    del commands[pairings.serving(before)], others[pairings.serving(after)]
    if commands != others or old.assignments != new.assignments:
        return False
    places = range(2, len(old.argv) + 1)
    return any(new.argv == (*old.argv[:i], *words, *old.argv[i:]) for i in places)
