"""`lock` and `build` on a base in an OCI layout: no engine, no network."""

from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
import serve_tree
import small_site
from making_images import Image, from_disk, layer as tar_of
from paired import NAME, Caller

from vllm_mods.api import on_base
from vllm_mods.building import resolving
from vllm_mods.formats import receipt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"


def base(
    folder: Path,
    *,
    a: bytes = b"A = 1\n",
    where: str = SITE,
    more: Mapping[str, bytes] = MappingProxyType({}),
    above: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n", "vllm/a.py": a}
    files |= more
    site = small_site.build(folder / "site", files)
    things = {f"{where}/{path}": thing for path, thing in from_disk(site).items()}
    layers = [tar_of(things), *([tar_of(above)] if above else [])]
    made = Image(layers, {"Env": ["PATH=/usr/local/bin"]}, "base:1")
    return made.layout(folder / "layout", "gzip")


def caller(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    """Make a library and a base of their own, which the environment names."""
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    found = Caller(tmp_path, capfd, f"oci:{base(tmp_path / 'base')}")
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(found.library))
    return found


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    return caller(tmp_path, capfd, monkeypatch)


@pytest.mark.slow
def test_lock_build_and_check(call: Caller, tmp_path: Path) -> None:
    said = call("lock", NAME, "--base", call.base)
    tag = said.out.rstrip().rpartition("image: ")[2]
    assert tag == f"small:0.19.1-{hashlib.sha256(call.lock.read_bytes()).hexdigest()[:12]}"
    assert call("lock", NAME, "--check", "--base", call.base).out == f"{call.lock} is up to date\n"
    place = tmp_path / "made"
    built = json.loads(
        call("build", NAME, "--base", call.base, "--output", f"oci:{place}", "--json").out
    )
    assert built["tag"] == tag
    index = json.loads((place / "index.json").read_bytes())
    assert index["manifests"][-1]["digest"] == built["manifest"]
    # What was built is a base like any other: the mods are in, and nothing is left to do.
    version = tag.rpartition(":")[2]
    again = call("check", "--pairing", NAME, "--target", f"image:oci:{place}:{version}")
    assert "applied" in again.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tag", "small:a b"), "small:a b: not an image name"),
        (("--output", "registry:HOST/UPPER:1"), "not an image name:"),
    ],
)
def test_everything_is_checked_before_anything_is_published(
    call: Caller, tmp_path: Path, given: tuple[str, str], said: str
) -> None:
    call("lock", NAME, "--base", call.base)
    before = sorted(path.name for path in call.library.rglob("*"))
    option, value = given
    place = () if option == "--output" else ("--output", f"oci:{tmp_path}/made")
    wrong = call("build", NAME, "--base", call.base, *place, option, value, code=2)
    assert said in wrong.err
    assert not (tmp_path / "made").exists()
    assert sorted(path.name for path in call.library.rglob("*")) == before


@pytest.mark.slow
def test_a_lock_outlives_the_tool_and_the_words_of_its_mods(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built is the same, byte for byte: the receipt names who locked, the mod lies there as it was."""
    assert f"note: wrote {call.lock}\n" in call("lock", NAME, "--base", call.base).err
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/one")
    for module in (receipt, on_base, resolving):
        monkeypatch.setattr(module, "TOOL", "vllm-mods 99", raising=False)
    monkeypatch.setattr(receipt.Receipt.__new__, "__defaults__", (None, "vllm-mods 99"))
    for path in ("patches/patching/mod.toml", f"pairings/{NAME}.toml"):
        text = (call.library / path).read_text()
        assert 'summary = "s"' in text
        (call.library / path).write_text(text.replace('summary = "s"', 'summary = "better"') + "\n")
    assert call("lock", NAME, "--check", "--base", call.base).out == f"{call.lock} is up to date\n"
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/two")
    one, two = ((tmp_path / name / "index.json").read_bytes() for name in ("one", "two"))
    assert one == two
    call("image", "verify", f"oci:{tmp_path}/two", "--lock", call.lock)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["image", "layer_format", "mods[patching].manifest"])
def test_a_lock_that_does_not_say_all_of_the_image_is_made_anew(call: Caller, key: str) -> None:
    call("lock", NAME, "--base", call.base)
    raw = json.loads(call.lock.read_bytes())
    if key == "layer_format":
        raw[key] = 1
    elif key == "image":
        del raw[key]
    else:
        del raw["mods"][0]["manifest"]
    call.lock.write_text(json.dumps(raw))
    said = call("build", NAME, "--base", call.base, code=2).err
    assert key.rpartition(".")[2] in said
    assert "hint: the file is generated: `vllm-mods lock PAIRING" in said


def test_what_no_image_may_be_made_of_is_refused_by_name(call: Caller) -> None:
    with (call.library / f"pairings/{NAME}.toml").open("a") as file:
        file.write('[env]\nHF_TOKEN = "hf_abcdefghijkl"\n')
    refused = call("lock", NAME, "--base", call.base, code=2).err
    assert "env.HF_TOKEN: it looks like a secret" in refused
    assert "--env-file" in refused
    assert "hf_abc" not in refused
    assert not call.lock.exists()


@pytest.mark.slow
def test_a_command_that_the_vllm_of_the_base_would_not_take_is_neither_locked_nor_built(
    call: Caller, tmp_path: Path
) -> None:
    takes = f"oci:{base(tmp_path / 'takes', more=serve_tree.FILES)}"
    call("lock", NAME, "--base", takes)
    place = call.library / f"pairings/{NAME}.toml"
    place.write_text(place.read_text().replace("small.jinja", "small.jinja --dtyp2 auto"))
    before = call.lock.read_bytes()
    refused = call("lock", NAME, "--base", takes, code=3)
    assert "would reject the command of pairing small\n  --dtyp2: vLLM 0.19.1 has no" in refused.err
    assert f"hint: vllm-mods serve-check {NAME} --target image:" in refused.err
    assert call.lock.read_bytes() == before
    unread = call("lock", NAME, "--base", call.base)
    assert "the serve command is not checked: " in unread.err


@pytest.mark.slow
def test_another_base_is_refused_with_what_moved(call: Caller, tmp_path: Path) -> None:
    call("lock", NAME, "--base", call.base)
    other = f"oci:{base(tmp_path / 'other', where='usr/lib/python3/dist-packages')}"
    refused = call("build", NAME, "--base", other, "--output", f"oci:{tmp_path}/x", code=3)
    assert "no longer matches" in refused.err
    assert f"vllm.site_root: {SITE} → usr/lib/python3/dist-packages" in refused.err
    assert f"hint: vllm-mods lock {NAME} --base {other}" in refused.err
    assert not (tmp_path / "x").exists()
    assert call("lock", NAME, "--check", "--base", other, code=1).out.startswith("base.diff_ids: ")


def test_a_base_that_was_built_anew_with_the_same_vllm_is_locked_again(
    call: Caller, tmp_path: Path
) -> None:
    call("lock", NAME, "--base", call.base)
    other = f"oci:{base(tmp_path / 'other', above={'etc/motd': b'new'})}"
    output = ("--output", f"oci:{tmp_path}/x")
    refused = call("build", NAME, "--base", other, *output, code=3)
    assert (
        f"{other} was rebuilt since the lock was made, so the lock is out of date; nothing was built\n  base."
        in (refused.err)
    )
    assert f"hint: vllm-mods lock {NAME} --base {other}" in refused.err
    call("lock", NAME, "--base", other)
    call("build", NAME, "--base", other, *output)


def test_a_base_that_a_mod_does_not_fit(call: Caller, tmp_path: Path) -> None:
    other = base(tmp_path / "other", a=b"A = 3\n")
    refused = call("lock", NAME, "--base", f"oci:{other}", code=3)
    assert "patching 1.0.0: conflict" in refused.err
    assert not call.lock.exists()


@pytest.mark.slow
def test_a_base_without_its_blobs(call: Caller, tmp_path: Path) -> None:
    call("lock", NAME, "--base", call.base)
    blobs = tmp_path / "base/layout/blobs/sha256"
    largest = max(blobs.iterdir(), key=lambda blob: blob.stat().st_size)
    largest.unlink()
    refused = call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/x", code=3)
    assert largest.name in refused.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", NAME), "does not exist\n\nhint: vllm-mods lock small\n"),
        (("build", "smal"), "did you mean `small`"),
        (("lock",), "Missing argument 'PAIRING'"),
        (("lock", NAME, "--check"), "pairing small has no lock"),
    ],
)
def test_usage(call: Caller, arguments: tuple[str, ...], said: str) -> None:
    assert said in call(*arguments, code=2).err


@pytest.mark.slow
def test_a_lock_of_another_pairing_or_edited_by_hand(call: Caller, tmp_path: Path) -> None:
    call("lock", NAME, "--base", call.base)
    raw = json.loads(call.lock.read_bytes())
    other = tmp_path / "other.lock"
    other.write_text(json.dumps({**raw, "pairing": "big"}))
    assert "is the lock of pairing big, not of small" in call(
        "build", NAME, "--lock", other, code=2
    ).err  # fmt: skip
    other.write_text(json.dumps({**raw, "epoch": "soon"}))
    assert "epoch: expected an integer" in call("build", NAME, "--lock", other, code=2).err


@pytest.mark.slow
def test_the_time_is_that_of_the_lock(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    call("lock", NAME, "--base", call.base)
    images = []
    for epoch in ("5", "7"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        layout = tmp_path / epoch
        call("build", NAME, "--base", call.base, "--output", f"oci:{layout}")
        images.append({file.name: file.read_bytes() for file in layout.glob("blobs/sha256/*")})
    assert images[0] == images[1]
    assert any(b'"created":"1970-01-02T00:00:00Z"' in data for data in images[0].values())
    assert "epoch: 86400 → 7" in call("lock", NAME, "--check", "--base", call.base, code=1).out
