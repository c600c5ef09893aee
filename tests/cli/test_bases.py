"""Bases that are not plain: of several platforms, with several vLLMs, or a pairing's image themselves."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import small_site
from making_images import Image, Thing, from_disk, layer as tar_of, of_platforms
from mod_making import diff_of, write_mod
from paired import NAME, library

from vllm_mods.building import outputs
from vllm_mods.formats import pairing_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

SITE = "usr/local/lib/python3.12/dist-packages"
OTHER = "opt/other"
ARM = "linux/arm64"


@pytest.fixture
def mods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with the pairing ``small``."""
    found = library(tmp_path / "library", "base:1")
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(found))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return found


def made(folder: Path, *places: str, version: str = "0.19.1", **settings: Any) -> Image:
    files = {**small_site.FILES, "vllm/_version.py": f"__version__ = '{version}'\n".encode()}
    site = from_disk(small_site.build(folder / "site", files))
    things: dict[str, Thing] = {
        f"{place}/{path}": thing for place in places or (SITE,) for path, thing in site.items()
    }
    return Image([tar_of(things)], {"Env": ["PATH=/usr/local/bin"], **settings}, "base:1")


def several(folder: Path, *names: str, version: str = "0.19.1") -> str:
    return f"oci:{of_platforms(made(folder, version=version), folder / 'layout', *names)}"


@pytest.mark.slow
def test_one_of_several_platforms_is_chosen_and_the_lock_says_which(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    base = several(tmp_path / "base", "linux/amd64", ARM)
    lock = mods / f"pairings/{NAME}.lock"
    done = call("lock", NAME, "--base", base, "--platform", ARM, "--json")
    assert (done.code, done.json["platform"]) == (0, ARM)
    assert json.loads(lock.read_bytes())["base"]["platform"] == ARM
    # What is built of it needs no word more: the lock has chosen.
    assert call("lock", NAME, "--check", "--base", base).code == 0
    place = tmp_path / "made"
    assert call("build", NAME, "--base", base, "--output", f"oci:{place}").code == 0
    assert call("image", "verify", f"oci:{place}", "--lock", lock, "--platform", ARM).code == 0
    refused = call("image", "verify", f"oci:{place}", "--platform", "linux/amd64")
    assert refused.code == 2
    assert "the image is for linux/arm64, not linux/amd64" in refused.err


def test_an_index_says_which_platform_was_read_where_nobody_has(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    del mods
    base = several(tmp_path / "base", "linux/amd64", ARM, "linux/s390x")
    done = call("check", "--pairing", NAME, "--target", f"image:{base}")
    taken, other = ("linux/amd64", ARM)
    if f"read for {ARM}" in done.err:
        taken, other = other, taken
    assert (
        f"reading the image for {taken}; --platform selects another: {other}, linux/s390x"
        in done.err
    )
    quiet = call("check", "--pairing", NAME, "--target", f"image:{base}", "--platform", ARM)
    assert quiet.code == 0
    assert "--platform" not in quiet.err


BOTH = ["linux/amd64", ARM]


def entry_of(place: Path) -> dict[str, Any]:
    """Return the only entry of a layout's index.json, and what it names as ``document``."""
    (entry,) = json.loads((place / "index.json").read_bytes())["manifests"]
    blob = place / f"blobs/{entry['digest'].replace(':', '/')}"
    return {**entry, "document": json.loads(blob.read_bytes())}


@pytest.mark.slow
def test_an_index_in_is_an_index_out_by_one_lock(call: Call, mods: Path, tmp_path: Path) -> None:
    base = several(tmp_path / "base", ARM, "linux/amd64")
    lock, place = mods / f"pairings/{NAME}.lock", tmp_path / "made"
    locked = call("lock", NAME, "--base", base, "--json")
    assert (locked.code, locked.json["platforms"]) == (0, BOTH)
    assert "the lock is for linux/amd64 and linux/arm64; --platform chooses one" in locked.err
    assert call("lock", NAME, "--check", "--base", base).code == 0
    build = ("build", NAME, "--base", base, "--output", f"oci:{place}")
    made = call(*build, "--json").json
    assert list(made["platforms"]) == BOTH
    found = entry_of(place)
    assert found["annotations"]["io.containerd.image.name"].endswith(made["tag"])
    images = {one["platform"]["architecture"]: one for one in found["document"]["manifests"]}
    assert [made["platforms"][f"linux/{name}"]["manifest"] for name in sorted(images)] == [
        images[name]["digest"] for name in sorted(images)
    ]
    assert found["document"]["annotations"]["vllm-mods.lock"] == f"sha256:{made['lock']}"
    # Once more is no change, and each image alone is the one of the index.
    before = (place / "index.json").read_bytes()
    assert call(*build).code == 0
    assert (place / "index.json").read_bytes() == before
    verified = call("image", "verify", f"oci:{place}", "--lock", lock, "--json")
    assert (verified.code, list(verified.json["platforms"])) == (0, BOTH)
    assert call("image", "verify", f"oci:{place}", "--platform", ARM).code == 0
    alone = (f"--output=oci:{tmp_path}/alone", "--platform", ARM, "--json")
    assert call(*build[:4], *alone).json["image"] == made["platforms"][ARM]["image"]


@pytest.mark.slow
def test_of_three_platforms_two_are_named(call: Call, mods: Path, tmp_path: Path) -> None:
    base = several(tmp_path / "base", "linux/amd64", ARM, "linux/s390x")
    assert call("lock", NAME, "--base", base, "--platform", ",".join(BOTH)).code == 0
    place = f"oci:{tmp_path}/made"
    assert call("build", NAME, "--base", base, "--output", place).code == 0
    assert call("image", "verify", place, "--lock", mods / f"pairings/{NAME}.lock").code == 0
    refused = call("build", NAME, "--base", base, "--output", place, "--platform", "linux/s390x")
    assert refused.code == 2
    assert "the lock of small is for linux/amd64, linux/arm64, not for linux/s390x" in refused.err


@pytest.mark.slow
def test_an_engine_has_room_for_one_image_and_is_told_which(
    call: Call, mods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del mods
    base = several(tmp_path / "base", *BOTH)
    call("lock", NAME, "--base", base)
    monkeypatch.setattr(outputs, "parse", lambda *_: outputs.Output(outputs.ENGINE))
    refused = call("build", NAME, "--base", base)
    assert refused.code == 2
    assert "--output docker holds one image only" in refused.err
    assert "hint: --platform linux/amd64; --output registry:REF" in refused.err


@pytest.mark.slow
def test_a_base_that_changed_for_one_platform_is_refused_with_its_name(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    lock = mods / f"pairings/{NAME}.lock"
    base = several(tmp_path / "base", *BOTH)
    call("lock", NAME, "--base", base)
    raw = json.loads(lock.read_bytes())
    raw["platforms"][0]["base"]["diff_ids"] = [f"sha256:{'0' * 64}"]
    lock.write_text(json.dumps(raw))
    assert "linux/arm64 base.diff_ids" in call("lock", NAME, "--check", "--base", base).out
    refused = call("build", NAME, "--base", base, "--output", f"oci:{tmp_path}/made")
    assert (refused.code, "base.diff_ids" in refused.err) == (3, True)
    assert not (tmp_path / "made").exists()
    raw["platforms"].append(raw["platforms"][0])
    lock.write_text(json.dumps(raw))
    broken = call("build", NAME, "--base", base, "--output", f"oci:{tmp_path}/made")
    assert (broken.code, "platforms: a platform appears twice" in broken.err) == (2, True)


@pytest.mark.slow
def test_the_command_after_a_lock_works_as_it_is_printed(
    call: Call, mods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = several(tmp_path / "base", "linux/s390x", *BOTH)
    listed = ("--platform", ",".join((*BOTH, *BOTH)))
    locked = call("lock", NAME, "--base", base, *listed)
    assert json.loads((mods / f"pairings/{NAME}.lock").read_bytes())["platforms"][1:] == []
    hint = locked.err.rpartition("hint: vllm-mods ")[2].split()
    assert hint == ["build", NAME, "--output", f"oci:{NAME}", "--base", base]
    assert call(*hint).code == 0
    refused = call("build", NAME, "--base", base, "--output", "oci:x", "--platform", "a/b")
    assert f"hint: vllm-mods lock {NAME} --platform {','.join(BOTH)},a/b --base " in refused.err


def test_two_images_of_one_platform_have_no_lock(call: Call, mods: Path, tmp_path: Path) -> None:
    # an index may know a variant of which the images' configurations say nothing
    place = of_platforms(made(tmp_path), tmp_path / "layout", "linux/amd64", "linux/amd64")
    top = json.loads((place / "index.json").read_bytes())
    blob = place / "blobs" / top["manifests"][0]["digest"].replace(":", "/")
    index = json.loads(blob.read_bytes())
    one, two = index["manifests"]
    other = made(tmp_path / "other", version="0.19.2").layout(tmp_path / "other/layout")
    (named,) = json.loads((other / "index.json").read_bytes())["manifests"]
    two |= {"digest": named["digest"], "size": named["size"]}
    two["platform"] = {**one["platform"], "variant": "v3"}
    shutil.copytree(other / "blobs", place / "blobs", dirs_exist_ok=True)
    (place / "index.json").write_text(json.dumps(index))
    base = f"oci:{place}"
    refused = call("lock", NAME, "--base", base)
    assert refused.code == 3
    assert "the configurations of 2 images name only linux/amd64; no lock was" in refused.err
    assert call(*refused.err.rpartition("hint: vllm-mods ")[2].split()).code == 0
    assert call("lock", NAME, "--base", base, "--platform", "linux/amd64/v3").code == 0
    assert (mods / f"pairings/{NAME}.lock").exists()


def test_a_layer_is_read_where_it_lies_whatever_the_cache_knows(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    del mods
    base = made(tmp_path / "base").layout(tmp_path / "layout", "gzip")
    place = tmp_path / "made"
    assert call("lock", NAME, "--base", f"oci:{base}").code == 0
    assert call("build", NAME, "--base", f"oci:{base}", "--output", f"oci:{place}").code == 0
    assert call("image", "verify", f"oci:{place}").code == 0
    for layer in entry_of(place)["document"]["layers"]:
        blob = place / "blobs" / layer["digest"].replace(":", "/")
        data = blob.read_bytes()
        blob.unlink()  # that of the base has two names
        missing = call("image", "verify", f"oci:{place}")
        assert (missing.code, "is missing" in missing.err) == (1, True)
        blob.write_bytes(bytes(len(data)))
        damaged = call("image", "verify", f"oci:{place}")
        assert (damaged.code, "its contents do not match" in damaged.err) == (1, True)
        blob.write_bytes(data)
    assert call("image", "verify", f"oci:{place}").code == 0


def test_a_platform_that_is_not_there_is_refused_with_those_that_are(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    base = several(tmp_path / "base", "linux/amd64", ARM)
    refused = call("lock", NAME, "--base", base, "--platform", "linux/s390x")
    assert refused.code == 2
    assert "0 of its 2 images are for linux/s390x" in refused.err
    assert "hint: --platform linux/amd64" in refused.err
    assert not (mods / f"pairings/{NAME}.lock").exists()


@pytest.mark.slow
def test_of_several_vllms_one_is_named_and_the_lock_keeps_it(
    call: Call, mods: Path, tmp_path: Path
) -> None:
    image = made(
        tmp_path / "base", SITE, OTHER, Env=["PATH=/usr/local/bin", f"PYTHONPATH=/{OTHER}"]
    )
    base = f"oci:{image.layout(tmp_path / 'layout')}"
    refused = call("lock", NAME, "--base", base)
    assert refused.code == 2
    assert "the image has 2 vLLMs" in refused.err
    assert f"hint: name the vLLM that runs: --target-in-image /{OTHER}" in refused.err
    assert call("lock", NAME, "--base", base, "--target-in-image", f"/{SITE}").code == 0
    lock = mods / f"pairings/{NAME}.lock"
    assert json.loads(lock.read_bytes())["vllm"]["site_root"] == SITE
    assert call("lock", NAME, "--check", "--base", base).code == 0
    place = tmp_path / "made"
    assert call("build", NAME, "--base", base, "--output", f"oci:{place}").code == 0
    # The image was made for the one with the lock in it.
    told = call("image", "verify", f"oci:{place}", "--lock", lock, "--json")
    assert (told.code, told.json["image"]["site_root"]) == (0, f"/{SITE}")
    other = call("image", "inspect", f"oci:{place}", "--target-in-image", f"/{OTHER}", "--json")
    assert (other.json["image"]["site_root"], other.json["mods"]) == (f"/{OTHER}", [])
    call_of = ("check", "--pairing", NAME, "--target", f"image:{base}")
    assert call(*call_of, "--target-in-image", f"/{OTHER}").code == 0
    refused = call("check", "--pairing", NAME, "--target", "pypi:0.21.0", "--platform", ARM)
    assert (refused.code, "pypi:0.21.0 is not an image" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_pairing_on_the_image_of_a_pairing(call: Call, mods: Path, tmp_path: Path) -> None:
    """The base's lock, receipt, labels and command are another pairing's, and do not pass for this one's."""
    (mods / "pairings/next.toml").write_text(
        'schema = 1\nname = "next"\nsummary = "s"\nmodel = "org/next"\nbase = "base:1"\n'
        'mods = ["patching", "more"]\ntemplates = []\ncommand = "vllm serve org/next"\n'
        '[env]\nNEXT = "1"\n'
    )
    write_mod(mods, "more", diff_of("vllm/a.py", "A = 2\n", "A = 3\n"))
    image = made(tmp_path / "base")
    base = f"oci:{image.layout(tmp_path / 'layout', 'gzip')}"
    first = tmp_path / "first"
    locked = call("lock", NAME, "--base", base)
    assert locked.code == 0, locked.err
    assert call("build", NAME, "--base", base, "--output", f"oci:{first}").code == 0
    locked = call("lock", "next", "--base", f"oci:{first}")
    assert locked.code == 0, locked.err
    place = tmp_path / "second"
    assert call("build", "next", "--base", f"oci:{first}", "--output", f"oci:{place}").code == 0
    lock = mods / "pairings/next.lock"
    told = call("image", "verify", f"oci:{place}", "--lock", lock, "--json")
    assert told.code == 0, told.out
    assert {key: told.json["labels"][key] for key in ("vllm-mods.pairing", "vllm-mods.model")} == {
        "vllm-mods.pairing": "next",
        "vllm-mods.model": "org/next",
    }
    assert [mod["name"] for mod in told.json["mods"]] == ["patching", "writing", "more"]
    assert told.json["lock"]["pairing"] == "next"
    # The first pairing's lock is not this image's, and the first image is still the first pairing's.
    other = mods / f"pairings/{NAME}.lock"
    refused = call("image", "verify", f"oci:{place}", "--lock", other)
    assert (refused.code, str(other) in refused.out) == (1, True)
    assert (
        call("image", "verify", f"oci:{first}", "--lock", mods / f"pairings/{NAME}.lock").code == 0
    )


@pytest.fixture
def locked(call: Call, mods: Path, tmp_path: Path) -> Path:
    """The lock of both platforms of a base with 0.19.1; 0.20.0 for three platforms lies in ``next``."""
    place = mods / f"pairings/{NAME}.toml"
    place.write_text(place.read_text().replace('base = "base:1"', 'base = "me/base:v0.19.1"'))
    assert call("lock", NAME, "--base", several(tmp_path / "base", *BOTH)).code == 0
    several(tmp_path / "next", *BOTH, "linux/s390x", version="0.20.0")
    return mods / f"pairings/{NAME}.lock"


def upgrade(folder: Path, where: str = "next") -> tuple[str, ...]:
    base = f"oci:{folder / where}/layout"
    return "upgrade", NAME, "--to", "0.20.0", "--base", base, "--output", f"oci:{folder}/made"


@pytest.mark.slow
def test_an_upgrade_of_several_platforms_is_one_lock_and_one_index(
    call: Call, locked: Path, tmp_path: Path
) -> None:
    moved = call(*upgrade(tmp_path), "--json")
    assert moved.code == 0, moved.err
    lock = pairing_lock.by_platform(pairing_lock.parse(locked.read_bytes(), ""))
    assert {name: one.vllm.version for name, one in lock.items()} == dict.fromkeys(BOTH, "0.20.0")
    place = tmp_path / "made"
    listed = entry_of(place)["document"]["manifests"]
    assert sorted(one["platform"]["architecture"] for one in listed) == ["amd64", "arm64"]
    verified = call("image", "verify", f"oci:{place}", "--lock", locked, "--json")
    assert (verified.code, list(verified.json["platforms"])) == (0, BOTH)
    assert call("lock", NAME, "--check", "--base", f"oci:{tmp_path}/next/layout").code == 0
    # Once more, and nothing is to do.
    assert call(*upgrade(tmp_path), "--json").json["changed"] is False


@pytest.mark.slow
def test_an_upgrade_needs_every_platform_of_the_lock(
    call: Call, locked: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in locked.parent.iterdir()}
    several(tmp_path / "half", "linux/amd64", "linux/s390x", version="0.20.0")
    refused = call(*upgrade(tmp_path, "half"))
    assert refused.code == 2
    assert "0 of its 2 images are for linux/arm64" in refused.err
    assert {path: path.read_bytes() for path in locked.parent.iterdir()} == before
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_an_upgrade_stays_on_the_platform_of_the_lock(
    call: Call, locked: Path, tmp_path: Path
) -> None:
    """A lock of a DGX Spark is upgraded on another machine, from an index that has both."""
    assert call("lock", NAME, "--base", f"oci:{tmp_path}/base/layout", "--platform", ARM).code == 0
    assert call(*upgrade(tmp_path)).code == 0
    assert json.loads(locked.read_bytes())["base"]["platform"] == ARM
