"""How a command ends that has no answer: in which words, for scripts too, and with which exit code."""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from vllm_mods import __version__
from vllm_mods.base.errors import Refused, Unreachable
from vllm_mods.cli import answers, ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AGAIN = f"{sys.executable} -m pip install --force-reinstall {{}}  # if a library (.so) is missing, install the system package that has it"
BUG = f"this is a bug in vllm-mods {__version__}: "
REPORT = (
    "report this bug with the output above and the output of `vllm-mods doctor` for the same target"
)
PROCESSES = "no more processes or threads can be started: "
ALLOW = (
    "ulimit -u; cat /sys/fs/cgroup/pids.max  # raise the limit; in a container, with --pids-limit"
)


def caught(call: Callable[[], object]) -> BaseException:
    """Return what a call raises, with the frames that it came through, those of this module aside."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_globals is globals():
            frame = frame.tb_next
        return error.with_traceback(frame or error.__traceback__)
    raise AssertionError


def raised(error: BaseException) -> None:
    raise error


def broken(folder: Path, text: str) -> None:
    """Import a package of somebody else that fails with a text."""
    (folder / "broken_one").mkdir(exist_ok=True)
    (folder / "broken_one/__init__.py").write_text(text)
    sys.path.insert(0, str(folder))
    sys.modules.pop("broken_one", None)
    importlib.invalidate_caches()
    try:
        importlib.import_module("broken_one")
    finally:
        sys.path.remove(str(folder))


@pytest.mark.parametrize(
    ("fail", "code", "message", "hint", "exit_code"),
    [
        (lambda _: raised(Refused("no", hint="do")), "refused", "no", "do", 3),
        (lambda _: raised(Unreachable("far", hint=None)), "unreachable", "far", None, 1),
        (
            lambda _: raised(MemoryError()),
            "memory",
            "there is not enough memory",
            "free -m; ulimit -v",
            1,
        ),
        (
            lambda _: raised(BlockingIOError(errno.EAGAIN, "again")),
            "processes",
            f"{PROCESSES}[Errno {errno.EAGAIN}] again",
            ALLOW,
            1,
        ),
        (
            lambda _: raised(RuntimeError("can't start new thread")),
            "processes",
            f"{PROCESSES}can't start new thread",
            ALLOW,
            1,
        ),
        (
            lambda folder: broken(folder, "raise ImportError('no\\nway')"),
            "broken-package",
            "broken_one, which vllm-mods needs, cannot be loaded: no",
            AGAIN.format("broken_one"),
            2,
        ),
        (
            lambda folder: broken(folder, "raise ImportError"),
            "broken-package",
            "broken_one, which vllm-mods needs, cannot be loaded: ImportError",
            AGAIN.format("broken_one"),
            2,
        ),
        (
            lambda _: importlib.import_module("none_of_them.at_all"),
            "broken-package",
            "none_of_them, which vllm-mods needs, cannot be loaded: No module named 'none_of_them'",
            AGAIN.format("none_of_them"),
            2,
        ),
        (lambda _: raised(RuntimeError("boom")), "bug", f"{BUG}RuntimeError", REPORT, 70),
        (
            lambda _: raised(BlockingIOError(errno.EAGAIN, "again", "file")),
            "bug",
            f"{BUG}BlockingIOError",
            REPORT,
            70,
        ),
        (
            lambda _: raised(BlockingIOError(errno.EPERM, "not so")),
            "bug",
            f"{BUG}BlockingIOError",
            REPORT,
            70,
        ),
        (
            lambda _: importlib.import_module("vllm_mods.none"),
            "bug",
            f"{BUG}ModuleNotFoundError",
            REPORT,
            70,
        ),
        (lambda _: os.stat("/none"), "bug", f"{BUG}FileNotFoundError", REPORT, 70),
    ],
)  # fmt: skip
def test_each_failure_has_its_words_and_its_exit_code(  # noqa: PLR0917
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fail: Callable[[Path], object],
    code: str,
    message: str,
    hint: str | None,
    exit_code: int,
) -> None:
    error = caught(lambda: fail(tmp_path))
    assert ending.end(error, as_json=True) == exit_code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "schema": 1,
        "error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code},
    }
    trace, _, words = printed.err.rpartition("error: " + message)
    assert words == (f"\n\nhint: {hint}\n" if hint else "\n")
    assert trace.startswith("Traceback (most recent call last):" if exit_code == 70 else "")
    assert bool(trace) is (exit_code == 70)
    assert ending.end(error, as_json=False) == exit_code
    assert capsys.readouterr().out == ""


def test_a_shared_library_that_is_missing_is_of_the_package_that_wants_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = caught(lambda: broken(tmp_path, "import ctypes\nctypes.CDLL('libnone_of_them.so')\n"))
    assert isinstance(error, OSError)
    assert ending.end(error, as_json=False) == 2
    expected = "error: broken_one, which vllm-mods needs, cannot be loaded: libnone_of_them.so: "
    assert capsys.readouterr().err.startswith(expected)
    other = caught(lambda: broken(tmp_path, "open('/none')\n"))
    assert ending.end(other, as_json=False) == 70


def test_the_current_folder_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert ending.end(caught(os.getcwd), as_json=False) == 2
    expected = "error: the current folder no longer exists\n\nhint: cd /\n"
    assert capsys.readouterr().err == expected


def test_an_interruption_is_told_in_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending.end(KeyboardInterrupt(), as_json=True) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "error: interrupted\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokenPipeError(), 1), (SystemExit(1), 1), (SystemExit(0), 0), (SystemExit(None), 0)],
)
def test_where_nobody_reads_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        file.write("half an answer")
        assert ending.end(error, as_json=True) == code
        file.write("the rest")
        file.flush()
    assert (tmp_path / "out").read_text() == ""


def test_an_answer_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        full.write("x")
        failed = caught(full.flush)
        assert ending.end(failed, as_json=True) == 1
        monkeypatch.undo()
    expected = "error: the answer could not be written: No space left on device\n\nhint: df -h\n"
    assert capsys.readouterr().err == expected


def test_what_fails_in_printing_is_the_answer_even_if_nothing_is_left_to_print(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, _text: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with (tmp_path / "out").open("w") as file, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", Full())
        failed = caught(lambda: answers.note("x"))
        patched.undo()
        patched.setattr(sys, "stdout", file)
        assert ending.end(failed, as_json=False) == 1
    assert capsys.readouterr().err.startswith("error: the answer could not be written: No space")
