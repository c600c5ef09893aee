"""How large the parts of a model's class are by its config.json, where that stands literally in the text of the class."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vllm_mods.formats.safetensors import Tensor

Parts = dict[str, set[tuple[str, str]]]
"""What may be a part of a module, with the files and texts of all that may make it, of which ``""`` is unknown."""

# What vLLM loads with exactly as many rows, columns and layers, in all its releases.
_EMBEDDING = re.compile(
    r"(?:VocabParallelEmbedding|ParallelLMHead)\((?:num_embeddings=)?([\w.]+), (?:embedding_dim=)?([\w.]+)[,)](?!.*\)[ .(\[])"
)
_ROWS = re.compile(r" org_num_embeddings=(.*?)[,)]")
_LAYERS = re.compile(r"make_layers\(([\w.]+), ")
_UNQUANTIZED = frozenset({"BF16", "F16", "F32"})


class ModelTensors(NamedTuple):
    """A checkpoint's ``config`` and ``tensors``. ``needs_all``: vLLM stops at a layer without tensors, too."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    needs_all: bool = False

    @property
    def is_untied(self) -> bool:
        """Whether the head surely has weights of its own."""
        return {*_held(self.config, "tie_word_embeddings")} == {False}

    def place(self, name: str) -> str:
        """Return a tensor's name with its file."""
        return f"{name} in {self.tensors[name].file}"


def misfit(model: ModelTensors, parts: Parts, text: str, part: str, names: Mapping[str, str], loop: str = "") -> str:
    """Say what about a ``part`` that ``text`` makes is not as in the checkpoint, whose ``names`` have left there what they stand for."""
    if layers := _LAYERS.match(text):
        return _of_layers(model, _numbers(model, parts, layers[1]), part, names, loop)
    match = _EMBEDDING.match(text)
    name = part.rpartition(".")[2]
    if match is None or any(one in f"{name}.weight" for one in re.findall(r"'([^']{3,})'", loop)):
        return ""
    rows = _ROWS.search(text) or match
    sizes = [_numbers(model, parts, one) for one in (rows[1], match[2])]
    for name, left in names.items():
        tensor = model.tensors[name]
        checked = left == "weight" and tensor.dtype in _UNQUANTIZED
        if checked and any(one and edge not in one for one, edge in zip(sizes, tensor.shape)):
            by = " × ".join(" or ".join(map(str, one)) or "?" for one in sizes)
            is_ = " × ".join(map(str, tensor.shape))
            return f"makes {part} {by} by config.json, but the model's is {is_}: {model.place(name)}"
    return ""


def _of_layers(model: ModelTensors, counts: list[int], part: str, names: Mapping[str, str], loop: str) -> str:
    numbers = {name: int(left.partition(".")[0]) for name, left in names.items()} if counts else {}
    for name, number in numbers.items():
        if number >= counts[-1] and not loop:
            return f"makes {counts[-1]} {part} by config.json, but the model has more: {model.place(name)}"
    lacking = next(n for n in range(len(numbers) + 1) if n not in numbers.values())
    # vLLM does not miss the tensors of linear layers
    has_norms = any("norm" in name for name in numbers)
    if model.needs_all and has_norms and lacking < counts[0]:
        return f"makes {counts[0]} {part} by config.json, but the model has no tensors of {part}.{lacking}"
    return ""


def _numbers(model: ModelTensors, parts: Parts, text: str) -> list[int]:
    """Return what a number may be: all that the config has for its key, at any depth, or nothing if that is not sure."""
    if text.startswith("self.") and len(made := parts.get(text[5:], set())) == 1:
        [(_, text)] = made
    match = re.fullmatch(r"[\w.]*config\.(\w+)", text)
    main = model.config.get("text_config")
    main = main if isinstance(main, Mapping) else model.config
    is_sure = match is not None and type(main.get(match[1])) is int
    return sorted({*_held(model.config, match[1])}) if match and is_sure else []


def _held(config: Mapping[str, Any], key: str) -> Iterator[int]:
    for name, value in config.items():
        if name == key and isinstance(value, int):
            yield value
        elif isinstance(value, Mapping):
            yield from _held(value, key)
