"""``bisect`` in repositories made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from command_line import FILES, LOADER, OTHER
from histories import git, grow
from mod_making import diff_of, write_mod

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

START = {path: data.decode() for path, data in FILES.items()}
# `load` reads its names another way, in the lines that the mod `fast` changes
BROKEN = LOADER.replace(
    'path = os.path.join("weights", name)', "path = os.path.join(self.root, name)"
)
MOVED = f"# A comment\n{LOADER}"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Return a repository of 60 commits, 3 of which touch the loader; the 41st breaks the mod."""
    folder = tmp_path / "vllm repo"
    folder.mkdir()
    steps: list[tuple[str, dict[str, str | None]]] = [("Start (#1)", {**START})]
    steps += [(f"Noise {i} (#{i})", {"vllm/noise.py": f"N = {i}\n"}) for i in range(2, 61)]
    steps[10] = ("[Docs] Comment (#4002)", {"vllm/loader.py": MOVED})
    steps[40] = ("[Loader] Names from a root (#4711)", {"vllm/loader.py": f"# A comment\n{BROKEN}"})
    steps[50] = ("[Loader] Tidy up (#4800)", {"vllm/loader.py": f"# A comment\n\n{BROKEN}"})
    grow(folder, *steps)
    git(folder, "tag", "v0.19.0", "main~59")
    return folder


@pytest.mark.slow
def test_the_commit_its_pull_request_and_the_hunk(call: Call, repo: Path) -> None:
    (repo / "vllm/loader.py").write_text("edited\n")
    before = git(repo, "status", "--porcelain=v2", "--branch")
    answer = call("bisect", "fast", "--repo", repo, "--good", "v0.19.0", "--bad", "main")
    assert (answer.code, answer.err) == (0, "")
    sha = git(repo, "rev-parse", "main~19")
    assert answer.out.splitlines() == [
        "fast 1.0.0",
        "  v0.19.0: applies: every hunk matches at its stated line (variant a)",
        "  main: conflict: the source does not match the patch",
        "  59 commits, 3 of them touch a file that the verdict depends on; 8 checks",
        f"the verdict changes at {sha[:12]}, 2023-11-14: [Loader] Names from a root (#4711)",
        "  pull request: #4711",
        "  before: moved: every hunk matches, at another line (variant a)",
        "  after:  conflict: the source does not match the patch",
        "    vllm/loader.py, hunk 1 of x.patch (`Loader`): line 7 is `path = os.path.join(self.root, name)`,",
        '      but the patch has `path = os.path.join("weights", name)` [text]',
    ]
    assert git(repo, "status", "--porcelain=v2", "--branch") == before


@pytest.mark.slow
def test_json_agrees_with_check(call: Call, repo: Path) -> None:
    found = call(
        "bisect", "fast", "--repo", repo, "--good", "v0.19.0", "--bad", "main", "--json"
    ).json
    assert (found["schema"], found["found"], found["repository"]) == (1, True, str(repo))
    assert (found["points"], found["touching"]) == (59, 3)
    assert found["after"]["pull_request"] == 4711
    assert found["after"]["subject"] == "[Loader] Names from a root (#4711)"
    assert found["after"]["findings"][0]["hunk"] == 1
    for name in ("good", "before", "after", "bad"):
        one = found[name]
        checked = call("check", "fast", "--target", one["tree"], "--json").json
        assert checked["tree"] == {"spec": one["tree"], "version": one["version"]}
        (mod,) = checked["mods"]
        assert {key: one[key] for key in ("verdict", "variant", "in_range", "findings")} == {
            key: mod[key] for key in ("verdict", "variant", "in_range", "findings")
        }
    assert found["before"]["commit"] == git(repo, "rev-parse", f"{found['after']['commit']}^")


@pytest.mark.slow
def test_the_same_verdict_at_both_ends(call: Call, repo: Path) -> None:
    ends = ("--repo", repo, "--good", "v0.19.0", "--bad", "main")
    answer = call("bisect", "limit", *ends)
    assert answer.code == 1
    assert "the verdict is the same at both revisions" in answer.out
    assert "59 commits, 0 of them touch a file that the verdict depends on; 2 checks" in answer.out
    found = call("bisect", "limit", *ends, "--json").json
    assert (found["found"], found["before"], found["after"]) == (False, None, None)


@pytest.mark.slow
def test_another_file_that_the_fit_rests_on(call: Call, library: Path, tmp_path: Path) -> None:
    patched = LOADER.replace(
        '"weights", name)\n        return path\n\n\nclass Saver',
        '"weights", name)\n        limit()\n        return path\n\n\nclass Saver',
    ).replace("import os\n", "import os\n\nfrom vllm.other import limit\n")
    write_mod(library, "calls", diff_of("vllm/loader.py", LOADER, patched))
    taken = OTHER.replace("def limit()", "def limit(unit)")
    steps = [(f"Noise {i}", {"vllm/noise.py": f"N = {i}\n"}) for i in range(20)]
    shas = grow(
        tmp_path,
        ("Start", START),
        *steps[:7],
        ("limit has a unit", {"vllm/other.py": taken}),
        *steps[7:],
    )
    found = call(
        "bisect", "calls", "--repo", tmp_path, "--good", shas[0], "--bad", "main", "--json"
    ).json
    assert found["after"]["commit"] == shas[8]
    assert found["after"]["pull_request"] is None
    assert (found["before"]["verdict"], found["after"]["verdict"]) == ("applies", "unfit")
    assert "unit" in found["after"]["findings"][0]["message"]


@pytest.mark.slow
def test_a_change_that_a_merge_brought(call: Call, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "side", "main~30")
    (repo / "vllm/noise.py").write_text("N = 0\n")
    git(repo, "commit", "-qam", "On the side")
    (repo / "vllm/other.py").write_text(OTHER.replace("LIMIT = 1", "LIMIT = 7"))
    git(repo, "commit", "-qam", "Another limit")
    git(repo, "checkout", "-q", "main")
    git(
        repo, "merge", "-q", "-X", "ours", "--no-ff", "side", "-m", "Merge pull request #9 from a/b"
    )
    git(repo, "commit", "-q", "--allow-empty", "-m", "Later")
    ends = ("--repo", repo, "--good", "v0.19.0", "--bad", "main")
    answer = call("bisect", "limit", *ends)
    sha = git(repo, "rev-parse", "main~1")[:12]
    assert answer.code == 0
    assert f"the verdict changes at {sha}, " in answer.out
    assert "pull request: #9" in answer.out
    hint = f"--good {sha}^1 --bad {sha}^2"
    assert hint in answer.out
    inner = call("bisect", "limit", "--repo", repo, *hint.split(), "--json").json
    assert inner["after"]["subject"] == "Another limit"
    assert inner["points"] == 2


@pytest.mark.slow
def test_a_good_end_on_a_branch_of_its_own(call: Call, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "release", "main~55")
    (repo / "vllm/noise.py").write_text("N = 0\n")
    git(repo, "commit", "-qam", "Only in the release")
    found = call(
        "bisect", "fast", "--repo", repo, "--good", "release", "--bad", "main", "--json"
    ).json
    assert found["after"]["pull_request"] == 4711
    assert found["points"] == 55

    (repo / "vllm/loader.py").write_text(BROKEN)
    git(repo, "commit", "-qam", "Broken in the release")
    answer = call("bisect", "fast", "--repo", repo, "--good", "release", "--bad", "main~30")
    assert answer.code == 2
    fork = git(repo, "rev-parse", "main~55")[:12]
    why = f"the verdict is `conflict` at release, but `applies` at the merge base {fork}"
    assert f"release is not an ancestor of main~30: {why}" in answer.err
    assert f"--good {fork} --bad release" in answer.err
    answer = call("bisect", "fast", "--repo", repo, "--good", fork, "--bad", "release", "--json")
    assert answer.json["after"]["subject"] == "Broken in the release"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--good", "main", "--bad", "v0.19.0"), "--good v0.19.0 --bad main"),
        (("--good", "main", "--bad", "main"), "main and main are the same commit"),
        (("--good", "nope", "--bad", "main"), "no revision nope"),
        (("--good", "v0.19.0", "--bad", "main", "--variant", "z"), "--variant a"),
    ],
)
def test_ends_that_are_none(
    call: Call, repo: Path, arguments: tuple[str, ...], message: str
) -> None:
    answer = call("bisect", "fast", "--repo", repo, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


def test_what_is_no_repository(call: Call, tmp_path: Path) -> None:
    answer = call("bisect", "fast", "--repo", tmp_path, "--good", "a", "--bad", "b")
    assert answer.code == 2
    assert "is not a git repository" in answer.err
