"""What is left of a port to a person: laid out, read back, and refused as long as a place is to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod
from small_ports import PATH, ported

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.porting import writing

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod
    from vllm_mods.porting.writing import Unfinished

BASE = "def load(path):\n    return open(path)\n\n\ndef close(path):\n    return path.close()\n"
MOD = BASE.replace("open(path)", "open(path).read()")
CLASHING = BASE.replace("open(path)", "open(path, 'rb')")
GONE = BASE.partition("\n\n\n")[2]


def laid_out(folder: Path, target: str, changed: str = MOD) -> Unfinished:
    work = writing.lay_out(ported(folder, BASE, changed, target))
    assert work is not None
    return work


def own(folder: Path) -> Mod:
    return load_mod(str(folder / "patches/fast"))


@pytest.mark.slow
def test_what_clashes_lies_there_with_both_sides_and_what_it_came_from(tmp_path: Path) -> None:
    work = laid_out(tmp_path, CLASHING)
    assert work.folder == str(tmp_path / "patches/fast/.port-new")
    assert Path(work.edited(PATH)).read_text() == (
        "def load(path):\n<<<<<<< fast, variant a\n    return open(path).read()\n"
        "||||||| vLLM 0.20.0\n    return open(path)\n=======\n    return open(path, 'rb')\n"
        ">>>>>>> memory\n\n\ndef close(path):\n    return path.close()\n"
    )
    assert Path(work.theirs(PATH)).read_text() == CLASHING
    assert (work.mod, work.variant, work.base, work.name) == ("fast", "a", "0.20.0", "new")
    assert (work.vllm, work.target, work.files) == (">=0.21", "memory", ((PATH, True),))
    assert (work.patches, work.gone, dict(work.homes)) == ((), (), {PATH: PATH})
    assert writing.unfinished(own(tmp_path)) == work


@pytest.mark.slow
def test_a_port_that_left_nothing_is_not_laid_out(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, "import os\n\n\n" + BASE)
    assert writing.lay_out(outcome) is None
    assert not (tmp_path / "patches/fast/.port-new").exists()


@pytest.mark.slow
def test_no_port_is_laid_out_over_an_earlier_one(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, CLASHING)
    work = writing.lay_out(outcome)
    assert work is not None
    with pytest.raises(Refused, match="exists: an earlier port is not finished;") as caught:
        writing.lay_out(outcome)
    assert caught.value.hint == "vllm-mods port fast --continue  # or --abort"
    writing.remove(work)
    assert not Path(work.folder).exists()
    with pytest.raises(Refused, match=r"\.port-new cannot be removed: No such file") as caught:
        writing.remove(work)
    assert caught.value.hint == f"ls -ld {work.folder}"


@pytest.mark.slow
def test_a_function_that_is_gone_is_a_patch_beside_the_file(tmp_path: Path) -> None:
    both = MOD.replace("path.close()", "path.close(1)")
    work = laid_out(tmp_path, GONE, both)
    assert work.patches == ("x.py-load.patch",)
    patch = (Path(work.folder) / "x.py-load.patch").read_text()
    assert patch.startswith("load: ")
    assert " [gone]\ndiff --git a/vllm/x.py b/vllm/x.py\n" in patch
    assert "-    return open(path)\n+    return open(path).read()\n" in patch
    assert "path.close(1)" not in patch
    assert Path(work.edited(PATH)).read_text() == GONE.replace("path.close()", "path.close(1)")


@pytest.mark.slow
def test_a_file_that_is_gone_is_a_patch_of_all_of_it(tmp_path: Path) -> None:
    fast = write_mod(tmp_path, "fast", diff_of(PATH, BASE, MOD))
    outcome = ported(tmp_path, BASE, MOD, CLASHING)
    (file,) = outcome.files
    gone = file._replace(before=None, ported=file.ported._replace(stretches=[]))
    work = writing.lay_out(outcome._replace(files=(gone,)))
    assert work is not None
    assert (work.patches, work.files) == (("x.py.patch",), ())
    assert (fast / ".port-new/x.py.patch").read_bytes().endswith(diff_of(PATH, BASE, MOD)[-60:])


@pytest.mark.slow
def test_every_place_that_is_left_is_named(tmp_path: Path) -> None:
    work = laid_out(tmp_path, CLASHING)
    edited = work.edited(PATH)
    with pytest.raises(Refused) as caught:
        writing.resolved(work)
    assert caught.value.message == (
        "fast: the port to memory is not finished; nothing was written"
        + "".join(f"\n  {edited}:{n}: an unresolved conflict marker" for n in (2, 4, 8))
    )
    assert caught.value.hint == (
        f"edit the marked lines first, beginning with {edited}:2; then vllm-mods port fast --continue  # or --abort"
    )
    Path(edited).unlink()
    with pytest.raises(Refused, match=rf"\n  {edited}: this file was removed$"):
        writing.resolved(work)
    Path(edited).write_text(MOD)
    assert writing.resolved(work) == {PATH: (CLASHING.encode(), MOD.encode())}
    new = work._replace(files=((PATH, False),), gone=("vllm/none.py",))
    assert writing.resolved(new) == {"vllm/none.py": (None, None), PATH: (None, MOD.encode())}


def test_a_patch_that_is_left_has_to_be_done_away_with(tmp_path: Path) -> None:
    work = laid_out(tmp_path, GONE, MOD)
    patch = Path(work.folder) / work.patches[0]
    with pytest.raises(Refused, match=rf"{patch}: move the change to its new place"):
        writing.resolved(work)
    patch.unlink()
    assert writing.resolved(work) == {PATH: (GONE.encode(), GONE.encode())}


def test_a_mod_without_an_unfinished_port_says_how_to_begin_one(tmp_path: Path) -> None:
    write_mod(tmp_path, "fast", diff_of(PATH, BASE, MOD))
    mod = own(tmp_path)
    with pytest.raises(
        UsageError, match=f"^no port of fast is unfinished in {mod.directory}"
    ) as caught:
        writing.unfinished(mod)
    assert caught.value.hint == "vllm-mods port fast --to TREE"
    for name in ("a", "b"):
        (tmp_path / f"patches/fast/.port-{name}").mkdir()
    with pytest.raises(UsageError, match=r"^2 ports of fast are unfinished in") as caught:
        writing.unfinished(mod)
    assert caught.value.hint == f"rm -r {mod.directory}/.port-a"


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"schema": 2}, {"files": 1}, None])
def test_a_port_that_cannot_be_read_says_what_to_remove(tmp_path: Path, changed: Any) -> None:
    work = laid_out(tmp_path, CLASHING)
    state = Path(work.folder) / "port.json"
    raw = json.loads(state.read_text())
    state.write_text("no JSON" if changed is None else json.dumps({**raw, **changed}))
    with pytest.raises(
        UsageError, match=f"^{work.folder} is not a port that can be continued: "
    ) as caught:
        writing.unfinished(own(tmp_path))
    assert caught.value.hint == f"rm -r {work.folder}"


def test_folders_of_unfinished_ports_are_known_by_their_names() -> None:
    assert [writing.is_unfinished(name) for name in (".port-0.21", "port-0.21", "0.21")] == [
        *(True, False, False)
    ]


def test_new_files_go_into_a_mod_or_none_does(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "fast", diff_of(PATH, BASE, MOD))
    mod = own(tmp_path)
    writing.write_files(mod, {"mod.toml": mod.manifest + b"# more\n", "new/x.patch": b"1"})
    assert (folder / "new/x.patch").read_bytes() == b"1"
    assert (folder / "mod.toml").read_bytes() == mod.manifest + b"# more\n"
    with pytest.raises(Refused, match="already exists"):
        writing.write_files(mod, {"mod.toml": b"", "new/x.patch": b"2"})
    assert (folder / "new/x.patch").read_bytes() == b"1"
    assert (folder / "mod.toml").read_bytes() == mod.manifest + b"# more\n"
