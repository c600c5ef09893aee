"""Variables and flags of a mod in every command that knows a pairing; ``import`` fills them in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import serve_tree
import small_site
from paired import NAME, Caller
from test_lock_and_build import base, caller

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    made = caller(tmp_path, capfd, monkeypatch)
    made.base = f"oci:{base(tmp_path / 'flags', more=flags())}"
    return made


def flags() -> dict[str, bytes]:
    """Return the files of a vLLM that knows a few flags and variables."""
    return {path: data for path, data in serve_tree.FILES.items() if path != "vllm/__init__.py"}


def says(call: Caller, text: str, mod: str = "patching") -> None:
    place = call.library / f"patches/{mod}/mod.toml"
    head, variant, rest = place.read_text().partition("[[variant]]")
    place.write_text(head + text + variant + rest)


def settings(call: Caller, tmp_path: Path, name: str) -> Any:
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path / name}")
    index = json.loads((tmp_path / name / "index.json").read_bytes())
    blobs = tmp_path / name / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][-1]["digest"][7:]).read_bytes())
    return json.loads((blobs / manifest["config"]["digest"][7:]).read_bytes())["config"]


@pytest.mark.slow
def test_an_image_serves_with_what_its_mods_bring(call: Caller, tmp_path: Path) -> None:
    says(call, '[serve]\nargs = ["--quiet"]\n[env]\nVLLM_LEVEL = "low"\n')
    said = call("lock", NAME, "--base", call.base)
    assert "patching sets VLLM_LEVEL=low, and the pairing uses it" in said.err
    assert "patching sets --quiet, and the pairing uses it" in said.err
    found = settings(call, tmp_path, "made")
    assert "VLLM_LEVEL=low" in found["Env"]
    assert found["Entrypoint"][2:5] == ["org/small", "--quiet", "--chat-template"]
    call("image", "verify", f"oci:{tmp_path}/made", "--lock", call.lock)
    recipe = call("export", NAME).out
    assert "VLLM_LEVEL: low" in recipe
    assert "vllm serve org/small --quiet --chat-template small.jinja" in recipe
    checked = call("serve-check", NAME, "--target", f"image:{call.base}").out
    assert "VLLM_LEVEL=low, and the pairing uses it" in checked
    assert "mod-flag-absent" not in checked


@pytest.mark.slow
def test_two_mods_that_do_not_agree_refuse_the_lock_and_the_pairing_settles_it(
    call: Caller, tmp_path: Path
) -> None:
    says(call, '[env]\nVLLM_LEVEL = "low"\n')
    says(call, '[env]\nVLLM_LEVEL = "high"\n', "writing")
    refused = call("lock", NAME, "--base", call.base, code=2)
    assert "`patching` sets VLLM_LEVEL=low and `writing` sets VLLM_LEVEL=high" in refused.err
    assert not call.lock.exists()
    place = call.library / f"pairings/{NAME}.toml"
    place.write_text(place.read_text() + '[env]\nVLLM_LEVEL = "high"\n')
    said = call("lock", NAME, "--base", call.base)
    assert "patching sets VLLM_LEVEL=low, but the pairing keeps its own VLLM_LEVEL=high" in said.err
    assert "VLLM_LEVEL=high" in settings(call, tmp_path, "made")["Env"]


def test_apply_prints_what_to_serve_with(call: Caller, tmp_path: Path) -> None:
    says(call, '[serve]\nargs = ["--quiet"]\n[env]\nVLLM_LEVEL = "a b"\n')
    files = {**small_site.FILES, "vllm/a.py": b"A = 1\n"}
    site = small_site.build(tmp_path / "own", files)
    exported = call("export", "patching", "--output", tmp_path / "out")
    assert "add it to `env` in the recipe" in exported.err
    assert "patching needs --quiet: add it to the recipe's command" in exported.err
    alone = call("apply", "patching", "--target", site)
    assert "serve with (patching): VLLM_LEVEL='a b' --quiet" in alone.out
    script = json.loads(call("apply", "--pairing", NAME, "--target", site, "--json").out)["serve"]
    assert script.startswith(
        "export VLLM_LEVEL='a b'\nvllm serve org/small --quiet --chat-template"
    )
    assert json.loads(call("show", "patching", "--json").out)["env"] == {"VLLM_LEVEL": "a b"}
    assert "variable    VLLM_LEVEL='a b'" in call("show", "patching").out


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("lines", "env"),
    [
        ("export VLLM_A=1\nB=2\nexport B", {"VLLM_A": "1", "B": "2"}),
        ("export MAX_JOBS=4 PATH=/x:$PATH HF_TOKEN=a", {}),
        ('export WHERE=$PWD/x\necho "$WHERE"', {}),
        ("export A=1\nexport A=2", {"A": "2"}),
    ],
)
def test_import_fills_in_what_a_script_exports(
    call: Caller, tmp_path: Path, lines: str, env: dict[str, str]
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "x.patch").write_bytes((call.library / "patches/patching/x.patch").read_bytes())
    (folder / "run.sh").write_text(
        f"#!/bin/bash\nset -e\npatch -p1 -F0 -d /usr/local/lib/python3.12/dist-packages < x.patch\n{lines}\n"
    )
    mine = tmp_path / "mine"
    site = small_site.build(tmp_path / "own", {**small_site.FILES, "vllm/a.py": b"A = 1\n"})
    call("import", folder, "--tree", site, "--library", mine, code=0)
    assert json.loads(call("show", "theirs", "--library", mine, "--json").out)["env"] == env
