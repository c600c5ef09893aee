"""Whether the version ranges that mods declare are what the trees say, either way. Pure."""

from collections.abc import Iterable, Iterator

from vllm_mods.base import versions
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, Mod, Verdict
from vllm_mods.matrices.cell import Cell, CellProblem
from vllm_mods.matrices.work import is_named


def range_problems(mod: Mod, cells: Iterable[Cell]) -> Iterator[CellProblem]:
    """Yield where the cells of a mod contradict the ranges of its variants, and that it has become needless."""
    known = [cell for cell in cells if cell.readable]
    yield from filter(None, (_of_cell(mod, cell) for cell in known))
    meant = [cell for cell in known if cell.meant]
    if meant and all(cell.verdict is Verdict.UPSTREAM for cell in meant):
        message = f"every release in the range of {mod.name} already has the change: the mod can be removed"
        yield CellProblem(FindingCode.NEEDLESS, mod.name, None, message)


def _of_cell(mod: Mod, cell: Cell) -> CellProblem | None:
    """Return what is wrong with the ranges of a mod on a tree, None if nothing is."""
    where = f"vLLM {cell.version} ({cell.tree})"
    named = is_named(mod, cell.version)
    level = Level.ERROR
    if not cell.verdict.ok and named:
        code = FindingCode.RANGE_TOO_WIDE
        message = f"a range of {mod.name} includes {where}, where its verdict is `{cell.verdict}`"
    elif not cell.verdict.ok and is_wanted(mod, cell):
        code = FindingCode.NEEDS_PORT
        why = "which its ranges include" if cell.meant else "which is newer than its ranges"
        message = f"{mod.name} does not apply to {where}, {why}: port the mod. If it is not meant for that release, give `vllm` at the top of mod.toml an upper bound below it, and state the reason in `until`"
    elif cell.verdict.writes and named and not cell.in_range:
        code = FindingCode.RANGE_TOO_WIDE
        message = f"on {where}, variant `{cell.variant}` of {mod.name} fits, but that version is in the range of another variant"
    elif cell.verdict.writes and not named and not cell.meant:
        code, level = FindingCode.RANGE_TOO_NARROW, Level.NOTE
        message = f"variant `{cell.variant}` of {mod.name} fits {where}, which is outside the mod's ranges: widen the range if the mod also works there"
    else:
        return None
    return CellProblem(code, mod.name, cell.tree, message, level)


def is_wanted(mod: Mod, cell: Cell) -> bool:
    """Tell whether a mod is meant for the tree of a cell, or that came after those of a mod which does not say where it ends."""
    first = versions.lowest(variant.vllm for variant in mod.variants)
    newer = first is None or versions.sort_key(cell.version) >= versions.sort_key(first)
    return cell.meant or (newer and not mod.vllm)
