"""Make a release and try it, up to but without the upload: ``python -m release OUTPUT``.

OUTPUT/index is what goes to the package index, OUTPUT/assets to the release's page with OUTPUT/notes.md,
OUTPUT/image to a registry. Without ``--tag`` it is a rehearsal of what is committed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import single_file

from release import image, notes, packages, staging, trying
from vllm_mods import __version__ as version

_BASE = os.environ.get("RELEASE_BASE") or "registry:docker.io/library/python:3.13-slim"


def main() -> None:
    parser = argparse.ArgumentParser(prog="release", description="Make a release, and try it.")
    parser.add_argument("output", type=Path, help="a new folder")
    parser.add_argument("--tag", help="vX.Y.Z, which has to be what is checked out")
    parser.add_argument("--base", default=_BASE, help="an image with a Python [%(default)s]")
    parser.add_argument("--docker", action="store_true", help="try the image too, in docker")
    asked = parser.parse_args()
    output: Path = asked.output.resolve()
    changelog = (packages.ROOT / "CHANGELOG.md").read_text()
    if asked.tag:
        notes.check_tag(asked.tag, version)
        if _git("status", "--porcelain") or _git("tag", "--points-at", "HEAD", asked.tag) == "":
            raise SystemExit(f"error: what is checked out is not {asked.tag}")
    text = notes.section(changelog, version if asked.tag else notes.UNRELEASED)
    output.mkdir()
    (output / "notes.md").write_text(text)
    assets = output / "assets"
    with tempfile.TemporaryDirectory(prefix="vllm-mods-release-") as work:
        Path(work).chmod(0o755)  # a container's user has its tree in it
        digest = _make(Path(work), output, asked.base, docker=asked.docker)
    sums = "".join(f"{_sha256(one)}  {one.name}\n" for one in sorted(assets.iterdir()))
    (assets / "SHA256SUMS").write_text(sums)
    print(f"\nvllm-mods {version}: made and tried. What is to be uploaded, and was not:\n")
    _list("the package index", sorted((output / "index").iterdir()))
    _list("the release's page, with the notes", sorted(assets.iterdir()))
    print(f"a registry\n  {digest}  vllm-mods:{version}, {', '.join(image.PROCESSORS.values())}")


def _make(work: Path, output: Path, base: str, *, docker: bool) -> str:
    """Fill the folders of a release, and return the image's digest."""
    with _step("sdist and wheel, twice"):
        built = packages.built(output / "index")
        packages.check(built, version)
    assets = output / "assets"
    assets.mkdir()
    for one in built:
        shutil.copy(one, assets)
    with _step("what they need, for each Python and processor"):
        pins = assets / f"vllm-mods-{version}-requirements.txt"
        staging.pin(packages.ROOT, pins)
        stages = {one: work / one.suffix for one in staging.ALL}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: staging.stage(built.wheel, pins, *one), stages.items()))
    with _step("the single file, the image"), ThreadPoolExecutor() as pool:
        single = assets / "vllm-mods.pyz"
        named = {one.suffix: folder for one, folder in stages.items()}
        packed = pool.submit(single_file.write, named, single)
        digest = pool.submit(_image, stages, output / "image", base).result()
        packed.result()
    (output / "image-digest").write_text(f"{digest}\n")
    with _step("tried: the wheel, the single file"):
        python = staging.environment(built.wheel, pins, work / "venv")
        trying.tried([python, "-I", "-m", "vllm_mods"], version, trying.small_tree(work / "tree"))
        for minor, path in _pythons().items():
            tree = trying.small_tree(work / f"tree-{minor}")
            # a program of another processor cannot lie in it: the type checker is found on PATH
            beside = python.parent
            trying.tried([path, "-I", "-B", single], version, tree, beside=beside)
            print(f"   {single.name} with Python {minor}")
    if docker:
        with _step("tried: the image"):
            trying.tried_image(output / "image", version, work / "tree-image")
    return digest


def _image(stages: dict[staging.Platform, Path], folder: Path, reference: str) -> str:
    with ExitStack() as stack:
        bases = image.open_bases(reference, stack)
        ((_, minor),) = {image.site_of(base) for base in bases.values()}

        @functools.cache
        def files(machine: str) -> dict[str, bytes]:
            return single_file.installed(stages[staging.Platform(minor, machine)])

        return image.write(
            bases,
            files,
            folder,
            checker=lambda one: (stages[staging.Platform(minor, one)] / "bin/ty").read_bytes(),
            version=version,
            revision=_git("rev-parse", "HEAD"),
            epoch=int(_git("log", "-1", "--format=%ct")),
        )


def _pythons() -> dict[str, str]:
    """Return the Pythons of this machine that the single file is for, one of each version."""
    found = {}
    for minor in staging.MINORS:
        path = shutil.which(f"python{minor}")
        # a version manager's stand-in for one that is not there fails
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            found[minor] = path
    return found


def _list(where: str, files: Iterable[Path]) -> None:
    print(where)
    for one in files:
        print(f"  sha256:{_sha256(one)}  {one.name}, {one.stat().st_size:,} bytes")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(packages.ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _step(name: str) -> Iterator[None]:
    print(f"-- {name}", flush=True)
    began = time.monotonic()
    yield
    print(f"   {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
