"""What is against a place although a hunk's text stands there and nowhere else. Pure."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter

from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.placing.candidates import at_edges, belongs_at_edge
from vllm_mods.placing.headers import definition_in
from vllm_mods.placing.resemblance import telling
from vllm_mods.placing.target import Target, matches

_SEVERAL = 2
_MOSTLY = 0.8
# Of a longer run half is enough: upstream rewrote the rest since.
_LONG = 6
_HALF = 0.5


def overlaps(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether what a hunk would leave stands where its text does, too."""
    other = hunk.reversed()
    places = matches(target.data, other.old) if other.old else ()
    first, end = line - len(other.old), line + len(hunk.old)
    return any(first < there < end and at_edges(other, target, there) for there in places)


def has_added(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether lines that a hunk adds stand already in the very block that it would add them to: most, or half of many.

    Upstream took the change and went on from there. One line says too little: others are often equal.
    """
    own = range(line, line + len(hunk.old))
    removed = {text.strip() for kind, text in hunk.lines if kind == "-"}
    for at, run in _added(hunk, line):
        texts = {text for _, text in telling(run)} - removed
        if len(texts) < _SEVERAL:
            continue
        indent = min(len(text) - len(text.lstrip()) for text in run if text.strip())
        blocks = [one for one in target.open_blocks(at - 1, indent) if one.kind != "table"]
        inside = range(blocks[-1].head, blocks[-1].end + 1) if blocks else ()
        enough = (_HALF if len(texts) >= _LONG else _MOSTLY) * len(texts)
        equal = [n for n in inside if n not in own and target.stripped[n - 1] in texts]
        for first in equal:
            near = {target.stripped[n - 1] for n in equal if first <= n < first + 2 * len(run)}
            if len(near) >= enough:
                return True
    return False


def repeats(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether lines that a hunk adds stand directly above or below the place already, and not in its own context.

    A hunk with little context fits beside upstream's own insertion of the same lines where these end as what is above
    them does, or begin as what is below.
    """
    own = range(line, line + len(hunk.old))
    for at, run in _added(hunk, line):
        texts = Counter(text for _, text in telling(run))
        for numbers in (range(at - 1, 0, -1), range(at, len(target.lines) + 1)):
            words = (n for n in numbers if telling([target.stripped[n - 1]]))
            equal = [n for n in islice(words, texts.total()) if target.stripped[n - 1] in texts]
            count = (Counter(target.stripped[n - 1] for n in equal) & texts).total()
            if count >= _MOSTLY * texts.total() and any(n not in own for n in equal):
                return True
    return False


def slides(back: Hunk) -> bool:
    """Tell whether what a hunk removed begins or ends as what is around it.

    What it kept then stands beside a removed text that became another one, too.
    """
    kinds = [kind for kind, _ in back.lines]
    if "-" in kinds or "+" not in kinds:
        return False
    first, last = kinds.index("+"), len(kinds) - 1 - kinds[::-1].index("+")
    texts = [text for _, text in back.lines]
    before, removed, after = texts[:first], texts[first : last + 1], texts[last + 1 :]
    ends = bool(before) and removed[-len(before) :] == before
    return ends or (bool(after) and removed[: len(after)] == after)


def leaves_blanks(back: Hunk) -> bool:
    """Tell whether a hunk leaves blank lines alone: of these nobody can say that what was between them is gone."""
    return not any(text.strip() for text in back.old) and not belongs_at_edge(back)


def is_left(back: Hunk, file: FileDiff, target: Target, line: int) -> bool:
    """Tell whether what a hunk removed is in the target, in a form or at a place of its own."""
    return (
        still_there(back, target, line)
        or _moved(back, file, target, line)
        or _partly_there(back, target, line)
    )


def still_there(back: Hunk, target: Target, line: int) -> bool:
    """Tell whether a class or function that a hunk removed, and did not put back, is in its place."""
    if target.scopes is None:
        return False
    kept = {definition_in(text) for kind, text in back.lines if kind == "-"}
    around = target.scopes.at(line).split(".")
    homes = {".".join(around[:n]) for n in range(len(around) + 1)}
    for kind, text in back.lines:
        shown = definition_in(text)
        if kind != "+" or shown is None or shown in kept:
            continue
        name = shown.split()[-1]
        inner = text[:1].isspace()
        for scope in target.scopes.definitions:
            home, _, last = scope.name.rpartition(".")
            if last == name and (home in homes if inner else not home):
                return True
    return False


def _moved(back: Hunk, file: FileDiff, target: Target, line: int) -> bool:
    """Tell whether lines that a hunk removed, and no hunk put back, stand elsewhere in the same scope.

    What was around them stands together in a file that only moved them, too.
    """
    put = b"".join(_end(text) for hunk in file.hunks for kind, text in hunk.lines if kind == "-")
    own = range(line, line + len(back.old))
    for at, removed in _removed(back, line):
        if b"".join(removed) in put:
            continue
        around = {target.home(max(at - 1, 1)), target.home(at)}
        others = (one for one in matches(_end(target.data), removed) if one not in own)
        if any(not removed[0][:1].isspace() or target.home(one) in around for one in others):
            return True
    return False


def _partly_there(back: Hunk, target: Target, line: int) -> bool:
    """Tell whether half of the lines that a hunk removed stand around the place that it removed them from.

    Upstream has other code in between by now, or had not written the rest yet.
    """
    own = range(line, line + len(back.old))
    for at, removed in _removed(back, line):
        texts = {text for _, text in telling(removed)}
        near = range(max(1, at - len(removed)), min(len(target.lines), at + len(removed)) + 1)
        around = {target.stripped[n - 1] for n in near if n not in own}
        if texts and 2 * len(texts & around) >= len(texts):
            return True
    return False


def _added(hunk: Hunk, line: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield each run of lines that a hunk at ``line`` adds, and the line that it goes in above."""
    for kind, group in groupby(hunk.lines, key=itemgetter(0)):
        run = [text for _, text in group]
        if kind == "+":
            yield line, run
        else:
            line += len(run)


def _removed(back: Hunk, line: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield what a hunk, now at ``line``, removed without putting anything in its place, and where that was."""
    for kept, group in groupby(back.lines, key=lambda one: one[0] == " "):
        run = list(group)
        if not kept and {kind for kind, _ in run} == {"+"}:
            rows = [i for i, (_, text) in enumerate(run) if text.strip()]
            yield line, [_end(text) for _, text in run[rows[0] : rows[-1] + 1]] if rows else []
        line += sum(kind != "+" for kind, _ in run)


def _end(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def fault(hunk: Hunk, target: Target, line: int) -> str | None:
    """Say what is wrong with the definitions around and inside a hunk at a line, if anything.

    Asked of the place that is left: one that is none by this leaves no other the only one.
    """
    if target.scopes is None:
        return None
    for number, text in enumerate(hunk.old, line):
        shown = definition_in(text)
        if shown and number not in target.heads:
            return f"`{shown}` is text in a string at line {number}, not a definition"
    for kind, _ in hunk.lines:
        if kind != " ":
            # a line that is removed, and those around one that is added
            first, last = line - (kind == "+"), line
            for scope in target.scopes.definitions:
                if not scope.live and scope.start <= first and last <= scope.end:
                    return f"its text is in `{scope.name}` (line {scope.head}), a definition that a later statement replaces"
        line += kind != "+"
    return None
