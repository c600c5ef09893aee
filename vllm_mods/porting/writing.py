"""A ported variant into its mod's folder, whole or not at all; and a port that a person has to finish."""

import json
import os
import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.errors import ManifestError, Refused, UsageError, system_errors
from vllm_mods.base.model import FileChange, Mod
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import diff_writer
from vllm_mods.formats.schema import decode
from vllm_mods.library import catalog, mod_folder, reading, writing as library_writing
from vllm_mods.planning import lock_entries
from vllm_mods.porting import follow, outline, structure
from vllm_mods.porting.files import FilePort
from vllm_mods.porting.job import Job, PortOutcome
from vllm_mods.porting.variant import NewVariant

SCHEMA = 1
_PREFIX = ".port-"
_STATE = "port.json"
_MARKERS = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


class Unfinished(NamedTuple):
    """A port that a person has to finish: its origin (``base`` is a version), its ``target`` and its ``folder``.

    ``files`` are pairs of the path in the target and whether the target has that file, ``patches`` the names of patches
    to do away with, ``gone`` the files of the target that the mod removes; ``homes`` are the paths that these files had in the base, ``others``
    the versions of other packages that were named to be beside the target.
    """

    folder: str
    mod: str
    variant: str
    base: str
    name: str
    vllm: str
    target: str
    files: tuple[tuple[str, bool], ...]
    patches: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    homes: Mapping[str, str] = MappingProxyType({})
    others: tuple[tuple[str, str], ...] = ()

    def edited(self, path: str) -> str:
        """Return where the file lies that a person edits."""
        return os.path.join(self.folder, "files", path)

    def theirs(self, path: str) -> str:
        """Return where the target's own file lies."""
        return os.path.join(self.folder, "theirs", path)


def write_files(mod: Mod, files: Mapping[str, bytes]) -> None:
    """Put new files into a mod's folder, or none; the manifest and the lock are replaced.

    Raises ``Refused`` if a file is there already or the folder cannot be written.
    """
    placed = {f"patches/{mod.name}/{name}": data for name, data in files.items()}
    kept = {f"patches/{mod.name}/{name}" for name in (mod_folder.MANIFEST, mod_folder.LOCK)}
    library_writing.replace(catalog.root_of(mod), placed, new=placed.keys() - kept)


def write_variant(job: Job, new: NewVariant) -> tuple[str, ...]:
    """Write a variant, and the target into a mod.lock that is of the mod as it was; return the paths of what was written."""
    files = dict(new.files)
    locked = lock_entries.current(job.mod)
    if locked is not None:
        tree = job.target
        files[mod_folder.LOCK] = lock_entries.extend(
            locked, new.mod, new.planned, tree, tree.version or ""
        )
    write_files(job.mod, files)
    return tuple(os.path.join(job.mod.directory, name) for name in sorted(files))


def lay_out(outcome: PortOutcome) -> Unfinished | None:
    """Lay out what is left to a person, if anything is, and return where.

    What could not be merged is marked as git does, what was merged and would not work lies there as it is. What no
    marker can show (a file, class or function that the target has not got any more) becomes a patch that a person has
    to do away with. Raises ``Refused`` if a port is unfinished already or the folder cannot be written.
    """
    if not outcome.left:
        return None
    job, mod = outcome.job, outcome.job.mod
    if earlier := _begun(mod):
        why = f"{earlier[0]} exists: an earlier port is not finished; nothing was written"
        raise Refused(why, hint=f"vllm-mods port {mod.name} --continue  # or --abort")
    target = job.target.spec  # in another folder too
    target = os.path.abspath(target) if os.path.exists(target) else target
    files: dict[str, bytes] = {}
    edited: list[tuple[str, bool]] = []
    merged = {cut.path: cut.after for cut in outcome.cuts}
    changes = {one.path: one for one in outcome.changes}
    for port in outcome.files:
        if port.ported.text is None and not port.ported.stretches:
            change = changes[port.path]
            patch = diff_writer.file_diff(*change)
            files[f"{os.path.basename(port.path)}.patch"] = patch
            continue
        text = merged.get(port.new_path, port.ported.text)
        if text is None and port.ported.text is None:
            ours = f"{mod.name}, variant {job.variant.id}"
            text = diff3.marked(port.ported.stretches, ours, f"vLLM {outcome.origin}", target)
        if text is not None and port.new_path not in outcome.removed:
            edited.append((port.new_path, port.before is not None))
            files[f"files/{port.new_path}"] = text
            files |= _unmarked(port, changes[port.path], text)
        if port.before is not None:
            files[f"theirs/{port.new_path}"] = port.before
    state = Unfinished(
        folder=os.path.join(mod.directory, f"{_PREFIX}{job.name}"),
        mod=mod.name,
        variant=job.variant.id,
        base=job.base_version,
        name=job.name,
        vllm=job.vllm,
        target=target,
        files=tuple(edited),
        patches=tuple(name for name in files if name.endswith(".patch") and "/" not in name),
        gone=outcome.removed,
        homes=outcome.homes,
        others=job.others,
    )
    raw = {"schema": SCHEMA, **state._asdict()}
    raw.pop("folder")
    files[_STATE] = (json.dumps(raw, indent=1) + "\n").encode()
    library_writing.folder(state.folder, files)
    return state


def _unmarked(port: FilePort, change: FileChange, text: bytes) -> dict[str, bytes]:
    """Return, for each problem of a file that no conflict marker shows, a patch of what the mod changes in that scope."""
    problems = [one for one in port.ported.problems if one.code not in structure.MARKED]
    if not any(line.startswith(_MARKERS) for line in line_diff.split(text)):
        problems = [*port.ported.problems]
    stem = os.path.basename(port.path)
    sides = [outline.read(side or b"") for side in (change.before, change.after)]
    patches = {}
    for problem in problems:
        nodes = [side and follow.definition(side, problem.scope or "") for side in sides]
        texts = [one.text() if one else b"" for one in nodes]
        if not any(texts):
            texts = [change.before or b"", change.after or b""]
        patch = diff_writer.file_diff(port.path, texts[0], texts[1])
        why = f"{problem.scope or port.path}: {problem.message} [{problem.code}]\n"
        name = f"{stem}-{problem.scope}.patch" if problem.scope else f"{stem}.patch"
        patches[name] = why.encode() + patch
    return patches


def unfinished(mod: Mod) -> Unfinished:
    """Read the one port of a mod that is not finished. Raises ``UsageError`` if there is none."""
    ports = _begun(mod)
    if len(ports) != 1:
        what = "no port" if not ports else f"{len(ports)} ports"
        why = f"{what} of {mod.name} {'is' if not ports else 'are'} unfinished in {mod.directory}"
        hint = f"vllm-mods port {mod.name} --to TREE" if not ports else f"rm -r {ports[0]}"
        raise UsageError(why, hint=hint)
    (folder,) = ports
    try:
        data = reading.read(os.path.join(folder, _STATE), mod.directory)
        raw: dict[str, Any] = json_of(data or b"")
        if raw.pop("schema") != SCHEMA:
            raise ValueError("another schema")  # noqa: TRY301
        return decode(Unfinished, {**raw, "folder": folder})
    except (ManifestError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{folder} is not a port that can be continued: {error!r}"
        raise UsageError(why, hint=f"rm -r {folder}") from error


def is_unfinished(name: str) -> bool:
    """Tell whether a folder of a mod is by its name that of an unfinished port."""
    return name.startswith(_PREFIX)


def resolved(work: Unfinished) -> dict[str, tuple[bytes | None, bytes | None]]:
    """Return, by path, the target's file and the edited one, None for one that the mod removes.

    Raises ``Refused`` with every place that is left to do.
    """
    left = [
        f"{os.path.join(work.folder, name)}: move the change to its new place, or drop the change; then delete this file"
        for name in work.patches
        if os.path.lexists(os.path.join(work.folder, name))
    ]
    files: dict[str, tuple[bytes | None, bytes | None]] = {
        path: (reading.read(work.theirs(path), work.folder), None) for path in work.gone
    }
    for path, in_target in work.files:
        data = reading.read(work.edited(path), work.folder)
        if data is None:
            left.append(f"{work.edited(path)}: this file was removed")
            continue
        marked = [n for n, line in enumerate(line_diff.split(data), 1) if line.startswith(_MARKERS)]
        left += [f"{work.edited(path)}:{n}: an unresolved conflict marker" for n in marked]
        before = reading.read(work.theirs(path), work.folder) if in_target else None
        files[path] = (before, data)
    if left:
        lines = "".join(f"\n  {one}" for one in left)
        why = f"{work.mod}: the port to {work.target} is not finished; nothing was written{lines}"
        hint = f"edit the marked lines first, beginning with {left[0].partition(': ')[0]}; then vllm-mods port {work.mod} --continue  # or --abort"
        raise Refused(why, hint=hint)
    return files


def remove(work: Unfinished) -> None:
    """Remove an unfinished port."""
    with system_errors(Refused, f"{work.folder} cannot be removed", hint=f"ls -ld {work.folder}"):
        shutil.rmtree(work.folder)


def _begun(mod: Mod) -> list[str]:
    """Return the folders of ports that are not finished; there is at most one."""
    names = sorted(filter(is_unfinished, os.listdir(mod.directory)))
    return [os.path.join(mod.directory, name) for name in names]
