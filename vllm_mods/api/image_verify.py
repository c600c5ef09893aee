"""What is in an image, whether it is what its lock makes, and how two differ."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access, open_image
from vllm_mods.base.errors import UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.building import inspection
from vllm_mods.building.inspection import Inspection
from vllm_mods.formats.pairing_lock import LockDifference
from vllm_mods.formats.receipt import FileHash
from vllm_mods.formats.receipt_diff import Disagreement
from vllm_mods.images import names, oci
from vllm_mods.images.open import platforms_of
from vllm_mods.trees.image import ImageTree


class InspectedImage(NamedTuple):
    """The vLLM of an image, and what is in it."""

    tree: ImageTree
    inspection: Inspection


class ImageVerified(NamedTuple):
    """An image, or each of an index by platform, and what is wrong with the index itself.

    ``platforms`` are those of the index; without one, the only key of ``images`` is ``""`` or the named platform.
    """

    images: Mapping[str, InspectedImage]
    findings: tuple[Finding, ...]
    platforms: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is in it but what its lock makes."""
        return not self.findings and all(one.inspection.ok for one in self.images.values())


class ImageDiff(NamedTuple):
    """Two images: what differs of the pairing, of the mods, and of the files in ``vllm/``."""

    old: ImageTree
    new: ImageTree
    pairing: Sequence[LockDifference]
    mods: Sequence[Disagreement]
    files: Sequence[FileHash]

    @property
    def ok(self) -> bool:
        """Whether they serve the same."""
        same = self.old.version == self.new.version
        return same and not (self.pairing or self.mods or self.files)


def open_reference(
    reference: str, access: Access, *, platform: str | None = None, in_image: str | None = None
) -> ImageTree:
    """Open the vLLM in an image by its reference, with ``image:`` before it or without."""
    spec = f"image:{reference.removeprefix('image:')}"
    return open_image(access, spec, platform=platform, in_image=in_image)


def image_verify(
    reference: str,
    *,
    lock: bytes | None = None,
    lock_name: str = "the lock",
    signers: str | None = None,
    key: str | None = None,
    platform: str | None = None,
    in_image: str | None = None,
    access: Access | None = None,
) -> ImageVerified:
    """Tell whether an image is the one that its lock makes: layers, every setting, every file.

    ``reference`` is ``docker:NAME``, ``oci:FOLDER``, ``archive:FILE``, ``registry:HOST/NAME:TAG`` and so on.
    ``lock`` is a lock to compare with, which messages call ``lock_name``; without it, that in the image. With
    ``signers`` (a file of OpenSSH's form) or ``key`` (cosign's) its manifest has to be signed too, in its registry.
    Of an index, every image is looked at unless ``platform`` names one; ``in_image`` is the folder that holds
    ``vllm/``, where there are several.

    Returns ``ImageVerified``. Raises ``UsageError`` for what is no image with a vLLM, ``TreeError`` for what cannot
    be read.

    >>> vm.image_verify("oci:nowhere")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    access = access or Access()
    name = reference.removeprefix("image:")
    several = () if platform else platforms_of(name, offline=access.offline)
    images: dict[str, InspectedImage] = {}
    wrong: list[Finding] = []
    for one in several or (platform,):
        try:
            tree = open_reference(name, access, platform=one, in_image=in_image)
        except UsageError as error:
            if len(several) < 2:
                raise
            wrong.append(
                Finding(FindingCode.IMAGE_DIFFERS, f"the index's image for {one}: {error.message}")
            )
            continue
        result = inspection.inspect(tree)
        more = _signature(tree, signers, key)
        if lock is not None:
            more = [*inspection.against(tree, result, lock, lock_name), *more]
        images[one or ""] = InspectedImage(
            tree, result._replace(findings=(*result.findings, *more))
        )
    if several:
        wrong += inspection.index_findings(list(images.values()))
        wrong += _index_signature(name, [image.tree for image in images.values()], signers, key)
    return ImageVerified(images, tuple(wrong), tuple(several))


def image_diff(old: ImageTree, new: ImageTree) -> ImageDiff:
    """Return how two images differ: pairing, model, command, environment, mods and the files of vllm/."""
    mods, files = inspection.diff(old, new)
    return ImageDiff(old, new, inspection.pairing_diff(old, new), mods, files)


def _signature(tree: ImageTree, signers: str | None, key: str | None) -> list[Finding]:
    if signers is None and key is None:
        return []
    if tree.base.where != "registry":
        raise UsageError(
            f"{tree.base.reference}: a signature is attached to an image in a registry, and this is none ({tree.base.where})",
            hint="vllm-mods image verify registry:HOST/NAME:TAG",
        )
    name = names.parse(names.plain(tree.base.reference))._replace(digest=tree.base.manifest_digest)
    return _check_signature(str(name), signers, key)


def _index_signature(
    reference: str, images: Sequence[ImageTree], signers: str | None, key: str | None
) -> list[Finding]:
    """Check the signature of an index, and that it still is the one whose images were looked at."""
    if not images or (signers is None and key is None):
        return []
    from vllm_mods.images.registry import Client  # noqa: PLC0415

    name = names.parse(names.plain(reference))
    client = Client(name, os.environ)
    index = client.manifest(reference)
    raw = oci.parse(oci.document_of(client, index, reference), reference)
    listed = {one.get("digest") for one in raw.get("manifests") or ()}
    for tree in images:
        if tree.base.manifest_digest not in listed:
            gone = f"{reference} is {index.digest} by now, which has no {tree.base.manifest_digest}"
            return [Finding(FindingCode.SIGNATURE, f"{gone}: it was moved while it was looked at")]
    return _check_signature(str(name._replace(digest=index.digest)), signers, key)


def _check_signature(name: str, signers: str | None, key: str | None) -> list[Finding]:
    from vllm_mods.building import signing  # noqa: PLC0415

    by_ssh = [] if signers is None else signing.ssh_says(signers, name)
    return by_ssh + ([] if key is None else signing.cosign_says(key, name))
