"""An index of a pairing's images that somebody has changed does not pass for it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import small_site
from making_images import INDEX, Image, digest, from_disk, of_platforms
from making_images import layer as tar_of
from paired import NAME, library

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
NAMES = "linux/amd64", "linux/arm64", "linux/s390x"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a base of three platforms and, of locks of two, what was built twice: other and made."""
    with pytest.MonkeyPatch.context() as patched:
        yield _built(tmp_path_factory.mktemp("built"), patched)


@pytest.fixture
def made(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, and of its library and cache."""
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(tmp_path / "library"))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


def _built(tmp_path: Path, patched: pytest.MonkeyPatch) -> Path:
    mods = library(tmp_path / "library", "base:1")
    patched.setenv("VLLM_MODS_LIBRARY", str(mods))
    patched.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
    site = from_disk(small_site.build(tmp_path / "site", files))
    image = Image([tar_of({f"{SITE}/{path}": one for path, one in site.items()})], {}, "base:1")
    base = f"oci:{of_platforms(image, tmp_path / 'base', *NAMES)}"
    for place, epoch in (("other", "7"), ("made", "8")):
        patched.setenv("SOURCE_DATE_EPOCH", epoch)
        assert run(["lock", NAME, "--base", base, "--platform", ",".join(NAMES[:2])]) == 0
        assert run(["build", NAME, "--base", base, "--output", f"oci:{tmp_path / place}"]) == 0
    for blob in (*tmp_path.glob("other/blobs/*/*"), *tmp_path.glob("base/blobs/*/*")):
        (tmp_path / "made/blobs/sha256" / blob.name).write_bytes(blob.read_bytes())
    return tmp_path


def entries(place: Path) -> list[dict[str, Any]]:
    """Return what the only index of a layout names."""
    (entry,) = json.loads((place / "index.json").read_bytes())["manifests"]
    blob = place / "blobs" / entry["digest"].replace(":", "/")
    found: list[dict[str, Any]] = json.loads(blob.read_bytes())["manifests"]
    return found


def left_out(folder: Path) -> list[dict[str, Any]]:
    return entries(folder / "made")[:1]


def added(folder: Path) -> list[dict[str, Any]]:
    return entries(folder / "made") + entries(folder / "base")[2:]


def exchanged(folder: Path) -> list[dict[str, Any]]:
    one, two = entries(folder / "made")
    return [{**one, "platform": two["platform"]}, {**two, "platform": one["platform"]}]


def of_another_lock(folder: Path) -> list[dict[str, Any]]:
    return [entries(folder / "made")[0], entries(folder / "other")[1]]


def hidden_behind_its_own_digest(folder: Path) -> list[dict[str, Any]]:
    """Another lock's image first, for the first platform, and once more for one that nobody asks for."""
    (evil, _), made = entries(folder / "other"), entries(folder / "made")
    return [evil, *made, {**evil, "platform": {"os": "linux", "architecture": "riscv64"}}]


def without_a_platform(folder: Path) -> list[dict[str, Any]]:
    (evil, _), made = entries(folder / "other"), entries(folder / "made")
    return [{key: evil[key] for key in ("mediaType", "digest", "size")}, *made]


def unknown(folder: Path) -> list[dict[str, Any]]:
    (evil, _), made = entries(folder / "other"), entries(folder / "made")
    return [*made, {**evil, "platform": {"os": "unknown", "architecture": "unknown"}}]


def twice(folder: Path) -> list[dict[str, Any]]:
    first, second = entries(folder / "made")
    return [first, second, first]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (hidden_behind_its_own_digest, "is a second one for linux/amd64"),
        (without_a_platform, "says no platform: no lock makes it"),
        (unknown, "is for unknown/unknown: no lock makes it"),
        (twice, "is a second one for linux/amd64"),
        (left_out, "the index has no image for linux/arm64, and its lock has one"),
        (added, "the index has an image for linux/s390x, and its lock has none"),
        (
            exchanged,
            "the index's image for linux/amd64: oci:{}: it is for linux/arm64, not for linux/amd64",
        ),
        (of_another_lock, "the images of the index are of different locks"),
    ],
)
def test_a_tampered_index_is_found_out(
    made: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], list[dict[str, Any]]],
    said: str,
) -> None:
    place = made / "made"
    assert run(["image", "verify", f"oci:{place}"]) == 0
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": change(made)}).encode()
    (place / "blobs" / digest(index).replace(":", "/")).write_bytes(index)
    entry = {"mediaType": INDEX, "digest": digest(index), "size": len(index)}
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    capsys.readouterr()
    assert run(["image", "verify", f"oci:{place}"]) == 1
    assert said.format(place) in capsys.readouterr().out
