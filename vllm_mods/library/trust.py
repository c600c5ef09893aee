"""Whose mods may go in: what ``vllm-mods.toml`` of the project and of the machine ask for, both of them.

Asked at the doors (``apply``, ``lock``, ``build``, ``export``, and ``vm.apply``) of the very bytes that
go through, whoever read them: a mod brings no policy, and an option takes none away.
"""

import os
from collections.abc import Iterable, Iterator, Mapping

from vllm_mods.base.errors import ManifestError, Refused, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.formats.project import Policy
from vllm_mods.library import catalog, checksums, mod_folder, packed_mod, project_file

OF_THE_MACHINE = f"/etc/{project_file.NAME}"


def demand(mods: Iterable[Mod]) -> None:
    """Raise ``Refused`` unless every policy that holds here vouches for each file of these mods.

    Raises ``ManifestError`` and ``UsageError`` for a policy that cannot be read.
    """
    if rules := _pinning():
        libraries: dict[str, dict[str, bytes]] = {}
        for mod in mods:
            if not mod.directory:
                why = f"{rules[0].where} does not allow this: {mod.name} is in no library, so nothing proves where the mod is from"
                hint = f"vllm-mods apply {mod.name} --library DIR  # the library that has it"
                raise Refused(why, hint=hint)
            for root, path, data in _files(mod):
                libraries.setdefault(root, {})[path] = data
        _check(rules, libraries)


def demand_pairing(library: catalog.Library, name: str, *paths: str) -> None:
    """Raise ``Refused`` unless every policy vouches for a pairing, and for other files of its library."""
    if rules := _pinning():
        place = library.pairing_file(name)
        root = os.path.dirname(os.path.dirname(place))
        _check(rules, {root: {path: library.read(path) for path in (place, *paths)}})


def demand_model(folder: str) -> None:
    """Raise ``Refused`` unless a folder, without links, lies below one of the ``model_roots`` of every policy that has some."""
    for policy in policies():
        beside = os.path.dirname(policy.where)
        roots = [os.path.realpath(os.path.join(beside, root)) for root in policy.model_roots]
        if roots and not any(os.path.commonpath((root, folder)) == root for root in roots):
            why = f"{policy.where} does not allow {folder}, which is in none of its model_roots"
            raise Refused(why, hint=f"--model-folder {roots[0]}/…")


def _pinning() -> tuple[Policy, ...]:
    return tuple(policy for policy in policies() if policy.pins)


def policies() -> tuple[Policy, ...]:
    """Read what holds here: the machine's file, and the project's (``project_file``)."""
    machine, project = project_file.read(OF_THE_MACHINE), project_file.find()
    if machine is not None and (machine.libraries or machine.targets):
        raise ManifestError(machine.where, ("libraries and targets belong to a project",))
    return tuple(one.policy for one in (machine, project) if one is not None and one.policy)


def _check(rules: Iterable[Policy], libraries: Mapping[str, Mapping[str, bytes | None]]) -> None:
    for policy in rules:
        beside = os.path.dirname(policy.where)
        hashes = policy.require_hashes
        pins = [pin if pin.startswith("sha256:") else os.path.join(beside, pin) for pin in hashes]
        signers = policy.allowed_signers and os.path.join(beside, policy.allowed_signers)
        for root, files in libraries.items():
            if policy.bundled and root == mod_folder.data_root():
                continue
            try:
                listed = checksums.sums(root, pins, signers)
                for path, data in files.items():
                    checksums.check(root, path, data, listed)
            except (Refused, UsageError) as error:
                why = f"{policy.where} does not allow this: {error.message}"
                raise Refused(why, hint=error.hint) from error


def _files(mod: Mod) -> Iterator[tuple[str, str, bytes]]:
    """Yield the files of a mod: the library that each lies in, its path, its bytes."""
    root = catalog.root_of(mod)
    templates = (one for variant in mod.variants for one in variant.templates)
    elsewhere = {one.source: one.root for one in templates if one.root != mod.directory}
    for name, data in packed_mod.files_of(mod).items():
        folder = elsewhere.get(name)
        yield folder or root, os.path.join(folder or mod.directory, name), data
