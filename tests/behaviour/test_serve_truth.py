"""What is written down of a release's refusals is what it says: its parser and its config classes.

Needs ``VLLM_MODS_BEHAVIOUR_ENGINE``, the Python of a CPU build, as ``test_hybrid_engine`` does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from corpus.serve_commands import commands

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = os.environ.get("VLLM_MODS_BEHAVIOUR_ENGINE", "")
HERE = os.path.dirname(__file__)
TRUTH = os.path.join(HERE, "..", "corpus", "serve_truth")


@pytest.mark.parametrize("version", ["0.21.0", "0.32.0"])
def test_each_command_of_the_corpus_has_its_answer(version: str) -> None:
    with open(os.path.join(TRUTH, f"{version}.json"), encoding="utf-8") as file:
        assert list(json.load(file)) == [shlex.join(words[1:]) for _, words in commands()]


@pytest.mark.behaviour
@pytest.mark.network
@pytest.mark.skipif(not PYTHON, reason="set VLLM_MODS_BEHAVIOUR_ENGINE")
def test_the_answers_are_those_of_the_release(tmp_path: Path) -> None:
    asked = tmp_path / "commands.json"
    asked.write_text(json.dumps([list(words) for _, words in commands()]))
    done = subprocess.run(
        [PYTHON, os.path.join(HERE, "serve_truth.py"), str(asked)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
        cwd=tmp_path,
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
    )
    answer = json.loads(re.findall(r"^ANSWER (.*)$", done.stdout, re.MULTILINE)[0])
    with open(os.path.join(TRUTH, f"{answer['vllm'][:6]}.json"), encoding="utf-8") as file:
        kept = list(json.load(file).values())
    differing = [
        (words, now, before)
        for (_, words), now, before in zip(commands(), answer["truth"], kept, strict=True)
        if (now is None) != (before is None)
    ]
    assert differing == []
