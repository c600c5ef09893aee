"""Signals that end a program, held back while it must not be ended between two steps."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = int | Callable[[int, FrameType | None], Any]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferred:
    """Holds back SIGINT, SIGTERM and SIGHUP, so that nothing stops between two steps.

    ``check`` raises at a point where everything can be undone; the signal itself is
    delivered after that, to whatever handled it before.
    """

    def __init__(self) -> None:
        self.caught: list[int] = []
        self.before: list[tuple[int, Handler]] = []

    def __enter__(self) -> Deferred:  # noqa: PYI034  (nothing derives from it)
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler is None or handler is signal.SIG_IGN:
                continue
            try:
                signal.signal(number, self.catch)
            except ValueError:  # signals reach the main thread only, and this is another
                break
            self.before.append((number, handler))
        return self

    def catch(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal: the handler while signals are held."""
        self.caught.append(number)

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal came."""
        if self.caught:
            raise Interrupted

    def __exit__(self, *_error: object) -> None:
        for number, handler in self.before:
            signal.signal(number, handler)
        for number in self.caught:
            signal.raise_signal(number)


class Interrupted(BaseException):
    """A signal came, and its own handler did not end the program or raise."""
