"""``template clients``: the table of a library is shown; other commands speak of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from client_table.asking import ClientAnswer
from client_table.rows import collect, write
from test_template import HELLO, TEXT, TOML

from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_table
from vllm_mods.templates.client_table import ClientVerdict
from vllm_mods.templates.source import open_template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

_REFUSED = ClientAnswer("small", "codex", ClientVerdict.REFUSED, "turn 2: no")
_ANSWERS = {
    "0.20.0": [_REFUSED, ClientAnswer("small", "opencode", ClientVerdict.WORKS)],
    "0.21.0": [
        ClientAnswer("small", "codex", ClientVerdict.WORKS),
        ClientAnswer(
            "small", "opencode", ClientVerdict.LOST, "turn 1: the tool is not in the prompt"
        ),
    ],
}


@pytest.fixture
def small(library: Path) -> Path:
    folder = library / "templates/small"
    (folder / "conversations").mkdir(parents=True)
    (folder / "template.toml").write_text(TOML)
    (folder / "template.jinja").write_text(TEXT)
    (folder / "conversations/hello.json").write_text(json.dumps(HELLO))
    table = collect(_ANSWERS, {"small": TEXT.encode()})
    (library / "templates/clients.toml").write_bytes(write(table))
    return folder


@pytest.mark.usefixtures("small")
def test_a_page_of_a_matrix_says_from_when_on_clients_work(
    call: Call, library: Path, site: Path, tmp_path: Path
) -> None:
    mod = library / "patches/talk"
    mod.mkdir()
    (mod / "mod.toml").write_text(
        'schema = 1\nname = "talk"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.19"\n'
        'templates = [{ name = "small", file = "small.jinja" }]\n'
    )
    page = tmp_path / "page.html"
    call("matrix", "talk", "--tree", site, "--jobs", 1, "--format", "html", "--output", page)
    assert "<b>talk</b>: Codex works from vLLM 0.21.0 on" in page.read_text()
    assert "<b>talk</b>: OpenCode is not known to work on the newest vLLM" in page.read_text()


@pytest.mark.usefixtures("small")
def test_the_table_of_a_library_is_shown(call: Call) -> None:
    assert call("template", "clients", "small").out == (
        "small\n"
        "  Codex, /v1/responses\n"
        "    0.20.0  refused: turn 2: no\n"
        "    0.21.0  works\n"
        "  OpenCode, /v1/chat/completions\n"
        "    0.20.0  works\n"
        "    0.21.0  lost: turn 1: the tool is not in the prompt\n"
    )
    (template,) = call("template", "clients", "small", "--json").json["templates"]
    assert template["rows"][0] == {
        "since": "0.20.0",
        "until": "0.20.0",
        "subject": "codex",
        "verdict": "refused",
        "why": "turn 2: no",
    }


def test_of_a_text_that_nobody_asked_about_nothing_is_said(call: Call, small: Path) -> None:
    (small / "template.jinja").write_text(TEXT + " ")
    answer = call("template", "clients", "small")
    assert (answer.code, answer.out) == (
        0,
        "small\n  the table has no entry for this version of the template\n",
    )


@pytest.mark.usefixtures("small")
def test_what_clients_lose_is_said_with_the_release_from_which_on_they_do_not(
    library: Path,
) -> None:
    own = Library(library)
    template = open_template(own, "small")
    assert client_table.notes(own, template, "0.20.0") == (
        "Codex is refused on vLLM 0.20.0 (turn 2: no), and works from vLLM 0.21.0 on",
    )
    assert client_table.notes(own, template, "0.21.0") == (
        "OpenCode loses text on vLLM 0.21.0 (turn 1: the tool is not in the prompt), and is not known to work on the newest vLLM",
    )
    assert client_table.notes(own, template, "0.22.0") == ("no client was measured on vLLM 0.22.0",)
    assert client_table.notes(own, template, None) == (
        "Codex works from vLLM 0.21.0 on",
        "OpenCode is not known to work on the newest vLLM",
    )
