"""A whole matrix: what is known is taken as it is, the rest is spread over processes. One that dies loses what it was at, no more.

Workers are started fresh (``forkserver``): a copy of this process would have its threads and its
connections, and no locks that they hold are let go in a copy.
"""

import gc
import math
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, util

from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.work import Setting, Task, Workshop

Progress = Callable[[int, int], None]
_DIED = "the process was killed twice, perhaps for lack of memory (see `dmesg`); `--jobs 1` needs the least memory"
# So few are done before processes are ready to do them.
_FEW = 2
_ENDING = (signal.SIGINT, signal.SIGTERM)
_leaving = threading.Lock()
_workshop: Workshop | None = None


def compute(
    workshop: Workshop, specs: Sequence[str], jobs: int, progress: Progress | None = None
) -> tuple[Cell, ...]:
    """Answer for every mod alone on every tree, tree by tree in the order of ``specs``.

    ``jobs`` processes share what is not known. ``progress`` is told how many of how many cells there are. Raises
    ``UsageError`` for a bad patch, and for a named tree that is none.
    """
    mods = [mod.name for mod in workshop.setting.mods]
    found = {(spec, cell.mod): cell for spec in specs for cell in workshop.known(spec)}
    unknown = {spec: tuple(mod for mod in mods if (spec, mod) not in found) for spec in specs}
    tasks = [Task(spec, left) for spec, left in unknown.items() if left]
    total = len(specs) * len(mods)
    if progress is not None and tasks:
        progress(len(found), total)
    alone = jobs == 1 or len(tasks) <= _FEW
    done = map(workshop.run, tasks) if alone else _spread(tasks, workshop, jobs)
    for cells in done:
        found.update(((cell.tree, cell.mod), cell) for cell in cells)
        if progress is not None:
            progress(len(found), total)
    return tuple(found[spec, mod] for spec in specs for mod in mods)


def _spread(tasks: Sequence[Task], workshop: Workshop, jobs: int) -> Iterator[tuple[Cell, ...]]:
    """Yield the outcome of each task as it is done, in no particular order.

    Each process has a queue of its own, so that its task is known if it dies: that is tried once more, mod by mod.
    """
    multiprocessing.set_forkserver_preload([__name__])
    size = math.ceil(len(tasks) / jobs)  # neighbouring trees share most files, which are read once
    queues = [deque(tasks[start : start + size]) for start in range(0, len(tasks), size)]
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


def _start(make: type[Workshop], setting: Setting, environ: dict[str, str]) -> None:
    """Make a new process ready. It goes quietly when it is ended or its parent has gone, and leaves no folders.

    The collection of garbage is left to the workshop: Python's own looks at every node of a syntax tree again and
    again, which takes 22 % of a cell that is computed anew.
    """
    global _workshop  # noqa: PLW0603  (a pool gives its processes nothing else to keep things in)
    os.environ.clear()
    os.environ.update(environ)
    _workshop = make(setting)
    util.Finalize(None, _workshop.close, exitpriority=0)  # processes of a pool have no `atexit`
    for sent in _ENDING:
        signal.signal(sent, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    gc.disable()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        _leave()


def _leave(*signalled: object) -> None:
    for sent in _ENDING if signalled else ():  # another one would end this halfway
        signal.signal(sent, signal.SIG_IGN)
    with _leaving:
        assert _workshop is not None  # noqa: S101  (as below)
        _workshop.close()
        os._exit(1)


def _run(task: Task) -> tuple[Cell, ...]:
    assert _workshop is not None  # noqa: S101  (made when the process started)
    return _workshop.run(task)
