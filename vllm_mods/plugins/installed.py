"""Plugins that are installed beside a vLLM, and what they replace while they run of code that mods have changed in its files."""

import re
from collections.abc import Iterator, Set as AbstractSet
from contextlib import suppress

from vllm_mods.applying.outcomes import InstalledPlugin
from vllm_mods.base.errors import TreeError
from vllm_mods.base.tree import Tree
from vllm_mods.fit.lines import touched_lines
from vllm_mods.formats import tree_names
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.receipt import Receipt, untouched
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.plugins.reading import entry_points


def installed_plugins(tree: Tree, current: Receipt | None) -> Iterator[InstalledPlugin]:
    """Yield the plugins beside a vLLM, each with what mods change too, by its receipt. Nothing is run."""
    changed: AbstractSet[tuple[str, str]] | None = None
    for folder, (name, version) in tree_names.dist_infos(sorted(tree.folders())).items():
        built, data = f"{folder}/entry_points.txt", None
        with suppress(TreeError):  # a link of another package's is nothing wrong
            data = tree.read(built) if name != "vllm" else None
        entries = entry_points({built: data or b""}, {})
        group, entry = next((one for one in entries if one[0].startswith("vllm.")), ("", ""))
        package = re.split(r"[.:\s]", entry.partition("=")[2].strip())[0]
        if package not in {"", "vllm"}:  # whatever the name under which vLLM is distributed
            shared: dict[str, str] = {}
            if changed := {*_changed(tree, current)} if changed is None and current else changed:
                from vllm_mods.plugins.judging import replacements_of  # noqa: PLC0415  (slow)

                shared = dict(replacements_of(tree, package, changed))
            hashed = (
                ((mod.name, file.path) for mod in current.mods for file in mod.files)
                if current
                else ()
            )
            mods = dict.fromkeys(mod for mod, path in hashed if path in shared.values())
            yield InstalledPlugin(name, version, package, f"{group}: {entry}", (*shared,), (*mods,))


def _changed(tree: Tree, current: Receipt) -> Iterator[tuple[str, str]]:
    """Yield the classes and functions that mods have changed, each with its file."""
    for file in current.files:
        old = untouched(file, tree.read) if file.path.endswith(".py") else None
        new = tree.read(file.path) or b""
        with suppress(UnparsableError):
            lines = touched_lines(old, new) if old is not None else ()
            for scope in read_scopes(new).definitions if lines else ():
                if any(scope.start <= line <= scope.end for line in lines):
                    yield file.path, scope.name
