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
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import connection

from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.work import Setting, Task, Workshop

_DIED = "its process was killed twice, perhaps for lack of memory (see `dmesg`); `--jobs 1` needs the least"
# So few are done before processes are ready to do them.
_FEW = 2
_workshop: Workshop | None = None


def outcomes(tasks: Sequence[Task], workshop: Workshop, jobs: int) -> Iterator[tuple[Cell, ...]]:
    """Return the outcome of each task: the workshop answers a few, ``jobs`` processes with one like it answer more."""
    if jobs == 1 or len(tasks) <= _FEW:
        return map(workshop.run, tasks)
    return _spread(tasks, workshop, jobs)


def _spread(tasks: Sequence[Task], workshop: Workshop, jobs: int) -> Iterator[tuple[Cell, ...]]:
    """Yield the outcome of each task as it is done, in no particular order.

    Each process has a queue of its own, so that its task is known if it dies: that is tried once more, mod by mod.
    """
    multiprocessing.set_forkserver_preload([__name__])
    queues = _share(tasks, jobs)
    processes = [_new_process(workshop) for _ in queues]
    running: dict[Future[tuple[Cell, ...]], tuple[int, Task]] = {}

    def go_on(lane: int) -> None:
        """Give a process its next task, or the last one of whoever has the most left."""
        queue = queues[lane] or max(queues, key=len)
        if not queue:
            return
        task = queue.popleft() if queue is queues[lane] else queue.pop()
        try:
            future = processes[lane].submit(_run, task)
        except BrokenProcessPool:  # it died
            processes[lane] = _new_process(workshop)
            future = processes[lane].submit(_run, task)
        running[future] = (lane, task)

    with _ending_children():
        for lane in range(len(queues)):
            go_on(lane)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                lane, task = running.pop(future)
                if not isinstance(future.exception(), BrokenProcessPool):
                    yield future.result()
                elif task.again:
                    yield workshop.unread(task, _DIED, computed=False)
                else:
                    parts = [Task(task.spec, (mod,), again=True) for mod in task.mods]
                    queues[lane].extendleft(reversed(parts))
                go_on(lane)
        for process in processes:
            process.shutdown()


@contextmanager
def _ending_children() -> Iterator[None]:
    """Terminate the processes that were started meanwhile and are still there."""
    others = set(multiprocessing.active_children())
    try:
        yield
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()


def _new_process(workshop: Workshop) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start,
        # the server that processes are made by keeps the environment of the day it was started
        initargs=(type(workshop), workshop.setting, dict(os.environ)),
    )


def _share(tasks: Sequence[Task], jobs: int) -> list[deque[Task]]:
    """Give each process a run of neighbouring trees: these share most files, which it reads once."""
    jobs = min(jobs, len(tasks))
    ends = [len(tasks) * lane // jobs for lane in range(jobs + 1)]
    return [deque(tasks[start:end]) for start, end in pairwise(ends)]


def _start(make: type[Workshop], setting: Setting, environ: dict[str, str]) -> None:
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


def _run(task: Task) -> tuple[Cell, ...]:
    """Answer a task, and collect garbage behind it: trees of syntax are full of cycles."""
    assert _workshop is not None  # noqa: S101  (made when the process started)
    outcome = _workshop.run(task)
    gc.collect()
    return outcome
