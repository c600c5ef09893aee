"""What a library of others may hold, and what of a folder is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.sharing import contents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("patches/fast/mod.toml", ""),
        ("pairings/pair.toml", ""),
        ("templates/chat/template.jinja", ""),
        ("SHA256SUMS", ""),
        ("SHA256SUMS.sig", ""),
        ("patches/../x", "points outside"),
        ("patches/./x", "points outside"),
        ("patches//x", "points outside"),
        ("/patches/x", "points outside"),
        ("", "points outside"),
        ("patches", "in none of patches, templates, pairings"),
        ("README.md", "in none of"),
        ("sub/SHA256SUMS", "in none of"),
        ("patches/.git/config", "hidden"),
        ("patches/fast/__pycache__/x.pyc", "a cache"),
        ("patches/a\nb", "other systems do not support"),
        ("patches/a\\b", "other systems do not support"),
    ],
)
def test_paths_that_a_shared_file_may_have(path: str, why: str) -> None:
    told = contents.why_not(path)
    assert why in told if why else not told


@pytest.mark.parametrize(
    ("path", "is_part"),
    [
        ("SHA256SUMS", True),
        ("patches", True),
        ("patches/fast", True),
        ("patches/fast/.x", False),
        ("docs/patches", False),
    ],
)
def test_what_of_a_repository_is_its_library(path: str, *, is_part: bool) -> None:
    assert contents.is_part(path) is is_part


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        *("patches/fast/mod.toml", "patches/fast/.mine", "patches/.git/config", "README"),
        *("patches/fast/__pycache__/x.pyc", "pairings/pair.toml", "SHA256SUMS"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1234")
    return tmp_path


SHARED = {"SHA256SUMS", "pairings/pair.toml", "patches/fast/mod.toml"}


def test_hidden_files_caches_and_what_lies_beside_are_not_shared(folder: Path) -> None:
    assert contents.read_files(str(folder)) == dict.fromkeys(SHARED, b"1234")


@pytest.mark.parametrize(
    ("name", "most"), [("LIBRARY", 12), ("LIBRARY_FILES", 3)], ids=["bytes", "files"]
)
def test_a_folder_holds_at_most_its_limits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    lower(monkeypatch, name, most)
    assert contents.read_files(str(folder)).keys() == SHARED
    lower(monkeypatch, name, most - 1)
    with pytest.raises(UsageError, match=f"^{folder} has more than .* the limit for") as caught:
        contents.read_files(str(folder))
    assert caught.value.hint == f"du -a {folder} | sort -n | tail"


def test_a_folder_that_cannot_be_listed_is_told_by_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/fast"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ManifestError) as caught:
        contents.read_files(str(folder))
    place = f"{folder}/patches/fast"
    assert (caught.value.where, caught.value.hint) == (place, f"ls -ld {place}")
    assert caught.value.problems == ("cannot be read: Permission denied",)


@pytest.mark.parametrize("target", ["fast", "nowhere", "/etc"])
def test_a_link_to_a_folder_is_refused(folder: Path, target: str) -> None:
    (folder / "patches/other").symlink_to(target)
    with pytest.raises(ManifestError, match="a symbolic link"):
        contents.read_files(str(folder))


def test_a_name_that_does_not_travel_is_refused_with_its_place(folder: Path) -> None:
    (folder / "patches/fast/a\\b").touch()
    with pytest.raises(UsageError, match="other systems do not support") as caught:
        contents.read_files(str(folder))
    place = os.path.join(folder, "patches/fast/a\\b")
    why = "has a character in its name that other systems do not support, so it cannot be shared"
    assert (caught.value.message, caught.value.hint) == (f"{place} {why}", f"ls -l {folder}")


def test_the_mods_of_a_list_of_paths() -> None:
    paths = [
        *("patches/b/mod.toml", "patches/a/mod.toml", "patches/a/b/mod.toml"),
        *("templates/c/mod.toml", "patches/mod.toml", "patches/d/x"),
    ]
    assert contents.mods_in(paths) == ("a", "b")
