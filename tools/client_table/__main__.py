"""Make the table of clients of a library anew: ``python -m client_table --vllm RANGE`` in ``tools/``.

All releases of the range are asked. What the table says of others stays, unless a template has another text by now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from client_table import making
from vllm_mods.api.access import Access
from vllm_mods.api.libraries import open_library
from vllm_mods.base.errors import VllmModsError


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="client_table", description="Ask vLLM's releases which clients work with templates."
    )
    parser.add_argument("--vllm", metavar="RANGE", required=True, help="such as '>=0.17'")
    parser.add_argument(
        "--library",
        metavar="DIR",
        action="append",
        default=[],
        help="your own, beside that of this checkout",
    )
    asked = parser.parse_args(given)
    try:
        with Access(note=lambda line: print(line, file=sys.stderr)) as access:
            for place in making.update(open_library(*asked.library), asked.vllm, access):
                print(f"wrote {place}")
    except VllmModsError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error


if __name__ == "__main__":
    main()
