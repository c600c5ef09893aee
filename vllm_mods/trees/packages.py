"""What a tree's metadata says of vLLM and of the packages beside it: installed, pinned, listed, installed anew."""

import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from vllm_mods.base import versions
from vllm_mods.base.errors import TreeError, VllmModsError
from vllm_mods.base.tree import Tree
from vllm_mods.formats import tree_names
from vllm_mods.formats.tree_names import canonical

MODULES = {
    "torch": "torch/version.py",
    "flashinfer-python": "flashinfer/_build_meta.py",
    "flashinfer-cubin": "flashinfer_cubin/_build_meta.py",
}
"""The files in which packages say their versions, which may be others than vLLM requires."""
_PYTHON = re.compile(r"/python(3\.\d+)/")
_NO_NAME = r"[^\w.-]"
_UNAME = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}


def markers(python: str, machine: str) -> dict[str, str]:
    """Return what markers ask for (PEP 508), as Linux answers: ``python`` as ``3.12``, ``machine`` as ``uname -m`` says it."""
    return {
        **_LINUX,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": machine,
    }


class Packages(NamedTuple):
    """By canonical name the versions ``installed`` in the site root; what vLLM's METADATA has ``wanted`` of them and of what was asked for; ``why`` nothing was read."""

    installed: Mapping[str, str]
    wanted: Sequence[Requirement] = ()
    why: str = ""

    @property
    def pins(self) -> dict[str, str]:
        """The versions that it names, by canonical name."""
        pairs = ((canonical(one.name), each) for one in self.wanted for each in one.specifier)
        exact = ((name, each.version) for name, each in pairs if each.operator == "==")
        return {name: version for name, version in exact if not version.endswith(".*")}


def read_packages(tree: Tree, names: Collection[str], *, every: bool = False) -> Packages:
    """Return what a tree knows of the packages of these canonical names: a folder elsewhere may have more.

    With ``every``, all that is wanted is read, installed or not. Nothing of a tree that cannot be listed, or whose
    metadata cannot be read, but ``why``.
    """
    try:
        named = tree_names.dist_infos(tree.folders())
        own = next((name for name, said in named.items() if said[0].lower() == "vllm"), None)
        metadata = tree.read(f"{own}/METADATA" if own else "PKG-INFO") or b""
        installed = {canonical(name): version for name, version in named.values()}
        asked = None if every else {*installed, *names}
        read = Packages(installed, needs(metadata, _machine_of(tree), asked))
        pins = read.pins
        # of an image the site root is not listed
        unlisted = (name for name in names if name not in installed)
        stated = ((name, _version_of(tree, name, pins.get(name))) for name in unlisted)
        beside = {name: version for name, version in stated if version}
    except TreeError as error:
        return Packages({}, why=error.message)
    return read._replace(installed={**installed, **beside})


def _version_of(tree: Tree, name: str, pin: str | None) -> str | None:
    """Return the version of a package in a site root, by a file that every release of it has."""
    if name in MODULES:
        return tree_names.module_version(tree.read(MODULES[name]))
    folder = f"{name.replace('-', '_')}-{pin}.dist-info"
    return pin if pin and tree.read(f"{folder}/METADATA") is not None else None


def _machine_of(tree: Tree) -> Mapping[str, str]:
    """Return what markers ask for of the Python and the machine that a tree is for, as far as its place says."""
    place = tree.root or getattr(tree, "site_root", "")  # an image's
    match = _PYTHON.search(f"{place}/")
    machine = _UNAME.get(tree.platform or "", platform.machine())
    return markers(match[1], machine) if match else _LINUX


def required(tree: Tree, texts: Iterable[str]) -> dict[str, str]:
    """Return the versions beside a tree of what its vLLM and these requirements name, sorted."""
    named = {canonical(needed.name) for text in texts if (needed := parse_requirement(text))}
    packages = read_packages(tree, named)
    named |= {canonical(one.name) for one in packages.wanted}
    return {name: version for name, version in sorted(packages.installed.items()) if name in named}


def parse_requirement(text: str, machine: Mapping[str, str] = _LINUX) -> Requirement | None:
    """Read a requirement (PEP 508); None for one that is none, or that is not for a machine."""
    try:
        requirement = Requirement(text)
        meant = requirement.marker is None or requirement.marker.evaluate(dict(machine))
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return requirement if meant else None


def needs(
    metadata: bytes, machine: Mapping[str, str] = _LINUX, names: Collection[str] | None = None
) -> list[Requirement]:
    """Return what ``Requires-Dist`` demands of a machine, of these canonical names if any are given."""
    head = metadata.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    lines = (line for line in head.splitlines() if line.startswith("Requires-Dist:"))
    texts = [line.partition(":")[2].strip() for line in lines]
    if names is not None:
        texts = [text for text in texts if canonical(re.split(_NO_NAME, text)[0]) in names]
    return [needed for text in texts if (needed := parse_requirement(text, machine)) is not None]


def dist_infos(tree: Tree) -> dict[str, tuple[str, str]]:
    """Return name and version of the distributions that are vLLM's, or list its files, by folder."""
    every = tree_names.dist_infos(sorted(tree.folders())).items()
    return {at: said for at, said in every if said[0].lower() == "vllm" or rows_of(tree, at)}


def reinstalling(tree: Tree, version: str | None) -> str:
    """Return how to install a tree's vLLM anew: a command, or words where none is known.

    An index is named for a release that an installer took from one, and for nothing else: in place of
    a build of somebody's own (a local version, a development version, a source folder, a file, a
    distribution without metadata) it would put another.
    """
    if tree.spec.startswith("image:"):
        return "build the image again"
    dists = dist_infos(tree)
    if len(dists) == 1:
        ((folder, (name, stated)),) = dists.items()
        place = f"{tree.root}/{folder}" if tree.root is not None else ""
        by = (tree.read(f"{folder}/INSTALLER") or b"").decode("ascii", "replace").strip()
        if by in {"pip", "uv"} and not os.path.lexists(f"{place}/direct_url.json"):
            release = versions.parse(stated)
            if release and release.local is None and not release.is_devrelease:
                return f"pip install --force-reinstall --no-deps {name}=={stated}"
    named = f"vLLM {version}" if version else "this vLLM"
    return f"reinstall {named} from its original source, because a package index may have a different build"


def rows_of(tree: Tree, folder: str) -> dict[str, tuple[str, str]]:
    """Return hash and size of what a RECORD lists; nothing of one that cannot be read."""
    import csv  # noqa: PLC0415  (what lists files asks, not each check)

    try:
        text = (tree.read(f"{folder}/RECORD") or b"").decode("utf-8", "surrogateescape")
        rows = [row for row in csv.reader(text.splitlines()) if len(row) == 3]
    except (csv.Error, VllmModsError):
        return {}
    return {path: (hashed, size) for path, hashed, size in rows if is_ours(path)}


def is_ours(path: str) -> bool:
    """Tell whether a path is in ``vllm/``; bytecode is left out, since installers write that."""
    return path.startswith("vllm/") and not path.endswith(".pyc") and ".." not in path
