"""Whether an image is the very one that a lock makes, and where it is not, in words.

A lock lists every entry of the one layer that comes on top, and every setting. So the layer's tar and the
configuration can be written again from the image's own files, byte for byte: what has another digest is
another image, whatever the files that somebody thought of looking at say.

Nor may manifest and index say anything that engines read differently: a key of another spelling (Go reads
``Layers`` as ``layers``), an address for a layer, a second description of how it is unpacked.
"""

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vllm_mods.base.digest import sha256
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.building import building, oci, tarball
from vllm_mods.building.layer import WHITEOUT
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import LockedEntry, PairingLock
from vllm_mods.images.layer import Layer, LayeredImage
from vllm_mods.images.model import DIR, FILE, Base, digest_of, environment
from vllm_mods.images.oci import INDEXES, MANIFESTS, Index

_CONFIGS = (oci.CONFIG, "application/vnd.docker.container.image.v1+json")
_LAYERS = (*oci.OCI_NAMES.values(), *oci.OCI_NAMES)
_BLOB = ("digest", "size")
_SHOWN = 8
_UNSEEN = "all that the engine shows is the same; the rest, such as the history or how values are written, differs"


def differences(
    base: Base, lock: PairingLock, data: bytes, known: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield where an image is not the one of a lock, whose bytes are ``data``.

    ``known`` are paths from the site root, or absolute, that something was said of already. The lock has to
    have an ``image``. Every layer that can be read is read.
    """
    image = lock.image
    top = f"{lock.vllm.site_root}/"
    faults = [(one.path, text) for one in image.layer for text in _entry(base, one, data)]
    placed = ((text, f"/{path}".removeprefix(f"/{top}")) for path, text in faults)
    differing = [Finding(FindingCode.LOCK_DIFFERS, text, path) for text, path in placed]
    yield from (one for one in differing if one.path not in known)
    # our layer written again, of files that are as the lock says
    entries = (
        TarEntry(one.path, _content(base, one, data), one.mode, one.mtime, (one.uid, one.gid))
        for one in image.layer
    )
    ours = None if differing else digest_of(tarball.write(entries))
    yield from _layers(base, lock, ours)
    yield from _config(base, lock, data, ours or base.diff_ids[-1])


def _entry(base: Base, listed: LockedEntry, data: bytes) -> Iterator[str]:
    """Yield what is wrong with what lies at the path of one entry of our layer."""
    folder, name = posixpath.split(listed.path)
    if name.startswith(WHITEOUT):
        if base.entry(posixpath.join(folder, name.removeprefix(WHITEOUT))) is not None:
            yield f"{name.removeprefix(WHITEOUT)} exists, but the lock says that it was removed"
        return
    actual = base.entry(listed.path)
    if actual is None:
        yield "does not exist, but the lock has it"
        return
    kind = DIR if listed.kind == pairing_lock.FOLDER else FILE
    if actual.kind != kind:
        what = f"a link to {actual.target}" if actual.target else f"a {actual.kind}"
        yield f"is {what}, but the lock has a {listed.kind}"
        return
    if (actual.uid, actual.gid) != (listed.uid, listed.gid):
        yield f"is owned by {actual.uid}:{actual.gid}, but the lock says {listed.uid}:{listed.gid}"
    if actual.mode != listed.mode:
        yield f"has mode {actual.mode:04o}, but the lock says {listed.mode:04o}"
    wanted = sha256(data) if listed.kind == pairing_lock.LOCK else listed.sha256
    if wanted is not None and sha256(base.read(listed.path)) != wanted:
        yield "has different contents from those in the lock"
    elif kind == FILE and actual.mtime != listed.mtime:
        yield f"is dated {oci.timestamp(actual.mtime)}, but the lock says {oci.timestamp(listed.mtime)}"


def _content(base: Base, listed: LockedEntry, data: bytes) -> bytes | None:
    if listed.kind == pairing_lock.LOCK:
        return data
    if posixpath.basename(listed.path).startswith(WHITEOUT):
        return b""
    return base.read(listed.path) if listed.kind == pairing_lock.FILE else None


def _layers(base: Base, lock: PairingLock, ours: str | None) -> Iterator[Finding]:
    """Compare the layers with the base's and ours; where files are others already, ours is the next one."""
    actual, below = base.diff_ids, lock.base.diff_ids
    # Reading one compares its bytes with what the configuration says of it.
    numbers = range(len(actual))
    inside = [base.layer(n, anew=True) if isinstance(base, LayeredImage) else None for n in numbers]
    wanted = (*below, ours or actual[min(len(below), len(actual) - 1)])
    if sorted(actual) == sorted(wanted) and actual != wanted:
        yield differs(
            f"the layers are in a different order: {_listed(actual)}, but the lock has {_listed(wanted)}"
        )
        return
    names = [f"layer {number} of the base {lock.base.ref}" for number in range(1, len(wanted))]
    for name, digest in zip((*names, "the layer from the lock"), wanted, strict=True):
        if digest not in actual:
            yield differs(f"the image lacks {name} ({digest})")
    for number, (digest, layer) in enumerate(zip(actual, inside, strict=True), 1):
        if digest not in wanted or digest in actual[: number - 1]:
            yield differs(
                f"layer {number} of {len(actual)} is not in the lock ({digest}){_strange(layer, lock)}"
            )


def _strange(layer: Layer | None, lock: PairingLock) -> str:
    """Say what a layer holds beside what the lock has in ours."""
    if layer is None:  # an engine shows only all of them together
        return "; to see what the layer contains: skopeo copy docker-daemon:IMAGE oci:FOLDER, then verify oci:FOLDER"
    listed = {one.path for one in lock.image.layer}
    gone = ((path, *posixpath.split(path)) for path in layer.gone)
    hidden = {f"{folder}/{WHITEOUT}{name}": path for path, folder, name in gone}
    others = (path for path, one in layer.entries.items() if one.kind != DIR)
    strange = [f"/{path}" for path in others if path not in listed]
    strange += [f"/{path} deleted" for place, path in hidden.items() if place not in listed]
    strange += [f"everything in /{path} deleted" for path in layer.opaque]
    more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
    return f": {', '.join(sorted(strange)[:_SHOWN])}{more}" if strange else ""


def _config(base: Base, lock: PairingLock, data: bytes, ours: str) -> Iterator[Finding]:
    image = lock.image
    settings = image.config.get("config") or {}
    labels = building.labels(lock, data, settings.get("Labels") or {})
    ids, maker = (*lock.base.diff_ids, ours), building.created_by(lock)
    wanted = oci.configuration(image.config, ids, created_by=maker, labels=labels, epoch=lock.epoch)
    if base.manifest is not None:
        yield from _manifest(json.loads(base.manifest), labels)
    if digest_of(wanted) == base.config_digest:
        return
    before, after = json.loads(wanted), json.loads(base.config)
    if "history" not in after:  # an engine does not tell it
        del before["history"]
    layers = [one["rootfs"].pop("diff_ids") for one in (before, after)]
    differing = [*_parts(before.pop("config"), after.pop("config", None) or {})]
    differing += _values("the image's", _filled(before), _filled(after))
    yield from differing
    is_told = base.where != "containerd" or base.manifest is not None
    if not differing and layers[0] == layers[1] and is_told:
        yield differs(
            f"the ID is {base.config_digest}, but the lock's image has {digest_of(wanted)}: {_UNSEEN}"
        )


def _parts(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare settings: the environment and the labels name by name."""
    yield from _values("the environment's", environment(wanted), environment(actual))
    yield from _values("the label", wanted.get("Labels") or {}, actual.get("Labels") or {})
    yield from _values("the setting", *(_filled(one, "Env", "Labels") for one in (wanted, actual)))
    order = [one.get("Env") or [] for one in (wanted, actual)]
    if order[0] != order[1] and sorted(order[0]) == sorted(order[1]):
        yield differs("the environment variables are in a different order")


def _filled(table: Mapping[str, Any], *but: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value and key not in but}


def _listed(digests: Sequence[str]) -> str:
    return " ".join(one[7:19] for one in digests)


def _manifest(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what a readable manifest says that follows from neither its configuration, its layers nor these labels."""
    yield from _document("the manifest", manifest, ("config", "layers", "annotations"), MANIFESTS)
    yield from _descriptor("the manifest's configuration", manifest["config"], _BLOB, _CONFIGS)
    for number, layer in enumerate(manifest["layers"], 1):
        yield from _descriptor(f"the manifest's layer {number}", layer, _BLOB, _LAYERS)
    if annotations := _table(manifest.get("annotations")):  # docker's form of an image has none
        yield from _values("the annotation", labels, annotations)


def of_indexes(indexes: Sequence[Index], images: Sequence[Base]) -> Iterator[Finding]:
    """Yield what a readable index says that does not follow from ``images``: all that are in it, or those asked for."""
    for number, index in enumerate(indexes, 1):
        what = "the index" if len(indexes) == 1 else f"index {number} of {len(indexes)}"
        yield from _document(what, index, ("manifests", "annotations"), INDEXES)
        for place, entry in enumerate(index["manifests"], 1):
            yield from _descriptor(
                f"entry {place} of {what}", entry, (*_BLOB, "platform"), MANIFESTS
            )
    platforms = {one.manifest_digest: oci.platform(json.loads(one.config)) for one in images}
    for place, entry in enumerate(indexes[-1]["manifests"], 1):
        wanted = {"platform": platforms.get(entry["digest"], entry.get("platform"))}
        stated = {key: entry[key] for key in wanted if key in entry}
        yield from _values(f"entry {place} of the index: its", wanted, stated)
    annotations = [_table(json.loads(one.manifest or b"{}").get("annotations")) for one in images]
    actual = _table(indexes[0].get("annotations"))
    # with one platform asked for, nobody has looked at all
    if actual and len(images) == len(indexes[-1]["manifests"]):
        yield from _values("the index's annotation", oci.shared_annotations(annotations), actual)


def _values(what: str, wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Finding]:
    for key in sorted(wanted.keys() | actual.keys()):
        if wanted.get(key) != actual.get(key):
            yield differs(
                f"{what} {key} is {_value(actual, key)}, but the lock says {_value(wanted, key)}"
            )


def differs(message: str) -> Finding:
    """Return the finding that an image is not the lock's."""
    return Finding(code=FindingCode.IMAGE_DIFFERS, message=message)


def _document(
    what: str, document: Mapping[str, Any], known: Collection[str], types: Sequence[str]
) -> Iterator[Finding]:
    if document.get("schemaVersion") != 2:
        yield differs(f"{what}'s schemaVersion is {_value(document, 'schemaVersion')}, not 2")
    typed = {"mediaType": types[0], **document}  # OCI's first version left it out
    yield from _descriptor(what, typed, (*known, "schemaVersion"), types)


def _descriptor(
    what: str, raw: Mapping[str, Any], known: Collection[str], types: Sequence[str]
) -> Iterator[Finding]:
    for key in sorted(raw.keys() - {*known, "mediaType"}):
        yield differs(f"{what} has {key} ({_value(raw, key)}), which no lock creates")
    if raw.get("mediaType") not in types:
        yield differs(f"{what} has the type {_value(raw, 'mediaType')}, which no lock creates")


def _table(annotations: object) -> Mapping[str, Any]:
    if isinstance(annotations, dict):
        return annotations
    return {"": annotations} if annotations else {}


def _value(table: Mapping[str, Any], key: str) -> str:
    if key not in table:
        return "not there"
    text = table[key] if isinstance(table[key], str) else json.dumps(table[key])
    return text if len(text) <= 200 else f"{text[:197]}…"
