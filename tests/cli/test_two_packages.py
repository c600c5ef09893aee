"""A mod for vLLM and a package beside it: one transaction, one receipt, both RECORDs, and images of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import small_site
from making_images import Image, from_disk, layer
from mod_making import diff_of
from paired import NAME, Caller
from test_lock_and_build import SITE, caller

import vllm_mods as vm
from vllm_mods.formats import record

if TYPE_CHECKING:
    from pathlib import Path

X = "transformers/models/x.py"
INFO = "transformers-5.4.0.dist-info"
THEIRS = {"transformers/__init__.py": b"", X: b"X = 1\n"}
ROWS = b"".join(small_site.row(path, data) for path, data in THEIRS.items())
BESIDE = {**THEIRS, f"{INFO}/METADATA": b"Name: transformers\nVersion: 5.4.0\n"}
BESIDE[f"{INFO}/RECORD"] = ROWS + f"{INFO}/RECORD,,\n".encode()


def add_mod(library: Path, version: str = ">=5.4,<6") -> None:
    folder = library / "patches/patching"
    new = b"--- /dev/null\n+++ b/transformers/models/new.py\n@@ -0,0 +1 @@\n+N = 1\n"
    patch = diff_of("vllm/a.py", "A = 1\n", "A = 2\n") + diff_of(X, "X = 1\n", "X = 2\n") + new
    (folder / "x.patch").write_bytes(patch)
    text = (
        (folder / "mod.toml")
        .read_text()
        .replace("[[variant]]\n", f'outside = ["{X}", "transformers/models/new.py"]\n[[variant]]\n')
    )
    (folder / "mod.toml").write_text(f'{text}package = "transformers"\nversion = "{version}"\n')


def write(root: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = small_site.build(tmp_path / "site", {**small_site.FILES, "vllm/a.py": b"A = 1\n"})
    write(root, BESIDE)
    return root


@pytest.fixture
def call(
    tmp_path: Path, site: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    made = caller(tmp_path, capfd, monkeypatch)
    there = {f"{SITE}/{path}": thing for path, thing in from_disk(site).items()}
    image = Image([layer(there)], {"Env": ["PATH=/usr/local/bin"]}, "base:1")
    made.base = f"oci:{image.layout(tmp_path / 'beside', 'gzip')}"
    add_mod(made.library)
    return made


@pytest.mark.slow
def test_both_go_in_together_and_come_out_together(call: Caller, site: Path) -> None:
    before = small_site.snapshot(site)
    said = call("apply", "patching", "--target", site)
    assert f"it changes transformers/models/new.py, {X} outside vllm/," in " ".join(
        said.err.split()
    )
    for path, data in ((X, b"X = 2\n"), ("transformers/models/new.py", b"N = 1\n")):
        assert (site / path).read_bytes() == data
        rows = (site / INFO / "RECORD").read_bytes()
        assert record.agrees(rows, path, small_site.sha(data), len(data))
    assert (site / small_site.RECORD).read_bytes().count(b"vllm/a.py") == 1
    assert b"transformers" not in (site / small_site.RECORD).read_bytes()
    call("verify", "--target", site)
    assert "applied" in call("check", "patching", "--target", site).out
    call("revert", "--target", site)
    assert small_site.snapshot(site) == before


@pytest.mark.slow
def test_an_edit_of_either_is_found(call: Caller, site: Path) -> None:
    call("apply", "patching", "--target", site)
    (site / X).write_bytes(b"X = 3\n")
    assert X in call("verify", "--target", site, code=1).out
    call("revert", "--target", site, code=3)
    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"


@pytest.mark.slow
def test_an_upgrade_of_the_package_alone_is_told_and_the_mod_goes_in_again(
    call: Caller, site: Path
) -> None:
    call("apply", "patching", "--target", site)
    shutil.rmtree(site / "transformers")
    shutil.rmtree(site / INFO)
    write(site, {path.replace("5.4.0", "5.5.0"): data for path, data in BESIDE.items()})
    there = vm.status(site)
    assert not there.ok
    assert {X, "transformers/models/new.py"} <= there.undone
    assert "vllm/a.py" not in there.undone
    call("apply", "patching", "--target", site)
    assert (site / X).read_bytes() == b"X = 2\n"
    call("verify", "--target", site)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "code", "says"),
    [(">=5", 0, "applies"), ("<5", 0, "variant `a` is for transformers <5; the variant is used because 5.4.0 has the same source"),
     ("==5.4.*", 0, "transformers 5.4.0 is installed beside this vLLM")],
)  # fmt: skip
def test_the_range_is_held_against_what_is_installed(
    call: Caller, site: Path, version: str, code: int, says: str
) -> None:
    place = call.library / "patches/patching/mod.toml"
    place.write_text(place.read_text().replace(">=5.4,<6", version))
    said = call("check", "patching", "--target", site, code=code)
    assert says in " ".join(said.out.split())
    strict = 1 if version == "<5" else 0
    call("check", "patching", "--target", site, "--strict-version", code=strict)


@pytest.mark.slow
def test_a_package_that_is_not_installed_refuses_all(call: Caller, site: Path) -> None:
    shutil.rmtree(site / "transformers")
    shutil.rmtree(site / INFO)
    said = call("apply", "patching", "--target", site, code=3)
    assert "which" in said.err
    assert (site / "vllm/a.py").read_bytes() == b"A = 1\n"


@pytest.mark.slow
def test_an_image_holds_it_and_verify_looks_at_it(call: Caller, tmp_path: Path) -> None:
    call("lock", NAME, "--base", call.base)
    (mod, _template) = json.loads(call.lock.read_bytes())["mods"]
    assert [one["path"] for one in mod["files"]] == ["transformers/models/new.py", X, "vllm/a.py"]
    listed = [one["path"] for one in json.loads(call.lock.read_bytes())["image"]["layer"]]
    assert any(path.endswith(f"/{INFO}/RECORD") for path in listed)
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/made")
    call("image", "verify", f"oci:{tmp_path}/made", "--lock", call.lock)
    tree = vm.open_tree(f"image:oci:{tmp_path}/made")
    assert tree.read(X) == b"X = 2\n"
    assert record.agrees(tree.read(f"{INFO}/RECORD") or b"", X, small_site.sha(b"X = 2\n"), 6)


@pytest.mark.slow
def test_show_says_what_it_is_for(call: Caller) -> None:
    assert "variant a for vLLM >=0.19, transformers >=5.4,<6" in call("show", "patching").out
    (variant,) = json.loads(call("show", "patching", "--json").out)["variants"]
    assert (variant["package"], variant["package_version"]) == ("transformers", ">=5.4,<6")


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize("form", ["patch", "copy", "both"])
def test_import_of_a_script_that_edits_it_makes_a_variant_for_it(
    call: Caller, site: Path, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "theirs"
    diff = diff_of(X, "X = 1\n", "X = 2\n")
    vllm = diff_of("vllm/a.py", "A = 1\n", "A = 2\n") if form == "both" else b""
    write(folder, {"x.patch": diff + vllm, "x.py": b"X = 2\n"})
    line = f"cp x.py $ROOT/{X}" if form == "copy" else "patch -p1 -F0 -d $ROOT < x.patch"
    root = "ROOT=/usr/local/lib/python3.12/dist-packages"
    write(folder, {"run.sh": f"#!/bin/bash\nset -e\n{root}\n{line}\n".encode()})
    mine = tmp_path / "mine"
    call("import", folder, "--tree", site, "--also", "transformers", "--library", mine)
    text = (mine / "patches/theirs/mod.toml").read_text()
    assert f'outside = ["{X}"]' in text
    assert 'package = "transformers"\nversion = "==5.4.0"\n' in text
    call("apply", "theirs", "--library", mine, "--target", site)
    assert (site / X).read_bytes() == b"X = 2\n"


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_import_of_a_script_that_edits_two_packages_says_so(
    call: Caller, site: Path, tmp_path: Path
) -> None:
    rows = small_site.row("flash/__init__.py", b"F = 1\n")
    write(site, {"flash/__init__.py": b"F = 1\n", "flash-1.dist-info/RECORD": rows})
    patch = diff_of(X, "X = 1\n", "X = 2\n") + diff_of("flash/__init__.py", "F = 1\n", "F = 2\n")
    run = b"#!/bin/bash\nset -e\npatch -p1 -F0 -d $PYTHON_ROOT < x.patch\n"
    write(tmp_path / "theirs", {"x.patch": patch, "run.sh": run})
    also = ("--also", "transformers", "--also", "flash")
    said = call("import", tmp_path / "theirs", "--tree", site, *also)
    assert (
        "# The variant changes flash ==1 and transformers ==5.4.0, but can state only one"
        in said.out
    )


@pytest.mark.parametrize(("machine", "code"), [(0x3E, 0), (0xB7, 3)])
def test_an_image_takes_code_for_its_own_platform(call: Caller, machine: int, code: int) -> None:
    data = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little")
    (call.library / "patches/patching/fast.so").write_bytes(data)
    platform = {0x3E: "linux/amd64", 0xB7: "linux/arm64"}[machine]
    with (call.library / "patches/patching/mod.toml").open("a") as file:
        file.write(
            f'[[variant.binary]]\nsource = "fast.so"\npath = "vllm/_fast.so"\n'
            f'sha256 = "{small_site.sha(data)}"\nplatform = "{platform}"\n'
        )
    said = call("lock", NAME, "--base", call.base, code=code)
    if code:
        assert "built for linux/arm64, but this vLLM is for linux/amd64" in said.err
    else:
        (mod, _template) = json.loads(call.lock.read_bytes())["mods"]
        assert ("vllm/_fast.so", small_site.sha(data)) in {
            (one["path"], one["after"]) for one in mod["files"]
        }
