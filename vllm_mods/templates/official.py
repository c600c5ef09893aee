"""A model's own chat template with a patch of a library on it: for those who take no rewritten one."""

from __future__ import annotations

import os
from typing import NamedTuple

from vllm_mods.base.errors import Refused
from vllm_mods.formats import diff
from vllm_mods.library.catalog import Library
from vllm_mods.placing.splicing import splice
from vllm_mods.placing.target import Target, matches
from vllm_mods.templates.source import Template

PATCH = "official.patch"
"""Lies beside a bundled template, and does to the models' own what matters most."""


class Patched(NamedTuple):
    """The text with the patch in it; ``was_in`` if it had it already."""

    patch: str
    data: bytes
    was_in: bool


def patch_template(library: Library, template: Template) -> Patched:
    """Put in the patch that was written for a template's text, every hunk where it stands, or none.

    Raises ``Refused`` if there is none that fits.
    """
    target = Target(template.data, None)
    lost = []
    for name in library.template_names():
        path = os.path.join(library.template_folder(name), PATCH)
        data = library.read(path)
        for file in diff.parse(data, path) if data is not None else ():
            after = _place_all(file, target)
            if after is not None:
                return Patched(path, after, was_in=False)
            if _place_all(file.reversed(), target) is not None:
                return Patched(path, template.data, was_in=True)
            missing = [
                f"hunk {hunk.number} (its line {hunk.patch_line}): its text stands {times} times"
                for hunk in file.hunks
                if (times := len(matches(target.data, hunk.old))) != 1
            ] or ["their order is another one"]
            lost.append(f"{path}: {len(missing)} of {len(file.hunks)} hunks: {missing[0]}")
    why = "; ".join(lost) or "no library has any"
    raise Refused(
        f"{template.path}: no patch was written for this text: {why}",
        hint=f"vllm-mods template diff {template.path} qwen3.5-enhanced shows the rewritten one",
    )


def _place_all(file: diff.FileDiff, target: Target) -> bytes | None:
    """Return the text with all hunks, each where its text stands alone, in their order; None where one does not.

    A template has no functions that could tell one place from another: that all of them stand so is what tells.
    """
    places = [matches(target.data, hunk.old) for hunk in file.hunks]
    if any(len(lines) != 1 for lines in places) or sorted(places) != places:
        return None
    return splice(
        target.lines, [(line, hunk) for (line,), hunk in zip(places, file.hunks, strict=True)]
    )
