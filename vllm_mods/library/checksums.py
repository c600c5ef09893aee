"""Libraries that may hold only what somebody vouches for: a list of hashes, itself pinned or signed.

The list has the form of ``sha256sum`` (GNU coreutils) with paths from the library's folder, and is
checked by that program too. A signature is one of OpenSSH (PROTOCOL.sshsig) in the namespace
``vllm-mods``, verified by ``ssh-keygen -Y verify``.
"""

import os
import re
from collections.abc import Mapping, Sequence

from vllm_mods.base import ssh_signatures
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.library import reading

SUMS = "SHA256SUMS"
NAMESPACE = "vllm-mods"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.+)", re.ASCII)
_PIN = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def sums(library: str, pins: Sequence[str], signers: str | None) -> dict[str, str]:
    """Return the sha256 of every file that a library may hold, by its path in the library.

    ``pins`` are files with lists, or ``sha256:…`` of the library's own ``SHA256SUMS``; ``signers`` is a file in the
    form of OpenSSH's allowed_signers, and then the library's own list has to be signed by one of these. Raises
    ``Refused`` for a list that none of them vouches for, ``UsageError`` for a list or file that cannot be read.
    """
    files = [pin for pin in pins if not _PIN.fullmatch(pin)]
    digests = [pin.removeprefix("sha256:") for pin in pins if _PIN.fullmatch(pin)]
    listed: dict[str, str] = {}
    for file in files:
        listed |= parse(_bytes(file), file)
    if not digests and signers is None:
        return listed
    own = os.path.join(library, SUMS)
    data = _bytes(own, library)
    if digests and sha256(data) not in digests:
        why = f"{own} has another hash than required: sha256:{sha256(data)}"
        raise Refused(why, hint="accept the new hash only if you know why the library changed")
    if signers is not None:
        signature = f"{own}.sig"
        _bytes(signature, library)
        _bytes(signers)
        if why := ssh_signatures.why_not(data, signature, signers, NAMESPACE):
            why = f"{signature} is not a valid signature of {own} by a signer in {signers}: {why}"
            hint = f"ssh-keygen -Y check-novalidate -n {NAMESPACE} -s {signature} < {own}  # shows who signed it"
            raise Refused(why, hint=hint)
    own_sums = parse(data, own)
    # With a list from elsewhere too, what both say is what counts.
    return {path: own_sums[path] for path in own_sums.keys() & listed.keys()} if files else own_sums


def parse(data: bytes, where: str) -> dict[str, str]:
    """Read a list as ``sha256sum`` prints it. Raises ``UsageError`` for a line that is none of it."""
    listed: dict[str, str] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            why = f"{where}:{number}: {line[:80]!r} is not a line of a hash list"
            hint = f"cd LIBRARY && find patches templates pairings -type f | sort | xargs sha256sum > {SUMS}"
            raise UsageError(why, hint=hint)
        digest, path = match.groups()
        if listed.setdefault(path, digest) != digest:
            raise UsageError(f"{where}:{number}: {path} is listed with two hashes")
    return listed


def check(
    library: str,
    path: str,
    data: bytes | None,
    listed: Mapping[str, str],
    *,
    hint: str | None = None,
) -> None:
    """Raise ``Refused`` unless a file of a library has the bytes that the list says, or neither is there."""
    relative = os.path.relpath(path, library)
    wanted, actual = listed.get(relative), None if data is None else sha256(data)
    if wanted == actual:
        return
    if wanted is None:
        what = "is in no hash list"
    elif actual is None:
        what = "is missing, but is in the hash list"
    else:
        what = f"has the hash sha256:{actual}, but the list of hashes has {wanted} for it"
    raise Refused(
        f"{path} {what}; nothing was changed",
        hint=hint
        or f"(cd {library} && sha256sum --check {SUMS})  # or get the library again from its source",
    )


def _bytes(path: str, inside: str | None = None) -> bytes:
    data = reading.read(path, inside)
    if data is None:
        why = f"{path}: no such file, so the expected contents of the library are unknown"
        raise UsageError(why, hint="docs/security.md explains how to pin and sign a library")
    return data
