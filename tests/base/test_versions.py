"""What version numbers say."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from vllm_mods.base.versions import (
    from_describe,
    has_end,
    in_range,
    is_final,
    joined,
    lowest,
    nearest,
    node,
    only,
    public,
    sort_key,
)

DEV = "0.19.1rc1.dev46+gc5e3454e5.d20260406"


@pytest.mark.parametrize(
    ("version", "spec", "expected"),
    [
        (DEV, ">=0.19.1", False),
        (DEV, "<0.19.1", False),
        (DEV, ">=0.19,<0.20", True),
        ("0.19.0+cu129", "==0.19.0", True),
        ("0.20.0rc1.dev3+gabc", ">=0.19", True),
        ("0.20.1", "==0.20.*", True),
        ("0.20.1", "~=0.20", True),
        ("0.20.1", "===0.20.1", True),
        ("0.20.1", "", True),
        (None, ">=0.19", None),
        ("dev", ">=0.19", None),
    ],
)
def test_known_answers(version: str | None, spec: str, *, expected: bool | None) -> None:
    assert in_range(version, spec) is expected


@pytest.mark.parametrize("version", ["0.19.1", "0.19.1rc1", None])
@pytest.mark.parametrize("spec", [">=", "0.19", "=>0.19", ">=0.19;<0.20", "<0.1,>=x"])
def test_a_specifier_that_is_none_is_an_error(version: str | None, spec: str) -> None:
    with pytest.raises(ValueError, match="not a version specifier"):
        in_range(version, spec)


def test_versions_sort_as_versions() -> None:
    ordered = ["weird", "0.9.2", "0.19.1rc1.dev46", "0.19.1rc1", "0.19.1", "0.20.0"]
    assert sorted(sorted(ordered), key=sort_key) == ordered


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        ("0.19.9", "0.19.1"),
        ("0.99", "0.33.0"),
        ("0.20", "0.20.0"),
        ("0.20.9", "0.20.2"),
        ("9", "0.33.0"),
    ],
)
def test_the_nearest_release_is_the_one_meant(wanted: str, first: str) -> None:
    known = ["0.9.2", "0.19.0", "0.19.1", "0.20.0", "0.20.2", "0.33.0"]
    found = nearest(wanted, known, 3)
    assert found[0] == first
    assert len(found) == 3


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v0.19.1-46-gc5e3454", "0.19.2.dev46+gc5e3454"),
        ("v0.19.1-0-gb1388b1", "0.19.1"),
        ("v0.20.0rc1-3-gabc1234", "0.20.0rc2.dev3+gabc1234"),
        ("v0.20.0.post1-2-gabc1234\n", "0.20.0.post2.dev2+gabc1234"),
        ("v0.9-1-g12", "0.10.dev1+g12"),
        ("v0.19.1-foo-3-gabc", None),
        ("v0.19.1", None),
        ("vast-3-gabc", None),
    ],
)
def test_describe_becomes_a_version(described: str, version: str | None) -> None:
    assert from_describe(described) == version


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ((">=0.17,<0.18", ">=0.18,<0.19", ">=0.19.0,<0.22"), (">=0.17,<0.22",)),
        ((">=0.9,<0.10", ">=0.10"), (">=0.9",)),
        ((">=0.20", ">=0.15,<0.19"), (">=0.15,<0.19", ">=0.20")),
        ((">=0.15", ">=0.16,<0.17"), (">=0.15",)),
        ((">=0.15,<0.16", "==0.16.*", ">=0.15,<0.16"), (">=0.15,<0.16", "==0.16.*")),
        ((">=0.15,<0.16", ">=0.16,<0.17", ">=0.18,<0.19"), (">=0.15,<0.17", ">=0.18,<0.19")),
        ((">=0.15,<0.18", ">=0.16,<0.17"), (">=0.15,<0.18",)),
        ((">=0.15,<0.18", ">=0.16"), (">=0.15",)),
        ((">= 0.15 , < 0.16",), (">=0.15,<0.16",)),
        ((), ()),
    ],
)
def test_ranges_that_touch_are_read_as_one(
    specs: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert joined(specs) == expected


_NUMBERS = st.sampled_from(["0.8", "0.9", "0.10", "0.10.0", "0.10.1", "0.11", "1"])


@given(st.lists(st.tuples(_NUMBERS, st.none() | _NUMBERS)), _NUMBERS)
def test_joined_ranges_have_the_releases_that_they_had(
    spans: list[tuple[str, str | None]], version: str
) -> None:
    specs = [f">={low}" + (f",<{high}" if high else "") for low, high in spans]
    there = [any(in_range(version, one) for one in some) for some in (specs, joined(specs))]
    assert there[0] == there[1]


@pytest.mark.parametrize(
    ("spec", "ends"),
    [
        (">=0.19", False),
        (">=0.19,<0.20", True),
        (">=0.19, <=0.20", True),
        ("==0.19.*", True),
        ("~=0.19", True),
        (">0.19,!=0.20", False),
        ("", False),
    ],
)
def test_a_range_has_an_end_where_it_leaves_out_all_newer_ones(spec: str, *, ends: bool) -> None:
    assert has_end(spec) is ends


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([">=0.20", ">=0.9,<0.19"], "0.9"),
        ([">=0.9,>0.19"], "0.19"),
        (["==0.19.1", "~= v0.20", "===0.21"], "0.19.1"),
        ([">=0.20", "<0.19"], None),
        (["!=0.20"], None),
        ([], None),
    ],
)
def test_the_lowest_number_that_a_range_begins_with(specs: list[str], expected: str | None) -> None:
    assert lowest(specs) == expected


@pytest.mark.parametrize(
    ("version", "final", "without_local", "commit"),
    [
        ("0.19.1", True, "0.19.1", None),
        ("0.19.1.post1+cu129", True, "0.19.1.post1", None),
        ("0.20.0rc1", False, "0.20.0rc1", None),
        (DEV, False, "0.19.1rc1.dev46", "c5e3454e5"),
        ("0.19.1+cu129.gc5e3454", True, "0.19.1", "c5e3454"),
        ("0.19.1+gc5e345", True, "0.19.1", None),
        ("nightly", False, "nightly", None),
    ],
)
def test_what_a_build_says_of_itself(
    version: str, *, final: bool, without_local: str, commit: str | None
) -> None:
    assert (is_final(version), public(version), node(version)) == (final, without_local, commit)


def test_nearest_releases_come_by_distance_and_the_newer_of_two_first() -> None:
    known = ["0.19.0", "0.21.0", "0.20.2", "weird", "0.20.0", "0.20.4"]
    assert nearest("0.20.3", known, 3) == ("0.20.4", "0.20.2", "0.20.0")
    assert nearest("0.20.3", known, 9)[3:] == ("0.21.0", "0.19.0", "weird")
    assert nearest("weird", ["0.20.0", "0.19.0"], 1) == ("0.19.0",)


@pytest.mark.parametrize("version", ["0.20.0", "0.20.0+cu129", DEV])
def test_the_range_of_one_version_takes_its_release_and_no_other_commit(version: str) -> None:
    spec = only(version)
    assert in_range(version, spec)
    assert in_range("0.20.0", spec) is (version != DEV)
    assert not in_range("0.19.1rc1.dev46+gaaaaaaaaa.d20260406", spec)
