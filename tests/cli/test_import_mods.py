"""``import`` of a launcher's mods: read by line, whole or not at all; ``lint`` of the same."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from mod_folders import FAST, FIX, KINDS, SITE, TOP
from small_site import snapshot

from vllm_mods.library import mod_folder as libraries
from vllm_mods.planning import planner
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]

COMPLETE = [name for name, kind in KINDS.items() if kind.changed is not None]
# whether vLLM has the files that they write decides what these do
NEEDS_TREE = {"whole files", "a package", "a file from a here-document", "in functions"}
NEEDS_TREE |= {"in ways that shells have"}


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


@pytest.mark.parametrize("name", KINDS)
def test_every_line_is_told(call: Call, tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    folder = written(tmp_path, kind.files)
    answer = call("import", folder, "--json")
    found = [(one["line"], one["kind"]) for one in answer.json["effects"]]
    needs = name in NEEDS_TREE
    assert found == [
        (line, "left" if needs and what == "whole" else what) for line, what in kind.effects
    ]
    assert answer.code == (0 if kind.changed is not None and not needs else 1), answer.json
    assert answer.json["ok"] is (answer.code == 0)


@pytest.mark.parametrize("name", KINDS)
def test_lint_names_what_is_unsafe(call: Call, tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    answer = call("lint", written(tmp_path, kind.files), "--json")
    found = [(one["line"], one["code"]) for one in answer.json["findings"]]
    if kind.changed is not None or kind.lint:
        assert found == kind.lint


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


WITHOUT = [name for name in COMPLETE if name not in NEEDS_TREE]


@pytest.mark.parametrize("name", WITHOUT)
def test_without_a_tree_the_patches_stay_as_they_are(
    call: Call, tmp_path: Path, site: Path, name: str
) -> None:
    kind = KINDS[name]
    mine = tmp_path / "mine-library"
    mine.mkdir()
    answer = call("import", written(tmp_path, kind.files), "--library", mine)
    assert answer.code == 0, answer.err
    assert made(mine / "patches/mine", site) == kind.changed
    assert 'vllm = ">=0"' in (mine / "patches/mine/mod.toml").read_text()


def test_a_package_without_a_tree(call: Call, tmp_path: Path) -> None:
    # is there one of that name already? then `cp -r` puts it inside
    folder = written(tmp_path, {"run.sh": f"{TOP}cp -r p $PYTHON_ROOT/p\n", "p/a.py": "A = 1\n"})
    answer = call("import", folder)
    assert answer.code == 1
    assert "run.sh:3: not understood" in answer.err
    assert "--tree TREE" in answer.err


def test_what_is_left_is_named_and_nothing_is_written(call: Call, tmp_path: Path) -> None:
    folder = written(tmp_path, KINDS["an edit with sed"].files)
    mine = tmp_path / "mine-library"
    mine.mkdir()
    answer = call("import", folder, "--library", mine)
    assert answer.code == 1
    assert "run.sh:3: `sed -i" in answer.err
    assert "only a run tells what comes out" in answer.err
    assert f"hint: vllm-mods import {folder} --record --tree TREE" in answer.err
    assert list(mine.iterdir()) == []


def test_installs_templates_and_exports_are_said(call: Call, tmp_path: Path, site: Path) -> None:
    folder = written(tmp_path, KINDS["all at once"].files)
    answer = call("import", folder, "--tree", site)
    assert answer.code == 0
    assert 'python = ["flash-qla==0.1.3", "einops"]' in answer.out
    assert 'templates = [\n  { name = "mine", file = "mine.jinja" },' in answer.out
    assert "VLLM_MINE=1 ends with the script" in answer.err
    assert "installs flash-qla==0.1.3: the mod states it" in answer.err


def test_templates_whose_names_end_otherwise(call: Call, tmp_path: Path, site: Path) -> None:
    files = {"run.sh": f"{TOP}cp q.jinja q.j2 $WORKSPACE_DIR/\n", "q.jinja": "1", "q.j2": "2"}
    mine = tmp_path / "library-of-mine"
    for tree in ([], ["--tree", site]):
        answer = call("import", written(tmp_path, files), "--library", mine / str(len(tree)), *tree)
        assert answer.code == 0, answer.err
        (variant,) = libraries.load_mod(f"{mine}/{len(tree)}/patches/mine").variants
        assert {one.file: one.data for one in variant.templates} == {"q.jinja": b"1", "q.j2": b"2"}


def test_a_patch_that_does_not_go_in(call: Call, tmp_path: Path, site: Path) -> None:
    kind = KINDS["in functions"]
    assert kind.changed is not None
    files = {"run.sh": f"{TOP}patch -p1 -d {SITE} < fix.patch\n", "fix.patch": FIX}
    folder = written(tmp_path, files | {"fix.patch": FIX.replace("weights", "scales")})
    answer = call("import", folder, "--tree", site)
    assert answer.code == 3
    assert "run.sh:3: fix.patch does not go into" in answer.err
    (site / "vllm/loader.py").write_text(
        (site / "vllm/loader.py").read_text().replace("weights", "fast", 1)
    )
    answer = call("import", written(tmp_path, files), "--tree", site)
    assert answer.code == 3
    assert "is in that tree already" in answer.err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("patch -p1 -d /opt/other < fix.patch", "not among the Python packages"),
        ("patch -p1 -d $PYTHON_ROOT < broken.patch", "the patch ends inside a hunk"),
        ("patch -p1 -d $PYTHON_ROOT < none.patch", "not in the mod"),
        ("patch -p1 -d $ELSEWHERE < fix.patch", "known only when it runs"),
        ("cd $(mystery); patch -p1 < fix.patch", "known only when it runs"),
        ("cp $PYTHON_ROOT/{a,b}.py $PYTHON_ROOT/vllm/", "known only when it runs"),
        ("echo 'X = 1' >> $PYTHON_ROOT/vllm/loader.py", "it adds to a file"),
        ("ln -s a $PYTHON_ROOT/vllm/b", "a mod makes no links"),
        ('eval "$X"', "known only when it runs"),
        ("pip install git+https://example.test/x", "names no package and version"),
        ("pip install vllm==0.1", "another vLLM"),
        ("pip uninstall -y flash-attn", "does not `pip uninstall`"),
        ("cp fix.patch $WORKSPACE_DIR/sub/q.jinja", "/workspace/sub/q.jinja is neither"),
        ("cp fix.patch /etc/fix.patch", "and /etc/fix.patch is neither"),
        ("git clone https://example.test/x", "what the network sends"),
        ("git am fix.patch", "what `git am` does here"),
        ("cp fix.patch $PYTHON_ROOT/a.py || cp broken.patch $PYTHON_ROOT/b.py", "only if what"),
        ("if grep -q x y; then cp fix.patch $PYTHON_ROOT/a.py; exit 0; fi", "ends here"),
        ("python3 -c \"open('x', 'w')\"", "only a run tells"),
        ("f() { f; }; f", "without end"),
        ("bash other.sh", "other.sh is not in the mod"),
        ("patch --weird < fix.patch", "`patch`: option --weird not recognized"),
        ("cp fix.patch $PYTHON_ROOT/a.py &", "background"),
    ],
)
def test_what_is_not_understood_is_never_dropped(
    call: Call, tmp_path: Path, line: str, why: str
) -> None:
    broken = FIX.replace("@@ -3,7", "@@ -3,9")
    folder = written(
        tmp_path, {"run.sh": f"{TOP}{line}\n", "fix.patch": FIX, "broken.patch": broken}
    )
    answer = call("import", folder)
    assert answer.code == 1, answer.err
    assert "run.sh:3: " in answer.err
    assert why in answer.err


def test_a_file_over_one_of_vllm_needs_the_tree_and_is_a_diff_with_it(
    call: Call, tmp_path: Path, site: Path
) -> None:
    files = {"run.sh": f"{TOP}cp loader.py $PYTHON_ROOT/vllm/loader.py\n", "loader.py": FAST}
    folder, mine = written(tmp_path, files), tmp_path / "mine-library"
    answer = call("import", folder, "--library", mine)
    assert answer.code == 1
    assert "whether vLLM has such a file decides what this is" in answer.err
    assert f"hint: vllm-mods import {folder} --tree TREE" in answer.err
    assert not mine.exists()
    assert call("import", folder, "--tree", site, "--library", mine).code == 0
    manifest = (mine / "patches/mine/mod.toml").read_text()
    assert "patches = " in manifest
    assert "overlay" not in manifest
    assert made(mine / "patches/mine", site) == {"vllm/loader.py": FAST}


def test_a_file_for_a_package_that_the_tree_has_not_is_left(
    call: Call, tmp_path: Path, site: Path
) -> None:
    files = {
        "run.sh": f"{TOP}cp core.py $PYTHON_ROOT/flashinfer/jit/core.py\n",
        "core.py": "X = 2\n",
    }
    folder = written(tmp_path, files)
    answer = call("import", folder, "--tree", site)
    assert answer.code == 1
    assert "does not hold the package flashinfer" in answer.err
    (site / "flashinfer/jit").mkdir(parents=True)
    (site / "flashinfer/jit/core.py").write_text("X = 1\n")
    answer = call("import", folder, "--tree", site)
    assert answer.code == 0, answer.err
    assert "patches = " in answer.out


def test_other_scripts_of_the_mod_are_read(call: Call, tmp_path: Path, site: Path) -> None:
    files = {
        "run.sh": f'{TOP}source lib.sh\nbash "$(dirname "$0")/put.sh" vllm\n',
        "lib.sh": "ROOT=$PYTHON_ROOT\nexport ROOT\n",
        "put.sh": 'cd "$(dirname "$0")"\ncp added.py "$ROOT/$1/added.py"\n',
        "added.py": "ADDED = 1\n",
    }
    answer = call("import", written(tmp_path, files), "--tree", site, "--json")
    found = [(one["file"], one["line"], one["kind"]) for one in answer.json["effects"]]
    assert found == [("lib.sh", 2, "export"), ("put.sh", 2, "whole")]


# --- Dockerfiles ---------------------------------------------------------------------------------

BUILT = f"""\
FROM vllm/vllm-openai:v0.19.1
ARG SITE={SITE}
COPY fixes/ /opt/fixes/
COPY added.py ${{SITE}}/vllm/
COPY mine.jinja /workspace/mine.jinja
RUN cd ${{SITE}} && \\
    # what it is for
    patch -p1 -F0 < /opt/fixes/fix.patch
RUN --mount=type=bind,source=fixes,target=/b pip install einops==0.8.1 && cp /b/b.py $SITE/vllm/b.py
"""
CONTEXT = {"added.py": "ADDED = 1\n", "mine.jinja": "{{ x }}", "fixes/fix.patch": FIX}


def test_a_dockerfile_is_a_mod(call: Call, tmp_path: Path, site: Path) -> None:
    context = {**CONTEXT, "fixes/b.py": "B = 9\n", "secret/key": "not copied"}
    folder, mine = written(tmp_path, {**context, "Dockerfile": BUILT}), tmp_path / "made-library"
    answer = call("import", folder, "--tree", site, "--library", mine)
    assert answer.code == 0, answer.err
    assert "Dockerfile:8: patch fix.patch: vllm/loader.py" in answer.err
    assert "Dockerfile:9: installs einops==0.8.1" in answer.err
    assert made(mine / "patches/mine", site) == {
        "vllm/loader.py": FAST,
        "vllm/added.py": "ADDED = 1\n",
        "vllm/b.py": "B = 9\n",
    }
    assert call("import", folder / "Dockerfile", "--tree", site).code == 0
    assert call("import", folder, "--tree", site, "--record").code == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("COPY --from=other /x /y", "what is copied, or to where, is not known"),
        ("COPY added.py x.py", "what is copied, or to where, is not known"),
        ("COPY none.py /x/", "none.py is not in the folder that is built"),
        ("COPY added.py /etc/added.py", "/etc/added.py is neither"),
        ("RUN apt-get install -y git", "it changes the system"),
        ("RUN git clone https://x.test/a && cp a/b $SITE/vllm/", "what the network sends"),
        ("WHAT is this", "this instruction is not known"),
    ],
)
def test_what_a_dockerfile_does_beside_is_named(
    call: Call, tmp_path: Path, site: Path, line: str, why: str
) -> None:
    context = {**CONTEXT, "fixes/b.py": "B = 9\n"}
    folder = written(tmp_path, {**context, "Dockerfile": f"{BUILT}{line}\n"})
    answer = call("import", folder, "--tree", site)
    assert answer.code == 1
    assert "Dockerfile:10: not understood: `" in answer.err
    assert why in answer.err


def test_a_dockerfile_takes_nothing_from_outside_of_its_folder(call: Call, tmp_path: Path) -> None:
    folder = written(tmp_path, {"Dockerfile": "FROM x\nCOPY ../secret /x\n"})
    answer = call("import", folder)
    assert answer.code == 2
    assert "leads out of" in answer.err


# --- folders and zips ---------------------------------------------------------------------------


def packed(path: Path, files: dict[str, str], *, link: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if link and name != "run.sh" else 0o100644) << 16
            archive.writestr(info, text)
    return path


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
        ({"a.patch": FIX}, False, "has no run.sh at its root"),
        ({"mine/run.sh": TOP}, False, "pack the mod's files, and not the folder around them"),
        ({"run.sh": TOP, "../x": ""}, False, "would be unpacked outside"),
        ({"run.sh": TOP, "/etc/x": ""}, False, "would be unpacked outside"),
        ({"run.sh": TOP, "a\\..\\x": ""}, False, "would be unpacked outside"),
        ({"run.sh": TOP, "x": "/etc/passwd"}, True, "is a link or a device"),
        ({"run.sh": f"{TOP}if x; then\n"}, False, "run.sh: line 3"),
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
    assert "a mod has at most" in answer.err
    archive.write_bytes(archive.read_bytes()[:-30])
    assert call("import", archive).code == 2


def test_folders_that_are_no_mods(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no run.sh" in call("import", tmp_path / "empty").err
    folder = written(tmp_path, {"run.sh": TOP})
    (folder / "x").symlink_to("/etc/passwd")
    answer = call("import", folder)
    assert answer.code == 2
    assert "is a symbolic link, which does not travel with a mod" in answer.err
    (folder / "x").unlink()
    answer = call("import", folder)
    assert answer.code == 3
    assert "there is nothing for a mod" in answer.err
    assert call("import", folder, "--output", tmp_path / "x").code == 2


def test_two_mods_of_one_name(call: Call, tmp_path: Path) -> None:
    folder = written(tmp_path, KINDS["a chat template"].files, "Mine 2")
    mine = tmp_path / "library-of-mine"
    mine.mkdir()
    assert call("import", folder, "--library", mine).code == 0
    before = snapshot(mine)
    answer = call("import", folder, "--library", mine)
    assert answer.code == 3
    assert f"{mine}/patches/mine-2 is there already" in answer.err
    assert snapshot(mine) == before
    assert call("import", folder, "--library", mine, "--name", "other").code == 0


def test_a_file_outside_of_the_packages_is_for_images(
    call: Call, tmp_path: Path, site: Path
) -> None:
    text = (
        f"patch -p1 -F0 -d {SITE} < fix.patch\ncp nccl.conf /etc/nccl.conf\n"
        "printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/helper\n"
    )
    files = {"run.sh": TOP + text, "fix.patch": FIX, "nccl.conf": "NCCL_DEBUG=INFO\n"}
    for tree in ([], ["--tree", site]):
        mine = tmp_path / f"library-{len(tree)}"
        answer = call("import", written(tmp_path, files), "--library", mine, *tree)
        assert answer.code == 0, answer.err
        assert "run.sh:4: whole file /etc/nccl.conf, outside of Python's packages" in answer.err
        mod = libraries.load_mod(str(mine / "patches/mine"))
        assert [(one.path, one.data, one.mode) for one in mod.files] == [
            ("/etc/nccl.conf", b"NCCL_DEBUG=INFO\n", 0o644),
            ("/usr/local/bin/helper", b"#!/bin/sh\nexit 0\n", 0o755),
        ]
    left = call("import", written(tmp_path, {"run.sh": f"{TOP}echo x > /etc/passwd\n"}, "other"))
    assert left.code == 1
    assert "run.sh:3: not understood" in left.err


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
    refused = call(
        "export", "mine", "--library", mine, "--tree", site, "--output", tmp_path / "out"
    )
    assert refused.code == 3
    assert "does not know its platform" in refused.err
