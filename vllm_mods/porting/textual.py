"""Three-way merge as git does it, where git is; the other opinion beside our own algorithm."""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.errors import TreeError
from vllm_mods.trees import git_process

_LONG = 40  # letters of a marker, if no line begins so
_MARKS = (b"<", b"|", b"=", b">")
_BROKEN = 128  # exit codes below it count conflicts


def merge(base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]) -> diff3.Stretches:
    """Merge with ``git merge-file`` (``TreeError`` if it fails), else with our own diff3."""
    if shutil.which("git") is None:
        return diff3.merge(base, ours, theirs)
    looks = [line for line in (*base, *ours, *theirs) if line.startswith(_MARKS)]
    # so many letters that no line begins with a marker
    long = max([_LONG, *(1 + len(line) - len(line.lstrip(line[:1])) for line in looks)])
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            with open(os.path.join(folder, name), "wb") as file:
                file.writelines(text)
        words = ("merge-file", "-p", "-q", "--diff3", f"--marker-size={long}")
        # the folder lies in no repository, whatever others put above it
        environ = git_process.environment(os.environ, alone=True)
        environ["GIT_CEILING_DIRECTORIES"] = os.path.dirname(folder)
        done = git_process.run(folder, (*words, "ours", "base", "theirs"), environ)
    if not 0 <= done.code < _BROKEN or (done.why and b"<" * long not in done.out):
        raise TreeError(f"git merge-file failed: {done.why}", hint="git --version")
    return _read(done.out, long)


def _read(text: bytes, long: int) -> diff3.Stretches:
    """Read the stretches out of what git marked: between merged lines the three sides of a clash."""
    markers = b"|".join(re.escape(mark * long) for mark in _MARKS)
    parts = [line_diff.split(part) for part in re.split(rb"(?m)^(?:%b).*\n" % markers, text)]
    out: diff3.Stretches = []
    for n in range(0, len(parts), 4):
        out += [parts[n]] if parts[n] else []
        out += [diff3.Clash(*parts[n + 1 : n + 4])] if n + 1 < len(parts) else []
    return out
