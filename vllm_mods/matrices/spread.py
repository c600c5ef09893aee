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
from typing import Protocol

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
    try:
        yield from over_lanes(tasks, jobs, lambda: _ProcessLane(setting, make), _DIED)
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


class Lane(Protocol):
    """One process somewhere that answers tasks, one after the other."""

    @property
    def deaths(self) -> type[Exception]:
        """What is raised where the process has died."""

    def submit(self, task: Task) -> Future[TaskOutcome]:
        """Have a task answered. The future, or this call, raises one of ``deaths`` if the process is dead."""

    def end(self) -> None:
        """Let the process end."""


def over_lanes(
    tasks: Sequence[Task], count: int, new_lane: Callable[[], Lane], died: str
) -> Iterator[TaskOutcome]:
    """Yield the outcome of each task, spread over ``count`` lanes. ``died`` is said of one that kills its process twice."""
    lanes = _Lanes(_share(tasks, count), new_lane, died)
    while lanes.running:
        for future in wait(lanes.running, return_when=FIRST_COMPLETED).done:
            outcome = lanes.finish(future)
            if outcome is not None:
                yield outcome
    lanes.end()


class _Lanes:
    """Queues of tasks, each with a process of its own: if one dies, its current task is known."""

    def __init__(self, queues: list[deque[Task]], new_lane: Callable[[], Lane], died: str) -> None:
        self.running: dict[Future[TaskOutcome], tuple[int, Task]] = {}
        self._queues = queues
        self._new_lane = new_lane
        self._died = died
        self._lanes = [new_lane() for _ in queues]
        self._again: set[Task] = set()
        for lane in range(len(queues)):
            self._go_on(lane)

    def finish(self, future: Future[TaskOutcome]) -> TaskOutcome | None:
        """Take what is done and give its process more; None for a task that is tried again."""
        lane, task = self.running.pop(future)
        outcome: TaskOutcome | None = None
        try:
            outcome = future.result()
        except self._lanes[lane].deaths:
            self._lanes[lane] = self._new_lane()
            if task in self._again:
                outcome = dead(task, self._died)
            else:
                parts = [task._replace(subjects=(subject,)) for subject in task.subjects]
                self._again.update(parts)
                self._queues[lane].extendleft(reversed(parts))
        self._go_on(lane)
        return outcome

    def end(self) -> None:
        """Let the processes end."""
        for lane in self._lanes:
            lane.end()

    def _go_on(self, lane: int) -> None:
        """Give a process its next task, or the last one of whoever has the most left."""
        mine, longest = self._queues[lane], max(self._queues, key=len)
        if not mine and not longest:
            return
        task = mine.popleft() if mine else longest.pop()
        try:
            future = self._lanes[lane].submit(task)
        except self._lanes[lane].deaths:  # it died with nothing to do
            self._lanes[lane] = self._new_lane()
            future = self._lanes[lane].submit(task)
        self.running[future] = (lane, task)


def _share(tasks: Sequence[Task], jobs: int) -> list[deque[Task]]:
    """Give each process a run of neighbouring trees: these share most files, which it reads once."""
    jobs = min(jobs, len(tasks))
    ends = [len(tasks) * lane // jobs for lane in range(jobs + 1)]
    return [deque(tasks[start:end]) for start, end in pairwise(ends)]


class _ProcessLane:
    """A process of this machine."""

    deaths = BrokenProcessPool

    def __init__(self, setting: Setting, make: Callable[[Setting], Workshop]) -> None:
        self._pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("forkserver"),
            initializer=_start,
            # the server that processes are made by keeps the environment of the day it was started
            initargs=(setting, make, dict(os.environ)),
        )

    def submit(self, task: Task) -> Future[TaskOutcome]:
        """Have a task answered."""
        return self._pool.submit(_run, task)

    def end(self) -> None:
        """Let the process end."""
        self._pool.shutdown()


def _start(setting: Setting, make: Callable[[Setting], Workshop], environ: dict[str, str]) -> None:
    """Make a new process ready. It goes quietly when it is interrupted or its parent has gone."""
    global _workshop  # noqa: PLW0603  (a pool gives its processes nothing else to keep things in)
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _workshop = make(setting)
    collect_rarely()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run(task: Task) -> TaskOutcome:
    assert _workshop is not None  # noqa: S101  (made when the process started)
    return answer(_workshop, task)


def collect_rarely() -> None:
    """Leave the collection of garbage to ``answer``: Python's own looks at every node of a syntax tree again and again.

    That takes 22 % of a cell that is computed anew.
    """
    gc.disable()


def answer(workshop: Workshop, task: Task) -> TaskOutcome:
    """Answer a task, and collect garbage behind it: trees of syntax are full of cycles."""
    outcome = workshop.run(task)
    gc.collect()
    return outcome
