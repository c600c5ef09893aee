"""What a script of the corpus does on a release: run by bash as a launcher does, nothing of ours in between."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from vllm_mods.making import sandbox
from vllm_mods.making.effects import HOME, SITE, WORKSPACE

Effect = dict[str, str | None]
# The container's pip: it says where packages lie, and has what it is asked for.
PIP = """#!/bin/sh
case "$1" in
show) printf 'Name: vllm\\nVersion: %s\\nLocation: %s\\n' "$VERSION" "$PYTHON_ROOT" ;;
esac
"""
CUSTOM = f"""import site, sysconfig
site.getsitepackages = lambda: ["{SITE}"]
_paths = sysconfig.get_paths
sysconfig.get_paths = lambda *a, **k: {{**_paths(*a, **k), "purelib": "{SITE}"}}
"""


def digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def effect(files: dict[str, str], version: str, tree: dict[str, bytes]) -> Effect | None:
    """Return the hash of each file that is another then, None if the script fails."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        places = {SITE: "site", WORKSPACE: "workspace", HOME: "home", "/tmp": "tmp"}  # noqa: S108
        places["/container"] = "container"
        folders = {place: f"{scratch}/{name}" for place, name in places.items()}
        for folder in (*folders.values(), f"{scratch}/root"):
            Path(folder).mkdir()
        metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode()
        _put(Path(folders[SITE]), {**tree, f"vllm-{version}.dist-info/METADATA": metadata})
        home = {path: text.encode() for path, text in files.items()}
        _put(Path(folders[WORKSPACE], "mods/mine"), home)
        _put(
            Path(folders["/container"]),
            {"bin/pip": PIP.encode(), "sitecustomize.py": CUSTOM.encode()},
        )
        Path(folders["/container"], "bin/pip").chmod(0o755)
        Path(folders[WORKSPACE], "mods/mine/run.sh").chmod(0o755)
        ran = sandbox.run(
            ["./run.sh"],
            folders,
            cwd=f"{WORKSPACE}/mods/mine",
            environ={
                "PATH": "/container/bin",
                "PYTHONPATH": f"/container:{SITE}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": HOME,
                "VERSION": version,
                "WORKSPACE_DIR": WORKSPACE,
                "PYTHON_ROOT": SITE,
                "VLLM_SITE_PACKAGES": SITE,
                "VLLM_PACKAGE_DIR": f"{SITE}/vllm",
            },
            root=f"{scratch}/root",
            network=False,
            seconds=60,
        )
        if ran.code:
            return None
        site = Path(folders[SITE])
        there = {str(p.relative_to(site)): p.read_bytes() for p in site.rglob("*") if p.is_file()}
        there = {path: data for path, data in there.items() if ".dist-info/" not in path}
        left = {path: data for path, data in there.items() if not path.endswith((".rej", ".orig"))}
        changed = {path for path in {*tree, *left} if tree.get(path) != left.get(path)}
        found = {path: digest(left.get(path)) for path in sorted(changed)}
        templates = sorted(Path(folders[WORKSPACE]).glob("*.jinja"))
        return found | {f"templates/{p.name}": digest(p.read_bytes()) for p in templates}


def _put(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
