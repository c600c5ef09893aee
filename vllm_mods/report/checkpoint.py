"""Answers of ``suggest``, and what ``check`` says of a model, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vllm_mods.api.suggest import Suggested
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.facts import LayerKinds, ModelFacts
from vllm_mods.checkpoints.model_fit import ModelFit, ModFit
from vllm_mods.report import data, text
from vllm_mods.report.text import Paint

_MOST = 8


def suggestion_data(result: Suggested) -> dict[str, Any]:
    """Return the answer of ``suggest``."""
    one, found = result.checkpoint, result.suggestion
    said = found.facts
    return {
        "schema": data.SCHEMA,
        "model": {
            **data.fields(one, "name", "commit", "config_sha256", "index_sha256"),
            **data.fields(said, "architecture", "model_type", "quantization", "bits", "context"),
            **{key: _layers_data(getattr(said, key)) for key in ("packed", "block_fp8", "gdn")},
        },
        "mods": list(map(_needed, found.mods)),
        "templates": list(map(_needed, found.templates)),
        "pairings": found.pairings,
        **({} if result.plan is None else {"plan": data.plan(result.plan)}),
        "ok": result.ok,
    }


def fit_data(fit: ModelFit) -> dict[str, Any]:
    """Return what ``check --model`` found."""
    return {
        **data.fields(fit, "name", "commit", "ok"),
        "mods": [data.fields(mod, "name", "meant", "why") for mod in fit.mods],
    }


def fit_text(fit: ModelFit) -> str:
    """Say which mods are not for a model, or that all are."""
    wrong = [f"  {mod.name} is not for it: {mod.why}" for mod in fit.mods if not mod.meant]
    return "\n".join([f"model {_name(fit)}", *(wrong or ["  what the mods are for"])])


def suggestion_text(result: Suggested, paint: Paint) -> str:
    """Say what a model is, what is for it, and whether that goes into the tree."""
    one, found = result.checkpoint, result.suggestion
    lines = [_name(one), *_facts(found.facts)]
    if not one.tensors:
        lines.append("  no safetensors in it: what its layers are is not known")
    lines += ["", "mods" if found.mods else "mods         none is for it"]
    for fit in found.mods:
        lines.append(f"  {fit.name}")
        lines += [f"    without it vLLM fails: {fit.fails}"] * bool(fit.fails)
    if found.templates:
        names = [fit.name for fit in found.templates]
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        lines += ["chat template", f"  {names[0]}{others}"]
    lines.append("pairings" if found.pairings else "pairings     there are none")
    for each in found.pairings:
        same = "for this very model" if each.same else "written for another model of its kind"
        lines.append(f"  {each.name}: {same if each.ok else each.why}")
    if result.plan is not None:
        lines += ["", text.plan(result.plan, paint)]
    return "\n".join(lines)


def _needed(fit: ModFit) -> dict[str, Any]:
    return {"name": fit.name, "required": bool(fit.fails), "without": fit.fails or None}


def _name(one: Checkpoint | ModelFit) -> str:
    return f"{one.name} at {one.commit}" if one.commit else one.name


def _facts(said: ModelFacts) -> Iterator[str]:
    bits = f", {said.bits} bits" if said.bits else ""
    for key, words in (
        (
            "architecture",
            f"{said.architecture or 'not said'} ({said.model_type or 'no model_type'})",
        ),
        ("quantization", f"{said.quantization or 'none'}{bits}"),
        ("context", f"{said.context:,} tokens" if said.context else "not said"),
    ):
        yield f"  {key.ljust(13)}{words}"
    packed = f"INT{said.bits or '?'}"
    for key, found in ((packed, said.packed), ("block FP8", said.block_fp8), ("GDN", said.gdn)):
        if found.total:
            yield f"  {key.ljust(13)}{found.total:,} layer{'s' * (found.total != 1)}"
            for pattern, count in found.patterns[:_MOST]:
                yield f"    {count:6} {pattern}"
            if more := len(found.patterns) - _MOST:
                yield from [f"           and {more} more kinds"] * (more > 0)


def _layers_data(found: LayerKinds) -> dict[str, Any]:
    kinds = [{"pattern": pattern, "count": count} for pattern, count in found.patterns]
    return {"count": found.total, "layers": kinds}
