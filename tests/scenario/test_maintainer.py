"""The maintainer of a library: each night a clone, ``keep --pull-requests``, and in between what people do at the forge."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import emulated_forge
import forge_server
import pytest
from command_line import FILES, LOADER, OTHER, write_library
from forge_server import TOKEN, VARIABLES, ForgeServer
from git_host import commit, git
from package_server import PackageServer, make_wheel, serving, settings_of_none

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOVED = "import sys\n" + LOADER
PORTED = MOVED.replace("class Loader:", "class Loader(object):")
BROKEN = OTHER.replace("LIMIT = 1", "LIMIT = 7")


def wheel(version: str, loader: str, other: str = OTHER) -> dict[str, bytes]:
    changed = {"vllm/loader.py": loader.encode(), "vllm/other.py": other.encode()}
    name = f"vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl"
    return {name: make_wheel({**FILES, **changed}, version=version, bulk={})}


class Maintainer(NamedTuple):
    """A forge, releases, and a folder for the clone of each night."""

    forge: ForgeServer
    releases: PackageServer
    folder: Path
    capfd: pytest.CaptureFixture[str]
    nights: Iterator[int]

    def keep(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run one night's job in a fresh clone; return the exit code, and what became of each request by its branch."""
        clone = self.folder / f"night-{next(self.nights)}"
        git(self.folder, "clone", "-q", str(self.forge.repository), str(clone))
        git(clone, "remote", "set-url", "origin", self.forge.remote)
        os.environ["VLLM_MODS_CACHE"] = (
            f"{clone}-cache"  # the index is not asked again within minutes
        )
        self.forge.asked.clear()
        code = run(["keep", "--library", str(clone), "--pull-requests", "--json", *words])
        out, err = self.capfd.readouterr()
        assert TOKEN not in out + err
        answer = json.loads(out)
        if "requests" not in answer:
            return code, answer["error"]
        steps = answer["requests"]
        return code, {step["branch"].removeprefix("vllm-mods/"): step["did"] for step in steps}

    def states(self) -> dict[str, str]:
        return {
            request.head.removeprefix("vllm-mods/"): request.state
            for request in self.forge.requests
        }

    def tips(self) -> str:
        return git(self.forge.repository, "for-each-ref", "refs/heads")


@pytest.fixture(params=[*VARIABLES, *["emulated"] * bool(emulated_forge.FOLDER)])
def maintainer(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Maintainer]:
    """A library of two mods at a forge, up to date with 0.19.0; 0.20.0 and 0.21.0 came out since."""
    settings_of_none(tmp_path, monkeypatch)
    for name in ("CI_JOB_TOKEN", "VLLM_MODS_LIBRARY", *itertools.chain(*VARIABLES.values())):
        monkeypatch.delenv(name, raising=False)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "An Author")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "author@example.org")
    library = write_library(tmp_path / "library")
    for manifest in library.glob("patches/*/mod.toml"):
        manifest.write_text(manifest.read_text().replace(">=0.19", "==0.19.0"))
    files = wheel("0.19.0", LOADER) | wheel("0.20.0", MOVED) | wheel("0.21.0", PORTED, BROKEN)
    index = PackageServer(files=files, json=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(serving(index))
        if request.param == "emulated":
            forge = stack.enter_context(
                forge_server.serving("github", tmp_path / "forge", emulated_forge.EmulatedForge)
            )
            assert isinstance(forge, emulated_forge.EmulatedForge)
            stack.enter_context(emulated_forge.emulating(forge, tmp_path))
        else:
            forge = stack.enter_context(forge_server.serving(request.param, tmp_path / "forge"))
        monkeypatch.setenv("PIP_INDEX_URL", index.index)
        server, token = VARIABLES[forge.kind]
        monkeypatch.setenv(server, forge.url)
        monkeypatch.setenv(token, TOKEN)
        words = ("--update-lock", "--library", str(library), "--vllm", "==0.19.0", "--jobs", "1")
        assert run(["matrix", "fast", "limit", *words]) == 0
        git(library, "init", "-q", "-b", "main")
        git(library, "add", "-A")
        git(library, "commit", "-qm", "first")
        git(library, "push", "-q", str(forge.repository), "main")
        capfd.readouterr()
        yield Maintainer(forge, index, tmp_path, capfd, itertools.count(1))


@pytest.mark.slow
def test_a_library_is_kept_up_by_pull_requests(maintainer: Maintainer) -> None:
    forge = maintainer.forge

    # Two releases: one mod goes in, and is ported; the other one breaks in the second.
    code, steps = maintainer.keep()
    four = ["fast/0.20.0", "fast/0.21.0", "limit/0.20.0", "limit/0.21.0"]
    assert (code, steps) == (1, dict.fromkeys(four, "opened"))
    assert maintainer.states() == dict.fromkeys(four, "open")
    assert {request.base for request in forge.requests} == {"main"}
    port = forge.requests[1]
    assert port.title == "fast: a variant for vLLM 0.21.0"
    assert "| after | applies (variant 0.21) |" in port.body
    assert "-     path" not in port.body
    assert "copy from patches/fast/" in port.body
    assert "+ class Loader(object):" in port.body
    left = forge.requests[3].body
    assert "For a person to look at:" in left
    assert "+<<<<<<< limit, variant a" in left
    assert "port.json" not in left
    assert "mod.lock" not in left + port.body

    # A second run does nothing.
    before = maintainer.tips()
    assert maintainer.keep() == (1, dict.fromkeys(four, "current"))
    assert (forge.written(), maintainer.tips()) == ([], before)

    # The port is merged, as one commit: the request for the release before it is obsolete.
    forge.merge(2, squash=True)
    code, steps = maintainer.keep()
    assert steps == {"fast/0.20.0": "closed", "limit/0.20.0": "current", "limit/0.21.0": "current"}
    assert maintainer.states()["fast/0.20.0"] == "closed"
    assert forge.requests[0].body.startswith(
        "`vllm-mods keep` closed this, because nothing is left"
    )

    # A person closes one, and a newer release comes.
    forge.requests[3].state = "closed"
    maintainer.releases.files |= wheel("0.22.0", PORTED, BROKEN)
    code, steps = maintainer.keep()
    assert steps == {"fast/0.22.0": "opened", "limit/0.20.0": "current", "limit/0.21.0": "declined"}
    assert maintainer.states() == {
        "fast/0.20.0": "closed",
        "fast/0.21.0": "merged",
        "limit/0.20.0": "open",
        "limit/0.21.0": "closed",
        "fast/0.22.0": "open",
    }
    assert len(forge.requests) == 5
    assert forge.written() == [("POST", "")]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_what_is_merged_first_moves_the_branches_that_began_on_it(maintainer: Maintainer) -> None:
    forge = maintainer.forge
    maintainer.keep("fast")
    old = git(forge.repository, "rev-parse", "vllm-mods/fast/0.21.0")
    forge.merge(1, squash=True)
    assert maintainer.keep("fast") == (0, {"fast/0.21.0": "updated"})
    assert git(forge.repository, "rev-parse", "vllm-mods/fast/0.21.0") != old
    assert git(forge.repository, "rev-list", "--count", "main..vllm-mods/fast/0.21.0") == "1"
    assert maintainer.keep("fast") == (0, {"fast/0.21.0": "current"})
    # merged as a merge, so the branch's commits are in `main`: nothing moves
    maintainer.releases.files |= wheel("0.22.0", PORTED)
    assert maintainer.keep("fast") == (0, {"fast/0.21.0": "current", "fast/0.22.0": "opened"})
    forge.merge(2)
    before = git(forge.repository, "rev-parse", "vllm-mods/fast/0.22.0")
    assert maintainer.keep("fast") == (0, {"fast/0.22.0": "current"})
    assert git(forge.repository, "rev-parse", "vllm-mods/fast/0.22.0") == before


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_commits_of_others_stay(maintainer: Maintainer) -> None:
    forge = maintainer.forge
    maintainer.keep("fast")
    work = maintainer.folder / "work"
    git(
        maintainer.folder,
        "clone",
        "-q",
        "-b",
        "vllm-mods/fast/0.21.0",
        str(forge.repository),
        str(work),
    )
    theirs = commit(work, {"patches/fast/NOTES": "looked at\n"})
    git(work, "push", "-q", "origin", "HEAD")
    assert maintainer.keep("fast") == (0, {"fast/0.20.0": "current", "fast/0.21.0": "updated"})
    assert "+looked at" in forge.requests[1].body
    forge.merge(1, squash=True)
    code, steps = maintainer.keep("fast")
    assert (code, steps) == (1, {"fast/0.21.0": "updated"})
    assert git(forge.repository, "rev-parse", "vllm-mods/fast/0.21.0") == theirs
    # Nor does one that was amended count as ours.
    git(work, "reset", "-q", "--hard", "HEAD~1")
    (work / "patches/fast/NOTES").write_text("amended\n")
    git(work, "add", "-A")
    git(work, "commit", "-q", "--amend", "--no-edit")
    git(work, "push", "-q", "--force", "origin", "HEAD")
    amended = git(work, "rev-parse", "HEAD")
    assert maintainer.keep("fast") == (1, {"fast/0.21.0": "updated"})
    assert git(forge.repository, "rev-parse", "vllm-mods/fast/0.21.0") == amended


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_dry_run_says_what_would_be_done(maintainer: Maintainer) -> None:
    before = maintainer.tips()
    assert maintainer.keep("fast", "--dry-run") == (
        0,
        {"fast/0.20.0": "opened", "fast/0.21.0": "opened"},
    )
    assert (maintainer.forge.written(), maintainer.tips()) == ([], before)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_what_was_cut_off_is_gone_on_with(maintainer: Maintainer) -> None:
    forge = maintainer.forge
    forge.answers += [(200, {}, []), (500, {}, {"message": "down"})]
    code, error = maintainer.keep("fast", "--vllm", "==0.20.0")
    assert (code, error["code"]) == (3, "refused")
    assert "the answer is 500: " in error["message"]
    assert "vllm-mods/fast/0.20.0" in maintainer.tips()
    assert maintainer.keep("fast", "--vllm", "==0.20.0") == (0, {"fast/0.20.0": "opened"})
    assert len(forge.requests) == 1
