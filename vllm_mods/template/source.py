"""Where chat templates come from: by the name of one in a library, or a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library.catalog import TEMPLATE, read_file
from vllm_mods.template import about, conversation

if TYPE_CHECKING:
    from vllm_mods.library.catalog import Library
    from vllm_mods.template.about import About
    from vllm_mods.template.conversation import Conversation

ABOUT = "template.toml"
CONVERSATIONS = "conversations"


class Template(NamedTuple):
    """A template and what lies beside it: nothing, if it is a file; a template.toml need not be there.

    ``name`` is what it was called by, ``path`` where it lies.
    """

    name: str
    path: str
    data: bytes
    about: About | None = None
    conversations: tuple[Conversation, ...] = ()


def open_template(library: Library, named: str) -> Template:
    """Read a template by its name in the library, or by its path.

    Raises ``UsageError`` if there is none, ``ManifestError`` for what is wrong beside it.
    """
    if _is_path(named):
        data = read_file(named)
        if data is None:
            raise UsageError(
                f"{named}: there is no such file", hint="`vllm-mods template list` has the names"
            )
        return Template(named, named, data)
    folder = library.template_folder(named)
    path, said = os.path.join(folder, TEMPLATE), os.path.join(folder, ABOUT)
    raw = library.read(said)
    read = None if raw is None else about.parse(raw, said)
    if read is not None and read.name != named:
        raise ManifestError(
            said, (f"name: {read.name!r} is not the name of its folder, {named!r}",)
        )
    return Template(
        named, path, library.read(path) or b"", read, _conversations(library, _beside(folder))
    )


def conversations(library: Library, named: str) -> tuple[Conversation, ...]:
    """Return the conversations of a template in the library, or those in a folder.

    Raises ``UsageError`` if there are none, ``ManifestError`` for one that is faulty.
    """
    folder = named if os.path.isdir(named) else _beside(library.template_folder(named))
    found = _conversations(library, folder)
    if not found:
        raise UsageError(
            f"{folder}: there are no conversations",
            hint="a conversation is a file NAME.json; docs/templates.md says what is in it",
        )
    return found


def _beside(folder: str) -> str:
    return os.path.join(folder, CONVERSATIONS)


def _conversations(library: Library, folder: str) -> tuple[Conversation, ...]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    return tuple(
        conversation.parse(library.read(path) or b"", path, name.removesuffix(".json"))
        for name in names
        if name.endswith(".json")
        for path in [os.path.join(folder, name)]
    )


def _is_path(named: str) -> bool:
    return "/" in named or named.endswith((".jinja", ".jinja2", ".j2", ".txt"))
