"""What a recorded command asked for and could not have, and which of its steps failed and were survived; why it failed, and the option that would help.

Stand-ins for the commands that fetch and change files run the real ones and note what failed, with the line of the
script, which bash tells. Python notes connections by itself.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import limits, secrets
from vllm_mods.making import sandbox

SITE = "/usr/local/lib/python3.12/dist-packages"
"""Where Python's packages lie in a launcher's container."""
WORKSPACE = "/workspace"
LAUNCHER = "/launcher"
"""The folder of the programs that watch a recorded command."""
BIN = f"{LAUNCHER}/bin"
NO_SCRIPT = "line"
"""Where a script is called that is no file."""
ENVIRON = {"VLLM_MODS_HOME": LAUNCHER, "BASH_ENV": f"{LAUNCHER}/lines.sh"}
"""The variables that the stand-ins need."""
_FETCH = ("curl", "wget", "aria2c", "apt", "apt-get", "hf", "huggingface-cli", "ssh", "scp")
_GPU = ("nvidia-smi",)
_PIP = ("pip", "pip3", "uv")
_PYTHON = ("python", "python3")
_STEPS = ("patch", "git", "cp", "mv", "install", "sed", "perl", "tar", "unzip", "ln", "tee")
_LINE = re.compile(r"(?:.*(?:\\|\|\|)[ \t]*\n)*.*")  # of a script, with those that continue it
_PATCHES = re.compile(r"\b(?:git|patch)\b")
_GOES_ON = re.compile(  # it says so, or adds it to a variable
    r"\|\|\s*(?:\{\s*)?(?:(?:echo|printf|true|:)(?![\w/])"
    r"|\w+(?:=(?:\"[^\"]*\"|\$\(\([^)]*\)\))|\+=[^\s;]*)\s*;?\s*\}?\s*$)"
)
_QUESTIONS = re.compile(r"--(?:dry-run|check|stat|numstat|summary|version|help)\Z")
_GIT_STEPS = {"apply", "am", "cherry-pick", "revert", "checkout", "restore", "reset", "stash"}
_GIT_FETCHES = {"clone", "fetch", "pull", "submodule", "ls-remote"}
_IN_PLACE = re.compile(r"-\w*i|--in-place|inplace")
_INSTALLED = re.compile(
    r"(?!vllm(?![\w.-])|.*\.whl\Z)[A-Za-z0-9][\w.-]*(?:\[[\w, .-]*\])?\s*(?:[=<>!~].*)?\Z"
)
_PIP_VALUES = {
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target", "-c"),
    *("--constraint", "--prefix", "--root", "--python", "-p", "--platform", "--python-version"),
    *("--retries", "--timeout", "--torch-backend", "--index-strategy", "--trusted-host"),
    *("--config-settings", "--cache-dir", "--log", "--index", "--link-mode", "--no-binary"),
    *("--only-binary", "--upgrade-strategy", "--implementation", "--abi", "--progress-bar"),
}
# statements of which none changes a file
_LOOKS = re.compile(r"(?:import|from|print|assert|raise|exit|sys\.exit)\b(?!.*(?:open|write|exec))")
_WRITES = re.compile(
    r"(?<!stdout)(?<!stderr)\.write|\bwrite_|shutil\b|\b(?:rename|replace|remove|unlink)\(|open\([^)\n]*['\"][rb]*[wax+]"
)
"""What Python code has that may change files."""
_IMPORTED = re.compile(r"(?:import|from)\s+(\w+)")
_SHELLS = re.compile(r"_|PWD|OLDPWD|SHLVL|VLLM_MODS_\w+")  # what a shell and the stand-ins set
_PROGRAMS = re.compile(
    r"(?:https?|ftp|all|no)_proxy|(?:PIP|UV|GIT|CURL|WGET|SSL|REQUESTS|APT|DEBIAN|LC)_\w+|PATH|PYTHONPATH"
    r"|LD_LIBRARY_PATH|TMPDIR|LANG|MAX_JOBS|NVCC_\w+|TORCH_CUDA_ARCH_LIST",
    re.IGNORECASE,
)
"""Variables that a script's own programs read, and not vLLM."""
# The last of these that was printed is the reason.
_PRINTED = re.compile(
    r"No module named '(?P<module>\w+)"
    r"|(?P<variable>\w+): (?:unbound variable|parameter (?:not set|null or not set))"
    r"|KeyError: '(?P<key>[A-Z][A-Z0-9_]+)'"
    r"|(?P<program>[\w.-]+): (?:command )?not found"
    r"|(?P<network>Connection refused|Network is unreachable|ould not resolve|name resolution)"
)
_IN_IMAGE = "--image REF names an image that has it"
OF_TREE = "if the script was written for another vLLM, name that vLLM with --tree or --image; the script finds that vLLM at $VLLM_PACKAGE_DIR"
_KEEP = "put the files that the command downloads into the folder that the command runs in"


class WatchedCommand(NamedTuple):
    """A command that was run: how it ended, in which line of which script."""

    code: int
    place: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        whole = " ".join(self.argv[self.argv[0] == "exit" :])
        text = whole.partition("\n")[0]
        text = whole if text == whole and len(text) <= 70 else f"{text[:67]}..."
        return f"{self.place}: `{text}`" if self.place else f"`{text}`"


class Watched(NamedTuple):
    """What was seen of a run.

    ``lacked`` are commands that would have needed what a recording does not give, ``failed`` those that change files
    and failed, ``installed`` what pip was asked for; ``ended`` is the last one of a script that failed, and ``check``
    the one because of which, if it may have been only a check. ``free`` are the patches that the script does without
    where they fail. ``exported`` are the variables that the script exports and does not use itself.
    """

    lacked: tuple[WatchedCommand, ...]
    failed: tuple[WatchedCommand, ...]
    installed: tuple[str, ...]
    ended: WatchedCommand | None
    exported: tuple[tuple[str, str], ...]
    free: tuple[WatchedCommand, ...]
    check: WatchedCommand | None


def lines_that_may_fail(files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the lines of a mod's scripts that put a patch in or say that they do not: ``git apply X || echo skipping``."""
    places: set[str] = set()
    for path, data in files.items():
        script = data.decode("utf-8", "replace") if path.endswith(".sh") else ""
        for line in _LINE.finditer(script):
            text = line[0].replace("\\\n", " ")
            step = _PATCHES.search(text)
            if step and _GOES_ON.search(text, step.end()):
                first = script.count("\n", 0, line.start()) + 1
                numbers = range(first, first + line[0].count("\n") + 1)
                places |= {f"{posixpath.basename(path)}:{number}" for number in numbers}
    return frozenset(places)


def programs() -> dict[str, bytes]:
    """Return the files that watch a command, by their absolute paths."""
    stand_in = sandbox.program("stand_in.sh")
    names = (*_FETCH, *_GPU, *_PIP, *_PYTHON, *_STEPS)
    others = ("sitecustomize.py", "supervise.py", "pip_stand_in.py", "served.py", "lines.sh")
    stand_ins = {f"{BIN}/{name}": stand_in for name in names}
    return stand_ins | {f"{LAUNCHER}/{name}": sandbox.program(name) for name in others}


def read(
    written: Mapping[str, bytes], files: Mapping[str, bytes], given: Mapping[str, str]
) -> Watched:
    """Read what the stand-ins noted, among the files that were written.

    ``files`` are the mod's own, ``given`` the variables that the command was started with.
    """
    noted = tuple(commands(written.get(f"{LAUNCHER}/asked", b"")[: limits.STDERR]))
    may_fail = lines_that_may_fail(files)
    free = [one for one in noted if one.place in may_fail and one.argv[0] in {"git", "patch"}]
    asked = tuple(one for one in noted if one not in free)
    lacked = tuple(dict.fromkeys(one for one in asked if _lacks(one)))
    failed = (one for one in asked if one.code and one not in lacked and _changes(one.argv, files))
    installed = (word for one in asked if one.argv[0] == "pip" for word in _required(one.argv))
    ended = [one for one in asked if one.argv[0] == "exit"]
    exported = written.get(f"{LAUNCHER}/exported", b"")[: limits.STDERR]
    return Watched(
        lacked=lacked,
        failed=tuple(failed),
        installed=tuple(dict.fromkeys(installed)),
        ended=ended[-1] if ended else None,
        exported=tuple(_exported(exported, files, given)),
        free=tuple(free),
        check=_check(asked, files),
    )


def _check(asked: Sequence[WatchedCommand], files: Mapping[str, bytes]) -> WatchedCommand | None:
    """Return the step because of which the scripts ended, None for one that is there to change files.

    That is the last step of the innermost script; where it is ``exit``, the one that failed before it.
    """
    start = len(asked)
    while start and asked[start - 1].argv[0] == "exit":
        start -= 1
    if start == len(asked) or not asked[start].place:
        return None
    cause = end = asked[start]
    before = asked[start - 1] if start else end
    if before.code and (before.place == end.place or end.argv[-1].startswith("exit")):
        cause = before
    if not _changes(cause.argv, files):
        return cause if cause.place else None
    text = " ".join((*cause.argv, *end.argv))
    is_read = end.argv[-1].startswith("exit") and cause.argv[1:] in {(), ("-",)}
    named = (data for path, data in files.items() if posixpath.basename(path) in text)
    codes = (text, *(data.decode("utf-8", "replace") for data in named))
    writes = is_read or any(map(_WRITES.search, codes))  # who knows what it read
    return cause if cause.place and cause.argv[0] in _PYTHON and not writes else None


def commands(log: bytes) -> Iterator[WatchedCommand]:
    """Read a log of the stand-ins."""
    for entry in log.split(b"\0\n"):
        code, place, *argv = [*entry.decode("utf-8", "replace").split("\0"), ""]
        if argv[:-1] and re.fullmatch(r"[0-9]{1,9}", code):
            path, _, line = place.rpartition(":")
            shown = f"{path.rpartition('/')[2] or NO_SCRIPT}:{line}" if line else ""
            yield WatchedCommand(int(code), shown, tuple(argv[:-1]))


def _exported(
    data: bytes, files: Mapping[str, bytes], given: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the variables that a script leaves to vLLM: new ones, that hold no path of the recording."""
    scripts = b"\n".join(text for path, text in files.items() if path.endswith((".sh", ".py")))
    for row in sorted(data.decode("utf-8", "replace").split("\0")):
        name, equals, value = row.partition("=")
        of_shells = _SHELLS.fullmatch(name) or _PROGRAMS.fullmatch(name)
        secret = secrets.NAMED.match(name) or secrets.kind(value)
        own = bool(of_shells or secret) or given.get(name) == value or "\n" in value
        paths = any(place in value for place in (SITE, WORKSPACE, LAUNCHER))
        used = re.search(rb"\$\{?%s\b|['\"]%s['\"]" % ((name.encode(),) * 2), scripts)
        if equals and name.isidentifier() and not (own or paths or used):
            yield name, value


def _lacks(command: WatchedCommand) -> bool:
    name, *words = command.argv
    if name == "pip":
        return words[:1] != ["install"] or [*_named(words)] != [*_required(command.argv)]
    if name in _GPU:
        return True
    if not command.code:
        return False
    fetches = name == "git" and not _GIT_FETCHES.isdisjoint(words)
    return fetches or name == "network" or name in _FETCH


def _named(words: Sequence[str]) -> Iterator[str]:
    """Yield what pip is told to install, and where it is told what."""
    is_value = False
    for word in words[1:]:
        if not (is_value or word.startswith("-")):
            yield word
        is_value = word in _PIP_VALUES


def _required(argv: Sequence[str]) -> Iterator[str]:
    if argv[1:2] == ("install",):
        yield from filter(_INSTALLED.match, _named(argv[1:]))


def _changes(argv: Sequence[str], files: Mapping[str, bytes]) -> bool:
    """Return True if a command is there to change files: it does not only ask."""
    name, *words = argv
    if name in _PYTHON:
        return not (words[:1] == ["-c"] and _only_looks("".join(words[1:2]), files))
    if name == "git" and _GIT_STEPS.isdisjoint(words):
        return False
    if name in {"sed", "perl"} and not any(map(_IN_PLACE.match, words)):
        return False
    return name in _STEPS and not any(map(_QUESTIONS.match, words))


def _only_looks(code: str, files: Mapping[str, bytes]) -> bool:
    """Return True if Python code only imports and prints; to import a module of the mod is to run it."""
    own = {part.removesuffix(".py") for path in files for part in path.split("/")}
    statements = [one.strip() for one in re.split(r"[;\n]", code) if one.strip()]
    return all(_LOOKS.match(one) for one in statements) and own.isdisjoint(_IMPORTED.findall(code))


def hint(output: str, lacked: Sequence[WatchedCommand], *, in_image: bool) -> str:
    """Return what to do about a run that failed; nothing is said of a network that nothing asked for."""
    names = [command.argv[0] for command in lacked]
    printed = [match for match in _PRINTED.finditer(output) if match["program"] not in names]
    if printed:
        module, variable, key, program, network = printed[-1].groups()
        if network:
            return _KEEP
        if name := variable or key:
            return f"the command needs the variable {name}: --env {name}=VALUE"
        if module is None:
            return f"the command needs the program {program}: {_IN_IMAGE}"
        also = "" if in_image else f"--also {module}, with --with for the package's version; or "
        return f"the command needs the package {module}: {also}{_IN_IMAGE}"
    if names and set(names) <= {"nvidia-smi"}:
        return "the sandbox has no GPU: let the script read such values from a variable, and set the variable with --env"
    return _KEEP if names else OF_TREE
