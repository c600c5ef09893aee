"""The corpus: what a script becomes does what the script does, on each release; ``python -m corpus`` has the rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus.importing import imported
from corpus.library import write
from corpus.scripts import SCRIPTS
from vllm_mods.cli import run

DOES = json.loads((Path(__file__).with_name("does.json")).read_text())
OFFLINE = {
    *("a pull request's diff", "a diff from the network, survived", "what the GPU says"),
    *("a parser from the network", "a package of a repository"),
}
SURVIVED = {"two patches, one survived", "patches that are all survived", "no set -e"}
"""A step of these fails on 0.23.0 and the script goes on: that release is refused, not guessed at."""


pytestmark = pytest.mark.usefixtures("sandboxed")


def test_the_corpus_has_the_forms_that_people_have() -> None:
    assert len(SCRIPTS) >= 60
    assert DOES.keys() == SCRIPTS.keys()
    python = [name for name in SCRIPTS if name.startswith("python: ")]
    assert len(python) * 10 >= len(SCRIPTS) * 3


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mod_does_what_its_script_does(name: str) -> None:
    found = imported(SCRIPTS[name], DOES[name])
    assert not found.wrong, found
    if name in OFFLINE:
        assert "run.sh:" in found.why
    else:
        assert not found.why
        assert found.lost == (("0.23.0",) if name in SURVIVED else ()), found


@pytest.mark.slow
def test_the_mods_of_the_corpus_make_a_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {name: SCRIPTS[name] for name in ("patch -p1", "sed", "a chat template")}
    mods = tuple(write(chosen, tmp_path))
    wheels = sorted(map(str, (tmp_path / "wheels").iterdir()))
    trees = [word for wheel in wheels for word in ("--tree", f"wheel:{wheel}")]
    given = ("matrix", *mods, "--library", str(tmp_path), *trees)
    page = tmp_path / "map.html"
    assert run([*given, "--jobs", "1", "--format", "html", "--output", str(page)]) == 0
    assert (
        "Every mod applies to every release in its ranges: 9 of 9 cells" in capsys.readouterr().out
    )
    assert page.read_text().count('<td class="applies"') >= 6
