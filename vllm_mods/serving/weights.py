"""Whether the class that a vLLM has for a model takes the tensors of its checkpoint: their names, and the sizes that config.json says.

What stands literally in the text of a class is followed; what is computed raises ``ValueError``, as ``ast.literal_eval`` does.
"""

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.formats.safetensors import Tensor
from vllm_mods.serving import registry
from vllm_mods.serving.source import ClassPlace, ModuleSources, last_name

# As `ast.unparse` writes them: all that a class may do to load, a call alone, a part or another class that is computed.
_LOADS = re.compile(
    r"def load_weights\(self, weights\b.*\n    loader = AutoWeightsLoader\(self((?:, \w+=(?:None|\[(?:'[^']*',? ?)*\](?: if [^[]+? else None)?))*)\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?:\n    return \2)?"
)
# Or a loop that gives a tensor as it is to the parameter of its name, but for names that it has a part of.
_LOOP = re.compile(
    r"(?s).*\n    for name, loaded_weight in weights:\n.* weight_loader\(param, loaded_weight\)\n.*\n    return loaded_params"
)
_CHANGES = re.compile(
    r"loaded_weight [-+*/]?= (?!1\n|loaded_weight(\[0\]|\.squeeze\(\)| if .*\.dim\(\) == 0 else loaded_weight\[0\])\n)|loaded_params(\.update| \|=)"
)
_CALL = re.compile(r"((?:\w+\.)*\w+)\((?!.*\)[ .(\[]).*\)")
_COMPUTED = re.compile(
    r"(setattr|_module)\(|\.hf_to_vllm_mapper \|?= |\bload_weights = |def __new__(?!(?s:.*)super\(\)\.__new__\(cls\))"
)
_INNER_MODEL = re.compile(r"init_vllm_registered_model\(.*\barchitectures=\['(\w+)'\]")
# An `__init__` that leaves out those of bases, or of all of them.
_LEAVES_OUT = re.compile(
    r"(?s)(?!.*\.__init__\(.*\.__init__\().*(?:nn\.Module|super\((\w+), self\))\.__init__\(.*"
)
# What vLLM loads with exactly as many rows and columns, and layers.
_TABLE = re.compile(
    r"(?:VocabParallelEmbedding|ParallelLMHead)\((?:num_embeddings=)?([\w.]+), (?:embedding_dim=)?([\w.]+)[,)](?!.*\)[ .(\[])"
)
_TABLE_ROWS = re.compile(r" org_num_embeddings=(.*?)[,)]")
_LAYERS = re.compile(r"make_layers\(([\w.]+), ")
# With a head of its own: what else it may be, and is skipped.
_TIED = re.compile(r"self\.(lm_head\.tie_weights\(self\.)?[\w.]+\.(embed\w*|word_embeddings|wte)\b")
_SKIPPED_IF_TIED = re.compile(r"\['lm_head\.'\] if self\.config\.tie_word_embeddings else None")
_FLOATS = frozenset({"BF16", "F16", "F32"})
_WITHOUT_PARTS = frozenset({"nn.Module", "torch.nn.Module", "Protocol", "ABC", "Generic"})
# In the order in which a mapper goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
_DEPTH = 32  # a class may have itself as a part
_Names = dict[str, str]  # of tensors, with what is left of them in a class
_Parts = dict[str, set[tuple[str, str]]]  # with the files and texts of what makes them


class ModelTensors(NamedTuple):
    """A checkpoint's ``config`` and ``tensors``. ``needs_all``: vLLM stops at a layer without tensors, too."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    needs_all: bool = False

    def place(self, name: str) -> str:
        """Return a tensor's name, and the file that has it."""
        return f"{name} in {self.tensors[name].file}"

    def held(self, key: str) -> list[Any]:
        """Return what the config has for a key at any depth, numbers and truths alone; nothing unless it has it for text."""
        text = self.config.get("text_config")
        found = re.findall(rf'"{key}": (\d+|true|false)(?![.\w])', json.dumps({**self.config}))
        is_held = key in self.config or (isinstance(text, dict) and key in text)
        return sorted({json.loads(one) for one in found}) if is_held else []


def check(
    sources: ModuleSources, named: Sequence[str], model: ModelTensors, note: Callable[[str], None]
) -> str:
    """Return why vLLM surely stops at a model's tensors, ``""`` if it may not; what is unknown is given to ``note``."""
    cls = registry.class_of(sources, "".join(named[:1]))
    # vLLM wraps the class of what does not generate.
    if cls is None or not re.search("(ForCausalLM|ForConditionalGeneration|HeadModel)$", named[0]):
        if lacks := registry.lacks(sources, named) if named else "":
            note(lacks)
        return ""
    # what else a quantised layer has may be ignored
    names = {name: name for name in model.tensors if name.endswith(".weight")}
    try:
        return next(_stops(sources, model, cls, names, ""), "")
    except ValueError:
        note(
            f"the names of the model's tensors were not checked: {cls.node.name} loads them by itself"
        )
        return ""


def _stops(
    sources: ModuleSources, model: ModelTensors, cls: ClassPlace, names: _Names, at: str
) -> Iterator[str]:
    """Yield why vLLM stops at a class that a model has ``at``, and at those below."""
    parts = _parts(sources, sources.bases(cls))
    methods = {one.node.name: one for one in reversed([*sources.methods(cls)])}
    loads = ast.unparse(methods["load_weights"].node) if "load_weights" in methods else ""
    loop = loads if _LOOP.fullmatch(loads) and not _CHANGES.search(loads) else ""
    if is_untied := model.held("tie_word_embeddings") == [False]:
        loads = _SKIPPED_IF_TIED.sub("None", loads)
    if loads and not loop:
        names = _loaded(sources, cls, loads, names)
    below: dict[str, _Names] = {}
    for whole, name in names.items():
        part, _, below.setdefault(part, {})[whole] = name.partition(".")
    where = f"{cls.node.name} ({cls.path}:{cls.node.lineno})"
    for part, inner in below.items():
        if part not in parts and not loop:
            first = model.place(next(iter(inner)))
            yield f"{where} has no part named {at}{part}, but the model has {len(inner):,} of its tensors, first {first}"
        made = {one for one in parts.get(part, ()) if not (is_untied and _TIED.match(one[1]))}
        if len(made) != 1:
            continue
        [(path, text)] = made
        with contextlib.suppress(ValueError):
            if wrong := _misfit(model, parts, text, f"{at}{part}", inner, loop):
                yield f"{where} {wrong}"
            call = _CALL.fullmatch(text)
            if method := methods.get(call[1].removeprefix("self.")) if call else None:
                path, text = method.path, ast.unparse(method.node)
                call = _CALL.fullmatch(text.rpartition("\n    return ")[2])
                call = call if text.count(" return ") == 1 else None
            one = sources.find_class(path, call[1]) if call else None
            if inner_model := _INNER_MODEL.match(text):
                one = registry.class_of(sources, inner_model[1])
            if one and not loop and at.count(".") < _DEPTH:
                yield from _stops(sources, model, one, inner, f"{at}{part}.")
    if loop:
        raise ValueError(loop)


def _misfit(
    model: ModelTensors, parts: _Parts, text: str, part: str, names: _Names, loop: str
) -> str:
    """Say where a checkpoint has another size than the ``part`` that ``text`` makes of its config, else ``""``."""
    if match := _LAYERS.match(text):
        counts = _sizes(model, parts, match[1])
        layers = {int(left.partition(".")[0]): name for name, left in names.items() if counts}
        beyond = [name for number, name in layers.items() if number >= counts[-1] and not loop]
        if beyond:
            return f"makes {counts[-1]} {part} by config.json, but the model has more, first {model.place(beyond[0])}"
        lacks = min({*range(len(layers) + 1)} - {*layers})
        # vLLM does not miss the tensors of linear layers
        if (
            model.needs_all
            and any("norm" in name for name in layers.values())
            and lacks < counts[0]
        ):
            return f"makes {counts[0]} {part} by config.json, but the model has no tensors of {part}.{lacks}"
    elif (match := _TABLE.match(text)) and [*names.values()] == ["weight"]:
        [name] = names
        dtype, edges, *_ = model.tensors[name]
        sizes = [
            _sizes(model, parts, (_TABLE_ROWS.search(text) or match)[1]),
            _sizes(model, parts, match[2]),
        ]
        fits = all(edge in one or not one for edge, one in zip(edges, sizes, strict=False))
        is_known = dtype in _FLOATS and not any(
            one in name for one in re.findall("'([^']{3,})'", loop)
        )
        if is_known and not fits:
            made = " × ".join(" or ".join(map(str, one)) or "?" for one in sizes)
            has = " × ".join(map(str, edges))
            return (
                f"makes {part} {made} by config.json, but the model's is {has}: {model.place(name)}"
            )
    return ""


def _sizes(model: ModelTensors, parts: _Parts, text: str) -> list[int]:
    """Return what a number in a class may be by the config, nothing if that is not sure."""
    if text.startswith("self.") and len(made := parts.get(text[5:], set())) == 1:
        [(_, text)] = made
    match = re.fullmatch(r"[\w.]*config\.(\w+)", text)
    return model.held(match[1]) if match else []


def _parts(sources: ModuleSources, bases: Sequence[ClassPlace]) -> _Parts:
    """Return what may be a part of a module; a text is ``""`` if it is unknown."""
    unknown = ("", "")
    parts: _Parts = {"weight": {unknown}}
    runs, until = True, ""
    for path, base in bases:
        init = [one for one in base.body if getattr(one, "name", "") == "__init__"]
        body = [one for one in base.body if runs or one not in init]
        text, above = ast.unparse(ast.Module(body, [])), map(ast.unparse, base.bases)
        if runs and (match := _LEAVES_OUT.fullmatch("".join(map(ast.unparse, init)))):
            runs, until = False, match[1]
        runs = runs or base.name == until
        inherits = {
            sources.find_class(path, one)
            for one in {one.partition("[")[0] for one in above} - _WITHOUT_PARTS
        }
        if not inherits <= {*bases} or _COMPUTED.search(text):
            raise ValueError(base.name)
        parts |= {name: {unknown} for name in re.findall(r"\.register_\w+\('(\w+)'", text)}
        # also of `self.a, b.c = …` and `self.a.b = …`; nothing else has blanks around its `=`
        for left, right in re.findall(r"^ +(\S.*) = (.*)", text, re.MULTILINE):
            for name in re.findall(r"\.(\w+)", left):
                is_whole = left == f"self.{name}" or right.startswith("make_layers(")
                made = parts.setdefault(name, set())
                if right != "PPMissingLayer()":  # what another rank has
                    made.add((path, right) if is_whole else unknown)
    return parts


def _loaded(sources: ModuleSources, cls: ClassPlace, text: str, names: _Names) -> _Names:
    """Return what a class renames tensors to, without those that it skips."""
    if (match := _LOADS.fullmatch(text)) is None:
        raise ValueError(text)
    mapper = _mapper(sources, cls.path, ast.Name(cls.node.name)) if match[3] else {}
    rules = [(*which, mapper[which]) for which in sorted(mapper, key=itemgetter(0))]
    skipped, loaded = re.findall("'([^']+)'", match[1]), {}
    for whole, given in names.items():
        name = given
        for rule in rules:
            name = name and _renamed(name, *rule)
        if name and not any(part in name for part in skipped):
            loaded[whole] = name
    return loaded


def _renamed(name: str, kind: int, old: str, new: str | None) -> str:
    """Return a name as a rule makes it, ``""`` if it is dropped; all but prefixes and suffixes are replaced where they are first."""
    ends = {"orig_to_new_prefix": 0, "orig_to_new_suffix": len(name) - len(old)}
    at = ends.get(_KINDS[kind], name.find(old))
    if at < 0 or not name.startswith(old, at):
        return name
    return "" if new is None else f"{name[:at]}{new}{name[at + len(old) :]}"


def _mapper(sources: ModuleSources, path: str, node: ast.expr) -> dict[tuple[int, str], Any]:
    """Return what a mapper replaces, by the index of its kind and by text; that of a class may be its base's."""
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
