"""Plans as text for a person: readable without colour and at 80 columns where paths allow."""

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence

from vllm_mods.base import versions
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, ModPlan, Plan, Verdict
from vllm_mods.formats.receipt import ReceiptMod

Paint = Callable[..., str]
"""Colours as a verdict is coloured: its word, or words that are given behind it."""
WIDTH = 100

MEANING = {
    Verdict.APPLIES: "every hunk matches at its stated line",
    Verdict.MOVED: "every hunk matches, at another line",
    Verdict.APPLIED: "already applied",
    Verdict.UPSTREAM: "the release already has the change: the mod is not needed",
    Verdict.CONFLICT: "the source does not match the patch, or another mod excludes this one",
    Verdict.MISPLACED: "the text matches, but the place is not certain",
    Verdict.UNFIT: "the patch matches, but the result would not work",
    Verdict.MISSING: "a file, class or function that the mod changes is not in this tree",
    Verdict.PARTIAL: "applied only in part, or changed after the apply",
    Verdict.UNSUPPORTED: "no variant covers this tree",
    Verdict.UNREADABLE: "the tree cannot be read",
}

STANDING = {
    "in": "",
    "undone": ": was undone when vLLM was installed again",
    "changed": ": was changed since it was applied",
}
"""What is said behind a mod of a receipt."""
_BY = {"file": "mod.lock", "scope": "class/function", "stated": "line number", "order": "order"}


def counted(number: int, noun: str) -> str:
    """Return how many there are of what a noun names."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def tree_name(version: str | None, spec: str) -> str:
    """Name a tree: what it says of itself, and how it was given."""
    return f"vLLM {version or 'of unknown version'} ({spec})"


def verdict(planned: ModPlan, paint: Paint) -> str:
    """Return a verdict with what it means, and the variant that goes in."""
    variant = f" (variant {planned.variant.id})" if planned.variant and planned.verdict.ok else ""
    return f"{paint(planned.verdict)}: {meaning(planned)}{variant}"


def plan(planned: Plan, paint: Paint, *, explain: bool = False) -> str:
    """Return the answer of ``check``: a verdict per mod, what it rests on, what it changes.

    ``explain`` lists the classes of faults that nobody looked for.
    """
    blocks = [tree_name(planned.version, planned.spec)]
    rows = ((one.mod.title, verdict(one, paint)) for one in planned.mods)
    for planned_mod, head in zip(planned.mods, columns(rows, "  "), strict=True):
        lines = [head, *(f"    {line}" for line in changed(planned_mod))]
        lines += _reasons(planned_mod, paint)
        if explain:
            lines += ["    checked with a type checker"] if planned_mod.proof else []
            unexamined = planned_mod.unexamined
            lines += [f"    not checked: {what}, since {why}" for what, why in unexamined]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def refusal(planned: Plan, message: str, paint: Paint) -> str:
    """Return the message of a refused plan for a person: its first line, and each mod that does not go in."""
    lines = message.splitlines()[:1]
    for planned_mod in planned.mods:
        if not planned_mod.verdict.ok:
            lines.append(f"  {planned_mod.mod.title}: {paint(planned_mod.verdict)}")
            lines += _reasons(planned_mod, paint)
    return "\n".join(lines)


def _reasons(planned: ModPlan, paint: Paint) -> list[str]:
    """Return the lines of a plan's findings; what could not be told is no reason for a refusal."""
    ok = planned.verdict.ok
    reasons = (found for found in planned.findings if ok or found.code != "fit-unknown")
    return findings(reasons, "    ", lambda words: paint(planned.verdict, words))


def meaning(planned: ModPlan) -> str:
    """Say what a verdict means."""
    codes = {found.code for found in planned.findings}
    if FindingCode.UNDECLARED in codes:
        return "it changes files that its mod.toml does not declare"
    if FindingCode.CONFLICTING_MOD in codes:
        return "it cannot be combined with another mod"
    if planned.verdict is Verdict.CONFLICT:
        return "the source does not match the patch"
    whole = planned.verdict is Verdict.APPLIES and not planned.hunks
    return "it only adds new files" if whole else MEANING[planned.verdict]


def changed(planned: ModPlan) -> list[str]:
    """Return a line per file that a mod changes, with its hunks and what proves their place."""
    lines = []
    for change in planned.changes:
        if change.before is None:
            what = "new file"
        elif change.after is None:
            what = "deleted"
        else:
            hunks = [hunk for hunk in planned.hunks if hunk.path == change.path]
            proofs = ", ".join(dict.fromkeys(_BY.get(hunk.proof, "unique match") for hunk in hunks))
            what = f"{counted(len(hunks), 'hunk')}, found by {proofs}" if hunks else "whole file"
        lines.append(f"{change.path}: {what}")
    return lines


def serve_arguments(planned: Plan, templates: str) -> list[str]:
    """Return the variables, and what to add to ``vllm serve``, for the mods of a plan, quoted for a shell.

    ``templates`` is the folder that chat templates are in, also those of earlier runs.
    """
    lines = []
    for planned_mod in planned.mods:
        if planned_mod.variant is None:
            continue
        arguments = list(planned_mod.mod.serve_args)
        for file in planned_mod.variant.templates:
            arguments += ["--chat-template", f"{templates}/{file.file}"]
        if arguments or planned_mod.mod.env:
            variables = [f"{name}={shlex.quote(value)}" for name, value in planned_mod.mod.env]
            lines.append(
                f"serve with ({planned_mod.mod.name}): {' '.join((*variables, *map(shlex.quote, arguments)))}"
            )
    return lines


def applied(mods: Sequence[ReceiptMod], standing: Callable[[ReceiptMod], str]) -> list[str]:
    """Return a line for each mod of a receipt, with what is said behind it."""
    lines = [f"  {one.name} {one.version} (variant {one.variant}){standing(one)}" for one in mods]
    return lines or ["  no mods are applied"]


def done(paths: Sequence[str], *, dry_run: bool = False) -> str:
    """Say how many files were changed, or would be."""
    what = "would be changed" if dry_run else "changed"
    return f"{counted(len(paths), 'file')} {what}" if paths else "nothing to do"


def findings(
    listed: Iterable[Finding], indent: str = "", paint: Callable[[str], str] = str
) -> list[str]:
    """Return the lines of findings, notes marked as such; ``paint`` colours those that are errors."""
    lines = []
    for finding in listed:
        shown = paint if finding.level is Level.ERROR else str
        folds = folded(str(finding), WIDTH - len(indent), hanging="  ")
        lines += [indent + shown(line) for line in folds]
    return lines


def located(listed: Iterable[Finding]) -> list[str]:
    """Return a line per finding of ``verify``, with the file that it is about."""
    return [f"  {one.path}: {one}" if one.path else f"  {one}" for one in listed]


def folded(words: str, width: int, indent: str = "", hanging: str = "") -> list[str]:
    """Break words into lines: at blanks alone, and not within a command between backticks."""
    command = re.compile("`(?:vllm-mods|pip|git|patch) [^`]*`")
    lines = textwrap.wrap(
        command.sub(lambda match: match[0].replace(" ", "\0"), words),
        width,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def columns(rows: Iterable[tuple[str, ...]], indent: str = "") -> list[str]:
    """Return a line for each row: all columns but the last, which may be painted, as wide as their longest text."""
    every = list(rows)
    widths = [max(map(len, column)) for column in zip(*every, strict=True)][:-1]
    lines = []
    for row in every:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append((indent + "  ".join((*padded, row[-1]))).rstrip())
    return lines


def between(labels: Sequence[str]) -> str:
    """Name versions in their order by the first and the last, others one by one."""
    keys = [versions.sort_key(one.partition(" ")[0]) for one in labels if one[:1].isdigit()]
    if len(keys) < max(2, len(labels)) or keys != sorted(keys) or keys[0] == keys[-1]:
        return ", ".join(labels)
    return f"{labels[0]} to {labels[-1]}"


def label(tree: str, version: str) -> str:
    """Shorten ``pypi:`` trees: a rebuilt wheel is told by its build tag."""
    if tree == f"pypi:{version}":
        return version
    kind, _, name = tree.partition(":")
    if name.endswith(".whl"):
        fields = name.rpartition("/")[2].split("-")
        first = " build 0" if kind == "pypi" else ""  # another one stands beside it
        return f"{fields[1]} build {fields[2]}" if len(fields) == 6 else f"{fields[1]}{first}"
    return tree
