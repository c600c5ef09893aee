"""A hint keeps what its call named: a library, a tree, and what both are read with."""

from __future__ import annotations

import shlex

import pytest

from vllm_mods.cli.kept_options import keep


@pytest.mark.parametrize(
    ("hint", "arguments", "kept"),
    [
        ("vllm-mods show fast", "check fast --library a --target b", "vllm-mods show fast --library a"),
        ("vllm-mods list", "check fast --library=a", "vllm-mods list --library=a"),
        ("vllm-mods list", "check x --library a --library b", "vllm-mods list --library a --library b"),
        ("vllm-mods list", "check fast --library 'a b'", "vllm-mods list --library 'a b'"),
        ("vllm-mods show x --library c", "check x --library a", "vllm-mods show x --library c"),
        ("vllm-mods lock p", "build p --base r:1 --library a", "vllm-mods lock p --base r:1 --library a"),
        ("vllm-mods sync  # writes", "sync --check --target b", "vllm-mods sync --target b  # writes"),
        ("vllm-mods check x", "apply x --dry-run", "vllm-mods check x"),
        ("vllm-mods diff x", "check x --offline --json", "vllm-mods diff x --offline"),
        ("`vllm-mods list` lists them", "show x --library a", "`vllm-mods list --library a` lists them"),
        ("vllm-mods template list", "template render x y --library a", "vllm-mods template list --library a"),
        ("vllm-mods new --help", "new x --library a", "vllm-mods new --help"),
        ("vllm-mods port x --abort, then again", "port x --library a", "vllm-mods port x --abort --library a, then again"),
        ("a && vllm-mods verify", "apply x --target b", "a && vllm-mods verify --target b"),
        ("move it to a/vllm-mods list", "check x --library a", "move it to a/vllm-mods list"),
        ("vllm-mods nothing x", "check x --library a", "vllm-mods nothing x"),
        ("vllm-mods list", "new x -- --library a", "vllm-mods list"),
        ("vllm-mods run p -- --host h  # x", "run p --library a", "vllm-mods run p --library a -- --host h  # x"),
        ("vllm-mods build p", "run p --lock l --wait", "vllm-mods build p --lock l"),
        ("vllm-mods port x --from TREE", "port x --to t --output o", "vllm-mods port x --from TREE --to t --output o"),
        ("vllm-mods port x --abort", "port x --variant a --output o", "vllm-mods port x --abort --output o"),
        ("vllm-mods export x", "port x --output o", "vllm-mods export x"),
        ("vllm-mods check x --target image:oci:b", "lock p --base oci:b", "vllm-mods check x --target image:oci:b"),
        ("vllm-mods check x", "apply x --base git:r@v1", "vllm-mods check x --base git:r@v1"),
        ("vllm-mods build p", "lock p --platform a/b", "vllm-mods build p --platform a/b"),
        ("vllm-mods build p", "lock p --platform a/b,c/d", "vllm-mods build p"),
        ("vllm-mods lock p", "lock p --platform a/b,c/d", "vllm-mods lock p --platform a/b,c/d"),
    ],
)  # fmt: skip
def test_a_command_in_a_hint_has_the_options_of_the_call(
    hint: str, arguments: str, kept: str
) -> None:
    assert keep(hint, shlex.split(arguments)) == kept
