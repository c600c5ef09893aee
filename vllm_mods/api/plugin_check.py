"""What vLLMs break of a plugin, or of another package that changes vLLM while it runs."""

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import ManifestError, TreeError, UsageError
from vllm_mods.base.model import Finding, all_well
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.base.versions import is_final, sort_key
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats import tree_names
from vllm_mods.formats.syntax_tree import TOO_DEEP
from vllm_mods.plugins.judging import View, judge
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
    opened = as_tree(tree)
    return _judge(_opened(plugin, as_tree(made_for) if made_for else None, access), opened)


class PluginMatrix(NamedTuple):
    """A plugin's releases held against vLLM's, oldest first; ``unread`` says which were not held against any, and why."""

    cells: tuple[PluginChecked, ...]
    unread: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken anywhere, and everything was read, and there was something."""
        return bool(self.cells) and not self.unread and all(cell.ok for cell in self.cells)


def plugin_matrix(
    plugin: str,
    vllm: str | None = None,
    *,
    access: Access | None = None,
    progress: Callable[[str], object] = lambda _text: None,
) -> PluginMatrix:
    """Hold a plugin against several releases of vLLM, as ``plugin_check`` does against one.

    ``pypi:NAME`` stands for all its final releases. ``vllm`` is a range of vLLM's releases; without it, each is held
    against that which it was made for and the three after it, or the newest three where it names none.

    >>> vm.plugin_matrix("fast.whl").unread
    ('fast.whl: there is no such release, wheel, sdist or folder',)
    """
    access = access or Access()
    asked = None if vllm is None else releases_in(access, vllm, plain=True)
    cells, unread = [], []
    for spec in _releases(plugin, access):
        try:
            opened = _opened(spec, None, access)
            version = opened.known.version if opened.known else None
            nearest = slice(4) if version else slice(-3, None)
            for name in asked or releases_in(access, f">={version or 0}", plain=True)[nearest]:
                progress(f"{spec} on {name}")
                cells.append(_judge(opened, access.open(name)))
        except (UsageError, ManifestError, TreeError) as error:
            unread.append(error.message)
    return PluginMatrix(tuple(cells), tuple(unread))


def _releases(plugin: str, access: Access) -> Iterator[str]:
    """Yield what a name stands for: the final releases of one in the index, all if there is none, or itself."""
    if not (named := re.fullmatch(r"pypi:([\w.-]+)", plugin)):
        yield plugin
        return
    versions = sorted(access.releases.of(tree_names.canonical(named[1])).versions(), key=sort_key)
    yield from (f"{plugin}=={one}" for one in [*filter(is_final, versions)] or versions)


class _Opened(NamedTuple):
    plugin: Plugin
    files: Mapping[str, bytes]
    known: Tree | None
    origin: View | None
    source: str
    spec: str


def _opened(plugin: str, made_for: Tree | None, access: Access) -> _Opened:
    """Read a plugin, and open the vLLM that it was made for, where that is known."""
    read, files = read_plugin(plugin, lambda name: access.releases.of(name))  # noqa: PLW0108  (late)
    known, source = made_for, "--made-for" * (made_for is not None)
    if known is None and read.made_for is not None:
        versions, source = read.made_for
        try:
            known = access.open(releases_in(access, versions, plain=True)[-1])
        except (UsageError, TreeError) as error:
            why = f"{plugin} was made for vLLM {versions} ({source}): {error.message}"
            raise type(error)(why, hint="--made-for TREE names another vLLM") from error
    origin = View(known, files, SummaryCache()) if known else None
    return _Opened(read, files, known, origin, source, plugin)


def _judge(opened: _Opened, tree: Tree) -> PluginChecked:
    known = opened.known
    is_same = known is not None and known.identity == tree.identity is not None
    try:
        findings = () if is_same else judge(opened.files, tree, opened.origin)
    except (RecursionError, OSError) as error:
        why = TOO_DEEP if isinstance(error, RecursionError) else str(error.strerror)
        is_full = getattr(error, "errno", None) == errno.ENOSPC
        hint = "set TMPDIR to a folder with free space" if is_full else "is this a plugin?"
        raise TreeError(f"{opened.spec} cannot be checked: {why}", hint=hint) from error
    version = known.version if known else None
    return PluginChecked(opened.plugin, tree, version, opened.source, findings)
