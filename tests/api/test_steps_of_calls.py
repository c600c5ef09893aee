"""What a call does one after the other, and with what each step is asked: of servers and of targets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from lone_project import project
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod

import vllm_mods as vm
from vllm_mods.api import plan, run, sync
from vllm_mods.api.serving_image import ServedPairing
from vllm_mods.applying.ground import Terms
from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine, evidence, starting
from vllm_mods.running.engine import EngineContainer
from vllm_mods.running.evidence import ServerEvidence
from vllm_mods.running.service import StartOptions, Typed
from vllm_mods.sharing import locking

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.formats.project import ProjectFile

PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
SEEN = ServerEvidence((), ready=False, restarts=2)
RUNNING = EngineContainer("podman", "one", {"vllm-mods.mods": "fast@1 slow@2"}, True, 3, "then")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with a project."""
    return project(tmp_path, monkeypatch)


# --- a server -----------------------------------------------------------------------------------


def test_what_one_engine_does_not_tell_is_a_note_and_what_none_tells_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    access: Any = SimpleNamespace(note=notes.append)
    monkeypatch.setattr(engine, "installed", lambda: ("docker", "podman"))
    silent = {"podman"}

    def containers(program: str) -> tuple[EngineContainer, ...]:
        if program in silent:
            raise TreeError(f"{program}: silent")
        return ()

    monkeypatch.setattr(engine, "containers", containers)
    assert run.list_containers(Library(), access)[:2] == ((), ("podman",))
    assert notes == ["podman: silent (the containers of this engine are not listed)"]
    silent.add("docker")
    with pytest.raises(TreeError, match="silent"):
        run.list_containers(Library(), access)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Note the steps of a start in place of taking them."""
    taken: list[tuple[Any, ...]] = []
    planned = SimpleNamespace(
        cluster=False, name="one", pairing="pair", image="i", arguments=("--x",)
    )
    served = ServedPairing(planned, None, ())  # type: ignore[arg-type]

    def step(name: str, answer: object) -> Any:
        def take(*given: object, **named: object) -> object:
            taken.append((name, *(one for one in given if one not in (planned, served)), named))
            return answer

        return take

    for name, answer in (
        ("plan_service", served),
        ("_demand_program", "podman"),
        ("open_image", None),
        ("line", ("podman", "run")),
        ("of_container", SEEN),
    ):
        monkeypatch.setattr(run, name, step(name, answer))
    monkeypatch.setattr(engine, "container", step("container", RUNNING))
    for name, of_start in (("start", "id1"), ("wait", None), ("keep", None)):
        monkeypatch.setattr(starting, name, step(name, of_start))
    return taken


LIBRARY, ACCESS = Library(), vm.Access()
OPTIONS = StartOptions()
TYPED = Typed(("run", "pair", "--", "--x"))
STARTED = [
    ("plan_service", LIBRARY, "pair", OPTIONS, ("--x",), {"note": ACCESS.note, "mount": False}),
    ("_demand_program", "docker", OPTIONS, {}),
    ("open_image", "podman", ACCESS, {}),
    ("line", "podman", {"env_files": ("e",)}),
    ("start", ("podman", "run"), TYPED, {"replace": False}),
]


def show(_seconds: int, _phase: str) -> None:
    """Show nothing."""


@pytest.mark.parametrize("wait", [False, True])
def test_a_container_is_started_when_all_is_checked_and_waited_for_on_demand(
    steps: list[tuple[Any, ...]], *, wait: bool
) -> None:
    started = run.run(
        LIBRARY,
        "pair",
        ("--x",),
        OPTIONS,
        program="docker",
        env_files=("e",),
        wait=wait,
        progress=show,
        access=ACCESS,
    )
    assert (started.program, started.identity) == ("podman", "id1")
    waited: list[tuple[Any, ...]] = [
        ("wait", "podman", show, {}),
        ("keep", "podman", ACCESS.note, {}),
        ("container", "one", "podman", {}),
        ("of_container", LIBRARY, ("pair",), RUNNING, ACCESS, {}),
    ]
    assert steps == [*STARTED, *waited] if wait else steps == STARTED
    assert started.evidence == (SEEN._replace(ready=True) if wait else None)


@pytest.mark.parametrize(("names", "of"), [((), ("fast", "slow")), (("other",), ("other",))])
def test_a_container_has_the_evidence_of_its_log_since_its_last_start(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], of: tuple[str, ...]
) -> None:
    asked: list[tuple[Any, ...]] = []

    def log(running: EngineContainer, *, since: str) -> bytes:
        asked.append((running, since))
        return b"log"

    def of_log(*given: Any) -> ServerEvidence:
        asked.append(given)
        return SEEN

    monkeypatch.setattr(engine, "log", log)
    monkeypatch.setattr(run, "of_log", of_log)
    seen = run.of_container(LIBRARY, names, RUNNING, ACCESS)
    assert asked == [(RUNNING, "then"), (LIBRARY, of, b"log", "podman logs one", ACCESS)]
    assert seen.restarts == 5


def test_of_a_long_log_the_beginning_is_looked_at_and_that_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mod(place / "own", "fast", PATCH)
    monkeypatch.setattr(limits, "LOG", 4)
    looked: list[bytes] = []
    monkeypatch.setattr(evidence, "of_mods", lambda _mods, log: looked.append(log))
    notes: list[str] = []
    access = vm.Access(note=notes.append)
    for log in (b"1234", b"12345"):
        run.of_log(Library(place / "own"), ("fast",), log, "it", access)
    assert looked == [b"1234", b"1234"]
    assert notes == ["it is too long: only the first 4 were searched"]


# --- a target -----------------------------------------------------------------------------------


def test_a_target_is_held_on_the_terms_of_the_call(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "vllm-mods.toml").write_text('schema = 1\n[targets.a]\npath = "site"\nmods = []\n')
    held: list[tuple[Any, ...]] = []
    monkeypatch.setattr(sync, "hold", lambda *given: held.append(given))
    plans: list[tuple[Any, ...]] = []
    vm.sync(
        workspace="w",
        source_date_epoch=7,
        write=False,
        planned=lambda plan, chosen: plans.append((plan, chosen.mods, chosen.pairing)),
    )
    ((mods, target, terms),) = held
    assert (mods, target) == ((), str(place / "site"))
    assert terms == Terms("w", planned=terms.planned, source_date_epoch=7, write=False)
    terms.planned("the plan")
    assert plans == [("the plan", (), None)]


def test_libraries_of_a_project_are_fetched_as_they_are_locked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    fetched: list[tuple[str, bool]] = []

    def open_shared(project: ProjectFile, *, fetching: bool) -> tuple[()]:
        fetched.append((project.where, fetching))
        return ()

    monkeypatch.setattr(locking, "open_shared", open_shared)
    assert sync.fetch().where == str(place / "vllm-mods.toml")
    assert fetched == [(str(place / "vllm-mods.toml"), True)]


# --- a plan -------------------------------------------------------------------------------------


def test_a_check_plans_on_the_terms_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(plan, "plan", lambda *_, **terms: asked.append(terms))
    terms = {"workspace": "w", "strict_version": True, "only_supported": True, "base": "pypi:1"}
    plan.check((), MemoryTree({}), **terms)  # type: ignore[arg-type]
    assert asked == [terms]
