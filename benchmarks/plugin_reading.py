"""A plugin as it lies: a release of an index, a wheel, an sdist, a checkout or an installed package, of which nothing is run; and which vLLM it says that it is for."""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.limits import Limit
from vllm_mods.base.untrusted import toml_of
from vllm_mods.base.versions import has_end, in_range, is_final, public, sort_key
from vllm_mods.formats import tree_names
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.index import choose
from vllm_mods.trees.other_packages import Archive, Project
from vllm_mods.trees.packages import needs, parse_requirement

MOST = Limit(64 << 20, "bytes", "all Python of a plugin")
FORMS = "pypi:NAME==VERSION, a .whl or .tar.gz file, a folder with the sources, or the package's folder in site-packages"
_RELEASE = re.compile(r"pypi:([\w.-]+)==([\w.+!-]+)")
_SAYING = re.compile(
    r"README\.md|pyproject\.toml|setup\.py|PKG-INFO|[^/]+\.dist-info/(?:METADATA|entry_points\.txt)|(?:src/)?[^/]+\.egg-info/entry_points\.txt"
)
_STARTS = re.compile(r"(?:[^/]+\.data/\w+/)?(?:[^/]+\.pth|(?:site|user)customize\.py)")
_DATA = re.compile(r"^[^/]+\.data/\w+/")
_NAME = re.compile(r"(?m)^Name:[ \t]*(\S+)")
_ASKED = re.compile(rb"\bvllm_version_is\(\s*[\"']v?(\d+(?:\.\d+)+)[\"']")
_TESTED = re.compile(rb"vLLM\b[^\n]{0,40}?\btested (?:up to|with) v?(\d+(?:\.\d+)+)")
_LITERAL = re.compile(r"[\"'](vllm\.\w+)[\"']\s*:\s*\[([^\]]*)\]")
_LISTED = re.compile(r"[\"']([\w. -]+=[\w.: ]+)[\"']")
_ASIDE = frozenset({"benchmarks", "docs", "examples", "scripts", "test", "tests", "tools"})


class Plugin(NamedTuple):
    """A distribution that is meant to run in vLLM: its Python ``files`` by path, and what has them run.

    ``entry_points`` are those of vLLM's groups, each with its group; ``starts`` the files that Python itself runs when it
    starts. ``about`` is what it says of itself, ``requirements`` what its pyproject.toml does.
    """

    name: str
    version: str
    files: Mapping[str, bytes]
    entry_points: tuple[tuple[str, str], ...] = ()
    starts: tuple[str, ...] = ()
    about: bytes = b""
    requirements: tuple[str, ...] = ()


class _FolderFiles(Archive):
    """A folder's files: all of it, or one ``package`` and the metadata of what brought that."""

    def __init__(self, root: str, package: str) -> None:
        self._tree = FolderTree(root)
        owner = self._tree.owner(f"{package}/__init__.py") if package else None
        with os.scandir(root) as entries:
            tops = {one.name: one.is_dir() for one in entries if not one.is_symlink()}
        beside = {name for name in tops if owner and tree_names.dist_info(name) == owner}
        ours = {package, *beside} if package else {name for name in tops if name[0] != "."}
        below = (self._tree.paths(name) if tops[name] else (name,) for name in ours)
        self.names = frozenset(path for paths in below for path in paths)

    def read(self, name: str) -> bytes | None:
        return self._tree.read(name)


def read_plugin(spec: str, project: Callable[[str], Project]) -> Plugin:
    """Read a plugin. ``project`` gives the releases of a name.

    Raises ``UsageError`` for what is none, ``TreeError`` for what cannot be read.
    """
    if spec.startswith("pypi:"):
        named = _RELEASE.fullmatch(spec)
        releases = project(tree_names.canonical(named[1])) if named else None
        if named is None or releases is None or not choose(named[2], releases.files()):
            raise UsageError(f"{spec}: there is no such release", hint=f"a plugin is {FORMS}")
        return _plugin(spec, releases.archive(named[2]))
    place = os.path.abspath(os.path.expanduser(spec))
    if os.path.isdir(place):
        is_package = os.path.isfile(os.path.join(place, "__init__.py"))
        root, package = os.path.split(place) if is_package else (place, "")
        return _plugin(spec, _FolderFiles(root, package))
    kind = "wheel" if place.endswith(".whl") else "sdist" if place.endswith(".tar.gz") else ""
    if not kind or not os.path.isfile(place):
        raise UsageError(f"{spec}: no such wheel, sdist or folder", hint=f"a plugin is {FORMS}")
    from vllm_mods.trees.archive import open_archive

    file = open(place, "rb")  # noqa: SIM115  (the archive takes it over)
    return _plugin(spec, open_archive(kind, file, spec))


def _plugin(spec: str, archive: Archive) -> Plugin:
    paths = _installed(archive.names)
    if not paths or any(to.startswith("vllm/") for to in paths.values()):
        why = "has its own vllm/" if paths else "has no Python package"
        raise UsageError(f"{spec} {why}", hint=f"a plugin is {FORMS}")
    saying = sorted(name for name in archive.names if _SAYING.fullmatch(name))
    texts = {name: archive.read(name) or b"" for name in saying}
    archive.load(paths)
    files: dict[str, bytes] = {}
    size = 0
    for name, to in sorted(paths.items()):
        files[to] = archive.read(name) or b""
        size += len(files[to])
        if size > MOST:
            why = f"has more than {MOST}, the limit for {MOST.what}"
            raise TreeError(f"{spec} {why}", hint=f"a plugin is {FORMS}")
    metadata = next((texts[one] for one in texts if one.endswith(("METADATA", "PKG-INFO"))), b"")
    table = toml_of(texts.get("pyproject.toml", b""), f"{spec}: pyproject.toml").get("project")
    project = table if isinstance(table, dict) else {}
    needed = project.get("dependencies")
    named = _NAME.search(metadata.decode("utf-8", "replace"))
    stated = str(project.get("name") or os.path.basename(spec.rstrip("/")))
    entries = {pair for pair in _entry_points(texts, project) if pair[0].startswith("vllm.")}
    return Plugin(
        named[1] if named else stated,
        tree_names.pkg_info_version(metadata) or str(project.get("version", "0")),
        files,
        tuple(sorted(entries)),
        tuple(sorted(name for name in archive.names if _STARTS.fullmatch(name))),
        metadata + texts.get("README.md", b""),
        tuple(map(str, needed if isinstance(needed, list) else ())),
    )


def _installed(names: Iterable[str]) -> dict[str, str]:
    """Return where the Python of a distribution lies once it is installed, by where it lies here."""
    python = [name for name in names if name.endswith(".py") and not _STARTS.fullmatch(name)]
    if any(".dist-info/" in name for name in names):
        return {name: _DATA.sub("", name) for name in python}
    placed = {name: name.removeprefix("src/").partition("/") for name in python}
    packages = {top for top, _, rest in placed.values() if rest == "__init__.py"} - _ASIDE
    return {name: "".join(place) for name, place in placed.items() if place[0] in packages}


def _entry_points(
    texts: Mapping[str, bytes], project: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the groups of entry points with what is in each, as built, and as setup.py or pyproject.toml state them."""
    stated = project.get("entry-points")
    for group, entries in stated.items() if isinstance(stated, dict) else ():
        listed = entries.items() if isinstance(entries, dict) else ()
        yield from ((group, f"{name} = {value}") for name, value in listed)
    for group, literal in _LITERAL.findall(texts.get("setup.py", b"").decode("utf-8", "replace")):
        yield from ((group, one) for one in _LISTED.findall(literal))
    for name, data in texts.items():
        group = ""
        for line in data.decode("utf-8", "replace").splitlines() if name.endswith(".txt") else ():
            if line.startswith("["):
                group = line.strip("[] ")
            elif "=" in line:
                yield group, line.strip()


def stated_version(
    plugin: Plugin, releases: Callable[[], Collection[str]]
) -> tuple[str, str] | None:
    """Return a version of vLLM and where the plugin names it, None where it does not.

    Of a range that it requires, that is the newest of the ``releases``.
    """
    required = [*needs(plugin.about), *filter(None, map(parse_requirement, plugin.requirements))]
    specs = [str(one.specifier) for one in required if tree_names.canonical(one.name) == "vllm"]
    for spec in filter(has_end, specs):
        exact = re.fullmatch(r"===?([^*,]+)", spec)
        inside = [one for one in releases() if in_range(one, spec)] if exact is None else []
        inside = [one for one in inside if is_final(one)] or inside
        version = public(exact[1]) if exact else max(inside, key=sort_key, default=None)
        if version:
            return version, f"it requires vllm{spec}"
    code = b"\n".join(plugin.files.values())
    for pattern, text, where in (
        (_ASKED, code, "its code asks most often for it, in vllm_version_is"),
        (_TESTED, plugin.about, "its description says that it was tested with it"),
    ):
        named = Counter(version.decode() for version in pattern.findall(text))
        if named:
            return max(named, key=lambda one: (named[one], sort_key(one))), where
    return None
