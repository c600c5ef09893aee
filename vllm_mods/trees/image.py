"""The vLLM in a container image: where it is, and its files by path. Nothing of the image is run."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.formats import pairing_lock, tree_names
from vllm_mods.images.model import DIR, FILE, LINK, Base, children, environment, resolve, settings
from vllm_mods.trees.folder import MARKER, SKIPPED, outside_workspace

_VERSIONS = ("python3", *(f"python3.{minor}" for minor in range(10, 16)))
# Beside what the image itself names: where images of vLLM and of its forks have it.
_USUAL = ("usr/local", "usr", "opt/venv", "opt/conda", "opt/vllm", "app/.venv", "workspace/.venv")


class ImageTree(Tree):
    """A tree in an image. ``site_root`` is its path in there; ``close`` closes the image."""

    def __init__(
        self, base: Base, site_root: str, *, spec: str | None = None, workspace: str | None = None
    ) -> None:
        self.base = base
        self.site_root = site_root
        self.spec = f"image:{base.reference}" if spec is None else spec
        self.workspace = workspace

    @cached_property
    def version(self) -> str | None:
        """What ``vllm/_version.py`` says: an image can't be asked for the names in a folder cheaply."""
        return tree_names.module_version(self.read("vllm/_version.py"))

    def read(self, path: str) -> bytes | None:
        """Read a file as a folder does, through no link; in the workspace by its absolute path."""
        if path.startswith("/"):
            return self.base.read(self._in_workspace(path))
        parts = tree_names.split(path, self.spec)
        data = self.base.read(f"{self.site_root}/{path}")
        if data is None:
            self._check_absent(parts)
        return data

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a file, None if there is none; which files those are, ``read`` says."""
        if self.read(path) is None:
            return None
        place = self._in_workspace(path) if path.startswith("/") else f"{self.site_root}/{path}"
        entry = self.base.entry(place)
        return entry and entry.mode

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if it is not there."""
        entries = children(self.base, f"{self.site_root}/{folder}")
        return [posixpath.basename(one.path) for one in entries]

    def paths(self, under: str = "vllm") -> Iterator[str]:
        """Yield every regular file below ``under``; ``""`` is the whole site root."""
        folder = "/".join(tree_names.split(under, self.spec)) if under else ""
        for entry in self.base.paths(f"{self.site_root}/{folder}".rstrip("/")):
            path = entry.path.removeprefix(f"{self.site_root}/")
            if entry.kind == FILE and SKIPPED.isdisjoint(path.split("/")):
                yield path

    def folders(self) -> tuple[str, ...]:
        """Return vLLM's own ``.dist-info``: to list all of a site root, an engine sends its contents."""
        folder = f"vllm-{self.version}.dist-info"
        entry = self.base.entry(f"{self.site_root}/{folder}") if self.version else None
        return (folder,) if entry is not None and entry.kind == DIR else ()

    @property
    def platform(self) -> str:
        """What the image is for, as its configuration says."""
        from vllm_mods.images.oci import platform_of  # noqa: PLC0415

        return "/".join(platform_of(self.base.config).split("/")[:2])

    def package(self, name: str) -> str | None:
        """Return the version of another distribution in the site root, all of which is listed for it."""
        top = f"{self.site_root}/"
        paths = (entry.path.removeprefix(top) for entry in self.base.paths(self.site_root))
        return tree_names.version_of({path.partition("/")[0] for path in paths}, name)

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Compare with vLLM's ``RECORD``; ``None`` for what it does not list."""
        if path.startswith("/"):
            return None
        return tree_names.is_recorded(self._record, path, data)

    @cached_property
    def _record(self) -> bytes:
        return next((self.read(f"{folder}/RECORD") for folder in self.folders()), None) or b""

    @property
    def directory(self) -> str:
        """Where a container starts, absolute."""
        return str(settings(self.base).get("WorkingDir") or "/")

    def has(self, path: str) -> bool:
        """Tell whether a path, relative to ``directory`` or absolute, leads to a file of the image."""
        entry = self.base.entry(resolve(self.base, posixpath.join(self.directory, path)))
        return entry is not None and entry.kind == FILE

    def close(self) -> None:
        """Close the image."""
        self.base.close()

    def _in_workspace(self, path: str) -> str:
        root = self.workspace
        if root and path.startswith(f"{root.rstrip('/')}/"):
            tree_names.split(path[1:], self.spec)
            return resolve(self.base, path)
        raise outside_workspace(path, root, self.spec)

    def _check_absent(self, parts: list[str]) -> None:
        """Raise ``TreeError`` if there is something at a path after all, and it is no file."""
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            entry = self.base.look(f"{self.site_root}/{path}")
            if entry is None or (entry.kind == FILE and end < len(parts)):
                return
            if entry.kind == LINK:
                raise TreeError(
                    f"{self.spec}: refusing to read {'/'.join(parts)}: {path} is a symbolic link to {entry.target}, and vllm-mods does not follow links",
                    hint="install vLLM into the image with real files: "
                    "uv pip install --link-mode copy, or without -e",
                )
        why = f"{self.spec}: {'/'.join(parts)} is not a regular file"
        raise TreeError(why, hint="build the image again")


def open_image(base: Base, spec: str, *, platform: str | None, named: str | None) -> ImageTree:
    """Open the vLLM in an image, which is closed with it; the parameters are those of ``open_tree`` and ``find_site_root``.

    Raises ``UsageError`` for an image without vLLM, with two, or with one that cannot be patched.
    """
    from vllm_mods.images.open import demand_platform  # noqa: PLC0415

    try:
        if platform is not None:
            demand_platform(base, platform)
        return ImageTree(base, find_site_root(base, named), spec=spec)
    except BaseException:
        base.close()
        raise


def find_site_root(base: Base, named: str | None = None) -> str:
    """Return where in an image the folder is that holds ``vllm/``; ``named`` is what the user calls it.

    Looked at are the places that the image's own settings lead to (``PATH``, ``PYTHONPATH``, ``VIRTUAL_ENV``,
    the user's home, the working folder) and the usual ones; then what the ``.pth`` files in them name. Of
    several, the one that holds a pairing's lock is what the image was made for. Raises ``UsageError``.
    """
    place = None if named is None else resolve(base, named.rstrip("/").removesuffix("/vllm"))
    looked = list(dict.fromkeys(_candidates(base))) if place is None else [place]
    vllms = _vllms(base, looked)
    if place is not None and not vllms:
        why = f"{base.reference}: /{place} has no vllm/__init__.py, so it contains no vLLM"
        hint = "run without --target-in-image to list the folders that have a vLLM"
        raise UsageError(why, hint=hint)
    vllms = vllms or _vllms(base, _behind_pth(base, looked))
    locked = [one for one in vllms if base.look(f"{one}/{pairing_lock.PLACE}") is not None]
    if len(vllms) > 1 and len(locked) == 1:
        return locked[0]
    if len(vllms) == 1:
        folder, fault = vllms.popitem()
        if not fault:
            return folder
        why = f"{base.reference}: /{folder}/vllm is {fault}, as of an editable install: the mods would change files elsewhere too"
        hint = "in the Dockerfile, use pip install vllm, without -e and with real files"
        raise UsageError(why, hint=hint)
    if vllms:
        lines = "".join(f"\n  /{folder}{fault and ', ' + fault}" for folder, fault in vllms.items())
        why = f"{base.reference}: the image has {len(vllms)} vLLMs, and which one runs is unclear{lines}"
        hint = f"name the vLLM that runs: --target-in-image /{next(iter(vllms))}; or build the image with only one vLLM"
        raise UsageError(why, hint=hint)
    raise _nothing(base, looked)


def _vllms(base: Base, folders: Iterable[str]) -> dict[str, str]:
    """Return which folders hold a vLLM, each with what is wrong with it."""
    return {one: why for one in dict.fromkeys(folders) if (why := _fault(base, one)) is not None}


def _fault(base: Base, folder: str) -> str | None:
    """Say why the vLLM in a folder cannot be patched, ``""`` if it can, None if there is none."""
    entry = base.look(f"{folder}/vllm" if folder else "vllm")
    if entry is not None and entry.kind == LINK:
        return f"a symbolic link to {entry.target}"
    is_there = entry is not None and base.look(f"{folder}/{MARKER}".lstrip("/")) is not None
    return "" if is_there else None


def _files(base: Base, folders: Iterable[str]) -> Iterator[str]:
    return (one.path for folder in folders if folder for one in children(base, folder))


def _behind_pth(base: Base, folders: list[str]) -> Iterator[str]:
    """Yield what the ``.pth`` files of folders put behind them on Python's path, resolved."""
    for path in sorted(_files(base, folders)):
        if path.endswith(".pth"):
            for line in (base.read(path) or b"").decode("utf-8", "replace").splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    yield resolve(base, posixpath.join("/", posixpath.dirname(path), line.rstrip()))


def _nothing(base: Base, looked: list[str]) -> UsageError:
    for path in _files(base, looked):
        name = posixpath.basename(path)
        is_editable = name.startswith("__editable__") or name.endswith(".egg-link")
        if "vllm" in name.lower() and is_editable:
            target = (base.read(path) or b"").decode("utf-8", "replace").split("\n", 1)[0]
            return UsageError(
                f"{base.reference}: vLLM is an editable install: /{path} points to "
                f"{target.strip() or 'somewhere else'}",
                hint="in the Dockerfile, use pip install . without -e, so vllm/ is in one place",
            )
    where = "".join(f"\n  /{folder}" for folder in looked if base.look(folder) is not None)
    return UsageError(
        f"{base.reference}: the image has no vLLM; there is no vllm/__init__.py in any of{where or ' its folders'}",
        hint="name an image with vLLM, such as vllm/vllm-openai; or name the folder that contains it: --target-in-image /FOLDER",
    )


def _candidates(base: Base) -> Iterator[str]:
    """Yield the folders that Python may import from, resolved."""
    configured = settings(base)
    variables = environment(configured)
    working = str(configured.get("WorkingDir") or "/")
    paths = variables.get("PYTHONPATH", "").split(":")
    folders = [place for place in paths if place.startswith("/")]
    programs = [place.rstrip("/") for place in variables.get("PATH", "").split(":")]
    home = variables.get("HOME") or _home(base, str(configured.get("User") or "root"))
    data = variables.get("XDG_DATA_HOME") or f"{home}/.local/share"
    prefixes = (
        variables.get("VIRTUAL_ENV"),
        f"{working}/.venv",
        *(posixpath.dirname(place) for place in programs if place.endswith("/bin")),
        variables.get("PYTHONUSERBASE") or f"{home}/.local",
        f"{variables.get('UV_TOOL_DIR') or f'{data}/uv/tools'}/vllm",
        *_USUAL,
    )
    for folder in (*folders, working):
        yield resolve(base, folder)
    named = filter(None, prefixes)
    libs = (resolve(base, f"{prefix}/{name}") for prefix in named for name in ("lib", "lib64"))
    libs = (lib for lib in dict.fromkeys(libs) if lib and base.look(lib))
    for place in (f"{lib}/{version}" for lib in libs for version in _VERSIONS):
        if base.look(place) is not None:
            yield resolve(base, f"{place}/dist-packages")
            yield resolve(base, f"{place}/site-packages")


def _home(base: Base, user: str) -> str:
    """Return the home of the user that an image runs as, a name or a number, by its ``/etc/passwd``."""
    wanted = user.partition(":")[0]
    if wanted in {"root", "0"}:
        return "/root"
    for line in (base.read("etc/passwd") or b"").decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if len(fields) > 5 and wanted in {fields[0], fields[2]}:
            return fields[5]
    return f"/home/{wanted}"
