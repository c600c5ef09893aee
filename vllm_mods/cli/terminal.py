"""What reaches the terminal: nothing that an argument, a file or a server said steers it.

The standard streams of a command are these. Everything that is printed goes through ``write``, the
errors of click too; only what this tool writes to steer a terminal does not.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

import click


def _spell(number: int) -> str:
    if number >= 0xDC80:
        number -= 0xDC00  # a byte that is not UTF-8 (PEP 383)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


# Control characters but for line feed and tab, also as bytes that are not UTF-8; what turns the
# direction of text (https://trojansource.codes); separators of lines that are none.
_STEERING = (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0xDC80, 0xDCA0))
_TURNING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_SPELT = {number: _spell(number) for number in (*_STEERING, *_TURNING)}
# Stands for ESC in what this run colours; nobody else knows it.
_ESCAPE = "".join(chr(0x100000 + int.from_bytes(os.urandom(2)) % 0xFFFD) for _ in range(2))


class ShownText:
    """A text stream that shows control characters instead of obeying them, of its ``buffer`` too."""

    def __init__(self, stream: TextIO) -> None:
        self.exact = stream
        self.buffer = _ShownBytes(self)

    def write(self, text: str) -> int:
        """Write text with every control character spelt out."""
        self.exact.write(text.translate(_SPELT).replace(_ESCAPE, "\x1b"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)


class _ShownBytes(io.BufferedIOBase):
    """Where click writes what shells complete with, and all of it where Python knows ASCII only."""

    def __init__(self, text: ShownText) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "surrogateescape"))
        return len(data)

    def flush(self) -> None:
        if not self._text.exact.closed:  # Python 3.14 flushes what it finalizes
            self._text.exact.flush()


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Have the standard streams show what is printed."""
    out, err = cast("TextIO", ShownText(sys.stdout)), cast("TextIO", ShownText(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def styled(text: str, **style: Any) -> str:
    """Return a text in a style that the streams take for our own."""
    return click.style("\0", **style).replace("\x1b", _ESCAPE).replace("\0", text)


def colored(*, err: bool = False) -> bool:
    """Tell whether a standard stream wants colour: by NO_COLOR, FORCE_COLOR, else if it is a terminal that has it."""
    stream = sys.stderr if err else sys.stdout
    if os.environ.get("NO_COLOR"):
        return False
    has_colors = stream.isatty() and os.environ.get("TERM") != "dumb"
    return has_colors or bool(os.environ.get("FORCE_COLOR"))


def steer(sequence: str) -> None:
    """Write to stderr what moves its cursor."""
    getattr(sys.stderr, "exact", sys.stderr).write(sequence)


def file(text: str) -> None:
    """Print a file's content unchanged, or escaped if stdout is a terminal."""
    stream = sys.stdout if sys.stdout.isatty() else getattr(sys.stdout, "exact", sys.stdout)
    stream.write(text)
    stream.flush()
