"""The command line on real releases: what a first user tries."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of

from vllm_mods.library.mod_folder import data_root
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

pytestmark = pytest.mark.network

QUANTIZATION = "vllm/model_executor/layers/quantization"
MANIFEST = """\
schema = 1
name = "{name}"
version = "1.0.0"
summary = "for a test"
license = "Apache-2.0"

[[variant]]
id = "one"
vllm = "{vllm}"
patches = ["x.patch"]
"""


def write_mod(library: Path, name: str, vllm: str, patch: bytes) -> None:
    folder = library / "patches" / name
    folder.mkdir(parents=True)
    (folder / "x.patch").write_bytes(patch)
    (folder / "mod.toml").write_text(MANIFEST.format(name=name, vllm=vllm))


@pytest.mark.parametrize(
    ("version", "code", "verdict"),
    [
        ("0.14.1", 1, "unsupported: no variant"),
        ("0.19.1", 0, "applies: .*variant 0.15"),
        ("0.21.0", 0, "applies: .*variant 0.20"),
        ("0.33.0", 0, "moved: .*variant 0.24"),
    ],
)
def test_the_bundled_loader(
    call: Callable[..., Answer], version: str, code: int, verdict: str
) -> None:
    answer = call("check", "hybrid-int4-fp8", "--target", f"pypi:{version}")
    assert answer.code == code
    assert re.search(verdict, answer.out)


def test_missing_says_where_the_class_went(call: Callable[..., Answer], tmp_path: Path) -> None:
    bundled = os.path.join(data_root(), "patches", "hybrid-int4-fp8", "0.20", "inc.patch")
    with open(bundled, "rb") as file:
        write_mod(tmp_path, "old-loader", ">=0.20", file.read())
    answer = call("check", "old-loader", "--library", str(tmp_path), "--target", "pypi:0.24.0")
    assert answer.code == 1
    assert "missing" in answer.out
    assert f"`INCConfig` is defined in {QUANTIZATION}/inc/inc.py:32" in " ".join(answer.out.split())


def test_an_override_for_0_19_does_not_fit_0_20(
    call: Callable[..., Answer], tmp_path: Path
) -> None:
    path = f"{QUANTIZATION}/inc.py"
    before = (open_tree("pypi:0.19.1").read(path) or b"").decode()
    method = "    def apply_vllm_mapper("
    added = "    def maybe_update_config(self, model_name, revision=None):\n        self.backend = 'auto'\n\n"
    patch = diff_of(
        path,
        before,
        before.replace(method, added + method),
        section="class INCConfig(QuantizationConfig):",
    )
    write_mod(tmp_path, "rev", ">=0.19,<0.20", patch)
    library = ("--library", str(tmp_path))
    assert call("check", "rev", *library, "--target", "pypi:0.19.1").code == 0
    answer = call("check", "rev", *library, "--target", "pypi:0.20.0", "--json")
    (mod,) = answer.json["mods"]
    assert (answer.code, mod["verdict"]) == (1, "unfit")
    (finding,) = [one for one in mod["findings"] if one["code"] == "fit-override"]
    assert "vllm/config/vllm.py:" in finding["message"]
    assert "fails: got an unexpected keyword argument 'hf_config'" in finding["message"]


def test_the_sources_decide_and_not_the_version_string(
    call: Callable[..., Answer], tmp_path: Path
) -> None:
    built = "0.19.1rc1.dev46+gc5e3454e5.d20260406"
    tree = open_tree("pypi:vllm-0.20.0.tar.gz")
    for path in tree.paths("vllm"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tree.read(path) or b"")
    info = tmp_path / f"vllm-{built}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: vllm\nVersion: {built}\n")
    answer = call("apply", "hybrid-int4-fp8", "--target", str(tmp_path), "--json")
    (mod,) = answer.json["mods"]
    assert (answer.code, mod["variant"], mod["verdict"]) == (0, "0.20", "applies")
    assert call("revert", "--target", str(tmp_path)).code == 0
    shutil.rmtree(info)


def test_strict_passes_on_the_bundled_mod_and_fails_on_an_altered_hunk(
    call: Callable[..., Answer], tmp_path: Path
) -> None:
    asked = ("--strict", "--vllm", ">=0.20,<0.22")
    assert call("matrix", "hybrid-int4-fp8", *asked).code == 0
    folder = tmp_path / "patches/altered"
    shutil.copytree(os.path.join(data_root(), "patches", "hybrid-int4-fp8"), folder)
    for name in ("mod.toml", "0.20/inc.patch"):
        text = (folder / name).read_text()
        altered = text.replace('name = "hybrid-int4-fp8"', 'name = "altered"')
        (folder / name).write_text(
            altered.replace("\n         self.backend", "\n         self.other")
        )
    answer = call("matrix", "altered", "--library", tmp_path, *asked, "--json")
    assert answer.code == 1
    codes = {problem["code"] for problem in answer.json["problems"]}
    assert {"stale-lock", "worse-than-baseline", "range-too-wide"} <= codes


def test_a_port_to_the_next_release_is_clean(call: Callable[..., Answer], tmp_path: Path) -> None:
    words = ("--from", "pypi:0.21.0", "--to", "pypi:0.23.0", "--output", tmp_path / "out", "--json")
    answer = call("port", "hybrid-int4-fp8", *words)
    assert answer.code == 0
    assert answer.json["enough"].startswith(
        "variant `0.20` already gives the same result as this port on the target (moved)"
    )
    assert [one["proof"] for one in answer.json["files"]] == ["file"]


def test_a_port_follows_the_class_into_the_package(
    call: Callable[..., Answer], tmp_path: Path
) -> None:
    words = ("--from", "pypi:0.21.0", "--to", "pypi:0.24.0", "--output", tmp_path / "out", "--json")
    answer = call("port", "hybrid-int4-fp8", *words)
    assert answer.code == 0, answer.err
    (file,) = answer.json["files"]
    assert file["proof"] == "statements"  # its lines clash in two methods
    assert (file["path"], file["new_path"]) == (
        f"{QUANTIZATION}/inc.py",
        f"{QUANTIZATION}/inc/inc.py",
    )
    assert answer.json["verdict"] == "applies"
