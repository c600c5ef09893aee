"""Which trees a matrix is about."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from mod_making import mod, variant

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.matrices.choose import choose_releases, expand
from vllm_mods.trees.index import ReleaseFile, release_file

if TYPE_CHECKING:
    from pathlib import Path


def files(*versions: str, build: str = "") -> list[ReleaseFile]:
    names = (f"vllm-{one}-{build}cp38-abi3-manylinux_2_31_x86_64.whl" for one in versions)
    return [file for name in names if (file := release_file(name, "")) is not None]


FILES = files("0.17.0", "0.18.0", "0.19.0", "0.20.0rc1", "0.20.0", "0.21.0", "0.22.0", "0.23.0")
MOD = mod(variant(vllm=">=0.18,<0.20"))


def test_the_releases_that_ranges_name_and_three_beyond() -> None:
    chosen = choose_releases([MOD], FILES, None)
    assert chosen == ("pypi:0.18.0", "pypi:0.19.0", "pypi:0.21.0", "pypi:0.22.0", "pypi:0.23.0")


def test_pre_releases_on_demand() -> None:
    assert "pypi:0.20.0rc1" in choose_releases([mod(variant(vllm=">=0.18"))], FILES, None, pre=True)
    assert "pypi:0.20.0rc1" not in choose_releases([mod(variant(vllm=">=0.18"))], FILES, None)


def test_a_rebuilt_wheel_is_a_tree_of_its_own() -> None:
    both = [*files("0.19.0"), *files("0.19.0", build="1-")]
    assert choose_releases([MOD], both, "==0.19.0") == (f"pypi:{both[0].filename}", "pypi:0.19.0")


def test_a_release_without_wheels_is_asked_for_by_its_version() -> None:
    sdist = release_file("vllm-0.19.0.tar.gz", "")
    assert sdist is not None
    assert choose_releases([MOD], [sdist], None) == ("pypi:0.19.0",)


def test_a_bad_specifier_is_a_wrong_call() -> None:
    with pytest.raises(UsageError):
        choose_releases([MOD], FILES, "nonsense")


def test_anything_else_stands_for_itself(tmp_path: Path) -> None:
    assert expand("pypi:0.19.0") == ("pypi:0.19.0",)
    assert expand(str(tmp_path)) == (str(tmp_path),)


def run_git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "vllm").mkdir(parents=True)
    run_git(folder, "init", "-q")
    for number, tag in enumerate(("v0.19.0", "v0.20.0rc1", "v0.20.0", None, "v0.21.0", "notes")):
        (folder / "vllm/__init__.py").write_text(f"X = {number}\n")
        run_git(folder, "add", "-A")
        run_git(folder, "commit", "-q", "-m", str(number))
        if tag is not None:
            run_git(folder, "tag", tag)
    return folder


def test_a_range_between_two_tags_is_the_releases_between(repository: Path) -> None:
    spec = f"git:{repository}@"
    finals = (f"{spec}v0.19.0", f"{spec}v0.20.0", f"{spec}v0.21.0")
    assert expand(f"{spec}v0.19.0..v0.21.0") == finals
    assert f"{spec}v0.20.0rc1" in expand(f"{spec}v0.19.0..v0.21.0", pre=True)


def test_any_other_range_is_commits(repository: Path) -> None:
    spec = f"git:{repository}@"
    commits = run_git(repository, "rev-list", "v0.20.0..HEAD").split()
    assert expand(f"{spec}v0.20.0..HEAD") == tuple(f"{spec}{one}" for one in reversed(commits))


@pytest.mark.parametrize("given", ["v0.21.0..v0.19.0", "HEAD..HEAD", "..HEAD", "v0.19.0...HEAD"])
def test_a_range_that_is_none_is_a_wrong_call(repository: Path, given: str) -> None:
    with pytest.raises(UsageError):
        expand(f"git:{repository}@{given}")


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", closed)
    with pytest.raises(TreeError, match="Permission denied"):
        expand(str(tmp_path))
