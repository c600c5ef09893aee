"""What a hunk says of where it was written: its section header, and the definitions it shows. Pure."""

import bisect
import re

from vllm_mods.formats.diff import Hunk
from vllm_mods.placing.chains import CodeBlock
from vllm_mods.placing.target import COLUMN_0, Target, shown

_DEFINITION = r"\s*(?:async\s+)?(class|def)\s+(\w+)"
# Prose has the word too, and no bracket or colon behind a name.
_CODE = r"\s*((?:async\s+)?(?:def\s+\w+(?=\s*[(\[])|class\s+\w+(?=\s*[(:\[])))"
# An indented one tells no class: every other class may have a method of that name.
_TOP_LEVEL = rb"(?:async\s+)?(?:class|def)\s"
# What a statement binds, imports from or calls; more of its first line may be another in the next release.
_NAME = r"(?:from\s+|import\s+)?[\w.]+"


def definition_in(line: bytes) -> str | None:
    """Return the ``class`` or ``def`` and the name that a line of code begins with."""
    match = re.match(_CODE, shown(line))
    return match[1] if match else None


def defines(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether all that the hunk changes is below a top-level class or function that it shows."""
    for i, (kind, text) in enumerate(hunk.lines):
        if kind != " ":
            return False
        if re.match(_TOP_LEVEL, text) and line + i in target.heads:
            return True
    return False


def header_holds(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether git, making the patch here, could have written its header; of none there is nothing to say."""
    if not hunk.section or target.scopes is None:
        return True
    definition = re.match(_DEFINITION, hunk.section)
    before = bisect.bisect_left(target.tops, line)
    top = target.heads.get(target.tops[before - 1]) if before else None
    if definition is None:
        return top is None and _is_table(hunk.section, target, line)
    kind, name = definition[1], definition[2]
    above = target.scopes.above(line)
    candidates = {(scope.kind, scope.name.rsplit(".", 1)[-1]) for scope in (top, above) if scope}
    around = (block.name for block in target.around(line) if block.head < line)
    return (kind, name) in candidates or name in around


def names_block(section: str, block: CodeBlock, target: Target) -> bool:
    """Tell whether the words behind ``@@`` are the first line of a block: git cuts them off at 80 bytes."""
    if definition := re.match(_DEFINITION, section):
        return (definition[1], definition[2]) == (block.kind, block.name)
    return block.indent == 0 and _same_name(section, target, block)


def _is_table(section: str, target: Target, line: int) -> bool:
    """Tell whether a statement of the module that a line is inside of is the one that a header names, if git names it."""
    outer = next((block for block in target.around(line) if block.kind == "table"), None)
    if outer is None or outer.head >= line:
        return True
    head = target.lines[outer.head - 1]
    return not re.match(COLUMN_0, head) or _same_name(section, target, outer)


def _same_name(section: str, target: Target, block: CodeBlock) -> bool:
    names = (re.match(_NAME, text) for text in (section, shown(target.lines[block.head - 1])))
    return len({name and name[0] for name in names}) == 1 and bool(section)


def written_in(hunk: Hunk) -> str | None:
    """Return the name of the class or function that a hunk says it was written in."""
    for text in (hunk.section, *(shown(line) for line in hunk.old)):
        if definition := re.match(_DEFINITION, text):
            return definition[2]
    return None


def is_below(section: str, target: Target, line: int) -> bool:
    """Tell whether a header is one that git writes for this line, by its two rules for Python files."""
    above = target.lines[line - 2 :: -1] if line > 1 else ()
    heads = (COLUMN_0, rb"\s*(?:async\s+)?(?:class|def)\s")
    nearest = (next((text for text in above if re.match(head, text)), b"") for head in heads)
    return not section or any(shown(text).strip().startswith(section) for text in nearest)
