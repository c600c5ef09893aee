"""A Dockerfile read as the mod that its last stage is: what it copies and runs, and nothing run."""

from __future__ import annotations

import contextlib
import posixpath
import re

from vllm_mods.making.effects import Effect, ScriptPlace, in_site, is_template
from vllm_mods.making.reading import ReadShell
from vllm_mods.making.shell_state import EndedError
from vllm_mods.scripts import bash, dockerfile
from vllm_mods.scripts.dockerfile import Instruction

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
_PASSED_OVER = {
    *("CMD", "ENTRYPOINT", "LABEL", "EXPOSE", "USER", "HEALTHCHECK", "STOPSIGNAL", "VOLUME"),
    *("MAINTAINER", "SHELL", "ONBUILD"),
}


def read(shell: ReadShell, text: str, name: str) -> tuple[Effect, ...]:
    """Read the Dockerfile called ``name``; its build's folder is the shell's home. Raises ``BashError``."""
    shell.file, shell.cwd = name, None
    brought: list[tuple[ScriptPlace, str, list[str]]] = []
    for one in dockerfile.last_stage(dockerfile.read(text)):
        place = shell.here = ScriptPlace(name, one.line)
        if one.name == "RUN":
            _run(shell, one)
        elif one.name in {"ENV", "ARG"}:
            _set(shell, one)
        elif one.name == "WORKDIR":
            where = _filled(shell, one.text.strip())
            shell.cwd = None if where is None else shell.path(where)
        elif one.name in {"COPY", "ADD"}:
            brought.append((place, one.text, _copy(shell, one, place)))
        elif one.name not in _PASSED_OVER:
            shell.left(place, one.name, "this instruction is not known")
    for place, said, paths in brought:
        if paths and shell.taken.isdisjoint(paths):
            why = f"a mod changes Python packages and brings chat templates, and {paths[0]} is neither"
            shell.left(place, said, why)
    return tuple(shell.effects)


def _run(shell: ReadShell, one: Instruction) -> None:
    """Run a script in a shell of its own; a mount shows a part of the build's folder."""
    inner = shell.subshell()
    inner.errexit = inner.pipefail = False
    inner.set_flags(one.shell[1:])
    mounts = [dockerfile.bound(value) for flag, value in one.flags if flag == "mount"]
    for source, target in filter(None, mounts):
        for path, data in _sources(shell, source).items():
            inner.files[posixpath.join(target, path).rstrip("/")] = data
    with contextlib.suppress(EndedError):
        inner.run(bash.read(one.text).body)


def _set(shell: ReadShell, one: Instruction) -> None:
    words = dockerfile.operands(one)
    if one.name == "ENV" and words and "=" not in words[0]:
        words = (f"{words[0]}={' '.join(words[1:])}",)
    for word in words:
        name, equals, value = word.partition("=")
        if equals or one.name == "ENV":
            known = shell.variables[name] = _filled(shell, value)
            if one.name == "ENV":
                shell.export(shell.here, name, known, value)


def _copy(shell: ReadShell, one: Instruction, place: ScriptPlace) -> list[str]:
    """Copy out of the build's folder, and return what lies where no mod brings anything."""
    words = [_filled(shell, word) for word in dockerfile.operands(one)]
    target = shell.path(words[-1] or "") if words and words[-1] else None
    if "from" in dict(one.flags) or None in words or target is None or len(words) < 2:
        shell.left(place, one.text, "what is copied, or to where, is not known")
        return []
    folder = str(words[-1]).endswith(("/", "/.")) or len(words) > 2 or shell.is_folder(target)
    elsewhere = []
    for word in map(str, words[:-1]):
        found = _sources(shell, word)
        if not found:
            shell.left(place, one.text, f"{word} is not in the folder that is built")
        for path, data in found.items():
            whole = posixpath.join(target, path)
            if not path:  # a file by its own name
                named = folder if folder is not None else "." not in posixpath.basename(target)
                whole = posixpath.join(target, posixpath.basename(word)) if named else target
            if in_site(whole) or is_template(whole):
                shell.write(place, one.text, whole, data)
            else:
                shell.files[whole] = data
                elsewhere.append(whole)
    return elsewhere


def _sources(shell: ReadShell, word: str) -> dict[str, bytes | None]:
    """Return a file of the build's folder (as ``""``), or those below one of its folders."""
    start = posixpath.normpath(f"{shell.home}/{word.lstrip('/')}")
    if start in shell.files:
        return {"": shell.files[start]}
    return {path.removeprefix(f"{start}/"): data for path, data in shell.below(start).items()}


def _filled(shell: ReadShell, text: str) -> str | None:
    """Fill in variables; None where one is not known."""
    unknown = []

    def value(match: re.Match[str]) -> str:
        known = shell.variables.get(match[1] or match[2])
        if known is None and match[3] is None:
            unknown.append(match[0])
        return known if known is not None else match[3] or ""

    filled = _VARIABLE.sub(value, text)
    return None if unknown else filled
