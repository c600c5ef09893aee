"""Serve commands held against the sample of ``serve_tree``, changed where a test says so."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from memory_tree import MemoryTree
from serve_tree import FILES

from vllm_mods.base.model import Level, ModPlan, Verdict
from vllm_mods.serving.check import ServeAnswer, check
from vllm_mods.serving.command import words
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Mod
    from vllm_mods.serving.faults import ServeFault


def changed(path: str, *pairs: tuple[str, str]) -> dict[str, bytes]:
    """Return the sample with one text in place of another, which has to be there once."""
    text = FILES[path].decode()
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return {**FILES, path: text.encode()}


def ask(
    line: str,
    *,
    env: Mapping[str, str] | None = None,
    mods: tuple[ModPlan, ...] = (),
    unknown: tuple[str, ...] = (),
    files: Mapping[str, bytes] = FILES,
    image: Any = None,
    missing: tuple[tuple[str, str], ...] = (),
) -> ServeAnswer:
    argv = words(shlex.split(f"vllm serve m {line}"))
    serving = Serving(argv, env or {}, unknown, mods, image, missing)
    return check(KnownFlags(MemoryTree(dict(files))), serving)


def messages(answer: ServeAnswer) -> list[str]:
    """Return what is said, a note with its word in front."""
    return [
        f"{'note: ' if f.level is Level.NOTE else ''}{f.subject}: {f.message}"
        for f in answer.faults
    ]


def errors(answer: ServeAnswer) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in answer.faults if f.level is Level.ERROR]


def notes(answer: ServeAnswer) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in answer.faults if f.level is Level.NOTE]


def only(answer: ServeAnswer) -> ServeFault:
    assert len(answer.faults) == 1, answer.faults
    return answer.faults[0]


def planned(mod: Mod, verdict: Verdict = Verdict.APPLIES) -> ModPlan:
    return ModPlan(mod=mod, variant=mod.variants[0], verdict=verdict, in_range=True)
