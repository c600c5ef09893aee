"""The transaction: what it changes, what it leaves alone, and what it refuses to do."""

from __future__ import annotations

import csv
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import faults
import installing
import pytest
from small_site import (
    FILES,
    OLD,
    ONE,
    PYC,
    RECORD,
    TWO,
    age,
    build,
    entry,
    row,
    sha,
    snapshot,
    transition,
    write,
)

from vllm_mods.base.errors import NotRestored, Refused, TreeError
from vllm_mods.base.model import FileChange
from vllm_mods.formats import receipt
from vllm_mods.site import journal, transaction
from vllm_mods.site.integrity import undone_in
from vllm_mods.site.obstacles import refusal
from vllm_mods.site.state_folder import State, read_state
from vllm_mods.site.transaction import Outcome, commit, recover
from vllm_mods.site.transitions import Transition, revert_transition
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.receipt_tree import pristine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_mods.formats.receipt import Receipt
    from vllm_mods.site.journal_text import Journal
    from vllm_mods.site.open_folders import OpenFolders
    from vllm_mods.site.step_list import Op

A = FILES["vllm/a.py"]
B = FILES["vllm/b.py"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


def receipt_of(site: Path) -> Receipt:
    state = read_state(str(site))
    assert state.receipt is not None
    return state.receipt


def revert(site: Path, *, discard_edits: bool = False) -> Outcome:
    there = receipt_of(site)
    return commit(str(site), revert_transition(str(site), there, discard_edits=discard_edits))


def refused(site: Path, *writes: FileChange, **options: object) -> Refused:
    """Commit what must be refused; check that not a byte and not a time has changed."""
    before = snapshot(site)
    with pytest.raises(Refused) as caught:
        commit(str(site), transition(*writes), **options)  # type: ignore[arg-type]
    assert snapshot(site) == before
    assert "nothing was changed" in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return caught.value


# --- what it changes ----------------------------------------------------------


def test_files_are_changed_made_and_deleted_and_nothing_else(site: Path) -> None:
    before = snapshot(site)
    outcome = commit(str(site), ONE)
    after = snapshot(site)

    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert (site / "vllm/new/deep/d.py").read_bytes() == b"D = 1\n"
    assert not (site / "vllm/sub/c.py").exists()
    ours = f"{site}/.vllm-mods"
    changed = {
        path.removeprefix(f"{site}/")
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and not path.startswith(ours)
    }
    folders = {"vllm/new", "vllm/new/deep"}
    assert changed == {*outcome.changed, *folders}
    assert changed - folders == {
        "vllm/a.py",
        "vllm/new/deep/d.py",
        "vllm/sub/c.py",
        RECORD,
        PYC,
        "vllm/__pycache__/a.cpython-312.opt-2.pyc",
    }


@root_only
def test_mode_and_owner_stay_and_new_files_belong_to_whom_the_folder_belongs(site: Path) -> None:
    os.chown(site / "vllm/b.py", 1234, 2345)
    (site / "vllm/b.py").chmod(0o4755)  # chown has cleared the set-uid bit
    os.chown(site / "vllm", 77, 88)
    commit(
        str(site),
        transition(
            write("vllm/b.py", B, b"B = 2\n"),
            write("vllm/n.py", None, b""),
            write("vllm/deep/x.sh", None, b"", 0o755),
        ),
    )
    found = {
        path: (oct(info.st_mode & 0o7777), info.st_uid, info.st_gid)
        for path in ("vllm/b.py", "vllm/n.py", "vllm/deep", "vllm/deep/x.sh")
        for info in [(site / path).stat()]
    }
    assert found == {
        "vllm/b.py": ("0o4755", 1234, 2345),
        "vllm/n.py": ("0o644", 77, 88),
        "vllm/deep": ("0o755", 77, 88),
        "vllm/deep/x.sh": ("0o755", 77, 88),
    }


def test_a_mode_alone_can_change_and_comes_back(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), transition(write("vllm/a.py", A, A, 0o755)))
    assert (site / "vllm/a.py").stat().st_mode & 0o7777 == 0o755
    revert(site)
    assert snapshot(site) == before


def test_extended_attributes_stay(site: Path) -> None:
    try:
        os.setxattr(site / "vllm/a.py", "user.note", b"mine")
    except OSError:
        pytest.skip("no extended attributes on this file system")
    commit(str(site), ONE)
    assert os.getxattr(site / "vllm/a.py", "user.note") == b"mine"


def test_two_runs_with_source_date_epoch_make_the_same_tree(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        site = build(tmp_path / name)
        commit(str(site), ONE, source_date_epoch=1_700_000_000)
        commit(str(site), TWO, source_date_epoch=1_700_000_000)
        found.append({path.removeprefix(str(site)): one for path, one in snapshot(site).items()})
    assert found[0] == found[1]
    times = {path: one[2] for path, one in found[0].items()}
    old = {path for path, time in times.items() if isinstance(time, int) and time < OLD + 1000}
    assert {times[path] for path in times.keys() - old} == {1_700_000_000 * 10**9}
    assert "/vllm" in old
    assert "/.vllm-mods/originals/vllm/a.py" in old
    assert "/vllm/a.py" not in old
    assert f"/{RECORD}" not in old


def test_new_code_runs_though_size_and_time_are_those_of_the_old(site: Path) -> None:
    """The trap: same size, clamped mtime, and a .pyc that matches both."""
    source, when = site / "vllm/a.py", 1_700_000_000
    command = [sys.executable, "-c", "from vllm import a; print(a.A)"]
    os.utime(source, (when, when))
    (site / PYC).unlink()

    def run() -> str:
        return subprocess.run(
            command, cwd=site, check=True, capture_output=True, text=True
        ).stdout.strip()

    environment = os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        assert run() == "1"  # and leaves bytecode
        commit(str(site), ONE, source_date_epoch=when)
        assert source.stat().st_size == len(A)
        assert run() == "2"
    finally:
        if environment is not None:
            os.environ["PYTHONDONTWRITEBYTECODE"] = environment


def test_only_the_bytecode_of_changed_files_goes(site: Path) -> None:
    cache = site / "vllm/__pycache__"
    for name in (
        "a_b.cpython-311.pyc",
        "a.b.cpython-311.pyc",
        "a.cpython-313-pytest-8.3.2.pyc",
        "a.pypy310.opt-1.pyc",
        "a.txt",
    ):
        (cache / name).write_bytes(name.encode())
    (site / "vllm/a.pyc").write_bytes(b"a sourceless module")
    commit(str(site), ONE)
    assert sorted(one.name for one in cache.iterdir()) == [
        "__init__.cpython-311.pyc",
        "a.b.cpython-311.pyc",
        "a.txt",
        "a_b.cpython-311.pyc",
    ]
    assert (site / "vllm/a.pyc").exists()


def test_an_original_that_has_another_name_is_copied_back(site: Path, tmp_path: Path) -> None:
    commit(str(site), ONE)
    os.link(site / receipt.original("vllm/a.py"), tmp_path / "other")
    revert(site)
    (tmp_path / "other").write_bytes(b"changed through the other name")
    assert (site / "vllm/a.py").read_bytes() == A


def test_bytecode_that_lies_elsewhere_goes_of_changed_files_only(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Path(f"{tmp_path / 'cache'}{site.resolve()}/vllm")
    cache.mkdir(parents=True)
    for name in ("a.cpython-312.pyc", "b.cpython-312.pyc"):
        (cache / name).write_bytes(b"of before")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "cache"))
    assert commit(str(site), ONE).notes == ()
    assert [one.name for one in cache.iterdir()] == ["b.cpython-312.pyc"]


def test_record_is_true_afterwards(site: Path) -> None:
    commit(str(site), ONE)
    commit(str(site), TWO)
    with (site / RECORD).open(newline="") as file:
        rows = {one[0]: one for one in csv.reader(file)}
    assert rows.keys() == {*FILES, RECORD, "vllm/new/deep/d.py"} - {"vllm/sub/c.py"}
    for path in rows.keys() - {RECORD}:
        expected = row(path, (site / path).read_bytes()).decode().strip().split(",")
        assert rows[path] == expected


def test_a_source_checkout_has_no_record_to_keep(tmp_path: Path) -> None:
    site = build(tmp_path / "site", installed=False)
    before = snapshot(site)
    commit(str(site), ONE)
    assert not list(site.rglob("RECORD"))
    revert(site)
    assert snapshot(site) == before


def test_a_file_that_no_record_lists_gets_no_row(site: Path) -> None:
    (site / "vllm/local.py").write_bytes(b"mine")
    commit(str(site), transition(write("vllm/local.py", b"mine", b"theirs")))
    assert b"local.py" not in (site / RECORD).read_bytes()


def test_a_new_file_has_a_row_in_the_record_of_its_package(site: Path) -> None:
    numpy = site / "numpy-2.0.dist-info/RECORD"
    before, rows = numpy.read_bytes(), (site / RECORD).read_bytes()
    commit(str(site), transition(write("numpy/x.py", None, b"x"), write("other/x.py", None, b"")))
    assert numpy.read_bytes() == before + row("numpy/x.py", b"x")
    assert (site / RECORD).read_bytes() == rows
    revert(site)
    assert numpy.read_bytes() == before


def test_a_record_whose_original_is_lost_is_not_edited(site: Path) -> None:
    commit(str(site), ONE)
    (site / receipt.original(RECORD)).unlink()
    before = snapshot(site)
    with pytest.raises(Refused, match=f"^{RECORD}: its original is missing or dam") as caught:
        commit(str(site), TWO)
    assert caught.value.hint == f"vllm-mods verify --target {site}"
    assert snapshot(site) == before


def test_sources_are_kept_and_replaced_whole(site: Path) -> None:
    commit(str(site), ONE)
    kept = site / ".vllm-mods/mods"
    assert (kept / "one.json").read_bytes() == b"# one"
    commit(str(site), ONE._replace(changes=(), before=ONE.mods, sources=(("one", b"new"),)))
    assert [one.name for one in kept.iterdir()] == ["one.json"]
    assert (kept / "one.json").read_bytes() == b"new"


def test_a_rehearsal_says_what_a_commit_does_and_writes_nothing(site: Path) -> None:
    before = snapshot(site)
    told = commit(str(site), ONE, write=False)
    with pytest.raises(Refused, match=r"vllm/a\.py"):
        commit(str(site), transition(write("vllm/a.py", B, b"A = 3\n")), write=False)
    assert snapshot(site) == before
    assert told == commit(str(site), ONE)


def test_a_file_is_no_tree(site: Path) -> None:
    with pytest.raises(Refused, match="Not a directory; nothing was changed"):
        commit(f"{site}/vllm/a.py", ONE)


def test_a_refusal_names_what_was_in_the_way_or_else_the_tree() -> None:
    for names, named in (((), "/site"), (("/a",), "/a"), (("/a", None, "/b"), "/b")):
        error = OSError(errno.EROFS, "no", *names)
        assert refusal("/site", error).message == f"{named}: no; nothing was changed"


def test_nothing_to_do_does_nothing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(str(site), ONE)
    before = snapshot(site)
    same = ONE._replace(changes=(), before=ONE.mods)

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    assert commit(str(site), same).changed == ()
    assert snapshot(site) == before


def test_what_was_planned_before_another_mod_went_in_is_refused(site: Path) -> None:
    other = transition(write("vllm/b.py", B, b"B = 2\n"), name="other")
    commit(str(site), ONE)
    before = snapshot(site)
    with pytest.raises(Refused, match="another vllm-mods has") as caught:
        commit(str(site), other)
    assert caught.value.hint == "run the command again"
    assert snapshot(site) == before


def test_names_as_long_as_a_file_system_allows(site: Path) -> None:
    names = [f"vllm/{'n' * 251}{digit}.py" for digit in "12"]
    commit(str(site), transition(*(write(name, None, name.encode()) for name in names)))
    assert [(site / name).read_bytes() for name in names] == [name.encode() for name in names]


def test_templates_go_to_the_workspace_or_into_our_own_folder(tmp_path: Path, site: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    before = snapshot(tmp_path)
    mine, theirs = ".vllm-mods/templates/t.jinja", f"{workspace}/sub/t.jinja"
    both = transition(write(mine, None, b"T"), write(theirs, None, b"T"))
    assert commit(str(site), both, workspace=str(workspace)).changed == (mine, theirs)
    assert (site / mine).read_bytes() == b"T"
    assert (workspace / "sub/t.jinja").read_bytes() == b"T"
    assert receipt_of(site).workspace == str(workspace)
    change = transition(write(theirs, b"T", b"U"), name="two", before=both.mods)
    # the receipt knows the workspace, and another one would split what is in
    assert commit(str(site), change).changed == (theirs,)
    other = transition(write("/elsewhere/t", None, b""), name="three", before=change.mods)
    with pytest.raises(Refused, match="outside the workspace"):
        commit(str(site), other, workspace="/elsewhere")
    revert(site)
    now = snapshot(tmp_path)
    assert now == before


# --- what it refuses ------------------------------------------------------------


def test_a_file_that_is_not_as_expected(site: Path) -> None:
    error = refused(site, write("vllm/a.py", b"other", b"x"))
    assert error.hint == f"vllm-mods verify --target {site}"
    assert error.message == (
        f"vllm/a.py was changed: its sha256 is {sha(A)[:12]}…, but {sha(b'other')[:12]}… was "
        "expected; nothing was changed"
    )
    assert "already exists" in refused(site, write("vllm/a.py", None, b"x")).message
    assert "is gone" in refused(site, write("vllm/none.py", b"x", b"y")).message


def test_one_bad_file_of_several_stops_all(site: Path) -> None:
    refused(site, write("vllm/a.py", A, b"A = 2\n"), write("vllm/b.py", b"other", b"x"))


@pytest.mark.parametrize("link", ["vllm/sub", "vllm/a.py", "vllm/__pycache__", ".vllm-mods"])
def test_symbolic_links(tmp_path: Path, site: Path, link: str) -> None:
    outside = tmp_path / "outside"
    if (site / link).exists():
        (site / link).rename(outside)
    else:
        outside.mkdir()
    (site / link).symlink_to(outside)
    found = snapshot(tmp_path)
    error = refused(
        site, write("vllm/a.py", A, b"x"), write("vllm/sub/c.py", FILES["vllm/sub/c.py"], b"x")
    )
    assert f"{link} is a symbolic link to {outside}" in error.message
    assert snapshot(tmp_path) == found


@pytest.mark.parametrize(
    "path",
    [
        "../outside.py",
        "vllm/../../outside.py",
        "vllm//a.py",
        "./vllm/a.py",
        "",
        "vllm/a\0.py",
        "/etc/outside.py",
    ],
)
def test_paths_that_leave_the_tree(site: Path, path: str) -> None:
    refused(site, write(path, None, b"x"))


def test_paths_outside_the_workspace_or_in_one_that_is_not_there(
    tmp_path: Path, site: Path
) -> None:
    workspace = str(tmp_path / "workspace")
    error = refused(site, write(f"{workspace}/t", None, b""), workspace=workspace)
    assert error.hint == f"mkdir -p {workspace}"
    (tmp_path / "workspace").mkdir()
    refused(site, write(f"{workspace}-more/t", None, b""), workspace=workspace)
    refused(site, write(f"{workspace}/../t", None, b""), workspace=workspace)


@pytest.mark.parametrize("path", [".vllm-mods/receipt.json", ".vllm-mods/originals/vllm/a.py"])
def test_our_own_files_are_no_target(site: Path, path: str) -> None:
    refused(site, write(path, None, b"x"))


def test_what_is_no_regular_file(site: Path) -> None:
    os.mkfifo(site / "vllm/pipe.py")
    assert "not a regular file" in refused(site, write("vllm/pipe.py", None, b"x")).message
    assert "a folder" in refused(site, write("vllm/sub", None, b"x")).message
    assert "not a folder" in refused(site, write("vllm/a.py/x.py", None, b"x")).message


def test_a_hard_linked_file_is_replaced_and_its_other_names_are_not(
    tmp_path: Path, site: Path
) -> None:
    other = tmp_path / "cache.py"
    other.hardlink_to(site / "vllm/a.py")
    change = write("vllm/a.py", A, b"A = 2\n")
    assert "--keep-links" in (refused(site, change, keep_links=True).hint or "")

    (note,) = commit(str(site), transition(change)).notes
    assert note.startswith("vllm/a.py is hard-linked, perhaps to a package cache (uv, conda)")
    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert other.read_bytes() == A
    other.write_bytes(b"changed through the other name")
    revert(site)
    assert (site / "vllm/a.py").read_bytes() == A


def test_of_several_hard_linked_files_one_is_named(tmp_path: Path, site: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).hardlink_to(site / f"vllm/{name}.py")
    both = transition(write("vllm/a.py", A, b"x"), write("vllm/b.py", B, b"x"))
    (note,) = commit(str(site), both).notes
    assert note.startswith("vllm/a.py and 1 more are hard-linked, ")


@pytest.mark.parametrize("path", ["vllm/a.py", "vllm", RECORD, ".", "vllm/__pycache__"])
def test_read_only_files_and_folders_even_for_root(site: Path, path: str) -> None:
    mode = (site / path).stat().st_mode & 0o7777
    (site / path).chmod(mode & ~0o222)
    try:
        error = refused(site, *ONE.changes)
        assert "read-only" in error.message
        assert (error.hint or "").startswith("chmod u+w ")
    finally:
        (site / path).chmod(mode)


def as_user(work: Callable[[], object]) -> int:
    """Run in a child without root's rights."""

    def drop_rights_and_work() -> None:
        os.setgroups([])
        os.setgid(1234)
        os.setuid(1234)
        work()

    return faults.in_child(drop_rights_and_work)


@pytest.fixture
def users_site() -> Iterator[Path]:
    """Make a site that belongs to a user, where that user can reach it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        site = build(Path(folder) / "site")
        for path in [site, *site.rglob("*")]:
            mode = path.stat().st_mode & 0o7777
            os.chown(path, 1234, 1234)
            path.chmod(mode)
        yield site


@pytest.mark.slow
@root_only
def test_the_owner_of_a_tree_needs_no_root(users_site: Path) -> None:
    before = snapshot(users_site)

    def work() -> None:
        commit(str(users_site), ONE)
        assert snapshot(users_site) != before
        revert(users_site)

    assert as_user(work) == faults.DONE
    assert snapshot(users_site) == before


@root_only
@pytest.mark.parametrize("path", ["vllm/a.py", "vllm/sub", "."])
def test_what_belongs_to_somebody_else_is_refused_whole(users_site: Path, path: str) -> None:
    """A user may replace a file of root's in a folder of their own, but not keep its owner."""
    os.chown(users_site / path, 0, 0)
    before = snapshot(users_site)
    assert as_user(lambda: commit(str(users_site), ONE)) == faults.REFUSED
    assert snapshot(users_site) == before


def test_while_another_one_works_on_the_tree(site: Path) -> None:
    descriptor = os.open(site, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert "another vllm-mods" in refused(site, *ONE.changes).message
    finally:
        os.close(descriptor)


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        commit(str(tmp_path / "none"), ONE)


@pytest.mark.parametrize(("function", "named"), [("listdir", ""), ("lstat", "/receipt.json")])
def test_a_state_that_cannot_be_read_is_refused_by_what_cannot(
    site: Path, monkeypatch: pytest.MonkeyPatch, function: str, named: str
) -> None:
    commit(str(site), ONE)
    real = getattr(os, function)

    def fails(path: str) -> object:
        if not named or path.endswith(named):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fails)
        with pytest.raises(Refused) as caught:
            read_state(str(site))
    place = f"{site}/.vllm-mods{named}" if named else str(site)
    assert caught.value.message == f"{place}: Input/output error; nothing was changed"
    assert caught.value.hint == "the disk fails: dmesg | tail"


def test_a_broken_receipt(site: Path) -> None:
    commit(str(site), ONE)
    (site / receipt.RECEIPT).write_bytes(b"{}")
    before = snapshot(site)
    with pytest.raises(Refused, match="receipt"):
        commit(str(site), TWO)
    assert snapshot(site) == before


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_receipt_that_is_no_file(site: Path, tmp_path: Path, what: str) -> None:
    commit(str(site), ONE)
    there = site / receipt.RECEIPT
    there.rename(tmp_path / "elsewhere.json")
    if what == "link":
        there.symlink_to(tmp_path / "elsewhere.json")
    else:
        there.mkdir()
    refused(site, *TWO.changes)
    with pytest.raises(Refused):
        read_state(str(site))


def test_another_program_that_writes_at_the_same_time(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(site)
    save = journal.save

    def edit_and_save(held: OpenFolders, work: str, one: Journal) -> None:
        save(held, work, one)
        (site / "vllm/sub/c.py").write_bytes(b"edited")

    monkeypatch.setattr(journal, "save", edit_and_save)
    with pytest.raises(Refused, match="another program"):
        commit(str(site), ONE)
    assert (site / "vllm/sub/c.py").read_bytes() == b"edited"
    changed = {path for path, one in snapshot(site).items() if before.get(path) != one}
    assert changed == {f"{site}/vllm/sub/c.py"}


# --- taking mods out --------------------------------------------------------------


def test_a_failure_that_cannot_be_undone_says_so_and_the_next_command_undoes_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(site)
    real = os.replace

    def replace(source: str, target: str) -> None:
        # nothing of the package can be renamed from its second file on
        if not target.endswith("journal.json") and list(site.glob("vllm/new/deep/d.py")):
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(NotRestored) as caught:
            commit(str(site), ONE)
    said = str(caught.value)
    assert said.startswith(
        f"{site}: the transaction failed ([Errno 5] Input/output error: '{site}/"
    )
    assert f") and could not be undone in full\n  {site}/vllm/" in said
    assert caught.value.hint == "the disk fails: dmesg | tail  # then run the command again"
    assert snapshot(site) != before
    assert recover(str(site))
    assert snapshot(site) == before


def test_what_cannot_be_undone_for_the_journal_alone_says_what_to_do(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(site)

    def fails(*_arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"{site}/journal")

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "_swap", fails)
        patched.setattr(journal, "finish", fails)
        with pytest.raises(NotRestored, match="the originals are still in the tree") as caught:
            commit(str(site), ONE)
    assert caught.value.hint == "the disk fails: dmesg | tail  # then run the command again"
    assert recover(str(site))
    assert snapshot(site) == before


@pytest.mark.parametrize("moment", ["_stage", "bytecode.forget"])
def test_ctrl_c_is_heeded_before_the_next_file_is_staged_and_before_it_is_too_late(
    site: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before, calls = snapshot(site), list[str]()

    def interrupted(*_arguments: object) -> tuple[str, ...]:
        calls.append(moment)
        os.kill(os.getpid(), signal.SIGINT)
        return ()

    monkeypatch.setattr(f"vllm_mods.site.transaction.{moment}", interrupted)
    was = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            commit(str(site), ONE)
    finally:
        signal.signal(signal.SIGINT, was)
    assert (calls, snapshot(site)) == ([moment], before)


def test_what_another_program_wrote_before_its_turn_came_is_left_alone(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, swapped = transaction._swap, list[str]()
    paths = [one.path for one in ONE.changes]
    theirs = next(path for path in paths[1:] if (site / path).exists())

    def and_then_somebody_writes(held: OpenFolders, op: Op) -> None:
        swap(held, op)
        swapped.append(op.step.path)
        if len(swapped) == 1:
            (site / "theirs").write_bytes(b"theirs\n")
            (site / "theirs").replace(site / theirs)

    monkeypatch.setattr(transaction, "_swap", and_then_somebody_writes)
    before = {path: snapshot(site).get(f"{site}/{path}") for path in paths if path != theirs}
    with pytest.raises(
        Refused, match=f"{theirs} was changed by another program just now"
    ) as caught:
        commit(str(site), ONE)
    assert caught.value.hint == "wait for that program, then run the command again"
    assert swapped
    assert (site / theirs).read_bytes() == b"theirs\n"
    assert {path: snapshot(site).get(f"{site}/{path}") for path in before} == before


def test_revert_brings_back_everything_and_leaves_nothing(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), ONE)
    commit(str(site), TWO, source_date_epoch=1)
    outcome = revert(site)
    assert outcome.notes == ()
    assert snapshot(site) == before


def test_originals_that_nothing_needs_any_more_go_on_revert(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), ONE)
    for path in (".vllm-mods/originals/vllm/old/x.py", ".vllm-mods/mods/deep/er/old.json"):
        (site / path).parent.mkdir(parents=True)
        (site / path).touch()
    assert revert(site).notes == ()
    assert snapshot(site) == before


def test_a_transition_that_leaves_files_changed_without_a_mod_is_a_bug(site: Path) -> None:
    before = snapshot(site)
    with pytest.raises(ValueError, match=r"no mod would be applied.*\['vllm/b\.py'"):
        commit(str(site), Transition((write("vllm/b.py", B, b"B = 2\n"),), (), (), None))
    assert snapshot(site) == before


def test_bytecode_that_python_made_of_patched_files_goes_on_revert(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), ONE)
    (site / PYC).write_bytes(b"of the patched source")
    (site / "vllm/__pycache__/a.cpython-399.pyc").write_bytes(b"of the patched source")
    (site / "vllm/new/deep/__pycache__").mkdir()
    (site / "vllm/new/deep/__pycache__/d.cpython-311.pyc").write_bytes(b"of a new file")
    os.utime(site / "vllm/__pycache__", ns=(0, before[f"{site}/vllm/__pycache__"][2]))  # type: ignore[arg-type]
    revert(site)
    assert snapshot(site) == before


def test_a_second_change_keeps_the_first_original(site: Path) -> None:
    commit(str(site), ONE)
    (site / PYC).write_bytes(b"of the patched source")
    commit(str(site), TWO)
    assert (site / receipt.original("vllm/a.py")).read_bytes() == A
    assert not (site / PYC).exists()
    entry = receipt_of(site).file("vllm/a.py")
    assert entry is not None
    assert (entry.before, entry.after) == (sha(A), sha(b"A = 3\n"))


def test_one_mod_goes_and_the_other_stays_as_if_alone(tmp_path: Path) -> None:
    change = FileChange(path="vllm/b.py", before=B, after=b"B = 2\n")
    site, alone = build(tmp_path / "site"), build(tmp_path / "alone")
    commit(str(site), ONE, source_date_epoch=5)
    commit(str(site), TWO, source_date_epoch=5)
    stays = entry("two", write("vllm/b.py", B, b"B = 2\n"))
    sources = TWO.sources
    wanted = revert_transition(
        str(site), receipt_of(site), Transition((change,), (), (stays,), None, sources=sources)
    )
    commit(str(site), wanted, source_date_epoch=5)
    commit(
        str(alone),
        Transition(
            changes=(write("vllm/b.py", B, b"B = 2\n"),),
            before=(),
            mods=(stays,),
            vllm="0.19.1",
            sources=sources,
        ),
        source_date_epoch=5,
    )
    found, expected = (
        {path.removeprefix(str(one)): entry for path, entry in snapshot(one).items()}
        for one in (site, alone)
    )
    assert found == expected


def test_a_folder_that_another_mod_needs_stays(site: Path) -> None:
    commit(str(site), ONE)
    change = FileChange(path="vllm/new/deep/e.py", before=None, after=b"E")
    stays = entry("two", write("vllm/new/deep/e.py", None, b"E"))
    there = receipt_of(site)
    wanted = Transition((change,), (), (stays,), None)
    commit(str(site), revert_transition(str(site), there, wanted))
    assert [one.name for one in (site / "vllm/new/deep").iterdir()] == ["e.py"]
    revert(site)
    assert not (site / "vllm/new").exists()


def test_edits_are_not_thrown_away_unasked(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), ONE)
    (site / "vllm/a.py").write_bytes(b"edited\n")
    (site / RECORD).write_bytes(b"edited\n")
    found = snapshot(site)
    with pytest.raises(Refused, match=r"vllm/a\.py") as caught:
        revert(site)
    assert "--discard-edits" in (caught.value.hint or "")
    assert snapshot(site) == found
    revert(site, discard_edits=True)
    assert snapshot(site) == before


def test_an_edited_record_alone_stops_a_revert_too(site: Path) -> None:
    commit(str(site), ONE)
    (site / RECORD).write_bytes(b"edited\n")
    with pytest.raises(Refused, match="RECORD was changed"):
        revert(site)


def test_files_that_a_reinstall_put_back_are_no_edits(site: Path) -> None:
    before = snapshot(site)
    commit(str(site), ONE)
    for path in (*FILES, RECORD):
        (site / path).write_bytes(before[f"{site}/{path}"][4])  # type: ignore[arg-type]
    revert(site)
    now = snapshot(site)
    assert now.keys() == before.keys()
    assert [one[4] for one in now.values()] == [before[path][4] for path in now]


def test_originals_do_not_go_into_another_release(site: Path) -> None:
    commit(str(site), ONE)
    shutil.rmtree((site / RECORD).parent)
    with pytest.raises(Refused, match="upgraded or removed") as caught:
        revert(site)
    assert "rm -r" in (caught.value.hint or "")


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_original_is_named_before_anything_is_changed(site: Path, damage: str) -> None:
    commit(str(site), ONE)
    original = site / receipt.original("vllm/a.py")
    original.unlink()
    if damage == "damaged":
        original.write_bytes(b"x")
    before = snapshot(site)
    with pytest.raises(Refused) as caught:
        revert(site)
    said = "vllm/a.py: its original is missing or damaged; nothing was changed"
    assert (caught.value.message, caught.value.hint) == (said, f"vllm-mods verify --target {site}")
    assert snapshot(site) == before


def test_files_of_others_in_folders_of_ours_stay_and_are_named(site: Path) -> None:
    commit(str(site), ONE)
    (site / "vllm/new/mine.txt").write_bytes(b"mine")
    (site / ".vllm-mods/notes").write_bytes(b"mine")
    notes = revert(site).notes
    assert len(notes) == 2
    assert any(note.startswith("vllm/new ") for note in notes)
    assert (site / "vllm/new/mine.txt").read_bytes() == b"mine"
    assert (site / ".vllm-mods/notes").read_bytes() == b"mine"
    assert sorted(one.name for one in (site / ".vllm-mods").iterdir()) == ["notes"]
    assert read_state(str(site)) == State(root=str(site), receipt=None)


# --- in a tree that was installed anew ----------------------------------------------


@pytest.mark.parametrize("anew", [True, False], ids=["another release", "a file put back"])
def test_what_was_in_is_set_aside_as_it_was_and_only_what_is_needed_is_kept(
    tmp_path: Path, *, anew: bool
) -> None:
    site = tmp_path / "new"
    installing.install(site, FILES)
    commit(str(site), ONE)
    if anew:
        installing.install(site, {**FILES, "vllm/a.py": b"A = 9\n"}, "0.20.0")
    else:
        (site / "vllm/a.py").write_bytes(A)
    old = {one: one.read_bytes() for one in (site / ".vllm-mods").rglob("*") if one.is_file()}
    state = read_state(str(site))
    two = transition(write("vllm/b.py", B, b"B = 2\n"), name="two")._replace(before=ONE.mods)
    gone = undone_in(state).paths
    commit(str(site), two._replace(undone=gone, aside=".vllm-mods.old-1"))
    aside = site / ".vllm-mods.old-1"
    for one, data in old.items():
        copy = aside / one.relative_to(site / ".vllm-mods")
        assert (copy.read_bytes(), copy.stat().st_nlink) == (data, 1)
    assert len([one for one in aside.rglob("*") if one.is_file()]) == len(old)
    originals = site / ".vllm-mods/originals"
    kept = {str(one.relative_to(originals)) for one in originals.rglob("*") if one.is_file()}
    stays = set() if anew else {"vllm/sub/c.py", cache_from_source("vllm/sub/c.py")}
    record = "vllm-0.20.0.dist-info/RECORD" if anew else RECORD
    assert kept == {"vllm/b.py", cache_from_source("vllm/b.py"), record, *stays}
    assert receipt_of(site).mods == two.mods


@pytest.mark.slow
@pytest.mark.parametrize("names", [("replace",), ("rmdir", "utime")])
def test_what_was_set_aside_half_is_gone_after_a_kill(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    site = build(tmp_path / "site")
    commit(str(site), ONE)
    (site / "vllm/a.py").write_bytes(A)
    before = snapshot(site)
    gone = undone_in(read_state(str(site))).paths
    two = transition(write("vllm/b.py", B, b"B = 2\n"), name="two", before=ONE.mods)

    def work() -> None:
        faults.at(1 if "utime" in names else 8, faults.kill, names)
        commit(str(site), two._replace(undone=gone, aside=".vllm-mods.old-1"))

    assert faults.in_child(work) < 0
    assert snapshot(site) != before
    assert recover(str(site))
    assert snapshot(site) == before


# --- the tree as it was -------------------------------------------------------------


def test_pristine_is_the_tree_before_any_mod(site: Path) -> None:
    commit(str(site), ONE)
    commit(str(site), TWO)
    tree = pristine(FolderTree(str(site)), receipt_of(site))
    assert {path: tree.read(path) for path in FILES} == FILES
    assert tree.read("vllm/new/deep/d.py") is None
    assert {path for path in tree.paths() if path.endswith(".py")} == set(FILES)
    assert tree.is_released("vllm/a.py", A) is True
    assert tree.is_released("vllm/a.py", b"A = 3\n") is False
    assert tree.version == "0.19.1"


def test_pristine_names_a_damaged_original(site: Path) -> None:
    commit(str(site), ONE)
    (site / receipt.original("vllm/a.py")).write_bytes(b"x")
    with pytest.raises(TreeError, match=r"the original of vllm/a\.py, is damaged"):
        pristine(FolderTree(str(site)), receipt_of(site)).read("vllm/a.py")


def test_a_tree_without_mods_is_its_own_pristine_form(site: Path) -> None:
    tree = FolderTree(str(site))
    assert read_state(str(site)) == State(root=str(site), receipt=None)
    assert pristine(tree, None) is tree


def test_age_makes_every_mtime_different(site: Path) -> None:
    """The comparisons above are worth something only if no two folders share an mtime."""
    age(site)
    times = [one[2] for one in snapshot(site).values()]
    assert len(set(times)) == len(times)
