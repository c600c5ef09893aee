"""The type checker, ``ty``: one pinned version, run in a process of its own, without a package of this environment."""

import contextlib
import os
import re
import signal
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from vllm_mods.base import own_process
from vllm_mods.base.errors import TreeError, UsageError

VERSION = "0.0.105"
"""What ``pyproject.toml`` pins: another version has other rules and other texts."""

# Time and memory of one run, and the length of its answer, many times what vLLM as a whole takes. It is the processor's
# time that counts: a machine with other work is slow, and nothing hangs there.
_PROCESSOR_SECONDS = 120
_SECONDS = 1200
_MEMORY = 8 << 30
_ANSWER = 64 << 20
_STUBS = Path(__file__).parent / "stubs"
_PYTHON = 12  # where the tree states none

_LINE = re.compile(
    r"::\w+ title=ty \((?P<rule>[\w-]+)\),file=.*?::(?P<path>.*?):(?P<line>\d+):(?P<column>\d+): (?P=rule): (?P<text>.*)"
)


class Diagnostic(NamedTuple):
    """What ty says of a place; ``more`` are its remarks, ``line`` and ``column`` are 1-based."""

    path: str
    line: int
    column: int
    rule: str
    text: str
    more: str = ""


def check(
    folder: str, paths: Iterable[str], rules: Iterable[str], python: tuple[int, int] | None
) -> tuple[Diagnostic, ...]:
    """Return what ty says of some files of a folder by some rules, sorted by place; ``python`` is the version to judge by.

    Raises ``UsageError`` if there is no ty of the pinned version, ``TreeError`` if it gives no answer.
    """
    asked = [path for path in sorted(paths) if os.path.isfile(os.path.join(folder, path))]
    if not asked:
        return ()
    version = f"3.{python[1] if python else _PYTHON}"
    listed = "\n".join(f'{rule} = "error"' for rule in sorted(rules))
    Path(folder, "ty.toml").write_text(
        f'[environment]\npython-version = "{version}"\npython = "{_environment(version)}"\nroot = ["."]\n'
        f'extra-paths = ["{_STUBS}/outside"]\n'
        "[analysis]\nrespect-type-ignore-comments = false\n"
        f'[rules]\nall = "ignore"\n{listed}\n',
        encoding="utf-8",
    )
    lines = [line for line in _run(folder, asked).splitlines() if line.startswith("::")]
    return tuple(sorted(map(_diagnostic, lines)))


def replaced() -> dict[str, bytes | None]:
    """Return the files of vLLM that another text is checked in place of."""
    return {"vllm/triton_utils/__init__.py": stub("inside/vllm/triton_utils/__init__.pyi")}


@cache
def stub(path: str) -> bytes:
    """Return what is told of a module outside, or in place of one of vLLM: enough for a class below one of its classes to be known."""
    return Path(_STUBS, path).read_bytes()


@cache
def _environment(version: str) -> str:
    """Return a folder that is an environment without a package, which lasts as long as the process."""
    import atexit  # noqa: PLC0415  (where it is asked only)
    import shutil  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    folder = tempfile.mkdtemp(prefix="vllm-mods-ty-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environment = os.path.join(folder, "none")
    os.makedirs(os.path.join(environment, "lib", f"python{version}", "site-packages"))
    return environment


def _diagnostic(line: str) -> Diagnostic:
    match = _LINE.fullmatch(line)
    if match is None:
        raise _failed(f"it printed {line[:80]!r}")
    text, _, more = unquote(match["text"]).partition("\n")
    place = int(match["line"]), int(match["column"])
    return Diagnostic(unquote(match["path"]), *place, match["rule"], text, more)


def _run(folder: str, paths: list[str]) -> str:
    import resource  # noqa: PLC0415  (where it is asked only)
    import subprocess  # noqa: PLC0415

    options = ["--exit-zero", "--no-progress", "--output-format", "github", "--color", "never"]
    # Nothing of this environment, which ty takes otherwise: it is not what vLLM runs beside.
    environ = {"HOME": folder, "XDG_CONFIG_HOME": folder, "TY_MAX_PARALLELISM": "2"}
    answer, complaint = (os.path.join(folder, name) for name in (".answer", ".complaint"))
    with open(answer, "wb") as out, open(complaint, "wb") as err:
        process = subprocess.Popen(
            [program(), "check", *options, "--", *paths],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            with contextlib.suppress(ProcessLookupError):  # it may have ended
                own_process.limit(resource.RLIMIT_CPU, _PROCESSOR_SECONDS, process.pid)
                own_process.limit(resource.RLIMIT_AS, _MEMORY, process.pid)
                own_process.limit(resource.RLIMIT_FSIZE, _ANSWER, process.pid)
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise _failed(f"it took more than {_SECONDS} seconds") from error
        finally:
            process.kill()
            process.wait()
    if code != 0:
        why = Path(complaint).read_text("utf-8", "replace").strip()[:200] or (
            signal.strsignal(-code) if code < 0 else f"exit code {code}"
        )
        raise _failed(str(why))
    return Path(answer).read_text("utf-8", "replace")


def _failed(why: str) -> TreeError:
    return TreeError(f"the type checker gave no answer: {why}", hint="is this a tree of vLLM?")


@cache
def program() -> str:
    """Return the path of ty, of this environment or the one that ``PATH`` has. Raises ``UsageError``."""
    import shutil  # noqa: PLC0415  (where it is asked only)
    import subprocess  # noqa: PLC0415

    for place in (_installed(), shutil.which("ty")):
        if place is None:
            continue
        done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.split()[1:2] == [VERSION]:
            return place
    why = f"the type checker ty {VERSION} is not installed; it checks patches on trees that mod.lock does not list"
    raise UsageError(why, hint=f"pip install ty=={VERSION}")


def _installed() -> str | None:
    with contextlib.suppress(ImportError, FileNotFoundError):
        from ty import find_ty_bin  # noqa: PLC0415  (where it is asked only)

        return str(find_ty_bin())
    return None
