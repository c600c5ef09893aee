"""Files of a library: read whole, through no link, and the project's file where it counts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library import project_file, reading

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = "schema = 1\n"


def test_a_file_of_more_than_one_piece_is_read_byte_for_byte(tmp_path: Path) -> None:
    data = os.urandom((1 << 20) + 5)
    (tmp_path / "x.bin").write_bytes(data)
    assert reading.read(str(tmp_path / "x.bin"), str(tmp_path)) == data


@pytest.mark.parametrize("name", ["x.py", "none/x.py", "linked/x.py", "deep"])
def test_no_folder_stays_open(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/x.py").write_text("x")
    (tmp_path / "linked").symlink_to("deep")
    before = os.listdir("/proc/self/fd")
    for path in ("deep/er/x.py", f"deep/er/{name}", name):
        try:
            reading.read(str(tmp_path / path), str(tmp_path))
        except ManifestError as error:
            assert "a symbolic link" in error.message  # noqa: PT017
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(("size", "is_read"), [(8, True), (9, False)])
def test_a_file_may_have_as_much_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, size: int, is_read: bool
) -> None:
    lower(monkeypatch, "MANIFEST", 8)
    path = tmp_path / "mod.toml"
    path.write_bytes(b"x" * size)
    if is_read:
        assert reading.read(str(path), str(tmp_path)) == b"x" * size
    else:
        with pytest.raises(ManifestError, match="has more than 8"):
            reading.read(str(path), str(tmp_path))


def test_what_is_named_may_be_a_pipe_and_what_is_inside_may_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ManifestError, match="is a named pipe"):
        reading.read(str(tmp_path / "pipe"), str(tmp_path))
    assert reading.read("/dev/null", None) == b""


def test_links_count_in_the_folder_that_is_said_to_have_them(tmp_path: Path) -> None:
    for name in ("strict", "linked"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").symlink_to("/dev/null")
    read = reading.reader(
        str(tmp_path / "strict"), str(tmp_path / "linked"), linked=str(tmp_path / "linked")
    )
    assert read(str(tmp_path / "linked/x")) == b""
    with pytest.raises(ManifestError, match="is a symbolic link") as caught:
        read(str(tmp_path / "strict/x"))
    assert caught.value.hint == f"ls -l {tmp_path}/strict/x  # put the file itself there"


def test_what_lies_in_no_root_is_read_in_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / "linked").symlink_to("x")
    read = reading.reader(str(tmp_path / "other"))
    assert read(str(tmp_path / "x"), str(tmp_path)) == b"x"
    assert read(str(tmp_path / "linked")) == b"x"
    with pytest.raises(ManifestError, match="is a symbolic link"):
        read(str(tmp_path / "linked"), str(tmp_path))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, three below that of a project in a repository."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / project_file.NAME).write_text(PROJECT)
    monkeypatch.delenv(project_file.CONFIG, raising=False)
    monkeypatch.chdir(tmp_path / "a/b")
    return tmp_path / "a/b"


def test_ones_own_project_above_counts_in_a_repository(here: Path) -> None:
    project = project_file.find()
    assert project is not None
    assert project.where == str(here.parents[1] / project_file.NAME)
    (here.parents[1] / ".git").rmdir()
    assert project_file.find() is None


def test_somebody_elses_above_does_not_count(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    real = os.stat
    values = list(real(here.parents[1] / project_file.NAME))
    values[4] = 815  # st_uid

    def stat(path: object, **given: object) -> os.stat_result:
        is_file = str(path).endswith(project_file.NAME)
        return os.stat_result(values) if is_file else real(path, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(UsageError, match="is somebody else's") as caught:
        project_file.find()
    assert project_file.CONFIG in (caught.value.hint or "")
    monkeypatch.chdir(here.parents[1])
    assert project_file.find() is not None  # whoever goes there means it


def test_a_project_that_is_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo(here / project_file.NAME)
    with pytest.raises(UsageError, match="is no regular file"):
        project_file.find()


def test_two_projects_in_one_folder_are_one_too_many(here: Path) -> None:
    (here / project_file.NAME).write_text(PROJECT)
    (here / project_file.PYPROJECT).write_text("[tool.vllm-mods]\nschema = 1\n")
    with pytest.raises(UsageError, match="are two files of one project"):
        project_file.find()
    (here / project_file.PYPROJECT).write_text("[tool.other]\nx = 1\n")
    project = project_file.find()
    assert project is not None
    assert project.where == str(here / project_file.NAME)


def test_a_project_that_is_named_has_to_be_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(project_file.CONFIG, str(here / "none.toml"))
    with pytest.raises(UsageError, match="there is no such file"):
        project_file.find()
    (here / "none.toml").write_text(PROJECT)
    project = project_file.find()
    assert project is not None
    assert project.where == str(here / "none.toml")
