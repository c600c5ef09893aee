"""Signatures of a pushed image: cosign's, made and verified by it, or one of OpenSSH over the statement of the image.

The statement is the in-toto statement of the build, whose subject is the manifest's digest. It and its signature
are one artifact that is attached to that manifest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from vllm_mods.base import ssh_signatures
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.base.untrusted import json_of
from vllm_mods.building.outputs.registry import Attached, Attachment
from vllm_mods.images import names, referrers
from vllm_mods.images.registry import PLAIN_HTTP, Client

NAMESPACE = "vllm-mods-image"
SIGNED = "application/vnd.vllm-mods.signed-statement.v1"
STATEMENT = "application/vnd.in-toto+json"
BILL = "application/vnd.cyclonedx+json"
_SIGNATURE = "application/vnd.openssh.signature"
_COSIGN = re.compile(rb"-----BEGIN ENCRYPTED (SIGSTORE|COSIGN) PRIVATE KEY-----")
# cosign 3 takes no --tlog-upload=false: its services are named by a file, and these are none
_NO_FLAG = 3
_NO_LOG = {
    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
    "rekorTlogUrls": [],
    "tsaUrls": [],
}


class Signer(NamedTuple):
    """A key that is there, and which cosign signs with it (None: OpenSSH does)."""

    key: str
    cosign: int | None


def signer(key: str) -> Signer:
    """Look at a key: cosign's (a file or a URI), or one of OpenSSH's.

    Raises ``UsageError`` for a file that cannot be read, and where cosign is wanted and is not there.
    """
    if "://" not in key:
        try:
            with open(key, "rb") as file:
                if not _COSIGN.match(file.read(100)):
                    return Signer(key, None)
        except OSError as error:
            raise UsageError(f"{key}: {error.strerror}", hint=f"ls -la {key}") from error
    told = _cosign("version")
    version = re.search(r"GitVersion:\s*v?(\d+)", told.stdout + told.stderr)
    return Signer(key, _NO_FLAG if version is None else int(version[1]))


def attached(statement: bytes, bill: bytes | None, by: Signer | None) -> Attached:
    """Return what an image, or an index of several, gets in a registry: documents, signed if they are to be.

    Raises ``UsageError``.
    """
    documents = () if bill is None else (Attachment(BILL, ((BILL, bill),)),)
    signed = Attached() if by is None else signature(statement, by)
    stated = Attachment(STATEMENT, ((STATEMENT, statement),))
    return signed._replace(artifacts=(*documents, stated, *signed.artifacts))


def signature(statement: bytes, by: Signer) -> Attached:
    """Return the signature of what a statement is of, to be attached to it. Raises ``UsageError``."""
    if by.cosign is not None:
        return Attached(sign=partial(_cosigned, by.key, by.cosign))
    signed = ssh_signatures.sign(by.key, statement, NAMESPACE)
    return Attached((Attachment(SIGNED, ((STATEMENT, statement), (_SIGNATURE, signed))),))


def _cosigned(key: str, version: int, image: str) -> None:
    """Have cosign sign an image, named by its digest, in no public log. Raises ``Refused`` with its words."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(_NO_LOG, config)
        config.flush()
        unlogged = ["--signing-config", config.name]
        if version < _NO_FLAG:
            unlogged = ["--tlog-upload=false"]
        words = ["sign", "--yes", *unlogged, "--key", key, *_over_http(image), image]
        done = _cosign(*words, stderr=None)  # it asks for a password there
    if done.returncode:
        raise Refused(
            f"cosign does not sign {image} (exit code {done.returncode}); no tag was moved",
            hint=f"cosign sign --key {key} {image}",
        )


def cosign_says(key: str, image: str) -> list[Finding]:
    """Return what cosign has against the signature of an image, named by its digest."""
    where = ["--key", key, "--insecure-ignore-tlog=true", *_over_http(image)]
    done = _cosign("verify", *where, image)
    if not done.returncode:
        return []
    last = (done.stderr.strip() or "it does not say why").splitlines()[-1]
    return [_finding(f"cosign finds no good signature by {key}: {last}")]


def ssh_says(signers: str, image: str) -> list[Finding]:
    """Return what is wrong with the signatures of OpenSSH that are attached to an image, named by its digest."""
    name = names.parse(image)
    digest = name.digest or ""
    if not os.path.isfile(signers):
        raise UsageError(
            f"{signers}: there is no such file", hint="man ssh-keygen  # ALLOWED SIGNERS"
        )
    whys = []
    for blobs in referrers.blobs(Client(name, os.environ), digest, SIGNED):
        kinds = {one.media_type: data for one, data in blobs}
        given = kinds.get(STATEMENT, b""), kinds.get(_SIGNATURE, b"")
        why = _why_not(*given, signers, digest)
        if not why:
            return []
        whys.append(_finding(why))
    return whys or [_finding(f"no signature of vllm-mods is attached to {digest}")]


def _why_not(statement: bytes, signature: bytes, signers: str, digest: str) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(signature)
        file.flush()
        why = ssh_signatures.why_not(statement, file.name, signers, NAMESPACE)
    if why:
        return f"a signature that is attached is by nobody in {signers}: {why.replace(file.name, 'it')}"
    try:
        of = [f"sha256:{one['digest']['sha256']}" for one in json_of(statement)["subject"]]
    except (KeyError, TypeError, ValueError):
        of = []
    if of == [digest]:
        return ""
    return f"a signature that is attached is of {', '.join(of) or 'nothing'}, and this is {digest}"


def _finding(why: str) -> Finding:
    return Finding(code=FindingCode.SIGNATURE, message=why)


def _over_http(image: str) -> Sequence[str]:
    listed = os.environ.get(PLAIN_HTTP, "").split(",")
    return ["--allow-http-registry"] if names.parse(image).host in listed else []


def _cosign(
    *arguments: str, stderr: int | None = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["cosign", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError(
            "cosign is not there, and this key is one of its own",
            hint="https://docs.sigstore.dev/cosign/system_config/installation/, or a key of OpenSSH's",
        ) from error
