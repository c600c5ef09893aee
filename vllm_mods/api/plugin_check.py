"""What a vLLM breaks of a plugin, or of another package that changes vLLM while it runs."""

from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.plan import as_tree
from vllm_mods.base.errors import TreeError, VllmModsError
from vllm_mods.base.model import Finding, Level
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.formats.syntax_tree import TOO_DEEP
from vllm_mods.plugins.judging import judge
from vllm_mods.plugins.reading import Plugin, read_plugin, stated_version


class PluginChecked(NamedTuple):
    """A ``plugin`` (its ``name``, ``version`` and what starts it) held against a ``tree``: the findings, errors first.

    ``made_for`` is the version of the vLLM that it was made for, None where nobody says; ``source`` is who says so.
    """

    plugin: Plugin
    tree: Tree
    made_for: str | None
    source: str | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken that worked with the vLLM that it was made for."""
        return all(one.level is Level.NOTE for one in self.findings)


def plugin_check(
    plugin: str,
    tree: Tree | Folder,
    *,
    made_for: Tree | Folder | None = None,
    access: Access | None = None,
) -> PluginChecked:
    """Hold what a plugin imports, calls, overrides and replaces of vLLM against a vLLM. None of its code is run.

    ``plugin`` is ``pypi:NAME==VERSION``, a wheel, an sdist, a folder with the sources, or the package's folder in
    site-packages. What is also wrong with the vLLM that it was ``made_for`` is left out: with what the plugin itself
    names, unless one is given. Where it names none, all findings are notes.

    Returns ``PluginChecked``. Raises ``UsageError`` for what is no plugin, ``TreeError`` for one that cannot be read.

    >>> Path("fast").mkdir()
    >>> _ = Path("fast/__init__.py").write_text("from vllm.loader import Reader")
    >>> checked = vm.plugin_check("fast", "newer", made_for="site-packages")
    >>> checked.plugin.name, checked.made_for, checked.ok, checked.findings
    ('fast', '0.19.1', True, ())
    """
    access = access or Access()
    # a release alone needs an index, which takes 100 ms to be imported
    read, files = read_plugin(plugin, lambda name: access.releases.of(name))  # noqa: PLW0108
    known, source = (None, None) if made_for is None else (as_tree(made_for), "--made-for")
    stated = None if known else stated_version(read, lambda: access.releases.versions())  # noqa: PLW0108
    opened = as_tree(tree)
    try:
        if stated is not None:
            known, source = access.open(f"pypi:{stated[0]}"), stated[1]
    except VllmModsError as error:
        why = f"{plugin} was made for vLLM {stated[0]} ({stated[1]}): {error.message}"
        raise type(error)(why, hint="name another one: --made-for TREE") from error
    try:
        findings = judge(files, opened, known)
    except (RecursionError, OSError) as error:
        why = TOO_DEEP if isinstance(error, RecursionError) else str(error)
        raise TreeError(f"{plugin} cannot be checked: {why}", hint="is this a plugin?") from error
    version = None if known is None else known.version
    return PluginChecked(read, opened, version, source, findings)
