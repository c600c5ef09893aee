"""Building once more under other conditions: what must not show in an image is changed on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import Refused
from vllm_mods.build.compare import differences


class Conditions(NamedTuple):
    """What a build runs under. The folder for temporary files is another one each time too."""

    umask: int
    environment: Mapping[str, str]


CONDITIONS = (
    Conditions(0o077, {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    Conditions(0o000, {"TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4242"}),
)


def build_again(arguments: Sequence[str], made: bytes) -> None:
    """Run ``vllm-mods`` with these arguments and ``--output thin:FILE``; compare with ``made``.

    Twice, in processes of their own. Raises ``Refused`` if one gives another image, and says where.
    """
    for n, conditions in enumerate(CONDITIONS, start=1):
        with tempfile.TemporaryDirectory(prefix=f"vllm-mods-again-{n}-") as folder:
            other = _built(arguments, conditions, folder)
        found = differences(made, other)
        if found:
            under = " ".join(f"{key}={value}" for key, value in conditions.environment.items())
            lines = "".join(f"\n  {line}" for line in found)
            raise Refused(
                f"built again under umask {conditions.umask:03o} {under}, the image is another; "
                f"nothing was written{lines}",
                hint="report it with these lines: it is a bug in vllm-mods, or the base moved",
            )


def _built(arguments: Sequence[str], conditions: Conditions, folder: str) -> bytes:
    place = os.path.join(folder, "image.tar")
    # Python's own module search must not find another vllm_mods in the new folder, nor lose this one.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vllm_mods", *arguments, "--output", f"thin:{place}"],
        cwd=folder,
        umask=conditions.umask,
        env={**os.environ, **conditions.environment, "PYTHONPATH": path, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(
            f"building again failed ({done.returncode}); nothing was written\n{done.stderr.strip()}",
            hint="the first build worked: run the command again",
        )
    with open(place, "rb") as file:
        return file.read()
