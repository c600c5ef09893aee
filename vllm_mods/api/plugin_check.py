"""What a vLLM breaks of a plugin, or of another package that changes vLLM while it runs."""

from typing import NamedTuple

from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Finding, all_well
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.formats.syntax_tree import TOO_DEEP
from vllm_mods.plugins.judging import judge
from vllm_mods.plugins.reading import Plugin, read_plugin
from vllm_mods.trees.open import as_tree


class PluginChecked(NamedTuple):
    """A ``plugin`` (``name``, ``version``, ``entry_points``, ``starts``) held against a ``tree``: the findings, errors first.

    ``made_for`` is the version of the vLLM that it was made for, None where nobody says; ``source`` says who says so.
    """

    plugin: Plugin
    tree: Tree
    made_for: str | None
    source: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken that worked with the vLLM that it was made for."""
        return all_well(self.findings)


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
    read, files = read_plugin(plugin, lambda name: access.releases.of(name))  # noqa: PLW0108  (late)
    opened = as_tree(tree)
    known, source = (as_tree(made_for), "--made-for") if made_for is not None else (None, "")
    if known is None and read.made_for is not None:
        versions, source = read.made_for
        try:
            known = access.open(releases_in(access, versions, plain=True)[-1])
        except (UsageError, TreeError) as error:
            why = f"{plugin} was made for vLLM {versions} ({source}): {error.message}"
            raise type(error)(why, hint="name another one: --made-for TREE") from error
    try:
        findings = judge(files, opened, known)
    except (RecursionError, OSError) as error:
        why = TOO_DEEP if isinstance(error, RecursionError) else str(error.strerror)
        raise TreeError(f"{plugin} cannot be checked: {why}", hint="is this a plugin?") from error
    return PluginChecked(read, opened, known.version if known else None, source, findings)
