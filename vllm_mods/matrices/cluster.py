"""Tasks spread over a Ray cluster. Ray is imported here only (``pip install 'ray[client]'``).

Ray starts, feeds and restarts the processes; vllm-mods has to be installed on every machine of the
cluster, in the state that it has here: a worker with other code refuses. Each machine keeps a
cache of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import UsageError
from vllm_mods.matrices.store import code_digest
from vllm_mods.matrices.work import Executor, Setting, Task, TaskFault, TaskOutcome, Workshop, dead

_DIED = "the worker of the Ray cluster that computed it died, twice"
# Tasks given out at a time: enough for any cluster that a matrix is worth, and the rest can be
# called back when somebody interrupts.
_AHEAD = 256


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
    """Yield outcomes as they come. A task whose worker dies is tried again, subject by subject."""
    compute = ray.remote(max_retries=0)(_compute)
    shared = [ray.put(setting)]  # in a list: Ray would send it along with every task otherwise
    waiting = list(reversed(tasks))
    running: dict[Any, Task] = {}
    again: set[Task] = set()
    try:
        while waiting or running:
            while waiting and len(running) < _AHEAD:
                task = waiting.pop()
                running[compute.remote(task, shared, code_digest())] = task
            done, _ = ray.wait(list(running))
            task = running.pop(done[0])
            try:
                yield ray.get(done[0])
            except ray.exceptions.RayError as error:
                if isinstance(error, ray.exceptions.RayTaskError):
                    raise  # an exception of ours: a bug, and not the cluster's doing
                if task in again:
                    yield dead(task, _DIED)
                else:
                    parts = [task._replace(subjects=(one,)) for one in task.subjects]
                    again.update(parts)
                    waiting.extend(parts)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _compute(task: Task, shared: list[Any], code: str) -> TaskOutcome:
    """Answer a task: runs on a worker."""
    if code != code_digest():
        message = "a worker of the Ray cluster has another state of vllm-mods than this machine"
        fault = TaskFault(
            "mod", message, "install the same version on every machine of the cluster"
        )
        return dead(task, message)._replace(fault=fault)
    return _workshop_of(shared[0]).run(task)


@lru_cache(maxsize=1)
def _workshop_of(reference: Any) -> Workshop:  # noqa: ANN401  (a reference of Ray's)
    """Return what this process has for one run: it serves all its tasks, with a cache of its own."""
    import ray  # noqa: PLC0415  (a worker has it)

    setting: Setting = ray.get(reference)
    return Workshop(setting._replace(cache_dir=cache_folder(os.environ)))
