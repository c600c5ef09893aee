"""``vllm-mods.lock``: what each of a project's libraries was resolved to. Bytes in, data out, and back. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats import toml_writer
from vllm_mods.formats.project import LibrarySource, source_of
from vllm_mods.formats.schema import Table, reading

SCHEMA = 1
RESOLVED = {"git": "commit", "package": "version"}
"""What the library of a kind is resolved to; a folder is only what it holds."""
_FORMS = {
    "commit": (r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z", "a commit"),
    "version": (r"[\w.!+-]+\Z", "a version"),
}
_HEAD = """\
# What `vllm-mods sync` takes. Written by `vllm-mods add`, `update` and `remove`: keep it beside the project's file.
schema = 1
"""


class LockedLibrary(NamedTuple):
    """A library as it is taken: where from, the commit or version, the sha256 of the list of its files."""

    source: LibrarySource
    resolved: str
    files: str


def parse(data: bytes, where: str) -> dict[str, LockedLibrary]:
    """Read a lock: the libraries by their names. Raises ``ManifestError`` with every problem."""
    hint = "vllm-mods update  # writes it again"
    with reading(toml_of(data, where), where, SCHEMA, hint=hint) as top:
        return top.named("libraries", _library)


def _library(table: Table) -> LockedLibrary:
    source, resolved = source_of(table), ""
    if key := RESOLVED.get(source.kind):
        resolved = table.match(key, *_FORMS[key], required=True)
    files = table.match("files", r"sha256:[0-9a-f]{64}\Z", "sha256:HEX", required=True)
    return LockedLibrary(source, resolved, files.removeprefix("sha256:"))


def dump(libraries: Iterable[tuple[str, LockedLibrary]]) -> bytes:
    """Write a lock, its libraries by their names."""
    lines = [_HEAD]
    for name, library in sorted(libraries):
        keys = library.source.keys
        if library.resolved:
            keys[RESOLVED[library.source.kind]] = library.resolved
        keys["files"] = f"sha256:{library.files}"
        lines += [f"[libraries.{toml_writer.key(name)}]", *toml_writer.rows(keys), ""]
    return "\n".join(lines).encode()
