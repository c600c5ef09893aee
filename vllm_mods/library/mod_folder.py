"""Read the mod in a folder, with all the files that its manifest names."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.base.model import (
    BinaryFile,
    FetchedFile,
    ImageFile,
    Mod,
    OverlayFile,
    PatchFile,
    TemplateFile,
    Variant,
)
from vllm_mods.formats import manifest, platforms
from vllm_mods.library import reading

MANIFEST = "mod.toml"
LOCK = "mod.lock"
TEMPLATE = "template.jinja"
_Stated = TypeVar("_Stated", PatchFile, OverlayFile, FetchedFile, BinaryFile, ImageFile)


def data_root() -> str:
    """Return the folder with the bundled ``patches/`` and ``templates/``.

    In a wheel they lie inside the package; in a checkout, and so in an editable install, beside it.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for root in (os.path.join(package, "_data"), os.path.dirname(package)):
        if os.path.isdir(os.path.join(root, "patches")):
            return root
    why = f"the bundled mods are missing: neither {package}/_data/patches nor {os.path.dirname(package)}/patches exists"
    raise UsageError(why, hint="the installation is incomplete; install vllm-mods again")


def load_files(name: str, files: Mapping[str, bytes]) -> Mod:
    """Read a mod that lies in no folder, of its files by the paths in it. Raises as ``load_mod``."""
    start = f"/{name}/"
    return load_mod(start[:-1], read=lambda path: files.get(path.removeprefix(start)))


def load_mod(
    folder: str, roots: Sequence[str] = (), *, read: Callable[[str], bytes | None] | None = None
) -> Mod:
    """Read the mod in a folder with all the files it names, by ``read`` if they are not on disk.

    A template is looked up in the folder's own ``templates/`` first, then in its library, if that
    is one of ``roots``, then in the others. Raises ``ManifestError`` with every problem.
    """
    read = read or reading.reader(folder, *roots, linked=data_root())
    where = os.path.join(folder, MANIFEST)
    raw = read(where)
    if raw is None:
        raise UsageError(f"{folder} has no {MANIFEST}")
    stated = manifest.from_toml(raw, where)
    files = _Files(folder, roots, read)
    own_name = os.path.basename(os.path.abspath(folder))
    if stated.name != own_name:
        files.problems.append(f"name is {stated.name!r}, but its folder is named {own_name!r}")
    variants = tuple(files.variant(f"variant[{i}]", one) for i, one in enumerate(stated.variants))
    images = files.filled("files", stated.files, ".source")
    if files.problems:
        raise ManifestError(where, tuple(files.problems))
    digests = {MANIFEST: sha256(raw), **files.digests}
    # as ``sha256sum`` would list its files, sorted by name
    listing = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return stated._replace(
        directory=folder,
        digest=sha256(listing.encode()),
        files=images,
        variants=variants,
        lock=read(os.path.join(folder, LOCK)),
        manifest=raw,
    )


class _Files:
    """The files that a manifest names, each read once; what is wrong with them goes to one list."""

    def __init__(
        self, folder: str, roots: Sequence[str], read: Callable[[str], bytes | None]
    ) -> None:
        self.folder = folder
        self.roots = roots
        self.read = read
        self.problems: list[str] = []
        self.digests: dict[str, str] = {}
        self._there: dict[str, bytes | None] = {}

    def variant(self, at: str, stated: Variant) -> Variant:
        rows = enumerate(stated.templates)
        return stated._replace(
            patches=self.filled(f"{at}.patches", stated.patches),
            overlay=self.filled(f"{at}.overlay", stated.overlay, ".source"),
            templates=tuple(self.template(f"{at}.templates[{i}].name", one) for i, one in rows),
            fetch=self.filled(f"{at}.fetch", stated.fetch, ".file"),
            binary=self.filled(f"{at}.binary", stated.binary, ".source"),
        )

    def filled(self, at: str, stated: tuple[_Stated, ...], key: str = "") -> tuple[_Stated, ...]:
        """Return entries with the bytes of their files; ``key`` names the file in each."""
        rows = ((f"{at}[{i}]", one) for i, one in enumerate(stated))
        return tuple(one._replace(data=self._data(row, row + key, one)) for row, one in rows)

    def _data(self, row: str, at: str, stated: _Stated) -> bytes:
        """Return a file that has the sha256, and is for the platform, that the manifest may state."""
        name = stated.source
        data = self.take(at, name)
        if not data or not isinstance(stated, FetchedFile | BinaryFile):
            return data
        if sha256(data) != stated.sha256:
            why = f"the sha256 of {name} is {sha256(data)}, not {stated.sha256}"
            self.problems.append(f"{at}: {why}")
        if isinstance(stated, BinaryFile):
            platform = platforms.of_code(data)
            what = f"machine code for {platform}" if platform else "unknown machine code"
            why = f"{row}.platform: {name} is {what}, but should be for {stated.platform}"
            self.problems += [why] if platform != stated.platform else []
        return data

    def take(self, at: str, name: str, path: str | None = None) -> bytes:
        path = path or os.path.join(self.folder, *name.split("/"))
        try:
            data = self._read(path)
        except ManifestError as error:
            self.problems.append(f"{at}: {error.where} {error.problems[0]}")
            return b""
        if data is None:
            self.problems.append(f"{at}: no such file: {path}")
            return b""
        self.digests[name] = sha256(data)
        return data

    def template(self, at: str, stated: TemplateFile) -> TemplateFile:
        name = stated.name
        own = os.path.dirname(os.path.dirname(os.path.abspath(self.folder)))
        folders = [self.folder, *sorted(self.roots, key=lambda root: root != own)]
        tried = [os.path.join(root, "templates", name, TEMPLATE) for root in folders]
        existing = [path for path in dict.fromkeys(tried) if self._read(path) is not None]
        if len(existing) > 1 and existing[0] not in tried[: 2 if folders[1:2] == [own] else 1]:
            self.problems.append(
                f"{at}: two libraries have a template named {name!r}: {existing[0]} and {existing[1]}"
            )
        path, source = existing[0] if existing else tried[-1], f"templates/{name}/{TEMPLATE}"
        data = self.take(at, source, path)
        return stated._replace(source=source, data=data, root=path[: -len(source) - 1])

    def _read(self, path: str) -> bytes | None:
        if path not in self._there:
            data = self._there[path] = self.read(path)
            size = sum(len(one) for one in self._there.values() if one is not None)
            if data and size > limits.MOD_BYTES:
                raise ManifestError(path, (f"is too big: the limit is {limits.MOD_BYTES}",))
        return self._there[path]
