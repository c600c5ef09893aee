"""Runs a command over a copy of vLLM that has mods, and shows which of their code ran, in which process.

    PYTHONPATH=tools python -m run_record RECORD MOD… --target DIR -- vllm serve MODEL

MOD is as for ``vllm-mods with``. RECORD is written while the command runs; without a MOD what is in it is shown. The
command's Python has to be 3.12 or newer. Ends with 1 where the code of a mod did not run.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from run_record import begin_record, read_record, shown
from vllm_mods.api.libraries import choose, open_library
from vllm_mods.applying.shadow import shadow
from vllm_mods.base.errors import VllmModsError


def main(arguments: list[str]) -> int:
    """Do what the first lines say, and return the exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("mods", nargs="*")
    parser.add_argument("--target")
    parser.add_argument("--library", action="append", default=[])
    options, command = parser.parse_args(arguments[:at]), arguments[at + 1 :]
    if options.mods:
        if not (options.target and command):
            parser.error("--target DIR and -- COMMAND are needed")
        mods = choose(open_library(*options.library), options.mods, None).mods
        with shadow(mods, options.target) as copy:
            environ = begin_record(options.record, copy)
            subprocess.run(command, env=environ, pass_fds=(copy.lock,), check=False)
    seen = read_record(options.record.read_bytes(), os.fspath(options.record))
    print("\n".join(shown(seen)))
    return 0 if all(mod.ran for mod in seen.mods if mod.files) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except VllmModsError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
