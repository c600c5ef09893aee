"""A serve command held against the vLLM that it will run on; of a pairing, before that is locked, built and run too."""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access, releases_in
from vllm_mods.api.template_clients import client_notes
from vllm_mods.base.errors import ManifestError, Refused, TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, Mod, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import environment, taken_over
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.scripts import command_line
from vllm_mods.serving import faults
from vllm_mods.serving.check import ServeAnswer, check
from vllm_mods.serving.command import words
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import ParserTerms, Serving, TemplateTerms
from vllm_mods.templates import call_forms
from vllm_mods.templates import check as template_check
from vllm_mods.templates.source import Template, open_template
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import receipt_of

_ENGINE_FINDINGS = frozenset({"rust-frontend", "template-unreadable"})
_STARTS = {
    FindingCode.MOD_FLAG_ABSENT,
    FindingCode.TEMPLATE_TERMS,
    FindingCode.PARSER_TERMS,
    FindingCode.FLAG_UNUSED,
}
"""What vLLM takes all the same: a mod then may do nothing, calls may stay text."""
_CALL = "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE"


class ServeArguments(NamedTuple):
    """What is to be checked, before there is a tree. ``vllm`` is the pairing's own range.

    ``missing`` are its mods and templates that no library has, each with why; ``brought`` is what it takes over of
    its mods, each with what is to be said.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unknown: tuple[str, ...]
    mods: tuple[Mod, ...] = ()
    name: str | None = None
    vllm: str | None = None
    missing: tuple[tuple[str, str], ...] = ()
    library: Library | None = None
    brought: tuple[tuple[str, str], ...] = ()


class ServeCell(NamedTuple):
    """The answer for one tree: ``version`` is vLLM's, ``tree`` the spec it was opened by."""

    version: str
    tree: str
    answer: ServeAnswer


class ServeChecked(NamedTuple):
    """The answers for a serve command, one of the ``cells`` per tree.

    ``argv`` is the command behind ``vllm serve``, ``pairing`` the one that it is of. ``over_releases``
    says that a range of releases was asked for.
    """

    argv: tuple[str, ...]
    pairing: str | None
    cells: tuple[ServeCell, ...]
    over_releases: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong on any tree."""
        return all(cell.answer.ok for cell in self.cells)


def serve_check(
    library: Library | None = None,
    pairing: str | None = None,
    *,
    command: str | None = None,
    target: str | None = None,
    vllm: str | None = None,
    access: Access | None = None,
) -> ServeChecked:
    """Hold the command of a pairing, or a ``command`` line, against a vLLM's source, which is not imported.

    ``pairing`` is the name of one of the ``library``, with its environment, templates and mods. ``target`` is
    what ``open_tree`` takes, ``vllm`` a range of releases; without both, the newest release that the pairing is for
    is asked.

    Returns ``ServeChecked``. Raises ``UsageError`` for a command that bash does not read, and where nothing says
    which vLLM is meant, or both do.

    >>> vm.serve_check(command="vllm serve m 'unended", target="site-packages")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: bash cannot read --command: ...
    """
    access = access or Access()
    if command is not None and pairing is None:
        asked = _with_template(of_script(command, "--command", _CALL), library or Library())
    elif command is None and pairing is not None:
        library = library or Library()
        asked = of_pairing(library, library.pairing(pairing))
    else:
        raise UsageError("give either a pairing or --command", hint=_CALL)
    if vllm is not None and target is not None:
        raise UsageError("--vllm and --target both name the vLLM", hint="give one")
    if vllm is not None:
        cells = []
        for spec in releases_in(access, vllm):
            try:
                cells.append(_ask_tree(asked, spec, access))
            except TreeError as error:  # it fails its own cell only
                fault = ServeFault(FindingCode.UNREADABLE, spec, error.message)
                answered = ServeAnswer((fault,), used=0)
                cells.append(ServeCell(spec.removeprefix("pypi:"), spec, answered))
        return ServeChecked(asked.argv, asked.name, tuple(cells), over_releases=True)
    cell = _ask_tree(asked, target or _default_target(asked, access), access)
    return ServeChecked(asked.argv, asked.name, (cell,), over_releases=False)


def _ask_tree(asked: ServeArguments, spec: str, access: Access) -> ServeCell:
    tree = access.open(spec)
    return ServeCell(tree.version or "", tree.spec, ask(asked, tree))


def _default_target(asked: ServeArguments, access: Access) -> str:
    """Return the newest release that the pairing is for."""
    if asked.vllm is None:
        what = f"pairing `{asked.name}` does not say its vLLM" if asked.name else "no tree is named"
        raise UsageError(f"{what}: no vLLM to check against was named", hint="--target TREE")
    if re.fullmatch(r"\d[\w.+]*", asked.vllm):
        return f"pypi:{asked.vllm}"
    return releases_in(access, asked.vllm, plain=True)[-1]


def of_pairing(library: Library, named: Pairing) -> ServeArguments:
    """Return what a pairing serves, with what it takes over of its mods.

    Raises ``ManifestError`` for a mod that is there and faulty, and as ``taken_over`` does.
    """
    missing: list[tuple[str, str]] = []

    def readable(names: Sequence[str], read: Callable[[str], object]) -> Iterator[str]:
        for name in names:
            try:
                read(name)
                yield name
            except UsageError as error:
                missing.append((name, error.message))

    whole = named._replace(templates=())
    whole = whole._replace(mods=tuple(readable(named.mods, lambda name: library.select([name]))))
    templates = readable(
        named.templates, lambda name: library.mods_of(whole._replace(templates=(name,)))
    )
    mods = library.select(library.mods_of(whole._replace(templates=tuple(templates))))
    served, brought = taken_over(named, mods)
    serving, script = pairings.serve_command(served)
    return ServeArguments(
        argv=words(serving.argv),
        env=environment(served),
        unknown=tuple(one.text for one in script.unknown),
        mods=mods,
        name=named.name,
        vllm=named.vllm,
        missing=tuple(missing),
        library=library,
        brought=brought,
    )


def of_script(text: str, what: str, hint: str) -> ServeArguments:
    """Return what a script serves. Raises ``UsageError`` for one that bash does not read."""
    try:
        script = command_line.read(text)
    except command_line.ShellError as error:
        raise UsageError(f"bash cannot read {what}: {error}", hint=hint) from error
    if not script.commands:
        raise UsageError(f"{what} is empty", hint=hint)
    first = pairings.served_by(script)
    env = {**command_line.exported(script), **dict(first.assignments)}
    return ServeArguments(words(first.argv), env, tuple(one.text for one in script.unknown))


def ask(asked: ServeArguments, tree: Tree) -> ServeAnswer:
    """Hold a command against a tree with its mods in. Raises ``TreeError``."""
    planned = planner.plan(asked.mods, tree, receipt=receipt_of(tree)) if asked.mods else None
    return answer(asked, tree, planned)


def answer(asked: ServeArguments, tree: Tree, planned: Plan | None) -> ServeAnswer:
    """Hold a command against a tree with what was planned for it. Raises ``TreeError``."""
    serving = Serving(
        asked.argv,
        asked.env,
        asked.unknown,
        mods=planned.mods if planned else (),
        container=tree if isinstance(tree, ImageTree) else None,
        missing=tuple(name for name, _ in asked.missing),
        own_terms=_own_terms,
        other_engine=lambda name, data: _with_minijinja(asked.library, name, data),
        terms=lambda name, data: _terms(asked.library, _template(asked.library, name, data), tree),
    )
    result = check(KnownFlags(LayeredTree(tree, planned.changes) if planned else tree), serving)
    notes = [
        faults.note(
            FindingCode.MOD_UNREAD,
            name,
            f"was not checked: {why}; what the mod adds is unknown",
        )
        for name, why in asked.missing
    ]
    notes += [faults.note(FindingCode.MOD_BRINGS, name, text) for name, text in asked.brought]
    return result._replace(faults=(*notes, *result.faults))


def demand(
    asked: ServeArguments,
    tree: Tree,
    planned: Plan | None = None,
    *,
    note: Callable[[str], None],
) -> None:
    """Raise ``Refused`` if vLLM in an image would not take the command of the pairing."""
    try:
        result = answer(asked, tree, planned)
    except TreeError as error:
        note(f"the command is not checked: {error.message}")
        return
    for name, text in asked.brought:
        note(f"{name} {text}")
    wrong = []
    for fault in result.faults:
        if fault.level is not Level.ERROR:
            continue
        if fault.code in _STARTS:
            note(f"{fault.subject}: {fault.message}")
        else:
            wrong.append(fault)
    if wrong:
        lines = "".join(f"\n  {fault.subject}: {fault.message} [{fault.code}]" for fault in wrong)
        of = asked.name
        if asked.library is None:
            of = f"--command {shlex.quote(shlex.join(('vllm', 'serve', *asked.argv)))}"
        raise Refused(
            f"vLLM {tree.version} would reject the command of pairing {asked.name}{lines}",
            hint=f"vllm-mods serve-check {of} --target {tree.spec}",
        )


def _with_minijinja(library: Library | None, name: str, data: bytes) -> str:
    """Return what minijinja makes of a template otherwise than Jinja, ``""`` if nothing."""
    cases = _template(library, name, data).conversations
    findings = template_check.check(Template(name, name, data), cases).findings
    return next((one.message for one in findings if one.code in _ENGINE_FINDINGS), "")


def _template(library: Library | None, name: str, data: bytes) -> Template:
    """Return a template with what lies beside it in the library, if it has just this one."""
    alone = Template(name, name, data)
    try:
        of_library = open_template(library, name.rpartition(".")[0]) if library else alone
    except (UsageError, ManifestError):
        return alone
    return of_library if of_library.data == data else alone


def _terms(library: Library | None, template: Template, tree: Tree) -> TemplateTerms | None:
    about = template.about
    if about is None or library is None:
        return None
    takes: dict[str, tuple[str, ...]] = {
        "--chat-template-content-format": ("auto", about.content_format)
    }
    if about.tool_call_parser:
        others = about.other_tool_call_parsers
        takes["--tool-call-parser"] = (about.tool_call_parser, *others)
    if about.reasoning_parser:
        takes["--reasoning-parser"] = (about.reasoning_parser,)
    clients = client_notes(library, template, tree.version) if tree.version else ()
    return TemplateTerms(takes, tuple(one.name for one in about.kwargs), clients)


def _own_terms(model: str, chat_template: str) -> ParserTerms | None:
    """Return the parsers for a model's own template, which is read where it lies here, or for models of its name."""
    place, template = chat_template or model, None
    if os.path.exists(place):
        with contextlib.suppress(UsageError, ManifestError):
            template = open_template(Library(), os.path.abspath(place))
    form = call_forms.form_of_template(template) if template else None
    sure = form is not None
    if template is None and not chat_template:
        form = call_forms.form_of_name(model)
        sure = form is not None and model.startswith(call_forms.MAKER)
    reads: dict[str, tuple[str, ...]] = {}
    shown: dict[str, str] = {}
    if form is not None:
        reads["--tool-call-parser"] = form.readers
        who = (
            f"{place} tells the model to write" if template else f"models named like {model} write"
        )
        shown["--tool-call-parser"] = f"{who} calls in the form {form.name}"
    if not chat_template and (thinks := call_forms.reasoning_parser_of(model)):
        reads["--reasoning-parser"] = (thinks,)
        shown["--reasoning-parser"] = f"with thinking off {model} writes no </think>"
    others = (one for other in call_forms.FORMS if other is not form for one in other.readers)
    return ParserTerms(reads, shown, tuple(others) if sure else ()) if reads else None


def _with_template(asked: ServeArguments, library: Library) -> ServeArguments:
    """Hold a command that names a chat template of the library against its mod, too."""
    stems = (re.split(r"[/=]", word)[-1].rpartition(".")[0] for word in asked.argv)
    mods = library.select(dict.fromkeys(stem for stem in stems if library.has(stem)))
    files = {file.file for mod in mods for variant in mod.variants for file in variant.templates}
    return asked._replace(mods=mods, library=library) if files else asked
