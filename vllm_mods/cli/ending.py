"""How a run ends that has no answer: what is said of it, where, and with which exit code."""

import contextlib
import errno
import functools
import json
import os
import sys
import traceback
from collections.abc import Sequence

import click

from vllm_mods import __version__
from vllm_mods.base import secrets
from vllm_mods.base.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_OK,
    EXIT_USAGE,
    Refused,
    VllmModsError,
)
from vllm_mods.cli import COMMANDS, answers, kept_options, terminal
from vllm_mods.formats.schema import encode
from vllm_mods.report import data, text

Failure = tuple[str, str, str | None, int]
"""What ends a command that has no answer: the name of the kind of error, a message, a hint, the exit code."""


def end(error: BaseException, arguments: Sequence[str] = (), *, as_json: bool) -> int:
    """Say what is wrong, on stdout too if JSON was asked for and not given, and return the exit code."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        complain("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError | SystemExit):
        # The reader of a pipe has gone (click makes a SystemExit of it), so the answer was not
        # given; Python must not find out again at exit. Or a shell has got what it completes with.
        drop_output()
        return EXIT_OK if isinstance(error, SystemExit) and not error.code else EXIT_NO
    code, message, hint, exit_code = _failure(error, arguments)
    if hint:
        hint = kept_options.keep(hint, arguments)
    if exit_code == EXIT_BUG:
        trace = "".join(traceback.format_exception(error)).rstrip()
        click.echo(secrets.clean(trace, os.environ), err=True)
    answer = data.error(code, message, hint, exit_code)
    if isinstance(error, Refused) and error.plan is not None:
        answer = {**data.plan(error.plan), "changed": [], **answer}
        message = text.refusal(error.plan, message, functools.partial(answers.paint, err=True))
    complain(message, hint)
    if as_json:
        try:
            click.echo(json.dumps(encode(answer), indent=2))
            sys.stdout.flush()
        except OSError:  # nobody reads it
            drop_output()
    return exit_code


def _failure(error: BaseException, arguments: Sequence[str]) -> Failure:
    """Return what is to be said: of a user's mistake, of the machine, else of a bug."""
    if isinstance(error, VllmModsError):
        return error.code, error.message, error.hint, error.exit_code
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        words = ("vllm-mods", *(word for word in arguments[:1] if word in COMMANDS))
        hint = f"{context.command_path if context else ' '.join(words)} --help"
        return "usage", error.format_message(), hint, EXIT_USAGE
    why = f"this is a bug in vllm-mods {__version__}: {type(error).__name__}"
    ask = "report this bug with the output above and the output of `vllm-mods doctor` for the same target"
    return _of_machine(error) or ("bug", why, ask, EXIT_BUG)


def _of_machine(error: BaseException) -> Failure | None:
    """Return what is to be said of what the machine cannot do; None for an error of another kind."""
    if isinstance(error, MemoryError):
        return "memory", "there is not enough memory", "free -m; ulimit -v", EXIT_NO
    if isinstance(error, OSError) and _output_is_broken(error):
        drop_output()
        return "output", f"the answer could not be written: {error.strerror}", "df -h", EXIT_NO
    # of fork(2), or in the words of ``threading``
    again = errno.EAGAIN, None
    is_fork = isinstance(error, BlockingIOError) and (error.errno, error.filename) == again
    if is_fork or "can't start new thread" in str(error):
        return (
            "processes",
            f"no more processes or threads can be started: {error}",
            "ulimit -u; cat /sys/fs/cgroup/pids.max  # raise the limit; in a container, with --pids-limit",
            EXIT_NO,
        )
    if isinstance(error, ImportError | OSError) and (package := _broken_package(error)):
        words = str(error).strip() or type(error).__name__
        return (
            "broken-package",
            f"{package}, which vllm-mods needs, cannot be loaded: {words.splitlines()[0]}",
            f"{sys.executable} -m pip install --force-reinstall {package}  # if a library (.so) is missing, install the system package that has it",
            EXIT_USAGE,
        )
    if isinstance(error, FileNotFoundError) and os.stat(".").st_nlink == 0:
        return "usage", "the current folder no longer exists", "cd /", EXIT_USAGE
    return None


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


def drop_output() -> None:
    """Let what was not written of the answer go, and whatever would still come."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, hint: str | None = None) -> None:
    """Say on stderr what is wrong, where and why, and what to do next.

    Where that cannot be written either, the exit code has to do.
    """
    error, next_ = "error:", "hint:"
    if terminal.colored(err=True):
        error = terminal.styled(error, fg="red", bold=True)
        next_ = terminal.styled(next_, fg="cyan")
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            terminal.steer("\r\033[K")  # what showed the progress ends here
        click.echo(f"{error} {message}", err=True)
        if hint:
            click.echo(f"\n{next_} {hint}", err=True)
