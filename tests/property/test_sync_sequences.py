"""``sync --check`` after any sequence of commands, edits and installations says what a model of the tree says."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_host import mod, write
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sampling import ALL
from small_site import FILES, build, snapshot

import vllm_mods as vm
from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGE = """\
schema = 1
name = "change"
version = "{version}"
summary = "A line"
license = "MIT"
[[variant]]
id = "all"
vllm = ">=0.1"
patches = ["one.patch"]
"""
PATHS = {"fast": "vllm/fast.py", "slow": "vllm/slow.py", "change": "vllm/a.py"}
TEXTS = (b"A = 2\n", b"X = 1\n", b"somebody's\n")
VARIABLES = ("VLLM_MODS_CONFIG", "VLLM_MODS_LIBRARY", "VLLM_MODS_TARGET", "WORKSPACE_DIR")
mods = st.sampled_from(sorted(PATHS))


def library(number: int) -> dict[str, str]:
    """Return the files of the library's first or second version: of `slow` nothing is new."""
    patch = f"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-A = 1\n+A = {number + 1}\n"
    own = {
        "patches/change/mod.toml": CHANGE.format(version=f"{number}.0.0"),
        "patches/change/one.patch": patch,
    }
    return own | mod("fast", f"{number}.0.0", text=f"X = {number}\n") | mod("slow")


def brought(number: int) -> dict[str, bytes]:
    return {
        "fast": f"X = {number}\n".encode(),
        "slow": b"X = 1\n",
        "change": f"A = {number + 1}\n".encode(),
    }


class Syncs(RuleBasedStateMachine):
    """A tree, a project, and what the tree is to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        here = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.stack.enter_context(contextlib.chdir(here))
        before = dict(os.environ)
        self.stack.callback(os.environ.update, before)
        self.stack.callback(os.environ.clear)
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ |= {"VLLM_MODS_CACHE": str(here / "cache"), "HOME": str(here)}
        self.mods, self.tree, self.number = here / "mods", here / "site", 1
        self.wanted: list[str] = []
        build(self.tree)
        write(self.mods, library(1))
        assert self.call("add", "./mods", "--name", "m") == 0
        self.write()

    def teardown(self) -> None:
        self.stack.close()

    def call(self, *words: str) -> int:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return run(list(words))

    def write(self) -> None:
        text = f'schema = 1\nlibraries.m.path = "./mods"\ntargets.default.mods = {self.wanted}\n'
        Path("vllm-mods.toml").write_text(text)

    @rule(wanted=st.lists(mods, unique=True))
    def wants(self, wanted: Sequence[str]) -> None:
        self.wanted = [*wanted]
        self.write()

    @rule()
    def syncs(self) -> None:
        if self.call("sync", "--target", str(self.tree)) == 0:
            assert self.call("sync", "--check", "--target", str(self.tree)) == 0

    @rule(command=st.sampled_from(["apply", "revert"]), name=mods)
    def commands(self, command: str, name: str) -> None:
        self.call(command, name, "--target", str(self.tree))

    @rule()
    def installs_anew(self) -> None:
        for path, data in FILES.items():
            (self.tree / path).write_bytes(data)

    @rule(name=mods, data=st.sampled_from(TEXTS))
    def edits(self, name: str, data: bytes) -> None:
        (self.tree / PATHS[name]).write_bytes(data)

    @rule(name=st.sampled_from(["fast", "slow"]))
    def removes(self, name: str) -> None:
        (self.tree / PATHS[name]).unlink(missing_ok=True)

    @rule()
    def updates(self) -> None:
        self.number = 3 - self.number
        shutil.rmtree(self.mods)
        write(self.mods, library(self.number))
        assert self.call("update") == 0

    @invariant()
    def check_tells_whether_it_holds_what_it_should(self) -> None:
        before = snapshot(self.tree)
        code = self.call("sync", "--check", "--target", str(self.tree))
        assert snapshot(self.tree) == before
        inside = [(one.name, one.version) for one in vm.status(self.tree).mods]
        versions = {"fast": f"{self.number}.0.0", "slow": "1.0.0", "change": f"{self.number}.0.0"}
        texts = brought(self.number)
        original = {name: FILES.get(path) for name, path in PATHS.items()}
        there = {
            name: (self.tree / path).read_bytes() if (self.tree / path).exists() else None
            for name, path in PATHS.items()
        }
        # a mod whose work somebody else has done is none that goes in
        named = {name for name, _ in inside}
        wanted = [one for one in self.wanted if one in named or there[one] != texts[one]]
        holds = inside == [(one, versions[one]) for one in wanted] and all(
            there[name] == (texts[name] if name in self.wanted else original[name])
            for name in named.union(self.wanted)
        )
        assert code in ({0} if holds else {1, 3})


TestSyncs = pytest.mark.slow(Syncs.TestCase)
TestSyncs.settings = settings(
    max_examples=50 if ALL else 8, stateful_step_count=30 if ALL else 10, deadline=None
)
