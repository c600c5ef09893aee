"""Replay upstream's own changes as mods, and port them to other releases, beside patch and git apply.

    python benchmarks/port_replay.py --trees FOLDER [--changes N] [--seed S] [--jobs N]

FOLDER has extracted sources of vLLM, a folder for each release. A change is what one function became
from one release to the next. As a mod on the older of the two it is ported one, two and four
releases back; taken out again, as a mod on the newer one, it is ported one, two and four releases on.
(The other way round the target would have the change already.)

Told for each way to port: **clean**, **refused**, and **wrong**: another function than the one meant was
changed, or the result is another than that of a clean three-way merge of the file. Cases of which the
target has not got the file or the function are told apart: there nothing but a move can be right.
At last siblings are shuffled or doubled on purpose: refuse, or land right.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import random
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.model import FileChange
from vllm_mods.formats import diff_writer
from vllm_mods.port import files, follow, outline, structure, text, textual
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_mods.port.outline import Outline

STEPS = (1, 2, 4)


class Change(NamedTuple):
    """A function of a file that is another one in the release ``other``."""

    path: str
    function: str
    release: str
    other: str


class Case(NamedTuple):
    """A change as a mod on ``change.release``, to be ported to the release ``to``, ``step`` away."""

    change: Change
    to: str
    step: int


def functions(one: Outline, scope: str = "") -> Iterator[tuple[str, Outline]]:
    """Yield the definitions that hold no other, by their chain of keys."""
    for inner in one.inner:
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


def changes(trees: str, release: str, other: str) -> list[Change]:
    """Return what changed from a release to the next, one function each."""
    found = []
    for file in sorted(Path(trees, release, "vllm").rglob("*.py")):
        path = str(file.relative_to(Path(trees, release)))
        before, after = file.read_bytes(), read(trees, other, path)
        if after is None or before == after:
            continue
        old, new = outline.read(before), outline.read(after)
        if old is None or new is None:
            continue
        ends = dict(functions(new))
        found += [
            Change(path, chain, release, other)
            for chain, one in functions(old)
            if chain in ends and ends[chain].lines != one.lines
        ]
    return found


def cases(
    pool: ProcessPoolExecutor, trees: str, releases: Sequence[str], wanted: int, seed: int
) -> list[Case]:
    everything = []
    found = pool.map(functools.partial(changes, trees), releases[:-1], releases[1:])
    for i, (release, other, some) in enumerate(zip(releases, releases[1:], found, strict=False)):
        for change in some:
            back = change._replace(release=other, other=release)
            everything.append(
                [
                    *(Case(change, releases[i - n], -n) for n in STEPS if i >= n),
                    *(
                        Case(back, releases[i + 1 + n], n)
                        for n in STEPS
                        if i + 1 + n < len(releases)
                    ),
                ]
            )
    chosen = random.Random(seed).sample(everything, min(wanted, len(everything)))
    print(f"{len(everything)} changes in {len(releases)} releases, {len(chosen)} of them replayed")
    return [case for group in chosen for case in group]


def with_function(data: bytes, function: str, lines: Sequence[bytes]) -> bytes:
    one = dict(functions(outline.read(data)))[function]  # type: ignore[arg-type]
    text_ = line_diff.split(data)
    return b"".join([*text_[: one.start - 1], *lines, *text_[one.end :]])


def in_place(base: bytes, before: bytes, after: bytes, function: str) -> bool:
    """Tell whether nothing but one function, and what is in it, differs.

    Where the target has not got it under its name, one that the base has not got counts as it, if
    half of it is the same.
    """
    sides = [outline.read(one) for one in (base, before, after)]
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


def ours(base: bytes, mod: bytes, target: bytes, _path: str) -> bytes | None:
    return text.port(base, mod, target, python=True).text


def by_patch(base: bytes, mod: bytes, target: bytes, path: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.py")
        file.write_bytes(target)
        done = subprocess.run(
            ["patch", "-s", "--no-backup-if-mismatch", "-r", "-", str(file)],
            input=diff_writer.file_diff(path, base, mod),
            capture_output=True,
            check=False,
        )
        return file.read_bytes() if done.returncode == 0 else None


def by_git(
    base: bytes, mod: bytes, target: bytes, _path: str, *, three_way: bool = False
) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:

        def git(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                ["git", *words], cwd=folder, input=data, capture_output=True, check=False
            )

        file = Path(folder, "x.py")
        file.write_bytes(target)
        patch = diff_writer.file_diff("x.py", base, mod)
        if three_way:
            git("init", "-q")
            old, new = (
                git("hash-object", "-w", "--stdin", data=one).stdout.decode().strip()
                for one in (base, mod)
            )
            head, _, rest = patch.partition(b"\n")
            patch = head + f"\nindex {old}..{new} 100644\n".encode() + rest
            git("add", "x.py")
        done = git("apply", *(["--3way"] if three_way else []), "-", data=patch)
        return file.read_bytes() if done.returncode == 0 else None


WAYS: dict[str, Callable[[bytes, bytes, bytes, str], bytes | None]] = {
    "vllm-mods port": ours,
    "patch": by_patch,
    "git apply": by_git,
    "git apply --3way": functools.partial(by_git, three_way=True),
}


def judged(
    result: bytes | None, base: bytes, target: bytes, merged: bytes | None, meant: str
) -> str:
    if result is None:
        return "refused"
    if result == target:
        return "wrong: nothing" if merged not in {None, target} else "clean"
    if not in_place(base, target, result, meant):
        return "wrong: place"
    return "wrong: result" if merged is not None and result != merged else "clean"


def replay(trees: str, case: Case) -> tuple[str, dict[str, tuple[str, float]]]:
    """Port one case in every way; return its kind and per way the judgement and the seconds."""
    change = case.change
    base, source = read(trees, change.release, change.path), read(trees, change.other, change.path)
    target = read(trees, case.to, change.path)
    assert base is not None
    assert source is not None
    new = dict(functions(outline.read(source)))[change.function]  # type: ignore[arg-type]
    mod = with_function(base, change.function, new.lines)
    if outline.read(mod) is None:
        return "no mod: in its old place the function is no Python", {}
    if target is None:
        return "file gone", elsewhere(trees, case, base, mod)
    there = outline.read(target)
    if there is None or change.function not in dict(functions(there)):
        kind = "function gone"
    else:
        kind = "function there"
    if kind == "function there" and dict(functions(there))[change.function].lines == new.lines:  # type: ignore[arg-type]
        return "carried", {}
    return kind, in_every_way(base, mod, target, change)


def in_every_way(
    base: bytes, mod: bytes, target: bytes, change: Change
) -> dict[str, tuple[str, float]]:
    merged = diff3.clean(textual.merge(*map(line_diff.split, (base, mod, target))))
    results = {}
    for name, way in WAYS.items():
        start = time.perf_counter()
        result = way(base, mod, target, change.path)
        spent = time.perf_counter() - start
        judgement = judged(result, base, target, merged, change.function)
        if target == base and result == mod:
            judgement = "clean"  # a change that moves what is around the function, too
        results[name] = (judgement, spent)
    return results


def elsewhere(trees: str, case: Case, base: bytes, mod: bytes) -> dict[str, tuple[str, float]]:
    """Follow a file that the target has not got; nothing else does."""
    start = time.perf_counter()
    change = FileChange(path=case.change.path, before=base, after=mod)
    (done,) = files.port([change], open_tree(f"{trees}/{case.to}"))
    judgement = "refused"
    if done.ported.text is not None and done.before is not None:
        judgement = judged(done.ported.text, base, done.before, None, case.change.function)
    found = dict.fromkeys(WAYS, ("refused", 0.0))
    return {**found, "vllm-mods port": (judgement, time.perf_counter() - start)}


def siblings(trees: str, case: Case, shuffle: int) -> tuple[str, dict[str, tuple[str, float]]]:
    """Put the definitions around a function into another order, or a second one behind it."""
    change = case.change
    base, source = read(trees, change.release, change.path), read(trees, change.other, change.path)
    assert base is not None
    assert source is not None
    new = dict(functions(outline.read(source)))[change.function]  # type: ignore[arg-type]
    mod = with_function(base, change.function, new.lines)
    if outline.read(mod) is None:
        return "no mod: in its old place the function is no Python", {}
    draw = random.Random(shuffle)
    text_ = line_diff.split(base)
    one = dict(functions(outline.read(base)))[change.function]  # type: ignore[arg-type]
    if shuffle % 2:
        twin = text_[one.start - 1 : one.end]
        target = b"".join([*text_[: one.end], b"\n", *twin, *text_[one.end :]])
        return "doubled", in_every_way(base, mod, target, change)
    whole = outline.read(base)
    assert whole is not None
    around = whole
    for key in change.function.split("::")[:-1]:
        around = next(inner for inner in around.inner if inner.key == key)
    blocks = [text_[inner.start - 1 : inner.end] for inner in around.inner]
    order = draw.sample(blocks, len(blocks))
    pieces: list[bytes] = []
    at = 0
    for inner, block in zip(around.inner, order, strict=True):
        pieces += [*text_[at : inner.start - 1], *block]
        at = inner.end
    target = b"".join([*pieces, *text_[at:]])
    if outline.read(target) is None:
        return "no target: in that order the file is no Python", {}
    return "shuffled", in_every_way(base, mod, target, change)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", required=True)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    found = (one.name for one in Path(options.trees).iterdir() if (one / "vllm").is_dir())
    releases = sorted(found, key=Version)
    tally: Counter[tuple[str, str, str]] = Counter()
    spent = dict.fromkeys(WAYS, 0.0)
    with ProcessPoolExecutor(options.jobs) as pool:
        todo = cases(pool, options.trees, releases, options.changes, options.seed)
        replayed = pool.map(functools.partial(replay, options.trees), todo, chunksize=8)
        turned = list({case.change: case for case in todo}.values())
        mixed = pool.map(
            functools.partial(siblings, options.trees), turned, range(len(turned)), chunksize=8
        )
        for case, (kind, results) in itertools.chain(
            zip(todo, replayed, strict=True), zip(turned, mixed, strict=True)
        ):
            tally[kind, "", ""] += 1
            for name, (judgement, seconds) in results.items():
                tally[kind, name, judgement] += 1
                spent[name] += seconds
                if (
                    options.show
                    and name == "vllm-mods port"
                    and (
                        (judgement != "clean" and results["git apply --3way"][0] == "clean")
                        or "wrong" in judgement
                    )
                ):
                    print(judgement, case)
    for kind in dict.fromkeys(kind for kind, _, _ in tally):
        print(f"\n{kind}: {tally[kind, '', '']} cases")
        for name in WAYS:
            counts = {key[2]: n for key, n in tally.items() if key[:2] == (kind, name)}
            if counts:
                wrong = sum(n for what, n in counts.items() if what.startswith("wrong"))
                print(
                    f"  {name:18} clean {counts.get('clean', 0):6}  refused {counts.get('refused', 0):6}  wrong {wrong:5}  { ({k: v for k, v in counts.items() if 'wrong' in k}) }"
                )
    print({name: round(seconds, 1) for name, seconds in spent.items()})


if __name__ == "__main__":
    main()
