"""What a pairing serves, held against a tree: the part that ``serve-check``, ``lock``, ``build`` and ``run`` share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import ManifestError, Refused, TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, Mod, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.formats import pairing
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import environment, taken_over
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.scripts import command_line
from vllm_mods.serving import faults
from vllm_mods.serving.check import ServeAnswer, Serving, check
from vllm_mods.serving.command import words
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.templates import check as template_check
from vllm_mods.templates.source import Template, open_template
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import receipt_of

_ENGINE_FINDINGS = frozenset({"rust-frontend", "template-unreadable"})


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
    serving, script = pairing.serve_command(served)
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
        raise UsageError(f"{what} is not one that bash reads: {error}", hint=hint) from error
    if not script.commands:
        raise UsageError(f"{what} is empty", hint=hint)
    first = pairing.served_by(script)
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
        other_engine=lambda name, data: _with_minijinja(asked.library, name, data),
    )
    result = check(KnownFlags(LayeredTree(tree, planned.changes) if planned else tree), serving)
    notes = [
        faults.note(
            FindingCode.MOD_UNREAD,
            name,
            f"was not looked at: {why}: what it adds is not known here",
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
        if fault.code == FindingCode.MOD_FLAG_ABSENT:  # vLLM serves, and the mod may do nothing
            note(f"{fault.subject}: {fault.message}")
        else:
            wrong.append(fault)
    if wrong:
        lines = "".join(f"\n  {fault.subject}: {fault.message} [{fault.code}]" for fault in wrong)
        of = asked.name
        if asked.library is None:
            of = f"--command {shlex.quote(shlex.join(('vllm', 'serve', *asked.argv)))}"
        raise Refused(
            f"vLLM {tree.version} would not take the command of pairing {asked.name}{lines}",
            hint=f"vllm-mods serve-check {of} --target {tree.spec}",
        )


def _with_minijinja(library: Library | None, name: str, data: bytes) -> str:
    """Return what minijinja makes of a template otherwise than Jinja, ``""`` if nothing."""
    template = Template(name, name, data)
    try:
        of_library = open_template(library, name.rpartition(".")[0]) if library else template
    except (UsageError, ManifestError):
        of_library = template
    cases = of_library.conversations if of_library.data == data else ()
    findings = template_check.check(template, cases).findings
    return next((one.message for one in findings if one.code in _ENGINE_FINDINGS), "")
