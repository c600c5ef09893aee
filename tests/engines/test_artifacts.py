"""Libraries in a real registry, with a login, signed, and copied to another place by skopeo."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING

import lone_project
import pytest
from mod_making import diff_of, write_mod
from real_engines import PASSWORD, USER, need

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.cli import run
from vllm_mods.images import referrers
from vllm_mods.sharing import artifact

if TYPE_CHECKING:
    from pathlib import Path

    from real_engines import Registry


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lone_project.without_logins(tmp_path, monkeypatch)


@pytest.fixture
def mods(tmp_path: Path) -> Path:
    write_mod(tmp_path / "mods", "tiny", diff_of("vllm/a.py", "a\n", "b\n"))
    return tmp_path / "mods"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """Make a key, and a file of signers with it alone."""
    need("ssh-keygen")
    private, signers = tmp_path / "me", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private], check=True)
    signers.write_text(f'me namespaces="vllm-mods" {private.with_suffix(".pub").read_text()}')
    return str(private), str(signers)


def skopeo(*arguments: str) -> bytes:
    told = subprocess.run(["skopeo", *arguments], capture_output=True, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_a_signed_library_by_tag_and_digest(
    registry: Registry, mods: Path, keys: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    private, signers = keys
    ref = f"{registry.host}/me/signed:1"
    assert run(["publish", str(mods), ref, "--sign", private, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert artifact.pull(ref).digest == told["digest"]
    for name in (ref, told["source"].removeprefix("oci:")):
        pulled = artifact.pull(name, signers=signers)
        assert pulled.files.keys() == told["files"].keys()
    assert run(["publish", str(mods), ref, "--sign", private, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == {**told, "there": True, "sent": 0}
    (mods / "patches/tiny/x.patch").write_bytes(diff_of("vllm/a.py", "a\n", "c\n"))
    assert run(["publish", str(mods), ref]) == 3
    assert artifact.pull(ref).digest == told["digest"]


def test_a_mirror_has_the_same_digest_and_the_signature(
    registry: Registry, mods: Path, keys: tuple[str, str], tmp_path: Path
) -> None:
    """By skopeo, from one repository to another and through a folder, as where there is no network."""
    private, signers = keys
    origin, mirror = f"{registry.host}/me/origin", f"{registry.host}/they/mirror"
    made = artifact.publish(artifact.prepare(str(mods), f"{origin}:1", sign=private))
    plain = ["--dest-tls-verify=false", "--src-tls-verify=false"]
    skopeo("copy", "-q", *plain, f"docker://{origin}:1", f"oci:{tmp_path}/layout:1")
    skopeo("copy", "-q", *plain, f"oci:{tmp_path}/layout:1", f"docker://{mirror}:1")
    assert artifact.pull(f"{mirror}:1") == artifact.pull(f"{origin}:1")
    with pytest.raises(Refused, match="no signature of vllm-mods is attached"):
        artifact.pull(f"{mirror}:1", signers=signers)
    attached = referrers.tag(made.digest)
    skopeo(
        "copy",
        "-q",
        "--all",
        *plain,
        f"docker://{origin}:{attached}",
        f"docker://{mirror}:{attached}",
    )
    assert artifact.pull(f"{mirror}@{made.digest}", signers=signers).digest == made.digest


def test_a_registry_with_a_login(
    locked_registry: Registry, mods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = f"{locked_registry.host}/me/mods:1"
    assert run(["publish", str(mods), ref]) == 3
    assert f"hint: docker login {locked_registry.host}" in capsys.readouterr().err
    (tmp_path / "home/.docker").mkdir(parents=True)
    text = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    logins = {"auths": {locked_registry.host: {"auth": text}}}
    (tmp_path / "home/.docker/config.json").write_text(json.dumps(logins))
    assert run(["publish", str(mods), ref]) == 0
    assert len(artifact.pull(ref).files) == 2
    assert PASSWORD not in "".join(capsys.readouterr())


def test_an_image_there_is_no_library(registry: Registry, small_archive: Path) -> None:
    ref = f"{registry.host}/me/image:1"
    skopeo(
        "copy",
        "-q",
        "--dest-tls-verify=false",
        f"docker-archive:{small_archive}",
        f"docker://{ref}",
    )
    with pytest.raises(UsageError, match="is an image, and no library of vllm-mods"):
        artifact.pull(ref)
