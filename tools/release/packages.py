"""The sdist and the wheel: built twice, the same bytes, and what the index will refuse found here."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Built(NamedTuple):
    """A wheel and an sdist."""

    wheel: Path
    sdist: Path


def build(python: Path, source: Path, output: Path, *, umask: int = 0o022, **environ: str) -> Built:
    """Build both out of a folder with the sources; ``python`` has what pyproject.toml wants for that."""
    subprocess.run(
        [python, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", output],
        cwd=source,
        env={**os.environ, **environ},
        umask=umask,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return Built(wheel, sdist)


def built(output: Path) -> Built:
    """Build what is committed into ``output``, once more elsewhere as somebody else, and out of the sdist.

    Raises ``SystemExit`` if that gives other bytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "another/folder"):
            subprocess.run(["git", "clone", "-q", ROOT, f"{folder}/{name}"], check=True)
        python = Path(sys.executable)
        first = build(python, Path(folder, "one"), output)
        second = build(
            python,
            Path(folder, "another/folder"),
            Path(folder, "dist"),
            umask=0o077,
            TZ="Asia/Tokyo",
            LC_ALL="C",
        )
        for one, again in zip(first, second, strict=True):
            if one.read_bytes() != again.read_bytes():
                raise SystemExit(f"error: {one.name}: built again, it has other bytes")
        with tarfile.open(first.sdist) as archive:
            archive.extractall(f"{folder}/sdist", filter="data")
        (unpacked,) = Path(folder, "sdist").iterdir()
        of_sdist = build(python, unpacked, Path(folder, "of-sdist")).wheel
        if of_sdist.read_bytes() != first.wheel.read_bytes():
            raise SystemExit(f"error: {first.sdist.name} gives another wheel than the repository")
    return first


def check(built: Built, version: str) -> None:
    """Raise ``SystemExit`` for packages of another version, and for what the index or pip would mind."""
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        said = message_from_bytes(archive.read(name))["Version"]
    names = (f"vllm_mods-{version}-py3-none-any.whl", f"vllm_mods-{version}.tar.gz")
    if said != version or (built.wheel.name, built.sdist.name) != names:
        found = f"{built.wheel.name} with version {said}, and {built.sdist.name}"
        raise SystemExit(f"error: {found} were built of version {version}")
    # Two templates share conversations, and a mod brings modules that are imported elsewhere.
    contents = ["check_wheel_contents", "--ignore", "W002,W004", str(built.wheel)]
    for command in (["twine", "check", "--strict", *map(str, built)], contents):
        subprocess.run([sys.executable, "-m", *command], check=True)
