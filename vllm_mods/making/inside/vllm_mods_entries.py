"""Notes what each entry of a registry changes, and how it fails: a Python function is wrapped, a program is started from here."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

_read: dict[str, tuple[tuple[int, ...], bytes]] = {}


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that puts in an entry."""

    @functools.wraps(function)
    def wrapped(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        def call() -> tuple[Any, bool, str]:
            result = function(*given, **named)
            return result, result is False, "" if result is None else f"it returned {result!r}"

        if "VLLM_MODS_ENTRY" in os.environ:  # of the entry around it
            return function(*given, **named)
        own = function.__code__.co_varnames[:1] in (("self",), ("cls",))
        return watch(name_of((*given[own:], *named.values())) or function.__module__, call)

    return wrapped


def name_of(values: Iterable[Any]) -> str:
    """Return what an entry is called: the first of its arguments that is a name or has one."""
    for value in values:
        one = value[0] if isinstance(value, (tuple, list)) and value else value
        get = one.get if isinstance(one, dict) else functools.partial(getattr, one)
        for name in (one, *(get(key, "") for key in ("name", "id", "title", "__name__"))):
            if isinstance(name, (str, os.PathLike)) and os.path.basename(name):
                return str(os.path.basename(name))
    return ""


def watch(name: str, call: Callable[[], tuple[Any, bool, str]]) -> Any:  # noqa: ANN401
    """Put in an entry by a call, which returns its result, whether it failed, and why. What a failed one changed is undone."""
    home, site = os.environ["VLLM_MODS_HOME"], os.environ["PYTHON_ROOT"]
    with open(os.path.join(home, "asked"), "ab") as asked:
        start = asked.tell()
    os.environ["VLLM_MODS_ENTRY"] = name
    before, error, result = state(site), None, None
    try:
        result, failed, reason = call()
    except (Exception, SystemExit) as raised:
        error, failed, reason = raised, True, f"{type(raised).__name__}: {raised}"
    del os.environ["VLLM_MODS_ENTRY"]
    after = state(site)
    changed = sorted({path for path, _ in before.items() ^ after.items()})
    kept = os.path.join(home, str(time.time_ns()))
    root, files = (site, before) if failed else (kept, after)
    for place, data in ((os.path.join(root, path), files.get(path)) for path in changed):
        if data is not None:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
        elif failed:
            os.unlink(place)
    if failed:
        os.truncate(os.path.join(home, "asked"), start)
    parts = [str(int(failed)), os.environ.get("VLLM_MODS_LINE", ""), name, reason[:1000], kept]
    with open(os.path.join(home, "entries"), "ab") as log:
        for part in parts + changed * (not failed):
            log.write(part.strip().encode("utf-8", "replace") + b"\0")
        log.write(b"\n")
    if failed and os.environ["VLLM_MODS_GOES_ON"]:
        return True
    if error is not None:
        raise error
    return result


def state(site: str) -> dict[str, bytes]:
    """Return the files of the packages that a recording has, by path, compiled code left out."""
    found: dict[str, bytes] = {}
    for root in os.environ["VLLM_MODS_ROOTS"].split(":"):
        for folder, _, names in os.walk(os.path.join(site, root)):
            for path in (os.path.join(folder, name) for name in names):
                info = os.lstat(path)
                if not os.path.isfile(path) or path.endswith(".pyc") or ".so" in path:
                    continue
                mark = (info.st_mode, info.st_ino, info.st_size, info.st_ctime_ns)
                if path not in _read or _read[path][0] != mark:
                    with open(path, "rb") as file:
                        _read[path] = (mark, file.read())
                found[os.path.relpath(path, site)] = _read[path][1]
    time.sleep(0.02)  # a write after this has another time of change
    return found


def main() -> int:
    """Start a program for an entry, which is called as its last argument."""

    def call() -> tuple[int, bool, str]:
        done = subprocess.run(sys.argv[1:], capture_output=True, check=False)
        sys.stdout.buffer.write(done.stdout)
        sys.stderr.buffer.write(done.stderr)
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").split("\n")
        last = [line for line in lines if line.strip()][-5:]
        reason = "\n".join((f"exit code {done.returncode}", *last))
        return done.returncode, done.returncode != 0, reason if done.returncode else ""

    result = watch(os.path.basename(sys.argv[-1]), call)
    return 0 if result is True else int(result)


if __name__ == "__main__":
    sys.exit(main())
