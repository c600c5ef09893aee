"""Libraries of a project beside the caller's own: whose a name is, what is pinned, where authors may write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from git_host import mod, write

from vllm_mods.base.errors import ManifestError, UsageError, VllmModsError
from vllm_mods.library import reading
from vllm_mods.library.catalog import Library, Shared

if TYPE_CHECKING:
    from pathlib import Path


def pairing(name: str, *mods: str) -> dict[str, str]:
    text = (
        f'schema = 1\nname = "{name}"\nsummary = "s"\nmods = {list(mods)!r}\n'
        'model = "o/m"\nbase = "vllm/vllm-openai:v0.21.0"\ncommand = "vllm serve o/m"\n'
    )
    return {f"pairings/{name}.toml": text}


@pytest.fixture
def alice(tmp_path: Path) -> str:
    return str(write(tmp_path / "alice", mod("fast") | mod("top", more='requires = ["fast"]')))


@pytest.fixture
def bob(tmp_path: Path) -> str:
    return str(write(tmp_path / "bob", mod("fast") | mod("slow")))


def test_a_name_of_two_libraries_needs_its_owner(alice: str, bob: str) -> None:
    library = Library(shared=[Shared("alice", alice), Shared("bob", bob)])
    assert {"alice/fast", "bob/fast", "top", "slow"} <= set(library.names())
    assert "fast" not in library.names()
    assert library.has("alice/top")
    assert library.name_of(library.load("bob/fast")) == "bob/fast"
    assert library.name_of(library.load("bob/slow")) == "slow"
    with pytest.raises(
        UsageError, match="several libraries have a mod named `fast`: alice/fast, bob/fast"
    ) as caught:
        library.load("fast")
    assert caught.value.hint == "write the full name, such as alice/fast"


def test_what_a_mod_requires_is_in_its_own_library_first(alice: str, bob: str) -> None:
    library = Library(shared=[Shared("bob", bob), Shared("alice", alice)])
    assert [one.directory for one in library.select(["top"])] == [
        os.path.join(alice, "patches", name) for name in ("fast", "top")
    ]


def test_two_mods_of_one_name_are_not_taken_together(alice: str, bob: str) -> None:
    library = Library(shared=[Shared("bob", bob), Shared("alice", alice)])
    with pytest.raises(UsageError) as caught:
        library.select(["alice/fast", "bob/fast"])
    assert caught.value.message == (
        "alice/fast and bob/fast have the same name, and a tree can hold only one of them"
    )
    assert caught.value.hint == "leave one out, and each mod that requires it"


def test_one_folder_of_two_owners_is_read_once_and_has_both_names(alice: str) -> None:
    library = Library(shared=[Shared("alice", alice), Shared("also", f"{alice}/")])
    assert library.load("fast").directory == f"{alice}/patches/fast"
    assert library.has("alice/fast")
    assert library.has("also/fast")
    assert library.owner(f"{alice}/patches/fast") == "alice"
    assert library.owner("/elsewhere") is None


def test_what_is_pinned_is_read_as_it_is_listed_and_not_written(alice: str, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine", mod("slow"))
    library = Library(mine, shared=[Shared("alice", alice, {})])
    assert library.is_writable(f"{mine}/patches/slow/mod.toml")
    assert not library.is_writable(f"{alice}/patches/top/mod.toml")
    assert library.load("slow").name == "slow"
    with pytest.raises(VllmModsError) as caught:
        library.load("top")
    assert "vllm-mods sync --fetch" in (caught.value.hint or "")


def test_a_pairing_names_the_mods_beside_it(alice: str, bob: str, tmp_path: Path) -> None:
    write(tmp_path / "alice", pairing("pair", "fast"))
    library = Library(shared=[Shared("bob", bob), Shared("alice", alice)])
    assert library.mods_of(library.pairing("pair")) == ("alice/fast",)
    assert library.has_pairing("alice/pair")
    assert not library.has_pairing("bob/pair")
    with pytest.raises(UsageError, match="pair is a pairing, not a mod") as caught:
        library.load("pair")
    assert caught.value.hint == "--pairing pair"


def test_a_template_is_looked_for_in_the_mod_of_its_name_beside_the_pairing(tmp_path: Path) -> None:
    brings = 'templates = [{ name = "chat", file = "chat.jinja" }]'
    for owner in ("alice", "bob"):
        files = mod("chat") | mod("a") | pairing("pair")
        for path in ("patches/chat/mod.toml", "patches/a/mod.toml"):
            files[path] += f"{brings}\n"
        files["pairings/pair.toml"] = files["pairings/pair.toml"].replace(
            "mods = []", 'mods = []\ntemplates = ["chat"]'
        )
        write(tmp_path / owner, {**files, "templates/chat/template.jinja": owner})
    both = [Shared(owner, str(tmp_path / owner)) for owner in ("alice", "bob")]
    for owner in ("alice", "bob"):
        library = Library(shared=both)
        assert library.mods_of(library.pairing(f"{owner}/pair")) == (f"{owner}/chat",)


def test_a_pairing_has_the_name_of_its_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", mod("fast") | pairing("pair", "fast"))
    (folder / "pairings/pair.toml").rename(folder / "pairings/other.toml")
    with pytest.raises(ManifestError, match="name is 'pair', but the file is 'other'"):
        Library(str(folder)).pairing("other")


@pytest.mark.parametrize("path", ["../secret", "patches/../../secret", "", "."])
def test_a_path_that_leads_out_of_a_library_is_not_read(alice: str, path: str) -> None:
    with pytest.raises(ManifestError, match="points outside"):
        reading.read(f"{alice}/{path}", alice)


@pytest.mark.parametrize("path", ["patches/fast/x.py", "./patches//fast/./x.py"])
def test_a_file_below_a_library_is_read(alice: str, path: str) -> None:
    assert reading.read(f"{alice}/{path}", alice) == b"X = 1\n"


@pytest.mark.parametrize("path", ["patches/none", "patches/fast", "patches/fast/x.py/y"])
def test_there_is_no_file_of_that_path(alice: str, path: str) -> None:
    assert reading.read(f"{alice}/{path}", alice) is None


def test_a_pairing_of_two_libraries_that_was_read_is_meant_by_its_own_name(tmp_path: Path) -> None:
    shared = [
        Shared(owner, str(write(tmp_path / owner, mod(owner) | pairing("pair", owner))))
        for owner in ("alice", "bob")
    ]
    library = Library(shared=shared)
    with pytest.raises(
        UsageError, match="several libraries have a pairing named `pair`: alice/pair, bob/pair"
    ):
        library.pairing_file("pair")
    library.pairing("bob/pair")
    assert library.pairing_file("pair") == str(tmp_path / "bob/pairings/pair.toml")
    assert library.pairing_file("alice/pair") == str(tmp_path / "alice/pairings/pair.toml")
    library.pairing("alice/pair")
    with pytest.raises(
        UsageError, match="several libraries have a pairing named `pair`: alice/pair, bob/pair"
    ):
        library.pairing_file("pair")  # both were read


def test_who_names_no_mod_gets_the_call_that_does(alice: str) -> None:
    with pytest.raises(UsageError, match="no mod is named") as caught:
        Library(alice).mods()
    assert caught.value.hint == "library.mods(*library.defaults())"
