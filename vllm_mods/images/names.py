"""Image names, by the rules that docker made and everybody follows. Pure.

``python`` is ``docker.io/library/python:latest``; the part before the first slash is a host only if
it has a dot or a colon in it or is ``localhost``.
"""

import contextlib
import ipaddress
import re
from typing import NamedTuple

from vllm_mods.base.errors import UsageError

HUB = "docker.io"
_KINDS = ("docker", "podman", "registry")
_FOLDER = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_FOLDER}(?:/{_FOLDER})*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?\Z"
)


class Name(NamedTuple):
    """An image in a registry; a digest, where there is one, wins over the tag."""

    host: str
    repository: str
    tag: str
    digest: str | None = None

    @property
    def version(self) -> str:
        """What stands behind ``manifests/`` in a registry's URLs."""
        return self.digest or self.tag

    def __str__(self) -> str:
        version = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.host}/{self.repository}{version}"


def plain(reference: str) -> str:
    """Return a reference without the word in front that says where to look (``docker:NAME``)."""
    kind, colon, name = reference.partition(":")
    return name if colon and kind in _KINDS else reference


def has_host(text: str) -> bool:
    """Tell whether a name says which registry it is of."""
    host, slash, _ = text.partition("@")[0].partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def parse(text: str) -> Name:
    """Read a name. Raises ``UsageError``."""
    rest, at, digest = text.partition("@")
    host, _, repository = rest.partition("/") if has_host(text) else (HUB, "", rest)
    repository, colon, tag = repository.partition(":")
    if host == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if host == f"index.{HUB}":
        host = HUB
    wrong = (
        f"{host!r} is not a host name" if not _is_host(host)
        else f"{repository!r} is not a repository name" if not _REPOSITORY.match(repository)
        else f"{tag!r} is not a tag" if colon and not _TAG.match(tag)
        else f"{digest!r} is not a digest" if at and not _DIGEST.match(digest)
        else None
    )  # fmt: skip
    if wrong:
        why = f"{text}: not an image name: {wrong}"
        hint = "HOST/NAME:TAG or HOST/NAME@sha256:…; only tags may have capital letters"
        raise UsageError(why, hint=hint)
    return Name(host, repository, tag or "latest", digest or None)


def _is_host(text: str) -> bool:
    with contextlib.suppress(ValueError):
        if text.startswith("["):
            ipaddress.IPv6Address(text[1 : text.index("]")])
        return _HOST.match(text) is not None
    return False
