"""Mods as people pass them on: read whole from a folder or a zip, and written as a folder that puts one in."""

from __future__ import annotations

import os
import stat
import zipfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from mod_making import diff_of, write_mod

from vllm_mods.base.errors import UsageError
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.making import folder

if TYPE_CHECKING:
    from pathlib import Path

PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")


def written(place: Path, **files: bytes) -> str:
    """Write a folder of files; ``a__b_c`` is ``a/b.c``."""
    for name, data in files.items():
        path = place / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(place)


def zipped(place: Path, **files: bytes) -> str:
    with zipfile.ZipFile(place, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), data)
    return str(place)


def test_a_mod_is_read_whole_but_for_bytecode_and_history(tmp_path: Path) -> None:
    files = {"run_sh": b"#!/bin/sh\n", "a__x_pyc": b"1"}
    place = written(tmp_path / "mine", **files)
    for name in (".git", "a/__pycache__"):
        (tmp_path / "mine" / name).mkdir()
        (tmp_path / "mine" / name / "x").write_text("x")
    read = folder.read(place + "/")
    assert (read.name, set(read.files)) == ("mine", {"run.sh", "a/x.pyc"})
    archive = zipped(tmp_path / "own.zip", run_sh=b"#!/bin/sh\n", a__b=b"1")
    assert folder.read(archive) == ("own", {"run.sh": b"#!/bin/sh\n", "a/b": b"1"})
    manifest = written(tmp_path / "other", mod_toml=b"schema = 1\n")
    assert folder.read(manifest) == ("other", {"mod.toml": b"schema = 1\n"})


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ({}, "ls"),
        (
            {"inner__run_sh": b""},
            "{0} has inner/run.sh: name the folder of that file, or pack only that folder's files",
        ),
        ({"b_diff": b"", "a_patch": b""}, "vllm-mods new NAME --from-diff {0}/a.patch --tree TREE"),
        ({}, "ls {0}  # a mod has a run.sh or a mod.toml"),
        ({"Dockerfile": b""}, "docker build; then vllm-mods new NAME --from-trees image:BASE"),
    ],
)
def test_a_folder_that_is_no_mod_names_the_way(
    tmp_path: Path, files: dict[str, bytes], hint: str
) -> None:
    (tmp_path / "mine").mkdir()
    place = written(tmp_path / "mine", **files)
    with pytest.raises(UsageError) as caught:
        folder.read(place)
    assert caught.value.message == f"{place} has no run.sh at its root"
    assert (caught.value.hint or "").startswith(hint.format(place))


def test_what_does_not_travel_with_a_mod_is_refused(tmp_path: Path) -> None:
    place = written(tmp_path / "mine", run_sh=b"")
    (tmp_path / "mine/link").symlink_to("run.sh")
    with pytest.raises(UsageError, match="mine/link is a symbolic link, which") as caught:
        folder.read(place)
    assert (caught.value.hint or "").startswith("replace it by the file itself: cp --remove-dest")
    assert folder.read_working_folder(place) == {"run.sh": b""}
    (tmp_path / "mine/link").unlink()
    os.mkfifo(tmp_path / "mine/pipe")
    with pytest.raises(UsageError, match="mine/pipe is not a regular file, which"):
        folder.read(place)


def test_what_a_command_needs_is_read_without_bytecode(tmp_path: Path) -> None:
    place = written(tmp_path, a__x_pyc=b"1", a__x_py=b"2", y=b"3")
    assert folder.read_working_folder(place) == {"a/x.py": b"2", "y": b"3"}


def test_more_than_a_mod_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"run_sh": b"12", "b": b"34"}
    place, archive = written(tmp_path / "m", **files), zipped(tmp_path / "m.zip", **files)
    for name, most, end in (("MOD_FILES", 1, "1 files"), ("MOD_BYTES", 3, "3 bytes")):
        with monkeypatch.context() as patch:
            lower(patch, name, most)
            for path in (place, archive):
                with pytest.raises(UsageError, match=rf"^{path} has 2 files or more .0 MiB.*{end}"):
                    folder.read(path)
            with pytest.raises(UsageError) as caught:
                folder.read_working_folder(place)
            hint = "run the command from a folder that contains only what it needs"
            assert caught.value.hint == hint
            lower(patch, name, most + 1)
            assert len(folder.read(place).files) == len(folder.read(archive).files) == 2


@pytest.mark.parametrize("name", ["/x", "../x", "a/../x", "a\\x"])
def test_an_entry_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr(name, b"")
    with pytest.raises(UsageError, match="is not a plain relative path"):
        folder.read(str(tmp_path / "m.zip"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFREG])
def test_an_entry_that_is_no_file_is_refused(tmp_path: Path, kind: int) -> None:
    info = zipfile.ZipInfo("run.sh")
    info.external_attr = (kind | 0o644) << 16
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr(info, b"x")
    if kind == stat.S_IFREG:
        assert folder.read(str(tmp_path / "m.zip")).files == {"run.sh": b"x"}
        return
    with pytest.raises(UsageError, match="is a symbolic link or a device") as caught:
        folder.read(str(tmp_path / "m.zip"))
    assert caught.value.hint == f"unzip -l {tmp_path / 'm.zip'}"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips_that_say_a_thing_twice_or_are_none_are_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "m.zip")
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("run.sh", b"1")
        archive.writestr("run.sh", b"2")
    with pytest.raises(UsageError, match=r"'run\.sh' appears twice in the archive") as caught:
        folder.read(place)
    assert caught.value.hint == f"unzip -l {place}"
    (tmp_path / "m.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match=f"^{place}: corrupt or unreadable: ") as caught:
        folder.read(place)
    assert caught.value.hint == f"unzip -l {place}"


def test_an_exported_folder_is_read_back_as_the_mod_that_it_puts_in(tmp_path: Path) -> None:
    mods = [load_mod(str(write_mod(tmp_path, name, PATCH))) for name in ("needed", "wanted")]
    files = folder.export(mods)
    assert sorted(files) == [
        *(
            f"patches/{name}/{file}"
            for name in ("needed", "wanted")
            for file in ("mod.toml", "x.patch")
        ),
        "run.sh",
    ]
    assert b'exec vllm-mods apply wanted --library "$here" ${target:+' in files["run.sh"]
    done = folder.exported_mod(files)
    assert done is not None
    mod, own = done
    assert (mod.name, sorted(own)) == ("wanted", ["mod.toml", "x.patch"])
    assert folder.exported_mod({**files, "run.sh": files["run.sh"] + b"true\n"}) is None
    assert folder.exported_mod({"run.sh": b"#!/bin/sh\npatch -p1 < x\n"}) is None


def test_a_folder_of_a_bundled_mod_has_no_copy_of_it() -> None:
    script = folder.run_script("qwen3.5-enhanced", is_library=False)
    assert b"exec vllm-mods apply qwen3.5-enhanced ${target:+" in script
    with pytest.raises(
        UsageError, match=r"applies `qwen3\.5-enhanced`, which is bundled with"
    ) as caught:
        folder.exported_mod({"run.sh": script})
    assert caught.value.hint == "vllm-mods show qwen3.5-enhanced"
