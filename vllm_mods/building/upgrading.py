"""A pairing on another release, or on the same one built anew."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.versions import in_range
from vllm_mods.formats import manifest_editor, pairing
from vllm_mods.formats.pairing import Pairing, specifier
from vllm_mods.formats.pairing_lock import PairingLock


def move_to_release(
    wanted: Pairing, lock: PairingLock, to: str | None, base: str | None
) -> Pairing:
    """Return a pairing for the release ``to``, its base the one of that version; as it is where ``to`` is None.

    With a ``base`` of its own, a tag that says no version is left as it is. Raises ``UsageError`` for what
    is no version, and for such a tag.
    """
    if to is None:
        return wanted
    if in_range(to, "") is None:
        raise UsageError(f"--to {to}: not a version", hint="--to 0.22.0")
    vllm = wanted.vllm
    if vllm is not None and not in_range(to, specifier(vllm)):
        major, minor = (*re.findall(r"\d+", to), "0")[:2]
        range_ = f">={to.partition('+')[0]},<{major}.{int(minor) + 1}"
        vllm = to if vllm[:1].isdigit() else range_
    old = (lock.vllm.version or "").partition("+")[0]
    name, _, tag = wanted.base.rpartition(":")
    new, count = re.subn(rf"(?<![\d.]){re.escape(old)}(?![\d.])", to.partition("+")[0], tag)
    if old and count == 1 and "/" not in tag and "@" not in name:
        return wanted._replace(base=f"{name}:{new}", vllm=vllm)
    if base is not None:
        return wanted._replace(vllm=vllm)
    why = f"the tag of {wanted.base} does not contain its vLLM version {old or '(no version)'}, so the name of the image for {to} is unknown"
    raise UsageError(why, hint=f"vllm-mods upgrade {wanted.name} --to {to} --base REF")


def check_version(wanted: Pairing, lock: PairingLock, to: str | None, version: str | None) -> None:
    """Raise ``Refused`` for a base, as it was named, that has another vLLM than was asked for."""
    if version == lock.vllm.version if to is None else in_range(version, f"=={to}"):
        return
    asked = f"--to says {to}" if to is not None else f"its lock has {lock.vllm.version}"
    why = f"{wanted.base} has vLLM {version or '(no version)'}, but {asked}; nothing was changed"
    hint = f"vllm-mods upgrade {wanted.name} --to {version} --base {wanted.base}"
    raise Refused(why, hint=hint if version else f"vllm-mods image inspect {wanted.base}")


@contextmanager
def naming_ports(name: str, to: str | None) -> Iterator[None]:
    """Add the commands that port the mods to a refusal of mods that do not fit."""
    try:
        yield
    except Refused as error:
        if error.plan is None:
            raise
        tree = error.plan.spec if to is None else f"pypi:{to}"
        unfit = [one.mod.name for one in error.plan.mods if not one.verdict.ok]
        ports = [f"vllm-mods port {mod} --to {tree}" for mod in unfit]
        again = "then run this command again; `vllm-mods keep` ports a whole library"
        why = f"pairing {name} and its lock are unchanged: {error.message}"
        raise Refused(why, hint="\n  ".join((*ports, again)), plan=error.plan) from error


def edit_pairing(data: bytes, where: str, now: Pairing) -> bytes:
    """Return a pairing's file with the base and range of ``now``; all else stays as it is.

    Raises ``Refused`` as ``manifest_editor.edit`` does.
    """
    read = pairing.parse(data, where)
    for key in ("base", "vllm"):
        value = getattr(now, key)
        if getattr(read, key) != value:
            data = manifest_editor.set_key(data, where, key, value)
    return data
