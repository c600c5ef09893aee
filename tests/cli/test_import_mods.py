"""``import`` of mods: a launcher's is run and what it did becomes ours, a diff and a mod of ours are taken."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from mod_folders import FIX, KINDS, LOADER, TOP
from small_site import snapshot

from vllm_mods.library import mod_folder as libraries
from vllm_mods.planning import planner
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

REGISTRY = """\
#!/bin/bash
python3 - <<'PY'
import os

def put(name):
    if name == "bad":
        raise KeyError("no anchor")
    with open(os.environ["VLLM_PACKAGE_DIR"] + "/loader.py", "a") as file:
        file.write(f"# {name}\\n")
    return name != "worse"

for name in ("one", "bad", "two", "worse"):
    put(name)
PY
"""
COMPLETE = [name for name, kind in KINDS.items() if kind.changed is not None]


def written(parent: Path, files: dict[str, str], name: str = "mine") -> Path:
    for path, text in files.items():
        place = parent / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return parent / name


def made(folder: Path, site: Path) -> dict[str, str | None]:
    """Return what a mod would make of the files of the site."""
    mod = libraries.load_mod(str(folder))
    planned = planner.plan([mod], FolderTree(str(site))).mods[0]
    assert planned.verdict.writes, planned.findings
    return {
        change.path: None if change.after is None else change.after.decode()
        for change in planned.changes
        if not change.path.startswith(".vllm-mods/")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", COMPLETE)
def test_the_mod_does_what_the_script_does(
    call: Call, tmp_path: Path, site: Path, name: str
) -> None:
    kind = KINDS[name]
    before = snapshot(site)
    mine = tmp_path / "mine-library"
    mine.mkdir()
    answer = call(
        "import", written(tmp_path, kind.files), "--tree", site, "--library", mine, "--json"
    )
    assert answer.code == 0, answer.err
    assert answer.json["verdict"] == "applies"
    assert made(mine / "patches/mine", site) == kind.changed
    assert snapshot(site) == before
    called = sorted(kind.files)
    assert sorted(os.listdir(tmp_path / "mine")) == sorted({one.split("/")[0] for one in called})


def test_a_script_needs_a_vllm_to_run_on(call: Call, tmp_path: Path, site: Path) -> None:
    folder = written(tmp_path, KINDS["whole files"].files)
    answer = call("import", folder)
    assert answer.code == 2
    assert "which has to run on a vLLM; no vLLM was named" in answer.err
    assert "--tree pypi:VERSION, --image REF, or --vllm SPEC" in answer.err
    both = call("import", folder, "--tree", site, "--image", "x")
    assert (both.code, "omit one" in both.err) == (2, True)
    assert call("import", folder, "--fetch", "--offline").code == 2
    two = ("--image", "x", "--image", "y")
    ranged = call("import", folder, *two, "--vllm", ">=0.20")
    assert (ranged.code, "both name the releases" in ranged.err) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_installs_templates_and_exports_are_stated(call: Call, tmp_path: Path, site: Path) -> None:
    files = KINDS["all at once"].files
    folder = written(tmp_path, files)
    answer = call("import", folder, "--tree", site)
    assert answer.code == 0, answer.err
    assert 'python = ["flash-qla==0.1.3", "einops"]' in answer.out
    assert 'templates = [\n  { name = "mine", file = "mine.jinja" },' in answer.out
    assert '[env]\nVLLM_MINE = "1"\n' in answer.out
    assert "VLLM_MINE=1 is set only while the script runs" in answer.err
    for line in ("export HF_TOKEN=x", "export MINE=1; echo $MINE", 'export W="$WORKSPACE_DIR"'):
        (folder / "run.sh").write_text(f"{files['run.sh']}{line}\n")
        assert "VLLM_MINE=1" in (said := call("import", folder, "--tree", site).err)
        assert (
            said.count(
                "is set only while the script runs; to keep the variable, add it to [env] in"
            )
            == 1
        )


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_entries_that_fail_are_named_and_left_out_only_if_that_is_wanted(
    call: Call, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, {"run.sh": REGISTRY})
    mine = tmp_path / "own"
    given = (folder, "--tree", site, "--each", "put", "--library", mine)
    answer = call("import", *given)
    assert (answer.code, answer.out, mine.exists()) == (1, "", False)
    assert (
        "2 of 4 calls failed; nothing was written\n  bad: KeyError: 'no anchor'\n  worse: "
        in answer.err
    )
    assert "hint: --partial makes the mod without the calls that failed" in answer.err
    assert call("import", *given[:-2]).out == ""
    answer = call("import", *given, "--partial", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert answer.json["failed"] == ["bad: KeyError: 'no anchor'", "worse: it returned False"]
    assert [one for one in answer.json["files"] if one.endswith(".patch")] == [
        "0.19/one.patch",
        "0.19/two.patch",
    ]
    assert made(mine / "patches/mine", site) == {"vllm/loader.py": f"{LOADER}# one\n# two\n"}
    monkeypatch.chdir(folder)
    recorded = ("--record", "--tree", site, "--each", "put", "--library", tmp_path / "new")
    assert call("new", "mine", *recorded, "--", "bash", "run.sh").code == 1
    answer = call("new", "mine", *recorded, "--partial", "--", "bash", "run.sh")
    assert (answer.code, answer.out.splitlines()[0]) == (
        1,
        f"wrote {tmp_path}/new/patches/mine: applies",
    )
    assert "\nfailed: bad: KeyError: 'no anchor'\nfailed: worse: it returned False\n" in answer.out
    assert made(tmp_path / "new/patches/mine", site) == made(mine / "patches/mine", site)


# --- what needs no running


def test_a_diff_names_the_way(call: Call, tmp_path: Path) -> None:
    for path, hint in {
        "mods/fix.patch": "vllm-mods new NAME --from-diff mods/fix.patch --tree TREE",
        "fix.diff": "vllm-mods new NAME --from-diff fix.diff --tree TREE",
    }.items():
        answer = call("import", path)
        assert (answer.code, f"hint: {hint}" in answer.err) == (2, True), answer.err
    folder = written(tmp_path, {"b.patch": FIX})
    assert f"--from-diff {folder}/b.patch --tree TREE" in call("import", folder).err


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_folder_and_a_zip_that_are_mods(call: Call, tmp_path: Path, site: Path) -> None:
    (tmp_path / "fix.patch").write_text(FIX)
    first, second = tmp_path / "first", tmp_path / "second"
    made_of = ("--from-diff", tmp_path / "fix.patch", "--tree", site)
    assert call("new", "fix", *made_of, "--library", first).code == 0
    answer = call("import", first / "patches/fix", "--library", second, "--tree", site, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "applies"), answer.err
    files = contents(first / "patches/fix")
    assert contents(second / "patches/fix") == files
    archive = packed(tmp_path / "fix.zip", files)
    assert call("import", archive, "--library", tmp_path / "third").code == 0
    assert contents(tmp_path / "third/patches/fix") == files
    assert call("import", archive, "--summary", "x").code == 2
    (site / "vllm/loader.py").write_text("gone = 1\n")
    refused = call("import", archive, "--library", tmp_path / "fourth", "--tree", site)
    assert (refused.code, (tmp_path / "fourth").exists()) == (3, False)
    assert f"fix does not apply to {site} (`missing`); nothing was written" in refused.err
    assert (
        f"leave out --tree to import it unchanged; then vllm-mods port fix --to {site}"
        in refused.err
    )


def test_a_mod_without_a_lock_gets_that_of_its_tree(call: Call, tmp_path: Path, site: Path) -> None:
    (tmp_path / "fix.patch").write_text(FIX)
    made_of = ("--from-diff", tmp_path / "fix.patch", "--tree", site)
    assert call("new", "fix", *made_of, "--library", tmp_path / "first").code == 0
    files = contents(tmp_path / "first/patches/fix")
    del (bare := dict(files))["mod.lock"]
    archive = packed(tmp_path / "fix.zip", bare)
    mine = ("--library", tmp_path / "second")
    assert call("import", archive, *mine, "--tree", site).code == 0
    assert contents(tmp_path / "second/patches/fix") == files


def test_a_dockerfile_names_the_way(call: Call, tmp_path: Path) -> None:
    folder = written(tmp_path, {"Dockerfile": "FROM x\n"})
    answer = call("import", folder)
    assert (answer.code, "--from-trees image:BASE image:BUILT" in answer.err) == (2, True)
    answer = call("import", folder / "Dockerfile", "--summary", "x")
    assert (answer.code, "--from-trees image:BASE image:BUILT" in answer.err) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_templates_whose_names_end_otherwise(call: Call, tmp_path: Path, site: Path) -> None:
    files = {"run.sh": f"{TOP}cp q.jinja q.j2 $WORKSPACE_DIR/\n", "q.jinja": "1", "q.j2": "2"}
    mine = tmp_path / "library-of-mine"
    answer = call("import", written(tmp_path, files), "--library", mine, "--tree", site)
    assert answer.code == 0, answer.err
    (variant,) = libraries.load_mod(f"{mine}/patches/mine").variants
    assert {one.file: one.data for one in variant.templates} == {"q.jinja": b"1", "q.j2": b"2"}


# --- folders and zips ---------------------------------------------------------------------------


def packed(path: Path, files: dict[str, str], *, link: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if link and name != "run.sh" else 0o100644) << 16
            archive.writestr(info, text)
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_zip(call: Call, tmp_path: Path, site: Path) -> None:
    kind = KINDS["patch that fails open"]
    mine = tmp_path / "library-of-mine"
    mine.mkdir()
    archive = packed(tmp_path / "mine.zip", kind.files)
    assert call("import", archive, "--tree", site, "--library", mine).code == 0
    assert made(mine / "patches/mine", site) == kind.changed


@pytest.mark.parametrize(
    ("files", "link", "says"),
    [
        ({"a.txt": FIX}, False, "has no run.sh at its root"),
        (
            {"mine/run.sh": TOP},
            False,
            "name the folder of that file, or pack only that folder's files",
        ),
        ({"run.sh": TOP, "../x": ""}, False, "is not a plain relative path"),
        ({"run.sh": TOP, "/etc/x": ""}, False, "is not a plain relative path"),
        ({"run.sh": TOP, "a\\..\\x": ""}, False, "is not a plain relative path"),
        ({"run.sh": TOP, "x": "/etc/passwd"}, True, "is a symbolic link or a device"),
    ],
)
def test_a_zip_that_is_no_mod(
    call: Call, tmp_path: Path, files: dict[str, str], says: str, *, link: bool
) -> None:
    answer = call("import", packed(tmp_path / "mine.zip", files, link=link))
    assert answer.code == 2
    assert says in answer.err
    assert "hint: " in answer.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["library", "mine.zip"]


def test_a_bomb_and_broken_zips(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    archive = tmp_path / "mine.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("run.sh", TOP)
        file.writestr("zeros", bytes(1 << 22))
    assert archive.stat().st_size < 1 << 14
    lower(monkeypatch, "MOD_BYTES", 1 << 20)
    answer = call("import", archive)
    assert answer.code == 2
    assert "the limit is" in answer.err
    archive.write_bytes(archive.read_bytes()[:-30])
    assert call("import", archive).code == 2


def test_folders_that_are_no_mods(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no run.sh" in call("import", tmp_path / "empty").err
    folder = written(tmp_path, {"run.sh": TOP})
    (folder / "x").symlink_to("/etc/passwd")
    answer = call("import", folder)
    assert answer.code == 2
    assert "is a symbolic link, which a mod cannot contain" in answer.err
    (folder / "x").unlink()
    assert call("import", folder, "--mod", "mods/x=y").code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_two_mods_of_one_name(call: Call, tmp_path: Path, site: Path) -> None:
    folder = written(tmp_path, KINDS["a chat template"].files, "Mine 2")
    mine = tmp_path / "library-of-mine"
    mine.mkdir()
    given = ("import", folder, "--tree", site, "--library", mine)
    assert call(*given).code == 0
    before = snapshot(mine)
    answer = call(*given)
    assert answer.code == 3
    assert f"{mine}/patches/mine-2 already exists" in answer.err
    assert snapshot(mine) == before
    assert call(*given, "--name", "other").code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_library_that_is_copied_in_is_pinned_for_its_platform(
    call: Call, tmp_path: Path, site: Path
) -> None:
    folder = written(tmp_path, {"run.sh": f"{TOP}cp fast.so $VLLM_PACKAGE_DIR/_fast.abi3.so\n"})
    code = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + b"\xb7\0" + bytes(8)
    (folder / "fast.so").write_bytes(code)
    mine = tmp_path / "library-of-mine"
    answer = call("import", folder, "--tree", site, "--library", mine)
    assert answer.code == 0, answer.err
    (file,) = libraries.load_mod(str(mine / "patches/mine")).variants[0].binary
    assert (file.path, file.platform, file.data) == ("vllm/_fast.abi3.so", "linux/arm64", code)
