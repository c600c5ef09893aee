"""The project's own tool asks releases, and writes what they answer into the table of a library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from client_table import __main__ as command, making
from client_table.asking import ClientAnswer
from client_table.rows import answers_in, collect, write
from toy_endpoints import toy_endpoints
from toy_release import toy_release

from vllm_mods.library import catalog
from vllm_mods.templates import client_table
from vllm_mods.templates.client_table import ClientTable, ClientVerdict

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = "{% for m in messages %}{{ m.content }}{{ '.' if m.role == 'assistant' }}\n{% endfor %}"
_ANSWERS = {
    "0.20.0": [
        ClientAnswer("small", "codex", ClientVerdict.REFUSED, "turn 2: no"),
        ClientAnswer("small", "opencode", ClientVerdict.WORKS),
    ],
    "0.21.0": [
        ClientAnswer("small", "codex", ClientVerdict.WORKS),
        ClientAnswer("small", "opencode", ClientVerdict.LOST, "turn 1: the tool is not there"),
    ],
}
_COMMAND = ("--vllm", ">=0.25", "--library")

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with a template that two releases were asked about; the newer one that there is has toy endpoints."""
    tree = tmp_path / "vllm-tree"
    version = {"vllm/__init__.py": b"", "vllm/_version.py": b"__version__ = '0.25.0'\n"}
    for path, data in {**toy_release().files, **toy_endpoints().files, **version}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    monkeypatch.setattr(making, "releases_in", lambda *_, **__: [str(tree)])
    monkeypatch.setattr(catalog, "is_checkout", lambda: False)
    folder = tmp_path / "library/templates/small"
    folder.mkdir(parents=True)
    (folder / "template.jinja").write_text(_TEXT)
    table = collect(_ANSWERS, {"small": _TEXT.encode()})
    (folder.parent / "clients.toml").write_bytes(write(table))
    return tmp_path / "library"


def _table(library: Path) -> ClientTable:
    return client_table.parse((library / "templates/clients.toml").read_bytes(), "clients.toml")


@pytest.mark.started
def test_what_releases_answer_is_written_into_the_table_of_an_own_library(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundled templates are asked about as well, and their table stays as it is where they are installed."""
    command.main([*_COMMAND, str(library)])
    assert capsys.readouterr().out == f"wrote {library}/templates/clients.toml\n"
    table = _table(library)
    assert (table.releases, list(table.templates)) == (("0.20.0", "0.21.0", "0.25.0"), ["small"])
    answers = answers_in(table)
    assert answers["0.20.0"] == _ANSWERS["0.20.0"]
    lost = ClientAnswer(
        "small", "opencode", ClientVerdict.LOST, "turn 1: the tool is not in the prompt"
    )
    assert lost in answers["0.25.0"]
    assert {row.template for row in table.rows} == {"small"}


def test_what_was_said_of_another_text_is_left_out(library: Path) -> None:
    (library / "templates/small/template.jinja").write_text(_TEXT + " ")
    command.main([*_COMMAND, str(library)])
    assert _table(library).releases == ("0.25.0",)


def test_where_no_table_may_be_written_the_tool_says_so(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (library / "templates/clients.toml").read_bytes()
    monkeypatch.setattr(catalog.Library, "is_writable", lambda *_: False)
    with pytest.raises(SystemExit) as ended:
        command.main([*_COMMAND, os.fspath(library)])
    assert (
        ended.value.code == "error: these templates are bundled\nhint: --library DIR names your own"
    )
    assert (library / "templates/clients.toml").read_bytes() == before
