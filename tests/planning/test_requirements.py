"""What the patched code imports of other packages is held against those of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.base.errors import Unreachable
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, ModPlan, Verdict
from vllm_mods.planning import planner
from vllm_mods.trees import packages

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = "a = 1\nb = 2\nc = 3\n"
PATCH = diff_of("vllm/a.py", TEXT, TEXT.replace("b = 2", "b = 9"))
METADATA = b"""\
Name: vllm
Requires-Dist: tilelang==0.1.9
Requires-Dist: Flash_Thing == 2.0 ; extra == "flash"
Requires-Dist: numba==0.65.*
Requires-Dist: not a requirement ==
Requires-Dist: torch==2.11.0; platform_system == "Darwin"

Requires-Dist: beyond==1
"""


class Listed(MemoryTree):
    """A tree that can name the folders of its site root."""

    def folders(self) -> Sequence[str]:
        return sorted({path.split("/")[0] for path in self.files})


def planned(needs: Sequence[str], *folders: str, kind: type[MemoryTree] = Listed) -> ModPlan:
    files = {"vllm/a.py": TEXT.encode(), "vllm-0.21.0.dist-info/METADATA": METADATA}
    files |= {f"{folder}/METADATA": b"" for folder in folders}
    one = mod(variant(PATCH)._replace(python=tuple(needs)))
    return planner.plan([one], kind(files, version="0.21.0")).mods[0]


def codes(one: ModPlan) -> list[str]:
    return [found.code for found in one.findings if found.code.startswith("python-")]


def test_a_package_that_is_there_needs_no_word() -> None:
    one = planned(["Flash-QLA>=0.1.3"], "flash_qla-0.1.3.dist-info")
    assert (one.verdict, codes(one)) == (Verdict.APPLIES, [])


def test_one_of_another_version_is_refused() -> None:
    one = planned(["tilelang>=0.1.12", "nothing"], "tilelang-0.1.9.dist-info")
    assert (one.verdict, one.changes) == (Verdict.UNFIT, ())
    assert codes(one) == ["python-conflict", "python-requirement"]
    (found,) = [each for each in one.findings if each.code == "python-conflict"]
    assert found.level is Level.ERROR
    assert "`tilelang>=0.1.12`, but tilelang 0.1.9 is installed beside this vLLM" in found.message


def test_what_a_release_pins_is_told_and_one_beside_it_decides() -> None:
    told = planned(["tilelang>=0.1.12"])
    assert (told.verdict, codes(told)) == (Verdict.APPLIES, ["python-pin"])
    assert codes(planned(["tilelang<0.1.12"])) == []
    assert codes(planned(["tilelang>=0.1.12"], "tilelang-0.1.13.dist-info")) == []


@pytest.mark.parametrize("need", ["flash-thing>=3", "numba>=1", "torch>=99", "beyond>=2"])
def test_no_pin_is_what_an_extra_or_another_platform_or_a_range_says(need: str) -> None:
    assert codes(planned([need])) == ["python-requirement"]


def test_a_tree_that_cannot_be_listed_is_asked_for_what_its_vllm_pins() -> None:
    class Named(MemoryTree):
        def folders(self) -> Sequence[str]:
            return ("vllm-0.21.0.dist-info",)

    one = planned(["tilelang>=0.1.12"], "tilelang-0.1.9.dist-info", kind=Named)
    assert (one.verdict, codes(one)) == (Verdict.UNFIT, ["python-conflict"])


def test_metadata_that_cannot_be_had_now_decides_nothing() -> None:
    class Away(Listed):
        def read(self, path: str) -> bytes | None:
            if path.endswith("METADATA"):
                raise Unreachable("not in the cache")
            return super().read(path)

    there = Away({"vllm-0.21.0.dist-info/METADATA": METADATA})
    assert packages.read_packages(there, ["tilelang"]) == packages.Packages(
        {}, (), "not in the cache"
    )


def test_what_is_in_stays_in_and_the_package_is_named() -> None:
    after = TEXT.replace("b = 2", "b = 9").encode()
    files = {"vllm/a.py": after, "tilelang-0.1.9.dist-info/METADATA": b""}
    one = mod(variant(PATCH)._replace(python=("tilelang>=0.1.12",)))
    done = planner.plan([one], Listed(files, version="0.21.0")).mods[0]
    assert done.verdict is Verdict.APPLIED
    found = {each.code: each.level for each in done.findings}
    assert found[FindingCode.PYTHON_CONFLICT] is Level.NOTE
