"""Which vLLM a command would import: its own Python is asked, with its own flags, where it would look."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, UsageError, reading

_PYTHON = re.compile(r"python[\d.]*\Z")
_FLAGS = re.compile(r"-(?:[XW].*|[bBdEiIOPqsSuvx]+)")
"""Flags before ``-c``, ``-m`` or the script (https://docs.python.org/3/using/cmdline.html)."""
_ASK = """import importlib.machinery as machinery, importlib.util as util, sys
behind = [folder for folder in sys.path if folder != sys.argv[1]]
found = util.find_spec("vllm"), machinery.PathFinder.find_spec("vllm", behind)
print("", *(spec and spec.origin for spec in found), sep="\\n")"""


def check_import(command: Sequence[str], root: str, of: str, environ: dict[str, str]) -> list[str]:
    """Check that a command imports the vLLM in ``root``, a copy ``of`` another one; return what one should know of it.

    Raises ``Refused`` where it would import another one, ``UsageError`` where there is no such program.
    """
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        raise UsageError(f"{command[0]} is not a program", hint="-- vllm serve MODEL")
    python, folder = _python_of(program, command)
    if not python:
        return [f"{command[0]} is not a Python program, so its vLLM was not checked"]
    asking = [*python, "-c", _ASK, root]
    try:
        asked = subprocess.run(
            asking, cwd=folder, env=environ, capture_output=True, stdin=subprocess.DEVNULL,
            timeout=limits.IMPORT_SECONDS, check=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        why = f"{shlex.join(python)} cannot say which vLLM it would import: {error}"
        raise Refused(why, hint=shlex.join([*python, "-c", "import vllm"])) from error
    origin, own = asked.stdout.splitlines()[-2:]
    if os.path.realpath(origin).startswith(f"{os.path.realpath(root)}/"):
        is_other = own != "None" and not os.path.realpath(own).startswith(f"{of}/")
        text = f"{command[0]} belongs to another vLLM, {os.path.dirname(own)}; the copy is of {of}"
        return [text] if is_other else []
    why, hint = "Python looks first in a folder before PYTHONPATH", f"{shlex.join(python)} -m site"
    if ignoring := [word for word in python[1:] if re.match(r"-[a-zA-Z]*[EI]", word)]:
        why, hint = f"{ignoring[0]} ignores PYTHONPATH", f"leave out {ignoring[0]}"
    elif origin.startswith(f"{folder}/"):
        why, hint = f"Python looks first in {folder}", "run the command in a folder without vllm/"
    found = "no vLLM" if origin == "None" else f"the vLLM of {origin}"
    raise Refused(f"{command[0]} would import {found}, not the copy with mods: {why}", hint=hint)


def _python_of(program: str, command: Sequence[str]) -> tuple[list[str], str]:
    """Return the Python that runs a command, with its flags, and the folder in which that looks first; no words if none does."""
    if _PYTHON.match(os.path.basename(program)):
        python, rest = [program], list(command[1:])
        while rest and (flags := _FLAGS.match(rest[0])):
            python.append(flags[0])
            if flags.end() < len(rest[0]):  # ``-Ic``
                break
            python += rest[1:2] if flags[0] in {"-X", "-W"} else ()
            rest = rest[2 if flags[0] in {"-X", "-W"} else 1 :]
        is_script = rest and not rest[0].startswith("-")
        return python, os.path.dirname(os.path.realpath(rest[0])) if is_script else os.getcwd()
    with reading(program), open(program, "rb") as file:
        first = file.readline(4096).decode("utf-8", "replace")
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [shutil.which(words[-1]) or ""]
    is_python = words and _PYTHON.match(os.path.basename(words[0]))
    return words if is_python else [], os.path.dirname(os.path.realpath(program))
