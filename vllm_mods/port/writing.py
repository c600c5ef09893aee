"""A ported variant into its mod's folder, whole or not at all; and a port that a person has to finish."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import diff_writer
from vllm_mods.library import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vllm_mods.base.model import FileChange, Mod
    from vllm_mods.port.files import FilePort

SCHEMA = 1
_PREFIX = ".port-"
_STATE = "port.json"
_MARKERS = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


class Unfinished(NamedTuple):
    """A port with conflicts: what it is from (``base`` is a version) and to, and where its files lie.

    ``files`` are pairs of the path in the target and whether the target has that file.
    """

    folder: str
    mod: str
    variant: str
    base: str
    name: str
    vllm: str
    target: str
    files: tuple[tuple[str, bool], ...]

    def edited(self, path: str) -> str:
        """Return where the file lies that a person edits."""
        return os.path.join(self.folder, "files", path)

    def theirs(self, path: str) -> str:
        """Return where the target's own file lies."""
        return os.path.join(self.folder, "theirs", path)


def write_files(mod: Mod, files: Mapping[str, bytes]) -> None:
    """Put new files into a mod's folder, the manifest last, or none.

    Raises ``Refused`` if a file is there already or the folder cannot be written.
    """
    directory = mod.directory
    there = [
        name for name in files if _is_new(name) and os.path.lexists(os.path.join(directory, name))
    ]
    if there:
        raise Refused(
            f"{directory}/{there[0]} is there already: nothing was written", hint="--as ID"
        )
    overwrite(mod, files)


def overwrite(mod: Mod, files: Mapping[str, bytes]) -> None:
    """Put files into a mod's folder, the manifest last; all of them, or what was there is put back.

    Raises ``Refused`` if the folder cannot be written.
    """
    before = {name: catalog.read_file(os.path.join(mod.directory, name)) for name in files}
    done: list[str] = []
    made: list[str] = []
    with _refusing(mod.directory):
        try:
            for name in sorted(files, key=lambda name: (not _is_new(name), name)):
                place = os.path.join(mod.directory, name)
                folder = os.path.dirname(place)
                if not os.path.isdir(folder):
                    os.mkdir(folder)
                    made.append(folder)
                done.append(name)
                _replace(place, files[name])
        except BaseException:
            for name in done:
                place = os.path.join(mod.directory, name)
                if (data := before[name]) is None:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(place)
                elif catalog.read_file(place) != data:
                    _replace(place, data)
            for folder in reversed(made):
                os.rmdir(folder)
            raise


def keep(
    mod: Mod, state: Unfinished, ports: Sequence[FilePort], changes: Mapping[str, FileChange]
) -> Unfinished:
    """Lay out what could not be merged, marked as git does, and return where.

    A file of which the target has nothing becomes a patch that a person has to do away with.
    Raises ``Refused`` if a port is unfinished already or the folder cannot be written.
    """
    if earlier := _begun(mod):
        raise Refused(
            f"{earlier[0]} is there: an earlier port is not finished; nothing was written",
            hint=f"vllm-mods port {mod.name} --continue, or --abort",
        )
    with _refusing(mod.directory):
        staged = tempfile.mkdtemp(dir=mod.directory, prefix=".staged-")
        try:
            work = state._replace(folder=staged)
            for one in ports:
                if one.ported.text is None and not one.ported.stretches:
                    change = changes[one.path]
                    patch = diff_writer.file_diff(one.path, change.before, change.after)
                    _put(os.path.join(staged, f"{os.path.basename(one.path)}.patch"), patch)
                    continue
                text = one.ported.text
                if text is None:
                    text = diff3.marked(
                        one.ported.stretches,
                        f"{mod.name}, variant {state.variant}",
                        f"vLLM {state.base}",
                        state.target,
                    )
                _put(work.edited(one.new_path), text)
                if one.before is not None:
                    _put(work.theirs(one.new_path), one.before)
            raw = {"schema": SCHEMA, **state._asdict()}
            raw.pop("folder")
            _put(os.path.join(staged, _STATE), (json.dumps(raw, indent=1) + "\n").encode())
            os.chmod(staged, 0o755)  # noqa: S103  (any other folder has it too)
            os.rename(staged, state.folder)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
    return state


def folder_of(mod: Mod, name: str) -> str:
    """Return where an unfinished port to a variant ``name`` lies."""
    return os.path.join(mod.directory, f"{_PREFIX}{name}")


def unfinished(mod: Mod) -> Unfinished:
    """Read the one port of a mod that is not finished. Raises ``UsageError`` if there is none."""
    found = _begun(mod)
    if len(found) != 1:
        what = "no port" if not found else f"{len(found)} ports"
        raise UsageError(
            f"{what} of {mod.name} {'is' if not found else 'are'} unfinished in {mod.directory}",
            hint=f"vllm-mods port {mod.name} --to TREE" if not found else f"rm -r {found[0]}",
        )
    (folder,) = found
    try:
        with open(os.path.join(folder, _STATE), "rb") as file:
            raw: dict[str, Any] = json.load(file)
        if raw.pop("schema") != SCHEMA:
            raise ValueError("another schema")  # noqa: TRY301
        raw["files"] = tuple((str(path), bool(there)) for path, there in raw["files"])
        return Unfinished(folder=folder, **raw)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} is no port that can go on: {error!r}", hint=f"rm -r {folder}"
        ) from error


def resolved(work: Unfinished) -> dict[str, tuple[bytes | None, bytes]]:
    """Return, by path, the target's file and the edited one.

    Raises ``Refused`` with every place that is left to do.
    """
    left = [
        f"{os.path.join(work.folder, name)}: put it where it belongs now, or decide that it is not "
        "needed; then delete this file"
        for name in sorted(os.listdir(work.folder))
        if name.endswith(".patch")
    ]
    found: dict[str, tuple[bytes | None, bytes]] = {}
    for path, there in work.files:
        data = catalog.read_file(work.edited(path))
        if data is None:
            left.append(f"{work.edited(path)} is gone")
            continue
        left += [
            f"{work.edited(path)}:{n}: a conflict marker"
            for n, line in enumerate(line_diff.split(data), 1)
            if line.startswith(_MARKERS)
        ]
        before = catalog.read_file(work.theirs(path)) if there else None
        found[path] = (before, data)
    if left:
        lines = "".join(f"\n  {one}" for one in left)
        raise Refused(
            f"{work.mod}: the port to {work.target} is not finished; nothing was written{lines}",
            hint=f"vllm-mods port {work.mod} --continue  # or --abort",
        )
    return found


def remove(work: Unfinished) -> None:
    """Do away with an unfinished port."""
    with _refusing(work.folder):
        shutil.rmtree(work.folder)


def _begun(mod: Mod) -> list[str]:
    """Return the folders of ports that are not finished; there is at most one."""
    names = sorted(os.listdir(mod.directory))
    return [os.path.join(mod.directory, name) for name in names if name.startswith(_PREFIX)]


def _is_new(name: str) -> bool:
    return name not in {catalog.MANIFEST, catalog.LOCK}


def _put(place: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as file:
        file.write(data)


def _replace(place: str, data: bytes) -> None:
    staged = f"{place}.{os.getpid()}"
    file = open(staged, "xb")  # noqa: SIM115  (never through a link that somebody put there)
    try:
        with file:
            file.write(data)
        os.replace(staged, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)


@contextlib.contextmanager
def _refusing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(
            f"{place} cannot be written: {error.strerror}; nothing was changed",
            hint="--output DIR writes a copy of the mod there",
        ) from error
