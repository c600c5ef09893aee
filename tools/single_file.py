r"""Make one file of vllm-mods and all that it needs, to be run by any Python of the same minor version.

    python tools/single_file.py vllm-mods.pyz

For a build that has no package index, and an image that is to keep nothing of the tool:

    RUN --mount=type=bind,source=vllm-mods.pyz,target=/vllm-mods.pyz \
        SOURCE_DATE_EPOCH=0 python3 -B /vllm-mods.pyz apply --pairing NAME --target SITE-ROOT

A compiled package can't be imported out of an archive, so the file unpacks itself into memory
(/dev/shm, else a folder for temporary files; one that code may be loaded from, which container engines
forbid in /dev/shm), runs, and takes that away again. Without ``-B``, Python would leave bytecode of its
own modules in the image.
"""

from __future__ import annotations

import argparse
import compileall
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = """\
import os, shutil, signal, subprocess, sys, tempfile, zipfile
if sys.version_info[:2] != {version}:
    sys.exit("error: this file is for Python {text}, and this is " + sys.version.split()[0])
here = os.path.dirname(os.path.abspath(sys.argv[0]))
home = os.path.expanduser("~")
places = ["/dev/shm", tempfile.gettempdir(), "/var/tmp", "/run", home, here]
def fits(place):
    try:
        info = os.statvfs(place)
    except OSError:
        return False
    room = info.f_bavail * info.f_frsize > {room}
    return room and not info.f_flag & os.ST_NOEXEC and os.access(place, os.W_OK | os.X_OK)
place = next(filter(fits, places), None)
if place is None:
    sys.exit("error: {megabytes} MB are needed in a folder that code can be loaded from, and none of "
        + ", ".join(places) + " is one\\n\\nhint: TMPDIR=FOLDER")
folder = tempfile.mkdtemp(prefix="vllm-mods-", dir=place)
try:
    with zipfile.ZipFile(sys.argv[0]) as archive:
        archive.extractall(folder)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-B", "-m", "vllm_mods", *sys.argv[1:]]
    file = os.path.abspath(sys.argv[0])
    environ = {{**os.environ, "PYTHONPATH": path, "VLLM_MODS_SINGLE_FILE": file}}
    child = subprocess.Popen(command, env=environ)
    # An apply that is interrupted puts everything back: that is waited for, and then cleared away.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
finally:
    shutil.rmtree(folder)
sys.exit(code if code >= 0 else 128 - code)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make one file of vllm-mods.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheel", default=str(ROOT), help="a built wheel [this checkout]")
    asked = parser.parse_args()
    output: Path = asked.output
    version = sys.version_info[:2]
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "stage"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--target", str(stage), asked.wheel], check=True)
        shutil.rmtree(stage / "bin", ignore_errors=True)
        # Unpacked files have other times: bytecode that Python would check would not be used.
        compileall.compile_dir(
            stage,
            quiet=2,
            stripdir=str(stage),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        size = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file())
        start = START.format(
            version=tuple(version),
            text=".".join(map(str, version)),
            room=size * 5 // 4,  # files take whole blocks
            megabytes=size * 5 // 4 // 1_000_000,
        )
        (stage / "__main__.py").write_text(start)
        zipapp.create_archive(stage, output, interpreter="/usr/bin/env python3", compressed=True)
    output.chmod(0o755)  # zipapp lets only the owner run it


if __name__ == "__main__":
    main()
