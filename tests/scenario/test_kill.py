"""Whatever happens to a transaction, and whenever: the tree is as it was, or as it was to be."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import faults
import pytest
from sampling import few
from small_site import FILES, ONE, TWO, build, snapshot, transition, write

from vllm_mods.base.errors import NotRestored, Refused
from vllm_mods.base.model import FileChange
from vllm_mods.site.journal import PREFIX
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover
from vllm_mods.site.transitions import Transition, revert_transition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from small_site import Snapshot


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing is for power cuts, which no test here makes, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


SOME = pytest.mark.sampled(3)  # of the five cases


@dataclass(frozen=True, kw_only=True)
class Case:
    """One transition of one tree, and what everything looks like before and after it."""

    name: str
    root: Path
    workspace: Path
    transition: Transition
    before: Snapshot
    after: Snapshot
    copy: Path

    def commit(self) -> None:
        commit(
            str(self.root),
            self.transition,
            workspace=str(self.workspace),
            source_date_epoch=1_700_000_000,
        )

    def now(self) -> Snapshot:
        return snapshot(self.root, self.workspace)

    def reset(self) -> None:
        """Put everything back by other means than those under test."""
        for name, place in (("root", self.root), ("workspace", self.workspace)):
            shutil.rmtree(place)
            shutil.copytree(self.copy / name, place)
        assert self.now() == self.before


@pytest.fixture
def memory() -> Iterator[Path]:
    """Make a folder in memory, where there is one: thousands of files come and go here."""
    shared = Path("/dev/shm")  # noqa: S108  (tempfile makes the folder in it)
    base = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        yield Path(folder)


@pytest.fixture
def disk() -> Iterator[Path]:
    """Make a folder that is not in memory, where ``tmp_path`` may be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(params=["apply", "apply-across", "apply-more", "revert-one", "revert-all"])
def case(request: pytest.FixtureRequest, memory: Path, disk: Path) -> Case:
    """Make a tree and a transition of it; ``across`` has the workspace on another file system."""
    root = build(memory / "site")
    workspace = (disk if request.param == "apply-across" else memory) / "workspace"
    workspace.mkdir()
    copy = memory / "copy"
    template = write(f"{workspace}/t.jinja", b"old", b"new")
    (workspace / "t.jinja").write_bytes(b"old")
    one = transition(
        *ONE.changes,
        template,
        write(f"{workspace}/made.jinja", None, b"T"),
        write(".vllm-mods/templates/u.jinja", None, b"U"),
    )
    two = Transition(
        changes=TWO.changes,
        before=one.mods,
        mods=(*one.mods, TWO.mods[1]),
        vllm="0.19.1",
        sources=TWO.sources,
    )
    steps = [one, two][: {"apply": 0, "apply-across": 0, "apply-more": 1}.get(request.param, 2)]
    for step in steps:
        commit(str(root), step, workspace=str(workspace))
    if request.param in {"apply", "apply-across"}:
        wanted = one
    elif request.param == "apply-more":
        wanted = two
    else:
        state = read_state(str(root))
        assert state.receipt is not None
        if request.param == "revert-all":
            wanted = revert_transition(str(root), state.receipt)
        else:
            stays = (
                FileChange(path="vllm/a.py", before=FILES["vllm/a.py"], after=b"A = 4\n"),
                FileChange(path="vllm/b.py", before=FILES["vllm/b.py"], after=b"B = 2\n"),
            )
            wanted = revert_transition(
                str(root), state.receipt, Transition(stays, (), two.mods[1:], None)
            )
    for name, place in (("root", root), ("workspace", workspace)):
        shutil.copytree(place, copy / name)
    before = snapshot(root, workspace)
    made = Case(
        name=request.param,
        root=root,
        workspace=workspace,
        transition=wanted,
        before=before,
        after={},
        copy=copy,
    )
    made.commit()
    after = made.now()
    assert after != before
    made.reset()
    return Case(
        name=request.param,
        root=root,
        workspace=workspace,
        transition=wanted,
        before=before,
        after=after,
        copy=copy,
    )


def points(case: Case, count: int, name: str) -> list[int]:
    """Return some of the calls of a commit, counted from 1, or all of them: see ``sampling``."""
    calls = faults.calls(case.commit)
    assert calls > 40
    assert case.now() == case.after
    case.reset()
    return few(range(1, calls + 1), count, f"{name} {case.name}")


@SOME
def test_a_kill_at_any_point_is_undone_by_the_next_command(case: Case) -> None:
    for number in points(case, 8, "kill"):

        def work(number: int = number) -> None:
            faults.at(number, faults.kill)
            case.commit()

        assert faults.in_child(work) == -signal.SIGKILL
        recover(str(case.root))
        assert not any(one.name.startswith(PREFIX) for one in case.root.iterdir())
        now = case.now()
        if now == case.after:
            case.reset()  # killed after the commit, while sweeping
        else:
            assert now == case.before, f"killed at call {number}"
    case.commit()
    assert case.now() == case.after


@pytest.mark.sampled(1)
def test_a_power_cut_at_any_point_is_undone_by_the_next_command(case: Case) -> None:
    """What the comment in ``transaction._steps`` reasons: no content counts that was not synced."""
    for number in points(case, 8, "power cut"):

        def work(number: int = number) -> None:
            faults.power_cut(number, [case.root, case.workspace])
            case.commit()

        assert faults.in_child(work) == -signal.SIGKILL
        recover(str(case.root))
        now = case.now()
        assert now in (case.before, case.after), f"cut at call {number}"
        if now == case.after:
            case.reset()


def test_another_file_system_is_synced_before_the_journal_goes(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing orders the renames on one file system and the end of the journal on the other."""
    device = case.workspace.stat().st_dev
    if case.root.stat().st_dev == device:
        pytest.skip("root and workspace lie on one file system, which keeps its own order")
    events: list[str] = []
    replace, unlink = os.replace, os.unlink

    def replaced(source: str, target: str) -> None:
        replace(source, target)
        events.append("journal" if target.endswith("journal.json") else "")
        if os.lstat(target).st_dev == device:
            events.append(f"rename in {os.path.realpath(os.path.dirname(target))}")

    def unlinked(path: str) -> None:
        if path.endswith("journal.json"):
            events.append("end")
        unlink(path)

    def synced(descriptor: int) -> None:
        events.append(f"sync {os.readlink(f'/proc/self/fd/{descriptor}')}")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replaced)
        patched.setattr(os, "unlink", unlinked)
        patched.setattr(os, "fsync", synced)
        case.commit()
    renames = [event for event in events if event.startswith("rename in ")]
    assert renames
    end = events.index("end")
    for event in renames:
        folder = event.removeprefix("rename in ")
        assert f"sync {folder}" in events[events.index(event) : end]
    content = next(event for event in events if event.endswith("/journal.json.new"))
    journalled = events.index("journal")
    assert events.index(content) < journalled
    name = events.index(os.path.dirname(content), journalled)
    assert name < min(events.index(event) for event in renames)


@pytest.mark.sampled(1)
def test_a_kill_during_the_recovery_is_undone_as_well(case: Case) -> None:
    for number in points(case, 1, "kill before a recovery"):

        def work(number: int = number) -> None:
            faults.at(number, faults.kill)
            case.commit()

        assert faults.in_child(work) == -signal.SIGKILL
        # each goes on with what the one before left
        for attempt in range(1, 500):

            def again(attempt: int = attempt) -> None:
                faults.at(attempt, faults.kill)
                recover(str(case.root))

            if faults.in_child(again) == faults.DONE:
                break
        assert case.now() in (case.before, case.after), f"killed at call {number}"
        case.reset()


@pytest.mark.sampled(1)
def test_a_kill_while_an_error_is_undone_is_undone_by_the_next_command(case: Case) -> None:
    # where no attribute can be set, a kill may cost the root's mtime (journal.py says so)
    names = tuple(name for name in faults.CHANGING if name != "setxattr")
    killed = 0
    for number in points(case, 4, "error before a kill")[1:]:
        for later in few(range(1, 41), 3, f"kill after error {number} {case.name}"):

            def fail(later: int = later) -> None:
                faults.at(later, faults.kill)
                raise OSError(errno.EIO, os.strerror(errno.EIO), "somewhere")

            def work(number: int = number, fail: Callable[[], None] = fail) -> None:
                faults.at(number, fail, names)
                case.commit()

            result = faults.in_child(work)
            assert result in {-signal.SIGKILL, faults.REFUSED, faults.DONE}
            killed += result == -signal.SIGKILL
            recover(str(case.root))
            now = case.now()
            assert now in (case.before, case.after), f"failed at {number}, killed {later} later"
            # only where the commit was past, or the error was none, does what was to be stay
            assert now == case.before or result != faults.REFUSED
            if now == case.after:
                case.reset()
    assert killed
    case.commit()
    assert case.now() == case.after


@pytest.mark.sampled(1)
def test_the_next_apply_recovers_by_itself_and_then_does_its_work(case: Case) -> None:
    for number in (1, 5, 15, 30, 45):

        def work(number: int = number) -> None:
            faults.at(number, faults.kill)
            case.commit()

        assert faults.in_child(work) == -signal.SIGKILL
        case.commit()
        assert case.now() == case.after
        case.reset()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("code", "count"), [(errno.ENOSPC, 7), (errno.EACCES, 5)])
def test_an_error_at_any_call_puts_everything_back(case: Case, code: int, count: int) -> None:
    refusals = 0
    tried = points(case, count, f"error {code}")
    reached = case.copy / "reached"
    for number in tried:
        reached.unlink(missing_ok=True)

        def fail() -> None:
            # noted by a call that is not counted
            os.close(os.open(os.devnull, os.O_RDONLY))
            reached.symlink_to("x")
            raise OSError(code, os.strerror(code), "somewhere")

        def work(number: int = number) -> None:
            faults.at(number, fail)
            case.commit()

        result = faults.in_child(work)
        assert reached.is_symlink()
        if result == faults.REFUSED:
            refusals += 1
            assert case.now() == case.before, f"failed at call {number}"
        else:
            # no hard link could be made, so it was copied; or the commit was past
            assert result == faults.DONE
            recover(str(case.root))
            assert case.now() == case.after, f"failed at call {number}"
            case.reset()
    assert refusals >= len(tried) // 4


@SOME
def test_writes_that_stop_short_are_continued(case: Case) -> None:
    def work() -> None:
        real = os.write
        os.write = lambda descriptor, data: real(descriptor, memoryview(data)[:100])
        case.commit()

    assert faults.in_child(work) == faults.DONE
    assert case.now() == case.after


def test_a_disk_that_stays_full_changes_nothing(case: Case) -> None:
    if case.root.stat().st_dev != case.workspace.stat().st_dev:
        pytest.skip("a template on another disk is put back by copying")
    calls = faults.calls(case.commit, faults.NEED_SPACE)
    case.reset()
    for number in few(range(1, calls + 1), 5, f"full {case.name}"):

        def work(number: int = number) -> None:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")
            faults.from_then_on(number, error)
            case.commit()

        if faults.in_child(work) == faults.REFUSED:
            assert case.now() == case.before, f"full at call {number}"
        else:
            # the commit was past
            assert case.now() == case.after, f"full at call {number}"
            case.reset()
    case.commit()
    assert case.now() == case.after


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_point_undoes_and_then_does_what_the_signal_does(
    case: Case, number: signal.Signals
) -> None:
    undone = 0
    tried = points(case, 4, f"signal {number}")
    for call in tried:

        def work(call: int = call) -> None:
            signal.signal(number, signal.SIG_DFL)
            faults.at(call, lambda: os.kill(os.getpid(), number))
            case.commit()

        assert faults.in_child(work) == -number
        now = case.now()
        undone += now == case.before
        if now != case.before:
            assert now == case.after, f"signal at call {call}"
            case.reset()
    assert undone >= len(tried) // 4


@SOME
def test_ctrl_c_is_passed_on_after_everything_was_put_back(case: Case) -> None:
    def work() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faults.at(30, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            case.commit()
        except KeyboardInterrupt:
            if case.now() == case.before:
                return
        raise AssertionError

    assert faults.in_child(work) == faults.DONE


@SOME
def test_a_signal_that_its_handler_survives_is_told_after_everything_was_put_back(
    case: Case,
) -> None:
    def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        faults.at(30, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Refused, match=f"^{case.root}: interrupted by a signal; everything was"):
            case.commit()
        assert case.now() == case.before

    assert faults.in_child(work) == faults.DONE


def test_a_file_edited_after_the_kill_is_named_and_not_lost(tmp_path: Path) -> None:
    root = build(tmp_path / "site")
    before = snapshot(root)

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(root), ONE)

    assert faults.in_child(work) == -signal.SIGKILL
    assert (root / "vllm/a.py").read_bytes() == b"A = 2\n"
    (root / "vllm/a.py").write_bytes(b"mine\n")

    hint = None
    for _ in range(2):
        with pytest.raises(NotRestored, match=r"vllm/a\.py was changed") as caught:
            recover(str(root))
        hint = caught.value.hint
        assert (root / "vllm/a.py").read_bytes() == b"mine\n"
        assert (root / "vllm/sub/c.py").read_bytes() == FILES["vllm/sub/c.py"]
        assert not (root / "vllm/new").exists()
    assert hint is not None
    command = hint.split("  #")[0].split()
    assert Path(command[2]).read_bytes() == FILES["vllm/a.py"]

    subprocess.run(command, check=True)
    assert recover(str(root))
    assert snapshot(root) == before


def test_a_journal_that_cannot_be_read_is_set_aside_with_the_originals(tmp_path: Path) -> None:
    root = build(tmp_path / "site")

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(root), ONE)

    faults.in_child(work)
    (folder,) = root.glob(f"{PREFIX}*")
    (folder / "journal.json").write_bytes(b"{")
    (note,) = commit(str(root), TWO).notes
    assert "its journal cannot be read" in note
    (aside,) = root.glob(".vllm-mods.aside-*")
    assert FILES["vllm/a.py"] in {file.read_bytes() for file in aside.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=200", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        root = build(disk / "site")
        before = snapshot(root)
        big = transition(
            write("vllm/a.py", FILES["vllm/a.py"], b"A = 2\n"),
            write("vllm/b.py", FILES["vllm/b.py"], b"#" * 300_000),
        )
        with pytest.raises(Refused, match="everything was put back") as caught:
            commit(str(root), big)
        assert "No space left" in caught.value.message
        assert snapshot(root) == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_at_once_never_mix(tmp_path: Path) -> None:
    root = build(tmp_path / "site")
    others = [
        transition(
            write("vllm/a.py", FILES["vllm/a.py"], b"A = %d\n" % n),
            write("vllm/b.py", FILES["vllm/b.py"], b"B = %d\n" % n),
            name=f"mod{n}",
        )
        for n in range(10, 16)
    ]
    children = []
    for one in others:
        child = os.fork()
        if child == 0:
            code = 9
            try:
                commit(str(root), one)
                code = 0
            except Refused:
                code = 3
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 3, 3, 3, 3, 3]
    winner = codes.index(0) + 10
    assert (root / "vllm/a.py").read_bytes() == b"A = %d\n" % winner
    assert (root / "vllm/b.py").read_bytes() == b"B = %d\n" % winner
    state = read_state(str(root))
    assert state.receipt is not None
    assert [mod.name for mod in state.receipt.mods] == [f"mod{winner}"]
