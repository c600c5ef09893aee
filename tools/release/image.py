"""The container image of the tool: on a base with a Python, one layer more, for each processor; nothing is run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from vllm_mods.building import layer, oci, tarball
from vllm_mods.building.outputs.files import layout
from vllm_mods.images.model import Base
from vllm_mods.images.open import open_base

PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
"""What uv and an image call them."""
USER = 65532
"""Who a container is, unless one says otherwise: nobody that a base knows."""
_TITLE = "org.opencontainers.image"
_LIBRARY = re.compile(r"(usr/local/lib/python(3\.\d+))/os\.py")


def open_bases(reference: str, stack: ExitStack) -> dict[str, Base]:
    """Open the image of each processor; ``stack`` closes them."""
    return {
        machine: stack.enter_context(closing(open_base(reference, platform=f"linux/{name}")))
        for machine, name in PROCESSORS.items()
    }


def site_of(base: Base) -> tuple[str, str]:
    """Return where a base's Python looks for packages, and which Python that is.

    Raises ``SystemExit`` if there is none.
    """
    for one in base.paths("usr/local/lib"):
        if found := _LIBRARY.fullmatch(one.path):
            return f"{found[1]}/site-packages", found[2]
    raise SystemExit(f"error: {base.reference}: no Python in /usr/local")


def write(
    bases: Mapping[str, Base],
    files: Callable[[str], Mapping[str, bytes]],
    folder: Path,
    *,
    checker: Callable[[str], bytes],
    version: str,
    revision: str,
    epoch: int,
) -> str:
    """Write an OCI layout with an index of all processors, and return the index's digest.

    ``files`` tells what is installed for a processor, ``checker`` is the type checker's program for it. The same bases and files give the same bytes.
    """
    images = []
    for machine, base in bases.items():
        site, _ = site_of(base)
        nodes = [
            tarball.TarEntry(f"{site}/{path}", data, 0o644, epoch)
            for path, data in files(machine).items()
        ]
        found = json.loads(base.config)
        settings = found.get("config") or {}
        found["config"] = {
            **settings,
            "User": f"{USER}:{USER}",
            "Entrypoint": ["python3", "-P", "-m", "vllm_mods"],
            "Cmd": ["--help"],
            "WorkingDir": "/work",
            # A home for whoever it is run as; what is kept there is gone with the container.
            "Env": [*settings.get("Env", ()), "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
        }
        labels = {
            f"{_TITLE}.title": "vllm-mods",
            f"{_TITLE}.version": version,
            f"{_TITLE}.revision": revision,
            f"{_TITLE}.licenses": "Apache-2.0",
            f"{_TITLE}.created": oci.timestamp(epoch),
            f"{_TITLE}.base.name": base.reference.removeprefix("registry:"),
            f"{_TITLE}.base.digest": base.manifest_digest or "",
        }
        nodes.append(tarball.TarEntry("usr/local/bin/ty", checker(machine), 0o755, epoch))
        nodes.append(tarball.TarEntry("work", None, 0o755, epoch))
        image = oci.append(
            found,
            base.layers,
            tarball.write(layer.entries(base, nodes, (), epoch=epoch)),
            created_by=f"vllm-mods {version}",
            labels=labels,
            epoch=epoch,
        )
        images.append((image, base))
    layout(images, str(folder), f"vllm-mods:{version}")
    index = json.loads((folder / "index.json").read_bytes())
    return str(index["manifests"][0]["digest"])
