"""What is in an image of a pairing: its receipt, its lock and its labels, held against each other and another lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import small_site
from altering import SITE, Opened, content, label, opened, put
from making_images import Image, from_disk, layer as tar_of
from paired import NAME, library

from vllm_mods.base.digest import sha256
from vllm_mods.building import inspection
from vllm_mods.cli import run
from vllm_mods.formats import pairing_lock
from vllm_mods.images.open import open_base
from vllm_mods.trees.image import open_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Build the small pairing; return its layout and its lock."""
    folder = tmp_path_factory.mktemp("built")
    files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
    site = small_site.build(folder / "site", files)
    things = {f"{SITE}/{path}": thing for path, thing in from_disk(site).items()}
    base = Image([tar_of(things)], {"Env": ["PATH=/usr/local/bin"]}, "base:1").layout(
        folder / "base"
    )
    mods = library(folder / "library", "base:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_MODS_CACHE", str(folder / "cache"))
        patch.setenv("VLLM_MODS_LIBRARY", str(mods))
        assert run(["lock", NAME, "--base", f"oci:{base}"]) == 0
        place = f"oci:{folder}/image"
        assert run(["build", NAME, "--base", f"oci:{base}", "--output", place]) == 0
    return folder / "image", (mods / f"pairings/{NAME}.lock").read_bytes()


def seen(place: str, tmp_path: Path) -> inspection.Inspection:
    base = open_base(place.removeprefix("oci:oci:"), cache_dir=str(tmp_path / "cache"))
    tree = open_image(base, "image:it", platform=None, named=None)
    return inspection.inspect(tree)


def altered(
    built: tuple[Path, bytes], tmp_path: Path, alter: Callable[[Opened], object]
) -> inspection.Inspection:
    image = opened(built[0])
    alter(image)
    return seen(image.write(tmp_path / "altered"), tmp_path)


@pytest.mark.slow
def test_what_was_built_is_found_as_it_went_in(built: tuple[Path, bytes], tmp_path: Path) -> None:
    inspected = seen(f"oci:{built[0]}", tmp_path)
    digest = sha256(built[1])
    assert (inspected.findings, inspected.ok) == ((), True)
    assert (inspected.lock, inspected.lock_digest) == (pairing_lock.parse(built[1], "x"), digest)
    assert inspected.receipt is not None
    assert [mod.name for mod in inspected.receipt.mods] == ["patching", "writing"]
    assert inspected.labels["vllm-mods.lock"] == f"sha256:{digest}"
    assert inspected.labels["org.opencontainers.image.title"] == NAME
    assert list(inspected.labels) == sorted(inspected.labels)
    assert inspection.compare_with_lock(inspected, built[1], "x") == ()
    assert not inspected.changed("patching")


def test_a_file_that_was_changed_since_is_of_its_mod(
    built: tuple[Path, bytes], tmp_path: Path
) -> None:
    alter = content(f"{SITE}/vllm/a.py", b"A = 2", b"A = 9")
    inspected = altered(built, tmp_path, alter)
    assert not inspected.ok
    changed = [inspected.changed(name) for name in ("patching", "writing", "none")]
    assert changed == [True, False, False]


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_label_that_names_another_lock_is_said(
    built: tuple[Path, bytes], tmp_path: Path, *, has_lock: bool
) -> None:
    def alter(image: Opened) -> None:
        label("vllm-mods.lock", "sha256:0")(image)
        label("other", "x")(image)
        if not has_lock:
            put(f"{SITE}/.vllm-mods/.wh.{pairing_lock.PLACE.rpartition('/')[2]}", b"")(image)

    inspected = altered(built, tmp_path, alter)
    (finding,) = (each for each in inspected.findings if each.code == "label-disagrees")
    inside = f"is sha256:{sha256(built[1])}" if has_lock else "is not there"
    why = f"the label vllm-mods.lock says sha256:0, but the lock in the image {inside}"
    assert (finding.message, finding.path) == (why, pairing_lock.PLACE)
    assert "other" not in inspected.labels
    if not has_lock:
        assert (inspected.lock, inspected.lock_digest) == (None, None)
        (missing,) = inspection.compare_with_lock(inspected, built[1], "x")
        assert (missing.code, missing.path) == ("lock-missing", pairing_lock.PLACE)
        assert missing.message == "the image contains no lock of a pairing, so nothing was compared"


def test_another_lock_than_the_one_in_the_image_is_compared(
    built: tuple[Path, bytes], tmp_path: Path
) -> None:
    inspected = seen(f"oci:{built[0]}", tmp_path)
    lock = pairing_lock.parse(built[1], "x")

    def messages(data: bytes) -> list[str]:
        findings = inspection.compare_with_lock(inspected, data, "y.lock")
        return [finding.message for finding in findings]

    other = messages(pairing_lock.dump(lock._replace(revision="r", model="org/other")))
    assert "model is org/small in the image and org/other in y.lock" in other
    assert "revision is not there in the image and r in y.lock" in other
    assert messages(built[1] + b"\n")[0] == "the lock in the image differs from y.lock"
    base = lock.base._replace(platform="linux/s390x")
    more = pairing_lock.LockedPlatform(
        base._replace(platform="linux/riscv64"), lock.vllm, (), (), (), "c", lock.image
    )
    several = messages(pairing_lock.dump(lock._replace(base=base, platforms=(more,))))
    platform = lock.base.platform
    why = f"the image is for {platform}, but the lock is for linux/s390x and linux/riscv64"
    assert why in several
