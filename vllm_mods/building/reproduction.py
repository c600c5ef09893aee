"""Building once more under other conditions: what must not show in an image is changed on purpose.

Where two images differ that should be the same is told down to the file in the layer.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import Refused

_SHOWN = 24


class Conditions(NamedTuple):
    """What a build runs under. The folder for temporary files is another one each time too."""

    umask: int
    environment: Mapping[str, str]


CONDITIONS = (
    Conditions(0o077, {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    Conditions(0o000, {"TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4242"}),
)


def build_again(arguments: Sequence[str], made: bytes) -> None:
    """Run ``vllm-mods`` with these arguments and ``--afresh FILE``; compare with ``made``.

    Twice, in processes of their own. Raises ``Refused`` if one gives another image, and says where.
    """
    for n, conditions in enumerate(CONDITIONS, start=1):
        with tempfile.TemporaryDirectory(prefix=f"vllm-mods-again-{n}-") as folder:
            other = _built(arguments, conditions, folder)
        found = differences(made, other)
        if found:
            under = " ".join(f"{key}={value}" for key, value in conditions.environment.items())
            lines = "".join(f"\n  {line}" for line in found)
            raise Refused(
                f"built again under umask {conditions.umask:03o} {under}, the image is another; "
                f"nothing was written{lines}",
                hint="report it with these lines: it is a bug in vllm-mods, or the base moved",
            )


def _built(arguments: Sequence[str], conditions: Conditions, folder: str) -> bytes:
    place = os.path.join(folder, "image.tar")
    # Python's own module search must not find another vllm_mods in the new folder, nor lose this one.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vllm_mods", *arguments, "--afresh", place],
        cwd=folder,
        umask=conditions.umask,
        env={**os.environ, **conditions.environment, "PYTHONPATH": path, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(
            f"building again failed ({done.returncode}); nothing was written\n{done.stderr.strip()}",
            hint="the first build worked: run the command again",
        )
    with open(place, "rb") as file:
        return file.read()


def differences(one: bytes, other: bytes) -> tuple[str, ...]:
    """Return a line for each place in which two thin archives differ; none if they do not."""
    if one == other:
        return ()
    (config, layer), (other_config, other_layer) = _image(one), _image(other)
    lines = [*_values(config, other_config), *_members(layer, other_layer)]
    return tuple(lines) or ("the archives around the same configuration and layer",)


def _image(archive: bytes) -> tuple[bytes, bytes]:
    """Return the configuration and the layer that a thin archive holds."""
    files = {name: data for name, (_, data) in _read(archive).items()}
    (entry,) = json.loads(files["manifest.json"])
    return files[entry["Config"]], files[entry["Layers"][-1]]


def _values(one: bytes, other: bytes) -> Iterator[str]:
    before, after = json.loads(one), json.loads(other)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"config: {key}: {before.get(key)} and {after.get(key)}"


def _members(one: bytes, other: bytes) -> Iterator[str]:
    before, after = _read(one), _read(other)
    for path in sorted(before.keys() | after.keys()):
        if path not in before or path not in after:
            yield f"layer: {path}: only in {'the second' if path not in before else 'the first'}"
            continue
        (head, data), (other_head, other_data) = before[path], after[path]
        for key, value in head.items():
            if value != other_head[key]:
                yield f"layer: {path}: {key} {value} and {other_head[key]}"
        if data != other_data:
            at = next(
                (n for n, (x, y) in enumerate(zip(data, other_data, strict=False)) if x != y),
                min(len(data), len(other_data)),
            )
            yield (
                f"layer: {path}: byte {at}: {data[at : at + _SHOWN]!r} and "
                f"{other_data[at : at + _SHOWN]!r}"
            )
    if before == after and list(before) != list(after):
        yield "layer: the order of its files"


def _read(archive: bytes) -> dict[str, tuple[dict[str, str], bytes]]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened:
            file = opened.extractfile(member)
            head = {
                "mode": f"{member.mode:04o}",
                "owner": f"{member.uid}:{member.gid}",
                "time": str(int(member.mtime)),
                "kind": "folder" if member.isdir() else "file",
            }
            found[member.name] = (head, file.read() if file is not None else b"")
    return found
