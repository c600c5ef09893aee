"""The clients of chat templates: which of them work on which release, asked of the releases or read from a library's table."""

from collections.abc import Iterable, Mapping, Sequence

from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.output import write_whole
from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_check, client_requests, client_table
from vllm_mods.templates.client_check import ClientAnswer
from vllm_mods.templates.parser_process import open_release
from vllm_mods.templates.source import Template, open_template


def template_clients(
    library: Library,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    vllm: str | None = None,
    update: bool = False,
    access: Access | None = None,
) -> dict[str, tuple[client_table.Row, ...]]:
    """Tell which clients work with chat templates on which releases of vLLM.

    ``names`` are templates of the library, without any all of them. Without ``target`` and ``vllm``, the library's
    table says it; with a tree as ``open_tree`` takes it, or a range of releases, these are asked: their own code takes
    each client's requests, fenced in. ``update`` writes the table. ``access`` notes each release that is asked.

    Returns the rows of each template by its name; none if nobody asked, or of another text. Raises ``UsageError`` for a
    template that there is not, ``TreeError`` for a tree that cannot be asked.
    """
    if update and (names or vllm is None):
        raise UsageError(
            "--update writes the table of all templates, for a range of releases",
            hint="vllm-mods template clients --update --vllm '>=0.17' --library .",
        )
    templates = [open_template(library, name) for name in names or library.template_names()]
    if target is None and vllm is None:
        return {
            one.name: client_table.read(library, one).of(one.name, one.data) for one in templates
        }
    access = access or Access()
    specs = [target] if target is not None else releases_in(access, vllm or "", plain=True)
    answers = {}
    for spec in specs:
        if vllm is not None:
            access.note(f"asking {spec}")
        with access.open(spec) as tree:
            if tree.version is None:
                raise TreeError(f"{tree.spec}: the tree does not state its vLLM version")
            release = open_release(tree)
            answers[tree.version] = [
                *client_check.ask(templates, client_requests.clients(), tree),
                *(row for one in templates for row in client_check.ask_parsers(one, release)),
            ]
    if update:
        _write(library, templates, answers)
    table = client_table.collect(answers, _texts(templates))
    return {one.name: table.of(one.name, one.data) for one in templates}


def _write(
    library: Library, templates: Sequence[Template], answers: Mapping[str, Sequence[ClientAnswer]]
) -> None:
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
        same = before.templates == client_table.collect({}, texts).templates
        mine = {
            release: [answer for answer in of_all if answer.template in texts]
            for release, of_all in answers.items()
        }
        table = client_table.collect({**(before.answers() if same else {}), **mine}, texts)
        write_whole(place, client_table.write(table))


def _texts(templates: Iterable[Template]) -> dict[str, bytes]:
    return {one.name: one.data for one in templates}
