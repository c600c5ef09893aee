"""Plugins that are installed beside a vLLM, and what they replace while they run of code that mods have changed in its files."""

import re
from collections.abc import Iterator
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
    receipt = current or Receipt(None, (), ())
    changed: frozenset[tuple[str, str]] | None = None  # read only where there is a plugin
    for folder, (name, version) in tree_names.dist_infos(sorted(tree.folders())).items():
        built, data = f"{folder}/entry_points.txt", None
        with suppress(TreeError):  # a link of another package's is nothing wrong
            data = tree.read(built) if name != "vllm" else None
        entries = entry_points({built: data or b""}, {})
        starts = [(f"{g}: {entry}", entry) for g, entry in entries if g.startswith("vllm.")]
        named = [(re.split(r"[.:\s]", e.partition("=")[2].strip())[0], text) for text, e in starts]
        if places := [place for place in named if place[0] not in {"", "vllm"}]:  # vLLM by any name
            if changed is None:
                changed = _changed(tree, receipt)
            shared: dict[str, str] = {}
            for package in dict(places) if changed else ():
                from vllm_mods.plugins.judging import replaced_by  # noqa: PLC0415  (slow)

                with suppress(TreeError):  # of a package that is a link, or a file of vLLM's
                    shared |= replaced_by(tree, package, changed)
            mods = (m.name for m in receipt.mods if {f.path for f in m.files} & {*shared.values()})
            yield InstalledPlugin(name, version, *places[0], (*shared,), (*mods,))


def _changed(tree: Tree, current: Receipt) -> frozenset[tuple[str, str]]:
    """Return the classes and functions that mods have changed, each behind its file; none if a file cannot be read."""
    changed: set[tuple[str, str]] = set()
    try:
        for f in (file for file in current.files if file.path.endswith(".py")):
            new = tree.read(f.path) or b""
            if (old := untouched(f, tree.read)) is not None and (at := touched_lines(old, new)):
                with suppress(UnparsableError):
                    scopes = read_scopes(new).definitions
                    meets = (s for s in scopes if at & {*range(s.start, s.end + 1)})
                    changed |= {(f.path, s.name) for s in meets}
    except TreeError:
        return frozenset()
    return frozenset(changed)
