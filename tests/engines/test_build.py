"""What is built, in real engines: it runs, it has the ID it was said to have, and nothing else moves."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from making_images import Image, from_disk, layer as tar_of
from paired import BASE as NAME, OLD, STALE, Tool, library
from real_engines import PASSWORD, SITE, USER, need, started
from small_site import FILES, build as build_site

from vllm_mods.base.digest import sha256
from vllm_mods.building import layer, oci, tarball
from vllm_mods.building.outputs import engine as engine_output
from vllm_mods.fit import checker
from vllm_mods.formats import pairing_lock
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from real_engines import Engine, Registry

SHOW = "import vllm.a; print(vllm.a.A)"


@pytest.fixture
def engine(
    dockerd: Engine, paired_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    dockerd("load", "-i", paired_archive)
    for name, value in dockerd.environ.items():
        monkeypatch.setenv(name, value)
    yield dockerd
    assert dockerd("ps", "-aq") == "", "a container was left behind"
    for tag in dockerd("images", "--format", "{{.Repository}}:{{.Tag}}", "small").split():
        dockerd("rmi", "-f", tag)


@pytest.fixture
def tool(engine: Engine, tmp_path: Path) -> Tool:
    found = Tool(library(tmp_path / "library", NAME), engine.environ)
    found("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    return found


def run(engine: Engine, image: str, code: str) -> str:
    return engine("run", "--rm", "--network=none", "--entrypoint=python3", image, "-c", code)


def test_it_has_the_id_it_was_said_to_have_twice(engine: Engine, tool: Tool) -> None:
    first = tool.json("build", "small")
    tag = first["tag"]
    assert engine("inspect", "-f", "{{.Id}}", tag) == first["image"]
    assert tag == f"small:0.19.1-{hashlib.sha256(tool.lock().read_bytes()).hexdigest()[:12]}"
    engine("rmi", tag)
    assert tool.json("build", "small")["image"] == first["image"]
    assert engine("inspect", "-f", "{{.Id}}", tag) == first["image"]


def test_old_bytecode_does_not_run(engine: Engine, tool: Tool) -> None:
    """The trap first: without the whiteout, the patched file is there and the old code runs."""
    tag = tool.json("build", "small", "--tag", "small:right")["tag"]
    assert run(engine, NAME, SHOW) == "1"
    assert run(engine, tag, SHOW) == "2"
    with tarfile.open(fileobj=io.BytesIO(_layer(engine, tag))) as whole:
        entries = [
            tarball.TarEntry(
                path=one.name,
                data=(file.read() if (file := whole.extractfile(one)) else None),
                mode=one.mode,
                mtime=int(one.mtime),
            )
            for one in whole
            if not os.path.basename(one.name).startswith(layer.WHITEOUT)
        ]
    opened = open_base(f"docker:{NAME}")
    wrong = oci.append(
        json.loads(opened.config), None, tarball.write(entries), created_by="x", labels={}, epoch=0
    )
    opened.close()
    _load(engine, engine_output.thin(wrong, "small:wrong"))
    assert (
        run(engine, "small:wrong", f"print(open('/{SITE}/vllm/a.py').read())") == "A = 2\n".strip()
    )
    assert run(engine, "small:wrong", SHOW) == "1"


def test_folders_on_the_way_stay_as_they_were(engine: Engine, tool: Tool) -> None:
    tag = tool.json("build", "small")["tag"]
    code = (
        "import os; print([oct(os.stat(one).st_mode & 0o7777) + ' ' + str(int(os.stat(one).st_mtime))"
        f" for one in ('/root', '/root/space', '/tmp', '/usr/local', '/usr', '/{SITE}/vllm')])"
    )
    assert run(engine, tag, code) == run(engine, NAME, code)
    assert run(engine, tag, "print(open('/root/space/small.jinja').read())") == "{{ messages }}"


def test_lock_and_receipt_are_in_it(engine: Engine, tool: Tool) -> None:
    tag = tool.json("build", "small")["tag"]
    place = f"/{SITE}"
    said = run(engine, tag, f"print(open('{place}/{pairing_lock.PLACE}').read(), end='')")
    assert f"{said}\n".encode() == tool.lock().read_bytes()
    receipt = json.loads(run(engine, tag, f"print(open('{place}/.vllm-mods/receipt.json').read())"))
    assert [mod["name"] for mod in receipt["mods"]] == ["patching", "writing"]
    labels = json.loads(engine("inspect", "-f", "{{json .Config.Labels}}", tag))
    assert labels["made.by"] == "the tests"
    digest = sha256(tool.lock().read_bytes())
    assert labels["vllm-mods.lock"] == f"sha256:{digest}"


def test_a_site_root_behind_a_link(
    engine: Engine, python_layer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/lib is a link to usr/lib: a folder in its place, and nothing starts any more."""
    monkeypatch.chdir(tmp_path)
    files = {**FILES, "vllm/_version.py": b"__version__ = version = '0.19.1'\n"}
    site = build_site(tmp_path / "site", files)
    things = {f"usr/lib/vllm-site/{path}": thing for path, thing in from_disk(site).items()}
    settings = {"Env": ["PATH=/usr/local/bin", "PYTHONPATH=/lib/vllm-site"]}
    made = Image([python_layer, tar_of(things)], settings, "localhost/linked:latest")
    engine("load", "-i", made.archive(tmp_path / "linked.tar"))
    tool = Tool(library(tmp_path / "library", made.name), engine.environ)
    tool("lock", "small")
    tag = tool.json("build", "small")["tag"]
    assert json.loads(tool.lock().read_bytes())["vllm"]["site_root"] == "usr/lib/vllm-site"
    assert run(engine, tag, f"import os; print(os.readlink('/lib')); {SHOW}") == "usr/lib\n2"


def test_a_tag_is_not_moved(engine: Engine, tool: Tool) -> None:
    engine("tag", NAME, "small:taken")
    before = engine("inspect", "-f", "{{.Id}}", "small:taken")
    refused = tool("build", "small", "--tag", "small:taken", code=3)
    assert f"small:taken already names {before}" in refused.stderr
    assert "hint: --tag" in refused.stderr
    assert engine("inspect", "-f", "{{.Id}}", "small:taken") == before


def test_the_lock_says_what_moved(engine: Engine, tool: Tool, tmp_path: Path) -> None:
    assert tool.json("lock", "small", "--check")["ok"] is True
    manifest = tool.library / "patches/patching/mod.toml"
    manifest.write_text(manifest.read_text().replace('"1.0.0"', '"1.0.1"'))
    moved = tool.json("lock", "small", "--check", code=1)
    state = f"image.layer[{SITE}/.vllm-mods"
    assert {one["path"] for one in moved["differences"]} == {
        "mods[patching].version",
        "mods[patching].digest",
        f"{state}/mods/patching.json]",
        f"{state}/receipt.json]",
    }
    assert "mods[patching].version: 1.0.0 → 1.0.1" in tool("build", "small", code=3).stderr
    other = tmp_path / "other.lock"
    tool("lock", "small", "--output", other, SOURCE_DATE_EPOCH=str(OLD))
    assert engine("images", "-q", "small") == ""


def test_a_layout_is_read_by_others(
    engine: Engine, tool: Tool, buildah: Engine, tmp_path: Path
) -> None:
    need("skopeo", "buildah")
    saved, base = tmp_path / "saved.tar", f"oci:{tmp_path}/base:1"
    engine("save", "-o", saved, NAME)
    subprocess.run(["skopeo", "copy", "-q", f"docker-archive:{saved}", base], check=True)
    refused = tool("build", "small", "--output", f"oci:{tmp_path}/layout", code=3)
    assert f"skopeo copy docker-daemon:{NAME} oci:DIR" in refused.stderr
    made = tool.json("build", "small", "--base", base, "--output", f"oci:{tmp_path}/layout")
    version = made["tag"].rpartition(":")[2]
    layout, archive = f"oci:{tmp_path}/layout:{version}", f"oci-archive:{tmp_path}/oci.tar"
    subprocess.run(["skopeo", "copy", "-q", layout, archive], check=True)  # as the guide has it
    for place in (layout, archive):
        raw = subprocess.run(
            ["skopeo", "inspect", "--config", "--raw", place], capture_output=True, check=True
        )
        assert f"sha256:{hashlib.sha256(raw.stdout).hexdigest()}" == made["image"]
    buildah("pull", "-q", layout)
    assert made["image"] in buildah("images", "--no-trunc", "-q")
    assert tool.json("build", "small")["image"] == made["image"]


def test_podman_takes_the_new_layer_alone(
    engine: Engine, tool: Tool, buildah: Engine, paired_archive: Path
) -> None:
    need("podman")
    expected = tool.json("build", "small")["image"]
    buildah("pull", "-q", f"oci-archive:{paired_archive}")
    elsewhere = Tool(tool.library, {**buildah.environ, "DOCKER_HOST": "unix:///nowhere"})
    made = elsewhere.json("build", "small", "--base", f"podman:{NAME}")
    assert made["image"] == expected
    tag = f"localhost/{made['tag']}"
    assert buildah("inspect", "--type", "image", "-f", "{{.FromImageID}}", tag) in expected
    container = buildah("from", "--pull-never", tag)
    try:
        place = buildah("mount", container)
        assert not os.path.exists(f"{place}/{SITE}/{STALE}")
        with open(f"{place}/{SITE}/vllm/a.py") as file:
            assert file.read() == "A = 2\n"
    finally:
        buildah("rm", container)
    assert engine("images", "-q", "small") != ""


def test_a_push_mounts_the_base(
    engine: Engine, tool: Tool, registry: Registry, paired_base: Image
) -> None:
    known = f"{registry.host}/lib/base:1"
    engine("tag", NAME, known)
    engine("push", "-q", known)
    made = tool.json(
        "build", "small", "--base", known, "--output", f"registry:{registry.host}/me/it"
    )
    ref = f"{registry.host}/me/it:{made['tag'].rpartition(':')[2]}"
    assert made["manifest"] == _manifest_digest(ref)
    pushed = tool(
        "build", "small", "--base", known, "--output", f"registry:{registry.host}/me/more:one"
    )
    sent = int(pushed.stdout.split(" bytes sent")[0].rpartition(" ")[2].replace(",", ""))
    assert 0 < sent <= 100_000 < sum(len(one) for one in paired_base.layers)
    again = tool(
        "build", "small", "--base", known, "--output", f"registry:{registry.host}/me/more:one"
    )
    assert ": 0 bytes sent" in again.stdout
    raw = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", "--config", "--raw", f"docker://{ref}"],
        capture_output=True,
        check=True,
    )
    assert f"sha256:{hashlib.sha256(raw.stdout).hexdigest()}" == made["image"]
    engine("rmi", "-f", known)
    engine("pull", "-q", ref)
    assert run(engine, ref, SHOW) == "2"
    engine("rmi", "-f", ref)


@pytest.mark.usefixtures("engine")
def test_a_registry_without_the_base_is_not_sent_it(
    tool: Tool, registry: Registry, paired_base: Image, tmp_path: Path
) -> None:
    place = f"registry:{registry.host}/nobody/it:1"
    refused = tool("build", "small", "--output", place, code=3)
    assert "does not have the registry digests of the base's layers," in refused.stderr
    layout = paired_base.layout(tmp_path / "layout", "gzip")
    refused = tool("build", "small", "--base", f"oci:{layout}", "--output", place, code=3)
    assert "does not upload layers of a base image. No tag was moved" in refused.stderr
    assert "hint: skopeo copy" in refused.stderr
    listed = subprocess.run(
        ["skopeo", "list-tags", "--tls-verify=false", f"docker://{registry.host}/nobody/it"],
        capture_output=True,
        check=False,
    )
    assert listed.returncode != 0


def test_a_registry_that_wants_a_login_is_told_so(
    engine: Engine, tool: Tool, locked_registry: Registry, tmp_path: Path
) -> None:
    known = f"{locked_registry.host}/lib/base:1"
    engine("tag", NAME, known)
    place = f"registry:{locked_registry.host}/me/it:1"
    nobody = tmp_path / "nobody"
    nobody.mkdir()
    refused = tool("build", "small", "--base", known, "--output", place, code=3, HOME=str(nobody))
    assert "401 Unauthorized" in refused.stderr
    assert f"hint: docker login {locked_registry.host}" in refused.stderr
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (nobody / ".docker").mkdir()
    (nobody / ".docker/config.json").write_text(
        json.dumps({"auths": {locked_registry.host: {"auth": secret}}})
    )
    dockers = {**os.environ, **engine.environ, "HOME": str(nobody)}
    subprocess.run(["docker", "push", "-q", known], env=dockers, check=True)
    told = tool("build", "small", "--base", known, "--output", place, HOME=str(nobody))
    assert "pushed " in told.stdout
    engine("rmi", known)


def test_an_engine_that_dies_in_the_middle(
    paired_archive: Path, tmp_path: Path, tool: Tool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is killed when the image is about to be loaded, and has no tag when it is back."""
    real = shutil.which("docker")
    folder = tmp_path_factory.mktemp("dying")
    starting = started(folder)
    with starting as dying:
        dying("load", "-i", paired_archive)
        wrapper = tmp_path / "bin/docker"
        wrapper.parent.mkdir()
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = load ] && kill -9 {starting.process.pid}\nexec {real} "$@"\n'
        )
        wrapper.chmod(0o755)
        path = f"{wrapper.parent}:{os.environ['PATH']}"
        broken = Tool(tool.library, {**dying.environ, "PATH": path})
        refused = broken("build", "small", code=3)
        assert "docker load: " in refused.stderr
        assert "no tag was moved" in refused.stderr
        assert "hint: docker " in refused.stderr
        starting.process.wait(30)
    # Its containerd outlives it, and the next one would wait for that.
    os.kill(int((folder / "exec/containerd/containerd.pid").read_text()), signal.SIGKILL)
    shutil.rmtree(folder / "exec")
    (folder / "pid").unlink()
    subprocess.run(["umount", str(folder / "data")], check=False)  # so does its mount
    with started(folder) as back:
        assert back("images", "-q", "small") == ""
        assert Tool(tool.library, back.environ).json("build", "small")["tag"]


def test_no_space_leaves_nothing_behind(tool: Tool, paired_base: Image, tmp_path: Path) -> None:
    need("mount")
    base = f"oci:{paired_base.layout(tmp_path / 'base')}"
    small = tmp_path / "full"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        (small / "filler").write_bytes(bytes(1 << 20))
        output = f"oci:{small}/layout"
        refused = tool("build", "small", "--base", base, "--output", output, code=3)
        assert "cannot be written: No space left on device; nothing was changed" in refused.stderr
        assert f"hint: df -h {small}" in refused.stderr
        assert os.listdir(small) == ["filler"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.network
def test_apply_in_a_dockerfile(
    engine: Engine, tool: Tool, buildah: Engine, paired_archive: Path, tmp_path: Path
) -> None:
    """The tool as one file, mounted: the same image twice, and nothing of the tool in it."""
    built = tool.json("build", "small")["tag"]
    buildah("pull", "-q", f"docker-archive:{paired_archive}")
    context = tmp_path / "context"
    shutil.copytree(tool.library, context / "library")
    root = Path(__file__).parent.parent.parent
    script = root / "tools/single_file.py"
    subprocess.run([sys.executable, str(script), str(context / "vllm-mods.pyz")], check=True)
    shutil.copy(
        checker.program(), context / "ty"
    )  # the one file has no program of another processor in it
    (context / "Dockerfile").write_text(
        f"FROM {NAME}\n"
        "RUN --mount=type=bind,source=vllm-mods.pyz,target=/vllm-mods.pyz "
        "--mount=type=bind,source=library,target=/library "
        "--mount=type=bind,source=ty,target=/usr/local/bin/ty "
        f'["python3", "-B", "/vllm-mods.pyz", "apply", "--pairing", "small", "--library", "/library",'
        f' "--target", "/{SITE}"]\n'
    )
    ids = [
        buildah(
            "bud", "-q", "--no-cache", "--isolation", "chroot", "--timestamp", OLD,
            "--env", f"SOURCE_DATE_EPOCH={OLD}", context,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert ids[0] == ids[1]
    container = buildah("from", "--pull-never", ids[0])
    try:
        mounted = Path(buildah("mount", container))
        seen = {
            f"{path.relative_to(mounted)}": hashlib.sha256(path.read_bytes()).hexdigest()
            for path in mounted.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
    finally:
        buildah("rm", container)
    expected = {
        path: found[-1] for path, found in _files(engine, built).items() if found[-1] is not None
    }
    assert expected.pop(f"{SITE}/{pairing_lock.PLACE}")
    builders = {path for path in seen if path.startswith(("etc/", "run/"))}
    # `apply` keeps with each mod what proved its places; a layer has no lock, which may be another one later
    kept = {path for path in seen if path.startswith(f"{SITE}/.vllm-mods/mods/")}
    assert (
        kept == {path for path in expected if path.startswith(f"{SITE}/.vllm-mods/mods/")} != set()
    )
    apart = builders | kept
    assert {path: seen[path] for path in seen.keys() - apart} == {
        path: digest for path, digest in expected.items() if path not in apart
    }


def _layer(engine: Engine, tag: str) -> bytes:
    """Return the top layer of an image, as docker gives it out."""
    saved = subprocess.run(
        ["docker", "save", tag],
        env={**os.environ, **engine.environ},
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=io.BytesIO(saved.stdout)) as whole:
        manifest = whole.extractfile("manifest.json")
        assert manifest is not None
        (entry,) = json.loads(manifest.read())
        top = whole.extractfile(entry["Layers"][-1])
        assert top is not None
        return top.read()


def _files(engine: Engine, tag: str) -> dict[str, tuple[object, ...]]:
    """Return what a container of the image would see, times of folders aside."""
    container = engine("create", tag)
    try:
        out = subprocess.run(
            ["docker", "export", container],
            env={**os.environ, **engine.environ},
            capture_output=True,
            check=True,
        )
    finally:
        engine("rm", container)
    with tarfile.open(fileobj=io.BytesIO(out.stdout)) as whole:
        return {
            one.name: (
                one.mode,
                one.uid,
                one.gid,
                one.linkname,
                None if one.isdir() else int(one.mtime),
                hashlib.sha256(file.read()).hexdigest()
                if (file := whole.extractfile(one)) and one.isreg()
                else None,
            )
            for one in whole
            if one.name.rstrip("/")
            not in {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
            and not one.name.startswith((".dockerenv", "dev", "proc", "sys"))
        }


def _load(engine: Engine, data: bytes) -> None:
    subprocess.run(
        ["docker", "load", "-q"], env={**os.environ, **engine.environ}, input=data, check=True
    )


def _manifest_digest(ref: str) -> str:
    command = ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{ref}"]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    return f"sha256:{hashlib.sha256(told).hexdigest()}"
