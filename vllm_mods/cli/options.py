"""Options that several commands share, and what they open."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.base.model import Mod
from vllm_mods.base.tree import Tree
from vllm_mods.cli.answers import note, progress
from vllm_mods.cli.manner import Declared, given, is_offline, kept, option
from vllm_mods.library import checksums, project_file
from vllm_mods.library.catalog import Library
from vllm_mods.trees import open as trees

if TYPE_CHECKING:
    from vllm_mods.library.catalog import Shared
    from vllm_mods.sharing.locking import NotFetched
    from vllm_mods.trees.history import Upstream
    from vllm_mods.trees.image import ImageTree
    from vllm_mods.trees.release import Releases

TARGET = "VLLM_MODS_TARGET"


def all_of(*options: Declared) -> Declared:
    """Return what declares several options, the last one first in the help."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in options:
            function = one(function)
        return function

    return declare


def grouped(name: str, made: Any, *options: Declared) -> Declared:  # noqa: ANN401  (a named tuple's class)
    """Return what declares options whose values a command takes as one argument, ``made`` of them."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(**values: Any) -> Any:  # noqa: ANN401
            mine = {key: values.pop(key) for key in made._fields if key in values}
            return function(**values, **{name: made(**mine)})

        return all_of(*options)(command)

    return declare


def completer(
    *kinds: Callable[[Library], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what tells a shell the names, of these kinds, that begin with what was typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        try:
            library = open_library()
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
pairing_name = click.argument("name", metavar="PAIRING", shell_complete=complete_pairings)
pairing = option(
    "--pairing NAME",
    "The mods and templates of a pairing, then those of MOD.",
    shell_complete=complete_pairings,
)
base = option(
    "--base REF",
    "The image to build on, wherever it lies [the one that the pairing or its lock names].",
)
platform = option(
    "--platform OS/ARCH",
    "Which image of an index, such as linux/arm64 [the one for this machine, and a note].",
)
target_in_image = option(
    "--target-in-image DIR",
    "The folder in the image that holds vllm/, where it is not found or there are several.",
    "in_image",
)
commits = option(
    "--commits REPO",
    "Where builds such as pypi:0.22.1rc1.dev124+gace95c9cf are: a clone of vLLM, or an index with a folder per commit.",
)
history = option(
    "--history REPO",
    "A clone of vLLM's repository: its commits tell where files and definitions went.",
)
others = option(
    "--with NAME==VERSION",
    "Of a release or wheel: another package beside it [the newest that it took on its day].",
    "others",
    multiple=True,
)
verify = option(
    "--verify",
    "Have each release's wheel as a whole once, and hold it to the hash that the index states.",
)
target_folder = option(
    "--target DIR",
    "The vllm package folder, or the folder that holds it [the active environment's].",
    envvar=TARGET,
    callback=_or_found,
)
target_tree = option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the active environment's].",
    envvar=TARGET,
    callback=_or_found,
)
workspace = option(
    "--workspace DIR",
    "Where chat templates go [$WORKSPACE_DIR, else .vllm-mods/templates in the tree].",
    envvar="WORKSPACE_DIR",
)
sign = option(
    "--sign KEY", "Sign it: a private key of OpenSSH's, or one of cosign's (file or URI).", "key"
)
own_libraries = kept(
    "--library DIR",
    "A folder with patches/, templates/, pairings/ of your own [also $VLLM_MODS_LIBRARY].",
    "libraries",
    multiple=True,
)
libraries = all_of(
    kept(
        "--allowed-signers FILE",
        "Each library's SHA256SUMS has to be signed (ssh-keygen -Y sign) by one of these.",
        envvar="VLLM_MODS_ALLOWED_SIGNERS",
    ),
    kept(
        "--require-hashes FILE|sha256:HEX",
        "Take nothing of a library but what is in this list, or in its SHA256SUMS of that hash.",
        multiple=True,
        envvar="VLLM_MODS_REQUIRE_HASHES",
    ),
    own_libraries,
)
"""Which libraries, and who vouches for them."""


def active_target() -> str:
    """Return the one vLLM of the active environment, and say so. Raises ``UsageError`` for none and for several."""
    from vllm_mods.diagnosis import search  # noqa: PLC0415  (where none is named)

    path = click.get_current_context().command_path
    there = search.active(os.environ)
    if len(there) == 1:
        note(f"--target {there[0]}: the vLLM of the active environment")
        return there[0]
    what = f"there are several vLLMs: {', '.join(there)}"
    if not there:
        there = tuple(one.root for one in search.installed(os.environ))
        more = f"; there is one in {' and in '.join(there)}" if there else ""
        what = f"the active environment has no vLLM{more}"
    raise UsageError(
        f"no --target is named, and {what}",
        hint=f"{path} --target {there[0] if there else 'TREE'}  # or set {TARGET}",
    )


def own_library() -> Library:
    """Open the libraries for an author who writes to them; what an earlier run was killed over ends first."""
    from vllm_mods.library import writing  # noqa: PLC0415  (apply has no use for it)

    for folder in library_folders():
        writing.recover(folder)
    return open_library()


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


def open_library(*folders: str) -> Library:
    """Open the bundled library, those of ``--library`` and ``VLLM_MODS_LIBRARY``, ``folders``, and the project's.

    Raises ``UsageError`` and ``Refused`` as ``Library``, ``checksums.sums`` and ``locking.shared`` do.
    """
    shared, absent = _of_project()
    named = (*library_folders(), *folders)
    required, signers = given("require_hashes") or (), given("allowed_signers")
    pinned = bool(required) or signers is not None
    if pinned and not named:
        raise UsageError(
            "there is no library to pin: the mods that come with vllm-mods are its own",
            hint="--library DIR, or take --require-hashes and --allowed-signers away",
        )
    pins = functools.partial(checksums.sums, pins=required, signers=signers) if pinned else None
    return Library(*named, pins=pins, shared=shared, absent=absent)


def library_folders() -> tuple[str, ...]:
    """Return the folders of ``VLLM_MODS_LIBRARY`` and of ``--library``."""
    named = os.environ.get("VLLM_MODS_LIBRARY", "").split(os.pathsep)
    return (*filter(None, named), *(given("libraries") or ()))


def _of_project() -> tuple[tuple[Shared, ...], Callable[[bool], None]]:
    """Return the project's libraries that are on this machine, and what a ``Library`` asks about the others.

    A name that is found without them means the same with them, or is refused then as one of several: so
    that is said once, and a list of all names is refused. Raises as ``locking.shared`` does.
    """
    shared: tuple[Shared, ...] = ()
    missing: list[NotFetched] = []
    project = project_file.find()
    if project is not None and project.libraries:
        from vllm_mods.sharing import locking  # noqa: PLC0415  (where there are any)

        shared = locking.shared(project, missing=missing)

    @functools.cache
    def absent(needed: bool) -> None:  # noqa: FBT001
        if needed and missing:
            raise missing[0]
        for one in missing:
            note(f"{one.message}: {one.hint}")

    return shared, absent


def beside(others: tuple[str, ...], mods: Iterable[Mod] | None = None) -> Mapping[str, str]:
    """Return the versions that ``--with`` names. Raises ``UsageError`` for one that none of the mods asks for."""
    if not others:
        return {}
    from vllm_mods.trees.other_packages import asked_for, chosen  # noqa: PLC0415

    named = chosen(others)
    return named if mods is None else asked_for(named, tuple(mods))


def upstream(folder: str | None) -> Upstream | None:
    """Open a clone of vLLM's repository, if one is named. Raises ``UsageError`` where there is none."""
    if folder is None:
        return None
    from vllm_mods.trees.history import Upstream  # noqa: PLC0415  (GitPython: 100 ms)

    return Upstream(folder)


def open_releases(commits: str | None = None) -> Releases:
    """Return vLLM's releases, cached ones alone with ``--offline``."""
    from vllm_mods.trees.release import Releases  # noqa: PLC0415  (apply has no use for it)

    return Releases(offline=is_offline(), progress=progress(), note=note, commits=commits)


def open_one(spec: str, releases: Releases, others: Mapping[str, str] | None = None) -> Tree:
    """Open one of several trees: a release shares its connections with the others."""
    if spec.startswith("pypi:"):
        return releases.open(spec.removeprefix("pypi:"), named=others)  # it has nothing to close
    return open_tree(spec, others=others)


def open_tree(
    spec: str,
    *,
    platform: str | None = None,
    in_image: str | None = None,
    workspace: str | None = None,
    verify: bool = False,
    commits: str | None = None,
    others: Mapping[str, str] | None = None,
) -> Tree:
    """Open a tree; it is closed when the command ends. ``platform`` and ``in_image`` are for images.

    ``others`` are the packages beside it, as ``beside`` returns them.
    """
    if platform is not None or in_image is not None:
        kind, _, reference = spec.partition(":")
        if kind != "image" or not reference:
            raise UsageError(
                f"{spec} is no image, and --platform and --target-in-image are for these",
                hint="--target image:REF",
            )
        return open_image(spec, reference, platform, in_image, workspace=workspace)
    tree = trees.open_tree(
        spec,
        offline=is_offline(),
        workspace=workspace,
        progress=progress(),
        note=note,
        verify=verify,
        commits=commits,
        others=others,
    )
    return click.get_current_context().with_resource(tree)


def open_image(
    spec: str,
    reference: str,
    platform: str | None = None,
    in_image: str | None = None,
    *,
    workspace: str | None = None,
) -> ImageTree:
    """Open the vLLM in an image; it is closed when the command ends."""
    from vllm_mods.trees import image  # noqa: PLC0415  (the engines' libraries)

    tree = image.open_image(
        reference,
        spec=spec,
        workspace=workspace,
        offline=is_offline(),
        progress=progress(),
        note=note,
        platform=platform,
        named=in_image,
    )
    return click.get_current_context().with_resource(tree)
