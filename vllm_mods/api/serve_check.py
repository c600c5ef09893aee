"""A serve command held against the vLLM that it will run on; of a pairing, before that is locked, built and run too."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, Mod, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.facts import architectures
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.taken_over import environment, taken_over
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.scripts import command_line
from vllm_mods.serving.check import ServeAnswer, check
from vllm_mods.serving.command import words
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.source import ModuleSources
from vllm_mods.serving.template import Serving
from vllm_mods.serving.weights import ModelLoading
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import receipt_of

_STARTS = {
    FindingCode.MOD_FLAG_ABSENT, FindingCode.TEMPLATE_TERMS, FindingCode.TEMPLATE_UNREADABLE,
    FindingCode.PARSER_TERMS, FindingCode.FLAG_UNUSED,
}  # fmt: skip
"""What vLLM takes all the same: a mod then may do nothing, calls may stay text."""
# Flags, variables, files, architectures (of models that see) and changed modules by which vLLM may load another class or other tensors.
_OTHERWISE = re.compile(
    r"--(config|convert|hf[-_]|ignore[-_]patterns|load[-_]format(?![ =](\w*safetensors|instanttensor)\b)|mm[-_]encoder|model[-_](class|impl)"
    r"|runner|task|worker[-_]cls)|VLLM_PLUGINS|(?<![/\w])((modules|params|\w+_head_config|decision_config)\.json|consolidated|MiMoV2"
    r"|vllm/(transformers_utils/|model_executor/(model_loader/|models/utils\.|layers/vocab_parallel)))"
)
_CALL = "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE"


class ServeArguments(NamedTuple):
    """What is to be checked, before there is a tree. ``vllm`` is the pairing's own range, ``model`` what is to be loaded."""

    serving: Serving
    mods: tuple[Mod, ...] = ()
    name: str | None = None
    vllm: str | None = None
    model: Checkpoint | None = None


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
        served = of_script(command, "--command", _CALL, alone=True)
        asked = _with_template(served, library or Library())
    elif command is None and pairing is not None:
        library = library or Library()
        asked = of_pairing(library, library.pairing(pairing))
    else:
        raise UsageError("give either a pairing or --command", hint=_CALL)
    if vllm is not None and target is not None:
        raise UsageError("--vllm and --target both name the vLLM to check", hint="omit one")
    if vllm is not None:
        cells = []
        for spec in releases_in(access, vllm):
            try:
                cells.append(_ask_tree(asked, spec, access))
            except TreeError as error:  # it fails its own cell only
                fault = ServeFault(FindingCode.UNREADABLE, spec, error.message)
                answered = ServeAnswer((fault,), used=0)
                cells.append(ServeCell(spec.removeprefix("pypi:"), spec, answered))
        return ServeChecked(asked.serving.argv, asked.name, tuple(cells), over_releases=True)
    cell = _ask_tree(asked, target or _default_target(asked, access), access)
    return ServeChecked(asked.serving.argv, asked.name, (cell,), over_releases=False)


def _ask_tree(asked: ServeArguments, spec: str, access: Access) -> ServeCell:
    """Hold a command against a tree with its mods in. Raises ``TreeError``."""
    tree = access.open(spec)
    planned = planner.plan(asked.mods, tree, receipt=receipt_of(tree)) if asked.mods else None
    return ServeCell(tree.version or "", tree.spec, answer(asked, tree, planned))


def _default_target(asked: ServeArguments, access: Access) -> str:
    if asked.vllm is None:
        what = f"pairing `{asked.name}` names no vLLM, and " if asked.name else ""
        raise UsageError(f"{what}no vLLM to check against was named", hint="--target TREE")
    if re.fullmatch(r"\d[\w.+]*", asked.vllm):
        return f"pypi:{asked.vllm}"
    return releases_in(access, asked.vllm, plain=True)[-1]


def of_pairing(library: Library, named: pairings.Pairing) -> ServeArguments:
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
    first, script = pairings.serve_command(served)
    unknown = tuple(one.text for one in script.unknown)
    serving = Serving(words(first.argv), environment(served), unknown, library=library)
    serving = serving._replace(missing=tuple(missing), brought=brought)
    return ServeArguments(serving, mods, named.name, named.vllm)


def of_script(text: str, what: str, hint: str, *, alone: bool = False) -> ServeArguments:
    """Return what a script serves. Raises ``UsageError`` for one that bash does not read and, if ``alone``, for several servers."""
    try:
        script = command_line.read(text)
    except command_line.ShellError as error:
        raise UsageError(f"bash cannot read {what}: {error}", hint=hint) from error
    if not script.commands:
        raise UsageError(f"{what} is empty", hint=hint)
    if alone and sum(pairings.serves(pairings.unwrapped(one).argv) for one in script.commands) > 1:
        raise UsageError(f"{what} starts several servers", hint="give the command of one server")
    first = pairings.served_by(script)
    env = {**command_line.exported(script), **dict(first.assignments)}
    unknown = tuple(one.text for one in script.unknown)
    return ServeArguments(Serving(words(first.argv), env, unknown))


def answer(asked: ServeArguments, tree: Tree, planned: Plan | None) -> ServeAnswer:
    """Hold a command against a tree with what was planned for it. Raises ``TreeError``."""
    image = tree if isinstance(tree, ImageTree) else None
    serving = asked.serving._replace(mods=planned.mods if planned else (), image=image)
    return check(KnownFlags(LayeredTree(tree, planned.changes) if planned else tree), serving)


def demand_loading(
    model: Checkpoint, tree: Tree, planned: Plan | None, note: Callable[[str], None], *words: str
) -> None:
    """Raise ``Refused`` if vLLM would not load a model by a command and an environment that have these ``words``."""
    changes = planned.changes if planned else ()
    seen = architectures(model) if model.config.get("vision_config") else ()
    changed = (one.path for one in (*changes, *getattr(receipt_of(tree), "files", ())))
    given = " ".join((*words, *model.files, *changed))
    if _OTHERWISE.search(" ".join((given, *seen))):
        return
    sources = ModuleSources(LayeredTree(tree, changes))
    needs_all = not re.search(r"quant|compress|loader|no_op|(^| )-q", f"{given} {model.config}")
    loading = ModelLoading(sources, model.config, model.tensors, needs_all)
    if why := loading.fault(architectures(model), note):
        hint = "the model's own config.json, or another vLLM; --load-format auto in the command skips this check"
        raise Refused(f"vLLM {tree.version} would not load {model.name}: {why}", hint=hint)


def demand(
    asked: ServeArguments, tree: Tree, planned: Plan | None = None, *, note: Callable[[str], None]
) -> None:
    """Raise ``Refused`` if vLLM in an image would not take the model, or the command of the pairing."""
    if asked.model:
        demand_loading(asked.model, tree, planned, note, *asked.serving.argv, *asked.serving.env)
    try:
        result = answer(asked, tree, planned)
    except TreeError as error:
        note(f"the serve command is not checked: {error.message}")
        return
    for name, text in asked.serving.brought:
        note(f"{name} {text}")
    errors = [fault for fault in result.faults if fault.level is Level.ERROR]
    for fault in (one for one in errors if one.code in _STARTS):
        note(f"{fault.subject}: {fault.message}")
    if wrong := [fault for fault in errors if fault.code not in _STARTS]:
        lines = "".join(f"\n  {fault.subject}: {fault.message} [{fault.code}]" for fault in wrong)
        of = asked.name
        if asked.serving.library is None:
            of = f"--command {shlex.quote(shlex.join(('vllm', 'serve', *asked.serving.argv)))}"
        why = f"vLLM {tree.version} would reject the command of pairing {asked.name}{lines}"
        raise Refused(why, hint=f"vllm-mods serve-check {of} --target {tree.spec}")


def _with_template(asked: ServeArguments, library: Library) -> ServeArguments:
    """Hold a command that names a chat template of the library against its mod, too."""
    stems = (re.split(r"[/=]", word)[-1].rpartition(".")[0] for word in asked.serving.argv)
    mods = library.select(dict.fromkeys(stem for stem in stems if library.has(stem)))
    if not any(variant.templates for mod in mods for variant in mod.variants):
        return asked
    return asked._replace(mods=mods, serving=asked.serving._replace(library=library))
