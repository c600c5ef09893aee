"""pip as a program, with its own settings: it chooses and fetches wheels, and never builds one."""

import subprocess
import sys

from vllm_mods.base.errors import TreeError

SETTINGS = "pip config list  # vllm-mods uses its index-url, proxy and cert"


def run(command: str, *words: str, what: str, requirements: str | None = None) -> None:
    """Run pip. Raises ``TreeError`` for ``what`` it does not find, with its last error."""
    # -P: a folder called pip where the command was called is not pip
    line = [sys.executable, "-P", "-m", "pip", command, "--quiet", "--no-deps", "--no-input"]
    line += ["--disable-pip-version-check", "--only-binary=:all:", *words]
    done = subprocess.run(
        line, input=requirements or "", capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        why = errors[-1].removeprefix("ERROR: ") if errors else done.stderr.strip()[-500:]
        raise TreeError(f"pip finds no wheel of {what}: {why}", hint=SETTINGS)
