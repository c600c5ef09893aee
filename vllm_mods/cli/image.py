"""``vllm-mods image``."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.image_verify import InspectedImage, image_diff, image_verify, open_reference
from vllm_mods.building.inspection import inspect as inspect_image
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.manner import option
from vllm_mods.images import oci
from vllm_mods.report import data, text
from vllm_mods.trees.image import ImageTree

_chosen = options.all_of(
    manner.json_output, options.access, options.target_in_image, options.platform
)
_reference = click.argument("reference", metavar="REF")


@click.group(name="image")
def command() -> None:
    """Tell what is in an image, whether it is intact, and how two differ.

    REF is docker:NAME, podman:NAME, container:NAME, oci:FOLDER[:TAG],
    registry:HOST/NAME:TAG, or a bare NAME of an image in an engine here.
    """


@command.command(name="inspect")
@_reference
@_chosen
def inspect(
    reference: str, access: Access, *, platform: str | None, in_image: str | None, as_json: bool
) -> int:
    """Tell what is in an image: vLLM, mods, lock, and files that are not as they were left."""
    tree = open_reference(reference, access, platform=platform, in_image=in_image)
    image = InspectedImage(tree, inspect_image(tree))
    return answers.answer(_data(image), _text(image), as_json=as_json)


@command.command(name="verify")
@_reference
@option("--lock FILE", "Compare with this lock too.", "lock")
@_chosen
def verify(
    reference: str,
    lock: str | None,
    access: Access,
    *,
    platform: str | None,
    in_image: str | None,
    as_json: bool,
) -> int:
    """Tell whether an image is the one that its lock makes: layers, every setting, every file.

    Without --lock that is the lock inside. Of an index, every image is looked at, and that it has those
    that the lock is of. Exit code 1 if anything else is in it, and what that is.
    """
    written = None
    if lock is not None:
        with named_files.opened(lock) as file:
            written = file.read()
    result = image_verify(
        reference,
        lock=written,
        lock_name=lock or "",
        platform=platform,
        in_image=in_image,
        access=access,
    )
    texts = [
        f"{name}: {_text(image)}" if result.platforms[1:] else _text(image)
        for name, image in result.images.items()
    ]
    images = {name: _data(image) for name, image in result.images.items()}
    answer: dict[str, Any] = {"findings": []}
    answer = dict(images.get(oci.here()) or next(iter(images.values()), answer))
    if result.platforms:
        findings = [*answer["findings"], *map(data.finding, result.findings)]
        answer |= {"ok": result.ok, "findings": findings, "platforms": images}
    lines = (*texts, *(f"  {finding}" for finding in result.findings))
    return answers.answer(answer, "\n".join(lines), as_json=as_json, ok=result.ok)


@command.command(name="diff")
@_reference
@click.argument("other", metavar="REF2")
@_chosen
def diff(
    reference: str,
    other: str,
    access: Access,
    *,
    platform: str | None,
    in_image: str | None,
    as_json: bool,
) -> int:
    """Tell how two images differ: pairing, model, command, environment, mods and the files of vllm/.

    Exit code 1 if anything does.
    """
    old, new = (
        open_reference(one, access, platform=platform, in_image=in_image)
        for one in (reference, other)
    )
    result = image_diff(old, new)
    answer = {
        "ok": result.ok,
        "images": [_head(old), _head(new)],
        "pairing": [one._asdict() for one in result.pairing],
        "mods": [data.disagreement(one) for one in result.mods],
        "files": [file._asdict() for file in result.files],
    }
    lines = [
        f"{sign} {text.tree_name(tree.version, tree.base.reference)}"
        for sign, tree in (("-", old), ("+", new))
    ]
    disagreements = text.disagreements(result.mods, (reference, other))
    lines += [f"  {one}" for one in (*result.pairing, *disagreements)]
    for file in result.files:
        what = "only in the first" if file.after is None else "differs"
        lines.append(f"  {file.path}: {'only in the second' if file.before is None else what}")
    if result.ok:
        lines.append("  they serve the same, with the same mods and the same files in vllm/")
    return answers.answer(answer, "\n".join(lines), as_json=as_json, ok=result.ok)


def _head(tree: ImageTree) -> dict[str, Any]:
    return {
        "reference": tree.base.reference,
        "where": tree.base.where,
        "config": tree.base.config_digest,
        "manifest": tree.base.manifest_digest,
        "layers": len(tree.base.diff_ids),
        "site_root": f"/{tree.site_root}",
        "version": tree.version,
    }


def _data(image: InspectedImage) -> dict[str, Any]:
    tree, found = image
    mods = found.receipt.mods if found.receipt else ()
    lock = found.lock
    return {
        "schema": data.SCHEMA,
        "ok": found.ok,
        "image": _head(tree),
        "labels": found.labels,
        "lock": lock
        and {
            "pairing": lock.pairing,
            "model": lock.model,
            "revision": lock.revision,
            "base": lock.base.ref,
            "sha256": found.lock_digest,
        },
        "mods": [
            {**data.applied(mod), "verdict": mod.verdict, "intact": not found.changed(mod.name)}
            for mod in mods
        ],
        "findings": [data.finding(one) for one in found.findings],
    }


def _text(image: InspectedImage) -> str:
    tree, found = image
    head = _head(tree)
    lines = [
        text.tree_name(tree.version, tree.base.reference),
        f"  {head['where']}, {head['layers']} layer{'s' * (head['layers'] != 1)}, {head['config']}",
        f"  vLLM in {head['site_root']}",
    ]
    if found.lock is not None:
        lines.append(
            f"  pairing {found.lock.pairing} for {found.lock.model}, lock {found.lock_digest}"
        )
    for mod in found.receipt.mods if found.receipt else ():
        state = "changed since" if found.changed(mod.name) else "as it was left"
        lines.append(f"  {mod.name} {mod.version} (variant {mod.variant}): went in, {state}")
    if found.receipt is None:
        lines.append("  no mods are in")
    lines += [f"  {one.path}: {one}" if one.path else f"  {one}" for one in found.findings]
    return "\n".join(lines)
