"""``vllm-mods verify``."""

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
from vllm_mods.cli.manner import option
from vllm_mods.formats import receipt, receipt_diff
from vllm_mods.report import data, text


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
def command(mods: tuple[str, ...], target: str | None, receipts: tuple[str, ...]) -> int:
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
