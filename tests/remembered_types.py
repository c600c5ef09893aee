"""What the type checker is asked again in a run is answered as it was the first time: most questions are other tests' too.

To start it takes a twentieth of a second. A question is all that it consists of: each entry of the folder by its path, mode and
bytes, the settings among them, the files asked about, the limits, and the program. The tests marked ``started``
or as needing something far away, and all with VLLM_MODS_TEST_ALL=1, ask it as users do.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alone import FAR
from sampling import ALL

from vllm_mods.fit import checker

_replace = os.replace  # a test may put a disk that is full in its place

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_PLACE = "VLLM_MODS_TEST_TYPES"  # the folder of a run's answers: the processes of it inherit it
_PLACES = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_STUBS = re.compile(r'^python = "(.*)/none"$', re.MULTILINE)
_ask = checker._run


def pytest_configure(config: pytest.Config) -> None:
    if _PLACE not in os.environ:
        config.stash[_PLACES] = tempfile.TemporaryDirectory(prefix="vllm-mods-types-")
        os.environ[_PLACE] = config.stash[_PLACES].name


def pytest_unconfigure(config: pytest.Config) -> None:
    if _PLACES in config.stash:
        config.stash[_PLACES].cleanup()
        del os.environ[_PLACE]


def _entries(
    folder: str, below: str = "", *, linked: bool = False
) -> Iterator[tuple[str, bool, int, bytes]]:
    """Yield all there is to read in a folder. Raises ``ValueError`` where a link is none to its own path in a tree."""
    with os.scandir(os.path.join(folder, below)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path, link, mode = os.path.join(below, entry.name), entry.is_symlink(), entry.stat().st_mode
        if link and (linked or not os.readlink(entry.path).endswith(f"/{path}")):
            raise ValueError(path)
        yield path, link, mode, Path(entry.path).read_bytes() if stat.S_ISREG(mode) else b""
        if stat.S_ISDIR(mode):
            yield from _entries(folder, path, linked=linked or link)


def _run(folder: str, paths: list[str]) -> str:
    """Return what was answered where the same was asked, else ask."""
    limits = checker._PROCESSOR_SECONDS, checker._SECONDS, checker._MEMORY, checker._ANSWER
    question = hashlib.sha256(repr((checker.program(), limits, paths)).encode())
    (stubs,) = _STUBS.findall(Path(folder, "ty.toml").read_text("utf-8"))
    places = {folder: "\0folder\0", stubs: "\0stubs\0"}  # others each time
    try:
        for *entry, data in _entries(folder):
            rest = data.replace(stubs.encode(), places[stubs].encode())
            question.update(repr((*entry, rest)).encode())
    except (OSError, ValueError):
        return _ask(folder, paths)
    kept = Path(os.environ[_PLACE], question.hexdigest())
    if kept.exists():
        answer = kept.read_text("utf-8")
        for place, name in places.items():
            answer = answer.replace(name, place)
        return answer
    answer = general = _ask(folder, paths)
    for place, name in places.items():
        general = general.replace(place, name)
    file, unfinished = tempfile.mkstemp(dir=kept.parent)
    with open(file, "w", encoding="utf-8", newline="") as out:
        out.write(general)
    _replace(unfinished, kept)
    return answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with pytest.MonkeyPatch.context() as patch:
        if not ALL and not any(map(item.get_closest_marker, ("started", *FAR))):
            patch.setattr(checker, "_run", _run)
        return (yield)
