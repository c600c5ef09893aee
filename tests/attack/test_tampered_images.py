"""An image of a pairing that somebody has altered does not pass for it: `image verify` says what is altered.

Whoever alters it is careful: every digest is right again afterwards, but where the alteration is a wrong digest. ``IMAGES`` are
alterations of one image (files, layers, configuration, manifest, folder), ``INDEXES`` of an index of two. What a row says is
either what `image verify` has to say, or, as ``Harmless``, why it may pass.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import small_site
from altering import (
    LOCK,
    RECEIPT,
    SITE,
    TEMPLATE,
    Opened,
    annotated,
    content,
    env,
    env_order,
    history,
    in_blob,
    in_config,
    in_descriptor,
    in_folder,
    in_manifest,
    in_manifest_text,
    in_top,
    label,
    left_out,
    link_for_template,
    marked,
    opened,
    other_bytes,
    ours,
    put,
    setting,
    slipped_under,
    swapped,
    whole,
    without,
    without_setting,
)
from making_images import (
    INDEX,
    LAYER,
    MANIFEST,
    OLD,
    Folder,
    Image,
    digest,
    from_disk,
    layer as tar_of,
    of_platforms,
)
from paired import NAME, library

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Harmless(NamedTuple):
    """Why an alteration may pass."""

    reason: str


IMAGES: dict[str, tuple[Callable[[Opened], object], str | Harmless]] = {
    "a file beside vLLM": (put(f"{SITE}/evil.py", b"1"), "is not in the lock (sha256:"),
    "a file beside vLLM is named": (put(f"{SITE}/evil.py", b"1"), f": /{SITE}/evil.py"),
    "a file more in our layer": (
        ours(lambda _, data: data, tar_of({f"{SITE}/evil.py": b"1"})),
        f": /{SITE}/evil.py",
    ),
    "sitecustomize.py": (put(f"{SITE}/sitecustomize.py", b"1"), f": /{SITE}/sitecustomize.py"),
    "a .pth": (put(f"{SITE}/evil.pth", b"import evil"), f": /{SITE}/evil.pth"),
    "PYTHONPATH": (
        env(lambda env: [*env, "PYTHONPATH=/evil"]),
        "the environment's PYTHONPATH is /evil, but the lock says not there",
    ),
    "a value of the environment": (
        env(lambda env: [one.replace("GREETING=hello", "GREETING=bye") for one in env]),
        "the environment's GREETING is bye, but the lock says hello",
    ),
    "a variable taken out": (
        env(lambda env: [one for one in env if not one.startswith("GREETING")]),
        "the environment's GREETING is not there, but the lock says hello",
    ),
    "the order of the environment": (env_order, "the environment variables are in a different order"),
    "the entrypoint": (
        setting("Entrypoint", ["/evil"]),
        'the setting Entrypoint is ["/evil"], but the lock says ["vllm", "serve", "org/small"',
    ),
    "arguments": (setting("Cmd", ["--model", "x"]), 'the setting Cmd is ["--model", "x"]'),
    "the user": (setting("User", "nobody"), "the setting User is nobody"),
    "the working folder": (setting("WorkingDir", "/evil"), "the setting WorkingDir is /evil"),
    "the health check": (
        setting("Healthcheck", {"Test": ["CMD", "true"]}),
        'the setting Healthcheck is {"Test": ["CMD", "true"]}',
    ),
    "the signal": (setting("StopSignal", "SIGKILL"), "the setting StopSignal is SIGKILL"),
    "a port": (setting("ExposedPorts", {"22/tcp": {}}), 'the setting ExposedPorts is {"22/tcp": {}}'),
    "a trigger": (setting("OnBuild", ["RUN evil"]), 'the setting OnBuild is ["RUN evil"]'),
    "the model in the label": (
        label("vllm-mods.model", "org/evil"),
        "the label vllm-mods.model is org/evil, but the lock says org/small",
    ),
    "the lock in the label": (label("vllm-mods.lock", "sha256:0"), "the label vllm-mods.lock"),
    "the model in the annotation": (annotated, "the annotation vllm-mods.model is org/evil"),
    "the machine": (whole("architecture", "s390x"), "the image's architecture is s390x"),
    "the time": (whole("created", "2020-01-01T00:00:00Z"), "the image's created is 2020-01-01T00:00:00Z"),
    "the history": (history, "the image's history is"),
    "a word that the format does not know": (whole("author", "me"), "the image's author is me"),
    "a layer slipped under ours": (slipped_under, "is not in the lock"),
    "the order of layers": (swapped, "the layers are in a different order:"),
    "a layer of the base left out": (left_out, "the image lacks layer 1 of the base base:1"),
    "other bytes under the same name": (other_bytes, "the layer was replaced"),
    "a file of vLLM taken away": (
        put(f"{SITE}/vllm/.wh.other.py", b""),
        f"/{SITE}/vllm/other.py deleted",
    ),
    "old bytecode that shows again": (
        without(f"{SITE}/vllm/__pycache__/.wh.a.cpython-311.pyc"),
        "a.cpython-311.pyc exists, but the lock says that it was removed",
    ),
    "the mode of a file": (
        marked(f"{SITE}/vllm/a.py", mode=0o4755),
        "vllm/a.py: its mode is 4755, and was 0644",
    ),
    "the mode of a folder": (marked("usr/local", mode=0o777), "/usr/local: has mode 0777"),
    "the owner of a file": (marked(f"{SITE}/vllm/a.py", uid=1000), "vllm/a.py: is owned by 1000:0"),
    "the time of a file": (marked(f"{SITE}/vllm/a.py", mtime=OLD), "vllm/a.py: is dated 2017-"),
    "a link for the template": (link_for_template, "is a symbolic link to /srv/theirs"),
    "the patched file": (content(f"{SITE}/vllm/a.py", b"A = 2", b"A = 9"), "vllm/a.py: "),
    "the template": (content(TEMPLATE, b"messages", b"evil"), "small.jinja: "),
    "the receipt": (content(RECEIPT, b"1.0.0", b"1.0.1"), "receipt.json: has different contents"),
    "the original": (
        content(f"{SITE}/.vllm-mods/originals/vllm/a.py", b"A = 1", b"A = 7"),
        "originals/vllm/a.py",
    ),
    "the lock": (content(LOCK, b"org/small", b"org/evil!"), "vllm-mods.lock"),
    # --- configuration: its digest is the lock's, so whatever is altered is found
    "the system": (whole("os", "windows"), "the image's os is windows"),
    "a variant of the machine": (whole("variant", "v2"), "the image's variant is v2"),
    "a version of the system": (whole("os.version", "10"), "the image's os.version is 10"),
    "features of the system": (whole("os.features", ["win32k"]), "the image's os.features is"),
    "docker's own settings": (whole("container_config", {"Cmd": ["/evil"]}), "the image's container_config"),
    "the builder's name": (whole("docker_version", "1"), "the image's docker_version is 1"),
    "a time that is none": (whole("created", None), "the image's created is"),
    "a machine that is a number": (whole("architecture", 5), ""),
    "no settings at all": (whole("config", None), "is not there"),
    "settings that are a list": (whole("config", []), ""),
    "a history that is a table": (whole("history", {}), ""),
    "a step of the history more": (
        lambda image: image.config["history"].append({"created_by": "x", "empty_layer": True}),
        "the image's history is",
    ),
    "a step of the history taken out": (lambda image: image.config["history"].pop(), "the image's history is"),
    "another kind of root": (
        lambda image: image.config["rootfs"].update(type="windows"),
        "the image's rootfs is {\"type\": \"windows\"}",
    ),
    "a layer's hash twice": (
        lambda image: setattr(image, "stated", [digest(one) for one in (*image.layers, image.layers[-1])]),
        "the manifest names",
    ),
    "a layer's hash taken out": (
        lambda image: setattr(image, "stated", [digest(one) for one in image.layers[:-1]]),
        "the manifest names",
    ),
    "the hashes of layers in another order": (
        lambda image: setattr(image, "stated", [digest(one) for one in reversed(image.layers)]),
        "the layer was replaced",
    ),
    "a volume": (setting("Volumes", {"/etc": {}}), "the setting Volumes"),
    "the shell": (setting("Shell", ["/evil"]), "the setting Shell"),
    "escaped arguments": (setting("ArgsEscaped", True), "the setting ArgsEscaped"),
    "the time to stop": (setting("StopTimeout", 1), "the setting StopTimeout"),
    "no network": (setting("NetworkDisabled", True), "the setting NetworkDisabled"),
    "memory": (setting("Memory", 1), "the setting Memory"),
    "an entrypoint that is a text": (setting("Entrypoint", "/evil"), "the setting Entrypoint is /evil"),
    "no entrypoint": (without_setting("Entrypoint"), "the setting Entrypoint is not there"),
    "no user": (without_setting("User"), "the setting User is not there"),
    "no working folder": (without_setting("WorkingDir"), "the setting WorkingDir is not there"),
    "environment": (without_setting("Env"), "is not there"),
    "no labels": (without_setting("Labels"), "is not there"),
    "a variable twice": (env(lambda env: [*env, "GREETING=bye"]), "GREETING is bye"),
    "a variable twice, the right value last": (
        env(lambda env: ["GREETING=bye", *env]),
        "but the lock's image",
    ),
    "a label more": (label("com.example.run", "evil"), "the label com.example.run is evil"),
    "a label that is a number": (label("vllm-mods.model", 5), ""),
    "the configuration in other bytes": (in_config(lambda data: data + b"\n"), "all that the engine shows is the same;"),
    "a key of the configuration twice": (
        in_config(lambda data: b'{"architecture":"evil",' + data[1:]),
        "all that the engine shows is the same;",
    ),
    "a key of the configuration in capitals": (
        in_config(lambda data: data[:-1] + b',"Architecture":"evil"}'),
        "the image's Architecture is evil",
    ),
    "a configuration that is a list": (in_config(lambda data: b"[" + data + b"]"), "not a JSON object"),
    # --- manifest: what it may say is what `build` writes, or docker's form of that
    "no schema": (in_manifest(lambda raw: raw.pop("schemaVersion")), "schemaVersion is not there"),
    "another schema": (in_manifest(lambda raw: raw.update(schemaVersion=1)), "schemaVersion is 1"),
    "the schema as a text": (in_manifest(lambda raw: raw.update(schemaVersion="2")), "schemaVersion is 2"),
    "no type": (
        in_manifest(lambda raw: raw.pop("mediaType")),
        Harmless("OCI's manifests need none: whoever names it says its type"),
    ),
    "an index's type": (in_manifest(lambda raw: raw.update(mediaType=INDEX)), "has the type"),
    "an unknown type": (in_manifest(lambda raw: raw.update(mediaType="x/y")), "has the type x/y"),
    "a type that is a list": (in_manifest(lambda raw: raw.update(mediaType=[MANIFEST])), "has the type"),
    "docker's type": (
        in_manifest(lambda raw: raw.update(mediaType="application/vnd.docker.distribution.manifest.v2+json")),
        Harmless("the same configuration and layers: a push by docker writes it so"),
    ),
    "artifactType": (in_manifest(lambda raw: raw.update(artifactType="x/y")), "has artifactType (x/y)"),
    "a subject": (
        in_manifest(lambda raw: raw.update(subject=raw["config"])),
        "the manifest has subject",
    ),
    "an unknown key": (in_manifest(lambda raw: raw.update(evil=1)), "the manifest has evil (1)"),
    "signatures": (in_manifest(lambda raw: raw.update(signatures=[])), "the manifest has signatures"),
    "layers of the first schema": (in_manifest(lambda raw: raw.update(fsLayers=[])), "has fsLayers"),
    "an index in the manifest": (
        in_manifest(lambda raw: raw.update(manifests=[])),
        "not of the type stated in the index",
    ),
    "layers in capitals": (
        in_manifest(lambda raw: raw.update(Layers=raw["layers"][:1])),
        "'layers' appears twice",
    ),
    "layers with a long s": (
        in_manifest(lambda raw: raw.update({"layerſ": raw["layers"][:1]})),
        "'layers' appears twice",
    ),
    "layers twice": (
        in_manifest_text(lambda data: b'{"layers":[],' + data[1:]),
        "'layers' appears twice",
    ),
    "the configuration twice": (
        in_manifest_text(lambda data: b'{"config":{"size":1},' + data[1:]),
        "'config' appears twice",
    ),
    "a layer's digest twice": (
        in_manifest_text(lambda data: data.replace(b'{"mediaType": "' + LAYER.encode(), b'{"digest":"sha256:00","mediaType": "' + LAYER.encode())),
        "'digest' appears twice",
    ),
    "the manifest in other bytes": (
        in_manifest_text(lambda data: data + b"\n"),
        Harmless("the same document: only its own digest is another"),
    ),
    "the keys of the manifest in another order": (
        in_manifest_text(lambda data: json.dumps(dict(reversed(json.loads(data).items()))).encode()),
        Harmless("the same document: only its own digest is another"),
    ),
    "something behind the manifest": (in_manifest_text(lambda data: data + b"{}"), "not JSON"),
    "a manifest in UTF-16": (in_manifest_text(lambda data: data.decode().encode("utf-16")), "not JSON"),
    "no configuration": (in_manifest(lambda raw: raw.pop("config")), "does not name a configuration"),
    "a configuration that is a digest": (
        in_manifest(lambda raw: raw.update(config=raw["config"]["digest"])),
        "does not name a configuration",
    ),
    "no layers": (in_manifest(lambda raw: raw.pop("layers")), "does not name a configuration"),
    "layers that are a table": (
        in_manifest(lambda raw: raw.update(layers={"0": raw["layers"][0]})),
        "does not name a configuration",
    ),
    "an empty list of layers": (in_manifest(lambda raw: raw.update(layers=[])), "names 0 layers"),
    "a layer of the manifest twice": (
        in_manifest(lambda raw: raw["layers"].append(raw["layers"][0])),
        "but the configuration",
    ),
    "a layer of the manifest taken out": (in_manifest(lambda raw: raw["layers"].pop()), "but the configuration"),
    "layers of the manifest in another order": (
        in_manifest(lambda raw: raw["layers"].reverse()),
        "the layer was replaced",
    ),
    "addresses of a layer": (
        in_descriptor(urls=["https://example.org/evil"]),
        "the manifest's layer 1 has urls",
    ),
    "a layer with data": (in_descriptor(data="ZXZpbA=="), "the manifest's layer 1 has data"),
    "a layer with annotations": (
        in_descriptor(annotations={"containerd.io/snapshot/stargz/toc.digest": "sha256:0"}),
        "the manifest's layer 1 has annotations",
    ),
    "a layer with artifactType": (in_descriptor(artifactType="x/y"), "layer 1 has artifactType"),
    "a layer with a platform": (in_descriptor(platform={"os": "windows"}), "layer 1 has platform"),
    "a layer with a digest in capitals": (in_descriptor(Digest="sha256:00"), "'digest' appears twice"),
    "a layer that is not handed on": (
        in_descriptor(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"),
        "the manifest's layer 1 has the type",
    ),
    "a layer of docker's that lies elsewhere": (
        in_descriptor(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
        "the manifest's layer 1 has the type",
    ),
    "a layer of no type": (in_descriptor(mediaType=None), "layer 1 has the type"),
    "an encrypted layer": (in_descriptor(mediaType=f"{LAYER}+gzip+encrypted"), "has the type"),
    "a layer of docker's type": (
        in_descriptor(mediaType="application/vnd.docker.image.rootfs.diff.tar.gzip"),
        Harmless("the same bytes: docker's manifests name layers so"),
    ),
    "a layer of another packing": (
        in_descriptor(mediaType=f"{LAYER}+zstd"),
        Harmless("engines go by the bytes, or fail: what it unpacks to has the configuration's hash"),
    ),
    "a layer that is longer": (in_descriptor(size=10**6), "layer"),
    "a layer that is shorter": (in_descriptor(size=5), "layer"),
    "a layer of no size": (in_descriptor(size=None), "does not name a configuration and layers"),
    "a size that is a text": (in_descriptor(size="5"), "does not name a configuration and layers"),
    "a size that is true": (in_descriptor(size=True), "does not name a configuration and layers"),
    "a size below nothing": (in_descriptor(size=-1), "does not name a configuration and layers"),
    "a digest in capitals": (in_descriptor(digest="SHA256:00"), "does not name a configuration and layers"),
    "a digest that is a path": (in_descriptor(digest="sha256:../x"), "does not name a configuration and layers"),
    "a digest of a blob that is not there": (in_descriptor(digest=f"sha256:{'0' * 64}"), "is missing"),
    "a configuration with data": (in_descriptor("config", data="e30="), "configuration has data"),
    "a configuration with addresses": (
        in_descriptor("config", urls=["https://example.org"]),
        "configuration has urls",
    ),
    "a configuration with annotations": (
        in_descriptor("config", annotations={"a": "b"}),
        "configuration has annotations",
    ),
    "a configuration of an artifact's type": (
        in_descriptor("config", mediaType="application/vnd.cncf.helm.config.v1+json"),
        "the manifest's configuration has the type",
    ),
    "a configuration of no content": (
        in_descriptor("config", mediaType="application/vnd.oci.empty.v1+json"),
        "the manifest's configuration has the type",
    ),
    "a configuration of docker's type": (
        in_descriptor("config", mediaType="application/vnd.docker.container.image.v1+json"),
        Harmless("the same bytes: docker's manifests name a configuration so"),
    ),
    "a configuration that is longer": (in_descriptor("config", size=10**5), "configuration"),
    "no annotations": (
        in_manifest(lambda raw: raw.pop("annotations")),
        Harmless("docker's form of an image has none; the labels, which have the same, are held"),
    ),
    "an annotation less": (
        lambda image: image.annotations.pop("vllm-mods.model"),
        "the annotation vllm-mods.model is not there",
    ),
    "an annotation more": (
        lambda image: image.annotations.update({"com.example.run": "evil"}),
        "the annotation com.example.run is evil",
    ),
    "an annotation that is a number": (
        lambda image: image.annotations.update({"vllm-mods.model": 5}),
        "the annotation vllm-mods.model is 5",
    ),
    "annotations that are a list": (
        in_manifest(lambda raw: raw.update(annotations=["evil"])),
        "the annotation",
    ),
    # --- the layout: its index.json, its blobs
    "the name in the folder": (
        in_top(lambda top: top["manifests"][0].update(annotations={"org.opencontainers.image.ref.name": "x"})),
        Harmless("a name that whoever asks for one gives: verify says which digest it looked at"),
    ),
    "a second name for the same image": (
        in_top(lambda top: top["manifests"].append(top["manifests"][0])),
        Harmless("the same digest: the same image"),
    ),
    "a second image of the folder": (
        in_top(lambda top: top["manifests"].insert(0, {**top["manifests"][0], "digest": f"sha256:{'0' * 64}"})),
        "of its 2 images are for",
    ),
    "index.json with manifests in capitals": (
        in_top(lambda top: top.update(Manifests=[])),
        "'manifests' appears twice",
    ),
    "index.json with a digest in capitals": (
        in_top(lambda top: top["manifests"][0].update(Digest="sha256:00")),
        "'digest' appears twice",
    ),
    "index.json that says an index": (
        in_top(lambda top: top["manifests"][0].update(mediaType=INDEX)),
        "not of the type stated in the index",
    ),
    "index.json with data and addresses": (
        in_top(lambda top: top["manifests"][0].update(data="e30=", urls=["https://example.org"])),
        Harmless("no engine reads them of a manifest; what it is held to is the digest"),
    ),
    "index.json with an artifact": (
        in_top(lambda top: top["manifests"][0].update(artifactType="x/y")),
        Harmless("it is no part of the image: a push leaves it here"),
    ),
    "index.json for another machine": (
        in_top(lambda top: top["manifests"][0].update(platform={"os": "linux", "architecture": "s390x"})),
        Harmless("there is one image; its configuration, which is held, says the machine"),
    ),
    "index.json of a manifest that is longer": (
        in_top(lambda top: top["manifests"][0].update(size=10**5)),
        "its manifest",
    ),
    "no image in the folder": (in_top(lambda top: top.update(manifests=[])), "it has 0 images"),
    "a blob more": (
        lambda image: image.more_blobs.append(b"evil"),
        Harmless("nothing names it: no engine takes it"),
    ),
    "the manifest's bytes": (in_blob("manifest", lambda data: data.replace(b"org/small", b"org/evil!")), "its contents"),
    "the configuration's bytes": (in_blob("config", lambda data: data.replace(b"org/small", b"org/evil!")), "its contents"),
    "a layer's bytes": (in_blob("layer", lambda data: data[:-9] + b"x" + data[-8:]), "layer"),
    "a layer cut short": (in_blob("layer", lambda data: data[:-20]), "layer"),
    "something behind a layer": (in_blob("layer", lambda data: data + b"evil"), "layer"),
    "an empty manifest": (in_blob("manifest", lambda _: b""), "its manifest"),
    "a layer that is gone": (in_blob("layer", None), "is missing"),
    "a configuration that is gone": (in_blob("config", None), "is missing"),
    "a manifest that is gone": (in_blob("manifest", None), "is missing"),
    "a folder without its mark": (
        in_folder(lambda folder: (folder / "oci-layout").unlink(missing_ok=True)),
        Harmless("engines refuse a layout without it, and none takes another image of it"),
    ),
}  # fmt: skip


PLATFORMS = "linux/amd64", "linux/arm64", "linux/s390x"


@dataclass
class Listed:
    """The index that is altered, one of another lock, and one of the base for three platforms."""

    made: dict[str, Any]
    other: dict[str, Any]
    base: dict[str, Any]
    nested: list[dict[str, Any]] = field(default_factory=list)
    text: Callable[[bytes], bytes] = bytes

    @property
    def entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.made["manifests"]
        return entries

    @property
    def evil(self) -> dict[str, Any]:
        """The image of another lock for the first platform."""
        entry: dict[str, Any] = self.other["manifests"][0]
        return dict(entry)


def in_entry(**fields: Any) -> Callable[[Listed], None]:
    """Alter the first entry; None takes a field out."""

    def change(index: Listed) -> None:
        for key, value in fields.items():
            index.entries[0].pop(key, None)
            if value is not None:
                index.entries[0][key] = value

    return change


def in_platform(**fields: Any) -> Callable[[Listed], None]:
    return lambda index: index.entries[0]["platform"].update(fields)


def in_index(**fields: Any) -> Callable[[Listed], None]:
    return lambda index: index.made.update(fields)


def hidden_behind_its_own_digest(index: Listed) -> None:
    """Another lock's image first, and once more for a platform that nobody asks for."""
    index.entries.insert(0, index.evil)
    index.entries.append({**index.evil, "platform": RISCV})


def exchanged(index: Listed) -> None:
    first, second = index.entries
    first["platform"], second["platform"] = second["platform"], first["platform"]


def as_index(entries: list[dict[str, Any]]) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


def nested(index: Listed) -> None:
    index.nested = index.entries
    data = as_index(index.nested)
    index.made["manifests"] = [{"mediaType": INDEX, "digest": digest(data), "size": len(data)}]


def nested_beside(index: Listed) -> None:
    entries = index.entries
    nested(index)
    index.nested = entries
    index.made["manifests"] = [*entries, *index.made["manifests"]]


RISCV = {"os": "linux", "architecture": "riscv64"}
UNKNOWN = {"os": "unknown", "architecture": "unknown"}
INDEXES: dict[str, tuple[Callable[[Listed], object], str | Harmless]] = {
    "nothing": (bool, Harmless("nothing is altered")),
    "another image, hidden behind its own digest": (
        hidden_behind_its_own_digest,
        "is a second image for linux/amd64",
    ),
    "another image without a platform": (
        lambda index: index.entries.insert(0, {key: index.evil[key] for key in ("mediaType", "digest", "size")}),
        "names no platform, and no lock creates such an entry",
    ),
    "an attestation": (
        lambda index: index.entries.append({**index.evil, "platform": UNKNOWN}),
        "is for unknown/unknown, and no lock creates such an entry",
    ),
    "an entry twice": (lambda index: index.entries.append(index.entries[0]), "is a second image for linux/amd64"),
    "a digest for a second platform": (
        lambda index: index.entries.append({**index.entries[0], "platform": RISCV}),
        "appears twice",
    ),
    "an image left out": (
        lambda index: index.entries.pop(),
        "the index has no image for linux/arm64, but the lock has one",
    ),
    "every image left out": (lambda index: index.entries.clear(), "of its 0 images are for"),
    "an image more": (
        lambda index: index.entries.append(index.base["manifests"][2]),
        "the index has an image for linux/s390x, but the lock has none",
    ),
    "platforms exchanged": (
        exchanged,
        "the index's image for linux/amd64: oci:{}: the image is for linux/arm64, not linux/amd64",
    ),
    "an image of another lock": (
        lambda index: index.entries.__setitem__(1, index.other["manifests"][1]),
        "the images of the index were built from different locks",
    ),
    "an image of the base": (
        lambda index: index.entries.__setitem__(1, index.base["manifests"][1]),
        "the images of the index were built from different locks",
    ),
    "another order": (lambda index: index.entries.reverse(), "the index lists linux/arm64, linux/amd64"),
    "an index in the index": (nested, "entry 1 of index 1 of 2 has the type"),
    "an index beside the images": (nested_beside, "names no platform, and no lock creates such an entry"),
    "an entry that is a text": (lambda index: index.made.update(manifests=[*index.entries, "evil"]), "its index is broken"),
    "entries that are a table": (in_index(manifests={"0": {}}), "its index is broken"),
    "no schema": (lambda index: index.made.pop("schemaVersion"), "schemaVersion is not there"),
    "another schema": (in_index(schemaVersion=1), "schemaVersion is 1"),
    "no type": (
        lambda index: index.made.pop("mediaType"),
        Harmless("OCI's indexes need none: whoever names it says its type"),
    ),
    "a manifest's type": (in_index(mediaType=MANIFEST), "the index has the type"),
    "docker's type": (
        in_index(mediaType="application/vnd.docker.distribution.manifest.list.v2+json"),
        Harmless("the same entries: docker's lists are called so"),
    ),
    "artifactType": (in_index(artifactType="x/y"), "the index has artifactType (x/y)"),
    "a subject": (lambda index: index.made.update(subject=index.evil), "the index has subject"),
    "an unknown key": (in_index(evil=1), "the index has evil (1)"),
    "a configuration": (lambda index: index.made.update(config=index.evil), "both an index (`manifests`) and"),
    "layers": (in_index(layers=[]), "both an index (`manifests`) and"),
    "manifests in capitals": (
        lambda index: index.made.update(Manifests=[index.evil]),
        "'manifests' appears twice",
    ),
    "manifests twice": (
        lambda index: setattr(index, "text", lambda data: b'{"manifests":[],' + data[1:]),
        "'manifests' appears twice",
    ),
    "no annotations": (
        lambda index: index.made.pop("annotations"),
        Harmless("docker's lists have none; each image's labels, which have the same, are held"),
    ),
    "an annotation of another value": (
        lambda index: index.made["annotations"].update({"vllm-mods.model": "org/evil"}),
        "the index's annotation vllm-mods.model is org/evil",
    ),
    "an annotation less": (
        lambda index: index.made["annotations"].pop("vllm-mods.model"),
        "the index's annotation vllm-mods.model is not there",
    ),
    "an annotation more": (
        lambda index: index.made["annotations"].update(evil="1"),
        "the index's annotation evil is 1",
    ),
    "annotations that are a list": (in_index(annotations=["evil"]), "the index's annotation"),
    "addresses of an image": (in_entry(urls=["https://example.org"]), "entry 1 of the index has urls"),
    "an image with data": (in_entry(data="e30="), "entry 1 of the index has data"),
    "an image with annotations": (in_entry(annotations={"a": "b"}), "entry 1 of the index has annotations"),
    "an image with artifactType": (in_entry(artifactType="x/y"), "entry 1 of the index has artifactType"),
    "an image with an unknown key": (in_entry(evil=1), "entry 1 of the index has evil"),
    "an image of an index's type": (in_entry(mediaType=INDEX), "not of the type stated in the index"),
    "an image of an unknown type": (in_entry(mediaType="x/y"), "entry 1 of the index has the type x/y"),
    "an image of no type": (in_entry(mediaType=None), "entry 1 of the index has the type not there"),
    "an image of docker's type": (
        in_entry(mediaType="application/vnd.docker.distribution.manifest.v2+json"),
        Harmless("its digest says which manifest it is"),
    ),
    "an image of no digest": (in_entry(digest=None), "its index is broken"),
    "a digest in capitals": (in_entry(Digest="sha256:00"), "'digest' appears twice"),
    "a digest that is not there": (in_entry(digest=f"sha256:{'0' * 64}"), "is missing"),
    "an image that is longer": (in_entry(size=10**5), "its manifest"),
    "an image of no size": (in_entry(size=None), "its index is broken"),
    "no platform": (in_entry(platform=None), "names no platform, and no lock creates such an entry"),
    "a platform that is a text": (in_entry(platform="linux/amd64"), "platform"),
    "a variant": (in_platform(variant="v2"), "entry 1 of the index: its platform is"),
    "a version of the system": (in_platform(**{"os.version": "10"}), "entry 1 of the index: its platform is"),
    "features of the system": (in_platform(**{"os.features": "x"}), "entry 1 of the index: its platform is"),
    "an unknown key of the platform": (in_platform(evil="1"), "entry 1 of the index: its platform is"),
    "a machine in capitals": (in_platform(Architecture="arm64"), "'architecture' appears twice"),
    "another machine": (in_platform(architecture="riscv64"), "the image is for linux/amd64, not linux/riscv64"),
    "another system": (in_platform(os="windows"), "the image is for linux/amd64, not windows/amd64"),
    "the index in other bytes": (
        lambda index: setattr(index, "text", lambda data: data + b"\n"),
        Harmless("the same document: only its own digest is another"),
    ),
    "something behind the index": (
        lambda index: setattr(index, "text", lambda data: data + b"{}"),
        "not JSON",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the small pairing; return its layout and its lock."""
    folder = tmp_path_factory.mktemp("made")
    files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
    site = small_site.build(folder / "site", files)
    things = {f"{SITE}/{path}": thing for path, thing in from_disk(site).items()}
    below = tar_of({"etc/os-release": b"x", "usr/local": Folder(0o755)})
    settings = {"Env": ["PATH=/usr/local/bin"], "User": "0", "WorkingDir": "/srv"}
    base = Image([below, tar_of(things)], settings, "base:1").layout(folder / "base", "gzip")
    mods = library(folder / "library", "base:1")
    with (mods / f"pairings/{NAME}.toml").open("a") as file:
        file.write('[env]\nGREETING = "hello"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_MODS_CACHE", str(folder / "cache"))
        patch.setenv("VLLM_MODS_LIBRARY", str(mods))
        assert run(["lock", NAME, "--base", f"oci:{base}"]) == 0
        place = f"oci:{folder}/image"
        assert run(["build", NAME, "--base", f"oci:{base}", "--output", place]) == 0
    return folder / "image", mods / f"pairings/{NAME}.lock"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("locked", [True, False], ids=["with the lock", "without"])
def test_what_nobody_has_changed_passes(
    made: tuple[Path, Path], capfd: pytest.CaptureFixture[str], *, locked: bool
) -> None:
    image, lock = made
    code = run(["image", "verify", f"oci:{image}", *(["--lock", str(lock)] if locked else [])])
    assert code == 0, capfd.readouterr()


@pytest.mark.sampled(40)
@pytest.mark.parametrize("locked", [True, False], ids=["with the lock", "without"])
@pytest.mark.parametrize("name", IMAGES)
def test_an_altered_image_is_found_out(
    made: tuple[Path, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    *,
    locked: bool,
) -> None:
    alter, said = IMAGES[name]
    image = opened(made[0])
    alter(image)
    reference = image.write(tmp_path / "altered")
    capfd.readouterr()
    code = run(["image", "verify", reference, *(["--lock", str(made[1])] if locked else [])])
    out, err = capfd.readouterr()
    hold(said, code, out + err)


def hold(said: str | Harmless, code: int, told: str) -> None:
    if isinstance(said, Harmless):
        assert code == 0, told
    else:
        assert code in {1, 2}, told
        assert said in told


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base of three platforms and, of locks of two, what was built twice: other and made."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        mods = library(folder / "library", "base:1")
        patch.setenv("VLLM_MODS_LIBRARY", str(mods))
        patch.setenv("VLLM_MODS_CACHE", str(folder / "cache"))
        files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
        site = from_disk(small_site.build(folder / "site", files))
        things = {f"{SITE}/{path}": thing for path, thing in site.items()}
        image = Image([tar_of(things)], {}, "base:1")
        base = f"oci:{of_platforms(image, folder / 'base', *PLATFORMS)}"
        for place, epoch in (("other", "7"), ("made", "8")):
            patch.setenv("SOURCE_DATE_EPOCH", epoch)
            assert run(["lock", NAME, "--base", base, "--platform", ",".join(PLATFORMS[:2])]) == 0
            assert run(["build", NAME, "--base", base, "--output", f"oci:{folder / place}"]) == 0
    for blob in (*folder.glob("other/blobs/*/*"), *folder.glob("base/blobs/*/*")):
        (folder / "made/blobs/sha256" / blob.name).write_bytes(blob.read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEXES)
def test_an_altered_index_is_found_out(
    two: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    hold(*verified(two, tmp_path, capfd, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["nothing", "manifests in capitals", "addresses of an image", "an attestation"]
)
def test_who_asks_for_one_platform_is_told_of_the_index_too(
    two: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    hold(*verified(two, tmp_path, capfd, name, "--platform", "linux/amd64"))


def verified(
    two: Path, folder: Path, capfd: pytest.CaptureFixture[str], name: str, *more: str
) -> tuple[str | Harmless, int, str]:
    """Verify an altered index; return what has to be said, the exit code, and what was said."""
    change, said = INDEXES[name]
    index = Listed(index_of(two / "made"), index_of(two / "other"), index_of(two / "base"))
    change(index)
    place = folder / "altered"
    shutil.copytree(two / "made/blobs", place / "blobs", copy_function=os.link)
    if index.nested:
        put_blob(place, as_index(index.nested))
    data = index.text(json.dumps(index.made).encode())
    entry = {"mediaType": INDEX, "digest": put_blob(place, data), "size": len(data)}
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    capfd.readouterr()
    code = run(["image", "verify", f"oci:{place}", *more])
    wanted = said if isinstance(said, Harmless) else said.format(place)
    return wanted, code, "".join(capfd.readouterr())


def index_of(place: Path) -> dict[str, Any]:
    """Return the only index of a layout."""
    (entry,) = json.loads((place / "index.json").read_bytes())["manifests"]
    blob = place / "blobs" / entry["digest"].replace(":", "/")
    index: dict[str, Any] = json.loads(blob.read_bytes())
    return index


def put_blob(place: Path, data: bytes) -> str:
    (place / "blobs" / digest(data).replace(":", "/")).write_bytes(data)
    return digest(data)


def test_an_honest_image_of_another_lock_is_not_this_ones(
    made: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = json.loads(made[1].read_bytes())
    raw["revision"] = "another"
    other = tmp_path / "other.lock"
    other.write_text(json.dumps(raw))
    assert run(["image", "verify", f"oci:{made[0]}", "--lock", str(other)]) == 1
    assert f"revision is not there in the image and another in {other}" in capfd.readouterr().out
