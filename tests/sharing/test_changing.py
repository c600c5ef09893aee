"""What is added to a project, updated and removed: its file and its lock, byte for byte."""

from __future__ import annotations

import fcntl
import os
import threading
import tomllib
from typing import TYPE_CHECKING, Any

import lone_project
import pytest
from git_host import mod, write

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats.project import LibrarySource
from vllm_mods.sharing import changing

if TYPE_CHECKING:
    from pathlib import Path

MODS = LibrarySource("path", "./mods")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = lone_project.project(tmp_path, monkeypatch)
    write(place / "mods", mod("fast") | mod("slow"))
    return place


def read(place: Path, name: str = "vllm-mods.toml") -> dict[str, Any]:
    return tomllib.loads((place / name).read_text())


def add(place: Path, *mods: str, name: str = "ours") -> changing.LibraryAdded:
    return changing.add(str(place / "vllm-mods.toml"), MODS, name, mods)


def test_what_is_added_is_in_the_file_and_in_the_lock(place: Path) -> None:
    done = add(place, "slow", "fast")
    assert (done.name, done.named) == ("ours", ("ours/slow", "ours/fast"))
    assert [one.name for one in done.mods] == ["fast", "slow"]
    targets = {"default": {"mods": ["ours/slow", "ours/fast"]}}
    libraries = {"ours": {"path": "./mods"}}
    assert read(place) == {"schema": 1, "libraries": libraries, "targets": targets}
    locked = {"ours": {"path": "./mods", "files": f"sha256:{done.locked.files}"}}
    assert read(place, "vllm-mods.lock") == {"schema": 1, "libraries": locked}


def test_without_mods_no_target_is_written(place: Path) -> None:
    assert add(place).named == ()
    assert read(place).keys() == {"schema", "libraries"}


def test_a_mod_that_the_target_names_already_is_named_once(place: Path) -> None:
    (place / "vllm-mods.toml").write_text('schema = 1\n[targets.default]\nmods = ["ours/fast"]\n')
    add(place, "fast", "slow")
    assert read(place)["targets"]["default"]["mods"] == ["ours/fast", "ours/slow"]


@pytest.mark.parametrize(
    ("name", "mods", "why", "hint"),
    [
        ("ours", ["none"], "./mods has no mod named `none`", "known: fast, slow"),
        ("vllm-mods", [], "'vllm-mods' is not a valid name for a library", "--name NAME"),
        ("Ours", [], "'Ours' is not a valid name for a library", "--name NAME"),
    ],
)
def test_what_cannot_be_added_leaves_no_file(
    place: Path, name: str, mods: list[str], why: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        add(place, *mods, name=name)
    assert (caught.value.message, caught.value.hint) == (why, hint)
    assert [one.name for one in place.iterdir()] == ["mods"]


def test_a_library_without_mods_has_none_to_name(place: Path) -> None:
    write(place / "only", {"templates/t/template.jinja": "t\n"})
    source = LibrarySource("path", "./only")
    with pytest.raises(UsageError) as caught:
        changing.add(str(place / "vllm-mods.toml"), source, "ours", ["fast"])
    assert caught.value.hint == "known: none"


def test_a_name_that_is_taken_is_refused_with_the_ways_out(place: Path) -> None:
    add(place)
    with pytest.raises(UsageError) as caught:
        add(place)
    file = place / "vllm-mods.toml"
    assert caught.value.message == f"{file} has a library named `ours` already: ./mods"
    assert caught.value.hint == "--name ANOTHER; or edit it, then vllm-mods update ours"


def test_a_library_that_is_removed_takes_its_mods_along_by_either_name(place: Path) -> None:
    add(place, "fast")
    add(place, name="other")
    file = place / "vllm-mods.toml"
    more = '[targets.second]\nmods = ["slow", "ours/fast", "other/fast", "flashqla"]\n'
    file.write_text(file.read_text() + more + '[targets.third]\npairing = "pair"\n')
    assert changing.remove(str(file), "ours") == ("ours/fast", "slow")
    assert read(place)["libraries"].keys() == {"other"}
    assert read(place)["targets"] == {
        "default": {"mods": []},
        "second": {"mods": ["other/fast", "flashqla"]},
        "third": {"pairing": "pair"},
    }
    assert read(place, "vllm-mods.lock")["libraries"].keys() == {"other"}
    assert changing.remove(str(file), "other") == ("other/fast",)
    assert "libraries" not in read(place)


@pytest.mark.parametrize("libraries", [(), ("ours", "other")])
def test_a_library_that_there_is_not_is_told_with_those_that_there_are(
    place: Path, libraries: tuple[str, ...]
) -> None:
    for name in libraries:
        add(place, name=name)
    file = str(place / "vllm-mods.toml")
    listed = ", ".join(libraries) or "none"
    with pytest.raises(UsageError, match=f"{file} has no library named `acme`") as caught:
        changing.remove(file, "acme")
    assert (
        caught.value.hint == f"known: {listed}; to remove a mod from a vLLM: vllm-mods revert MOD"
    )
    with pytest.raises(UsageError) as caught:
        changing.update(file, ["acme"], dry=False)
    assert caught.value.hint == f"known: {listed}"


def test_an_update_says_what_was_and_what_is_and_writes_unless_it_is_dry(place: Path) -> None:
    add(place)
    add(place, name="other")
    file, lock = str(place / "vllm-mods.toml"), place / "vllm-mods.lock"
    before = lock.read_bytes()
    assert [one.changed for one in changing.update(file, [], dry=False)] == [False, False]
    write(place / "mods", mod("fast", "2.0.0"))
    (done,) = changing.update(file, ["ours"], dry=True)
    assert (done.name, done.changed) == ("ours", True)
    assert [one.version for one in done.mods_before or ()] == ["1.0.0", "1.0.0"]
    assert [one.version for one in done.mods_now] == ["2.0.0", "1.0.0"]
    assert lock.read_bytes() == before
    assert changing.update(file, ["ours"], dry=False) == (done,)
    locked = read(place, "vllm-mods.lock")["libraries"]
    assert locked["ours"]["files"] == f"sha256:{done.now.files}"
    assert done.before is not None
    assert locked["other"]["files"] == f"sha256:{done.before.files}"


def test_a_library_that_was_not_locked_is_new_to_an_update(place: Path) -> None:
    file = place / "vllm-mods.toml"
    file.write_text('schema = 1\n[libraries.ours]\npath = "./mods"\n')
    (done,) = changing.update(str(file), [], dry=False)
    assert (done.before, done.mods_before, done.changed) == (None, (), True)
    assert read(place, "vllm-mods.lock")["libraries"].keys() == {"ours"}


def test_what_the_file_does_not_name_any_more_leaves_the_lock(place: Path) -> None:
    add(place)
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    add(place, name="other")
    assert read(place, "vllm-mods.lock")["libraries"].keys() == {"other"}


def test_a_table_of_pyproject_is_edited_where_the_project_is_that(place: Path) -> None:
    file = place / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n\n[tool.vllm-mods]\nschema = 1\n')
    changing.add(str(file), MODS, "ours", ["fast"])
    tools = read(place, "pyproject.toml")["tool"]["vllm-mods"]
    assert tools["libraries"] == {"ours": {"path": "./mods"}}
    assert tools["targets"] == {"default": {"mods": ["ours/fast"]}}


def test_what_cannot_be_written_is_said_and_neither_file_is(place: Path) -> None:
    (place / "vllm-mods.lock").mkdir()
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    with pytest.raises(Refused) as caught:
        add(place)
    why = "cannot be written: Is a directory; nothing was changed"
    assert caught.value.message == f"{place}/vllm-mods.toml {why}"
    assert caught.value.hint == f"ls -la {place}"
    assert (place / "vllm-mods.toml").read_text() == "schema = 1\n"


def test_the_lock_has_at_any_moment_all_that_the_file_names(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, order = os.replace, list[str]()

    def replace(source: str, target: str) -> None:
        order.append(os.path.basename(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    file = str(place / "vllm-mods.toml")
    names = {"vllm-mods.toml", "vllm-mods.lock"}
    add(place, "fast")
    assert [one for one in order if one in names] == ["vllm-mods.lock", "vllm-mods.toml"]
    order.clear()
    changing.remove(file, "ours")
    assert [one for one in order if one in names] == ["vllm-mods.toml", "vllm-mods.lock"]


def test_a_project_that_another_run_changes_is_waited_for(place: Path) -> None:
    add(place)
    held = os.open(place, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = threading.Event()

    def remove() -> None:
        changing.remove(str(place / "vllm-mods.toml"), "ours")
        done.set()

    other = threading.Thread(target=remove)
    other.start()
    assert not done.wait(0.05)
    assert "ours" in read(place)["libraries"]
    os.close(held)
    other.join(10)
    assert done.is_set()
    assert "libraries" not in read(place)


def test_signers_are_named_from_the_projects_file(place: Path) -> None:
    source, name = changing.parse_source(
        "mods", str(place / "vllm-mods.toml"), str(place.parent / "signers")
    )
    assert source == MODS._replace(allowed_signers="../signers")
    assert name == "mods"
