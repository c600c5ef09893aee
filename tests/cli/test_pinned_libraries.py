"""A library that is pinned or signed: nothing else is taken of it, whatever command reads it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)"
)


def pin(library: Path) -> Path:
    """Write SHA256SUMS by the programs that the documentation names."""
    subprocess.run(
        ["sh", "-c", "find patches -type f | sort | xargs sha256sum > SHA256SUMS"],
        check=True,
        cwd=library,
    )
    return library / "SHA256SUMS"


def digest(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def key(folder: Path, name: str) -> Path:
    made = folder / name
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", made], check=True
    )
    return made


def sign(sums: Path, by: Path, namespace: str = "vllm-mods") -> None:
    sums.with_name("SHA256SUMS.sig").unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", by, "-n", namespace, sums],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    public = key(tmp_path, "ann").with_suffix(".pub").read_text()
    file = tmp_path / "allowed_signers"
    file.write_text(f'ann@example.org namespaces="vllm-mods" {public}')
    return file


def test_a_library_as_it_was_pinned_is_taken(call: Call, library: Path, site: Path) -> None:
    sums = pin(library)
    for pinned in (digest(sums), str(sums)):
        answer = call("check", "fast", "--target", site, "--require-hashes", pinned)
        assert answer.code == 0, answer.err
    assert call("apply", "fast", "--target", site, "--require-hashes", digest(sums)).code == 0


@pytest.mark.parametrize("file", ["mod.toml", "x.patch"])
def test_a_file_that_changed_is_refused_by_every_command(
    call: Call, library: Path, site: Path, file: str
) -> None:
    sums = pin(library)
    changed = library / "patches/fast" / file
    changed.write_bytes(changed.read_bytes() + b"\n")
    before = (site / "vllm/loader.py").read_bytes()
    for command in (
        ("check", "fast", "--target", site),
        ("apply", "fast", "--target", site),
        ("show", "fast"),
        ("matrix", "fast", "--tree", site),
        ("bisect", "fast", "--good", "0.19.1", "--bad", "0.20.1"),
    ):
        answer = call(*command, "--require-hashes", digest(sums))
        assert answer.code == 3
        assert f"{changed} has the hash" in answer.err
    assert (site / "vllm/loader.py").read_bytes() == before


def test_a_file_more_and_a_file_less_are_refused(call: Call, library: Path, site: Path) -> None:
    sums = pin(library)
    check = ("check", "fast", "--target", site, "--require-hashes", str(sums))
    lock = library / "patches/fast/mod.lock"
    lock.write_bytes(b"{}")
    answer = call(*check)
    assert (answer.code, "mod.lock is in no list" in answer.err) == (3, True)

    pin(library)
    lock.unlink()
    answer = call(*check)
    assert (answer.code, "mod.lock is gone" in answer.err) == (3, True)


def test_a_list_of_another_hash_is_refused(call: Call, library: Path, site: Path) -> None:
    pinned = digest(pin(library))
    patch = library / "patches/fast/x.patch"
    patch.write_bytes(patch.read_bytes() + b"\n")
    pin(library)  # whoever changes a library can make a new list too
    answer = call("apply", "fast", "--target", site, "--require-hashes", pinned)
    assert (answer.code, "not the list that is required" in answer.err) == (3, True)


def test_the_variables_of_the_environment_hold_for_every_command(
    call: Call, library: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(library)
    monkeypatch.setenv("VLLM_MODS_REQUIRE_HASHES", "sha256:" + "0" * 64)
    assert call("check", "fast", "--target", site).code == 3


def test_what_cannot_pin_is_a_usage_error(
    call: Call, library: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = ("check", "fast", "--target", site, "--require-hashes")
    answer = call(*check, library / "none")
    assert (answer.code, "No such file" in answer.err) == (2, True)
    answer = call(*check, "sha256:" + "0" * 64)  # of a list that is not there
    assert (answer.code, "SHA256SUMS" in answer.err) == (2, True)
    bad = library / "bad"
    bad.write_text("sha256:123 patches/x\n")
    answer = call(*check, bad)
    assert (answer.code, f"{bad}:1:" in answer.err) == (2, True)
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    answer = call("check", "--target", site, "--require-hashes", bad)
    assert (answer.code, "no library to pin" in answer.err) == (2, True)


@needs_ssh_keygen
def test_a_signed_library(call: Call, library: Path, site: Path, signers: Path) -> None:
    sums = pin(library)
    sign(sums, signers.with_name("ann"))
    check = ("check", "fast", "--target", site, "--allowed-signers", signers)
    answer = call(*check)
    assert answer.code == 0, answer.err
    assert call(*check, "--require-hashes", digest(sums)).code == 0

    patch = library / "patches/fast/x.patch"
    patch.write_bytes(patch.read_bytes() + b"\n")
    assert call(*check).code == 3
    pin(library)
    answer = call(*check)
    assert (answer.code, "no good signature" in answer.err) == (3, True)


@needs_ssh_keygen
def test_a_signature_by_others_or_for_something_else_is_refused(
    call: Call, library: Path, site: Path, signers: Path, tmp_path: Path
) -> None:
    sums = pin(library)
    check = ("check", "fast", "--target", site, "--allowed-signers", signers)
    assert call(*check).code == 2  # not signed at all
    sign(sums, key(tmp_path, "eve"))
    assert call(*check).code == 3
    sign(sums, signers.with_name("ann"), namespace="file")
    assert call(*check).code == 3


@needs_ssh_keygen
def test_without_ssh_keygen_a_signature_is_not_taken_for_good(
    call: Call, library: Path, site: Path, signers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(pin(library), signers.with_name("ann"))
    monkeypatch.setenv("PATH", "/nowhere")
    answer = call("check", "fast", "--target", site, "--allowed-signers", signers)
    assert (answer.code, "ssh-keygen is not there" in answer.err) == (2, True)
