"""Whether the class that a vLLM has for a model takes the tensors of its checkpoint: vLLM stops at one that leads to no part.

What stands literally in the text of a class is followed; what is computed raises ``ValueError``, as ``ast.literal_eval`` does.
"""

import ast
import contextlib
import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import registry
from vllm_mods.serving.source import ClassPlace, ModuleSources, last_name

# As `ast.unparse` writes them: all that a class may do to load, a call alone, a part or another class that is computed.
_LOADS = re.compile(
    r"def load_weights\(self, weights\b.*\n    loader = AutoWeightsLoader\(self((?:, \w+=\[(?:'[^']*',? ?)*\](?: if [^[]+? else None)?)*)\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?:\n    return \2)?"
)
_CALL = re.compile(r"((?:\w+\.)*\w+)\((?!.*\)[ .(\[]).*\)")
_COMPUTED = re.compile(
    r"(setattr|_module)\(|\.hf_to_vllm_mapper \|?= |\bload_weights = |def __new__(?!(?s:.*)super\(\)\.__new__\(cls\))"
)
_WITHOUT_PARTS = frozenset({"nn.Module", "torch.nn.Module", "Protocol", "ABC", "Generic"})
# In the order in which a mapper goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")
_DEPTH = 32  # a class may have itself as a part
_Names = dict[str, str]


def stray(sources: ModuleSources, named: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Say which part a model's class has not, and behind that the tensors at which vLLM surely stops for it; else what is unknown, if anything."""
    module, name = registry.listed(sources).get("".join(named[:1]), ("", ""))
    cls = sources.find_class(f"vllm/model_executor/models/{module}.py", name)
    # vLLM wraps the class of what does not generate.
    if cls is None or not re.search("(ForCausalLM|ForConditionalGeneration|HeadModel)$", named[0]):
        return (registry.lacks(sources, named) if named else "",)
    try:  # what else a quantised layer has may be ignored
        return _stray(sources, cls, {name: name for name in names if name.endswith(".weight")}, "")
    except ValueError:
        return (f"the names of the model's tensors were not checked: {name} loads them by itself",)


def _stray(sources: ModuleSources, cls: ClassPlace, names: _Names, at: str) -> tuple[str, ...]:
    """Look at a class that a model has ``at``, and those below; ``names`` has of each tensor's name what is left there."""
    parts = _parts(sources, sources.bases(cls))
    methods = {one.node.name: one for one in reversed([*sources.methods(cls)])}
    if "load_weights" in methods:
        names = _loaded(sources, cls, ast.unparse(methods["load_weights"].node), names)
    below: dict[str, _Names] = {}
    for whole, name in names.items():
        part, _, below.setdefault(part, {})[whole] = name.partition(".")
    for part, inner in below.items():
        if part not in parts:
            where = f"{cls.path}:{cls.node.lineno}"
            return f"{cls.node.name} ({where}) has no part named {at}{part}", *inner
        path, made = parts[part]
        if method := methods.get(made.removeprefix("self.")):
            text = ast.unparse(method.node)
            call = _CALL.fullmatch(text.rpartition("\n    return ")[2])
            path, made = method.path, call[1] if call and text.count(" return ") == 1 else ""
        with contextlib.suppress(ValueError):
            one = sources.find_class(path, made) if at.count(".") < _DEPTH else None
            if one and (found := _stray(sources, one, inner, f"{at}{part}.")):
                return found
    return ()


def _parts(sources: ModuleSources, bases: Sequence[ClassPlace]) -> dict[str, tuple[str, str]]:
    """Return what may be a part of a module, with the file and the name of what is called to make it, ``""`` if that is unknown."""
    parts = {"weight": ("", "")}
    for path, base in bases:
        text, above = ast.unparse(base), {ast.unparse(one).partition("[")[0] for one in base.bases}
        known = {sources.find_class(path, one) for one in above - _WITHOUT_PARTS} <= {*bases}
        if not known or _COMPUTED.search(text):
            raise ValueError(base.name)
        parts |= dict.fromkeys(re.findall(r"\.register_\w+\('(\w+)'", text), ("", ""))
        # also of `self.a, b.c = …` and `self.a.b = …`; nothing else has blanks around its `=`
        for left, right in re.findall(r"^ +(\S.*) = (.*)", text, re.MULTILINE):
            call = _CALL.fullmatch(right)
            for name in re.findall(r"\.(\w+)", left):
                is_all = left == f"self.{name}" and name not in parts
                parts[name] = (path, call[1]) if call and is_all else ("", "")
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
