"""Notes what each entry of a registry changes, and how it fails: a Python function is wrapped, a program is started from here."""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import functools
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_GOES_ON = ("__next__", "__anext__", "__await__", "add_done_callback")  # of what ends later


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that puts in an entry: what it changes is noted, and undone where it fails."""
    home, site = Path(os.environ["VLLM_MODS_HOME"]), Path(os.environ["PYTHON_ROOT"])
    asked, lock = home / "asked", threading.RLock()
    sends = runpy.run_path(str(home / "supervise.py"))["sends_without_route"]

    @functools.wraps(function)
    def wrapped(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        if threading.current_thread().name == f"{__file__}_0":  # a part of the coroutine
            return function(*given, **named)
        with lock:  # those of several threads come one after the other
            if "VLLM_MODS_ENTRY" in os.environ:  # of the entry around it
                return function(*given, **named)
            with (home / "turn").open("ab") as turn:  # and those of several processes
                fcntl.lockf(turn, fcntl.LOCK_EX)
                return put_in(given, named)

    def put_in(given: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
        is_method = function.__code__.co_varnames[:1] in (("self",), ("cls",))
        name = name_of((*given[is_method:], *named.values())) or function.__module__
        os.environ["VLLM_MODS_ENTRY"] = "1"
        asked_before, before = asked.read_bytes() if asked.exists() else b"", state(site)
        begun = asked_before + f"1\0\0patch\0{name} did not end\0\n".encode("utf-8", "replace")
        asked.write_bytes(begun)  # a step that failed, until the entry is in or undone
        error, result, later, sent = None, None, False, sends()
        try:
            result = function(*given, **named)
            if later := hasattr(result, "cr_await"):  # a coroutine
                result = to_its_end(result)
            failed = result is False or any(hasattr(result, one) for one in _GOES_ON)
            reason = "" if result is None else f"it returned {result!r}"
        except (Exception, SystemExit) as raised:  # noqa: BLE001  (it is raised again)
            failed = not isinstance(raised, SystemExit) or raised.code not in (None, 0)
            error, reason = raised, why(raised)
        del os.environ["VLLM_MODS_ENTRY"]
        if (sent := sends() - sent) and not failed:
            failed, reason = True, "it went on without the network: Network is unreachable"
        after, kept = state(site), home / str(time.time_ns())
        changed = sorted({path for path, _ in before.items() ^ after.items()})
        lay_out(changed, *((site, before) if failed else (kept, after)))
        own = asked.read_bytes()[len(begun) :]
        asked.write_bytes(asked_before + (b"" if failed else own))
        with (home / "dropped").open("ab") as log:
            log.write(own if failed else b"")
        head = (str(int(failed)), os.environ.get("VLLM_MODS_LINE", ""), name, reason[:1000])
        told = (*head, str(sent), str(kept), *changed * (not failed))
        parts = "".join(part.replace("\0", " ").strip() + "\0" for part in told)
        with (home / "entries").open("ab") as log:
            log.write(parts.encode("utf-8", "replace") + b"\n")
        goes_on = failed and bool(os.environ["VLLM_MODS_GOES_ON"])
        if error is not None and not goes_on:
            raise error
        return asyncio.sleep(0, goes_on or result) if later else goes_on or result

    return wrapped


def to_its_end(coroutine: Any) -> Any:  # noqa: ANN401
    """Run a coroutine now, whatever loop runs it: no other entry comes between."""

    async def whole() -> Any:  # noqa: ANN401
        result = await coroutine
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            raise RuntimeError(f"it left tasks that go on: {left}")
        return result

    with ThreadPoolExecutor(1, __file__) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, whole()).result()


def why(raised: BaseException) -> str:
    """Return what was raised, and below it the last lines that a program printed."""
    printed = [f"{type(raised).__name__}: {raised}"]
    for text in (getattr(raised, "stdout", None), getattr(raised, "stderr", None)):
        said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text or ""
        printed += list(filter(str.strip, said.splitlines()))[-5:]
    return "\n".join(printed)


def name_of(values: Iterable[Any]) -> str:
    """Return what an entry is called: the first of its arguments that is a name or has one."""
    for value in values:
        one = value[0] if isinstance(value, (tuple, list)) and value else value
        get = one.get if isinstance(one, dict) else functools.partial(getattr, one)
        for name in (one, *(get(key, "") for key in ("name", "id", "title", "__name__"))):
            if isinstance(name, (str, os.PathLike)) and os.path.basename(name):
                return str(os.path.basename(name))
    return ""


def state(site: Path) -> dict[str, bytes]:
    """Return the files of the packages that a recording has, by path, compiled code left out."""
    found = {}
    for root in os.environ["VLLM_MODS_ROOTS"].split(":"):
        for place in (site / root).rglob("*"):
            if place.is_file() and ".so" not in place.suffixes and place.suffix != ".pyc":
                found[str(place.relative_to(site))] = place.read_bytes()
    return found


def lay_out(paths: Iterable[str], root: Path, files: dict[str, bytes]) -> None:
    """Make the files at these paths what they are among ``files``: one that is not there is removed."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path in files:
            (root / path).write_bytes(files[path])
        else:
            (root / path).unlink(missing_ok=True)


def start(_name: str) -> None:
    """Start the program of an entry."""
    done = subprocess.run(sys.argv[1:], capture_output=True, check=False)
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    done.check_returncode()


if __name__ == "__main__":
    last, stdin = sys.argv[-1], os.readlink("/proc/self/fd/0")
    is_read = (last.startswith("-") or os.path.isdir(last)) and os.path.isfile(stdin)
    try:
        each(start)(stdin if is_read else last)
    except subprocess.CalledProcessError as failure:
        sys.exit(failure.returncode)
