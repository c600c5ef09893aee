"""From what the user typed to a tree."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.trees.folder import FolderTree, find_site_root

if TYPE_CHECKING:
    from vllm_mods.trees.archive import ArchiveTree

_FORMS = (
    "a TREE is a path to the vllm folder, its parent folder or its environment, pypi:VERSION, "
    "pypi:WHEEL-FILE-NAME, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF"
)


# Which kinds of tree `verify`, `others`, and `platform` and `in_image` are for.
_ONLY = (
    ({"pypi"}, "is not a release from a package index, so --verify cannot be used", "pypi:VERSION"),
    (
        {"pypi", "wheel", "sdist"},
        "has its own packages; --with works only for releases, wheels and sdists",
        "pypi:VERSION",
    ),
    (
        {"image"},
        "is not an image; --platform and --target-in-image are for images",
        "--target image:REF",
    ),
)


def open_tree(
    spec: str | os.PathLike[str],
    *,
    offline: bool = False,
    workspace: str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    note: Callable[[str], None] | None = None,
    cache_dir: str | None = None,
    verify: bool = False,
    commits: str | None = None,
    others: Mapping[str, str] | None = None,
    platform: str | None = None,
    in_image: str | None = None,
) -> Tree:
    """Open a vLLM source tree to read: a folder, a release, a wheel, a revision, an image.

    ``spec`` is a path to the site root (``site-packages``), to its ``vllm`` folder or to one inside
    that, to an environment or its ``bin/python``; or ``pypi:VERSION`` (``vllm==VERSION`` and ``pypi:latest`` too),
    ``pypi:WHEEL-FILE-NAME``, ``wheel:FILE``, ``sdist:FILE``, ``git:REPO@REV``, ``image:REF``. A release is read over
    HTTP by byte ranges.

    ``offline`` opens no connection; ``workspace`` is an absolute folder that may be read by absolute path; ``progress``
    is called with what is being read, the bytes done and the total (``None`` if unknown); ``note`` with each thing the
    user should know; ``cache_dir`` replaces the default cache. ``verify`` has all of a release's file once, and holds
    it to the hash that the index states: what is read of it in parts is held to that from then on. ``commits`` is where
    a build is found whose version names its commit (``pypi:0.22.1rc1.dev124+gace95c9cf``): a clone of vLLM's
    repository, or the URL of an index that has a folder for each commit. ``others`` are versions of other packages, by
    name, to be read beside a release, a wheel or an sdist; a release knows itself which it takes. ``platform`` is that
    of one image of an index, such as ``linux/arm64``, ``in_image`` the folder of an image that holds ``vllm/``, where
    there are several.

    Returns a ``Tree``: a context manager, since it may hold a container or a mount.

    Raises ``UsageError`` for a spec that names nothing, ``TreeError`` for what can't be read.

    >>> tree = vm.open_tree("site-packages/vllm/sub")
    >>> tree.version, tree.read("vllm/a.py").decode().strip()
    ('0.19.1', 'A = 1')
    """
    spec = os.fspath(spec)
    # as a requirement of pip names a release
    kind, colon, rest = (f"pypi:{spec}" if spec.startswith("vllm==") else spec).partition(":")
    for used, (kinds, why, hint) in zip((verify, others, platform or in_image), _ONLY, strict=True):
        if used and kind not in kinds:
            raise UsageError(f"{spec} {why}", hint=hint)
    if not colon or kind not in {"pypi", "wheel", "sdist", "git", "image"}:
        is_kind = colon and kind.isalnum() and not os.path.lexists(spec)
        if is_kind or not spec:
            why = f"{spec}: unknown kind of tree: {kind!r}" if spec else "no tree given"
            raise UsageError(why, hint=_FORMS)
        return FolderTree(find_site_root(spec), spec=spec, workspace=workspace)
    if not rest:
        raise UsageError(f"{spec} needs a name after the colon", hint=_FORMS)
    network: dict[str, Any] = {"offline": offline, "progress": progress, "note": note}
    network["cache_dir"] = cache_dir
    tree: Tree
    if kind == "image":
        from vllm_mods.images.open import open_base  # noqa: PLC0415  (the engines' libraries)
        from vllm_mods.trees.image import open_image  # noqa: PLC0415

        base = open_base(rest, platform=platform, **network)
        tree = open_image(base, spec, platform=platform, named=in_image)
    elif kind == "git":
        from vllm_mods.trees.git import open_git  # noqa: PLC0415  (GitPython: 100 ms)

        tree = open_git(rest, spec=spec)
    elif kind == "pypi":
        from vllm_mods.trees.release import Releases  # noqa: PLC0415  (requests: 100 ms)

        tree = Releases(commits=commits, **network).open(rest, verify=verify, named=others)
    else:
        tree = archive = _open_archive(kind, rest, spec=spec)
        if others:
            from vllm_mods.trees.other_packages import OtherPackages  # noqa: PLC0415
            from vllm_mods.trees.release import Releases  # noqa: PLC0415

            of = Releases(commits=commits, **network).of
            archive.others = OtherPackages(of, archive.apart().metadata, named=others)
    tree.workspace = workspace
    return tree


def as_tree(tree: Tree | Folder) -> Tree:
    """Return an opened tree as it is, and open whatever ``open_tree`` takes."""
    return open_tree(tree) if isinstance(tree, str | os.PathLike) else tree


def _open_archive(kind: str, path: str, *, spec: str) -> "ArchiveTree":
    from vllm_mods.trees import archive  # noqa: PLC0415  (zipfile, tarfile: 15 ms)

    path = os.path.expanduser(path)  # No shell does it behind a colon.
    for ending, other in ((".whl", "wheel"), (".tar.gz", "sdist")):
        if kind != other and path.endswith(ending):
            raise UsageError(f"{spec}: this file is of the kind {other}", hint=f"{other}:{path}")
    try:
        file = open(path, "rb")  # noqa: SIM115  (lives as long as the tree)
    except OSError as error:
        named = isinstance(error, FileNotFoundError | IsADirectoryError)
        kind_of_error = UsageError if named else TreeError
        hint = f"ls -la {os.path.dirname(os.path.abspath(path))}  # shows what is there"
        raise kind_of_error(f"{spec}: {error.strerror}", hint=hint) from error
    return archive.ArchiveTree(archive.open_archive(kind, file, path), spec=spec)
