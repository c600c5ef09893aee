"""What pip would install, for any Python and processor: decided once, and put into folders by uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MINORS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
_UV = [sys.executable, "-m", "uv", "--no-config"]


class Platform(NamedTuple):
    """A Python and a processor, of a Linux with glibc 2.28 or newer."""

    minor: str
    machine: str

    @property
    def suffix(self) -> str:
        """What the names of extension modules say there."""
        return f"cpython-{self.minor.replace('.', '')}-{self.machine}-linux-gnu"


ALL = tuple(Platform(minor, machine) for minor in MINORS for machine in MACHINES)


def pin(project: Path, output: Path) -> None:
    """Write what a project needs today, for all Pythons, with every file's hash."""
    subprocess.run(
        [
            *_UV, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header",
            "--no-annotate", "--only-binary", ":all:", "--python-version", MINORS[0],
            "--output-file", output, project / "pyproject.toml",
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )  # fmt: skip


def stage(wheel: Path, pins: Path, platform: Platform, folder: Path) -> None:
    """Put a wheel and what is pinned into a folder, for a platform that need not be this one."""
    install = [
        *_UV, "pip", "install", "--quiet", "--target", str(folder), "--link-mode", "copy",
        "--python-version", platform.minor,
        "--python-platform", f"{platform.machine}-manylinux_2_28", "--only-binary", ":all:",
    ]  # fmt: skip
    subprocess.run([*install, "--require-hashes", "-r", str(pins)], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)


def environment(package: Path, pins: Path, folder: Path) -> Path:
    """Install a wheel or sdist, and what is pinned, into an environment, and return its Python."""
    subprocess.run([*_UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    install = [*_UV, "pip", "install", "--quiet", "--python", str(folder), "--link-mode", "copy"]
    subprocess.run([*install, "--require-hashes", "-r", str(pins)], check=True)
    subprocess.run([*install, "--no-deps", str(package)], check=True)
    return folder / "bin/python"
