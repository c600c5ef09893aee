"""What of a plugin does a vLLM break? A prototype of `check --plugin`, on the product's modules; not part of the product.

The plugin is read as it lies, and none of its code is run. What is also wrong with the vLLM that it was made for is left out.

    python benchmarks/plugin_check.py pypi:kvcached==0.1.5 pypi:0.20.2
    python benchmarks/plugin_check.py PLUGIN TREE --made-for TREE

PLUGIN is pypi:NAME==VERSION, a wheel, an sdist, a folder with the sources, or the package's folder in site-packages; TREE is
what `vllm-mods check --target` takes. Prints where the version that it was made for comes from, the findings in their order and
how many they are. Exit code 1 with errors, 2 for what cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NamedTuple

from plugin_judging import judge
from plugin_reading import Plugin, read_plugin, stated_version

from vllm_mods.api.access import Access
from vllm_mods.base.errors import TreeError, VllmModsError
from vllm_mods.base.model import Level

if TYPE_CHECKING:
    from vllm_mods.base.model import Finding
    from vllm_mods.base.tree import Tree


class MadeFor(NamedTuple):
    """The vLLM that a plugin was made for, and who says so; ``tree`` is None where nobody does."""

    tree: Tree | None = None
    source: str = "the plugin names none: all findings are notes; name one with --made-for TREE"

    def __str__(self) -> str:
        return f"vLLM {self.tree.version} ({self.source})" if self.tree else self.source


class Checked(NamedTuple):
    """A plugin held against a vLLM: the findings, errors first."""

    plugin: Plugin
    made_for: MadeFor
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        return [one for one in self.findings if one.level is Level.ERROR]


def checked(spec: str, tree: Tree, made_for: Tree | None, access: Access) -> Checked:
    """Hold a plugin against a vLLM and the one that it was made for, which is looked for where none is given."""
    plugin = read_plugin(spec, access.releases.of)
    known = MadeFor(made_for, "--made-for") if made_for else MadeFor()
    if made_for is None and (stated := stated_version(plugin, access.releases.versions)):
        known = MadeFor(access.open(f"pypi:{stated[0]}"), stated[1])
    try:
        findings = judge(plugin.files, tree, known.tree)
    except (RecursionError, OSError) as error:
        raise TreeError(f"{spec} cannot be checked: {error}", hint="is this a plugin?") from error
    return Checked(plugin, known, findings)


def main() -> int:
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plugin")
    parser.add_argument("tree")
    parser.add_argument("--made-for")
    args = parser.parse_args()
    with Access() as access:
        try:
            tree = access.open(args.tree)
            made_for = access.open(args.made_for) if args.made_for else None
            found = checked(args.plugin, tree, made_for, access)
        except VllmModsError as error:
            print(f"error: {error}", f"hint: {error.hint}", sep="\n", file=sys.stderr)
            return 2
    plugin, errors = found.plugin, len(found.errors)
    print(f"{plugin.name} {plugin.version} on vLLM {tree.version}; made for: {found.made_for}")
    for group, entry in plugin.entry_points:
        print(f"starts by {group}: {entry}")
    for path in plugin.starts:
        print(f"starts with Python: {path}")
    for one in found.findings:
        print(f"{one.level.value}: {one.message} [{one.code}]")
    notes = len(found.findings) - errors
    print(f"{errors} error{'s' * (errors != 1)}, {notes} note{'s' * (notes != 1)}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
