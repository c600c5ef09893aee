"""Mods and trees made up by Hypothesis: what holds of every apply, revert, export and import."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
import small_site
from hypothesis import event, given, settings, strategies as st
from memory_tree import MemoryTree
from mod_making import lock_of, mod, patched, variant, write_mod
from sampling import examples

from vllm_mods.cli import run
from vllm_mods.planning.planner import plan

PATH = "vllm/m.py"
# few of them, so that text that occurs twice, which is what goes wrong, is common
STATEMENTS = st.sampled_from(["x = 1", "y = 2", "z = 3", "if True:\n    pass", "x = y = 0"])
BODY = st.lists(STATEMENTS, min_size=1, max_size=6).map(tuple)
Body = tuple[str, ...]


class Module(NamedTuple):
    """A Python file: the bodies of methods by class and name, of functions by class ``""``."""

    bodies: tuple[tuple[str, str, Body], ...]

    def text(self) -> str:
        lines, owner = ["import os"], ""
        for cls, name, body in self.bodies:
            if cls and cls != owner:
                lines += ["", "", f"class {cls}:"]
            else:
                lines += [""] if cls else ["", ""]
            owner = cls
            indent = "    " if cls else ""
            lines.append(f"{indent}def {name}({'self' if cls else ''}):")
            lines += [
                f"{indent}    {line}" for statement in body for line in statement.splitlines()
            ]
        return "\n".join(lines) + "\n"

    def having(self, at: int, body: Body) -> Module:
        cls, name, _ = self.bodies[at]
        return Module((*self.bodies[:at], (cls, name, body), *self.bodies[at + 1 :]))


@st.composite
def modules(draw: st.DrawFn) -> Module:
    classes = draw(st.lists(st.sampled_from(["", "A", "B"]), min_size=1, max_size=3, unique=True))
    bodies = [
        (cls, name, draw(BODY))
        for cls in classes
        for name in draw(st.lists(st.sampled_from("fgh"), min_size=1, max_size=3, unique=True))
    ]
    return Module(tuple(bodies))


@st.composite
def edits(draw: st.DrawFn, body: Body) -> Body:
    """Another body: a statement replaced, added or taken out."""
    at = draw(st.integers(0, len(body) - 1))
    new = draw(st.sampled_from(["new = 1", "new = 2"]))
    after = {
        "replace": (*body[:at], new, *body[at + 1 :]),
        "insert": (*body[:at], new, *body[at:]),
        "remove": (*body[:at], *body[at + 1 :]) or (new,),
    }
    return after[draw(st.sampled_from(sorted(after)))]


class Case(NamedTuple):
    """A file as a patch was written for it, the patch, another release's file, and that one patched; ``at`` is the class."""

    written: Module
    patch: bytes
    there: Module
    right: Module
    at: str


@st.composite
def cases(draw: st.DrawFn) -> Case:
    written = draw(modules())
    at = draw(st.integers(0, len(written.bodies) - 1))
    cls, name, body = written.bodies[at]
    after = draw(edits(body))
    patch = git_diff(written.text(), written.having(at, after).text())
    there = written
    for other in range(len(written.bodies)):
        if other != at and draw(st.booleans()):
            # as upstream does: another body, or the very same as the patched function's
            there = there.having(other, draw(st.one_of(BODY, st.just(body))))
    if draw(st.booleans()):
        # whole classes change places
        order = draw(st.permutations(sorted({one[0] for one in there.bodies})))
        there = Module(tuple(sorted(there.bodies, key=lambda one: order.index(one[0]))))
    more = draw(st.sampled_from([(), ((cls, "extra", body),), (("Extra", name, body),)]))
    there = Module(
        (*more, *there.bodies) if not more or more[0][0] != cls or not cls else there.bodies
    )
    where = next(i for i, one in enumerate(there.bodies) if one[:2] == (cls, name))
    return Case(written, patch, there, there.having(where, after), cls)


def git_diff(before: str, after: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for side, text in (("a", before), ("b", after)):
            file = Path(folder) / side / PATH
            file.parent.mkdir(parents=True)
            file.write_text(text)
        return subprocess.run(
            ["git", "diff", "--no-index", "--no-prefix", "a", "b"],
            cwd=folder,
            capture_output=True,
            check=False,
        ).stdout


def git_apply(text: str, patch: bytes) -> str | None:
    """Return what ``git apply`` makes of a file, None if it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / PATH
        file.parent.mkdir()
        file.write_text(text)
        done = subprocess.run(
            ["git", "apply", "-"],
            cwd=folder,
            input=patch,
            capture_output=True,
            check=False,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": folder, "GIT_DIR": "/nowhere"},
        )
        return file.read_text() if done.returncode == 0 else None


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(cases(), st.booleans())
def test_it_is_right_or_refused_and_goes_in_wherever_git_is_right(
    case: Case,
    locked: bool,  # noqa: FBT001
) -> None:
    text, right = case.there.text(), case.right.text()
    tree = MemoryTree({PATH: text.encode()}, pristine=True)
    one = mod(variant(case.patch))
    if locked:
        written = plan([one], MemoryTree({PATH: case.written.text().encode()}, pristine=True))
        if written.ok:
            one = one._replace(lock=lock_of(written.mods[0]))
    (planned,) = plan([one], tree).mods
    by_git = git_apply(text, case.patch)
    event(f"git {'is right' if by_git == right else 'is not'}, {planned.verdict.value}")
    if planned.verdict.writes:
        made = patched(tree.files, planned)[PATH].decode()
        # without a lock, what git writes behind @@ tells the class and not the method
        assert made == right or (one.lock is None and in_class(made, case) and case.at)
    elif by_git == right:
        # git took the first of several places, or one of two directions
        assert {finding.code for finding in planned.findings} <= {
            "ambiguous",
            "both-ways",
            "look-alike",
            "unprovable",
        }


def in_class(made: str, case: Case) -> bool:
    """Tell whether only the class that was to be changed was changed."""
    name = f"class {case.at}:"
    before, after = (re.split(r"\n\n\n(?=\w)", text) for text in (case.there.text(), made))
    return len(before) == len(after) and all(
        old == new or old.startswith(name) for old, new in zip(before, after, strict=True)
    )


# --- on disk ------------------------------------------------------------------------------------


class Two(NamedTuple):
    """A module, and two mods: each changes another body of it, adds a file, or removes one."""

    written: Module
    patches: tuple[bytes, bytes]


@st.composite
def twos(draw: st.DrawFn) -> Two:
    written = draw(modules().filter(lambda made: len(made.bodies) > 1))
    places = draw(st.permutations(range(len(written.bodies))))
    patches = []
    for number, at in enumerate(places[:2]):
        after = written.having(at, draw(edits(written.bodies[at][2])))
        patch = git_diff(written.text(), after.text())
        if draw(st.booleans()):
            new = f"vllm/new{number}/n.py"
            patch += f"--- /dev/null\n+++ b/{new}\n@@ -0,0 +1 @@\n+N = 1\n".encode()
        if draw(st.booleans()):
            gone = f"vllm/gone{number}.py"
            patch += f"--- a/{gone}\n+++ /dev/null\n@@ -1 +0,0 @@\n-G = 1\n".encode()
        patches.append(patch)
    return Two(written, (patches[0], patches[1]))


class Place:
    """An installed tree and a library on disk, and a command line on them."""

    def __init__(self, folder: Path, made: Two) -> None:
        self.folder = folder
        files = {PATH: made.written.text().encode(), "vllm/__init__.py": b""}
        files |= {f"vllm/gone{number}.py": b"G = 1\n" for number in (0, 1)}
        self.site = small_site.build(folder / "site", {**small_site.FILES, **files})
        self.library = folder / "library"
        for name, patch in zip(("one", "two"), made.patches, strict=True):
            write_mod(self.library, name, patch)
        self.before = small_site.snapshot(self.site)

    def run(self, *command: object) -> int:
        self.said = io.StringIO()
        with contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
            return run([str(word) for word in command])

    def on(self, site: Path, command: str, *mods: str) -> bool:
        """Apply or revert; False if that was refused. Nothing else may come of it."""
        options = ["--library", self.library] if command == "apply" else []
        code = self.run(command, *mods, "--target", site, *options)
        assert code in {0, 3}, self.said.getvalue()
        return code == 0

    def copy(self) -> Path:
        site = self.folder / f"site{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.site, site, symlinks=True)
        return site


def files(site: Path) -> dict[str, bytes]:
    """Return all files but the tool's own: the receipt tells the order that mods went in."""
    return {
        str(path.relative_to(site)): path.read_bytes()
        for path in site.rglob("*")
        if path.is_file() and ".vllm-mods" not in path.parts
    }


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(twos())
def test_twice_is_once_the_order_is_nothing_and_back_is_back(made: Two) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), made)
        site, other, together = place.site, place.copy(), place.copy()
        if not place.on(site, "apply", "one"):
            assert small_site.snapshot(site) == place.before
            return
        once = small_site.snapshot(site)
        assert place.on(site, "apply", "one")
        assert small_site.snapshot(site) == once
        if place.on(site, "apply", "two"):
            both = files(site)
            # one mod's lines may be the other's context: then only one order goes in
            independent = place.on(together, "apply", "two", "one")
            event(f"independent: {independent}")
            if independent:
                assert files(together) == both
                assert place.on(other, "apply", "two")
                alone = files(other)
                assert place.on(other, "apply", "one")
                assert files(other) == both
                assert place.on(other, "revert", "one")
                assert files(other) == alone
        assert place.on(site, "revert")
        assert small_site.snapshot(site) == place.before


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(twos())
def test_what_is_exported_and_imported_does_the_same(made: Two) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), made)
        back = Path(folder) / "back"
        (back / "patches").mkdir(parents=True)
        exported = Path(folder) / "out" / "one"
        site, again = place.copy(), place.copy()
        if not place.on(site, "apply", "one"):
            return
        where = ["--tree", place.site]
        command = ["export", "one", "--library", place.library, "--output", exported]
        assert place.run(*command) == 0, place.said.getvalue()
        assert place.run("import", exported, "--library", back, *where) == 0, place.said.getvalue()
        assert place.run("apply", "one", "--library", back, "--target", again) == 0
        assert files(again) == files(site)


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None)
@given(twos())
def test_a_plan_is_the_same_whatever_the_order_of_sets_is(made: Two) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), made)
        command = [sys.executable, "-m", "vllm_mods", "check", "one", "two", "--json"]
        options = ["--target", str(place.site), "--library", str(place.library)]
        said = [
            subprocess.run(
                [*command, *options],
                capture_output=True,
                check=False,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
            for seed in ("1", "2")
        ]
        assert said[0] == said[1]
        assert json.loads(said[0])["mods"]
