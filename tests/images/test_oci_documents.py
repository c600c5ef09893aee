"""Indexes, manifests and configurations: which image of an index is taken, and what is wrong with a document."""

from __future__ import annotations

import io
import json
import platform
from typing import Any

import pytest
from lowering import lower
from making_images import CONFIG, INDEX, LAYER, MANIFEST, digest

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.images import oci
from vllm_mods.images.model import Descriptor
from vllm_mods.images.oci import Choice, OciImage, Opening

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
DOCKER = "application/vnd.docker.distribution.manifest"
AGAIN = "get the image again"
DEPENDS = "do not use this image: engines read it in different ways"


class Store(dict[str, bytes]):
    """Blobs by digest."""

    def open(self, blob: Descriptor) -> io.BytesIO:
        return io.BytesIO(self[blob.digest])

    def put(self, document: object, kind: str = "", **more: int) -> Descriptor:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self[digest(data)] = data
        return Descriptor(kind, digest(data), more.get("size", len(data)))


def entry(name: str, of: str = "", **more: object) -> dict[str, Any]:
    """Return what an index lists for a platform, given as ``os/architecture/variant``."""
    keys = ("os", "architecture", "variant")
    stated = dict(zip(keys, of.split("/"), strict=False))
    return {"mediaType": MANIFEST, "digest": name, "size": 7, "platform": stated or None, **more}


def listed(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"schemaVersion": 2, "manifests": list(entries)}


@pytest.mark.parametrize(
    ("entries", "wanted", "taken"),
    [
        ([entry(A, "linux/amd64")], "linux/arm64", A),  # it is the only one
        ([entry(A, "linux/s390x"), entry(A, "linux/ppc64le")], "linux/arm64", A),
        ([entry(A), entry(B, "unknown/unknown")], "linux/arm64", A),
        ([entry(A, "linux/amd64"), entry(B, "linux/arm64")], "linux/arm64", B),
        ([entry(A, "linux/amd64"), entry(B, "linux/arm64/v8")], "linux/arm64", B),
        ([entry(A, "linux/arm64"), entry(B, "linux/arm64/v8")], "linux/arm64/v8", B),
        ([entry(A, "linux/arm64"), entry(B, "linux/arm64/v8")], "linux/arm64", A),
        ([entry(A, "linux/amd64"), entry(B, "linux/arm64")], "linux/arm64/v8", B),
    ],
)
def test_of_an_index_the_image_for_the_platform_is_taken(
    entries: list[dict[str, Any]], wanted: str, taken: str
) -> None:
    assert Choice(wanted).of(listed(*entries), "oci:x").digest == taken


@pytest.mark.parametrize(
    ("entries", "why", "hint"),
    [
        (
            [entry(A, "linux/arm64/v7"), entry(B, "linux/arm64/v8"), entry(C, "unknown/unknown")],
            f"2 of its 2 images are for linux/arm64\n  {A}  linux/arm64/v7\n  {B}  linux/arm64/v8",
            "--platform linux/arm64/v7, or name an image by its digest: …@sha256:…",
        ),
        (
            [entry(A), entry(B, "linux/s390x")],
            f"0 of its 2 images are for linux/arm64\n  {A}  names no platform\n  {B}  linux/s390x",
            "--platform linux/s390x, or name an image by its digest: …@sha256:…",
        ),
        (
            [entry(A), entry(B)],
            f"0 of its 2 images are for linux/arm64\n  {A}  names no platform\n  {B}  names no platform",
            "name an image by its digest: …@sha256:…",
        ),
        ([], "0 of its 0 images are for linux/arm64", "name an image by its digest: …@sha256:…"),
    ],
)
def test_where_no_image_or_several_are_for_a_platform_all_are_named(
    entries: list[dict[str, Any]], why: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Choice("linux/arm64").of(listed(*entries), "oci:x")
    assert (caught.value.message, caught.value.hint) == (f"oci:x: {why}", hint)


def test_who_names_no_platform_gets_this_machines_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    index = listed(entry(A, "linux/amd64"), entry(B, "linux/arm64"), entry(C, "linux/s390x"))
    notes: list[str] = []
    indexes: list[oci.Index] = []
    choice = Choice(note=notes.append, known=indexes.append)
    assert choice.of(index, "oci:x").digest == B
    others = "linux/amd64, linux/s390x"
    assert notes == [
        f"oci:x: reading the image for linux/arm64; --platform selects another: {others}"
    ]
    assert indexes == [index]
    assert Choice().of(index, "oci:x").digest == B
    assert choice._replace(platform="linux/s390x").of(index, "oci:x").digest == C
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("i686", "386"), ("riscv64", "riscv64")],
)
def test_the_platform_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, name: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert oci.this_platform() == f"linux/{name}"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "linux/unknown"),
        ({"os": "", "architecture": None, "variant": ""}, "linux/unknown"),
        ({"os": "windows", "architecture": "amd64"}, "windows/amd64"),
        ({"os": "linux", "architecture": "arm64", "variant": "v8"}, "linux/arm64/v8"),
    ],
)
def test_the_platform_that_a_configuration_states(config: dict[str, str], name: str) -> None:
    assert oci.platform_of(json.dumps(config).encode()) == name


def test_what_an_index_lists_has_its_platform() -> None:
    index = listed(entry(A, "linux/arm64/v8"), entry(B), entry(C, "linux/amd64", mediaType=None))
    assert oci.entries_in(index, "its index") == (
        (Descriptor(MANIFEST, A, 7), "linux/arm64/v8"),
        (Descriptor(MANIFEST, B, 7), ""),
        (Descriptor("None", C, 7), "linux/amd64"),
    )


WRONG = f"sha256:{'g' * 64}"


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({}, "its index is broken: 'manifests'"),
        (listed({"size": 1}), "its index is broken: 'digest'"),
        (listed({"digest": A}), "its index is broken: 'size'"),
        ({"manifests": ["x"]}, "its index is broken: a descriptor must be an object"),
        (listed(entry(A, size=-1)), "its index is broken: -1 is not a size"),
        (listed(entry(A, size=True)), "its index is broken: True is not a size"),
        (listed(entry(A, size="1")), "its index is broken: '1' is not a size"),
        (listed(entry(WRONG)), f"its index is broken: {WRONG} is not a digest"),
        (listed(entry("md5:a")), "its index is broken: md5:a is not a digest"),
        (listed(entry(A, platform="linux")), f"its index: the platform of {A} are broken"),
        (listed(entry(A, platform={"os": 7})), f"its index: the platform of {A} are broken"),
    ],
)
def test_an_index_that_is_broken(index: dict[str, Any], why: str) -> None:
    with pytest.raises(TreeError) as caught:
        oci.entries_in(index, "its index")
    assert (caught.value.message, caught.value.hint) == (why, AGAIN)


def test_a_descriptor_may_lack_its_type_and_its_digest_be_longer() -> None:
    of = f"sha512:{'0' * 128}"
    assert oci.descriptor({"digest": of, "size": 0}) == Descriptor("", of, 0)


def above(blob: Descriptor) -> dict[str, Any]:
    """Return an index of one blob."""
    return listed({"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size})


@pytest.mark.parametrize("kind", ["", MANIFEST, f"{DOCKER}.v2+json"])
@pytest.mark.parametrize("top", ["", INDEX, f"{DOCKER}.list.v2+json"])
def test_the_manifest_below_indexes_is_picked(kind: str, top: str) -> None:
    store = Store()
    data = b'{"config": {}, "layers": []}'
    place = manifest = store.put(data, kind)
    for _ in range(5):
        assert oci.pick(store.open, place, "oci:x", Choice()) == (data, manifest)
        place = store.put(above(place), top)
    with pytest.raises(TreeError) as caught:
        oci.pick(store.open, place, "oci:x", Choice())
    message = "oci:x: the indexes are nested too deeply"
    assert (caught.value.message, caught.value.hint) == (message, AGAIN)


def test_one_choice_holds_for_an_index_in_an_index() -> None:
    store = Store()
    manifest = store.put({"config": {}}, MANIFEST)
    inner = listed(
        entry(A, "linux/amd64"), entry(manifest.digest, "linux/s390x", size=manifest.size)
    )
    top = store.put(above(store.put(inner, INDEX)), INDEX)
    assert oci.pick(store.open, top, "oci:x", Choice("linux/s390x"))[1] == manifest


@pytest.mark.parametrize("kind", [INDEX, f"{DOCKER}.list.v2+json", MANIFEST, f"{DOCKER}.v2+json"])
def test_a_document_that_is_described_as_what_it_is_not(kind: str) -> None:
    store = Store()
    is_index = "index" in kind or "list" in kind
    blob = store.put({"config": {}} if is_index else listed(entry(A)), kind)
    with pytest.raises(TreeError) as caught:
        oci.pick(store.open, blob, "oci:x", Choice())
    message = f"oci:x: its manifest is not of the type stated in the index: {kind}"
    assert (caught.value.message, caught.value.hint) == (message, DEPENDS)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"layers": []}, "`layers`"),
        ({"config": {}}, "`config`"),
        ({"layers": [], "config": {}}, "`config` and `layers`"),
    ],
)
def test_an_index_that_is_a_manifest_too(more: dict[str, Any], words: str) -> None:
    store = Store()
    with pytest.raises(TreeError) as caught:
        oci.pick(store.open, store.put({**listed(entry(A)), **more}), "oci:x", Choice())
    message = f"oci:x: the manifest is both an index (`manifests`) and the manifest of one image ({words})"
    assert (caught.value.message, caught.value.hint) == (message, DEPENDS)


def test_a_manifest_names_its_configuration_and_layers() -> None:
    store = Store()
    config = store.put(b"{}", CONFIG)
    layer = Descriptor(LAYER, A, 7)
    raw = [{"mediaType": b.media_type, "digest": b.digest, "size": b.size} for b in (config, layer)]
    manifest = json.dumps({"config": raw[0], "layers": raw[1:]}).encode()
    assert oci.read_manifest(store.open, manifest, "oci:x") == (config, (layer,), b"{}")


@pytest.mark.parametrize(
    "manifest",
    [
        b"{}",
        b'{"config": 7, "layers": []}',
        b'{"config": {"digest": "x", "size": 1}, "layers": []}',
    ],
)
def test_a_manifest_that_names_none(manifest: bytes) -> None:
    with pytest.raises(TreeError) as caught:
        oci.read_manifest(Store().open, manifest, "oci:x")
    why = f"its manifest {digest(manifest)} does not name a configuration and layers"
    hint = "an image's manifest is of schema 2 or OCI: build the image again"
    assert (caught.value.message, caught.value.hint) == (f"oci:x: {why}", hint)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (b"{", "its manifest: not JSON: "),
        (b"[]", "its manifest: not a JSON object"),
        (b'{"a": 1, "a": 2}', "its manifest: not JSON: 'a' appears twice"),
    ],
)
def test_a_manifest_that_is_no_object(manifest: bytes, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        oci.read_manifest(Store().open, manifest, "oci:x")
    assert caught.value.message.startswith(f"oci:x: {why}")
    assert caught.value.hint == AGAIN


def test_the_labels_of_a_configuration_may_differ_in_capitals_alone() -> None:
    config = b'{"config": {"Labels": {"a": "1", "A": "2"}}, "rootfs": {"diff_ids": ["sha256:a"]}}'
    assert oci.diff_ids(config, "oci:x") == ("sha256:a",)


def test_a_document_has_the_size_and_the_digest_that_are_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    blob = store.put(b"12345")
    assert oci.document_of(store.open, blob, "it") == b"12345"
    assert oci.document_of(store.open, blob._replace(size=-1), "it") == b"12345"
    for size in (0, 4, 6):
        with pytest.raises(TreeError, match=f"^it: it should have {size} bytes, but has "):
            oci.document_of(store.open, blob._replace(size=size), "it")
    lower(monkeypatch, "DOCUMENT", 5)
    assert oci.document_of(store.open, blob, "it") == b"12345"
    with pytest.raises(TreeError) as caught:
        oci.document_of(store.open, blob._replace(size=6), "it")
    message = "it: 6 bytes, which is too long"
    assert (caught.value.message, caught.value.hint) == (message, AGAIN)


def test_an_image_whose_documents_disagree_on_its_layers() -> None:
    store = Store()
    config = store.put({"rootfs": {"diff_ids": [A, B]}}, CONFIG)
    raw = {"mediaType": CONFIG, "digest": config.digest, "size": config.size}
    top = store.put({"config": raw, "layers": []}, MANIFEST)
    with pytest.raises(TreeError) as caught:
        OciImage(store.open, top, "registry", Opening("oci:x", Cache("/nowhere")))
    why = "the manifest names 0 layers, but the configuration names 2"
    assert (caught.value.message, caught.value.hint) == (f"oci:x: {why}", AGAIN)


def named(blob: str, tag: str = "", full: str = "") -> dict[str, Any]:
    notes = {oci.TAG: tag, oci.FULL_NAME: full}
    return entry(blob, annotations={key: name for key, name in notes.items() if name})


TWO = listed(named(A, "one", "host/x:one"), named(B, "", "host/x:two"), named(C))
OF_PLATFORMS = listed(entry(A, "linux/amd64"), entry(B, "linux/s390x"))


@pytest.mark.parametrize(
    ("index", "tag", "taken"),
    [
        (TWO, "one", A),
        (TWO, "host/x:one", A),
        (TWO, "host/x:two", B),
        (TWO, C, C),
        (TWO, f"sha256:{'d' * 64}", f"sha256:{'d' * 64}"),
        (listed(named(A, "one")), None, A),
        (listed(named(A, "one"), named(A, "two")), None, A),
        (listed(named(A, "one"), named(A, "one")), "one", A),
        (OF_PLATFORMS, None, B),
    ],
)
def test_an_image_of_a_layout_is_named_by_tag_name_or_digest(
    index: dict[str, Any], tag: str | None, taken: str
) -> None:
    how = Opening("oci:x", Cache("/nowhere"), None, Choice("linux/s390x"))
    blob = oci.choose_named(index, tag, how)
    assert blob == (("", taken, -1) if "d" * 64 in taken else (MANIFEST, taken, 7))


@pytest.mark.parametrize(
    ("index", "tag", "why", "hint"),
    [
        (TWO, None, "it has 3 images; there are: host/x:two, one", "name an image: …:host/x:two"),
        (
            TWO,
            "no",
            "it has no image named no; there are: host/x:two, one",
            "name an image: …:host/x:two",
        ),
        (listed(), None, "it has 0 images", "name an image by its digest: …@sha256:…"),
        (
            listed(named(A)),
            "no",
            "it has no image named no",
            "name an image by its digest: …@sha256:…",
        ),
        (
            listed(named(A, "x"), named(B, "x"), named(C, "y")),
            "x",
            "it has 2 images named x",
            "name an image by its digest: …@sha256:…",
        ),
    ],
)
def test_a_layout_where_the_image_is_not_clear(
    index: dict[str, Any], tag: str | None, why: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        oci.choose_named(index, tag, Opening("oci:x", Cache("/nowhere")))
    assert (caught.value.message, caught.value.hint) == (f"oci:x: {why}", hint)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"size": 1}, "oci:x: its index.json is broken: 'digest'"),
        (entry(A, annotations=[]), None),
        (entry(A, annotations=7), f"oci:x: the annotations of {A} are broken"),
        (entry(A, annotations={"a": 7}), f"oci:x: the annotations of {A} are broken"),
    ],
)
def test_a_layout_whose_index_is_broken(raw: dict[str, Any], why: str | None) -> None:
    how = Opening("oci:x", Cache("/nowhere"))
    if why is None:
        assert oci.choose_named(listed(raw), None, how).digest == A
        return
    with pytest.raises(VllmModsError) as caught:
        oci.choose_named(listed(raw), None, how)
    assert (caught.value.message, caught.value.hint) == (why, AGAIN)
