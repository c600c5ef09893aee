"""A library as an artifact in a registry: published under a tag, had by tag or digest.

One manifest of OCI 1.1 with the empty configuration and one layer, ``library_tar``. It says nothing that the
files do not, so the same files have the same digest wherever they lie and whoever publishes them. A signature
is attached to it as one is to an image (``building/signing.py``); its namespace is that of libraries.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from packaging.licenses import canonicalize_license_expression

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.building import oci, signing
from vllm_mods.building.outputs.registry import Attached, Attachment, Pusher
from vllm_mods.images import names
from vllm_mods.images import oci as reading
from vllm_mods.images.model import Descriptor
from vllm_mods.images.registry import Client
from vllm_mods.images.streams import CheckedStream
from vllm_mods.library.checksums import NAMESPACE
from vllm_mods.sharing import contents, library_tar
from vllm_mods.sharing.contents import SharedLibrary

KIND = "application/vnd.vllm-mods.library.v1"
LAYER = "application/vnd.vllm-mods.library.layer.v1.tar"
_STATEMENT = "vllm-mods:library:1"  # a URI whose scheme is ours: no domain is
_OCI = "org.opencontainers.image"


class Pulled(NamedTuple):
    """A library as a registry has it: the digest of its manifest, its files by their paths in it."""

    digest: str
    files: dict[str, bytes]


class Publication(NamedTuple):
    """A library that everything was checked of, and nothing was sent of yet.

    ``digest`` is the manifest's; ``there`` is whether the tag is this already.
    """

    library: SharedLibrary
    client: Pusher
    parts: Attachment
    manifest: bytes
    digest: str
    attached: Attached
    there: bool


class Published(NamedTuple):
    """What the registry has now, and the bytes that it was sent."""

    reference: str
    digest: str
    bytes_sent: int


def pull(reference: str, *, signers: str | None = None) -> Pulled:
    """Return a library, named by tag or by digest, whole.

    ``signers`` is a file in the form of OpenSSH's allowed_signers: one of these has to have signed it. Raises
    ``Refused`` if none has, ``UsageError`` for what is no library, ``TreeError`` for one that cannot be had or
    is not as one was published.
    """
    name = names.parse(reference)
    client = Client(name, os.environ)
    digest, layer = _found(client)
    if signers is not None:
        by_digest = str(name._replace(digest=digest))
        if wrong := signing.ssh_says(signers, by_digest, NAMESPACE):
            raise Refused(
                f"{by_digest}: {'; '.join(one.message for one in wrong)}; nothing of it was taken",
                hint="take it only if you know who published it, and why nobody of these has signed it",
            )
    what = f"{name}: its files"
    if layer.size > limits.LIBRARY:
        raise TreeError(
            f"{what} take {layer.size:,} bytes, and {limits.LIBRARY} is the most of {limits.LIBRARY.what}",
            hint="ask whoever published it",
        )
    with client.open(layer) as file:
        data = CheckedStream(file, layer.digest, layer.size, what).read()
    return Pulled(digest, library_tar.unpack(data, str(name)))


def prepare(folder: str, reference: str, *, sign: str | None = None) -> Publication:
    """Read and check a library, and ask what publishing it under a tag needs; ``sign`` is a key.

    Raises ``Refused`` for a tag that is something else, ``UsageError`` for a reference without one and for a key
    that does not sign, ``TreeError`` if the registry does not answer, and what ``contents.read`` does.
    """
    name = names.parse(reference)
    if name.digest or ":" not in reference.rpartition("/")[2]:
        raise UsageError(
            f"{reference}: a library is published under a tag, and it is not moved later",
            hint=str(name._replace(tag="1", digest=None)),
        )
    signer = None if sign is None else signing.signer(sign)
    library = contents.read(folder)
    parts = Attachment(KIND, ((LAYER, library_tar.pack(library.files)),))
    manifest = oci.artifact(KIND, parts.blobs, annotations=about(library))
    digest = oci.described(manifest).digest
    attached = Attached()
    if signer is not None:
        attached = signing.signature(_statement(library, digest), signer, NAMESPACE)
    client = Pusher(name, os.environ, None)
    there = client.digest_of_tag() and client.manifest(str(name)).digest
    if there not in {None, digest}:
        raise Refused(
            f"{name} is {there} already, and {folder} is {digest}: a tag is not moved; nothing was sent",
            hint="another tag: whoever has this one counts on what it is",
        )
    return Publication(library, client, parts, manifest, digest, attached, there is not None)


def publish(ready: Publication) -> Published:
    """Send a library, its signature, and the tag last: until then nobody sees anything of it.

    Raises ``TreeError`` if the registry does not take it, ``Refused`` if cosign does not sign it.
    """
    client, found = ready.client, oci.described(ready.manifest)
    if not ready.there:
        client.upload_parts(ready.parts)
        if any(ready.attached):
            client.put_manifest(ready.manifest, found)
    client.attach(found, ready.attached.artifacts)
    if ready.attached.sign is not None:
        ready.attached.sign(str(client.name._replace(digest=found.digest)))
    if not ready.there:
        client.put_manifest(ready.manifest, found, client.name.tag)
    return Published(str(client.name), found.digest, client.sent)


def about(library: SharedLibrary) -> dict[str, str]:
    """Return what the manifest says of a library, for registries to show: nothing that its files do not say."""
    mods = library.mods
    licences = sorted({canonicalize_license_expression(one.license) for one in mods})
    versions = {one.version for one in mods}
    found = {
        f"{_OCI}.title": ", ".join(
            [one.name for one in mods] or library.pairings or library.templates
        ),
        f"{_OCI}.licenses": " AND ".join(
            f"({one})" if " OR " in one and licences[1:] else one for one in licences
        ),
        f"{_OCI}.version": versions.pop() if len(versions) == 1 else "",
        "vllm-mods.mods": ", ".join(f"{one.name} {one.version}" for one in mods),
        "vllm-mods.pairings": ", ".join(library.pairings),
        "vllm-mods.templates": ", ".join(library.templates),
    }
    return {key: value for key, value in found.items() if value}


def _found(client: Client) -> tuple[str, Descriptor]:
    """Return the digest of a library's manifest, and its layer."""
    name = str(client.name)
    found = client.manifest(name)
    document = reading.parse(reading.document_of(client, found, name), f"{name}: its manifest")
    if "manifests" in document or document.get("artifactType") != KIND:
        what = "an index of images" if "manifests" in document else "an image"
        if "artifactType" in document:
            what = f"of the kind {document['artifactType']!r}"
        raise UsageError(
            f"{name} is {what}, and no library of vllm-mods",
            hint=f"vllm-mods image inspect registry:{name}",
        )
    try:
        (layer,) = map(reading.descriptor, document["layers"])
    except (KeyError, TypeError, ValueError) as error:
        raise TreeError(
            f"{name}: its manifest {found.digest} does not name one layer",
            hint="ask whoever published it",
        ) from error
    if layer.media_type != LAYER:
        raise TreeError(
            f"{name}: its layer is of the kind {layer.media_type!r}, and this vllm-mods reads {LAYER}",
            hint="a newer vllm-mods may read it",
        )
    return found.digest, layer


def _statement(library: SharedLibrary, digest: str) -> bytes:
    """Return the in-toto statement that is signed: these mods are this artifact."""
    mods = [
        {"name": one.name, "version": one.version, "sha256": one.digest} for one in library.mods
    ]
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": "library", "digest": {"sha256": digest.removeprefix("sha256:")}},
        ],
        "predicateType": _STATEMENT,
        "predicate": {"mods": mods},
    }
    return (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()
