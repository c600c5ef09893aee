"""`evidence` on the command line, with an engine that is a script."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

READY = "(APIServer pid=1) INFO 11-23 10:00:00 [api_server.py:617] Starting vLLM server on :8000\n"
FORM = "(EngineCore pid=9) INFO 11-23 10:00:00 [loader.py:3]"
SAID = f"{FORM} Loaded by fast: 7 layers\n{READY}"


@pytest.fixture
def fast(library: Path) -> Path:
    manifest = library / "patches/fast/mod.toml"
    words = "[evidence]\nlog = 'fast: \\d+ layers'\ninstead = 'slow: .*'\n"
    text = manifest.read_text()
    manifest.write_text(text.replace("[[variant]]", f"{words}[[variant]]", 1))
    return library


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a podman first in PATH that has one container, and no docker."""
    folder = tmp_path / "bin"
    folder.mkdir()
    told = {
        "Name": "mine",
        "State": {"Running": True, "Status": "running", "StartedAt": "2026-11-23T10:00:00Z"},
        "RestartCount": 2,
        "Config": {"Labels": {"vllm-mods.mods": "fast@1.0.0"}},
    }
    (folder / "told.json").write_text(json.dumps([told]))
    (folder / "log").write_text(SAID)
    program = folder / "podman"
    program.write_text(
        f"#!/bin/sh\ncase \"$*\" in\n'container inspect mine') /bin/cat {folder}/told.json;;\n"
        f"'logs --since 2026-11-23T10:00:00Z mine') /bin/cat {folder}/log >&2;;\n*) echo no such >&2; exit 125;;\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("fast")
def test_a_log_says_whether_the_code_ran(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(SAID)
    said = call("evidence", "fast", "limit", "--log", log)
    assert said.out.splitlines() == [
        "fast: its code ran: fast: 7 layers",
        "limit: a log cannot show whether its code ran; its mod.toml names no evidence",
    ]
    assert said.code == 0
    log.write_text(f"{FORM} slow: \x07no key\n{READY}")
    other = call("evidence", "fast", "--log", log)
    assert (other.code, other.out) == (1, "fast: other code ran instead: slow: \\x07no key\n")
    log.write_text("")
    assert call("evidence", "fast", "--log", log, "--json").json == {
        "schema": 1,
        "ok": False,
        "mods": [{"name": "fast", "state": "silent", "text": None}],
        "ready": False,
        "restarts": 0,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("fast")
def test_a_container_is_asked_for_its_log_and_its_mods(call: Call, podman: Path) -> None:
    said = call("evidence", "--container", "mine")
    assert (said.code, said.out.splitlines()) == (
        0,
        [
            "the server was restarted 2 times; this answer is about the last start",
            "fast: its code ran: fast: 7 layers",
        ],
    )
    (podman / "log").write_text(SAID.replace(READY, ""))
    stuck = call("evidence", "--container", "mine")
    assert (stuck.code, stuck.out.splitlines()[1:]) == (
        1,
        [
            "the server did not become ready: vLLM logged no `Starting vLLM server on …`",
            "fast: its code ran: fast: 7 layers",
        ],
    )
    gone = call("evidence", "--container", "other")
    assert (gone.code, gone.err.splitlines()[0]) == (2, "error: podman: no container other")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("fast",), "--record takes no"),
        (("fast", "--log", "x", "--container", "y"), "--record takes no"),
        (("fast", "--log", "/nowhere"), "/nowhere cannot be read: No such file"),
        (("fast", "--container", "--all"), "is not a name for a container"),
        (("--log", os.devnull), "no mod or pairing was named"),
        (("fst", "--log", os.devnull), "there is no mod named `fst`"),
    ],
)
def test_what_cannot_be_looked_at_is_said(call: Call, arguments: tuple[str, ...], why: str) -> None:
    said = call("evidence", *arguments)
    assert said.code == 2
    assert why in said.err
