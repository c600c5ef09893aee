"""What a change of vLLM does to mods: two revisions of a clone compared, or two releases."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.matrix import MatrixTerms, run_matrix
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.base.versions import sort_key
from vllm_mods.matrices.against import AgainstResult, Change, Effect, compare, look_closer

if TYPE_CHECKING:
    from vllm_mods.trees.git import Repository

# two or three dots as git has them; those of a path are beside a slash
_SPAN = re.compile(r"(.*[^/:.])(\.\.\.?)([^.].*|\.\.?/.*)")
_TREE = re.compile(r"(?:pypi|wheel|sdist|git|image):|[/.~]")
_RELEASE = re.compile(r"\d+\.\d")
_FORMS = "--against 0.32.0..0.33.0, in a clone --against main...HEAD, else git:REPO@main...HEAD"


class _Pair(NamedTuple):
    """What opens two trees; their commits, if they are of one clone."""

    base: str
    head: str
    clone: "Repository | None" = None
    commits: tuple[str, str] = ("", "")


def against(mods: Sequence[Mod], span: str, terms: MatrixTerms, access: Access) -> AgainstResult:
    """Tell what becomes of mods from one tree to another: ``span`` is ``BASE..HEAD``.

    A side is the version of a release, what ``open_tree`` takes, or a revision of a clone: the one that BASE names,
    else ``commits`` of ``access``, else the current folder. ``BASE...HEAD`` starts where the two parted.
    Raises ``UsageError`` for sides that cannot be compared, and as ``matrix``.
    """
    pair = _read_span(span, access)
    result, computed = run_matrix(mods, (pair.base, pair.head), terms, access)
    compared = compare(pair.base, pair.head, result.mods, result.cells)
    if all(one.effect in {Effect.NEEDS_PORT, Effect.UNTOLD} for one in compared.affected):
        return compared
    change = _open(pair, terms, access)
    affected = (
        look_closer(one, mod, [column.answers[mod.name] for column in computed], change)
        if one.effect in {Effect.WORSE, Effect.BETTER}
        else one
        for one in compared.affected
        for mod in result.mods
        if mod.name == one.after.mod
    )
    return compared._replace(affected=tuple(affected))


def _open(pair: _Pair, terms: MatrixTerms, access: Access) -> Change:
    if pair.clone is None:
        others = dict(terms.others) or None
        return Change(access.open(pair.base, others=others), access.open(pair.head, others=others))
    older, newer = map(pair.clone.tree, pair.commits)
    return Change(older, newer, pair.clone.changed(*pair.commits), pair.clone.line(*pair.commits))


def _read_span(span: str, access: Access) -> _Pair:
    match = _SPAN.fullmatch(span)
    if match is None:
        raise UsageError(f"--against {span}: it takes two trees with dots between", hint=_FORMS)
    first, dots, last = match.groups()
    folder = "." if access.commits is None or "://" in access.commits else access.commits
    base = _tree_name(first, folder)
    if base.startswith("git:"):
        from vllm_mods.trees.git import split_name  # noqa: PLC0415  (raises where there is no git)

        folder = split_name(base)[0]
    pair = _Pair(base, _tree_name(last, folder))
    if all(side.startswith(f"git:{folder}@") for side in pair[:2]):
        return _with_commits(pair, folder, dots, access)
    if dots == "...":
        why = "three dots are for two revisions of a clone, and mean where they parted"
        raise UsageError(f"--against {span}: {why}", hint=f"--against {first}..{last}")
    releases = [sort_key(side[5:]) for side in pair[:2] if side.startswith("pypi:")]
    if pair.base == pair.head or releases != sorted(releases):
        raise UsageError(
            f"--against {span}: {last} is not newer than {first}",
            hint=f"--against {last}..{first}",
        )
    return pair


def _with_commits(pair: _Pair, folder: str, dots: str, access: Access) -> _Pair:
    """Return two revisions of a clone with their commits; with three dots from where they parted."""
    from vllm_mods.trees.git import Repository  # noqa: PLC0415  (as above)

    try:
        clone = Repository(folder)
    except UsageError as error:
        raise UsageError(error.message, hint=_FORMS) from error
    base, head = (side.removeprefix(f"git:{folder}@") for side in pair[:2])
    older, newer = clone.commit(base), clone.commit(head)
    fork = clone.merge_base(older, newer)
    if fork == newer:
        raise UsageError(
            f"{head} has no commit that {base} has not", hint=f"--against {head}{dots}{base}"
        )
    if dots == "...":
        if fork is None:
            raise UsageError(
                f"{folder} does not have the commit at which {base} and {head} parted",
                hint=f"git -C {folder} fetch --unshallow",
            )
        pair, older = pair._replace(base=f"git:{folder}@{fork}"), fork
    elif fork not in {older, None}:
        access.note(
            f"{base} has commits that {head} has not, and what these changed counts as taken back: "
            f"{base}...{head} begins where the two parted"
        )
    if clone.is_edited(newer):
        access.note(f"what is not committed in {folder} does not count")
    return pair._replace(clone=clone, commits=(older, newer))


def _tree_name(side: str, folder: str) -> str:
    """Return what opens a side: a tree as it is, else a release, else a revision of the clone in ``folder``."""
    if _TREE.match(side):
        return side
    return f"pypi:{side}" if _RELEASE.match(side) else f"git:{folder}@{side}"
