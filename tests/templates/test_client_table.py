"""The table of clients: answers of releases become rows, and a row says nothing of what was not asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from client_table import asking, chat_clients
from client_table.asking import ClientAnswer
from client_table.rows import answer_of, collect, write
from packaging.version import Version

from vllm_mods.api.access import Access
from vllm_mods.base.errors import ManifestError
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import data_root
from vllm_mods.templates import client_table
from vllm_mods.templates.client_table import ClientTable, ClientVerdict, KnownClient
from vllm_mods.templates.source import open_template

_TEXT = b"{{ messages }}"
_REFUSED = ClientAnswer("t", "codex", ClientVerdict.REFUSED, 'turn 1: "no"')
_WORKS = ClientAnswer("t", "codex", ClientVerdict.WORKS)
_ANSWERS = {"0.20.0": [_REFUSED], "0.9.0": [_REFUSED], "0.21.0": [_WORKS], "0.22.0": [_WORKS]}


def _table() -> ClientTable:
    return collect(_ANSWERS, {"t": _TEXT})


def test_the_same_answers_in_a_row_are_one_row_in_the_order_of_versions() -> None:
    rows = [(row.since, row.until, answer_of(row)) for row in _table().rows]
    assert rows == [("0.9.0", "0.20.0", _REFUSED), ("0.21.0", "0.22.0", _WORKS)]


def test_what_is_written_is_read_back() -> None:
    data = write(_table())
    assert client_table.parse(data, "clients.toml") == _table()
    assert write(client_table.parse(data, "clients.toml")) == data


def test_a_table_need_not_say_how_clients_are_called() -> None:
    named, _, _ = write(_table()).partition(b"[clients]")
    assert client_table.parse(named, "clients.toml") == _table()._replace(clients={})


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("0.9.0", "refused"), ("0.21.0", "works"), ("0.21.0+cu129", "works"), ("0.23.0", None), ("0.20.1", None), ("0.21.0.dev1", None), ("main", None)],
)  # fmt: skip
def test_a_release_that_was_not_asked_has_no_row(version: str, verdict: str | None) -> None:
    rows = _table().at("t", _TEXT, version)
    assert [str(row.verdict) for row in rows] == [verdict] * bool(verdict)


def test_a_template_that_has_another_text_by_now_has_no_row() -> None:
    assert _table().of("t", _TEXT)
    assert _table().of("t", _TEXT + b" ") == _table().of("other", _TEXT) == ()
    assert _table().at("t", b"", "0.21.0") == ()


def test_a_client_works_from_where_it_works_on_to_the_newest() -> None:
    assert _table().works_from(_table().rows[0]) == "0.21.0"
    falling = collect({**_ANSWERS, "0.23.0": [_REFUSED]}, {"t": _TEXT})
    assert falling.works_from(falling.rows[0]) is None


def test_a_row_is_about_a_client_or_about_the_flags_of_parsers() -> None:
    row = _table().rows[0]
    assert row.is_client
    assert not row._replace(subject="--tool-call-parser hermes").is_client


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schema = 2", "schema 1"),
        ('schema = 1\nreleases = ["new"]', "no version: 'new'"),
        ("schema = 1\nrows = [{ template = 't' }]", "rows[0].subject: is required"),
        (
            "schema = 1\nrows = [{ template = 't', subject = 's', since = '1', until = '1', verdict = 'fine' }]",
            "expected one of works",
        ),
        ("schema = 1\nmore = 1", "unknown key"),
    ],
)
def test_a_faulty_table_says_where_and_why(text: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        client_table.parse(text.encode(), "clients.toml")
    assert problem in str(caught.value)


# --- the bundled one

_BUNDLED = Path(data_root()) / "templates" / client_table.FILE


def _bundled() -> ClientTable:
    return client_table.parse(_BUNDLED.read_bytes(), "clients.toml")


def test_the_bundled_table_is_about_the_templates_as_they_are_and_every_client() -> None:
    table, library = _bundled(), Library()
    assert write(table) == _BUNDLED.read_bytes()
    clients = {one.name: KnownClient(one.title, one.endpoint) for one in chat_clients.clients()}
    assert table.clients == clients
    for name in library.template_names():
        rows = table.of(name, open_template(library, name).data)
        assert {row.subject for row in rows if row.is_client} == clients.keys()
        for release in table.releases:
            at = [
                row for row in rows if Version(row.since) <= Version(release) <= Version(row.until)
            ]
            assert len({row.subject for row in at}) == len(at)
    assert not [row for row in table.rows if row.verdict is ClientVerdict.UNKNOWN]


@pytest.mark.parametrize(
    ("client", "before", "since"),
    [("claude-code", "0.22.1", "0.24.0"), ("codex", "0.20.2", "0.22.0")],
)
def test_clients_work_from_the_release_on_that_takes_what_they_send(
    client: str, before: str, since: str
) -> None:
    table = _bundled()
    of_client = [row for row in table.rows if row[:2] == ("qwen3.6-enhanced", client)]
    assert [row.verdict for row in of_client if row.until == before] == [ClientVerdict.REFUSED]
    assert table.works_from(of_client[0]) == since


@pytest.mark.network
@pytest.mark.parametrize("release", ["0.20.0", "0.22.0", "0.23.0", "0.33.0"])
def test_a_release_answers_as_the_table_says(release: str) -> None:
    library, table = Library(), _bundled()
    templates = [open_template(library, name) for name in library.template_names()]
    with Access() as access:
        tree = access.open(f"pypi:{release}")
        answers = list(asking.ask(templates, chat_clients.clients(), tree))
    said = [
        answer_of(row)
        for one in templates
        for row in table.at(one.name, one.data, release)
        if row.is_client
    ]
    assert json.dumps(sorted(answers)) == json.dumps(sorted(said))
