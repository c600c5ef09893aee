"""The cache of fetched libraries: only what the lock claims of one is opened."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from git_host import commit, mod

from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.formats.project import LibrarySource
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.sharing import kept, repositories
from vllm_mods.sharing.kept import FetchedLibrary

FILES = {path: text.encode() for path, text in mod("fast").items()}
ACME = LibrarySource("package", "acme")
EVIL = b"X = 'evil'\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def keep(source: LibrarySource = ACME, fetched: FetchedLibrary | None = None) -> LockedLibrary:
    fetched = fetched or FetchedLibrary("1.0", FILES)
    locked = kept.lock(source, fetched)
    kept.keep(locked, fetched)
    return locked


def opened(locked: LockedLibrary) -> Path:
    library = kept.open_kept(locked)
    assert library is not None
    return Path(library.folder)


def test_what_is_kept_is_opened_with_the_hash_of_each_file() -> None:
    library = kept.open_kept(keep())
    assert library is not None
    assert library.listed == {path: sha256(data).hexdigest() for path, data in FILES.items()}
    assert {path: Path(library.folder, path).read_bytes() for path in library.listed} == FILES


def test_a_list_that_was_edited_with_its_file_is_not_the_one_that_is_locked() -> None:
    locked = keep()
    folder = opened(locked)
    (folder / "patches/fast/x.py").write_bytes(EVIL)
    listing = folder.parent / "list"
    old, new = (sha256(data).hexdigest() for data in (FILES["patches/fast/x.py"], EVIL))
    listing.write_text(listing.read_text().replace(old, new))
    assert kept.open_kept(locked) is None
    keep()  # has it anew
    assert (opened(locked) / "patches/fast/x.py").read_bytes() == FILES["patches/fast/x.py"]


@pytest.mark.parametrize(
    "claim",
    [
        {"resolved": "1.1"},
        {"files": "0" * 64},
        {"source": LibrarySource("package", "other")},
        {"source": LibrarySource("path", "acme")},
    ],
)
def test_under_another_claim_nothing_is_kept(claim: dict[str, object]) -> None:
    locked = keep()
    assert kept.open_kept(locked._replace(**claim)) is None  # type: ignore[arg-type]


def test_a_file_that_is_gone_or_was_changed_is_had_anew() -> None:
    locked = keep()
    file = opened(locked) / "patches/fast/x.py"
    file.write_bytes(EVIL)
    assert kept.open_kept(locked) is None
    keep()
    assert kept.open_kept(locked) is not None
    file.unlink()
    assert kept.open_kept(locked) is None
    keep()
    assert kept.open_kept(locked) is not None


def test_what_is_kept_is_for_its_user_alone(cache: Path) -> None:
    keep()
    assert (cache / "libraries").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_kept_is_said_with_its_place(cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(Refused) as caught:
        keep()
    place, _, why = caught.value.message.partition(": ")
    assert Path(place).parent == cache / "libraries"
    assert why == "package:acme is not stored: Not a directory"
    assert caught.value.hint == f"ls -ld {place}; df -h"


@pytest.mark.parametrize("files", [{}, {"SHA256SUMS": b""}, {"SHA256SUMS.sig": b"x"}])
def test_what_holds_no_part_of_a_library_is_none(files: dict[str, bytes]) -> None:
    with pytest.raises(TreeError, match="package:acme is not a library") as caught:
        kept.lock(ACME, FetchedLibrary("1.0", files))
    assert caught.value.message == (
        "package:acme is not a library: it has none of patches, templates, pairings"
    )
    assert caught.value.hint == (
        "a library has patches/<mod>/mod.toml; #subdirectory=… names its folder in a repository"
    )


def test_a_path_that_no_library_has_is_not_listed() -> None:
    with pytest.raises(TreeError, match=r"'patches/\.\./x' points outside the library"):
        kept.lock(ACME, FetchedLibrary("1.0", {**FILES, "patches/../x": b""}))


@pytest.mark.slow
def test_git_reads_the_scratch_repository_whatever_the_user_lets_it_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may have git refuse every bare repository that is not named to it."""
    settings = tmp_path / "gitconfig"
    settings.write_text("[safe]\n\tbareRepository = explicit\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    sha = commit(tmp_path / "alice", mod("fast"), "v1")
    source = LibrarySource("git", str(tmp_path / "alice"), "v1")
    fetched = repositories.fetch(source, str(tmp_path), None)
    assert fetched.resolved == sha
    assert dict(fetched.files) == FILES
    assert kept.open_kept(keep(source, fetched)) is not None
