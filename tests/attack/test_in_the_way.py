"""What stops a writer half-way: mounts, attributes, limits, disks that fail. Found before the first write, or undone."""

from __future__ import annotations

import builtins
import errno
import os
import resource
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, ONE, PYC, build, snapshot, transition, write

from vllm_mods.base.errors import NotRestored, Refused
from vllm_mods.cli import run
from vllm_mods.site import journal
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover
from vllm_mods.site.transitions import revert_transition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

A, B = FILES["vllm/a.py"], FILES["vllm/b.py"]
BOTH = transition(write("vllm/a.py", A, b"A = 2\n"), write("vllm/b.py", B, b"B = 2\n"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


@contextmanager
def as_root(*command: str, undo: tuple[str, ...]) -> Iterator[None]:
    """Run a command that only root may, and another one in the end."""
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]} does not work here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(undo, check=True)


def revert(root: Path) -> None:
    there = read_state(str(root)).receipt
    assert there is not None
    commit(str(root), revert_transition(str(root), there))


def refused(root: Path, work: Callable[[], object], *says: str) -> None:
    before = snapshot(root)
    with pytest.raises(Refused) as caught:
        work()
    for words in says:
        assert words in f"{caught.value}\n{caught.value.hint}"
    assert snapshot(root) == before


# --- found before the first write ----------------------------------------------------------


@pytest.mark.parametrize("path", ["vllm/b.py", PYC, "vllm-0.19.1.dist-info/RECORD"])
def test_a_file_that_is_mounted_is_named(tmp_path: Path, root: Path, path: str) -> None:
    theirs = tmp_path / "a file"
    theirs.write_bytes((root / path).read_bytes())
    info = (root / path).stat()
    os.utime(theirs, ns=(info.st_mtime_ns, info.st_mtime_ns))
    place = str(root / path)
    with as_root("mount", "--bind", str(theirs), place, undo=("umount", place)):
        refused(root, lambda: commit(str(root), BOTH), f"{place} is a mount", f"umount {place}")
    commit(str(root), BOTH)
    theirs.write_bytes(b"A = 2\n")
    place = str(root / "vllm/a.py")
    with as_root("mount", "--bind", str(theirs), place, undo=("umount", place)):
        refused(root, lambda: revert(root), f"{place} is a mount")
    revert(root)


@pytest.mark.parametrize("letter", ["i", "a"])
@pytest.mark.parametrize("path", ["vllm/b.py", "vllm", ".", PYC])
def test_an_attribute_that_root_has_to_heed_is_named(root: Path, letter: str, path: str) -> None:
    place = os.path.normpath(root / path)
    with as_root("chattr", f"+{letter}", place, undo=("chattr", f"-{letter}", place)):
        refused(
            root,
            lambda: commit(str(root), BOTH),
            f"{place} has the attribute +{letter}",
            f"chattr -{letter} {place}",
        )
    commit(str(root), BOTH)
    original = str(root / ".vllm-mods/originals/vllm/a.py")
    with as_root("chattr", f"+{letter}", original, undo=("chattr", f"-{letter}", original)):
        refused(root, lambda: revert(root), f"{original} has the attribute +{letter}")
    revert(root)


@pytest.mark.parametrize("path", ["vllm", "."])
def test_a_mount_that_is_read_only_is_named(root: Path, path: str) -> None:
    place = os.path.normpath(root / path)
    with as_root("mount", "--bind", place, place, undo=("umount", place)):
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        refused(
            root,
            lambda: commit(str(root), BOTH),
            f"{place} is on a file system that is mounted read-only",
        )


MANY = transition(*(write(f"vllm/new/f{n}/x.py", None, b"X = 1\n") for n in range(180)))


def in_child(work: Callable[[], object], soft: int, hard: int) -> int:
    child = os.fork()
    if child == 0:
        code = 9
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            work()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
            code = 0
        except Refused as error:
            code = 3 if "descriptors" in str(error) and str(hard) in str(error) else 8
        except NotRestored:
            code = 4
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_more_folders_than_the_usual_limit_of_open_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    before = snapshot(root)
    assert in_child(lambda: commit(str(root), MANY), 128, 128) == 3
    assert snapshot(root) == before
    assert in_child(lambda: commit(str(root), MANY), 128, 4096) == 0
    after = snapshot(root)
    assert in_child(lambda: revert(root), 128, 128) == 3
    assert snapshot(root) == after
    assert in_child(lambda: revert(root), 128, 4096) == 0
    assert snapshot(root) == before


@pytest.mark.slow
def test_an_interrupted_apply_of_many_folders_is_undone_under_the_usual_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    before = snapshot(root)
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(journal, "finish", lambda *_: os._exit(0))
            commit(str(root), MANY)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert in_child(lambda: recover(str(root)), 128, 128) == 4
    assert in_child(lambda: recover(str(root)), 128, 4096) == 0
    assert snapshot(root) == before


# --- in the middle ----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["mount", "+i"])
def test_what_comes_in_the_way_in_the_middle_is_all_that_is_left(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A file that was replaced already cannot be put back: the others are, and the next command does the rest."""
    before = snapshot(root)
    place = str(root / "vllm/a.py")
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"A = 2\n")
    do: tuple[str, ...] = ("mount", "--bind", str(theirs), place)
    undo: tuple[str, ...] = ("umount", place)
    if what == "+i":
        do, undo = ("chattr", "+i", place), ("chattr", "-i", place)
    real = os.replace

    def replace(source: str, target: str) -> None:
        if target.endswith("/b.py") and not target.endswith("originals/vllm/b.py"):
            subprocess.run(do, check=True)
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        real(source, target)

    with as_root(*do, undo=undo):
        pass
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(NotRestored) as caught:
            commit(str(root), BOTH)
    try:
        with pytest.raises(NotRestored) as again:
            recover(str(root))
        for error in (caught.value, again.value):
            (line,) = [line for line in str(error).splitlines() if line.startswith("  ")]
            assert line.startswith(f"  {place}: ")
            assert error.hint is not None
            assert " ".join(undo) in error.hint
        now = snapshot(root)
        assert [path for path in before if before[path][4] != now[path][4]] == [place]
    finally:
        subprocess.run(undo, check=True)
    assert recover(str(root))
    assert snapshot(root) == before


# --- limits and disks --------------------------------------------------------------------------


def test_a_limit_on_processes_is_said_wherever_it_is_met(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vllm_mods.cli import installed

    for error in (
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        RuntimeError("can't start new thread"),
    ):

        def fails(*_arguments: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(installed, "status", fails)
        assert run(["status", "--target", str(root)]) == 1
        said = capsys.readouterr().err
        assert "no more processes or threads" in said
        assert "pids.max" in said


@pytest.mark.parametrize(
    "place", ["vllm/a.py", ".vllm-mods/receipt.json", ".vllm-mods/originals/vllm/a.py"]
)
def test_a_disk_that_fails_while_revert_reads_is_an_error_and_no_bug(
    tmp_path: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    write_mod(tmp_path / "library", "one", diff_of("vllm/a.py", A.decode(), "A = 2\n"))
    line = ["--target", str(root)]
    assert run(["apply", "one", "--library", str(tmp_path / "library"), *line]) == 0
    before = snapshot(root)
    real = builtins.open

    class Broken:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_error: object) -> None:
            self.file.close()

        def read(self, *_size: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def opened(file: Any, *arguments: Any, **options: Any) -> Any:
        found = real(file, *arguments, **options)
        if isinstance(file, int) and os.readlink(f"/proc/self/fd/{file}") == str(root / place):
            return Broken(found)
        return found

    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", opened)
        assert run(["revert", *line]) == 3
    said = capsys.readouterr().err
    assert "Input/output error" in said
    assert "this is a bug" not in said
    assert "hint: " in said
    assert snapshot(root) == before


# --- what is left of a transaction that changed nothing --------------------------------------------


@pytest.mark.parametrize("inside", [(), ("0",), ("stamp", "0", "journal.json.new")])
def test_a_work_folder_without_a_journal_is_no_interruption(
    root: Path, inside: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    commit(str(root), ONE)
    mtime = root.stat().st_mtime_ns
    before = snapshot(root)
    work = root / f"{journal.PREFIX}{mtime}"
    work.mkdir(mode=0o700)
    for name in inside:
        (work / name).touch()
    assert run(["status", "--target", str(root)]) == 0
    assert run(["verify", "--target", str(root)]) == 0
    assert "interrupted" not in capsys.readouterr().err
    assert recover(str(root))
    assert snapshot(root) == before
