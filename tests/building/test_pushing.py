"""What a push asks a registry for: no byte that is there already, and nothing before all is known to fit."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, cast

import pytest
from folder_base import FolderBase
from making_images import INDEX, MANIFEST, digest
from web_site import Site, site

from vllm_mods.base.errors import Refused
from vllm_mods.building import oci, tarball
from vllm_mods.building.outputs import registry
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images import names
from vllm_mods.images.model import Blob, Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import RawIOBase
    from pathlib import Path

BELOW = b"below"


class Registry:
    """A registry with blobs and manifests by repository, which notes what is written."""

    def __init__(self) -> None:
        self.blobs: set[tuple[str, str]] = set()
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.mounts = True
        self.place = "/upload?state=1"
        self.written: list[tuple[str, str, str]] = []
        self.host = ""

    def __call__(self, site: Site) -> None:
        path, _, query = site.path.partition("?")
        if site.command in {"PUT", "POST", "DELETE"}:
            self.written.append((site.command, site.path, site.headers.get("Content-Type") or ""))
        if site.command == "POST" and "mount=" in query and self.mounts:
            site.say(201)
        elif site.command == "POST":
            site.say(202, Location=self.place)
        elif site.command == "PUT":
            site.say(201)
        elif site.command == "DELETE":
            site.say(204)
        elif "/blobs/" in path:
            repository, _, blob = path.removeprefix("/v2/").partition("/blobs/")
            site.say(200 if (repository, blob) in self.blobs else 404)
        elif path.removeprefix("/v2/") in self.manifests:
            kind, data = self.manifests[path.removeprefix("/v2/")]
            site.send_response(200)
            site.send_header("Content-Type", kind)
            site.send_header("Content-Length", str(len(data)))
            site.send_header("Docker-Content-Digest", digest(data))
            site.end_headers()
            site.wfile.write(data if site.command == "GET" else b"")
        else:
            site.say(404)


class _Every(dict[str, "Callable[[Site], None]"]):
    def __init__(self, answer: Callable[[Site], None]) -> None:
        super().__init__()
        self.answer = answer

    def get(self, _path: str, _default: object = None) -> Callable[[Site], None]:
        return self.answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    monkeypatch.setenv("HOME", str(tmp_path))
    answering = Registry()
    with site(_Every(answering)) as (url, _):
        answering.host = url.removeprefix("http://")
        yield answering


def base_of(tmp_path: Path, reference: str, where: str = "registry") -> FolderBase:
    base = FolderBase(tmp_path, reference=reference, where=where)
    base.diff_ids = (digest(BELOW),)
    base.configure({})
    base.layers = (Descriptor(oci.LAYER, digest(BELOW), len(BELOW)),)
    base.blobs = (
        Blob(digest(BELOW), 5, lambda: cast("RawIOBase", io.BytesIO(BELOW)), digest(BELOW)),
    )
    return base


def built(base: FolderBase) -> oci.BuiltImage:
    layer = tarball.write([TarEntry("etc/a", b"1", 0o644)])
    return oci.append(
        json.loads(base.config), base.layers, layer, created_by="x", labels={}, epoch=0
    )


def test_what_is_there_is_not_sent_again(server: Registry, tmp_path: Path) -> None:
    base = base_of(tmp_path, f"registry:{server.host}/me/it:base")
    ours = built(base)
    server.blobs = {("me/it", digest(BELOW)), ("me/it", ours.layer_blob[0])}
    name, pushed, sent = registry.push([(ours, base)], f"{server.host}/me/it:x", "p:1-2")
    assert (name, pushed) == (f"{server.host}/me/it:x", ours.manifest_digest)
    assert sent == len(ours.config) + len(ours.manifest or b"")
    assert server.written == [
        ("POST", "/v2/me/it/blobs/uploads/", ""),
        ("PUT", f"/upload?state=1&digest={ours.config_digest}", "application/octet-stream"),
        ("PUT", "/v2/me/it/manifests/x", MANIFEST),
    ]
    server.manifests["me/it/manifests/x"] = (MANIFEST, ours.manifest or b"")
    server.written.clear()
    again = registry.push([(ours, base)], f"{server.host}/me/it:x", "p:1-2")
    assert again == (name, pushed, 0)
    assert server.written == []


def test_an_upload_goes_where_the_registry_says(server: Registry, tmp_path: Path) -> None:
    server.place = "/plain"
    base = base_of(tmp_path, f"registry:{server.host}/lib/base:1")
    ours = built(base)
    registry.push([(ours, base)], f"{server.host}/me/it", "p:1-2")
    mount = f"/v2/me/it/blobs/uploads/?mount={digest(BELOW)}&from=lib%2Fbase".replace(":", "%3A")
    assert server.written[0] == ("POST", mount, "")
    puts = [path for command, path, _ in server.written if command == "PUT"]
    assert puts == [
        f"/plain?digest={ours.layer_blob[0]}",
        f"/plain?digest={ours.config_digest}",
        "/v2/me/it/manifests/1-2",
    ]


@pytest.mark.parametrize(
    ("reference", "source"),
    [
        ("registry:{0}/me/it:base", "me/it"),
        ("registry:h.example/a:1", "another registry"),
        ("oci:a/layout", "another registry"),
    ],
)
def test_a_base_that_the_registry_does_not_have_is_not_uploaded(
    server: Registry, tmp_path: Path, reference: str, source: str
) -> None:
    reference = reference.format(server.host)
    base = base_of(tmp_path, reference)
    is_layout = reference.startswith("oci:")
    base.where = "oci-layout" if is_layout else base.where
    with pytest.raises(Refused) as caught:
        registry.push([(built(base), base)], f"{server.host}/me/it:x", "p:1-2")
    assert caught.value.message == (
        f"{server.host}/me/it:x: this repository lacks the layer {digest(BELOW)} of the base image "
        f"(5 bytes), and {server.host} cannot mount that layer from {source}. "
        "vllm-mods does not upload layers of a base image. No tag was moved"
    )
    place = f"docker://{server.host}/me/it:base"
    plain = reference if is_layout else f"docker://{names.plain(reference)}"
    assert caught.value.hint == f"skopeo copy {plain} {place}  # then push again"
    assert server.written == []


def test_a_base_of_docker_has_the_layers_that_its_registry_names(
    server: Registry, tmp_path: Path
) -> None:
    base = base_of(tmp_path, f"docker:{server.host}/lib/base:1", "docker")
    ours = built(base)
    base.layers = None
    bare = ours._replace(manifest=None, layers=None, packed=None)
    config = {"mediaType": "c", "digest": base.config_digest, "size": len(base.config)}
    layer = {"mediaType": oci.LAYER, "digest": digest(BELOW), "size": len(BELOW)}
    manifest = json.dumps({"config": config, "layers": [layer]}).encode()
    server.manifests["lib/base/manifests/1"] = (MANIFEST, manifest)
    answer = server.__call__

    def with_config(site: Site) -> None:
        if site.command == "GET" and "/blobs/" in site.path:
            site.say(200, base.config)
        else:
            answer(site)

    with site(_Every(with_config)) as (url, _):
        host = url.removeprefix("http://")
        base.reference = f"docker:{host}/lib/base:1"
        _, pushed, _ = registry.push([(bare, base)], f"{host}/me/it:x", "p:1-2")
        assert pushed == ours.manifest_digest
        base.config_digest = digest(b"another")
        with pytest.raises(Refused) as caught:
            registry.push([(bare, base)], f"{host}/me/it:x", "p:1-2")
    assert caught.value.message == (
        f"{host}/lib/base:1 has changed: its configuration is now {config['digest']}, but the "
        f"base here has {base.config_digest}; nothing was pushed"
    )
    assert caught.value.hint == f"push the base first: docker push {host}/lib/base:1"


@pytest.mark.parametrize("reference", ["docker:h.example/a:1", "docker:Odd"])
def test_a_base_of_docker_from_another_registry_is_no_base_to_push(
    server: Registry, tmp_path: Path, reference: str
) -> None:
    base = base_of(tmp_path, reference, "docker")
    with pytest.raises(Refused) as caught:
        registry.push([(built(base), base)], f"{server.host}/me/it:x", "p:1-2")
    assert caught.value.message == (
        f"{reference}: docker does not have the registry digests of the base's layers, and the "
        "base is from another registry; nothing was pushed"
    )
    hint = "--base registry:HOST/NAME:TAG names the base in that registry"
    assert caught.value.hint == hint


def pusher(server: Registry) -> registry.Pusher:
    return registry.Pusher(names.parse(f"{server.host}/me/it:x"), os.environ, None)


def descriptor(data: bytes, kind: str = MANIFEST) -> Descriptor:
    return Descriptor(kind, digest(data), len(data))


@pytest.mark.parametrize(
    ("top", "ids"),
    [
        (b'{"config": {"digest": "sha256:1"}}', ["sha256:1"]),
        (b'{"config": {}}', [None]),
        (b'{"config": 7}', [None]),
        (b"{}", [None]),
        (b'{"manifests": []}', [None]),
        (b'{"manifests": 7}', [None]),
        (b'{"manifests": [7]}', []),
        (b'{"manifests": [{}]}', []),
    ],
)
def test_the_ids_of_what_is_there(server: Registry, top: bytes, ids: list[str | None]) -> None:
    server.manifests[f"me/it/manifests/{digest(top)}"] = (MANIFEST, top)
    assert pusher(server).images_of(descriptor(top)) == ids


def test_the_ids_of_all_images_of_an_index(server: Registry) -> None:
    below = [json.dumps({"config": {"digest": f"sha256:{n}"}}).encode() for n in (1, 2)]
    listed = [{"mediaType": MANIFEST, "digest": digest(one), "size": len(one)} for one in below]
    top = json.dumps({"manifests": listed}).encode()
    for document in (*below, top):
        server.manifests[f"me/it/manifests/{digest(document)}"] = (MANIFEST, document)
    assert pusher(server).images_of(descriptor(top, INDEX)) == ["sha256:1", "sha256:2"]


def test_a_tag_of_which_no_digest_is_told_is_another_ones(server: Registry, tmp_path: Path) -> None:
    base = base_of(tmp_path, f"registry:{server.host}/me/it:base")
    ours = built(base)
    config = {"config": {"digest": "sha256:0"}}
    server.manifests["me/it/manifests/x"] = (MANIFEST, json.dumps(config).encode())
    with pytest.raises(Refused) as caught:
        registry.push([(ours, base)], f"{server.host}/me/it:x", "p:1-2")
    current = digest(json.dumps(config).encode())
    assert caught.value.message == (
        f"{server.host}/me/it:x already names {current}, but the new image is {ours.manifest_digest}: "
        "vllm-mods does not move a tag; nothing was changed"
    )
    # --tag says nothing where the reference has a tag
    other = f"--output registry:{server.host}/me/it:another-tag"
    assert caught.value.hint == f"{other}, or remove the old image first"
