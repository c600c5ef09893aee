"""``vllm-mods status``."""

from __future__ import annotations

import click

from vllm_mods.api import apply
from vllm_mods.cli import answers, manner, options
from vllm_mods.report import data, text


@click.command(name="status")
@options.mods
@options.target_folder
@manner.json_output
def command(mods: tuple[str, ...], target: str) -> int:
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
