"""Every reader of bytes that somebody else wrote has a limit: past it is one error that says so, in little memory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import tree_bomb
from command_line import OTHER, write_library
from lowering import lower
from memory_tree import MemoryTree
from mod_making import mod, variant
from small_site import FILES, build

from vllm_mods.base import limits, untrusted
from vllm_mods.base.errors import DiffError, ManifestError, TreeError, UsageError
from vllm_mods.cli import run
from vllm_mods.formats import diff
from vllm_mods.images import names
from vllm_mods.making import from_diff
from vllm_mods.planning import planner
from vllm_mods.trees import git
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

_MEMORY = 1 << 30
_TOO_MUCH = 20 << 30
_PAIRING = """schema = 1
name = "small"
summary = "s"
model = "a/b"
base = "a/b:c"
command = "vllm serve a/b"
"""


def _sparse(place: Path, head: bytes = b"") -> None:
    """Have a file begin so, and go on with 20 GiB of zeros that take no room."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.write_bytes(head)
    os.truncate(place, _TOO_MUCH)


_READERS = {  # the file of 20 GiB, how it begins, and a command that reads it
    "mod.toml": ("lib/patches/limit/mod.toml", b"", "check limit --library lib --target site"),
    "mod.lock": ("lib/patches/limit/mod.lock", b"{", "check limit --library lib --target site"),
    "patch": ("lib/patches/limit/x.patch", b"", "check limit --library lib --target site"),
    "listed patch": ("lib/patches/limit/x.patch", b"", "list --library lib"),
    "overlay": ("lib/patches/over/over.py", b"", "check over --library lib --target site"),
    "template.toml": ("lib/templates/t/template.toml", b"", "template check t --library lib"),
    "template": ("lib/templates/t/template.jinja", b"", "template check t --library lib"),
    "template's file": ("t.jinja", b"", "template check t.jinja"),
    "conversation": ("lib/templates/t/conversations/a.json", b"", "template check t --library lib"),
    "tokenizer's": ("model/tokenizer_config.json", b"", "template check model"),
    "request": ("request.json", b"", "template render qwen3.5-enhanced request.json"),
    "pairing": ("lib/pairings/small.toml", b"", "show small --library lib"),
    "pairing's lock": ("lib/pairings/small.lock", b"{", "upgrade small --library lib"),
    "lock of an image": ("x.lock", b"{", "image verify oci:layout --lock x.lock"),
    "project": ("vllm-mods.toml", b"", "sync"),
    "project's lock": ("vllm-mods.lock", b"", "sync"),
    "receipt": ("site/.vllm-mods/receipt.json", b"{", "status --target site"),
    "journal": ("site/.vllm-mods.work-1/journal.json", b"{", "apply limit --library lib --target site"),
    "RECORD": ("site/vllm-0.19.1.dist-info/RECORD", b"", "apply limit --library lib --target site"),
    "METADATA": ("site/vllm-0.19.1.dist-info/METADATA", b"", "doctor --target site"),
    "path file": ("site/x.pth", b"", "doctor --target site"),
    "vllm's file": ("site/vllm/other.py", b"", "check limit --library lib --target site"),
    "version": ("site/vllm/_version.py", b"", "check limit --library lib --target site"),
    "recipe": ("recipe.yaml", b"a: b\n#", "import recipe.yaml"),
    "script": ("mod/run.sh", b"#!/bin/sh\n", "import mod --tree site --library lib"),
    "diff": ("x.diff", b"", "new x --from-diff x.diff --tree site --library lib"),
    "mod in a zip": ("x.zip", b"PK\3\4", "import x.zip --tree site --library lib"),
    "wheel": ("vllm-0.19.1-py3-none-any.whl", b"PK\3\4", "check limit --library lib --target wheel:"),
    "sdist": ("vllm-0.19.1.tar.gz", b"\x1f\x8b", "check limit --library lib --target sdist:"),
    "index of an image": ("layout/index.json", b"{", "image inspect oci:layout"),
    "config.json": ("model/config.json", b"{", "suggest model"),
    "safetensors index": ("model/model.safetensors.index.json", b"{", "suggest model"),
    "safetensors": (
        "model/model.safetensors", struct.pack("<Q", 10 << 30) + b"{", "suggest model"
    ),
    "log": ("server.log", b"", "evidence limit --library lib --log server.log"),
}  # fmt: skip


def _laid_out(place: Path) -> None:
    write_library(place / "lib")
    build(place / "site", {**FILES, "vllm/other.py": OTHER.encode(), "vllm/_version.py": b""})
    over = place / "lib/patches/over"
    over.mkdir()
    manifest = (place / "lib/patches/limit/mod.toml").read_text().replace('"limit"', '"over"')
    over.joinpath("mod.toml").write_text(
        manifest.partition("patches =")[0]
        + 'overlay = [{source = "over.py", path = "vllm/over.py"}]\n'
    )
    for name in ("lib/templates/t/conversations", "lib/pairings", "model", "layout"):
        (place / name).mkdir(parents=True)
    (place / "lib/templates/t/template.jinja").write_text("x")
    (place / "lib/pairings/small.toml").write_text(_PAIRING)
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    (place / "model/config.json").write_text(json.dumps({"model_type": "x"}))


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", _READERS)
def test_a_file_of_gigabytes_is_one_error_and_no_memory(kind: str, tmp_path: Path) -> None:
    name, head, command = _READERS[kind]
    _laid_out(tmp_path)
    _sparse(tmp_path / name, head)
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", *(command + name * command.endswith(":")).split()],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "VLLM_MODS_CACHE": str(tmp_path / "cache")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in said
    if kind in _DONE_WITHOUT:
        assert done.returncode == 0, said
    else:
        assert done.returncode in {1, 2, 3}, said
    assert re.search(_SAID.get(kind, "more than|the limit|not a zip|corrupt"), said), said


_DONE_WITHOUT = {"path file", "version", "journal"}
_SAID = {
    "path file": "",
    "version": "",
    "log": "only the first 64 MiB",
    "script": "the limit is",
    "journal": "the limit is 64 MiB. vllm-mods did not execute it",
}
"""What a command says of a file it does without, or reads the beginning of."""


# ---- patches -----------------------------------------------------------------------------------


def _patch(lines: int) -> bytes:
    return b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -0,0 +1,%d @@\n" % lines + b"+a\n" * lines


@pytest.mark.slow
def test_a_patch_of_a_hundred_megabytes_is_refused_before_a_line_of_it_is_read() -> None:
    whole = _patch(1) + b"#" * 100_000_000
    for read in (diff.parse, diff.read, lambda data, where: [*from_diff._parts(data, where)]):
        with pytest.raises(DiffError, match="more than 4 MiB"):
            read(whole, "x.patch")


def test_patches_of_a_variant_have_one_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one = _patch(9)
    lower(monkeypatch, "PATCH", len(one) * 2)
    several = mod(variant(one, one.replace(b"x.py", b"y.py"), one.replace(b"x.py", b"z.py")))
    with pytest.raises(
        DiffError, match=r"2\.patch:1: this patch and those before it have more than"
    ):
        planner.plan([several], MemoryTree({"vllm/__init__.py": b""}))


# ---- git ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_commit_of_ten_thousand_million_files_is_refused(tmp_path: Path) -> None:
    tree_bomb.write(tmp_path, depth=10)
    with pytest.raises(TreeError, match="cannot list the commit: it prints more than 64 MiB"):
        open_tree(f"git:{tmp_path}@HEAD~1")


@pytest.mark.slow
def test_what_a_commit_takes_away_is_asked_for_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "GIT_MEMORY", 64 << 20)
    tree_bomb.write(tmp_path, depth=10)
    repository = git.Repository(str(tmp_path))
    older, newer = repository.commit("HEAD~1"), repository.commit("HEAD")
    with pytest.raises(TreeError, match="cannot walk the history"):
        repository.line(older, newer)


@pytest.mark.slow
@pytest.mark.parametrize("included", ["/dev/zero", "pipe", "much"])
def test_a_repository_whose_configuration_has_no_end_is_refused(
    included: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "CLONE_SECONDS", 1.0)
    tree_bomb.write(tmp_path, depth=1)
    os.mkfifo(tmp_path / "pipe")
    _sparse(tmp_path / "much")
    with (tmp_path / ".git/config").open("a") as file:
        file.write(f"[include]\n\tpath = {tmp_path / included}\n")
    with pytest.raises(UsageError, match=r"is not a git repository|within 1\.0 seconds"):
        open_tree(f"git:{tmp_path}@HEAD~1")


# ---- TOML --------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["a", "[a", "[[a", "x = {a"])
def test_keys_of_half_a_million_parts_are_refused_at_once(head: str) -> None:
    with pytest.raises(ManifestError, match="more than 1,000 dots"):
        untrusted.toml_of(f"{head}{'.a' * 500_000} = 1".encode(), "mod.toml")


def test_toml_that_is_just_within_its_limits_is_read_in_seconds() -> None:
    line = f"a{'.a' * limits.DOTS} = 1\n"
    started = time.monotonic()
    with pytest.raises(ManifestError):
        untrusted.toml_of((line * (limits.MANIFEST // len(line))).encode(), "mod.toml")
    assert time.monotonic() - started < 5


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("end", ["a\tb", "a\nb", "\udcff", " ", "a" * 5000, "@{", "HEAD:vllm"])
@pytest.mark.parametrize("tree", ["git:{}@", "git:{}@HEAD..", "image:registry:127.0.0.1:9/a:"])
def test_a_revision_or_tag_that_is_none_is_said(tree: str, end: str, tmp_path: Path) -> None:
    tree_bomb.write(tmp_path, depth=1)
    command = "matrix" if "HEAD.." in tree else "check"
    option = "--tree" if command == "matrix" else "--target"
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = run([command, "hybrid-int4-fp8", option, tree.format(tmp_path) + end])
    assert code == 2, said.getvalue()
    assert "Traceback" not in said.getvalue()


@pytest.mark.parametrize("host", ["[:::::]", "[::1", "[]", "[::1]:99999999", "a:999999", "[g]"])
def test_a_host_that_is_none_is_no_image(host: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        names.parse(f"{host}/a:b" if "." in host or ":" in host else f"{host}:1/a:b")


def test_a_registry_at_an_address_of_ipv6_is_one() -> None:
    assert names.parse("[::1]:5000/a:b").host == "[::1]:5000"
