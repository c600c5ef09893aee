"""Options and habits that several commands share."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.base.model import Mod, Tree, Verdict
from vllm_mods.cli import project_libraries, shown
from vllm_mods.formats.decode import encode
from vllm_mods.library import checksums
from vllm_mods.library.catalog import Library
from vllm_mods.trees import open as trees

if TYPE_CHECKING:
    from vllm_mods.trees.history import Upstream

BEGIN = "\r\033[K"
"""Goes to the beginning of a terminal's line, and empties it."""
_GOOD, _FINE, _BAD = "green", "cyan", "red"
_COLOURS = {
    Verdict.APPLIES: _GOOD,
    Verdict.MOVED: _GOOD,
    Verdict.APPLIED: _FINE,
    Verdict.UPSTREAM: _FINE,
}


def completer(
    *kinds: Callable[[Library], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what tells a shell the names, of these kinds, that begin with what was typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        try:
            library = open_library(())
            return [name for names in kinds for name in names(library) if name.startswith(typed)]
        except VllmModsError:  # the command says what is wrong; a TAB is no place for that
            return []

    return complete


complete_mods = completer(Library.names)
complete_pairings = completer(Library.pairing_names)
complete_names = completer(Library.names, Library.pairing_names)

mods = click.argument("mods", nargs=-1, metavar="[MOD]...", shell_complete=complete_mods)
pairing = click.option(
    "--pairing",
    metavar="NAME",
    shell_complete=complete_pairings,
    help="The mods and templates of a pairing, then those of MOD.",
)
base = click.option(
    "--base",
    metavar="REF",
    help="The image to build on, wherever it lies [the one that the pairing or its lock names].",
)
platform = click.option(
    "--platform",
    metavar="OS/ARCH",
    help="Which image of an index, such as linux/arm64 [the one for this machine, and a note].",
)
target_in_image = click.option(
    "--target-in-image",
    "in_image",
    metavar="DIR",
    help="The folder in the image that holds vllm/, where it is not found or there are several.",
)
json_output = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
offline = click.option(
    "--offline", is_flag=True, help="Use only what is cached; open no connection."
)
commits = click.option(
    "--commits",
    metavar="REPO",
    help="Where builds such as pypi:0.22.1rc1.dev124+gace95c9cf are: a clone of vLLM, or an index with a folder per commit.",
)
history = click.option(
    "--history",
    metavar="REPO",
    help="A clone of vLLM's repository: its commits tell where files and definitions went.",
)
others = click.option(
    "--with",
    "others",
    metavar="NAME==VERSION",
    multiple=True,
    help="Of a release or wheel: another package beside it [the newest that it took on its day].",
)
verify = click.option(
    "--verify",
    is_flag=True,
    help="Have each release's wheel as a whole once, and hold it to the hash that the index states.",
)


def upstream(folder: str | None) -> Upstream | None:
    """Open a clone of vLLM's repository, if one is named. Raises ``UsageError`` where there is none."""
    if folder is None:
        return None
    from vllm_mods.trees.history import Upstream  # noqa: PLC0415  (GitPython: 100 ms)

    return Upstream(folder)


def _or_found(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    return value if value is not None or context.resilient_parsing else active_target()


def active_target() -> str:
    """Return the one vLLM of the active environment, and say so. Raises ``UsageError`` for none and for several."""
    from vllm_mods.cli import found_target  # noqa: PLC0415  (where none is named)

    return found_target.found()


TARGET = "VLLM_MODS_TARGET"
target_folder = click.option(
    "--target",
    metavar="DIR",
    envvar=TARGET,
    callback=_or_found,
    help="The vllm package folder, or the folder that holds it [the active environment's].",
)
target_tree = click.option(
    "--target",
    metavar="TREE",
    envvar=TARGET,
    callback=_or_found,
    help="A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the active environment's].",
)
strict_version = click.option(
    "--strict-version", is_flag=True, help="Take a variant only on the vLLM versions it states."
)
only_supported = click.option(
    "--only-supported",
    is_flag=True,
    help="Leave out, and name, mods that have no variant for this tree.",
)
workspace = click.option(
    "--workspace",
    metavar="DIR",
    envvar="WORKSPACE_DIR",
    help="Where chat templates go [$WORKSPACE_DIR, else .vllm-mods/templates in the tree].",
)
own_libraries = click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="DIR",
    help="A folder with patches/, templates/, pairings/ of your own [also $VLLM_MODS_LIBRARY].",
)
_REQUIRED, _SIGNERS = "vllm_mods.require_hashes", "vllm_mods.allowed_signers"


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> None:  # noqa: ANN401
        context.meta[key] = value

    return keep


def libraries(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of what reads libraries: which ones, and who vouches for them."""
    for option in (
        click.option(
            "--allowed-signers",
            metavar="FILE",
            envvar="VLLM_MODS_ALLOWED_SIGNERS",
            expose_value=False,
            callback=_remember(_SIGNERS),
            help="Each library's SHA256SUMS has to be signed (ssh-keygen -Y sign) by one of these.",
        ),
        click.option(
            "--require-hashes",
            multiple=True,
            metavar="FILE|sha256:HEX",
            envvar="VLLM_MODS_REQUIRE_HASHES",
            expose_value=False,
            callback=_remember(_REQUIRED),
            help="Take nothing of a library but what is in this list, or in its SHA256SUMS of that hash.",
        ),
        own_libraries,
    ):
        function = option(function)
    return function


def recording(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of what runs a command on a copy of a tree."""
    for option in (
        click.option(
            "--also", multiple=True, metavar="PACKAGE", help="Copy this package beside vllm too."
        ),
        click.option(
            "--timeout",
            "seconds",
            type=click.FloatRange(min=0, min_open=True),
            default=600.0,
            show_default=True,
            help="How long it may run.",
        ),
        click.option(
            "--env",
            "environ",
            multiple=True,
            metavar="NAME=VALUE",
            help="A variable of the container that it runs in.",
        ),
        click.option("--allow-network", "network", is_flag=True, help="Let it use the network."),
    ):
        function = option(function)
    return function


def own_library(extra: tuple[str, ...]) -> Library:
    """Open the libraries for an author who writes to them; what an earlier run was killed over ends first."""
    from vllm_mods.library import writing  # noqa: PLC0415  (apply has no use for it)

    for folder in library_folders(extra):
        writing.recover(folder)
    return open_library(extra)


def check_own(library: Library, mod: Mod) -> None:
    """Raise ``UsageError`` for a mod of the installation: another version of the tool has another."""
    if library.is_writable(mod.directory):
        return
    mine = f"my-{mod.name}"
    place, theirs = f"mods/patches/{mine}", shlex.quote(mod.directory)
    raise UsageError(
        f"{mod.name} came with vllm-mods, and {mod.directory} is a part of the installation: nothing was written",
        hint=f"""make it a mod of your own:
  mkdir -p mods/patches && cp -r {theirs} {place}
  sed -i 's/^name = .*/name = "{mine}"/' {place}/mod.toml
  vllm-mods matrix {mine} --update-lock --library mods""",
    )


def open_library(extra: tuple[str, ...]) -> Library:
    """Open the bundled library, those of ``--library`` and ``VLLM_MODS_LIBRARY``, and the project's.

    Raises ``UsageError`` and ``Refused`` as ``Library``, ``checksums.sums`` and ``locking.shared`` do.
    """
    shared, absent = project_libraries.opened(note)
    folders = library_folders(extra)
    meta: dict[str, Any] = getattr(click.get_current_context(silent=True), "meta", {})
    required, signers = meta.get(_REQUIRED) or (), meta.get(_SIGNERS)
    pinned = bool(required) or signers is not None
    if pinned and not folders:
        raise UsageError(
            "there is no library to pin: the mods that come with vllm-mods are its own",
            hint="--library DIR, or take --require-hashes and --allowed-signers away",
        )
    pins = functools.partial(checksums.sums, pins=required, signers=signers) if pinned else None
    return Library(*folders, pins=pins, shared=shared, absent=absent)


def library_folders(extra: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders of ``VLLM_MODS_LIBRARY`` and of ``--library``."""
    named = os.environ.get("VLLM_MODS_LIBRARY", "").split(os.pathsep)
    return (*filter(None, named), *extra)


def paint(verdict: Verdict, words: str | None = None, *, err: bool = False) -> str:
    """Colour a verdict, or words about it, on a terminal that wants colour; the word alone says it all."""
    said = verdict.value if words is None else words
    if not shown.colored(err=err):
        return said
    return shown.styled(said, fg=_COLOURS.get(verdict, _BAD), bold=words is None)


def remember(name: str, thing: object) -> None:
    """Keep something for the report of a bug that comes later in this run."""
    context = click.get_current_context(silent=True)
    if context is not None and context.obj is not None:
        context.obj[name] = thing


def close_later(tree: object) -> None:
    """Have what a tree holds (a container, a mount) given back when the command ends, as ever."""
    close = getattr(tree, "close", None)
    if close is not None:
        click.get_current_context().call_on_close(close)


def print_json(answer: dict[str, Any]) -> None:
    """Print one object on stdout; what is a ``NamedTuple`` in it is an object too."""
    click.echo(json.dumps(encode(answer), indent=2))
    remember("answered", thing=True)


def beside(others: tuple[str, ...], mods: Iterable[Mod] | None = None) -> Mapping[str, str]:
    """Return the versions that ``--with`` names. Raises ``UsageError`` for one that none of the mods asks for."""
    if not others:
        return {}
    from vllm_mods.trees.other_packages import asked_for, chosen  # noqa: PLC0415

    named = chosen(others)
    return named if mods is None else asked_for(named, tuple(mods))


def open_tree(
    spec: str,
    *,
    offline: bool,
    workspace: str | None = None,
    verify: bool = False,
    platform: str | None = None,
    in_image: str | None = None,
    commits: str | None = None,
    others: Mapping[str, str] | None = None,
) -> Tree:
    """Open a tree; it is closed when the command ends. ``platform`` and ``in_image`` are for images.

    ``others`` are the packages beside it, as ``beside`` returns them.
    """
    if platform is None and in_image is None:
        tree = trees.open_tree(
            spec,
            offline=offline,
            workspace=workspace,
            progress=progress(),
            note=note,
            verify=verify,
            commits=commits,
            others=others,
        )
    else:
        from vllm_mods.trees.image import open_image  # noqa: PLC0415  (the engines' libraries)

        kind, _, reference = spec.partition(":")
        if kind != "image" or not reference:
            raise UsageError(
                f"{spec} is no image, and --platform and --target-in-image are for these",
                hint="--target image:REF",
            )
        tree = open_image(
            reference,
            spec=spec,
            workspace=workspace,
            offline=offline,
            progress=progress(),
            note=note,
            platform=platform,
            named=in_image,
        )
    close_later(tree)
    return tree


def note(text: str) -> None:
    """Tell on stderr what happened on the way."""
    click.echo(f"note: {text}", err=True)


def hint(text: str | None) -> None:
    """Say on stderr what to do next, if anything is known."""
    if text is not None:
        click.echo(f"\nhint: {text}", err=True)


def progress() -> Callable[[str, int, int | None], None] | None:
    """Return a function that shows a transfer on stderr, None where nobody watches."""
    if not watched():
        return None

    def show(what: str, done: int, total: int | None) -> None:
        amount = f"{done / 1e6:.1f}" + (f" of {total / 1e6:.1f}" if total else "") + " MB"
        show_line(f"{what}: {amount}", last=total is not None and done >= total)

    return show


def watched() -> bool:
    """Tell whether somebody sees what is on its way: stderr is a terminal that can take a line back."""
    quiet = getattr(sys.stderr, "quiet", False)
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not quiet


def show_line(text: str, *, last: bool) -> None:
    """Put a line of progress in place of the one before; the last one goes at once."""
    shown.steer(BEGIN)
    sys.stderr.write(text)
    shown.steer(BEGIN if last else "")
    sys.stderr.flush()
