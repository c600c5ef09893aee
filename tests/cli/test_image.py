"""`vllm-mods image`, `check --target image:` and `verify --receipt`, on images made in Python."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from making_images import Image, Thing, from_disk, layer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

PLACE = "usr/lib/python3/dist-packages"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))


def image_of(site: Path, folder: Path, **settings: object) -> str:
    """Return the reference of an image with what is in a site now."""
    things: dict[str, Thing] = {f"{PLACE}/{p}": thing for p, thing in from_disk(site).items()}
    things[f"{PLACE}/vllm/_version.py"] = b"__version__ = version = '0.19.1'\n"
    return f"oci:{Image([layer(things)], dict(settings)).layout(folder)}"


@pytest.mark.slow
def test_check_before_and_after(call: Call, site: Path, tmp_path: Path) -> None:
    before = call("check", "fast", "--target", f"image:{image_of(site, tmp_path / 'a')}")
    assert before.code == 0
    assert "fast 1.0.0  applies" in before.out
    assert call("apply", "fast", "--target", site).code == 0
    reference = image_of(site, tmp_path / "b")
    after = call("check", "fast", "limit", "--target", f"image:{reference}", "--json")
    assert after.code == 0
    verdicts = {mod["name"]: mod["verdict"] for mod in after.json["mods"]}
    assert verdicts == {"fast": "applied", "limit": "applies"}
    assert call("apply", "fast", "--target", f"image:{reference}").code == 2


def test_inspect_tells_what_is_in(call: Call, site: Path, tmp_path: Path) -> None:
    bare = call("image", "inspect", image_of(site, tmp_path / "a"))
    assert bare.code == 0
    assert "no mods are applied" in bare.out
    nothing = call("image", "verify", image_of(site, tmp_path / "a2"))
    assert (nothing.code, "no lock of a pairing, so nothing was compared" in nothing.out) == (
        1,
        True,
    )
    assert "hint: vllm-mods image inspect " in nothing.err
    assert call("apply", "fast", "limit", "--target", site).code == 0
    labels = {"vllm-mods.pairing": "p", "other": "not ours"}
    reference = image_of(site, tmp_path / "b", Labels=labels)
    answer = call("image", "inspect", reference, "--json").json
    assert answer["ok"] is True
    assert answer["image"]["site_root"] == f"/{PLACE}"
    assert answer["image"]["where"] == "oci-layout"
    assert answer["labels"] == {"vllm-mods.pairing": "p"}
    assert [(m["name"], m["variant"], m["verdict"], m["intact"]) for m in answer["mods"]] == [
        ("fast", "a", "applies", True),
        ("limit", "a", "applies", True),
    ]
    assert call("image", "verify", f"image:{reference}").code == 0


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        ("edit", "changed-since"),
        ("remove", "missing"),
        ("mode", "mode-changed"),
        ("bytecode", "stale-bytecode"),
        ("original", "original-damaged"),
        ("link", "unreadable"),
    ],
)
def test_verify_finds_what_was_changed_since(
    call: Call, site: Path, tmp_path: Path, spoil: str, code: str
) -> None:
    compiled = site / "vllm/__pycache__/loader.cpython-312.pyc"
    compiled.write_bytes(b"of the old source")
    assert call("apply", "fast", "--target", site).code == 0
    assert not compiled.exists()
    patched = site / "vllm/loader.py"
    if spoil == "edit":
        patched.write_text("# somebody was here\n")
    elif spoil == "remove":
        patched.unlink()
    elif spoil == "mode":
        patched.chmod(0o600)
    elif spoil == "bytecode":
        compiled.write_bytes(b"of the old source")
    elif spoil == "original":
        (site / ".vllm-mods/originals/vllm/loader.py").write_text("x")
    else:
        patched.unlink()
        patched.symlink_to("a.py")
    reference = image_of(site, tmp_path / "a")
    answer = call("image", "verify", reference, "--json")
    assert answer.code == 1
    codes = {found["code"] for found in answer.json["findings"] if found["level"] == "error"}
    assert code in codes
    # The folder itself is judged by the same rules.
    local = call("verify", "--target", site, "--json").json
    assert codes == {found["code"] for found in local["findings"]}
    assert call("image", "inspect", reference).code == 0


def test_the_json_of_nodes_differs_where_they_do(call: Call, site: Path, tmp_path: Path) -> None:
    """What vLLM's METADATA names counts, and what else is installed does not."""
    other = tmp_path / "other"
    needs = (
        "Name: vllm\nVersion: 0.19.1\nRequires-Dist: Torch==2.9.0\nRequires-Dist: transformers>=4\n"
    )
    (site / "vllm-0.19.1.dist-info/METADATA").write_text(needs)
    for name in ("torch-2.9.0", "transformers-4.57.1", "black-1.0"):
        (site / f"{name}.dist-info").mkdir()
    assert call("apply", "fast", "--target", site).code == 0
    shutil.copytree(site, other)
    nodes = [call("verify", "--target", tree, "--json").json for tree in (site, other)]
    assert nodes[0]["packages"] == {"torch": "2.9.0", "transformers": "4.57.1"}
    for node in nodes:
        assert node["tree"].pop("spec")
    assert nodes[0] == nodes[1]
    (other / "transformers-4.57.1.dist-info").rename(other / "transformers-5.0.0.dist-info")
    (other / "black-1.0.dist-info").rename(other / "black-2.0.dist-info")
    (other / "torch-2.9.0.dist-info").rmdir()
    assert call("verify", "--target", other, "--json").json["packages"] == {"transformers": "5.0.0"}
