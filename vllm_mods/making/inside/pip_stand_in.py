"""``pip`` in a recording: it says where packages lie, and notes what is to be installed without installing it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator

_ASKING = ("list", "freeze", "check", "--version", "config", "cache")


def main() -> int:
    """Answer one call: the name that pip was called by, and its words."""
    name, *words = (word for word in sys.argv[1:] if word not in ("-q", "--quiet", "-qq"))
    words = words[1:] if name == "uv" and words[:1] == ["pip"] else words
    if words[:1] == ["show"]:
        return show([word for word in words[1:] if not word.startswith("-")])
    if words and words[0] in _ASKING:
        return 0
    parts = ["0", os.environ.get("VLLM_MODS_LINE", ""), "pip", *spelled_out(words)]
    with open(os.path.join(os.environ["VLLM_MODS_HOME"], "asked"), "ab") as log:
        log.write(b"".join(part.encode() + b"\0" for part in parts) + b"\n")
    return 0


def show(packages: list[str]) -> int:
    """Print what ``pip show`` does of packages, as far as scripts look at it."""
    for package in packages:
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            sys.stderr.write(f"WARNING: Package(s) not found: {package}\n")
            return 1
        sys.stdout.write(f"Name: {distribution.metadata['Name']}\n")
        sys.stdout.write(f"Version: {distribution.version}\n")
        sys.stdout.write(f"Location: {distribution.locate_file('')}\n")
    return 0


def spelled_out(words: list[str]) -> Iterator[str]:
    """Yield words with the lines of requirement files in place of ``-r FILE``."""
    rest = iter(words)
    for word in rest:
        if word not in ("-r", "--requirement"):
            yield word
            continue
        with open(next(rest, os.devnull), encoding="utf-8") as file:
            lines = [line.split(" #")[0].strip() for line in file]
        yield from (line for line in lines if line and not line.startswith("#"))


if __name__ == "__main__":
    sys.exit(main())
