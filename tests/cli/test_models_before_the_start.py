"""`lock`, `build`, `run` and `suggest` look at the model where it lies, and refuse what no server could load."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hybrid_checkpoints import bf16, write_checkpoint
from paired import NAME, Caller
from test_lock_and_build import caller

if TYPE_CHECKING:
    from collections.abc import Callable

WHEN = '\n[[when]]\nconfig = { model_type = ["qwen3"] }\n'
GIB = 1 << 30


def model(folder: Path, kind: str = "qwen3") -> Path:
    """A model of two files, each of 2 GiB of nothing."""
    files = [bf16(name, 1 << 15, 1 << 15) for name in "ab"]
    return Path(write_checkpoint(str(folder), files, config={"model_type": kind}))


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    made = caller(tmp_path, capfd, monkeypatch)
    manifest = made.library / "patches/patching/mod.toml"
    manifest.write_text(manifest.read_text() + WHEN)
    pairing = made.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("org/small", "/models/small"))
    monkeypatch.setenv("PATH", os.defpath)
    made("lock", NAME, "--base", made.base)
    return made


def lost(at: Path) -> None:
    (at / "config.json").unlink()


def dangle(at: Path) -> None:
    for file in list(at.iterdir()):
        file.unlink()
        file.symlink_to(f"../../blobs/{file.name}")


def partly(at: Path) -> None:
    (at / "model-00002-of-00002.safetensors").unlink()


def other(at: Path) -> None:
    (at / "config.json").write_text('{"model_type": "llama"}')


WRONG: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no config.json": (lost, "{at} has no config.json", "hint: name the folder that contains it"),
    "dangling links": (dangle, "{at}: 4 of its 4 files are dangling links", "hint: a snapshot of the Hub's"),
    "a file is missing": (partly, "{at}: 1 of its 2 weight files", "hint: run `hf download` again"),
    "another model": (other, "patching: config.json has 'llama'", "hint: vllm-mods suggest {at}\n"),
    "no room": (lambda _at: None, "the model needs 4.0 GiB for weights", "--tensor-parallel-size 3 at least"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_of_them_refuses_what_no_server_could_load(
    call: Caller, tmp_path: Path, name: str
) -> None:
    place = model(tmp_path / "at")
    spoil, why, hint = WRONG[name]
    spoil(place)
    lock = call.lock.read_bytes()
    words = ("--model-folder", place, "--device-memory", "2GiB")
    build = ("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/made")
    for line in (("lock", NAME, "--base", call.base), build, ("run", NAME, "--print")):
        answer = call(*line, *words, code=3)
        assert why.format(at=place) in answer.err
        assert hint.format(at=place) in answer.err
    assert call.lock.read_bytes() == lock
    assert not (tmp_path / "made").exists()


def test_suggest_reads_the_folder_and_says_which_pairings_have_no_room(
    call: Caller, tmp_path: Path
) -> None:
    place = model(tmp_path / "at")
    line = ("suggest", "org/small", "--model-folder", place)
    said = call(*line, "--device-memory", "2GiB").out
    assert said.startswith("org/small\n")
    assert "  weights      4.0 GiB\n" in said
    assert (
        f"  {NAME}: the model needs 4.0 GiB for weights on the GPU, but vLLM may use only 1.8 GiB"
        in said
    )
    roomy = call(*line, "--device-memory", "8GiB").out
    assert f"  {NAME}: " in roomy
    assert "it needs" not in roomy
    assert "  whether a GPU has room was not checked: this machine has no GPU" in call(*line).out
    partly(place)
    assert "1 of its 2 weight files are missing" in call(*line, code=1).err


def test_what_nobody_knows_is_said(call: Caller, tmp_path: Path) -> None:
    place = model(tmp_path / "at")
    line = ("lock", NAME, "--base", call.base)
    unknown = "whether /models/small has room on the GPU was not checked: this machine has no GPU"
    assert unknown in call(*line, "--model-folder", place).err
    assert "room" not in call(*line, "--model-folder", place, "--device-memory", "9GB").err
    pairing = call.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("--chat", "--cpu-offload-gb 9 --chat"))
    assert "needs with this command is unknown" in call(*line, "--model-folder", place).err
    assert "not a size" in call(*line, "--device-memory", "much", code=2).err


def test_a_snapshot_of_the_hubs_client_is_mounted_with_its_blobs(
    call: Caller, tmp_path: Path
) -> None:
    repository = tmp_path / "models--org--small"
    snapshot = model(repository / "snapshots" / ("0" * 40))
    (repository / "blobs").mkdir()
    for file in list(snapshot.iterdir()):
        file.rename(repository / "blobs" / file.name)
        file.symlink_to(f"../../blobs/{file.name}")
    said = call("run", NAME, "--engine", "docker", "--print", "--model-folder", snapshot).out
    assert f"--mount type=bind,source={snapshot},target=/models/small,readonly" in said
    assert f"--mount type=bind,source={repository}/blobs,target=/blobs,readonly" in said


def test_a_model_of_the_hub_is_looked_at_where_it_is_kept(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairing = call.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("/models/small", "org/small"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    call("lock", NAME, "--base", call.base)
    place = model(tmp_path / "home/hub/models--org--small/snapshots" / ("0" * 40))
    refs = place.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    line = ("run", NAME, "--print")
    assert "the model needs 4.0 GiB" in call(*line, "--device-memory", "2GiB", code=3).err
    more = ("--device-memory", "2GiB", "--", "--tensor-parallel-size", "4")
    assert "room" not in call(*line, *more).err
    assert "room" not in call(*line, "--gpus", "none").err
    partly(place)  # vLLM downloads the rest
    assert "1 of its 2 weight files are missing" in call(*line).err
    shutil.rmtree(tmp_path / "home")
    assert f"org/small is not in {tmp_path}/home/hub" in call(*line).err


def test_a_model_whose_architecture_the_vllm_may_not_have_is_told(
    call: Caller, tmp_path: Path
) -> None:
    place = model(tmp_path / "at")
    named = {"model_type": "qwen3", "architectures": ["Qwen9ForCausalLM"]}
    line = ("lock", NAME, "--base", call.base, "--model-folder", place)
    assert "lists no classes" not in call(*line).err
    (place / "config.json").write_text(json.dumps(named))
    text = "lists no classes, so it is unknown whether vLLM 0.19.1 has a class for Qwen9ForCausalLM"
    assert text in call(*line).err
