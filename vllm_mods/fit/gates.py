"""What of the type checker's words counts: one table, by rule.

An error is what a program breaks on whatever else may be true of its types. Where a patch adds a line, its author may
know more than the types that vLLM states: there the owner of a member, or what is called, has to be one
that nothing else can stand for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.problems import nearest
from vllm_mods.fit.search import classes_named, files_mentioning, subclasses
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import DefNode, decorator_name, dotted, every, transparent
from vllm_mods.fit.summary import target_names
from vllm_mods.fit.symbols import Symbol
from vllm_mods.fit.walk import CodeScope, walk
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

_TYPE = r"`((?:[^`]|`[^`]*`(?=\W*`))*)`"
_MEMBER = re.compile(
    rf"(?:Object of type|Class|Module) {_TYPE} has no (?:attribute|member) `(\w+)`"
)
_OF_TYPE = re.compile(rf"(?:[Oo]bjects?|base) (?:of|with) type {_TYPE}(?: and {_TYPE})?")
_SUBJECT = re.compile(rf"^(?:Operator `\S+` .*|.*?){_TYPE}")
_CALLED = re.compile(r"(?:function|method|constructor|to|of) `([\w.]+)`")
_ARGUMENT = re.compile(r"Expected `(.+?)`, found `(.+)`$")
_QUOTED = re.compile(r"`(\w+)`")
_SCALARS = re.compile(r"(?:int|str|float|bool|bytes|Literal\[.*\]|LiteralString)(?: & .*)?")
_CONTAINERS = re.compile(r"(?:list|dict|tuple|set|frozenset)\[.*\]")
_FUNCTION = re.compile(r"(?:bound method |def )")
_COROUTINE = "CoroutineType["
_CLASS = re.compile(r"(?:type\[|<class ')?(?:\w+\.)*(\w+)(?:\[.*\])?(?:'>|\])?")
_SUPER = re.compile(r"<super: <class '(\w+)'>")
_SELF = re.compile(r"(?:type\[)?Self@(\w+)\]?")
# ``X | Y``, ``X & Y``, ``~None`` and what may be anything
_VAGUE = re.compile(r"[|&~]|\b(?:Unknown|Any|Never|Protocol|TypeVar|Top)\b|^(?:object|type|None)$")
_UNION_CALL = "Attempted to call union type"
_LAUNCH = words(
    "num_warps num_stages num_ctas maxnreg waves_per_eu matrix_instr_nonkdim kpack warmup grid "
    "num_buffers_warp_spec num_consumer_groups reg_dec_producer reg_inc_consumer enable_warp_specialization launch_pdl "
    "launch_cooperative_grid"
)
# What gives a field of a pydantic model that is left out a value, or another name: an alias, a validator before the fields.
_FILLS = re.compile(
    rb"\b(?:validation_)?alias(?:_generator)?\s*=|root_validator|model_validator\((?:[^)]|\n)*?mode\s*=\s*[\"']before"
    rb"|[\"']wrap[\"'](?:.|\n)*?(?:setdefault\(|\bdata\[[^\]]+\]\s*=[^=]|\{\s*\*\*)"
)


class Verdict(NamedTuple):
    """What is made of a diagnostic; ``token`` is the name that it is about."""

    code: FindingCode
    level: Level
    text: str
    token: str = ""


@dataclass(frozen=True)
class Site:
    """A file after the patch, in which diagnostics are judged."""

    world: World
    path: str
    tree: ast.Module
    rows: tuple[bytes, ...]

    @classmethod
    def of(cls, world: World, path: str, data: bytes) -> Site:
        """Return the site of a file."""
        tree = syntax_tree.module(data) or ast.Module([], [])
        return cls(world, path, tree, tuple(data.splitlines()))

    def judge(self, said: Diagnostic, *, inside: bool) -> Verdict | None:
        """Return what counts of a diagnostic; ``inside`` says that the patch adds its line."""
        rule = RULES[said.rule]
        asked = Asked(self, said, tuple(self._around(said)))
        if asked.is_annotation() or asked.is_tolerant():
            return None
        sure = rule.always(asked)
        if sure is None:
            return None
        if inside and sure:
            sure = rule.inside(asked)
        if sure is None:
            return None
        level = Level.ERROR if sure else Level.NOTE
        token = (_QUOTED.findall(said.text) or [""])[-1]
        return Verdict(asked.code(rule.code), level, asked.text(), token)

    def _around(self, said: Diagnostic) -> list[ast.AST]:
        """Return the nodes around a place, the innermost first."""
        row = self.rows[said.line - 1] if said.line <= len(self.rows) else b""
        text = row.decode(errors="replace")[: said.column - 1]
        place = said.line, len(text.encode())
        found: list[ast.AST] = []
        for node in every(self.tree):
            if not isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword):
                continue
            start = node.lineno, node.col_offset
            if isinstance(node, DefNode | ast.ClassDef):
                start = syntax_tree.first_line(node), 0
            if start <= place < (node.end_lineno or 0, node.end_col_offset or 0):
                found.append(node)
        return sorted(found, key=_width)


def _width(node: ast.AST) -> tuple[int, int]:
    last, end = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
    first, start = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    return last - first, end - start if last == first else 0


@dataclass(frozen=True)
class Asked:
    """A diagnostic with the code around it; ``around`` are the nodes, the innermost first."""

    site: Site
    said: Diagnostic
    around: tuple[ast.AST, ...]

    def text(self) -> str:
        """Return the message: the code, what ty says of it, and what there is instead."""
        said = self.said.text[:220]
        expression = self._expression()
        code = "" if expression is None else f"`{ast.unparse(expression)[:60]}`: "
        owner = self.owner()
        where = f", {owner.text}" if owner else ""
        return f"{code}{said[:1].lower()}{said[1:]}{where}{self._nearest(owner)}"

    def _expression(self) -> ast.expr | None:
        """Return the code that is wrong: the call of an argument, else all that starts there."""
        inner = [node for node in self.around if isinstance(node, ast.expr)]
        if RULES[self.said.rule].code == FindingCode.FIT_CALL:
            return next((node for node in inner if isinstance(node, ast.Call)), None)
        starts = [
            n for n in inner if (n.lineno, n.col_offset) == (inner[0].lineno, inner[0].col_offset)
        ]
        return starts[-1] if starts else None

    def _nearest(self, owner: Symbol | None) -> str:
        member = _MEMBER.search(self.said.text)
        if member is None or owner is None:
            return ""
        names, _ = attributes(self.site.world, lineage(self.site.world, owner))
        return nearest(member[2], names)

    def owner(self) -> Symbol | None:
        """Return the class of the tree whose member is missing."""
        member = _MEMBER.search(self.said.text)
        classes = self.classes(member[1]) if member else ()
        return classes[0] if classes else None

    def classes(self, kind: str) -> tuple[Symbol, ...]:
        """Return the classes of the tree that a type may name; none for a type of another kind."""
        if match := _SELF.fullmatch(kind):
            return self._own_class(match[1])
        name = _SUPER.match(kind) or _CLASS.fullmatch(kind)
        return classes_named(self.site.world, name[1]) if name and not _VAGUE.search(kind) else ()

    def _own_class(self, function: str) -> tuple[Symbol, ...]:
        """Return the class around a function; none where a decorator may make no method of it."""
        nodes = iter(self.around)
        for node in nodes:
            if isinstance(node, DefNode) and node.name == function:
                names = {decorator_name(one) for one in node.decorator_list}
                first = [*node.args.posonlyargs, *node.args.args][:1]
                plain = all(map(transparent, names)) or (first and first[0].arg in {"self", "cls"})
                around = next((one for one in nodes if isinstance(one, ast.ClassDef)), None)
                if around is None or not plain:
                    return ()
                named = classes_named(self.site.world, around.name)
                here = [(one.path, one.cls.line) for one in named]
                place = self.site.path, around.lineno
                return tuple(one for one, at in zip(named, here, strict=True) if at == place)
        return ()

    def code(self, of_rule: FindingCode) -> FindingCode:
        """Return the code of a member by what it is missing from: a module, a function, what may be None, ``getattr``."""
        member = _MEMBER.search(self.said.text)
        if self.said.rule == "missing-union-attribute" and "on `None`" in self.said.text:
            return FindingCode.FIT_KIND
        if member is None:
            return of_rule
        if any(named_member(node) == member[2] for node in self.around):
            return FindingCode.FIT_STRING
        if self.said.text.startswith("Module"):
            return FindingCode.FIT_IMPORT
        called = _FUNCTION.match(member[1]) or member[1].startswith(_COROUTINE)
        return FindingCode.FIT_KIND if called else of_rule

    def is_annotation(self) -> bool:
        """Tell whether nobody evaluates what is said of."""
        inner: ast.AST | None = None
        for node in self.around:
            if inner is not None and inner in (
                getattr(node, "annotation", None),
                getattr(node, "returns", None),
            ):
                return True
            inner = node
        return False

    def is_tolerant(self) -> bool:
        """Tell whether the code says itself that it may be wrong, or is for type checkers only."""
        sites = walk(self.site.tree, frozenset((self.said.line,)))
        scopes: list[CodeScope] = [site.scope for site in sites]
        return any(scope.tolerant or scope.typing_only for scope in scopes)


def named_member(node: ast.AST) -> str | None:
    """Return the name that ``getattr(object, "name")`` reads, ``None`` for anything else."""
    match node:
        case ast.Call(
            func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name))], keywords=[]
        ) if name.isidentifier():
            return name
        case _:
            return None


# --- gates: True for an error, False for a note, None for nothing

Gate = Callable[[Asked], bool | None]


def _yes(_: Asked) -> bool:
    return True


def _no(_: Asked) -> bool:
    return False


def _is_plain(asked: Asked, kind: str, special: str = "") -> bool:
    """Tell whether a type is one that nothing else can stand for: a scalar, a function, a class of the tree.

    ``special`` is the method that is missing of a class: one below may have it.
    """
    if _SCALARS.fullmatch(kind) or _FUNCTION.match(kind) or kind.startswith(_COROUTINE):
        return True
    classes = asked.classes(kind)
    world = asked.site.world
    return bool(classes) and all(
        _is_known(world, one) and not (special and _may_have(world, one, special))
        for one in classes
    )


def _is_known(world: World, symbol: Symbol) -> bool:
    line = lineage(world, symbol)
    return (
        "Protocol" not in line.bases
        and not line.unknown
        and not any(one.cls.dynamic for one in line.classes)
    )


def _may_have(world: World, symbol: Symbol, name: str) -> bool:
    """Tell whether a class below has a member, or somebody sets it from outside."""
    for other in subclasses(world, symbol):
        line = lineage(world, other)
        if name in attributes(world, line)[0] or line.unknown:
            return True
    if name.startswith("__"):
        return False
    torch = lineage(world, symbol).torch
    word, mine = re.escape(name.encode()), symbol.cls.name.encode()
    stores = re.compile(rb"\b(?!self\b)\w+\.%b\s*(?::[^=\n]+)?=[^=]" % word)
    # ``replace_parameter(layer, "weight", …)``, ``setattr(layer, "weight", …)``, ``layer.register_buffer("weight", …)``
    quoted = re.compile(
        rb"(?<!hasattr)(?<!getattr)\(\s*\w[\w.]*\s*,\s*[\"']%b[\"']|\.(?:register_\w+|add_module)\(\s*[\"']%b[\"']"
        % (word, word)
    )
    for path, data in files_mentioning(world, (name,)):
        related = torch or mine in data
        if (torch and quoted.search(data)) or (related and stores.search(data)):
            return path != "" and True
    return False


def _member(asked: Asked) -> bool:
    member = _MEMBER.search(asked.said.text)
    if member is None or asked.said.text.startswith("Module"):
        return member is not None
    kind, name = member[1], member[2]
    if _FUNCTION.match(kind):
        stored = re.compile(rb"\.%b\s*=[^=]|[\"']%b[\"']" % (name.encode(), name.encode()))
        return not any(
            stored.search(data) for _, data in files_mentioning(asked.site.world, (name,))
        )
    if not _is_plain(asked, kind, name):
        return False
    world = asked.site.world
    if any(lineage(world, one).torch for one in asked.classes(kind)):
        # Packages outside set attributes of layers: one that is read elsewhere may be such.
        mine = _SELF.fullmatch(kind) is not None
        read = re.compile(rb"\.%b\b" % name.encode())
        files = files_mentioning(world, (name,))
        return mine or sum(len(read.findall(data)) for _, data in files) <= 1
    return True


def _lacks(asked: Asked) -> bool | None:
    """Ask our own reading of a module: names are made there that no checker sees. Of any object nothing is known."""
    member = _MEMBER.search(asked.said.text)
    if member is not None and member[1] == "object":
        return None
    if member is None or not asked.said.text.startswith("Module"):
        return True
    if any(isinstance(n, ast.Import | ast.ImportFrom) for n in asked.around):
        return None  # imports are judged by themselves
    where = asked.site.world.locate(member[1]).module
    if where is None:
        return None
    return True if asked.site.world.lookup(where, member[2]).exists is False else None


def _called_class(asked: Asked) -> tuple[Symbol, ...]:
    call = next((node for node in asked.around if isinstance(node, ast.Call)), None)
    name = dotted(call.func) if call is not None else None
    if name is None:
        return ()
    symbols = asked.site.world.resolve(asked.site.path, name).symbols
    return tuple(one for one in symbols if hasattr(one.binding, "bases"))


def _argument(asked: Asked) -> bool | None:
    """Leave out what a kernel is started with, and what pydantic fills in or lets be."""
    said = asked.said
    if said.rule == "unknown-argument" and not _LAUNCH.isdisjoint(_QUOTED.findall(said.text)):
        return None
    if "object.__init__" in said.text:
        return False
    world = asked.site.world
    for cls in _called_class(asked):
        line = lineage(world, cls)
        if "BaseModel" in line.bases:
            if said.rule != "missing-argument":
                return None
            texts = (_class_text(world, one) for one in line.classes)
            if any(_FILLS.search(text) for text in texts):
                return None
            missed = set(_QUOTED.findall(said.text))
            fields = {f.name: f for one in reversed(line.classes) for f in one.cls.fields}
            return any(name in fields and fields[name].required for name in missed) or None
    return True


def _class_text(world: World, symbol: Symbol) -> bytes:
    rows = (world.read(symbol.path) or b"").splitlines(keepends=True)
    return b"".join(rows[symbol.cls.line - 1 : symbol.cls.end])


def _call(asked: Asked) -> bool:
    """Let pass what may call another function than the one that ty tells of."""
    if _UNION_CALL in asked.said.more:
        return False
    called = _CALLED.search(asked.said.text)
    if called is None:
        return True
    owner, _, name = called[1].rpartition(".")
    world = asked.site.world
    if owner:
        classes = classes_named(world, owner.rpartition(".")[2])
        return bool(classes) and all(
            _is_stated(world, one)
            and (
                name in {"__init__", "__new__"}
                or not any(name in below.cls.methods for below in subclasses(world, one))
            )
            for one in classes
        )
    defined = re.compile(rb"^[ \t]*(?:async\s+)?def\s+%b\b" % name.encode(), re.MULTILINE)
    return any(defined.search(data) for _, data in files_mentioning(world, (name,)))


def _takes(asked: Asked) -> bool:
    builtin = "`isinstance`" in asked.said.text or "`issubclass`" in asked.said.text
    return builtin or _call(asked)


def _is_stated(world: World, symbol: Symbol) -> bool:
    return "Protocol" not in lineage(world, symbol).bases


_NUMBERS, _TEXTS = words("int float bool"), words("str bytes")


def _kind_of(kind: str) -> str:
    if match := re.match(r"Literal\[(.)", kind):
        return "str" if match[1] in "\"'" else "bytes" if match[1] == "b" else "int"
    return kind.partition("[")[0]


def _value(asked: Asked) -> bool:
    """Believe that a number is no text and a container neither; what else does not suit, a program may well take."""
    match = _ARGUMENT.search(asked.said.text)
    if match is None:
        return False
    wanted, given = match[1], match[2]
    if "`isinstance`" in asked.said.text or "`issubclass`" in asked.said.text:
        return _FUNCTION.match(given) is not None
    if wanted not in _NUMBERS | _TEXTS or "|" in given:
        return False
    kind = _kind_of(given)
    if _CONTAINERS.fullmatch(given):
        return True
    return kind in (_TEXTS if wanted in _NUMBERS else _NUMBERS)


def _kind(asked: Asked) -> bool:
    kinds = _kinds(asked.said.text)
    special = {
        "not-iterable": "__iter__",
        "not-callable": "__call__",
        "not-subscriptable": "__getitem__",
        "invalid-context-manager": "__enter__",
        "invalid-await": "__await__",
    }.get(asked.said.rule, "")
    return bool(kinds) and all(_is_plain(asked, kind, special) for kind in kinds)


def _kinds(text: str) -> list[str]:
    match = _OF_TYPE.search(text) or _SUBJECT.search(text)
    return [kind for kind in match.groups() if kind is not None] if match else []


def _operands(asked: Asked) -> bool:
    """Be sure of operands that are builtin, functions or coroutines, or of classes that have no such operator."""
    kinds = _kinds(asked.said.text)
    return bool(kinds) and all(
        _CONTAINERS.fullmatch(kind) or _is_plain(asked, kind) for kind in kinds
    )


def _assignment(asked: Asked) -> bool | None:
    text = asked.said.text
    if "values to unpack" in text:
        return True
    if "is read-only" in text or "read-only property" in text:
        return True
    return False if "unresolved attribute" in text else None


def _truth(asked: Asked) -> bool | None:
    text = asked.said.text
    return True if "bound method" in text or _COROUTINE in text else None


def _await(asked: Asked) -> bool | None:
    """An override that is no coroutine may be meant."""
    if _COROUTINE not in asked.said.text:
        return None
    call = next((node for node in asked.around if isinstance(node, ast.Call)), None)
    name = getattr(call.func, "attr", None) if call is not None else None
    if name is None:
        return True
    plain = re.compile(rb"^[ \t]*def\s+%b\b" % name.encode(), re.MULTILINE)
    return not any(plain.search(data) for _, data in files_mentioning(asked.site.world, (name,)))


def _reference(asked: Asked) -> bool | None:
    """Names that nothing defines are looked for by themselves; here are those that are not set yet."""
    names = _QUOTED.findall(asked.said.text)
    inside = [one for one in asked.around if isinstance(one, DefNode)]
    if not names or not inside:
        return None
    if asked.said.rule == "unresolved-global":
        # a plain assignment makes the global
        stores = [n for n in every(asked.site.tree) if names[0] in bound_by(n)]
        return all(isinstance(n, ast.AugAssign | ast.Delete) for n in stores) or None
    bound = any(names[0] in bound_by(node) for node in every(inside[0]))
    return True if bound else None


def bound_by(node: ast.AST) -> tuple[str, ...]:
    """Return what one node binds by itself; an assignment its plain names."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return tuple(name for target in targets for name in target_names(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            return tuple(target_names(target))
        case ast.NamedExpr(target=ast.Name(id=name)):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias():
            return ((node.asname or node.name).partition(".")[0],)
        case ast.ExceptHandler(name=str(name)):
            return (name,)
        case ast.withitem(optional_vars=target):
            return tuple(target_names(target))
        case _:
            return ()


def _possibly(asked: Asked) -> bool | None:
    return None if _is_correlated(asked) else False


def _is_correlated(asked: Asked) -> bool:
    """Tell whether a condition or an exit between the branch that sets a name and its use may know better."""
    names = _QUOTED.findall(asked.said.text)
    function = next((one for one in asked.around if isinstance(one, DefNode)), None)
    if not names or function is None:
        return True
    blocks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)
    depth = list(asked.around).index(function)
    if any(isinstance(one, blocks) for one in asked.around[:depth]):
        return True
    line, asked_for, setting = asked.said.line, set[str](), 0
    for node in every(function):
        if isinstance(node, ast.If) and node.lineno < line and names[0] in _stored(node):
            asked_for |= _named(node.test)
            setting = max(setting, node.end_lineno or 0)
    if not setting:
        return True  # a loop or a try: whether it ran, nobody knows
    exits = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)
    return any(
        isinstance(node, ast.stmt)
        and setting < node.lineno < line
        and any(isinstance(inner, exits) for inner in every(node))
        and asked_for & _named(node)
        for node in function.body
    )


def _stored(node: ast.AST) -> set[str]:
    names = (n for n in every(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in names}


def _named(node: ast.AST) -> set[str]:
    names = (getattr(inner, "id", getattr(inner, "attr", None)) for inner in every(node))
    return {name for name in names if name is not None}


class Rule(NamedTuple):
    """``always`` is asked wherever it stands, ``inside`` where the patch adds the line. ``why`` says what for."""

    code: FindingCode
    always: Gate
    inside: Gate
    why: str


_C = FindingCode
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        words(
            "missing-argument too-many-positional-arguments unknown-argument parameter-already-assigned "
            "positional-only-parameter-as-kwarg"
        ),
        Rule(
            _C.FIT_CALL, _argument, _call, "an override, or one of a union, may be what is called"
        ),
    ),
    "invalid-argument-type": Rule(
        _C.FIT_CALL, _value, _takes, "types that vLLM states are often too narrow"
    ),
    "no-matching-overload": Rule(_C.FIT_CALL, _no, _no, "which overload was meant is not told"),
    "missing-attribute": Rule(
        _C.FIT_ATTRIBUTE, _lacks, _member, "a class below, or somebody outside, may set it"
    ),
    "missing-module-member": Rule(
        _C.FIT_IMPORT, _lacks, _yes, "a module may make its names when asked"
    ),
    "missing-union-attribute": Rule(
        _C.FIT_ATTRIBUTE, _no, _no, "the code may know which of a union it has"
    ),
    **dict.fromkeys(
        words("not-callable not-iterable not-subscriptable invalid-context-manager invalid-await"),
        Rule(_C.FIT_KIND, _yes, _kind, "what has no known class may have the method"),
    ),
    "unsupported-operator": Rule(
        _C.FIT_KIND, _yes, _operands, "what has no known class may have the operator"
    ),
    "unused-awaitable": Rule(_C.FIT_KIND, _await, _await, "an override may be no coroutine"),
    **dict.fromkeys(
        words("redundant-condition truthiness-test-of-callable"),
        Rule(_C.FIT_KIND, _truth, _truth, "only a method or a coroutine is never meant"),
    ),
    "abstract-class-instantiation": Rule(_C.FIT_KIND, _yes, _yes, "Python refuses it"),
    "invalid-assignment": Rule(
        _C.FIT_KIND,
        _assignment,
        _assignment,
        "Python only refuses to unpack and to set what is frozen",
    ),
    "index-out-of-bounds": Rule(
        _C.FIT_KIND, _yes, _yes, "the length of a tuple is known or it is not said"
    ),
    **dict.fromkeys(
        words("invalid-base unsupported-base invalid-raise invalid-exception-caught"),
        Rule(_C.FIT_KIND, _kind, _kind, "what has no known type may be a class"),
    ),
    **dict.fromkeys(
        words(
            "invalid-dataclass-field-order inconsistent-mro duplicate-base conflicting-metaclass "
            "cyclic-class-definition instance-layout-conflict invalid-frozen-dataclass-subclass"
        ),
        Rule(_C.FIT_KIND, _yes, _yes, "Python refuses the class"),
    ),
    **dict.fromkeys(
        words("unresolved-reference unresolved-global"),
        Rule(_C.FIT_UNDEFINED_NAME, _reference, _yes, "no path has set it"),
    ),
    "possibly-unresolved-reference": Rule(
        _C.FIT_UNDEFINED_NAME,
        _possibly,
        _possibly,
        "a branch may be the only one that is ever taken",
    ),
}
"""The rules that are asked for, and what an error by them rests on."""
