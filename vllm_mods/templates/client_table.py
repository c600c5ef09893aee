"""The table of clients: which works with which template on which release, and what reads the answers. Pure.

``templates/clients.toml`` of a library is made of answers by ``write``, and read by ``parse``. A row holds for the
releases from ``since`` to ``until`` that were asked; of any other release it says nothing.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from packaging.version import Version

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats import toml_writer
from vllm_mods.formats.schema import Table, reading
from vllm_mods.templates.client_check import ClientAnswer, ClientVerdict

FILE = "clients.toml"
_SCHEMA = 1
_HEAD = "# Made by `vllm-mods template clients --update`: what each release's own code makes of each client's requests.\n"


class Row(NamedTuple):
    """The same ``answer`` on all releases from ``since`` to ``until`` that were asked."""

    since: str
    until: str
    answer: ClientAnswer

    def holds_for(self, release: str) -> bool:
        """Tell whether a release that was asked is one of these."""
        return Version(self.since) <= Version(release) <= Version(self.until)


class ClientTable(NamedTuple):
    """The rows, the releases that were asked, and the digests of the templates by their names."""

    releases: tuple[str, ...]
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
        return tuple(row for row in self.rows if known and row.answer.template == template)

    def at(self, template: str, data: bytes, version: str) -> tuple[Row, ...]:
        """Return the rows that hold for a release; none if it was not asked."""
        release = versions.parse(version)  # whatever stands behind a plus sign
        if release is None or release.public not in self.releases:
            return ()
        return tuple(row for row in self.of(template, data) if row.holds_for(release.public))

    def works_from(self, answer: ClientAnswer) -> str | None:
        """Return the release from which on, to the newest that was asked, nothing is lost; ``None`` if there is none."""
        mine = [row for row in self.rows if row.answer[:2] == answer[:2]]
        last = max(mine, key=lambda row: Version(row.since))
        return last.since if last.answer.verdict is ClientVerdict.WORKS else None


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
            rows.append(Row(asked[0], asked[-1], answer))
    digests = {name: sha256(data) for name, data in sorted(templates.items())}
    return ClientTable(tuple(releases), digests, tuple(rows))


def write(table: ClientTable) -> bytes:
    """Return a table as its file."""
    rows = (_columns(row) for row in table.rows)
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


def _columns(row: Row) -> dict[str, str]:
    template, subject, verdict, why = row.answer
    span = {"since": row.since, "until": row.until}
    columns = {"template": template, "subject": subject, **span, "verdict": verdict, "why": why}
    return {name: text for name, text in columns.items() if text}


def parse(data: bytes, where: str) -> ClientTable:
    """Read such a file. Raises ``ManifestError`` with every problem."""
    with reading(toml_of(data, where), where, _SCHEMA) as top:
        digests = top.table("templates")
        return ClientTable(
            releases=tuple(_version(top, "releases", one) for one in top.strings("releases")),
            templates={name: digests.text(name) for name in digests.raw},
            rows=top.rows("rows", _row),
        )


def _row(table: Table) -> Row:
    verdicts = {str(one): one for one in ClientVerdict}
    verdict = table.choice("verdict", tuple(verdicts), ClientVerdict.UNKNOWN, required=True)
    answer = ClientAnswer(
        table.text("template", required=True),
        table.text("subject", required=True),
        verdicts.get(verdict, ClientVerdict.UNKNOWN),
        table.text("why"),
    )
    since, until = (
        _version(table, key, table.text(key, required=True)) for key in ("since", "until")
    )
    return Row(since, until, answer)


def _version(table: Table, key: str, text: str) -> str:
    if (version := versions.parse(text)) is None:
        table.problem(key, f"{text!r} is not a version")
    return str(version or 0)
