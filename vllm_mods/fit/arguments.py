"""Gates of the type checker's rules on calls: whether the arguments do not fit whatever is called."""

import ast
import re
from collections import ChainMap

from vllm_mods.fit.asked import QUOTED, Asked
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.search import classes_named, definers, subclasses
from vllm_mods.fit.shapes import Symbol, words
from vllm_mods.fit.signatures import dotted

_CALLED = re.compile(r"(?:function|method|constructor|class|to|of) `([\w.]+)`")
_PARAMETER = re.compile(r"(\w+):")
_OPEN = re.compile(r"\*\*|omitted \d+ overloads")
_POSITIONAL = re.compile(r"\([^()]*, /")
_MAKERS = words("__init__ __new__")
_UNION_CALL = "Attempted to call union type"
# What gives a field of a pydantic model that is left out a value, or another name: an alias, a validator before the fields.
_FILLS = re.compile(
    rb"\b(?:validation_)?alias(?:_generator)?\s*=|root_validator|model_validator\((?:[^)]|\n)*?mode\s*=\s*[\"']before"
    rb"|[\"']wrap[\"'](?:.|\n)*?(?:setdefault\(|\bdata\[[^\]]+\]\s*=[^=]|\{\s*\*\*)"
)


def argument(asked: Asked) -> bool | None:
    """Leave out what a kernel is started with, which its compiler knows, and what pydantic fills in or lets be."""
    diagnostic = asked.diagnostic
    call = asked.call()
    if diagnostic.rule == "unknown-argument" and call and isinstance(call.func, ast.Subscript):
        # what is no parameter may be an option, and these are in small letters
        return any(name.isupper() for name in QUOTED.findall(diagnostic.text)) or None
    world = asked.world
    called = _CALLED.search(diagnostic.text)
    owner = called[1].rpartition(".")[0].rpartition(".")[2] if called else ""
    lines = [lineage(world, one) for one in asked.called_classes()]
    # a base outside may take what the class itself does not
    open_ = any(line.unknown and line.owner("__init__") is None for line in lines)
    named = classes_named(world, owner) if owner else ()
    one_of_several = called is None and _UNION_CALL in diagnostic.more  # as attributes of a layer
    if owner == "object" or open_ or one_of_several or not all(_is_stated(o) for o in named):
        return False
    for line in lines:
        if "BaseModel" in line.bases:
            if diagnostic.rule != "missing-argument":
                return None
            for symbol in line.classes:
                rows = (world.read(symbol.path) or b"").splitlines(keepends=True)
                if _FILLS.search(b"".join(rows[symbol.cls.line - 1 : symbol.cls.end])):
                    return None
            missed = set(QUOTED.findall(diagnostic.text))
            required = ChainMap(*(dict(one.cls.fields) for one in line.classes))
            return any(required.get(name) for name in missed) or None
    return True


def bound(asked: Asked) -> bool:
    """Let pass what may call another function than the one that ty tells of."""
    if _UNION_CALL in asked.diagnostic.more:
        return False
    called = _CALLED.search(asked.diagnostic.text)
    if called is None:  # what is no function by its name may be a layer, of a class below
        return bool(asked.called()) or dotted(getattr(asked.call(), "func", None)) is None
    owner, _, name = called[1].rpartition(".")
    world = asked.world
    if owner:
        last = owner.rpartition(".")[2]
        classes = classes_named(world, last)
        if not classes:  # of the standard library
            heirs = (last in lineage(world, one).bases for one in definers(world, name))
            return name in _MAKERS or not any(heirs)
        is_above = ast.unparse(asked.call() or ast.Pass()).startswith("super().")
        below = (heir.cls for one in classes for heir in subclasses(world, one))
        overridden = (name in heir.methods for heir in below)
        is_fixed = name in _MAKERS or is_above
        return all(map(_is_stated, classes)) and (is_fixed or not any(overridden))
    return True


def overload(asked: Asked) -> bool:
    """Be sure where no overload has a parameter of a given name: types that were meant are not told, and the tree's own may take more."""
    call, more = asked.call(), asked.diagnostic.more
    taken = set(_PARAMETER.findall(_POSITIONAL.sub("(", more)))
    given = {word.arg for word in call.keywords} - {None} if call else set()
    return not given <= taken and not _OPEN.search(more) and not asked.called()


def takes(asked: Asked) -> bool:
    """Ask of a builtin question nothing more, and of a call what is bound."""
    builtin = "`isinstance`" in asked.diagnostic.text or "`issubclass`" in asked.diagnostic.text
    return builtin or bound(asked)


def _is_stated(symbol: Symbol) -> bool:
    return all(base.rpartition(".")[2] != "Protocol" for base in symbol.cls.bases)
