"""What an expression is, as far as the code around it and the tree say so."""

from __future__ import annotations

import ast
import builtins

from vllm_mods.fit.bodies import definition, is_generator
from vllm_mods.fit.hierarchy import TORCH_MODULE, lineage
from vllm_mods.fit.search import beside, class_at, overriding
from vllm_mods.fit.shapes import Class, Function, Import, Parameter, Value, words
from vllm_mods.fit.signatures import function_of, implementations, is_property, type_name
from vllm_mods.fit.symbols import Symbol, Thing, outside, unknown
from vllm_mods.fit.walk import CodeScope, Source, receiver
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

_DEPTH = 8
_DISPLAYS = {
    ast.JoinedStr: "str",
    ast.List: "list",
    ast.ListComp: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
    ast.Tuple: "tuple",
}
# Builtin types of which an annotation is believed.
_BELIEVED = words("int str bool float bytes")
# Decorators that leave what a function returns as it is.
_PLAIN = words("staticmethod classmethod abstractmethod override cache lru_cache")


def _classes(instances: tuple[Thing, ...]) -> tuple[Thing, ...]:
    """Return the classes, or subclasses of these, that make such instances."""
    if any(thing.kind != "instance" for thing in instances):
        return unknown("its type is not a plain class")
    return tuple(thing._replace(kind="class") for thing in instances)


class Inference:
    """Answers for one file in one world."""

    def __init__(self, world: World, path: str) -> None:
        self.world = world
        self.path = path
        # Several checks ask for the same expression. The nodes are kept: their ids are the keys.
        self._known: dict[tuple[int, int], tuple[ast.expr, CodeScope, tuple[Thing, ...]]] = {}

    def infer(self, node: ast.expr, scope: CodeScope, depth: int = 0) -> tuple[Thing, ...]:
        """Say what an expression is."""
        if depth:
            return self._infer(node, scope, depth)
        key = (id(node), id(scope))
        if key not in self._known:
            self._known[key] = node, scope, self._infer(node, scope, depth)
        return self._known[key][2]

    def _infer(  # noqa: C901, PLR0911 - one kind of expression per branch
        self, node: ast.expr, scope: CodeScope, depth: int
    ) -> tuple[Thing, ...]:
        if depth > _DEPTH:
            return unknown("the value is too far away")
        match node:
            case ast.Name():
                return self._name(node.id, scope, depth)
            case ast.Attribute():
                return self._attributes(self.infer(node.value, scope, depth + 1), node.attr, depth)
            case ast.Call(func=ast.Name(id="super")):
                return self._super(node, scope)
            case ast.Call():
                return self._called(self.infer(node.func, scope, depth + 1), depth)
            case ast.Await(value=ast.Call() as call):
                return self._called(self.infer(call.func, scope, depth + 1), depth, awaited=True)
            case ast.IfExp():
                either = self.infer(node.body, scope, depth + 1)
                return either + self.infer(node.orelse, scope, depth + 1)
            case ast.Constant(value=None):
                return ()
            case ast.Constant(value=value):
                return (outside(f"builtins.{type(value).__name__}()"),)
            case _ if type(node) in _DISPLAYS:
                return (outside(f"builtins.{_DISPLAYS[type(node)]}()"),)
            case _:
                return unknown("the value is computed")

    # --- names

    def _name(self, name: str, scope: CodeScope, depth: int) -> tuple[Thing, ...]:
        for current in scope.around():
            if isinstance(current.node, ast.Module) or name not in current.locals():
                continue
            if not current.is_class:
                return self._local(name, current, depth)
            if current is scope:
                return unknown("the name belongs to the class body")
        answer = self.world.lookup(self.path, name)
        if answer.exists is False and hasattr(builtins, name):
            return (outside(f"builtins.{name}"),)
        if answer.exists is not True:
            return unknown(answer.why or f"{name} is not defined in the module")
        return self._things(answer.symbols, depth)

    def _local(self, name: str, scope: CodeScope, depth: int) -> tuple[Thing, ...]:
        me = receiver(scope)
        sources = scope.locals()[name]
        if me is not None and me[0] == name and len(sources) == 1:
            symbol = class_at(self.world, self.path, scope.parent)
            if symbol is None:
                return unknown("the class is made inside a function")
            return (Thing(kind=me[1], symbol=symbol),)
        declared = [source for source in sources if isinstance(source, ast.AnnAssign)]
        things = (one for s in declared or sources for one in self._source(s, scope, depth))
        return tuple(dict.fromkeys(things)) or unknown("the name is only None")

    def _source(self, source: Source, scope: CodeScope, depth: int) -> tuple[Thing, ...]:
        match source:
            case Parameter():
                return self._instance(source.type, scope, depth)
            case ast.AnnAssign():
                return self._instance(type_name(source.annotation), scope, depth)
            case Import():
                return self._things(self.world.imported(self.path, source).symbols, depth)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                symbol = Symbol(path=self.path, binding=function_of(source))
                return (Thing(kind="function", symbol=symbol),)
            case ast.expr() if not isinstance(source, ast.Lambda):
                return self.infer(source, scope, depth + 1)
            case _:
                return unknown("the name is bound in the function")

    def _instance(self, kind: str | None, scope: CodeScope, depth: int) -> tuple[Thing, ...]:
        """Return an instance of a class named by an annotation, or of a subclass of it."""
        if kind is None:
            return unknown("its type is not stated")
        if kind.startswith("type["):
            return _classes(self._instance(kind[5:-1], scope, depth))
        head = kind.partition(".")[0]
        for current in scope.around():
            if current.is_class or isinstance(current.node, ast.Module):
                continue
            sources = current.locals().get(head, [])
            imports = [source for source in sources if isinstance(source, Import)]
            if sources and not imports:
                return unknown("its type is local")
            if len(sources) == len(imports) == 1 and "." not in kind:
                return self._instances(self.world.imported(self.path, imports[0]).symbols)
        return self._stated(kind, depth)

    def _stated(self, kind: str, depth: int) -> tuple[Thing, ...]:
        """Return an instance of the class that a dotted name means at module level."""
        if kind.startswith("type["):
            return _classes(self._stated(kind[5:-1], depth))
        if kind in _BELIEVED and self.world.lookup(self.path, kind).exists is False:
            return (outside(f"builtins.{kind}()"),)
        return self._instances(self.world.resolve(self.path, kind, depth).symbols)

    def _instances(self, symbols: tuple[Symbol, ...]) -> tuple[Thing, ...]:
        classes = [one for one in symbols if isinstance(one.binding, Class)]
        if not classes or len(classes) != len(symbols):
            external = next((one.external for one in symbols if one.external), None)
            return (outside(external),) if external else unknown("its type is not a plain class")
        return tuple(Thing(kind="instance", symbol=one) for one in classes)

    # --- things

    def _things(self, symbols: tuple[Symbol, ...], depth: int) -> tuple[Thing, ...]:
        things: list[Thing] = []
        functions: dict[str, list[Symbol]] = {}
        for symbol in symbols:
            if symbol.module:
                things.append(Thing(kind="module", symbol=symbol))
            elif isinstance(symbol.binding, Class):
                things.append(Thing(kind="class", symbol=symbol, exact=True))
            elif isinstance(symbol.binding, Function):
                functions.setdefault(symbol.path, []).append(symbol)
            elif isinstance(symbol.binding, Value):
                things.extend(self._value(symbol.path, symbol.binding, depth))
            elif symbol.external:
                things.append(outside(symbol.external))
            else:
                things.extend(unknown("its value is not plain"))
        for several in functions.values():
            every = implementations([f.binding for f in several if isinstance(f.binding, Function)])
            things += (Thing(kind="function", symbol=f) for f in several if f.binding in every)
        return tuple(things) or unknown("nothing is known of it")

    def _value(self, path: str, value: Value, depth: int) -> tuple[Thing, ...]:
        inference = Inference(self.world, path)
        if value.type is not None:
            return inference._stated(value.type, depth)
        if value.maker is not None and depth < _DEPTH and "(" not in value.maker:
            answer = self.world.resolve(path, value.maker, depth + 1)
            return inference._called(inference._things(answer.symbols, depth + 1), depth + 1)
        return unknown("its value is computed")

    def _attributes(self, things: tuple[Thing, ...], name: str, depth: int) -> tuple[Thing, ...]:
        members = (one for thing in things for one in self._attribute(thing, name, depth))
        return tuple(dict.fromkeys(members)) or unknown("nothing is known of it")

    def _attribute(self, thing: Thing, name: str, depth: int) -> tuple[Thing, ...]:
        if thing.kind == "module":
            answer = self.world.member(thing.symbol, name)
            if answer.symbols:
                return self._things(answer.symbols, depth)
            return unknown(answer.why or f"the module has no {name}")
        if thing.kind in {"instance", "class", "super"}:
            return self._of_class(thing, name, depth)
        external = thing.symbol.external
        if external:
            return (outside(f"{external}.{name}"),)
        return unknown(thing.why or "nothing is known of it")

    def _of_class(  # noqa: PLR0911 - an answer per kind of attribute
        self, thing: Thing, name: str, depth: int
    ) -> tuple[Thing, ...]:
        line = lineage(self.world, thing.symbol)
        classes = line.classes[1:] if thing.kind == "super" else line.classes
        for symbol in classes:
            owner = symbol.cls
            if name in owner.methods:
                return self._method(thing, symbol, name, depth)
            if name in owner.types:
                inference = Inference(self.world, symbol.path)
                return inference._typed(owner.types[name], depth)
            if name in owner.nested and thing.kind != "super":
                inner = Symbol(path=symbol.path, binding=owner.nested[name])
                return (Thing(kind="class", symbol=inner, exact=True),)
            if name in owner.attributes:
                return unknown("the attribute's type is not stated")
        if line.outside or (line.torch and name in TORCH_MODULE):
            return unknown(f"a base of {thing.symbol.cls.name} is outside the tree")
        other = beside(self.world, thing.symbol, name) if thing.kind == "instance" else None
        if other is not None:
            return self._method(thing, other, name, depth)
        return unknown(f"{thing.symbol.cls.name} has no {name}")

    def _typed(self, kind: str, depth: int) -> tuple[Thing, ...]:
        """Say what an attribute of a stated type is; ``X()`` stands for what calling X makes."""
        if depth > _DEPTH:
            return unknown("the value is too far away")
        if kind.endswith("()"):
            call = syntax_tree.parse(kind, mode="eval").body
            return self.infer(call, CodeScope(ast.Module([], []), ""), depth + 1)
        return self._stated(kind, depth)

    def _method(self, thing: Thing, symbol: Symbol, name: str, depth: int) -> tuple[Thing, ...]:
        owner = symbol.cls
        functions = implementations(owner.methods[name])
        if any(is_property(function) for function in functions):
            getter = next((f for f in functions if "setter" not in f.marks), functions[0])
            if not getter.returns:
                return unknown("the property's type is not stated")
            inference = Inference(self.world, symbol.path)
            return inference._typed(getter.returns, depth + 1)
        if name in thing.symbol.cls.types or len(functions) != 1:
            return unknown("the method is defined several times")
        static = not functions[0].marks.isdisjoint(("staticmethod", "classmethod"))
        static = static or name in {"__init_subclass__", "__class_getitem__"}
        method = Thing(
            kind="function",
            symbol=Symbol(path=symbol.path, binding=functions[0]),
            exact=thing.exact or thing.kind == "super",
            bound=name != "__new__" and (thing.kind != "class" or static),
            owner=symbol,
            on=thing.symbol,
        )
        return (method,)

    def _called(
        self, things: tuple[Thing, ...], depth: int, *, awaited: bool = False
    ) -> tuple[Thing, ...]:
        result: list[Thing] = []
        for thing in things:
            if thing.kind == "class":
                result.append(Thing(kind="instance", symbol=thing.symbol, exact=thing.exact))
            elif thing.kind == "function":
                function = thing.function
                plain = function.marks <= _PLAIN
                if plain and not awaited and self._coroutine(thing):
                    result.append(thing._replace(kind="coroutine"))
                elif not plain or function.asynchronous is not awaited:
                    result.extend(unknown("the function may not return what it says"))
                elif (function.returns or "").rpartition(".")[2] == "Self" and thing.on:
                    result.append(Thing(kind="instance", symbol=thing.on))
                elif function.returns:
                    inference = Inference(self.world, thing.symbol.path)
                    result.extend(inference._typed(function.returns, depth + 1))
                else:
                    result.extend(unknown("the function does not say what it returns"))
            elif thing.symbol.external:
                result.append(outside(f"{thing.symbol.external}()"))
            else:
                result.extend(unknown(thing.why or "nothing is known of it"))
        return tuple(dict.fromkeys(result)) or unknown("nothing is known of it")

    def _coroutine(self, thing: Thing) -> bool:
        """Tell whether calling a function makes a coroutine, whoever overrides it."""
        function = thing.function
        if not function.asynchronous or function.abstract:
            return False
        if is_generator(definition(self.world, thing.symbol.path, function)):
            return False
        return all(other.asynchronous for other in overriding(self.world, thing))

    def _super(self, node: ast.Call, scope: CodeScope) -> tuple[Thing, ...]:
        method = next((one for one in scope.around() if receiver(one)), None)
        symbol = class_at(self.world, self.path, method.parent) if method else None
        if node.args or symbol is None:
            return unknown("super() is not plain")
        # With several bases the next class depends on the subclass.
        if len([base for base in symbol.cls.bases if base not in {"ABC", "abc.ABC"}]) != 1:
            return unknown("super() goes to one of several bases")
        if len(lineage(self.world, symbol).classes) < 2:
            return unknown("the base class is outside the tree")
        return (Thing(kind="super", symbol=symbol),)
