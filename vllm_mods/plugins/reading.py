"""A plugin as it lies: a release, a wheel, an sdist, a folder or an installed package, of which nothing is run; and for which vLLM it says that it is."""

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.base.versions import has_end, sort_key
from vllm_mods.fit.signatures import every
from vllm_mods.formats import syntax_tree, tree_names
from vllm_mods.trees.archive import open_archive
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.index import choose
from vllm_mods.trees.other_packages import Archive, Project
from vllm_mods.trees.packages import needs

_FORMS = "a plugin is pypi:NAME==VERSION, a .whl or .tar.gz file, a folder with the sources, or the package's folder in site-packages"
_RELEASE = re.compile(r"pypi:([\w.-]+)==([\w.+!-]+)")
_SAYING = re.compile(
    r"README\.md|pyproject\.toml|setup\.py|PKG-INFO|[^/]+\.dist-info/(?:METADATA|entry_points\.txt)|(?:src/)?[^/]+\.egg-info/entry_points\.txt"
)
_LAID = re.compile(r"^(?:src|[^/]+\.data/\w+)/")
_STARTS = re.compile(r"[^/]+\.pth|(?:site|user)customize\.py")
_NAME = re.compile(r"(?m)^Name:[ \t]*(\S+)")
_ASKED = re.compile(rb"\bvllm_version_is\(\s*[\"']v?(\d+(?:\.\d+)+)[\"']")
_TESTED = re.compile(rb"vLLM\b[^\n]{0,40}?\btested (?:up to|with) v?(\d+(?:\.\d+)+)")
_MODULE = re.compile(
    r"(?!(?:src/)?(?:benchmarks|docs|examples|scripts|tests?|tools)/)(?:[\w./-]+\.py|[\w/-]+\.(?:[\w-]+\.)?(?:so|pyd))"
)


class Plugin(NamedTuple):
    """A distribution that is meant to run in vLLM; ``made_for`` are the versions of vLLM that it names, and where.

    ``entry_points`` are those of vLLM's groups, each with its group; ``starts`` are the files that Python runs when it starts.
    """

    name: str
    version: str | None
    entry_points: tuple[tuple[str, str], ...]
    starts: tuple[str, ...]
    made_for: tuple[str, str] | None


class _PluginFolder(FolderTree):
    """A folder's files: the packages in it, or one ``package`` and what else the same distribution brought."""

    def __init__(self, root: str, package: str) -> None:
        super().__init__(root)
        owner = self.owner(f"{package}/__init__.py") if package else None
        with os.scandir(root) as entries:
            tops = {one.name: one.is_dir() for one in entries if not one.is_symlink()}
        starts = {name for name in tops if owner and _STARTS.fullmatch(name)}
        ours = {package, *(name for name in starts if self.owner(name) == owner)}
        ours |= {name for name in tops if owner and tree_names.dist_info(name) == owner}
        if not package:
            known = {name for name in tops if not tops[name] or name.endswith("-info")}
            ours = {*known, "src", *(n for n in tops if os.path.isfile(f"{root}/{n}/__init__.py"))}
        below = (self.paths(name) if tops[name] else (name,) for name in ours & tops.keys())
        self.names = frozenset(path for paths in below for path in paths)


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
        return _plugin(spec, _PluginFolder(*(os.path.split(place) if is_package else (place, ""))))
    elif kind and os.path.isfile(place):
        file = open(place, "rb")  # noqa: SIM115  (the archive takes it over)
        return _plugin(spec, open_archive(kind, file, spec))
    raise UsageError(f"{spec}: there is no such release, wheel, sdist or folder", hint=_FORMS)


def _plugin(spec: str, archive: Archive) -> tuple[Plugin, Mapping[str, bytes]]:
    paths = _installed(archive.names)
    if not paths or any(to.startswith("vllm/") for to in paths.values()):
        why = "has its own vllm/" if paths else "has no Python package"
        raise UsageError(f"{spec} {why}", hint=_FORMS)
    python = {name for name in paths if name.endswith(".py")}
    names = sorted(name for name in archive.names if name in python or _SAYING.fullmatch(name))
    archive.load(names)
    read: dict[str, bytes] = {}
    size = 0
    for name in names:
        read[name] = archive.read(name) or b""
        size += len(read[name])
        if size > limits.PLUGIN:
            why = f"has more than {limits.PLUGIN}, the limit for {limits.PLUGIN.what}"
            raise TreeError(f"{spec} {why}", hint=_FORMS)
    project = _table(toml_of(read.get("pyproject.toml", b""), f"{spec}: pyproject.toml"), "project")
    needed = project.get("dependencies")
    stated = [f"Requires-Dist: {one}" for one in (needed if isinstance(needed, list) else ())]
    stated += [f"{key.title()}: {project[key]}" for key in ("name", "version") if key in project]
    built = (read[one] for one in names if one.endswith(("METADATA", "PKG-INFO")))
    metadata = next(built, "\n".join(stated).encode())
    named = _NAME.search(metadata.decode("utf-8", "replace"))
    files = {to: read.get(name, b"") for name, to in sorted(paths.items())}
    about = metadata + read.get("README.md", b"")
    return Plugin(
        named[1] if named else os.path.basename(spec.rstrip("/")),
        tree_names.pkg_info_version(metadata),
        tuple(sorted(one for one in {*entry_points(read, project)} if one[0][:5] == "vllm.")),
        tuple(sorted(one for one in archive.names if _STARTS.fullmatch(_LAID.sub("", one)))),
        next(_made_for(metadata, b"\n".join(files.values()), about), None),
    ), files


def _installed(names: Iterable[str]) -> dict[str, str]:
    """Return where the modules of a distribution lie once it is installed, by where they lie here."""
    placed = {name: _LAID.sub("", name) for name in names if _MODULE.fullmatch(name)}
    if any(".dist-info/" in name for name in names):
        return placed
    inits = (to.removesuffix("/__init__.py") for to in placed.values())
    packages = {top for top in inits if "." not in top and "/" not in top}
    tops = packages | {to for to in placed.values() if _STARTS.fullmatch(to)}
    return {name: to for name, to in placed.items() if to.partition("/")[0] in tops}


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table that stands in another one, an empty one where there is none."""
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def entry_points(
    texts: Mapping[str, bytes], project: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the groups of entry points with what is in each, as built, and as setup.py or pyproject.toml state them."""
    groups = _table(project, "entry-points")
    for group in groups:
        yield from ((group, f"{name} = {value}") for name, value in _table(groups, group).items())
    setup = syntax_tree.module(texts.get("setup.py", b"")) or ast.Module([], [])
    tables = (node for node in every(setup) if isinstance(node, ast.Dict))
    for key, value in (pair for one in tables for pair in zip(one.keys, one.values, strict=True)):
        if isinstance(key, ast.Constant) and isinstance(value, ast.List):
            said = (one.value for one in value.elts if isinstance(one, ast.Constant))
            yield from ((str(key.value), str(one)) for one in said)
    group = ""
    built = (data for name, data in texts.items() if name.endswith("/entry_points.txt"))
    for line in b"\n".join(built).decode("utf-8", "replace").splitlines():
        if line.startswith("["):
            group = line.strip("[] ")
        elif "=" in line and line.strip()[0] not in "#;":
            yield group, line.strip()


def _made_for(metadata: bytes, code: bytes, about: bytes) -> Iterator[tuple[str, str]]:
    """Yield which vLLM is required, asked for most often, and said to be tested; the first counts."""
    required = (re.sub(r"\+[\w.]+", "", str(n.specifier)) for n in needs(metadata, names={"vllm"}))
    yield from ((spec, f"it requires vllm{spec}") for spec in filter(has_end, required))
    for pattern, text, where in (
        (_ASKED, code, "its code asks most often for that vLLM, in vllm_version_is"),
        (_TESTED, about, "its description says that it was tested with that vLLM"),
    ):
        named = Counter(version.decode() for version in pattern.findall(text))
        if named:
            version = max(named, key=lambda one: (named[one], sort_key(one)))
            yield f"=={version}", where
