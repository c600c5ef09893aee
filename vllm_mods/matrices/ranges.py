"""Whether the version ranges that mods declare are what the trees say, either way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Mod, Verdict
from vllm_mods.matrices.cell import Cell, CellProblem


def range_problems(mods: Sequence[Mod], cells: Sequence[Cell]) -> tuple[CellProblem, ...]:
    """Return where trees contradict the ranges of a mod's variants, and mods that have become needless."""
    return tuple(
        problem
        for mod in mods
        for problem in _of_mod(mod, [cell for cell in cells if cell.mod == mod.name])
    )


def _of_mod(mod: Mod, cells: Iterable[Cell]) -> Iterator[CellProblem]:
    known = [cell for cell in cells if cell.computed and cell.verdict is not Verdict.UNREADABLE]
    for cell in known:
        where = f"vLLM {cell.version} ({cell.tree})"
        if cell.meant and not cell.verdict.ok:
            message = f"a range of {mod.name} names {where}, where it is `{cell.verdict}`"
        elif not cell.verdict.writes or (cell.meant and cell.in_range):
            continue
        elif cell.meant:
            message = (
                f"on {where} variant `{cell.variant}` of {mod.name} fits, and the range of another "
                "variant names that version"
            )
        else:
            message = (
                f"no range of {mod.name} names {where}, where its variant `{cell.variant}` fits: "
                "widen the range, if it behaves there too"
            )
        code = FindingCode.RANGE_TOO_WIDE if cell.meant else FindingCode.RANGE_TOO_NARROW
        yield CellProblem(code, mod.name, cell.tree, message)
    meant = [cell for cell in known if cell.meant]
    if meant and all(cell.verdict is Verdict.UPSTREAM for cell in meant):
        message = f"every release that {mod.name} is meant for carries its change itself: it can go"
        yield CellProblem(FindingCode.NEEDLESS, mod.name, None, message)
