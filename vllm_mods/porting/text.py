"""One file ported: two ways to find the place have to give the same bytes."""

from collections.abc import Sequence

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.porting import follow, independence, outline, statements, structure, textual


def port(base: bytes, ours: bytes, theirs: bytes, *, python: bool) -> structure.Ported:
    """Carry the change from ``base`` to ``ours`` over to ``theirs``. Raises ``TreeError`` if git fails."""
    sides = (base, ours, theirs)
    read = [outline.read(one) for one in sides] if python else []
    outlines = [one for one in read if one is not None]
    if len(outlines) < len(sides):
        return _plain(sides, python=python)
    done = _by_scopes(sides, outlines)
    if done.text is None or done.proof == "statements":
        return done
    problems = tuple(independence.skipped(*sides, done.text))
    if not problems:
        return done
    whole = line_diff.split(done.text)
    return done._replace(text=None, stretches=[whole], problems=problems, proof=None)


def _by_scopes(sides: Sequence[bytes], outlines: Sequence[outline.Outline]) -> structure.Ported:
    whole = textual.merge(*(line_diff.split(one) for one in sides))
    by_text = diff3.clean(whole)
    base, ours, theirs = outlines
    followed = []
    for chain, renaming in follow.renamed(base, ours, theirs):
        base, ours = (follow.with_names(side, chain, renaming.new) for side in (base, ours))
        scope = ".".join(key.split(" ")[0] for key in chain)
        new = ".".join([*scope.split(".")[:-1], renaming.new.split(" ")[0]])
        followed.append(follow.Followed(scope, new, renaming.likeness))
    merges = [structure.merge(base, ours, theirs, diff3.merge)]
    done = structure.Ported(None, whole, touched=merges[0].touched, followed=tuple(followed))
    if by_text is None or by_text != merges[0].text:
        merges.append(structure.merge(base, ours, theirs, textual.merge))
    by_scope = [one.text for one in merges]
    if by_text is not None and by_text in by_scope:
        return done._replace(text=by_text, proof="file")
    if by_text is None and by_scope[0] is not None and by_scope[0] == by_scope[1]:
        return done._replace(text=by_scope[0], stretches=merges[0].stretches, proof="scopes")
    worst = next((one for one in merges if one.problems), None)
    if worst is not None:
        codes = {problem.code for one in merges for problem in one.problems}
        text = statements.merge(*sides) if not followed and codes == {"clash"} else None
        if text is not None and all(statements.agrees(text, one.stretches) for one in merges):
            return done._replace(text=text, proof="statements")
        return done._replace(stretches=worst.stretches, problems=worst.problems)
    message = "a merge of the whole file and a merge by scope give different results"
    problem = Finding(FindingCode.DISAGREE, message, scope=", ".join(merges[0].touched))
    first, second = by_scope
    both = _both(first or b"", (second if by_text is None else by_text) or b"")
    return done._replace(stretches=both, problems=(problem,))


def _both(first: bytes, other: bytes) -> diff3.Stretches:
    """Return two results as one text, with both where they differ."""
    mine, theirs = line_diff.split(first), line_diff.split(other)
    out: diff3.Stretches = []
    at = 0
    for i, j, k, m in line_diff.changes(mine, theirs):
        out += [mine[at:i], diff3.Clash(mine[i:j], (), theirs[k:m])]
        at = j
    return [*out, mine[at:]]


def _plain(sides: Sequence[bytes], *, python: bool) -> structure.Ported:
    """Merge texts without scopes: two algorithms have to agree."""
    texts = [line_diff.split(one) for one in sides]
    whole = textual.merge(*texts)
    text = diff3.clean(whole)
    if text is not None and text == diff3.clean(diff3.merge(*texts)):
        return structure.Ported(text, whole, proof="file")
    code, message = FindingCode.CLASH, "the target changed the same lines"
    if text is not None:
        why = "the file cannot be parsed as Python, and " if python else ""
        code = FindingCode.DISAGREE
        message = f"{why}two ways to merge the file give different results"
    return structure.Ported(None, whole, (Finding(code, message, scope=""),))
