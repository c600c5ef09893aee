"""Tasks spread over a Ray cluster. Ray is imported here only (``pip install 'ray[client]'``).

Each processor of the cluster that is free gets one process, an actor of Ray's, with a run of neighbouring trees:
it reads the setting once, and what these trees share once. (Tasks of Ray's, one for each tree, took twice the time
of this machine's own pool.) vllm-mods has to be installed on every machine of the cluster, in the state that it has
here: a process with other code refuses. Each machine keeps a cache of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import UsageError
from vllm_mods.matrices import spread
from vllm_mods.matrices.store import code_digest
from vllm_mods.matrices.work import Executor, Setting, Task, TaskFault, TaskOutcome, Workshop, dead

_DIED = "the worker of the Ray cluster that computed it died, twice"


def ray_executor(where: str) -> Executor:
    """Return an executor on the cluster at ``ray://HOST:PORT``; ``ray`` is the one that Ray finds.

    Raises ``UsageError`` without Ray or without a cluster to be had.
    """
    try:
        import ray  # noqa: PLC0415  (seconds, and most runs need none)
    except ImportError as error:
        raise UsageError(
            f"--executor {where}: Ray is not installed",
            hint="pip install 'ray[client]'  # the extra `ray` of vllm-mods",
        ) from error

    def run(tasks: Sequence[Task], setting: Setting) -> Iterator[TaskOutcome]:
        if not ray.is_initialized():
            try:
                ray.init(
                    "auto" if where == "ray" else where,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                )
            except (ConnectionError, OSError, RuntimeError) as error:
                raise UsageError(
                    f"--executor {where}: no Ray cluster answers: {error}",
                    hint="ray start --head  # then --executor ray",
                ) from error
        return _spread(ray, tasks, setting)

    return run


def _spread(ray: Any, tasks: Sequence[Task], setting: Setting) -> Iterator[TaskOutcome]:  # noqa: ANN401
    """Yield outcomes as they come; no process is left behind."""
    lanes: list[_ActorLane] = []

    def new_lane() -> _ActorLane:
        lanes.append(_ActorLane(ray, setting))
        return lanes[-1]

    free = int(ray.available_resources().get("CPU", 1))
    try:
        yield from spread.over_lanes(tasks, max(1, free), new_lane, _DIED)
    finally:
        for lane in lanes:
            lane.end()


class _ActorLane:
    """A process of the cluster."""

    def __init__(self, ray: Any, setting: Setting) -> None:  # noqa: ANN401
        self.deaths: type[Exception] = ray.exceptions.RayActorError
        self._ray = ray
        self._actor = ray.remote(num_cpus=1)(_Answerer).remote(setting, code_digest())

    def submit(self, task: Task) -> Future[TaskOutcome]:
        """Have a task answered."""
        future: Future[TaskOutcome] = self._actor.answer.remote(task).future()
        return future

    def end(self) -> None:
        """End the process."""
        self._ray.kill(self._actor)


class _Answerer:
    """What answers tasks in a process of the cluster."""

    def __init__(self, setting: Setting, code: str) -> None:
        self._is_same = code == code_digest()
        self._workshop = Workshop(setting._replace(cache_dir=cache_folder(os.environ)))
        spread.collect_rarely()

    def answer(self, task: Task) -> TaskOutcome:
        """Answer a task, if the code here is that of who asks."""
        if not self._is_same:
            message = "a worker of the Ray cluster has another state of vllm-mods than this machine"
            fault = TaskFault(
                "mod", message, "install the same version on every machine of the cluster"
            )
            return dead(task, message)._replace(fault=fault)
        return spread.answer(self._workshop, task)
