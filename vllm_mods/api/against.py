"""What a change of vLLM does to mods: two revisions of a clone compared, or two releases."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm_mods.api.access import Access
from vllm_mods.api.matrix import matrix
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.base.versions import sort_key
from vllm_mods.matrices.against import AgainstResult, Change, Effect, compare, look_closer

if TYPE_CHECKING:
    from vllm_mods.trees.git import Repository

# the dots of a path are beside a slash
_SPAN = re.compile(r"(.*[^/:.])\.\.([^.].*|\.\.?/.*)")
_TREE = re.compile(r"(?:pypi|wheel|sdist|git|image):|[/.~]")
_RELEASE = re.compile(r"\d+\.\d")
_FORMS = "--against 0.32.0..0.33.0; in a clone of vLLM, --against main..HEAD; elsewhere, --against git:REPO@main..HEAD"


def against(
    mods: Sequence[Mod],
    span: str,
    *,
    others: Mapping[str, str] | None = None,
    access: Access,
    **of_matrix: Any,  # noqa: ANN401  (handed on)
) -> AgainstResult:
    """Tell what becomes of mods from one tree to another: ``span`` is ``BASE..HEAD``.

    A side is the version of a release, what ``open_tree`` takes, or a revision of a clone: the one that BASE names,
    else ``commits`` of ``access``, else the current folder. Of revisions that parted, BASE is where they did.
    The other arguments are those of ``matrix``. Raises ``UsageError`` for sides that cannot be compared, and as ``matrix``.
    """
    match = _SPAN.fullmatch(span)
    if match is None:
        raise UsageError(f"--against {span}: write two trees with `..` between them", hint=_FORMS)
    first, last = match.groups()
    folder = "." if access.commits is None or "://" in access.commits else access.commits
    base = _tree_name(first, folder)
    clone, commits = None, ("", "")
    if base.startswith("git:"):
        from vllm_mods.trees.git import split_name  # noqa: PLC0415  (raises where there is no git)

        folder, first = split_name(base)
    head = _tree_name(last, folder)
    if base.startswith("git:") and head.startswith(f"git:{folder}@"):
        last = head.removeprefix(f"git:{folder}@")
        clone, first, commits = _revisions(folder, first, last, access)
        base = f"git:{folder}@{first}"
    releases = [sort_key(side[5:]) for side in (base, head) if side.startswith("pypi:")]
    if base == head or releases != sorted(releases):
        why = f"{last} is not newer than {first}"
        raise UsageError(f"--against {span}: {why}", hint=f"--against {last}..{first}")
    result = matrix(mods, (base, head), explain=True, others=others, access=access, **of_matrix)
    compared = compare(base, head, result.mods, result.cells)
    if not {Effect.WORSE, Effect.BETTER} & {one.effect for one in compared.affected}:
        return compared
    older, newer = (access.open(tree, others=dict(others or {}) or None) for tree in (base, head))
    change = Change(older, newer)
    if clone is not None:
        change = Change(older, newer, clone.renames(*commits), clone.line(*commits))
    return compared._replace(affected=tuple(look_closer(one, change) for one in compared.affected))


def _tree_name(side: str, folder: str) -> str:
    """Return what opens a side: a tree as it is, else a release, else a revision of the clone in ``folder``."""
    if _TREE.match(side):
        return side
    return f"pypi:{side}" if _RELEASE.match(side) else f"git:{folder}@{side}"


def _revisions(
    folder: str, base: str, head: str, access: Access
) -> tuple["Repository", str, tuple[str, str]]:
    """Return a clone, the revision in which ``base`` and ``head`` parted, and the commits of that and of ``head``."""
    from vllm_mods.trees.git import Repository  # noqa: PLC0415  (as above)

    try:
        clone = Repository(folder)
    except UsageError as error:
        hint = f"run this in a clone of vLLM, or name a clone: --against git:REPO@{base}..{head}"
        raise UsageError(error.message, hint=hint) from error
    older, newer = clone.commit(base), clone.commit(head)
    fork = clone.merge_base(older, newer) or older  # a shallow clone may not have it
    if fork == newer:
        why = f"{head} has no commits beyond {base}; uncommitted changes do not count"
        hint = "commit the changes first" if older == newer else f"--against {head}..{base}"
        raise UsageError(why, hint=hint)
    if fork != older:
        access.note(f"{head} lacks commits of {base}; BASE is their common commit {fork[:12]}")
        base = fork[:12]
    return clone, base, (fork, newer)
