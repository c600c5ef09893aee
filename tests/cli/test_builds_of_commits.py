"""A build whose version names a commit is read by that commit, where somebody says where; else no other is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from histories import git, grow
from package_server import PackageServer, make_wheel, serving, settings_of_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

NEWER = LOADER.replace("import os\n", "import os\nimport sys\n")
REST = {path: data.decode() for path, data in FILES.items()}


def wheel(version: str, loader: str) -> dict[str, bytes]:
    data = make_wheel({**FILES, "vllm/loader.py": loader.encode()}, version=version, bulk={})
    return {f"vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl": data}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    """An index that has the releases on both sides of the build, and not the build."""
    settings_of_none(tmp_path, monkeypatch)
    gone = LOADER.replace("Loader", "Elsewhere")
    with serving(PackageServer({**wheel("0.22.0", gone), **wheel("0.22.1", gone)})) as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.index)
        yield server


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    grow(folder, ("one", REST), ("two", {**REST, "vllm/loader.py": NEWER}))
    return folder


def build_of(clone: Path) -> str:
    return f"0.22.1rc1.dev124+g{git(clone, 'rev-parse', '--short=9', 'HEAD')}"


@pytest.mark.slow
@pytest.mark.usefixtures("index", "library")
def test_check_matrix_and_port_read_a_build_of_a_clone(call: Call, clone: Path) -> None:
    name = build_of(clone)
    tree = f"pypi:{name}"
    checked = call("check", "fast", "--target", tree, "--commits", clone, "--json")
    assert checked.code == 0, checked.err
    assert checked.json["tree"]["version"] == name
    assert checked.json["mods"][0]["verdict"] == "moved"
    cells = call("matrix", "fast", "--tree", tree, "--commits", clone, "--json", "--jobs", "1")
    assert [one["version"] for one in cells.json["cells"]] == [name]
    base = f"git:{clone}@HEAD~1"
    done = call("port", "fast", "--from", base, "--to", tree, "--commits", clone)
    assert done.code == 0, done.out
    assert (
        "nothing was written: variant `a` already gives the same result as this port on the target (moved)"
        in done.out
    )


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_without_it_the_message_names_the_tree_and_no_release_stands_in(
    call: Call, clone: Path
) -> None:
    name = build_of(clone)
    done = call("check", "fast", "--target", f"pypi:{name}")
    assert done.code == 2
    assert "and no index has that build" in done.err
    assert f"--commits REPO or git:REPO@{name.partition('+g')[2]}" in done.err
    unknown = call("check", "fast", "--target", "pypi:0.22.1.dev1+gace95c9cf", "--commits", clone)
    assert unknown.code == 2
    assert "has no revision ace95c9cf" in unknown.err
    assert "fetch origin ace95c9cf" in unknown.err


def test_an_index_with_a_folder_for_each_commit(call: Call, index: PackageServer) -> None:
    name = "0.22.1rc1.dev124+gace95c9cf"
    with serving(PackageServer(wheel(name, NEWER), at="ace95c9cf")) as server:
        words = ("fast", "--commits", server.url, "--json", "--target")
        done = call("check", *words, f"pypi:{name}")
        assert done.code == 0, done.err
        assert done.json["mods"][0]["verdict"] == "moved"
        other = call("check", *words, "pypi:0.22.1rc1.dev125+gace95c9cf")
        assert other.code == 2, other.out
        assert "and no index has that build" in other.json["error"]["message"]
    assert index.asked("/vllm/")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("place", ["--upload-pack=touch ran", "ext::sh -c touch% ran", "-"])
def test_a_place_that_is_no_repository_runs_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = "pypi:0.22.1.dev1+gace95c9cf"
    done = call("check", "fast", "--target", tree, f"--commits={place}")
    assert done.code == 2, done.err
    assert not (tmp_path / "ran").exists()
