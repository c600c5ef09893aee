"""Into a registry that has the base: its layers are mounted there, and two small blobs are sent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urljoin

import requests

from vllm_mods.base.errors import Refused, TreeError, VllmModsError
from vllm_mods.build import oci
from vllm_mods.build.building import Built
from vllm_mods.build.outputs.engine import moved
from vllm_mods.build.references import plain
from vllm_mods.images import names
from vllm_mods.images import oci as reading
from vllm_mods.images.model import Base, Descriptor
from vllm_mods.images.names import Name
from vllm_mods.images.registry import ACCEPT, Client

_OK, _CREATED, _ACCEPTED = 200, 201, 202


class Pushed(NamedTuple):
    """What the registry has now: name, digest of the manifest, and the bytes it was sent."""

    name: str
    digest: str
    sent: int


def write(images: Sequence[tuple[Built, Base]], ref: str, tag: str) -> Pushed:
    """Push an image, or an index of several, to ``ref``; without a tag in it, under the one of ``tag``.

    What the tag names comes last: until then nobody sees anything of it. Raises ``Refused`` for a tag that
    is taken, and where the registry neither has the base's layers nor takes them from the base's
    repository; they are never uploaded. ``TreeError`` if it does not answer, or not so.
    """
    target = names.parse(ref)
    if ":" not in ref.rpartition("/")[2] and "@" not in ref:
        target = target._replace(tag=tag.rpartition(":")[2])
    source = _source(images[0][1], target)
    client = _Pusher(target, os.environ, source)
    ours = [oci.with_layers(built.image, _layers(base, source)) for built, base in images]
    manifests = [one.manifest for one in ours if one.manifest is not None]
    top = manifests[0] if len(ours) == 1 else oci.platforms(ours)
    digest = oci.digest(top)
    there = client.digest_of_tag()
    if there == digest:
        return Pushed(str(target), digest, 0)
    if there is not None:
        if client.configs_of_tag() == [one.config_digest for one in ours]:  # packed by another zlib
            return Pushed(str(target), there, 0)
        raise moved(str(target), there, digest)
    below = {
        layer: base
        for one, (_, base) in zip(ours, images, strict=True)
        for layer in (one.layers or ())[:-1]
    }
    for layer, base in below.items():
        client.take(layer, base)
    for one in ours:
        client.upload(*one.layer_blob)
        client.upload(one.config_digest, one.config)
    if len(ours) > 1:
        for manifest in manifests:
            client.put_manifest(manifest, oci.digest(manifest))
    client.put_manifest(top, target.tag)
    return Pushed(str(target), digest, client.sent)


def _source(base: Base, target: Name) -> Name | None:
    """Return the base's own name if it is one in the same registry."""
    if base.where in {"oci-layout", "archive"}:
        return None
    try:
        source = names.parse(plain(base.reference))
    except VllmModsError:
        return None
    return source if source.host == target.host else None


def _layers(base: Base, source: Name | None) -> tuple[Descriptor, ...]:
    """Return the base's layers as a registry names them; docker forgets that when it pulls."""
    if base.where not in {"docker", "podman", "buildah"} and base.layers is not None:
        return base.layers
    if source is None:
        raise Refused(
            f"{base.reference}: {base.where} does not know how a registry names the base's layers, "
            "and the base's name is of another registry; nothing was pushed",
            hint="--base registry:HOST/NAME:TAG with the base as that registry has it",
        )
    client = Client(source, os.environ)
    choice = reading.Choice(reading.platform_of(base.config))
    data, _ = reading.pick(client, client.manifest(base.reference), str(source), choice)
    document = json.loads(data)
    config = document["config"]["digest"]
    if config != base.config_digest:
        raise Refused(
            f"{source} is another image by now: its configuration is {config}, and that of the base "
            f"here {base.config_digest}; nothing was pushed",
            hint=f"push the base first: docker push {plain(base.reference)}",
        )
    return tuple(reading.descriptor(layer) for layer in document["layers"])


class _Pusher(Client):
    """A repository that is written to; ``source`` is one of the same registry to mount from."""

    def __init__(self, name: Name, environ: Mapping[str, str], source: Name | None) -> None:
        super().__init__(name, environ)
        self._source = source
        self.sent = 0

    def digest_of_tag(self) -> str | None:
        response = self._ask("HEAD", f"manifests/{self.name.tag}", headers={"Accept": ACCEPT})
        if response.status_code == requests.codes.not_found:
            return None
        self._check(response, _OK)
        return response.headers.get("Docker-Content-Digest", "(unknown)")

    def configs_of_tag(self) -> list[str | None]:
        """Return the IDs of what the tag names: of an image, or of those of an index in their order."""
        found = self._document(self.manifest(str(self.name)))
        listed = found.get("manifests")
        try:
            below = [reading.descriptor(one) for one in listed] if isinstance(listed, list) else []
        except (KeyError, TypeError, ValueError):
            return []
        configs = [one.get("config") for one in ([*map(self._document, below)] or [found])]
        return [one.get("digest") if isinstance(one, dict) else None for one in configs]

    def _document(self, of: Descriptor) -> dict[str, Any]:
        with self.open(of) as file:
            return reading.parse(file.read(), str(self.name))

    def take(self, layer: Descriptor, base: Base) -> None:
        """Have a layer of the base in this repository, without sending it."""
        if self._source is not None and self._source.repository != self.name.repository:
            response = self._ask(
                "POST",
                "blobs/uploads/",
                params={"mount": layer.digest, "from": self._source.repository},
            )
            if response.status_code == _CREATED:
                return
            if response.status_code == _ACCEPTED:  # not mounted, an upload was begun instead
                self._ask("DELETE", response.headers.get("Location", ""))
            else:
                self._check(response, _CREATED)
        elif self._ask("HEAD", f"blobs/{layer.digest}").status_code == _OK:
            return
        raise Refused(
            f"{self.name}: {self.name.host} has not got the base's layer {layer.digest} "
            f"({layer.size:,} bytes) in this repository and does not mount it from "
            f"{self._source.repository if self._source else 'another registry'}; the base is not "
            "uploaded unasked, and no tag was moved",
            hint=f"skopeo copy docker://{plain(base.reference)} "
            f"docker://{self.name.host}/{self.name.repository}:base  # then push again",
        )

    def upload(self, digest: str, data: bytes) -> None:
        """Send a blob, unless it is there."""
        if self._ask("HEAD", f"blobs/{digest}").status_code == _OK:
            return
        begun = self._ask("POST", "blobs/uploads/")
        self._check(begun, _ACCEPTED)
        place = urljoin(begun.url, begun.headers.get("Location", ""))
        joint = "&" if "?" in place else "?"
        self._put(f"{place}{joint}digest={digest}", data, "application/octet-stream")

    def put_manifest(self, data: bytes, name: str) -> None:
        self._put(f"manifests/{name}", data, str(json.loads(data)["mediaType"]))

    def _put(self, path: str, data: bytes, kind: str) -> None:
        self.sent += len(data)
        self._check(self._ask("PUT", path, data=data, headers={"Content-Type": kind}), _CREATED)

    def _token(self, wanted: dict[str, str], login: tuple[str, str] | None) -> str | None:
        """Ask for the right to write here and, in the same token, to read where layers come from."""
        scopes = [f"repository:{self.name.repository}:pull,push"]
        if self._source is not None:
            scopes.append(f"repository:{self._source.repository}:pull")
        return super()._token({**wanted, "scope": scopes}, login)  # type: ignore[dict-item]

    def _check(self, response: requests.Response, expected: int) -> None:
        if response.status_code == expected:
            return
        said = f"the registry answered {response.status_code} {response.reason or ''}".rstrip()
        hint = "try again later"
        if response.status_code in {401, 403}:
            said += ": it does not let you write there"
            hint = f"docker login {self.name.host}"
        raise TreeError(f"{self.name}: {said}; no tag was moved", hint=hint)
