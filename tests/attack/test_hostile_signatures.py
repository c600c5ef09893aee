"""Signatures that somebody attaches to an image in a registry: what counts is of this image, by those who are named."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from making_images import MANIFEST, digest
from small_registry import SmallRegistry, small_registry

from vllm_mods.building import signing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRegistry]:
    with small_registry() as made:
        monkeypatch.setenv("VLLM_MODS_PLAIN_HTTP", made.host)
        yield made


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """Make a key, and a file of signers that lets it sign everything."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen (OpenSSH)")
    file = tmp_path / "me"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    (tmp_path / "signers").write_text(f"me@here {file.with_suffix('.pub').read_text()}")
    return str(file), str(tmp_path / "signers")


def image(registry: SmallRegistry, tag: str = "1") -> str:
    return registry.put(
        {"schemaVersion": 2, "mediaType": MANIFEST, "annotations": {"x": tag}}, tag=tag
    )


def attach(registry: SmallRegistry, to: str, statement: bytes, by: str) -> None:
    """Attach a signature to an image, without asking what it is of."""
    (signed,) = signing.signature(statement, signing.signer(by)).artifacts
    layers = [
        {"mediaType": kind, "digest": digest(data), "size": len(data)}
        for kind, data in signed.blobs
    ]
    manifest = {
        "artifactType": signed.kind,
        "layers": layers,
        "subject": {"mediaType": MANIFEST, "digest": to, "size": 1},
    }
    registry.put(manifest, *(data for _, data in signed.blobs), tag="signature")


def statement_of(*digests: str) -> bytes:
    subjects = [{"digest": {"sha256": one.removeprefix("sha256:")}} for one in digests]
    return json.dumps({"subject": subjects}).encode()


def findings(registry: SmallRegistry, signers: str, of: str) -> str:
    found = signing.ssh_says(signers, f"{registry.host}/me/image@{of}")
    return "\n".join(finding.message for finding in found)


def test_a_signature_of_this_image_counts(registry: SmallRegistry, key: tuple[str, str]) -> None:
    of = image(registry)
    assert "no signature of vllm-mods is attached" in findings(registry, key[1], of)
    attach(registry, of, statement_of(of), key[0])
    assert findings(registry, key[1], of) == ""


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (lambda _: statement_of(digest(b"x")), f"is of {digest(b'x')}, and this is"),
        (lambda of: statement_of(of, digest(b"x")), f"{digest(b'x')}, and this is"),
        (lambda _: b"0  patches/x/mod.toml\n", "is of nothing"),
    ],
)
def test_a_good_signature_of_something_else(
    registry: SmallRegistry, key: tuple[str, str], *, statement: Callable[[str], bytes], why: str
) -> None:
    """Whoever may write to the registry attaches what a trusted key has signed elsewhere."""
    of = image(registry)
    attach(registry, of, statement(of), key[0])
    assert why in findings(registry, key[1], of)


@pytest.mark.parametrize("namespace", ["vllm-mods", "git"])
def test_a_signature_in_another_namespace(
    registry: SmallRegistry, key: tuple[str, str], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = image(registry)
    with monkeypatch.context() as other:
        other.setattr(signing, "NAMESPACE", namespace)
        attach(registry, of, statement_of(of), key[0])
    assert "is by nobody in" in findings(registry, key[1], of)


def test_a_signature_of_another_image_that_had_the_tag(
    registry: SmallRegistry, key: tuple[str, str]
) -> None:
    before = image(registry)
    attach(registry, before, statement_of(before), key[0])
    now = image(registry, "2")
    assert "no signature of vllm-mods is attached" in findings(registry, key[1], now)
