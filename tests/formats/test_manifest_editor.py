"""One value changes, or a table more is there; all else reads as before, and comments stay."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.formats import manifest_editor

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIXES = b"""\
name = "fast"  # of the mod

# The first.
[[variant]]
vllm = ">=0.19"  # all of them
id = "0.1"

[[variant]]
id = "0.19"
vllm = "==0.19.0"
"""
SINGLE_QUOTES = PREFIXES.replace(b'"', b"'")
INLINE = b"""\
variant = [
  { vllm = ">=0.19", id = "0.1" },  # the first
  { id = "0.19", vllm = "==0.19.0" },
]
"""
DOTTED = b"""\
upstream.status = "open"

[[variant]]
vllm = ">=0.19"
limits.note = "id = \\"0.19\\""
id = "0.1"
[[variant.overlay]]
source = "id"
vllm = "not this one"

[[variant]]
vllm = "==0.19.0"
id = '0.19'
[[variant.overlay]]
vllm = "nor this one"
"""
BETWEEN = b"""\
[[variant]]
id = "0.1"
vllm = ">=0.19"

[upstream]
status = "open"  # still

[[variant]]
id = "0.19"
vllm = "==0.19.0"
"""
CRLF = PREFIXES.replace(b"\n", b"\r\n")
MANIFESTS = [PREFIXES, SINGLE_QUOTES, INLINE, DOTTED, BETWEEN, CRLF]


@pytest.mark.parametrize("manifest", MANIFESTS)
@pytest.mark.parametrize("place", [0, 1])
def test_the_range_of_the_named_variant_alone_changes(manifest: bytes, place: int) -> None:
    wanted = tomllib.loads(manifest.decode())
    name = ("0.1", "0.19")[place]
    wanted["variant"][place]["vllm"] = "<2"
    changed = manifest_editor.set_in_variant(manifest, "mod.toml", name, "vllm", "<2")
    assert tomllib.loads(changed.decode()) == wanted
    assert changed.count(b"#") == manifest.count(b"#")


def test_a_changed_value_leaves_every_other_byte() -> None:
    changed = manifest_editor.set_in_variant(PREFIXES, "mod.toml", "0.1", "vllm", "<2")
    assert changed == PREFIXES.replace(b'">=0.19"', b'"<2"')


def test_a_key_that_a_variant_lacks_is_put_in() -> None:
    changed = manifest_editor.set_in_variant(PREFIXES, "mod.toml", "0.1", "version", ">=1")
    assert tomllib.loads(changed.decode())["variant"][0]["version"] == ">=1"


def test_a_variant_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match=r"mod\.toml has no variant `0`"):
        manifest_editor.set_in_variant(PREFIXES, "mod.toml", "0", "vllm", "<2")


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_variant_more_is_the_last_one_with_its_comment(manifest: bytes) -> None:
    block = {"id": "0.2", "overlay": [{"source": 'a "b"', "path": "c"}], "python": [], "b": True}
    changed = manifest_editor.add_variant(manifest, "mod.toml", block, "Ported.")
    wanted = tomllib.loads(manifest.decode())
    wanted["variant"].append(block)
    assert tomllib.loads(changed.decode()) == wanted
    assert changed.count(b"#") == manifest.count(b"#") + 1
    assert b"# Ported." in changed


def test_a_variant_more_is_written_as_a_person_would() -> None:
    block = {"id": "0.2", "overlay": [{"source": "a", "path": "c"}], "patches": ["x.patch"]}
    assert manifest_editor.add_variant(PREFIXES, "mod.toml", block, "Ported.") == PREFIXES + (
        b'\n# Ported.\n[[variant]]\nid = "0.2"\noverlay = [{ source = "a", path = "c" }]\n'
        b'patches = ["x.patch"]\n'
    )


def test_what_is_no_toml_is_refused() -> None:
    broken = b"[[variant]\n"
    hints: dict[str, Callable[[], bytes]] = {
        'write vllm = "<2" into variant `0.1`': lambda: manifest_editor.set_in_variant(
            broken, "mod.toml", "0.1", "vllm", "<2"
        ),
        'write it as `vllm = "<2"`': lambda: manifest_editor.set_key(broken, "x", "vllm", "<2"),
        "write each variant as a [[variant]] table": lambda: manifest_editor.add_variant(
            broken, "x", {"id": "a"}, "Ported."
        ),
    }
    for hint, edit in hints.items():
        with pytest.raises(Refused, match="cannot edit;") as caught:
            edit()
        assert caught.value.hint == hint


def test_an_edit_that_comes_out_otherwise_than_meant_is_refused() -> None:
    def change(root: object) -> None:
        if type(root) is dict:
            root["name"] = "slow"

    with pytest.raises(Refused, match="nothing was changed"):
        manifest_editor.edit(PREFIXES, "mod.toml", change, hint="by hand")
