"""What one types: examples for the help of every command, a line of ``examples.txt`` each. A test parses them."""

import os

_FIRST = ("doctor", "check", "apply", "revert")
with open(os.path.join(os.path.dirname(__file__), "examples.txt"), encoding="utf-8") as _file:
    EXAMPLES = tuple(_file.read().splitlines())


def examples(path: str) -> list[str]:
    """Return those of a command by its path below the program; of the program itself, one of each of the first."""
    if not path:
        return [examples(name)[0] for name in _FIRST]
    return [line for line in EXAMPLES if f"vllm-mods {path} " in f"{line} "]


def epilog(path: str) -> str:
    r"""Return the end of a command's help; ``\b`` has click keep the lines."""
    return "\n".join(("\b", "Examples:", *examples(path)))
