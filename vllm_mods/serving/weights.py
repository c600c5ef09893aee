"""Whether the class that a vLLM has for a model takes the tensors of its checkpoint, as far as the class's text tells.

vLLM's ``AutoWeightsLoader`` stops at a name that leads to no part of a module. Followed are parts, renamings and
exceptions that stand there literally; what is computed raises ``ValueError``, as ``ast.literal_eval`` does.
"""

import ast
import contextlib
import re
from collections.abc import Iterable
from typing import Any

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving.source import ClassPlace, ModuleSources, last_name

# All that a class may do to load, as `ast.unparse` writes it.
_LOADS = re.compile(
    r"def load_weights\(self, weights\b.*\n"
    r"    loader = AutoWeightsLoader\(self((?:, \w+=\[(?:'[^']*',? ?)*\](?: if .+? else None)?)*)\)\n"
    r"    (?:return|(\w+) =) loader\.load_weights\(weights(, mapper=self\.hf_to_vllm_mapper)?\)(?:\n    return \2)?"
)
# A part whose name is computed; another class that is made.
_COMPUTES = re.compile(r"setattr\(self,|def __new__\b(?!(?s:.*)super\(\)\.__new__\(cls\))")
_WITHOUT_PARTS = frozenset({"Module", "Protocol", "ABC", "Generic", "object"})
# In the order in which a mapper goes through them.
_KINDS = ("orig_to_new_substr", "orig_to_new_stacked", "orig_to_new_prefix", "orig_to_new_suffix")


def stray(sources: ModuleSources, cls: ClassPlace, names: Iterable[str]) -> tuple[str, list[str]]:
    """Return a part that the class of a model has not, and the tensors at which vLLM would surely stop for it; ``""`` if it has all.

    Raises ``ValueError`` where nobody can tell.
    """
    # What else belongs to a quantised layer may be ignored.
    return _stray(sources, cls, {name: name for name in names if name.endswith(".weight")}, "")


def _stray(
    sources: ModuleSources, cls: ClassPlace, names: dict[str, str], at: str
) -> tuple[str, list[str]]:
    """Look at a class, which a model has ``at``, and those below; ``names`` have of each tensor's name what is left there."""
    parts = _parts(sources, cls)
    methods = {one.node.name: one for one in reversed([*sources.methods(cls)])}
    if "load_weights" in methods:
        names = _loaded(sources, cls, ast.unparse(methods["load_weights"].node), names)
    elif not at:
        raise ValueError(cls.node.name)
    below: dict[str, dict[str, str]] = {}
    for whole, name in names.items():
        part, _, below.setdefault(part, {})[whole] = name.partition(".")
    for part, inner in below.items():
        if part not in parts:
            where = f"{cls.path}:{cls.node.lineno}"
            return f"{cls.node.name} ({where}) has no {at}{part}", list(inner)
        path, called = parts[part][0] if len(parts[part]) == 1 else ("", "")
        if method := methods.get(called):
            path, called = (
                method.path,
                last_name(getattr(method.node.body[-1], "value", method.node)),
            )
        with contextlib.suppress(ValueError):
            if made := sources.find_class(path, called):
                found = _stray(sources, made, inner, f"{at}{part}.")
                if found[0]:
                    return found
    return "", []


def _parts(sources: ModuleSources, cls: ClassPlace) -> dict[str, list[tuple[str, str]]]:
    """Return what may be a part of a module, with the file and the name of what is called to make it."""
    parts: dict[str, list[tuple[str, str]]] = {}
    bases = sources.bases(cls)
    for path, base in bases:
        text = ast.unparse(base)
        above = [ast.unparse(one).partition("[")[0] for one in base.bases]
        named = [one for one in above if one.rpartition(".")[2] not in _WITHOUT_PARTS]
        if _COMPUTES.search(text) or any(
            sources.find_class(path, one) not in bases for one in named
        ):
            raise ValueError(base.name)
        for name in re.findall(r"self\.\w+\('(\w+)'", text):  # such as a buffer
            parts.setdefault(name, [])
        for node in ast.walk(base):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            for one in (inner for each in targets if each for inner in ast.walk(each)):
                if isinstance(one, ast.Attribute):
                    is_own = targets == [one] and dotted(one) == f"self.{one.attr}"
                    made = getattr(node, "value", None) if is_own else None
                    parts.setdefault(one.attr, []).append((path, last_name(made)))
    return parts


def _loaded(
    sources: ModuleSources, cls: ClassPlace, text: str, names: dict[str, str]
) -> dict[str, str]:
    """Return what a class renames tensors to, without those that it skips."""
    if (match := _LOADS.fullmatch(text)) is None:
        raise ValueError(text)
    mapper = _mapper(sources, cls.path, ast.Name(cls.node.name)) if match[3] else {}
    renames = sorted(mapper.items(), key=lambda one: one[0][0])
    skipped = re.findall("'([^']+)'", match[1])
    loaded = ((whole, _renamed(name, renames)) for whole, name in names.items())
    return {
        whole: name for whole, name in loaded if name and not any(part in name for part in skipped)
    }


def _renamed(name: str, renames: list[tuple[tuple[int, str], Any]]) -> str:
    for (kind, old), into in renames:
        new = into[0] if isinstance(into, tuple) else into
        at = (name.find(old), name.find(old), 0, len(name) - len(old))[kind]
        if name.find(old, at) == at >= 0:
            if new is None:
                return ""
            name = f"{name[:at]}{new}{name[at + len(old) :]}"
    return name


def _mapper(sources: ModuleSources, path: str, node: ast.expr) -> dict[tuple[int, str], Any]:
    """Return what a mapper replaces, by kind and text; that of a class may be its base's."""
    if isinstance(node, ast.BinOp):
        return _mapper(sources, path, node.left) | _mapper(sources, path, node.right)
    if isinstance(node, ast.Call) and last_name(node) == "WeightsMapper" and not node.args:
        tables = (
            (_KINDS.index(one.arg or ""), ast.literal_eval(one.value)) for one in node.keywords
        )
        return {(kind, old): new for kind, table in tables for old, new in table.items()}
    cls = sources.find_class(path, (dotted(node) or "").removesuffix(".hf_to_vllm_mapper"))
    for place, base in sources.bases(cls) if cls else ():
        if value := sources.value(place, f"{base.name}.hf_to_vllm_mapper"):
            return _mapper(sources, place, value)
    raise ValueError(path)
