"""Changed files as the files of a mod, planned on the tree that they were changed in. Writes nothing."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import library, plan, toml_text, unified
from vllm_mods.digest import sha256
from vllm_mods.errors import Refused, UsageError
from vllm_mods.table import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_mods.model import FileChange, Mod, ModPlan, Tree

UNSTATED = "LicenseRef-unstated"


class Wanted(NamedTuple):
    """What a mod is to be called and to say of itself; None for what nobody said."""

    name: str
    summary: str | None = None
    license: str | None = None
    vllm: str | None = None
    variant: str | None = None


class _Parts(NamedTuple):
    """What a variant has."""

    id: str
    patches: list[str]
    overlay: list[dict[str, object]]
    templates: list[str]


class Composed(NamedTuple):
    """A mod as files by their names in its folder, what the plan says, and what nobody could know."""

    mod: Mod
    files: dict[str, bytes]
    planned: ModPlan
    unknown: tuple[str, ...]


def compose(
    wanted: Wanted, changes: Sequence[FileChange], templates: dict[str, bytes], tree: Tree
) -> Composed:
    """Make a mod of changes to the files of a tree, and of ``templates`` by file name.

    Text that was there becomes a patch, a new file and one that is no text an overlay. Raises
    ``Refused`` for a change that a mod cannot make, and where what was composed does not make these
    very changes; ``UsageError`` for a name that is none, or a range that nothing tells.
    """
    if not re.fullmatch(NAME, wanted.name):
        raise UsageError(
            f"{wanted.name!r} is no name for a mod",
            hint="lower case letters, digits, '.', '_', '-'",
        )
    if not changes and not templates:
        raise Refused("nothing was changed, so there is no mod", hint="vllm-mods new --help")
    if wanted.vllm is None and tree.version is None:
        raise UsageError(
            f"{tree.spec} does not say its version, so nothing says what the mod is for",
            hint="--vllm SPEC, such as --vllm '==0.21.0'",
        )
    composed = None
    for context in unified.CONTEXTS:
        composed = _composed(wanted, changes, templates, tree, context)
        if composed.planned.verdict != "misplaced":
            break
    assert composed is not None  # noqa: S101  (there are contexts)
    _check(composed, changes)
    return composed


def _composed(
    wanted: Wanted,
    changes: Sequence[FileChange],
    templates: dict[str, bytes],
    tree: Tree,
    context: int,
) -> Composed:
    variant = wanted.variant or _variant(tree.version)
    files: dict[str, bytes] = {}
    overlay: list[dict[str, object]] = []
    patch = b""
    for change in sorted(changes, key=lambda change: change.path):
        if _as_patch(change):
            patch += unified.file_diff(change.path, change.before, change.after, context=context)
            continue
        if change.after is None:
            raise Refused(
                f"{change.path} is no text and is removed, which a mod cannot do",
                hint="leave the file, or do without it in another way",
            )
        source = f"overlay/{change.path}"
        files[source] = change.after
        entry: dict[str, object] = {"source": source, "path": change.path}
        overlay.append(
            entry if change.before is None else {**entry, "replaces": [sha256(change.before)]}
        )
    if patch:
        files[f"{variant}/{wanted.name}.patch"] = patch
    for name, data in templates.items():
        files[f"templates/{_stem(name)}/template.jinja"] = data
    parts = _Parts(
        variant, [f"{variant}/{wanted.name}.patch"] if patch else [], overlay, list(templates)
    )
    files[library.MANIFEST] = _manifest(wanted, parts, tree).encode()
    folder = f"/{wanted.name}"
    mod = library.load_mod(folder, read=lambda path: files.get(path.removeprefix(f"{folder}/")))
    planned = plan.plan([mod], tree).mods[0]
    return Composed(mod, files, planned, tuple(_unknown(wanted, tree)))


def _check(composed: Composed, changes: Sequence[FileChange]) -> None:
    """Hold what the mod would do against what it was made of."""
    planned = composed.planned
    if not planned.verdict.writes:
        why = "".join(f"\n  {one.message}" for one in planned.findings if one.level == "error")
        raise Refused(
            f"the mod would be {planned.verdict} on the tree that it was made from; nothing was written"
            f"{why}",
            hint="mend what is named, and make it again",
        )
    made = {change.path: change.after for change in planned.changes}
    meant = {change.path: change.after for change in changes}
    if {path: data for path, data in made.items() if path in meant} != meant:
        raise Refused(
            "the patches that were made give other bytes than the changes they are made of; nothing was "
            "written",
            hint="this is a bug in vllm-mods: report it with the changed files",
        )


def _manifest(wanted: Wanted, parts: _Parts, tree: Tree) -> str:
    value = toml_text.value
    version = tree.version or tree.spec
    terms = [] if wanted.license else ["# Nobody has said under which terms it may be passed on."]
    rows = [
        "schema = 1",
        f"name = {value(wanted.name)}",
        'version = "0.1.0"',
        f"summary = {value(wanted.summary or f'Changes to vLLM {version}')}",
        *terms,
        f"license = {value(wanted.license or UNSTATED)}",
        "",
        f"# Made on vLLM {version}.",
        "[[variant]]",
        f"id = {value(parts.id)}",
        f"vllm = {value(wanted.vllm or f'=={tree.version}')}",
    ]
    if parts.patches:
        rows.append(f"patches = {value(parts.patches)}")
    if parts.overlay:
        rows += ["overlay = [", *(f"  {value(entry)}," for entry in parts.overlay), "]"]
    if parts.templates:
        entries = [{"name": _stem(name), "file": name} for name in parts.templates]
        rows += ["templates = [", *(f"  {value(entry)}," for entry in entries), "]"]
    return "\n".join([*rows, ""])


def _unknown(wanted: Wanted, tree: Tree) -> Iterator[str]:
    if wanted.summary is None:
        yield "summary: what the mod is for"
    if wanted.license is None:
        yield "license: under which terms the changes may be passed on"
    if wanted.vllm is None:
        yield f"vllm: where else than on {tree.version} it goes in (`vllm-mods matrix` says)"
    yield "evidence: the log line that shows that its code ran"


def _as_patch(change: FileChange) -> bool:
    """Tell whether a change is one of lines to a file that is there."""
    if change.before is None:
        return False
    return _is_text(change.before) and (change.after is None or _is_text(change.after))


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _variant(version: str | None) -> str:
    return ".".join(re.split(r"[.+]", version or "any")[:2])


def _stem(name: str) -> str:
    """Return a name for the template in a file: what the manifest allows."""
    stem = posixpath.splitext(posixpath.basename(name))[0].lower()
    return re.sub(r"[^a-z0-9._-]", "-", stem).strip("-._") or "template"
