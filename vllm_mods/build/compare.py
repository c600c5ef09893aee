"""Where two images differ that should be the same: down to the file in the layer. Pure."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator

_SHOWN = 24


def differences(one: bytes, other: bytes) -> tuple[str, ...]:
    """Return a line for each place in which two thin archives differ; none if they do not."""
    if one == other:
        return ()
    first, second = _image(one), _image(other)
    lines = [*_metadata("config", first, second), *_members(first["layer"], second["layer"])]
    return tuple(lines) or ("the archives around the same configuration and layer",)


def _image(archive: bytes) -> dict[str, bytes]:
    """Return the configuration and the layer that a thin archive holds."""
    files = {name: data for name, (_, data) in _read(archive).items()}
    (entry,) = json.loads(files["manifest.json"])
    return {"config": files[entry["Config"]], "layer": files[entry["Layers"][-1]]}


def _metadata(name: str, one: dict[str, bytes], other: dict[str, bytes]) -> Iterator[str]:
    before, after = json.loads(one[name]), json.loads(other[name])
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"{name}: {key}: {before.get(key)} and {after.get(key)}"


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
