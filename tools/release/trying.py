"""What was made, used as a user would, in surroundings that have nothing of it: a small tree, in and out again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from release import image

_FILES = {
    "site/vllm/__init__.py": "",
    "site/vllm/loader.py": "def load(name):\n    return name\n",
    "site/vllm-0.21.0.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nVersion: 0.21.0\n",
    "mods/patches/fix/mod.toml": (
        'schema = 1\nname = "fix"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.19"\npatches = ["x.patch"]\n'
    ),
    "mods/patches/fix/x.patch": (
        "--- a/vllm/loader.py\n+++ b/vllm/loader.py\n@@ -1,2 +1,2 @@\n def load(name):\n"
        "-    return name\n+    return name.lower()\n"
    ),
}
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere", "LANG": "C.UTF-8"}


def tried(
    program: Sequence[str | Path],
    version: str,
    folder: Path,
    seen_as: str = "",
    beside: Path | None = None,
) -> None:
    """Say the version, check, apply, verify and revert, on a tree in ``folder``, and see that it is so.

    The program sees the folder as ``seen_as``, and the programs in ``beside`` first. Raises ``SystemExit`` if something else comes out.
    """
    loader = folder / "site/vllm/loader.py"
    before = _FILES["site/vllm/loader.py"]
    after = before.replace("return name", "return name.lower()")
    mods = ["fix", "--library", f"{seen_as or folder}/mods"]
    target = ["--target", f"{seen_as or folder}/site"]
    for arguments, said, now in (
        (["--version"], f"vllm-mods {version}\n", before),
        (["check", *mods, *target], "fix 1.0.0  applies: ", before),
        (["apply", *mods, *target], "fix 1.0.0  applies: ", after),
        (["verify", *target], "every file as it was left", after),
        (["revert", *target], "fix was reverted", before),
    ):
        command = [str(word) for word in (*program, *arguments)]
        environ = dict(_ENVIRONMENT)
        if beside is not None:
            environ["PATH"] = f"{beside}:{environ['PATH']}"
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode or said not in done.stdout or loader.read_text() != now:
            text = f"{done.stdout}{done.stderr}"
            raise SystemExit(f"error: {' '.join(command)}: {done.returncode}\n{text}")


def small_tree(folder: Path, owner: int | None = None) -> Path:
    """Make a folder with a tree, and a mod that fits it."""
    for path, text in _FILES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if owner is not None:
        for place in (folder, *folder.rglob("*")):
            os.chown(place, owner, owner)
    return folder


def tried_image(layout: Path, version: str, folder: Path) -> None:
    """Do the same in a container of docker's, without network, on a tree of its user's."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    name = f"vllm-mods-release:{version}"
    load = ["skopeo", "copy", "-q", "--dest-daemon-host", host, f"oci:{layout}:{version}"]
    subprocess.run([*load, f"docker-daemon:{name}"], check=True)
    run = ["docker", "-H", host, "run", "--rm", "--network=none", f"--volume={folder}:/work"]
    mine = os.getuid()
    if mine:  # as people do with a tree that is theirs
        small_tree(folder)
        run.append(f"--user={mine}:{os.getgid()}")
    else:
        small_tree(folder, image.USER)
    try:
        tried([*run, name], version, folder, seen_as="/work")
    finally:
        subprocess.run(["docker", "-H", host, "rmi", name], stdout=subprocess.DEVNULL, check=True)
