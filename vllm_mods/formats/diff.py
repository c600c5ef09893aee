"""Read a unified diff, strictly, from bytes.

Format: GNU diffutils' "Detailed Description of Unified Format" with git's extended headers
(git-diff(1), "Generating patch text with -p"). What ``git apply`` takes without a warning is read,
with the same meaning, or refused by name: counts that lie, combined hunks, binary parts.

``unidiff`` reads the hunks a second time, and the two readings have to agree. It gets what has been
found to be a hunk, and nothing else: lines beyond a hunk's counts it drops without a word.
"""

import io
import os

from vllm_mods.base.errors import DiffError
from vllm_mods.base.model import Mod, PatchFile, Variant
from vllm_mods.formats import diff_reader
from vllm_mods.formats.file_diff import FileDiff, Hunk

__all__ = ["FileDiff", "Hunk", "parse", "paths_of", "read", "touched"]


def parse(data: bytes, where: str, *, root: str = "") -> tuple[FileDiff, ...]:
    """Read a patch and have ``unidiff`` confirm the reading.

    ``where`` names the patch in errors, ``root`` is put in front of each path.
    Raises ``DiffError`` for anything that could not be applied exactly as written.
    """
    files, texts = diff_reader.read(data, where, root)
    for file in files:
        if file.hunks:
            _confirm(file.hunks, [texts[hunk.patch_line] for hunk in file.hunks], where)
    return files


def read(data: bytes, where: str, *, root: str = "") -> tuple[FileDiff, ...]:
    """Read a patch without the second reading: for one whose hash mod.lock vouches for."""
    return diff_reader.read(data, where, root)[0]


def paths_of(patch: PatchFile, where: str) -> list[str]:
    """Return the files that a patch names, both names of one that it renames. Raises ``DiffError``, as ``parse``."""
    files = parse(patch.data, where, root=patch.root)
    paths = (path for file in files for path in (file.old_path, file.new_path) if path is not None)
    return list(dict.fromkeys(paths))


def touched(mod: Mod, variant: Variant) -> list[str]:
    """Return the paths of the files that a variant changes or brings."""
    files = ((patch, os.path.join(mod.directory, patch.source)) for patch in variant.patches)
    paths = [path for patch, file in files for path in paths_of(patch, file)]
    for brought in (variant.replace, variant.overlay, variant.binary):
        paths += [one.path for one in brought]
    paths += [f"<workspace>/{file.file}" for file in variant.templates]
    return list(dict.fromkeys(paths))


def _confirm(hunks: tuple[Hunk, ...], texts: list[bytes], where: str) -> None:
    """Have ``unidiff`` read the text of each hunk, and hold what it finds against ours."""
    from unidiff.errors import UnidiffParseError  # noqa: PLC0415
    from unidiff.patch import PatchSet  # noqa: PLC0415

    text = (b"--- a/x\n+++ b/x\n" + b"".join(texts)).decode("utf-8", "surrogateescape")
    try:
        theirs = [hunk for file in PatchSet(io.StringIO(text, newline="\n")) for hunk in file]
    except UnidiffParseError:
        theirs = []
    for i, hunk in enumerate(hunks):
        # unidiff drops the terminator of the last line before "\ No newline", as we do, but keeps
        # a stripped empty context line as "\n": both compare equal without terminators.
        ours = [line.decode("utf-8", "surrogateescape").rstrip("\n") for _, line in hunk.lines]
        lines = theirs[i] if len(theirs) == len(hunks) else ()
        if ours != [line.value.rstrip("\n") for line in lines if line.line_type in " +-"]:
            why = "this hunk is ambiguous: it can be read in two ways"
            hint = "report this with the patch: the bug is in vllm-mods, not in the patch"
            raise DiffError(where, hunk.patch_line, why, hint=hint)
