"""The packages beside a vLLM that lies in an archive: which version it is served with, and its files.

A release says in its METADATA which versions it takes. Of these the newest that lay on the index when the
release was uploaded is what people got on that day; a version that was named stands instead.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.formats.tree_names import canonical
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.packages import markers, needs

# What vLLM's images have, whoever asks.
_PYTHON = "3.12"
_MARKERS = markers(_PYTHON, "x86_64")
# vLLM does not name its compiler: torch pins it.
_VIA = {"triton": "torch"}


class Archive(Protocol):
    """Files by name; ``names`` are every entry but folders."""

    names: frozenset[str]

    def read(self, name: str, /) -> bytes | None:
        """Return a file's bytes, ``None`` if it is not in ``names``; ``TreeError`` for a link."""

    def load(self, names: Collection[str], /) -> None:  # noqa: ARG002
        """Have some files here that are read next, where not all of it is. Raises ``TreeError``."""
        return


class OtherPackage(NamedTuple):
    """A distribution that is read beside vLLM."""

    name: str
    version: str
    archive: Archive


class Project(Protocol):
    """The releases of one distribution. Both raise ``TreeError``."""

    def files(self) -> tuple[ReleaseFile, ...]:
        """Return every file of every release."""

    def archive(self, version: str) -> Archive:
        """Open a release."""


class OtherPackages:
    """The distributions beside one vLLM, each found when it is first asked for.

    ``project`` gives the releases of a name, ``metadata`` returns vLLM's own; ``day`` is when it was uploaded, None where nobody says;
    ``named`` are versions by name that somebody chose.
    """

    def __init__(
        self,
        project: Callable[[str], Project],
        metadata: Callable[[], bytes | None],
        day: str | None = None,
        named: Mapping[str, str] = {},
    ) -> None:
        self._project = project
        self._metadata = metadata
        self._day = day
        self._named = {canonical(name): version for name, version in named.items()}
        self._found: dict[str, OtherPackage | None] = {}
        self._asked: dict[str, None] = {}

    def apart(self) -> Self:
        """Return a copy of which nothing was asked yet: the path alone decides which package has it."""
        twin = copy.copy(self)
        twin._asked = {}  # noqa: SLF001  (it is of this class)
        return twin

    def package(self, name: str) -> OtherPackage | None:
        """Return a distribution; None where vLLM says nothing of it. Raises ``TreeError``, ``UsageError``."""
        name = canonical(name)
        self._asked[name] = None
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def holding(self, path: str) -> OtherPackage | None:
        """Return the distribution that a path would be of, by the package that it begins with."""
        top = path.partition("/")[0].removesuffix(".py")
        if not top.isidentifier() or top == "vllm":
            return None
        for known in map(self._found.get, self._asked):
            if known is not None and any(n.startswith(f"{top}/") for n in known.archive.names):
                return known
        return next(filter(None, map(self.package, (top, f"{top}-python"))), None)

    def _find(self, name: str) -> OtherPackage | None:
        wanted = self._named.get(name)
        allowed = self._allowed(name) if wanted is None else SpecifierSet(f"=={wanted}")
        if allowed is None:
            return None
        other = self._project(name)
        files = [file for file in other.files() if allowed.contains(file.version, prereleases=True)]
        exact = any(one.operator == "==" and "*" not in one.version for one in allowed)
        if not exact:
            files = [file for file in files if self._could_be_had(name, file)]
        finals = [file for file in files if not Version(file.version).is_prerelease] or files
        newest = max((Version(file.version) for file in finals), default=None)
        if newest is None:
            when = "" if exact else f" that was available on {self._day}"
            why = f"{name}: no release{when} is in {allowed}"
            raise TreeError(why, hint=f"--with {name}==VERSION")
        return OtherPackage(name, str(newest), other.archive(str(newest)))

    def _could_be_had(self, name: str, file: ReleaseFile) -> bool:
        """Tell whether an installer would have taken a file on the day of vLLM's own."""
        if self._day is None or file.uploaded is None:
            why = f"the version of {name} at the time of this vLLM is unknown, because the index states no upload dates"
            raise TreeError(why, hint=f"--with {name}==VERSION")
        try:
            is_for_python = SpecifierSet(file.requires_python or "").contains(f"{_PYTHON}.0")
        except InvalidSpecifier:
            return False
        is_older = datetime.fromisoformat(file.uploaded) <= datetime.fromisoformat(self._day)
        return is_older and is_for_python and file.yanked is None

    def _allowed(self, name: str) -> SpecifierSet | None:
        """Return the versions that vLLM takes; None where it says nothing of the name."""
        allowed = _required(self._metadata(), name)
        if allowed is None and name in _VIA and (via := self.package(_VIA[name])) is not None:
            folder = f"{via.name.replace('-', '_')}-{via.version}.dist-info"
            allowed = _required(via.archive.read(f"{folder}/METADATA"), name)
        return allowed


def changed_distributions(mods: Iterable[Mod]) -> frozenset[str]:
    """Return the distributions that mods may change beside vLLM, by canonical name."""
    of = {one.package for mod in mods for one in mod.variants if one.package}
    tops = {path.partition("/")[0].removesuffix(".py") for mod in mods for path in mod.outside}
    names = {*of, *tops, *(f"{top}-python" for top in tops)}
    return frozenset(canonical(name) for name in names | {_VIA.get(n, n) for n in names})


def check_versions(named: Mapping[str, str], mods: Sequence[Mod]) -> dict[str, str]:
    """Return versions by canonical name. Raises ``UsageError`` for one of what none of the mods changes."""
    asked = changed_distributions(mods)
    for name, version in named.items():
        if canonical(name) not in asked:
            of = {one.package for mod in mods for one in mod.variants if one.package}
            of = of or {path.partition("/")[0] for mod in mods for path in mod.outside}
            theirs = f"the mods change {', '.join(sorted(of))} beside vLLM"
            why = f"--with {name}=={version}: none of {', '.join(mod.name for mod in mods)} changes that package"
            hint = theirs if of else "run without --with: the mods change nothing beside vLLM"
            raise UsageError(why, hint=hint)
    return {canonical(name): version for name, version in named.items()}


def parse_versions(texts: tuple[str, ...]) -> dict[str, str]:
    """Read ``NAME==VERSION`` as ``--with`` takes it. Raises ``UsageError``."""
    versions = {}
    for text in texts:
        name, equals, version = (part.strip() for part in text.partition("=="))
        if not equals or "*" in version or "," in version:
            raise UsageError(f"--with {text}: expected one version", hint="--with NAME==VERSION")
        try:
            Requirement(f"{name}=={version}")
        except InvalidRequirement as error:
            raise UsageError(f"--with {text}: {error}", hint="--with NAME==VERSION") from error
        versions[name] = version
    return versions


def _required(metadata: bytes | None, name: str) -> SpecifierSet | None:
    """Return what all of a METADATA's lines on a distribution allow together."""
    sets = [one.specifier for one in needs(metadata or b"", _MARKERS, {name})]
    return SpecifierSet(",".join(map(str, sets))) if sets else None
