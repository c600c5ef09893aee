"""The packages beside a vLLM are held against what its METADATA requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.trees.beside import unmet
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from pathlib import Path


WANTED = (
    "torch==2.11.0",
    "flashinfer-python==0.6.8.post1",
    "xgrammar<1.0.0,>=0.2.0",
    "apples==1; sys_platform == 'win32'",
    "pears==1; python_version < '3.12'",
    "nuts==1; extra == 'nuts'",
)


def troubles(
    root: Path, *installed: str, files: tuple[str, ...] = ()
) -> list[tuple[Finding, str | None]]:
    (root / "vllm-0.21.0.dist-info").mkdir(parents=True)
    lines = "".join(f"Requires-Dist: {one}\n" for one in WANTED)
    metadata = f"Metadata-Version: 2.4\nName: vllm\nVersion: 0.21.0\n{lines}\nRequires-Dist: text\n"
    (root / "vllm-0.21.0.dist-info/METADATA").write_text(metadata)
    for one in installed:
        (root / f"{one}.dist-info").mkdir()
    for path in files:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).touch()
    return list(unmet(FolderTree(str(root)), elsewhere=True))


SOUND = ("torch-2.11.0", "flashinfer_python-0.6.8.post1", "xgrammar-0.2.1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lib/python3.12/site-packages"


@pytest.mark.parametrize(
    "installed",
    [
        SOUND,
        ("torch-2.11.0+cu130", *SOUND[1:], "pears-9", "nuts-9", "apples-9"),
        (*SOUND[:2], "xgrammar-0.3.0rc1"),
        (*SOUND[:2], "xgrammar-9of.mine"),
    ],
)
def test_what_is_required_is_sound(root: Path, installed: tuple[str, ...]) -> None:
    assert troubles(root, *installed) == []


def test_each_package_of_another_version_is_wrong(root: Path) -> None:
    told = troubles(root, "torch-2.10.0", "Flashinfer.Python-0.6.14", "xgrammar-1.0.0")
    assert {one.code for one, _ in told} == {FindingCode.UNMET_REQUIREMENT}
    assert {one.level for one, _ in told} == {Level.ERROR}
    first, *_, last = told
    said = "torch 2.10.0 is installed, but this vLLM requires torch==2.11.0"
    assert (first[0].message, first[1]) == (said, "pip install 'torch==2.11.0'")
    assert last[0].message.startswith("xgrammar 1.0.0 is installed")
    assert len(told) == 3


def test_packages_that_are_elsewhere_are_counted_in_a_note(root: Path) -> None:
    ((told, _),) = troubles(root, "torch-2.11.0")
    assert told.code is FindingCode.REQUIREMENT_ELSEWHERE
    assert told.level is Level.NOTE
    assert told.message == (
        f"packages that this vLLM requires are not in {root} (2): flashinfer-python, xgrammar"
    )


def test_who_asks_for_what_is_wrong_alone_hears_of_nothing_elsewhere(root: Path) -> None:
    (wrong, _note) = troubles(root, "torch-2.10.0")
    assert list(unmet(FolderTree(str(root)))) == [wrong]


def test_the_python_that_the_folder_is_of_answers_markers(tmp_path: Path) -> None:
    ((told, _),) = troubles(tmp_path / "lib/python3.11/site-packages", *SOUND, "pears-2")
    assert told.message == "pears 2 is installed, but this vLLM requires pears==1"


@pytest.mark.parametrize(
    ("torch", "file", "wrong"),
    [
        ("torch-2.11.0+cpu", "vllm/cumem_allocator.abi3.so", True),
        ("torch-2.11.0+cpu", "vllm/_C.abi3.so", False),
        ("torch-2.11.0+cu130", "vllm/cumem_allocator.abi3.so", False),
    ],
)
def test_a_torch_for_a_cpu_is_wrong_beside_a_vllm_for_a_gpu(
    root: Path, torch: str, file: str, *, wrong: bool
) -> None:
    told = troubles(root, torch, *SOUND[1:], files=(file,))
    assert [one.message.partition(":")[0] for one, _ in told] == (
        [
            "torch 2.11.0+cpu is built for a CPU, but this vLLM is built for a GPU (it has vllm/cumem_allocator.abi3.so)"
        ]
        if wrong
        else []
    )


@pytest.mark.parametrize(
    ("cubin", "wrong"), [("0.6.8.post1", False), ("0.6.8.post1+cu130", False), ("0.6.13", True)]
)
def test_flashinfer_takes_the_cubins_of_its_own_version(
    root: Path, cubin: str, *, wrong: bool
) -> None:
    told = troubles(root, *SOUND, f"flashinfer_cubin-{cubin}")
    said = "flashinfer-python 0.6.8.post1 does not work with flashinfer-cubin 0.6.13, which is installed"
    hint = "pip install flashinfer-cubin==0.6.8.post1"
    assert [(one.message, hint) for one, hint in told] == ([(said, hint)] if wrong else [])


def test_of_an_image_what_says_its_version_in_a_file_is_known() -> None:
    class OfImage(MemoryTree):
        site_root = "usr/lib/python3.12/site-packages"

        def folders(self) -> tuple[str, ...]:
            return ("vllm-0.21.0.dist-info",)

    lines = "".join(f"Requires-Dist: {one}\n" for one in (*WANTED, "flashinfer-cubin==0.6.8.post1"))
    files = {
        "vllm-0.21.0.dist-info/METADATA": lines.encode(),
        "torch/version.py": b"__version__ = '2.10.0+cu130'\n",
        "flashinfer/_build_meta.py": b"__version__ = '0.6.8.post1'\n",
        "flashinfer_cubin/_build_meta.py": b'"""x"""\n__version__ = "0.6.13"\n',
    }
    told = [one.message for one, _ in unmet(OfImage(files), elsewhere=True)]
    assert told == [
        "torch 2.10.0+cu130 is installed, but this vLLM requires torch==2.11.0",
        "flashinfer-cubin 0.6.13 is installed, but this vLLM requires flashinfer-cubin==0.6.8.post1",
        "flashinfer-python 0.6.8.post1 does not work with flashinfer-cubin 0.6.13, which is installed",
        "packages that this vLLM requires were not searched for (1): xgrammar",
    ]


def test_of_a_folder_without_metadata_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "torch-2.10.0.dist-info").mkdir()
    assert list(unmet(FolderTree(str(tmp_path)), elsewhere=True)) == []
