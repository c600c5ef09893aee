"""A release works on every Python, as anybody, and in the bare surroundings of a container."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of
from release.packages import ROOT, Built, build
from releasing import PIP, Environments, builder
from situations import (
    BY_NAME,
    NOBODY,
    SITUATIONS,
    Python,
    Situation,
    can_be,
    environment,
    pythons,
    wrapped,
)
from small_site import build as build_site, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.packaging, pytest.mark.network]

MINORS = ("3.11", "3.12", "3.13", "3.14")
EVERY = ("python -I -O -W error", "a container's user")
"""The situations that each Python is tried in; in the others the oldest is."""
MOST = 10_000_000
"""Bytes that `pip install` may pull."""
_MEMORY = "/dev/shm"  # noqa: S108  (environments are many small files)
SOURCE = """\
class Loader:
    def load(self, name):
        path = "weights/" + name
        return path
"""
FILES = {
    "vllm/__init__.py": b"",
    "vllm/a.py": b"",
    "vllm/b.py": b"",
    "vllm/loader.py": SOURCE.encode(),
}


@pytest.fixture(scope="session")
def work() -> Iterator[Path]:
    """Make a folder that other users can read: pytest's own cannot be."""
    info = os.statvfs(_MEMORY)
    fits = not info.f_flag & os.ST_NOEXEC and info.f_bavail * info.f_frsize > 1 << 30
    place = _MEMORY if fits else None
    folder = Path(tempfile.mkdtemp(prefix="vllm-mods-everywhere-", dir=place))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def backend(work: Path) -> Path:
    return builder(work)


@pytest.fixture(scope="session")
def built(work: Path, backend: Path) -> Built:
    return build(backend, ROOT, work / "dist")


@pytest.fixture(scope="session")
def environments(work: Path, built: Built) -> Environments:
    return Environments(work, built)


@pytest.fixture(scope="session")
def single_file(work: Path, environments: Environments) -> Path:
    """Make the single file for the Python that runs this, out of wheels that are here already."""
    mine = next(one for one in pythons() if one.base == sys.base_prefix)
    wheels = environments.of(mine).wheels
    (wheel,) = (path for path in wheels if path.name.startswith("vllm_mods-"))
    subprocess.run(
        [sys.executable, ROOT / "tools/single_file.py", work / "vllm-mods.pyz", "--wheel", wheel],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)},
        check=True,
    )
    return work / "vllm-mods.pyz"


@pytest.fixture
def site(work: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir=work, prefix="site-"))
    place.chmod(0o755)
    yield build_site(place, FILES)
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def library(work: Path) -> Path:
    """Make a mod that no lock knows, so that it takes the long way, through LibCST."""
    folder = work / "library/patches/fix"
    folder.mkdir(parents=True)
    after = SOURCE.replace('"weights/"', '"fast/"')
    (folder / "x.patch").write_bytes(diff_of("vllm/loader.py", SOURCE, after))
    (folder / "new.py").write_text("NEW = 1\n")
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "fix"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.19"\npatches = ["x.patch"]\n'
        'overlay = [{ source = "new.py", path = "vllm/new/new.py" }]\n'
    )
    return work / "library"


def python_of(minor: str) -> Python:
    """Return an interpreter; skip, and say so, where there is none."""
    for one in pythons():
        if one.minor == minor:
            return one
    there = ", ".join(f"{one.version} in {one.base}" for one in pythons())
    pytest.skip(f"there is no Python {minor} here; there are {there}")


def live(
    program: Sequence[str],
    situation: Situation,
    site: Path,
    library: Path,
    base: str,
    *,
    brief: bool = False,
) -> None:
    """Check, apply, verify, revert: modes and owners are the tree's own, and all is as it was."""
    if why := can_be(situation):
        pytest.skip(why)
    if situation.user:
        for path in (site, *site.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    before = snapshot(site)

    def run(*arguments: object) -> str:
        done = subprocess.run(
            wrapped(situation, [*program, *map(str, arguments)], base, str(library.parent)),
            env=environment(situation),
            umask=situation.umask,
            cwd=library,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    target = ("--library", library, "--target", site)
    if not brief:
        assert run("--version").startswith("vllm-mods ")
        assert "hybrid-int4-fp8" in run("list")
    assert "all as expected" in run("template", "check", "qwen3.5-enhanced")
    assert "fix 1.0.0  applies" in run("check", "fix", *target)
    assert snapshot(site) == before
    run("apply", "fix", "qwen3.5-enhanced", *target)
    owner = os.lstat(site).st_uid
    for path in site.rglob("*"):
        info = path.lstat()
        if str(path) in before:
            assert oct(info.st_mode) == before[str(path)][0]
        elif "originals" not in path.parts:  # these have the modes of what they are of
            wanted = 0o755 if path.is_dir() else 0o644  # anybody may read what is in
            assert stat.S_IMODE(info.st_mode) == wanted, path
        assert info.st_uid == owner
    if not brief:
        assert "all files unchanged" in run("verify", "--target", site)
    assert "nothing is wrong" in run("doctor", "--target", site)
    run("revert", "--target", site)
    assert snapshot(site) == before


@pytest.mark.parametrize("situation", [one.name for one in SITUATIONS])
@pytest.mark.parametrize("minor", MINORS)
def test_the_wheel(
    minor: str, situation: str, environments: Environments, site: Path, library: Path
) -> None:
    python = python_of(minor)
    if situation not in EVERY and minor != pythons()[0].minor:
        pytest.skip("tried with the oldest Python")
    wanted = BY_NAME[situation]
    # what root installs with that umask is for root alone
    umask = 0o022 if wanted.user else wanted.umask
    executable = environments.of(python, umask).executable
    program = [str(executable), *wanted.flags, "-m", "vllm_mods"]
    live(program, wanted, site, library, python.base)


def test_every_python_that_is_here(environments: Environments, site: Path, library: Path) -> None:
    """Try the others too: Debian's beside one of the same version from elsewhere."""
    first = {one.minor: one for one in reversed(pythons())}
    others = [one for one in pythons() if one != first[one.minor]]
    if not others:
        pytest.skip("there is one of each version")
    for one in others:
        executable = environments.of(one).executable
        live([str(executable), "-m", "vllm_mods"], BY_NAME["root"], site, library, one.base)


@pytest.mark.parametrize("situation", ["umask 077", "a container's user"])
def test_the_single_file(situation: str, single_file: Path, site: Path, library: Path) -> None:
    """It needs no environment, so that any Python of its version can run it, Debian's too."""
    minor = f"3.{sys.version_info.minor}"
    python = [one for one in pythons() if one.minor == minor][-1]
    program = [python.path, "-B", str(single_file)]
    live(program, BY_NAME[situation], site, library, python.base, brief=True)
    assert os.access(single_file, os.X_OK)


def test_the_single_file_finds_no_place(single_file: Path) -> None:
    """Say so, where no code may be loaded from anywhere."""
    if why := can_be(BY_NAME["a container"]):
        pytest.skip(why)
    python = next(one for one in pythons() if one.base == sys.base_prefix)
    places = ["/dev/shm", "/tmp", "/var/tmp", "/run", "/mnt"]  # noqa: S108
    script = "\n".join(
        (
            f"exec 3<'{single_file}'",
            "mount --make-rprivate /",
            *(f"mount -t tmpfs -o noexec none {place}" for place in places),
            "cat <&3 > /mnt/vllm-mods.pyz; cd /mnt",
        )
    )
    situation = Situation("noexec everywhere", script=script, environ=(("HOME", "/mnt"),))
    done = subprocess.run(
        wrapped(situation, [python.path, "/mnt/vllm-mods.pyz", "list"], python.base, "/mnt"),
        env=environment(situation),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "hint: TMPDIR=" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("minor", MINORS)
def test_pip_pulls_few_megabytes(
    minor: str, environments: Environments, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = {path: path.stat().st_size for path in environments.of(python_of(minor)).wheels}
    total = sum(wheels.values())
    costliest = sorted(wheels, key=lambda path: -wheels[path])[:3]
    named = ", ".join(f"{path.name.split('-')[0]} {wheels[path] / 1e6:.1f}" for path in costliest)
    with capsys.disabled():
        print(f"\nPython {minor}: {total / 1e6:.1f} MB in {len(wheels)} wheels: {named}")  # noqa: T201
    assert total < MOST


def test_builds_are_reproducible(built: Built, backend: Path, tmp_path: Path) -> None:
    """Another folder, umask, time zone and locale, files with other times: the same bytes."""
    shutil.copytree(
        ROOT,
        tmp_path / "copy",
        ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__"),
        copy_function=shutil.copyfile,
    )
    for path in ROOT.rglob("*"):  # what may be run is part of the sources
        other = tmp_path / "copy" / path.relative_to(ROOT)
        if other.is_file() and os.access(path, os.X_OK):
            other.chmod(0o755)
    again = build(
        backend, tmp_path / "copy", tmp_path / "dist", umask=0o077, TZ="Asia/Tokyo", LC_ALL="C"
    )
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_pip_builds_the_same_wheel_of_the_sdist(built: Built, tmp_path: Path) -> None:
    subprocess.run([*PIP, "wheel", "-q", "--no-deps", "-w", tmp_path, built.sdist], check=True)
    assert (tmp_path / built.wheel.name).read_bytes() == built.wheel.read_bytes()


def test_what_is_in_the_wheel(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top.rsplit(".", 1)[-1] for top in tops} == {"vllm_mods", "dist-info"}
    for wanted in ("py.typed", "_data/patches/flashqla/mod.lock", "_data/pairings/"):
        assert any(name.startswith(f"vllm_mods/{wanted}") for name in names)
    assert not [name for name in names if name.endswith(".pyc")]
