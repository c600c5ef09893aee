"""What a path to be linted holds: a script, a mod folder of a launcher, its zip, or mods of ours."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.formats import diff, zips
from vllm_mods.library import mod_folder, reading
from vllm_mods.linting import commands, licence, rules
from vllm_mods.linting.rules import Flaw

SCRIPT = "run.sh"
_DOCKERFILE = re.compile(r"\s*(?:#[^\n]*\s+)*(?:FROM|ARG)[ \t]+\S", re.IGNORECASE)


class Linted(NamedTuple):
    """A file that was looked at, and what was found in it."""

    path: str
    flaws: tuple[Flaw, ...]


def lint(path: str) -> tuple[Linted, ...]:
    """Look at everything that a path holds.

    Raises ``UsageError`` for a path with nothing to look at, or that cannot be read.
    """
    linted = tuple(_lint_path(path, path))
    if not linted:
        raise UsageError(
            f"{path} holds neither a {SCRIPT} nor a {mod_folder.MANIFEST}",
            hint="a mod's folder, its zip, a run.sh, or a library with patches/",
        )
    return linted


def script(text: str) -> tuple[Flaw, ...]:
    """Look at the text of a script."""
    try:
        strict = rules.is_strict(text.partition("\n")[0])
        return rules.check(commands.split(text), text, strict=strict)
    except commands.ScriptError as error:
        return (Flaw(FindingCode.NOT_BASH, error.line, error.why),)


def _lint_path(path: str, named: str) -> Iterator[Linted]:
    """Look at a path that was named, or at a folder below it."""
    if not os.path.lexists(path):
        raise UsageError(f"there is no {path}", hint="ls")
    if os.path.isfile(path):
        yield _lint_zip(path) if zipfile.is_zipfile(path) else _lint_file(path)
    elif os.path.lexists(os.path.join(path, mod_folder.MANIFEST)):
        yield _lint_mod(path, named)
    elif os.path.lexists(place := os.path.join(path, SCRIPT)):
        yield Linted(place, script(_read_text(place, named)))
    else:
        for folder in _below(path):
            yield from _lint_path(folder, named)


def _below(path: str) -> Iterator[str]:
    """Yield the mods of a library, or the folders of a collection of mods."""
    patches = os.path.join(path, "patches")
    parent = patches if os.path.isdir(patches) else path
    try:
        names = sorted(os.listdir(parent))
    except OSError as error:
        raise UsageError(
            f"{parent} cannot be read: {error.strerror}", hint=f"ls -ld {parent}"
        ) from error
    for name in names:
        folder = os.path.join(parent, name)
        if any(os.path.lexists(f"{folder}/{mark}") for mark in (SCRIPT, mod_folder.MANIFEST)):
            yield folder


def _lint_mod(folder: str, named: str) -> Linted:
    """Read a mod of ours with all its patches."""
    place = os.path.join(folder, mod_folder.MANIFEST)
    try:
        roots = (os.path.dirname(os.path.dirname(os.path.abspath(folder))), mod_folder.data_root())
        mod = mod_folder.load_mod(
            folder, roots, read=reading.reader(named, *roots, linked=roots[1])
        )
        for variant in mod.variants:
            for patch in variant.patches:
                diff.parse(patch.data, patch.source, root=patch.root)
    except VllmModsError as error:
        return Linted(place, (Flaw(FindingCode.BROKEN_MOD, 1, error.message),))
    if licence.is_stated(mod.license):
        return Linted(place, ())
    why = "does not say under which terms it may be passed on: name them by SPDX, such as Apache-2.0, your own as LicenseRef-NAME"
    rows = enumerate(_read_text(place, named).splitlines(), 1)
    line = next((at for at, row in rows if row.lstrip().startswith("license")), 1)
    return Linted(place, (Flaw(FindingCode.LICENSE_UNSTATED, line, f"`{mod.license}` {why}"),))


def _lint_zip(path: str) -> Linted:
    place = f"{path}:{SCRIPT}"
    try:
        with zips.opened(path) as archive:
            entries = {info.filename: info for info in zips.files(archive)}
            if SCRIPT not in entries:
                raise UsageError(f"{path} has no {SCRIPT} at its root", hint=f"unzip -l {path}")
            if entries[SCRIPT].file_size > limits.SCRIPT:
                raise UsageError(f"{place} is larger than a script", hint=f"unzip -l {path}")
            data = zips.content(archive, entries[SCRIPT], most=limits.SCRIPT)
    except zips.BROKEN as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=f"unzip -t {path}") from error
    return Linted(place, script(data.decode("utf-8", "surrogateescape")))


def _lint_file(path: str) -> Linted:
    text = _read_text(path, None)
    if _DOCKERFILE.match(text):
        raise UsageError(
            f"{path} is a Dockerfile, and scripts are read", hint="RUN vllm-mods apply MOD"
        )
    return Linted(path, script(text))


def _read_text(path: str, named: str | None) -> str:
    data = reading.read(path, named) or b""
    if len(data) > limits.SCRIPT:
        raise UsageError(f"{path} is larger than a script", hint=f"ls -l {path}")
    return data.decode("utf-8", "surrogateescape")
