"""``import`` of a script that does without patches that fail: ``git apply X || echo skipping`` is an optional part of the mod."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from mod_folders import FAST, FIX, LOADER, TOP
from mod_making import diff_of
from test_import_mods import made, written

from vllm_mods.library import mod_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandboxed")]

SAVED = FAST.replace('"weights"', '"saved"')
SAVER = diff_of("vllm/loader.py", FAST, SAVED).decode()
LOST = diff_of("vllm/loader.py", "GONE = 1\n", "GONE = 2\n").decode()
HEAD = f'{TOP}HERE="$PWD"\ncd "$PYTHON_ROOT"\ngit apply "$HERE/fix.patch"\n'


def imported(call: Call, folder: Path, site: Path, library: Path) -> Answer:
    return call("import", folder, "--tree", site, "--library", library)


@pytest.mark.parametrize(
    "step",
    [
        'git apply "$HERE/save.patch" || echo skipping',
        'for one in "$HERE"/save*.patch; do git apply "$one" || { echo "skipping $one"; }; done',
        'git apply "$HERE/save.patch" \\\n    || true',
    ],
)
def test_a_patch_that_the_script_does_without_is_optional(
    call: Call, tmp_path: Path, site: Path, step: str
) -> None:
    files = {"run.sh": f"{HEAD}{step}\n", "fix.patch": FIX, "save.patch": SAVER}
    library = tmp_path / "made"
    answer = imported(call, written(tmp_path, files), site, library)
    assert answer.code == 0, answer.err
    place = library / "patches/mine"
    (variant,) = mod_folder.load_mod(str(place)).variants
    names = [(one.source.partition("/")[2], one.optional) for one in variant.patches]
    assert names == [("mine.patch", False), ("save.patch", True)]
    assert made(place, site) == {"vllm/loader.py": SAVED}
    assert (place / "mod.lock").is_file()


def test_where_it_does_not_go_in_the_matrix_names_it_in_the_cell_and_port_carries_it(
    call: Call, tmp_path: Path, site: Path
) -> None:
    step = 'for one in "$HERE"/[as]*.patch; do git apply "$one" || echo "skipping $one"; done'
    more = diff_of("vllm/a.py", "A = 1\n", "A = 2\n").decode()
    patches = {"fix.patch": FIX, "a.patch": more, "save.patch": SAVER}
    library = tmp_path / "made"
    folder = written(tmp_path, {"run.sh": f"{HEAD}{step}\n", **patches})
    assert imported(call, folder, site, library).code == 0
    newer = tmp_path / "newer"
    shutil.copytree(site, newer)
    loader = newer / "vllm/loader.py"
    loader.write_text("store".join(LOADER.rsplit("weights", 1)))
    assert call("check", "mine", "--library", library, "--target", newer).code == 0
    grid = call("matrix", "mine", "--library", library, "--tree", site, "--tree", newer)
    first, second = [line for line in grid.out.splitlines() if "variant 0.19" in line]
    assert first.endswith("variant 0.19")
    assert second.endswith("variant 0.19, without 0.19/save.patch")

    more = "\n\n    def more(self):\n        return None\n\n\nclass Saver"
    later = LOADER.replace("import os", "import os\nimport re").replace("\n\n\nclass Saver", more)
    loader.write_text(later)
    done = call("port", "mine", "--library", library, "--to", newer, "--from", site, "--as", "new")
    assert done.code == 0, done.err
    *_, ported = mod_folder.load_mod(str(library / "patches/mine")).variants
    # what is needed and what is not change one file, which is carried as a whole
    assert [(one.source, one.optional) for one in ported.patches] == [
        ("new/a.patch", True),
        ("new/mine.patch", False),
    ]
    assert made(library / "patches/mine", newer) == {
        "vllm/a.py": "A = 2\n",
        "vllm/loader.py": later.replace('"weights"', '"fast"', 1).replace('"weights"', '"saved"'),
    }


def test_a_patch_that_failed_is_said_and_left_out(call: Call, tmp_path: Path, site: Path) -> None:
    step = 'git apply "$HERE/lost.patch" 2>/dev/null || echo skipping'
    files = {"run.sh": f"{HEAD}{step}\n", "fix.patch": FIX, "lost.patch": LOST}
    library = tmp_path / "made"
    answer = imported(call, written(tmp_path, files), site, library)
    assert answer.code == 0, answer.err
    assert "note: run.sh:6: `git apply" in answer.err
    assert "failed; the script goes on without it" in answer.err
    (variant,) = mod_folder.load_mod(str(library / "patches/mine")).variants
    assert [one.optional for one in variant.patches] == [False]


@pytest.mark.parametrize(
    "script",
    [
        f'{TOP}cd "$PYTHON_ROOT"\ngit apply "$OLDPWD/fix.patch" || echo skipping\n',
        f'{TOP}cd "$PYTHON_ROOT"\ngit apply "$OLDPWD/fix.patch" || {{ echo no; exit 1; }}\n',
        HEAD.replace('.patch"', '.patch" || echo skipping') + 'git apply "$HERE/more.patch"\n',
    ],
    ids=["all of the mod", "the script ends with it", "a later step needs it"],
)
def test_what_a_mod_cannot_do_without_is_not_optional(
    call: Call, tmp_path: Path, site: Path, script: str
) -> None:
    more = diff_of("vllm/loader.py", FAST, FAST.replace('"fast"', '"faster"')).decode()
    files = {"run.sh": script, "fix.patch": FIX, "more.patch": more}
    library = tmp_path / "made"
    answer = imported(call, written(tmp_path, files), site, library)
    assert answer.code == 0, answer.err
    (variant,) = mod_folder.load_mod(str(library / "patches/mine")).variants
    assert not any(one.optional for one in variant.patches)
