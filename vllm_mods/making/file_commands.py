"""The commands of mods' scripts that read, copy, make and remove files. Nothing is run."""

from __future__ import annotations

import getopt
import posixpath
import re
from collections.abc import Sequence

from vllm_mods.making.effects import Clear, in_site
from vllm_mods.making.shell_state import DONE, NO_FOLDER, Result, ShellCommand, ShellState

_Option = tuple[str, str]


_CACHE = re.compile(
    r"__pycache__|\.py[co]$|\.cache(?:/|$)|torch_compile|torchinductor|\.triton|_cache(?:/|$)"
)
_BACKUP = re.compile(r"(?:\.(?:bak|orig|backup|old|save)|~)(?:[.-]?\w*)?$")
_CP = (
    "abdfiLnpPrRsuvdHTt:S:D",
    ["archive", "force", "recursive", "no-clobber", "preserve", "verbose"],
)
_INSTALL = ("m:o:g:bcDdTt:vpS:C", ["mode=", "owner=", "group=", "directory", "verbose"])


def make_temporary(shell: ShellState, command: ShellCommand) -> Result:
    """``mktemp``: a name that is in no other place."""
    path = f"/tmp/made-{command.place.line}-{len(shell.made)}"  # noqa: S108
    if any("d" in word for word in command.argv[1:] if word.startswith("-")):
        shell.made.add(path)
    else:
        shell.files[path] = b""
    return Result(status=True, out=f"{path}\n")


def make_folder(shell: ShellState, command: ShellCommand) -> Result:
    """``mkdir``."""
    shell.made.update(filter(None, map(shell.path, command.operands)))
    return DONE


def cat(shell: ShellState, command: ShellCommand) -> Result:
    """``cat``: what is in files, or what it is given to read."""
    out = command.stdin if not command.operands else ""
    for name in command.operands:
        if (text := shell.text(name)) is None:
            return Result()
        out = f"{out}{text}"
    return Result(status=True, out=out)


def tee(shell: ShellState, command: ShellCommand) -> Result:
    """``tee``: what it reads, into files."""
    for name in command.argv[1:]:
        if name in {"-a", "--append"}:
            return shell.leave(command, "it adds to a file")
        path = shell.path(name)
        if path is not None and not shell.lasts(path):
            shell.files[path] = None
        elif not name.startswith("-"):
            data = command.stdin
            known = None if data is None else data.encode("utf-8", "surrogateescape")
            shell.write(command.place, command.text, path, known)
    return Result(status=True, out=command.stdin)


def copy(shell: ShellState, command: ShellCommand) -> Result:
    """``cp``."""
    options, operands = getopt.gnu_getopt(command.argv[1:], *_CP)
    if dict(options).keys() & {"-n", "-u", "-s", "--no-clobber"}:
        return shell.leave(command, "whether it copies is known only when it runs")
    return _copied(shell, command, operands, options)


def install(shell: ShellState, command: ShellCommand) -> Result:
    """``install``: a copy, or folders."""
    options, operands = getopt.gnu_getopt(command.argv[1:], *_INSTALL)
    if dict(options).keys() & {"-d", "--directory"}:
        return make_folder(shell, command._replace(argv=["mkdir", *operands]))
    return _copied(shell, command, operands, options)


def _copied(
    shell: ShellState, command: ShellCommand, operands: list[str], options: Sequence[_Option]
) -> Result:
    into = dict(options).get("-t")
    if into is None:
        if len(operands) < 2:
            return shell.leave(command, "it names no target")
        into = operands.pop()
    places = [path for name in (into, *operands) if (path := shell.path(name)) is not None]
    if len(places) <= len(operands):
        return shell.leave(command, NO_FOLDER)
    folder, *sources = places
    is_folder = into.endswith(("/", "/.")) or len(operands) > 1 or shell.is_folder(folder)
    for name, source in zip(operands, sources, strict=True):
        if below := shell.below(source):
            if is_folder is None:
                why = f"whether {folder} is there decides where the files go: --tree TREE"
                shell.leave(command, why)
                continue
            contents = not is_folder or name.endswith("/.") or name in {".", "./"}
            above = folder if contents else posixpath.join(folder, posixpath.basename(source))
            for path, data in sorted(below.items()):
                shell.write(command.place, command.text, above + path.removeprefix(source), data)
            continue
        if is_folder is None:
            is_folder = "." not in posixpath.basename(folder)
        target = posixpath.join(folder, posixpath.basename(source)) if is_folder else folder
        _copy_file(shell, command, name, source, target)
    return DONE


def _copy_file(
    shell: ShellState, command: ShellCommand, name: str, source: str, target: str
) -> None:
    if in_site(target) and in_site(source) and _BACKUP.search(target):
        shell.effects.append(Clear(command.place, f"a copy of {source} is kept beside it"))
    elif (data := shell.read(source)) is None:
        shell.leave(command, f"what {name} holds is not known: it is not in the mod")
    else:
        shell.write(command.place, command.text, target, data)


def move(shell: ShellState, command: ShellCommand) -> Result:
    """``mv``: a copy, and what was there is gone."""
    _, operands = getopt.gnu_getopt(command.argv[1:], "fvT")
    result = _copied(shell, command, list(operands), ())
    for name in operands[:-1]:
        _take_away(shell, command, name)
    return result


def remove(shell: ShellState, command: ShellCommand) -> Result:
    """``rm``."""
    _, operands = getopt.gnu_getopt(command.argv[1:], "rRfvid", ["recursive", "force", "verbose"])
    for name in operands:
        _take_away(shell, command, name)
    return DONE


def _take_away(shell: ShellState, command: ShellCommand, name: str) -> None:
    path = shell.path(name)
    if path is None:
        shell.leave(command, NO_FOLDER)
    elif _CACHE.search(path) or _BACKUP.search(path):
        shell.effects.append(Clear(command.place, path))
    elif not shell.lasts(path):
        for one in [path, *shell.below(path)]:
            shell.files.pop(one, None)
    elif in_site(path) is not None and shell.is_file(path) is True:
        shell.remove(command.place, path)
    elif shell.is_file(path) is not False:
        shell.leave(command, f"it removes {path}: what that is needs --tree TREE")


def touch(shell: ShellState, command: ShellCommand) -> Result:
    """``touch``: a file that is made, if there is none."""
    for name in command.argv[1:]:
        path = None if name.startswith("-") else shell.path(name)
        if path is None or shell.is_file(path) is True:
            continue
        if shell.lasts(path) and shell.is_file(path) is None:
            shell.leave(command, f"it may make {path}: --tree TREE")
        else:
            shell.write(command.place, command.text, path, b"")
    return DONE


def chmod(shell: ShellState, command: ShellCommand) -> Result:
    """``chmod``: of what does not last."""
    paths = [shell.path(name) for name in command.argv[2:]]
    if all(path is not None and not shell.lasts(path) for path in paths):
        return DONE
    return shell.leave(command, "a mod keeps the modes of files as they are")
