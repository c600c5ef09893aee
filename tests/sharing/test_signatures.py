"""A library that the project wants signed: each door asks, when it is fetched and when what is kept is opened."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import project_lock
from vllm_mods.formats.project import LibrarySource, ProjectFile
from vllm_mods.sharing import locking

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)"
)
UNSIGNED = LibrarySource("git", "./library")
SIGNED = UNSIGNED._replace(allowed_signers="signers")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a repository of a library, a key, and the file that names it; nothing is signed."""
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "signers").write_text(f'alice namespaces="vllm-mods" {public}')
    (tmp_path / "library/patches/fast").mkdir(parents=True)
    (tmp_path / "library/patches/fast/mod.toml").write_text("schema = 1\n")
    git(tmp_path, "init", "-q")
    save(tmp_path)
    return tmp_path


def git(place: Path, *words: str) -> None:
    who = ("-c", "user.name=alice", "-c", "user.email=alice@example.org")
    subprocess.run(["git", "-C", place / "library", *who, *words], check=True)


def save(place: Path) -> None:
    git(place, "add", "-A")
    git(place, "commit", "-qm", "library")


def sign(place: Path, *paths: str) -> None:
    """List some files of the library, sign the list, and commit both."""
    library = place / "library"
    lines = (f"{sha256((library / path).read_bytes())}  {path}\n" for path in paths)
    (library / "SHA256SUMS").write_text("".join(lines))
    (library / "SHA256SUMS.sig").unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(place / "key"), "-n", "vllm-mods"]
    subprocess.run([*words, str(library / "SHA256SUMS")], check=True, capture_output=True)
    save(place)


def project(place: Path, source: LibrarySource = SIGNED) -> ProjectFile:
    return ProjectFile(str(place / "vllm-mods.toml"), {"acme": source})


def keep_unsigned(place: Path) -> None:
    """Fetch the library with nobody asking for a signature, and lock it as if somebody had."""
    locked = locking.resolve(project(place, UNSIGNED), "acme", UNSIGNED)
    lock = project_lock.dump([("acme", locked._replace(source=SIGNED))])
    (place / locking.LOCK).write_bytes(lock)


@pytest.mark.slow
def test_what_is_signed_is_fetched_and_opened(place: Path) -> None:
    sign(place, "patches/fast/mod.toml")
    locked = locking.resolve(project(place), "acme", SIGNED)
    (place / locking.LOCK).write_bytes(project_lock.dump([("acme", locked)]))
    (library,) = locking.open_shared(project(place))
    assert library.owner == "acme"


@pytest.mark.slow
def test_what_nobody_signed_is_not_fetched(place: Path) -> None:
    with pytest.raises(UsageError, match="the expected contents of the library are unknown"):
        locking.resolve(project(place), "acme", SIGNED)


@pytest.mark.slow
def test_a_file_that_the_signed_list_does_not_name_is_not_fetched(place: Path) -> None:
    (place / "library/patches/fast/more.patch").write_text("")
    sign(place, "patches/fast/mod.toml")
    with pytest.raises(
        Refused, match=r"more\.patch has the hash .* does not list that hash"
    ) as caught:
        locking.resolve(project(place), "acme", SIGNED)
    assert caught.value.hint == "ask its author to sign the files as they are"


@pytest.mark.slow
def test_a_file_that_is_not_as_it_was_signed_is_not_fetched(place: Path) -> None:
    sign(place, "patches/fast/mod.toml")
    (place / "library/patches/fast/mod.toml").write_text("schema = 1  # another\n")
    save(place)
    with pytest.raises(Refused, match=r"mod\.toml has the hash .* does not list that hash"):
        locking.resolve(project(place), "acme", SIGNED)


@pytest.mark.slow
def test_what_is_kept_and_nobody_signed_is_not_opened(place: Path) -> None:
    keep_unsigned(place)
    with pytest.raises(UsageError, match="the expected contents of the library are unknown"):
        locking.open_shared(project(place))


@pytest.mark.slow
def test_what_is_kept_and_was_changed_after_it_was_signed_is_not_opened(place: Path) -> None:
    sign(place, "patches/fast/mod.toml")
    (place / "library/patches/fast/mod.toml").write_text("schema = 1  # another\n")
    save(place)
    keep_unsigned(place)
    with pytest.raises(Refused, match=r"mod\.toml has the hash .* does not list that hash"):
        locking.open_shared(project(place))


@pytest.mark.slow
def test_what_is_kept_and_somebody_else_signed_is_not_opened(place: Path) -> None:
    sign(place, "patches/fast/mod.toml")
    keep_unsigned(place)
    signers = place / "signers"
    signers.write_text(signers.read_text().replace('"vllm-mods"', '"git"'))
    with pytest.raises(Refused, match="is not a valid signature"):
        locking.open_shared(project(place))
