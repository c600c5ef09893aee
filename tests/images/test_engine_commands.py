"""What an engine's program says, as a result or an error; and configurations that name no layers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.errors import TreeError
from vllm_mods.images import engine_command, oci

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """A program that prints its input to both streams, and fails, waits or misses something if told so."""
    place = tmp_path / "engine"
    place.write_text(
        '#!/bin/sh\ncase $1 in wait) exec sleep 60;; gone) echo "No such image" >&2; exit 125;; '
        "bad) echo 'it \377 broke' >&2; exit 3;; esac\ncat; echo said >&2\n",
        encoding="latin-1",
    )
    place.chmod(0o755)
    return str(place)


def test_what_a_command_prints_and_is_given(engine: str) -> None:
    assert engine_command.run(engine, "load", given=b" in\n") == (0, "in", "said")
    assert engine_command.call(engine, "load") == ""
    assert engine_command.run(engine, "load").out == ""


@pytest.mark.parametrize(("word", "code", "absent"), [("gone", 125, True), ("bad", 3, False)])
def test_a_command_that_fails(engine: str, word: str, code: int, *, absent: bool) -> None:
    done = engine_command.run(engine, word)
    assert (done.code, done.is_absent) == (code, absent)
    with pytest.raises(TreeError) as caught:
        engine_command.call(engine, word)
    assert ("No such image" if absent else "it � broke") in caught.value.message


def test_what_is_absent_is_no_success_that_says_so() -> None:
    assert not engine_command.EngineOutcome(0, "", "no such thing").is_absent


def test_an_engine_that_does_not_answer_is_not_waited_for(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "TOOL_SECONDS", 0.05)
    start = time.monotonic()
    with pytest.raises(TreeError, match=r"wait did not answer within 0\.05 seconds"):
        engine_command.run(engine, "wait")
    assert time.monotonic() - start < 10


def test_an_engine_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="cannot be run: No such file") as caught:
        engine_command.run(str(tmp_path / "none"), "info")
    assert (caught.value.hint or "").startswith("apt install ")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"{}", "names no layers"),
        (b'{"rootfs": {}}', "names no layers"),
        (b'{"rootfs": {"diff_ids": 7}}', "does not follow the OCI specification:"),
        (b'{"rootfs": []}', "does not follow the OCI specification:"),
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
    ],
)
def test_a_configuration_that_names_no_layers(config: bytes, why: str) -> None:
    with pytest.raises(TreeError, match=why) as caught:
        oci.diff_ids(config, "oci:x")
    assert caught.value.message.startswith("oci:x")


def test_the_layers_of_a_configuration() -> None:
    config = b'{"rootfs": {"type": "layers", "diff_ids": ["sha256:a", "sha256:b"]}, "os": "linux"}'
    assert oci.diff_ids(config, "oci:x") == ("sha256:a", "sha256:b")
