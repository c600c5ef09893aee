"""What of the type checker's words counts: one table, by rule.

An error is what a program breaks on whatever else may be true of its types. Where a patch adds a line, its author may
know more than the types that vLLM states: there the owner of a member, or what is called, has to be one
that nothing else can stand for.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit import missing
from vllm_mods.fit.arguments import argument, bound, overload, takes
from vllm_mods.fit.asked import COROUTINE, FUNCTION, QUOTED, TYPE, Asked
from vllm_mods.fit.bodies import scope_at
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.results import abstract_methods
from vllm_mods.fit.search import is_mentioned
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import DefNode, children, every
from vllm_mods.fit.world import World

_OF_TYPE = re.compile(rf"(?:[Oo]bjects?|base) (?:of|with) type {TYPE}(?: and {TYPE})?")
_SUBJECT = re.compile(rf"^(?:Operator `\S+` .*|.*?){TYPE}")
_GIVEN = re.compile(r"[Ee]xpected `(.+?)`, found `(.+)`$")
_AWAITS = re.compile(r"Await|Coroutine|Future|Task|Unknown|Any|object")
# What functions of Python ask of an argument, ``next`` that it is no list.
_ASKED_OF = {"Sized": "__len__", "SupportsNext": "__next__", "Generator": "__await__"}
_CONTAINERS = re.compile(r"(?:list|dict|tuple|set|frozenset)\[.*\]")
# What another compiler than Python makes of the code decides these: numbers of a kernel are tensors.
_OF_VALUES = {FindingCode.FIT_ATTRIBUTE, FindingCode.FIT_KIND}


# --- gates: True for an error, False for a note, None for nothing

Gate = Callable[[Asked], bool | None]


def _yes(_: Asked) -> bool:
    return True


def _no(_: Asked) -> bool:
    return False


def _is_known_kind(asked: Asked) -> bool | None:
    """Let be what a branch, or who sets it later, knows better: members of unions, ``None``, what containers hold."""
    kinds = _kinds(asked.diagnostic.text)
    if asked.is_stating():
        return any(_kind_of(kind) == "str" for kind in kinds) or None
    if any(_is_union(kind) or kind in {"None", "object", "~None"} for kind in kinds):
        return False
    outer = {kind.partition("[")[0] for kind in kinds}
    return None if len(kinds) > 1 and len(outer) == 1 and _CONTAINERS.fullmatch(kinds[0]) else True


def _is_union(kind: str) -> bool:
    inner = re.sub(r"\[[^][]*\]", "", kind)
    return " | " in kind if inner == kind else _is_union(inner)


def _cannot_be_made(asked: Asked) -> bool | None:
    """Ask our own reading: ty takes a protocol's empty methods for abstract ones, and Python does not."""
    return any(abstract_methods(asked.world, one) for one in asked.called_classes()) or None


_TEXTS = words("str bytes")


def _kind_of(kind: str) -> str:
    if match := re.match(r"Literal\[(.)", kind):
        return "str" if match[1] in "\"'" else "bytes" if match[1] == "b" else "int"
    return kind.partition("[")[0]


def _value(asked: Asked) -> bool:
    """Believe that a number is no text, and a container or a coroutine neither; what else does not suit, a program may well take."""
    match = _GIVEN.search(asked.diagnostic.text)
    diagnostic = asked.diagnostic
    place = asked.world.row(diagnostic.path, diagnostic.line)[diagnostic.column - 1 :]
    if match is None or place.startswith(b"*"):  # which parameters `**kwargs` fills, nobody knows
        return False
    wanted, given = match[1], match[2]
    if given.startswith(COROUTINE):
        return not _AWAITS.search(wanted)
    if special := _ASKED_OF.get(wanted.partition("[")[0]):
        return missing.is_plain(asked, given, special) or _CONTAINERS.fullmatch(given) is not None
    if "`isinstance`" in asked.diagnostic.text or "`issubclass`" in asked.diagnostic.text:
        return FUNCTION.match(given) is not None
    if wanted not in missing.NUMBERS | _TEXTS or "|" in given:
        return False
    others = _TEXTS if wanted in missing.NUMBERS else missing.NUMBERS
    return _kind_of(given) in others or _CONTAINERS.fullmatch(given) is not None


def _kind(asked: Asked) -> bool:
    kinds = _kinds(asked.diagnostic.text)
    if asked.diagnostic.rule == "not-iterable" and _is_stated_to_hold(asked):
        return False
    match asked.around:
        case [ast.Name(id="len" | "int"), ast.Call(), *_]:
            return True  # ``for i in len(x)``: no tensor
        case _:
            pass
    special = {
        "not-iterable": "__iter__",
        "not-callable": "__call__",
        "not-subscriptable": "__getitem__",
        "invalid-context-manager": "__enter__",
        "invalid-await": "__await__",
    }.get(asked.diagnostic.rule, "")
    return bool(kinds) and all(missing.is_plain(asked, kind, special) for kind in kinds)


def _is_stated_to_hold(asked: Asked) -> bool:
    """Tell whether it is what a parameter is stated to hold that a loop unpacks: whoever wrote the loop knows what is in it."""
    loop = next((node for node in asked.around if isinstance(node, ast.For)), None)
    function = next((node for node in asked.around if isinstance(node, DefNode)), None)
    if loop is None or function is None or not isinstance(loop.target, ast.Tuple):
        return False
    stated = {n.arg for n in every(function.args) if isinstance(n, ast.arg) and n.annotation}
    named = {node.id for node in every(loop.iter) if isinstance(node, ast.Name)}
    return any(isinstance(one, ast.Tuple) for one in loop.target.elts) and bool(stated & named)


def _kinds(text: str) -> list[str]:
    match = _OF_TYPE.search(text) or _SUBJECT.search(text)
    return [kind for kind in match.groups() if kind is not None] if match else []


def _operands(asked: Asked) -> bool:
    """Be sure of operands that are builtin, functions, coroutines, or of classes without the operator; a stated number may be a tensor."""
    kinds = _kinds(asked.diagnostic.text)
    # what a field or a container is stated to hold, the code that fills it decides
    place = next((n for n in asked.around if isinstance(n, ast.BinOp | ast.AugAssign)), None)
    parts = children(place or ast.Pass())
    held = any(isinstance(one, ast.Attribute | ast.Subscript) for one in parts)
    if held and any(map(_CONTAINERS.fullmatch, kinds)):
        return False
    with_text = any(_kind_of(kind) in _TEXTS for kind in kinds)
    known = {*filter(_CONTAINERS.fullmatch, kinds), *(missing.NUMBERS if with_text else ())}
    plain = (kind in known or missing.is_plain(asked, kind) for kind in kinds)
    return asked.is_stating() or (bool(kinds) and all(plain))


def _assignment(asked: Asked) -> bool | None:
    text = asked.diagnostic.text
    if "values to unpack" in text:
        # a name may be one of several, and what a call gives its code says (``results``), not what it states, unless that is news
        assigned = next((node for node in asked.around if isinstance(node, ast.Assign)), None)
        value = getattr(assigned, "value", None)
        if isinstance(value, ast.Call | ast.Await):
            return asked.world.origin is not None or None
        return isinstance(value, ast.Tuple)
    what, _, stated = text.partition(" is not assignable to ")
    is_one = f"of type `{COROUTINE}" in what and not _is_union(what)  # ``gather`` waits for many
    waits = is_one and stated and not _AWAITS.search(stated)
    if waits or "is read-only" in text or "read-only property" in text:
        return True
    return False if "unresolved attribute" in text else None


def _index(asked: Asked) -> bool | None:
    text = asked.diagnostic.text
    return ("for tuple" in text and "`tuple[()]`" not in text) or None


def _key(asked: Asked) -> bool | None:
    """Let be what is stored: only a key that is read has to be there."""
    keyed = [node for node in asked.around if isinstance(node, ast.Subscript)][:1]
    return any(isinstance(node.ctx, ast.Load) for node in keyed) or None


def _truth(asked: Asked) -> bool | None:
    text = asked.diagnostic.text
    return "Did you mean to call" in text or "bound method" in text or COROUTINE in text or None


def _await(asked: Asked) -> bool | None:
    """Let be what an override may give that is no coroutine."""
    if COROUTINE not in asked.diagnostic.text:
        return None
    call = asked.call()
    name = getattr(call.func, "attr", None) if call is not None else None
    if name is None:
        return True
    plain = re.compile(rb"^[ \t]*def\s+%b\b" % name.encode(), re.MULTILINE)
    return not is_mentioned(asked.world, name, plain)


class Rule(NamedTuple):
    """``always`` is asked wherever it stands, ``inside`` where the patch adds the line, and neither of a text without ``only``."""

    code: FindingCode
    always: Gate
    inside: Gate
    only: str = ""


_C = FindingCode
_NAMES_OF = {
    # An override, or one of a union, may be what is called.
    Rule(_C.FIT_CALL, argument, bound): (
        "missing-argument too-many-positional-arguments unknown-argument parameter-already-assigned positional-only-parameter-as-kwarg"
    ),
    # Types that vLLM states are often too narrow.
    Rule(_C.FIT_CALL, _value, takes): "invalid-argument-type",
    # Which overload was meant is not told, unless none takes so many.
    Rule(_C.FIT_TYPES, overload, overload): "no-matching-overload",
    # A class below, or somebody outside, may set it.
    Rule(_C.FIT_ATTRIBUTE, missing.lacks, missing.is_missing): "missing-attribute",
    # A module may make its names when asked.
    Rule(_C.FIT_IMPORT, missing.not_found, missing.not_found): "import-not-found",
    Rule(_C.FIT_IMPORT, missing.lacks, _yes): "missing-module-member",
    # The code may know which of a union it has.
    Rule(_C.FIT_ATTRIBUTE, _no, _no): "missing-union-attribute",
    # What has no known class may have the method, or the operator.
    Rule(_C.FIT_KIND, _is_known_kind, _kind): (
        "not-callable not-iterable not-subscriptable invalid-context-manager invalid-await"
    ),
    Rule(_C.FIT_KIND, _is_known_kind, _operands): "unsupported-operator",
    # An override may be no coroutine.
    Rule(_C.FIT_KIND, _await, _await): "unused-awaitable",
    # Only a method or a coroutine is never meant.
    Rule(_C.FIT_KIND, _truth, _truth): "redundant-condition truthiness-test-of-callable",
    # Only a coroutine is surely not what is stated.
    Rule(_C.FIT_KIND, _value, _value, only=COROUTINE): "invalid-explicit-return",
    # Python refuses it.
    Rule(_C.FIT_KIND, _cannot_be_made, _yes): "abstract-class-instantiation",
    # Python only refuses to unpack and to set what is frozen.
    Rule(_C.FIT_KIND, _assignment, _assignment): "invalid-assignment",
    # The default of a parameter, or of getattr, says nothing of its length.
    Rule(_C.FIT_KIND, _index, _index): "index-out-of-bounds",
    # What has no known type may be a class.
    Rule(_C.FIT_KIND, _kind, _kind): (
        "invalid-base unsupported-base invalid-raise invalid-exception-caught"
    ),
    # Who made a dictionary may know more of it than its type.
    Rule(_C.FIT_STRING, _key, _no): "invalid-typed-dict-key",
    # Python refuses the class, or the question.
    Rule(_C.FIT_KIND, _yes, _yes): (
        "isinstance-against-protocol isinstance-against-typed-dict inconsistent-mro duplicate-base conflicting-metaclass cyclic-class-definition "
        "instance-layout-conflict invalid-dataclass-field-order invalid-frozen-dataclass-subclass"
    ),
    # No path has set it.
    Rule(_C.FIT_UNDEFINED_NAME, missing.unset, _yes): "unresolved-reference unresolved-global",
    # A branch may be the only one that is ever taken.
    Rule(
        _C.FIT_UNDEFINED_NAME, missing.sometimes_unset, missing.sometimes_unset
    ): "possibly-unresolved-reference",
}
RULES: Mapping[str, Rule] = {n: rule for rule, names in _NAMES_OF.items() for n in names.split()}
"""The rules that are asked for; above each is what an error by it rests on."""


def judge(world: World, diagnostic: Diagnostic, *, gated: bool) -> Problem | None:
    """Return what counts of a diagnostic; ``gated`` says that its line is the patch's own, and may know more than ty."""
    rule = RULES[diagnostic.rule]
    asked = Asked(world, diagnostic)
    if asked.is_tolerant():
        return None
    if rule.code in _OF_VALUES and asked.is_compiled():
        return None
    sure = rule.always(asked)
    if gated and sure:
        sure = rule.inside(asked)
    if sure is None:
        return None
    level = Level.ERROR if sure and not asked.is_let_be() else Level.NOTE
    scope = scope_at(world, diagnostic.path, diagnostic.line)
    message = f"{asked.text(of_call=rule.code == FindingCode.FIT_CALL)} (ty: {diagnostic.rule})"
    token = (QUOTED.findall(diagnostic.text) or [""])[-1]
    place = diagnostic.path, diagnostic.line, scope
    code = asked.code(rule.code)
    key = (diagnostic.path, scope, token) if code == FindingCode.FIT_UNDEFINED_NAME else (message,)
    return Problem(code, *place, message, key, token, level)
