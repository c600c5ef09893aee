"""``--lora-modules``: ``name=path``, or a JSON object, which an action of its own reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_mods.base.untrusted import json_of
from vllm_mods.serve import configs, hints, values
from vllm_mods.serve.shape import FlagShape
from vllm_mods.serve.source import ModuleSources
from vllm_mods.serve.values import ValueProblem


def problems(sources: ModuleSources, shape: FlagShape, text: str) -> Iterator[ValueProblem]:
    """Yield what is wrong with one adapter. Raises ``TreeError``."""
    if not text or ("=" in text and "," not in text):
        return
    many = hints.hints(sources, shape.field.annotation) if shape.field else ()
    inner = next((hint.args[0] for hint in many if hint.name == "list" and hint.args), None)
    cls = next((h.place for h in hints.hints(sources, inner) if h.place), None) if inner else None
    try:
        data = json_of(text)
    except ValueError:
        yield ValueProblem("json-invalid", f"{text} is neither name=path nor JSON")
        return
    if not isinstance(data, dict):
        yield ValueProblem("json-value", f"{text} is no JSON object: give one for each adapter")
    elif cls is not None:
        yield from values.object_problems(sources, cls, data)
        assert isinstance(cls.node, ast.ClassDef)  # noqa: S101  (what a hint of a class has)
        asked = [one for one in cls.node.body if isinstance(one, ast.AnnAssign) and not one.value]
        for name in configs.fields(sources, cls):
            if name not in data and any(getattr(one.target, "id", "") == name for one in asked):
                yield ValueProblem("json-key", f"{name!r} is missing in {text}")
