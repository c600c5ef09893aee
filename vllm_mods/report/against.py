"""What a change of vLLM does to mods, in the forms that make sense of it: only the mods that it concerns."""

import json
from collections.abc import Callable, Iterator
from itertools import chain

from vllm_mods.base.model import Level
from vllm_mods.formats.schema import encode
from vllm_mods.library.mod_folder import MANIFEST
from vllm_mods.matrices.against import AffectedMod, AgainstResult, Effect
from vllm_mods.report import sarif
from vllm_mods.report.annotations import Remark, workflow_commands
from vllm_mods.report.data import SCHEMA
from vllm_mods.report.matrix_grid import clean
from vllm_mods.report.text import Paint, counted, findings

WORDS = {
    Effect.WORSE: "got worse",
    Effect.BETTER: "got better",
    Effect.NEEDS_PORT: "already needed a port before",
    Effect.UNTOLD: "could not be compared",
}
_NAMED = 3  # commits of an edit


def text(result: AgainstResult, paint: Paint = str) -> str:
    """Return the mods that a change concerns, each with the lines that did it; a sentence on all."""
    blocks = [f"{clean(result.base)} to {clean(result.head)}"]
    for effect, words in WORDS.items():
        lines = [words]
        for one in (one for one in result.affected if one.effect is effect):
            lines.append(f"  {clean(_name(one))}: {_verdicts(one, paint)}")
            lines += [f"    {clean(line)}".rstrip() for line in _details(one)]
        blocks += ["\n".join(lines)] * (len(lines) > 1)
    return "\n\n".join((*blocks, _summary(result))) + "\n"


def _name(one: AffectedMod) -> str:
    return f"{one.after.mod} {one.after.mod_version}"


def _verdicts(one: AffectedMod, paint: Paint = str) -> str:
    was, now = (paint(c.verdict) if c.computed else c.word for c in (one.before, one.after))
    return f"{was}, then {now}"


def _details(one: AffectedMod) -> Iterator[str]:
    """Yield why a mod does not go in, of what is in a file if anything is, and the edits that it comes from."""
    cells = (one.before,) * (one.effect is Effect.UNTOLD) + (one.after,)
    errors = [found for cell in cells for found in cell.findings if found.level is Level.ERROR]
    yield from findings([found for found in errors if found.path] or errors)
    for edit in one.edits:
        whose = f"where {edit.hunk} belongs" if edit.hunk else "which the mod uses"
        yield f"vLLM changed {edit.path}:{edit.line}, {whose}"
        yield from (f"  - {line}" for line in edit.removed)
        yield from (f"  + {line}" for line in edit.added)
        many = f"{len(edit.commits)} commits changed this file; `vllm-mods bisect` finds the commit that matters"
        commits = edit.commits if len(edit.commits) <= _NAMED else (many,)
        yield from (f"  commit {line}" for line in commits)


def _summary(result: AgainstResult) -> str:
    effects = [one.effect for one in result.affected]
    counts = [(effects.count(effect), words) for effect, words in WORDS.items()]
    parts = [f"{counted(number, 'mod')} {words}" for number, words in counts if number]
    if result.same or not (parts or result.unwanted):
        parts.append(f"nothing breaks for {counted(len(result.same), 'mod')}")
    if result.unwanted:
        parts.append(f"{counted(len(result.unwanted), 'mod')} not meant for {clean(result.head)}")
    whole = "; ".join(parts)
    return f"{whole[0].upper()}{whole[1:]}."


def _remarks(result: AgainstResult) -> Iterator[Remark]:
    """Yield a remark for each mod that got worse, at the first line that made it so, or that cannot be told of."""
    for one in result.affected:
        if one.effect in {Effect.WORSE, Effect.UNTOLD}:
            edits = ((edit.path, edit.line) for edit in one.edits)
            places = ((found.path, found.line) for found in one.after.findings if found.path)
            path, line = next(chain(edits, places), (MANIFEST, None))
            message = "\n".join((f"{WORDS[one.effect]}: {_verdicts(one)}", *_details(one)))
            yield Remark(Level.ERROR, path, _name(one), one.after.word, message, line)


FORMS: dict[str, Callable[[AgainstResult], str]] = {
    "text": text,
    "json": lambda result: (
        json.dumps({"schema": SCHEMA, "ok": result.ok, **encode(result)}, indent=2) + "\n"
    ),
    # each line of others is indented too far to end the block
    "markdown": lambda result: f"**{_summary(result)}**\n\n~~~~text\n{text(result)}~~~~\n",
    "github": lambda result: workflow_commands(_remarks(result), _summary(result)),
    "sarif": lambda result: sarif.render(_remarks(result)),
}
"""The forms; those that show cells are for a matrix."""
