"""A folder to build from with any builder: the layer, and a Dockerfile that a person can read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_mods.base.errors import Refused
from vllm_mods.base.output import write_folder
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs.files import refusing
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.images import names
from vllm_mods.images.model import Base


def write(built: BuiltImage, base: Base, lock: PairingLock, folder: str) -> None:
    """Make a folder with a Dockerfile and its context. Raises ``Refused`` if there is one already."""
    if os.path.lexists(folder) and os.listdir(folder):
        raise Refused(
            f"{folder} is there and not empty; nothing was written", hint=f"rm -r {folder}"
        )
    folder = os.path.abspath(folder)
    with refusing(folder):
        text = _text(base, lock, built.annotations)
        write_folder(folder, {"Dockerfile": text.encode(), "layer.tar": built.layer})


def _text(base: Base, lock: PairingLock, labels: Mapping[str, str]) -> str:
    # The name that it has where it lies; a layout's or an archive's means nothing to a builder.
    is_file = base.where in {"oci-layout", "archive"}
    named = lock.base.ref if is_file else names.plain(base.reference)
    if base.where == "registry" and base.manifest_digest is not None:
        named = f"{named.partition('@')[0]}@{base.manifest_digest}"
    lines = [
        f"# pairing {lock.pairing} on vLLM {lock.vllm.version}, made by {lock.tool}",
        f"# base: configuration {lock.base.config}",
        f"FROM {named}",
        "# changed files, receipt and lock; the archive hides bytecode of the old sources",
        "ADD layer.tar /",
        *(f"LABEL {key}={_quoted(value)}" for key, value in sorted(labels.items())),
        *(_settings(lock.image.config["config"]) if lock.image is not None else ()),
    ]
    return "\n".join(lines) + "\n"


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what makes a builder's image serve as ours does; the base's own settings come with it."""
    for one in config.get("Env") or ():
        name, _, value = one.partition("=")
        yield f"ENV {name}={_quoted(value)}"
    yield from (f"EXPOSE {port}" for port in config.get("ExposedPorts") or ())
    yield f"STOPSIGNAL {config['StopSignal']}"
    if health := config.get("Healthcheck"):
        times = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}
        options = " ".join(f"--{key}={health[name] // 10**9}s" for key, name in times.items())
        yield f"HEALTHCHECK {options} --retries={health['Retries']} CMD {json.dumps(health['Test'][1:])}"
    yield f"ENTRYPOINT {json.dumps(config['Entrypoint'])}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("$", "\\$")
