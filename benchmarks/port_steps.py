"""Port the bundled mods from their oldest variants over every release, and count where a person is needed.

    python benchmarks/port_steps.py [MOD…] [--trees FOLDER]

Each release in order: if no variant goes in, the last one is ported to it. A port that comes out is held
against what the mod's variant of today gives on that release: the same bytes, the same syntax tree, or
another text (``differs``, to be read). One that does not is a decision of a person, and the variant of
today is what the person writes. ``--jump`` ports from the oldest variant alone to each release instead.
FOLDER has the files of the releases, a folder each; without it they are read from the index.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from vllm_mods.base import diff3
from vllm_mods.base.diff3 import Clash
from vllm_mods.formats import diff
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.planning import planner
from vllm_mods.porting import job as porting, writing
from vllm_mods.porting.job import Job
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vllm_mods.base.model import FileChange, Mod
    from vllm_mods.base.tree import Tree

    Texts = Mapping[str, bytes | None]


class Named(FolderTree):
    """A folder of a release's files that says which release it is."""

    @cached_property
    def version(self) -> str | None:
        return self.spec.removeprefix("pypi:")


def trees(folder: str | None, first: str, last: str) -> Iterator[tuple[str, Tree]]:
    releases = Releases()
    if folder is None:
        names = {file.version for file in releases.files() if file.yanked is None}
    else:
        names = {one.name for one in Path(folder).iterdir() if (one / "vllm").is_dir()}
    for name in sorted(names, key=Version):
        if not Version(first) <= Version(name) <= Version(last) or Version(name).is_prerelease:
            continue
        if folder is None:
            yield name, releases.open(name)
        else:
            yield name, Named(f"{folder}/{name}", spec=f"pypi:{name}")


def result(mod: Mod, tree: Tree) -> tuple[FileChange, ...] | None:
    """Return what a mod changes in the files that its patches touch; None if it does not go in."""
    planned = planner.plan_alone(mod, tree)
    if not planned.verdict.writes or planned.variant is None:
        return None
    patches = planned.variant.patches
    paths = {path for patch in patches for path in diff.paths_of(patch, patch.source)}
    return tuple(change for change in planned.changes if change.path in paths)


def compared(mine: Sequence[FileChange] | None, truth: Sequence[FileChange]) -> str:
    got, want = ({one.path: one.after for one in some} for some in (mine or (), truth))
    if got == want:
        return "same bytes"
    if got.keys() == want.keys() and all(tree_of(got[path]) == tree_of(want[path]) for path in got):
        return "same syntax tree"
    return f"differs in {', '.join(sorted(p for p in {*got, *want} if got.get(p) != want.get(p)))}"


def tree_of(data: bytes | None) -> str:
    return ast.dump(ast.parse(data or b""))


def steps(name: str, folder: str | None, *, jump: bool, show: bool) -> tuple[int, int]:
    """Return how many decisions there were, and how many results that are not those of today."""
    whole = Library().load(name)
    oldest = whole.variants[0]
    first = oldest.vllm.split(",")[0].removeprefix(">=")
    head, table, block = whole.manifest.partition(b"[[variant]]")
    manifest = head + table + block.partition(b"[[variant]]")[0]
    place = Path(tempfile.mkdtemp(), "patches", name)
    shutil.copytree(whole.directory, place, ignore=shutil.ignore_patterns("mod.lock"))
    Path(place, "mod.toml").write_bytes(manifest)
    mod = load_mod(str(place))
    last: tuple[Tree, str] | None = None
    decisions = differing = 0
    for version, tree in trees(folder, first, "0.33.0"):
        truth = result(whole, tree)
        if truth is None:
            print(f"{name} {version}: the mod of today does not go in")
            continue
        if not (jump and last):
            mine = result(mod, tree)
            if mine is not None:
                said = compared(mine, truth)
                differing += said.startswith("differs")
                print(f"{name} {version}: goes in, {said}")
                used = planner.plan_alone(mod, tree).variant
                assert used is not None
                last = (tree, used.id)
                continue
        assert last is not None, "the oldest variant goes into the oldest release"
        source = next(one for one in mod.variants if one.id == last[1])
        old = last[0].version or ""
        job = Job(mod, source, last[0], old, tree, f"new-{version}", f"=={version}", ())
        outcome = porting.run(job)
        new = outcome.new
        if outcome.fits and new is not None:
            paths = {one.path for one in outcome.cuts}
            said = compared([one for one in new.planned.changes if one.path in paths], truth)
            differing += said.startswith("differs")
            print(f"{name} {version}: ported from {old}, {said}")
        else:
            decisions += 1
            why = {problem.code for one in outcome.files for problem in one.ported.problems}
            codes = (
                {one.code for one in new.planned.findings if one.level == "error"} if new else ()
            )
            print(
                f"{name} {version}: LEFT TO A PERSON from {old}: {', '.join(sorted({*why, *codes}))}"
            )
            if show:
                clashes = (c for one in outcome.files for c in one.ported.stretches)
                print(
                    diff3.marked(
                        [c for c in clashes if isinstance(c, Clash)], "mod", "base", "target"
                    ).decode()
                )
            new = porting.finish(job, truth, outcome.homes)
        if not jump:
            writing.write_files(mod, new.files)
            mod, last = load_mod(str(place)), (tree, job.name)
    shutil.rmtree(place.parents[1])
    return decisions, differing


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mods", nargs="*", default=["hybrid-int4-fp8", "flashqla"])
    parser.add_argument("--trees")
    parser.add_argument("--jump", action="store_true")
    parser.add_argument("--show", action="store_true", help="What clashes.")
    options = parser.parse_args()
    found = {
        name: steps(name, options.trees, jump=options.jump, show=options.show)
        for name in options.mods
    }
    for name, (decisions, differing) in found.items():
        print(f"{name}: {decisions} decisions, {differing} results that differ from those of today")


if __name__ == "__main__":
    main()
