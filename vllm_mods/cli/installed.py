"""``vllm-mods status``, ``verify`` and ``revert``: which mods are in a vLLM, as they went in, and out again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import click

from vllm_mods.api import apply
from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.formats import receipt, receipt_diff
from vllm_mods.report import data, text


@click.command(name="status")
@options.mods
@options.target_folder
@manner.json_output
def status(mods: tuple[str, ...], target: str) -> int:
    """Tell which mods are in a vLLM tree: what its receipt says, and whether each file is so.

    Exit code 0 if and only if all that went in is in, as it was left; with MOD, if all of them are.
    """
    mods = tuple(name.rpartition("/")[2] for name in mods)  # whose they are, no tree says
    there = apply.status(target, *mods)
    absent = [name for name in mods if name not in {entry.name for entry in there.mods}]
    found = [(one, there.standing(one)) for one in there.mods if not mods or one.name in mods]
    ok = there.ok and not absent
    answer = {
        "tree": {"spec": target, "version": there.version},
        "ok": ok,
        "unfinished": there.unfinished,
        "mods": [{**data.applied(entry), "standing": standing} for entry, standing in found],
        "absent": absent,
        "findings": [data.finding(finding) for finding in there.findings],
        "hint": there.hint,
    }
    lines = [text.tree_name(there.version, target)]
    for entry, standing in found:
        lines.append(
            f"  {entry.name} {entry.version} (variant {entry.variant}){text.STANDING[standing]}"
        )
        lines += [f"    {file.path}" for file in entry.files]
    lines += [] if there.mods else ["  no mods are in"]
    lines += [f"  {name}: is not in" for name in absent]
    lines += text.located(there.findings)
    return answers.answer(answer, "\n".join(lines), ok=ok, next_step=there.hint)


@click.command(name="verify")
@options.mods
@option(
    "--target DIR",
    "The vllm package folder, or the folder that holds it [the active environment's].",
)
@option(
    "--receipt FILE...",
    "Compare receipts, or what `verify --json` said on the nodes of a cluster.",
    "receipts",
    multiple=True,
)
@manner.json_output
def verify(mods: tuple[str, ...], target: str | None, receipts: tuple[str, ...]) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was.

    With --receipt FILE FILE...: tell where these receipts differ, and with --target that of a
    tree from them. What `verify --json` wrote on a node stands for its receipt, and has the versions
    of the packages too that vLLM and its mods name. Exit code 1 if anything differs.
    """
    if receipts:
        return _compare((*receipts, *mods), target)
    target = target or os.environ.get(options.TARGET) or options.active_target()
    there = apply.verify(target, *mods)
    answer = {
        "tree": {"spec": target, "version": there.version},
        "ok": there.ok,
        "mods": [data.applied(entry) for entry in there.mods],
        "findings": [data.finding(finding) for finding in there.findings],
    }
    if manner.as_json():
        node = _of_tree(target)
        kept = None if node.receipt is None else json.loads(receipt.dump(node.receipt))
        answer |= {"receipt": kept, "packages": node.packages}
    lines = [text.tree_name(there.version, target), *text.located(there.findings)]
    if there.ok:
        count = len(there.mods)
        whole = f"  {count} mod{'s' * (count != 1)}, every file as it was left"
        lines.append(whole if count else "  no mods are in")
    return answers.answer(answer, "\n".join(lines), ok=there.ok)


class _FromNode(NamedTuple):
    """What is compared: a receipt, None where no mods are in, and versions, None where nobody told them."""

    receipt: receipt.Receipt | None
    packages: Mapping[str, str] | None


def _of_tree(target: str) -> _FromNode:
    return _FromNode(apply.status(target).receipt, apply.packages_of(target))


def _of_file(path: str) -> _FromNode:
    """Read a receipt, or what ``verify --json`` said. Raises ``UsageError``, ``Refused`` for what is neither."""
    with named_files.opened(path) as file:
        raw = limits.bounded(file, limits.RECEIPT, path)
    try:
        said = json_of(raw)
    except ValueError:
        said = None
    if not isinstance(said, dict) or not {"receipt", "packages"} <= said.keys():
        return _FromNode(receipt.parse(raw, path), None)
    packages = said["packages"]
    if not isinstance(packages, dict) or not all(isinstance(one, str) for one in packages.values()):
        raise UsageError(f"{path}: its packages have no versions", hint="vllm-mods verify --json")
    kept = None if said["receipt"] is None else json.dumps(said["receipt"]).encode()
    return _FromNode(None if kept is None else receipt.parse(kept, path), packages)


def _compare(files: tuple[str, ...], target: str | None) -> int:
    names = list(files)
    nodes = [_of_file(path) for path in files]
    if target is not None:
        names.append(target)
        nodes.append(_of_tree(target))
    if len(names) < 2:
        raise UsageError(
            f"one receipt alone differs from none: {names[0]}",
            hint="vllm-mods verify --receipt FILE FILE, or --receipt FILE --target DIR",
        )
    versions = [one.packages for one in nodes]
    if None in versions and any(versions):
        answers.note(
            f"{names[versions.index(None)]} is a receipt alone, which does not tell the versions of packages: "
            "`vllm-mods verify --json` on that node does"
        )
    found = receipt_diff.disagreements([one.receipt for one in nodes])
    found += receipt_diff.of_packages(versions)
    answer = {
        "ok": not found,
        "receipts": names,
        "differences": [data.disagreement(one) for one in found],
    }
    lines = text.disagreements(found, names) or [f"{len(names)} receipts, all the same"]
    return answers.answer(answer, "\n".join(lines), ok=not found)


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Also where a file was edited since the mod went in.")
@manner.json_output
def revert(mods: tuple[str, ...], target: str, *, discard_edits: bool) -> int:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    done = apply.revert(
        target, *mods, discard_edits=discard_edits, source_date_epoch=source_date_epoch()
    )
    for note in done.notes:
        answers.note(note)
    answer = {
        "tree": {"spec": target, "version": done.version},
        "reverted": list(done.reverted),
        "mods": [data.applied(entry) for entry in done.mods],
        "changed": list(done.changed),
    }
    lines = [text.tree_name(done.version, target)]
    lines += [f"  {name} is out" for name in done.reverted]
    return answers.answer(answer, "\n".join((*lines, text.done(done.changed))))
