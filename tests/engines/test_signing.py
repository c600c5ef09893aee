"""Signatures in a real registry: the pushed digest is what is signed, and nothing else passes for it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from making_images import ARCHITECTURE, of_platforms
from paired import OLD, Tool, library
from real_engines import need

from vllm_mods.formats import pairing_lock

if TYPE_CHECKING:
    from pathlib import Path

    from making_images import Image
    from real_engines import Registry

COSIGN = """#!/bin/sh
echo "$@" >>{log}
case $1 in
version) echo "GitVersion:    {version}" ;;
sign) cat "$4" 2>/dev/null >>{log}; exit {code} ;;
verify) echo "Error: no matching signatures: invalid signature" >&2; exit {code} ;;
esac
"""


@pytest.fixture
def tool(registry: Registry, paired_base: Image, tmp_path: Path) -> Tool:
    """A library whose base lies in the registry."""
    base = f"{registry.host}/lib/base:1"
    archive = paired_base.archive(tmp_path / "base.tar")
    _skopeo(
        "copy", "-q", f"docker-archive:{archive}", f"docker://{base}", "--dest-tls-verify=false"
    )
    made = Tool(library(tmp_path / "library", f"registry:{base}"))
    made("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    return made


def several(registry: Registry, base: Image, folder: Path) -> Tool:
    """Make a library whose base is an index of two platforms in the registry."""
    other = "arm64" if ARCHITECTURE != "arm64" else "amd64"
    layout = of_platforms(base, folder / "layout", f"linux/{ARCHITECTURE}", f"linux/{other}")
    ref = f"{registry.host}/lib/two:1"
    _skopeo("copy", "-q", "--all", f"oci:{layout}", f"docker://{ref}", "--dest-tls-verify=false")
    made = Tool(library(folder / "library", f"registry:{ref}"))
    made("lock", "small", SOURCE_DATE_EPOCH=str(OLD))
    return made


@pytest.fixture
def place(registry: Registry, request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return f"{registry.host}/me/{request.node.originalname[:40].rstrip('_')}"


def build(tool: Tool) -> list[str]:
    """Return the words that build the pairing on its base in the registry."""
    base = json.loads(tool.lock().read_text())["base"]["ref"]
    return ["build", "small", "--base", f"registry:{base}", "--output"]


def key(folder: Path, name: str = "mine") -> tuple[Path, Path]:
    """Make a key of OpenSSH's, and a file of allowed signers with it alone."""
    need("ssh-keygen")
    private = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private], check=True)
    signers = folder / f"{name}.signers"
    signers.write_text(
        f'me@here namespaces="vllm-mods-image" {private.with_suffix(".pub").read_text()}'
    )
    return private, signers


def test_a_signature_is_attached_to_the_pushed_digest_and_verified(
    tool: Tool, place: str, tmp_path: Path
) -> None:
    private, signers = key(tmp_path)
    made = tool.json(
        *build(tool),
        f"registry:{place}:1",
        "--sign",
        private,
    )
    ref = f"registry:{place}:1"
    tool("image", "verify", ref, "--lock", tool.lock(), "--allowed-signers", signers)
    statement = json.loads(tool.lock().with_suffix(".intoto.json").read_text())
    assert statement["subject"][0]["digest"] == {"sha256": made["manifest"].removeprefix("sha256:")}
    index = json.loads(_index(place, made["manifest"]))
    assert [one["artifactType"] for one in index["manifests"]] == [
        "application/vnd.cyclonedx+json",
        "application/vnd.in-toto+json",
        "application/vnd.vllm-mods.signed-statement.v1",
    ]
    again = tool(*build(tool), ref, "--sign", private)
    assert ": 0 bytes sent" in again.stdout


def test_a_missing_signature_and_a_foreign_one_are_named(
    tool: Tool, place: str, tmp_path: Path
) -> None:
    ref = f"registry:{place}:1"
    _, mine = key(tmp_path)
    tool(*build(tool), ref)
    told = tool("image", "verify", ref, "--allowed-signers", mine, code=1)
    assert "no signature of vllm-mods is attached to sha256:" in told.stdout
    theirs, signers = key(tmp_path, "theirs")
    tool(*build(tool), ref, "--sign", theirs)
    told = tool("image", "verify", ref, "--allowed-signers", mine, code=1)
    assert f"is by nobody in {mine}: No principal matched" in told.stdout
    tool("image", "verify", ref, "--allowed-signers", signers)


def test_a_signature_of_another_namespace_is_none(tool: Tool, place: str, tmp_path: Path) -> None:
    private, signers = key(tmp_path)
    signers.write_text(signers.read_text().replace("vllm-mods-image", "git"))
    tool(
        *build(tool),
        f"registry:{place}:1",
        "--sign",
        private,
    )
    told = tool("image", "verify", f"registry:{place}:1", "--allowed-signers", signers, code=1)
    assert "is by nobody in" in told.stdout


def test_a_signature_that_was_moved_from_another_image_is_named(
    tool: Tool, place: str, tmp_path: Path
) -> None:
    """Whoever may write to the registry attaches a good signature of one image to another."""
    private, signers = key(tmp_path)
    good = tool.json(
        *build(tool),
        f"registry:{place}:1",
        "--sign",
        private,
    )
    tool("lock", "small", SOURCE_DATE_EPOCH="1")
    other = tool.json(*build(tool), f"registry:{place}:2")
    attached = _index(place, good["manifest"])
    assert attached != _index(place, other["manifest"])
    assert attached == _index(place, other["manifest"], put=attached)
    told = tool("image", "verify", f"registry:{place}:2", "--allowed-signers", signers, code=1)
    assert f"is of {good['manifest']}, and this is {other['manifest']}" in told.stdout


def test_an_index_is_signed_and_another_of_the_same_images_is_not(
    registry: Registry, paired_base: Image, place: str, tmp_path: Path
) -> None:
    """Whoever may write to the registry makes an index of their own of images that are signed."""
    tool = several(registry, paired_base, tmp_path)
    private, signers = key(tmp_path)
    ref = f"registry:{place}:1"
    made = tool.json(*build(tool), ref, "--sign", private)
    verify = ("image", "verify", ref, "--allowed-signers", signers)
    assert tool.json(*verify)["ok"]
    assert ": 0 bytes sent" in tool(*build(tool), ref, "--sign", private).stdout
    index = json.loads(_index(place, "1"))
    index["annotations"]["org.opencontainers.image.title"] = "another"
    put = _index(place, "1", put=json.dumps(index).encode())
    told = tool(*verify, code=1).stdout
    digest = f"sha256:{hashlib.sha256(put).hexdigest()}"
    assert f"no signature of vllm-mods is attached to {digest}" in told
    # and the signature of the index that was built does not pass for it
    _index(place, digest, put=_index(place, made["manifest"]))
    told = tool(*verify, code=1).stdout
    assert f"is of {made['manifest']}, and this is {digest}" in told


def test_cosign_signs_an_index_too_and_is_asked_for_its_version_once(
    registry: Registry, paired_base: Image, place: str, tmp_path: Path
) -> None:
    tool = several(registry, paired_base, tmp_path)
    log, path = _cosign(tmp_path, "v2.4.1")
    ref = f"registry:{place}:1"
    made = tool.json(*build(tool), ref, "--sign", "awskms:///x", PATH=path)
    each = [one["manifest"] for one in made["platforms"].values()]
    lines = log.read_text().splitlines()
    assert lines.count("version") == 1
    signed = [line.rpartition("@")[2] for line in lines if line.startswith("sign ")]
    assert signed == [*each, made["manifest"]]
    tool("image", "verify", ref, "--key", "my.pub", PATH=path)
    verified = [one for one in log.read_text().splitlines() if one.startswith("verify ")]
    assert sorted(one.rpartition("@")[2] for one in verified) == sorted([*each, made["manifest"]])


def test_the_statement_of_an_index_names_what_all_its_images_were_made_of(
    registry: Registry, paired_base: Image, place: str, tmp_path: Path
) -> None:
    tool = several(registry, paired_base, tmp_path)
    made = tool.json(*build(tool), f"registry:{place}:1")
    (listed,) = json.loads(_index(place, made["manifest"]))["manifests"]
    artifact = json.loads(_get(place, f"manifests/{listed['digest']}"))
    statement = json.loads(_get(place, f"blobs/{artifact['layers'][0]['digest']}"))
    assert f"sha256:{statement['subject'][0]['digest']['sha256']}" == made["manifest"]
    materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    lock = pairing_lock.parse(tool.lock().read_bytes(), "")
    bases = [one.base.config for one in pairing_lock.by_platform(lock).values()]
    assert len(bases) == 2
    assert {f"sha256:{one['digest']['sha256']}" for one in materials} >= set(bases)


def test_what_is_not_in_a_registry_has_no_signature(tool: Tool, tmp_path: Path) -> None:
    private, signers = key(tmp_path)
    refused = tool(
        *build(tool),
        f"oci:{tmp_path}/x",
        "--sign",
        private,
        code=2,
    )
    assert "--sign is for an image in a registry" in refused.stderr
    tool(*build(tool), f"oci:{tmp_path}/x")
    refused = tool("image", "verify", f"oci:{tmp_path}/x", "--allowed-signers", signers, code=2)
    assert "and this is none (oci-layout)" in refused.stderr
    refused = tool(
        *build(tool),
        "registry:nobody.here/y",
        "--sign",
        "no",
        code=2,
    )
    assert "no: No such file" in refused.stderr


@pytest.mark.parametrize(
    ("version", "unlogged"), [("v2.4.1", "--tlog-upload=false"), ("v3.0.4", "--signing-config")]
)
def test_cosign_signs_by_digest_and_in_no_public_log(
    tool: Tool, place: str, tmp_path: Path, version: str, unlogged: str
) -> None:
    """A stand-in for cosign, which says how it was called."""
    log, path = _cosign(tmp_path, version)
    signing = tmp_path / "cosign.key"
    signing.write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    made = tool.json(
        *build(tool),
        f"registry:{place}:1",
        "--sign",
        signing,
        PATH=path,
    )
    at = f"{place}@{made['manifest']}"
    signed = next(line for line in log.read_text().splitlines() if line.startswith("sign "))
    assert signed.startswith(f"sign --yes {unlogged}")
    assert signed.endswith(f" --key {signing} {at}")
    assert ('"rekorTlogUrls": []' in log.read_text()) == (unlogged == "--signing-config")
    tool("image", "verify", f"registry:{place}:1", "--key", "my.pub", PATH=path)
    assert f"verify --key my.pub --insecure-ignore-tlog=true {at}" in log.read_text()


def test_a_cosign_that_says_no_leaves_no_tag(tool: Tool, place: str, tmp_path: Path) -> None:
    _, path = _cosign(tmp_path, "v2.4.1", code=1)
    refused = tool(
        *build(tool),
        f"registry:{place}:1",
        "--sign",
        "awskms:///x",
        code=3,
        PATH=path,
    )
    assert f"cosign does not sign {place}@sha256:" in refused.stderr
    assert "has no such image" in tool("image", "verify", f"registry:{place}:1", code=1).stderr
    tool(*build(tool), f"registry:{place}:1")
    told = tool("image", "verify", f"registry:{place}:1", "--key", "my.pub", code=1, PATH=path)
    assert "cosign finds no good signature by my.pub: Error: no matching signatures" in told.stdout


def _index(place: str, name: str, put: bytes | None = None) -> bytes:
    """Return the index of a tag, or of what is attached to a digest: this registry has a tag for that, no API.

    With ``put`` it is replaced first.
    """
    kind = "application/vnd.oci.image.index.v1+json"
    path = f"manifests/{name.replace(':', '-')}"
    if put:
        _get(place, path, kind, "PUT", put)
    return _get(place, path, kind)


def _get(
    place: str,
    path: str,
    kind: str = "application/vnd.oci.image.manifest.v1+json",
    method: str = "GET",
    body: bytes | None = None,
) -> bytes:
    host, _, name = place.partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {"Accept": kind, "Content-Type": kind}
    connection.request(method, f"/v2/{name}/{path}", body, headers)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def _cosign(folder: Path, version: str, code: int = 0) -> tuple[Path, str]:
    stand_in = folder / "bin/cosign"
    stand_in.parent.mkdir()
    stand_in.write_text(COSIGN.format(log=folder / "log", version=version, code=code))
    stand_in.chmod(0o755)
    return folder / "log", f"{stand_in.parent}:{os.environ['PATH']}"


def _skopeo(*arguments: str) -> bytes:
    return subprocess.run(["skopeo", *arguments], capture_output=True, check=True).stdout
