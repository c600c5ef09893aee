"""Signals that end a program, held back while it must not be ended between two steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came, and its own handler did not end the program or raise."""


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT, SIGTERM and SIGHUP, so that nothing stops between two steps.

    What it gives raises ``Interrupted`` if one came: to be called at a point where everything can be
    undone. The signal itself is delivered after that, to whatever handled it before.
    """
    caught: list[int] = []
    before = []

    def check() -> None:
        if caught:
            raise Interrupted

    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler is None or handler is signal.SIG_IGN:
            continue
        try:
            signal.signal(number, lambda number, _frame: caught.append(number))
        except ValueError:  # signals reach the main thread only, and this is another
            break
        before.append((number, handler))
    try:
        yield check
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        for came in caught:
            signal.raise_signal(came)
