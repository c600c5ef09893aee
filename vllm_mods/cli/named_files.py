"""Files that an argument names: read, or written in one step."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError, refusing_to_write, system_errors
from vllm_mods.base.output import write_whole


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file to read, standard input for ``-``. Raises ``UsageError`` for what cannot be read."""
    hint = f"ls -la {shlex.quote(os.path.dirname(os.path.abspath(path)))}  # shows what is there"
    with (
        system_errors(UsageError, f"{path} cannot be read", hint=hint),
        click.open_file(path, "rb") as file,
    ):
        yield file


def read(path: str, most: limits.Limit | None = None) -> bytes:
    """Return what a file has, or standard input for ``-``. Raises ``UsageError``, also for more than ``most`` [``limits.RECEIPT``]."""
    most = most or limits.RECEIPT
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        why = f"{path} has more than {most}, the limit for {most.what}"
        raise UsageError(why, hint=f"ls -la {path}")
    return data


def write(path: str, data: bytes) -> None:
    """Write a file, or replace it, and say so. Raises ``Refused``."""
    with refusing_to_write(path):
        write_whole(path, data)
    click.echo(f"wrote {path}", err=True)


def write_new(path: str, data: bytes) -> None:
    """Write a file that is not there yet, and say so. Raises ``UsageError``, ``Refused``."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists", hint="name another file, or remove it")
    write(path, data)
