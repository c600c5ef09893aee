"""``template clients``: the table of a library is shown, and made by asking releases; other commands speak of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from test_template import HELLO, TEXT, TOML
from toy_endpoints import toy_endpoints
from toy_release import toy_release

from vllm_mods.api import template_clients as clients_of_templates
from vllm_mods.library import catalog
from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_table
from vllm_mods.templates.client_check import ClientAnswer, ClientVerdict
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
    table = client_table.collect(_ANSWERS, {"small": TEXT.encode()})
    (library / "templates/clients.toml").write_bytes(client_table.write(table))
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
    assert "<b>talk</b>: Codex: works from vLLM 0.21.0 on" in page.read_text()
    assert "<b>talk</b>: OpenCode: works on none of these releases" in page.read_text()


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
        "small\n  the table has no entry for its text: --target TREE asks a vLLM\n",
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_release_is_asked(call: Call, tmp_path: Path) -> None:
    answer = call("template", "clients", "small", "--target", _tree(tmp_path))
    assert (answer.code, answer.err) == (0, "")
    lost = "  OpenCode, /v1/chat/completions\n    0.25.0  lost: turn 1: the tool is not in the prompt\n"
    assert lost in answer.out


@pytest.mark.slow
def test_what_releases_answer_is_written_into_the_table_of_an_own_library(
    call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled templates are asked about as well, and their table stays as it is where they are installed."""
    monkeypatch.setattr(catalog, "is_checkout", lambda: False)
    monkeypatch.setattr(
        clients_of_templates, "releases_in", lambda *_, **__: [str(_tree(tmp_path))]
    )
    answer = call("template", "clients", "--update", "--vllm", ">=0.25")
    assert answer.code == 0
    table = client_table.parse((small.parent / "clients.toml").read_bytes(), "clients.toml")
    assert (table.releases, list(table.templates)) == (("0.20.0", "0.21.0", "0.25.0"), ["small"])
    assert table.answers()["0.20.0"] == _ANSWERS["0.20.0"]
    assert {row.answer.template for row in table.rows} == {"small"}
    (small / "template.jinja").write_text(TEXT + " ")
    call("template", "clients", "--update", "--vllm", ">=0.25")
    table = client_table.parse((small.parent / "clients.toml").read_bytes(), "clients.toml")
    assert table.releases == ("0.25.0",)  # of another text


def _tree(tmp_path: Path) -> Path:
    tree = tmp_path / "vllm-tree"
    version = {"vllm/__init__.py": b"", "vllm/_version.py": b"__version__ = '0.25.0'\n"}
    for path, data in {**toy_release().files, **toy_endpoints().files, **version}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    return tree


@pytest.mark.usefixtures("small")
def test_what_clients_lose_is_said_with_the_release_from_which_on_they_do_not(
    library: Path,
) -> None:
    own = Library(library)
    template = open_template(own, "small")
    assert client_table.notes(own, template, "0.20.0") == (
        "Codex: refused, turn 2: no; works from vLLM 0.21.0 on",
    )
    assert client_table.notes(own, template, "0.21.0") == (
        "OpenCode: lost, turn 1: the tool is not in the prompt; works on none of these releases",
    )
    assert client_table.notes(own, template, "0.22.0") == ()
    assert client_table.notes(own, template, None) == (
        "Codex: works from vLLM 0.21.0 on",
        "OpenCode: works on none of these releases",
    )


def test_what_is_asked_has_to_be_said(call: Call) -> None:
    answer = call("template", "clients", "--update")
    assert (answer.code, "--update writes the table of all" in answer.err) == (2, True)
    answer = call("template", "clients", "--vllm", ">=0.20", "--target", "x")
    assert (answer.code, "both name the vLLM" in answer.err) == (2, True)
