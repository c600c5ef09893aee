"""pairings/NAME.toml: one model with everything it needs. Pure: bytes in, ``Pairing`` out, and back.

The command is a template as launchers of recipes know it: ``{name}`` stands for a default, ``{{`` and
``}}`` for braces. ``rendered`` and ``arguments`` say what such a launcher would run.
"""

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import UsageError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.base.versions import in_range
from vllm_mods.formats import toml_writer
from vllm_mods.formats.schema import NAME, NAME_IN_WORDS, Scalar, Table, reading, repeated
from vllm_mods.scripts import command_line

SCHEMA = 1
TOPOLOGIES = ("any", "solo", "cluster")
_IMAGE = r"\S+\Z"
_CHAT_TEMPLATE = r"(--chat-template(?:=|[ \t]+(?:\\\n[ \t]*)?))([^\s\\]+)"
# Each multiplies the ranks that vLLM starts; expert parallelism spreads experts over these.
_PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
    ("--prefill-context-parallel-size", "-pcp"),
)
_PLACEHOLDER = r"\{[^\W\d][\w-]*\}"


class Recipe(NamedTuple):
    """What only the recipe says that a pairing was imported from; ``export`` writes it again.

    ``keys`` has every other key as it was (``build_args``, ``runtime``, …), ``mods`` the path that the
    recipe has for a mod of this pairing.
    """

    version: str
    name: str
    mods: Mapping[str, str]
    keys: Mapping[str, Any]


class Pairing(NamedTuple):
    """One model with what it needs to be served.

    ``model`` is an id on the Hub or a path, ``revision`` a commit or tag of it, ``base`` an image
    reference, ``vllm`` a version or a specifier. ``mods`` are in their order; ``templates`` are
    folders of ``templates/``. ``command`` is a template. ``Library.mods`` takes one for all that it needs.

    >>> pairing = vm.Library().pairing("qwen3.5-122b-hybrid")
    >>> pairing.templates, [mod.name for mod in vm.Library().mods(pairing)][-1]
    (('qwen3.5-enhanced',), 'qwen3.5-enhanced')
    """

    name: str
    summary: str
    model: str
    base: str
    command: str
    revision: str | None = None
    vllm: str | None = None
    mods: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    defaults: Mapping[str, Scalar] = {}
    env: Mapping[str, str] = {}
    topology: str = "any"
    recipe: Recipe | None = None


def parse(data: bytes, where: str) -> Pairing:
    """Read a pairing; ``where`` names it in messages. Raises ``ManifestError`` with every problem."""
    with reading(toml_of(data, where), where, SCHEMA) as top:
        defaults = top.table("defaults")
        pairing = Pairing(
            name=top.match("name", NAME, NAME_IN_WORDS, required=True),
            summary=top.text("summary", required=True),
            model=top.match("model", _IMAGE, "an id on the Hub or a path", required=True),
            revision=top.match("revision", _IMAGE, "a commit, tag or branch of the model") or None,
            base=top.match("base", _IMAGE, "an image reference", required=True),
            vllm=top.get("vllm", str),
            mods=top.strings("mods", NAME, "the name of a mod"),
            templates=top.strings("templates", NAME, "the name of a template"),
            defaults={key: defaults.scalar(key, value) for key, value in defaults.raw.items()},
            env=top.table("env").variables(),
            command=top.text("command", required=True),
            topology=top.choice("topology", TOPOLOGIES, "any"),
            recipe=_recipe(top.table("recipe")) if "recipe" in top.raw else None,
        )
        if pairing.vllm is not None:
            top.check_range("vllm", specifier(pairing.vllm))
        for key in ("mods", "templates"):
            for twice in repeated(getattr(pairing, key)):
                top.problem(key, f"{twice!r} is listed twice")
        for why in faults(pairing):
            top.problem("command", why)
        return pairing


def faults(pairing: Pairing) -> tuple[str, ...]:
    """Return why the command cannot be filled in or read by a shell, each with its line in it."""
    unfilled = _unfilled(pairing.command, _parameters(pairing))
    if not unfilled:
        try:
            _script(pairing)
        except command_line.ShellError as error:
            return (str(error),)
    return unfilled


def placeholders(command: str) -> tuple[tuple[int, str], ...]:
    """Return the 1-based line and the name of each ``{name}``."""
    braces = _braces(command)
    return tuple((at, text[1:-1]) for at, text in braces if re.fullmatch(_PLACEHOLDER, text))


def _braces(command: str) -> Iterator[tuple[int, str]]:
    """Yield what is not a doubled brace: ``{…}`` or a single one."""
    for match in re.finditer(r"\{\{|\}\}|\{[^{}]*\}|[{}]", command):
        if match[0] not in {"{{", "}}"}:
            yield command.count("\n", 0, match.start()) + 1, match[0]


def _unfilled(command: str, values: Mapping[str, Scalar]) -> tuple[str, ...]:
    faults = []
    for line, text in _braces(command):
        if not re.fullmatch(_PLACEHOLDER, text):
            faults.append(f"line {line}: {text} is not a placeholder; write a literal brace twice")
        elif text[1:-1] not in values:
            faults.append(f"line {line}: {text} has no default")
    return tuple(faults)


def rendered(pairing: Pairing) -> str:
    """Return the command with its defaults filled in, as the launcher of recipes does it.

    For a pairing of one node that launcher sets ``tensor_parallel`` to 1. It takes ``--distributed-executor-backend`` out there, and out of any
    recipe's command: it starts Ray only when it is asked to. Raises ``UsageError`` if a placeholder
    has no value.
    """
    values = _parameters(pairing)
    if unfilled := _unfilled(pairing.command, values):
        why = f"the command of pairing `{pairing.name}` has placeholders without a value: {'; '.join(unfilled)}"
        raise UsageError(why, hint="give each a value under [defaults]")
    text = pairing.command.format(**values)
    if _loses_executor(pairing):
        lines = _without_executor(text).split("\n")
        text = "\n".join(line for line in lines if line.strip() not in {"", "\\"})
    text = text.strip()
    return text.rstrip("\\\n").rstrip() if text.endswith("\\") else text


def serve_command(
    pairing: Pairing,
) -> tuple[command_line.WordedCommand, command_line.CommandScript]:
    """Return the command that serves, and the whole script that it is a part of.

    Lines are those of ``Pairing.command``. Assignments in front of it, behind ``env`` too, are in
    ``Command.assignments``; ``exec`` is gone. Where no command is ``vllm serve`` or vLLM's API server, it is the first. Raises ``UsageError``
    if a shell would not read it.
    """
    try:
        script = _script(pairing)
    except command_line.ShellError as error:
        raise UsageError(f"bash cannot read the command of `{pairing.name}`: {error}") from error
    if not script.commands:
        raise UsageError(f"the command of pairing `{pairing.name}` is empty")
    return served_by(script), script


def served_by(script: command_line.CommandScript) -> command_line.WordedCommand:
    """Return the command of a script that serves, ``unwrapped``."""
    return unwrapped(script.commands[serving(script)])


def serving(script: command_line.CommandScript) -> int:
    """Return which command of a script serves: the first if none is known to."""
    argvs = (unwrapped(command).argv for command in script.commands)
    return next((i for i, argv in enumerate(argvs) if serves(argv)), 0)


def arguments(pairing: Pairing) -> tuple[str, ...]:
    """Return the words of the command that serves. Raises ``UsageError`` as ``serve_command`` does."""
    return serve_command(pairing)[0].argv


def ranks(argv: Sequence[str]) -> int:
    """Return how many ranks a command that serves starts, each on a GPU of its own."""
    return math.prod(max(command_line.flag_number(argv, 1, *names), 1) for names in _PARALLEL)


def serve_script(pairing: Pairing, templates: Mapping[str, str]) -> str:
    """Return what to type to serve: the environment, then ``placed_command``."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in pairing.env.items()]
    return "\n".join((*exports, placed_command(pairing, templates)))


def placed_command(pairing: Pairing, templates: Mapping[str, str]) -> str:
    """Return the command as ``rendered`` has it, with chat templates where they lie.

    ``templates`` has the path of each chat template by its file name, which takes the place of that
    name behind ``--chat-template``.
    """

    def placed(match: re.Match[str]) -> str:
        name = match[2].strip("'\"").rsplit("/", 1)[-1]
        return match[1] + (shlex.quote(templates[name]) if name in templates else match[2])

    return re.sub(_CHAT_TEMPLATE, placed, rendered(pairing))


def specifier(vllm: str) -> str:
    """Return what a pairing says of vLLM as a PEP 440 specifier: a version alone means ``==``."""
    return f"=={vllm}" if vllm[:1].isdigit() else vllm


def advice(pairing: Pairing, version: str | None) -> str | None:
    """Return a note if a tree is not of the version that a pairing names. It is advice: the mods decide."""
    if pairing.vllm is None or in_range(version, specifier(pairing.vllm)):
        return None
    return f"pairing {pairing.name} is for vLLM {pairing.vllm}, but this tree is {version or 'of unknown version'}"


def digest(pairing: Pairing) -> str:
    """Return the sha256 of the pairing as ``dump`` writes it: the same for the same content."""
    return sha256(dump(pairing))


def dump(pairing: Pairing) -> bytes:
    """Write a pairing as TOML; ``parse`` reads the same one back."""
    keys = ("name", "summary", "model", "revision", "base", "vllm", "mods", "templates", "topology")
    stated = {key: value for key in keys if (value := getattr(pairing, key)) is not None}
    tables = {"defaults": pairing.defaults, "env": pairing.env}
    if recipe := pairing.recipe:
        tables["recipe"] = {"version": recipe.version, "name": recipe.name}
        tables |= {"recipe.mods": recipe.mods, "recipe.keys": recipe.keys}
    lines = toml_writer.rows({"schema": SCHEMA, **stated})
    lines.append(f"command = {toml_writer.lines(pairing.command)}")
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *toml_writer.rows(table)]
    return ("\n".join(lines) + "\n").encode()


def _script(pairing: Pairing) -> command_line.CommandScript:
    """Read what is rendered. Raises ``ShellError``; its line too is one of ``Pairing.command``."""
    origins = _origins(pairing)
    try:
        script = command_line.read(rendered(pairing))
    except command_line.ShellError as error:
        raise command_line.ShellError(origins[error.line - 1], error.why) from error
    return command_line.CommandScript(
        tuple(one._replace(line=origins[one.line - 1]) for one in script.commands),
        tuple(one._replace(line=origins[one.line - 1]) for one in script.unknown),
        tuple((origins[line - 1], text) for line, text in script.comments),
    )


def _origins(pairing: Pairing) -> list[int]:
    """Return which line of the command each line of ``rendered`` comes from."""
    values, loses = _parameters(pairing), _loses_executor(pairing)
    lines: list[int] = []
    for number, line in enumerate(pairing.command.split("\n"), 1):
        filled = line if _unfilled(line, values) else line.format(**values)
        for text in filled.split("\n"):
            dropped = {"", "\\"} if loses else {""} if not lines else set()
            if (_without_executor(text) if loses else text).strip() not in dropped:
                lines.append(number)
    return lines


def _loses_executor(pairing: Pairing) -> bool:
    """Tell whether the launcher looks for what it takes out of a command."""
    return pairing.topology == "solo" or (
        pairing.recipe is not None and "--distributed-executor-backend" in pairing.command
    )


def _without_executor(text: str) -> str:
    return re.sub(r"--distributed-executor-backend\s+\S+", "", text)


def _parameters(pairing: Pairing) -> dict[str, Scalar]:
    """Return what placeholders stand for; the launcher of recipes of version 1 knows defaults only."""
    values: dict[str, Scalar] = {}
    if pairing.recipe is None or pairing.recipe.version != "1":
        values["model"] = pairing.model
        if pairing.revision is not None:
            values["revision"] = pairing.revision
    values.update(pairing.defaults)
    if pairing.topology == "solo":
        values["tensor_parallel"] = 1
    return values


def unwrapped(command: command_line.WordedCommand) -> command_line.WordedCommand:
    """Return a command without ``exec`` and ``env`` before it."""
    assignments, argv = list(command.assignments), list(command.argv)
    while argv and argv[0] in {"exec", "env"}:
        del argv[0]
        while argv and re.match(r"[A-Za-z_]\w*=", argv[0]):
            name, _, value = argv.pop(0).partition("=")
            assignments.append((name, value))
    return command._replace(assignments=tuple(assignments), argv=tuple(argv))


def serves(argv: tuple[str, ...]) -> bool:
    """Tell whether a command is ``vllm serve`` or vLLM's API server."""
    program = [word.rsplit("/", 1)[-1] for word in argv[:2]]
    as_module = ("-m", "vllm.entrypoints.openai.api_server") in itertools.pairwise(argv[:4])
    return program == ["vllm", "serve"] or as_module


def _recipe(table: Table) -> Recipe:
    paths = table.table("mods")
    recipe = Recipe(
        version=table.text("version", required=True),
        name=table.text("name", required=True),
        mods={key: paths.text(key) for key in paths.raw},
        keys=table.get("keys", dict) or {},
    )
    table.refuse_unknown()
    return recipe
