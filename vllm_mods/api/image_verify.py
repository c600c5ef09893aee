"""What is in an image, and whether it is what its lock makes."""

from collections.abc import Mapping
from typing import NamedTuple, cast

from vllm_mods.api.access import Access
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Finding
from vllm_mods.building import identity, inspection
from vllm_mods.images.open import entries_of, indexes_of, platforms_in
from vllm_mods.trees.image import ImageTree


class ImageVerified(NamedTuple):
    """An image, or each of an index by platform, and what is wrong with the index itself.

    ``platforms`` are those of the index; without one, the only key of ``images`` is ``""`` or the named platform.
    """

    images: Mapping[str, inspection.Inspection]
    findings: tuple[Finding, ...]
    platforms: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is in it but what its lock makes."""
        return not self.findings and all(one.ok for one in self.images.values())


def image_inspect(
    reference: str, access: Access, *, platform: str | None = None, in_image: str | None = None
) -> inspection.Inspection:
    """Return what is in an image, with ``image:`` before its reference or without: mods, lock, what is not as it was left.

    Raises ``UsageError`` for what is no image with a vLLM.
    """
    spec = f"image:{reference.removeprefix('image:')}"
    tree = cast("ImageTree", access.open(spec, platform=platform, in_image=in_image))
    return inspection.inspect(tree)


def image_verify(
    reference: str,
    *,
    lock: bytes | None = None,
    lock_name: str = "the lock",
    platform: str | None = None,
    in_image: str | None = None,
    access: Access | None = None,
) -> ImageVerified:
    """Tell whether an image is the one that its lock makes: layers, every setting, every file.

    ``reference`` is ``docker:NAME``, ``oci:FOLDER``, ``registry:HOST/NAME:TAG`` and so on.
    ``lock`` is a lock to compare with, which messages call ``lock_name``; without it, that in the image.
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
    indexes = indexes_of(name, offline=access.offline)
    entries = entries_of(indexes, name)
    several = () if platform else platforms_in(entries)
    images: dict[str, inspection.Inspection] = {}
    wrong = [*inspection.entry_findings(entries)] if len(entries) > 1 else []
    for wanted in several or (platform,):
        try:
            result = image_inspect(name, access, platform=wanted, in_image=in_image)
        except UsageError as error:
            if len(several) < 2:
                raise
            wrong.append(identity.differs(f"the index's image for {wanted}: {error.message}"))
            continue
        more = inspection.compare_with_lock(result, lock, lock_name)
        images[wanted or ""] = result._replace(findings=(*result.findings, *more))
    if indexes and any(one.lock is not None for one in images.values()):
        if not platform:
            wrong += inspection.index_findings(list(images.values()), entries)
        wrong += identity.of_indexes(indexes, [one.tree.base for one in images.values()])
    return ImageVerified(images, tuple(wrong), tuple(several))
