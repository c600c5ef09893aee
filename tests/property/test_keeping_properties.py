"""Whatever releases there are and whichever ``keep`` is asked about: a range claims none that was not looked at."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest
from command_line import FILES, LOADER
from hypothesis import given, settings, strategies as st
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod
from sampling import examples

from vllm_mods.base import versions
from vllm_mods.keeping import keeping
from vllm_mods.keeping.keeping import Ways
from vllm_mods.library.catalog import Library
from vllm_mods.planning import lock_entries, planner
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.release import Releases

LANDED = LOADER.replace('"weights"', '"fast"', 1)
TEXTS = {
    "applies": LOADER,
    "moved": "import sys\n" + LOADER,
    "conflict": LOADER.replace('"weights"', '"heavy"', 1),
    "upstream": LANDED,
    "ported": ("import sys\n" + LOADER).replace("class Loader:", "class Loader(object):"),
}
NUMBERS = ("0.18.0", "0.18.0.post1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.21.0", "1.0.0")
RANGES = (
    *("==0.19.0", ">=0.19", "~=0.19.0", "==0.19.*", "===0.19.0", ">=0.18,<0.21", "<=0.19.0"),
    *(">0.18.0,<0.20", ">=0.19,!=0.20.0", "!=0.18.0,<=0.19.1", ">=0.19.0,<=0.20.0,!=0.19.1"),
)


class InMemory(Releases):
    """Releases by their version, each of a kind of text; ``opened`` says which were looked at."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self.kinds = kinds
        self.opened: set[str] = set()

    def files(self) -> tuple[ReleaseFile, ...]:
        return tuple(
            ReleaseFile(
                filename=f"vllm-{name}.tar.gz", url="https://x.test", version=name, kind="sdist"
            )
            for name in self.kinds
        )

    def open(self, name: str, **_: object) -> MemoryTree:
        self.opened.add(name)
        files = {path: data for path, data in FILES.items() if path.startswith("vllm/")}
        files["vllm/loader.py"] = TEXTS[self.kinds[name]].encode()
        return MemoryTree(files, version=name, spec=f"pypi:{name}", pristine=True)


@pytest.fixture(scope="module")
def mod() -> str:
    folder = Path(tempfile.mkdtemp())
    write_mod(folder, "mine", diff_of("vllm/loader.py", LOADER, LANDED))
    return str(folder)


def ranges(folder: Path) -> list[str]:
    text = (folder / "patches/mine/mod.toml").read_text()
    return [variant["vllm"] for variant in tomllib.loads(text)["variant"]]


def claimed(folder: Path) -> set[str]:
    return {name for name in NUMBERS for spec in ranges(folder) if versions.in_range(name, spec)}


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    kinds=st.fixed_dictionaries({name: st.sampled_from(sorted(TEXTS)) for name in NUMBERS}),
    stated=st.sampled_from(RANGES),
    chosen=st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True),
    in_order=st.booleans(),
    has_lock=st.booleans(),
)
def test_a_range_claims_no_release_that_was_not_looked_at(
    mod: str,
    *,
    kinds: dict[str, str],
    stated: str,
    chosen: list[str],
    in_order: bool,
    has_lock: bool,
) -> None:
    releases = InMemory({**kinds, "0.19.0": "applies"})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(mod, f"{scratch}/library"))
        manifest = folder / "patches/mine/mod.toml"
        manifest.write_text(manifest.read_text().replace(ranges(folder)[0], stated))
        library = Library(str(folder))
        if has_lock:
            tree = releases.open("0.19.0")
            first = library.load("mine")
            data = lock_entries.first(first, [(planner.plan_alone(first, tree), tree)])
            manifest.with_name("mod.lock").write_bytes(data["mod.lock"])
        before = claimed(folder)
        releases.opened.clear()
        ways = Ways(releases, library.roots)
        kept = [
            keeping.keep(library.load("mine"), releases.open(name), ways).did
            for name in (sorted(chosen, key=versions.sort_key) if in_order else chosen)
        ]
        new = claimed(folder) - before
        assert before <= claimed(folder) or "ended" in kept
        assert new <= releases.opened
        after = library.load("mine")
        for name in new:
            assert planner.plan_alone(after, releases.open(name)).verdict.ok, (name, ranges(folder))
