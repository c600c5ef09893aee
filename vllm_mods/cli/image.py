"""``vllm-mods image``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Finding
from vllm_mods.building import inspection
from vllm_mods.building.inspection import Inspection
from vllm_mods.building.inspection import inspect as look
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.manner import option
from vllm_mods.images import names, oci
from vllm_mods.images.open import platforms_of
from vllm_mods.report import data, text
from vllm_mods.trees.image import ImageTree


class _Chosen(NamedTuple):
    """Which image of an index is meant, and which vLLM of several in it."""

    platform: str | None
    in_image: str | None


_chosen = options.grouped(
    "chosen",
    _Chosen,
    manner.json_output,
    manner.offline,
    options.target_in_image,
    options.platform,
)
_reference = click.argument("reference", metavar="REF")


@click.group(name="image")
def command() -> None:
    """Tell what is in an image, whether it is intact, and how two differ.

    REF is docker:NAME, podman:NAME, buildah:NAME, container:NAME, oci:FOLDER[:TAG],
    archive:FILE, registry:HOST/NAME:TAG, or a bare NAME of an image in an engine here.
    """


@command.command(name="inspect")
@_reference
@_chosen
def inspect(reference: str, chosen: _Chosen) -> int:
    """Tell what is in an image: vLLM, mods, lock, and files that are not as they were left."""
    tree = _open(reference, chosen)
    found = look(tree)
    return answers.answer(_data(tree, found), _text(tree, found))


@command.command(name="verify")
@_reference
@option("--lock FILE", "Compare with this lock too.", "lock")
@option("--allowed-signers FILE", "Signed by one of these (OpenSSH's form).", "signers")
@option("--key KEY", "Signed with this key of cosign's (file or URI).")
@_chosen
def verify(
    reference: str, lock: str | None, signers: str | None, key: str | None, chosen: _Chosen
) -> int:
    """Tell whether an image is the one that its lock makes: layers, every setting, every file.

    Without --lock that is the lock inside. With --allowed-signers or --key its manifest has to be signed too,
    in the registry that REF is in. Of an index, every image is looked at, that it has those that the
    lock is of, and that it is signed itself. Exit code 1 if anything else is in it, and what that is.
    """
    written = None
    if lock is not None:
        with named_files.opened(lock) as file:
            written = file.read()
    name = reference.removeprefix("image:")
    several = () if chosen.platform else platforms_of(name, offline=manner.is_offline())
    found, wrong = {}, []
    for one in several or (chosen.platform,):
        try:
            tree = _open(reference, chosen._replace(platform=one))
        except UsageError as error:
            if len(several) < 2:
                raise
            wrong.append(Finding("image-differs", f"the index's image for {one}: {error.message}"))
            continue
        looked = look(tree)
        if written is not None:
            against = inspection.against(tree, looked, written, lock or "")
            looked = looked._replace(findings=(*looked.findings, *against))
        more = _signature(tree, signers, key)
        found[one or ""] = tree, looked._replace(findings=(*looked.findings, *more))
    if several:
        wrong += inspection.index_findings(list(found.values()))
        wrong += _index_signature(name, [tree for tree, _ in found.values()], signers, key)
    ok = not wrong and all(looked.ok for _, looked in found.values())
    texts = [
        f"{name}: {_text(*one)}" if several[1:] else _text(*one) for name, one in found.items()
    ]
    images = {name: _data(*one) for name, one in found.items()}
    answer: dict[str, Any] = {"findings": []}
    answer = dict(images.get(oci.here()) or next(iter(images.values()), answer))
    if several:
        findings = [*answer["findings"], *map(data.finding, wrong)]
        answer |= {"ok": ok, "findings": findings, "platforms": images}
    return answers.answer(answer, "\n".join((*texts, *(f"  {one}" for one in wrong))), ok=ok)


@command.command(name="diff")
@_reference
@click.argument("other", metavar="REF2")
@_chosen
def diff(reference: str, other: str, chosen: _Chosen) -> int:
    """Tell how two images differ: pairing, model, command, environment, mods and the files of vllm/.

    Exit code 1 if anything does.
    """
    old, new = (_open(one, chosen) for one in (reference, other))
    mods, files = inspection.diff(old, new)
    pairing = inspection.pairing_diff(old, new)
    same = not mods and not files and not pairing and old.version == new.version
    answer = {
        "ok": same,
        "images": [_head(old), _head(new)],
        "pairing": [one._asdict() for one in pairing],
        "mods": [data.disagreement(one) for one in mods],
        "files": [file._asdict() for file in files],
    }
    lines = [
        f"{sign} {text.tree_name(tree.version, tree.base.reference)}"
        for sign, tree in (("-", old), ("+", new))
    ]
    lines += [f"  {one}" for one in (*pairing, *text.disagreements(mods, (reference, other)))]
    for file in files:
        what = "only in the first" if file.after is None else "differs"
        lines.append(f"  {file.path}: {'only in the second' if file.before is None else what}")
    if same:
        lines.append("  they serve the same, with the same mods and the same files in vllm/")
    return answers.answer(answer, "\n".join(lines), ok=same)


def _open(reference: str, chosen: _Chosen) -> ImageTree:
    reference = reference.removeprefix("image:")
    return options.open_image(f"image:{reference}", reference, *chosen)


def _signature(tree: ImageTree, signers: str | None, key: str | None) -> list[Finding]:
    if signers is None and key is None:
        return []
    if tree.base.where != "registry":
        raise UsageError(
            f"{tree.base.reference}: a signature is attached to an image in a registry, and this is none ({tree.base.where})",
            hint="vllm-mods image verify registry:HOST/NAME:TAG",
        )
    name = names.parse(names.plain(tree.base.reference))._replace(digest=tree.base.manifest_digest)
    return _said_of(str(name), signers, key)


def _index_signature(
    reference: str, images: Sequence[ImageTree], signers: str | None, key: str | None
) -> list[Finding]:
    """Hold the signature of an index, and that it still is the one whose images were looked at."""
    if not images or (signers is None and key is None):
        return []
    from vllm_mods.images.registry import Client  # noqa: PLC0415

    name = names.parse(names.plain(reference))
    client = Client(name, os.environ)
    index = client.manifest(reference)
    raw = oci.parse(oci.document_of(client, index, reference), reference)
    listed = {one.get("digest") for one in raw.get("manifests") or ()}
    for tree in images:
        if tree.base.manifest_digest not in listed:
            gone = f"{reference} is {index.digest} by now, which has no {tree.base.manifest_digest}"
            return [Finding("signature", f"{gone}: it was moved while it was looked at")]
    return _said_of(str(name._replace(digest=index.digest)), signers, key)


def _said_of(name: str, signers: str | None, key: str | None) -> list[Finding]:
    from vllm_mods.building import signing  # noqa: PLC0415

    by_ssh = [] if signers is None else signing.ssh_says(signers, name)
    return by_ssh + ([] if key is None else signing.cosign_says(key, name))


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


def _data(tree: ImageTree, found: Inspection) -> dict[str, Any]:
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


def _text(tree: ImageTree, found: Inspection) -> str:
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
