"""Find and read mods and pairings: the bundled ones and those of the caller's own folders.

Libraries stack. What a library has is named by itself where no other has that name, and always with
its library's owner in front (``alice/fast``); which one of two is meant is never guessed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.formats.pairing import Pairing, parse as parse_pairing
from vllm_mods.formats.schema import BUNDLED
from vllm_mods.library import checksums, reading
from vllm_mods.library.mod_folder import MANIFEST, TEMPLATE, data_root, load_mod

PARTS = ("patches", "templates", "pairings")
_HOLDING = {"mod": ("patches", MANIFEST), "template": ("templates", TEMPLATE)}
"""The part in which a library has a folder for each of a kind, and the file that makes it one."""


class Shared(NamedTuple):
    """A library of a project: whose it is, its folder, and what may be in it (None: whatever is)."""

    owner: str
    folder: str
    listed: Mapping[str, str] | None = None


class Library:
    """Mods and pairings by name: the bundled ones, and those of the caller's own folders.

    ``folders`` hold ``patches/NAME/mod.toml``, ``templates/NAME/``, ``pairings/NAME.toml``. ``mods``
    reads mods, ``names`` lists them, ``pairing`` and ``mods_of`` lead from a pairing to its mods.

    Raises ``UsageError`` for a folder that is no library, and for a mod that two of them have;
    ``ManifestError`` when a faulty mod is read.

    >>> library = vm.Library("library")
    >>> [mod.name for mod in library.mods("fast", "limit")]
    ['fast', 'limit']
    >>> "hybrid-int4-fp8" in vm.Library().names()
    True
    """

    def __init__(self, *folders: str | os.PathLike[str], shared: Iterable[Shared] = ()) -> None:
        """Take the bundled library, ``folders`` and ``shared``. Raises ``UsageError`` for a bad one."""
        others: dict[str, list[Shared]] = {}  # one may be there under two names
        for each in shared:
            others.setdefault(os.path.abspath(each.folder), []).append(each)
        for folder in (*folders, *others):
            check_library(os.fspath(folder))
        named = tuple(os.path.abspath(folder) for folder in folders)
        self.roots = tuple(dict.fromkeys((data_root(), *named, *others)))
        self._pins = {root: same[0].listed for root, same in others.items()}
        own = (*named, *(root for root, listed in self._pins.items() if listed is None))
        self._writable = (*own, data_root()) if is_checkout() else own
        self._read = reading.reader(*self.roots, linked=data_root())
        self._owners = {data_root(): [BUNDLED]}
        self._owners |= {root: [one.owner for one in same] for root, same in others.items()}
        self._folders = self._index("mod")
        self._homes: dict[str, str] = {}

    def _index(self, kind: str) -> dict[str, str]:
        """Return what each library has of a kind, by its own name if no other has that, and with its owner's in front."""
        places_of: dict[str, dict[str, str]] = {}
        for root in self.roots:
            for name, place in _members(root, kind):
                places_of.setdefault(name, {})[root] = place
        by_name: dict[str, str] = {}
        for name, places in places_of.items():
            if len(places) == 1:
                by_name[name] = next(iter(places.values()))
            elif not places.keys() <= self._owners.keys():
                first, second, *_ = places.values()
                why = f"two libraries have a {kind} named `{name}`: {first} and {second}"
                hint = f"rename one of them, and change `name` in its {kind}.toml"
                raise UsageError(why, hint=hint)
            owned = ((place, self._owners.get(root, ())) for root, place in places.items())
            by_name |= {f"{owner}/{name}": place for place, owners in owned for owner in owners}
        return by_name

    def _place(self, kind: str, name: str) -> str:
        """Return where something lies. Raises ``UsageError`` if there is no such thing."""
        places = self._folders if kind == "mod" else self._index(kind)
        if name not in places:
            raise self.unknown(name, kind, places)
        return places[name]

    def owner(self, path: str) -> str | None:
        """Return whose library something lies in, None for a folder that was only named."""
        owners = (one[0] for root, one in self._owners.items() if path.startswith(f"{root}/"))
        return next(owners, None)

    def read(self, path: str, folder: str | None = None) -> bytes | None:
        """Read a file of one of the libraries, or of a ``folder`` elsewhere; None if there is none.

        Raises ``ManifestError`` if it cannot be read, ``Refused`` if it is not as it is pinned.
        """
        data = self._read(path, folder)
        for root, listed in self._pins.items():
            if listed is not None and path.startswith(f"{root}/"):
                hint = "vllm-mods sync --fetch  # fetches the project's libraries again"
                checksums.check(root, path, data, listed, hint=hint)
        return data

    def is_writable(self, path: str) -> bool:
        """Tell whether authors may write to a path: in a library that was named, or the tool's own checkout."""
        return any(path.startswith(f"{root}/") for root in self._writable)

    def files(self, mod: Mod) -> dict[str, bytes]:
        """Read all that lies in a mod's folder, by the path in it. Raises ``ManifestError`` as ``read``."""
        names = reading.paths_below(mod.directory)
        return {name: self.read(os.path.join(mod.directory, name)) or b"" for name in names}

    def names(self) -> tuple[str, ...]:
        """Return the names of all mods, sorted; with their owners' where two have one name."""
        return _shown(self._folders)

    def name_of(self, mod: Mod) -> str:
        """Return the name that means this mod here: with its owner's where two have one name."""
        here = self._folders.get(mod.name) == mod.directory
        return mod.name if here else f"{self.owner(mod.directory)}/{mod.name}"

    def has(self, name: str) -> bool:
        """Tell whether there is a mod of this name, with its owner's in front or without."""
        return name in self._folders

    def has_pairing(self, name: str) -> bool:
        """Tell whether there is a pairing of this name, with its owner's in front or without."""
        return name in self._index("pairing")

    def mods(self, *wanted: str | Pairing) -> tuple[Mod, ...]:
        """Read the named mods and whatever they require, each once, requirements first.

        A pairing stands for its mods, and for those that bring its templates. Raises ``UsageError`` for a name
        that there is not and where none is given, ``ManifestError`` for a faulty mod.
        """
        if not wanted:
            raise UsageError("no mod is named", hint="library.mods(*library.defaults())")
        names = ((one,) if isinstance(one, str) else self.mods_of(one) for one in wanted)
        return self.select(name for group in names for name in group)

    def load(self, name: str) -> Mod:
        """Read one mod. Raises ``UsageError`` if there is none, ``ManifestError`` if it is faulty."""
        return load_mod(self._mod_folder(name), self.roots, read=self.read)

    def _mod_folder(self, name: str) -> str:
        if name not in self._folders and self.has_pairing(name):
            raise UsageError(f"{name} is a pairing, not a mod", hint=f"--pairing {name}")
        return self._place("mod", name)

    def pairing_names(self) -> tuple[str, ...]:
        """Return the names of all pairings, sorted; with their owners' where two have one name."""
        return _shown(self._index("pairing"))

    def pairing(self, name: str) -> Pairing:
        """Read one pairing. Raises ``UsageError`` if there is none, ``ManifestError`` for a faulty one."""
        file = self.pairing_file(name)
        pairing = parse_pairing(self.read(file) or b"", file)
        if pairing.name != name.rpartition("/")[2]:
            raise ManifestError(file, (f"name is {pairing.name!r}, but the file is {name!r}",))
        home = _root(file)
        self._homes[pairing.name] = home if self._homes.get(pairing.name, home) == home else ""
        return pairing

    def pairing_file(self, name: str) -> str:
        """Return the path of a pairing. Raises ``UsageError`` if there is none."""
        if (home := self._homes.get(name)) and not self.has_pairing(name):
            return os.path.join(home, "pairings", f"{name}.toml")  # the one that was read
        return self._place("pairing", name)

    def mods_of(self, pairing: Pairing) -> tuple[str, ...]:
        """Return the names of a pairing's mods, then of those that bring its templates.

        Raises ``UsageError`` if no mod brings a template.
        """
        home = self._homes.get(pairing.name, "")
        own = [self._full_name(name, home) for name in pairing.mods]
        names = dict.fromkeys(own)
        brought = {one for mod in self.select(own) for one in _templates_of(mod)}
        for template in pairing.templates:
            if template in brought:
                continue
            # nearly always the mod of that name beside it, and then no other needs to be read
            first = {self._folders.get(template), os.path.join(home, "patches", template)}
            near = sorted(_shown(self._folders), key=lambda one: self._folders[one] not in first)
            having = (one for one in near if template in _templates_of(self.load(one)))
            if (name := next(having, None)) is None:
                why = f"pairing `{pairing.name}` names the template `{template}`, which no mod has"
                raise UsageError(why, hint="`vllm-mods list` lists the mods")
            names[name] = None
        return tuple(names)

    def _full_name(self, name: str, beside: str) -> str:
        """Return a mod's name as it means, everywhere, the one that it does in the library ``beside``."""
        full = f"{self._owners.get(beside, [''])[0]}/{name}"
        return full if name not in self._folders and full in self._folders else name

    def template_names(self) -> tuple[str, ...]:
        """Return the names of all chat templates, sorted. Raises ``UsageError`` if two have one name."""
        return _shown(self._index("template"))

    def template_folder(self, name: str) -> str:
        """Return the folder of a chat template. Raises ``UsageError`` if there is none."""
        return self._place("template", name)

    def unknown(
        self, name: str, kind: str = "mod or pairing", known: Iterable[str] = ()
    ) -> UsageError:
        """Return the error for a name of nothing; its hint names what is spelt like it, of the ``known`` too."""
        import difflib  # noqa: PLC0415

        both = {*self._folders, *self._index("pairing")} if "mod" in kind else ()
        names = sorted({*known, *both})
        if several := [one for one in names if one.endswith(f"/{name}")]:
            why = f"several libraries have a {kind} named `{name}`: {', '.join(several)}"
            return UsageError(why, hint=f"write the full name, such as {several[0]}")
        begun = [one for one in names if name and one.startswith(name)]
        near = begun or difflib.get_close_matches(name, names, 1)
        listing = "template list" if kind == "template" else "list"
        hint = f"`vllm-mods {listing}` shows them all"
        why = f"there is no {kind} named `{name}` in {', '.join(self.roots)}"
        return UsageError(why, hint=f"did you mean `{near[0]}`? {hint}" if near else hint)

    def select(self, names: Iterable[str]) -> tuple[Mod, ...]:
        """Read the named mods and whatever they require, each once, requirements first.

        What a mod requires is in its own library before it is in another. Raises ``UsageError`` also for
        two mods of one name.
        """
        chosen: dict[str, Mod] = {}
        pending: list[str] = []

        def take(name: str) -> None:
            folder = self._mod_folder(name)
            mine = os.path.basename(folder)
            if mine in chosen and chosen[mine].directory == folder:
                return
            if mine in chosen:
                two = " and ".join(map(self.name_of, (chosen[mine], self.load(name))))
                why = f"{two} have the same name, and a tree can hold only one of them"
                hint = "leave one out, and each mod that requires it"
                raise UsageError(why, hint=hint)
            if folder in pending:
                circle = " → ".join(
                    map(os.path.basename, (*pending[pending.index(folder) :], folder))
                )
                raise UsageError(f"mods require each other: {circle}", hint="remove one `requires`")
            pending.append(folder)
            mod = self.load(name)
            for required in mod.requires:
                take(self._full_name(required, _root(folder)))
            pending.pop()
            chosen[mine] = mod

        for name in names:
            take(name)
        return tuple(chosen.values())

    def defaults(self) -> tuple[str, ...]:
        """Return the names of the bundled mods that are marked ``default = true``."""
        bundled = (name for name in _shown(self._folders) if self._is_bundled(name))
        return tuple(name for name in bundled if self.load(name).default)

    def own_names(self) -> tuple[str, ...]:
        """Return the names of the mods that are not bundled."""
        return tuple(name for name in self.names() if not self._is_bundled(name))

    def _is_bundled(self, name: str) -> bool:
        return self._folders[name].startswith(os.path.join(self.roots[0], "patches", ""))


def is_checkout() -> bool:
    """Tell whether the bundled mods lie in a checkout of this tool, whose maintainer may change them."""
    return os.path.isfile(os.path.join(data_root(), "pyproject.toml"))


def root_of(mod: Mod) -> str:
    """Return the library that a mod lies in."""
    return _root(os.path.abspath(mod.directory))


def _root(place: str) -> str:
    return os.path.dirname(os.path.dirname(place))


def _shown(full_names: Iterable[str]) -> tuple[str, ...]:
    """Return names as they are listed: without the owner's where there is but one."""
    names = set(full_names)
    return tuple(sorted(one for one in names if one.rpartition("/")[2] not in names - {one}))


def _templates_of(mod: Mod) -> set[str]:
    return {template.name for variant in mod.variants for template in variant.templates}


def check_library(folder: str) -> None:
    """Raise ``UsageError`` for a folder that is no library."""
    if not os.path.isdir(folder):
        why = f"the library {folder} is not a folder"
        raise UsageError(why, hint="`--library DIR` needs a folder that contains patches/")
    if not any(os.path.isdir(os.path.join(folder, part)) for part in PARTS):
        hint = "a library has patches/<mod>/mod.toml"
        if MANIFEST in os.listdir(folder):
            name = os.path.basename(os.path.abspath(folder))
            hint = f"this folder is one mod; a library has it as patches/{name}/{MANIFEST}"
        raise UsageError(f"the library {folder} has no {', '.join(PARTS)}", hint=hint)


def _members(root: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the place of what a library has of a kind, sorted by name."""
    part, file = _HOLDING.get(kind, ("pairings", ""))
    parent = os.path.join(root, part)
    for entry in sorted(os.listdir(parent)) if os.path.isdir(parent) else ():
        place = os.path.join(parent, entry)
        name, extension = os.path.splitext(entry)
        if kind == "pairing" and extension == ".toml":
            yield name, place
        # what begins with a dot is not finished, or somebody's own
        elif file and not entry.startswith((".", "__")) and os.path.isdir(place):
            held = [one for one in os.listdir(place) if not one.startswith((".", "__"))]
            if file in held or (held and kind == "mod"):  # one without its mod.toml is told, too
                yield entry, place
