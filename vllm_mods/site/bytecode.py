"""The bytecode that interpreters keep of a source: ``__pycache__/<stem>.<tag>.pyc`` (PEP 3147, 488)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.site.site import Look

# `<implementation>-<version>[.opt-N].pyc`; pytest adds a tag with dots of its own. Not any name
# with dots: `a.b.cpython-312.pyc` is of another module than `a`.
_TAG = r"[A-Za-z_]+-?\d.*\.pyc\Z"


def cache(source: str) -> str:
    """Return the folder that bytecode of a source lies in."""
    return f"{os.path.dirname(source)}/__pycache__".removeprefix("/")


def is_of(path: str, source: str) -> bool:
    """Tell whether a path is that of bytecode of a source, by any interpreter at any level."""
    prefix = f"{cache(source)}/{os.path.basename(source).removesuffix('.py')}."
    return path.startswith(prefix) and re.match(_TAG, path[len(prefix) :]) is not None


def of(look: Look, source: str) -> Iterator[str]:
    """Yield the paths of all bytecode that there is of a source."""
    folder = cache(source)
    if look.parent(f"{folder}/x")[0] is None:
        return
    for name in sorted(os.listdir(look.site.absolute(folder))):
        if is_of(f"{folder}/{name}", source):
            yield f"{folder}/{name}"
