"""The fenced blocks of a page of the docs: what is run, what is written, what is only shown.

A ``console`` block has commands behind ``$ `` and what they print; an ``sh`` block is run as it is.
A block with ``title="PATH"``, of whatever language, is a file that the page's commands find there.
Comments above a block, or anywhere for the page, say what cannot be seen:

    <!-- docs: page needs network -->  or engines; release: vLLM unpacked in vllm-0.21.0/; image: the
                                       same as an image of docker's; patch: GNU patch; time: seconds,
                                       and so only .ci/run runs it
    <!-- docs: exit 1 -->              the last command of the block ends with 1
    <!-- docs: not run: REASON -->

What is made of the code (``tools/reference``) is no block.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RUN = frozenset({"console", "sh"})
CHECKED = frozenset({"dockerfile", "yaml"})
SHOWN = frozenset({"toml", "text", "json", "python", "diff", "jinja"})

_FENCE = re.compile(
    r"(?P<above>(?:^[ ]*<!--[^\n]*-->\n)*)"
    r"^(?P<indent>[ ]*)```(?P<language>[\w.-]*)(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_SAYS = re.compile(r"<!-- docs: (.*?) -->")
GENERATED = re.compile(r"^<!-- generate: .*?^<!-- generated -->$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block. ``line`` is that of its fence, ``reason`` why it is not run."""

    language: str
    body: str
    line: int
    title: str | None = None
    exit_code: int = 0
    reason: str | None = None

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.title is None and self.reason is None


class Page(NamedTuple):
    """A page by its path from the root, and what its commands need to be there."""

    path: str
    needs: frozenset[str]
    blocks: tuple[Block, ...]

    @property
    def markers(self) -> frozenset[str]:
        """The markers of its test."""
        implied = {"release": {"network"}, "image": {"network", "engines"}}
        more = set().union(*(implied.get(need, set()) for need in self.needs))
        return (self.needs | more) & {"network", "engines"}


class Command(NamedTuple):
    """What is typed, what it prints (None: whatever it is), the exit code, the line in the page."""

    text: str
    output: str | None
    exit_code: int
    line: int


def pages() -> list[Page]:
    """Return the README and every page below docs/."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read(str(path.relative_to(ROOT)), path.read_text()) for path in found]


def read(path: str, text: str) -> Page:
    """Read a page. Raises ``ValueError`` for a comment that means nothing here."""
    text = GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)
    needs: frozenset[str] = frozenset()
    for said in _SAYS.findall(text):
        if said.startswith("page needs "):
            needs = frozenset(said.removeprefix("page needs ").split(", "))
            if not needs <= {"network", "engines", "release", "image", "patch", "time"}:
                raise ValueError(f"{path}: a page cannot need {said!r}")
    blocks = tuple(_block(path, text, fence) for fence in _FENCE.finditer(text))
    return Page(path, needs, blocks)


def _block(path: str, text: str, fence: re.Match[str]) -> Block:
    title = re.search(r'title="([^"]*)"', fence["info"])
    block = Block(
        fence["language"],
        textwrap.dedent(fence["body"]),
        text.count("\n", 0, fence.start("indent")) + 1,
        title[1] if title else None,
    )
    for said in _SAYS.findall(fence["above"]):
        if said.startswith("not run: "):
            block = block._replace(reason=said.removeprefix("not run: "))
        elif said.startswith("exit "):
            block = block._replace(exit_code=int(said.removeprefix("exit ")))
        elif not said.startswith("page needs "):
            raise ValueError(f"{path}:{block.line}: what is `docs: {said}`?")
    return block


def commands(block: Block) -> list[Command]:
    """Return the commands of a block that runs, in order.

    A line that ends with a backslash goes on in the next, as the shell has it.
    """
    if block.language == "sh":
        return [Command(block.body, None, block.exit_code, block.line + 1)]
    found: list[tuple[list[str], list[str], int]] = []
    for number, line in enumerate(block.body.splitlines(), block.line + 1):
        if found and not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif line.startswith("$ "):
            found.append(([line.removeprefix("$ ")], [], number))
        elif not found:
            raise ValueError(f"line {number}: output without a command")
        else:
            found[-1][1].append(line)
    last = len(found) - 1
    return [
        Command("\n".join(typed), "\n".join(printed), block.exit_code if i == last else 0, number)
        for i, (typed, printed, number) in enumerate(found)
    ]


def agrees(expected: str, printed: str) -> bool:
    """Tell whether it printed this: blanks count as one, and ``…`` stands for any text.

    So a page may wrap a long line where it likes.
    """
    first, *others = (" ".join(part.split()) for part in expected.split("…"))
    text = " ".join(printed.split())
    if not others:
        return text == first
    *middle, last = others
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at == -1:
            return False
        at += len(part)
    return at + len(last) <= len(text)
