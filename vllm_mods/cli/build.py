"""``vllm-mods build``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api.build import build
from vllm_mods.api.image_parts import BuiltFor
from vllm_mods.building.oci import BuiltImage
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.running import engine


@click.command(name="build")
@options.pairing_name
@options.base
@option("--lock FILE", "The lock [NAME.lock beside the pairing].", "lock_file")
@option(
    "--output WHERE",
    "docker, oci:DIR or registry:REF [the engine that the base lies in].",
)
@option("--tag T", "Another name than PAIRING:VLLM-LOCK.")
@option(
    "--platform OS/ARCH",
    "One of those that the lock is of [all of them, where the base is an index].",
)
@options.libraries
@manner.json_output
def command(
    name: str,
    base: str | None,
    lock_file: str | None,
    output: str | None,
    libraries: LibraryArguments,
    *,
    tag: str | None,
    platform: str | None,
    as_json: bool,
) -> int:
    """Build the image of a pairing's lock.

    The base gets one layer more: what `apply` would write into its vLLM, and the lock. Only the
    files that the mods touch are read out of the base, and nothing of it is copied that is there
    already. Nothing is built that vllm-mods.toml does not trust. A tag that names another image is not moved.
    """
    library, access = libraries.open(), options.open_access()
    result = build(
        library,
        name,
        base=base,
        lock=lock_file,
        output=output,
        tag=tag,
        platform=platform,
        access=access,
    )
    pushed = result.written.pushed
    answer: dict[str, Any] = {
        **_digests(result.images[0].built),
        **({"manifest": pushed} if pushed else {}),
        "lock": result.lock,
        "tag": result.tag,
        "output": output or result.output.kind,
    }
    if len(result.images) > 1:
        platforms = {one.lock.base.platform: _digests(one.built) for one in result.images}
        answer["platforms"] = platforms
    lines = [result.written.said, *image_lines(result.images)]
    next_step = None
    if result.output.kind in engine.PROGRAMS:
        given = (("--lock", lock_file), ("--image", tag))
        words = [word for option, value in given if value for word in (option, value)]
        next_step = shlex.join(["vllm-mods", "run", name, *words])
    return answers.answer(answer, "\n".join(lines), as_json=as_json, next_step=next_step)


def _digests(image: BuiltImage) -> dict[str, str | None]:
    return {
        "image": image.config_digest,
        "manifest": image.manifest_digest,
        "layer": image.layer_digest,
    }


def image_lines(images: Sequence[BuiltFor]) -> list[str]:
    """Say which images there are, and of several for what."""
    ends = [f"  {one.lock.base.platform}" if len(images) > 1 else "" for one in images]
    ids = (one.built.config_digest for one in images)
    return [f"image  {image}{end}" for image, end in zip(ids, ends, strict=True)]
