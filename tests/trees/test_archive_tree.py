"""Wheel and sdist files."""

from __future__ import annotations

import gzip
import io
import tarfile
import warnings
import zipfile
from typing import TYPE_CHECKING

import pytest
from package_server import SDIST, SOURCES, WHEEL, make_sdist, make_wheel

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.tree import Tree


def wheel_of(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile's own word on duplicates
        for name, data in (("vllm/__init__.py", b""), *entries):
            archive.writestr(name, data)
    return f"wheel:{path}"


def sdist_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in ((tarfile.TarInfo("vllm-1/vllm/__init__.py"), b""), *members):
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return f"sdist:{path}"


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.fixture(params=["wheel", "sdist"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "wheel":
        (tmp_path / WHEEL).write_bytes(make_wheel())
        return open_tree(f"wheel:{tmp_path / WHEEL}")
    (tmp_path / SDIST).write_bytes(make_sdist())
    return open_tree(f"sdist:{tmp_path / SDIST}")


def test_an_archive_is_read_from_the_site_root(tree: Tree) -> None:
    assert {path: tree.read(path) for path in SOURCES} == SOURCES
    assert tree.read("vllm/gone.py") is None
    assert tree.version == "0.19.1"
    assert tree.pristine
    assert not tree.remote
    assert set(SOURCES) <= set(tree.paths())
    assert set(tree.paths("vllm/config")) == {"vllm/config/model.py"}
    assert all(not path.startswith("vllm-0") for path in tree.paths())


def test_an_archive_knows_its_own_files(tree: Tree) -> None:
    assert tree.is_released("vllm/__init__.py", b"") is True
    assert tree.is_released("vllm/__init__.py", b"x") is False
    assert tree.is_released("vllm/gone.py", b"") is None


@pytest.mark.parametrize("path", ["../x", "/etc/hostname", "vllm/../vllm/__init__.py", ""])
def test_paths_that_lead_out_are_refused(tree: Tree, path: str) -> None:
    with pytest.raises(TreeError, match="refusing to read"):
        tree.read(path)


def test_a_workspace_can_be_read_beside_an_archive(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(make_wheel())
    (tmp_path / "chat.jinja").write_bytes(b"x")
    tree = open_tree(f"wheel:{tmp_path / WHEEL}", workspace=str(tmp_path))
    assert tree.read(f"{tmp_path}/chat.jinja") == b"x"


def test_one_wrong_byte_in_a_wheel_is_found(tmp_path: Path) -> None:
    data = bytearray(make_wheel(bulk={}))
    start = zipfile.ZipFile(io.BytesIO(data)).getinfo("vllm/config/model.py").header_offset
    data[start + 55] ^= 0xFF
    (tmp_path / WHEEL).write_bytes(data)
    tree = open_tree(f"wheel:{tmp_path / WHEEL}")
    assert tree.read("vllm/__init__.py") == b""
    with pytest.raises(TreeError, match=r"vllm/config/model\.py: corrupt"):
        tree.read("vllm/config/model.py")


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    [
        ("wheel", WHEEL, b"not a zip"),
        ("wheel", WHEEL, make_wheel()[:-100]),
        ("sdist", SDIST, b"not a gzip"),
        ("sdist", SDIST, make_sdist()[:-50]),
        ("sdist", SDIST, gzip.compress(b"not a tar" * 200)),
        ("sdist", SDIST, b""),
    ],
    ids=["no zip", "cut-off zip", "no gzip", "cut-off gzip", "no tar", "empty"],
)
def test_a_broken_archive_is_named(tmp_path: Path, kind: str, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TreeError, match=name):
        open_tree(f"{kind}:{tmp_path / name}")


def test_names_that_no_wheel_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    for name in ("../evil.py", "/evil.py", "vllm/./x.py", "vllm\\x.py"):
        with pytest.raises(TreeError, match="not a plain relative path"):
            open_tree(wheel_of(path, (name, b"")))
    with pytest.raises(TreeError, match="twice"):
        open_tree(wheel_of(path, ("vllm/__init__.py", b"other")))


def test_names_that_no_sdist_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SDIST
    with pytest.raises(TreeError, match="not a plain relative path"):
        open_tree(sdist_of(path, (tar_member("vllm-1/../evil.py"), b"")))
    with pytest.raises(TreeError, match="twice"):
        open_tree(sdist_of(path, (tar_member("vllm-1/vllm/__init__.py"), b"x")))
    with pytest.raises(TreeError, match="one top-level folder, and"):
        open_tree(sdist_of(path, (tar_member("other/x.py"), b"x")))


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("vllm/link.py")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    tree = open_tree(wheel_of(tmp_path / WHEEL, (link, b"/etc/hostname")))
    with pytest.raises(TreeError, match=r"vllm/link\.py is a symbolic link"):
        tree.read("vllm/link.py")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        member = tar_member("vllm-1/vllm/link.py", kind, "/etc/hostname")
        tree = open_tree(sdist_of(tmp_path / SDIST, (member, b"")))
        with pytest.raises(TreeError, match=r"vllm/link\.py is a link"):
            tree.read("vllm/link.py")


def test_an_archive_of_something_else_is_said(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-1-py3-none-any.whl", "w") as archive:
        archive.writestr("x/__init__.py", b"")
    with pytest.raises(UsageError, match="has no vLLM"):
        open_tree(f"wheel:{tmp_path}/x-1-py3-none-any.whl")


def test_the_wrong_kind_gets_the_right_one_as_a_hint(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(make_wheel())
    with pytest.raises(UsageError) as caught:
        open_tree(f"sdist:{tmp_path / WHEEL}")
    assert caught.value.hint == f"wheel:{tmp_path / WHEEL}"
    with pytest.raises(UsageError, match="No such file"):
        open_tree("wheel:gone.whl")
    with pytest.raises(UsageError, match="Is a directory"):
        open_tree(f"wheel:{tmp_path}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "no tree given"),
        ("oci:x", "unknown kind of tree: 'oci'"),
        ("pypi:", "needs a name after"),
        ("image:", "needs a name after"),
    ],
)
def test_a_spec_that_is_none_names_the_forms(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_tree(spec)
    assert caught.value.hint


def test_a_folder_whose_name_looks_like_a_kind_is_still_a_path(tmp_path: Path) -> None:
    root = tmp_path / "v:1"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "__init__.py").touch()
    assert open_tree(str(root)).read("vllm/__init__.py") == b""
