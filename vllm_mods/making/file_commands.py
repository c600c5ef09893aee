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
    for word in command.argv[1:]:
        path = None if word.startswith("-") else shell.path(word)
        if path is not None:
            shell.made.add(path)
    return DONE


def cat(shell: ShellState, command: ShellCommand) -> Result:
    """``cat``: what is in files, or what it is given to read."""
    names = [word for word in command.argv[1:] if not word.startswith("-")]
    if not names:
        return Result(status=True, out=command.stdin if command.reads else None)
    out = ""
    for name in names:
        path = shell.path(name)
        data = None if path is None else shell.read(path)
        if data is None:
            return Result()
        out += data.decode("utf-8", "surrogateescape")
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
    folder = shell.path(into)
    sources = [shell.path(name) for name in operands]
    if folder is None or None in sources:
        return shell.leave(command, NO_FOLDER)
    is_folder = into.endswith(("/", "/.")) or len(operands) > 1 or shell.is_folder(folder)
    for name, source in zip(operands, sources, strict=True):
        assert source is not None  # noqa: S101  (just looked)
        below = shell.below(source)
        if below:
            _copy_folder(shell, command, below, (name, source), (folder, is_folder))
            continue
        if is_folder is None:
            is_folder = "." not in posixpath.basename(folder)
        target = posixpath.join(folder, posixpath.basename(source)) if is_folder else folder
        if in_site(target) and in_site(source) and _BACKUP.search(target):
            shell.effects.append(Clear(command.place, f"a copy of {source} is kept beside it"))
        elif shell.read(source) is None:
            why = f"what {name} holds is not known: it is not in the mod"
            shell.leave(command, why)
        else:
            shell.write(command.place, command.text, target, shell.read(source))
    return DONE


def _copy_folder(
    shell: ShellState,
    command: ShellCommand,
    below: dict[str, bytes | None],
    source: tuple[str, str],
    target: tuple[str, bool | None],
) -> None:
    name, place = source
    folder, is_folder = target
    if is_folder is None:
        why = f"whether {folder} is there decides where the files go: --tree TREE"
        shell.leave(command, why)
        return
    contents = name.endswith("/.") or name in {".", "./"}
    if is_folder and not contents:
        folder = posixpath.join(folder, posixpath.basename(place))
    for path, data in sorted(below.items()):
        shell.write(command.place, command.text, folder + path.removeprefix(place), data)


def move(shell: ShellState, command: ShellCommand) -> Result:
    """``mv``: a copy, and what was there is gone."""
    options, operands = getopt.gnu_getopt(command.argv[1:], "fvT")
    result = _copied(shell, command, list(operands), ())
    if not options or operands:
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
