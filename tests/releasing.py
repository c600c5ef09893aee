"""Environments that a release of this checkout is installed in."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, NamedTuple

from release.packages import ROOT, Built

if TYPE_CHECKING:
    from pathlib import Path

    from situations import Python

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


class Environment(NamedTuple):
    """A Python with vllm-mods from the wheel, and every wheel that pip pulled for it."""

    python: Python
    executable: Path
    wheels: tuple[Path, ...]


def builder(work: Path) -> Path:
    """Return a Python that has what pyproject.toml wants for a build."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", work / "builder"], check=True)
    python = work / "builder/bin/python"
    subprocess.run([*PIP, "--python", python, "install", "-q", *requires], check=True)
    return python


class Environments:
    """Makes an environment for a Python when it is asked for first."""

    def __init__(self, work: Path, built: Built) -> None:
        self._work = work
        self._built = built
        self._made: dict[tuple[Python, int], Environment] = {}

    def of(self, python: Python, umask: int = 0o022) -> Environment:
        """Return the environment of a Python, installed with an umask."""
        if (python, umask) not in self._made:
            self._made[python, umask] = self._make(python, umask)
        return self._made[python, umask]

    def _make(self, python: Python, umask: int) -> Environment:
        place = self._work / f"env-{len(self._made)}-{python.version}"
        executable = place / "bin/python"
        pip = [*PIP, "--python", str(executable)]
        wheels = self._work / f"wheels-{python.minor}"
        subprocess.run([python.path, "-m", "venv", "--without-pip", place], umask=umask, check=True)
        if not wheels.exists():
            subprocess.run([*pip, "download", "-q", "-d", wheels, self._built.wheel], check=True)
        found = tuple(sorted(wheels.iterdir()))
        subprocess.run([*pip, "install", "-q", "--no-deps", *found], umask=umask, check=True)
        return Environment(python, executable, found)
