"""One base in every place that an image may lie in, and bases of several platforms, in real engines."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import TYPE_CHECKING

from making_images import ARCHITECTURE, Image, of_platforms
from paired import OLD, Tool, library
from real_engines import need

if TYPE_CHECKING:
    from pathlib import Path

    from real_engines import Engine, Registry


def test_one_lock_gives_one_image_wherever_the_base_comes_from(
    dockerd: Engine, buildah: Engine, registry: Registry, paired_base: Image, tmp_path: Path
) -> None:
    """Docker tells settings without history, podman's storage and a registry name blobs otherwise."""
    need("podman", "skopeo")
    settings = {
        **paired_base.settings,
        "User": "root",
        "ExposedPorts": {"9000/tcp": {}},
        "Volumes": {"/data": {}},
        "WorkingDir": "/root",
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 5_000_000_000},
    }
    rich = Image(paired_base.layers, settings, "localhost/rich:latest")
    dockerd("load", "-q", "-i", rich.archive(tmp_path / "own.tar"))
    saved, known = tmp_path / "saved.tar", f"{registry.host}/lib/rich:1"
    dockerd("save", "-o", saved, rich.name)
    copies = f"docker://{known}", f"oci:{tmp_path}/converted:1"
    for place in copies:
        command = ["skopeo", "copy", "--dest-tls-verify=false", f"docker-archive:{saved}", place]
        subprocess.run(command, check=True, capture_output=True)
    buildah("pull", "-q", f"docker-archive:{saved}")
    stored = {**buildah.environ, "DOCKER_HOST": "unix:///nowhere"}
    places = [
        (f"docker:{rich.name}", dockerd.environ),
        (f"podman:{rich.name}", stored),
        (f"registry:{known}", stored),
        (f"oci:{rich.layout(tmp_path / 'layout', 'gzip')}", stored),
        (copies[1], stored),
    ]
    mods = library(tmp_path / "library", rich.name)
    Tool(mods, dockerd.environ)("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    images, locks = {}, {}
    for n, (base, environ) in enumerate(places):
        tool, again = Tool(mods, environ), tmp_path / f"{n}.lock"
        tool("lock", "small", "--base", base, "--output", again, SOURCE_DATE_EPOCH=str(OLD))
        locks[base] = json.loads(again.read_bytes())["base"]
        if base.startswith("podman:"):
            continue  # what is built there is held against docker's in test_build
        output = () if base.startswith("docker:") else ("--output", f"oci:{tmp_path}/{n}")
        made = tool.json("build", "small", "--base", base, *output)
        images[base] = made["image"], made["layer"]
    assert len(set(images.values())) == 1, images
    # A registry's name is another one; skopeo writes OCI's configuration for docker's.
    differing = {base: one for base, one in locks.items() if one != locks[places[0][0]]}
    assert list(differing) == [f"registry:{known}", copies[1]]
    assert {**differing[f"registry:{known}"], "ref": rich.name} == locks[places[0][0]]
    config = locks[places[0][0]]["config"]
    assert {**differing[copies[1]], "config": config} == locks[places[0][0]]
    dockerd("rmi", "-f", rich.name)


def test_an_index_in_a_registry_is_an_index_out(
    dockerd: Engine, buildah: Engine, registry: Registry, paired_base: Image, tmp_path: Path
) -> None:
    need("skopeo")
    tool = Tool(library(tmp_path / "library", "several"), dockerd.environ)
    other = "arm64" if ARCHITECTURE != "arm64" else "amd64"
    names = f"linux/{ARCHITECTURE}", f"linux/{other}"
    layout = of_platforms(paired_base, tmp_path / "layout", *names)
    known = f"{registry.host}/lib/several:1"
    command = ["skopeo", "copy", "--all", "--dest-tls-verify=false", f"oci:{layout}"]
    subprocess.run([*command, f"docker://{known}"], check=True, capture_output=True)
    base = ("--base", f"registry:{known}")
    assert tool.json("lock", "small", *base)["platforms"] == sorted(names)
    ref = f"{registry.host}/me/several:1"
    build = ("build", "small", *base, "--output", f"registry:{ref}")
    made = tool.json(*build)
    command = ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{ref}"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == made["manifest"]
    listed = {one["platform"]["architecture"]: one for one in json.loads(raw)["manifests"]}
    assert {f"linux/{name}": one["digest"] for name, one in listed.items()} == {
        name: one["manifest"] for name, one in made["platforms"].items()
    }
    assert ": 0 bytes sent" in tool(*build).stdout
    tool("image", "verify", f"registry:{ref}", "--lock", tool.lock())
    # One of them alone is the same image, and does not take the index's place.
    alone = tool(*build, "--platform", names[0], code=3)
    assert "vllm-mods does not move a tag;" in alone.stderr
    dockerd("pull", "-q", ref)
    image = made["platforms"][names[0]]["image"]
    assert dockerd("image", "inspect", "--format", "{{.Id}}", ref) == image
    dockerd("rmi", "-f", ref)
    buildah("pull", "-q", "--tls-verify=false", f"--arch={other}", ref)
    found = buildah("inspect", "--type", "image", "-f", "{{.FromImageID}}", ref)
    assert f"sha256:{found}" == made["platforms"][names[1]]["image"]
    # An engine has one of them: what is built into it is for that one.
    dockerd("pull", "-q", known)
    assert tool.json("build", "small", "--base", known)["image"] == image
    said = tool("build", "small", "--base", known, "--output", f"registry:{ref}-2", code=2).stderr
    assert f"docker has {known} for one platform only" in said
    said = tool("lock", "small", "--base", known, "--platform", names[1], code=2).stderr
    assert f"image is for {names[0]}, not {names[1]}" in said
    assert "hint: docker pull --platform" in said
    dockerd("rmi", "-f", known)
