"""Releases are asked, and what they answer is written into the tables of a library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from client_table import asking, chat_clients, rows
from client_table.asking import ClientAnswer
from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.output import write_whole
from vllm_mods.base.tree import Tree
from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_table
from vllm_mods.templates.parser_process import open_release
from vllm_mods.templates.source import Template, open_template


def update(library: Library, vllm: str, access: Access) -> list[str]:
    """Ask all releases of a range about all templates of a library, and return the tables that it wrote.

    Each release's own code takes each client's requests, fenced in; ``access`` notes each that is asked. Raises
    ``UsageError`` where no table may be written, ``TreeError`` for a release that cannot be asked.
    """
    templates = [open_template(library, name) for name in library.template_names()]
    answers = {}
    for spec in releases_in(access, vllm, plain=True):
        access.note(f"asking {spec}")
        with access.open(spec) as tree:
            if tree.version is None:
                raise TreeError(f"{tree.spec}: the tree does not state its vLLM version")
            answers[tree.version] = ask(templates, tree)
    return _write(library, templates, answers)


def ask(templates: Sequence[Template], tree: Tree) -> list[ClientAnswer]:
    """Return what a vLLM answers of templates: of each client, and of the parsers that each is meant for."""
    release = open_release(tree)
    return [
        *asking.ask(templates, chat_clients.clients(), tree),
        *(answer for one in templates for answer in asking.ask_parsers(one, release)),
    ]


def _write(
    library: Library, templates: Sequence[Template], answers: Mapping[str, Sequence[ClientAnswer]]
) -> list[str]:
    """Write the table of each library that may be written; what it says of other releases stays, if it is of these texts."""
    by_place: dict[str, list[Template]] = {}
    for template in templates:
        place = client_table.path_beside(template)
        if library.is_writable(place):
            by_place.setdefault(place, []).append(template)
    if not by_place:
        raise UsageError("these templates are bundled", hint="--library DIR names your own")
    for place, beside in by_place.items():
        texts = _texts(beside)
        before = client_table.read(library, beside[0])
        same = before.templates == rows.collect({}, texts).templates
        mine = {
            release: [answer for answer in of_all if answer.template in texts]
            for release, of_all in answers.items()
        }
        table = rows.collect({**(rows.answers_in(before) if same else {}), **mine}, texts)
        write_whole(place, rows.write(table))
    return list(by_place)


def _texts(templates: Iterable[Template]) -> dict[str, bytes]:
    return {one.name: one.data for one in templates}
