"""Replay every hunk between neighbouring vLLM releases as a mod of its own, beside git and patch.

    python benchmarks/placing.py [--trees FOLDER] [--pairs RELEASE…] [--sample N] [--edges N] [--seed S]
                                 [--jobs N] [--wrong FILE]

FOLDER holds the ``.py`` files of vLLM's releases, ``0.19.1/vllm/…`` and so on. A release that is not
there is read from the package index with the tool's own readers (its sdist, about 40 MB; where there is
none the wheel, by ranges) and put there; without ``--trees`` that is a folder in the tool's cache.

What ``git diff`` says between two neighbours is taken apart: each hunk is a mod, and each file with all
of its hunks is one; each in four forms, with and without git's ``index`` line and with and without
the words behind ``@@``, and two of these with the release it was made for at hand. Each is planned, with the fit switched off, on a tree of one file: the one it was
made for, what it makes of that, and the same file one, two and four releases back and on. What undoes a
change is a mod too, on the newer of the two releases: placed one, two and four releases on it goes
in, where the change itself is in already. ``--pairs`` names the older one of each pair to take,
``--sample`` says about how many hunks of them; of all others those at the first or last lines of a file are
taken too, ``--edges`` says how many of these (all without it: hours).

A hunk that by itself leaves what is no Python is no mod. Told for each tool and distance:

**clean**    it goes in, and the bytes are those of both three-way merges (``git merge-file`` and the
             project's own), or of one of them, if the other clashes, in the definitions it was written for
**in**       it is in already, says the tool, and a three-way merge gives the file as it is
**wrong**    *bytes*: other bytes than any clean merge gives; *place*: another class or function changed;
             *twice*: it goes in, and the merges say that it is in; *not in*: it is in, says the tool, and
             a clean merge changes the file; *crash*: a bug
**alone**    the merges clash or give two results, and the definitions are those it was written for
**refused**  none of this; in brackets how many of these a clean merge (of both kinds, agreeing) puts in

``git apply`` and ``patch -F0`` never say that a change is in; ``git apply --3way`` does by changing
nothing. At last: of the changes of whole files that the merge finds in a later release, how many are seen.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from vllm_mods import fit
from vllm_mods.base import diff3, line_diff
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import DiffError
from vllm_mods.base.model import Mod, PatchFile, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.planning import planner
from vllm_mods.porting import outline, structure
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FIRST, LAST = Version("0.15.0"), Version("0.33.0")
STEPS = (1, 2, 4)
CONTEXT = 3
# git's `index` line, the words behind @@, and whether the release it was made for is at hand
OURS = {
    "vllm-mods: index, header": (True, True, False),
    "vllm-mods: index": (True, False, False),
    "vllm-mods: header": (False, True, False),
    "vllm-mods: plain": (False, False, False),
    "vllm-mods, base: index, header": (True, True, True),
    "vllm-mods, base: plain": (False, False, True),
}
TOOLS = (*OURS, "git apply", "git apply --3way", "patch -F0")
_HEAD = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")


# --- the sources -----------------------------------------------------------------------------


def releases() -> list[str]:
    """Return the releases to replay, the oldest first."""
    found = {Version(file.version) for file in Releases().files()}
    kept = [one for one in found if FIRST <= one <= LAST and not one.is_prerelease]
    return [str(one) for one in sorted(kept) if one.local is None]


def fetch(release: str, trees: str) -> None:
    """Put the Python files of a release below ``trees``, unless they are there."""
    folder = Path(trees, release)
    if folder.exists():
        return
    sdist = f"vllm-{release}.tar.gz"
    there = any(file.filename == sdist for file in Releases().files())
    tree = open_tree(f"pypi:{sdist if there else release}")
    with tempfile.TemporaryDirectory(dir=trees) as scratch:
        for path in tree.paths("vllm"):
            if path.endswith(".py"):
                data = tree.read(path)
                assert data is not None
                file = Path(scratch, release, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        Path(scratch, release).rename(folder)
    print(f"{release}: read from the package index", flush=True)


@functools.lru_cache(maxsize=64)
def read(trees: str, release: str, path: str) -> bytes | None:
    try:
        return Path(trees, release, path).read_bytes()
    except FileNotFoundError:
        return None


def repository(trees: str, names: Sequence[str], folder: str) -> dict[str, str]:
    """Make a bare repository that has each release as a tree; return the trees' ids."""
    git(folder, "init", "-q", "--bare", ".")
    git(folder, "config", "core.compression", "1")
    found = {}
    for name in names:
        env = {"GIT_INDEX_FILE": f"{folder}/{name}", "GIT_DIR": folder}
        git(f"{trees}/{name}", "--work-tree=.", "add", "-A", "-f", "vllm", env=env)
        found[name] = git(folder, "write-tree", env=env).stdout.decode().strip()
    return found


def git(
    folder: str, *words: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    full = {**os.environ, "LC_ALL": "C", "GIT_CONFIG_GLOBAL": "/dev/null", **(env or {})}
    return subprocess.run(
        ["git", *words], cwd=folder, input=data, capture_output=True, check=False, env=full
    )


# --- mods ------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A hunk as git wrote it: its stated range in the old file, the words behind @@, its lines."""

    start: int
    size: int
    new_size: int
    words: bytes
    body: bytes

    @property
    def is_edge(self) -> bool:
        """Whether the context is cut short by the start or the end of the file."""
        kinds = [line[:1] for line in self.body.splitlines(keepends=True) if line[:1] != b"\\"]
        lead = next(n for n, kind in enumerate(kinds) if kind != b" ")
        tail = next(n for n, kind in enumerate(reversed(kinds)) if kind != b" ")
        return lead < CONTEXT or tail < CONTEXT

    def text(self, shift: int, *, header: bool) -> bytes:
        """Return the hunk; ``shift`` is what hunks before it add."""
        new = self.start + shift
        # a side without lines names the line before it
        new += (self.size == 0) - (self.new_size == 0)
        words = self.words if header else b""
        return (
            b"@@ -%d,%d +%d,%d @@%s\n" % (self.start, self.size, new, self.new_size, words)
            + self.body
        )


class Change(NamedTuple):
    """A file that is another one in the release ``other``; ``hunks`` are those to replay by themselves."""

    path: str
    release: str
    other: str
    pieces: tuple[Piece, ...]
    hunks: tuple[int, ...]
    undoes: bool


class Made(NamedTuple):
    """A mod made of some hunks of a change, on ``base``; ``number`` is None for all hunks."""

    number: int | None
    pieces: tuple[Piece, ...]
    base: bytes
    result: bytes
    is_edge: bool

    def patch(self, path: str, *, index: bool = False, header: bool = True) -> bytes:
        name = path.encode()
        head = b"--- a/%s\n+++ b/%s\n" % (name, name)
        if index:
            ids = (blob(self.base), blob(self.result))
            head = b"diff --git a/%s b/%s\nindex %s..%s 100644\n" % (name, name, *ids) + head
        body = []
        shift = 0
        for piece in self.pieces:
            body.append(piece.text(shift, header=header))
            shift += piece.new_size - piece.size
        return head + b"".join(body)


def blob(data: bytes) -> bytes:
    """Return git's name for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest().encode()  # noqa: S324


def pieces(diff: bytes) -> tuple[Piece, ...]:
    """Take the diff of one file apart."""
    found: list[tuple[re.Match[bytes], list[bytes]]] = []
    for line in line_diff.split(diff):
        head = _HEAD.match(line)
        if head is not None:
            found.append((head, []))
        elif found:
            found[-1][1].append(line)
    return tuple(
        Piece(int(head[1]), int(head[2] or b"1"), int(head[4] or b"1"), head[5], b"".join(body))
        for head, body in found
    )


def applied(base: bytes, some: Sequence[Piece]) -> bytes:
    """Put hunks where they say they belong; the file is the one that they were made for."""
    lines = line_diff.split(base)
    out: list[bytes] = []
    at = 0
    for piece in some:
        start = piece.start - 1 if piece.size else piece.start
        out += lines[at:start]
        old: list[bytes] = []
        kind = b""
        for line in line_diff.split(piece.body):
            if line[:1] == b"\\":  # the line before it has no line end
                if kind != b"+":
                    old[-1] = old[-1][:-1]
                if kind != b"-":
                    out[-1] = out[-1][:-1]
                continue
            kind = line[:1]
            if kind != b"+":
                old.append(line[1:])
            if kind != b"-":
                out.append(line[1:])
        assert tuple(old) == lines[start : start + piece.size]
        at = start + piece.size
    return b"".join([*out, *lines[at:]])


def changes(folder: str, ids: tuple[str, str], names: tuple[str, str]) -> list[Change]:
    """Return the files that changed from one release to another, all hunks to be replayed."""
    words = ("diff-tree", "-p", "--no-renames", "--diff-filter=M", *ids)
    said = git(folder, *words).stdout
    found = []
    for part in re.split(rb"^diff --git ", said, flags=re.MULTILINE)[1:]:
        path = re.search(rb"^\+\+\+ b/(.*)$", part, flags=re.MULTILINE)
        if path is None:  # the mode alone
            continue
        some = pieces(part)
        found.append(Change(path[1].decode(), *names, some, tuple(range(len(some))), undoes=False))
    return found


def chosen(
    everything: Sequence[Change], wanted: int, edges_wanted: int | None, seed: int
) -> list[Change]:
    """Take whole changes at random until there are enough hunks, then the edge hunks of others, all or so many."""
    order = random.Random(seed).sample(range(len(everything)), len(everything))
    found = []
    for number in order:
        change = everything[number]
        if wanted > 0:
            wanted -= len(change.hunks)
            found.append(change)
        elif edges_wanted is not None and edges_wanted <= 0:
            break
        elif edges := tuple(n for n in change.hunks if change.pieces[n].is_edge):
            found.append(change._replace(hunks=edges))
            edges_wanted = None if edges_wanted is None else edges_wanted - len(edges)
    return found


def mods(change: Change, base: bytes) -> list[Made]:
    """Make the mods; a hunk that by itself leaves what is no Python is none."""
    groups: list[tuple[int | None, tuple[Piece, ...]]] = [
        (number, (change.pieces[number],)) for number in change.hunks
    ]
    groups += [(None, change.pieces)] if len(change.pieces) > 1 else []
    found = []
    for number, some in groups:
        result = applied(base, some)
        if number is None or outlined(result) is not None or outlined(base) is None:
            found.append(Made(number, some, base, result, any(one.is_edge for one in some)))
    return found


# --- the tools -------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a tool made of a file, None if it refused; ``is_in``: it says that the change is in already."""

    text: bytes | None
    words: str = ""
    is_in: bool = False


REFUSED = Answer(None)
CRASH = "crash:"


@dataclass(frozen=True)
class OneFile(Tree):
    """A released tree of one file."""

    path: str
    data: bytes
    version: str
    spec: str = "memory"
    remote: bool = False
    pristine: bool = True

    def read(self, path: str) -> bytes | None:
        return self.data if path == self.path else None

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return [self.path] if self.path.startswith(f"{under}/") else []

    def is_released(self, _path: str, _data: bytes) -> bool | None:
        return None


def a_mod(patch: bytes, version: str) -> Mod:
    variant = Variant("one", f"=={version}", patches=(PatchFile("one.patch", patch),))
    return Mod("replayed", "1.0.0", "", "", "replayed", "0" * 64, variants=(variant,))


def seen(mod: Mod, tree: OneFile, base: OneFile | None) -> Answer:
    """Plan a mod onto a file, with or without the tree it was made on. The one door to what is measured."""
    try:
        (done,) = planner.plan([mod], tree, origin=lambda _mod, _variant: base).mods
    except DiffError as error:
        return Answer(None, f"unreadable patch: {error.message}")
    except Exception as error:  # noqa: BLE001  (a bug is an answer that has to be counted)
        return Answer(None, f"{CRASH} {type(error).__name__}: {error}")
    said = "; ".join(f"{one.code}: {one.message}" for one in done.findings)
    proof = ", ".join(f"{one.line} by {one.proof}" for one in done.hunks)
    words = f"{done.verdict} [{proof}] {said}"
    if done.verdict.writes:
        after = next((one.after for one in done.changes if one.path == tree.path), tree.data)
        return Answer(after, words)
    return Answer(None, words, is_in=done.verdict.ok)


@functools.cache
def switch_fit_off() -> None:
    """Let no import that a tree of one file has not got decide a verdict."""
    asked = fit.fit
    fit.fit = lambda _changes, *words, **options: asked((), *words, **options)


class Cell(NamedTuple):
    """A mod on a file: the change that it is of, the release of the file, and how far away that is."""

    change: str
    made: Made
    target: bytes
    release: str
    distance: str


def by_git_apply(cells: Sequence[Cell], scratch: str) -> list[Answer]:
    """Apply each cell's patch to a file of its own, in one run: ``--reject`` goes on after a failure."""
    folder = filled(cells, scratch)
    patches = b"".join(cell.made.patch(f"{n}.py") for n, cell in enumerate(cells))
    said = git(folder, "apply", "--reject", "-v", "-", data=patches, env=alone(scratch)).stderr
    clean = {int(n) for n in re.findall(rb"^Applied patch (\d+)\.py cleanly", said, re.MULTILINE)}
    return [
        Answer(Path(folder, f"{n}.py").read_bytes()) if n in clean else REFUSED
        for n in range(len(cells))
    ]


def by_patch(cells: Sequence[Cell], scratch: str) -> list[Answer]:
    folder = filled(cells, scratch)
    patches = b"".join(cell.made.patch(f"{n}.py") for n, cell in enumerate(cells))
    said = subprocess.run(
        ["patch", "-p1", "-F0", "-f", "-r", "-", "--no-backup-if-mismatch"],
        cwd=folder,
        input=patches,
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    failed = set()
    at = -1
    for line in said.splitlines():
        if named := re.match(rb"patching file (\d+)\.py", line):
            at = int(named[1])
        elif b"FAILED" in line or b"malformed" in line:
            failed.add(at)
    assert at == len(cells) - 1, said
    return [
        REFUSED if n in failed else Answer(Path(folder, f"{n}.py").read_bytes())
        for n in range(len(cells))
    ]


def filled(cells: Sequence[Cell], scratch: str) -> str:
    folder = tempfile.mkdtemp(dir=scratch)
    for n, cell in enumerate(cells):
        Path(folder, f"{n}.py").write_bytes(cell.target)
    return folder


def alone(scratch: str) -> dict[str, str]:
    return {"GIT_CEILING_DIRECTORIES": scratch}


def by_three_way(cells: Sequence[Cell], scratch: str, objects: str) -> list[Answer]:
    """Apply each cell's patch to an index that has its file, in a repository that has all bases."""
    folder = tempfile.mkdtemp(dir=scratch)
    git(folder, "init", "-q", ".")
    Path(folder, ".git/objects/info/alternates").write_text(f"{objects}/objects\n")
    written: dict[bytes, bytes] = {}
    for cell in cells:  # what is no release's own: a base with one hunk put in
        written.setdefault(blob(cell.target), cell.target)
    for number, data in enumerate(written.values()):
        Path(folder, f"{number}").write_bytes(data)
    names = "".join(f"{number}\n" for number in range(len(written))).encode()
    git(folder, "hash-object", "-w", "--stdin-paths", "--no-filters", data=names)
    rows = b"".join(b"100644 %s\t%d.py\n" % (blob(c.target), n) for n, c in enumerate(cells))
    git(folder, "update-index", "--index-info", data=rows)
    patches = b"".join(cell.made.patch(f"{n}.py", index=True) for n, cell in enumerate(cells))
    done = git(folder, "apply", "--3way", "--cached", "-", data=patches)
    if done.returncode not in {0, 1} or b"error: " in done.stderr:
        if len(cells) == 1:
            return [REFUSED]
        half = len(cells) // 2  # one that git cannot even merge stops all
        return [
            *by_three_way(cells[:half], scratch, objects),
            *by_three_way(cells[half:], scratch, objects),
        ]
    staged = git(folder, "ls-files", "-s").stdout
    ids = {int(n): one for one, n in re.findall(rb"^\d+ (\w+) 0\t(\d+)\.py$", staged, re.MULTILINE)}
    texts = contents(folder, set(ids.values()))
    return [Answer(texts[ids[n]]) if n in ids else REFUSED for n in range(len(cells))]


def contents(folder: str, ids: set[bytes]) -> dict[bytes, bytes]:
    order = sorted(ids)
    data = git(folder, "cat-file", "--batch", data=b"\n".join(order) + b"\n").stdout
    found = {}
    at = 0
    for one in order:
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        found[one] = data[end + 1 : end + 1 + size]
        at = end + size + 2
    return found


# --- judging ---------------------------------------------------------------------------------


class Merges(NamedTuple):
    """The change merged into the target from its true base, in two ways; None for a clash."""

    by_git: bytes | None
    by_own: bytes | None

    @property
    def clean(self) -> set[bytes]:
        return {one for one in self if one is not None}


def merged(cell: Cell, scratch: str) -> Merges:
    base, result, target = cell.made.base, cell.made.result, cell.target
    if target == base:
        return Merges(result, result)
    for name, data in (("ours", target), ("base", base), ("theirs", result)):
        Path(scratch, name).write_bytes(data)
    words = ("merge-file", "-p", "-q", "ours", "base", "theirs")
    done = git(scratch, *words, env=alone(os.path.dirname(scratch)))
    assert done.returncode <= 127, done.stderr
    own = diff3.clean(diff3.merge(*map(line_diff.split, (base, result, target))))
    return Merges(done.stdout if done.returncode == 0 else None, own)


@functools.lru_cache(maxsize=16)
def outlined(data: bytes) -> outline.Outline | None:
    return outline.read(data)


def in_place(cell: Cell, after: bytes) -> bool:
    """Tell whether nothing but definitions that the change was written for differ."""
    sides = [outlined(one) for one in (cell.made.base, cell.made.result, cell.target, after)]
    if any(one is None for one in sides):
        return True  # nothing can be told of what is no Python
    base, result, target, other = (one for one in sides if one is not None)
    return set(structure.touched(target, other)) <= set(structure.touched(base, result))


def judged(answer: Answer, cell: Cell, merges: Merges) -> str:  # noqa: PLR0911
    """Say in two words what an answer is worth; the words are those of the docstring above."""
    target, clean = cell.target, merges.clean
    text = answer.text
    if answer.words.startswith(CRASH):
        return "wrong: crash"
    if text is None and not answer.is_in:
        agree = merges.by_git is not None and merges.by_git == merges.by_own
        if not agree:
            return "refused"
        return "refused, in" if merges.by_git == target else "refused, mergeable"
    if text is None or text == target:
        if clean and target not in clean:
            return "wrong: not in"
        return "in" if clean == {target} else "in, alone"
    if merges.by_git == merges.by_own == text:
        return "clean"
    if clean and text not in clean:
        return "wrong: twice" if clean == {target} else "wrong: bytes"
    if not in_place(cell, text):
        return "wrong: place"
    return "clean" if clean == {text} else "clean, alone"


# --- one change ------------------------------------------------------------------------------


class Told(NamedTuple):
    """What each tool made of one cell."""

    distance: str
    whole: bool
    is_edge: bool
    carried: bool
    judgements: dict[str, str]
    wrongs: list[dict[str, str]]
    spent: float


def cells_of(change: Change, trees: str, names: Sequence[str]) -> Iterator[Cell]:
    """Yield the cells of a change, those of one target behind each other."""
    base = read(trees, change.release, change.path)
    assert base is not None
    made = mods(change, base)
    if not made:
        return
    name = f"{change.release} to {change.other}, {change.path}"
    for one in made:
        yield Cell(name, one, base, change.release, "own base")
    for one in made:
        yield Cell(name, one, one.result, change.release, "own result")
    first, last = sorted(names.index(one) for one in (change.release, change.other))
    if change.undoes:
        far = [(last + step, f"undone, on {step}") for step in STEPS]
    else:
        far = [(first - step, f"back {step}") for step in STEPS]
        far += [(last + step, f"on {step}") for step in STEPS]
    for at, distance in far:
        target = read(trees, names[at], change.path) if 0 <= at < len(names) else None
        if target is not None:
            for one in made:
                yield Cell(name, one, target, names[at], distance)


def replay(trees: str, names: Sequence[str], objects: str, change: Change) -> list[Told]:
    switch_fit_off()
    cells = list(cells_of(change, trees, names))
    if not cells:
        return []
    base = OneFile(change.path, cells[0].target, change.release)
    found = []
    with tempfile.TemporaryDirectory(dir=shared_memory()) as scratch:
        others = {
            "git apply": by_git_apply(cells, scratch),
            "git apply --3way": by_three_way(cells, scratch, objects),
            "patch -F0": by_patch(cells, scratch),
        }
        os.mkdir(f"{scratch}/merge")
        for number, cell in enumerate(cells):
            merges = merged(cell, f"{scratch}/merge")
            tree = OneFile(change.path, cell.target, cell.release)
            answers = {name: told[number] for name, told in others.items()}
            start = time.process_time()
            for name, (index, header, at_hand) in OURS.items():
                patch = cell.made.patch(change.path, index=index, header=header)
                mod = a_mod(patch, change.release)
                answers[name] = seen(mod, tree, base if at_hand else None)
            spent = time.process_time() - start
            judgements = {name: judged(one, cell, merges) for name, one in answers.items()}
            wrongs = [
                {"tool": name, "judgement": judgements[name], **shown(cell, merges, answers[name])}
                for name in TOOLS
                if "wrong" in judgements[name]
                or (
                    name in OURS
                    and cell.distance.startswith("own")
                    and "refused" in judgements[name]
                )
            ]
            found.append(
                Told(
                    cell.distance,
                    cell.made.number is None or len(change.pieces) == 1,
                    cell.made.is_edge,
                    merges.by_git == cell.target and cell.distance.startswith("on "),
                    judgements,
                    wrongs,
                    spent,
                )
            )
    return found


def shared_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def shown(cell: Cell, merges: Merges, answer: Answer) -> dict[str, str]:
    """Return all that it takes to look at a wrong answer."""
    merge = next(iter(merges.clean), None)
    return {
        "change": cell.change,
        "hunk": "all" if cell.made.number is None else str(cell.made.number + 1),
        "edge": str(cell.made.is_edge),
        "target": f"{cell.release} ({cell.distance})",
        "words": answer.words,
        "patch": cell.made.patch("x.py").decode(errors="replace"),
        "did": short_diff(cell.target, answer.text),
        "merge does": "clash" if merge is None else short_diff(cell.target, merge),
    }


def short_diff(before: bytes, after: bytes | None) -> str:
    import difflib

    if after is None:
        return ""
    old, new = (one.decode(errors="replace").splitlines(True) for one in (before, after))
    return "".join(difflib.unified_diff(old, new))


# --- the whole -------------------------------------------------------------------------------


COLUMNS = ("clean", "in", "alone", "refused", "wrong")


def column(judgement: str) -> str:
    if judgement.endswith("alone"):
        return "alone"
    return re.split("[:,]", judgement)[0]


def table(tally: Counter[tuple[str, str, str]], distances: Iterable[str]) -> None:
    for distance in distances:
        total = sum(n for key, n in tally.items() if key[:2] == (distance, TOOLS[0]))
        print(f"\n{distance}: {total} cells")
        for tool in TOOLS:
            counts = {key[2]: n for key, n in tally.items() if key[:2] == (distance, tool)}
            sums: Counter[str] = Counter()
            for judgement, n in counts.items():
                sums[column(judgement)] += n
            row = "  ".join(f"{name} {sums[name]:6}" for name in COLUMNS)
            more = {
                name.partition(" ")[2]: counts[name]
                for name in sorted(counts)
                if name.startswith(("wrong", "refused,"))
            }
            told = ", ".join(f"{name} {n}" for name, n in more.items())
            print(f"  {tool:31} {row}  {told and f'({told})'}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", default=os.path.join(cache_folder(os.environ), "sources"))
    parser.add_argument(
        "--pairs", nargs="+", help="the older release of each pair to take (else all)"
    )
    parser.add_argument(
        "--sample", type=int, default=1500, help="about so many hunks, and edges of others"
    )
    parser.add_argument("--edges", type=int, help="so many hunks at an edge beside them (else all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--wrong", help="write each wrong answer to this file, a JSON object a line"
    )
    options = parser.parse_args()
    start = time.perf_counter()
    os.makedirs(options.trees, exist_ok=True)
    names = releases()
    for name in names:
        fetch(name, options.trees)
    pairs = [
        (old, new)
        for old, new in itertools.pairwise(names)
        if not options.pairs or old in options.pairs
    ]
    tally: Counter[tuple[str, str, str]] = Counter()
    edges: Counter[tuple[str, str, str]] = Counter()
    carried: Counter[str] = Counter()
    wrongs: list[dict[str, str]] = []
    spent = 0.0
    with (
        tempfile.TemporaryDirectory(dir=shared_memory()) as objects,
        ProcessPoolExecutor(options.jobs) as pool,
    ):
        needed = sorted({one for pair in pairs for one in pair}, key=Version)
        ids = repository(options.trees, needed, objects)
        everything = [
            change
            for old, new in pairs
            for change in (
                *changes(objects, (ids[old], ids[new]), (old, new)),
                *(
                    one._replace(undoes=True)
                    for one in changes(objects, (ids[new], ids[old]), (new, old))
                ),
            )
        ]
        todo = chosen(everything, options.sample, options.edges, options.seed)
        hunks = sum(len(change.hunks) for change in everything)
        taken = sum(len(change.hunks) for change in todo)
        at_edges = sum(change.pieces[n].is_edge for change in todo for n in change.hunks)
        print(
            f"{hunks} hunks of {len(everything)} changed files in {len(pairs)} pairs of releases, forth and undone; "
            f"{taken} of them replayed, {at_edges} at an edge of a file",
            flush=True,
        )
        work = functools.partial(replay, options.trees, names, objects)
        for some in pool.map(work, todo, chunksize=4):
            for told in some:
                for tool, judgement in told.judgements.items():
                    tally[told.distance, tool, judgement] += 1
                    if told.is_edge:
                        edges[told.distance, tool, judgement] += 1
                    if told.whole and told.carried:
                        carried[tool] += judgement.startswith("in")
                carried["all"] += told.whole and told.carried
                wrongs += told.wrongs
                spent += told.spent
    distances = list(dict.fromkeys(distance for distance, _, _ in tally))
    table(tally, distances)
    print("\n--- of these, the hunks at an edge and the files that have one ---")
    table(edges, distances)
    print(f"\ncarried, whole files: {carried['all']} that the merge finds in; seen as in by")
    for tool in TOOLS:
        share = carried[tool] / max(1, carried["all"])
        print(f"  {tool:31} {carried[tool]:6}  {share:.1%}")
    cells = sum(n for (_, tool, _), n in tally.items() if tool == TOOLS[0])
    seconds = time.perf_counter() - start
    print(
        f"\n{cells} cells; {1000 * spent / cells / len(OURS):.1f} ms of CPU a plan; {seconds:.0f} s"
    )
    if options.wrong:
        with open(options.wrong, "w") as file:
            file.writelines(json.dumps(one) + "\n" for one in wrongs)


if __name__ == "__main__":
    main()
