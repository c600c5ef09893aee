"""The chat template of a serve command: whether vLLM will find it, and who brings it."""

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import ManifestError, NotRendered, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import ModPlan, TemplateFile
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.tree_names import is_plain
from vllm_mods.library.catalog import Library
from vllm_mods.planning.planner import WORKSPACE
from vllm_mods.serving import command, values
from vllm_mods.serving.command import Use
from vllm_mods.serving.faults import ServeFault, note
from vllm_mods.templates import call_forms, check as template_check
from vllm_mods.templates.source import About, Template, open_template
from vllm_mods.trees.image import ImageTree

_BUILT_IN_TEMPLATES = "vllm/transformers_utils/chat_templates"
_KWARGS = "--default-chat-template-kwargs"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_ENGINE_FINDINGS = {FindingCode.RUST_FRONTEND, FindingCode.TEMPLATE_UNREADABLE}
_CALLS, _REASONING = "--tool-call-parser", "--reasoning-parser"
_CONTENT = "--chat-template-content-format"


class Serving(NamedTuple):
    """A serve command to be checked.

    ``argv`` is what follows ``vllm serve``; ``unknown`` are the parts of it that a shell fills in. ``mods``
    are plans on the tree without the mods; ``missing`` are mods and templates that no library has, each with why, and
    ``brought`` is what a pairing takes over of its mods, each with what is to be said. ``image`` is where vLLM is
    started, None unless the tree is one. ``library`` has what lies beside the templates of mods.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()
    mods: tuple[ModPlan, ...] = ()
    image: ImageTree | None = None
    missing: tuple[tuple[str, str], ...] = ()
    brought: tuple[tuple[str, str], ...] = ()
    library: Library | None = None

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


def open_served(library: Library | None, file: TemplateFile) -> Template:
    """Return a mod's template with what lies beside it in the library, if it has just this one."""
    with contextlib.suppress(UsageError, ManifestError):
        if library and (one := open_template(library, file.name)).data == file.data:
            return one
    return Template(file.file, file.file, file.data)


def fitting(about: About) -> dict[str, tuple[str, ...]]:
    """Return the values that a template goes with, by their flags."""
    values: dict[str, tuple[str, ...]] = {_CONTENT: ("auto", about.content_format)}
    if about.tool_call_parser:
        values[_CALLS] = (about.tool_call_parser, *about.other_tool_call_parsers)
    if about.reasoning_parser:
        values[_REASONING] = (about.reasoning_parser,)
    return values


def term_faults(uses: Iterable[Use], name: str, about: About) -> Iterator[ServeFault]:
    """Yield what of a whole command a template, whose ``name`` is that of its file, does not go with."""
    fit = fitting(about)
    for use in uses:
        if not use.values:
            continue
        value = use.values[0]
        if use.name == _KWARGS:
            yield from _unread(use, name, [kwarg.name for kwarg in about.kwargs])
        elif not use.keys and value not in fit.get(use.name, (value,)):
            wanted = " or ".join(fit[use.name])
            message = f"{value!r} does not fit {name}, which is meant for {wanted}"
            yield ServeFault(FindingCode.TEMPLATE_TERMS, use.typed, message, wanted)


def parser_faults(uses: Iterable[Use], model: str, chat_template: str) -> Iterator[ServeFault]:
    """Yield parsers that are not those for what a model writes: a fault where its template shows it, else a note.

    The template is read where it lies here; else the name of the model says what models of that name write.
    """
    place, template = chat_template or model, None
    if os.path.exists(place):
        with contextlib.suppress(UsageError, ManifestError):
            template = open_template(Library(), os.path.abspath(place))
    form = None if template or chat_template else call_forms.form_of_name(model)
    is_sure, writes = model.startswith(call_forms.MAKER), f"models named like {model} write"
    if template:
        is_sure, writes = True, f"{place} tells the model to write"
        try:
            form = call_forms.form_of_template(template)
        except NotRendered as error:
            yield ServeFault(FindingCode.TEMPLATE_UNREADABLE, place, error.message)
    readers: dict[str, tuple[tuple[str, ...], str]] = {}
    if form:
        readers[_CALLS] = form.readers, f"{writes} calls in the form {form.name}"
    if not chat_template and (thinks := call_forms.reasoning_parser_of(model)):
        readers[_REASONING] = (thinks,), f"with thinking off {model} writes no </think>"
    of_others = {name for other in call_forms.FORMS if other != form for name in other.readers}
    for use in uses:
        wanted, shown = readers.get(use.name, ((), ""))
        if not wanted or not use.values or use.values[0] in wanted:
            continue
        value = use.values[0]
        if is_sure and form and value in of_others:
            message = f"{shown}; {wanted[0]} can parse them, but {value!r} cannot"
            yield ServeFault(FindingCode.PARSER_TERMS, use.typed, message, wanted[0])
        else:
            message = f"{shown}; the parser {wanted[0]!r} reads such answers, but {value!r} possibly does not"
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
        opened = open_served(serving.library, file)
        for finding in template_check.check(opened, opened.conversations).findings:
            if finding.code in _ENGINE_FINDINGS:
                message = f"this template in the Rust frontend: {finding.message}"
                yield ServeFault(FindingCode.TEMPLATE_ENGINE, file.file, message)
    if uses and not files:
        message = "VLLM_USE_RUST_FRONTEND uses minijinja, and it is unknown whether minijinja can render this template"
        yield note(FindingCode.TEMPLATE_ENGINE_UNCLEAR, "--chat-template", message)


def _templates_of(mods: Sequence[ModPlan]) -> Iterator[tuple[str, TemplateFile]]:
    """Yield the templates of mods that fit, each with the name of its mod."""
    for mod in mods:
        for file in mod.variant.templates if mod.verdict.ok and mod.variant else ():
            yield mod.mod.name, file


def _check_path(
    tree: Tree, use: Use, value: str, brought: Sequence[str], serving: Serving
) -> Iterator[ServeFault]:
    image = serving.image
    if not value or any(char in value for char in "{}\n"):
        return  # vLLM takes it as the template itself
    name = value.rpartition("/")[2]
    inside = _PACKAGES.sub("", value) if _PACKAGES.match(value) else ""
    place = inside or f"{_BUILT_IN_TEMPLATES}/{value}"
    if is_plain(place) and tree.read(place) is not None:
        return
    if value.endswith(f"/{WORKSPACE}/{name}") and name in brought:
        return
    if image is not None and image.has(value):
        return
    if name in brought:
        message = f"a mod puts {name} into the workspace (by default {WORKSPACE} beside vllm/), so give --chat-template the path that `apply` prints"
        yield note(FindingCode.TEMPLATE_PLACE, use.typed, message)
        return
    near = values.nearest(name, brought)
    if inside:
        missing = f"{inside} is not in the tree"
    elif brought and ("/" not in value or near):
        missing = f"no mod has {value!r}: the mods have {', '.join(brought)}"
    elif image is not None:
        missing = f"the image has no {posixpath.join(image.directory, value)}"
    elif serving.mods and "/" not in value:
        missing = f"no mod has {value!r}, so vLLM looks for it in the container's working directory"
    else:
        where = "at that path" if value.startswith("/") else "in the working directory"
        message = f"it is unknown whether {value!r} will be {where} when vLLM starts"
        yield note(FindingCode.TEMPLATE_UNCLEAR, use.typed, message)
        return
    yield ServeFault(FindingCode.TEMPLATE_MISSING, use.typed, missing, near)
