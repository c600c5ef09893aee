"""What a test sees of the machine it runs on: neither an index, nor pip's settings, nor what the user's cache holds.

Those that are marked as needing something far away see what is there. A hundred thousand files come and go:
in memory where there is room, with VLLM_MODS_TEST_ALL=1 on the disk.
"""

from __future__ import annotations

import gc
import os
import tempfile
from itertools import count
from typing import TYPE_CHECKING

import pytest
from sampling import ALL

if TYPE_CHECKING:
    from collections.abc import Generator

FAR = ("network", "packaging", "behaviour", "engines", "browser")
_CACHES = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_numbers = count()
_MEMORY = "/dev/shm"  # noqa: S108  (pytest makes a folder of its own there)


def _has_room(folder: str) -> bool:
    """Tell whether tests can make their files there, and run them; in a container it has a few megabytes."""
    if not os.access(folder, os.W_OK):
        return False
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize >= 2 << 30 and not about.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    if not ALL and _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
    config.stash[_CACHES] = tempfile.TemporaryDirectory(prefix="vllm-mods-caches-")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_CACHES].cleanup()


def pytest_collection_finish() -> None:
    """Take what collecting has made out of what the garbage collector goes through, again and again."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if any(item.get_closest_marker(name) for name in FAR):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
        patch.setenv("PIP_RETRIES", "0")
        cache = f"{item.config.stash[_CACHES].name}/{next(_numbers)}"
        patch.setenv("VLLM_MODS_CACHE", cache)
        patch.setenv("XDG_CACHE_HOME", cache)
        return (yield)
