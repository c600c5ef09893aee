"""``port --history``: upstream's commits tell where files and definitions went, likeness where they do not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from histories import git, grow
from mod_making import diff_of

from vllm_mods.trees.git import Repository
from vllm_mods.trees.history import CommitHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]
    Step = tuple[str, Mapping[str, str | None]]

FIRST: Step = ("first", {path: data.decode() for path, data in FILES.items()})
SAVER = LOADER.partition("class Saver")[2]
LOADING = LOADER.partition("\n\n\nclass Saver")[0] + "\n"
SAVING = "import os\n\n\nclass Saver" + SAVER


def repository(folder: Path, *steps: Step) -> Path:
    """Make a repository whose first commit is v0.19.1 and whose last is v0.20.0."""
    folder.mkdir()
    ids = grow(folder, FIRST, *steps)
    for tag, commit in (("v0.19.1", ids[0]), ("v0.20.0", ids[-1])):
        git(folder, "tag", tag, commit)
    return folder


def port(call: Call, folder: Path, *words: str) -> Answer:
    ends = ("--from", f"git:{folder}@v0.19.1", "--to", f"git:{folder}@v0.20.0")
    return call("port", "fast", *ends, *words)


@pytest.mark.slow
def test_a_file_that_upstream_renamed_and_then_wrote_anew_is_followed(
    call: Call, tmp_path: Path
) -> None:
    decoy = LOADER.replace("Saver", "Keeper")
    folder = repository(
        tmp_path / "repo",
        ("Move the loader (#7)", {"vllm/loader.py": None, "vllm/io/loading.py": LOADER}),
        ("A look-alike", {"vllm/loaders.py": decoy}),
        ("Again (#8)", {"vllm/io/loading.py": None, "vllm/io/reading.py": LOADER}),
        ("Newer", {"vllm/io/reading.py": "import sys\n" + LOADER}),
    )
    without = port(call, folder)
    assert without.code == 1, without.out
    assert call("port", "fast", "--abort").code == 0
    done = port(call, folder, "--history", str(folder))
    assert done.code == 0, done.out
    commit = git(folder, "log", "--format=%H", "--grep=Again")[:12]
    assert "vllm/loader.py is now vllm/io/reading.py" in done.out
    assert f"upstream's {commit}: Again (#8))" in done.out


def test_the_hunks_of_a_file_that_was_split_go_where_their_definitions_went(
    call: Call, library: Path, tmp_path: Path
) -> None:
    both = LOADER.replace('"weights"', '"fast"').replace("import os\n", "import os\nimport sys\n")
    both = both.replace("        return path\n\n\nclass", "        return path or sys\n\n\nclass")
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, both))
    folder = repository(
        tmp_path / "repo",
        ("Split", {"vllm/loader.py": None, "vllm/load.py": LOADING, "vllm/save.py": SAVING}),
    )
    done = port(call, folder, "--history", str(folder))
    assert done.code == 0, done.out
    patch = (library / "patches/fast/0.20/x.patch").read_text()
    assert patch.count("+++ b/vllm/") == 2
    loading, saving = patch.split("+++ b/vllm/save.py")
    assert "+++ b/vllm/load.py" in loading
    assert (loading.count('"fast"'), saving.count('"fast"')) == (1, 1)
    assert ("+import sys" in loading, "+import sys" in saving) == (True, False)
    target = f"git:{folder}@v0.20.0"
    assert call("check", "fast", "--target", target).code == 0


def test_a_split_file_is_followed_by_likeness_too(
    call: Call, library: Path, tmp_path: Path
) -> None:
    both = LOADER.replace('"weights"', '"fast"')
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, both))
    folder = repository(
        tmp_path / "repo", ("Take it out", {"vllm/loader.py": LOADING, "vllm/save.py": SAVING})
    )
    done = port(call, folder)
    assert done.code == 0, done.out
    patch = (library / "patches/fast/0.20/x.patch").read_text()
    assert patch.count("+++ b/vllm/") == 2


def test_a_change_outside_of_definitions_of_a_split_file_is_left_to_a_person(
    call: Call, library: Path, tmp_path: Path
) -> None:
    both = LOADER.replace('"weights"', '"fast"').replace("import os\n", "import os\nLIMIT = 3\n")
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, both))
    folder = repository(
        tmp_path / "repo",
        ("Split", {"vllm/loader.py": None, "vllm/load.py": LOADING, "vllm/save.py": SAVING}),
    )
    done = port(call, folder, "--history", str(folder))
    assert done.code == 1, done.out
    assert not (library / "patches/fast/0.20").exists()


def test_a_repository_that_does_not_know_the_versions_is_named(call: Call, tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", ("Newer", {"vllm/loader.py": "import sys\n" + LOADER}))
    other = tmp_path / "other"
    other.mkdir()
    grow(other, FIRST)
    done = port(call, folder, "--history", str(other))
    assert done.code == 2, done.out
    assert "has no revision" in done.err
    assert "fetch" in done.err
    nothing = port(call, folder, "--history", str(tmp_path))
    assert nothing.code == 2
    assert "is not a git repository" in nothing.err


@pytest.mark.parametrize("name", ["vllm/a\nb.py", "vllm/:(top)x.py", "vllm/-M.py", "vllm/ü*.py"])
def test_names_of_files_that_git_reads_otherwise(tmp_path: Path, name: str) -> None:
    folder = repository(tmp_path / "repo", ("Move", {"vllm/other.py": None}))
    body = "class Limit:\n    A = 1\n    B = 2\n    C = 3\n"
    os.makedirs(folder / "vllm", exist_ok=True)
    (folder / name).write_text(body)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    old = git(folder, "rev-parse", "HEAD")
    (folder / name).rename(folder / "vllm/new\n.py")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "two\x1b[31m `x`")
    made = CommitHistory(Repository(str(folder)), old, "HEAD")
    found = made.file(name)
    assert found is not None
    assert found.path == "vllm/new\n.py"
    again = made.definition(name, "Limit")
    assert again == found
    assert "\x1b" not in found.commit.named
    assert "`" not in found.commit.named
