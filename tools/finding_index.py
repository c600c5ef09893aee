"""Print which function decides each finding: ``python tools/finding_index.py [CODE]``.

A row has the code, the functions that say it, and what the code means; what it makes of a plan is in ``VERDICTS`` of
``vllm_mods/planning/patching.py``.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "vllm_mods"


def uses(node: ast.AST, scope: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each member of ``FindingCode`` in a piece of code, with the chain of definitions that it is in."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from uses(child, f"{scope}.{child.name}".lstrip("."))
            case ast.Attribute(value=ast.Name(id="FindingCode"), attr=name):
                yield name, scope
            case _:
                yield from uses(child, scope)


def index(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Return the places ``MODULE:FUNCTION`` of each code, by the code's member name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        for name, scope in uses(ast.parse(path.read_bytes()), ""):
            place = f"{module}:{scope}".rstrip(":")
            places[name] += [] if place in places[name] else [place]
    return dict(places)


def main() -> None:
    wanted = sys.argv[1].upper().replace("-", "_") if len(sys.argv) > 1 else ""
    for name, places in sorted(index().items()):
        if wanted in {"", name}:
            print(f"{name.lower().replace('_', '-'):24} {', '.join(places)}")  # noqa: T201  (its output)


if __name__ == "__main__":
    main()
