"""``keep``: branches for new releases, stacked, made once, with nothing else of the repository changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from histories import grow
from package_server import PackageServer, make_wheel, serving, settings_of_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from command_line import Answer

    Call = Callable[..., Answer]

MOVED = "import sys\n" + LOADER
PORTED = MOVED.replace("class Loader:", "class Loader(object):")
LANDED = PORTED.replace('"weights"', '"fast"', 1)
CLASHING = PORTED.replace('"weights"', '"heavy"', 1)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def branches(folder: Path) -> list[str]:
    return git(folder, "branch", "--list", "vllm-mods/*", "--format=%(refname:short)").split()


def releases(
    folder: Path, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]
) -> Iterator[PackageServer]:
    settings_of_none(folder, monkeypatch)
    files = {
        f"vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl": make_wheel(
            {**FILES, "vllm/loader.py": text.encode()}, version=version, bulk={}
        )
        for version, text in texts.items()
    }
    with serving(PackageServer(files=files, json=True)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


@pytest.fixture
def kept(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library in a repository, up to date with 0.19.0, in an index where more came out since."""
    monkeypatch.delenv("VLLM_MODS_LIBRARY", raising=False)
    for name, value in {"NAME": "An Author", "EMAIL": "author@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    texts = {
        "0.19.0": LOADER,
        "0.20.0": MOVED,
        "0.21.0": PORTED,
        "0.22.0": PORTED,
        "0.23.0": CLASHING,
    }
    texts["0.24.0"] = CLASHING
    manifest = library / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text().replace(">=0.19", "==0.19.0"))
    git(library, "init", "-q", "-b", "main")
    for _ in releases(tmp_path, monkeypatch, texts):
        yield library


def lock(call: Call, library: Path) -> None:
    words = ("--update-lock", "--library", library, "--vllm", "==0.19.0", "--jobs", "1")
    assert call("matrix", "fast", *words).code == 0
    git(library, "add", "-A")
    git(library, "commit", "-qm", "first")


@pytest.mark.slow
def test_of_an_unfinished_port_that_was_committed_the_true_place_and_the_command_are_told(
    call: Call, kept: Path
) -> None:
    lock(call, kept)
    assert call("port", "fast", "--to", "pypi:0.23.0", "--library", kept).code == 1
    git(kept, "add", "-A")
    git(kept, "commit", "-qm", "with an unfinished port")
    told = call("keep", "fast", "--library", kept, "--since", "0.22.0")
    assert told.code == 1
    assert f"{kept}/patches/fast/.port-0.23 exists: an earlier port is not finished" in told.out
    assert f"vllm-mods port fast --continue --library {kept}" in told.out
    assert "/tree/" not in told.out
    assert call("port", "fast", "--abort", "--library", kept).code == 0


@pytest.mark.slow
def test_each_new_release_is_a_branch_on_the_one_before_until_a_person_is_needed(
    call: Call, kept: Path
) -> None:
    lock(call, kept)
    (kept / "mine.txt").write_text("not committed\n")
    before = (git(kept, "rev-parse", "HEAD"), git(kept, "status", "--porcelain"))
    done = call("keep", "fast", "--library", kept)
    assert done.code == 1, done.err
    assert branches(kept) == [f"vllm-mods/fast/0.2{n}.0" for n in range(4)]
    assert (git(kept, "rev-parse", "HEAD"), git(kept, "status", "--porcelain")) == before

    def at(release: str, path: str) -> str:
        return git(kept, "show", f"vllm-mods/fast/{release}:{path}")

    assert 'vllm = ">=0.19.0,<=0.20.0"' in at("0.20.0", "patches/fast/mod.toml")
    assert 'id = "0.21"' in at("0.21.0", "patches/fast/mod.toml")
    assert '"0.21.0"' in at("0.21.0", "patches/fast/mod.lock")
    assert 'vllm = ">=0.21.0,<=0.22.0"' in at("0.22.0", "patches/fast/mod.toml")
    assert "<<<<<<< " in at("0.23.0", "patches/fast/.port-0.23/files/vllm/loader.py")
    body = git(kept, "log", "-1", "--format=%B", "vllm-mods/fast/0.23.0")
    assert "For a person to look at:" in body
    assert "`Loader.load` of vllm/loader.py" in body
    graph = git(kept, "log", "--format=%s", "vllm-mods/fast/0.23.0").splitlines()
    assert len(graph) == 5

    tips = git(kept, "for-each-ref")
    again = call("keep", "fast", "--library", kept, "--json")
    assert again.code == 1
    assert [one["did"] for one in again.json["branches"]] == ["there"] * 3 + ["waits"]
    assert git(kept, "for-each-ref") == tips


@pytest.mark.slow
def test_what_a_person_finished_is_gone_on_from(call: Call, kept: Path) -> None:
    lock(call, kept)
    assert call("keep", "fast", "--library", kept).code == 1
    git(kept, "checkout", "-q", "vllm-mods/fast/0.23.0")
    edited = kept / "patches/fast/.port-0.23/files/vllm/loader.py"
    edited.write_text(CLASHING.replace('"heavy"', '"fast"', 1))
    assert call("port", "fast", "--continue", "--library", kept).code == 0
    git(kept, "add", "-A")
    git(kept, "commit", "-qm", "by hand")
    git(kept, "checkout", "-q", "main")
    done = call("keep", "fast", "--library", kept, "--json")
    assert done.code == 0, done.out
    assert [one["did"] for one in done.json["branches"]] == ["there"] * 4 + ["widened"]
    assert "by hand" in git(kept, "log", "--format=%s", "vllm-mods/fast/0.24.0")


@pytest.mark.slow
@pytest.mark.parametrize("quote", ['"', "'"])
def test_the_range_that_is_widened_is_that_of_the_variant_which_goes_in(
    call: Call, kept: Path, quote: str
) -> None:
    manifest = kept / "patches/fast/mod.toml"
    head, _, block = manifest.read_text().partition("[[variant]]\n")
    lines = [line.replace('"', quote) for line in block.splitlines()]
    first = "\n".join(sorted(lines, reverse=True))  # vllm stands before id
    other = first.replace(f"{quote}a{quote}", f"{quote}ab{quote}").replace("==0.19.0", "==0.18.0")
    manifest.write_text(f"{head}[[variant]]\n{first}\n\n[[variant]]\n{other}\n")
    wanted = tomllib.loads(manifest.read_text())
    wanted["variant"][0]["vllm"] = ">=0.19.0,<=0.20.0"
    lock(call, kept)
    done = call("keep", "fast", "--library", kept, "--vllm", "<0.21")
    assert done.code == 0, done.err
    text = git(kept, "show", "vllm-mods/fast/0.20.0:patches/fast/mod.toml")
    assert tomllib.loads(text) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--vllm", "==0.21.0"), ("--since", "0.20.0")])
def test_a_release_that_was_passed_over_is_looked_at_before_the_range_holds_it(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    lock(call, kept)
    (tmp_path / "other").mkdir()
    texts = {"0.19.0": LOADER, "0.19.1": MOVED, "0.20.0": CLASHING, "0.21.0": MOVED}
    for _ in releases(tmp_path / "other", monkeypatch, texts):
        done = call("keep", "fast", "--library", kept, *words)
        assert done.code == 0, done.err
        shown = git(kept, "show", "vllm-mods/fast/0.21.0:patches/fast/mod.toml")
        assert 'vllm = ">=0.19.0,<=0.21.0,!=0.20.0"' in shown
        body = git(kept, "log", "-1", "--format=%B", "vllm-mods/fast/0.21.0")
        assert "the variant does not apply to vLLM 0.20.0, so the range leaves it out" in body


@pytest.mark.slow
def test_pre_releases_are_looked_at_where_they_are_wanted(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(call, kept)
    (tmp_path / "other").mkdir()
    for _ in releases(tmp_path / "other", monkeypatch, {"0.19.0": LOADER, "0.20.0rc1": MOVED}):
        assert call("keep", "fast", "--library", kept, "--json").json["branches"] == []
        words = ("keep", "fast", "--library", kept, "--pre", "--json")
        assert [one["release"] for one in call(*words).json["branches"]] == ["0.20.0rc1"]


@pytest.mark.slow
def test_an_older_release_widens_the_range_downwards(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(call, kept)
    (tmp_path / "other").mkdir()
    texts = {"0.17.0": MOVED, "0.18.0": CLASHING, "0.19.0": LOADER}
    for _ in releases(tmp_path / "other", monkeypatch, texts):
        words = ("--since", "0.1", "--vllm", "==0.17.0")
        done = call("keep", "fast", "--library", kept, *words)
        assert done.code == 0, done.err
        shown = git(kept, "show", "vllm-mods/fast/0.17.0:patches/fast/mod.toml")
        assert 'vllm = ">=0.17.0,<=0.19.0,!=0.18.0"' in shown


def test_a_release_that_carries_the_change_ends_the_range(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = kept / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text().replace("==0.19.0", ">=0.19"))
    lock(call, kept)
    (tmp_path / "other").mkdir()
    texts = {"0.19.0": LOADER, "0.20.0": LOADER.replace('"weights"', '"fast"', 1)}
    for _ in releases(tmp_path / "other", monkeypatch, texts):
        done = call("keep", "fast", "--library", kept)
        assert done.code == 0, done.err
        shown = git(kept, "show", "vllm-mods/fast/0.20.0:patches/fast/mod.toml")
        assert 'vllm = ">=0.19,<0.20.0"' in shown


@pytest.mark.slow
@pytest.mark.parametrize("stated", ["==0.20.0", ">=0.20.0,<0.21"])
def test_a_variant_for_a_release_alone_that_carries_the_change_gets_no_empty_range(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    manifest = kept / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text().replace("==0.19.0", stated))
    git(kept, "add", "-A")
    git(kept, "commit", "-qm", "first")
    (tmp_path / "other").mkdir()
    texts = {"0.19.0": LOADER, "0.20.0": LOADER.replace('"weights"', '"fast"', 1)}
    for _ in releases(tmp_path / "other", monkeypatch, texts):
        done = call("keep", "fast", "--library", kept, "--since", "0.19.0")
        assert done.code == 1, done.err
        assert (
            f"variant `a` ({stated}) covers only releases that already have the change" in done.out
        )
        assert branches(kept) == []


@pytest.mark.slow
def test_a_library_below_the_top_of_its_repository(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    inner = top / "inner"
    os.rename(kept, inner)
    os.rename(inner / ".git", top / ".git")
    (top / "beside.txt").write_text("stays\n")
    monkeypatch.chdir(tmp_path)
    words = ("--update-lock", "--library", inner, "--vllm", "==0.19.0", "--jobs", "1")
    assert call("matrix", "fast", *words).code == 0
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    assert call("keep", "fast", "--library", inner, "--vllm", "<0.22").code == 0
    changed = git(top, "diff", "--name-only", "main", "vllm-mods/fast/0.20.0").split()
    assert changed == ["inner/patches/fast/mod.lock", "inner/patches/fast/mod.toml"]


@pytest.mark.slow
def test_a_release_that_only_the_working_tree_knows_is_looked_at(call: Call, kept: Path) -> None:
    # each branch begins at the last commit, whose mod.lock lacks what a matrix has recorded since
    lock(call, kept)
    words = ("--update-lock", "--library", kept, "--vllm", ">=0.19,<0.21", "--jobs", "1")
    assert call("matrix", "fast", *words).code == 0
    assert git(kept, "status", "--porcelain") == "M patches/fast/mod.lock"
    assert call("keep", "fast", "--library", kept, "--vllm", "<0.21").code == 0
    assert branches(kept) == ["vllm-mods/fast/0.20.0"]
    shutil.copytree(kept / "patches/fast", kept / "patches/fresh")
    manifest = kept / "patches/fresh/mod.toml"
    manifest.write_text(manifest.read_text().replace('name = "fast"', 'name = "fresh"'))
    fresh = call("keep", "fresh", "--library", kept)
    assert (fresh.code, "has no mod fresh in its last commit" in fresh.err) == (2, True)


@pytest.mark.parametrize("since", ["0.33.O", ""])
def test_a_release_to_begin_at_has_to_be_a_version(call: Call, kept: Path, since: str) -> None:
    empty = call("keep", "fast", "--library", kept)
    assert (empty.code, "the repository has no commit yet" in empty.err) == (2, True)
    assert empty.err.endswith("hint: git commit\n")
    typo = call("keep", "fast", "--library", kept, "--since", since)
    assert (typo.code, f"--since {since}: not a version" in typo.err) == (2, True)
    assert branches(kept) == []


@pytest.mark.slow
def test_no_repository_no_author_no_such_mod(
    call: Call, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(call, kept)
    wrong = call("keep", "flashqla", "--library", kept)
    assert (wrong.code, "has no mod flashqla" in wrong.err) == (2, True)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "")
    nobody = call("keep", "fast", "--library", kept)
    assert nobody.code == 3
    assert "git config user.name" in nobody.err
    assert branches(kept) == []
    os.rename(kept / ".git", kept / "gone")
    nowhere = call("keep", "fast", "--library", kept)
    assert nowhere.code == 2
    assert "is not in the working tree of a git repository," in nowhere.err


def upstreams(folder: Path, *steps: tuple[str, str, str]) -> Path:
    """Make a repository of vLLM: a commit for each subject and loader, a tag where there is one."""
    folder.mkdir()
    rest = {path: data.decode() for path, data in FILES.items()}
    ids = grow(folder, *((subject, {**rest, "vllm/loader.py": text}) for _, subject, text in steps))
    for (tag, _, _), commit in zip(steps, ids, strict=True):
        if tag:
            git(folder, "tag", tag, commit)
    return folder


@pytest.mark.slow
def test_the_newest_commit_is_a_build_with_a_branch_of_its_own(
    call: Call, kept: Path, tmp_path: Path
) -> None:
    lock(call, kept)
    upstream = upstreams(
        tmp_path / "upstream", ("v0.20.0", "First", MOVED), ("", "Load another way (#4711)", PORTED)
    )
    words = ("fast", "--library", kept, "--vllm", "<0.21", "--commits", upstream)
    done = call("keep", *words)
    assert done.code == 0, done.out
    build = "0.20.1.dev1+g" + git(upstream, "rev-parse", "--short", "HEAD")
    assert branches(kept) == ["vllm-mods/fast/0.20.0", f"vllm-mods/fast/{build}"]
    manifest = git(kept, "show", f"vllm-mods/fast/{build}:patches/fast/mod.toml")
    assert f'vllm = "=={build}"' in manifest
    assert f'"{build}"' in git(kept, "show", f"vllm-mods/fast/{build}:patches/fast/mod.lock")
    again = call("keep", *words, "--json")
    assert [one["did"] for one in again.json["branches"]] == ["there", "there"]
    git(upstream, "tag", "-d", "v0.20.0")
    untagged = call("keep", *words)
    assert untagged.code == 2
    assert "so its version is unknown" in untagged.err


@pytest.mark.slow
def test_a_build_that_a_variant_goes_into_widens_its_range(
    call: Call, kept: Path, tmp_path: Path
) -> None:
    lock(call, kept)
    upstream = upstreams(
        tmp_path / "upstream", ("v0.20.0", "First", MOVED), ("", "More", "# more\n" + MOVED)
    )
    done = call("keep", "fast", "--library", kept, "--vllm", "<0.21", "--commits", upstream)
    assert done.code == 0, done.out
    manifest = git(kept, "show", f"{branches(kept)[-1]}:patches/fast/mod.toml")
    assert 'vllm = ">=0.19.0,<=0.20.1.dev1"' in manifest
