"""A report that a bug can be looked into with, and that holds no secrets."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from vllm_mods.diagnosis import secrets
from vllm_mods.diagnosis.tool import tool
from vllm_mods.formats.decode import encode
from vllm_mods.site.state_folder import read_receipt
from vllm_mods.trees.folder import find_site_root

_SHOWN = ("CI", "NO_COLOR", "SOURCE_DATE_EPOCH")
"""Variables that are shown with their values, beside those of vllm-mods itself."""
_LONGEST = 100_000


def report(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    error: BaseException | None = None,
    parts: Mapping[str, object] | None = None,
) -> str:
    """Return the report as Markdown.

    ``arguments`` are those of the command, ``parts`` further things to show as JSON, such as the plan
    that was made. What cannot be told says why: a report of a broken installation is wanted most.
    """
    target = _target(arguments)
    sections: dict[str, Callable[[], str]] = {
        "command": lambda: secrets.command(arguments, environ),
        "what went wrong": lambda: "" if error is None else trace(error),
        "vllm-mods": lambda: _json(tool()._asdict()),
        "system": _system,
        "environment": lambda: _environment(environ),
        "target": lambda: "" if target is None else _folder(target),
        **{name: partial(_json, thing) for name, thing in (parts or {}).items()},
    }
    blocks = ["# A report for the developers of vllm-mods"]
    for title, make in sections.items():
        text = _told(make)
        if text:
            blocks.append(f"## {title}\n\n```\n{secrets.clean(text, environ)[:_LONGEST]}\n```")
    return "\n\n".join(blocks) + "\n"


def trace(error: BaseException) -> str:
    """Return a traceback without the values of variables."""
    return "".join(traceback.format_exception(error)).rstrip()


def _told(make: Callable[[], str]) -> str:
    try:
        return make()
    except Exception as error:  # noqa: BLE001  (the same fault may be met again while it is told of)
        return f"could not be told: {error!r}"


def _json(thing: object) -> str:
    return json.dumps(encode(thing), indent=1, default=str)


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = "no os-release"
    libc = " ".join(platform.libc_ver())
    return f"{platform.system()} {platform.release()} {platform.machine()}, {name}, {libc}"


def _environment(environ: Mapping[str, str]) -> str:
    shown = {name for name in environ if name.startswith("VLLM_MODS_") or name in _SHOWN}
    lines = [f"{name}={environ[name]}" for name in sorted(shown)]
    return "\n".join([*lines, f"also set: {' '.join(sorted(environ.keys() - shown))}"])


def _target(arguments: Sequence[str]) -> str | None:
    """Return the folder that a command line names as its target."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        value = argument if before == "--target" else argument.partition("--target=")[2]
        if value and os.path.isdir(value):
            return value
    return None


def _folder(target: str) -> str:
    root = find_site_root(target)
    there, disk = read_receipt(root), os.statvfs(root)
    mods = there.mods if there else ()
    said = {
        "site root": root,
        "owner": os.stat(root).st_uid,
        "user": os.geteuid(),
        "free": disk.f_bavail * disk.f_frsize,
        "receipt": [f"{one.name} {one.version} {one.variant} {one.digest}" for one in mods],
    }
    return _json(said)
