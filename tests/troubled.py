"""Files and changes that look for trouble: edges, text that stands twice, code in strings, doubled names.

A file is blocks (functions, classes, strings, assignments), each with a number of its own. A mod and an
upstream are operations on those numbers, so what the mod would have to make of upstream's file is known
wherever upstream left alone what the mod touches: ``Case.truths``. What text alone says is git's:
``merged`` is the three-way merge, ``by_git`` and ``by_patch`` what the usual tools do with the patch.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tempfile
from collections import Counter
from functools import cached_property
from itertools import combinations, count, groupby, islice, product
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from vllm_mods.base import line_diff
from vllm_mods.formats import diff
from vllm_mods.placing import target
from vllm_mods.placing.target import splice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PY = "vllm/x.py"
OTHER = "vllm/x.jinja"
_PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": "/nowhere"}


# --- files ------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A function, a method, or any lines that belong together."""

    number: int
    text: str


class Block(NamedTuple):
    """Parts below a ``head`` (``class A:``), or a single part below none."""

    number: int
    head: str
    parts: tuple[Part, ...]

    def text(self, gap: str) -> str:
        return self.head + (gap if self.head else "").join(part.text for part in self.parts)


class Text(NamedTuple):
    """A whole file."""

    blocks: tuple[Block, ...]
    gap: str
    final: bool = True
    crlf: bool = False

    def data(self) -> bytes:
        small = "\n" if self.gap else ""
        text = self.gap.join(block.text(small) for block in self.blocks)
        text = text if self.final else text.removesuffix("\n")
        return text.replace("\n", "\r\n" if self.crlf else "\n").encode()

    def having(self, blocks: Iterable[Block]) -> Text:
        return self._replace(blocks=tuple(block for block in blocks if block.parts))

    def part(self, number: int) -> Part | None:
        found = (part for block in self.blocks for part in block.parts if part.number == number)
        return next(found, None)


# --- operations -------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """``make``: what it makes of a file, nothing where it cannot be done, several where more than one is right.

    ``done`` tells whether a file is as if it had been done.
    """

    make: Callable[[Text], tuple[Text, ...]]
    done: Callable[[Text], bool]


def change(part: Part, new: str) -> Operation:
    def do(text: Text) -> tuple[Text, ...]:
        if text.part(part.number) != part:
            return ()
        return (
            text.having(
                block._replace(
                    parts=tuple(
                        one._replace(text=new) if one == part else one for one in block.parts
                    )
                )
                for block in text.blocks
            ),
        )

    def done(text: Text) -> bool:
        return text.part(part.number) == part._replace(text=new)

    return Operation(do, done)


def drop(parts: tuple[Part, ...]) -> Operation:
    def do(text: Text) -> tuple[Text, ...]:
        if any(text.part(part.number) != part for part in parts):
            return ()
        return (
            text.having(
                block._replace(parts=tuple(one for one in block.parts if one not in parts))
                for block in text.blocks
            ),
        )

    return Operation(do, lambda text: not any(text.part(part.number) for part in parts))


def insert(block: Block, above: int | None, below: int | None) -> Operation:
    """Put a block between two; None is the edge of the file."""

    def do(text: Text) -> tuple[Text, ...]:
        numbers = [one.number for one in text.blocks]
        places = {
            0 if above is None else numbers.index(above) + 1 if above in numbers else None,
            len(numbers) if below is None else numbers.index(below) if below in numbers else None,
        }
        return tuple(
            text.having((*text.blocks[:at], block, *text.blocks[at:]))
            for at in places
            if at is not None
        )

    def done(text: Text) -> bool:
        by_it = all(text.part(one.number) == one for one in block.parts)
        return by_it or _by_another(text, do)

    return Operation(do, done)


def _by_another(text: Text, do: Callable[[Text], tuple[Text, ...]]) -> bool:
    """Tell whether somebody else put the same text where ``do`` would put it."""
    return any(way.data() == text.data() for other in _without_one(text) for way in do(other))


def _without_one(text: Text) -> Iterator[Text]:
    """Leave out each block in turn, and each part of one."""
    for at, block in enumerate(text.blocks):
        for parts in ((), *combinations(block.parts, len(block.parts) - 1)):
            left = block._replace(parts=parts)
            yield text.having((*text.blocks[:at], left, *text.blocks[at + 1 :]))


def insert_part(owner: int, part: Part, above: int | None, below: int | None) -> Operation:
    """Put a part between two of a block; None is the edge of the block."""

    def do(text: Text) -> tuple[Text, ...]:
        block = next((one for one in text.blocks if one.number == owner), None)
        if block is None:
            return ()
        inner = Text(tuple(Block(one.number, "", (one,)) for one in block.parts), "")
        made = insert(Block(part.number, "", (part,)), above, below).make(inner)
        return tuple(
            text.having(
                one._replace(parts=tuple(new.parts[0] for new in way.blocks))
                if one is block
                else one
                for one in text.blocks
            )
            for way in made
        )

    return Operation(do, lambda text: text.part(part.number) == part or _by_another(text, do))


def end_line(final: bool) -> Operation:  # noqa: FBT001
    """Give the last line the other end than ``final`` says it has."""
    return Operation(
        lambda text: (text._replace(final=not final),) if text.final == final else (),
        lambda text: text.final != final,
    )


# --- drawing ----------------------------------------------------------------------------------------

# few of everything, so that text that stands twice is the rule
STATEMENTS = st.sampled_from(["a = 1", "a = 2", "b = 1", "if True:\n    a = 1", ""])
BODIES = st.lists(STATEMENTS, min_size=1, max_size=5).map(tuple)
FUNCTIONS = st.sampled_from(["f", "g", "h"])
CLASSES = st.sampled_from(["A", "B"])
NUMBERS = count()
"""No two things have one number; drawn, they would where a failing example is made small."""


def function(name: str, body: tuple[str, ...], *, method: bool = False) -> str:
    lines = [f"def {name}({'self' if method else ''}):"]
    lines += [f"    {line}" if line else "" for one in body for line in one.split("\n")]
    lines.append("    return 1")
    return "".join(f"{'    ' * method if line else ''}{line}\n" for line in lines)


@st.composite
def functions(draw: st.DrawFn, *, method: bool = False) -> str:
    return function(draw(FUNCTIONS), draw(BODIES), method=method)


@st.composite
def plain_parts(draw: st.DrawFn) -> str:
    """A part at module level."""
    code = draw(functions())
    kinds = {
        "function": code,
        "string": f'TEXT = """\\\n{code}"""\n',
        "docstring": f'def k():\n    """How:\n\n{code}    """\n    return 1\n',
        "condition": "if True:\n"
        + "".join(f"    {line}".rstrip() + "\n" for line in code.splitlines()),
        "line": draw(st.sampled_from(["import os\n", "X = 1\n", "Y = 1\n", "# note\n"])),
        "feed": "\x0c\nX = 1\n",
    }
    weights = ["function"] * 5 + ["line"] * 2 + ["string", "docstring", "condition", "feed"]
    return kinds[draw(st.sampled_from(weights))]


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    if draw(st.integers(0, 2)):
        return Block(next(NUMBERS), "", (Part(next(NUMBERS), draw(plain_parts())),))
    parts = draw(st.lists(functions(method=True), min_size=1, max_size=3))
    return Block(
        next(NUMBERS),
        f"class {draw(CLASSES)}:\n",
        tuple(Part(next(NUMBERS), text) for text in parts),
    )


def anew(block: Block) -> Block:
    """The same text again, as a thing of its own."""
    return block._replace(
        number=next(NUMBERS),
        parts=tuple(part._replace(number=next(NUMBERS)) for part in block.parts),
    )


@st.composite
def files(draw: st.DrawFn) -> Text:
    """A file, often with a block twice, or with a twin of which one token differs."""
    if draw(st.integers(0, 9)) == 9:
        line = Block(next(NUMBERS), "", (Part(next(NUMBERS), "X = 1\n"),))
        return Text((line,), "\n\n", draw(st.booleans()))
    made = draw(st.lists(blocks(), min_size=draw(st.integers(0, 9)) > 0, max_size=5))
    for _ in range(draw(st.integers(0, 2)) if made else 0):
        twin = anew(draw(st.sampled_from(made)))
        twin = draw(st.sampled_from([twin, renamed(twin), token_changed(twin), quoted(twin)]))
        made.insert(draw(st.integers(0, len(made))), twin)
    gap = draw(st.sampled_from(["\n\n", "\n\n", "\n", ""]))
    final = draw(st.integers(0, 5)) < 5
    return Text(tuple(made), gap, final, crlf=draw(st.integers(0, 9)) == 9)


def renamed(block: Block) -> Block:
    if block.head:
        return block._replace(head=block.head.translate(str.maketrans("AB", "BA")))
    names = {"f": "g", "g": "h", "h": "f"}
    (part,) = block.parts
    text = re.sub(r"(?m)^(\s*def )([fgh])\(", lambda m: m[1] + names[m[2]] + "(", part.text)
    return block._replace(parts=(part._replace(text=text),))


def quoted(block: Block) -> Block:
    """The same text in a string."""
    code = block.text("")
    text = code if '"""' in code else f'TEXT = """\\\n{code}"""\n'
    return Block(block.number, "", (Part(block.parts[0].number, text),))


def token_changed(block: Block) -> Block:
    *others, last = block.parts
    return block._replace(parts=(*others, last._replace(text=_token(last.text, 0))))


def _token(text: str, at: int) -> str:
    """Change the number in one of the lines that have one; a text without any gets a comment."""
    lines = text.splitlines(keepends=True)
    able = [i for i, line in enumerate(lines) if re.search(r"[12]$", line)]
    if not able:
        return text.rstrip("\n") + "  # changed\n" if '"""' not in text else text
    i = able[at % len(able)]
    lines[i] = re.sub(r"([12])$", lambda m: m[1] + "0", lines[i])
    return "".join(lines)


def _line(text: str, at: int) -> str:
    """Put a line in before another one, at the same depth."""
    lines = text.splitlines(keepends=True)
    able = [i for i, line in enumerate(lines) if re.match(r"\s+(a|b|return|X)\b", line)] or [0]
    i = able[at % len(able)]
    depth = re.match(r"\s*", lines[i])
    return "".join([*lines[:i], f"{depth[0] if depth else ''}new = 1\n", *lines[i:]])


@st.composite
def operations(draw: st.DrawFn, text: Text) -> Operation:  # noqa: C901, PLR0911  (a table of kinds)
    """One change, more often than not at an edge of the file."""
    there = text.blocks
    kinds = ["first", "last"]
    if there:
        kinds += ["token", "token", "line", "cut", "cut", "head", "drop", "between", "part", "ends"]
    kind = draw(st.sampled_from(kinds))
    new = draw(blocks())
    if kind == "first" or not there:
        return insert(new, None, there[0].number if there else None)
    if kind == "last":
        return insert(new, there[-1].number, None)
    if kind == "ends":
        return end_line(text.final)
    edge = draw(st.sampled_from([0, len(there) - 1, draw(st.integers(0, len(there) - 1))]))
    block = there[edge]
    at = draw(st.sampled_from([0, len(block.parts) - 1]))
    part = block.parts[at]
    place = draw(st.integers(-2, 3))
    if kind == "token":
        return change(part, _token(part.text, place))
    if kind == "line":
        return change(part, _line(part.text, place))
    if kind == "cut":
        return drop(tuple(one for other in there[edge:] for one in other.parts))
    if kind == "head":
        return drop(tuple(one for other in there[: edge + 1] for one in other.parts))
    if kind == "drop":
        return drop(draw(st.sampled_from([(part,), block.parts])))
    if kind == "part" and block.head:
        below = block.parts[at + 1].number if at + 1 < len(block.parts) else None
        added = Part(next(NUMBERS), draw(functions(method=True)))
        return insert_part(block.number, added, part.number, below)
    below = there[edge + 1].number if edge + 1 < len(there) else None
    return insert(new, block.number, below)


@st.composite
def upstream(draw: st.DrawFn, text: Text) -> Text:  # noqa: C901  (a table of kinds)
    """What a release did to a file: like a mod, and what only upstream does."""
    there = list(text.blocks)
    kinds = ["operation"] * 3
    if there:
        kinds += [
            "swap",
            "swap",
            "rename",
            "double",
            "redefine",
            "quote",
            "shuffle",
            "move",
            "crlf",
        ]
    kind = draw(st.sampled_from(kinds))
    if kind == "operation":
        made = draw(operations(text)).make(text)
        return made[0] if made else text
    if kind == "crlf":
        return text._replace(crlf=not text.crlf)
    i, j = (draw(st.integers(0, len(there) - 1)) for _ in range(2))
    if kind == "swap":
        there[i], there[j] = there[j], there[i]
    elif kind == "shuffle":
        there = draw(st.permutations(there))
    elif kind == "rename":
        there[i] = renamed(there[i])
    elif kind == "double":
        there.insert(j, anew(there[i]))
    elif kind == "redefine":
        # the function lives on behind its old text, with another body
        there.append(token_changed(anew(there[i])))
    elif kind == "quote":
        # the code is in a string from now on, and the real one is another
        code = there[i].text("")
        if '"""' not in code:
            quoted = Part(next(NUMBERS), f'TEXT = """\\\n{code}"""\n')
            there[i] = token_changed(there[i])
            there.insert(j, Block(next(NUMBERS), "", (quoted,)))
    else:
        owners = [one for one in there if one.head]
        if len(owners) > 1:
            a, b = owners[0], owners[-1]
            moved = a.parts[i % len(a.parts)]
            there[there.index(b)] = b._replace(parts=(*b.parts, moved))
            there[there.index(a)] = a._replace(
                parts=tuple(part for part in a.parts if part is not moved)
            )
    return text.having(there)


FORMS = ("git", "git", "python", "bare", "bare", "stamped")
"""How a patch is written: git's own, with its Python headers, without headers, by diff -u."""


class Case:
    """A file, a patch for it, what the patch makes of it, and a release's file to look at."""

    def __init__(
        self,
        base: Text,
        ops: tuple[Operation, ...],
        there: Text,
        *,
        form: str,
        context: int,
        path: str,
    ) -> None:
        self.form, self.context, self.path = form, context, path
        self.ops, self.whole, self.there = ops, base, there
        self.base = base.data()
        self.target = there.data()
        (self.after,) = (text.data() for text in _fold(base, ops, first=True))
        self.patch = patch_of(self.base, self.after, path, form, context)

    def __repr__(self) -> str:
        return (
            f"Case({self.form}, -U{self.context}, {self.path},\n base={self.base!r},\n"
            f" after={self.after!r},\n target={self.target!r},\n patch={self.patch.decode()})"
        )

    @cached_property
    def hunks(self) -> tuple[diff.Hunk, ...]:
        return diff.parse(self.patch, "a.patch")[0].hunks

    @cached_property
    def truths(self) -> frozenset[bytes]:
        """What the patch would have to make of the target; nothing where that is not known."""
        touched = Counter(_names(self.base)) - Counter(_names(self.after))
        now, then = Counter(_names(self.target)), Counter(_names(self.base))
        if any(now[name] != then[name] for name in touched):
            return frozenset()
        return frozenset(text.data() for text in _fold(self.there, self.ops))

    @cached_property
    def known_in(self) -> bool:
        """Tell whether all that the patch does is so in the target, as blocks, names or the whole file tell."""
        by_blocks = all(one.done(self.there) for one in self.ops)
        return by_blocks or self._names_are_in or self._file_is_in

    @property
    def _file_is_in(self) -> bool:
        """Tell whether the whole result stands in the target, and nothing that was removed does."""
        removed = (
            tuple(text for _, text in run)
            for hunk in self.hunks
            for kind, run in groupby(hunk.lines, key=lambda one: one[0])
            if kind == "-"
        )
        whole = target.matches(self.target, line_diff.split(self.after))
        return bool(whole) and not any(target.matches(self.target, run) for run in removed)

    @property
    def _names_are_in(self) -> bool:
        """Tell whether each definition that the patch changes is in the target what the patch makes of it.

        Whoever did it: the last one of a name counts. A statement without a name counts by its text, and
        by less than two lines of it nothing is known.
        """
        try:
            base, wanted, there = (
                list(_definitions(data)) for data in (self.base, self.after, self.target)
            )
        except (SyntaxError, ValueError):
            return False
        asked = {*(Counter(base) - Counter(wanted)), *(Counter(wanted) - Counter(base))}
        return all(
            dict(there).get(name) == dict(wanted).get(name)
            if not name.endswith(".")
            else "\n" in (text or "") and ((name, text) in there) == ((name, text) in wanted)
            for name, text in asked
        )

    @cached_property
    def merged(self) -> bytes | None:
        """The clean three-way merge; None where it clashes."""
        with tempfile.TemporaryDirectory() as folder:
            for name, data in (("ours", self.after), ("base", self.base), ("there", self.target)):
                _write(folder, name, data)
            done = _run(folder, "git", "merge-file", "-p", "ours", "base", "there")
        return done.stdout if done.returncode == 0 else None

    @cached_property
    def by_git(self) -> bytes | None:
        return self._tool("git", "apply", "-")

    @cached_property
    def by_text(self) -> frozenset[bytes | None]:
        """What the patch makes of the target, at whichever places its text stands."""
        places = [target.matches(self.target, hunk.old) for hunk in self.hunks]
        lines = line_diff.split(self.target)
        ways = islice(product(*places), 1000)
        return frozenset(splice(lines, list(zip(way, self.hunks, strict=True))) for way in ways)

    @cached_property
    def by_patch(self) -> bytes | None:
        return self._tool("patch", "-p1", "-F0", "-N", "-s", "--binary", "-r-")

    def _tool(self, *command: str) -> bytes | None:
        with tempfile.TemporaryDirectory() as folder:
            _write(folder, self.path, self.target)
            done = _run(folder, *command, data=self.patch)
            if done.returncode:
                return None
            file = os.path.join(folder, self.path)
            with open(file, "rb") as made:
                return made.read()

    def same_scopes(self, result: bytes) -> bool:
        """Tell whether only what the patch touches was touched, by name; True where nothing tells."""
        try:
            asked = _changed(self.base, self.after)
            done = _changed(self.target, result)
        except (SyntaxError, ValueError):
            return True
        return done <= asked

    @cached_property
    def families(self) -> frozenset[str]:
        """What kinds of trouble this is."""
        hunks = self.hunks
        lines = line_diff.split(self.base)
        ends = [one for one in hunks if one.lines and one.lines[-1][0] != " "]
        starts = [one for one in hunks if one.lines[0][0] != " " and one.old_start <= 1]
        found = {
            "at the end": bool(ends),
            "at the start": bool(starts),
            "added at the end": any(not one.old or _only(one, "+") for one in ends),
            "deleted at the end": any(one.old and _only(one, "-") for one in ends),
            "several hunks": len(hunks) > 1,
            "one line": len(lines) == 1,
            "empty": not self.base or not self.after,
            "text twice": any(len(target.matches(self.base, one.old)) > 1 for one in hunks),
            "text twice in the target": any(
                len(target.matches(self.target, one.old)) > 1 for one in hunks
            ),
            "name twice": any(n > 1 for n in Counter(_names(self.base)).values()),
            "name twice in the target": any(n > 1 for n in Counter(_names(self.target)).values()),
            "code in a string": b'"""' in self.target,
            "no last line end": not self.base.endswith(b"\n") or not self.after.endswith(b"\n"),
            "crlf": b"\r\n" in self.base + self.target,
            "form feed": b"\x0c" in self.base,
            "stamped": self.form == "stamped",
            "bare": self.form == "bare",
            "another file": self.target not in {self.base, self.after},
            "not python": self.path == OTHER,
        }
        return frozenset(name for name, yes in found.items() if yes)


def _only(hunk: diff.Hunk, kind: str) -> bool:
    return {one for one, _ in hunk.lines} <= {" ", kind}


def _fold(text: Text, ops: tuple[Operation, ...], *, first: bool = False) -> tuple[Text, ...]:
    ways: tuple[Text, ...] = (text,)
    for op in ops:
        ways = tuple(dict.fromkeys(made for way in ways for made in op.make(way)))
        ways = ways[:1] if first else ways[:16]
    return ways


def _names(data: bytes) -> list[str]:
    """Name every definition by its class, as the text has it, strings included."""
    found, owner = [], ""
    for line in data.decode().splitlines():
        if definition := re.match(r"( *)(class|def) (\w+)", line):
            owner = definition[3] if definition[2] == "class" else owner if definition[1] else ""
            found.append(f"{owner}.{definition[3]}")
    return found


def _changed(before: bytes, after: bytes) -> set[str]:
    """Name the definitions of which one side has more, or another text, than the other."""
    sides = [Counter(_definitions(data)) for data in (before, after)]
    gone, come = sides[0] - sides[1], sides[1] - sides[0]
    return {name for name, _ in (*gone, *come)}


def _definitions(data: bytes) -> Iterator[tuple[str, str | None]]:
    """Yield the statements with their texts, in order: functions by name, what is in a class by both names."""
    text = data.decode()
    pairs: list[tuple[str, ast.stmt]] = [("", node) for node in ast.parse(text).body[::-1]]
    while pairs:
        owner, node = pairs.pop()
        name = f"{owner}.{getattr(node, 'name', '')}"
        if isinstance(node, ast.ClassDef):
            pairs += [(name, inner) for inner in node.body[::-1]]
        else:
            yield name, ast.get_source_segment(text, node)


def _write(folder: str, name: str, data: bytes) -> None:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def _run(folder: str, *command: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        cwd=folder,
        input=data,
        capture_output=True,
        check=False,
        env={**os.environ, **_PLAIN, "GIT_CEILING_DIRECTORIES": folder},
    )


def patch_of(before: bytes, after: bytes, path: str, form: str, context: int) -> bytes:
    """Return a real ``git diff`` of one file, written as ``form`` says."""
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, f"a/{path}", before)
        _write(folder, f"b/{path}", after)
        _write(folder, "attributes", b"*.py diff=python\n" if form == "python" else b"")
        made = _run(
            folder, "git", "-c", "core.attributesFile=attributes", "diff", "--no-index",
            "--no-prefix", "--text", f"-U{context}", "a", "b",
        ).stdout  # fmt: skip
    if form in {"bare", "stamped"}:
        made = re.sub(rb"(?m)^(@@ [^@\n]* @@)[^\n]*$", rb"\1", made)
        made = made[made.index(b"--- a/") :] if b"--- a/" in made else made
    if form == "stamped":
        names = re.compile(rb"(?m)\A(--- [^\n]*)\n(\+\+\+ [^\n]*)$")
        made = names.sub(
            rb"\1\t2026-05-04 03:02:01.000000000 +0000\n\2\t2026-05-04 03:02:02.5 +0200", made
        )
    return made


@st.composite
def cases(draw: st.DrawFn) -> Case:
    base = draw(files())
    at, ops = base, []
    for _ in range(draw(st.integers(1, 3))):
        op = draw(operations(at))
        made = op.make(at)
        if made:
            at = made[0]
            ops.append(op)
    start = draw(st.sampled_from([base, base, base, at]))
    for op in ops[: draw(st.integers(0, len(ops)))] if draw(st.integers(0, 5)) == 0 else ():
        start = next(iter(op.make(start)), start)  # half in
    there = start
    for _ in range(draw(st.integers(0, 3))):
        there = draw(upstream(there))
    return Case(
        base,
        tuple(ops),
        there,
        form=draw(st.sampled_from(FORMS)),
        context=draw(st.sampled_from([3, 3, 1, 2])),
        path=draw(st.sampled_from([PY, PY, PY, OTHER])),
    )


CASES = cases().filter(lambda case: case.base != case.after)
