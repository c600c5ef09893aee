"""Tasks spread over the processes of this machine. A process that dies loses what it was at, no more.

Workers are started fresh (``forkserver``): a copy of this process would have its threads and its
connections, and no locks that they hold are let go in a copy.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from multiprocessing import connection

from vllm_mods.matrices.work import Executor, Setting, Task, TaskOutcome, Workshop, dead

_DIED = (
    "the process that computed it was killed, twice: its memory may not have been enough "
    "(`dmesg` says so), and `--jobs 1` takes the least"
)
# So few are done before processes are ready to do them.
_FEW = 2
_PRELOADED = ["vllm_mods.matrices.spread"]
_workshop: Workshop | None = None


def local(jobs: int, workshop: Workshop) -> Executor:
    """Return an executor for this machine: ``workshop`` for a few tasks, ``jobs`` processes for more."""

    def run(tasks: Sequence[Task], setting: Setting) -> Iterator[TaskOutcome]:
        if jobs == 1 or len(tasks) <= _FEW:
            return map(workshop.run, tasks)
        return spread(tasks, setting, jobs)

    return run


def spread(
    tasks: Sequence[Task],
    setting: Setting,
    jobs: int,
    make: Callable[[Setting], Workshop] = Workshop,
) -> Iterator[TaskOutcome]:
    """Yield the outcome of each task as it is done, in no particular order.

    A task whose process dies is tried once more, subject by subject. Each process answers with
    what ``make`` makes.
    """
    multiprocessing.set_forkserver_preload(_PRELOADED)
    others = set(multiprocessing.active_children())
    lanes = _Lanes(_share(tasks, jobs), lambda: _pool(setting, make))
    try:
        while lanes.running:
            for future in wait(lanes.running, return_when=FIRST_COMPLETED).done:
                outcome = lanes.finish(future)
                if outcome is not None:
                    yield outcome
        lanes.shutdown()
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


class _Lanes:
    """A queue of tasks and a pool of one process for each: when it dies, it is known what it was at."""

    def __init__(
        self, queues: list[deque[Task]], new_pool: Callable[[], ProcessPoolExecutor]
    ) -> None:
        self.running: dict[Future[TaskOutcome], tuple[int, Task]] = {}
        self._queues = queues
        self._new_pool = new_pool
        self._pools = [new_pool() for _ in queues]
        self._again: set[Task] = set()
        for lane in range(len(queues)):
            self._go_on(lane)

    def finish(self, future: Future[TaskOutcome]) -> TaskOutcome | None:
        """Take what is done and give its process more; None for a task that is tried again."""
        lane, task = self.running.pop(future)
        outcome: TaskOutcome | None = None
        try:
            outcome = future.result()
        except BrokenProcessPool:
            self._pools[lane] = self._new_pool()
            if task in self._again:
                outcome = dead(task, _DIED)
            else:
                parts = [task._replace(subjects=(one,)) for one in task.subjects]
                self._again.update(parts)
                self._queues[lane].extendleft(reversed(parts))
        self._go_on(lane)
        return outcome

    def shutdown(self) -> None:
        """Let the processes end."""
        for pool in self._pools:
            pool.shutdown()

    def _go_on(self, lane: int) -> None:
        """Give a process its next task, or the last one of whoever has the most left."""
        mine, longest = self._queues[lane], max(self._queues, key=len)
        if not mine and not longest:
            return
        task = mine.popleft() if mine else longest.pop()
        try:
            future = self._pools[lane].submit(_run, task)
        except BrokenProcessPool:  # it died with nothing to do
            self._pools[lane] = self._new_pool()
            future = self._pools[lane].submit(_run, task)
        self.running[future] = (lane, task)


def _share(tasks: Sequence[Task], jobs: int) -> list[deque[Task]]:
    """Give each process a run of neighbouring trees: these share most files, which it reads once."""
    jobs = min(jobs, len(tasks))
    ends = [len(tasks) * lane // jobs for lane in range(jobs + 1)]
    return [deque(tasks[start:end]) for start, end in pairwise(ends)]


def _pool(setting: Setting, make: Callable[[Setting], Workshop]) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start,
        # the server that processes are made by keeps the environment of the day it was started
        initargs=(setting, make, dict(os.environ)),
    )


def _start(setting: Setting, make: Callable[[Setting], Workshop], environ: dict[str, str]) -> None:
    """Make a new process ready. It goes quietly when it is interrupted or its parent has gone."""
    global _workshop  # noqa: PLW0603  (a pool gives its processes nothing else to keep things in)
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # it looks at every node of a syntax tree again and again
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _workshop = make(setting)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run(task: Task) -> TaskOutcome:
    assert _workshop is not None  # noqa: S101  (made when the process started)
    outcome = _workshop.run(task)
    gc.collect()  # trees of syntax are full of cycles
    return outcome
