"""However a manifest is spelled, and however alike the names of its variants are, an edit changes the one that was meant."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.formats import manifest_editor

NAMES = ("0.1", "0.19", "10.1", '0.1"', "id", "vllm")
QUOTES: dict[str, Callable[[str], str]] = {
    "basic": lambda text: '"' + text.replace('"', '\\"') + '"',
    "literal": lambda text: f"'{text}'",
    "long": lambda text: f"'''{text}'''",
    "escaped": lambda text: '"' + "".join(f"\\u{ord(sign):04x}" for sign in text) + '"',
}


def spelled(names: tuple[str, ...], quote: str, style: str) -> bytes:
    """Return a manifest whose variants stand in this order; ``style`` says how."""
    quoted = QUOTES[quote]
    rows = []
    for n, name in enumerate(names):
        keys = [f"id = {quoted(name)}", f"vllm = {quoted(f'==0.{n}')}"]
        # each names another variant in a value and in a comment
        keys.append(f"note = {quoted(f'id = {names[n - 1]}')}")
        rows.append(keys[::-1] if style == "reversed" else keys)
    if style == "inline":
        tables = ",\n".join(f"  {{ {', '.join(keys)} }}" for keys in rows)
        return f'name = "fast"\nvariant = [\n{tables}\n]\n'.encode()
    blocks = (
        f"# id = {names[n - 1]!r}\n[[ variant ]]\n" + "\n".join(keys) for n, keys in enumerate(rows)
    )
    return ('name = "fast"\n\n' + "\n\n".join(blocks) + "\n").encode()


@pytest.mark.slow
@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("style", ["plain", "reversed", "inline"])
def test_the_variant_that_was_meant_is_the_one_that_changes(quote: str, style: str) -> None:
    for names in itertools.permutations(NAMES, 3):
        manifest = spelled(names, quote, style)
        for n, name in enumerate(names):
            wanted = tomllib.loads(manifest.decode())
            wanted["variant"][n]["vllm"] = ">=0.9,<=1"
            edited = manifest_editor.set_in_variant(manifest, "m", name, "vllm", ">=0.9,<=1")
            assert tomllib.loads(edited.decode()) == wanted
        absent = next(name for name in NAMES if name not in names)
        with pytest.raises(Refused, match="has no variant"):
            manifest_editor.set_in_variant(manifest, "m", absent, "vllm", "<2")
