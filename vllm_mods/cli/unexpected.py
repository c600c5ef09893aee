"""What no command expected: what it was of the machine's doing, and what is a bug."""

from __future__ import annotations

import errno
import os
import sys
import traceback

import click

from vllm_mods import __version__
from vllm_mods.base.errors import EXIT_BUG, EXIT_NO, EXIT_USAGE
from vllm_mods.cli import manner
from vllm_mods.cli.ending import Failure, drop_output


def tell(error: Exception) -> Failure:
    """Return what is to be said; of a bug, show the traceback."""
    if isinstance(error, MemoryError):
        return Failure("memory", "there is not enough memory", "free -m; ulimit -v", EXIT_NO)
    if isinstance(error, OSError) and _output_is_broken(error):
        drop_output()
        return Failure(
            "output", f"the answer could not be written: {error.strerror}", "df -h", EXIT_NO
        )
    if isinstance(error, BlockingIOError | RuntimeError) and _no_process(error):
        return Failure(
            "processes",
            f"there are no more processes or threads to be had: {error}",
            "ulimit -u; cat /sys/fs/cgroup/pids.max  # allow more, of a container with --pids-limit",
            EXIT_NO,
        )
    if isinstance(error, ImportError | OSError) and (package := _broken_package(error)):
        words = str(error).strip() or type(error).__name__
        return Failure(
            "broken-package",
            f"{package}, which vllm-mods needs, does not load: {words.splitlines()[0]}",
            f"{sys.executable} -m pip install --force-reinstall {package}  # or, of a library (.so) "
            "that is missing, the system's package that has it; `vllm-mods doctor` tries them all",
            EXIT_USAGE,
        )
    if isinstance(error, FileNotFoundError) and _current_is_gone():
        return Failure("usage", "the current folder is not there any more", "cd /", EXIT_USAGE)
    return _bug(error)


def show_trace(error: Exception) -> None:
    """Say where an error comes from, and what caused it, without secrets and the values of variables."""
    from vllm_mods.diagnosis import secrets  # noqa: PLC0415  (rarely asked for)

    manner.speak()
    trace = "".join(traceback.format_exception(error)).rstrip()
    click.echo(secrets.clean(trace, os.environ), err=True)


def _bug(error: Exception) -> Failure:
    show_trace(error)
    return Failure(
        "bug",
        f"this is a bug in vllm-mods {__version__}: {type(error).__name__}",
        "report it with what stands above, and with what `vllm-mods doctor` says of the same target",
        EXIT_BUG,
    )


def _broken_package(error: Exception) -> str | None:
    """Name the package of somebody else whose module did not load; None for an error of another kind.

    A shared library that is missing is an ``ImportError`` of the module that wants it, an ``OSError`` of ctypes.
    """
    if isinstance(error, OSError) and "cannot open shared object file" not in str(error):
        return None
    for frame, _line in traceback.walk_tb(error.__traceback__):
        # Where we left our own code: nothing of ours is amiss from there on.
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top not in {"vllm_mods", "importlib", "click", "__main__"}:
            return top
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    return missing if missing and missing != "vllm_mods" else None


def _output_is_broken(error: OSError) -> bool:
    """Tell whether what failed was printing: in ``click.echo``, or what is left fails again."""
    frames = traceback.walk_tb(error.__traceback__)
    if any(frame.f_code is click.echo.__code__ for frame, _line in frames):
        return True
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _no_process(error: BlockingIOError | RuntimeError) -> bool:
    """Tell whether a limit on processes was met: of fork(2), or in the words of ``threading``."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    return error.errno == errno.EAGAIN and error.filename is None


def _current_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False
