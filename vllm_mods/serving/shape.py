"""What a flag takes: how many values, of what type, which of them are offered.

Follows the rules by which vLLM turns an annotation into the keywords of ``add_argument``, read from its source where releases differ.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_mods.base.tree import Tree
from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import configs, hints
from vllm_mods.serving.flags import Flag, class_of, constant, read as read_flags
from vllm_mods.serving.source import (
    AnyPlace,
    ClassPlace,
    ModuleSources,
    SourcePlace,
    last_name,
    text_of,
)

_MAKER = "vllm/engine/arg_utils.py"
_SWITCHES = {"store_true", "store_false", "store_const", "count", "version", "help"}


class FlagRules(NamedTuple):
    """How this vLLM makes flags of the fields of its config classes, where releases differ.

    ``human`` has, by field, the name of the function that reads numbers such as ``32k``; ``inverses``
    what a switch is also called: ``--enable-`` → ``--disable-``.
    """

    human: Mapping[str, str]
    inverses: Mapping[str, str]
    optional_text: bool
    dict_subclasses: bool
    human_json: bool

    def inverted(self, name: str) -> Iterator[str]:
        """Yield what else a switch may be called: what turns off what it turns on."""
        for prefix, inverse in self.inverses.items():
            if name.startswith(prefix):
                yield inverse + name.removeprefix(prefix)


class FlagShape(NamedTuple):
    """What a flag takes.

    ``kind`` of each value: ``text``, ``int``, ``float``, ``human`` and ``human-auto`` (32k; auto),
    ``json``, ``json-or-text``; or of none: ``switch`` (which also has ``--no-…``) and ``flag``.
    ``nargs`` is argparse's, ``+`` for a fixed number of values. ``choices`` are enforced by the parser; ``open`` is why there may be
    more of them. ``config`` is the class whose fields are the keys of the JSON, ``human_json`` whether 32k
    may stand in it; ``cls`` and ``field`` are where the value goes.
    """

    kind: str
    nargs: str | None = None
    optional: bool = False
    choices: tuple[object, ...] | None = None
    open: str = ""
    config: ClassPlace | None = None
    cls: ClassPlace | None = None
    field: configs.ConfigField | None = None
    append: bool = False
    human_json: bool = False

    @property
    def takes_value(self) -> bool:
        """Whether anything follows the flag."""
        return self.kind not in {"switch", "flag"}


class KnownFlags:
    """The flags of a tree, what each takes read when it is asked for. Raises ``TreeError`` if the tree does not say them."""

    def __init__(self, tree: Tree) -> None:
        self.sources = ModuleSources(tree)
        self.flags, self.entry = read_flags(self.sources)
        self.by_name = {name: flag for flag in self.flags for name in flag.names}
        self.rules = flag_rules(self.sources)
        self._shapes: dict[int, FlagShape] = {}

    def shape(self, flag: Flag) -> FlagShape:
        """Return what a flag takes."""
        if id(flag) not in self._shapes:
            self._shapes[id(flag)] = shape(self.sources, flag, self.rules)
        return self._shapes[id(flag)]


def shape(sources: ModuleSources, flag: Flag, rules: FlagRules) -> FlagShape:
    """Return what a flag takes. Reads the config class it is made from, if it is made from one."""
    cls = class_of(sources, flag.owner)
    field = None if cls is None else configs.fields(sources, cls).get(flag.field or "")
    result = FlagShape(
        "text", open="" if flag.owner is None or field else f"{flag.field} is not found"
    )
    if field is not None:
        result = _of_field(sources, field, rules)._replace(cls=cls, field=field)
    given = flag.given
    if (kind := given.get("type")) is not None:
        result = _of_type(kind.node, result)
    if "nargs" in given:
        nargs = constant(sources, given["nargs"])
        result = result._replace(nargs=nargs if isinstance(nargs, str) else "+" if nargs else None)
    if (choices := given.get("choices")) is not None:
        result = _of_choices(sources, choices, result)
    if "choices" in flag.computed:
        result = result._replace(open="vLLM adds to the choices when it runs")
    if result.choices is not None and flag.removed:
        kept = tuple(one for one in result.choices if one not in flag.removed)
        result = result._replace(choices=kept)
    action = given.get("action")
    return result if action is None else _of_action(action.node, result)


def _of_field(sources: ModuleSources, field: configs.ConfigField, rules: FlagRules) -> FlagShape:
    kinds = hints.hints(sources, field.annotation)
    if rules.dict_subclasses:
        kinds = tuple(_as_dict(sources, hint) for hint in kinds)
    names = {hint.name for hint in kinds if hint.kind == "builtin"}
    optional = "None" in names
    config = hints.config_class(sources, kinds)
    if config is not None:
        return FlagShape("json", optional=optional, config=config, human_json=rules.human_json)
    if rules.optional_text and len(kinds) == len(names) and names == {"bool", "str", "None"}:
        return FlagShape("text", nargs="?")
    if "bool" in names:
        return FlagShape("switch")
    many = next((hint for hint in kinds if hint.name in {"tuple", "list", "set"}), None)
    literals = [hint for hint in kinds if hint.kind == "literal"]
    if literals:
        shape = _of_literal(literals, free="str" in names)
    elif many is not None:
        shape = _of_collection(sources, many)
    else:
        shape = FlagShape(_kind(kinds, names, rules.human.get(field.name)))
    return shape._replace(optional=optional)


def _kind(kinds: tuple[hints.Hint, ...], names: set[str], human: str | None) -> str:
    if "int" in names:
        return "int" if human is None else "human-auto" if human.endswith("auto") else "human"
    if "float" in names:
        return "float"
    if "dict" in names:
        mixed = "str" in names or any(hint.kind != "builtin" for hint in kinds)
        return "json-or-text" if mixed else "json"
    return "text"


def _as_dict(sources: ModuleSources, hint: hints.Hint) -> hints.Hint:
    if hint.place is None:
        return hint
    above = (base for one in sources.bases(hint.place) for base in one.node.bases)
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in above)
    return hints.Hint("builtin", "dict") if "dict" in map(dotted, plain) else hint


def _of_literal(literals: list[hints.Hint], *, free: bool) -> FlagShape:
    values = hints.literals(literals)
    kind = "int" if values and all(type(value) is int for value in values) else "text"
    # with `str` beside the Literal, argparse is told of the values for its help only
    return FlagShape(kind, choices=None if free else values)


def _of_collection(sources: ModuleSources, hint: hints.Hint) -> FlagShape:
    inner = hints.hints(sources, hint.args[0]) if hint.args else ()
    literals = [one for one in inner if one.kind == "literal"]
    if literals:
        return _of_literal(literals, free=False)._replace(nargs="+")
    kinds = {one.name for one in inner}
    kind = kinds.pop() if len(kinds) == 1 else "str"
    return FlagShape(kind if kind in {"int", "float"} else "text", nargs="+")


def _of_type(node: ast.AST, before: FlagShape) -> FlagShape:
    name = dotted(node.func if isinstance(node, ast.Call) else node) or ""
    if isinstance(node, ast.Call) and name in {"optional_type", "parse_type"} and node.args:
        return _of_type(node.args[0], before)._replace(optional=name == "optional_type")
    kinds = {"int": "int", "float": "float", "json.loads": "json", "str": "text"}
    kinds |= {"human_readable_int": "human", "human_readable_int_or_auto": "human-auto"}
    kinds |= {"union_dict_and_str": "json-or-text"}
    kind = kinds.get(name, "text")
    return before._replace(kind=kind, optional=False, human_json=False)


def _of_choices(sources: ModuleSources, at: AnyPlace, before: FlagShape) -> FlagShape:
    values = constant(sources, at)
    if isinstance(values, (list, tuple, set)):
        return before._replace(choices=tuple(values), open="")
    if isinstance(at.node, ast.Call) and at.node.args:
        inner = SourcePlace(at.path, at.node.args[0])
        if last_name(at.node) == "get_args":
            return before._replace(choices=hints.literals(hints.hints(sources, inner)), open="")
    lists = (one.elts for one in ast.walk(at.node) if isinstance(one, ast.List))
    sure = [elts for elts in lists if all(isinstance(one, ast.Constant) for one in elts)]
    return before._replace(
        choices=tuple(ast.literal_eval(one) for elts in sure for one in elts),
        open=f"vLLM computes the choices when it runs: {ast.unparse(at.node)}",
    )


def _of_action(node: ast.AST, before: FlagShape) -> FlagShape:
    name = node.value if isinstance(node, ast.Constant) else dotted(node) or ""
    if str(name).endswith("BooleanOptionalAction"):
        return before._replace(kind="switch", nargs=None)
    if name in _SWITCHES:
        return before._replace(kind="flag", nargs=None)
    return before._replace(append=name in {"append", "extend"})


def flag_rules(sources: ModuleSources) -> FlagRules:
    """Return the rules of a tree, which are those of its ``get_kwargs``."""
    parsed = sources.parse(_MAKER)
    body = parsed.body if parsed else ()
    functions = {one.name: one for one in body if isinstance(one, ast.FunctionDef)}
    makers = [functions[name] for name in ("get_kwargs", "_compute_kwargs") if name in functions]
    text = "".join(map(ast.unparse, makers))
    parser = sources.find(_MAKER, "FlexibleArgumentParser")
    return FlagRules(
        human=dict(pair for maker in makers for pair in _human_fields(maker)),
        inverses=_inverses(sources, parser.path) if parser else {},
        optional_text="type_hints == {bool, str, type(None)}" in text,
        dict_subclasses="is_dict_subclass" in functions,
        human_json="_expand_json_human_readable_numbers(" in text,
    )


def _human_fields(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the fields, compared with ``name``, whose flag a ``human_readable_…`` function reads."""
    assigned = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    sets = {dotted(node.targets[0]): node.value for node in assigned}
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        inside = (one for statement in node.body for one in ast.walk(statement))
        names = (one.id for one in inside if isinstance(one, ast.Name))
        reads = [name for name in names if name.startswith("human_readable_")]
        if dotted(node.test.left) == "name" and reads:
            against = node.test.comparators[0]
            for part in ast.walk(sets.get(dotted(against) or "", against)):
                if text := text_of(part):
                    yield text, reads[0]


def _inverses(sources: ModuleSources, path: str) -> dict[str, str]:
    """Read which prefix of a switch stands for which other one, if this parser has such pairs."""
    classes = (node for node in sources.nodes(path) if isinstance(node, ast.ClassDef))
    above = ((one, "".join(map(last_name, one.bases))) for one in classes)
    marks = (one for one, names in above if "BooleanOptionalAction" in names)
    sets = (node.value for one in marks for node in one.body if isinstance(node, ast.Assign))
    pairs: dict[str, str] = next((ast.literal_eval(v) for v in sets if isinstance(v, ast.Dict)), {})
    return pairs
