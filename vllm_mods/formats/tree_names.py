"""Names inside a tree: which paths are allowed, what names and metadata say of the version. Pure."""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable

from vllm_mods.base.errors import TreeError
from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.formats import record
from vllm_mods.formats.receipt import STATE

_DIST_INFO = re.compile(r"(?P<name>[A-Za-z0-9][\w.]*)-(?P<version>\d[^-/\s]*)\.dist-info\Z")
# The tool's folders in a site root, and a file that it stages beside its target.
_RESERVED = rf"{re.escape(STATE)}|\..*{re.escape(STATE)}\d+\Z"
# What setuptools-scm writes: `__version__ = version = '0.19.1'`.
_MODULE = (
    r"""(?m)^__version__\s*(?::[^=\n]+)?=\s*(?:version\s*=\s*)?(['"])(?P<version>[^'"\n]+)\1"""
)
_PKG_INFO = r"(?m)^Version:[ \t]*(\S+)[ \t]*\r?$"


def split(path: str, spec: str) -> list[str]:
    """Return the components of a path relative to the site root.

    Raises ``TreeError`` for a path that is absolute, goes up with ``..`` or is not written in the
    one way that a file has (``a//b``, ``./a``).
    """
    parts = path.split("/")
    if not is_plain_path(path):
        where = "is absolute" if path.startswith("/") else "points outside the tree"
        if path and "\0" not in path and ".." not in parts and not path.startswith("/"):
            where = "is not a plain relative path"
        why = f"{spec}: refusing to read {path!r}: the path {where}"
        hint = "paths in patches start at the site root, e.g. vllm/config/model.py"
        raise TreeError(why, hint=hint)
    return parts


def is_plain(path: str) -> bool:
    """Tell whether a name in an archive is a plain relative POSIX path."""
    return is_plain_path(path) and "\\" not in path


def is_reserved(path: str) -> bool:
    r"""Tell whether a name in a path is one that only this tool gives to what it keeps in a tree.

    However a file system may take it: in letters of another case or form, with marks that do not
    show, with ``\\`` between folders.
    """
    if not path.isascii():
        import unicodedata  # noqa: PLC0415  (for names that few mods have)

        kinds = ((one, unicodedata.category(one)) for one in unicodedata.normalize("NFKD", path))
        path = "".join(letter for letter, kind in kinds if kind not in {"Cc", "Cf", "Mn"})
    return any(re.match(_RESERVED, name) for name in path.casefold().replace("\\", "/").split("/"))


def dist_info(folder: str) -> tuple[str, str] | None:
    """Return (distribution, version) of a folder named ``<name>-<version>.dist-info``."""
    match = _DIST_INFO.match(folder)
    return (match["name"], match["version"]) if match else None


def dist_infos(folders: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return what those of some folders say that are named so, by folder."""
    return {folder: info for folder in folders if (info := dist_info(folder)) is not None}


def version_of(folders: Iterable[str], name: str) -> str | None:
    """Return the version of a distribution, out of the names of ``.dist-info`` folders; None if there are several."""
    wanted = canonical(name)
    distributions = dist_infos(folders).values()
    versions = {version for one, version in distributions if canonical(one) == wanted}
    return versions.pop() if len(versions) == 1 else None


def canonical(name: str) -> str:
    """Return the one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def module_version(data: bytes | None) -> str | None:
    """Return the version that the text of a ``_version.py`` assigns."""
    match = re.search(_MODULE, (data or b"").decode("utf-8", "replace"))
    return match["version"] if match else None


def pkg_info_version(data: bytes | None) -> str | None:
    """Return the ``Version`` of a ``PKG-INFO`` (core metadata, the headers end at a blank line)."""
    text = (data or b"").decode("utf-8", "replace")
    match = re.search(_PKG_INFO, text.replace("\r\n", "\n").split("\n\n", 1)[0])
    return match[1] if match else None


def recorded_hash(rows: bytes, path: str) -> str | None:
    """Return the hash column of a path in a ``RECORD``, ``""`` where it is empty, ``None`` without a row."""
    columns = record.columns(rows, path)
    return None if columns is None else columns.split(b",")[1].decode("ascii", "replace")


def hash_agrees(recorded: str, data: bytes) -> bool | None:
    """Compare ``data`` with a RECORD hash; ``None`` where the row has no hash we know."""
    algorithm, _, expected = recorded.partition("=")
    if algorithm not in {"sha256", "sha384", "sha512"} or not expected:
        return None
    digest = hashlib.new(algorithm, data).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=") == expected.rstrip("=")


def is_recorded(rows: bytes, path: str, data: bytes) -> bool | None:
    """Return whether ``data`` has the hash that a ``RECORD`` states for ``path``; ``None`` if it states no known hash."""
    recorded = recorded_hash(rows, path)
    return None if recorded is None else hash_agrees(recorded, data)


def sha256_of(recorded: str) -> str | None:
    """Return a RECORD's hash in hexadecimal, ``None`` if it is not a sha256."""
    algorithm, _, value = recorded.partition("=")
    try:
        digest = urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return None
    return digest.hex() if algorithm == "sha256" and len(digest) == 32 else None


def owners_first(folders: list[str], path: str) -> list[str]:
    """Order ``*.dist-info`` folder names so that the likely owner of ``path`` comes first."""
    top = path.split("/", 1)[0].lower().replace("-", "_")
    return sorted(
        folders, key=lambda folder: (not folder.lower().replace("-", "_").startswith(top), folder)
    )
