"""What is attached to an image in a real registry: bill of materials and provenance, of the pushed digest."""

from __future__ import annotations

import http.client
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from making_images import ARCHITECTURE, of_platforms
from paired import OLD, Tool, library

from vllm_mods.formats import pairing_lock

if TYPE_CHECKING:
    from pathlib import Path

    from making_images import Image
    from real_engines import Registry


@pytest.fixture
def tool(registry: Registry, paired_base: Image, tmp_path: Path) -> Tool:
    """A library whose base lies in the registry."""
    base = f"{registry.host}/lib/base:1"
    archive = paired_base.archive(tmp_path / "base.tar")
    _copy(f"docker-archive:{archive}", base)
    made = Tool(library(tmp_path / "library", f"registry:{base}"))
    made("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    return made


@pytest.fixture
def place(registry: Registry, request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return f"{registry.host}/me/{request.node.originalname[:40].rstrip('_')}"


def test_both_documents_are_attached_to_the_pushed_digest(tool: Tool, place: str) -> None:
    made = tool.json(*_build(tool), f"registry:{place}:1")
    statement = json.loads(tool.lock().with_suffix(".intoto.json").read_text())
    assert statement["subject"][0]["digest"] == {"sha256": made["manifest"].removeprefix("sha256:")}
    assert [one["artifactType"] for one in _attached(place, made["manifest"])] == [
        "application/vnd.cyclonedx+json",
        "application/vnd.in-toto+json",
    ]
    again = tool(*_build(tool), f"registry:{place}:1")
    assert ": 0 bytes sent" in again.stdout


def test_the_statement_of_an_index_names_what_all_its_images_were_made_of(
    registry: Registry, paired_base: Image, place: str, tmp_path: Path
) -> None:
    other = "arm64" if ARCHITECTURE != "arm64" else "amd64"
    layout = of_platforms(
        paired_base, tmp_path / "layout", f"linux/{ARCHITECTURE}", f"linux/{other}"
    )
    base = f"{registry.host}/lib/two:1"
    _copy(f"oci:{layout}", base, "--all")
    tool = Tool(library(tmp_path / "library", f"registry:{base}"))
    tool("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    made = tool.json(*_build(tool), f"registry:{place}:1")
    (listed,) = _attached(place, made["manifest"])
    artifact = json.loads(_get(place, f"manifests/{listed['digest']}"))
    statement = json.loads(_get(place, f"blobs/{artifact['layers'][0]['digest']}"))
    assert f"sha256:{statement['subject'][0]['digest']['sha256']}" == made["manifest"]
    materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    lock = pairing_lock.parse(tool.lock().read_bytes(), "")
    bases = [one.base.config for one in pairing_lock.by_platform(lock).values()]
    assert len(bases) == 2
    assert {f"sha256:{one['digest']['sha256']}" for one in materials} >= set(bases)


def _build(tool: Tool) -> list[str]:
    """Return the words that build the pairing on its base in the registry."""
    base = json.loads(tool.lock().read_text())["base"]["ref"]
    return ["build", "small", "--base", f"registry:{base}", "--output"]


def _attached(place: str, digest: str) -> list[dict[str, str]]:
    """Return what is attached to a digest: this registry has a tag for that, no API."""
    kind = "application/vnd.oci.image.index.v1+json"
    found: list[dict[str, str]] = json.loads(
        _get(place, f"manifests/{digest.replace(':', '-')}", kind)
    )["manifests"]
    return found


def _get(place: str, path: str, kind: str = "application/vnd.oci.image.manifest.v1+json") -> bytes:
    host, _, name = place.partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/v2/{name}/{path}", headers={"Accept": kind})
    answer = connection.getresponse().read()
    connection.close()
    return answer


def _copy(source: str, ref: str, *options: str) -> None:
    command = ["skopeo", "copy", "-q", *options, source, f"docker://{ref}"]
    subprocess.run([*command, "--dest-tls-verify=false"], capture_output=True, check=True)
