"""``import --record --each``: a mod for each entry, all of them written or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mod_folders import FAST, LOADER, TOP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]

EDIT = """\
import os
from pathlib import Path
p = Path(os.environ["VLLM_PACKAGE_DIR"], "loader.py")
for name, old, new in [
    ("fast", 'self, name):\\n        path = os.path.join("weights"', 'self, name):\\n        path = os.path.join("fast"'),
    ("close", "class Saver:", "CLOSED = True\\n\\n\\nclass Saver:"),
    ("closed-not", "CLOSED = True", "CLOSED = False"),
]:
    s = p.read_text()
    p.write_text(s.replace(old, new, 1))
"""


pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "run.sh").write_text(TOP + "python3 edit.py\n")
    (place / "edit.py").write_text(EDIT)
    return place


@pytest.mark.slow
def test_they_are_written_and_apply_one_by_one_and_together(
    call: Call, site: Path, mine: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    asked: list[Any] = ["import", mine, "--record", "--each", "--tree", site, "--library", made]
    answer = call(*asked, "--json")
    assert answer.code == 0, answer.err
    assert [one["name"] for one in answer.json["mods"]] == [
        "mine-fast",
        "mine-close",
        "mine-closed-not",
    ]
    assert [one["requires"] for one in answer.json["mods"]] == [[], [], ["mine-close"]]
    assert answer.json["idle"] == []
    assert call("apply", "mine-fast", "--library", made, "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == FAST
    names = [one["name"] for one in answer.json["mods"]]
    assert call("apply", *names, "--library", made, "--target", site).code == 0
    end = FAST.replace("class Saver:", "CLOSED = False\n\n\nclass Saver:")
    assert (site / "vllm/loader.py").read_text() == end
    assert call("revert", "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == LOADER


@pytest.mark.slow
def test_where_one_is_there_already_none_is_written(
    call: Call, site: Path, mine: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    (made / "patches/mine-close").mkdir(parents=True)
    answer = call("import", mine, "--record", "--each", "--tree", site, "--library", made)
    assert answer.code == 3
    assert "patches/mine-close is there already" in answer.err
    assert [path.name for path in (made / "patches").iterdir()] == ["mine-close"]


@pytest.mark.slow
def test_what_is_no_registry_says_why_and_how_else(
    call: Call, site: Path, mine: Path, tmp_path: Path
) -> None:
    (mine / "edit.py").write_text(EDIT + 'p.write_text(p.read_text() + "# end\\n")\n')
    answer = call(
        "import", mine, "--record", "--each", "--tree", site, "--library", tmp_path / "made"
    )
    assert answer.code == 3
    assert "edit.py:4: without these entries it still changes vllm/loader.py" in answer.err
    assert "hint: vllm-mods import PATH --record --tree TREE" in answer.err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "more", [["--tree", "."], ["--record"], ["--record", "--tree", ".", "--fetch"], []]
)
def test_it_needs_a_run_on_a_vllm(call: Call, mine: Path, more: list[str]) -> None:
    answer = call("import", mine, "--each", *more)
    assert answer.code == 2
    assert "--each" in answer.err
