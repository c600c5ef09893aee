"""A diagnostic of the type checker with the code that it stands in, and the classes that its words name."""

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.problems import nearest
from vllm_mods.fit.search import class_at, classes_named, meant_in
from vllm_mods.fit.shapes import Class, Function, Symbol
from vllm_mods.fit.signatures import DefNode, ScopeNode, call_text, decorator_name, dotted
from vllm_mods.fit.walk import CodeSite, receiver, walk
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

# A type in back quotes, which may have some in it.
TYPE = r"`((?:[^`]|`[^`]*`(?=\W*`))*)`"
MEMBER = re.compile(rf"(?:Object of type|Class|Module) {TYPE} has no (?:attribute|member) `(\w+)`")
QUOTED = re.compile(r"`(\w+)`")
_TICKED = re.compile(r"`([\w.]+)`")
FUNCTION = re.compile(r"(?:bound method |def )")
COROUTINE = "CoroutineType["
MADE = (COROUTINE, "_GeneratorContextManager[", "_AsyncGeneratorContextManager[")
IGNORED = re.compile(rb"#\s*(?:type|ty|mypy|pyright):\s*ignore\b")
_CLASS = re.compile(r"(?:type\[|<class ')?(?:\w+\.)*(\w+)(?:\[.*\])?(?:'>|\])?")
_SUPER = re.compile(r"<super: <class '(\w+)'>")
_OF_OWN = re.compile(r", (?:type\[)?Self@(\w+)\]?>")
_NAMING = {"unresolved-reference", "missing-attribute", "missing-module-member"}
SELF = re.compile(r"(?:type\[)?Self@(\w+)\]?")
_UNKNOWN_ARGUMENTS = re.compile(r"\[(?:Unknown|Any)(?:, (?:Unknown|Any))*\]")
# ``X | Y``, ``X & Y``, ``~None`` and what may be anything
_VAGUE = re.compile(r"[|&~]|\b(?:Unknown|Any|Never|Protocol|TypeVar|Top)\b|^(?:object|type|None)$")


def _holds(node: ast.expr | ast.stmt, place: tuple[int, int]) -> bool:
    start = node.lineno, node.col_offset
    if isinstance(node, ScopeNode):
        start = syntax_tree.first_line(node), 0
    return start <= place < (node.end_lineno or 0, node.end_col_offset or 0)


@dataclass(frozen=True)
class Asked:
    """A diagnostic of a file after the patch, with the code around it."""

    world: World
    diagnostic: Diagnostic

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        data = self.world.glance(self.diagnostic.path) or b""
        return syntax_tree.module(data) or ast.Module([], [])

    @cached_property
    def member(self) -> re.Match[str] | None:
        """What is missing: its owner, then its name; ``None`` where it is something else that is said."""
        return MEMBER.search(self.diagnostic.text)

    @cached_property
    def sites(self) -> tuple[CodeSite, ...]:
        """The code around the place, the innermost first."""
        path, line, column, *_ = self.diagnostic
        text = self.world.row(path, line).decode(errors="replace")[: column - 1]
        place = line, len(text.encode())
        sites = [*walk(self.tree, frozenset((line,)))]
        return tuple(site for site in reversed(sites) if _holds(site.node, place))

    @property
    def around(self) -> tuple[ast.expr | ast.stmt, ...]:
        """The nodes around the place, the innermost first."""
        return tuple(site.node for site in self.sites)

    def text(self, *, of_call: bool) -> str:
        """Return the message: the code, of a call all of it, what ty says, and what there is instead."""
        words = self.diagnostic.text[:220]
        expression = self._expression(of_call=of_call)
        code = "" if expression is None else f"`{ast.unparse(expression)[:60]}`: "
        classes = self.classes(self.member[1]) if self.member else ()
        owner = next(iter(classes or (self.called_classes() if of_call else ())), None)
        instead = ""
        if owner and self.member:
            instead = nearest(self.member[2], attributes(self.world, lineage(self.world, owner)))
        where = f"; the class is {owner.text}" if owner else ""
        return f"{code}{words[:1].lower()}{words[1:]}{where}{instead}"

    def _expression(self, *, of_call: bool) -> ast.expr | None:
        """Return the code that is wrong: the call of an argument, else all that starts there."""
        if of_call:
            return self.call()
        all_ = [node for node in self.around if isinstance(node, ast.expr)]
        places = [(node.lineno, node.col_offset) for node in all_]
        starts = [node for node, at in zip(all_, places, strict=True) if at == places[0]]
        return starts[-1] if starts else None

    def call(self) -> ast.Call | None:
        """Return the call around the place that the words name, else the innermost."""
        calls = [node for node in self.around if isinstance(node, ast.Call)]
        named = {word for text in _TICKED.findall(self.diagnostic.text) for word in text.split(".")}
        named_first = sorted(calls, key=lambda one: call_text(one).rpartition(".")[2] not in named)
        return next(iter(named_first), None)

    def called_classes(self) -> tuple[Symbol, ...]:
        """Return the classes of the tree that the call makes one of."""
        return tuple(symbol for symbol in self.called() if isinstance(symbol.binding, Class))

    def called(self) -> tuple[Symbol, ...]:
        """Return the functions and classes of the tree that the call names."""
        call = self.call()
        name = None if call is None else dotted(call.func)
        if name is None:
            return ()
        scope = next((site.scope for site in self.sites if site.node is call), None)
        world, path = self.world, self.diagnostic.path
        symbols = meant_in(world, path, scope, name) if scope else world.resolve(path, name).symbols
        return tuple(symbol for symbol in symbols if isinstance(symbol.binding, Class | Function))

    def classes(self, kind: str) -> tuple[Symbol, ...]:
        """Return the classes of the tree that a type may name; none for a type of another kind."""
        if match := SELF.fullmatch(kind):
            return self._own_class(match[1])
        kind = _UNKNOWN_ARGUMENTS.sub("", kind)
        name = _SUPER.match(kind) or _CLASS.fullmatch(kind)
        named = classes_named(self.world, name[1]) if name and not _VAGUE.search(kind) else ()
        of_own = _OF_OWN.search(kind) if len(named) > 1 else None
        return (of_own and self._own_class(of_own[1])) or named

    def _own_class(self, function: str) -> tuple[Symbol, ...]:
        """Return the class around a function; none where a decorator may make no method of it."""
        scopes = self.sites[0].scope.around() if self.sites else ()
        methods = (one for one in scopes if getattr(one.node, "name", "") == function)
        method = next(filter(receiver, methods), None)
        found = method and class_at(self.world, self.diagnostic.path, method.parent)
        return (found,) if found else ()

    def code(self, of_rule: FindingCode) -> FindingCode:
        """Return the code of a member by what it is missing from: a module, a function, what may be None, ``getattr``."""
        member = self.member
        rule, text = self.diagnostic.rule, self.diagnostic.text
        if rule == "missing-union-attribute" and "on `None`" in text:
            return FindingCode.FIT_KIND
        if member is None:
            return of_rule
        if any(named_member(node) == member[2] for node in self.around):
            return FindingCode.FIT_STRING
        if text.startswith("Module"):
            return FindingCode.FIT_IMPORT
        called = FUNCTION.match(member[1]) or member[1].startswith(COROUTINE)
        return FindingCode.FIT_KIND if called else of_rule

    def is_let_be(self) -> bool:
        """Tell whether the author has told a type checker to let the call be that the place is in."""
        call = self.call()
        row = self.world.row(self.diagnostic.path, call.lineno) if call else b""
        return IGNORED.search(row) is not None

    def is_compiled(self) -> bool:
        """Tell whether a decorator hands the function around to another compiler, such as Triton's ``jit``."""
        functions = [node for node in self.around if isinstance(node, DefNode)]
        names = (decorator_name(one) for node in functions for one in node.decorator_list)
        return any(name.rpartition(".")[2] in {"jit", "kernel"} for name in names)

    def is_stating(self) -> bool:
        """Tell whether the place is in an annotation."""
        return bool(self.sites) and self.sites[0].scope.stating

    def is_tolerant(self) -> bool:
        """Tell whether the code says itself that it may be wrong, or is for type checkers only, as annotations are but for their names."""
        scopes = [site.scope for site in self.sites]
        named = self.diagnostic.rule in _NAMING and self.around[:1]
        runs = named and isinstance(named[0], ast.Name | ast.Attribute)
        runs = runs or self.diagnostic.rule == "unsupported-operator"  # ``"Text" | None``
        return any(one.tolerant or one.typing_only or (one.stating and not runs) for one in scopes)


def named_member(node: ast.AST) -> str | None:
    """Return the name that ``getattr(object, "name")`` reads, ``None`` for anything else."""
    match node:
        case ast.Call(
            func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name))], keywords=[]
        ) if name.isidentifier():
            return name
        case _:
            return None
