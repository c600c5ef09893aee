"""The Python packages beside a tree's vLLM: what is installed, and what vLLM's own metadata pins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Tree
from vllm_mods.formats import tree_names

_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}


class Packages(NamedTuple):
    """By canonical name: versions ``installed`` in the site root, what vLLM's METADATA ``needs`` and what it ``pins``."""

    installed: Mapping[str, str]
    pins: Mapping[str, str]
    needs: Collection[str] = ()


def beside(tree: Tree, names: Collection[str]) -> Packages:
    """Return what a tree knows of the packages of these canonical names: a folder elsewhere may have more.

    Nothing of a tree that cannot be listed, or whose metadata cannot be read.
    """
    listed = getattr(tree, "folders", tuple)
    try:
        named = {name: said for name in listed() if (said := tree_names.dist_info(name))}
        own = next((name for name, said in named.items() if said[0].lower() == "vllm"), None)
        needs = _needs(tree.read(f"{own}/METADATA" if own else "PKG-INFO") or b"")
        pins = _pins(needs)
        installed = {canonical(name): version for name, version in named.values()}
        for name in names:
            # of an image the site root is not listed
            if name in pins and name not in installed:
                folder = f"{name.replace('-', '_')}-{pins[name]}.dist-info"
                if tree.read(f"{folder}/METADATA") is not None:
                    installed[name] = pins[name]
    except TreeError:
        return Packages({}, {})
    return Packages(installed, pins, {canonical(one.name) for one in needs})


def required(tree: Tree, texts: Iterable[str]) -> dict[str, str]:
    """Return the versions beside a tree of what its vLLM and these requirements name, sorted."""
    named = {canonical(one.name) for text in texts if (one := read(text)) is not None}
    there = beside(tree, named)
    return {
        name: version
        for name, version in sorted(there.installed.items())
        if name in named or name in there.needs
    }


def read(text: str) -> Requirement | None:
    """Read a requirement (PEP 508); None for one that is none, or that is not for a Linux."""
    try:
        found = Requirement(text)
        meant = found.marker is None or found.marker.evaluate(dict(_LINUX))
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return found if meant else None


def canonical(name: str) -> str:
    """Return the one spelling of a package's name."""
    return str(canonicalize_name(name))


def _needs(metadata: bytes) -> list[Requirement]:
    """Return what ``Requires-Dist`` demands of a Linux."""
    head = metadata.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n", 1)[0]
    lines = (line for line in head.splitlines() if line.startswith("Requires-Dist:"))
    return [one for line in lines if (one := read(line.partition(":")[2].strip())) is not None]


def _pins(needs: Iterable[Requirement]) -> dict[str, str]:
    """Return what is demanded with ``==``."""
    return {
        canonical(one.name): each.version
        for one in needs
        for each in one.specifier
        if each.operator == "==" and not each.version.endswith(".*")
    }
