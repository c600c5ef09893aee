"""Tasks spread over the processes of this machine. A process that dies loses what it was at, no more.

Workers are started fresh (``forkserver``): a copy of this process would have its threads and its
connections, and no locks that they hold are let go in a copy.
"""

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

from vllm_mods.matrices.work import Setting, Task, TaskOutcome, Workshop, dead

_DIED = "its process was killed twice, perhaps for lack of memory (see `dmesg`); `--jobs 1` needs the least"
# So few are done before processes are ready to do them.
_FEW = 2
_workshop: Workshop | None = None


def outcomes(
    tasks: Sequence[Task], setting: Setting, jobs: int, workshop: Workshop
) -> Iterator[TaskOutcome]:
    """Return the outcome of each task: ``workshop`` answers a few, ``jobs`` processes answer more."""
    if jobs == 1 or len(tasks) <= _FEW:
        return map(workshop.run, tasks)
    return spread(tasks, setting, jobs)


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
    multiprocessing.set_forkserver_preload([__name__])
    others = set(multiprocessing.active_children())
    try:
        lanes = _Lanes(_share(tasks, jobs), setting, make)
        while lanes.running:
            for future in wait(lanes.running, return_when=FIRST_COMPLETED).done:
                outcome = lanes.finish(future)
                if outcome is not None:
                    yield outcome
        lanes.end()
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


class _Lanes:
    """Queues of tasks, each with a process of its own: if one dies, its current task is known."""

    def __init__(
        self, queues: list[deque[Task]], setting: Setting, make: Callable[[Setting], Workshop]
    ) -> None:
        self.running: dict[Future[TaskOutcome], tuple[int, Task]] = {}
        self._queues = queues
        self._setting = setting
        self._make = make
        self._processes = [self._new_process() for _ in queues]
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
            self._processes[lane] = self._new_process()
            if task in self._again:
                outcome = dead(task, _DIED)
            else:
                parts = [task._replace(subjects=(subject,)) for subject in task.subjects]
                self._again.update(parts)
                self._queues[lane].extendleft(reversed(parts))
        self._go_on(lane)
        return outcome

    def end(self) -> None:
        """Let the processes end."""
        for process in self._processes:
            process.shutdown()

    def _go_on(self, lane: int) -> None:
        """Give a process its next task, or the last one of whoever has the most left."""
        mine, longest = self._queues[lane], max(self._queues, key=len)
        if not mine and not longest:
            return
        task = mine.popleft() if mine else longest.pop()
        try:
            future = self._processes[lane].submit(_run, task)
        except BrokenProcessPool:  # it died with nothing to do
            self._processes[lane] = self._new_process()
            future = self._processes[lane].submit(_run, task)
        self.running[future] = (lane, task)

    def _new_process(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("forkserver"),
            initializer=_start,
            # the server that processes are made by keeps the environment of the day it was started
            initargs=(self._setting, self._make, dict(os.environ)),
        )


def _share(tasks: Sequence[Task], jobs: int) -> list[deque[Task]]:
    """Give each process a run of neighbouring trees: these share most files, which it reads once."""
    jobs = min(jobs, len(tasks))
    ends = [len(tasks) * lane // jobs for lane in range(jobs + 1)]
    return [deque(tasks[start:end]) for start, end in pairwise(ends)]


def _start(setting: Setting, make: Callable[[Setting], Workshop], environ: dict[str, str]) -> None:
    """Make a new process ready. It goes quietly when it is interrupted or its parent has gone.

    The collection of garbage is left to ``_run``: Python's own looks at every node of a syntax tree again and
    again, which takes 22 % of a cell that is computed anew.
    """
    global _workshop  # noqa: PLW0603  (a pool gives its processes nothing else to keep things in)
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _workshop = make(setting)
    gc.disable()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run(task: Task) -> TaskOutcome:
    """Answer a task, and collect garbage behind it: trees of syntax are full of cycles."""
    assert _workshop is not None  # noqa: S101  (made when the process started)
    outcome = _workshop.run(task)
    gc.collect()
    return outcome
