"""A library's source as it is typed: where it comes from, and the name that suggests itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import UsageError
from vllm_mods.sharing import changing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [
        (
            "git+https://h.org/Alice/mods.git@v1#subdirectory=sub",
            {"git": "https://h.org/Alice/mods.git", "rev": "v1", "subdirectory": "sub"},
            "alice",
        ),
        ("git+https://h.org/alice/mods", {"git": "https://h.org/alice/mods"}, "alice"),
        ("package:Alice.Mods", {"package": "Alice.Mods"}, "alice.mods"),
        ("git+file:///mods", {"git": "file:///mods"}, "mods"),
        ("git+me@h.org:Alice/mods.git", {"git": "me@h.org:Alice/mods.git"}, "mods"),
        ("git+./folder@v1", {"git": "./folder", "rev": "v1"}, "folder"),
        ("git+../up/mods.git", {"git": "../up/mods.git"}, "mods"),
        (
            "git+/srv/git/My_Mods.git@main",
            {"git": "/srv/git/My_Mods.git", "rev": "main"},
            "my_mods",
        ),
        (
            "git+ssh://git@h.org:22/alice/mods#subdirectory=a/b",
            {"git": "ssh://git@h.org:22/alice/mods", "subdirectory": "a/b"},
            "alice",
        ),
        (
            "git+https://h.org/mods.git@a/b",
            {"git": "https://h.org/mods.git", "rev": "a/b"},
            "h.org",
        ),
        ("./Odd Name!", {"path": "./Odd Name!"}, "odd-name"),
        ("folder", {"path": "./folder"}, "folder"),
        ("../beside", {"path": "../beside"}, "beside"),
    ],
)
def test_sources_and_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, source: dict[str, str], name: str
) -> None:
    here = tmp_path / "here"
    for folder in (here / "folder", here / "Odd Name!", tmp_path / "beside"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    read, suggested = changing.parse_source(text, str(here / "vllm-mods.toml"))
    assert suggested == name
    assert read.keys == source


@pytest.mark.parametrize("text", ["nowhere", "https://me:secret@h.org/x", "x?token=secret"])
def test_what_is_no_source_is_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="SOURCE is neither a folder, nor git") as caught:
        changing.parse_source(text, str(tmp_path / "vllm-mods.toml"))
    assert "git+URL[@REV][#subdirectory=DIR], nor package:NAME" in caught.value.message
    assert text not in caught.value.message
    assert "vllm-mods apply MOD" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("package:a b", "package: expected the name of a distribution"),
        ("git+https://h.org/x/y@a..b", "rev: expected a tag, a branch or a commit"),
    ],
)
def test_what_a_source_may_not_say_is_told_with_its_part(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        changing.parse_source(text, str(tmp_path / "vllm-mods.toml"))
    assert (caught.value.message, caught.value.hint) == (problem, "vllm-mods add --help")


def test_where_there_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_MODS_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert changing.project_path() == str(tmp_path / "vllm-mods.toml")
    with pytest.raises(UsageError, match=r"there is no project here") as caught:
        changing.read_project()
    assert (caught.value.hint or "").startswith("vllm-mods add SOURCE --mod MOD")
