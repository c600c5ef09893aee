"""How options are declared; those that several commands share, and what they open."""

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Collection, Iterable
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import Chosen, open_library
from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.base.model import Plan
from vllm_mods.cli.answers import note, print_reply, show_transfer
from vllm_mods.formats.pairing import advice
from vllm_mods.library.catalog import Library
from vllm_mods.report.reply import Reply

TARGET = "VLLM_MODS_TARGET"
_PLACES = {"FILE", "PATH", "DIR", "TREE"}
"""Values of which shells complete the names."""
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What declares options of a command."""


def option(spelled: str, text: str, name: str | None = None, **more: Any) -> Declared:
    """Declare an option as its help has it: ``--lock FILE`` takes a value, ``--check`` is a flag.

    ``name`` is what the command calls it; ``more`` is for ``click.option``. ``[X]`` in the text is what holds without
    the option: help has it as click writes it, ``[default: X]``.
    """
    word, _, metavar = spelled.partition(" ")
    if metavar:
        more["metavar"] = metavar
        if metavar in _PLACES:
            more["type"] = click.Path()
    elif "type" not in more:
        more["is_flag"] = True
    return click.option(*filter(None, (word, name)), help=text.replace("[", "[default: "), **more)


json_flag = option("--json", "Print one JSON object.", "as_json")


def json_output(function: Callable[..., Reply]) -> Callable[..., int]:
    """Declare ``--json``, and print the ``Reply`` that a command returns."""

    @functools.wraps(function)
    def command(*, as_json: bool, **given: Any) -> int:
        return print_reply(function(**given), as_json=as_json)

    return json_flag(command)


def form(text: str, forms: Iterable[str]) -> Declared:
    """Declare ``--format``; the first of the forms is the default."""
    first, *others = forms
    kind = click.Choice((first, *others))
    return option("--format", text, "form", type=kind, default=first, show_default=True)


def all_of(*options: Declared) -> Declared:
    """Return what declares several options, the last one first in the help."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for add_option in options:
            function = add_option(function)
        return function

    return declare


def grouped(name: str, make: Callable[..., Any], *options: Declared) -> Declared:
    """Return what declares options whose values a command takes as one argument: ``make`` takes them by name."""
    names = inspect.signature(make).parameters

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(**values: Any) -> Any:
            mine = {key: values.pop(key) for key in names if key in values}
            return function(**values, **{name: make(**mine)})

        return all_of(*options)(command)

    return declare


def open_libraries(folders: Iterable[str] = (), *, own: bool = False) -> Library:
    """Open the bundled library, the folders of ``VLLM_MODS_LIBRARY``, these, and those of the project here.

    For an author who writes to their ``own`` an interrupted write is undone first.
    """
    folders = (*filter(None, os.environ.get("VLLM_MODS_LIBRARY", "").split(os.pathsep)), *folders)
    if own:
        from vllm_mods.library import writing  # noqa: PLC0415  (apply has no use for it)

        for folder in folders:
            writing.recover(folder)
    return open_library(*folders)


def completer(
    *kinds: Callable[[Library], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completer for names of these kinds."""

    def complete(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        try:
            library = open_libraries(context.params.get("folders") or ())
            return [name for names in kinds for name in names(library) if name.startswith(typed)]
        except VllmModsError:  # the command says what is wrong; a TAB is no place for that
            return []

    return complete


def _or_found(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    return value if value is not None or context.resilient_parsing else active_target()


complete_mods = completer(Library.names)
complete_pairings = completer(Library.pairing_names)
complete_names = completer(Library.names, Library.pairing_names)

mods = click.argument("mods", nargs=-1, metavar="[MOD]...", shell_complete=complete_mods)
pairing_name = click.argument("pairing", metavar="PAIRING", shell_complete=complete_pairings)
pairing = option(
    "--pairing NAME",
    "Use this pairing's mods and templates first, then each MOD.",
    shell_complete=complete_pairings,
)
base = option("--base REF", "The base image [as named in the pairing or its lock].")
platform = option(
    "--platform OS/ARCH",
    "Which platform of a multi-platform image to read, such as linux/arm64 [this machine's].",
)
target_in_image = option(
    "--target-in-image DIR",
    "The folder in the image that contains vllm/. Needed unless exactly one such folder is found.",
    "in_image",
)
where_served = all_of(
    option("--device-memory SIZE", "Memory of each serving GPU, such as 96GiB [this machine's]."),
    option(
        "--model-folder DIR",
        "The folder of the model [the Hub's cache, unless the model is a folder].",
    ),
)
"""Where a model lies, and what it is to run on."""
others = option(
    "--with NAME==VERSION",
    "Check with this version of another package, such as transformers==4.57.0 [the newest at the release date of the vLLM]. The vLLM must be a release, a wheel or an sdist.",
    "others",
    multiple=True,
)
verify = option("--verify", "Download the whole wheel of each release once, and check its hash.")
_target = functools.partial(option, envvar=TARGET, callback=_or_found)
_FOLDER = "folder: the vllm package folder, its parent folder or its environment [the active environment]."
target_folder = _target("--target DIR", f"A {_FOLDER}")
target_copied = _target("--target DIR", f"pypi:VERSION, or a {_FOLDER}")
target_tree = _target(
    "--target TREE",
    "A folder, an environment, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the active environment].",
)
workspace = option(
    "--workspace DIR",
    "The folder for chat templates [$WORKSPACE_DIR, else .vllm-mods/templates in the tree].",
    envvar="WORKSPACE_DIR",
)
folders = option(
    "--library DIR",
    "Use this library too: a folder with patches/, templates/ or pairings/. $VLLM_MODS_LIBRARY may name others.",
    "folders",
    multiple=True,
)
library = grouped("library", open_libraries, folders)
own_library = grouped("library", lambda folders: open_libraries(folders, own=True), folders)


def open_access(*, offline: bool = False, commits: str | None = None) -> Access:
    """Return the ``Access`` of this command; the trees that it opens are closed when the command ends."""
    access = Access(offline=offline, commits=commits, note=note, progress=show_transfer)
    return click.get_current_context().with_resource(access)


def read_source_date_epoch() -> int | None:
    """Read SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/)."""
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if value is None or value == "":
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 11:  # the year 5138
        why = f"SOURCE_DATE_EPOCH is {value!r}; it must be a number of seconds since 1970"
        raise UsageError(why, hint="SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)")
    return int(value)


source_date_epoch = grouped("source_date_epoch", read_source_date_epoch)
network = grouped("access", open_access)
"""How trees are got at, of a command without options for it."""
_offline = option("--offline", "Use only the cache; do not use the network.")
access = grouped("access", open_access, _offline)
plan_terms = all_of(
    option("--only-supported", "Skip and list mods that have no variant for this vLLM."),
    option("--strict-version", "Refuse a variant whose version range excludes this vLLM."),
    option(
        "--base TREE",
        "The vLLM that the mods were made for; helps where a hunk matches in several places.",
    ),
    workspace,
    library,
    pairing,
    mods,
)
"""Which mods are meant, and on what terms they go in."""
access_to_commits = grouped(
    "access",
    open_access,
    _offline,
    option(
        "--commits REPO",
        "Where to find the build of a commit, such as pypi:0.22.1rc1.dev124+gace95c9cf: a clone of vLLM, or the URL of an index with a folder for each commit.",
    ),
)
"""How trees are got at: from the cache alone, or from a clone of vLLM's repository too."""


def tell_left_out(planned: Plan, chosen: Chosen) -> None:
    """Print on stderr what is not in a plan."""
    if chosen.pairing is not None and (text := advice(chosen.pairing, planned.version)):
        note(text)
    names = {one.mod.name for one in planned.mods}
    for mod in chosen.mods:
        if mod.name not in names:
            click.echo(f"skipped: {mod.name} is unsupported on this tree", err=True)


def refuse_beside(option: str, names: Collection[str], hint: str) -> None:
    """Raise ``UsageError`` where one of the parameters ``names`` was typed, which do not go with an option."""
    now, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    known = ((one.opts[0], one.name or "") for one in now.command.params)
    more = [o for o, name in known if name in names and now.get_parameter_source(name) is typed]
    if more:
        raise UsageError(f"these cannot be used with {option}: {', '.join(more)}", hint=hint)


def active_target() -> str:
    """Return the one vLLM of the active environment, and say so. Raises ``UsageError`` for none and for several."""
    from vllm_mods.diagnosis import search  # noqa: PLC0415  (where none is named)

    context = click.get_current_context()
    path = shlex.join((*context.command_path.split(), *context.params.get("mods", ())))
    folders = search.active(os.environ)
    if len(folders) == 1:
        note(f"--target {folders[0]}: the vLLM of the active environment")
        return folders[0]
    problem = f"there are several vLLMs: {', '.join(folders)}"
    if not folders:
        folders = search.installed(os.environ)
        more = f"; vLLM is installed in {' and in '.join(folders)}" if folders else ""
        problem = f"the active environment has no vLLM{more}"
    why = f"no --target was named, and {problem}"
    hint = f"{path} --target {folders[0] if folders else 'TREE'}  # or set {TARGET}"
    raise UsageError(why, hint=hint)
