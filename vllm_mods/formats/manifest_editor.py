"""TOML files edited in place: comments and order stay, and each edit is read back. Pure.

An edit is a function that changes the top table. It is called twice: with tomlkit's document, and with the plain dict
of ``tomllib``. What tomlkit then writes has to read as that dict, so that nothing else can have changed.
"""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from vllm_mods.base.errors import Refused
from vllm_mods.formats import toml_writer

Edit = Callable[[Any], None]


def edit(data: bytes, where: str, change: Edit, *, hint: str) -> bytes:
    """Return a TOML file with a change. Raises ``Refused`` if all else cannot stay as it is."""
    try:
        text = data.decode()
        document = tomlkit.parse(text)
        change(document)
        edited = tomlkit.dumps(document).rstrip("\n") + "\n"
        wanted = tomllib.loads(text)
        change(wanted)
        if tomllib.loads(edited) == wanted:
            return edited.encode()
        why: Exception | None = None
    except (TOMLKitError, ValueError, TypeError, AttributeError, KeyError) as error:
        why = error
    raise Refused(
        f"{where} is written in a form that vllm-mods cannot edit; nothing was changed", hint=hint
    ) from why


def set_key(data: bytes, where: str, key: str, value: str) -> bytes:
    """Return a TOML file with another value of a top-level key. Raises ``Refused`` as ``edit`` does."""
    hint = f"write it as `{key} = {toml_writer.value(value)}`"
    return edit(data, where, lambda root: root.update({key: value}), hint=hint)


def set_in_variant(manifest: bytes, where: str, variant: str, key: str, value: str) -> bytes:
    """Return a manifest with a variant's key set. Raises ``Refused`` without it, and as ``edit`` does."""

    def change(root: Any) -> None:  # noqa: ANN401  (a dict, or what tomlkit has for one)
        table = next((table for table in root["variant"] if table["id"] == variant), None)
        if table is None:
            raise Refused(f"{where} has no variant `{variant}`; nothing was changed")
        table[key] = value

    hint = f"write {key} = {toml_writer.value(value)} into variant `{variant}`"
    return edit(manifest, where, change, hint=hint)


def add_variant(manifest: bytes, where: str, block: Mapping[str, Any], comment: str) -> bytes:
    """Return a manifest with a last variant below a comment. Raises ``Refused`` as ``edit`` does."""

    def change(root: Any) -> None:  # noqa: ANN401
        variants = root["variant"]
        if isinstance(variants, AoT):
            table = _fill(tomlkit.table(), block)
            table.trivia.indent = f"\n# {comment}\n"  # before its keys it would be theirs too
            variants.append(table)
        elif isinstance(variants, Array):
            variants.add_line(_fill(tomlkit.inline_table(), block), comment=comment)
        else:
            variants.append(dict(block))

    return edit(manifest, where, change, hint="write each variant as a [[variant]] table")


def subtable(table: Any, key: str, *, header: bool = False) -> Any:  # noqa: ANN401
    """Return the table below a key, in an edit; a new one has a ``header`` of its own, or only tables below it have."""
    if key not in table:
        table[key] = {} if type(table) is dict else tomlkit.table(is_super_table=not header)
    return table[key]


def _fill(table: Any, block: Mapping[str, Any]) -> Any:  # noqa: ANN401
    for key, value in block.items():
        # an array of tables stands on one line, as in a manifest written by hand
        table.add(key, tomlkit.value(toml_writer.value(value)))
    return table
