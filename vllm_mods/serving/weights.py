"""Whether the class that a vLLM has for a model takes its tensors: by their names, and by the sizes that config.json says.

What stands literally in the text of a class is followed; what is computed raises ``ValueError``, as ``ast.literal_eval`` does.
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

# As `ast.unparse` writes them: all that a class may do to load, or a loop that gives parameters the tensors of their names as they are.
_LOADS = re.compile(
    r"def load_weights\(self, weights\b.*\n    loader = AutoWeightsLoader\(self((?:, \w+=\[(?:'[^']*',? ?)*\](?: if [^[]+? else None)?)*)\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?(2)\n    return \2)"
)
_LOOP = r"(?s)(?=.*\n    for name, loaded_weight in weights:\n)(?=.* weight_loader\(param, loaded_weight\)\n).*\n    return loaded_params"
_CHANGES = r"loaded_weight [-+*/]?= (?!1\n|loaded_weight(\[0\]|\.squeeze\(\)| if .*\.dim\(\) == 0 else loaded_weight\[0\])\n)|loaded_params(\.update| \|=)"
# A call alone, a model within a model, a class that is computed, one that runs its bases' `__init__` only behind one of them, if at all.
_CALL = re.compile(r"((?:\w+\.)*\w+)\((?!.*\)[ .(\[]).*\)")
_INNER_MODEL = re.compile(r"init_vllm_registered_model\(.*\barchitectures=\['(\w+)'\]")
_COMPUTED = r"(setattr|_module)\(|\.hf_to_vllm_mapper \|?= |\bload_weights = |def __new__(?!(?s:.*)super\(\)\.__new__\(cls\))"
_BEHIND = r"(?s)(?!.*\.__init__\(.*\.__init__\().*(?:nn\.Module|super\((\w+), self\))\.__init__\(.*"
# What vLLM loads with as many rows and columns, and layers; what a tied head is. Another rank has `PPMissingLayer()`.
_TABLE = r"(?:VocabParallelEmbedding|ParallelLMHead)\((?:num_embeddings=)?((?:self|[\w.]*config)\.\w+), (?:embedding_dim=)?((?:self|[\w.]*config)\.\w+)[,)](?!.*\)[ .(\[])"
_LAYERS = re.compile(r"make_layers\(((?:self|[\w.]*config)\.\w+), ")
_TIED = r"self\.(lm_head\.tie_weights\(self\.)?[\w.]+\.(embed\w*|word_embeddings|wte)\b"
_FLOATS = frozenset({"BF16", "F16", "F32"})
_WITHOUT_PARTS = frozenset({"nn.Module", "torch.nn.Module", "Protocol", "ABC", "Generic"})
# In the order in which a mapper goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
_DEPTH = 32  # a class may have itself as a part
_UNKNOWN = ("", "")
_Names = dict[str, str]  # of tensors, each with what is left of it in a class
_Parts = dict[str, set[tuple[str, str]]]  # with the files and texts of what makes them


class ModelLoading(NamedTuple):
    """A checkpoint that a vLLM, whose ``sources`` these are, is to load. ``needs_all``: it stops at layers without tensors, too."""

    sources: ModuleSources
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    needs_all: bool = False

    def fault(self, named: Sequence[str], note: Callable[[str], None]) -> str:
        """Return why vLLM surely stops, ``""`` if it may not; what is unknown is given to ``note``."""
        cls = registry.class_of(self.sources, "".join(named[:1]))
        unknown = registry.lacks(self.sources, named) if named else ""
        # vLLM wraps the class of what does not generate.
        if cls and re.search("(ForCausalLM|ForConditionalGeneration|HeadModel)$", named[0]):
            # what else a quantised layer has may be ignored
            names = {name: name for name in self.tensors if name.endswith(".weight")}
            try:
                return next(self._stops(cls, names, ""), "")
            except ValueError:
                unknown = f"the names of the model's tensors were not checked: {cls.node.name} loads them by itself"
        if unknown:
            note(unknown)
        return ""

    def _stops(self, cls: ClassPlace, names: _Names, at: str) -> Iterator[str]:
        """Yield why vLLM stops at a class that a model has ``at``, or below."""
        parts = self._parts(cls)
        methods = {one.node.name: one for one in reversed([*self.sources.methods(cls)])}
        loop: set[str] = set()  # the texts in one that loads the tensors
        if loads := methods.get("load_weights"):
            text = ast.unparse(loads.node)
            if re.fullmatch(_LOOP, text) and not re.search(_CHANGES, text):
                loop = {text_of(one) or "" for one in ast.walk(loads.node)}
            else:
                names = self._loaded(cls, text, names)
        below: dict[str, _Names] = {}
        for whole, name in names.items():
            part, _, below.setdefault(part, {})[whole] = name.partition(".")
        where = f"{cls.node.name} ({cls.path}:{cls.node.lineno})"
        for part, inner in below.items():
            if part not in parts and not loop:
                yield f"{where} has no part named {at}{part}, but the model has tensors for it ({len(inner):,}); the first is {self._place(next(iter(inner)))}"
            for path, made in parts.get(part, ()) if len(parts.get(part, ())) == 1 else ():
                with contextlib.suppress(ValueError):
                    if wrong := self._misfit(parts, made, f"{at}{part}", inner, loop):
                        yield f"{where} {wrong}"
                    one = self._find_class(methods, path, made)
                    if one and not loop and at.count(".") < _DEPTH:
                        yield from self._stops(one, inner, f"{at}{part}.")
        if loop:
            raise ValueError(where)

    def _find_class(
        self, methods: dict[str, FunctionPlace], path: str, text: str
    ) -> ClassPlace | None:
        """Find the class of which ``text``, in a class with ``methods``, makes a part."""
        call = _CALL.fullmatch(text)
        if method := methods.get(call[1].removeprefix("self.")) if call else None:
            path, text = method.path, ast.unparse(method.node)
            only = text.rpartition("\n    return ")[2] if text.count(" return ") == 1 else ""
            call = _CALL.fullmatch(only)
        if inner := _INNER_MODEL.match(text):
            return registry.class_of(self.sources, inner[1])
        return self.sources.find_class(path, call[1]) if call else None

    def _misfit(self, parts: _Parts, text: str, part: str, names: _Names, loop: set[str]) -> str:
        """Say where the tensors have another size than the ``part`` that ``text`` makes of the config, else ``""``."""
        if match := _LAYERS.match(text):
            counts = self._values(parts, match[1])
            layers = {int(left.partition(".")[0]): name for name, left in names.items() if counts}
            for beyond in (name for n, name in layers.items() if n >= counts[-1] and not loop):
                return f"has {counts[-1]} {part} by config.json, but the model has more; the first tensor beyond is {self._place(beyond)}"
            lacks = min({*range(len(layers) + 1)} - {*layers})
            is_missed = self.needs_all and any("norm" in one for one in names)  # no linear layer is
            if is_missed and counts and lacks < counts[0]:
                return f"has {counts[0]} {part} by config.json, but the model has no tensors of {part}.{lacks}"
        elif (match := re.match(_TABLE, text)) and [*names.values()] == ["weight"]:
            [name] = names
            rows = re.search(r" org_num_embeddings=(.*?)[,)]", text) or match
            sizes = [self._values(parts, one) for one in (rows[1], match[2])]
            edges = self.tensors[name].shape if self.tensors[name].dtype in _FLOATS else ()
            fits = all(edge in one or not one for edge, one in zip(edges, sizes, strict=False))
            if not fits and not any(len(one) > 2 and one in name for one in loop):
                made = " by ".join(" or ".join(map(str, one)) or "?" for one in sizes)
                return f"gives {part} the size {made} by config.json, but the model's is {' by '.join(map(str, edges))}: {self._place(name)}"
        return ""

    def _values(self, parts: _Parts, text: str) -> list[Any]:
        """Return what a number in a class may be: all that the config has for its key, nothing if that is not sure."""
        if len(made := parts.get(text.removeprefix("self."), set())) == 1:
            [(_, text)] = made
        key = re.fullmatch(r"(?:(?:self|config)\.)*(?:text_)?config\.(\w+)", text)
        main = self.config.get("text_config")
        own = (main if isinstance(main, dict) else self.config).get(key[1]) if key else None
        all_held = rf'"{key and key[1]}": (\d+|true|false)(?![.\w])'
        held = sorted({*map(json.loads, re.findall(all_held, json.dumps({**self.config})))})
        return held if own in held else []

    def _place(self, name: str) -> str:
        return f"{name} in {self.tensors[name].file}"

    def _parts(self, cls: ClassPlace) -> _Parts:
        """Return what may be a part of a module; a text is ``""`` where it is unknown."""
        parts: _Parts = {"weight": {_UNKNOWN}}
        ties, runs, until = (self._values({}, "config.tie_word_embeddings") != [False], True, "")
        bases = self.sources.bases(cls)
        for path, base in bases:
            init = [one for one in base.body if getattr(one, "name", "") == "__init__"]
            body = [one for one in base.body if runs or one not in init]
            text, above = ast.unparse(ast.Module(body, [])), map(ast.unparse, base.bases)
            if runs and (match := re.fullmatch(_BEHIND, "".join(map(ast.unparse, init)))):
                runs, until = False, match[1]
            runs = runs or base.name == until
            named = {one.partition("[")[0] for one in above} - _WITHOUT_PARTS
            known = {self.sources.find_class(path, one) for one in named} <= {*bases}
            if not known or re.search(_COMPUTED, text):
                raise ValueError(base.name)
            parts |= {name: {_UNKNOWN} for name in re.findall(r"\.register_\w+\('(\w+)'", text)}
            # also of `self.a, b.c = …` and `self.a.b = …`; nothing else has blanks around its `=`
            for left, right in re.findall(r"^ +(\S.*) = (.*)", text, re.MULTILINE):
                for name in re.findall(r"\.(\w+)", left):
                    is_whole = left == f"self.{name}" or right.startswith("make_layers(")
                    made = parts.setdefault(name, set())
                    if right != "PPMissingLayer()" and (ties or not re.match(_TIED, right)):
                        made.add((path, right) if is_whole else _UNKNOWN)
        return parts

    def _loaded(self, cls: ClassPlace, text: str, names: _Names) -> _Names:
        """Return what a class renames tensors to, without those that it skips."""
        if (match := _LOADS.fullmatch(text)) is None:
            raise ValueError(text)
        mapper = _mapper(self.sources, cls.path, ast.Name(cls.node.name)) if match[3] else {}
        rules = sorted(mapper.items(), key=lambda rule: rule[0][0])
        skipped, loaded = re.findall("'([^']+)'", match[1]), {}
        for whole, given in names.items():
            name = given
            for (kind, old), new in rules:
                # all but prefixes and suffixes are replaced where they are first
                at = (name.find(old), name.find(old), 0, len(name) - len(old))[kind]
                if name and at >= 0 and name.startswith(old, at):
                    name = "" if new is None else f"{name[:at]}{new}{name[at + len(old) :]}"
            if name and not any(part in name for part in skipped):
                loaded[whole] = name
        return loaded


def _mapper(sources: ModuleSources, path: str, node: ast.expr) -> dict[tuple[int, str], Any]:
    """Return what a mapper replaces, None for a name that it drops, by the index of its kind and by text; that of a class may be its base's."""
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
