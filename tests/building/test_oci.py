from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import TreeError
from vllm_mods.building import oci, tarball
from vllm_mods.building.outputs import engine
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images.model import Descriptor, digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

BELOW = Descriptor("application/vnd.docker.image.rootfs.diff.tar.gzip", "sha256:" + "b" * 64, 7)
BASE = {
    "architecture": "arm64",
    "variant": "v8",
    "os": "linux",
    "author": "somebody",
    "created": "2026-01-01T00:00:00.123456789Z",
    "config": {
        "Env": ["A=1"],
        "Entrypoint": ["vllm"],
        "Cmd": None,
        "Hostname": "",
        "Labels": {"kept": "1", "org.opencontainers.image.title": "theirs"},
    },
    "history": [{"created_by": "RUN"}, {"created_by": "ENV", "empty_layer": True}],
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "a" * 64]},
}
LABELS = {"org.opencontainers.image.title": "ours"}
LAYER = tarball.write([TarEntry("etc/a", b"1", 0o644)])


def image(base: Mapping[str, object] = BASE, layer: bytes = LAYER) -> oci.BuiltImage:
    return oci.append(base, (BELOW,), layer, created_by="x", labels=LABELS, epoch=86_400)


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        files = {one.name: opened.extractfile(one) for one in opened if one.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_the_configuration_is_the_bases_with_a_layer_more() -> None:
    made = image()
    config = json.loads(made.config)
    assert config["rootfs"]["diff_ids"] == ["sha256:" + "a" * 64, digest_of(LAYER)]
    assert (config["architecture"], config["variant"], config["os"]) == ("arm64", "v8", "linux")
    assert config["config"] == {
        "Env": ["A=1"],
        "Entrypoint": ["vllm"],
        "Labels": {"kept": "1", "org.opencontainers.image.title": "ours"},
    }
    assert config["created"] == "1970-01-02T00:00:00Z"
    assert len(config["history"]) == 2


def test_the_manifest_names_the_layers_as_the_bases_does() -> None:
    made = image()
    assert made.manifest is not None
    manifest = json.loads(made.manifest)
    assert made.packed is not None
    assert gzip.decompress(made.packed) == LAYER
    assert manifest["layers"][0]["digest"] == BELOW.digest
    assert manifest["layers"][0]["mediaType"] == f"{oci.LAYER}+gzip"
    assert manifest["layers"][1] == {
        "mediaType": f"{oci.LAYER}+gzip",
        "digest": digest_of(made.packed),
        "size": len(made.packed),
    }
    assert made.diff_ids[-1] == digest_of(LAYER)
    assert manifest["config"]["digest"] == digest_of(made.config) == made.config_digest
    assert manifest["annotations"] == LABELS
    assert made.manifest_digest == digest_of(made.manifest)


def test_the_id_does_not_depend_on_where_the_base_was_read() -> None:
    """An engine tells a configuration with its own empty fields, and its history otherwise."""
    told = {**BASE, "history": None, "author": "", "docker_version": "20.10"}
    told["config"] = {**BASE["config"], "AttachStdin": False, "Volumes": None}  # type: ignore[dict-item]
    assert image(told).config == image().config


def test_a_base_whose_layers_do_not_agree_is_refused() -> None:
    broken = {**BASE, "rootfs": {"type": "layers", "diff_ids": []}}
    with pytest.raises(
        TreeError, match="the base's configuration has 0 layers, but its manifest has 1"
    ):
        image(broken)


def test_a_thin_archive_is_a_layout_and_a_docker_archive_with_the_new_layer_alone() -> None:
    made = image()
    files = members(engine.thin(made, "p:1-2"))
    (entry,) = json.loads(files["manifest.json"])
    assert entry["RepoTags"] == ["p:1-2"]
    assert files[entry["Config"]] == made.config
    assert gzip.decompress(files[entry["Layers"][-1]]) == LAYER
    assert entry["Layers"][0] not in files
    assert len(entry["Layers"]) == 2
    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["annotations"]["org.opencontainers.image.ref.name"] == "1-2"
    assert named["annotations"]["io.containerd.image.name"] == "docker.io/library/p:1-2"
    assert files[oci.blob_path(named["digest"])] == made.manifest
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_without_the_bases_manifest_it_is_a_docker_archive_only() -> None:
    made = oci.append(BASE, None, LAYER, created_by="x", labels={}, epoch=0)
    assert made.manifest_digest is None
    files = members(engine.thin(made, "p:1"))
    assert "index.json" not in files
    assert files[oci.blob_path(made.diff_ids[-1])] == LAYER


@pytest.mark.parametrize(
    ("ref", "full"),
    [
        ("p:1", "docker.io/library/p:1"),
        ("me/p:1", "docker.io/me/p:1"),
        ("localhost/p:1", "localhost/p:1"),
        ("reg:5000/p:1", "reg:5000/p:1"),
        ("ghcr.io/me/p:1", "ghcr.io/me/p:1"),
    ],
)
def test_names_in_full(ref: str, full: str) -> None:
    assert oci.full_name(ref) == full


def test_a_damaged_base_is_refused_with_what_its_documents_say() -> None:
    for layers, of in ((None, "none"), ((), "0"), ((BELOW,), "1")):
        with pytest.raises(TreeError) as caught:
            oci.append({}, layers, LAYER, created_by="x", labels={}, epoch=0)
        why = f"the base's configuration has 0 layers, but its manifest has {of}"
        hint = "the base is damaged: pull or build it again"
        assert (caught.value.message, caught.value.hint) == (why, hint)


def test_a_configuration_is_written_byte_for_byte() -> None:
    raw = {
        "architecture": "arm64",
        "os": "linux",
        "os.version": "10",
        "os.features": ["x"],
        "variant": "",
        "config": {"User": "0", "Cmd": [], "Labels": None, "Shell": ["sh"], "Image": "x"},
    }
    document = oci.configuration(raw, ("a", "b", "c"), created_by="x", labels=LABELS, epoch=1)
    created = '"created":"1970-01-01T00:00:01Z"'
    base = f'{{{created},"created_by":"base image"}}'
    assert document.decode() == (
        f'{{"architecture":"arm64","config":{{"Labels":{json.dumps(LABELS, separators=(",", ":"))},'
        f'"Shell":["sh"],"User":"0"}},{created},"history":[{base},{base},{{{created},"created_by":"x"}}],'
        '"os":"linux","os.features":["x"],"os.version":"10",'
        '"rootfs":{"diff_ids":["a","b","c"],"type":"layers"}}'
    )


def test_what_is_packed_already_is_not_packed_again() -> None:
    ours = image()._replace(packed=b"packed")
    again = oci.with_layers(ours, (BELOW, BELOW))
    assert again.packed == b"packed"
    assert again.layers is not None
    gzip_of = f"{oci.LAYER}+gzip"
    assert again.layers == (
        *(BELOW._replace(media_type=gzip_of),) * 2,
        (gzip_of, digest_of(b"packed"), 6),
    )
    assert again.layer_blob == (digest_of(b"packed"), b"packed")
    assert ours._replace(layers=None).layer_blob == (digest_of(LAYER), LAYER)


def test_an_unknown_kind_of_layer_keeps_its_name() -> None:
    ours = oci.with_layers(image(), (BELOW._replace(media_type="other"),))
    assert ours.layers is not None
    assert ours.layers[0].media_type == "other"
    zstd = BELOW._replace(media_type="application/vnd.docker.image.rootfs.diff.tar.zstd")
    ours = oci.with_layers(image(), (zstd,))
    assert ours.layers is not None
    assert ours.layers[0].media_type == f"{oci.LAYER}+zstd"


def test_the_index_of_several_has_what_their_annotations_share() -> None:
    first = image()
    second = image({**BASE, "architecture": "amd64", "variant": None})
    second = oci.with_layers(second._replace(annotations={**LABELS, "own": "2"}), (BELOW,))
    assert oci.top([first]) == first.manifest
    document = json.loads(oci.top([first, second]))
    assert document["schemaVersion"] == 2
    assert document["mediaType"] == "application/vnd.oci.image.index.v1+json"
    assert document["annotations"] == LABELS
    assert [entry["platform"] for entry in document["manifests"]] == [
        {"architecture": "arm64", "os": "linux", "variant": "v8"},
        {"architecture": "amd64", "os": "linux"},
    ]
    assert [entry["digest"] for entry in document["manifests"]] == [
        first.manifest_digest,
        second.manifest_digest,
    ]


@pytest.mark.parametrize(
    ("annotations", "shared"),
    [
        ([], {}),
        ([{"a": "1"}], {"a": "1"}),
        ([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"a": "1"}], {"a": "1"}),
        ([{"a": "1"}, {}], {}),
    ],
)
def test_what_annotations_share(annotations: list[dict[str, str]], shared: dict[str, str]) -> None:
    assert oci.shared_annotations(annotations) == shared


def test_an_index_names_an_image_after_those_that_are_there() -> None:
    manifest = image().manifest or b""
    other = {"digest": "x"}
    document = json.loads(oci.index(manifest, "me/p:1-2", [other]))
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest_of(manifest),
        "size": len(manifest),
        "annotations": {
            "org.opencontainers.image.ref.name": "1-2",
            "io.containerd.image.name": "docker.io/me/p:1-2",
        },
    }
    assert document["manifests"] == [other, entry]
