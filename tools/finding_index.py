"""Print which function decides each finding: ``python tools/finding_index.py [CODE|VERDICT]``.

A row has the code and the functions that say it; of a verdict, the codes that make it. What else a code makes
of a plan is in ``VERDICTS`` of ``vllm_mods/planning/patching.py``.
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


def made_by(verdict: str) -> set[str]:
    """Return the member names of the codes that make a verdict."""
    from vllm_mods.planning.patching import VERDICTS  # noqa: PLC0415  (where it is asked only)

    return {code.name for code, made in VERDICTS.items() if made == verdict}


def main() -> None:
    found = index()
    if len(sys.argv) > 1:
        names = {sys.argv[1].upper().replace("-", "_")} & found.keys() or made_by(sys.argv[1])
        if not names:
            sys.exit(f"{sys.argv[1]}: no code, and no verdict that a code makes")
        found = {name: found[name] for name in names}
    for name, places in sorted(found.items()):
        print(f"{name.lower().replace('_', '-'):24} {', '.join(places)}")  # noqa: T201  (its output)


if __name__ == "__main__":
    main()
