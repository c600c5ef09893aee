"""Images: OCI layouts, archives, layers, what an engine tells."""

from __future__ import annotations

import io
import json
import os

import making_images as making

from fuzz.archives import odd_tar
from fuzz.contract import Target
from fuzz.parts import joined, taken
from vllm_mods.base.cache import Cache
from vllm_mods.images import layer, layout
from vllm_mods.images.model import Base
from vllm_mods.images.oci import Opening
from vllm_mods.trees.image import ImageTree, find_site_root

SITE = "usr/local/lib/python3.12/dist-packages"
FILES: dict[str, making.Thing] = {
    f"{SITE}/vllm/__init__.py": b"",
    f"{SITE}/vllm/_version.py": b"__version__ = '0.19.1'\n",
    f"{SITE}/vllm-0.19.1.dist-info/RECORD": b"vllm/__init__.py,,0\n",
    "usr/lib/link": making.Link("/usr/local/lib"),
}


def _use(base: Base) -> None:
    base.entry("usr/local")
    list(base.paths("usr"))
    tree = ImageTree(base, find_site_root(base))
    assert tree.version is None or tree.version
    for path in list(tree.paths())[:10]:
        tree.read(path)
    tree.has("x.jinja")
    tree.close()


def _layer(data: bytes, folder: str) -> None:
    cache = Cache(os.path.join(folder, "cache"))
    found = layer.scan(io.BytesIO(data), "layer")
    layer.keep(cache, "sha256:" + "0" * 64, found)
    layer.load(cache, "sha256:" + "0" * 64)
    for path, entry in list(found.entries.items())[:5]:
        if entry.kind == "file" and path not in found.names:
            layer.extract(io.BytesIO(data), path, "layer")


def _layer_seeds() -> tuple[bytes, ...]:
    plain = making.layer({**FILES, "usr/.wh.old": b"", "usr/lib/.wh..wh..opq": b""})
    return (plain, making._packed(plain, "gzip"), making._packed(plain, "zstd"), odd_tar())


def _index(data: bytes, folder: str) -> None:
    """Four texts: an index, a manifest, a configuration, and a layer, their digests put in here."""
    index, manifest, config, tar = taken(data, 4)
    blobs = {}
    names: dict[bytes, bytes] = {}
    for name, text in ((b"L", tar), (b"C", config), (b"M", manifest)):
        whole = text
        for mark, said in names.items():
            whole = whole.replace(b"@%b@" % mark, said)
        digest = making.digest(whole)
        names[name] = digest.encode()
        names[b"S" + name] = b"%d" % len(whole)
        blobs[digest] = whole
    for mark, said in names.items():
        index = index.replace(b'"@%b@"' % mark, said if mark[:1] == b"S" else b'"%b"' % said)
    place = os.path.join(folder, "layout")
    os.makedirs(os.path.join(place, "blobs/sha256"))
    for digest, whole in blobs.items():
        with open(os.path.join(place, "blobs", digest.replace(":", "/")), "wb") as file:
            file.write(whole)
    with open(os.path.join(place, "index.json"), "wb") as file:
        file.write(index)
    cache = Cache(os.path.join(folder, "cache"))
    _use(layout.open_layout(place, Opening("x", cache)))


def _index_seeds() -> tuple[bytes, ...]:
    tar = making.layer(FILES)
    settings = {"Env": ["PATH=/usr/bin:/opt/x/bin", "PYTHONPATH=/a"], "WorkingDir": "/work"}
    config = json.dumps(
        {
            "architecture": making.ARCHITECTURE,
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [making.digest(tar)]},
        }
    )
    manifest = {
        "schemaVersion": 2,
        "config": {"digest": "@C@", "size": "@SC@"},
        "layers": [{"digest": "@L@", "size": "@SL@"}],
    }
    made = json.dumps(manifest).replace('"@SC@"', str(len(config))).replace('"@SL@"', str(len(tar)))
    one = {"mediaType": making.MANIFEST, "digest": "@M@", "size": "@SM@"}
    tags = {"org.opencontainers.image.ref.name": "latest"}
    index = json.dumps({"schemaVersion": 2, "manifests": [{**one, "annotations": tags}]})
    nested = json.dumps({"manifests": [{**one, "platform": {"os": "linux", "architecture": "x"}}]})
    return (joined(index, made, config, tar), joined(nested, made, config, tar))


TARGETS = (Target("layer", _layer, _layer_seeds), Target("oci-layout", _index, _index_seeds))
