"""One project file, two libraries, a signature: the same tree from `RUN` in two builders as on the host."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, read
from git_host import commit, mod, served, write
from making_images import File, Image, layer
from packaging.requirements import Requirement
from paired import Tool
from real_engines import SITE, need

if TYPE_CHECKING:
    from collections.abc import Mapping

    from real_engines import Engine

BASE = "localhost/synced-base:latest"
EPOCH = "1700000000"
COPIED = f"""\
FROM {BASE}
COPY tool /opt/vllm-mods
COPY cache /cache
COPY vllm-mods.toml vllm-mods.lock /mods/
ENV PYTHONPATH=/opt/vllm-mods VLLM_MODS_CACHE=/cache SOURCE_DATE_EPOCH={EPOCH}
WORKDIR /mods
RUN python3 -B -m vllm_mods sync && python3 -B -m vllm_mods sync --check
"""
"""For a builder that has no mounts, and finds the vLLM itself."""


def installed(place: Path) -> Path:
    """Put the tool into a folder, as ``pip install --target`` would, out of what runs the tests."""
    pending, seen = ["vllm-mods"], set()
    while pending:
        one = metadata.distribution(pending.pop())
        if one.name in seen:
            continue
        seen.add(one.name)
        needed = map(Requirement, one.requires or ())
        pending += [
            each.name
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
        for file in one.files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place / file)
            elif file.parts[-2:] == ("bin", "ty"):  # pip puts programs there as well
                (place / "bin").mkdir(exist_ok=True)
                shutil.copy(str(file.locate()), place / "bin/ty")
    for part in ("vllm_mods", "patches", "templates", "pairings"):
        shutil.rmtree(place / part, ignore_errors=True)
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def held(site: Path) -> dict[str, tuple[object, ...]]:
    """Return all that is in a tree: modes and owners, and of files the bytes and times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in site.rglob("*"):
        info = path.lstat()
        file = (path.read_bytes(), info.st_mtime_ns) if path.is_file() else ()
        found[str(path.relative_to(site))] = (oct(info.st_mode), info.st_uid, *file)
    return found


def documented() -> str:
    """Return the Dockerfile of the page on libraries, for the base of the tests."""
    page = read("sharing.md", (ROOT / "docs/guides/sharing.md").read_text())
    (text,) = (one.body for one in page.blocks if one.language == "dockerfile")
    text = re.sub("^FROM .*", f"FROM {BASE}", text)
    text = text.replace("SOURCE_DATE_EPOCH=0", f"SOURCE_DATE_EPOCH={EPOCH}")
    return re.sub(r"/usr/local/lib/python3\.12/dist-packages", f"/{SITE}", text)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Return the tool in a project with two libraries by git over HTTP, one of them signed. Both are kept in it."""
    need("git", "ssh-keygen")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    made = Tool(tmp_path)
    del made.environ["VLLM_MODS_LIBRARY"]
    made.environ |= {
        "VLLM_MODS_CACHE": str(project / "cache"),
        "SOURCE_DATE_EPOCH": EPOCH,
        "HOME": str(tmp_path),
    }
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(command, check=True)
    public = (tmp_path / "key.pub").read_text()
    (project / "signers").write_text(f'bob namespaces="vllm-mods" {public}')
    sign(tmp_path, mod("fast", "2.0.0", text="X = 2\n"), "1")
    commit(tmp_path / "served/alice", mod("fast") | mod("slow"), "v1")
    with served(tmp_path / "served") as host:
        made("add", f"git+{host.url}/alice@v1", "--name", "alice", "--mod", "slow")
        # the builders' images have no ssh-keygen, which every sync of a signed library asks
        made("add", f"git+{tmp_path}/bob@1", "--name", "bob", "--mod", "fast")
        shutil.rmtree(project / "cache")
        made("sync", "--fetch")
    return made


def sign(folder: Path, files: Mapping[str, str], tag: str) -> None:
    """Commit a library whose list of hashes is signed."""
    library = write(folder / "bob", files)
    rows = subprocess.run(
        ["sh", "-c", "find patches -type f | sort | xargs sha256sum"],
        cwd=library,
        capture_output=True,
        check=True,
    )
    (library / "SHA256SUMS").write_bytes(rows.stdout)
    (library / "SHA256SUMS.sig").unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(folder / "key"), "-n", "vllm-mods"]
    subprocess.run([*command, str(library / "SHA256SUMS")], check=True, capture_output=True)
    commit(library, {}, tag)


@pytest.fixture
def site(buildah: Engine, paired_base: Image, tmp_path: Path) -> Path:
    """Return the vLLM of a base image on the host; buildah has the image, with a shell for ``RUN``."""
    shell = layer({"bin/sh": File(Path("/bin/sh").read_bytes(), 0o755)})
    base = Image([*paired_base.layers, shell], paired_base.settings, BASE)
    buildah("pull", "-q", f"docker-archive:{base.archive(tmp_path / 'base.tar')}")
    return tree_of(buildah, BASE, tmp_path / "host")


def tree_of(buildah: Engine, image: str, place: Path) -> Path:
    """Copy the vLLM of an image, with modes, owners and times."""
    container = buildah("from", "--pull-never", image)
    try:
        subprocess.run(["cp", "-a", f"{buildah('mount', container)}/{SITE}", place], check=True)
    finally:
        buildah("rm", container)
    return place


def test_one_project_gives_one_tree_in_two_builders_and_on_the_host(
    tool: Tool, site: Path, dockerd: Engine, buildah: Engine, tmp_path: Path
) -> None:
    assert "slow 1.0.0 goes in" in tool("sync", "--check", "--target", site, code=1).stdout
    tool("sync", "--target", site)
    expected = held(site)
    for name, text in {"fast": b"X = 2\n", "slow": b"X = 1\n"}.items():
        assert expected[f"vllm/{name}.py"][2:] == (text, int(EPOCH) * 10**9)
    project = installed(tmp_path / "project/tool").parent
    (project / "Dockerfile").write_text(documented())
    mounted = buildah("bud", "-q", "--no-cache", "--isolation", "chroot", project)
    (project / "Dockerfile").write_text(COPIED)
    dockerd("load", "-q", "-i", tmp_path / "base.tar")
    dockerd("build", "-q", "--no-cache", "--network=none", "-t", "synced", project)
    copied = dockerd("create", "synced")
    dockerd("cp", "-a", f"{copied}:/{SITE}", tmp_path / "copied")
    dockerd("rm", copied)
    dockerd("rmi", "-f", "synced", BASE)
    for tree in (site, tree_of(buildah, mounted, tmp_path / "mounted"), tmp_path / "copied"):
        assert held(tree) == expected, tree
        tool("sync", "--check", "--target", tree)
        (tree / "vllm/fast.py").unlink()
        said = tool("sync", "--check", "--target", tree, code=1)
        assert "would be changed" in said.stdout
        (tree / "vllm/slow.py").write_text("X = 'somebody else'\n")
        assert "vllm/slow.py" in tool("sync", "--check", "--target", tree, code=3).stderr


def test_what_is_newer_is_taken_when_asked_for_and_what_is_removed_leaves_nothing(
    tool: Tool, site: Path, tmp_path: Path
) -> None:
    untouched = {path: one[:3] for path, one in held(site).items()}
    tool("sync", "--target", site)
    sign(tmp_path, mod("fast", "2.1.0", text="X = 3\n"), "2")
    file = tmp_path / "project/vllm-mods.toml"
    file.write_text(file.read_text().replace('rev = "1"', 'rev = "2"'))
    assert "vllm-mods update bob" in tool("sync", "--target", site, code=2).stderr
    assert re.search(r"fast 2\.0\.0 \(\w+\) → 2\.1\.0 \(\w+\)", tool("update", "bob").stdout)
    assert "fast 2.1.0 updated" in tool("sync", "--target", site).stdout
    assert (site / "vllm/fast.py").read_text() == "X = 3\n"
    for name in ("alice", "bob"):
        tool("remove", name)
    tool("sync", "--target", site)
    assert {path: one[:3] for path, one in held(site).items()} == untouched
