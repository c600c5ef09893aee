r"""Make one file of vllm-mods and all that it needs, to be run by any Python of the same minor version.

    python tools/single_file.py vllm-mods.pyz

For a build that has no package index, and an image that is to keep nothing of the tool:

    RUN --mount=type=bind,source=vllm-mods.pyz,target=/vllm-mods.pyz \
        SOURCE_DATE_EPOCH=0 python3 -B /vllm-mods.pyz apply --pairing NAME --target SITE-ROOT

A compiled package can't be imported out of an archive, so the file unpacks itself into memory
(/dev/shm, else the folder for temporary files), runs, and takes that away again. Without ``-B``, Python
would leave bytecode of its own modules in the image.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = """\
import os, shutil, subprocess, sys, tempfile, zipfile
if sys.version_info[:2] != {version}:
    sys.exit("error: this file is for Python {text}, and this is " + sys.version.split()[0])
memory = "/dev/shm"
folder = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
try:
    with zipfile.ZipFile(sys.argv[0]) as archive:
        archive.extractall(folder)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-B", "-m", "vllm_mods", *sys.argv[1:]]
    code = subprocess.call(command, env={{**os.environ, "PYTHONPATH": path}})
finally:
    shutil.rmtree(folder)
sys.exit(code)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make one file of vllm-mods.")
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    version = sys.version_info[:2]
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "stage"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(stage), str(ROOT)],
            check=True,
        )
        start = START.format(version=tuple(version), text=".".join(map(str, version)))
        (stage / "__main__.py").write_text(start)
        zipapp.create_archive(stage, output, interpreter="/usr/bin/env python3", compressed=True)


if __name__ == "__main__":
    main()
