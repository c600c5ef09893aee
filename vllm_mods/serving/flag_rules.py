"""How a vLLM makes flags of the fields of its config classes, where releases differ."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving.source import ModuleSources, last_name, text_of


class FlagRules(NamedTuple):
    """How this vLLM makes flags of fields, where releases differ.

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


def read(sources: ModuleSources, makers: Iterable[str]) -> FlagRules:
    """Return the rules of a tree; ``makers`` are the files of its ``get_kwargs``."""
    human: dict[str, str] = {}
    optional_text = dict_subclasses = human_json = False
    inverses: dict[str, str] = {}
    for path in makers:
        parsed = sources.parse(path)
        for node in parsed.body if parsed else ():
            if isinstance(node, ast.FunctionDef):
                dict_subclasses |= node.name == "is_dict_subclass"
                if node.name in {"get_kwargs", "_compute_kwargs"}:
                    human.update(_human(node))
                    text = ast.unparse(node)
                    optional_text |= "type_hints == {bool, str, type(None)}" in text
                    human_json |= "_expand_json_human_readable_numbers(" in text
        parser = sources.find(path, "FlexibleArgumentParser")
        inverses.update(_inverses(sources, parser.path) if parser else {})
    return FlagRules(human, inverses, optional_text, dict_subclasses, human_json)


def _human(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the fields, compared with ``name``, whose flag a ``human_readable_…`` function reads."""
    sets: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            sets[node.targets[0].id] = node.value
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        reads = [
            name.id
            for statement in node.body
            for name in ast.walk(statement)
            if isinstance(name, ast.Name) and name.id.startswith("human_readable_")
        ]
        if dotted(node.test.left) == "name" and reads:
            against = node.test.comparators[0]
            for part in ast.walk(sets.get(dotted(against) or "", against)):
                if text := text_of(part):
                    yield text, reads[0]


def _inverses(sources: ModuleSources, path: str) -> dict[str, str]:
    """Read which prefix of a switch stands for which other one, if this parser has such pairs."""
    parsed = sources.parse(path)
    for node in parsed.body if parsed else ():
        if not isinstance(node, ast.ClassDef):
            continue
        if not any(last_name(base).endswith("BooleanOptionalAction") for base in node.bases):
            continue
        for member in node.body:
            if isinstance(member, ast.Assign) and isinstance(member.value, ast.Dict):
                pairs = ast.literal_eval(member.value)
                return {str(key): str(value) for key, value in pairs.items()}
    return {}
