"""Does serve-check find fault with the commands that a release documents?

Every ``vllm serve …`` in the text files of an sdist is held against the sdist itself. What is
found is printed, each with its file, to be looked at: a placeholder, prose, a flag that is gone.

    python benchmarks/serve_commands.py vllm-0.33.0.tar.gz
"""

from __future__ import annotations

import re
import sys
import tarfile
from typing import TYPE_CHECKING

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Level
from vllm_mods.scripts import command_line
from vllm_mods.serving.check import check
from vllm_mods.serving.command import words
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXTS = (".md", ".sh", ".rst", ".yaml", ".yml", ".py")
COMMAND = re.compile(
    r"^[^\n#`]*?((?:[A-Z_0-9]+=\S+ +)*vllm serve (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE
)


def commands(sdist: str) -> Iterator[tuple[str, Serving]]:
    """Yield each command once, with the file that has it first."""
    seen = set()
    with tarfile.open(sdist) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(TEXTS) else None
            for found in COMMAND.finditer(file.read().decode(errors="replace")) if file else ():
                text = found[1].strip()
                if text in seen:
                    continue
                seen.add(text)
                try:
                    script = command_line.read(text)
                    first = script.commands[0]
                    unknown = tuple(one.text for one in script.unknown)
                    serving = Serving(words(first.argv), dict(first.assignments), unknown)
                except (command_line.ShellError, UsageError, IndexError):
                    continue  # half a command: the rest of it is prose
                yield member.name.partition("/")[2], serving


def main() -> None:
    for sdist in sys.argv[1:]:
        known = KnownFlags(open_tree(f"sdist:{sdist}"))
        total = faulty = 0
        for name, serving in commands(sdist):
            wrong = [f for f in check(known, serving).faults if f.level is Level.ERROR]
            total += 1
            faulty += bool(wrong)
            for fault in wrong:
                print(f"{name}: {fault.subject}: {fault.message[:160]} [{fault.code}]")
        print(f"{sdist}: {total} commands, {faulty} with findings")


if __name__ == "__main__":
    main()
