"""Which parsers of which vLLM read back what chat templates write: every pair, whole and streamed.

Each template writes the twelve answers of ``template check --parsers``; all parsers of each release read them. A
cell says of the best pairs how many answers came back whole, streamed by 1, by 3, and at once; the last table
has all pairs that read any, and the time.

    python benchmarks/template_parsers.py --target TREE --target TREE TEMPLATE…
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.library.catalog import Library
from vllm_mods.templates import check, parser_process
from vllm_mods.templates.reading_back import WAYS, PairRead, way_name
from vllm_mods.templates.source import open_template
from vllm_mods.trees.open import open_tree


class Cell(NamedTuple):
    """What the parsers of one release make of one template."""

    pairs: tuple[PairRead, ...]
    seconds: float

    def best(self, kind: str) -> list[PairRead]:
        """Return the parsers of a kind, ``tool`` or ``reasoning``, that read most."""
        some = [one for one in self.pairs if getattr(one, kind) is not None and any(one.read)]
        most = max((sum(one.read) for one in some), default=0)
        return [one for one in some if sum(one.read) == most]


def cell(release: parser_process.ReleaseParsers, named: str) -> Cell:
    """Have a release read a template; a bundled one is asked with all parsers too."""
    template = open_template(Library(), named)._replace(about=None)
    before = time.perf_counter()
    found = check.check(template, (), release)
    return Cell(found.back.pairs if found.back else (), time.perf_counter() - before)


def words(found: Cell, kind: str) -> str:
    """Return the counts of the best parsers, and their names."""
    best = found.best(kind)
    if not best:
        return ""
    names = ", ".join(str(getattr(one, kind)) for one in best)
    return f"{' '.join(map(str, best[0].read))} of {best[0].asked}: {names}"


def totals(spec: str, cells: Sequence[Cell]) -> str:
    """Return a row for a release: templates, pairs, how many lose nothing in each way, and the time."""
    pairs = [pair for one in cells for pair in one.pairs if any(pair.read)]
    ways = [sum(pair.read[i] == pair.asked for pair in pairs) for i in range(len(WAYS))]
    every = sum(pair.whole for pair in pairs)
    some = sum(any(pair.whole for pair in one.pairs) for one in cells)
    seconds = sum(one.seconds for one in cells)
    row = (spec, len(cells), some, len(pairs), *ways, every, f"{seconds:.0f} s")
    return f"| {' | '.join(map(str, row))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", action="append", required=True, metavar="TREE")
    parser.add_argument("templates", nargs="+")
    named = parser.parse_args()
    releases = [parser_process.open_release(open_tree(one)) for one in named.target]
    found = {}
    for template in named.templates:
        cells = [cell(release, template) for release in releases]
        found[template] = cells
        for kind in ("tool", "reasoning"):
            row = " | ".join(words(one, kind) for one in cells)
            if row.strip(" |"):
                print(f"| {os.path.basename(template)} | {row} |", flush=True)
    heads = ("templates", "read by one", "pairs", *map(way_name, WAYS), "in every way", "time")
    print(f"| vLLM | {' | '.join(heads)} |")
    for i, release in enumerate(releases):
        print(totals(release.version or release.spec, [cells[i] for cells in found.values()]))


if __name__ == "__main__":
    main()
