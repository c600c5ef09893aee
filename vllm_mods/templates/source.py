"""Where chat templates come from: by the name of one in a library, or a file; and ``template.toml`` beside one."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.schema import NAME, NAME_IN_WORDS, Table, object_of, reading as reading_table
from vllm_mods.library import reading
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import TEMPLATE
from vllm_mods.templates import conversation
from vllm_mods.templates.conversation import OPENAI, STRING, Conversation

ABOUT = "template.toml"
CONVERSATIONS = "conversations"
MODELS_TEMPLATE = "chat_template.jinja"
TOKENIZER = "tokenizer_config.json"
SPECIAL = tuple(f"{one}_token" for one in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""The special tokens that transformers gives to a template by these names, where a tokenizer has them."""

_SCHEMA = 1
_TYPES = ("boolean", "string", "integer", "number", "array", "object")
_FILES = (".jinja", ".jinja2", ".j2", ".txt")


class Kwarg(NamedTuple):
    """A chat template argument; ``type`` is JSON schema's word."""

    name: str
    type: str
    default: Any
    summary: str


class About(NamedTuple):
    """A template.toml that has no problems; ``families`` are values of ``model_type`` in config.json.

    ``other_tool_call_parsers`` read the calls as well, but for what ``tool_call_parser`` does better.
    """

    name: str
    version: str
    summary: str
    license: str
    content_format: str
    families: tuple[str, ...]
    tool_call_parser: str | None
    other_tool_call_parsers: tuple[str, ...]
    reasoning_parser: str | None
    kwargs: tuple[Kwarg, ...]


class Template(NamedTuple):
    """A template and what lies beside it: nothing, if it is a file; a template.toml need not be there.

    ``name`` is what it was called by, ``path`` where it lies.
    """

    name: str
    path: str
    data: bytes
    about: About | None = None
    conversations: tuple[Conversation, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    """The special tokens of the model whose template it is, by name: ``("bos_token", "<s>")``."""


def parse_about(data: bytes, where: str) -> About:
    """Read a template.toml. Raises ``ManifestError`` with every problem."""
    with reading_table(toml_of(data, where), where, _SCHEMA) as top:
        return About(
            name=top.match("name", NAME, NAME_IN_WORDS, required=True),
            version=top.text("version", required=True),
            summary=top.text("summary", required=True),
            license=top.text("license", required=True),
            content_format=top.choice("content_format", (STRING, OPENAI), STRING, required=True),
            families=top.strings("families"),
            tool_call_parser=top.get("tool_call_parser", str),
            other_tool_call_parsers=top.strings("other_tool_call_parsers"),
            reasoning_parser=top.get("reasoning_parser", str),
            kwargs=tuple(top.named("kwargs", _kwarg).values()),
        )


def _kwarg(table: Table) -> Kwarg:
    table.known.add("default")
    if "default" not in table.raw:
        table.problem("default", "is required")
    return Kwarg(
        name=table.name,
        type=table.choice("type", _TYPES, ""),
        default=table.raw.get("default"),
        summary=table.text("summary"),
    )


def open_template(library: Library, named: str) -> Template:
    """Read a template by its name in the library, or by its path.

    Raises ``UsageError`` if there is none, ``ManifestError`` for what is wrong beside it.
    """
    is_model = os.path.isdir(named) and not os.path.isdir(os.path.join(named, CONVERSATIONS))
    is_file = os.path.isfile(named) and named not in library.template_names()
    if is_model or is_file or "/" in named or named.endswith((*_FILES, TOKENIZER)):
        hint = "`vllm-mods template list` has the names"
        return _open(lambda path: reading.read(path, None), named, hint, is_model=is_model)
    folder = library.template_folder(named)
    path, about_path = os.path.join(folder, TEMPLATE), os.path.join(folder, ABOUT)
    raw = library.read(about_path)
    read = None if raw is None else parse_about(raw, about_path)
    if read is not None and read.name != named:
        why = f"name is {read.name!r}, but its folder is named {named!r}"
        raise ManifestError(about_path, (why,))
    cases = _read_conversations(library, os.path.join(folder, CONVERSATIONS))
    return Template(named, path, library.read(path) or b"", read, cases)


def open_in_tree(tree: Tree, named: str) -> Template:
    """Read a template's file, or that of a model's folder, in a tree. Raises as ``open_template`` does."""
    is_model = not named.endswith((*_FILES, TOKENIZER))
    return _open(tree.read, named, f"the name is looked up in {tree.spec}", is_model=is_model)


def _open(
    read: Callable[[str], bytes | None], named: str, hint: str, *, is_model: bool
) -> Template:
    """Read a template's file; or of a model's folder its file, else the text in its tokenizer's configuration."""
    folder = named.rstrip("/") if is_model else os.path.dirname(named)
    is_config = os.path.basename(named) == TOKENIZER
    path = os.path.join(folder, MODELS_TEMPLATE) if is_model else named
    data = None if is_config else read(path)
    if data is None and not (is_model or is_config):
        raise UsageError(f"{named}: no such file", hint=hint)
    config_path = os.path.join(folder, TOKENIZER)
    raw = read(config_path)
    config = {} if raw is None else object_of(raw, config_path)
    if data is None:
        path = config_path
        stated = config.get("chat_template")
        several = stated if isinstance(stated, list) else [{"name": "default", "template": stated}]
        texts = {one.get("name"): one.get("template") for one in several if isinstance(one, dict)}
        if not isinstance(text := texts.get("default"), str):
            why = f"{folder or '.'}: neither {MODELS_TEMPLATE} nor {TOKENIZER} has a chat template"
            hint = "name the file of a template, or the folder of a model that has one"
            raise UsageError(why, hint=hint)
        data = text.encode()
    return Template(named, path, data, tokens=_tokens(config))


def _tokens(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    stated = ((name, config.get(name)) for name in SPECIAL)
    texts = ((name, one.get("content") if isinstance(one, dict) else one) for name, one in stated)
    return tuple((name, text) for name, text in texts if isinstance(text, str))


def conversations(library: Library, named: str) -> tuple[Conversation, ...]:
    """Return the conversations of a template in the library, or those in a folder.

    Raises ``UsageError`` if there are none, ``ManifestError`` for one that is faulty.
    """
    folder = named
    if not os.path.isdir(named):
        folder = os.path.join(library.template_folder(named), CONVERSATIONS)
    cases = _read_conversations(library, folder)
    if not cases:
        why = f"{folder}: there are no conversations"
        hint = "a conversation is a file NAME.json; docs/templates.md describes it"
        raise UsageError(why, hint=hint)
    return cases


def _read_conversations(library: Library, folder: str) -> tuple[Conversation, ...]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    paths = ((stem, os.path.join(folder, f"{stem}.json")) for stem in stems)
    cases = ((library.read(path, folder) or b"", path, stem) for stem, path in paths)
    return tuple(conversation.parse(*case) for case in cases)
