"""A whole run: what is answered of each tree, how far it is, and when a call was wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, mod, variant

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Verdict
from vllm_mods.matrices.run import compute
from vllm_mods.matrices.work import Setting, Workshop, blank_cell, named_version

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
GOOD, OTHER = (mod(variant(PATCH), name=name) for name in ("good", "other"))
VERSION = "0.19.0+cu129"
WHEEL = f"vllm-{VERSION}-1-cp38-abi3-manylinux_2_31_x86_64.whl"
TORN = mod(variant(PATCH[:-7]), name="torn")


def matrix(tmp_path: Path, *mods: Mod, **more: Any) -> Workshop:
    return Workshop(Setting(mods, str(tmp_path / "cache"), offline=True, **more))


def folder(tmp_path: Path, name: str, text: str = "A = 1\n", version: str = "0.19.1") -> str:
    """Make an installed vLLM of one module; return the path of its site root."""
    (tmp_path / name / "vllm").mkdir(parents=True)
    (tmp_path / name / "vllm/__init__.py").write_text("")
    (tmp_path / name / "vllm/_version.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / name / "vllm/a.py").write_text(text)
    return str(tmp_path / name)


def test_each_mod_is_answered_for_on_each_tree_in_the_order_asked_for(tmp_path: Path) -> None:
    specs = [folder(tmp_path, "two"), folder(tmp_path, "one", "A = 3\n", "0.20.0")]
    counts: list[tuple[int, int]] = []
    run = matrix(tmp_path, GOOD, OTHER)
    assert [
        (one.tree, one.version, one.mod, one.verdict.value)
        for one in compute(run, specs, 1, lambda *count: counts.append(count))
    ] == [
        (specs[0], "0.19.1", "good", "applies"),
        (specs[0], "0.19.1", "other", "applies"),
        (specs[1], "0.20.0", "good", "conflict"),
        (specs[1], "0.20.0", "other", "conflict"),
    ]
    assert counts == [(0, 4), (2, 4), (4, 4)]


@pytest.mark.parametrize("show", [False, True])
def test_hunks_are_shown_where_that_is_asked_for(tmp_path: Path, show: bool) -> None:  # noqa: FBT001
    specs = [folder(tmp_path, "one"), folder(tmp_path, "two")]
    cells = compute(matrix(tmp_path, GOOD, OTHER, show=show), specs, 1)
    assert [len(cell.hunks) for cell in cells] == [int(show)] * 4


def test_a_tree_that_is_none_is_a_wrong_call_where_it_was_named(tmp_path: Path) -> None:
    spec = str(tmp_path / "gone")
    with pytest.raises(UsageError, match="no such file or folder") as caught:
        compute(matrix(tmp_path, GOOD, named=frozenset({spec})), [spec], 1)
    assert (
        caught.value.hint
        == "name the folder with vllm/, or a virtual environment; a release is pypi:VERSION"
    )
    (cell,) = compute(matrix(tmp_path, GOOD), [spec], 1)
    assert (cell.version, cell.verdict) == ("unknown", Verdict.UNREADABLE)


def test_a_tree_that_is_broken_is_a_cell_also_where_it_was_named(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"no zip")
    spec = f"wheel:{tmp_path / WHEEL}"
    run = matrix(tmp_path, GOOD, named=frozenset({spec}))
    (cell,) = compute(run, [spec], 1)
    assert (cell.verdict, cell.version, cell.computed) == (Verdict.UNREADABLE, VERSION, True)
    assert [one.code for one in cell.findings] == ["unreadable"]


def test_a_bad_patch_is_a_wrong_call_wherever_it_is_met(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one/0\.patch:"):
        compute(matrix(tmp_path, GOOD, TORN), [folder(tmp_path, "one")], 1)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("pypi:0.19.0", "0.19.0"),
        (f"pypi:{WHEEL}", VERSION),
        (f"wheel:/a/{WHEEL}", VERSION),
        ("sdist:vllm-0.19.0.tar.gz", "0.19.0"),
        ("wheel:/a/0.19.0", "unknown"),
        (f"git:{WHEEL}", "unknown"),
        (WHEEL, "unknown"),
    ],
)
def test_a_name_tells_the_version_of_what_cannot_be_read(spec: str, version: str) -> None:
    assert named_version(spec) == version


def test_what_cannot_be_read_counts_unless_its_name_says_that_it_is_not_meant() -> None:
    blank = [
        blank_cell(GOOD, spec, version)
        for spec, version in (
            ("folder", None),
            ("folder", "unknown"),
            ("pypi:0.18.0", None),
            ("pypi:0.19.0", None),
        )
    ]
    assert [(one.version, one.meant) for one in blank] == [
        ("unknown", True),
        ("unknown", False),
        ("0.18.0", False),
        ("0.19.0", True),
    ]
