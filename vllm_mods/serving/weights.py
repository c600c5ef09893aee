"""Whether the class that a vLLM has for a model takes a checkpoint's tensors. Its text is read, as ``ast.unparse`` writes it.

A part of a class takes tensors: ``self.lm_head = ParallelLMHead(…)`` makes the one for those that are named ``lm_head.…``, once
renamed. Names are held against parts, sizes of embeddings and heads and the number of layers against config.json; sizes
in a layer are not, nor values. ``ValueError``: a class computes (``setattr``, its own ``load_weights``), so nothing is said of it.
"""

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.formats.safetensors import Tensor
from vllm_mods.serving import registry
from vllm_mods.serving.source import ClassPlace, FunctionPlace, ModuleSources, last_name, text_of

_Maker = tuple[str, str]  # the file and the text of the expression that makes a part
_Parts = dict[str, set[_Maker]]  # by the names of a class's attributes
_Names = dict[str, str]  # of a checkpoint's tensors, each with what is left of it in a class
_UNKNOWN = ("", "")
_WITHOUT_PARTS = frozenset({"nn.Module", "torch.nn.Module", "Protocol", "ABC", "Generic"})
_COMPUTES = r"(setattr|_module)\(|\.hf_to_vllm_mapper \|?= |\bload_weights = |def __new__(?!(?s:.*)super\(\)\.__new__\(cls\))"
# What makes a head the embedding, a part another model, and a part by nothing but a call.
_TIES = r"self\.(lm_head\.tie_weights\(self\.)?[\w.]+\.(embed\w*|word_embeddings|wte)\b"
_INNER_MODEL = r"init_vllm_registered_model\(.*\barchitectures=\['(\w+)'\]"
_CALL = r"((?:\w+\.)*\w+)\((?!.*\)[ .(\[]).*\)"
# An `__init__` that calls but one other: of none of its bases, or of those behind one.
_PASSES_BASES = (
    r"(?s)(?!.*\.__init__\(.*\.__init__\().*(?:nn\.Module|super\((\w+), self\))\.__init__\(.*"
)
# A `load_weights` that leaves all to AutoWeightsLoader, which skips what lists such as `skip_prefixes` name.
_LISTS = r"((?:, \w+=\[(?:'[^']*',? ?)*\](?: if [^[]+? else None)?)*)"
_BY_LOADER = (
    rf"def load_weights\(self, weights\b.*\n    loader = AutoWeightsLoader\(self{_LISTS}\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?(2)\n    return \2)"
)
# One that gives parameters the tensors of their names in a loop, and what makes a tensor there another one.
_BY_LOOP = r"(?s)(?=.*\n    for name, loaded_weight in weights:\n)(?=.* weight_loader\(param, loaded_weight\)\n).*\n    return loaded_params"
_CHANGES = r"loaded_weight [-+*/]?= (?!1\n|loaded_weight(\[0\]|\.squeeze\(\)| if .*\.dim\(\) == 0 else loaded_weight\[0\])\n)|loaded_params(\.update| \|=)"
# The kinds of a mapper's rules, in the order in which it goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
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

    def _stops(self, cls: ClassPlace, names: _Names, at: str, note: _Note) -> Iterator[str]:
        """Yield why vLLM stops at a class that a model has ``at``, or below."""
        is_tied = self._values({}, "config.tie_word_embeddings") != [False]
        parts = self._parts(cls, is_tied=is_tied)
        methods = {one.node.name: one for one in reversed([*self.sources.methods(cls)])}
        loop: set[str] = set()  # the texts in one that loads the tensors
        if loads := methods.get("load_weights"):
            names, loop = self._loaded(cls, loads.node, names)
        below: dict[str, _Names] = {}
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
                    part_class = self._class_of(methods, maker)
                    if part_class and not loop and at.count(".") < _DEPTH:
                        yield from self._stops(part_class, inner, f"{at}{part}.", note)
        for part in self._empty(cls, parts, [*below, *loop]):
            note(f"the model has no tensors for {at}{part} of {where}: vLLM answers nonsense")
        if loop:
            raise ValueError(where)

    def _misfit(self, parts: _Parts, text: str, part: str, names: _Names, loop: set[str]) -> str:
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
                expected = " by ".join(" or ".join(map(str, size)) or "?" for size in sizes)
                return f"gives {part} the size {expected} by config.json, but the model's is {' by '.join(map(str, edges))}: {name} in {self.tensors[name].file}"
        return ""

    def _empty(self, cls: ClassPlace, parts: _Parts, loaded: Sequence[str]) -> Iterator[str]:
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

    def _values(self, parts: _Parts, number: str) -> list[Any]:
        """Return what a number in a class may be: all that the config has for its key, nothing if that is not sure."""
        if len(makers := parts.get(number.removeprefix("self."), set())) == 1:
            [(_, number)] = makers
        key = re.fullmatch(r"(?:(?:self|config)\.)*(?:text_)?config\.(\w+)", number)
        main = self.config.get("text_config")
        own = (main if isinstance(main, dict) else self.config).get(key[1]) if key else None
        stated = rf'"{key and key[1]}": (\d+|true|false)(?![.\w])'
        values = sorted({*map(json.loads, re.findall(stated, json.dumps({**self.config})))})
        return values if own in values else []

    def _parts(self, cls: ClassPlace, *, is_tied: bool) -> _Parts:
        """Return what may be a part of a class, with all that may make it; the embedding makes a head that ``is_tied``, perhaps."""
        parts: _Parts = {"weight": {_UNKNOWN}}
        bases, passed = self.sources.bases(cls), ""  # until that one no `__init__` runs
        for path, base in bases:
            init = [one for one in base.body if getattr(one, "name", "") == "__init__"]
            runs = [one for one in base.body if not passed or one not in init]
            text, above = ast.unparse(ast.Module(runs, [])), map(ast.unparse, base.bases)
            past = re.fullmatch(_PASSES_BASES, "".join(map(ast.unparse, init)))
            if past and not passed:
                passed = past[1] or "nn.Module"
            passed = "" if base.name == passed else passed
            named = {one.partition("[")[0] for one in above} - _WITHOUT_PARTS
            known = {self.sources.find_class(path, name) for name in named} <= {*bases}
            if not known or re.search(_COMPUTES, text):
                raise ValueError(base.name)
            parts |= {name: {_UNKNOWN} for name in re.findall(r"\.register_\w+\('(\w+)'", text)}
            # also of `self.a, b.c = …` and `self.a.b = …`; nothing else has blanks around its `=`
            for target, value in re.findall(r"^ +(\S.*) = (.*)", text, re.MULTILINE):
                # another rank of a pipeline has `PPMissingLayer()`
                is_made = value != "PPMissingLayer()" and (is_tied or not re.match(_TIES, value))
                for name in re.findall(r"\.(\w+)", target):
                    is_whole = target == f"self.{name}" or value.startswith("make_layers(")
                    maker = (path, value) if is_whole else _UNKNOWN
                    parts.setdefault(name, set()).update([maker] * is_made)
        return parts

    def _class_of(self, methods: dict[str, FunctionPlace], maker: _Maker) -> ClassPlace | None:
        """Find the class that makes a part, or that one of the ``methods`` beside returns to make it."""
        path, text = maker
        call = re.fullmatch(_CALL, text)
        if call and (method := methods.get(call[1].removeprefix("self."))):
            path, text = method.path, ast.unparse(method.node)
            only = text.rpartition("\n    return ")[2] if text.count(" return ") == 1 else ""
            call = re.fullmatch(_CALL, only)
        if inner := re.match(_INNER_MODEL, text):
            return registry.class_of(self.sources, inner[1])
        return self.sources.find_class(path, call[1]) if call else None

    def _loaded(self, cls: ClassPlace, loads: ast.AST, names: _Names) -> tuple[_Names, set[str]]:
        """Return what a class renames tensors to, without those that it may skip; and the texts in its loop, which may do more."""
        text, kept = ast.unparse(loads), {}
        if re.fullmatch(_BY_LOOP, text) and not re.search(_CHANGES, text):
            return names, {text_of(node) or "" for node in ast.walk(loads)}
        if (match := re.fullmatch(_BY_LOADER, text)) is None:
            raise ValueError(cls.node.name)
        rules = _mapper(self.sources, cls.path, ast.Name(cls.node.name)) if match[3] else {}
        skipped = re.findall("'([^']+)'", match[1])
        for whole, given in names.items():
            name = given
            for (kind, old), new in sorted(rules.items(), key=lambda rule: rule[0][0]):
                # all but prefixes and suffixes are replaced where they are first
                at = (name.find(old), name.find(old), 0, len(name) - len(old))[kind]
                if name and at >= 0 and name.startswith(old, at):
                    name = "" if new is None else f"{name[:at]}{new}{name[at + len(old) :]}"
            if name and not any(part in name for part in skipped):
                kept[whole] = name
        return kept, set()


def _mapper(sources: ModuleSources, path: str, node: ast.expr) -> dict[tuple[int, str], Any]:
    """Return what a mapper, or that of a class or its base, replaces: by kind and text, with None where it drops the tensor."""
    if isinstance(node, ast.BinOp):
        return _mapper(sources, path, node.left) | _mapper(sources, path, node.right)
    if isinstance(node, ast.Call) and last_name(node) == "WeightsMapper" and not node.args:
        given = ((_KINDS.index(str(one.arg)), ast.literal_eval(one.value)) for one in node.keywords)
        return {(k, a): b[0] if k == 1 else b for k, table in given for a, b in table.items()}
    cls = sources.find_class(path, (dotted(node) or "").removesuffix(".hf_to_vllm_mapper"))
    for place, base in sources.bases(cls) if cls else ():
        if value := sources.value(place, f"{base.name}.hf_to_vllm_mapper"):
            return _mapper(sources, place, value)
    raise ValueError(path)
