"""Read recipes of `recipe_version: "1"`, and of version 2 as far as it says what a pairing says.

Pure: text in, ``Pairing`` and findings out. Nothing of a recipe is lost: what a pairing has no place
for is kept in ``Pairing.recipe``. A finding that is an error is something that the pairing
does not do although the recipe says it, or something that would not work; a note is to be known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Finding, Level
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe, Scalar
from vllm_mods.formats.toml_table import NAME
from vllm_mods.recipes import yaml_source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vllm_mods.recipes.yaml_source import Document
    from vllm_mods.scripts import command_line

# What an exported recipe says of a pairing that recipes have no key for. Launchers skip it.
OWN = "vllm_mods"
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
    """A recipe read: the pairing, and what is to be said of it."""

    pairing: Pairing
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the pairing does all that the recipe says."""
        return all(found.level is Level.NOTE for found in self.findings)


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
        problems = tuple(
            f"{fault.at + ': ' if fault.at else ''}line {fault.line}: {fault.why}"
            for fault in error.faults
        )
        raise ManifestError(where, problems) from error
    reader = _RecipeReader(document, where, frozenset(known), dict(mods or {}))
    made = reader.pairing(name)
    if not reader.problems:
        reader.check_kept(made)
    if reader.problems:
        raise ManifestError(where, tuple(reader.problems))
    return ImportedRecipe(made, tuple(sorted(reader.findings, key=lambda found: found.line or 0)))


class _RecipeReader:
    def __init__(
        self, document: Document, where: str, known: Collection[str], paths: Mapping[str, str]
    ) -> None:
        self.document = document
        self.raw = document.value
        self.where = where
        self.known = known
        self.paths = paths
        self.problems: list[str] = []
        self.findings: list[Finding] = []

    # --- saying -------------------------------------------------------------

    def problem(self, at: str, why: str, line: int | None = None) -> None:
        there = self._line(at) if line is None else line
        self.problems.append(f"{at}: {f'line {there}: ' if there else ''}{why}")

    def say(self, level: Level, code: str, at: str, why: str, *, line: int | None = None) -> None:
        there = self._line(at) if line is None else line
        self.findings.append(
            Finding(code, f"{at}: {why}", path=self.where, line=there, scope=at, level=level)
        )

    def _line(self, at: str) -> int | None:
        return self.document.lines.get(at)

    # --- reading ------------------------------------------------------------

    def pairing(self, name: str | None) -> Pairing:
        own = self.own()
        version = self.text("recipe_version", required=True) or ""
        # launchers of version 2 know a recipe by the name of its file
        title = self.text("name", required=version == "1") or _stem(self.where)
        mods, paths = self.mods(own.templates)
        made = Pairing(
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
            command=self.command(),
            topology=self.topology(),
            recipe=Recipe(
                version=version,
                name=title,
                mods=paths,
                keys=self.keys(version),
                comments=tuple((one.at, one.text) for one in self.document.comments),
            ),
        )
        self.check_command(made)
        if not self.problems:
            made = self.with_model(made)
        if version not in {"1", "2", ""}:
            self.say(
                Level.ERROR, "recipe-version", "recipe_version",
                f"is {version!r}; this version of vllm-mods reads '1' and '2'",
            )  # fmt: skip
        if not re.match(NAME, made.name):
            self.problem(
                "name", f"{made.name!r} cannot be the name of a pairing; give one with --name"
            )
        return made

    def own(self) -> _Own:
        """Read what ``write`` noted of the pairing it came from."""
        table = self.raw.get(OWN) or {}
        found = _Own(None, None, ())
        if not isinstance(table, dict):
            self.problem(OWN, "expected a mapping")
            return found
        for key, value in table.items():
            at = f"{OWN}.{key}"
            if key == "templates" and isinstance(value, list):
                found = found._replace(templates=tuple(str(one) for one in value))
            elif key == "name" and isinstance(value, str):
                found = found._replace(name=value)
            elif key == "vllm" and isinstance(value, str):
                found = found._replace(vllm=value)
            else:
                self.problem(at, f"expected name, vllm or a list of templates, found {value!r}")
        return found

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

    def command(self) -> str:
        if "command" not in self.raw and "runtime" in self.raw:
            self.problem(
                "command",
                "is required: making one from the defaults takes the runtime's own launcher; "
                "let that print its command and put it here",
            )
            return ""
        return self.text("command", required=True) or ""

    def mods(self, templates: Collection[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        names: list[str] = []
        paths: dict[str, str] = {}
        for at, path in self._entries("mods"):
            name = self.mod(at, path)
            if name in paths:
                self.problem(at, f"{path} and {paths[name]} are both the mod `{name}`")
            elif name not in templates:  # those stand there for launchers
                names.append(name)
            paths[name] = path
        for path in self.paths:
            if path not in {*paths.values(), *(_base(one) for one in paths.values())}:
                self.problem("mods", f"there is no {path}, which --mod names")
        return tuple(names), paths

    def mod(self, at: str, path: str) -> str:
        """Return the name of the mod that a path stands for, and say so if there is none."""
        base = _base(path)
        name = self.paths.get(path) or self.paths.get(base) or slug(base)
        if name not in self.known:
            self.say(
                Level.ERROR, "unknown-mod", at,
                f"{path}: there is no mod `{name}`; it is kept, and `--mod {path}=NAME` says which it is",
            )  # fmt: skip
        return name

    def _entries(self, key: str) -> list[tuple[str, str]]:
        value = self.raw.get(key)
        if value is None:
            if key in self.raw:
                self.say(Level.NOTE, "empty", key, "has no entries")
            return []
        if not isinstance(value, list):
            self.problem(key, f"expected a list, found {value!r}")
            return []
        found = []
        for i, one in enumerate(value):
            if isinstance(one, str) and one.strip("/ "):
                found.append((f"{key}[{i}]", one))
            else:
                self.problem(f"{key}[{i}]", f"expected the path of a mod, found {one!r}")
        return found

    def _mapping(self, key: str) -> Mapping[str, Any]:
        value = self.raw.get(key)
        if value is None:
            if key in self.raw:
                self.say(Level.NOTE, "empty", key, "has no entries")
            return {}
        if not isinstance(value, dict):
            self.problem(key, f"expected a mapping, found {value!r}")
            return {}
        return value

    def defaults(self) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {}
        for key, value in self._mapping("defaults").items():
            at = f"defaults.{key}"
            if value is None:
                self.say(Level.NOTE, "empty", at, "is empty and left out")
            elif isinstance(value, _SCALARS):
                found[key] = value
            elif isinstance(value, (dict, list)):
                self.problem(
                    at, "is no single value: a launcher would write it as Python; quote it"
                )
            else:
                found[key] = str(value)  # a date, as a launcher writes it
        return found

    def env(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in self._mapping("env").items():
            at = f"env.{key}"
            if value is None or isinstance(value, (dict, list)):
                self.problem(
                    at, "is no single value: a launcher would export it as Python; quote it"
                )
                continue
            found[key] = str(value)
            if isinstance(value, bool):
                self.say(
                    Level.NOTE,
                    "env-bool",
                    at,
                    f"is {value}, as launchers export it; quote it for another case",
                )
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                self.problem(at, "is not the name of an environment variable")
            elif re.search(r"[$`\"\\]", found[key]):
                self.say(
                    Level.ERROR, "env-shell", at,
                    f"{found[key]!r} is changed by the shell of a launcher, and taken as it is here",
                )  # fmt: skip
        return found

    def topology(self) -> str:
        said: dict[str, str] = {}
        for key, topology in (("solo_only", "solo"), ("cluster_only", "cluster")):
            value = self.raw.get(key)
            if value is True:
                said[key] = topology
            elif value not in (None, False):
                self.problem(key, f"expected true or false, found {value!r}")
        if self.raw.get("max_nodes") == 1:
            said["max_nodes"] = "solo"
        least = self.raw.get("min_nodes")
        if isinstance(least, int) and least > 1:
            said["min_nodes"] = "cluster"
        if len(set(said.values())) > 1:
            self.problem(next(iter(said)), f"{' and '.join(said)} contradict each other")
        return next(iter(said.values()), "any")

    def keys(self, version: str) -> dict[str, Any]:
        """Return every other key, without what is empty."""
        found: dict[str, Any] = {}
        for key, value in self.raw.items():
            if key in _READ:
                continue
            kept = self.kept(key, value)
            if kept is None:
                continue
            found[key] = kept
            if key in _UNDONE or (key == "runtime" and not str(value).startswith("vllm")):
                self.say(
                    Level.ERROR, "not-done", key,
                    "is kept, and a pairing does nothing of the kind: see to it yourself",
                )  # fmt: skip
            elif version == "1" and key != "build_args":
                self.say(Level.NOTE, "kept", key, "is no key of version 1; it is kept")
            else:
                self.say(Level.NOTE, "kept", key, "is kept for launchers; it has no meaning here")
        return found

    def kept(self, at: str, value: Any) -> Any:  # noqa: ANN401  (whatever YAML holds)
        if value is None:
            self.say(Level.NOTE, "empty", at, "is empty and left out")
            return None
        if isinstance(value, dict):
            inside = {key: self.kept(f"{at}.{key}", one) for key, one in value.items()}
            return {key: one for key, one in inside.items() if one is not None}
        if isinstance(value, list):
            entries = [self.kept(f"{at}[{i}]", one) for i, one in enumerate(value)]
            return [one for one in entries if one is not None]
        return value

    # --- the command --------------------------------------------------------

    def command_line(self, line: int) -> int | None:
        """Return where a line of the command stands in the recipe, or that of its key."""
        start = self._line("command")
        return start if start is None or "command" not in self.document.blocks else start + line

    def check_command(self, made: Pairing) -> None:
        """Say what is wrong with the command, as a launcher and then a shell would read it."""
        used = {name for _, name in pairings.placeholders(made.command)}
        for key in made.defaults:
            if key not in used:
                self.say(
                    Level.NOTE, "unused-default", f"defaults.{key}", "no {placeholder} uses it"
                )
        wrong = pairings.faults(made)
        for fault in wrong:
            match = re.match(r"line (\d+): (.*)", fault, re.DOTALL)
            line, why = (int(match[1]), match[2]) if match else (1, fault)
            self.problem("command", why, self.command_line(line))
        if wrong or not made.command.strip():
            return
        _, script = pairings.serve_command(made)
        serving = pairings.serving(script)
        for i, command in enumerate(script.commands):
            if i > serving:
                self.say(
                    Level.ERROR, "cut-off", "command",
                    f"`{_short(command)}` is a command of its own, run when vLLM has ended: {_why_cut(command, script)}",
                    line=self.command_line(command.line),
                )  # fmt: skip
            elif i < serving:
                self.say(
                    Level.ERROR, "not-done", "command",
                    f"`{_short(command)}` runs before the server; a pairing does nothing of the kind",
                    line=self.command_line(command.line),
                )  # fmt: skip
        for unknown in script.unknown:
            self.say(
                Level.NOTE, "shell", "command",
                f"`{unknown.text}` is filled in by the shell that serves",
                line=self.command_line(unknown.line),
            )  # fmt: skip

    def check_kept(self, made: Pairing) -> None:
        """Make sure that what was read is a pairing that can be written and read again."""
        try:
            pairings.parse(pairings.dump(made), self.where)
        except ManifestError as error:
            for problem in error.problems:
                key, _, why = problem.partition(": ")
                self.problem(_ORIGINS.get(key, key), why)

    def with_model(self, made: Pairing) -> Pairing:
        """Take the model from the command of a recipe that names it nowhere else."""
        argv = pairings.arguments(made)
        named = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == "--model"]
        if argv[1:2] == ("serve",) and len(argv) > 2 and not argv[2].startswith("-"):
            named.insert(0, argv[2])
        if not made.model and not named:
            self.problem("model", "is required: the command names none either")
        elif not made.model:
            self.say(Level.NOTE, "model", "model", f"is {named[0]}, as the command has it")
            return made._replace(model=named[0])
        elif named and named[0] != made.model:
            self.say(
                Level.NOTE, "model", "model", f"is {made.model}; the command serves {named[0]}"
            )
        return made


class _Own(NamedTuple):
    name: str | None
    vllm: str | None
    templates: tuple[str, ...]


def slug(text: str) -> str:
    """Make a name for files of what people call things."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zip")


def _short(command: command_line.WordedCommand) -> str:
    words = " ".join(command.argv) or " ".join(f"{name}=…" for name, _ in command.assignments)
    return words if len(words) <= 40 else f"{words[:39]}…"


def _why_cut(command: command_line.WordedCommand, script: command_line.CommandScript) -> str:
    before = [line for line, _ in script.comments if line < command.line]
    if before and before[-1] == command.line - 1:
        return "a comment ends the command before it"
    return "no backslash ends the line before it"
