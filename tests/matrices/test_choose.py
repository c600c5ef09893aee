"""Which trees a matrix is about."""

from __future__ import annotations

import pytest
from mod_making import mod, variant

from vllm_mods.base.errors import UsageError
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.trees.index import ReleaseFile, release_file


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
    with pytest.raises(UsageError, match="'nonsense' is not a version specifier") as caught:
        choose_releases([MOD], FILES, "nonsense")
    assert caught.value.hint == "such as --vllm '>=0.19,<0.22'"


def test_a_specifier_names_releases_and_pre_releases_alike() -> None:
    assert choose_releases([MOD], FILES, ">=0.20,<0.22") == ("pypi:0.20.0", "pypi:0.21.0")
    assert choose_releases([MOD], FILES, "==0.20.0rc1") == ("pypi:0.20.0rc1",)


def test_a_specifier_that_no_release_is_in_is_a_wrong_call() -> None:
    with pytest.raises(
        UsageError, match=r">=1 contains no release of vLLM; the newest is 0\.23\.0"
    ):
        choose_releases([MOD], FILES, ">=1")
    with pytest.raises(UsageError, match=r"contains no release of vLLM$"):
        choose_releases([MOD], [], ">=1")


def test_the_newest_three_stand_for_a_mod_that_no_release_is_meant_for() -> None:
    newest = ("pypi:0.21.0", "pypi:0.22.0", "pypi:0.23.0")
    assert choose_releases([mod(variant(vllm=">=1"))], FILES, None) == newest


def test_what_was_taken_back_and_what_is_for_other_machines_is_no_tree() -> None:
    gone = [file._replace(yanked="broken") for file in files("0.18.0")]
    other = [
        file._replace(platforms=("manylinux_2_31_aarch64",), filename="other.whl")
        for file in files("0.19.0")
    ]
    chosen = choose_releases([MOD], [*gone, *other, *files("0.19.0")], "<1")
    assert chosen == ("pypi:0.19.0",)


def test_of_several_builds_the_newest_is_the_release_itself() -> None:
    builds = [*files("0.19.0", build="2-"), *files("0.19.0"), *files("0.19.0", build="1-")]
    names = [builds[n].filename for n in (1, 2)]
    assert choose_releases([MOD], builds, None) == (
        *(f"pypi:{one}" for one in names),
        "pypi:0.19.0",
    )
