"""How a vLLM makes flags of the fields of its config classes, where releases differ."""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving.source import ModuleSources, last_name, text_of

_MAKER = "vllm/engine/arg_utils.py"


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


def read(sources: ModuleSources) -> FlagRules:
    """Return the rules of a tree, which are those of its ``get_kwargs``."""
    parsed = sources.parse(_MAKER)
    body = parsed.body if parsed else ()
    functions = {one.name: one for one in body if isinstance(one, ast.FunctionDef)}
    makers = [functions[name] for name in ("get_kwargs", "_compute_kwargs") if name in functions]
    text = "".join(map(ast.unparse, makers))
    parser = sources.find(_MAKER, "FlexibleArgumentParser")
    return FlagRules(
        human=dict(pair for maker in makers for pair in _human(maker)),
        inverses=_inverses(sources, parser.path) if parser else {},
        optional_text="type_hints == {bool, str, type(None)}" in text,
        dict_subclasses="is_dict_subclass" in functions,
        human_json="_expand_json_human_readable_numbers(" in text,
    )


def _human(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
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
