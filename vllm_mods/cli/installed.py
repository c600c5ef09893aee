"""``vllm-mods status``, ``verify`` and ``revert``: which mods are in a vLLM, as they went in, and out again."""

from __future__ import annotations

import json
import os

import click

from vllm_mods.api.revert import revert
from vllm_mods.api.status import status
from vllm_mods.api.verify import compare, node_of, verify
from vllm_mods.base import limits
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.formats import receipt
from vllm_mods.report import data, text


@click.command(name="status")
@options.mods
@options.target_folder
@manner.json_output
def status_command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Tell which mods are in a vLLM tree: what its receipt says, and whether each file is so.

    Exit code 0 if and only if all that went in is in, as it was left; with MOD, if all of them are.
    """
    result = status(target, *mods)
    answer = {
        "tree": {"spec": target, "version": result.version},
        "ok": result.ok,
        "unfinished": result.unfinished,
        "mods": [
            {**data.applied(entry), "standing": result.standing(entry)} for entry in result.mods
        ],
        "absent": list(result.absent),
        "findings": [data.finding(finding) for finding in result.findings],
        "hint": result.hint,
    }
    lines = [text.tree_name(result.version, target)]
    for entry in result.mods:
        standing = text.STANDING[result.standing(entry)]
        lines.append(f"  {entry.name} {entry.version} (variant {entry.variant}){standing}")
        lines += [f"    {file.path}" for file in entry.files]
    lines += [] if result.receipt and result.receipt.mods else ["  no mods are in"]
    lines += [f"  {name}: is not in" for name in result.absent]
    lines += text.located(result.findings)
    return answers.answer(
        answer, "\n".join(lines), as_json=as_json, ok=result.ok, next_step=result.hint
    )


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
def verify_command(
    mods: tuple[str, ...], target: str | None, receipts: tuple[str, ...], *, as_json: bool
) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was.

    With --receipt FILE FILE...: tell where these receipts differ, and with --target that of a
    tree from them. What `verify --json` wrote on a node stands for its receipt, and has the versions
    of the packages too that vLLM and its mods name. Exit code 1 if anything differs.
    """
    if receipts:
        return _compare((*receipts, *mods), target, as_json=as_json)
    target = target or os.environ.get(options.TARGET) or options.active_target()
    result = verify(target, *mods)
    answer = {
        "tree": {"spec": target, "version": result.version},
        "ok": result.ok,
        "mods": [data.applied(entry) for entry in result.mods],
        "findings": [data.finding(finding) for finding in result.findings],
    }
    if as_json:
        node = node_of(target)
        raw = None if node.receipt is None else json.loads(receipt.dump(node.receipt))
        answer |= {"receipt": raw, "packages": node.packages}
    lines = [text.tree_name(result.version, target), *text.located(result.findings)]
    if result.ok:
        count = len(result.mods)
        whole = f"  {count} mod{'s' * (count != 1)}, every file as it was left"
        lines.append(whole if count else "  no mods are in")
    return answers.answer(answer, "\n".join(lines), as_json=as_json, ok=result.ok)


def _compare(files: tuple[str, ...], target: str | None, *, as_json: bool) -> int:
    result = compare([(path, _read(path)) for path in files], target)
    if result.without_packages is not None:
        answers.note(
            f"{result.without_packages} is a receipt alone, which does not tell the versions of packages: "
            "`vllm-mods verify --json` on that node does"
        )
    answer = {
        "ok": result.ok,
        "receipts": list(result.names),
        "differences": [data.disagreement(one) for one in result.differences],
    }
    lines = text.disagreements(result.differences, result.names)
    lines = lines or [f"{len(result.names)} receipts, all the same"]
    return answers.answer(answer, "\n".join(lines), as_json=as_json, ok=result.ok)


def _read(path: str) -> bytes:
    with named_files.opened(path) as file:
        return limits.bounded(file, limits.RECEIPT, path)


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Also where a file was edited since the mod went in.")
@manner.json_output
def revert_command(
    mods: tuple[str, ...], target: str, *, discard_edits: bool, as_json: bool
) -> int:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    done = revert(target, *mods, discard_edits=discard_edits, source_date_epoch=source_date_epoch())
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
    return answers.answer(answer, "\n".join((*lines, text.done(done.changed))), as_json=as_json)
