"""The corpus as a library of mods, and its releases as wheels: what a map of it is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from package_server import make_wheel

from corpus.importing import made_of
from corpus.releases import RELEASES
from vllm_mods.base.errors import Refused
from vllm_mods.making.compose import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write(scripts: Mapping[str, dict[str, str]], folder: Path) -> Iterable[str]:
    """Write ``patches`` and ``wheels`` into a folder; yield the names of the mods."""
    (folder / "wheels").mkdir(parents=True)
    for version, files in RELEASES.items():
        wheel = make_wheel(files, version=version, bulk={})
        (folder / f"wheels/vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl").write_bytes(wheel)
    for name, script in scripts.items():
        try:
            made = made_of(script, Wanted(slug(name), name.capitalize(), "Apache-2.0"))
        except Refused:
            continue  # `python -m corpus` says why
        for path, data in made.files.items():
            place = folder / "patches" / slug(name) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield slug(name)
