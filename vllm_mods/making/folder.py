"""A mod as people pass it on: a folder or a zip, with a ``run.sh`` or a ``mod.toml`` at its root.

One that is exported is a library that holds the mod, and a ``run.sh`` that has vllm-mods apply it.
"""

import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.library import mod_folder, packed_mod, reading, trust
from vllm_mods.trees import archive

SCRIPT = "run.sh"
_SKIPPED = {".git", "__pycache__"}
_RUN = """\
#!/bin/sh
# Written by `vllm-mods export`: puts the mod beside it into this container's vLLM, whole or not at all.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${VLLM_SITE_PACKAGES:-${PYTHON_ROOT:-${VLLM_PACKAGE_DIR:-}}}
command -v vllm-mods >/dev/null || python3 -m pip install --quiet "$here"/vllm_mods-*.whl
exec vllm-mods apply %s ${target:+--target "$target"}
"""


class ModSource(NamedTuple):
    """A mod's name, and its files by path: a ``run.sh`` among them, or a ``mod.toml``."""

    name: str
    files: dict[str, bytes]


def read(path: str) -> ModSource:
    """Read a mod folder or zip whole.

    Raises ``UsageError`` for what cannot be read, is no mod, holds links or too much, or would be unpacked
    outside of its folder.
    """
    is_folder = os.path.isdir(path)
    name = os.path.basename(os.path.abspath(path))
    own = f"name only the folder of the mod, if {path} has more in it"
    files = _files_in(path, own, needs_all=True) if is_folder else _zipped(path, own)
    if SCRIPT not in files and mod_folder.MANIFEST not in files:
        hint = f"ls {shlex.quote(path)}  # a mod has a run.sh or a mod.toml; a recipe is a .yaml"
        if below := sorted(one for one in files if one.endswith(f"/{SCRIPT}")):
            hint = f"{path} has {below[0]}: name the folder of that file, or pack only that folder's files"
        elif patches := sorted(one for one in files if one.endswith((".patch", ".diff"))):
            hint = f"vllm-mods new NAME --from-diff {path}/{patches[0]} --tree TREE"
        elif "Dockerfile" in files:
            hint = "docker build; then vllm-mods new NAME --from-trees image:BASE image:BUILT"
        raise UsageError(f"{path} has no {SCRIPT} at its root", hint=hint)
    return ModSource(name if is_folder else name.removesuffix(".zip"), files)


def read_working_folder(folder: str) -> dict[str, bytes]:
    """Read the folder that a command needs, links and bytecode left out.

    Raises ``UsageError`` for one that cannot be read, or holds more than a mod does.
    """
    hint = "run the command from a folder that contains only what it needs"
    return _files_in(folder, hint, needs_all=False)


def _files_in(path: str, hint: str, *, needs_all: bool) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    size = 0
    try:
        for name in reading.paths_below(path, _SKIPPED.__contains__):
            place = os.path.join(path, name)
            info = os.lstat(place)
            is_plain = stat.S_ISREG(info.st_mode)
            if not needs_all and (place.endswith(".pyc") or not is_plain):
                continue
            if not is_plain:
                what = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "not a regular file"
                why = f"{place} is {what}, which a mod cannot contain"
                hint = f"replace it by the file itself: cp --remove-destination $(readlink -f {place}) {place}"
                raise UsageError(why, hint=hint)
            size += info.st_size
            _check_size(path, len(files) + 1, size, hint)
            files[name] = reading.read(place, path) or b""
    except OSError as error:
        why = f"{error.filename or path} cannot be read: {error.strerror}"
        raise UsageError(why, hint=f"ls -lR {path}") from error
    return files


def _zipped(path: str, hint: str) -> dict[str, bytes]:
    try:
        with archive.reading(path):
            zipped = archive.ZipArchive(open(path, "rb"), label=path)  # noqa: SIM115  (taken over)
        sizes = [info.file_size for info in zipped.infos.values()]
        _check_size(path, len(sizes), sum(sizes), hint)
        return {name: zipped.read(name) or b"" for name in zipped.infos}
    except TreeError as error:
        raise UsageError(error.message, hint=f"unzip -l {path}") from error


def _check_size(path: str, files: int, size: int, hint: str) -> None:
    if files > limits.MOD_FILES or size > limits.MOD_BYTES:
        why = f"{path} has {files:,} files or more ({size >> 20} MiB unpacked), more than is copied for the command: the limit is {limits.MOD_FILES} and {limits.MOD_BYTES}"
        raise UsageError(why, hint=hint)


def export(mods: Sequence[Mod]) -> dict[str, bytes]:
    """Return the files of a folder that puts in the last mod, with those before it that it requires.

    A bundled mod comes with vllm-mods, and the folder has no copy. Raises ``Refused`` for a mod that is not trusted.
    """
    trust.demand(mods)
    bundled = os.path.join(mod_folder.data_root(), "patches")
    files: dict[str, bytes] = {}
    for mod in mods:
        if os.path.dirname(mod.directory) == bundled:
            continue
        own = packed_mod.files_of(mod).items()
        files |= {f"patches/{mod.name}/{name}": data for name, data in own}
    return {SCRIPT: run_script(mods[-1].name, is_library=bool(files)), **files}


def run_script(name: str, *, is_library: bool = True) -> bytes:
    """Return the ``run.sh`` that puts in a mod, of the folder itself where that is a library."""
    words = f'{name} --library "$here"' if is_library else name
    return (_RUN % words).encode()


def exported_mod(files: Mapping[str, bytes]) -> tuple[Mod, dict[str, bytes]] | None:
    """Return the mod in a folder whose ``run.sh`` is the one of ``export``, and its files; None for any other folder.

    Raises ``UsageError`` where the mod is a bundled one.
    """
    name = re.search(r"vllm-mods apply ([a-z0-9._-]+) ", files[SCRIPT].decode("utf-8", "replace"))
    scripts = (run_script(name[1], is_library=one) for one in (True, False)) if name else ()
    if name is None or files[SCRIPT] not in scripts:
        return None
    start = f"patches/{name[1]}/"
    own = {path.removeprefix(start): data for path, data in files.items() if path.startswith(start)}
    if not own:
        why = f"this folder applies `{name[1]}`, which is bundled with vllm-mods"
        raise UsageError(why, hint=f"vllm-mods show {name[1]}")
    return mod_folder.load_files(name[1], own), own
