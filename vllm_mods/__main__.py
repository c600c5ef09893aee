"""``python -m vllm_mods`` and the ``vllm-mods`` script."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # A run is short and allocates little: collecting while modules load costs a tenth of its time.
    gc.disable()
    from vllm_mods.cli import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    # All is printed and on disk. Taking the interpreter apart, module by module, would cost as
    # much time as half a bare start.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
