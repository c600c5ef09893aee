"""The doctor's checks on facts that are hard to make for real: a full disk, a broken installation."""

from __future__ import annotations

import pytest

from vllm_mods.doctor.checks import check
from vllm_mods.doctor.facts import Disk, Facts, Folder, Known, Package, Target, Tool
from vllm_mods.doctor.installed import disk
from vllm_mods.model import Level

TOOL = Tool(
    version="1",
    origin="wheel",
    place="/p",
    python="CPython 3.12",
    executable="/usr/bin/python3",
    packages=(Package("click", ">=8", "8.1", None),),
    git="/usr/bin/git",
    cache="/c",
    cache_fault=None,
)
DISK = Disk(kind="ext4", read_only=False, free=10**9, full=False, lock_fault=None)
FOLDER = Folder("/site", (), "nothing", None, (), (), (), None, DISK, (), ())
TARGET = Target("/site", "installed", "0.19.1", None, (), (), (), FOLDER)


def facts(tool: Tool = TOOL, target: Target | None = TARGET) -> Facts:
    return Facts(tool, target, (), ())


def found(what: Facts) -> list[tuple[str, Level]]:
    return [(one.code, one.level) for one in check(what)]


def test_nothing() -> None:
    assert found(facts()) == []


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (DISK._replace(read_only=True, full=True), "read-only"),
        (DISK._replace(full=True), "disk-full"),
        (DISK._replace(lock_fault="No locks available"), "no-lock"),
    ],
)
def test_a_disk(changed: Disk, code: str) -> None:
    assert found(facts(target=TARGET._replace(folder=FOLDER._replace(disk=changed)))) == [
        (code, Level.ERROR)
    ]


def test_what_may_not_be_read() -> None:
    closed = FOLDER._replace(closed=("vllm/config",))
    assert found(facts(target=TARGET._replace(folder=closed))) == [("closed", Level.ERROR)]


def test_an_installation_that_is_broken() -> None:
    broken = TOOL._replace(
        packages=(Package("libcst", ">=1.5", "1.9", "it does not load: no such file"),),
        git=None,
        cache_fault="/c cannot be written",
    )
    assert found(facts(broken)) == [
        ("package", Level.ERROR),
        ("no-git", Level.NOTE),
        ("no-cache", Level.NOTE),
    ]
    assert "'libcst>=1.5'" in (check(facts(broken))[0].hint or "")


def test_a_version_is_held_against_what_locks_know() -> None:
    known = Known("m", ("vllm/a.py",), stated=True, releases=("0.20.0", "0.20.1"))
    (one,) = check(facts(target=TARGET._replace(known=(known,))))
    assert (one.code, one.level) == ("version-disagrees", Level.NOTE)
    assert "0.20.0 to 0.20.1" in one.message
    dev = known._replace(stated=False)  # a dev build: nobody knows what it should hold
    assert found(facts(target=TARGET._replace(known=(dev,)))) == []


def test_a_real_disk() -> None:
    real = disk("/")
    assert real.kind != "unknown"
    assert real.free > 0
    # `/` holds no vllm/: that is said as why nothing can be locked
    assert real.lock_fault == "No such file or directory"
