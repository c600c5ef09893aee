"""The table of clients: which works with which template on which release, and what reads the answers.

``templates/clients.toml`` of a library is made of answers by ``write``, and read by ``parse``. A row holds for the
releases from ``since`` to ``until`` that were asked; of any other release it says nothing.
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

from packaging.version import Version

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats import toml_writer
from vllm_mods.formats.schema import DecodeError, decode
from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_requests
from vllm_mods.templates.client_check import ClientAnswer, ClientVerdict
from vllm_mods.templates.source import Template

FILE = "clients.toml"
_SCHEMA = 1
_HEAD = "# Made by `vllm-mods template clients --update`: what each release's own code makes of each client's requests.\n"


def _why_no_version(text: str) -> str | None:
    return None if versions.parse(text) else f"{text!r} is not a version"


_Release = Annotated[str, _why_no_version]


class Row(NamedTuple):
    """The same answer on all releases from ``since`` to ``until`` that were asked."""

    template: str
    subject: str
    since: _Release
    until: _Release
    verdict: ClientVerdict
    why: str = ""

    @property
    def answer(self) -> ClientAnswer:
        """What each of these releases answered."""
        return ClientAnswer(self.template, self.subject, self.verdict, self.why)

    def holds_for(self, release: str) -> bool:
        """Tell whether a release that was asked is one of these."""
        return Version(self.since) <= Version(release) <= Version(self.until)


class ClientTable(NamedTuple):
    """The rows, the releases that were asked, and the digests of the templates by their names."""

    releases: tuple[_Release, ...]
    templates: Mapping[str, str]
    rows: tuple[Row, ...]

    def answers(self) -> dict[str, list[ClientAnswer]]:
        """Return the answers of each release."""
        return {
            release: [row.answer for row in self.rows if row.holds_for(release)]
            for release in self.releases
        }

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

    def works_from(self, answer: ClientAnswer) -> str | None:
        """Return the release from which on, to the newest that was asked, nothing is lost; ``None`` if there is none."""
        mine = [row for row in self.rows if row[:2] == answer[:2]]
        last = max(mine, key=lambda row: Version(row.since))
        return last.since if last.verdict is ClientVerdict.WORKS else None


EMPTY = ClientTable((), {}, ())


def collect(
    answers: Mapping[str, Iterable[ClientAnswer]], templates: Mapping[str, bytes]
) -> ClientTable:
    """Make a table of the answers by release: those in a row that are the same are one."""
    releases = sorted(answers, key=Version)
    by_pair: dict[tuple[str, str], list[tuple[str, ClientAnswer]]] = {}
    for release in releases:
        for answer in answers[release]:
            by_pair.setdefault(answer[:2], []).append((release, answer))
    rows = []
    for _, of_pair in sorted(by_pair.items()):
        for answer, run in itertools.groupby(of_pair, key=lambda one: one[1]):
            asked = [release for release, _ in run]
            template, subject, verdict, why = answer
            rows.append(Row(template, subject, asked[0], asked[-1], verdict, why))
    digests = {name: sha256(data) for name, data in sorted(templates.items())}
    return ClientTable(tuple(releases), digests, tuple(rows))


def write(table: ClientTable) -> bytes:
    """Return a table as its file."""
    rows = ({name: text for name, text in row._asdict().items() if text} for row in table.rows)
    lines = [
        f"schema = {_SCHEMA}",
        f"releases = {toml_writer.value(table.releases)}",
        "rows = [",
        *(f"  {toml_writer.value(row)}," for row in rows),
        "]",
        "",
        "[templates]  # the digests of their texts",
        *toml_writer.rows(table.templates),
    ]
    return (_HEAD + "\n".join(lines) + "\n").encode()


def parse(data: bytes, where: str) -> ClientTable:
    """Read such a file. Raises ``ManifestError`` with every problem."""
    raw = toml_of(data, where)
    if raw.pop("schema", None) != _SCHEMA:
        raise ManifestError(where, (f"this version of vllm-mods reads schema {_SCHEMA}",))
    try:
        return decode(ClientTable, raw)
    except DecodeError as error:
        raise ManifestError(where, error.problems) from error


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

    Without a release, the second of each client. Nothing is said of what the table does not know.
    """
    table = read(library, template)
    asked = (template.name, template.data)
    rows = table.of(*asked) if version is None else table.at(*asked, version)
    titles = {client.name: client.title for client in client_requests.clients()}
    said = []
    for answer in {row[:2]: row.answer for row in rows if row.answer.is_client}.values():
        since = table.works_from(answer)
        what = f"works from vLLM {since} on" if since else "works on none of these releases"
        if version is not None:
            if answer.verdict in (ClientVerdict.WORKS, ClientVerdict.UNKNOWN):
                continue
            what = f"{answer.verdict}, {answer.why}; {what}"
        said.append(f"{titles.get(answer.subject, answer.subject)}: {what}")
    return tuple(said)
