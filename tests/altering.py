"""An image taken apart and written again with something in it altered, every digest right again."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from making_images import CONFIG, LAYER, MANIFEST, Link, digest, layer as tar_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
LOCK = f"{SITE}/.vllm-mods/pairing.lock"
RECEIPT = f"{SITE}/.vllm-mods/receipt.json"
TEMPLATE = f"{SITE}/.vllm-mods/templates/small.jinja"


@dataclass
class Opened:
    """An image taken apart: configuration, plain layers, annotations, and where layers are swapped."""

    config: dict[str, Any]
    layers: list[bytes]
    annotations: dict[str, Any]
    stated: list[str] | None = None
    # What is done to the documents that are made of these, and to the folder in the end.
    to_config: Callable[[bytes], bytes] = bytes
    to_manifest: Callable[[dict[str, Any]], object] = bool
    to_manifest_text: Callable[[bytes], bytes] = bytes
    to_top: Callable[[dict[str, Any]], object] = bool
    to_folder: Callable[[Path], object] = bool
    more_blobs: list[bytes] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.config["config"]
        return settings

    def write(self, folder: Path) -> str:
        self.config["rootfs"]["diff_ids"] = self.stated or [digest(one) for one in self.layers]
        config = self.to_config(
            json.dumps(self.config, sort_keys=True, separators=(",", ":")).encode()
        )
        packed = [gzip.compress(one, 1, mtime=0) for one in self.layers]
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
            "layers": [
                {"mediaType": f"{LAYER}+gzip", "digest": digest(one), "size": len(one)}
                for one in packed
            ],
            "annotations": self.annotations,
        }
        self.to_manifest(document)
        manifest = self.to_manifest_text(json.dumps(document).encode())
        (folder / "blobs/sha256").mkdir(parents=True)
        for data in (config, manifest, *packed, *self.more_blobs):
            (folder / "blobs" / digest(data).replace(":", "/")).write_bytes(data)
        entry = {"mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest)}
        top = {"schemaVersion": 2, "manifests": [entry]}
        self.to_top(top)
        (folder / "index.json").write_text(json.dumps(top))
        self.to_folder(folder)
        return f"oci:{folder}"


def opened(folder: Path) -> Opened:
    def blob(one: dict[str, Any]) -> bytes:
        return _blob(folder, one).read_bytes()

    (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    manifest = json.loads(blob(entry))
    layers = [
        gzip.decompress(data) if (data := blob(one))[:2] == b"\x1f\x8b" else data
        for one in manifest["layers"]
    ]
    return Opened(json.loads(blob(manifest["config"])), layers, manifest["annotations"])


def edited(
    layer: bytes, change: Callable[[tarfile.TarInfo, bytes], bytes | None], more: bytes = b""
) -> bytes:
    """Return a layer with each member as ``change`` leaves it, None being gone."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(layer)) as old,
        tarfile.open(fileobj=out, mode="w:") as new,
    ):
        for member in old:
            file = old.extractfile(member)
            data = change(member, file.read() if file else b"")
            if data is not None:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
        if more:
            with tarfile.open(fileobj=io.BytesIO(more)) as added:
                for member in added:
                    if not member.isdir():
                        new.addfile(member, added.extractfile(member))
    return out.getvalue()


def above(**things: Any) -> Callable[[Opened], None]:
    """Put a layer on top."""
    named = {key.replace("__", "/"): thing for key, thing in things.items()}
    return lambda image: image.layers.append(tar_of(named))


def put(path: str, thing: Any) -> Callable[[Opened], None]:
    return lambda image: image.layers.append(tar_of({path: thing}))


def setting(key: str, value: Any) -> Callable[[Opened], None]:
    return lambda image: image.settings.update({key: value})


def env(change: Callable[[list[str]], list[str]]) -> Callable[[Opened], None]:
    return lambda image: image.settings.update(Env=change(image.settings["Env"]))


def label(key: str, value: str | int) -> Callable[[Opened], None]:
    return lambda image: image.settings["Labels"].update({key: value})


def whole(key: str, value: Any) -> Callable[[Opened], None]:
    return lambda image: image.config.update({key: value})


def ours(
    change: Callable[[tarfile.TarInfo, bytes], bytes | None], more: bytes = b""
) -> Callable[[Opened], None]:
    """Write our own layer anew."""

    def tamper(image: Opened) -> None:
        image.layers[-1] = edited(image.layers[-1], change, more)

    return tamper


def content(path: str, old: bytes, new: bytes) -> Callable[[Opened], None]:
    def change(member: tarfile.TarInfo, data: bytes) -> bytes:
        if member.name == path:
            assert old in data
        return data.replace(old, new) if member.name == path else data

    return ours(change)


def marked(path: str, **values: int) -> Callable[[Opened], None]:
    def change(member: tarfile.TarInfo, data: bytes) -> bytes:
        if member.name == path:
            for key, value in values.items():
                setattr(member, key, value)
        return data

    return ours(change)


def without(path: str) -> Callable[[Opened], None]:
    return ours(lambda member, data: None if member.name == path else data)


def slipped_under(image: Opened) -> None:
    image.layers.insert(2, tar_of({f"{SITE}/vllm/other.py": b"evil\n"}))


def swapped(image: Opened) -> None:
    image.layers[0], image.layers[1] = image.layers[1], image.layers[0]


def left_out(image: Opened) -> None:
    del image.layers[0]


def other_bytes(image: Opened) -> None:
    """The packed layer is another one than the configuration, which is left as it is, says."""
    image.stated = [digest(one) for one in image.layers]
    image.layers[1] = tar_of({f"{SITE}/vllm/other.py": b"evil\n"})


def annotated(image: Opened) -> None:
    image.annotations["vllm-mods.model"] = "org/evil"


def history(image: Opened) -> None:
    image.config["history"][0]["created_by"] = "a builder that can be trusted"


def env_order(image: Opened) -> None:
    image.settings["Env"].reverse()


def link_for_template(image: Opened) -> None:
    image.layers.append(tar_of({TEMPLATE: Link("/srv/theirs")}))


def without_setting(key: str) -> Callable[[Opened], None]:
    def change(image: Opened) -> None:
        del image.settings[key]

    return change


def in_config(change: Callable[[bytes], bytes]) -> Callable[[Opened], None]:
    """Write the configuration's bytes anew."""
    return lambda image: setattr(image, "to_config", change)


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Opened], None]:
    """Alter the manifest."""
    return lambda image: setattr(image, "to_manifest", change)


def in_manifest_text(change: Callable[[bytes], bytes]) -> Callable[[Opened], None]:
    """Write the manifest's bytes anew."""
    return lambda image: setattr(image, "to_manifest_text", change)


def in_top(change: Callable[[dict[str, Any]], object]) -> Callable[[Opened], None]:
    """Alter the layout's index.json."""
    return lambda image: setattr(image, "to_top", change)


def in_folder(change: Callable[[Path], object]) -> Callable[[Opened], None]:
    """Alter the layout's files in the end."""
    return lambda image: setattr(image, "to_folder", change)


def in_descriptor(which: str = "layers", **fields: Any) -> Callable[[Opened], None]:
    """Alter how a manifest describes its first layer, or its configuration; None takes a field out."""

    def change(manifest: dict[str, Any]) -> None:
        raw = manifest["config"] if which == "config" else manifest["layers"][0]
        for key, value in fields.items():
            if value is None:
                del raw[key]
            else:
                raw[key] = value

    return in_manifest(change)


def in_blob(which: str, change: Callable[[bytes], bytes] | None) -> Callable[[Opened], None]:
    """Alter the bytes under the digest of the manifest, the configuration or the first layer; None takes them away."""

    def alter(folder: Path) -> None:
        (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        path = _blob(folder, entry)
        if which != "manifest":
            manifest = json.loads(path.read_bytes())
            path = _blob(folder, manifest["config"] if which == "config" else manifest["layers"][0])
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(path.read_bytes()))

    return in_folder(alter)


def _blob(folder: Path, descriptor: dict[str, Any]) -> Path:
    return folder / "blobs" / str(descriptor["digest"]).replace(":", "/")
