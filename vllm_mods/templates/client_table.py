"""The table of clients: which works with which template on which release, and what reads the answers.

``templates/clients.toml`` of a library is made by ``tools/client_table``. A row holds for the releases from ``since``
to ``until`` that were asked; of any other release it says nothing.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple

from packaging.version import Version

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.schema import decode
from vllm_mods.library.catalog import Library
from vllm_mods.templates.source import Template

FILE = "clients.toml"
SCHEMA = 1
_Release = Annotated[str, lambda text: None if versions.parse(text) else f"no version: {text!r}"]


class ClientVerdict(StrEnum):
    """What a client is to expect, from the best to the worst; of what is unknown nothing is said."""

    WORKS = "works"
    CACHE_LOST = "cache lost"
    LOST = "lost"
    REFUSED = "refused"
    UNKNOWN = "not known"


class KnownClient(NamedTuple):
    """How people call a client, and where it sends its requests."""

    title: str
    endpoint: str


class Row(NamedTuple):
    """What ``subject`` is to expect of a template on all releases from ``since`` to ``until`` that were asked.

    It is a client by its name, or the flags of parsers; ``why`` says what is lost or refused first.
    """

    template: str
    subject: str
    since: _Release
    until: _Release
    verdict: ClientVerdict
    why: str = ""

    @property
    def is_client(self) -> bool:
        """Whether it is about a client's requests, and not about the parsers that read answers."""
        return not self.subject.startswith("--")

    def holds_for(self, release: str) -> bool:
        """Tell whether a release that was asked is one of these."""
        return Version(self.since) <= Version(release) <= Version(self.until)


class ClientTable(NamedTuple):
    """The rows, the releases that were asked, and by their names: the digests of the templates, and the clients."""

    releases: tuple[_Release, ...]
    templates: Mapping[str, str]
    rows: tuple[Row, ...]
    clients: Mapping[str, KnownClient] = {}

    def of(self, template: str, data: bytes) -> tuple[Row, ...]:
        """Return the rows of a template; none if it is another text by now."""
        known = self.templates.get(template) == sha256(data)
        return tuple(row for row in self.rows if known and row.template == template)

    def at(self, template: str, data: bytes, version: str) -> tuple[Row, ...]:
        """Return the rows that hold for a release; none if it was not asked."""
        release = versions.parse(version)  # whatever stands behind a plus sign
        if release is None or release.public not in self.releases:
            return ()
        return tuple(row for row in self.of(template, data) if row.holds_for(release.public))

    def works_from(self, row: Row) -> str | None:
        """Return the release from which on, to the newest that was asked, its subject loses nothing; ``None`` if there is none."""
        mine = [one for one in self.rows if one[:2] == row[:2]]
        last = max(mine, key=lambda one: Version(one.since))
        return last.since if last.verdict is ClientVerdict.WORKS else None


EMPTY = ClientTable((), {}, ())
_LOSSES = {"refused": "is refused", "lost": "loses text", "cache lost": "loses the cache"}


def parse(data: bytes, where: str) -> ClientTable:
    """Read such a file. Raises ``ManifestError`` with every problem."""
    raw = toml_of(data, where)
    if raw.pop("schema", None) != SCHEMA:
        raise ManifestError(where, (f"this version of vllm-mods reads schema {SCHEMA}",))
    return decode(ClientTable, raw, where)


def path_beside(template: Template) -> str:
    """Return where the table lies that has the template of a library."""
    return os.path.join(os.path.dirname(os.path.dirname(template.path)), FILE)


def read(library: Library, template: Template) -> ClientTable:
    """Return the table that lies beside a template of a library, which may have none. Raises ``ManifestError``."""
    path = path_beside(template)
    data = library.read(path) if os.path.isfile(path) else None
    return EMPTY if data is None else parse(data, path)


def notes(library: Library, template: Template, version: str | None) -> tuple[str, ...]:
    """Return what clients lose with a template of the library on a release, and from which on they do not.

    Without a release, the second of each client. Of another release than those of the table just that is said.
    """
    table = read(library, template)
    asked = (template.name, template.data)
    rows = table.of(*asked) if version is None else table.at(*asked, version)
    said = []
    if not rows and table.of(*asked):
        said.append(f"no client was measured on vLLM {version}")
    for row in {one.subject: one for one in rows if one.is_client}.values():
        since = table.works_from(row)
        on = f"works from vLLM {since} on" if since else "is not known to work on the newest vLLM"
        client = table.clients.get(row.subject)
        title = client.title if client else row.subject
        if version is None:
            said.append(f"{title} {on}")
        elif what := _LOSSES.get(row.verdict):
            said.append(f"{title} {what} on vLLM {version} ({row.why}), and {on}")
    return tuple(said)
