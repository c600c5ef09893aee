"""Imports that a mod adds, of things that another module has by now."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vllm_mods.base import line_diff
from vllm_mods.base.model import Finding, Tree
from vllm_mods.placing import relocation
from vllm_mods.port.follow import Followed

_FROM = re.compile(rb"(\s*from\s+)([\w.]+)(\s+import\s+)([\w, ]+?)(\s*)\Z")


def follow(
    path: str, before: bytes | None, after: bytes, findings: Iterable[Finding], tree: Tree
) -> tuple[bytes, tuple[Followed, ...]]:
    """Point added ``from … import`` lines, of which the fit says that they fail, to where the names are.

    ``before`` is the target's file, ``after`` the ported one. Only a line that the mod adds, whose
    names one single other file of the tree defines, is changed; every change is told.
    """
    there = set(line_diff.split(before or b""))
    text = list(line_diff.split(after))
    followed = []
    for finding in findings:
        if finding.code != "fit-import" or finding.path != path or finding.line is None:
            continue
        line = text[finding.line - 1]
        match = _FROM.match(line)
        if line in there or match is None:
            continue
        names = [name.split()[0].decode() for name in match[4].split(b",") if name.strip()]
        module = match[2].decode()
        homes = list(relocation.defining(tree, module.replace(".", "/") + ".py", names))
        if len(homes) != 1:
            continue
        new = homes[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        text[finding.line - 1] = match[1] + new.encode() + match[3] + match[4] + match[5]
        said = ", ".join(names)
        followed.append(Followed(f"{said} of {module}", f"{said} of {new}", 1.0))
    return b"".join(text), tuple(followed)
