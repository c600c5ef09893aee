"""What encloses the lines that a hunk changes, and how much of that the patch itself names. Pure."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import eq
from typing import NamedTuple, Self

from vllm_mods.formats.diff import Hunk
from vllm_mods.placing.chains import CodeBlock
from vllm_mods.placing.headers import names_block
from vllm_mods.placing.resemblance import LookAlike
from vllm_mods.placing.target import Target

Chain = tuple[CodeBlock, ...]
Home = tuple[str, ...]

# A run of blank lines alone belongs to whatever encloses the line above it.
_DEEPEST = 1 << 30


class ChangedRun(NamedTuple):
    """Lines of a hunk that change together.

    ``above`` is the index, in the hunk's old lines, of the kept line of code before them, -1 if the hunk has none;
    ``indents`` are the columns at which the removed and the added ones begin.
    """

    above: int
    indents: tuple[tuple[int, ...], tuple[int, ...]]


def runs_of(hunk: Hunk) -> Iterator[ChangedRun]:
    """Yield the runs of changed lines in their order."""
    above, old = -1, 0
    changed: dict[str, list[int]] = {}
    for kind, text in (*hunk.lines, (" ", b"end")):
        blank = not text.strip()
        if kind != " ":
            indents = changed.setdefault(kind, [])
            indents += [] if blank else [len(text) - len(text.lstrip())]
        elif changed:
            yield ChangedRun(above, (tuple(changed.get("-", ())), tuple(changed.get("+", ()))))
            changed = {}
        if kind == " " and not blank:
            above = old
        old += kind != "+"


def chains_at(hunk: Hunk, target: Target, line: int) -> tuple[Chain, ...]:
    """Return the distinct chains of blocks around what a hunk at ``line`` changes; the same for the reversed hunk once it is in.

    Blocks that the hunk itself opens or removes are no part of them.
    """
    return _chains(hunk, target, lambda above: (line + above, 0))


def chains_like(side: Hunk, target: Target, match: LookAlike) -> tuple[Chain, ...]:
    """Return the same for a place that resembles the old lines of a hunk, at whatever indent it stands there."""
    expected = side.old

    def above_line(above: int) -> tuple[int, int]:
        line = (above >= 0 and match.above[above]) or match.line
        mine = max(above, 0) if above >= 0 and match.above[above] else match.at
        shift = _indent(target.lines[line - 1]) - _indent(expected[mine])
        return (line if mine == above else line - 1), shift

    return _chains(side, target, above_line)


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())


def _chains(
    hunk: Hunk, target: Target, above_line: Callable[[int], tuple[int, int]]
) -> tuple[Chain, ...]:
    chains: dict[Chain, None] = {}
    for run in runs_of(hunk):
        line, shift = above_line(run.above)
        for indents in run.indents if any(run.indents) else ((_DEEPEST,),):
            for least in accumulate(indents, min):
                chains[target.open_blocks(line, min(_DEEPEST, least + shift))] = None
    return tuple(chains)


def texts(chains: tuple[Chain, ...]) -> tuple[str, ...]:
    """Return chains as mod.lock has them: ``Loader._load_w2.<if x is None>``, ``""`` for the module itself."""
    return tuple(".".join(block.name for block in chain) for chain in chains)


def texts_at(hunk: Hunk, target: Target, line: int) -> tuple[str, ...]:
    """Return the chains around what a hunk at ``line`` changes, as mod.lock has them."""
    return texts(chains_at(hunk, target, line))


def home_of(chain: Chain) -> Home:
    """Return the names that tell a chain from others: those of definitions, and of tables outside of functions."""
    return tuple(block.name for block in _telling(chain))


def _telling(chain: Chain) -> Iterator[CodeBlock]:
    """Yield the blocks of which a file has no second one of the same name in the same place.

    What a function binds and calls has names that come back in its branches, and change with the arguments.
    """
    in_function = False
    for block in chain:
        if block.defines or (block.named and not in_function):
            yield block
        in_function |= block.kind == "def"


class Identity(NamedTuple):
    """What the patch says of the place that a hunk was written for, read at one place where it could be.

    ``homes`` are what encloses its changes there (see ``home_of``); ``known`` are the indexes in each of those that the patch
    names, in the hunk's lines or in the words behind ``@@``. ``whole`` says that it names all that encloses the changes but for
    branches, ``exact`` that it shows these, too; ``inside_statement`` that a change is inside of a long statement of a function,
    whose arguments may be alike.
    """

    homes: tuple[Home, ...]
    known: tuple[frozenset[int], ...]
    whole: bool
    exact: bool
    inside_statement: bool

    @classmethod
    def read(cls, hunk: Hunk, target: Target, line: int) -> Self:
        """Read the identity of a hunk at a line."""
        shown = range(line, line + len(hunk.old))

        def is_named(block: CodeBlock) -> bool:
            above = block.head < line  # a decorator's hunk has the function before in its header
            return block.head in shown or (above and names_block(hunk.section, block, target))

        homes: dict[Home, frozenset[int]] = {}
        whole = exact = True
        inside_statement = False
        for chain in chains_at(hunk, target, line):
            telling = tuple(_telling(chain))
            known = frozenset(i for i, block in enumerate(telling) if is_named(block))
            homes[home_of(chain)] = known
            named = [block for block in chain if block.named]
            whole &= bool(named or hunk.section) and all(map(is_named, named))
            exact &= all(block.named or block.head in shown for block in chain)
            # a named block that does not tell is a statement of a function
            inside_statement |= chain[-1:] != telling[-1:] and chain[-1].named
        return cls(tuple(homes), tuple(homes.values()), whole, whole and exact, inside_statement)

    @property
    def named(self) -> bool:
        """Whether the patch names every definition around the changes; the module itself needs no name."""
        return all(map(eq, map(len, self.homes), map(len, self.known)))

    def admits(self, homes: tuple[Home, ...]) -> bool:
        """Tell whether a place inside of these could be the one that the hunk was written for, too."""
        pairs = zip(self.homes, self.known, strict=True)
        return all(_admits(mine, known, theirs) for mine, known in pairs for theirs in homes)

    def agrees(self, homes: tuple[Home, ...]) -> bool:
        """Tell whether all that the patch names is named so in these, too."""
        named = [(mine, i) for mine, at in zip(self.homes, self.known, strict=True) for i in at]
        return all(mine[i : i + 1] == theirs[i : i + 1] for mine, i in named for theirs in homes)


def _admits(mine: Home, known: frozenset[int], theirs: Home) -> bool:
    if not mine:
        return not theirs  # what begins in column 0 was not written inside of a definition
    if len(mine) - 1 in known:
        if len(mine) != len(theirs):
            return mine[-1:] == theirs[-1:]
        return all(mine[i] == theirs[i] for i in known)
    if len(mine) != len(theirs) or all(mine[i] == theirs[i] for i in known):
        return True
    # the name of the class tells ``A.forward`` from ``B.forward``, and not ``A.f1`` from a ``B.f2`` that has left A
    return any(mine[i] != theirs[i] for i in range(len(mine)) if i not in known)
