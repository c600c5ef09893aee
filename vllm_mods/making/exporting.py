"""A mod as a folder that launchers run: a library that holds it, and a ``run.sh`` that has vllm-mods apply it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.library import mod_folder, packed_mod, trust

_RUN = """\
#!/bin/sh
# Written by `vllm-mods export`: puts the mod beside it into this container's vLLM, whole or not at all.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${VLLM_SITE_PACKAGES:-${PYTHON_ROOT:-${VLLM_PACKAGE_DIR:-}}}
command -v vllm-mods >/dev/null || python3 -m pip install --quiet "$here"/vllm_mods-*.whl
exec vllm-mods apply %s ${target:+--target "$target"}
"""


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
    return {"run.sh": script(mods[-1].name, is_library=bool(files)), **files}


def script(name: str, *, is_library: bool = True) -> bytes:
    """Return the ``run.sh`` that puts in a mod, of the folder itself where that is a library."""
    words = f'{name} --library "$here"' if is_library else name
    return (_RUN % words).encode()


def exported_mod(files: Mapping[str, bytes]) -> tuple[Mod, dict[str, bytes]] | None:
    """Return the mod in a folder whose ``run.sh`` is the one of ``export``, and its files; None for any other folder.

    Raises ``UsageError`` where the mod is a bundled one.
    """
    text = files["run.sh"].decode("utf-8", "replace")
    name = re.search(r"vllm-mods apply ([a-z0-9._-]+) ", text)
    scripts = (script(name[1], is_library=one) for one in (True, False)) if name else ()
    if name is None or files["run.sh"] not in scripts:
        return None
    start = f"patches/{name[1]}/"
    own = {path.removeprefix(start): data for path, data in files.items() if path.startswith(start)}
    if not own:
        raise UsageError(
            f"this folder puts in `{name[1]}`, which comes with vllm-mods",
            hint=f"vllm-mods show {name[1]}",
        )
    return mod_folder.load_files(name[1], own), own
