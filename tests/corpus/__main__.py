"""Print what becomes of the corpus: ``python -m corpus`` in ``tests``.

``--library DIR`` writes the mods that the scripts become, and the releases as wheels. The map of it:
``vllm-mods matrix --library DIR --tree wheel:DIR/wheels/FILE … --format html --output map.html``.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from corpus.importing import imported
from corpus.library import write
from corpus.scripts import SCRIPTS

DOES = Path(__file__).with_name("does.json")


def main() -> int:
    if "--library" in sys.argv:
        folder = Path(sys.argv[sys.argv.index("--library") + 1])
        print(f"{len(list(write(SCRIPTS, folder)))} mods in {folder}")
        return 0
    does = json.loads(DOES.read_text())
    how: Counter[str] = Counter()
    wrong = 0
    for name, files in SCRIPTS.items():
        one = imported(files, does[name])
        kind = "refused" if one.why else "in part" if one.lost else "whole"
        how[kind] += 1
        wrong += bool(one.wrong)
        more = [f"wrong on {', '.join(one.wrong)}"] * bool(one.wrong)
        more += [f"lost on {', '.join(one.lost)}"] * (kind == "in part")
        more += [f"{one.variants} variants"] * (one.variants > 1)
        print(f"{kind:8} {name}: {'; '.join(filter(None, (one.why, *more)))}")
    whole = how["whole"]
    print(
        f"{whole} of {len(SCRIPTS)} whole ({whole / len(SCRIPTS):.0%}), {wrong} wrong; {dict(how)}"
    )
    return bool(wrong)


sys.exit(main())
