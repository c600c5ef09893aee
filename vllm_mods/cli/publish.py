"""``vllm-mods publish``."""

from __future__ import annotations

import click

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import UsageError, refusing
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.report import data


@click.command(name="publish")
@click.argument("folder", nargs=-1, metavar="[FOLDER]", type=click.Path())
@click.argument("reference", metavar="HOST/NAME:TAG")
@options.sign
@option("--dry-run", "Check everything, list the files, and send nothing.")
@manner.json_output
@refusing()
def command(folder: tuple[str, ...], reference: str, *, key: str | None, dry_run: bool) -> int:
    """Put a library into a registry, as an artifact that others add.

    FOLDER holds patches/, templates/, pairings/ [the current folder]; what begins with a dot stays out of
    it. Every mod is read first, and has to name its licence. The same files have the same digest,
    whoever publishes them. A tag that is something else is not moved.
    """
    if len(folder) > 1:
        raise UsageError(
            f"one library is published at a time, and these are {len(folder)}: {', '.join(folder)}",
            hint="vllm-mods publish --help",
        )
    from vllm_mods.sharing import artifact  # noqa: PLC0415  (requests, which help has no use for)

    ready = artifact.prepare(folder[0] if folder else ".", reference, sign=key)
    sent = 0 if dry_run else artifact.publish(ready).bytes_sent
    library = ready.library
    source = f"oci:{reference}@{ready.digest}"
    lines = [f"{mod.name} {mod.version}  {mod.license}  {mod.summary}" for mod in library.mods]
    for what, names in (("pairings", library.pairings), ("templates", library.templates)):
        lines += [f"{what}: {', '.join(names)}"] if names else []
    size = sum(map(len, library.files.values()))
    done = f"published {reference}, {sent:,} bytes sent"
    if dry_run:
        done = f"{reference} is this already" if ready.there else f"would publish {reference}"
    lines.append(f"{done}: {len(library.files):,} files, {size:,} bytes")
    lines += [f"  {path}" for path in sorted(library.files) if dry_run]
    lines += [f"digest {ready.digest}", f"others type: vllm-mods add {source}"]
    answer = {
        "reference": str(ready.client.name),
        "digest": ready.digest,
        "source": source,
        "dry_run": dry_run,
        "there": ready.there,
        "signed": key is not None,
        "sent": sent,
        "mods": [data.fields(one, "name", "version", "license") for one in library.mods],
        "pairings": library.pairings,
        "templates": library.templates,
        "files": {path: sha256(content) for path, content in sorted(library.files.items())},
    }
    return answers.answer(answer, "\n".join(lines))
