"""Replay upstream's own changes as mods, and port them to other releases, beside patch and git.

    python benchmarks/port_replay.py --trees FOLDER [--changes N] [--seed S] [--jobs N] [--record FILE]

FOLDER has extracted sources of vLLM, a folder for each release. A change is what one function became
from one release to the next. As a mod on the older of the two it is ported one, two and four
releases back; taken out again, as a mod on the newer one, it is ported one, two and four releases on.
Every change that a release N.1 made is ported back, as a fix is.

What upstream has after both changes is known in two kinds of cases, and has to come out:

* **carried**: a change, or its removal, ported to a release that has it already and changed the function since;
* **halves**: of the edits that make up a change some are the mod, the others are in the target.

Told for each way to port: **clean**, **refused**, and **wrong**: another function than the one meant was
changed; or the result is another than upstream's; or, where upstream's is not known, another than that of a
clean merge of ``git merge-file``; or, where that clashes, other words came and went than those of the mod.
**order** is told apart: upstream's lines in another order. In cases of which the target has not got the file
or the function nothing but a move can be right. At last siblings are shuffled or doubled on purpose: refuse, or land right.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import io
import json
import os
import random
import re
import subprocess
import tempfile
import time
import tokenize
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.model import FileChange
from vllm_mods.formats import diff_writer, syntax_tree
from vllm_mods.porting import files, follow, outline, structure, text, textual
from vllm_mods.porting.outline import Outline
from vllm_mods.trees.open import open_tree

STEPS = (1, 2, 4)
OURS, MERGE_FILE = "vllm-mods port", "git merge-file"


class Case(NamedTuple):
    """A change of a function between two releases, as a mod on ``release`` to be ported to ``to``."""

    row: str
    path: str
    function: str
    release: str
    other: str
    to: str
    seed: int


class Sides(NamedTuple):
    """A case's texts; ``truth`` is what upstream has after both changes, where it is known."""

    base: bytes
    mod: bytes
    target: bytes
    truth: bytes | None = None


@functools.lru_cache(maxsize=64)  # a file is ported to many releases, change by change
def outlined(data: bytes) -> Outline | None:
    return outline.read(data)


def functions(one: Outline | None, scope: str = "") -> Iterator[tuple[str, Outline]]:
    """Yield the definitions that hold no other, by their chain of keys."""
    for inner in one.inner if one is not None else ():
        chain = f"{scope}::{inner.key}" if scope else inner.key
        if inner.inner:
            yield from functions(inner, chain)
        else:
            yield chain, inner


@functools.lru_cache(maxsize=64)
def read(trees: str, release: str, path: str) -> bytes | None:
    try:
        return Path(trees, release, path).read_bytes()
    except FileNotFoundError:
        return None


# --- which cases


def changed_files(trees: str, release: str, other: str) -> list[str]:
    root = Path(trees, release)
    paths = (str(file.relative_to(root)) for file in sorted(root.glob("vllm/**/*.py")))
    return [
        one for one in paths if read(trees, other, one) not in {None, read(trees, release, one)}
    ]


def changed_functions(trees: str, release: str, other: str, path: str) -> list[str]:
    old, new = (outlined(read(trees, one, path) or b"") for one in (release, other))
    ends = dict(functions(new))
    return [
        chain for chain, one in functions(old) if chain in ends and ends[chain].lines != one.lines
    ]


def cases_of(releases: Sequence[str], i: int, path: str, function: str, seed: int) -> list[Case]:
    """Return the cases of one change, made by the release after number ``i``."""
    old, new = releases[i], releases[i + 1]
    patch = Version(new).micro > 0
    found = [
        Case(f"{'N.1 back' if patch else 'back'} {n}", path, function, old, new, releases[i - n], 0)
        for n in STEPS
        if i >= n
    ]
    later = [n for n in STEPS if i + 1 + n < len(releases)]
    if not patch:
        found += [Case(f"on {n}", path, function, new, old, releases[i + 1 + n], 0) for n in later]
    found += [Case("carried", path, function, old, new, releases[i + 1 + n], 0) for n in later]
    return [*found, *(Case("halves", path, function, old, new, new, seed + k) for k in range(2))]


def cases(trees: str, releases: Sequence[str], wanted: int, seed: int) -> list[Case]:
    """Draw changed files, and of each its changes, until there are enough; all of those of the releases N.1."""
    draw = random.Random(seed)
    pairs = range(len(releases) - 1)
    changed = [(i, path) for i in pairs for path in changed_files(trees, *releases[i : i + 2])]
    draw.shuffle(changed)
    fixes = [one for one in changed if Version(releases[one[0] + 1]).micro]
    found: list[Case] = []
    count = 0
    for n, (i, path) in enumerate([*fixes, *(one for one in changed if one not in fixes)]):
        if n >= len(fixes) and count >= wanted:
            break
        for function in changed_functions(trees, releases[i], releases[i + 1], path):
            found += cases_of(releases, i, path, function, draw.randrange(10**6))
            count += n >= len(fixes)
    for case in random.Random(seed).sample(found, len(found) // 12):
        found.append(
            case._replace(row=draw.choice(["shuffled", "doubled"]), seed=draw.randrange(10**6))
        )
    return found


# --- the texts of a case


def with_function(data: bytes, function: str, lines: Sequence[bytes]) -> bytes:
    one = dict(functions(outlined(data)))[function]
    text_ = line_diff.split(data)
    return b"".join([*text_[: one.start - 1], *lines, *text_[one.end :]])


def sides_of(  # noqa: PLR0911 - one answer per kind of case
    trees: str, case: Case
) -> tuple[str, Sides | None]:
    """Return the kind of a case and its texts, None where there is nothing to port."""
    base, source = (read(trees, one, case.path) or b"" for one in (case.release, case.other))
    new = dict(functions(outlined(source)))[case.function]
    mod = with_function(base, case.function, new.lines)
    if outlined(mod) is None:
        return "no mod: in its old place the function is no Python", None
    if case.row == "halves":
        return halves(base, source, case)
    target = base if case.row in {"shuffled", "doubled"} else read(trees, case.to, case.path)
    if target is None:
        return "file gone", Sides(base, mod, b"")
    if case.row in {"shuffled", "doubled"}:
        turned = (doubled if case.row == "doubled" else shuffled)(base, case)
        kind = case.row if outlined(turned) is not None else "no target: shuffled, it is no Python"
        return kind, Sides(base, mod, turned)
    there = dict(functions(outlined(target)))
    if case.function not in there:
        return "function gone", Sides(base, mod, target)
    if case.row == "carried":
        old = dict(functions(outlined(base)))[case.function]
        kept = still_there(old.lines, new.lines, there[case.function].lines)
        kind = "carried" if kept else "carried, as it was or taken back"
        return kind, Sides(base, mod, target, target) if kept else None
    if there[case.function].lines == new.lines:
        return "the target has it", None
    return case.row, Sides(base, mod, target)


def still_there(old: Sequence[bytes], new: Sequence[bytes], since: Sequence[bytes]) -> bool:
    """Tell whether a function that has changed since still has all of a change."""
    before, after, now = Counter(old), Counter(new), Counter(since)
    gone = before - after
    return (
        since != new
        and not (after - before) - now
        and all(now[line] <= after[line] for line in gone)
    )


def halves(base: bytes, source: bytes, case: Case) -> tuple[str, Sides | None]:
    """Give some of the edits that make up a change to the mod, and the others to the target."""
    draw = random.Random(case.seed)
    old, new = (list(dict(functions(outlined(one)))[case.function].lines) for one in (base, source))
    edits: list[tuple[int, int, int, int]] = []
    for i, j, k, m in line_diff.changes(old, new):
        at = draw.randint(1, m - k - 1) if m - k > 1 and j - i in {0, m - k} else 0
        cut = min(j, i + at)
        edits += [(i, cut, k, k + at), (cut, j, k + at, m)] if at else [(i, j, k, m)]
    chosen = [draw.random() < 0.5 for _ in edits]
    if len(set(chosen)) < 2:
        return "halves: of one edit", None

    def made(*, mine: bool) -> bytes:
        out: list[bytes] = []
        at = 0
        for (i, j, k, m), is_mine in zip(edits, chosen, strict=True):
            out += [*old[at:i], *(new[k:m] if is_mine == mine else old[i:j])]
            at = j
        return with_function(base if mine else source, case.function, [*out, *old[at:]])

    mod, target = made(mine=True), made(mine=False)
    if syntax_tree.module(mod) is None or syntax_tree.module(target) is None:
        return "halves: one is no Python", None
    return "halves", Sides(base, mod, target, source)


def doubled(base: bytes, case: Case) -> bytes:
    """Put a second one of its name behind the function."""
    text_ = line_diff.split(base)
    one = dict(functions(outlined(base)))[case.function]
    twin = text_[one.start - 1 : one.end]
    return b"".join([*text_[: one.end], b"\n", *twin, *text_[one.end :]])


def shuffled(base: bytes, case: Case) -> bytes:
    """Put the definitions around a function into another order."""
    text_ = line_diff.split(base)
    around = outlined(base)
    assert around is not None
    for key in case.function.split("::")[:-1]:
        around = next(inner for inner in around.inner if inner.key == key)
    blocks = [text_[inner.start - 1 : inner.end] for inner in around.inner]
    pieces: list[bytes] = []
    at = 0
    for inner, block in zip(
        around.inner, random.Random(case.seed).sample(blocks, len(blocks)), strict=True
    ):
        pieces += [*text_[at : inner.start - 1], *block]
        at = inner.end
    return b"".join([*pieces, *text_[at:]])


# --- the ways


textual.merge = functools.lru_cache(maxsize=8)(
    textual.merge
)  # ours asks for the same merge of the file


def ours(one: Sides) -> bytes | None:
    return text.port(one.base, one.mod, one.target, python=True).text


def run(*command: str, cwd: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=cwd, input=data, capture_output=True, check=False)


def by_patch(one: Sides) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.py")
        file.write_bytes(one.target)
        diff = diff_writer.file_diff("x.py", one.base, one.mod)
        command = ["patch", "-s", "--no-backup-if-mismatch", "-r", "-", str(file)]
        done = run(*command, cwd=folder, data=diff)
        return file.read_bytes() if done.returncode == 0 else None


@functools.cache
def repository() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    run("git", "init", "-q", cwd=folder.name)
    return folder


def stored(folder: str, data: bytes) -> str:
    """Put a text into a repository, as ``git hash-object -w`` does, which takes a process."""
    whole = b"blob %d\0%b" % (len(data), data)
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    file = Path(folder, ".git", "objects", name[:2], name[2:])
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(zlib.compress(whole, 1))
    return name


def by_git(one: Sides, *, three_way: bool = False) -> bytes | None:
    folder = repository().name
    file = Path(folder, "x.py")
    file.write_bytes(one.target)
    patch = diff_writer.file_diff("x.py", one.base, one.mod)
    if three_way:
        old, new = (stored(folder, data) for data in (one.base, one.mod))
        head, _, rest = patch.partition(b"\n")
        patch = head + f"\nindex {old}..{new} 100644\n".encode() + rest
        run("git", "add", "-f", "x.py", cwd=folder)
    words = ["git", "apply", *(["--3way"] if three_way else []), "-"]
    done = run(*words, cwd=folder, data=patch)
    return file.read_bytes() if done.returncode == 0 else None


def by_merge_file(one: Sides) -> bytes | None:
    return diff3.clean(textual.merge(*map(line_diff.split, one[:3])))


WAYS: dict[str, Callable[[Sides], bytes | None]] = {
    OURS: ours,
    "patch": by_patch,
    "git apply": by_git,
    "git apply --3way": functools.partial(by_git, three_way=True),
    MERGE_FILE: by_merge_file,
}

# --- the judge, which knows nothing of how ours merges


def in_place(base: bytes, before: bytes, after: bytes, function: str) -> bool:
    """Tell whether nothing but one function, and what is in it, differs.

    Where the target has not got it under its name, one that the base has not got counts as it, if
    half of it is the same.
    """
    sides = [outlined(one) for one in (base, before, after)]
    if any(one is None for one in sides):
        return False
    first, old, new = (one for one in sides if one is not None)
    meant = ".".join(key.split(" ")[0] for key in function.split("::"))
    lost = follow.definition(old, meant) is None
    mine = follow.definition(first, meant)

    def is_meant(scope: str) -> bool:
        if scope == meant or scope.startswith(f"{meant}."):
            return True
        other = follow.definition(old, scope) if lost else None
        if other is None or mine is None or follow.definition(first, scope) is not None:
            return False
        return follow.likeness(mine, other) >= 0.5

    return all(is_meant(scope) for scope in structure.touched(old, new))


_QUOTES = {'"""', "'''"}
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}


_WORD = re.compile(r"\"\"\"|'''|(?:(?!\"\"\"|''')\S)+")


@functools.lru_cache(maxsize=16)
def words(data: bytes) -> Counter[str]:
    """Count the words of a file, those of docstrings one by one, without layout, comments, brackets and commas."""
    found = tokenize.tokenize(io.BytesIO(data).readline)
    kept = (one.string for one in found if one.type not in _LAYOUT and one.string not in "(),")
    return Counter(
        word for one in kept for word in (_WORD.findall(one) if one[-3:] in _QUOTES else [one])
    )


def same_words(one: Sides, result: bytes) -> bool:
    """Tell whether what came and went is what the mod adds and takes, less what the target did itself."""
    base, mod, target, after = map(words, (one.base, one.mod, one.target, result))
    for there, less in ((after - target, mod - base), (target - after, base - mod)):
        if there - less:
            return False
    done = (target - base) + (base - target)
    return not ((mod - base) - (after - target) - done) and not (
        (base - mod) - (target - after) - done
    )


def said(data: bytes) -> str | None:
    """Return what a file says: in which order keywords and imported names stand is none of it."""
    try:
        module = syntax_tree.parse(data)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            node.keywords.sort(key=lambda one: one.arg or "")
        if isinstance(node, ast.ImportFrom):
            node.names.sort(key=lambda one: one.name)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = str(node.value.value).split()  # type: ignore[assignment]
    return ast.dump(module)


def judged(  # noqa: PLR0911 - one answer per judgement
    result: bytes | None, one: Sides, merged: bytes | None, meant: str
) -> str:
    if result is None:
        return "refused"
    if one.truth is not None:
        if result == one.truth or said(result) == said(one.truth):
            return "clean"
        return "order" if words(result) == words(one.truth) else "wrong: not upstream's"
    if one.target == one.base and result == one.mod:
        return "clean"  # a change that moves what is around the function, too
    if result == one.target:
        return "wrong: nothing" if merged not in {None, one.target} else "clean"
    if not in_place(one.base, one.target, result, meant):
        return "wrong: place"
    if merged is not None:
        return "clean" if result == merged else "wrong: not the merge"
    return "clean" if same_words(one, result) else "wrong: words"


def replay(trees: str, case: Case) -> tuple[str, dict[str, str], float]:
    """Port one case in every way; return its kind, the judgements, and the seconds of ours."""
    kind, one = sides_of(trees, case)
    if one is None or kind.startswith("no "):
        return kind, {}, 0.0
    if kind == "file gone":
        return kind, elsewhere(trees, case, one), 0.0
    start = time.process_time()
    results = {OURS: ours(one)}
    spent = time.process_time() - start
    results |= {name: way(one) for name, way in WAYS.items() if name != OURS}
    known: dict[bytes | None, str] = {}
    for result in results.values():
        if result not in known:
            known[result] = judged(result, one, results[MERGE_FILE], case.function)
    return kind, {name: known[result] for name, result in results.items()}, spent


def elsewhere(trees: str, case: Case, one: Sides) -> dict[str, str]:
    """Follow a file that the target has not got; nothing else does."""
    change = FileChange(path=case.path, before=one.base, after=one.mod)
    done = files.port(change, open_tree(f"{trees}/{case.to}"))
    judgement = "refused"
    if done.ported.text is not None and done.before is not None:
        there = one._replace(target=done.before)
        judgement = judged(done.ported.text, there, by_merge_file(there), case.function)
    return {**dict.fromkeys(WAYS, "refused"), OURS: judgement}


# --- the table


def rows(tally: Counter[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a row for each kind: of each way how many are clean, refused and wrong."""
    kinds = {kind: count for (kind, way, _), count in tally.items() if not way}
    last = ["halves", "carried", "function gone", "file gone", "shuffled", "doubled"]
    ported = sorted(kind for kind in kinds if kind.split(" ")[-1].isdigit())
    yield f"{'clean/refused/wrong':20}{'cases':>6}" + "".join(f"{name:>18}" for name in WAYS)
    for name, some in (
        *((kind, [kind]) for kind in ported),
        ("function there", ported),
        *((kind, [kind]) for kind in last if kind in kinds),
    ):
        cells = []
        for way in WAYS:
            counts: Counter[str] = Counter()
            for kind, its, judgement in tally:
                if kind in some and its == way:
                    counts[judgement.split(":")[0]] += tally[kind, its, judgement]
            shown = "/".join(str(counts[one]) for one in ("clean", "refused", "wrong"))
            cells.append(shown + (f"+{counts['order']}" if counts["order"] else ""))
        yield f"{name:20}{sum(kinds[one] for one in some):6}" + "".join(
            f"{one:>18}" for one in cells
        )
    left = (f"{kind} {count}" for kind, count in kinds.items() if kind not in {*ported, *last})
    yield f"left out: {', '.join(left)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", required=True)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", help="write each case with its judgements, as JSON lines")
    options = parser.parse_args()
    found = (one.name for one in Path(options.trees).iterdir() if (one / "vllm").is_dir())
    releases = sorted(found, key=Version)
    todo = cases(options.trees, releases, options.changes, options.seed)
    print(f"{releases[0]} to {releases[-1]}, {len(todo)} cases drawn", flush=True)
    tally: Counter[tuple[str, str, str]] = Counter()
    seconds = []
    with ProcessPoolExecutor(options.jobs) as pool, open(options.record or os.devnull, "w") as log:
        done = pool.map(functools.partial(replay, options.trees), todo, chunksize=64)
        for case, (kind, judgements, spent) in zip(todo, done, strict=True):
            tally[kind, "", ""] += 1
            tally.update((kind, way, judgement) for way, judgement in judgements.items())
            seconds += [spent] if spent else []
            print(json.dumps([kind, case, judgements]), file=log, flush=True)
    print("\n".join(rows(tally)))
    print(f"{1000 * sum(seconds) / len(seconds):.0f} ms of CPU for a port, git's own not counted")
    for (kind, way, judgement), count in sorted(tally.items()):
        if "wrong" in judgement:
            print(f"  {kind}: {way}: {judgement}: {count}")


if __name__ == "__main__":
    main()
