"""Authors' commands: killed anywhere they leave all or nothing, and nothing of the installation is theirs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from git_host import mod, write

from vllm_mods.api import on_base
from vllm_mods.base.errors import Refused
from vllm_mods.base.output import write_whole
from vllm_mods.cli import run
from vllm_mods.library import catalog, writing
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAIRING = (
    'schema = 1\nname = "pair"\nsummary = "s"\nmodel = "a/b"\nbase = "oci:x"\nmods = ["one"]\n'
)
PAIRING += 'command = "vllm serve a/b"\n'
CALLS = ("replace", "rename", "mkdir", "open", "unlink", "rmdir")


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    for name in ("one", "two", "three"):
        write(folder, mod(name) | {f"patches/{name}/mod.lock": "old\n"})
    (folder / "pairings").mkdir()
    (folder / "pairings/pair.toml").write_text(PAIRING)
    return folder


def killed(at: int, work: Callable[[], object]) -> bool:
    """Do work in a process that is killed at its n-th call of the system; tell whether it was."""
    child = os.fork()
    if child == 0:
        left = at

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **more: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), 9)
                return real(*arguments, **more)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.slow
def test_locks_of_several_mods_are_all_written_or_none(library: Path) -> None:
    before = files(library)
    new = {f"patches/{name}/mod.lock": b"new\n" for name in ("one", "two", "three")}
    new["patches/one/0.2/x.patch"] = b"patch\n"
    after = {**before, **new}
    seen = set()
    at = 0
    while killed(at, lambda: writing.replace(str(library), new)):
        at += 1
        left = files(library)
        mixed = left not in (before, after)
        assert (
            not mixed
            or writing.READY in os.listdir(library)
            or writing.LAID_OUT in os.listdir(library)
        )
        writing.recover(str(library))
        assert files(library) in (before, after)
        assert sorted(os.listdir(library)) == ["pairings", "patches"]
        assert not any(path.is_dir() and not os.listdir(path) for path in library.rglob("*"))
        seen.add(files(library) == after)
        for name in new:
            (library / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (library / "patches/one/0.2").rmdir()
        for name, data in before.items():
            (library / name).write_bytes(data)
    assert at > 10
    assert seen == {True, False}
    assert files(library) == after


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_ends_another_is_ended_too(library: Path) -> None:
    before = files(library)
    new = {f"patches/{name}/mod.lock": b"new\n" for name in ("one", "two", "three")}
    at = 0
    while writing.READY not in os.listdir(library):
        killed(at, lambda: writing.replace(str(library), new))
        at += 1
    for again in range(3):
        killed(again, lambda: writing.recover(str(library)))
    writing.recover(str(library))
    assert files(library) == {**before, **new}


@pytest.mark.slow
def test_a_new_mod_is_there_whole_or_not_at_all_and_what_is_left_is_no_mod(library: Path) -> None:
    made = {path.rpartition("/")[2]: text.encode() for path, text in mod("made").items()}
    place = library / "patches/made"
    at = 0
    while killed(at, lambda: writing.folder(str(place), made)):
        at += 1
        assert not place.exists() or files(place) == {k: made[k] for k in sorted(made)}
        Library(library).select(Library(library).names()[:1])
        assert {name for name in Library(library).names() if "made" in name} <= {"made"}
        if place.exists():
            break
    if not place.exists():
        writing.folder(str(place), made)
    assert sorted(os.listdir(library / "patches")) == ["made", "one", "three", "two"]


def test_one_file_is_there_whole_or_not_at_all_and_the_next_run_leaves_nothing(
    tmp_path: Path,
) -> None:
    place = tmp_path / "pair.lock"
    place.write_bytes(b"old")
    at = 0
    while killed(at, lambda: write_whole(str(place), b"new" * 1000)):
        at += 1
        assert place.read_bytes() in (b"old", b"new" * 1000)
    assert os.listdir(tmp_path) == ["pair.lock"]


def test_two_runs_at_once_are_one_after_the_other(library: Path) -> None:
    with writing.alone(str(library)), pytest.raises(Refused, match="another vllm-mods is"):
        writing.replace(str(library), {"patches/one/mod.lock": b"new\n"})


@pytest.mark.parametrize("name", ["../x", "patches/../../x", "/x", ".git/hooks/x", "x"])
def test_what_somebody_planted_as_ready_comes_to_lie_in_a_library_only(
    library: Path, name: str
) -> None:
    before = files(library)
    with pytest.raises(Refused):
        writing.replace(str(library), {name: b""})
    assert files(library) == before
    if not name.startswith(("/", ".", "patches")):
        (library / writing.READY).mkdir()
        (library / writing.READY / name).write_bytes(b"")
        with pytest.raises(Refused, match="was not created by vllm-mods;"):
            writing.recover(str(library))


@pytest.fixture
def installed(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have the library be the one of an installed wheel, whose bytes nobody changes."""
    monkeypatch.setattr(catalog, "data_root", lambda: str(library))
    monkeypatch.chdir(library.parent)
    before = files(library)
    yield library
    assert files(library) == before


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "command",
    [
        ["port", "one", "--to", "pypi:0.21.0"],
        ["port", "one", "--abort"],
        ["matrix", "one", "--update-lock"],
        ["matrix", "--update-lock"],
    ],
)
def test_no_command_of_an_author_writes_into_the_installation(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "is bundled with vllm-mods" in said
    hint = said.partition("hint: ")[2]
    *commands, last = hint.strip().splitlines()[1:]
    subprocess.run(["sh", "-e"], input="\n".join(commands), text=True, check=True)
    (name,) = (word for word in last.split() if word.startswith("my-"))
    assert Library("mods").load(name).variants[0].overlay[0].data == b"X = 1\n"
    assert Library("mods").is_writable(Library("mods").load(name).directory)


def test_the_lock_of_a_pairing_of_the_installation_lies_in_the_current_folder(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_base, "read_lock", lambda _library, path, _name: path)

    def found(named: str | None) -> tuple[object, object]:
        return on_base.find_lock(Library(), "pair", named)

    here = os.path.abspath("pair.lock")
    assert found(None) == (here, ())
    (installed / "pyproject.toml").touch()
    beside = f"{installed}/pairings/pair.lock"
    assert found(None) == (beside, (beside,))
    assert found(beside) == (beside, ())
    (installed / "pyproject.toml").unlink()


def test_a_checkout_of_the_tool_is_its_maintainers_library(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "data_root", lambda: str(library))
    place = str(library / "patches/one")
    assert not Library().is_writable(place)
    assert Library(library).is_writable(place)
    (library / "pyproject.toml").touch()
    assert Library().is_writable(place)
