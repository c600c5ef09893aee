"""Reading flags: names, what they take, choices, as the sample's own parser would make them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from serve_tree import ARGS, FILES, LATER

from vllm_mods.base.errors import TreeError
from vllm_mods.serving import flags, shape
from vllm_mods.serving.source import ModuleSources

if TYPE_CHECKING:
    from vllm_mods.serving.shape import FlagShape

SOURCES = ModuleSources(MemoryTree(dict(FILES)))
FLAGS = flags.read(SOURCES)


def shape_of(name: str) -> FlagShape:
    return shape.shape(SOURCES, FLAGS.by_name[name], FLAGS.rules)


def config_of(name: str) -> str | None:
    config = shape_of(name).config
    return config.node.name if config and isinstance(config.node, ast.ClassDef) else None


def test_every_flag_is_there_and_no_other() -> None:
    names = (
        "headless config chat-template tool-call-parser enable-auto-tool-choice "
        "enable-log-outputs template-kwargs middleware tool-parser-plugin host port origins "
        "model dtype max-model-len batch tensor-parallel-size share trust-remote-code names "
        "pair rank quantization attention-backend hf-overrides sampling reasoning-parser "
        "all2all traces enable-prefix-caching load-format speculative-config plan-config gdn "
        "device old-way quiet timeout optimization-level enable-log-requests"
    )
    assert {flag.name.removeprefix("--") for flag in FLAGS.flags} == set(names.split())


@pytest.mark.parametrize(
    ("name", "kind", "nargs"),
    [
        ("--headless", "flag", None),
        ("--config", "text", None),
        ("--middleware", "text", None),
        ("--origins", "json", None),
        ("--template-kwargs", "json", None),
        ("--port", "int", None),
        ("--max-model-len", "human-auto", None),
        ("--batch", "human", None),
        ("-tp", "int", None),
        ("--share", "float", None),
        ("--trust-remote-code", "switch", None),
        ("--enable-prefix-caching", "switch", None),
        ("--old-way", "switch", None),
        ("--names", "text", "+"),
        ("--pair", "int", "+"),
        ("--rank", "int", None),
        ("--speculative-config", "json", None),
        ("-pc", "json", None),
        ("--hf-overrides", "json", None),
        ("--timeout", "int", None),
    ],
)
def test_what_a_flag_takes(name: str, kind: str, nargs: object) -> None:
    found = shape_of(name)
    assert (found.kind, found.nargs) == (kind, nargs)


def test_choices_are_those_that_the_parser_enforces() -> None:
    assert shape_of("--dtype").choices == ("auto", "half", "bfloat16")
    assert shape_of("--rank").choices == (1, 8, 16)
    assert shape_of("--gdn").choices == ("flashinfer", "triton")
    assert shape_of("--all2all").choices == ("naive", "pplx")
    assert shape_of("--quantization").choices is None
    assert shape_of("--load-format").choices is None


def test_computed_choices_are_said_to_be_so() -> None:
    device = shape_of("--device")
    assert device.choices == ("auto",)
    assert "others()" in device.open
    assert shape_of("--traces").open
    assert not shape_of("--dtype").open


def test_json_flags_know_the_class_of_their_keys() -> None:
    assert config_of("--speculative-config") == "SpeculativeConfig"
    assert config_of("--plan-config") == "PlanConfig"
    assert config_of("--hf-overrides") is None


def test_optional_flags_take_none() -> None:
    assert shape_of("--quantization").optional
    assert shape_of("--speculative-config").optional
    assert not shape_of("--dtype").optional


def test_names_need_two_files_and_those_that_these_import_from() -> None:
    tree = MemoryTree(dict(FILES))
    flags.read(ModuleSources(tree))
    assert "vllm/config/engine.py" not in tree.reads
    assert max(tree.reads.values()) == 1


def test_the_later_release_has_moved_and_pairs_its_switches() -> None:
    found = flags.read(ModuleSources(MemoryTree(dict(LATER))))
    assert found.entry.path == "vllm/entrypoints/common/cli_args.py"
    assert found.rules.inverses == {"--enable-": "--disable-", "--disable-": "--enable-"}
    assert "--silent" in found.by_name
    assert "--quiet" not in found.by_name
    assert not FLAGS.rules.inverses


def test_a_tree_without_a_parser_is_an_error() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/entrypoints/cli_args.py": b"x = 1\n"})
    with pytest.raises(TreeError, match=r"no cli_args\.py"):
        flags.read(ModuleSources(tree))


def test_a_loop_that_adds_flags_by_their_names_is_an_error() -> None:
    plain = '        parser.add_argument("--quiet", action="store_true")'
    loop = '        for name in ["--quiet"]:\n            parser.add_argument(name, action="store_true")'
    files = {**FILES, "vllm/engine/arg_utils.py": ARGS.replace(plain, loop).encode()}
    with pytest.raises(TreeError, match=r"arg_utils.py:\d+: this loop adds flags"):
        flags.read(ModuleSources(MemoryTree(files)))


def test_a_patched_literal_changes_the_choices() -> None:
    patched = {
        **FILES,
        "vllm/config/model.py": FILES["vllm/config/model.py"].replace(
            b'Literal["auto", "half"', b'Literal["auto", "mine", "half"'
        ),
    }
    sources = ModuleSources(MemoryTree(patched))
    found = flags.read(sources)
    dtype = shape.shape(sources, found.by_name["--dtype"], found.rules)
    assert dtype.choices == ("auto", "mine", "half", "bfloat16")
