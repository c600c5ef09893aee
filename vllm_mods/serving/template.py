"""The chat template of a serve command: whether vLLM will find it, and who brings it."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import ModPlan, TemplateFile
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.tree_names import is_plain
from vllm_mods.planning.planner import WORKSPACE
from vllm_mods.serving import command, values
from vllm_mods.serving.command import Use
from vllm_mods.serving.faults import ServeFault, note

_BUILT_IN_TEMPLATES = "vllm/transformers_utils/chat_templates"
_KWARGS = "--default-chat-template-kwargs"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")


class TemplateTerms(NamedTuple):
    """What a template goes with: the values that it ``takes`` of flags, by their names, and its arguments.

    ``clients`` says which clients lose what with it on this vLLM.
    """

    takes: Mapping[str, tuple[str, ...]]
    kwargs: tuple[str, ...]
    clients: tuple[str, ...] = ()


class ParserTerms(NamedTuple):
    """The parsers for what a model writes, by their flags, where no template of ours says them.

    ``shown`` says of each flag what the model writes; ``wrong`` are parsers that do not read it, known only where its
    own template shows it.
    """

    reads: Mapping[str, tuple[str, ...]]
    shown: Mapping[str, str]
    wrong: tuple[str, ...] = ()


class ContainerSettings(Protocol):
    """Where vLLM is started: ``directory`` (absolute), and the files that are there."""

    @property
    def directory(self) -> str:
        """The working directory."""

    def has(self, path: str) -> bool:
        """Tell whether a path, absolute or from the working directory, leads to a file."""


class Serving(NamedTuple):
    """A serve command to be checked.

    ``argv`` is what follows ``vllm serve``; ``unknown`` are the parts of it that a shell fills in. ``mods``
    are plans on the tree without the mods. ``container`` is None unless the tree is an image. ``missing``
    names mods that no library has. Of a mod's template, by the name of its file and its text, ``terms`` says what it
    goes with, None if nothing is known, and ``other_engine`` what minijinja renders differently, ``""`` if nothing.
    ``own_terms`` says what parsers a model is for that is served without one, by its name and ``--chat-template``.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()
    mods: tuple[ModPlan, ...] = ()
    container: ContainerSettings | None = None
    missing: tuple[str, ...] = ()
    other_engine: Callable[[str, bytes], str] = lambda _name, _data: ""
    terms: Callable[[str, bytes], TemplateTerms | None] = lambda _name, _data: None
    own_terms: Callable[[str, str], ParserTerms | None] = lambda _model, _template: None

    def fills_in(self, value: str) -> bool:
        """Tell whether a shell fills in a value, or a part of it, when it runs."""
        return any(text in value for text in self.unknown)


def faults(tree: Tree, uses: Sequence[Use], serving: Serving) -> Iterator[ServeFault]:
    """Yield what is wrong with ``--chat-template``, whose ``uses`` these are, and with what mods bring. Raises ``TreeError``."""
    brought = sorted(file.file for _, file in _templates_of(serving.mods))
    for mod, file in () if uses else _templates_of(serving.mods):
        message = f"has the template {file.file}, but no --chat-template uses it"
        yield ServeFault(FindingCode.TEMPLATE_UNUSED, mod, message, f"--chat-template {file.file}")
    for use in uses:
        for value in use.values:
            if not serving.fills_in(value):
                yield from _check_path(tree, use, value, brought, serving)


def served(uses: Sequence[Use], mods: Sequence[ModPlan]) -> list[tuple[str, TemplateFile]]:
    """Return the templates of mods that ``--chat-template`` names, each with the name of its mod."""
    used = {value.rpartition("/")[2] for use in uses for value in use.values}
    return [(mod, file) for mod, file in _templates_of(mods) if file.file in used]


def term_faults(uses: Iterable[Use], name: str, terms: TemplateTerms) -> Iterator[ServeFault]:
    """Yield what of a whole command a template, whose ``name`` is that of its file, does not go with."""
    for use in uses:
        if not use.values:
            continue
        value = use.values[0]
        if use.name == _KWARGS:
            yield from _unread(use, name, terms.kwargs)
        elif not use.keys and value not in terms.takes.get(use.name, (value,)):
            wanted = " or ".join(terms.takes[use.name])
            message = f"{value!r} does not fit {name}, which is meant for {wanted}"
            yield ServeFault(FindingCode.TEMPLATE_TERMS, use.typed, message, wanted)


def parser_faults(uses: Iterable[Use], terms: ParserTerms) -> Iterator[ServeFault]:
    """Yield parsers that are not those for what the model writes: a fault where its own template shows it, else a note."""
    for use in uses:
        wanted = terms.reads.get(use.name, ())
        if not wanted or not use.values or use.values[0] in wanted:
            continue
        value, shown = use.values[0], terms.shown[use.name]
        if value in terms.wrong:
            message = f"{value!r} cannot parse it: {shown}, which {wanted[0]} parses"
            yield ServeFault(FindingCode.PARSER_TERMS, use.typed, message, wanted[0])
        else:
            message = f"{value!r} is not known to parse it: {shown}, which needs {wanted[0]}"
            yield note(FindingCode.PARSER_UNCLEAR, use.typed, message)


def _unread(use: Use, name: str, kwargs: Sequence[str]) -> Iterator[ServeFault]:
    try:
        arguments = command.as_object(use) if use.keys else json_of(use.values[0])
    except ValueError:
        return  # that of the flag itself is said
    for key in arguments if isinstance(arguments, dict) else ():
        if key in kwargs:
            continue
        if near := values.nearest(key, kwargs):
            message = f"{name} does not read {key!r}; did you mean {near!r}?"
            yield ServeFault(FindingCode.TEMPLATE_TERMS, use.typed, message, near)
        else:
            message = f"{name} does not read {key!r}"
            yield note(FindingCode.JSON_KEY_UNUSED, use.typed, message)


def engine_faults(uses: Sequence[Use], serving: Serving) -> Iterator[ServeFault]:
    """Yield mods' templates that the Rust frontend's engine, minijinja, renders differently."""
    files = [file for _, file in served(uses, serving.mods)]
    for file in files:
        if why := serving.other_engine(file.file, file.data):
            yield ServeFault(
                FindingCode.TEMPLATE_ENGINE, file.file, f"the Rust frontend renders it: {why}"
            )
    if uses and not files:
        message = (
            "VLLM_USE_RUST_FRONTEND renders it with minijinja, and whether minijinja can is unknown"
        )
        yield note(FindingCode.TEMPLATE_ENGINE_UNCLEAR, "--chat-template", message)


def _templates_of(mods: Sequence[ModPlan]) -> Iterator[tuple[str, TemplateFile]]:
    """Yield the templates of mods that fit, each with the name of its mod."""
    for mod in mods:
        for file in mod.variant.templates if mod.verdict.ok and mod.variant else ():
            yield mod.mod.name, file


def _check_path(
    tree: Tree, use: Use, value: str, brought: Sequence[str], serving: Serving
) -> Iterator[ServeFault]:
    container = serving.container
    if not value or any(char in value for char in "{}\n"):
        return  # vLLM takes it as the template itself
    name = value.rpartition("/")[2]
    inside = _PACKAGES.sub("", value) if _PACKAGES.match(value) else ""
    place = inside or f"{_BUILT_IN_TEMPLATES}/{value}"
    if is_plain(place) and tree.read(place) is not None:
        return
    if value.endswith(f"/{WORKSPACE}/{name}") and name in brought:
        return
    if container is not None and container.has(value):
        return
    if name in brought:
        message = f"a mod puts {name} into the workspace, by default {WORKSPACE} in the site root; check that this path matches the one that `apply` prints"
        yield note(FindingCode.TEMPLATE_PLACE, use.typed, message)
        return
    near = values.nearest(name, brought)
    if inside:
        yield ServeFault(
            FindingCode.TEMPLATE_MISSING, use.typed, f"{inside} is not in the tree", near
        )
    elif brought and ("/" not in value or near):
        message = f"no mod has {value!r}: the mods have {', '.join(brought)}"
        yield ServeFault(FindingCode.TEMPLATE_MISSING, use.typed, message, near)
    elif container is not None:
        place = posixpath.join(container.directory, value)
        yield ServeFault(FindingCode.TEMPLATE_MISSING, use.typed, f"the image has no {place}", near)
    elif serving.mods and "/" not in value:
        message = (
            f"no mod has {value!r}, which vLLM looks up in the working directory of the container"
        )
        yield ServeFault(FindingCode.TEMPLATE_MISSING, use.typed, message)
    else:
        where = "at that path" if value.startswith("/") else "in the working directory"
        message = f"it is unknown whether {value!r} will be {where} when vLLM starts"
        yield note(FindingCode.TEMPLATE_UNCLEAR, use.typed, message)
