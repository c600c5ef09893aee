"""What a recorded command asked for and could not have, and which of its steps failed and were survived.

The commands that fetch and change files are stood in for by one that runs the real one and keeps how it ended,
with the line of the script, which bash tells. Python tells of connections by itself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused
from vllm_mods.making import entries, entry_marks, fetching, python_code, tools
from vllm_mods.making.served import Asked

BIN = "bin"
_LOG, _OPENED, _TRACE = "asked", "opened", "trace"
_FETCH = ("curl", "wget", "aria2c", "apt", "apt-get", "hf", "huggingface-cli", "ssh", "scp")
_GPU = ("nvidia-smi",)
_PIP = ("pip", "pip3", "uv")
_PYTHON = ("python", "python3")
_LISTS = {"ls", "find", "tree", "du"}
_RECURSIVE = re.compile(r"-\w*[rR]|--recursive")
_VERSION = "version"
_STEPS = ("patch", "git", "cp", "mv", "install", "sed", "perl", "tar", "unzip", "ln", "tee")
_QUESTIONS = re.compile(r"--(?:dry-run|check|stat|numstat|summary|version|help)\Z")
_GIT_STEPS = {"apply", "am", "cherry-pick", "revert", "checkout", "restore", "reset", "stash"}
_GIT_FETCHES = {"clone", "fetch", "pull", "submodule", "ls-remote"}
_IN_PLACE = re.compile(r"-\w*i|--in-place|inplace")
_INSTALLED = re.compile(
    r"(?!vllm\b|.*\.whl\Z)[A-Za-z0-9][\w.-]*(?:\[[\w, .-]*\])?\s*(?:[=<>!~].*)?\Z"
)

_STAND_IN = """\
#!/bin/sh
name=${0##*/}
real=$(PATH=$VLLM_MODS_PATH; command -v "$name" || { [ "$name" = python ] && command -v python3; })
keep() { { printf '%s\\0' "$code" "${VLLM_MODS_LINE-}" "$name" "$@"; printf '\\n'; } >> __HOME__/asked; }
case $name in
    pip|pip3|uv)
        if [ -z "${VLLM_MODS_NETWORK-}" ] || [ ! -x "$real" ]; then
            exec "$(PATH=$VLLM_MODS_PATH; command -v python3)" __HOME__/pip.py "$name" "$@"
        fi ;;
esac
if [ -x "$real" ]; then
    "$real" "$@"
    code=$?
else
    echo "$name: not found" >&2
    code=127
fi
[ $code -eq 0 ] || keep "$@"
exit $code
"""
# `pip show` is asked where packages lie; what is installed is stated, and not had.
_STAND_IN_PIP = """\
import importlib.metadata, os, re, subprocess, sys

name, *words = sys.argv[1:]
words = [word for word in words if word not in ("-q", "--quiet", "-qq")]
words = words[1:] if name == "uv" and words[:1] == ["pip"] else words
if words[:1] == ["show"]:
    with open("__HOME__/opened", "a") as opened:
        opened.write("pip show\\n")
    for package in (word for word in words[1:] if not word.startswith("-")):
        try:
            found = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            sys.exit("WARNING: Package(s) not found: " + package)
        print("Name:", found.metadata["Name"], "\\nVersion:", found.version)
        print("Location:", found.locate_file(""))
    sys.exit()
if words[:1] in (["list"], ["freeze"], ["check"], ["--version"], ["config"], ["cache"]):
    sys.exit()
told = []
while words:
    word = words.pop(0)
    if word in ("-r", "--requirement") and words:
        with open(words.pop(0)) as file:
            told += [line.split(" #")[0].strip() for line in file]
    else:
        told.append(word)
told = [word for word in told if word and not word.startswith("#")]
with open("__HOME__/asked", "ab") as log:
    for part in ("0", os.environ.get("VLLM_MODS_LINE", ""), "pip", *told):
        log.write(part.encode() + b"\\0")
    log.write(b"\\n")
"""
_LINES = """\
export VLLM_MODS_LINE=
__before=
__ended() { [ "$1" -eq 0 ] || { printf '%s\\0' "$1" "$2" exit "$3"; echo; } >> __HOME__/asked; }
set -T
trap '__before=$VLLM_MODS_LINE VLLM_MODS_LINE="${BASH_SOURCE[0]-}:$LINENO"' DEBUG
trap '__ended "$?" "$__before" "$BASH_COMMAND"' EXIT
exec {__trace}>> __HOME__/trace
BASH_XTRACEFD=$__trace
PS4='+ $PWD '
set -x
"""
AUDIT = """\
import os, sys

def _opened(path):
    with open("__HOME__/opened", "a") as log:
        log.write(path + "\\n")

def _looked(path):
    path = os.path.abspath(path)
    if path.startswith("__SITE__/") and not path.endswith(".pyc"):
        _opened(path)

def _watched(function):
    def call(path, *given, **more):
        if isinstance(path, (str, os.PathLike)):
            _looked(os.fsdecode(path))
        return function(path, *given, **more)
    return call

def _asked(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and sys.argv[:1] != ["__HOME__/pip.py"]:
        _looked(arguments[0])
    if event in ("os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if not sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
            _looked(arguments[0])
    if event in ("socket.getaddrinfo", "socket.connect"):
        where = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        if event == "socket.connect" and not isinstance(where, tuple):
            return
        with open("__HOME__/asked", "ab") as log:
            for part in ("1", os.environ.get("VLLM_MODS_LINE", ""), "network", str(where)):
                log.write(part.encode("utf-8", "replace") + b"\\0")
            log.write(b"\\n")

os.stat, os.access = _watched(os.stat), _watched(os.access)
sys.addaudithook(_asked)
"""


def mark(folder: str, home: str, chosen: Mapping[str, object]) -> None:
    """Have Python programs run by ``entries.py``, with the entries that were chosen, all if none were."""
    for module in (entries, entry_marks):
        shutil.copy(str(module.__file__), folder)
    _write(os.path.join(folder, entries.POINTS), "", home)
    if chosen:
        _write(os.path.join(folder, entries.CHOSEN), json.dumps(chosen), home)
    for name in _PYTHON:
        marked = _STAND_IN.replace('"$real" "$@"', '"$real" __HOME__/entries.py "$@"')
        _write(os.path.join(folder, BIN, name), marked, home)


def points(folder: str) -> bytes:
    """Return what was told of marked places. Raises ``Refused`` if that is too much."""
    with open(os.path.join(folder, entries.POINTS), "rb") as file:
        data = file.read(limits.POINTS + 1)
    if len(data) > limits.POINTS:
        raise Refused(
            f"its programs go over more than is looked at: {limits.POINTS}",
            hint="vllm-mods import PATH --record, which makes one mod of it",
        )
    return data


class WatchedCommand(NamedTuple):
    """A command that was run: how it ended, in which line of which script."""

    code: int
    place: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        """Name it with its line."""
        text = " ".join(self.argv[self.argv[0] == "exit" :])
        text = text if len(text) <= 70 else f"{text[:67]}..."
        return f"{self.place}: `{text}`" if self.place else f"`{text}`"


class Watched(NamedTuple):
    """What was seen of a run.

    ``lacked`` are commands that would have needed what a recording does not give, ``failed`` those that
    change files and failed, ``installed`` what pip was asked for; ``ended`` is the last one of a script
    that failed. ``opened`` are the files below the site root that were read, as far as that was seen;
    ``everywhere`` says that more than files was asked for: a folder, or the version.
    """

    lacked: tuple[WatchedCommand, ...]
    failed: tuple[WatchedCommand, ...]
    installed: tuple[str, ...]
    ended: WatchedCommand | None
    opened: frozenset[str]
    everywhere: bool
    repositories: tuple[Asked, ...] = ()
    """What ``git`` asked for and was not served."""


def prepare(folder: str, home: str) -> None:
    """Put the stand-ins into a folder that the command sees as ``home``."""
    os.mkdir(os.path.join(folder, BIN))
    for name in (*_FETCH, *_GPU, *_PIP, *_PYTHON, *_STEPS):
        place = os.path.join(folder, BIN, name)
        _write(place, _STAND_IN, home)
        os.chmod(place, 0o755)  # noqa: S103  (to be run)
    texts = {"pip.py": _STAND_IN_PIP, "lines.sh": _LINES, _LOG: "", _OPENED: "", _TRACE: ""}
    for name, text in texts.items():
        _write(os.path.join(folder, name), text, home)


def environ(home: str, *, network: bool) -> dict[str, str]:
    """Return the variables that the stand-ins need."""
    return {"BASH_ENV": f"{home}/lines.sh", **({"VLLM_MODS_NETWORK": "1"} if network else {})}


def read(
    folder: str, files: Mapping[str, bytes], site: tuple[str, str], *, network: bool
) -> Watched:
    """Tell what was seen; ``files`` are the mod's own, ``site`` is the site root as it was seen and where it lies."""
    asked = tuple(_asked(folder))
    lacked = tuple(dict.fromkeys(one for one in asked if _lacks(one, network=network)))
    failed = (one for one in asked if one.code and one not in lacked and _changes(one.argv, files))
    installed = (word for one in asked if one.argv[0] == "pip" for word in _required(one.argv))
    ended = [one for one in asked if one.argv[0] == "exit"]
    opened = {os.path.normpath(line.rstrip("\n")) for line in _lines_of(folder, _OPENED)}
    traced = {path for line in _lines_of(folder, _TRACE) for path in _named_in(line)}
    seen, place = site
    opened |= {
        path for path, lists in traced if lists or not os.path.isdir(path.replace(seen, place, 1))
    }
    inner = {path[len(seen) + 1 :] for path in opened if path.startswith(f"{seen}/")}
    shown = "pip show" in opened and any(b"Version" in data for data in files.values())
    whole = {
        path for path in inner if ".dist-info" in path or os.path.isdir(os.path.join(place, path))
    }
    everywhere = shown or bool(whole) or not opened.isdisjoint({seen, _VERSION})
    return Watched(
        lacked=lacked,
        failed=tuple(failed),
        installed=tuple(dict.fromkeys(installed)),
        ended=ended[-1] if ended else None,
        opened=frozenset(inner - whole),
        everywhere=everywhere,
        repositories=tuple(fetching.asked(folder)),
    )


def _lines_of(folder: str, name: str) -> Iterator[str]:
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
        yield from log


def _named_in(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths among the words of a traced command, and whether it lists what is in folders."""
    start, folder, text = (*line.split(" ", 2), "", "")[:3]
    if not start.startswith("+") or not folder.startswith("/"):
        return
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    name = os.path.basename(words[0]) if words else ""
    lists = name in _LISTS or (name == "grep" and any(map(_RECURSIVE.match, words)))
    lists = lists and not any("__pycache__" in word or ".pyc" in word for word in words)
    named = [word for word in words[1:] if not word.startswith(("-", ">", "<"))]
    for word in named or ["."]:
        yield os.path.normpath(os.path.join(folder, word.rpartition("=")[2])), lists


def _write(place: str, text: str, home: str) -> None:
    Path(place).write_text(text.replace("__HOME__", home), encoding="utf-8")


def _asked(folder: str) -> Iterator[WatchedCommand]:
    with open(os.path.join(folder, _LOG), "rb") as file:
        log = file.read(limits.SCRIPT)
    for entry in log.split(b"\0\n"):
        code, place, *argv = [*entry.decode("utf-8", "replace").split("\0"), ""]
        if argv[:-1] and code.isdigit():
            name, _, line = place.rpartition(":")
            shown = f"{os.path.basename(name) or 'line'}:{line}" if line else ""
            yield WatchedCommand(int(code), shown, tuple(argv[:-1]))


def _lacks(one: WatchedCommand, *, network: bool) -> bool:
    name, *words = one.argv
    if name == "pip":
        return bool(words[:1] != ["install"] or list(_named(words)) != list(_required(one.argv)))
    if name in _GPU:
        return True
    if network or not one.code:
        return False
    fetches = name == "git" and not _GIT_FETCHES.isdisjoint(words)
    return fetches or name == "network" or name in _FETCH


def _named(words: Sequence[str]) -> Iterator[str]:
    """Yield what pip is told to install, and where it is told what."""
    values = False
    for word in words[1:]:
        if not (values or word.startswith("-")):
            yield word
        values = word in tools.PIP_VALUES


def _required(argv: Sequence[str]) -> Iterator[str]:
    found = (word for word in _named(argv[1:]) if argv[1:2] == ("install",))
    yield from (word for word in found if _INSTALLED.match(word))


def _changes(argv: Sequence[str], files: Mapping[str, bytes]) -> bool:
    """Tell whether a command is there to change files: it does not only ask."""
    name, *words = argv
    if name in _PYTHON:
        return not _only_asks(words, files)
    if name == "git" and _GIT_STEPS.isdisjoint(words):
        return False
    if name in {"sed", "perl"} and not any(map(_IN_PLACE.match, words)):
        return False
    return name in _STEPS and not any(map(_QUESTIONS.match, words))


def _only_asks(words: Sequence[str], files: Mapping[str, bytes]) -> bool:
    words = [word for word in words if not re.fullmatch(r"-[uBIsESOqb]+", word)]
    code: str | None = None
    if words[:1] == ["-c"]:
        code = words[1] if len(words) > 1 else ""
    elif words and (data := files.get(os.path.normpath(words[0]))) is not None:
        code = data.decode("utf-8", "replace")
    return code is not None and python_code.only_asks(code, files)
