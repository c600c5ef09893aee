"""A recorded command does what it likes to its sandbox: the machine, its memory and its disk are not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from memory_tree import MemoryTree

from vllm_mods.base.errors import Refused
from vllm_mods.making import recording
from vllm_mods.making.compose import ModEffect
from vllm_mods.making.recording import Limits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("sandboxed")
TREE = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n"}, version="0.19.1")
CHANGE = 'echo "B = 1" >> $VLLM_PACKAGE_DIR/a.py\n'
SIZES = "RECORDED_BYTES", 8 << 20


def recorded(script: str, seconds: float = 30) -> ModEffect:
    return recording.record(["bash", "-c", script], "x", {}, TREE, Limits(seconds=seconds))


def printed(script: str) -> str:
    """Return what a command prints, out of the file of vLLM that it is led into."""
    done = recorded(f"{{ {script}\n}} > $VLLM_PACKAGE_DIR/printed 2>&1")
    return (changed(done)["vllm/printed"] or b"").decode()


def changed(done: ModEffect) -> dict[str, bytes | None]:
    return {change.path: change.after for change in done.changes}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity"]
)
def test_the_settings_of_the_kernel_are_read_only(path: str) -> None:
    lines = printed(f"[ -e {path} ] && echo x > {path} || echo refused")
    assert "refused" in lines
    mounts = printed("cat /proc/mounts").splitlines()
    rows = {row[1]: row[3].split(",") for row in map(str.split, mounts)}
    for place in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):
        assert not os.path.exists(place) or "ro" in rows[place]
    writable = {place for place, options in rows.items() if "rw" in options}
    inner = {place for place in writable if not place.startswith(("/dev/", "/proc"))}
    site = "/usr/local/lib/python3.12/dist-packages"
    assert inner == {site, "/workspace", "/root", "/tmp", "/launcher"}  # noqa: S108
    assert "/sys" not in rows


@pytest.mark.slow
def test_it_is_nobody_and_has_no_powers() -> None:
    lines = printed("cat /proc/self/status /proc/self/uid_map; echo $$")
    rows = dict(line.split(":\t", 1) for line in lines.splitlines() if ":\t" in line)
    assert set(rows["Uid"].split()) == {"65534"}
    assert set(rows["Gid"].split()) == {"65534"}
    assert rows["Groups"].split() in ([], ["65534"])
    assert {rows[name] for name in ("CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert rows["NoNewPrivs"] == "1"
    if os.getuid() == 0:  # another user for the kernel, too
        assert any(line.split() == ["0", "0", "4294967295"] for line in lines.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("mkfifo $VLLM_PACKAGE_DIR/a.fifo", "became a link or a special file,"),
        ("ln -sf /dev/zero $VLLM_PACKAGE_DIR/a.py", "became a link or a special file,"),
        ("rm -r $VLLM_PACKAGE_DIR; ln -s / $VLLM_PACKAGE_DIR", "became a link or a special file,"),
        ("truncate -s 100G $VLLM_PACKAGE_DIR/big", "exit code|wrote more than 8 MiB"),
        ("for i in 1 2 3; do truncate -s 7M /tmp/$i; done", "wrote more than 8 MiB"),
        ("for i in 1 2 3; do head -c 7M /dev/zero > /tmp/$i; done", "wrote more than 8 MiB"),
        ("dd if=/dev/zero of=/workspace/x bs=1M", "exit code|wrote more than 8 MiB"),
    ],
)
def test_what_it_leaves_is_read_back_within_bounds(
    script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, *SIZES)
    start = time.monotonic()
    with pytest.raises(Refused, match=says):
        recorded(CHANGE + script)
    assert time.monotonic() - start < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "script", "says"),
    [
        ("RECORDED_OUTPUT", 1 << 20, "cat /dev/zero", "printed more than 1 MiB"),
        ("RECORDED_OUTPUT", 1 << 20, "yes & sleep 9", "printed more than 1 MiB"),
        (
            *("RECORDED_MEMORY", 64 << 20),
            "python3 -c 'x = [bytes(1 << 20) for _ in range(999)]; print(len(x))'",
            "exit code 1|took more than 64 MiB",
        ),
        (
            *("RECORDED_MEMORY", 64 << 20),
            "for i in 1 2 3 4; do python3 -c 'import time; x = b\"x\" * (30 << 20); time.sleep(9)' & done; wait",
            "took more than 64 MiB",
        ),
        (
            "RECORDED_PROCESSES",
            50,
            # bash would wait for a process to end, and try again
            "python3 -c 'import os, time; [os.fork() or time.sleep(60) for _ in range(80)]'",
            "exit code|started more than 50",
        ),
        ("RECORDED_FILES", 100, "touch /tmp/{1..200}; sleep 20", "made more than 100 files"),
    ],
)
def test_memory_processes_output_and_files_are_bounded(
    name: str, value: int, script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, name, value)
    with pytest.raises(Refused, match=says):
        recorded(CHANGE + script)


@pytest.mark.slow
def test_time_is_bounded() -> None:
    start = time.monotonic()
    with pytest.raises(Refused, match="did not end within 1 s"):
        recorded("trap '' TERM INT HUP; while :; do sleep 9; done", seconds=1)
    assert time.monotonic() - start < 10


@pytest.mark.slow
def test_the_first_process_is_out_of_reach() -> None:
    script = (
        f"{CHANGE}kill -9 1; kill -STOP 1; ls /proc/1/fd || echo hidden; echo forged >> /proc/1/fd/1;"
        "cat /proc/1/environ || echo hidden; true"
    )
    done = recording.record(["sh", "-c", script], "x", {}, TREE, Limits(seconds=20))
    assert changed(done) == {"vllm/a.py": b"A = 1\nB = 1\n"}


@pytest.mark.slow
def test_what_it_locks_away_is_read_all_the_same() -> None:
    done = recorded(
        f"{CHANGE}mkdir -p $VLLM_PACKAGE_DIR/deep/er; echo x > $VLLM_PACKAGE_DIR/deep/er/x.py;"
        "chmod 000 $VLLM_PACKAGE_DIR/{a.py,deep/er/x.py,deep/er,deep}"
    )
    assert changed(done) == {"vllm/a.py": b"A = 1\nB = 1\n", "vllm/deep/er/x.py": b"x\n"}


@pytest.mark.slow
def test_names_of_any_kind_come_back() -> None:
    done = recorded(CHANGE + "printf x > /tmp/$'a\\nb'; printf x > /tmp/$'\\xff'")
    lost = ("/tmp/a\nb", "/tmp/\udcff")  # noqa: S108
    assert done.notes == tuple(
        f"the command wrote {path}, which a mod cannot contain" for path in lost
    )


@pytest.mark.slow
def test_a_folder_without_end_is_refused() -> None:
    script = "cd /tmp; n=$(printf 'x%.0s' {1..250}); for i in {1..40}; do mkdir $n; cd -P $n; done"
    with pytest.raises(Refused):
        recorded(f"{CHANGE}{script}; touch y")


@pytest.mark.slow
def test_nothing_outlives_a_killed_tool(tmp_path: Path) -> None:
    mark = f"mark{os.getpid()}"
    code = (
        "from memory_tree import MemoryTree\nfrom vllm_mods.making import recording\n"
        "tree = MemoryTree({'vllm/__init__.py': b''}, version='0.19.1')\n"
        f"argv = ['bash', '-c', 'setsid bash -c \"exec -a {mark} sleep 99\" & exec -a {mark} sleep 99']\n"
        "recording.record(argv, 'x', {}, tree, recording.Limits())\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    tool = subprocess.Popen([sys.executable, "-c", code], env=environ, cwd=tmp_path)

    def running() -> bool:
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        return any(line.startswith(mark) for line in shown.stdout.splitlines())

    end = time.monotonic() + 20
    while not running() and time.monotonic() < end:
        time.sleep(0.05)
    assert running()
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    while running() and time.monotonic() < end:
        time.sleep(0.05)
    assert not running()
    assert list(tmp_path.iterdir()) == []
