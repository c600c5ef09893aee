"""Into a registry that has the base: its layers are mounted there, and two small blobs are sent."""

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.building import oci
from vllm_mods.building.outputs.engine import tag_refusal
from vllm_mods.images import engine_command, names, oci as reading
from vllm_mods.images.model import Base, Descriptor
from vllm_mods.images.names import Name
from vllm_mods.images.registry import ACCEPT, Client

_OK, _CREATED, _ACCEPTED, _NOT_FOUND = 200, 201, 202, 404


def push(images: Sequence[tuple[oci.BuiltImage, Base]], ref: str, tag: str) -> tuple[str, str, int]:
    """Push images to ``ref``, an index of several, and the tag last: until then nobody sees them.

    Returns the name, the digest of the manifest, and how many bytes were sent. Without a tag in ``ref`` it is ``tag``. Raises ``Refused`` for a tag that is taken, for a base that no registry's
    name is known of, and where the registry neither has a base's layers nor takes them from the base's
    repository; they are never uploaded. ``TreeError`` if it does not answer, or not so.
    """
    target = names.parse(ref)
    if ":" not in ref.rpartition("/")[2]:
        target = target._replace(tag=tag.rpartition(":")[2])
    source = _source(images[0][1], target)
    client = Pusher(target, os.environ, source)
    ours = [oci.with_layers(built, _layers(base, source)) for built, base in images]
    top = oci.top(ours)
    tagged = oci.descriptor_of(top)
    current = client.digest_of_tag()
    if current is None:
        for image, (_, base) in zip(ours, images, strict=True):
            for layer in dict.fromkeys((image.layers or ())[:-1]):
                client.take(layer, base)
            client.upload(*image.layer_blob)
            client.upload(image.config_digest, image.config)
        for manifest in (image.manifest or b"" for image in ours):
            if manifest != top:
                client.put_manifest(manifest, oci.descriptor_of(manifest))
        client.put_manifest(top, tagged, target.tag)
    elif current != tagged.digest:
        ids = [one.config_digest for one in ours]
        tagged, built = client.manifest(str(target)), tagged.digest
        if client.images_of(tagged) != ids:  # else it was packed by another zlib
            again = f"--output registry:{target.host}/{target.repository}:another-tag"
            raise tag_refusal(str(target), current, built, again)
    return str(target), tagged.digest, client.sent


def _source(base: Base, target: Name) -> Name | None:
    """Return the base's own name if it is one in the same registry."""
    if base.where == "oci-layout":
        return None
    try:
        source = names.parse(names.plain(base.reference))
    except VllmModsError:
        return None
    return source if source.host == target.host else None


def _layers(base: Base, source: Name | None) -> tuple[Descriptor, ...]:
    """Return the base's layers as a registry names them; docker forgets that when it pulls."""
    if base.where not in engine_command.PROGRAMS and base.layers is not None:
        return base.layers
    if source is None:
        why = f"{base.reference}: {base.where} does not have the registry digests of the base's layers, and the base is from another registry; nothing was pushed"
        raise Refused(why, hint="--base registry:HOST/NAME:TAG names the base in that registry")
    client = Client(source, os.environ)
    choice = reading.Choice(reading.platform_of(base.config))
    data, _ = reading.pick(client.open, client.manifest(base.reference), str(source), choice)
    config, layers, _ = reading.read_manifest(client.open, data, str(source))
    if config.digest != base.config_digest:
        why = f"{source} has changed: its configuration is now {config.digest}, but the base here has {base.config_digest}; nothing was pushed"
        raise Refused(why, hint=f"push the base first: docker push {names.plain(base.reference)}")
    return layers


class Pusher(Client):
    """A repository that is written to; ``source`` is one of the same registry to mount from."""

    def __init__(self, name: Name, environ: Mapping[str, str], source: Name | None) -> None:
        super().__init__(name, environ)
        self._source = source
        self.sent = 0

    def digest_of_tag(self) -> str | None:
        """Return what the tag stands for now, None if it is free."""
        path = f"manifests/{self.name.tag}"
        response = self._ask("HEAD", path, {_OK, _NOT_FOUND}, headers={"Accept": ACCEPT})
        if response.status_code == _NOT_FOUND:
            return None
        return response.headers.get("Docker-Content-Digest", "(unknown)")

    def images_of(self, top: Descriptor) -> list[str | None]:
        """Return the IDs of the images that are here under a manifest, or under all in an index."""
        listed = self._document(top).get("manifests")
        try:
            below = [reading.descriptor(one) for one in listed] if isinstance(listed, list) else []
        except (KeyError, TypeError, ValueError):
            return []
        ids = []
        for manifest in below or [top]:
            config = self._document(manifest).get("config")
            ids.append(config.get("digest") if isinstance(config, dict) else None)
        return ids

    def _document(self, of: Descriptor) -> dict[str, Any]:
        with self.open(of) as file:
            return reading.parse(file.read(), str(self.name))

    def take(self, layer: Descriptor, base: Base) -> None:
        """Have a layer of the base in this repository, without sending it."""
        if self._source is not None and self._source.repository != self.name.repository:
            wanted = {"mount": layer.digest, "from": self._source.repository}
            response = self._ask("POST", "blobs/uploads/", {_CREATED, _ACCEPTED}, params=wanted)
            if response.status_code == _CREATED:
                return
            # not mounted, an upload was begun instead
            self._ask("DELETE", response.headers.get("Location", ""))
        elif self._ask("HEAD", f"blobs/{layer.digest}").status_code == _OK:
            return
        raise Refused(
            f"{self.name}: this repository lacks the layer {layer.digest} of the base image ({layer.size:,} bytes), and {self.name.host} cannot mount that layer from {self._source.repository if self._source else 'another registry'}. vllm-mods does not upload layers of a base image. No tag was moved",
            hint=f"skopeo copy {'docker://' * (base.where != 'oci-layout')}{names.plain(base.reference)} "
            f"docker://{self.name.host}/{self.name.repository}:base  # then push again",
        )

    def upload(self, digest: str, data: bytes) -> None:
        """Send a blob, unless it is there."""
        if self._ask("HEAD", f"blobs/{digest}").status_code == _OK:
            return
        begun = self._ask("POST", "blobs/uploads/", {_ACCEPTED})
        place = urljoin(begun.url, begun.headers.get("Location", ""))
        joint = "&" if "?" in place else "?"
        self._put(f"{place}{joint}digest={digest}", data, "application/octet-stream")

    def put_manifest(self, data: bytes, of: Descriptor, tag: str | None = None) -> None:
        """Send a manifest under its digest or a tag."""
        self._put(f"manifests/{tag or of.digest}", data, of.media_type)

    def _put(self, path: str, data: bytes, kind: str) -> None:
        self.sent += len(data)
        self._ask("PUT", path, {_CREATED}, data=data, headers={"Content-Type": kind})

    def _token(self, wanted: dict[str, str], login: tuple[str, str] | None) -> str | None:
        """Ask for the right to write here and, in the same token, to read where layers come from."""
        scopes = [f"repository:{self.name.repository}:pull,push"]
        if self._source is not None:
            scopes.append(f"repository:{self._source.repository}:pull")
        return super()._token({**wanted, "scope": scopes}, login)  # type: ignore[dict-item]
