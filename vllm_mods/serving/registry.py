"""What is offered for a flag that takes any text: parsers, loaders, quantizations, backends.

The parser of the command line lets every word through there; vLLM looks it up only later, in a
registry, an enumeration, or the ``Literal`` that a type checker sees.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import configs, hints
from vllm_mods.serving.flags import Flag
from vllm_mods.serving.shape import FlagShape
from vllm_mods.serving.source import ClassPlace, ModuleSources, text_of

# Where the tables are that a name is looked up in, and what their files are.
_TOOLS = ("vllm/tool_parsers/__init__.py", "vllm/entrypoints/openai/tool_parsers/__init__.py")
_LOADERS = ("vllm/model_executor/model_loader/__init__.py",)
_TABLES = {
    "--tool-call-parser": ("_TOOL_PARSERS_TO_REGISTER", _TOOLS),
    "--reasoning-parser": ("_REASONING_PARSERS_TO_REGISTER", ("vllm/reasoning/__init__.py",)),
    "--load-format": ("_LOAD_FORMAT_TO_MODEL_LOADER", _LOADERS),
}

_MODELS = "vllm/model_executor/models/registry.py"
# A model that answers, one that embeds and one that ranks are of one class.
_USE = re.compile(r"(?:For[A-Z]\w*|LMHeadModel|Model)\Z")


class Offered(NamedTuple):
    """The names that a value is looked up among. ``open`` is why there may be more of them.

    ``any_case`` and ``any_dash``: it is put in the right case first, and dashes made underscores.
    """

    names: tuple[str, ...]
    any_case: bool = False
    any_dash: bool = False
    open: str = ""

    def has(self, value: str) -> bool:
        """Tell whether a value is among the names."""
        return self._plain(value) in {self._plain(name) for name in self.names}

    def _plain(self, value: str) -> str:
        value = value.lower() if self.any_case else value
        return value.replace("-", "_") if self.any_dash else value


def offered(sources: ModuleSources, flag: Flag, shape: FlagShape) -> Offered | None:
    """Return what is offered for a flag of free text; ``None`` if it takes anything.

    Raises ``TreeError`` if a file of the tree cannot be read.
    """
    if shape.kind != "text" or shape.choices is not None:
        return None
    given = flag.given.get("type")
    place = sources.find(given.path, dotted(given.node)) if given is not None else None
    first = [place.node] if place is not None and isinstance(place.node, ast.FunctionDef) else []
    names = named(sources, shape.cls, shape.field, first)
    if flag.name in _TABLES:
        variable, files = _TABLES[flag.name]
        table = _table(sources, variable, files)
        if table is None:
            return names._replace(open=f"no table {variable} is in {' or '.join(files)}")
        return names._replace(names=(*table.names, *names.names), open=table.open)
    return names if list(_annotated_names(sources, shape.field)) else None


def named(
    sources: ModuleSources,
    cls: ClassPlace | None,
    field: configs.ConfigField | None,
    first: Sequence[ast.FunctionDef] = (),
) -> Offered:
    """Return the names that an annotation lists, and those that the functions around it take.

    These are the field's validators and ``first``.
    """
    functions = list(first)
    if cls is not None and field is not None:
        around = configs.validators(sources, cls, field.name)
        functions += [one.at.node for one in around if one.early or not one.whole]
    nodes = (node for function in functions for node in ast.walk(function))
    compared = [text for one in nodes if isinstance(one, ast.Compare) for text in _texts(one)]
    code = " ".join(ast.unparse(function) for function in functions)
    return Offered(
        names=tuple(dict.fromkeys([*_annotated_names(sources, field), *compared])),
        any_case=".lower()" in code or ".upper()" in code,
        any_dash=".replace('-', '_')" in code,
    )


def keys_read(shape: FlagShape) -> tuple[str, ...]:
    """Return the keys that vLLM takes out of a free JSON object, where one list has them all.

    Such as ``override_generation_config``: a method of its class goes through a list of names and
    ignores every other key.
    """
    if shape.kind != "json" or shape.config or shape.cls is None or shape.field is None:
        return ()
    methods = (one for one in shape.cls.node.body if isinstance(one, ast.FunctionDef))
    used = (one for one in methods if f"self.{shape.field.name}" in map(dotted, ast.walk(one)))
    sets = (node.value for one in used for node in ast.walk(one) if isinstance(node, ast.Assign))
    lists = (value for value in sets if isinstance(value, (ast.List, ast.Tuple)))
    return tuple(dict.fromkeys(text for one in lists for text in _texts(one)))


def request_keys(sources: ModuleSources) -> frozenset[str]:
    """Return what a request may set for sampling: the fields of ``SamplingParams``."""
    cls = sources.find_class("vllm/sampling_params.py", "SamplingParams")
    return frozenset() if cls is None else frozenset(configs.fields(sources, cls))


def lacks(sources: ModuleSources, architectures: Sequence[str]) -> str:
    """Say that none of a model's architectures has a class in vLLM, or that its list of them cannot be read; else ``""``."""
    known, named, version = listed(sources), ", ".join(architectures), sources.tree.version
    if not known:
        return f"{_MODELS} lists no classes, so it is unknown whether vLLM {version} has a class for {named}"
    stems = {_USE.sub("", name) for name in known}
    if any(_USE.sub("", name) in stems for name in architectures):
        return ""
    return f"vLLM {version} has no class for {named}, the model's architecture; the model starts only if Transformers or a plugin has the class"


def class_of(sources: ModuleSources, architecture: str) -> ClassPlace | None:
    """Find the class that vLLM has for an architecture."""
    module, name = listed(sources).get(architecture, ("", ""))
    return sources.find_class(f"vllm/model_executor/models/{module}.py", name)


def listed(sources: ModuleSources) -> dict[str, tuple[str, str]]:
    """Return the module and the class that vLLM has for each architecture."""
    tables = (node for node in sources.nodes(_MODELS) if isinstance(node, ast.Dict))
    rows = [row for one in tables for row in zip(one.keys, one.values, strict=True)]
    texts = ([text_of(one) or "" for one in (key, *getattr(at, "elts", ()))] for key, at in rows)
    return {one[0]: (one[1], one[2]) for one in texts if len(one) == 3 and all(one)}


def _annotated_names(sources: ModuleSources, field: configs.ConfigField | None) -> Iterator[str]:
    """Yield what the annotation lists: the members of an enumeration, the values of a Literal."""
    if field is None:
        return
    for hint in hints.hints(sources, field.annotation, typing=True):
        if hint.kind == "literal":
            yield from (str(value) for value in hint.values)
        elif hint.place is not None and configs.is_enum(sources, hint.place):
            for name, member in configs.members(hint.place).items():
                yield name
                # some enumerations have the path of a class as their value, which nobody types
                value = member.value if isinstance(member, ast.Constant) else None
                if isinstance(value, (int, str)) and "." not in str(value):
                    yield str(value)


def _table(sources: ModuleSources, variable: str, files: tuple[str, ...]) -> Offered | None:
    """Read a module-level dict by name, and what calls of ``register…`` beside it add."""
    for path in files:
        value = sources.value(path, variable)
        if not isinstance(value, ast.Dict):
            continue
        names = [one.value for one in value.keys if isinstance(one, ast.Constant)]
        computed = len(names) != len(value.keys)
        for node in sources.nodes(path):
            if isinstance(node, ast.Call) and "register" in (dotted(node.func) or ""):
                first = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "name")]
                names += [one.value for one in first if isinstance(one, ast.Constant)]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                key = node.slice if dotted(node.value) == variable else None
                names += [key.value] if isinstance(key, ast.Constant) else []
        why = f"{path} computes keys of {variable}" if computed else ""
        return Offered(tuple(name for name in names if isinstance(name, str)), open=why)
    return None


def _texts(node: ast.AST) -> list[str]:
    return [text for one in ast.walk(node) if (text := text_of(one)) is not None]
