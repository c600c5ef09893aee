"""Without a network each command says so in one sentence: which host, and what works without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

CLOSED = "http://127.0.0.1:9"
"""A proxy that nobody runs."""
PYPI = ("no network connection to pypi.org: ", "--offline")
COMMANDS = {
    "check fast --target pypi:0.21.0": PYPI,
    "check fast --target pypi:latest": PYPI,
    "diff fast --target pypi:0.21.0": PYPI,
    "doctor --target pypi:0.21.0": PYPI,
    "matrix fast --vllm >=0.21,<0.23": PYPI,
    "port fast --to pypi:0.21.0 --from pypi:0.20.0 --output out": PYPI,
    "new mine --from-diff x.diff --tree auto --library .": PYPI,
    "new mine --from-diff x.diff --tree pypi:0.21.0 --library .": PYPI,
    "serve-check --target pypi:0.21.0 -- vllm serve m": PYPI,
    "image inspect registry:ghcr.io/a/b:c": ("no network connection to ghcr.io: ", "oci:FOLDER"),
    "doctor --target image:registry:ghcr.io/a/b:c": (
        "no network connection to ghcr.io: ",
        "oci:FOLDER",
    ),
    "suggest org/model": (
        "no network connection to huggingface.co: ",
        "or download it (`hf download`)",
    ),
    "add git+https://github.com/a/b@v1": (
        "no network connection to github.com: ",
        "libraries that were fetched before need no network",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_a_network_says_so(
    call: Call, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, CLOSED)
    for name in ("NO_PROXY", "no_proxy", "HF_HUB_OFFLINE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://pypi.org/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("vllm_mods.images.registry._TRIES", 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.diff").write_bytes(diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    sentence, works = COMMANDS[command]
    answer = call(*command.split())
    assert answer.code == 1, answer.err
    assert answer.err.count(sentence) == 1, answer.err
    assert works in answer.err.partition("hint: ")[2]
    assert "not found" not in answer.err
    assert "Traceback" not in answer.err
