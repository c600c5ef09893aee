"""What an interrupted transaction left, found and put back: the words, and the cases that a kill rarely leaves."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import faults
import installing
import pytest
from lowering import lower
from small_site import FILES, OLD, ONE, PYC, build, sha, snapshot, transition, write

from vllm_mods.base.errors import NotRestored, Refused
from vllm_mods.site import journal, journal_text, putting_back
from vllm_mods.site.journal import ASIDE, FILE, PREFIX, STAMP
from vllm_mods.site.journal_text import Folder, Foreign, Journal, JournalPlace, Step
from vllm_mods.site.site import Site
from vllm_mods.site.transaction import commit, recover

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


def interrupt(root: Path, *names: str) -> Path:
    """Kill a commit at its first call of one of these functions of ``os``; return the work folder.

    By default that is when all files are replaced, and the folders have their mtimes not back yet.
    """

    def work() -> None:
        faults.at(1, faults.kill, names or ("utime", "rmdir"))
        commit(str(root), ONE)

    assert faults.in_child(work) < 0
    (found,) = root.glob(f"{PREFIX}*")
    return found


def place(work: Path) -> JournalPlace:
    """Return the place that a journal in this folder was written for."""
    stamp = (work / STAMP).stat()
    return JournalPlace(folder=work.stat().st_ino, stamp=(stamp.st_ino, stamp.st_ctime_ns))


# --- finding it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("time", ["1500000000123456789", "-1", "0", str(2**63 - 1)])
def test_a_work_folder_is_named_by_a_time(root: Path, time: str) -> None:
    assert journal.find(str(root)) is None
    (root / f"{PREFIX}{time}").mkdir()
    assert journal.find(str(root)) == f"{root}/{PREFIX}{time}"


@pytest.mark.parametrize("time", ["", "-", "1x", "1" * 20, str(2**63)])
def test_what_is_named_by_no_time_is_none(root: Path, time: str) -> None:
    (root / f"{PREFIX}{time}").mkdir()
    assert journal.find(str(root)) is None


def test_the_last_step_of_all_is_found_and_done(root: Path) -> None:
    """The work folder is gone, and the root has its mtime not back yet: an attribute of it tells."""
    before = snapshot(root)
    try:
        os.setxattr(root, journal._ATTRIBUTE, b"%d" % root.stat().st_mtime_ns)
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    os.utime(root, (1, 1))
    assert recover(str(root))
    assert snapshot(root) == before
    os.setxattr(root, journal._ATTRIBUTE, b"soon")
    assert not recover(str(root))


# --- what does not fit ------------------------------------------------------------------------------


def problem(root: Path) -> NotRestored:
    """Return what a recovery says; the next says the same."""
    said = []
    for _ in range(2):
        with pytest.raises(NotRestored) as caught:
            recover(str(root))
        said.append(caught.value)
    assert str(said[0]) == str(said[1])
    return said[0]


def test_a_new_file_that_was_edited_since_is_not_thrown_away(root: Path) -> None:
    before = snapshot(root)
    work = interrupt(root)
    new = root / "vllm/new/deep/d.py"
    new.write_bytes(b"mine\n")
    error = problem(root)
    assert "\n  vllm/new/deep/d.py: another program changed this new file\n" in str(error)
    assert f"the originals of these files are in {work}" in str(error)
    assert error.hint == f"mv {new} {new}.mine  # then run the command again"
    assert new.read_bytes() == b"mine\n"
    assert (root / "vllm/a.py").read_bytes() == FILES["vllm/a.py"]
    new.unlink()
    assert recover(str(root))
    assert snapshot(root) == before


def test_a_file_with_another_name_loses_nothing_when_it_goes(root: Path) -> None:
    interrupt(root)
    new = root / "vllm/new/deep/d.py"
    new.write_bytes(b"mine\n")
    (root.parent / "mine").hardlink_to(new)
    assert recover(str(root))
    assert (root.parent / "mine").read_bytes() == b"mine\n"
    assert not (root / "vllm/new").exists()


def test_a_folder_where_a_file_was_is_named(root: Path) -> None:
    interrupt(root)
    place = root / "vllm/a.py"
    place.unlink()
    place.mkdir()
    error = problem(root)
    assert "vllm/a.py: Is a directory, and cannot be put back" in str(error)
    assert error.hint == f"mv {place} {place}.mine  # then run the command again"


@pytest.mark.parametrize("damage", ["other", "gone"])
def test_a_damaged_backup_is_named_and_not_put_back(root: Path, damage: str) -> None:
    work = interrupt(root)
    text = (work / FILE).read_bytes()
    steps = journal_text.parse(text, Site(str(root)), place(work)).steps
    (backup,) = [one.backup for one in steps if one.path == "vllm/a.py"]
    assert backup is not None
    (work / backup).unlink()
    if damage == "other":
        (work / backup).write_bytes(b"other\n")
    error = problem(root)
    assert f"vllm/a.py: its original {work}/{backup} is damaged" in str(error)
    assert error.hint == f"ls -la {root}/vllm/a.py {work}/{backup}  # then run the command again"
    assert (root / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert (root / "vllm/sub/c.py").read_bytes() == FILES["vllm/sub/c.py"]


def test_what_somebody_put_into_a_new_folder_stays_and_so_does_the_folder(root: Path) -> None:
    interrupt(root)
    (root / "vllm/new/theirs").write_bytes(b"theirs")
    assert recover(str(root))
    assert (root / "vllm/new/theirs").read_bytes() == b"theirs"
    assert not (root / "vllm/new/deep").exists()


@pytest.mark.parametrize(
    ("code", "passed"),
    [(errno.ENOTEMPTY, True), (errno.EEXIST, True), (errno.EIO, False), (errno.EACCES, False)],
)
def test_a_new_folder_stays_for_what_is_in_it_and_for_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, passed: bool
) -> None:
    interrupt(root)
    real = os.rmdir

    def rmdir(path: str) -> None:
        if path.endswith("/deep"):
            raise OSError(code, os.strerror(code), path)
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", rmdir)
        if passed:
            assert recover(str(root))
        else:
            with pytest.raises(NotRestored, match=f"{os.strerror(code)}: '{root}/vllm/new/deep'"):
                recover(str(root))


def test_an_error_while_putting_back_says_what_is_in_the_way(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(root)

    def replace(_source: str, target: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(NotRestored, match="could not be undone in full") as caught:
            recover(str(root))
    assert f"Input/output error: '{root}/" in str(caught.value)
    assert caught.value.hint == "the disk fails: dmesg | tail  # then run the command again"
    assert recover(str(root))


def test_a_recovery_that_cannot_be_finished_says_so_and_is_begun_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    interrupt(root)
    real = os.unlink

    def unlink(path: str) -> None:
        if path.endswith(FILE):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        with pytest.raises(NotRestored, match="an interrupted transaction could not") as caught:
            recover(str(root))
    assert f"Input/output error: '{root}/{PREFIX}" in str(caught.value)
    assert caught.value.hint == "the disk fails: dmesg | tail  # then run the command again"
    assert recover(str(root))
    assert snapshot(root) == before


def test_a_backup_on_another_file_system_is_put_back_as_a_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    interrupt(root)
    real = os.replace

    def replace(source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        assert recover(str(root))
    assert snapshot(root) == before


@pytest.mark.slow
def test_a_tree_is_unfinished_while_there_is_a_journal_of_ours(root: Path) -> None:
    assert journal.unfinished(str(root)) is None
    (root / f"{PREFIX}7").mkdir(mode=0o755)  # not one that this tool makes
    assert journal.unfinished(str(root)) is None
    (root / f"{PREFIX}7").rmdir()
    work = interrupt(root)
    assert journal.unfinished(str(root)) == str(work)
    assert recover(str(root))
    assert journal.unfinished(str(root)) is None


def test_a_journal_that_was_not_there_yet_leaves_nothing_to_put_back(root: Path) -> None:
    before = snapshot(root)
    work = interrupt(root, "replace")
    assert not (work / FILE).exists()
    assert recover(str(root))
    assert snapshot(root) == before


@pytest.mark.slow
def test_of_many_files_that_cannot_be_put_back_twenty_are_named(root: Path) -> None:
    paths = [f"vllm/many/{n:02}.py" for n in range(23)]

    def work() -> None:
        faults.at(1, faults.kill, ("utime", "rmdir"))
        commit(str(root), transition(*(write(path, None, b"new") for path in paths)))

    assert faults.in_child(work) < 0
    for path in paths:
        (root / path).write_bytes(b"mine")
    lines = str(problem(root)).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:21]] == paths[:20]
    assert lines[21] == "  and 3 more"
    (root / paths[0]).unlink()
    (root / paths[1]).unlink()
    (root / paths[2]).unlink()
    assert " more\n" not in str(problem(root))


@pytest.mark.parametrize("version", ["0.19.1", "0.20.0"])
@pytest.mark.parametrize("first", [True, False], ids=["uninstalled", "over it"])
def test_what_was_installed_over_an_interrupted_transaction_stays(
    tmp_path: Path, version: str, *, first: bool
) -> None:
    root, later = tmp_path / "new", {**FILES, "vllm/a.py": b"A = 9\n"}
    del later["vllm/sub/c.py"]
    installing.install(root, FILES)
    interrupt(root)
    if first:
        installing.uninstall(root)
    installing.install(root, later, version)
    assert recover(str(root))
    there = {one: one.read_bytes() for one in root.rglob("*.py")}
    assert there == {root / path: data for path, data in later.items()}
    assert not (root / "vllm/new").exists()
    assert (root / f"vllm-{version}.dist-info/RECORD").exists()
    assert len(list(root.glob("*.dist-info"))) == 1


def test_bytecode_that_was_made_of_a_half_done_tree_is_no_edit(root: Path) -> None:
    before = snapshot(root)
    interrupt(root)
    (root / PYC).write_bytes(b"of what lay there")
    assert recover(str(root))
    assert snapshot(root) == before


def test_where_no_permissions_are_kept_nothing_is_begun(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        os.chmod(path, 0o740)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", mkdir)
        with pytest.raises(
            Refused, match=f"^{root}: this file system has no permissions,"
        ) as caught:
            commit(str(root), ONE)
    assert (caught.value.hint or "").startswith(f"findmnt -T {root} ")
    assert snapshot(root) == before


def test_a_work_folder_that_cannot_be_removed_is_left_to_the_next_command(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.unlink

    def unlink(path: str) -> None:
        if path.endswith(STAMP):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        (note,) = commit(str(root), ONE).notes
    (work,) = root.glob(f"{PREFIX}*")
    assert note == (
        f"[Errno 5] Input/output error: '{work}/{STAMP}': {work} could not be removed; "
        "the next command removes it"
    )
    assert (root / "vllm/a.py").read_bytes() == b"A = 2\n"
    mtime = int(work.name[len(PREFIX) :])
    assert recover(str(root))
    assert not list(root.glob(f"{PREFIX}*"))
    assert root.stat().st_mtime_ns == mtime
    assert (root / "vllm/a.py").read_bytes() == b"A = 2\n"


# --- what only has the name of one ------------------------------------------------------------------


@pytest.mark.parametrize("name", [FILE, f"{FILE}.new", STAMP, "0"])
def test_only_what_the_tool_keeps_there_is_in_a_work_folder(root: Path, name: str) -> None:
    def told(name: str, size: int = 0) -> list[str]:
        (root / f"{PREFIX}7").mkdir(mode=0o700)
        (root / f"{PREFIX}7" / name).write_bytes(bytes(size))
        notes: list[str] = []
        recover(str(root), notes.append)
        return notes

    is_journal = name == FILE
    assert len(told(name)) == is_journal  # an empty one is none
    (note,) = told(f"{name}x")
    aside = f"{root}/{ASIDE}{1 if is_journal else 0}"
    assert note.startswith(
        f"{root}/{PREFIX}7 was named like the journal of an interrupted transaction, but is not a journal: "
        f"it contains '{name}x', which vllm-mods does not put there. vllm-mods did not execute it and "
        f"moved it to {aside}."
    )
    assert os.listdir(aside) == [f"{name}x"]


def test_a_journal_larger_than_any_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "RECEIPT", 5)
    for n, (size, why) in enumerate([(5, "cannot be read"), (6, "has 6 bytes; the limit is 5")]):
        (root / f"{PREFIX}7").mkdir(mode=0o700)
        (root / f"{PREFIX}7" / FILE).write_bytes(bytes(size))
        notes: list[str] = []
        assert not recover(str(root), notes.append)
        assert f"its journal {why}" in notes[0]
        assert (root / f"{ASIDE}{n}").exists()


def test_what_cannot_be_set_aside_stops_the_command(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / f"{PREFIX}7").mkdir(mode=0o755)
    before = snapshot(root)

    def rename(_source: str, target: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(
        Refused, match="It could not be moved away \\(Input/output error\\), so"
    ) as caught:
        recover(str(root))
    assert caught.value.hint == f"mv {root}/{PREFIX}7 {root}/{ASIDE}0"
    assert snapshot(root).keys() == before.keys()


# --- as text ----------------------------------------------------------------------------------------

STEP = ("vllm/a.py", sha(b"a"), None, "0", "/elsewhere/.a.py.vllm-mods0")
FOLDER = ("vllm", 0o755, 0, 0, OLD)
HERE = JournalPlace(7, (8, 9))


def text(**parts: object) -> bytes:
    """Return the text of a journal that was written here, but for some parts."""
    own: dict[str, Any] = {
        "schema": 2,
        "folder": 7,
        "stamp": [8, 9],
        "steps": [STEP],
        "kept": [FOLDER],
    }
    own |= {"made": ["vllm/new"], "gone": [FOLDER], **parts}
    for name, kind in (("steps", Step), ("kept", Folder), ("gone", Folder)):
        own[name] = [
            dict(zip(kind._fields, row, strict=False)) if isinstance(row, tuple) else row
            for row in own[name]
        ]
    return json.dumps(own).encode()


def test_a_journal_is_read_as_it_was_written_with_staged_files_beside_theirs() -> None:
    step = Step(*STEP)._replace(temp="/site/vllm/.a.py.vllm-mods0")
    written = Journal((step,), (Folder(*FOLDER),), ("vllm/new",), (Folder(*FOLDER),))
    assert journal_text.parse(text(), Site("/site"), HERE) == written
    dumped = journal_text.dump(written, HERE)
    assert journal_text.parse(dumped, Site("/site"), HERE) == written
    assert written.paths() == ["vllm/a.py", "vllm", "vllm", "vllm/new"]


@pytest.mark.parametrize(
    ("at", "least", "most"),
    [(1, 0, 0o7777), (2, 0, 2**32 - 2), (3, 0, 2**32 - 2), (4, 1 - 2**63, 2**63 - 1)],
)
def test_numbers_of_folders_are_those_that_the_system_takes(at: int, least: int, most: int) -> None:
    def folder(number: int) -> bytes:
        return text(kept=[(*FOLDER[:at], number, *FOLDER[at + 1 :])])

    for number in (least, most):
        assert journal_text.parse(folder(number), Site("/site"), HERE).kept[0][at] == number
    for number in (least - 1, most + 1):
        with pytest.raises(Foreign, match=f"{number} is out of bounds"):
            journal_text.parse(folder(number), Site("/site"), HERE)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"schema": 1}, r"cannot be read \(schema 1\)"),
        ({"folder": 8}, "was not written in this folder"),
        ({"steps": [STEP[:4]]}, r"steps\[0\]\.temp: is required"),
        ({"steps": [7]}, "cannot be read"),
        ({"steps": [(*STEP[:3], "0x", STEP[4])]}, r"the step of 'vllm/a\.py' is invalid"),
        ({"steps": [(*STEP[:3], "٣", STEP[4])]}, r"the step of 'vllm/a\.py' is invalid"),
        ({"steps": [(*STEP[:4], ".a.py")]}, r"\.a\.py is not the name of a staged file"),
        (
            {"steps": [(*STEP[:4], "a.vllm-mods0")]},
            r"a\.vllm-mods0 is not the name of a staged file",
        ),
        ({"steps": [("../a.py", *STEP[1:])]}, r"'\.\./a\.py' is not a plain path"),
        ({"made": ["vllm/../../x"]}, "is not a plain path"),
        ({"gone": [("//x", *FOLDER[1:])]}, "is not a plain path"),
        ({"made": ["/space/x"], "stamp": [8, 10]}, "names /space/x, outside the tree"),
        ({"made": ["/space/x"], "stamp": None}, "names /space/x, outside the tree"),
    ],
)
def test_a_journal_that_this_tool_did_not_write_here_says_why(
    parts: dict[str, object], why: str
) -> None:
    with pytest.raises(Foreign, match=why):
        journal_text.parse(text(**parts), Site("/site"), HERE)


def test_only_the_stamp_of_its_folder_lets_a_journal_lead_to_a_workspace() -> None:
    outside = text(made=["/space/x"])
    assert journal_text.parse(outside, Site("/site"), HERE).made == ("/space/x",)
    unstamped = JournalPlace(7, None)
    assert journal_text.parse(text(), Site("/site"), unstamped).made == ("vllm/new",)
    for data in (outside, text(made=["/space/x"], stamp=None)):
        with pytest.raises(Foreign, match="outside the tree"):
            journal_text.parse(data, Site("/site"), unstamped)


# --- folders and times ------------------------------------------------------------------------------


def test_an_mtime_that_is_right_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(tmp_path, ns=(OLD, OLD))
    putting_back.give_mtime(str(tmp_path), OLD + 1)
    assert tmp_path.stat().st_mtime_ns == OLD + 1

    def utime(*_arguments: object, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", utime)
    putting_back.give_mtime(str(tmp_path), OLD + 1)
    with pytest.raises(PermissionError):
        putting_back.give_mtime(str(tmp_path), OLD)


def test_a_folder_is_described_whole(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    info = tmp_path.stat()
    assert Folder.of("x", info) == Folder(
        path="x", mode=0o2750, uid=info.st_uid, gid=info.st_gid, mtime_ns=info.st_mtime_ns
    )


def test_a_tree_without_journal_is_not_locked(root: Path) -> None:
    shutil.rmtree(root / "vllm")
    assert not recover(str(root))
    assert not list(root.glob(f"{PREFIX}*"))


def test_hashes_of_a_journal_are_of_the_files(root: Path) -> None:
    work = interrupt(root)
    found: Journal = journal_text.parse((work / FILE).read_bytes(), Site(str(root)), place(work))
    steps = {one.path: one for one in found.steps}
    assert steps["vllm/a.py"].before == sha(FILES["vllm/a.py"])
    assert steps["vllm/a.py"].after == sha(b"A = 2\n")
    assert steps["vllm/sub/c.py"].after is None
    assert steps["vllm/new/deep/d.py"].before is None
    assert {"vllm/new", "vllm/new/deep"} < {*found.made}
