"""Installs wheels of a small vLLM as pip does: by its own steps in this process, and by pip itself.

pip takes away what RECORD lists, with the bytecode that its Python made of it and folders that are empty then,
and writes the files of the new wheel, their bytecode and a RECORD of its own, sorted. It knows nothing of
``.vllm-mods``, nor of files that no RECORD lists.
"""

from __future__ import annotations

import csv
import io
import py_compile
import subprocess
import sys
import zipfile
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from small_site import row

if TYPE_CHECKING:
    from collections.abc import Mapping

WHEEL = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()


def wheel(
    folder: Path, files: Mapping[str, bytes], version: str = "0.19.1", name: str = "vllm"
) -> Path:
    """Write a wheel of these files."""
    info = f"{name}-{version}.dist-info"
    all_files = {**files, f"{info}/METADATA": metadata(name, version), f"{info}/WHEEL": WHEEL}
    rows = b"".join(row(path, data) for path, data in all_files.items())
    all_files[f"{info}/RECORD"] = rows + f"{info}/RECORD,,\n".encode()
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_, data in all_files.items():
            archive.writestr(name_, data)
    return path


def pip_install(python: Path, *arguments: str | Path) -> None:
    """Have pip install into the environment of another Python, and open no connection."""
    pip(python, "install", "-q", "--no-index", "--no-deps", *arguments)


def pip(python: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def environment(folder: Path) -> tuple[Path, Path]:
    """Make an environment without pip; return its Python and its site root."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    return folder / "bin/python", site


def uninstall(root: Path, name: str = "vllm") -> None:
    """Take a distribution away as ``pip uninstall`` does."""
    for record in root.glob(f"{name}-*.dist-info/RECORD"):
        with record.open(newline="") as file:
            paths = [one[0] for one in csv.reader(file) if one]
        paths += [cache_from_source(path) for path in paths if path.endswith(".py")]
        for path in paths:
            (root / path).unlink(missing_ok=True)
        folders = {folder for path in paths for folder in Path(path).parents}
        for folder in sorted(folders, key=lambda one: -len(one.parts)):
            if folder.parts:
                with suppress(OSError):  # what no RECORD lists is left, and its folder
                    (root / folder).rmdir()


def install(
    root: Path, files: Mapping[str, bytes], version: str = "0.19.1", name: str = "vllm"
) -> None:
    """Install files as ``pip install`` does a wheel of them, in place of what of it is there."""
    uninstall(root, name)
    info = f"{name}-{version}.dist-info"
    all_files = {
        **files,
        f"{info}/METADATA": metadata(name, version),
        f"{info}/WHEEL": WHEEL,
        f"{info}/INSTALLER": b"pip\n",
    }
    rows = [_row(row(path, data).decode()) for path, data in all_files.items()]
    for path, data in all_files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        if path.endswith(".py"):
            py_compile.compile(str(root / path), doraise=False, quiet=2)
            compiled = cache_from_source(path)
            rows += [(compiled, "", "")] if (root / compiled).exists() else []
    rows.append((f"{info}/RECORD", "", ""))
    text = io.StringIO(newline="")
    csv.writer(text).writerows(sorted(rows))
    (root / info / "RECORD").write_bytes(text.getvalue().encode())


def _row(line: str) -> tuple[str, str, str]:
    path, hashed, size = next(csv.reader([line]))
    return path, hashed, size
