"""What a model class of vLLM takes: its parts, and how it renames tensors. Its text is read as ``ast.unparse`` writes it, not run.

A part is an attribute: ``self.lm_head = ParallelLMHead(…)`` makes the one that tensors named ``lm_head.…`` go to. Where a
class computes that (``setattr``, a base outside of the tree, a ``load_weights`` of no known form), ``ValueError`` is raised.
"""

import ast
import re
from typing import Any

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import registry
from vllm_mods.serving.source import ClassPlace, FunctionPlace, ModuleSources, last_name, text_of

Maker = tuple[str, str]  # the file and the text of the expression that makes a part
Methods = dict[str, FunctionPlace]
Parts = dict[str, set[Maker]]  # by the names of a class's attributes
Names = dict[str, str]  # of a checkpoint's tensors, each with what is left of it in a class
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


def parts_of(sources: ModuleSources, cls: ClassPlace, *, is_tied: bool) -> Parts:
    """Return what may be a part of a class, with all that may make it; the embedding makes a head that ``is_tied``, perhaps."""
    parts: Parts = {"weight": {_UNKNOWN}}
    bases, passed = sources.bases(cls), ""  # until that one no `__init__` runs
    for path, base in bases:
        init = [one for one in base.body if getattr(one, "name", "") == "__init__"]
        runs = [one for one in base.body if not passed or one not in init]
        text, above = ast.unparse(ast.Module(runs, [])), map(ast.unparse, base.bases)
        if not passed and (match := re.fullmatch(_PASSES_BASES, "".join(map(ast.unparse, init)))):
            passed = match[1] or "nn.Module"
        passed = "" if base.name == passed else passed
        named = {one.partition("[")[0] for one in above} - _WITHOUT_PARTS
        is_known = {sources.find_class(path, name) for name in named} <= {*bases}
        if not is_known or re.search(_COMPUTES, text):
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


def class_of_part(sources: ModuleSources, methods: Methods, maker: Maker) -> ClassPlace | None:
    """Find the class that makes a part, or that one of the ``methods`` beside returns to make it."""
    path, text = maker
    call = re.fullmatch(_CALL, text)
    if call and (method := methods.get(call[1].removeprefix("self."))):
        path, text = method.path, ast.unparse(method.node)
        only = text.rpartition("\n    return ")[2] if text.count(" return ") == 1 else ""
        call = re.fullmatch(_CALL, only)
    if inner := re.match(_INNER_MODEL, text):
        return registry.class_of(sources, inner[1])
    return sources.find_class(path, call[1]) if call else None


def loaded(
    sources: ModuleSources, cls: ClassPlace, load_weights: ast.FunctionDef, names: Names
) -> tuple[Names, set[str]]:
    """Return what a class renames tensors to, without those that it may skip; and the texts in its loop, which may do more."""
    text, kept = ast.unparse(load_weights), {}
    if re.fullmatch(_BY_LOOP, text) and not re.search(_CHANGES, text):
        return names, {text_of(node) or "" for node in ast.walk(load_weights)}
    if (match := re.fullmatch(_BY_LOADER, text)) is None:
        raise ValueError(cls.node.name)
    rules = _mapper(sources, cls.path, ast.Name(cls.node.name)) if match[3] else {}
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
