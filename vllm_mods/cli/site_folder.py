"""The folder of ``matrix --format site``: looked at before anything is computed, then written whole."""

import contextlib
import json
import os
import shlex
import time

import click

from vllm_mods.base.errors import Refused, UsageError, refusing_to_write
from vllm_mods.base.output import staged
from vllm_mods.base.untrusted import json_of
from vllm_mods.cli import named_files, options
from vllm_mods.formats.schema import decode, encode
from vllm_mods.library.writing import alone
from vllm_mods.matrices.cell import History, MatrixResult
from vllm_mods.report import html, matrix_forms
from vllm_mods.report.matrix_grid import clean

_FILES = (_HISTORY := "history.json", "matrix.json", "index.html")


def begin(folder: str | None) -> str:
    """Return the time of this run. Raises ``UsageError`` without a folder, and as ``read``."""
    if folder is None:
        call = ("vllm-mods", *click.get_current_context().obj["arguments"], "--output", "map")
        raise UsageError("--format site writes a folder: --output names it", hint=shlex.join(call))
    read(folder)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(options.read_source_date_epoch()))


def read(folder: str) -> History:
    """Return the history in a folder; a new one has none. Raises ``UsageError`` and ``Refused`` for another's."""
    with refusing_to_write(f"{folder}/"):
        entries = os.scandir(folder) if os.path.lexists(folder) else ()
        there = {one.name: one.is_file(follow_symlinks=False) for one in entries}
    strange = [name for name in _FILES if not there.get(name, True)]
    if _HISTORY not in there:  # git's folder is nobody's, nor is what a killed run has left
        strange += there.keys() - {".git", *(f".{name}.new" for name in _FILES)}
    if strange:
        why = f"{folder} has {min(strange)}, which no map has written; nothing was written"
        raise UsageError(why, hint=f"ls -la {shlex.quote(folder)}  # or name a new folder")
    place = os.path.join(folder, _HISTORY)
    try:
        data = named_files.read(place) if _HISTORY in there else json.dumps(encode(History()))
        return decode(History, json_of(data, once=True), whole=True)
    except ValueError as error:
        why = f"{place} is not the history of a map: {str(error).partition('; ')[0]}"
        raise Refused(f"{why}; it stays", hint="restore a copy, or name another folder") from None


def write(folder: str, result: MatrixResult, date: str) -> None:
    """Write the map of a matrix: nothing gets its name until all is written, and the history first. Raises as ``read``."""
    known = [(clean(one.mod), clean(one.tree), one.verdict) for one in result.cells if one.readable]
    with refusing_to_write(f"{folder}/"), contextlib.ExitStack() as stack:
        os.makedirs(folder, exist_ok=True)
        stack.enter_context(alone(folder))
        history = read(folder).followed(known, date)
        page = html.render(result, history.changes)
        texts = (page, matrix_forms.FORMS["json"](result), json.dumps(encode(history)))
        for name, text in zip(_FILES[::-1], texts, strict=True):
            stack.enter_context(staged(os.path.join(folder, name), text.encode()))
    click.echo(f"wrote {os.path.join(folder, 'index.html')}", err=True)
