"""The bundled templates in every failure mode that was reported of public ones."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from sampling import few

from vllm_mods.library.catalog import Library

TABLES = Path(__file__).parents[2] / "benchmarks"
# Writes what everybody writes in a minute, and so falls to most of them.
NAIVE = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}{{ '<|im_start|>assistant\\n' if add_generation_prompt }}"""


@pytest.mark.slow
def test_the_bundled_templates_fall_to_none_but_their_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    naive = tmp_path / "naive.jinja"
    naive.write_text(NAIVE)
    monkeypatch.syspath_prepend(TABLES)
    monkeypatch.setattr(sys, "argv", ["template_modes.py", str(naive)])
    names = few(Library().template_names(), 1, "failure modes")
    monkeypatch.setattr(Library, "template_names", lambda _: names)
    assert importlib.import_module("template_modes").main() == 0
    lines = capsys.readouterr().out.splitlines()
    ours = sum(line.endswith("-enhanced") for line in lines)
    marks = {
        name: row[: ours + 1]
        for name, *row in map(str.split, filter(None, lines))
        if set(row[: ours + 1]) <= set(".xrc") and len(row) > ours
    }
    assert len(marks) > 40
    chosen = {name for name, row in marks.items() if "c" in row}
    assert chosen == {
        "argument-with-tags",
        "forged-by-answer",
        "forged-in-result",
        "switch-in-text",
    }
    naively = {name: row[ours] for name, row in marks.items()}
    assert naively["jinja-in-text"] == "."
    assert naively["forged-by-user"] == "x"
    assert naively["content-none"] == "r"
