"""The commands of mods' scripts: which only ask, and what each other one does. Nothing is run."""

from __future__ import annotations

import getopt
import itertools
import posixpath
import re
from collections.abc import Callable

from vllm_mods.making import fetching, file_commands, tools, words
from vllm_mods.making.effects import Advise, Clear
from vllm_mods.making.shell_state import DONE, EndedError, Result, ShellCommand, ShellState
from vllm_mods.scripts import bash, statements

Handler = Callable[[ShellState, ShellCommand], Result]


PURE = {
    *("echo", "printf", "grep", "egrep", "fgrep", "diff", "cmp", "sha256sum", "md5sum", "ls"),
    *("date", "clear", "sleep", "which", "type", "hash", "id", "uname", "whoami", "stat", "file"),
    *("tail", "uniq", "cut", "tr", "set", "shopt", "true", ":", "wait", "nproc", "free", "df"),
    *("du", "nvidia-smi", "jobs", "umask", "ulimit", "sync", "hostname", "lscpu", "tput", "seq"),
    *("wc", "head"),
}
_ENDS = {"exit", "return", "break", "continue"}
_SURE = {
    **dict.fromkeys(("true", ":", "shopt", "umask"), DONE),
    "false": Result(status=False, out=""),
}
_IN_IMAGES = {"bash", "sh", "patch", "git", "python3", "python", "pip", "sed"}
# What tells that the flags behind it are for `vllm serve`, and what that they are for another program.
_ASKED = re.compile(
    r"(?i)\b(?:use|add|with|pass|set|serve|needs?|flags?|arguments?|parameters?|options?)\b"
)
_FLAG = re.compile(r"--[a-z][a-z0-9-]*(?:\.[\w.-]+)?(?:=\S+)?")
_OTHERS = re.compile(r"\b(?:git|pip3?|uv|patch|docker|curl|wget|apt|ray|cmake|python3?)\b")


def run(shell: ShellState, command: ShellCommand) -> Result:  # noqa: PLR0911  (one for each kind)
    """Run a command as far as it is known what it does."""
    name = posixpath.basename(command.argv[0])
    if command.argv[0].startswith(("./", "/")) and shell.is_file(shell.path(command.argv[0]) or ""):
        return tools.script(shell, command)
    if re.fullmatch(r"python(3(\.\d+)?)?|pip(3(\.\d+)?)?", name):
        name = name.rstrip("0123456789.")
    if name in _ENDS:
        return _end(shell, command)
    if name in _SURE:
        return _SURE[name]
    handler = _HANDLERS.get(name)
    if handler is not None:
        try:
            return handler(shell, command)
        except getopt.GetoptError as error:
            return shell.leave(command, f"`{name}`: {error.msg}")
    if name in PURE:
        return Result()
    return shell.leave(command, _WHY.get(name, f"what `{name}` does is not known"))


def _end(shell: ShellState, command: ShellCommand) -> Result:
    name, *status = command.argv
    if name in {"exit", "return"}:
        raise EndedError(name, fails=status != ["0"])
    if shell.loops:
        raise EndedError(name)
    return DONE


# --- what asks


def _echo(shell: ShellState, command: ShellCommand) -> Result:
    argv = command.argv[1:]
    bare = argv[:1] == ["-n"]
    plain = bare or not (argv and argv[0].startswith("-"))
    text = " ".join(argv[bare:])
    if args := _flags(text):
        shell.effects.append(Advise(command.place, args))
    return Result(status=True, out=text + "\n" * (not bare) if plain else None)


def _flags(text: str) -> tuple[str, ...]:
    """Return the flags that a text asks for: it has to end with them, each with a value or none."""
    before, dashes, after = text.partition("--")
    words = re.sub(r"[\s.;,!)'\"]*$", "", f"{dashes}{after}").split()
    asked = not before.strip() or _ASKED.search(before)
    if not words or not asked or _OTHERS.search(before):
        return ()
    found: list[str] = []
    for word, last in zip(words, ("", *words), strict=False):
        is_value = not word.startswith("-") and last.startswith("--") and "=" not in last
        if not (_FLAG.fullmatch(word) or is_value):
            return ()
        found.append(word)
    return () if "--chat-template" in found else tuple(found)  # a template brings that itself


def _printf(_shell: ShellState, command: ShellCommand) -> Result:
    argv = command.argv[1:]
    text = argv[0].replace("\\n", "\n") if argv else ""
    if text.count("%s") == text.count("%") == len(argv) - 1 and "\\" not in text:
        parts = itertools.zip_longest(text.split("%s"), argv[1:], fillvalue="")
        return Result(status=True, out="".join(map("".join, parts)))
    return Result(status=True)


def _set(shell: ShellState, command: ShellCommand) -> Result:
    if "--" in command.argv:
        shell.arguments = tuple(command.argv[command.argv.index("--") + 1 :])
    shell.set_flags(command.argv[1:])
    return DONE


def _shift(shell: ShellState, _command: ShellCommand) -> Result:
    shell.arguments = shell.arguments[1:]
    return DONE


def _trap(shell: ShellState, command: ShellCommand) -> Result:
    """``trap 'rm -r "$T"' EXIT``: nothing, if it changes nothing that lasts."""
    try:
        body = bash.read(command.argv[1] if len(command.argv) > 2 else ":").body
    except statements.BashError:
        body = ()
    if shell.would_last(body):
        return shell.leave(command, "when it runs is known only when it runs")
    return DONE


def _filter(_shell: ShellState, command: ShellCommand) -> Result:
    """``pip show vllm | grep Location | awk '{print $2}'``: what is printed, as far as it is plain."""
    words = command.operands
    if command.stdin is None or len(words) != 1:
        return Result()
    lines = command.stdin.splitlines()
    is_awk = command.argv[0] == "awk"
    column = re.fullmatch(r"\s*\{\s*print\s+\$(\d)\s*;?\s*\}\s*", words[0], re.ASCII)
    if not is_awk:
        if not re.fullmatch(r"\^?[\w: ]+", words[0]) or len(command.argv) > 2:
            return Result()
        found = [line for line in lines if re.search(words[0], line)]
    elif column:
        found = [_field(line, int(column[1])) for line in lines]
    else:
        return Result()
    return Result(status=is_awk or bool(found), out="".join(f"{line}\n" for line in found))


def _field(line: str, number: int) -> str:
    """Return what awk calls ``$number``: a word of the line, the line itself, or nothing."""
    words = line.split()
    return line if number == 0 else words[number - 1] if number <= len(words) else ""


def _test(shell: ShellState, command: ShellCommand) -> Result:
    return Result(words.evaluate(shell, command.argv[1:]), "")


def _command(shell: ShellState, command: ShellCommand) -> Result:
    if command.argv[1:2] in (["-v"], ["-V"]):
        return Result(status=True if command.argv[-1] in _IN_IMAGES else None)
    return _after(shell, command)


def _after(shell: ShellState, command: ShellCommand) -> Result:
    """``sudo x``, ``env A=b x``, ``exec x``: what stands behind."""
    argv = command.argv[1:]
    if command.argv[0] == "timeout":
        argv = [word for word in argv if not re.fullmatch(r"[\d.]+[smh]?", word)]
    while argv and (argv[0].startswith("-") or re.match(r"\w+=", argv[0])):
        if "=" in argv[0] and not argv[0].startswith("-"):
            name, _, value = argv[0].partition("=")
            shell.variables[name] = value
        argv = argv[1:]
    if not argv:
        return Result()
    result = shell.invoke(command._replace(argv=argv))
    if command.argv[0] == "exec":
        raise EndedError("exit")
    return result


# --- places


def _cd(shell: ShellState, command: ShellCommand) -> Result:
    target = next(iter(command.operands), shell.variables.get("HOME") or "")
    shell.cwd = None if command.argv[1:2] == ["-"] else shell.path(target)
    return DONE


def _pwd(shell: ShellState, _command: ShellCommand) -> Result:
    return Result(status=True, out=None if shell.cwd is None else f"{shell.cwd}\n")


def _named(function: Callable[[str], str]) -> Handler:
    def run_it(_shell: ShellState, command: ShellCommand) -> Result:
        operands = command.operands
        if not operands or len(operands) > 2:
            return Result()
        name = function(operands[0].rstrip("/") or "/") or "."
        name = name.removesuffix(operands[1]) if len(operands) == 2 else name
        return Result(status=True, out=f"{name}\n")

    return run_it


def _real(shell: ShellState, command: ShellCommand) -> Result:
    path = shell.path(command.argv[-1])
    return Result(status=True, out=None if path is None else f"{path}\n")


# --- what is found and edited


def _find(shell: ShellState, command: ShellCommand) -> Result:
    text = " ".join(command.argv)
    if not re.search(r"-delete\b|-exec|-ok\b|-fprint", text):
        return Result()
    cleared = re.search(r"__pycache__|\.py[co*]\b|\*\.pyc|torch_compile|triton", text)
    if cleared and re.search(r"-delete\b|-exec(?:dir)? rm\b", text):
        shell.effects.append(Clear(command.place, "bytecode and caches"))
        return DONE
    return shell.leave(command, "what it finds is known only when it runs")


def _xargs(shell: ShellState, command: ShellCommand) -> Result:
    if PURE.intersection(command.operands[:1]):
        return Result()
    return shell.leave(command, "what it is given is known only when it runs")


def _sed(shell: ShellState, command: ShellCommand) -> Result:
    text = " ".join(command.argv[1:])
    if re.search(r"awk$", command.argv[0]):
        if command.reads:
            return _filter(shell, command)
        if re.search(r">|system|\|", text):
            return shell.leave(command, "what it writes is not followed")
    words = [word for word in command.argv[1:] if word != "--quiet"]
    if not any(re.match(r"-\w*i|--in-place|inplace", word) for word in words):
        return Result()
    return tools.edit(shell, command, f"`{command.argv[0]}` edits in place")


_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("sudo", "env", "exec", "time", "nice", "stdbuf", "timeout"), _after),
    **dict.fromkeys(("sed", "perl", "awk", "gawk"), _sed),
    **dict.fromkeys(("sh", "bash"), tools.interpreter),
    **dict.fromkeys((".", "source"), tools.source),
    "set": _set,
    "shift": _shift,
    "trap": _trap,
    "grep": _filter,
    "echo": _echo,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "command": _command,
    "cd": _cd,
    "pwd": _pwd,
    "dirname": _named(posixpath.dirname),
    "basename": _named(posixpath.basename),
    "realpath": _real,
    "readlink": _real,
    "mktemp": file_commands.make_temporary,
    "mkdir": file_commands.make_folder,
    "cat": file_commands.cat,
    "tee": file_commands.tee,
    "cp": file_commands.copy,
    "install": file_commands.install,
    "mv": file_commands.move,
    "rm": file_commands.remove,
    "touch": file_commands.touch,
    "chmod": file_commands.chmod,
    "find": _find,
    "xargs": _xargs,
    "curl": fetching.command,
    "wget": fetching.command,
    "patch": tools.patch,
    "git": tools.git,
    "pip": tools.pip,
    "uv": tools.uv,
    "python": tools.python,
}
_WHY = {
    "apt": "it changes the system, and a mod changes Python packages",
    "apt-get": "it changes the system, and a mod changes Python packages",
    "ln": "a mod makes no links",
    "eval": "what it evaluates is known only when it runs",
    "chown": "a mod keeps the owners of files as they are",
}
