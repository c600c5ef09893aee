"""Of what types the receivers of calls are: the type checker is asked on copies in which they stand in ``reveal_type``."""

import re
from collections import defaultdict
from collections.abc import Mapping

from vllm_mods.fit.checker import check, replaced
from vllm_mods.fit.overlay import LaidOut
from vllm_mods.fit.overrides import MethodCall
from vllm_mods.fit.world import World

# More calls of methods of one name are of a name that is everybody's.
_MOST = 300
_REVEALED = re.compile(r"Revealed type: `(.*)`")


def receiver_types(
    world: World, calls: tuple[MethodCall, ...], laid_out: LaidOut, python: tuple[int, int] | None
) -> Mapping[MethodCall, str]:
    """Return the types of the receivers of some calls; raises as ``checker.check``."""
    by_file: dict[str, list[MethodCall]] = defaultdict(list)
    for call in calls[:_MOST]:
        by_file[call.path].append(call)
    revealing = {
        path: _revealing(world.glance(path) or b"", some) for path, some in by_file.items()
    }
    folder = laid_out.show(world.tree, replaced(), world.files, revealing)
    diagnostics = check(folder, by_file, (), python)
    types: dict[tuple[str, int], list[str]] = defaultdict(list)
    for diagnostic in diagnostics:
        if match := _REVEALED.fullmatch(diagnostic.text):
            types[diagnostic.path, diagnostic.line].append(match[1])
    type_of: dict[MethodCall, str] = {}
    for path, some in by_file.items():
        for line in {call.receiver.lineno for call in some}:
            here = [call for call in some if call.receiver.lineno == line]
            here.sort(key=lambda call: call.receiver.col_offset)
            if len(types[path, line]) == len(here):
                type_of.update(zip(here, types[path, line], strict=True))
    return type_of


def _revealing(data: bytes, calls: list[MethodCall]) -> bytes:
    rows = data.splitlines(keepends=True)
    places = []
    for call in calls:
        value = call.receiver
        places.append((value.lineno, value.col_offset, b"reveal_type("))
        places.append((value.end_lineno or 0, value.end_col_offset or 0, b")"))
    for line, column, text in sorted(places, key=lambda place: place[:2], reverse=True):
        row = rows[line - 1]
        rows[line - 1] = row[:column] + text + row[column:]
    return b"".join(rows)
