"""Answers of releases as the rows of a table, and a table as its file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from packaging.version import Version

from client_table import chat_clients
from client_table.asking import ClientAnswer
from vllm_mods.base.digest import sha256
from vllm_mods.formats import toml_writer
from vllm_mods.templates.client_table import SCHEMA, ClientTable, KnownClient, Row

_HEAD = (
    "# Made by tools/client_table: what each release's own code makes of each client's requests.\n"
)


def answer_of(row: Row) -> ClientAnswer:
    """Return what each release of a row answered."""
    return ClientAnswer(row.template, row.subject, row.verdict, row.why)


def answers_in(table: ClientTable) -> dict[str, list[ClientAnswer]]:
    """Return the answers of each release."""
    return {
        release: [answer_of(row) for row in table.rows if row.holds_for(release)]
        for release in table.releases
    }


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
    known = {one.name: KnownClient(one.title, one.endpoint) for one in chat_clients.clients()}
    return ClientTable(tuple(releases), digests, tuple(rows), known)


def write(table: ClientTable) -> bytes:
    """Return a table as its file."""
    rows = ({name: text for name, text in row._asdict().items() if text} for row in table.rows)
    lines = [
        f"schema = {SCHEMA}",
        f"releases = {toml_writer.value(table.releases)}",
        "rows = [",
        *(f"  {toml_writer.value(row)}," for row in rows),
        "]",
        "",
        "[templates]  # the digests of their texts",
        *toml_writer.rows(table.templates),
        "",
        "[clients]",
        *toml_writer.rows({name: client._asdict() for name, client in table.clients.items()}),
    ]
    return (_HEAD + "\n".join(lines) + "\n").encode()
