"""What patches, installs and runs code in mods' scripts: patch, git, pip, uv, python, other scripts."""

from __future__ import annotations

import getopt
import posixpath
import re
from collections.abc import Sequence

from vllm_mods.making import python_code
from vllm_mods.making.effects import SITE, Edit, Install, Patch, normal
from vllm_mods.making.shell_state import DONE, NO_FOLDER, Result, ShellCommand, ShellState
from vllm_mods.scripts.statements import BashError

_PATCH = (
    "p:d:i:RNfstubBlEF:r:o:V:z:c",
    [
        *("strip=", "directory=", "input=", "reverse", "forward", "force", "batch", "silent"),
        *("quiet", "dry-run", "fuzz=", "backup", "no-backup-if-mismatch", "verbose", "unified"),
        *("reject-file=", "ignore-whitespace", "merge", "output=", "suffix=", "posix", "binary"),
        *("remove-empty-files", "set-time", "set-utc"),
    ],
)
_APPLY = (
    "p:RC:3vq",
    [
        *("check", "stat", "numstat", "summary", "reverse", "directory=", "3way", "whitespace="),
        *("ignore-whitespace", "ignore-space-change", "reject", "index", "cached", "verbose"),
        *("unidiff-zero", "recount", "unsafe-paths", "allow-empty", "quiet", "inaccurate-eof"),
        *("include=", "exclude="),
    ],
)
_ASKS = {"--check", "--stat", "--numstat", "--summary"}
PIP_VALUES = {
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target", "-c"),
    *("--constraint", "--prefix", "--root", "--python", "-p", "--platform", "--python-version"),
    *("--retries", "--timeout", "--torch-backend", "--index-strategy", "--trusted-host"),
    *("--config-settings", "--cache-dir", "--log", "--index", "--link-mode", "--no-binary"),
    *("--only-binary", "--upgrade-strategy", "--implementation", "--abi", "--progress-bar"),
}
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w, .-]*\])?\s*([=<>!~].*)?\Z")
_WHEEL = re.compile(
    r"(?:^|/)([A-Za-z0-9_.]+)-([^-/]+)(?:-\d[^-/]*)?-[^-/]+-[^-/]+-[^-/]+\.whl(?:$|#)"
)
_SAFE_MODULES = {
    *("compileall", "py_compile", "site", "sysconfig", "json.tool", "pytest", "ensurepip"),
}


# --- patches


def patch(shell: ShellState, command: ShellCommand) -> Result:
    """``patch``: which diff, in which folder."""
    options, operands = getopt.gnu_getopt(command.argv[1:], *_PATCH)
    given = dict(options)
    if "--dry-run" in given:
        return Result()
    if {"-o", "--output", "-c"} & set(given) or len(operands) > 2:
        return shell.leave(command, "this use of `patch` is not known")
    folder = shell.path(given.get("-d", given.get("--directory", ".")))
    strip = given.get("-p", given.get("--strip"))
    source = given.get("-i", given.get("--input", operands[1] if len(operands) == 2 else None))
    operand = operands[0] if operands else None
    if folder is None:
        return shell.leave(command, NO_FOLDER)
    found = _diff(shell, command, source)
    if found is None:
        return Result(status=True)
    if operand is not None:
        operand = normal(posixpath.normpath(posixpath.join(folder, operand)))
    count = int(strip) if strip is not None and strip.isdigit() else None
    back = bool({"-R", "--reverse"} & set(given))
    shell.effects.append(Patch(command.place, *found, folder, count, operand, back))
    return DONE


def _diff(shell: ShellState, command: ShellCommand, source: str | None) -> tuple[str, bytes] | None:
    """Return a diff with a name; None, and the statement left, if it is not known."""
    if source is None or source == "-":
        if command.stdin is None:
            shell.leave(command, "what it is given to read is not in the mod")
            return None
        label = posixpath.basename(command.source or f"line-{command.place.line}.patch")
        return label, command.stdin.encode("utf-8", "surrogateescape")
    data = shell.read(shell.path(source))
    if data is None:
        shell.leave(command, f"{source} is not in the mod")
        return None
    return posixpath.basename(source), data


def git(shell: ShellState, command: ShellCommand) -> Result:
    """``git apply``; what only asks is passed over."""
    argv = command.argv[1:]
    folder = "."
    while argv and argv[0].startswith("-"):
        folder = argv[1] if argv[0] == "-C" and len(argv) > 1 else folder
        argv = argv[2 if argv[0] in {"-C", "-c"} else 1 :]
    action = argv[0] if argv else "help"
    if action in {"status", "diff", "log", "rev-parse", "ls-files", "show", "config", "help"}:
        return Result()
    if action == "apply":
        return _apply(shell, command, folder, argv[1:])
    if action in {"clone", "fetch", "pull", "submodule"}:
        return shell.leave(command, "what the network sends is not in the mod")
    return shell.leave(command, f"what `git {action}` does here")


def _apply(shell: ShellState, command: ShellCommand, folder: str, argv: list[str]) -> Result:
    options, operands = getopt.gnu_getopt(argv, *_APPLY)
    given = dict(options)
    if _ASKS & set(given):
        return Result()
    if {"--include", "--exclude", "--cached", "--unidiff-zero"} & set(given):
        return shell.leave(command, "this use of `git apply` is not known")
    place = shell.path(posixpath.join(folder, given.get("--directory", ".")))
    if place is None:
        return shell.leave(command, NO_FOLDER)
    strip, back = int(given.get("-p", "1")), bool({"-R", "--reverse"} & set(given))
    sources: list[str | None] = [*operands]
    for source in sources or [None]:
        found = _diff(shell, command, source)
        if found is not None:
            shell.effects.append(Patch(command.place, *found, place, strip, reverse=back))
    return DONE


# --- packages


def uv(shell: ShellState, command: ShellCommand) -> Result:
    """``uv pip …``."""
    if command.argv[1:2] == ["pip"]:
        return pip(shell, command._replace(argv=command.argv[1:]))
    return shell.leave(command, f"what `uv {' '.join(command.argv[1:2])}` does")


def pip(shell: ShellState, command: ShellCommand) -> Result:
    """``pip install``: what is asked for."""
    argv = [word for word in command.argv[1:] if not re.match(r"-q+$|--quiet|-v+$", word)]
    action = argv[0] if argv else "help"
    if action == "show":
        shown = f"Name: vllm\nLocation: {SITE}\n" if argv[-1] == "vllm" else None
        return Result(out=shown)
    if action in {"list", "freeze", "check", "--version", "help", "config", "debug", "cache"}:
        return Result()
    if action != "install":
        return shell.leave(command, f"a mod does not `pip {action}`")
    rest = argv[1:]
    while rest:
        word = rest.pop(0)
        if word in {"-r", "--requirement"} and rest:
            _listed(shell, command, rest.pop(0))
        elif word in PIP_VALUES:
            del rest[:1]
        elif word in {"-e", "--editable"}:
            shell.leave(command, "an editable install is a folder, and no package")
            del rest[:1]
        elif not word.startswith("-"):
            _required(shell, command, word)
    return DONE


def _listed(shell: ShellState, command: ShellCommand, name: str) -> None:
    text = shell.text(name, "replace")
    if text is None:
        shell.leave(command, f"{name} is not in the mod")
        return
    for line in text.splitlines():
        wanted = re.split(r"\s+#|^#|\s--hash|\s*\\$", line)[0].strip()
        if wanted and not wanted.startswith("--hash"):
            _required(shell, command, wanted)


def _required(shell: ShellState, command: ShellCommand, text: str) -> None:
    wheel = _WHEEL.search(text)
    if wheel:
        text = f"{wheel[1].replace('_', '-')}=={wheel[2]}"
    name = re.split(r"[\[=<>!~; @]", text)[0].lower()
    if name == "vllm":
        shell.leave(command, "it puts another vLLM in place of the one there is")
    elif _REQUIREMENT.match(text) and not text.endswith((".tar.gz", ".zip")) and "/" not in text:
        shell.effects.append(Install(command.place, text))
    else:
        shell.leave(
            command, f"{text} names no package and version: install it when the image is made"
        )


# --- code


def python(shell: ShellState, command: ShellCommand) -> Result:  # noqa: PLR0911  (one for each form)
    """``python3``: code that only asks, or an edit of which only a run tells what comes out."""
    argv = command.argv[1:]
    while argv and re.fullmatch(r"-[uBIsESOqb]+", argv[0]):
        argv = argv[1:]
    if argv[:1] == ["-m"]:
        module = argv[1] if len(argv) > 1 else ""
        if module in {"pip", "uv"}:
            return (pip if module == "pip" else uv)(shell, command._replace(argv=argv[1:]))
        if module in _SAFE_MODULES:
            return Result()
        return edit(shell, command, f"the Python module {module} runs")
    if argv[:1] == ["-c"]:
        return _code(shell, command, argv[1] if len(argv) > 1 else "")
    if not argv or argv[0] == "-":
        if command.stdin is None and not command.reads:
            return Result()
        return _code(shell, command, command.stdin)
    if argv[0] in {"-V", "--version", "-h"}:
        return Result()
    return _code(shell, command, shell.text(argv[0], "replace"))


def _code(shell: ShellState, command: ShellCommand, code: str | None) -> Result:
    if code is None:
        return shell.leave(command, "the code that it runs is not in the mod")
    out = python_code.printed(code)
    if out is not None:
        return Result(status=True, out=f"{out}\n")
    own = (path.removeprefix(f"{shell.home}/") for path in shell.files)
    if python_code.only_asks(code, own):
        return Result()
    return edit(shell, command, "Python code edits")


def edit(shell: ShellState, command: ShellCommand, what: str) -> Result:
    """Take note of an edit that only a run can do, and of the files that are known no more."""
    for word in command.argv[1:]:
        path = shell.path(word)
        if path in shell.files:
            shell.files[path] = None
    text = " ".join(command.text.split("\n")[0].split())
    shell.effects.append(Edit(command.place, text, what))
    return Result(status=True)


def interpreter(shell: ShellState, command: ShellCommand) -> Result:
    """``bash x.sh``, ``sh -c …``."""
    flags = [word for word in command.argv[1:] if re.fullmatch(r"-[eux]+", word)]
    argv = [word for word in command.argv[1:] if word not in flags]
    if not argv or argv[0].startswith("-"):
        return shell.leave(command, "what it runs is not read")
    return _sourced(shell, shell.subshell(), command, argv, ends=True, flags=flags)


def source(shell: ShellState, command: ShellCommand) -> Result:
    """``source x.sh``: in this very shell."""
    name = command.argv[1] if len(command.argv) > 1 else ""
    if name.endswith("bin/activate"):
        return DONE
    return _sourced(shell, shell, command, command.argv[1:], ends=False)


def script(shell: ShellState, command: ShellCommand) -> Result:
    """Run another script of the mod."""
    return _sourced(shell, shell.subshell(), command, command.argv, ends=True)


def _sourced(
    shell: ShellState,
    inner: ShellState,
    command: ShellCommand,
    argv: list[str],
    *,
    ends: bool,
    flags: Sequence[str] = (),
) -> Result:
    path = shell.path(argv[0]) if argv else None
    data = shell.read(path)
    if path is None or data is None or shell.lasts(path):
        return shell.leave(command, f"{' '.join(argv[:1])} is not in the mod")
    if re.match(rb"#!.*python", data):
        return _code(shell, command, data.decode("utf-8", "replace"))
    if shell.depth >= 20:
        return shell.leave(command, "scripts call each other without end")
    inner.depth += 1
    if ends:  # a process of its own starts without
        inner.errexit = inner.pipefail = False
        inner.set_flags(flags)
    try:
        inner.source(path, tuple(argv[1:]), ends=ends)
    except BashError as error:
        return shell.leave(command, f"line {error.line} of it: {error.why}")
    finally:
        inner.depth -= 1
    return DONE
