"""Read recipes of `recipe_version: "1"`, and write them: YAML that renders the command of a pairing.

Pure: text in, ``Pairing`` and findings out, and back. Keys that a pairing has no place for are kept in ``Pairing.recipe``. A finding that is an error is something that the pairing
does not do although the recipe says it, or something that would not work; a note is to be known.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, all_well
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.schema import NAME, Scalar, decode
from vllm_mods.recipes import command, yaml_source
from vllm_mods.recipes.yaml_source import Document

# What an exported recipe says of a pairing that recipes have no key for. Launchers skip it.
OWN = "vllm_mods"
_T = TypeVar("_T")
# Mods of the launcher's own repository that are bundled here under another name.
_LAUNCHERS = {
    "fix-qwen3.5-enhanced-chat-template": "qwen3.5-enhanced",
    "fix-qwen3.6-enhanced-chat-template": "qwen3.6-enhanced",
}
_SCALARS = (str, int, float, bool)
# Read here; everything else is kept as it is.
_READ = {
    "recipe_version", "name", "description", "model", "model_revision", "container", "mods",
    "defaults", "env", "command", "cluster_only", "solo_only", OWN,
}  # fmt: skip
# What a key of a pairing is called in a recipe, where that differs.
_ORIGINS = {
    "base": "container",
    "revision": "model_revision",
    "summary": "description",
    "vllm": f"{OWN}.vllm",
    "templates": f"{OWN}.templates",
}
# Keys that have the launcher do something that applying and serving a pairing does not.
_UNDONE = {
    "include", "overrides", "containers", "pre_exec", "post_exec", "post_commands", "runtime_config",
}  # fmt: skip


class ImportedRecipe(NamedTuple):
    """The pairing of a recipe, and the findings about it."""

    pairing: pairings.Pairing
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the pairing does all that the recipe says."""
        return all_well(self.findings)


def read(
    text: str,
    where: str,
    *,
    known: Collection[str],
    name: str | None = None,
    mods: Mapping[str, str] | None = None,
) -> ImportedRecipe:
    """Read a recipe.

    ``known`` are the names of the mods that there are; ``mods`` says which of them a path in the
    recipe stands for. ``name`` is the pairing's, else it is made from the recipe's. Raises
    ``ManifestError`` with every problem, each with its key path and line.
    """
    try:
        document = yaml_source.load(text)
    except yaml_source.YamlError as error:
        raise ManifestError(where, (str(error),)) from error
    reader = _RecipeReader(document, where, frozenset(known), dict(mods or {}))
    pairing = reader.pairing(name)
    if not reader.problems:
        reader.check_written(pairing)
    if reader.problems:
        raise ManifestError(where, tuple(reader.problems))
    findings = sorted(reader.findings, key=lambda finding: finding.line or 0)
    return ImportedRecipe(pairing, tuple(findings))


def write(pairing: pairings.Pairing) -> str:
    """Write a recipe that renders the same command; ``read`` makes the same pairing of it.

    What a recipe has no key for stands under ``vllm_mods:``, which launchers skip.
    """
    recipe = pairing.recipe or pairings.Recipe("1", pairing.name, {}, {})
    names = dict.fromkeys((*pairing.mods, *pairing.templates))
    only = {f"{pairing.topology}_only": True} if pairing.topology != "any" else {}
    own = {
        "name": None if pairing.name == slug(recipe.name) else pairing.name,
        "vllm": pairing.vllm,
        "templates": list(pairing.templates) or None,
    }
    keys: dict[str, object] = {
        "recipe_version": recipe.version,
        "name": recipe.name,
        "description": pairing.summary,
        "model": pairing.model,
        "model_revision": pairing.revision,
        **only,
        "container": pairing.base,
        **recipe.keys,
        OWN: _without_none(own) or None,
        "mods": [recipe.mods.get(name, f"mods/{name}") for name in names] or None,
        "defaults": dict(_defaults(pairing, recipe.version)) or None,
        "env": dict(pairing.env) or None,
        "command": pairing.command,
    }
    return yaml_source.dump(_without_none(keys))


class _Own(NamedTuple):
    name: str | None = None
    vllm: str | None = None
    templates: tuple[str, ...] = ()


class _WithOwn(NamedTuple):
    vllm_mods: _Own


class _RecipeReader(command.RecipeFindings):
    def __init__(
        self, document: Document, where: str, known: Collection[str], paths: Mapping[str, str]
    ) -> None:
        super().__init__(document, where)
        self.raw = document.value
        self.known = known
        self.paths = paths

    def pairing(self, name: str | None) -> pairings.Pairing:
        for path, line in self.document.overridden.items():
            why = f"is there twice: launchers read this one, and ignore line {line}"
            self.note(FindingCode.KEY_TWICE, path, why)
        own = self.own()
        version = self.text("recipe_version", required=True) or ""
        title = self.text("name", required=True) or ""
        mods, paths = self.mods(own.templates)
        pairing = pairings.Pairing(
            name=name or own.name or slug(title),
            summary=self.text("description") or title,
            model=self.text("model") or "",
            revision=self.text("model_revision"),
            base=self.text("container", required=True) or "",
            vllm=own.vllm,
            mods=mods,
            templates=own.templates,
            defaults=self.defaults(),
            env=self.env(),
            command=self.text("command", required=True) or "",
            topology=self.topology(),
            recipe=pairings.Recipe(version, title, paths, self.keys()),
        )
        command.check(self, pairing)
        if not self.problems:
            pairing = command.with_model(self, pairing)
        if version not in {"1", ""}:
            why = f"is {version!r}; the recipe is read as version 1"
            self.error(FindingCode.RECIPE_VERSION, "recipe_version", why)
        if title and not re.match(NAME, pairing.name):
            self.problem("name", f"{pairing.name!r} cannot name a pairing; choose one with --name")
        return pairing

    def own(self) -> "_Own":
        """Read what ``write`` noted of the pairing it came from."""
        try:
            return decode(_WithOwn, {OWN: self.raw.get(OWN) or {}}).vllm_mods
        except ManifestError as error:
            for problem in error.problems:
                at, _, why = problem.partition(": ")
                self.problem(at, why)
            return _Own()

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self.raw.get(key)
        if value is None or value == "":
            if required:
                self.problem(key, "is empty" if key in self.raw else "is required")
            return None
        if not isinstance(value, _SCALARS) or (key == "command" and not isinstance(value, str)):
            self.problem(key, f"expected text, found {value!r}")
            return None
        return str(value)

    def mods(self, templates: Collection[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        names: list[str] = []
        paths: dict[str, str] = {}
        for i, path in enumerate(self.collection("mods", list, "list")):
            at = f"mods[{i}]"
            if not isinstance(path, str) or not path.strip("/ "):
                self.problem(at, f"expected the path of a mod, found {path!r}")
                continue
            name = self.mod(at, path)
            if name in paths:
                self.problem(at, f"{path} and {paths[name]} are both the mod `{name}`")
            elif name not in templates:  # those stand there for launchers
                names.append(name)
            paths[name] = path
        for path in self.paths:
            if path not in {*paths.values(), *(_base(one) for one in paths.values())}:
                self.problem("mods", f"the recipe has no mod {path}, which --mod names")
        return tuple(names), paths

    def mod(self, at: str, path: str) -> str:
        """Return the name of the mod that a path stands for, and say so if there is none."""
        base = _base(path)
        name = self.paths.get(path) or self.paths.get(base) or slug(base)
        ours = _LAUNCHERS.get(name)
        if name not in self.known and ours is not None and ours in self.known:
            self.note(FindingCode.LAUNCHER_MOD, at, f"the pairing has `{ours}` in place of {path}")
            return ours
        if name not in self.known:
            which = f"the path is kept; `--mod {path}=NAME` names a mod to use instead"
            self.error(FindingCode.UNKNOWN_MOD, at, f"{path}: there is no mod `{name}`; {which}")
        return name

    def collection(self, key: str, kind: type[_T], word: str) -> _T:
        """Return a list or a mapping, an empty one where it is none."""
        value = self.raw.get(key)
        if isinstance(value, kind):
            return value
        if value not in (None, [], {}, ""):  # launchers take what is empty for none
            self.problem(key, f"expected a {word}, found {value!r}")
        elif key in self.raw:
            self.note(FindingCode.EMPTY, key, "has no entries")
        return kind()

    def defaults(self) -> dict[str, Scalar]:
        defaults: dict[str, Scalar] = {}
        for key, value in self.collection("defaults", dict, "mapping").items():
            at = f"defaults.{key}"
            if value is None:
                self.note(FindingCode.EMPTY, at, "is empty and was left out")
            elif isinstance(value, (dict, list)):
                why = "is not a single value, so a launcher would write it as Python; put it in quotes"
                self.problem(at, why)
            else:  # a date as a launcher writes it
                defaults[key] = value if isinstance(value, _SCALARS) else str(value)
        return defaults

    def env(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        for key, value in self.collection("env", dict, "mapping").items():
            at = f"env.{key}"
            if value is None or isinstance(value, (dict, list)):
                why = "is not a single value, so a launcher would export it as Python; put it in quotes"
                self.problem(at, why)
                continue
            variables[key] = str(value)
            if isinstance(value, bool):
                why = f"is {value} in the container, as YAML reads it as true or false; put it in quotes to keep what you wrote"
                self.note(FindingCode.ENV_BOOL, at, why)
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                self.problem(at, "is not the name of an environment variable")
            elif re.search(r"[$`\"\\]", variables[key]):
                why = "is expanded by the shell of a launcher; here it is taken literally"
                self.error(FindingCode.ENV_SHELL, at, f"{variables[key]!r} {why}")
        return variables

    def topology(self) -> str:
        topologies: dict[str, str] = {}
        for key, topology in (("solo_only", "solo"), ("cluster_only", "cluster")):
            value = self.raw.get(key)
            if value is True:
                topologies[key] = topology
            elif value not in (None, False):
                self.problem(key, f"expected true or false, found {value!r}")
        if len(topologies) > 1:
            self.problem("solo_only", "solo_only and cluster_only contradict each other")
        return next(iter(topologies.values()), "any")

    def keys(self) -> dict[str, Any]:
        """Return every other key, without what is empty."""
        others = {key: value for key, value in self.raw.items() if key not in _READ}
        for key, value in others.items():
            if key in _UNDONE or (key == "runtime" and not str(value).startswith("vllm")):
                why = "is only kept for `export`: no pairing can do what it asks for"
                self.error(FindingCode.NOT_DONE, key, why)
            else:
                self.note(FindingCode.KEPT, key, "vllm-mods uses this key only for `export`")
        return {key: _without_none(value) for key, value in others.items() if value is not None}

    def check_written(self, pairing: pairings.Pairing) -> None:
        """Make sure that what was read is a pairing that can be written and read again."""
        try:
            pairings.parse(pairings.dump(pairing), self.where)
        except ManifestError as error:
            for problem in error.problems:
                key, _, why = problem.partition(": ")
                self.problem(_ORIGINS.get(key, key), why)


def slug(text: str) -> str:
    """Make a name for files of what people call things."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")


def _without_none(value: Any) -> Any:  # noqa: ANN401  (whatever YAML holds)
    """Return a value without the empty ones in it, which TOML has no word for."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_none(inner) for inner in value if inner is not None]
    return value


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zip")


def _defaults(pairing: pairings.Pairing, version: str) -> Mapping[str, Scalar]:
    """Add what launchers of version 1 would not know ``{model}`` to mean."""
    values: dict[str, Scalar] = dict(pairing.defaults)
    if version == "1":
        used = {name for _, name in pairings.placeholders(pairing.command)}
        for key, value in (("model", pairing.model), ("revision", pairing.revision)):
            if key in used and value is not None:
                values.setdefault(key, value)
    return values
