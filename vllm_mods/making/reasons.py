"""Why a recorded command failed, out of what it printed and lacked, and the option that would help."""

import re
from collections.abc import Sequence

from vllm_mods.making.watching import WatchedCommand

# The last of these that was printed is the reason.
_PRINTED = re.compile(
    r"No module named '(?P<module>\w+)"
    r"|(?P<variable>\w+): (?:unbound variable|parameter (?:not set|null or not set))"
    r"|KeyError: '(?P<key>[A-Z][A-Z0-9_]+)'"
    r"|(?P<program>[\w.-]+): (?:command )?not found"
    r"|(?P<network>Connection refused|Network is unreachable|ould not resolve|name resolution)"
)
_IN_IMAGE = "--image REF names an image that has it"
OF_TREE = "if the script was written for another vLLM, name that vLLM with --tree or --image; the script finds that vLLM at $VLLM_PACKAGE_DIR"
_KEEP = "put the files that the command downloads into the folder that the command runs in"


def hint(output: str, lacked: Sequence[WatchedCommand], *, in_image: bool) -> str:
    """Return what to do about a run that failed; nothing is said of a network that nothing asked for."""
    names = [one.argv[0] for one in lacked]
    found = [one for one in _PRINTED.finditer(output) if one["program"] not in names]
    if found:
        module, variable, key, program, network = found[-1].groups()
        if network:
            return _KEEP
        if name := variable or key:
            return f"the command needs the variable {name}: --env {name}=VALUE"
        if module is None:
            return f"the command needs the program {program}: {_IN_IMAGE}"
        also = "" if in_image else f"--also {module}, with --with for the package's version; or "
        return f"the command needs the package {module}: {also}{_IN_IMAGE}"
    if names and set(names) <= {"nvidia-smi"}:
        return "the sandbox has no GPU: let the script read such values from a variable, and set the variable with --env"
    return _KEEP if names else OF_TREE
