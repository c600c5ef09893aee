"""Whether the class that a vLLM has for a model takes the tensors of its checkpoint: vLLM stops at one that leads to no part.

What stands literally in the text of a class is followed; what is computed raises ``ValueError``, as ``ast.literal_eval`` does.
"""

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import registry
from vllm_mods.serving.sizes import ModelTensors, Parts, misfit
from vllm_mods.serving.source import ClassPlace, ModuleSources, last_name

# As `ast.unparse` writes them: all that a class may do to load, a call alone, a part or another class that is computed.
_LOADS = re.compile(
    r"def load_weights\(self, weights\b.*\n    loader = AutoWeightsLoader\(self((?:, \w+=(?:None|\[(?:'[^']*',? ?)*\](?: if [^[]+? else None)?))*)\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?:\n    return \2)?"
)
# Or a loop that gives each tensor to the parameter of its name, which changes no table of many rows and columns.
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
_IF_TIED = re.compile(r"\['lm_head\.'\] if self\.config\.tie_word_embeddings else None")
_TIES = re.compile(r"self\.(lm_head\.tie_weights\(self\.)?[\w.]+\.(embed\w*|word_embeddings|wte)\b")
_INNER_MODEL = re.compile(r"init_vllm_registered_model\(.*\barchitectures=\['(\w+)'\]")
_BEHIND = re.compile(
    r"(?s)(?!.*\.__init__\(.*\.__init__\().*(?:nn\.Module|super\((\w+), self\))\.__init__\(.*"
)
_WITHOUT_PARTS = frozenset({"nn.Module", "torch.nn.Module", "Protocol", "ABC", "Generic"})
# In the order in which a mapper goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
_DEPTH = 32  # a class may have itself as a part
_Names = dict[str, str]


class Taken(NamedTuple):
    """Whether vLLM surely ``stops`` at a model's tensors, and ``why``; else why that is not known, if it is not."""

    stops: bool = False
    why: str = ""


def check(sources: ModuleSources, named: Sequence[str], model: ModelTensors) -> Taken:
    """Hold a checkpoint's tensors against the class that a vLLM has for its architectures."""
    cls = registry.class_of(sources, "".join(named[:1]))
    # vLLM wraps the class of what does not generate.
    if cls is None or not re.search("(ForCausalLM|ForConditionalGeneration|HeadModel)$", named[0]):
        return Taken(why=registry.lacks(sources, named) if named else "")
    # what else a quantised layer has may be ignored
    names = {name: name for name in model.tensors if name.endswith(".weight")}
    try:
        why = next(_stops(sources, model, cls, names, ""), "")
    except ValueError:
        why = f"the names of the model's tensors were not checked: {cls.node.name} loads them by itself"
        return Taken(why=why)
    return Taken(bool(why), why)


def _stops(
    sources: ModuleSources, model: ModelTensors, cls: ClassPlace, names: _Names, at: str
) -> Iterator[str]:
    """Yield why vLLM stops at a class that a model has ``at``, or below; ``names`` has of each tensor's name what is left there."""
    parts = _parts(sources, sources.bases(cls))
    methods = {one.node.name: one for one in reversed([*sources.methods(cls)])}
    loads = ast.unparse(methods["load_weights"].node) if "load_weights" in methods else ""
    loop = loads if _LOOP.fullmatch(loads) and not _CHANGES.search(loads) else ""
    if loads and not loop:
        loads = _IF_TIED.sub("None", loads) if model.is_untied else loads
        names = _loaded(sources, cls, loads, names)
    below: dict[str, _Names] = {}
    for whole, name in names.items():
        part, _, below.setdefault(part, {})[whole] = name.partition(".")
    where = f"{cls.node.name} ({cls.path}:{cls.node.lineno})"
    for part, inner in below.items():
        if part not in parts and not loop:
            first = model.place(next(iter(inner)))
            yield f"{where} has no part named {at}{part}, but the model has {len(inner):,} of its tensors, first {first}"
        made = [one for one in parts.get(part, ()) if not (model.is_untied and _TIES.match(one[1]))]
        if len(made) != 1:
            continue
        [(path, text)] = made
        with contextlib.suppress(ValueError):
            if wrong := misfit(model, parts, text, f"{at}{part}", inner, loop):
                yield f"{where} {wrong}"
            if loop:
                continue
            call = _CALL.fullmatch(text)
            if method := methods.get(call[1].removeprefix("self.")) if call else None:
                path, text = method.path, ast.unparse(method.node)
                call = _CALL.fullmatch(text.rpartition("\n    return ")[2])
                call = call if text.count(" return ") == 1 else None
            one = sources.find_class(path, call[1]) if call else None
            if inner_model := _INNER_MODEL.match(text):
                one = registry.class_of(sources, inner_model[1])
            if one and at.count(".") < _DEPTH:
                yield from _stops(sources, model, one, inner, f"{at}{part}.")
    if loop:
        raise ValueError(loop)


def _parts(sources: ModuleSources, bases: Sequence[ClassPlace]) -> Parts:
    """Return what may be a part of a module."""
    unknown = ("", "")
    parts: Parts = {"weight": {unknown}}
    last: str | None = ""  # of the bases whose `__init__` does not run, None if that are all
    for path, base in bases:
        init = next((one for one in base.body if getattr(one, "name", "") == "__init__"), None)
        body = [one for one in base.body if last == "" or one is not init]
        text = ast.unparse(ast.Module(body, []))
        if last == "" and init and (match := _BEHIND.fullmatch(ast.unparse(init))):
            last = match[1]
        elif last == base.name:
            last = ""
        above = {ast.unparse(one).partition("[")[0] for one in base.bases}
        known = {sources.find_class(path, one) for one in above - _WITHOUT_PARTS} <= {*bases}
        if not known or _COMPUTED.search(text):
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
