"""`vllm-mods image`, `check --target image:` and `verify --receipt`, on images made in Python."""

from __future__ import annotations

import json
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
    assert "no mods are in" in bare.out
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
    codes = {found["code"] for found in answer.json["findings"]}
    assert code in codes
    # The folder itself is judged by the same rules.
    local = call("verify", "--target", site, "--json").json
    assert codes == {found["code"] for found in local["findings"]}
    assert call("image", "inspect", reference).code == 0


def test_diff_of_two_images(call: Call, site: Path, tmp_path: Path) -> None:
    first = image_of(site, tmp_path / "a")
    same = call("image", "diff", first, image_of(site, tmp_path / "b"))
    assert same.code == 0
    assert "they serve the same, with the same mods and the same files in vllm/" in same.out
    assert call("apply", "fast", "--target", site).code == 0
    (site / "vllm/new.py").write_text("new\n")
    (site / "vllm/b.py").unlink()
    answer = call("image", "diff", first, image_of(site, tmp_path / "c"), "--json")
    assert answer.code == 1
    files = {one["path"]: (one["before"], one["after"]) for one in answer.json["files"]}
    assert set(files) == {"vllm/loader.py", "vllm/new.py", "vllm/b.py"}
    assert files["vllm/new.py"][0] is None
    assert files["vllm/b.py"][1] is None
    mods = [one for one in answer.json["mods"] if one["kind"] == "mod"]
    assert [one["name"] for one in mods] == ["fast"]
    assert mods[0]["values"][0] is None


def test_diff_of_two_images_that_serve_otherwise(call: Call, site: Path, tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "Env": ["A=1", "B=2"],
        "Entrypoint": ["vllm", "serve", "org/a", "--x", "1"],
    }
    first = image_of(site, tmp_path / "a", **settings)
    other = {
        "Env": ["A=1", "B=3"],
        "Entrypoint": ["vllm", "serve"],
        "Cmd": ["org/b c", "--y"],
        "User": "x",
    }
    answer = call("image", "diff", first, image_of(site, tmp_path / "b", **other))
    assert answer.code == 1
    assert "  command: vllm serve org/a → vllm serve 'org/b c'\n" in answer.out
    assert "  --x: 1 → none\n  " in answer.out
    assert "  --y: none → given\n" in answer.out
    assert "  env B: 2 → 3\n" in answer.out
    assert '  User: none → "x"\n' in answer.out
    assert "env A" not in answer.out


def test_receipts_of_the_nodes_of_a_cluster(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    shutil.copytree(site, other)
    assert call("apply", "fast", "--target", site).code == 0
    assert call("apply", "fast", "--target", other).code == 0
    nodes = [tmp_path / name for name in ("node1.json", "node2.json", "node3.json")]
    for node in nodes:
        shutil.copy(site / ".vllm-mods/receipt.json", node)
    same = call("verify", "--receipt", *nodes, "--target", other)
    assert (same.code, same.out) == (0, "4 receipts, all the same\n")
    with nodes[0].open() as first:
        monkeypatch.setattr("sys.stdin", first)
        piped = call("verify", "--receipt", "-", nodes[1])
    assert (piped.code, piped.out) == (0, "2 receipts, all the same\n")
    assert call("apply", "limit", "--target", other).code == 0
    shutil.copy(other / ".vllm-mods/receipt.json", nodes[2])
    differ = call("verify", "--receipt", *nodes)
    assert differ.code == 1
    assert "mod limit:" in differ.out
    assert "vllm/other.py:" in differ.out
    answer = call("verify", "--receipt", *nodes, "--json").json
    mods = [one for one in answer["differences"] if one["kind"] == "mod"]
    assert len(mods) == 1
    assert mods[0]["values"][:2] == [None, None]
    assert mods[0]["values"][2].startswith("1.0.0, variant a")
    assert call("verify", "--receipt", nodes[0]).code == 2
    nodes[1].write_text(json.dumps({"schema": 1}))
    assert call("verify", "--receipt", *nodes).code == 3
    assert call("verify").code == 2


def test_the_packages_of_the_nodes_are_compared_where_they_are_told(
    call: Call, site: Path, tmp_path: Path
) -> None:
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
    nodes = [tmp_path / name for name in ("node1.json", "node2.json")]
    for tree, node in zip((site, other), nodes, strict=True):
        node.write_text(call("verify", "--target", tree, "--json").out)
    same = call("verify", "--receipt", *nodes)
    assert (same.code, same.out) == (0, "2 receipts, all the same\n")
    (other / "transformers-4.57.1.dist-info").rename(other / "transformers-5.0.0.dist-info")
    (other / "black-1.0.dist-info").rename(other / "black-2.0.dist-info")
    (other / "torch-2.9.0.dist-info").rmdir()
    differ = call("verify", "--receipt", nodes[0], "--target", other)
    assert differ.code == 1
    width = len(str(max(nodes[0], other, key=lambda one: len(str(one)))))
    assert differ.out.splitlines() == [
        "package torch:",
        f"  {str(nodes[0]).ljust(width)}  2.9.0",
        f"  {str(other).ljust(width)}  not there",
        "package transformers:",
        f"  {str(nodes[0]).ljust(width)}  4.57.1",
        f"  {str(other).ljust(width)}  5.0.0",
    ]
    alone = call("verify", "--receipt", site / ".vllm-mods/receipt.json", "--target", other)
    assert (alone.code, alone.out) == (0, "2 receipts, all the same\n")
    assert "is a receipt alone, which does not tell the versions of packages" in alone.err
