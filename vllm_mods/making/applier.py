"""Puts one mod into an installed vLLM: every file whole and known by its hash, or nothing.

This file stands alone in a mod's folder for a launcher, beside ``states.json``, and needs Python 3.8 and
nothing else. It was written there by ``vllm-mods export`` and is not to be edited: the states of vLLM
that it takes are in ``states.json``, each with the sha256 of every file before and after.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import stat
import sys
import tempfile
from typing import Any, NamedTuple

REFUSED = 3
NOT_RESTORED = 4


class Refusal(Exception):
    """Why nothing was changed."""


class Change(NamedTuple):
    """A file's place, its bytes and mode before, and its bytes after; None for no file."""

    path: str
    before: bytes | None
    mode: int
    after: bytes | None


def main() -> int:
    """Put the mod in, or say why not."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "states.json"), encoding="utf-8") as file:
        mod = json.load(file)
    label = f"{mod['mod']} {mod['version']}"
    try:
        done = run(mod, here)
    except (Refusal, OSError) as error:
        sys.stderr.write(f"{label}: refused, nothing was changed: {error}\n")
        return REFUSED
    except RuntimeError as error:
        sys.stderr.write(f"{label}: {error}\n")
        return NOT_RESTORED
    sys.stdout.write(f"{label}: {done}\n")
    return 0


def run(mod: dict[str, Any], here: str) -> str:
    """Find the state that the tree is in, and put the mod in. Raises ``Refusal``."""
    root = site_root()
    found = {
        file["path"]: read(place(root, file["path"]))
        for state in mod["states"]
        for file in state["files"]
    }
    for state in mod["states"]:
        if is_in(state, "before", found) and beside(root, state) in state["witness"]:
            changes = [change(root, here, file, found[file["path"]]) for file in state["files"]]
            write(changes)
            return f"{len(changes)} file{'s' * (len(changes) != 1)} changed in {root}"
    if any(is_in(state, "after", found) for state in mod["states"]):
        return f"is in already in {root}"
    raise Refusal(unknown(mod, root, found))


def site_root() -> str:
    """Return the folder that holds vllm/, by the launcher's variables, else by what Python finds."""
    package = os.environ.get("VLLM_PACKAGE_DIR")
    named = [
        ("VLLM_SITE_PACKAGES", os.environ.get("VLLM_SITE_PACKAGES")),
        ("PYTHON_ROOT", os.environ.get("PYTHON_ROOT")),
        ("VLLM_PACKAGE_DIR", os.path.dirname(package.rstrip("/")) if package else None),
    ]
    for name, root in named:
        if root:
            if not os.path.isfile(os.path.join(root, "vllm", "__init__.py")):
                raise Refusal(f"{name} says that vLLM is in {root}, and it is not")
            return os.path.realpath(root)
    spec = importlib.util.find_spec("vllm")  # imports nothing
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if len(places) != 1:
        raise Refusal(f"{sys.executable} finds no vLLM: set VLLM_SITE_PACKAGES")
    return os.path.realpath(os.path.dirname(places[0]))


def place(root: str, path: str) -> str:
    """Return where a file lies: below the site root, or a chat template in the workspace."""
    prefix = ".vllm-mods/templates/"
    if not path.startswith(prefix):
        return os.path.join(root, path)
    workspace = os.environ.get("WORKSPACE_DIR")
    if not workspace:
        raise Refusal("WORKSPACE_DIR does not say where chat templates go")
    return os.path.join(workspace, path[len(prefix) :])


def read(path: str) -> bytes | None:
    """Return a file's bytes, None if there is none. Raises ``Refusal`` for what is not a plain file."""
    if os.path.realpath(path) != os.path.join(
        os.path.realpath(os.path.dirname(path)), os.path.basename(path)
    ):
        raise Refusal(f"{path} is a symbolic link")
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def sha256(data: bytes | None) -> str | None:
    """Return the hexadecimal sha256, None for no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def is_in(state: dict[str, Any], side: str, found: dict[str, bytes | None]) -> bool:
    """Tell whether every file of a state is as it was before, or after."""
    return all(sha256(found[file["path"]]) == file[side] for file in state["files"])


def beside(root: str, state: dict[str, Any]) -> str:
    """Return one digest of the files that the changed ones rest on."""
    lines = [f"{path} {sha256(read(os.path.join(root, path)))}\n" for path in state["beside"]]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def unknown(mod: dict[str, Any], root: str, found: dict[str, bytes | None]) -> str:
    """Say which files are in no known state."""
    known = [name for state in mod["states"] for name in state["vllm"]]
    told = f"{root} is none of the vLLMs that this was made for ({', '.join(known)})"
    if any(is_in(state, "before", found) for state in mod["states"]):
        return f"{told}: the files to be changed are known, and others that they need are not"
    for path, data in sorted(found.items()):
        sides: dict[str | None, str] = {}
        for state in mod["states"]:
            for file in state["files"]:
                if file["path"] == path:
                    sides.setdefault(file["after"], "changed already")
                    sides.setdefault(file["before"], "as released")
        what = "is not there" if data is None else f"has sha256 {sha256(data)}"
        told += f"\n  {path} {what}: {sides.get(sha256(data), 'known of no release')}"
    return told


def change(root: str, here: str, file: dict[str, Any], before: bytes | None) -> Change:
    """Make the new bytes of a file, and hold them against their hash."""
    path = place(root, file["path"])
    after: bytes | None = None
    if file["content"] is not None:
        after = read(os.path.join(here, *file["content"].split("/")))
    elif file["after"] is not None:
        after = before or b""
        for hunks in file["passes"]:
            after = spliced(after, hunks)
    if sha256(after) != file["after"]:
        raise Refusal(f"{file['path']} would not become what it should: this folder is damaged")
    mode = stat.S_IMODE(os.stat(path).st_mode) if before is not None else 0o644
    return Change(path, before, mode, after)


def spliced(data: bytes, hunks: list[Any]) -> bytes:
    """Put lines in: each hunk is a 1-based line, how many lines go, and the text that comes."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    for line, gone, text in sorted(hunks, reverse=True):
        lines[line - 1 : line - 1 + gone] = [text.encode("utf-8", "surrogateescape")]
    return b"".join(lines)


def write(changes: list[Change]) -> None:
    """Write every file, or put back those that were written. Raises ``Refusal``."""
    done: list[Change] = []
    made: list[str] = []
    try:
        for one in changes:
            made += folders(os.path.dirname(one.path))
            done.append(one)
            put(one.path, one.after, one.mode)
        for one in changes:
            if read(one.path) != one.after:
                raise Refusal(f"{one.path} is not what was written")  # noqa: TRY301
            clear_bytecode(one.path)
    except BaseException as error:
        try:
            for one in reversed(done):
                put(one.path, one.before, one.mode)
            for folder in reversed(made):
                os.rmdir(folder)
        except OSError as second:
            changed = ", ".join(one.path for one in done)
            raise RuntimeError(
                f"{error}; and not all could be put back: {second}: {changed}"
            ) from error
        raise


def folders(path: str) -> list[str]:
    """Make the folders that are missing, and return them."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder)
    return missing[::-1]


def put(path: str, data: bytes | None, mode: int) -> None:
    """Put a file in its place at once; None takes it away."""
    if data is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    descriptor, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".vllm-mods-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(staged, mode)
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        raise


def clear_bytecode(source: str) -> None:
    """Remove what interpreters keep of a source (PEP 3147): it may be run in its place."""
    folder, name = os.path.split(source)
    cache = os.path.join(folder, "__pycache__")
    if not name.endswith(".py") or not os.path.isdir(cache):
        return
    kept = re.compile(re.escape(name[:-2]) + r"[A-Za-z_]+-?\d.*\.pyc\Z")
    for one in os.listdir(cache):
        if kept.match(one):
            os.unlink(os.path.join(cache, one))


if __name__ == "__main__":
    sys.exit(main())
