"""A process of git, bounded in time and in what it writes, whatever a server sends."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vllm_mods.base import limits
from vllm_mods.base.limits import Limit


def run(
    folder: str,
    words: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    most: Limit,
    seconds: Limit,
    alone: bool = True,
) -> tuple[bytes, str]:
    """Return what git printed in a folder, and why it failed, ``""`` if it did not.

    ``most`` bounds each file, so also each pack; ``alone`` starts it where it can ask nobody.
    """
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]  # which nobody but root may raise
    bound = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
    try:
        with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
            process = subprocess.Popen(
                ["git", *words],
                cwd=folder,
                env={**environ, "LC_ALL": "C", "LANGUAGE": "C"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=alone,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound)),  # noqa: PLW1509  (it sets a limit, and nothing else)
            )
            try:
                code = process.wait(float(seconds))
            except subprocess.TimeoutExpired:
                return b"", f"it was not done within {seconds}"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL) if alone else process.kill()
                process.wait()
            out.seek(0)
            err.seek(0)
            if code == 0:
                printed = out.read(limits.PAGE + 1)
                if len(printed) > limits.PAGE:
                    return b"", f"it prints more than {limits.PAGE}"
                return printed, ""
            files = (one for one in Path(folder).rglob("*") if one.is_file())
            if code == -signal.SIGXFSZ or any(one.stat().st_size >= bound for one in files):
                return b"", f"it sends more than {most}, the most of {most.what}"
            said = err.read(limits.SCRIPT).decode("utf-8", "replace").strip()
            return b"", said or f"exit code {code}"
    except OSError as error:  # no git, or no place for what it says
        return b"", str(error)
