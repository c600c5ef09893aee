"""How a container is started and waited for: what is said meanwhile, what is kept, and what is left of a failure."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from scripted_engine import RAW, STATE
from web_site import Site, site

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.formats.pairing import Pairing
from vllm_mods.running import starting
from vllm_mods.running.service import PAIRING_LABEL, Service, StartOptions, Typed, service

if TYPE_CHECKING:
    from scripted_engine import Program

WANTED = Pairing("p", "s", "org/m", "base:1", "vllm serve org/m")
TYPED = Typed(("run", "p", "--", "--x"))
OURS = {**RAW, "Config": {"Labels": {PAIRING_LABEL: "p"}}}


def planned(port: int = 1, **options: Any) -> Service:
    asked = StartOptions(name="x", port=port, **options)
    return service(WANTED, asked, image="i", command="c", cache="/c")


def say_nothing(_seconds: int, _phase: str) -> None:
    """Show nothing."""


LINE = ("docker", "run", "--detach", "--name", "x", "image")


def test_a_container_is_started_by_its_line(docker: Program) -> None:
    docker.has(identity="0123\n")
    assert starting.start(LINE, planned(), TYPED) == "0123"
    (call,) = docker.calls
    words = call.split()
    assert words[:3] == ["run", "--detach", "--cidfile"]
    assert words[4:] == ["--label", "vllm-mods.typed=run", "p", "--", "--x", "--name", "x", "image"]
    assert not os.path.exists(words[3])


@pytest.mark.parametrize(
    ("refusal", "words", "hint"),
    [
        ("no space\n\nRun 'docker run --help' for more", "no space", "docker info"),
        ("could not select driver: GPU", "could not select driver: GPU", "vllm-mods run p --gpus none -- --x"),
        ("NVIDIA", "NVIDIA", "vllm-mods run p --gpus none -- --x"),
    ],
)  # fmt: skip
def test_a_container_that_does_not_start_leaves_nothing(
    docker: Program, refusal: str, words: str, hint: str
) -> None:
    docker.has(identity="0123\n", refusal=refusal)
    with pytest.raises(TreeError) as caught:
        starting.start(LINE, planned(), TYPED)
    message = f"docker run: {words}; the container was removed"
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert docker.calls[1:] == ["rm --force --volumes 0123"]


def test_a_name_that_is_taken_is_said(docker: Program) -> None:
    docker.has(refusal="Conflict", container=[RAW])
    with pytest.raises(UsageError) as caught:
        starting.start(LINE, planned(), TYPED)
    assert caught.value.message == "docker already has a container x (running); nothing was started"
    assert caught.value.hint == "vllm-mods run p --name x-2 -- --x"
    docker.has(container=[OURS])
    with pytest.raises(UsageError) as caught:
        starting.start(LINE, planned(), TYPED)
    assert caught.value.hint == "vllm-mods run p --replace -- --x"
    (docker.folder / "container").unlink()
    with pytest.raises(TreeError, match="docker run: Conflict; the container was removed"):
        starting.start(LINE, planned(), TYPED)


def test_one_of_ours_is_replaced_on_demand_and_no_other(docker: Program) -> None:
    docker.has(identity="0123", names="9876", container=[OURS])
    starting.start(LINE, planned(), TYPED, replace=True)
    assert docker.calls[2] == "rm --force --volumes x"
    docker.has(container=[{**OURS, "Name": "/another"}])
    starting.start(LINE, planned(), TYPED, replace=True)
    assert not any(call.startswith("rm") for call in docker.calls[4:])


def test_a_port_that_is_taken_is_told_with_the_next(docker: Program) -> None:
    docker.has(identity="0123\n", refusal="Bind for it failed: port is already allocated")
    with pytest.raises(TreeError) as caught:
        starting.start(LINE, planned(8000), TYPED)
    assert caught.value.hint == "vllm-mods run p --port 8001 -- --x"


@pytest.mark.parametrize("state", [{"State": {**STATE, "Running": False}}, {"RestartCount": 1}])
def test_a_container_that_ends_is_not_waited_for_and_left_stopped(
    docker: Program, state: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    docker.has(container=[{**RAW, "RestartCount": 0, **state}], log="first")
    with pytest.raises(TreeError) as caught:
        starting.wait(planned(), "docker", say_nothing)
    assert caught.value.message == (
        "x ended before it served: the log has no exception; its end:\nfirst\nerror\n"
        "The container is stopped; `docker logs x` shows its log"
    )
    assert caught.value.hint == "docker logs x"
    assert docker.calls[-2:] == ["stop x", "stop x"]


def test_who_waits_asks_again_until_it_serves(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0}])
    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    answers = [503, 500, 200]
    with site({"/health": lambda to: to.say(answers.pop(0))}) as (url, _):
        starting.wait(planned(int(url.rpartition(":")[2])), "docker", say_nothing)
    assert answers == []
    assert docker.calls == ["container inspect x", "logs x"] * 2


def test_a_server_that_does_not_answer_does_not_serve_yet(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(container=[{**RAW, "RestartCount": 1}], log="hangs")
    monkeypatch.setattr(starting, "_HEALTH_SECONDS", 0.05)
    silent = threading.Event()
    start = time.monotonic()

    def hang(_site: Site) -> None:
        silent.wait(30)

    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    with site({"/health": hang}) as (url, _):
        with pytest.raises(TreeError, match="ended before it served"):
            starting.wait(planned(int(url.rpartition(":")[2])), "docker", say_nothing)
        silent.set()
    assert time.monotonic() - start < 20


def test_who_waits_gives_up_in_the_end(docker: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0}])
    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    lower(monkeypatch, "START_SECONDS", 0.05)
    with pytest.raises(TreeError) as caught:
        starting.wait(planned(), "docker", say_nothing)
    assert caught.value.message == "x did not serve within 0.05 seconds, and is still running"
    assert caught.value.hint == "docker logs --follow x"
    assert set(docker.calls) == {"container inspect x", "logs x"}


def test_who_waits_is_told_what_the_server_is_at(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0}], log="Starting to load model")
    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    answers, seen = [503, 200], []
    with site({"/health": lambda to: to.say(answers.pop(0))}) as (url, _):
        there = planned(int(url.rpartition(":")[2]), host="0.0.0.0")  # noqa: S104
        starting.wait(there, "docker", lambda *at: seen.append(at))
    assert seen == [(0, "loads the model")]


def test_what_has_served_is_kept_where_the_engine_can(docker: Program) -> None:
    notes: list[str] = []
    starting.keep(planned(), "docker", notes.append)
    assert docker.calls == ["update --restart unless-stopped x"]
    starting.keep(planned(restart="no"), "docker", notes.append)
    assert (len(docker.calls), notes) == (1, [])
    (docker.folder.parent / "bin/docker").write_text("#!/bin/sh\nexit 125\n")
    starting.keep(planned(), "docker", notes.append)
    (note,) = notes
    assert note.startswith(
        "docker cannot change the restart policy of x, which stays on-failure:3, so "
    )


@pytest.mark.parametrize(
    ("options", "arguments", "line"),
    [
        ((), (), "run p --port 1 -- --a 1"),
        ((("--port", "2"), ("--replace",)), (), "run p --port 2 --replace -- --a 1"),
        ((), ("--a", "2 3"), "run p --port 1 -- --a '2 3'"),
        ((), ("--b", "2"), "run p --port 1 -- --a 1 --b 2"),
        (
            (("--env-file", "e"), ("--env-file", "f")),
            (),
            "run p --port 1 --env-file e --env-file f -- --a 1",
        ),
    ],
)
def test_the_line_to_type_next_is_the_one_before_with_changes(
    options: tuple[tuple[str, ...], ...], arguments: tuple[str, ...], line: str
) -> None:
    typed = Typed(("run", "p", "--port", "1", "--", "--a", "1"))
    assert typed.again(*options, arguments=arguments) == f"vllm-mods {line}"
    assert Typed(("run",)).again(arguments=("--a",)) == "vllm-mods run -- --a"
    recorded = Typed(("run", "p", "--record", "r", "--mount"))
    assert (recorded.label, Typed(("run", "p")).label) == ("run p --mount", "run p")
    assert Typed(("run", "p", "--record=r", "--mount")).label == "run p --mount"
