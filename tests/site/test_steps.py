"""The steps of a draft: names beside the file that nobody has yet, and what has to be made for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from small_site import FILES, build, sha

from vllm_mods.site.site import Site
from vllm_mods.site.step_list import Steps
from vllm_mods.site.transitions import Transition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(
        Site(str(build(tmp_path / "site"))), None, Transition((), (), (), None), keep_links=False
    )


def put(steps: Steps, path: str, mode: int = 0o644) -> None:
    steps.put(path, b"new", mode)


def test_a_step_says_what_was_and_what_will_be(steps: Steps) -> None:
    put(steps, "vllm/a.py")
    put(steps, "vllm/none.py")
    steps.remove("vllm/b.py")
    steps.remove("vllm/gone.py")
    a, none, b = (op.step for op in steps.ops.values())
    assert (a.before, a.after, a.backup) == (sha(FILES["vllm/a.py"]), sha(b"new"), "0")
    assert (none.before, none.after, none.backup) == (None, sha(b"new"), None)
    assert (b.before, b.after, b.backup) == (sha(FILES["vllm/b.py"]), None, "2")
    root = steps.site.root
    assert [one.temp for one in (a, none)] == [
        f"{root}/vllm/.a.py.vllm-mods0",
        f"{root}/vllm/.none.py.vllm-mods1",
    ]


def test_a_name_that_is_taken_is_left_to_whom_it_belongs(steps: Steps, tmp_path: Path) -> None:
    folder = tmp_path / "site/vllm"
    (folder / ".a.py.vllm-mods0").touch()
    (folder / ".a.py.vllm-mods1000").symlink_to("nowhere")
    put(steps, "vllm/a.py")
    assert steps.ops["vllm/a.py"].step.temp == f"{folder}/.a.py.vllm-mods2000"


def test_the_longest_names_have_room_beside_them(steps: Steps) -> None:
    # in the second the cut goes through a letter
    for n, name in enumerate(("ä" * 127 + "b", "b" + "ä" * 127)):
        put(steps, f"vllm/{name}")
        temp = os.fsencode(os.path.basename(steps.ops[f"vllm/{name}"].step.temp))
        assert temp == b".%b.vllm-mods%d" % (name.encode()[:200], n)
        assert len(temp) <= 255


def test_a_file_twice_is_a_bug(steps: Steps) -> None:
    put(steps, "vllm/a.py")
    with pytest.raises(ValueError, match=r"vllm/a\.py would be written twice"):
        put(steps, "vllm/a.py")
    with pytest.raises(KeyError, match=r"vllm/b\.py"):
        steps.restore("vllm/b.py")


def test_a_new_file_is_owned_as_the_nearest_folder_that_is_there(
    steps: Steps, tmp_path: Path
) -> None:
    put(steps, "vllm/sub/deep/er/new.py")
    put(steps, "top.py")
    put(steps, "other/new.py")
    put(steps, "vllm/a.py", 0o755)
    new, top, other, a = steps.ops.values()
    site = tmp_path / "site"
    for op, folder in ((new, site / "vllm/sub"), (top, site), (other, site)):
        assert op.like is not None
        assert op.like.st_ino == folder.stat().st_ino
        assert (op.info, op.mode) == (None, 0o644)
    assert a.like is not None
    assert a.like.st_ino == (site / "vllm/a.py").stat().st_ino
    assert (a.info, a.mode) == (a.like, 0o755)
    assert list(steps.made) == ["vllm/sub/deep", "vllm/sub/deep/er", "other"]


def test_an_original_with_other_names_is_kept_as_a_copy(steps: Steps, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (tmp_path / "cache").hardlink_to(site / "vllm/a.py")
    for path in ("vllm/a.py", "vllm/b.py"):
        steps.touch(path, None)
    a, b = (op for op in steps.ops.values() if not op.removes)
    assert (a.source, a.private) == (f"{site}/vllm/a.py", True)
    assert (b.source, b.private) == (f"{site}/vllm/b.py", False)
    assert a.step.path == ".vllm-mods/originals/vllm/a.py"
    assert (a.step.before, a.step.after) == (None, sha(FILES["vllm/a.py"]))
