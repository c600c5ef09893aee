"""Names that code has in strings, held against the tables of the tree that they are looked up in, and torch's operators by name."""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from vllm_mods.base.model import Level
from vllm_mods.fit.bodies import definition
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.problems import Misuse, Misuses, nearest
from vllm_mods.fit.search import (
    definers,
    defines_plainly,
    files_mentioning,
    is_mentioned,
    meant_in,
    times_mentioned,
)
from vllm_mods.fit.shapes import Class, Function, Symbol, Value, words
from vllm_mods.fit.signatures import DefNode, dotted, every, refusal, table_of
from vllm_mods.fit.walk import CodeSite
from vllm_mods.fit.world import World, remembered
from vllm_mods.formats import syntax_tree

_QUALNAME = re.compile(r"vllm(?:\.\w+){2,}(?::\w+)?")
_QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
_BACKENDS = "attention/backends/registry.py"
_ENVS = "vllm/envs.py"
_MODELS = "vllm/model_executor/models/"
_REGISTERED = re.compile(rb"register_quantization_config\(\s*[\"']([\w-]+)[\"']")
_LOGGING = words("debug info warning error critical exception")
# As ``logging`` and ``%`` have them; a star takes an argument of its own and is left alone.
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*(?:\d+|(\*))?(?:\.\d+)?[hlL]?([a-zA-Z%])")


# By what they name: what strings of one kind look like, where the names that there are stand, and how.
_ALONE = {
    "environment variable": (r"VLLM_\w+", _ENVS, rb"\bVLLM_\w+"),
    "attention backend": (r"[A-Z]\w{3,}", _BACKENDS, rb"\b([A-Z][A-Z0-9_]{3,})\s*="),
}
# What adds keys to a table: what is no method that reads may.
_CHANGED = rb"\b%b\b\s*(?:\[[^\]]*\]\s*=[^=]|\|=|\.(?!get\b|items\b|keys\b|values\b)\w+\()"
_PLAIN = re.compile(r"(?<!%)%[sdr]\b")
# Builtin types that ``torch.library.infer_schema`` does not take; other names may stand for one that it takes.
_UNFIT = re.compile(
    r"\b(?:[Dd]ict|[Tt]uple|[Ss]et|Callable|Mapping|frozenset|bytes|object)\b(?:\[[^]]*\])?|\blist\b(?!\[)"
)
_OPERATORS = re.compile(rb"op_name\s*=\s*[\"'](\w+)[\"']|[\"']vllm::(\w+)")
_REGISTER = re.compile(
    rb"direct_register_custom_op\(\s*(?:op_name\s*=\s*)?[\"'](\w+)[\"'],\s*(?:op_func\s*=\s*)?(\w+)\s*[,)]"
)


def string_misuses(  # noqa: C901, PLR0912 - one kind of table per branch
    world: World, path: str, site: CodeSite
) -> Misuses:
    """Say which string at a site names something of the tree that is not there."""
    match site.node:
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=slice_):
            yield from _lonely(world, [slice_], "environment variable")
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            kind = dotted(value)
            symbols = meant_in(world, path, site.scope, kind) if kind else ()
            yield from _member_of_enum(world, symbols, name)
            if isinstance(site.node.ctx, ast.Load):
                yield from _key(world, symbols, name)
        case ast.Attribute(attr=name, value=value) if dotted(value) == "torch.ops.vllm":
            known = _operators(world)
            if not _is_registered(world, name, known):
                yield Misuse(f"nothing registers torch.ops.vllm.{name}{nearest(name, known)}", name)
        case ast.Call() as node:
            yield from _formats(node)
            given = _literals((*node.args, *(keyword.value for keyword in node.keywords)))
            for module, name in pairwise(given):
                if _QUALNAME.fullmatch(module) and name[:1].isupper() and name.isidentifier():
                    yield from _model(world, module, name)
            called = (dotted(node.func) or "").rpartition(".")[2]
            if dotted(node.func) == f"torch.ops.vllm.{called}":
                yield from _operator(world, called, node)
            if called == "direct_register_custom_op":
                yield from _registration(world, path, node)
            if called == "get_quantization_config":
                yield from _quantization(world, node.args[:1])
            if dotted(node.func) == "envs.is_set":
                for name in _literals(node.args):
                    yield from _key(
                        world, world.lookup(_ENVS, "environment_variables").symbols, name
                    )
            if called == "collective_rpc":
                yield from _of_worker(world, node)
            if called == "getenv" or (dotted(node.func) or "").startswith("os.environ."):
                yield from _lonely(world, node.args[:1], "environment variable")
            backends = [k.value for k in node.keywords if "attention_backend" in (k.arg or "")]
            yield from _lonely(world, backends, "attention backend")
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(str(text)), right=ast.Tuple(given)):
            yield from _count(text, given, site.node)
        case ast.Compare(left=ast.Attribute(attr="quantization"), comparators=others):
            yield from _quantization(world, others)
        case ast.Compare(
            left=ast.Call(func=ast.Attribute(attr="get_name", value=value)), comparators=others
        ) if "backend" in ast.unparse(value):
            yield from _lonely(world, others, "attention backend")
        case ast.Return(value=ast.Constant() as value):
            if dotted(getattr(site.scope.node, "returns", None)) == "QuantizationMethods":
                yield from _quantization(world, [value])
        case ast.Constant(value=str(text)) if _QUALNAME.fullmatch(text):
            yield from _qualname(world, text)
        case ast.Dict(keys=keys, values=values) if path == _ENVS:
            for key, value in zip(keys, values, strict=True):
                yield from _variable(world, key, value)
        case ast.Dict(values=values) if path == f"{_MODELS}registry.py":
            for pair in (_literals([value]) for value in values):
                if len(pair) == 2:
                    yield from _model(world, *pair)


def _member_of_enum(world: World, symbols: tuple[Symbol, ...], name: str) -> Misuses:
    if len(symbols) != 1 or not isinstance(symbols[0].binding, Class):
        return
    line = lineage(world, symbols[0])
    if any(base.endswith("Enum") for base in line.bases):
        names = attributes(world, line)
        if name not in names:
            yield Misuse(f"{symbols[0].text} has no member {name}{nearest(name, names)}", name)


def _key(world: World, symbols: tuple[Symbol, ...], name: str) -> Misuses:
    """Say that a table of a module, which is written as one literal and never changed, has no such key."""
    match symbols:
        case [Symbol(path=path, binding=Value(line=line))]:
            tree = syntax_tree.module(world.read(path) or b"") or ast.Module([], [])
            found = next((node for node in tree.body if node.lineno == line), None)
            target, keys = table_of(found)
            changed = re.compile(_CHANGED % target.encode())
            if keys and name not in keys and not is_mentioned(world, target, changed):
                text = f"{target} ({path}:{line}) has no key {name!r}{nearest(name, keys)}"
                yield Misuse(text, name)
        case _:
            pass


def _quantization(world: World, nodes: Iterable[ast.expr]) -> Misuses:
    table = world.read(_QUANTIZATION) or b""
    known = {name.decode() for name in re.findall(rb"[\"']([\w-]+)[\"']", table)}
    for name in _literals(nodes):
        if known and name not in known:
            files = files_mentioning(world, ("register_quantization_config",))
            if not any(name.encode() in _REGISTERED.findall(data) for _, data in files):
                text = f"{_QUANTIZATION} has no quantization method {name!r}"
                yield Misuse(text + nearest(name, known), name)


def _of_worker(world: World, node: ast.Call) -> Misuses:
    """Say that no class defines the method that workers are to call, or that none takes its arguments."""
    placed = zip(("method", "timeout", "args", "kwargs"), node.args, strict=False)
    given: dict[str | None, ast.expr] = dict(placed)
    given |= {keyword.arg: keyword.value for keyword in node.keywords}
    opaque = None in given or any(isinstance(one, ast.Starred) for one in node.args)
    for name in _literals([given.get("method", ast.Tuple([]))]):
        if not is_mentioned(world, name, re.compile(rb"\b%b\b\s*[(=:]" % name.encode())):
            yield Misuse(f"no class defines {name!r}, which workers should call", name)
        match given.get("args", ast.Tuple([])), given.get("kwargs", ast.Dict([], [])):
            case ast.Tuple(elts=plain), ast.Dict(keys=keys) if not opaque:
                options = [ast.keyword(getattr(key, "value", None), node) for key in keys]
                call = ast.Call(node, plain, options)
                owners = definers(world, name)
                methods = [(owner.path, m) for owner in owners for m in owner.cls.methods[name]]
                why = [not m.opaque_decorator and refusal(m.unbound, call) for _, m in methods]
                if why and all(why):
                    path, method = methods[-1]
                    text = f"{name} of workers is {path}:{method.line}, but the call {why[-1]}"
                    yield Misuse(text, name)


def _literals(nodes: Iterable[ast.AST]) -> list[str]:
    groups = (n.elts if isinstance(n, ast.Tuple | ast.List | ast.Set) else [n] for n in nodes)
    values = (one.value for group in groups for one in group if isinstance(one, ast.Constant))
    return [value for value in values if isinstance(value, str)]


def _lonely(world: World, nodes: Iterable[ast.expr], what: str) -> Misuses:
    """Say that nothing of the tree but this one place has a name: a note, since it may be the patch's own."""
    shape, end, names = _ALONE[what]
    for name in _literals(nodes):
        word = re.compile(rb"\b%b\b" % re.escape(name.encode()))
        if re.fullmatch(shape, name) and times_mentioned(world, name, word) == 1:
            tables = (world.read(p) or b"" for p in world.paths("vllm") if p.endswith(end))
            known = (one.decode() for data in tables for one in re.findall(names, data))
            text = f"nothing else in the tree mentions the {what} {name!r}{nearest(name, known)}"
            yield Misuse(text, name, Level.NOTE)


def _variable(world: World, key: ast.expr | None, value: ast.expr) -> Misuses:
    """Say that an environment variable of the table of them is read by another name, which stands nowhere else."""
    known = getattr(key, "value", None)
    read = [text for text in _literals(every(value)) if text.startswith("VLLM_")]
    once = (times_mentioned(world, n, re.compile(rb"\b%b\b" % n.encode())) == 1 for n in read)
    if read and known not in read and all(once):
        yield Misuse(f"{known} is read from {read[0]}, a name that is used nowhere else", read[0])


def _qualname(world: World, text: str) -> Misuses:
    """Say what of a dotted path to a class in the tree is not there."""
    module, _, last = text.partition(":") if ":" in text else text.rpartition(".")
    if not last.islower() and module.rpartition(".")[2].islower():
        for misuse in _model(world, module, last):
            yield misuse._replace(text=f"{text!r}: {misuse.text}", token=last)


def _model(world: World, module: str, name: str) -> Misuses:
    """Say what of a module and a name in it is not there; those of the registry are below the models."""
    whole = module if module.startswith("vllm.") else f"{_MODELS}{module}".replace("/", ".")
    lookup = world.locate(whole)
    path = lookup.module
    if lookup.exists is False:
        others = (p[len(_MODELS) : -3] for p in world.paths("vllm") if p.startswith(_MODELS))
        yield Misuse(f"there is no module {whole}{nearest(module, others)}", module)
    # as nearly all that the registry names, which is hundreds, is defined plainly
    elif (
        path and not defines_plainly(world, path, name) and world.lookup(path, name).exists is False
    ):
        found = world.module(path)
        near = nearest(name, found.names if found else ())
        yield Misuse(f"{path} does not define {name}{near}", name)


def _formats(node: ast.Call) -> Misuses:
    """Judge ``logger.info("%s", …)``."""
    match node:
        case ast.Call(func=ast.Attribute() as func, args=[ast.Constant(value=str(text)), *given]):
            is_logger = (dotted(func.value) or "").rpartition(".")[2] == "logger"
            is_logging = is_logger and func.attr.removesuffix("_once") in _LOGGING
            if is_logging and (given or _PLAIN.search(text)):
                yield from _count(text, given, node)
        case _:
            pass


def _count(text: str, given: list[ast.expr], node: ast.AST) -> Misuses:
    matches = [match for match in _PERCENT.finditer(text) if match[3] != "%"]
    starred = any(isinstance(one, ast.Starred) for one in given)
    if starred or any(match[1] or match[2] for match in matches):
        return
    kinds = ast.Dict | ast.Name | ast.Call | ast.Attribute
    single = len(given) == 1 and isinstance(given[0], kinds)
    if len(matches) != len(given) and not (single and isinstance(node, ast.Call) and not matches):
        why = f"takes {len(matches)} values but gets {len(given)}"
        yield Misuse(f"the format {text[:40]!r} {why}", text[:10])


# --- operators that code registers with torch by name


@remembered
def _operators(world: World) -> frozenset[str]:
    """Return the operators that the tree registers by name."""
    names = set()
    for _, data in files_mentioning(world, ("op_name", "vllm::")):
        names |= {(one or other).decode() for one, other in _OPERATORS.findall(data)}
    return frozenset(names)


def _is_registered(world: World, name: str, known: frozenset[str]) -> bool:
    """Tell whether an operator may be registered: any string or definition of its name counts."""
    text = re.compile(rb"[\"':]%b[\"'(]|def %b\b" % (name.encode(), name.encode()))
    return name in known or is_mentioned(world, name, text)


@remembered
def _registered(world: World, name: str) -> tuple[tuple[str, Function], ...]:
    """Return the functions that are registered under a name, with their places, as far as their definitions are found."""
    return tuple(
        (symbol.where, symbol.binding)
        for path, data in files_mentioning(world, ("direct_register_custom_op",))
        for operator, function in _REGISTER.findall(data)
        if operator == name.encode()
        for symbol in world.lookup(path, function.decode()).symbols
        if isinstance(symbol.binding, Function)
    )


def _operator(world: World, name: str, node: ast.Call) -> Misuses:
    """Say that none of the functions of a name takes a call: which of several is registered, the platform decides."""
    registered = _registered(world, name)
    reasons = [refusal(one.parameters, node) for _, one in registered]
    if reasons and None not in reasons:
        where, _ = registered[0]
        yield Misuse(f"torch.ops.vllm.{name} is {where}, but the call {reasons[0]}", name)


def _registration(world: World, path: str, node: ast.Call) -> Misuses:
    """Say that torch makes no operator of a function, that it has no parameter that it changes, or that its fake does not take its calls."""
    given = {word.arg: word.value for word in node.keywords}
    function = given.get("op_func") or next(iter(node.args[1:2]), None)
    both = map(dotted, (function, given.get("fake_impl")))
    match [world.resolve(path, name).symbols if name else () for name in both]:
        case [[Symbol(binding=Function(parameters=takes) as registered) as real], fakes]:
            made_of = definition(world, real.path, registered)
            if (why := next(_unfit_parameters(made_of), None) if made_of else None) is not None:
                text = f"torch cannot make an operator of {real.where}: {why}"
                yield Misuse(text, registered.name)
            known = {one.name for one in takes}
            changed = every(given.get("mutates_args") or node.func)
            names = {str(one.value) for one in changed if isinstance(one, ast.Constant)}
            for name in sorted(names - known):
                text = f"{real.where} has no parameter {name}, but mutates_args names it"
                yield Misuse(text, name)
            many = len([one for one in takes if one.default is one.empty]), len(takes)
            calls = [ast.Call(node.func, [node.func] * number, []) for number in many]
            for fake in fakes:
                if isinstance(fake.binding, Function) and not fake.binding.opaque_decorator:
                    whys = [refusal(fake.binding.parameters, call) for call in calls]
                    if None not in whys:
                        text = f"{fake.where} is the fake of {real.where}, but a call like the operator's {whys[-1]}"
                        yield Misuse(text, fake.binding.name)
        case _:
            pass


def _unfit_parameters(function: DefNode) -> Iterator[str]:
    """Yield what ``torch.library.infer_schema`` refuses of a signature; who decorates it may have changed that."""
    arguments = function.args
    if function.decorator_list:
        return
    if function.returns is None:
        yield "its return type is not annotated"
    if arguments.vararg or arguments.kwarg:
        yield "it takes * or **"
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if parameter.annotation is None:
            yield f"its parameter {parameter.arg} has no annotation"
        elif wrong := _UNFIT.search(ast.unparse(parameter.annotation)):
            yield f"its parameter {parameter.arg} is of type {wrong[0]}, which operators do not accept"
