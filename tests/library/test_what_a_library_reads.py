"""Files of a library: read whole, through no link, and the project's file where it counts."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.errors import ManifestError, Refused, UsageError
from vllm_mods.library import project_file, reading, trust

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
    with pytest.raises(ManifestError, match="is not a regular file"):
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
    assert caught.value.hint == f"ls -l {tmp_path}/strict/x  # replace it by the file itself"


def test_what_lies_in_no_root_is_read_in_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / "linked").symlink_to("x")
    read = reading.reader(str(tmp_path / "other"))
    assert read(str(tmp_path / "x"), str(tmp_path)) == b"x"
    assert read(str(tmp_path / "linked")) == b"x"
    with pytest.raises(ManifestError, match="is a symbolic link"):
        read(str(tmp_path / "linked"), str(tmp_path))


def test_what_lies_below_a_folder_is_listed_with_its_links_and_without_what_they_lead_to(
    tmp_path: Path,
) -> None:
    for name in ("b/c/x", "b/y", "b/.git/z", "a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("b")
    top = str(tmp_path)
    assert list(reading.paths_below(top)) == ["a", "link", "b/y", "b/c/x", "b/.git/z"]
    shown = reading.paths_below(top, lambda name: name.startswith("."))
    assert list(shown) == ["a", "link", "b/y", "b/c/x"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("mod.toml", "MANIFEST"),
        ("mod.lock", "RECEIPT"),
        ("template.jinja", "LIBRARY_TEXT"),
        ("case.json", "LIBRARY_TEXT"),
        ("x.patch", "PATCH"),
        ("SHA256SUMS.sig", "SIGNATURE"),
        ("SHA256SUMS", "RECEIPT"),
        ("x.py", "MOD_BYTES"),
    ],
)
def test_each_kind_of_file_has_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: str
) -> None:
    lower(monkeypatch, limit, 3)
    (tmp_path / name).write_bytes(b"1234")
    with pytest.raises(ManifestError, match="has more than 3") as caught:
        reading.read(str(tmp_path / name), str(tmp_path))
    assert caught.value.hint == f"ls -l {tmp_path / name}"


@pytest.mark.parametrize("inside", [True, False])
def test_a_file_that_cannot_be_read_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open" if not inside else "os.open", refuse)
    with pytest.raises(ManifestError) as caught:
        reading.read(str(tmp_path / "x"), str(tmp_path) if inside else None)
    assert caught.value.problems == ("cannot be read: Permission denied",)


def test_a_socket_is_named_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(ManifestError) as caught:
            reading.read(str(tmp_path / "s"), str(tmp_path))
    why = "is not a regular file: vllm-mods reads only regular files of a library and follows no links"
    assert caught.value.problems == (why,)


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
    with pytest.raises(UsageError, match="belongs to another user") as caught:
        project_file.find()
    where = here.parents[1] / project_file.NAME
    assert caught.value.message == f"{where}, in a parent folder, belongs to another user"
    assert caught.value.hint == f"VLLM_MODS_CONFIG={where} vllm-mods …  # if you trust it"
    monkeypatch.chdir(here.parents[1])
    assert project_file.find() is not None  # whoever goes there means it


def test_a_project_that_is_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo(here / project_file.NAME)
    with pytest.raises(UsageError, match="is not a regular file") as caught:
        project_file.find()
    assert caught.value.hint == f"ls -l {here / project_file.NAME}"


def test_two_projects_in_one_folder_are_one_too_many(here: Path) -> None:
    (here / project_file.NAME).write_text(PROJECT)
    (here / project_file.PYPROJECT).write_text("[tool.vllm-mods]\nschema = 1\n")
    with pytest.raises(UsageError, match="are two settings files of one project") as caught:
        project_file.find()
    assert caught.value.hint == "keep one of them"
    (here / project_file.PYPROJECT).write_text("[tool.other]\nx = 1\n")
    project = project_file.find()
    assert project is not None
    assert project.where == str(here / project_file.NAME)


def test_a_project_that_is_named_has_to_be_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(project_file.CONFIG, str(here / "none.toml"))
    with pytest.raises(UsageError, match="no such file") as caught:
        project_file.find()
    assert caught.value.hint == "unset VLLM_MODS_CONFIG, or set it to a file"
    (here / "none.toml").write_text(PROJECT)
    project = project_file.find()
    assert project is not None
    assert project.where == str(here / "none.toml")


def test_where_the_current_folder_was_removed_there_is_no_project(here: Path) -> None:
    here.rmdir()
    assert project_file.find() is None


@pytest.mark.parametrize("root", ["models", "../models", "/"])
def test_a_model_lies_below_a_folder_of_the_policy(
    here: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setattr(trust, "OF_THE_MACHINE", str(here / "none.toml"))
    project = here.parents[1] / project_file.NAME
    trust.demand_model("/anywhere")  # no policy
    project.write_text(f'schema = 1\n[trust]\nmodel_roots = ["{root}", "other"]\n')
    roots = [os.path.realpath(project.parent / one) for one in (root, "other")]
    for folder in roots:
        trust.demand_model(os.path.join(folder, "deep/model"))
        trust.demand_model(folder)
    if root != "/":
        with pytest.raises(Refused) as caught:
            trust.demand_model(f"{roots[0]}-2")
        assert caught.value.message == (
            f"{project} does not allow {roots[0]}-2, which is in none of its model_roots"
        )
        assert caught.value.hint == f"--model-folder {roots[0]}/…"


def test_a_machine_has_a_policy_and_no_project(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = here / "etc.toml"
    monkeypatch.setattr(trust, "OF_THE_MACHINE", str(machine))
    policy = '[trust]\nmodel_roots = ["models"]\n'
    machine.write_text(f"schema = 1\n{policy}")
    (here.parents[1] / project_file.NAME).write_text(f"schema = 1\n{policy}")
    both = [str(machine), str(here.parents[1] / project_file.NAME)]
    assert [one.where for one in trust.policies()] == both
    for more in ("[targets.a]\nmods = []\n", '[libraries.a]\npath = "x"\n'):
        machine.write_text(f"schema = 1\n{more}{policy}")
        with pytest.raises(ManifestError) as caught:
            trust.policies()
        why = "libraries and targets belong to a project"
        assert (caught.value.where, caught.value.problems) == (str(machine), (why,))
