"""Places in real releases that look alike, and patches written for one of two: what ``lookalike.py`` replays.

A site is a place of the older release and a patch for it whose text, in the newer release, stands in
another definition, branch or table (*its twin*), so that a tool that goes by text alone could take the twin. What encloses a line is read here with ``ast``, by itself: it is what the planner is held to.
"""

from __future__ import annotations

import itertools
import random
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import placing
from lookalike_places import (
    Edit,
    Places,
    changed_in,
    edited,
    grouped,
    home,
    places,
    shape,
    shown,
    window,
)

from vllm_mods.base import line_diff
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS = {
    "changed": "upstream changed the place and left its twin alone",
    "moved": "upstream moved the place to another class",
    "removed": "upstream removed the place",
    "carried": "upstream put its lines into something new",
    "alike": "upstream gave the twin the same lines",
    "reordered": "upstream changed their order",
    "shifted": "the twin stands where the place stood",
    "renamed": "the twin has got its name",
    "both": "both stand as they did",
    "fixed twin": "the twin has already what the patch brings",
    "upstream": "upstream's own change",
}
OTHERS = {
    "sglang": ("0.5.7", "0.5.8", "0.5.9", "0.5.10"),
    "transformers": ("5.0.0", "5.1.0", "5.2.0", "5.3.0"),
}
SHARES = {"vllm": 0.6, "sglang": 0.2, "transformers": 0.2}
# how many sites to take of a file; one in so many files gives one of a kind that is everywhere
PER_TWINS, PER_FILE = 2, 8
AT_MOST = {"both": 1, "fixed twin": 1, "upstream": 2}
ONE_IN = {"both": 3, "fixed twin": 2, "upstream": 6}
MOST_TRIES, LONG = 32, 3000
REWRITES = ("argument", "value", "remove")


# --- edits -----------------------------------------------------------------------------------


def draw(old: Places, at: int, chance: random.Random) -> tuple[str, Edit | None]:
    """Return a kind of small edit by chance, and the edit of a line, None where that kind does not go there."""
    line = old.lines[at]
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    word = b"mod_%d" % chance.randrange(1000)
    starts = at + 1 in old.statements
    inner = not starts or text.startswith((b"elif", b"else", b"except", b"case"))
    kind = chance.choice((*(("row", "row") if inner else ("call", "guard")), *REWRITES))
    if not text or text.startswith((b"#", b'"""', b"@")):
        return kind, None
    match kind:
        case "call":
            added = [b'logger.debug("%s")' % word]
        case "guard":
            added = [b"if %s is None:" % word, b"    raise ValueError(%s)" % word]
        case "row":
            added = [re.sub(rb"\w+", rb"\g<0>_" + word, text, count=1)]
        case "remove":
            added = []
        case "argument":
            added = [re.sub(rb"(\w\([^()]+)\)", rb"\1, %s=True)" % word, text, count=1)]
        case _:
            added = [re.sub(rb"\b(\d+|None|True|False|self\.\w+)\b", word, text, count=1)]
    if added == [text] or (kind == "row" and not text.endswith(b",")):
        return kind, None
    return kind, Edit(at, int(kind in REWRITES), tuple(indent + row + b"\n" for row in added))


# --- sites -----------------------------------------------------------------------------------


class Site(NamedTuple):
    """A patch for one place of two that look alike; ``context`` is that at which they do.

    ``edits`` are its hunks, in their order, of which that number ``main`` is at ``place``; ``twin_line`` is
    the index that it could be taken for, in the newer release.
    """

    kind: str
    edit_kind: str
    shape: str
    place: str
    twin: str
    context: int
    edits: tuple[Edit, ...]
    main: int = 0
    twin_line: int = -1


class Work(NamedTuple):
    """A file in two releases, and the sites in it; and some releases ``before`` and ``after``."""

    project: str
    old: str
    new: str
    path: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()


Candidate = tuple[int, int, int, Edit | None]
"""Lines of context, the indexes in the older and newer release, the edit where it is not by chance."""


class Sides(NamedTuple):
    """A file of both releases; ``stays`` has the lines that are in both, ``was`` the same from the newer one."""

    old: Places
    new: Places
    stays: dict[int, int]
    was: dict[int, int]

    @classmethod
    def read(cls, before: bytes, after: bytes) -> Sides | None:
        old, new = places(before), places(after)
        if old is None or new is None:
            return None
        pairs = line_diff.matching(old.lines, new.lines)
        return cls(old, new, dict(pairs), {j: i for i, j in pairs})

    def kind(self, i: int, j: int, matches: Sequence[int]) -> str:
        """Say what upstream did with the place at ``i``, whose text is at ``matches``, and at ``j`` in its twin."""
        place, twin = self.old.at(i), self.new.at(j)
        if not any(self.new.at(k) == place for k in matches):
            names = {home(chain)[-1:] for chain in self.new.spans}
            gone = "moved" if home(place)[-1:] in names else "removed"
            left = "changed" if self.new.has(home(place)) else gone
            return left if twin in self.old.spans else "carried"
        was = self.old.at(self.was[j]) if j in self.was else None
        if twin not in self.old.spans or (was not in {None, twin}):
            return "alike"
        before = self.old.spans[place] < self.old.spans[twin]
        if before != (self.new.spans[place] < self.new.spans[twin]):
            return "reordered"
        return "shifted" if i == j else "both" if was else "alike"

    def moved(self, edit: Edit) -> Edit | None:
        """Return an edit for the newer release, if the lines around it stand there as they did."""
        at = self.stays.get(edit.at if edit.removed else edit.at - 1)
        if at is None:
            return None
        by = at - (edit.at if edit.removed else edit.at - 1)
        lines = range(max(0, edit.at - 3), min(len(self.old.lines), edit.at + edit.removed + 3))
        stays = all(self.stays.get(line) == line + by for line in lines)
        return edit._replace(at=edit.at + by) if stays else None

    def got_name(self, i: int, j: int) -> bool:
        """Tell whether the text at ``j`` was in another definition, which is now called as that at ``i`` was."""
        was = self.old.at(self.was[j]) if j in self.was else self.old.at(i)
        return was != self.old.at(i) and not self.new.has(home(was))


def search(before: bytes, after: bytes, chance: random.Random) -> list[Site]:
    """Return some sites of a file that changed, of as many kinds as there are."""
    sides = Sides.read(before, after)
    if sides is None:
        return []
    left = {
        kind: chance.sample(some, len(some))
        for kind, some in candidates(sides).items()
        if not chance.randrange(ONE_IN.get(kind, 1))
    }
    tries = MOST_TRIES if len(sides.old.lines) < LONG else MOST_TRIES // 4
    drawn: Counter[str] = Counter()
    sites: list[Site] = []
    while left and tries > 0 and len(sites) < PER_FILE:
        for kind in sorted(left):
            context, i, j, edit = left[kind].pop()
            if not left[kind]:
                del left[kind]
            place, twin = shown(sides.old.at(i)), shown(sides.new.at(j))
            pair = f"{place} {twin}"
            edit_kind, edit = ("the twin's line", edit) if edit else draw(sides.old, i, chance)
            few = drawn[kind] < AT_MOST.get(kind, PER_FILE) and drawn[pair] < PER_TWINS
            if edit is None or not few:
                continue
            is_a = shape(sides.old.at(i))
            site = Site(kind, edit_kind, is_a, place, twin, context, (edit,), 0, j)
            if stands(sides, site):
                tries -= 1
                if is_whole(sides, site):
                    drawn.update((kind, pair))
                    sites.append(beside(sides, site, chance))
    return [*sites, *upstream(sides, chance)]


def beside(sides: Sides, site: Site, chance: random.Random) -> Site:
    """Give one site in three up to three more hunks, at places that stay, one maybe the same in the twin."""
    if chance.randrange(3) or site.kind == "fixed twin":
        return site
    old = sides.old
    main = site.edits[site.main]
    edits = [main]
    wanted = chance.randint(1, 3)
    if chance.random() < 0.3 and (i := sides.was.get(site.twin_line)) is not None:
        edits.append(main._replace(at=i))
    for _ in range(30):
        _, edit = draw(old, chance.randrange(len(old.lines)), chance)
        if len(edits) <= wanted and edit and sides.moved(edit):
            edits.append(edit)
    edits.sort()
    apart = all(b.at - a.at > 10 for a, b in itertools.pairwise(edits))
    result = places(edited(old.lines, edits)) if apart and len(edits) > 1 else None
    more = site._replace(edits=tuple(edits), main=edits.index(main))
    return site if result is None else more


def upstream(sides: Sides, chance: random.Random) -> Iterator[Site]:
    """Yield upstream's own hunks: those that could be put in twice or be seen in a twin first."""
    old, new = sides.old, sides.new
    context = chance.choice((1, 3))
    texts = b"".join(old.lines), b"".join(new.lines)
    groups = grouped(
        [Edit(i, j - i, new.lines[k:n]) for i, j, k, n in line_diff.changes(old.lines, new.lines)],
        context,
    )
    chance.shuffle(groups)
    looks = [(alike(texts, old, group, context), group) for group in groups]
    drawn = 0
    for look, group in sorted(looks, key=lambda pair: not pair[0])[:12]:
        if drawn == AT_MOST["upstream"] or (not look and chance.randrange(ONE_IN["upstream"])):
            break
        result = places(edited(old.lines, group))
        chains = sorted(changed_in(old, result)) if result else []
        if chains:  # else of blank lines alone
            drawn += 1
            place = " ".join(map(shown, chains))
            yield Site("upstream", "upstream", shape(chains[0]), place, look, context, tuple(group))


def alike(texts: tuple[bytes, bytes], old: Places, group: Sequence[Edit], context: int) -> str:
    """Say where else the text of upstream's hunk stands, if anywhere: what it is for, or what it leaves."""
    before, after = (window(old.lines, group, context, new=new) for new in (False, True))
    if before.strip() and before in texts[1]:
        return "its text is in the newer release"
    return "what it leaves is in the older release" if after in texts[0] else ""


def candidates(sides: Sides) -> dict[str, list[Candidate]]:
    """Return by kind the places of the older release whose text stands in another one of the newer."""
    old, new = sides.old, sides.new
    by_kind: dict[str, list[Candidate]] = defaultdict(list)
    for context, ahead in ((3, 3), (1, 2)):
        table = defaultdict(list)
        for j in range(context, len(new.lines) - ahead):
            table[new.lines[j - context : j + ahead]].append(j)
        for i in range(context, len(old.lines) - ahead):
            text = old.lines[i - context : i + ahead]
            matches = table.get(text, ())
            filled = sum(len(line.strip()) > 5 for line in text)
            if not 0 < len(matches) <= 12 or filled < context:
                continue
            for j in matches:
                if new.at(j) != old.at(i) and sides.stays.get(i) != j:
                    by_kind[sides.kind(i, j, matches)].append((context, i, j, None))
                elif new.at(j) == old.at(i) and sides.got_name(i, j):
                    by_kind["renamed"].append((context, i, j, None))
    by_kind["fixed twin"] = [*unlike(sides)]
    return {kind: some for kind, some in by_kind.items() if some}


def unlike(sides: Sides) -> Iterator[Candidate]:
    """Yield places that differ in a line from another one of the newer release, and the edit that gives them that."""
    old, new = sides.old, sides.new
    for removed, added in ((1, 1), (0, 1), (1, 0)):
        table: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
        for j in range(3, len(new.lines) - 3 - added):
            table[new.lines[j - 3 : j] + new.lines[j + added : j + added + 3]].append(j)
        for i in range(3, len(old.lines) - 3 - removed):
            key = old.lines[i - 3 : i] + old.lines[i + removed : i + removed + 3]
            for j in table.get(key, ())[:3]:
                put = new.lines[j : j + added]
                differs = put or old.lines[i : i + removed]
                near = {new.at(j - 1), new.at(j)}
                if old.at(i) in near or not near <= set(old.spans) or len(differs[0].strip()) < 6:
                    continue
                if put != old.lines[i : i + removed]:
                    yield 3, i, j, Edit(i, removed, put)


def stands(sides: Sides, site: Site) -> bool:
    """Tell whether the text of a site's patch, or what it leaves, stands in the twin."""
    new = site.kind == "fixed twin"
    text = window(sides.old.lines, [site.edits[site.main]], site.context, new=new)
    at = site.twin_line - site.context
    return b"".join(sides.new.lines[at : at + text.count(b"\n")]) == text


def is_whole(sides: Sides, site: Site) -> bool:
    """Tell whether a site's patch leaves Python, and changes its place alone."""
    after = places(edited(sides.old.lines, site.edits))
    return after is not None and set(map(shown, changed_in(sides.old, after))) == {site.place}


# --- the sources -----------------------------------------------------------------------------


def releases(trees: str) -> dict[str, list[str]]:
    """Put all releases below ``trees``; return their names by project, the oldest first."""
    names = {"vllm": placing.releases()}
    for name in names["vllm"]:
        placing.fetch(name, trees)
    for project, versions in OTHERS.items():
        names[project] = [f"{project}-{version}" for version in versions]
        for version in versions:
            fetch(project, version, trees)
    return names


def fetch(project: str, version: str, trees: str) -> None:
    """Put the Python files of another project's release below ``vllm/``: the planner changes no others."""
    name = f"{project}-{version}"
    if Path(trees, name).exists():
        return
    opened = Releases().of(project)
    sdist = f"{name}.tar.gz"
    has_sdist = any(file.filename == sdist for file in opened.files())
    archive = opened.archive(sdist if has_sdist else version)
    with tempfile.TemporaryDirectory(dir=trees) as scratch:
        for path in archive.names:
            inner = re.fullmatch(rf"(?:src/|python/)?({project}/.*\.py)", path)
            if inner and (data := archive.read(path)) is not None:
                file = Path(scratch, name, "vllm", inner[1])
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        Path(scratch, name).rename(Path(trees, name))
    print(f"{name}: read from the package index", flush=True)


def changed_files(
    trees: str, project: str, names: Sequence[str], only: Sequence[str]
) -> list[Work]:
    """Return the files that differ between two releases, neighbours or two apart."""
    works = []
    for old, new in (*itertools.pairwise(names), *zip(names, names[2:], strict=False)):
        if only and old not in only:
            continue
        first, last = names.index(old), names.index(new)
        before, after = tuple(names[max(0, first - 3) : first]), tuple(names[last + 1 : last + 4])
        for file in sorted(Path(trees, old).rglob("*.py")):
            path = file.relative_to(Path(trees, old)).as_posix()
            other = Path(trees, new, path)
            if other.exists() and other.read_bytes() != file.read_bytes():
                works.append(Work(project, old, new, path, before, after))
    return works


def find(trees: str, seed: int, work: Work) -> Work:
    """Return a work with its sites."""
    old, new = (placing.read(trees, name, work.path) for name in (work.old, work.new))
    chance = random.Random(f"{seed} {work.old} {work.new} {work.path}")
    return work._replace(sites=tuple(search(old or b"", new or b"", chance)))
