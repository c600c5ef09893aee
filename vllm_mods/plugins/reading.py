"""A plugin as it lies: a release, a wheel, an sdist, a folder or an installed package, of which nothing is run; and for which vLLM it says that it is."""

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.base.versions import has_end, in_range, is_final, public, sort_key
from vllm_mods.fit.signatures import every
from vllm_mods.formats import syntax_tree, tree_names
from vllm_mods.trees.archive import open_archive
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.index import choose
from vllm_mods.trees.other_packages import Archive, Project
from vllm_mods.trees.packages import needs, parse_requirement

_FORMS = "a plugin is pypi:NAME==VERSION, a .whl or .tar.gz file, a folder with the sources, or the package's folder in site-packages"
_RELEASE = re.compile(r"pypi:([\w.-]+)==([\w.+!-]+)")
_SAYING = re.compile(
    r"README\.md|pyproject\.toml|setup\.py|PKG-INFO|[^/]+\.dist-info/(?:METADATA|entry_points\.txt)|(?:src/)?[^/]+\.egg-info/entry_points\.txt"
)
_STARTS = re.compile(r"(?:src/|[^/]+\.data/\w+/)?(?:[^/]+\.pth|(?:site|user)customize\.py)")
_DATA = re.compile(r"^[^/]+\.data/\w+/")
_NAME = re.compile(r"(?m)^Name:[ \t]*(\S+)")
_ASKED = re.compile(rb"\bvllm_version_is\(\s*[\"']v?(\d+(?:\.\d+)+)[\"']")
_TESTED = re.compile(rb"vLLM\b[^\n]{0,40}?\btested (?:up to|with) v?(\d+(?:\.\d+)+)")
_ASIDE = frozenset({"benchmarks", "docs", "examples", "scripts", "test", "tests", "tools"})


class Plugin(NamedTuple):
    """A distribution that is meant to run in vLLM, and what has it run.

    ``entry_points`` are those of vLLM's groups, each with its group; ``starts`` are the files that Python runs when it starts.
    ``made_for`` are the versions or ranges of vLLM that it names, each with where it does.
    """

    name: str
    version: str | None
    entry_points: tuple[tuple[str, str], ...]
    starts: tuple[str, ...]
    made_for: tuple[tuple[str, str], ...]


class _FolderFiles(Archive):
    """A folder's files: the packages in it, or one ``package`` and what else the same distribution brought."""

    def __init__(self, root: str, package: str) -> None:
        self._tree = tree = FolderTree(root)
        owner = tree.owner(f"{package}/__init__.py") if package else None
        with os.scandir(root) as entries:
            tops = {one.name: one.is_dir() for one in entries if not one.is_symlink()}
        if package:
            beside = [name for name in tops if owner and tree_names.dist_info(name) == owner]
            starts = [name for name in tops if owner and _STARTS.fullmatch(name)]
            ours = [package, *beside, *(name for name in starts if tree.owner(name) == owner)]
        else:
            known = (name for name in tops if name == "src" or name.endswith("-info"))
            packages = (name for name in tops if os.path.isfile(f"{root}/{name}/__init__.py"))
            ours = [*(name for name in tops if not tops[name]), *known, *packages]
        below = (tree.paths(name) if tops[name] else (name,) for name in ours)
        self.names = frozenset(path for paths in below for path in paths)

    def read(self, name: str) -> bytes | None:
        return self._tree.read(name)


def read_plugin(spec: str, project: Callable[[str], Project]) -> tuple[Plugin, Mapping[str, bytes]]:
    """Read a plugin, and its Python by path. ``project`` gives the releases of a name.

    Raises ``UsageError`` for what is none, ``ManifestError`` for a broken pyproject.toml, ``TreeError`` for what cannot be read.
    """
    place = os.path.abspath(os.path.expanduser(spec))
    kind = "wheel" if place.endswith(".whl") else "sdist" if place.endswith(".tar.gz") else ""
    if spec.startswith("pypi:"):
        named = _RELEASE.fullmatch(spec)
        releases = project(tree_names.canonical(named[1])) if named else None
        if named and releases and choose(named[2], releases.files()):
            return _plugin(spec, releases.archive(named[2]))
    elif os.path.isdir(place):
        is_package = os.path.isfile(os.path.join(place, "__init__.py"))
        return _plugin(spec, _FolderFiles(*(os.path.split(place) if is_package else (place, ""))))
    elif kind and os.path.isfile(place):
        file = open(place, "rb")  # noqa: SIM115  (the archive takes it over)
        return _plugin(spec, open_archive(kind, file, spec))
    raise UsageError(f"{spec}: there is no such release, wheel, sdist or folder", hint=_FORMS)


def _plugin(spec: str, archive: Archive) -> tuple[Plugin, Mapping[str, bytes]]:
    paths = _installed(archive.names)
    if not paths or any(to.startswith("vllm/") for to in paths.values()):
        why = "has its own vllm/" if paths else "has no Python package"
        raise UsageError(f"{spec} {why}", hint=_FORMS)
    names = sorted(name for name in archive.names if name in paths or _SAYING.fullmatch(name))
    archive.load(names)
    read: dict[str, bytes] = {}
    size = 0
    for name in names:
        read[name] = archive.read(name) or b""
        size += len(read[name])
        if size > limits.PLUGIN:
            why = f"has more than {limits.PLUGIN}, the limit for {limits.PLUGIN.what}"
            raise TreeError(f"{spec} {why}", hint=_FORMS)
    metadata = next((read[one] for one in names if one.endswith(("METADATA", "PKG-INFO"))), b"")
    toml = toml_of(read.get("pyproject.toml", b""), f"{spec}: pyproject.toml")
    project = _table(toml, "project")
    needed, version = project.get("dependencies"), project.get("version")
    requirements = map(str, needed if isinstance(needed, list) else ())
    required = [*needs(metadata), *filter(None, map(parse_requirement, requirements))]
    specs = [str(one.specifier) for one in required if tree_names.canonical(one.name) == "vllm"]
    named = _NAME.search(metadata.decode("utf-8", "replace"))
    stated = str(project.get("name") or os.path.basename(spec.rstrip("/")))
    files = {to: read[name] for name, to in sorted(paths.items())}
    about = metadata + read.get("README.md", b"")
    plugin = Plugin(
        named[1] if named else stated,
        tree_names.pkg_info_version(metadata) or (str(version) if version else None),
        tuple(sorted(one for one in {*_entry_points(read, project)} if one[0][:5] == "vllm.")),
        tuple(sorted(name for name in archive.names if _STARTS.fullmatch(name))),
        tuple(_made_for(specs, b"\n".join(files.values()), about)),
    )
    return plugin, files


def _installed(names: Iterable[str]) -> dict[str, str]:
    """Return where the Python of a distribution lies once it is installed, by where it lies here."""
    python = [name for name in names if name.endswith(".py")]
    if any(".dist-info/" in name for name in names):
        return {name: _DATA.sub("", name) for name in python}
    placed = {name: name.removeprefix("src/") for name in python}
    inits = (to.removesuffix("/__init__.py") for to in placed.values())
    packages = {top for top in inits if "." not in top and "/" not in top} - _ASIDE
    return {
        n: to for n, to in placed.items() if _STARTS.fullmatch(n) or to.split("/")[0] in packages
    }


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table that stands in another one, an empty one where there is none."""
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _entry_points(
    texts: Mapping[str, bytes], project: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the groups of entry points with what is in each, as built, and as setup.py or pyproject.toml state them."""
    groups = _table(project, "entry-points")
    for group in groups:
        yield from ((group, f"{name} = {value}") for name, value in _table(groups, group).items())
    setup = syntax_tree.module(texts.get("setup.py", b"")) or ast.Module([], [])
    for table in (node for node in every(setup) if isinstance(node, ast.Dict)):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.List):
                said = (one.value for one in value.elts if isinstance(one, ast.Constant))
                yield from ((str(key.value), str(one)) for one in said)
    group = ""
    built = (data for name, data in texts.items() if name.endswith("/entry_points.txt"))
    for line in b"\n".join(built).decode("utf-8", "replace").splitlines():
        if line.startswith("["):
            group = line.strip("[] ")
        elif "=" in line:
            yield group, line.strip()


def _made_for(required: Iterable[str], code: bytes, about: bytes) -> Iterator[tuple[str, str]]:
    """Yield which vLLM is required, asked for most often, and said to be tested."""
    yield from ((spec, f"it requires vllm{spec}") for spec in filter(has_end, required))
    for pattern, text, where in (
        (_ASKED, code, "its code asks most often for it, in vllm_version_is"),
        (_TESTED, about, "its description says that it was tested with it"),
    ):
        named = Counter(version.decode() for version in pattern.findall(text))
        if named:
            version = max(named, key=lambda one: (named[one], sort_key(one)))
            yield f"=={version}", where


def stated_version(
    plugin: Plugin, releases: Callable[[], Collection[str]]
) -> tuple[str, str] | None:
    """Return a version of vLLM and where the plugin names it, None where it does not; of a range, the newest of the ``releases``."""
    for spec, where in plugin.made_for:
        if exact := re.fullmatch(r"===?([^*,]+)", spec):
            return public(exact[1]), where
        inside = [one for one in releases() if in_range(one, spec)]
        if inside:
            return max(inside, key=lambda one: (is_final(one), sort_key(one))), where
    return None
