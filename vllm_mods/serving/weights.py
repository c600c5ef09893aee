"""Whether the class that a vLLM has for a model takes a checkpoint's tensors, by config.json, their headers and ``model_class``.

Names, the sizes of embeddings and heads and the number of layers are read; sizes within a layer, and values, are not.
Nothing is said of a class that computes what it takes (``ValueError``), nor of what is below it.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.formats.safetensors import Tensor
from vllm_mods.serving import model_class, registry
from vllm_mods.serving.model_class import Names, Parts
from vllm_mods.serving.source import ClassPlace, ModuleSources

# An embedding or a head with its rows and columns, and layers with their number, all of the config.
_TABLE = r"(?:VocabParallelEmbedding|ParallelLMHead)\((?:num_embeddings=)?((?:self|[\w.]*config)\.\w+), (?:embedding_dim=)?((?:self|[\w.]*config)\.\w+)[,)](?!.*\)[ .(\[])"
_LAYERS = r"make_layers\(((?:self|[\w.]*config)\.\w+), "
_FLOATS = frozenset({"BF16", "F16", "F32"})
_DEPTH = 32  # a class may have itself as a part
_Note = Callable[[str], None]


class ModelLoading(NamedTuple):
    """A checkpoint that a vLLM, whose ``sources`` these are, is to load. ``needs_all``: it stops at layers without tensors, too."""

    sources: ModuleSources
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    needs_all: bool = False

    def fault(self, architectures: Sequence[str], note: _Note) -> str:
        """Return why vLLM surely stops, ``""`` if it may not; ``note`` gets what is unknown, and a head that stays empty."""
        cls = registry.class_of(self.sources, "".join(architectures[:1]))
        unknown = registry.lacks(self.sources, architectures) if architectures else ""
        # vLLM wraps the class of what does not generate.
        if cls and re.search("(ForCausalLM|ForConditionalGeneration|HeadModel)$", architectures[0]):
            names = sorted(self.tensors, key=lambda name: not name.endswith(".weight"))
            try:
                return next(self._stops(cls, {name: name for name in names}, "", note), "")
            except ValueError:
                unknown = f"the names of the model's tensors were not checked: {cls.node.name} loads them by itself"
        if unknown:
            note(unknown)
        return ""

    def _stops(self, cls: ClassPlace, names: Names, at: str, note: _Note) -> Iterator[str]:
        """Yield why vLLM stops at a class that a model has ``at``, or below."""
        is_tied = self._values({}, "config.tie_word_embeddings") != [False]
        parts = model_class.parts_of(self.sources, cls, is_tied=is_tied)
        methods = {one.node.name: one for one in reversed([*self.sources.methods(cls)])}
        loop: set[str] = set()  # the texts in one that loads the tensors
        if loads := methods.get("load_weights"):
            names, loop = model_class.loaded(self.sources, cls, loads.node, names)
        below: dict[str, Names] = {}
        for whole, name in names.items():
            part, _, below.setdefault(part, {})[whole] = name.partition(".")
        where = f"{cls.node.name} ({cls.path}:{cls.node.lineno})"
        for part, inner in below.items():
            # what else a quantised layer has may be ignored
            weights = {name: left for name, left in inner.items() if name.endswith(".weight")}
            if weights and part not in parts and not loop:
                first = next(iter(weights))
                yield f"{where} has no part named {at}{part}, but the model has tensors for it ({len(weights):,}); the first is {first} in {self.tensors[first].file}"
            for maker in parts[part] if len(parts.get(part, ())) == 1 else ():
                with contextlib.suppress(ValueError):
                    if wrong := self._misfit(parts, maker[1], f"{at}{part}", weights, loop):
                        yield f"{where} {wrong}"
                    made = model_class.class_of_part(self.sources, methods, maker)
                    if made and not loop and at.count(".") < _DEPTH:
                        yield from self._stops(made, inner, f"{at}{part}.", note)
        for part in self._empty(cls, parts, [*below, *loop]):
            note(f"the model has no tensors for {at}{part} of {where}: vLLM answers nonsense")
        if loop:
            raise ValueError(where)

    def _misfit(self, parts: Parts, text: str, part: str, names: Names, loop: set[str]) -> str:
        """Say where the tensors have another size than the ``part`` that ``text`` makes of the config, else ``""``."""
        if match := re.match(_LAYERS, text):
            counts = self._values(parts, match[1])
            layers = {int(left.partition(".")[0]): name for name, left in names.items() if counts}
            for beyond in (name for n, name in layers.items() if n >= counts[-1] and not loop):
                return f"has {counts[-1]} {part} by config.json, but the model has more; the first tensor beyond is {beyond} in {self.tensors[beyond].file}"
            lacks = min({*range(len(layers) + 1)} - {*layers})
            # vLLM misses no linear layer
            if self.needs_all and "norm" in " ".join(names) and counts and lacks < counts[0]:
                return f"has {counts[0]} {part} by config.json, but the model has no tensors of {part}.{lacks}"
        elif (match := re.match(_TABLE, text)) and [*names.values()] == ["weight"]:
            [name] = names
            rows = re.search(r" org_num_embeddings=(.*?)[,)]", text) or match
            sizes = [self._values(parts, number) for number in (rows[1], match[2])]
            edges = self.tensors[name].shape if self.tensors[name].dtype in _FLOATS else ()
            fits = all(edge in size or not size for edge, size in zip(edges, sizes, strict=False))
            if not fits and not any(len(one) > 2 and one in name for one in loop):
                made = " by ".join(" or ".join(map(str, size)) or "?" for size in sizes)
                return f"gives {part} the size {made} by config.json, but the model's is {' by '.join(map(str, edges))}: {name} in {self.tensors[name].file}"
        return ""

    def _empty(self, cls: ClassPlace, parts: Parts, loaded: Sequence[str]) -> Iterator[str]:
        """Yield the heads and embeddings that surely stay empty: none is tied, or named as what is ``loaded`` may be."""
        stated = {*re.findall(r'"tie_word_embeddings": (\w+)', json.dumps({**self.config}))}
        files = (self.sources.tree.read(path) or b"" for path, _ in self.sources.bases(cls))
        may_tie = "tie_word_embeddings" not in self.config and any(b"tie_" in one for one in files)
        texts = [text for text in (*self.tensors, *loaded) if len(text) > 2]
        for part, makers in parts.items() if stated <= {"false"} and not may_tie else ():
            is_table = all(re.match(_TABLE, text) and "vocab_size" in text for _, text in makers)
            is_loaded = any(part in text or text in f".{part}.weight" for text in texts)
            if len(makers) == 1 and is_table and not is_loaded:
                yield part

    def _values(self, parts: Parts, number: str) -> list[Any]:
        """Return what a number in a class may be: all that the config has for its key, nothing if that is not sure."""
        if len(makers := parts.get(number.removeprefix("self."), set())) == 1:
            [(_, number)] = makers
        key = re.fullmatch(r"(?:(?:self|config)\.)*(?:text_)?config\.(\w+)", number)
        main = self.config.get("text_config")
        own = (main if isinstance(main, dict) else self.config).get(key[1]) if key else None
        stated = rf'"{key and key[1]}": (\d+|true|false)(?![.\w])'
        values = sorted({*map(json.loads, re.findall(stated, json.dumps({**self.config})))})
        return values if own in values else []
