"""Plans as text for a person: readable without colour and at 80 columns where paths allow."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vllm_mods.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vllm_mods.model import Finding, ModPlan, Plan
    from vllm_mods.nodes import Disagreement

    Paint = Callable[[Verdict], str]

MEANING = {
    Verdict.APPLIES: "every hunk fits at its stated line",
    Verdict.MOVED: "every hunk fits, at another line",
    Verdict.APPLIED: "is in already",
    Verdict.UPSTREAM: "the release carries it: the mod can go",
    Verdict.CONFLICT: "the source is not what the patch expects",
    Verdict.MISPLACED: "the text fits, but not in the place it was written for",
    Verdict.UNFIT: "it would go in, and the result would not work",
    Verdict.MISSING: "what it changes is gone",
    Verdict.PARTIAL: "some of it is in and some is not",
    Verdict.UNSUPPORTED: "no variant of it is meant for this tree",
    Verdict.UNREADABLE: "the tree cannot be read",
}


def tree_name(version: str | None, spec: str) -> str:
    """Name a tree: what it says of itself, and how it was given."""
    return f"vLLM {version or 'of unknown version'} ({spec})"


def plan(planned: Plan, paint: Paint = str) -> str:
    """Return the answer of ``check``: a verdict per mod, what it rests on, what it changes."""
    blocks = [tree_name(planned.version, planned.spec)]
    width = max((len(f"{one.mod.name} {one.mod.version}") for one in planned.mods), default=0)
    for one in planned.mods:
        head = f"{one.mod.name} {one.mod.version}".ljust(width)
        variant = f" (variant {one.variant.id})" if one.variant and one.verdict.ok else ""
        lines = [f"  {head}  {paint(one.verdict)}: {meaning(one)}{variant}"]
        lines += [f"    {line}" for line in changed(one)]
        lines += [f"    {line}" for line in findings(one.findings)]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def meaning(one: ModPlan) -> str:
    """Say what a verdict means."""
    whole = one.verdict is Verdict.APPLIES and not one.hunks
    return "every file it brings is new" if whole else MEANING[one.verdict]


def changed(one: ModPlan) -> list[str]:
    """Return a line per file that a mod changes, with its hunks and what proves their place."""
    lines = []
    for change in one.changes:
        if change.before is None:
            what = "new file"
        elif change.after is None:
            what = "deleted"
        else:
            hunks = [hunk for hunk in one.hunks if hunk.path == change.path]
            proofs = ", ".join(dict.fromkeys(hunk.proof for hunk in hunks))
            what = (
                f"{len(hunks)} hunk{'s' * (len(hunks) != 1)}, placed by {proofs}"
                if hunks
                else "whole file"
            )
        lines.append(f"{change.path}: {what}")
    return lines


def serve_arguments(planned: Plan, templates: str) -> list[str]:
    """Return what to add to ``vllm serve`` for the mods of a plan that is in, quoted for a shell.

    ``templates`` is the folder that chat templates are in, also those of earlier runs.
    """
    lines = []
    for one in planned.mods:
        if one.variant is None:
            continue
        arguments = list(one.mod.serve_args)
        for file in one.variant.templates:
            arguments += ["--chat-template", f"{templates}/{file.file}"]
        if arguments:
            lines.append(f"serve with ({one.mod.name}): {shlex.join(arguments)}")
    return lines


def done(paths: Sequence[str]) -> str:
    """Say how many files were changed."""
    return f"{len(paths)} file{'s' * (len(paths) != 1)} changed" if paths else "nothing to do"


def findings(found: Iterable[Finding]) -> list[str]:
    """Return a line per finding, notes marked as such."""
    return [str(one) for one in found]


_DISAGREEMENTS = {
    "vllm": "vLLM",
    "mod": "mod",
    "order": "the order of the mods",
    "file": "",
    "original": "before any mod,",
}


def disagreements(found: Iterable[Disagreement], names: Sequence[str]) -> list[str]:
    """Return, per thing in which receipts differ, a line and what each of them has."""
    lines = []
    for one in found:
        lines.append(f"{_DISAGREEMENTS[one.kind]} {one.name}".strip() + ":")
        width = max(len(name) for name in names)
        lines += [
            f"  {name.ljust(width)}  {value or 'not there'}"
            for name, value in zip(names, one.values, strict=True)
        ]
    return lines


def label(tree: str, version: str) -> str:
    """Shorten ``pypi:`` trees: a rebuilt wheel is told by its build tag."""
    if tree == f"pypi:{version}":
        return version
    name = tree.removeprefix("pypi:")
    if name.endswith(".whl"):
        fields = name.split("-")
        return f"{fields[1]} build {fields[2]}" if len(fields) == 6 else f"{fields[1]} build 0"
    return tree
