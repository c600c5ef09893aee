r"""Make one file of vllm-mods and all that it needs, to be run by a Python.

    python tools/single_file.py vllm-mods.pyz

It is for the Python that makes it; that of a release is for each that the project supports. For a build
that has no package index, and an image that is to keep nothing of the tool:

    RUN --mount=type=bind,source=vllm-mods.pyz,target=/vllm-mods.pyz \
        SOURCE_DATE_EPOCH=0 python3 -B /vllm-mods.pyz apply --pairing NAME --target SITE-ROOT

A compiled package can't be imported out of an archive, so the file unpacks what this Python needs into
memory (/dev/shm, else a folder for temporary files; one that code may be loaded from, which container
engines forbid in /dev/shm), runs, and takes that away again. Without ``-B``, Python would leave bytecode
of its own modules in the image.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINE = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")[1]
"""What the names of this Python's extension modules say."""
# Of no use, or of this machine.
_LEFT_OUT = re.compile(r"^(\.\./)*bin/|^\.lock$|\.dist-info/(direct_url|uv_cache)\.json$")
_TIME = (1980, 1, 1, 0, 0, 0)
START = """\
import importlib.machinery, json, os, shutil, signal, subprocess, sys, tempfile, zipfile
mine = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")[1]
with zipfile.ZipFile(sys.argv[0]) as archive:
    known = json.loads(archive.read("files.json"))
    if mine not in known:
        def spoken(name):
            kind, number, machine = (name.split("-", 2) + ["", ""])[:3]
            return "Python %s.%s (%s)" % (number[:1], number[1:], machine) if kind == "cpython" else name
        pythons = " or ".join(map(spoken, known))
        sys.exit("error: %s was built for %s, but %s is %s\\n\\nhint: start it with such a Python, "
            "or install vllm-mods for this one with pip" % (sys.argv[0], pythons, sys.executable, spoken(mine)))
    files = known[mine]
    sizes = {one.filename: one.file_size for one in archive.infolist()}
    room = sum(sizes[name] for name in files.values()) * 5 // 4  # files take whole blocks
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    home = os.path.expanduser("~")
    places = ["/dev/shm", tempfile.gettempdir(), "/var/tmp", "/run", home, here]
    def fits(place):
        try:
            info = os.statvfs(place)
        except OSError:
            return False
        enough = info.f_bavail * info.f_frsize > room
        return enough and not info.f_flag & os.ST_NOEXEC and os.access(place, os.W_OK | os.X_OK)
    place = next(filter(fits, places), None)
    if place is None:
        sys.exit("error: %d MB are needed in a folder that code can be loaded from, and none of "
            % (room // 1000000) + ", ".join(places) + " is one\\n\\nhint: TMPDIR=FOLDER")
    folder = tempfile.mkdtemp(prefix="vllm-mods-", dir=place)
    try:
        for path, name in files.items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(name) as source, open(path, "wb") as file:
                shutil.copyfileobj(source, file)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-B", "-P", "-m", "vllm_mods"] + sys.argv[1:]
        file = os.path.abspath(sys.argv[0])
        environ = dict(os.environ, PYTHONPATH=path, VLLM_MODS_SINGLE_FILE=file)
        child = subprocess.Popen(command, env=environ)
        # An apply that is interrupted puts everything back: that is waited for, and then cleared away.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        code = child.wait()
    finally:
        shutil.rmtree(folder)
sys.exit(code if code >= 0 else 128 - code)
"""


def installed(stage: Path) -> dict[str, bytes]:
    """Return the files of an installation by their paths, but for what only says how it came there."""
    found = {}
    for path in sorted(stage.rglob("*")):
        name = str(path.relative_to(stage))
        if path.is_file() and not _LEFT_OUT.search(name):
            data = path.read_bytes()
            if path.name == "RECORD":
                rows = data.decode().splitlines(keepends=True)
                data = "".join(
                    row for row in rows if not _LEFT_OUT.search(row.split(",")[0])
                ).encode()
            found[name] = data
    return found


def write(stages: Mapping[str, Path], output: Path) -> None:
    """Write the file: ``stages`` are what was installed for each Python, by its extension modules' name.

    What several of them have is in it once. The same files make the same bytes.
    """
    names: dict[bytes, str] = {}
    known = {
        python: {
            path: names.setdefault(data, str(len(names)))
            for path, data in installed(stages[python]).items()
        }
        for python in sorted(stages)
    }
    listed = json.dumps(known, separators=(",", ":")).encode()
    members = {"__main__.py": START.encode(), "files.json": listed}
    members |= {name: data for data, name in names.items()}
    with output.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED, 6)
    output.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make one file of vllm-mods for this Python.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheel", default=str(ROOT), help="a built wheel [this checkout]")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--target", folder, asked.wheel], check=True)
        write({MINE: Path(folder)}, asked.output)


if __name__ == "__main__":
    main()
