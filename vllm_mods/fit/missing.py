"""Members and names that the type checker finds missing: whether nothing else can stand for what a member is missing from, or set a name."""

import ast
import re

from vllm_mods.fit.asked import FUNCTION, MADE, QUOTED, SELF, Asked
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.search import (
    classes_named,
    files_mentioning,
    is_composed,
    is_mentioned,
    subclasses,
)
from vllm_mods.fit.shapes import Class, Lineage, Symbol, is_standard, words
from vllm_mods.fit.signatures import DefNode, ScopeNode, bindings, every
from vllm_mods.fit.world import World

_SCALARS = re.compile(r"(?:str|bytes|Literal\[.*\]|LiteralString)(?: & .*)?")
# What is stated to be a number may be a tensor of one, which nobody can call, enter or wait for either.
NUMBERS = words("int float bool")
_NOT_OF_TENSORS = words("__call__ __enter__ __await__")
_STORED_ON_SELF = re.compile(r"^Unresolved attribute .* on type `Self@")
_TYPE_VARIABLE = re.compile(r"(?:type\[)?\w+@\w+\]?")
_INTERFACES = words(
    "Iterable Iterator Sequence MutableSequence Mapping MutableMapping Set MutableSet Collection Container Callable "
    "Awaitable AsyncIterator AsyncIterable Generator AsyncGenerator Buffer Hashable Sized"
)


def is_plain(asked: Asked, kind: str, special: str = "") -> bool:
    """Tell whether nothing else can stand for a type: a scalar, a function, a class of the tree with none below that has the ``special`` method."""
    if kind in NUMBERS:
        return special in _NOT_OF_TENSORS
    if _SCALARS.fullmatch(kind) or FUNCTION.match(kind) or kind.startswith(MADE):
        return True
    classes = asked.classes(kind)
    world = asked.world
    above = kind.startswith("<super")
    known = bool(classes) and all(_is_known(asked, one, special) for one in classes)
    may_have = (_may_have(world, one, special, above=above) for one in classes)
    return known and not (special and any(may_have))


def _is_known(asked: Asked, symbol: Symbol, special: str) -> bool:
    line = lineage(asked.world, symbol)
    dynamic = [one.cls for one in line.classes if one.cls.dynamic]
    # a class without a member says nothing of what is handed around under its name
    has_members = any(one.cls.attributes for one in line.classes)
    is_whole = "Protocol" not in line.bases and not line.unknown
    return is_whole and has_members and (not dynamic or _is_called_in_vain(asked, dynamic, special))


def _is_called_in_vain(asked: Asked, dynamic: list[Class], name: str) -> bool:
    """Tell whether a method is called that stands nowhere else: computed names are those of fields, and what a platform lacks is ``None``."""
    any_name = words("__getattr__ __getattribute__")
    return (
        any(getattr(getattr(node, "func", None), "attr", "") == name for node in asked.around)
        and all(c.name == "Platform" or any_name.isdisjoint(c.methods) for c in dynamic)
        and not is_mentioned(asked.world, name, re.compile(rb"(?<!\.)\b%b\b" % name.encode()))
        and not is_composed(asked.world, name)
    )


def _may_have(world: World, symbol: Symbol, name: str, *, above: bool) -> bool:
    """Tell whether a class below has a member, or one that comes behind a class in its line; or somebody sets it from outside."""
    for other in subclasses(world, symbol):
        line = lineage(world, other)
        if above and symbol in line.classes:
            line = line._replace(classes=line.classes[line.classes.index(symbol) + 1 :])
        if name in attributes(world, line) or line.unknown:
            return True
    return not name.startswith("__") and _is_set_outside(world, symbol, name)


def _is_set_outside(world: World, symbol: Symbol, name: str) -> bool:
    """Tell whether somebody may set a member of a class from outside."""
    torch = lineage(world, symbol).torch
    word, mine = re.escape(name.encode()), symbol.cls.name.encode()
    stores = re.compile(rb"\b(?!self\b)\w+\.%b\s*(?::[^=\n]+)?=[^=]" % word)
    # ``replace_parameter(layer, "weight", …)``, ``setattr(layer, "weight", …)``, ``layer.register_buffer("weight", …)``
    quoted = re.compile(
        rb"(?<!hasattr)(?<!getattr)\(\s*\w[\w.]*\s*,\s*[\"']%b[\"']|\.(?:register_\w+|add_module)\(\s*[\"']%b[\"']"
        % (word, word)
    )
    return any(
        (torch and quoted.search(data))
        # what the patch writes counts where it runs before: ``run_time``
        or (path not in world.files and (torch or mine in data) and stores.search(data))
        for path, data in files_mentioning(world, (name,))
    )


def is_missing(asked: Asked) -> bool:
    """Tell whether a member on a line of the patch is missing of what nothing else can stand for."""
    if asked.member is None:
        text = asked.diagnostic.text
        # what a method stores there is, but for ``__slots__``; ty does not look into functions inside a method
        scopes = [node for node in asked.around if isinstance(node, ScopeNode)]
        inside = any(isinstance(node, DefNode) for node in scopes[1:2])
        is_past_slots = _STORED_ON_SELF.search(text) and not inside
        return "not on the class object `<class" in text or bool(is_past_slots)
    if asked.diagnostic.text.startswith("Module"):
        return True
    kind, name = asked.member.groups()
    if FUNCTION.match(kind):
        stored = re.compile(rb"\.%b\s*=[^=]|[\"']%b[\"']" % (name.encode(), name.encode()))
        return not is_mentioned(asked.world, name, stored)
    if not is_plain(asked, kind, name):
        return False
    world = asked.world
    if any(lineage(world, one).torch for one in asked.classes(kind)):
        # Others set attributes of layers, or make their methods those of another class: what is read elsewhere may be such.
        read = re.compile(rb"\.%b\b" % name.encode())
        readers = [p for p, data in files_mentioning(world, (name,)) for _ in read.findall(data)]
        is_own = SELF.fullmatch(kind) and {*readers} == {asked.diagnostic.path}
        # ``for name in ("scale", …): setattr(layer, name, …)``, ``setattr(layer, f"{kind}scale", …)``
        quoted = re.compile(rb"[\"'}]%b[\"'{]" % name.encode())
        return len(readers) <= 1 or bool(is_own and not is_mentioned(world, name, quoted))
    return True


def lacks(asked: Asked) -> bool | None:
    """Believe what is missing of a plain class, and what any had at the origin."""
    sure, member = _lacks(asked), asked.member
    if sure is not False or member is None:
        return sure
    return all(_had_member(asked, kind, member[2]) for kind in member[1].split(" | "))


def _lacks(asked: Asked) -> bool | None:  # noqa: PLR0911 - an answer per kind of owner
    """Doubt what a layer is given by others, and a protocol by what stands behind it."""
    if asked.member is None:
        return asked.world.origin is None or is_missing(asked)
    owner, name = asked.member.groups()
    if owner in {"object", "type", "Module"}:
        return None
    if asked.diagnostic.text.startswith("Module"):
        return _module_lacks(asked, owner, name)
    above = int(owner.startswith("<super"))
    kinds = owner.split(" | ")
    lines = [lineage(asked.world, one) for kind in kinds for one in asked.classes(kind)]
    lines = [line._replace(classes=line.classes[above:]) for line in lines]
    if any(name in attributes(asked.world, line) for line in lines):
        return None  # set in a function inside a method, where ty does not look
    # the standard library's interfaces are protocols as well
    of_protocol = any("Protocol" in line.bases for line in lines)
    if "Protocol" in owner or owner.partition("[")[0] in _INTERFACES or of_protocol:
        return False
    asks = re.compile(rf"hasattr\([^,]+, '{name}'\)|getattr\([^,]+, '{name}', ")
    functions = (ast.unparse(one) for one in asked.around if isinstance(one, DefNode))
    if not all(line.classes for line in lines) or any(map(asks.search, functions)):
        return None  # ``super()`` in a mixin
    if above or SELF.fullmatch(owner):  # a mixin has what those have that it is mixed into
        mixed = any(_is_mixin(asked.world, line) for line in lines)
        return is_plain(asked, owner, name) and not mixed
    if _TYPE_VARIABLE.fullmatch(owner):  # any class may be meant
        return False
    if not any(line.torch for line in lines):
        return True
    return False if len(kinds) > 1 else is_missing(asked)


def _had_member(asked: Asked, kind: str, name: str) -> bool:
    """Tell whether a class had a member at the origin, and since then no class below has got it, nor has anybody begun to set it from outside."""
    world, origin, classes = asked.world, asked.world.origin, asked.classes(kind)
    if origin is None or not classes:
        return False
    for one in classes:
        named = classes_named(origin, one.cls.name)
        was = [there for there in named if there.path == one.path] or named
        below = [other for other in subclasses(world, one) if other.path not in world.files]
        new = any(name in attributes(world, lineage(world, other)) for other in below)
        new |= _is_set_outside(world, one, name) and not _is_set_outside(origin, one, name)
        had = [name in attributes(origin, lineage(origin, there)) for there in was]
        if new or not had or not all(had):
            return False
    return True


def _is_mixin(world: World, line: Lineage) -> bool:
    """Tell whether nobody makes a class without a base, or names it but in a string, as vLLM's ``worker_extension_cls``."""
    name = line.classes[0].cls.name.encode()
    if len(line.classes) != 1 or line.outside or line.owner("__init__") is not None:
        return False
    named = re.compile(rb"(?<!class )(?<![\w.])%b\b|[\"'][\w.]+[.:]%b[\"']" % (name, name))
    files = files_mentioning(world, (name.decode(),))
    texts = [text for _, data in files for text in named.findall(data)]
    return bool(texts) and all(text[:1] in b"\"'" for text in texts)


def _module_lacks(asked: Asked, module: str, name: str) -> bool | None:
    """Ask our own reading: modules make names that no checker sees. Imports are judged by themselves."""
    world = asked.world
    where = world.locate(module).module
    if where is None:
        return not_found(asked)
    if any(isinstance(n, ast.Import | ast.ImportFrom) for n in asked.around):
        return None
    return True if world.lookup(where, name).exists is False else None


def not_found(asked: Asked) -> bool | None:
    """Believe what the standard library has not, unless the code expects that."""
    module = asked.diagnostic.text.split("`")[1]
    return (is_standard(module) and not any(site.scope.guarded for site in asked.sites)) or None


# --- names

_BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match | ast.IfExp | ast.BoolOp
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)


def unset(asked: Asked) -> bool | None:
    """Believe what is not set yet in its function, and what our own reading does not find in the module either."""
    names = QUOTED.findall(asked.diagnostic.text)
    if not names or not asked.sites:
        return None
    if asked.diagnostic.rule == "unresolved-global":
        # a plain assignment makes the global
        more = {n.target for n in every(asked.tree) if isinstance(n, ast.AugAssign)}
        named = (n for n in every(asked.tree) if isinstance(n, ast.Name) and n.id == names[0])
        return None if any(isinstance(n.ctx, ast.Store) and n not in more for n in named) else True
    # a module runs from its first line to its last, as a function does
    scopes = (scope.node for scope in asked.sites[0].scope.in_function())
    body = next((node.body for node in scopes if isinstance(node, DefNode)), asked.tree.body)
    is_bound = any(name == names[0] for one in body for name, _ in bindings(one))
    return is_bound or asked.world.lookup(asked.diagnostic.path, names[0]).exists is False or None


def sometimes_unset(asked: Asked) -> bool | None:
    """Make a note of what one branch sets and another does not, unless a condition around the use, or an exit before it, may know better."""
    names = QUOTED.findall(asked.diagnostic.text)
    function = next((one for one in asked.around if isinstance(one, DefNode)), None)
    blocks = (one for one in asked.around if isinstance(one, DefNode | _BLOCKS))
    if not names or function is None or next(blocks) is not function:
        return None
    line, name = asked.diagnostic.line, names[0]
    ifs = [one for one in every(function) if isinstance(one, ast.If) and one.lineno < line]
    setting = [one.end_lineno or 0 for one in ifs if name in dict(bindings(one))]
    between = (one for one in function.body if setting and max(setting) < one.lineno < line)
    knows = any(isinstance(inner, _EXITS) for one in between for inner in every(one))
    return None if knows or not setting else False  # a loop or a try: whether it ran, nobody knows
