"""The answer of ``suggest``, and what ``check`` says of a model."""

from collections.abc import Iterator
from typing import Any

from vllm_mods.api.model import NO_DEVICE
from vllm_mods.api.suggest import Suggested
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.facts import LayerKinds, ModelFacts
from vllm_mods.checkpoints.model_fit import ModelFit, ModFit
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply

_MOST = 8


def fit_data(fit: ModelFit) -> dict[str, Any]:
    """Return what ``check --model`` found."""
    return {
        **data.fields(fit, "name", "commit", "ok"),
        "mods": [data.fields(mod, "name", "meant", "why") for mod in fit.mods],
    }


def fit_text(fit: ModelFit) -> str:
    """Say which mods are not for a model, or that all are."""
    wrong = [f"  {m.name} {m.verb} for this model: {m.why}" for m in fit.mods if not m.meant]
    fine = "each mod is for this model" + " or names no model" * any(not m.stated for m in fit.mods)
    return "\n".join([f"model {_name(fit)}", *(wrong or [f"  {fine}"])])


def suggested(result: Suggested, paint: text.Paint) -> Reply:
    """Return what a model is, what is for it, and whether that goes into the tree."""
    checkpoint, suggestion = result.checkpoint, result.suggestion
    facts = suggestion.facts
    lines = [_name(checkpoint), *_facts(facts)]
    if not checkpoint.tensors:
        lines.append("  the model has no safetensors files, so its layers are unknown")
    lines += [f"  {note}" for note in result.notes]
    none = "none is for this model" if checkpoint.tensors else "none is known to be for this model"
    lines += ["", "mods" if suggestion.mods else f"mods         {none}"]
    for fit in suggestion.mods:
        lines.append(f"  {fit.name}")
        lines += [f"    without this mod vLLM fails: {fit.fails}"] * bool(fit.fails)
    if suggestion.templates:
        names = [fit.name for fit in suggestion.templates]
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        lines += ["chat template", f"  {names[0]}{others}"]
        flags = [" ".join(result.flags)] * bool(result.flags)
        lines += [f"    {line}" for line in (*flags, *result.clients)]
    lines.append("pairings" if suggestion.pairings else "pairings     none")
    for each in suggestion.pairings:
        same = "for this model" if each.same else "written for another model of this kind"
        lines.append(f"  {each.name}: {same if each.ok else each.why}")
    if suggestion.pairings and result.device is None:
        lines.append(f"  whether a GPU has room was not checked: {NO_DEVICE}")
    if result.plan is not None:
        lines += ["", text.plan(result.plan, paint)]
    answer = {
        "model": {
            **data.fields(checkpoint, "name", "commit", "config_sha256", "index_sha256"),
            **data.fields(
                facts, "architecture", "model_type", "quantization", "bits", "context", "weights"
            ),
            **{key: _layers_data(getattr(facts, key)) for key in ("packed", "block_fp8", "gdn")},
        },
        "mods": list(map(_needed, suggestion.mods)),
        "templates": list(map(_needed, suggestion.templates)),
        **data.fields(result, "flags", "clients", "notes"),
        "pairings": suggestion.pairings,
        **({} if result.plan is None else {"plan": data.plan(result.plan)}),
        "ok": result.ok,
    }
    return Reply(answer, "\n".join(lines), result.ok)


def _needed(fit: ModFit) -> dict[str, Any]:
    return {"name": fit.name, "required": bool(fit.fails), "without": fit.fails or None}


def _name(model: Checkpoint | ModelFit) -> str:
    return f"{model.name} at {model.commit}" if model.commit else model.name


def _facts(facts: ModelFacts) -> Iterator[str]:
    bits = f", {facts.bits} bits" if facts.bits else ""
    kind = facts.model_type or "no model_type"
    yield f"  architecture {facts.architecture or 'unknown'} ({kind})"
    yield f"  quantization {facts.quantization or 'none'}{bits}"
    yield f"  context      {f'{facts.context:,} tokens' if facts.context else 'unknown'}"
    if facts.weights:
        yield f"  weights      {facts.weights / 2**30:.1f} GiB"
    packed = f"INT{facts.bits or '?'}"
    for key, layers in ((packed, facts.packed), ("block FP8", facts.block_fp8), ("GDN", facts.gdn)):
        if layers.total:
            yield f"  {key.ljust(13)}{text.counted(layers.total, 'layer')}"
            for pattern, count in layers.patterns[:_MOST]:
                yield f"    {count:6} {pattern}"
            if (more := len(layers.patterns) - _MOST) > 0:
                yield f"           and {more} more kinds"


def _layers_data(layers: LayerKinds) -> dict[str, Any]:
    kinds = [{"pattern": pattern, "count": count} for pattern, count in layers.patterns]
    return {"count": layers.total, "layers": kinds}
