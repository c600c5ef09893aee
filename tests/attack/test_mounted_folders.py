"""A pairing names a folder of the host: only a model's own gets into a container, and as itself."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from paired import NAME, Caller

from vllm_mods.api import on_base
from vllm_mods.library import trust

if TYPE_CHECKING:
    from pathlib import Path

MODEL = {"architectures": ["QwenForCausalLM"], "model_type": "qwen3"}


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    monkeypatch.setattr(trust, "OF_THE_MACHINE", str(tmp_path / "etc.toml"))
    monkeypatch.delenv("VLLM_MODS_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    lock = SimpleNamespace(command="vllm serve x", vllm=SimpleNamespace(site_root="site"))
    locked = SimpleNamespace(tag="small:1", sha256="0", lock=lock)
    monkeypatch.setattr(on_base, "read_lock", lambda *_: locked)
    caller = Caller(tmp_path, capfd)
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(caller.library))
    return caller


def name(call: Caller, model: object) -> None:
    """Have the pairing name a model at a path."""
    place = call.library / f"pairings/{NAME}.toml"
    place.write_text(place.read_text().replace("org/small", str(model)))


def folder(place: Path, config: object = MODEL) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config))
    return place


def started(call: Caller, *more: object, code: int = 0) -> str:
    done = call("run", NAME, "--print", "--engine", "docker", *more, code=code)
    return done.out + done.err


def test_a_folder_without_a_models_config_is_not_mounted(call: Caller, tmp_path: Path) -> None:
    secrets = tmp_path / "home/.ssh"
    secrets.mkdir(parents=True)
    name(call, secrets)
    for command in (("run", "--print"), ("export", "--format", "compose")):
        said = call(command[0], NAME, *command[1:], code=3)
        assert f"{secrets} has no config.json, so vLLM cannot serve it" in said.err
        assert "bind" not in said.out
    (secrets / "config.json").write_text('{"auths": {"ghcr.io": {"auth": "x"}}}')
    assert "names no architecture" in started(call, code=2)
    (secrets / "config.json").write_text("not JSON")
    assert "config.json: not JSON" in started(call, code=3)
    assert "source=" not in started(call, "--model-folder", tmp_path / "home", code=3)


def test_links_of_a_model_have_nothing_else_mounted(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "home/blobs").mkdir(parents=True)
    (tmp_path / "home/blobs/key").write_text("secret")
    place = folder(tmp_path / "home/models/mine")
    for target in ("../../blobs/key", "../../../etc.toml", str(tmp_path / "home/blobs/key")):
        (tmp_path / "etc.toml").write_text("schema = 1\n")
        (place / "tokenizer.json").unlink(missing_ok=True)
        (place / "tokenizer.json").symlink_to(target)
        name(call, place)
        said = started(call, code=2)
        assert f"{place}/tokenizer.json links to {target}, which a container" in said
        assert "source=" not in said


def test_what_is_not_here_is_not_started_and_an_export_says_so(
    call: Caller, tmp_path: Path
) -> None:
    name(call, tmp_path / "gone")
    assert f"{tmp_path}/gone: no such folder" in started(call, code=2)
    said = call("export", NAME, "--format", "compose")
    assert (
        f"note: the model folder {tmp_path}/gone is not on this machine, so it was not checked"
        in said.err
    )


def test_the_folder_behind_a_link_is_what_is_shown_and_mounted(
    call: Caller, tmp_path: Path
) -> None:
    real = folder(tmp_path / "data/real")
    link = tmp_path / "link"
    link.symlink_to(real)
    name(call, link)
    said = started(call)
    assert f"--mount type=bind,source={real},target={link},readonly" in said
    assert f"note: {real} of this machine is mounted into the container as {link}" in said


@pytest.mark.parametrize(
    "part", ["x,source=/,target=/host", 'x"y', "x:/etc", "a/../b", "x\\y", "x//y"]
)
def test_a_path_that_says_more_than_a_path_is_refused(
    call: Caller, tmp_path: Path, part: str
) -> None:
    folder(tmp_path / "models" / part) if ".." not in part else folder(tmp_path / "models/b")
    (tmp_path / "models/a").mkdir(exist_ok=True)
    place = call.library / f"pairings/{NAME}.toml"
    text = place.read_text().replace('model = "org/small"', f"model = '{tmp_path}/models/{part}'")
    place.write_text(text)
    for command in (("run", "--print"), ("export", "--format", "compose")):
        said = call(command[0], NAME, *command[1:], code=2)
        assert "cannot be mounted" in said.err
        assert said.out == ""


def test_ones_own_folders_are_held_to_the_same(call: Caller, tmp_path: Path) -> None:
    assert "cannot be mounted" in started(call, "--model-cache", "/a,source=/", code=2)
    name(call, "/models/small")
    assert "cannot be mounted" in started(
        call, "--model-folder", folder(tmp_path / "a,source=b"), code=2
    )


def test_compose_puts_no_variable_into_a_path(call: Caller, tmp_path: Path) -> None:
    name(call, folder(tmp_path / "$HOME"))
    assert (
        f"{tmp_path}/$$HOME:{tmp_path}/$$HOME:ro" in call("export", NAME, "--format", "compose").out
    )


@pytest.mark.parametrize("file", ["etc.toml", "vllm-mods.toml"])
def test_a_policy_says_below_which_folders_models_lie(
    call: Caller, tmp_path: Path, file: str
) -> None:
    (tmp_path / file).write_text('schema = 1\n[trust]\nmodel_roots = ["models", "/srv/models"]\n')
    name(call, folder(tmp_path / "models/small"))
    assert "source=" in started(call)
    outside = folder(tmp_path / "models-of-others/small")
    (tmp_path / "models/link").symlink_to(outside)
    for place in (outside, tmp_path / "models/link", tmp_path / "models/../models-of-others/small"):
        said = started(call, "--model-folder", place, code=3)
        assert f"{file} does not allow {outside}, which is in none of its model_roots" in said
    call("export", NAME, "--format", "compose", "--model-folder", tmp_path / "gone", code=3)
