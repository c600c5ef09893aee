"""Whether an override takes every call that the tree makes to what it overrides."""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.bodies import arities, definition, is_generator, length_of, only_raises
from vllm_mods.fit.calls import MethodCall, calls_of, receiver_types
from vllm_mods.fit.hierarchy import TORCH_MODULE, lineage
from vllm_mods.fit.problems import Answers, Doubt, Problem, Problems
from vllm_mods.fit.search import class_at, classes_in, definers, is_mentioned, meant_in, subclasses
from vllm_mods.fit.shapes import Function, Symbol, words
from vllm_mods.fit.signatures import DefNode, dotted, every, is_name, refusal
from vllm_mods.fit.walk import receiver
from vllm_mods.fit.world import World

# Methods that Python calls, each class in its own way.
_OWN = words("__new__ __init_subclass__ __post_init__ __class_getitem__")
# ``{"A": B}``, ``register(B, name="A")``, ``@A.register()`` above ``class B``, ``A.register(B)``
_REGISTERED = (
    rb"""["']%(A)b["']\s*[:,]\s*(?:\w+=|["'][\w.:]*[.:])?%(B)b\b|\b%(B)b,\s*(?:\w+=)?["']%(A)b["']"""
    rb"""|(?:["']%(A)b["']|\b%(A)b\.register)[^\n]*\n[ \t]*class %(B)b\b|\b%(A)b\.register\w*\(%(B)b\b"""
)
_WORD = re.compile(r"\w+")
_ANYTHING = words("Unknown Any object Never")
_USES = ast.Attribute | ast.Subscript | ast.BinOp | ast.Compare | ast.For | ast.Tuple
# Names that builtin types and tensors have as well: a receiver of unknown type may be one.
_COMMON = TORCH_MODULE.union(*(dir(kind) for kind in (dict, list, str, set, tuple, bytes)))


class Override(NamedTuple):
    """A method that stands in for another one further up."""

    owner: Symbol
    method: Function
    base: Symbol
    overridden: Function


class Taker(NamedTuple):
    """A function as it takes calls, and its code."""

    function: Function
    node: DefNode | ast.Lambda | None

    @property
    def lengths(self) -> frozenset[int | None]:
        """How many values it gives, ``None`` for what can't be told."""
        if isinstance(self.node, ast.Lambda):
            return frozenset((length_of(self.node.body),))
        return arities(self.node) or frozenset((None,))

    @property
    def form(self) -> tuple[object, ...]:
        """What of it a call of a method may meet."""
        return self.function.unbound, self.function.asynchronous, self.lengths

    @property
    def gives_no_coroutine(self) -> bool:
        """Whether all that it returns is something that nobody can wait for."""
        returned = [n.value for n in every(self.node or ast.Pass()) if isinstance(n, ast.Return)]
        plain = ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Set | ast.JoinedStr | None
        is_plain = all(isinstance(one, plain) for one in returned)
        return isinstance(self.node, ast.FunctionDef) and is_plain


def overrides_of(world: World, owner: Symbol, names: frozenset[str]) -> Iterator[Override]:
    """Yield what some methods of a class override in the tree."""
    line = lineage(world, owner)
    binding = owner.cls
    for name in sorted(names):
        mangled = name.startswith("__") and not name.endswith("__")
        if name in _OWN or mangled or name not in binding.methods:
            continue
        mine = binding.methods[name]
        for base in line.classes[1:]:
            if name in base.cls.methods:
                theirs = base.cls.methods[name]
                if len(mine) == 1 and len(theirs) == 1:
                    yield Override(owner=owner, method=mine[0], base=base, overridden=theirs[0])
                break


def learn_receivers(world: World, overrides: Iterable[Override]) -> None:
    """Ask at once for the types that judging some overrides asks for one after the other, but those of calls that share a line."""
    calls: dict[MethodCall, None] = {}
    for owner, mine, base, theirs in overrides:
        new = Taker(mine, definition(world, owner.path, mine))
        old = Taker(theirs, definition(world, base.path, theirs))
        calls |= dict.fromkeys(c for c in calls_of(world, mine.name) if broken(c, old, new))
    lines = Counter((call.path, call.receiver.lineno) for call in calls)
    alone = tuple(call for call in calls if lines[call.path, call.receiver.lineno] == 1)
    world.answers[receiver_types] = receiver_types(world, alone)


def override_problems(world: World, override: Override, path: str, line: int) -> Answers:
    """Judge an override by the calls that the tree makes; the answer is about a ``path`` and ``line`` of a changed file."""
    mine, theirs = override.method, override.overridden
    if mine.name == "__init__":  # each class has its own, but for a plugin's that stands for vLLM's
        yield from _constructor_problems(world, override, (path, line)) if world.origin else ()
        return
    if mine.is_property or theirs.is_property:
        yield from _other_kind(world, override, (path, line))
        return
    if (mine.marks ^ theirs.marks) & {"staticmethod", "classmethod"}:
        return
    new = Taker(mine, definition(world, override.owner.path, mine))
    old = Taker(theirs, definition(world, override.base.path, theirs))
    if new.form == old.form or only_raises(world, override.owner.path, mine):
        return
    refused = {c: why for c in calls_of(world, mine.name) if (why := broken(c, old, new))}
    opaque = mine.opaque_decorator or theirs.opaque_decorator
    if refused and opaque is not None:
        yield Doubt(path, "override", f"the method is decorated with {opaque}")
        return
    kinds = receiver_types(world, tuple(refused))
    vague = 0
    for call, why in refused.items():
        reached = reaches(world, call, override, kinds.get(call, ""))
        if reached:
            problem = _problem(override, (path, line), why)
            if _is_called_its_own_way(world, override, call):
                problem = problem._replace(level=Level.NOTE)
            yield problem
            return
        vague += reached is None
    if vague:
        why = f"{vague} calls of {mine.name} may reach this method, but the type of the receiver is unknown"
        yield Doubt(path, "override", why)


def _constructor_problems(world: World, override: Override, place: tuple[str, int]) -> Problems:
    """Judge the calls by a base's name that may make one of a class: the name is a variable, or the base chooses in ``__new__``."""
    base, mine, theirs = override.base, override.method, override.overridden
    open_ = any(one.kind is one.VAR_KEYWORD for one in mine.parameters)
    more = {one.name for one in theirs.parameters} - {one.name for one in mine.parameters}
    if open_ or not more:
        return
    names = {b"A": base.cls.name.encode(), b"B": override.owner.cls.name.encode()}
    registered, variable = re.compile(_REGISTERED % names), re.compile(rb"\b%(A)b = " % names)
    chooses = lineage(world, base).owner("__new__") is not None
    if chooses:
        own = filter(None, map(world.read, world.files))
        both = (data for data in own if all(map(data.__contains__, names.values())))
        chooses = any(map(registered.search, both))
    if not (chooses or is_mentioned(world, base.cls.name, variable)):
        return
    for call in calls_of(world, base.cls.name, rb"\b"):
        name = dotted(call.node.func) or ""
        meant = meant_in(world, call.path, call.scope, name)
        is_other = meant == (base,) if chooses else name == base.cls.name and not meant
        if is_other and (why := broken(call, Taker(theirs, None), Taker(mine, None))):
            yield _problem(override, place, why)
            return


def broken(call: MethodCall, old: Taker, new: Taker, *, bound: bool = True) -> str:
    """Say what of a call that suited what was there does not suit what is put in, ``""`` if it does."""
    pair = old.function, new.function
    before, after = (f.unbound if bound or "classmethod" in f.marks else f.parameters for f in pair)
    where = f"the call in {call.path}:{call.node.lineno}"
    if (why := refusal(after, call.node)) and refusal(before, call.node) is None:
        return f"{where} {why}"
    use, node = call.use, new.node
    if isinstance(use, ast.Await) and old.function.asynchronous and new.gives_no_coroutine:
        return f"{where} awaits the result, which is not a coroutine"
    slow = isinstance(node, ast.AsyncFunctionDef) and not is_generator(node)
    if slow and not old.function.asynchronous:
        return f"{where} uses the result without awaiting it" if isinstance(use, _USES) else ""
    if not isinstance(use, ast.Tuple) or any(isinstance(one, ast.Starred) for one in use.elts):
        return ""
    many, lengths = len(use.elts), new.lengths
    if None in lengths or many in lengths:
        return ""
    gives = " or ".join(str(length) for length in sorted(lengths, key=str))
    return f"{where} unpacks {many} values, but gets {gives}"


def _other_kind(world: World, override: Override, place: tuple[str, int]) -> Problems:
    """Say that a property overrides a method, or a method a property, which somebody uses as what it was."""
    mine, theirs = override.method, override.overridden
    was = theirs.is_property
    if was is mine.is_property or (mine if was else theirs).opaque_decorator:
        return
    used = rb"\.%b\b(?!\s*[(=])" if was else rb"\.%b\("
    if is_mentioned(world, mine.name, re.compile(used % mine.name.encode())):
        kind = "a property" if was else "a method"
        problem = _problem(override, place, f"that is {kind}, and callers use it as {kind}")
        yield problem if _only_family(world, override) else problem._replace(level=Level.NOTE)


def _is_called_its_own_way(world: World, override: Override, call: MethodCall) -> bool:
    """Tell whether the package of a class calls it as only it can be called, or brings the caller too: which one runs, a plugin decides."""
    root = override.owner.path.partition("/")[0] + "/"
    if call.path.startswith(root):
        return False
    mine, theirs = override.method.unbound, override.overridden.unbound
    around = next((one for one in call.scope.around() if receiver(one)), None)
    caller = class_at(world, call.path, around.parent) if around else None
    below = subclasses(world, caller) if caller else ()
    method = around.name.rpartition(".")[2] if around else ""
    callers = {f"{one.cls.name}.{method}" for one in below if one.path.startswith(root)}
    calls = (one for one in calls_of(world, override.method.name) if one.path.startswith(root))
    bound = (one for one in calls if not _is_above(one) and refusal(mine, one.node) is None)
    return any(one.scope.name in callers or refusal(theirs, one.node) is not None for one in bound)


def _problem(override: Override, place: tuple[str, int], why: str) -> Problem:
    owner, base = override.owner.cls, override.base.cls
    mine = override.method
    scope = f"{owner.name}.{mine.name}"
    message = f"{scope}{mine.text()} overrides {base.name}.{mine.name}{override.overridden.text()}, but {why}"
    if override.owner.path != place[0]:
        message = f"{override.owner.path}:{mine.line}: {message}"
    key = (override.owner.path, owner.name, mine.name)
    return Problem(FindingCode.FIT_OVERRIDE, *place, scope, message, key, token=mine.name)


def reaches(  # noqa: PLR0911 - an answer per kind of receiver
    world: World, call: MethodCall, override: Override, kind: str
) -> bool | None:
    """Tell whether a call may reach an override; ``None`` for "can't tell". ``kind`` is the type of its receiver."""
    mine = override.method
    me, first = receiver(call.scope), next(iter(call.node.args), None)
    if me is not None and first is not None and is_name(first, me):
        return False  # ``Base[Info].m(self)`` names the method that it wants
    if _is_above(call):
        return False
    above = {one.cls.name: one for one in lineage(world, override.owner).classes}
    if _is_shut_out(call, above.keys()):
        return False
    is_own = me is not None and is_name(call.receiver, me)
    here = class_at(world, call.path, call.scope.parent) if is_own else None
    named = {here.cls.name} if here else set(_WORD.findall(kind))
    if named & _ANYTHING or not named:
        if mine.name in _COMMON or not _only_family(world, override):
            return None
        return True
    is_override = override.owner != override.base
    if is_override and "class" in named and "classmethod" not in mine.marks:
        return False  # ``Base.m(object)``
    if isinstance(call.receiver, ast.Call) and dotted(call.receiver.func) in named:
        return override.owner.cls.name in named  # made there: nothing below stands for it
    if named.isdisjoint(above) or (here is not None and here not in above.values()):
        return False
    return not _shadows(world, call, override)


def _is_above(call: MethodCall) -> bool:
    return isinstance(call.receiver, ast.Call) and dotted(call.receiver.func) == "super"


def _is_shut_out(call: MethodCall, classes: Collection[str]) -> bool:
    """Tell whether the code before a call raises for what is none of some other classes: ``if not issubclass(x, A): raise``."""
    receiver_text = ast.unparse(call.receiver)
    for scope in call.scope.in_function():
        body = scope.node.body if isinstance(scope.node, DefNode) else []
        stored = [node for node in body if isinstance(node, ast.Assign)]
        values = {name: one.value for one in stored for name in map(dotted, one.targets)}
        for node in body:
            match node:
                case ast.If(
                    test=ast.UnaryOp(
                        op=ast.Not(), operand=ast.Call(func=ast.Name(id=asks), args=[what, kinds])
                    ),
                    body=[*_, ast.Raise()],
                ) if asks in {"issubclass", "isinstance"} and ast.unparse(what) == receiver_text:
                    named = every(values.get(dotted(kinds), kinds))
                    if {n.id for n in named if isinstance(n, ast.Name)}.isdisjoint(classes):
                        return node.lineno < call.node.lineno
    return False


def _shadows(world: World, call: MethodCall, override: Override) -> bool:
    """Tell whether a call on ``self`` stands in a method that the override's class replaces."""
    scope = next((one for one in call.scope.around() if receiver(one)), None)
    if scope is None:
        return False
    here = class_at(world, call.path, scope.parent)
    name = scope.name.rpartition(".")[2]
    line = lineage(world, override.owner)
    owner = line.owner(name)
    if here is None or here not in line.classes or owner is None or owner[0] == here:
        return False
    return b"super().%b(" % name.encode() not in (world.read(owner[0].path) or b"")


def _only_family(world: World, override: Override) -> bool:
    """Tell whether every class that defines the method has the overridden one as a base."""
    name = override.method.name
    line = lineage(world, override.base)
    root = [found for found in line.classes if name in found.cls.methods][-1]
    return all(root in lineage(world, found).classes for found in definers(world, name))


def changed_methods(
    before: World, after: World, path: str
) -> Iterator[tuple[Symbol, frozenset[str], frozenset[str]]]:
    """Yield each class of a file with its methods to judge as overrides (changed, or all of changed bases), and as overridden (of other calls)."""
    old = dict(classes_in(before, path))
    for name, symbol in classes_in(after, path):
        binding = symbol.cls
        was = old[name].cls if name in old else None
        if was is None or was.bases != binding.bases:
            yield symbol, frozenset(binding.methods), frozenset()
            continue
        own, old_own = binding.methods, was.methods
        pairs = ((method, own[method], old_own.get(method, ())) for method in own)
        changed = frozenset(m for m, now, then in pairs if _signature(now) != _signature(then))
        if changed:
            yield symbol, changed, changed & frozenset(was.methods)


def _signature(functions: tuple[Function, ...]) -> tuple[object, ...]:
    return tuple((f.parameters, f.decorators, f.asynchronous) for f in functions)
