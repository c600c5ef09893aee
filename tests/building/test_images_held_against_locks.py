"""What an image, a manifest or an index says beside what a lock makes: each finding in its words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from folder_base import FolderBase
from making_images import CONFIG, INDEX, LAYER, MANIFEST

from vllm_mods.building import identity, inspection
from vllm_mods.formats.pairing_lock import (
    LockedBase,
    LockedImage,
    LockedPlatform,
    LockedVllm,
    PairingLock,
)
from vllm_mods.images.model import Descriptor
from vllm_mods.images.oci import IndexEntry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vllm_mods.base.model import Finding

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
DOCKER = "application/vnd.docker.distribution.manifest"


def words(findings: Iterable[Finding]) -> list[str]:
    return [finding.message for finding in findings]


def entry(digest: str, platform: str) -> IndexEntry:
    return IndexEntry(Descriptor(MANIFEST, digest, 7), platform)


@pytest.mark.parametrize(
    ("entries", "messages"),
    [
        ([entry(A, "linux/amd64"), entry(B, "linux/arm64")], []),
        (
            [entry(A, "")],
            [f"entry 1 of the index, {A}, names no platform, and no lock creates such an entry"],
        ),
        (
            [entry(A, "linux/amd64"), entry(B, "unknown/unknown")],
            [
                f"entry 2 of the index, {B}, is for unknown/unknown, and no lock creates such an entry"
            ],
        ),
        (
            [entry(A, "linux/amd64"), entry(B, "linux/amd64")],
            [f"entry 2 of the index, {B}, is a second image for linux/amd64"],
        ),
        (
            [entry(A, "linux/amd64"), entry(A, "linux/arm64"), entry(B, "linux/s390x")],
            [f"entry 2 of the index, {A}, appears twice"],
        ),
    ],
)
def test_an_index_lists_one_image_for_each_platform(
    entries: list[IndexEntry], messages: list[str]
) -> None:
    assert words(inspection.entry_findings(entries)) == messages


def index_of(*entries: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries), **more}


def listed(digest: str, architecture: str, **more: object) -> dict[str, Any]:
    platform = {"os": "linux", "architecture": architecture}
    known = {"mediaType": MANIFEST, "digest": digest, "size": 7, "platform": platform}
    return {key: value for key, value in {**known, **more}.items() if value is not None}


def image(tmp_path: Path, digest: str, architecture: str, **annotations: str) -> FolderBase:
    base = FolderBase(tmp_path)
    base.config = json.dumps({"os": "linux", "architecture": architecture}).encode()
    base.manifest_digest = digest
    base.manifest = json.dumps({"annotations": annotations}).encode()
    return base


PLATFORM = "entry 2 of the index: its platform"
IS_ARM = 'but the lock says {"architecture": "arm64", "os": "linux"}'
TWO = (listed(A, "amd64"), listed(B, "arm64"))


@pytest.mark.parametrize(
    ("indexes", "messages"),
    [
        ([index_of(*TWO)], []),
        ([index_of(*TWO, annotations={"x": "1"})], []),
        ([{"schemaVersion": 2, "manifests": list(TWO)}], []),
        ([index_of(*TWO, mediaType=f"{DOCKER}.list.v2+json")], []),
        ([index_of(listed(C, "s390x")), index_of(*TWO)], []),
        ([index_of(*TWO, schemaVersion=1)], ["the index's schemaVersion is 1, not 2"]),
        (
            [index_of(*TWO, mediaType=MANIFEST)],
            [f"the index has the type {MANIFEST}, which no lock creates"],
        ),
        ([index_of(*TWO, config={})], ["the index has config ({}), which no lock creates"]),
        (
            [index_of(listed(A, "amd64", urls=["x"]), TWO[1])],
            ['entry 1 of the index has urls (["x"]), which no lock creates'],
        ),
        (
            [index_of(TWO[0], listed(B, "arm64", mediaType=None))],
            ["entry 2 of the index has the type not there, which no lock creates"],
        ),
        (
            [index_of(listed(C, "s390x", evil=1)), index_of(*TWO)],
            ["entry 1 of index 1 of 2 has evil (1), which no lock creates"],
        ),
        (
            [index_of(TWO[0], listed(B, "s390x"))],
            [f'{PLATFORM} is {{"os": "linux", "architecture": "s390x"}}, {IS_ARM}'],
        ),
        (
            [index_of(TWO[0], listed(B, "arm64", platform=None))],
            [f"{PLATFORM} is not there, {IS_ARM}"],
        ),
        (
            [index_of(*TWO, annotations={"x": "2", "y": "3"})],
            [
                "the index's annotation x is 2, but the lock says 1",
                "the index's annotation y is 3, but the lock says not there",
            ],
        ),
        (
            [index_of(*TWO, annotations="odd")],
            [
                "the index's annotation  is odd, but the lock says not there",
                "the index's annotation x is not there, but the lock says 1",
            ],
        ),
    ],
)
def test_an_index_says_what_its_images_make_of_it(
    tmp_path: Path, indexes: list[dict[str, Any]], messages: list[str]
) -> None:
    images = [
        image(tmp_path, A, "amd64", x="1", only="a"),
        image(tmp_path, B, "arm64", x="1", only="b"),
    ]
    assert words(identity.of_indexes(indexes, images)) == messages


def test_of_an_index_only_the_images_that_are_asked_for_are_held(tmp_path: Path) -> None:
    index = index_of(*TWO, annotations={"x": "2"})
    assert words(identity.of_indexes([index], [image(tmp_path, A, "amd64", x="1")])) == []
    wrong = index_of(listed(A, "s390x"), TWO[1])
    (messages,) = words(identity.of_indexes([wrong], [image(tmp_path, A, "amd64")]))
    assert messages.startswith("entry 1 of the index: its platform is ")


def lock_of(*platforms: str) -> PairingLock:
    first, *others = platforms or ("linux/amd64",)
    own = (LockedBase("b", "c", (), first), LockedVllm("1", "site", None), LockedImage({}, ()))
    base, vllm, nothing = own
    return PairingLock(
        pairing="p",
        pairing_digest="0",
        model="m",
        revision=None,
        base=base,
        vllm=vllm,
        mods=(),
        templates=(),
        wheels=(),
        command="vllm serve m",
        image=nothing,
        platforms=tuple(
            LockedPlatform(base._replace(platform=name), vllm, (), (), (), "vllm serve m", nothing)
            for name in others
        ),
    )


class Opened:
    """A tree of an image for a platform, as far as it is asked here."""

    def __init__(self, base: FolderBase) -> None:
        self.base = base


def inspected(
    tmp_path: Path, architecture: str, lock: PairingLock | None, digest: str = "0"
) -> inspection.Inspection:
    tree: Any = Opened(image(tmp_path, A, architecture))
    return inspection.Inspection(tree, None, lock, digest, {}, ())


AMD, ARM = "linux/amd64", "linux/arm64"


@pytest.mark.parametrize(
    ("locks", "entries", "messages"),
    [
        ([(AMD, ARM), (AMD, ARM)], [AMD, ARM], []),
        ([(), ()], [ARM, AMD], []),
        (
            [(AMD, ARM), (AMD, ARM)],
            [ARM, AMD],
            ["the index lists linux/arm64, linux/amd64; the lock lists linux/amd64, linux/arm64"],
        ),
        (
            [(AMD, ARM, "linux/s390x"), (AMD, ARM, "linux/s390x")],
            [AMD, ARM],
            ["the index has no image for linux/s390x, but the lock has one"],
        ),
        (
            [(AMD, "linux/s390x"), None],
            [AMD, ARM],
            [
                "the index has no image for linux/s390x, but the lock has one",
                "the index has an image for linux/arm64, but the lock has none",
            ],
        ),
    ],
)
def test_the_images_of_an_index_are_those_of_one_lock(
    tmp_path: Path, locks: list[tuple[str, ...] | None], entries: list[str], messages: list[str]
) -> None:
    images = [
        inspected(tmp_path, name, None if of is None else lock_of(*of))
        for name, of in zip(("amd64", "arm64"), locks, strict=True)
    ]
    listed_there = [entry(A, name) for name in entries]
    assert words(inspection.index_findings(images, listed_there)) == messages


def test_images_of_different_locks_are_no_index(tmp_path: Path) -> None:
    images = [
        inspected(tmp_path, "amd64", lock_of(AMD, ARM), "0"),
        inspected(tmp_path, "arm64", lock_of(AMD, ARM), "1"),
    ]
    messages = words(inspection.index_findings(images, [entry(A, AMD), entry(B, ARM)]))
    assert messages == ["the images of the index were built from different locks"]


LABELS = {"vllm-mods.model": "m"}


def manifest_of(**more: object) -> dict[str, Any]:
    config = {"mediaType": CONFIG, "digest": A, "size": 1}
    layer = {"mediaType": f"{LAYER}+gzip", "digest": B, "size": 2}
    known = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer, layer]}
    return {**known, "annotations": LABELS, **more}


@pytest.mark.parametrize(
    ("manifest", "messages"),
    [
        (manifest_of(), []),
        (manifest_of(annotations=None), []),
        (manifest_of(mediaType=f"{DOCKER}.v2+json"), []),
        (
            manifest_of(mediaType=INDEX),
            [f"the manifest has the type {INDEX}, which no lock creates"],
        ),
        (manifest_of(schemaVersion=None), ["the manifest's schemaVersion is null, not 2"]),
        (manifest_of(Layers=[]), ["the manifest has Layers ([]), which no lock creates"]),
        (manifest_of(x="y" * 201), [f"the manifest has x ({'y' * 197}…), which no lock creates"]),
        (manifest_of(x="y" * 200), [f"the manifest has x ({'y' * 200}), which no lock creates"]),
        (
            manifest_of(config={"mediaType": LAYER, "digest": A, "size": 1}),
            [f"the manifest's configuration has the type {LAYER}, which no lock creates"],
        ),
        (
            manifest_of(layers=[{"mediaType": LAYER, "digest": A, "size": 1, "urls": 1}]),
            ["the manifest's layer 1 has urls (1), which no lock creates"],
        ),
        (
            manifest_of(layers=[{"mediaType": LAYER}, {"mediaType": CONFIG}]),
            [f"the manifest's layer 2 has the type {CONFIG}, which no lock creates"],
        ),
        (
            manifest_of(annotations={"x": "1"}),
            [
                "the annotation vllm-mods.model is not there, but the lock says m",
                "the annotation x is 1, but the lock says not there",
            ],
        ),
    ],
)
def test_a_manifest_says_what_the_lock_makes(manifest: dict[str, Any], messages: list[str]) -> None:
    assert words(identity._manifest(manifest, LABELS)) == messages
