"""Every text that the product prints, read from its source: no message is missed because no test prints it."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "vllm_mods"
FIELD = "…"
"""What stands for a value that is filled in."""

NOT_PRINTED = (
    "making/inside/pip_stand_in.py",  # what pip prints
    "templates/reading_back.py",  # conversations and their answers
    "templates/replay.py",
    "base/own_process.py",  # programs
    "formats/container.py",
)


class Message(NamedTuple):
    """A text of the product; ``place`` is the file and the line."""

    place: str
    text: str


@functools.cache
def messages() -> tuple[Message, ...]:
    """Return the texts with two words or more, in the order of the files."""
    return (*_of_code(), *_of_tables())


def sentences(text: str) -> Iterator[str]:
    """Split a text where a sentence or a line ends; what a shell reads (`…`, behind #) is left out."""
    text = re.sub(r"`[^`\n]*`", FIELD, text)
    for line in re.split(r"\n(?=\s*\S)", text):
        yield from re.split(r"(?<=[a-z)\]…][.!?]) +(?=\S)", line)


def _of_tables() -> Iterator[Message]:
    path = "report/finding_codes.toml"
    for group in tomllib.loads((PACKAGE / path).read_text()).values():
        for table in (group["codes"], group.get("next", {})):
            for code, text in table.items():
                if text:
                    yield Message(f"{path}:{code}", text)


def _of_code() -> Iterator[Message]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in NOT_PRINTED:
            for line, text in _texts(ast.parse(path.read_text())):
                if len(re.findall(r"[A-Za-z]{2,}", text)) > 1 and " " in text.strip():
                    yield Message(f"{name}:{line}", text)


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of a node; of docstrings those that are printed: of commands and of errors."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        if (text := _text(node)) is not None:
            yield node.lineno, text
        fields = node.values if isinstance(node, ast.JoinedStr) else []
        for field in fields:
            if isinstance(field, ast.FormattedValue):
                yield from _texts(field.value)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            if _is_printed(node):
                text = str(child.value.value)
                yield (
                    child.lineno,
                    text.split("\n\n")[0] if isinstance(node, ast.ClassDef) else text,
                )
        else:
            yield from _texts(child)


def _is_printed(node: ast.AST) -> bool:
    """Tell whether a docstring is the help of a command, or what `explain` says of an error."""
    if isinstance(node, ast.ClassDef):
        return any(ast.unparse(one).startswith("code = ") for one in node.body)
    decorators = getattr(node, "decorator_list", [])
    return any("command(" in ast.unparse(one) or "group(" in ast.unparse(one) for one in decorators)


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    assert isinstance(node, ast.JoinedStr)
    parts = (part.value if isinstance(part, ast.Constant) else FIELD for part in node.values)
    return "".join(map(str, parts))
