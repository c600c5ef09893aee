"""RECORD: the rows of touched files become true, and no other byte changes."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, strategies as st
from small_site import row, sha

from vllm_mods.formats import record

OWN = b"vllm-0.19.1.dist-info/RECORD,,\n"


def of(data: bytes) -> tuple[str, int]:
    return sha(data), len(data)


def test_a_row_is_replaced_where_it_stands() -> None:
    before = row("vllm/b.py", b"b") + row("vllm/a.py", b"a") + OWN
    after = record.edit(before, {"vllm/a.py": of(b"new")})
    assert after == row("vllm/b.py", b"b") + row("vllm/a.py", b"new") + OWN


def test_line_endings_and_a_missing_last_one_stay() -> None:
    before = (row("b.py", b"b") + row("a.py", b"a")).replace(b"\n", b"\r\n").rstrip()
    after = record.edit(before, {"a.py": of(b"new"), "c.py": of(b"c")})
    rows = row("b.py", b"b"), row("a.py", b"new"), row("c.py", b"c")
    assert after == b"".join(rows).replace(b"\n", b"\r\n").rstrip()


def test_a_new_row_goes_before_the_own_row() -> None:
    before = row("vllm/b.py", b"b") + row("vllm/a.py", b"a") + OWN
    after = record.edit(before, {"vllm/aa.py": of(b"x")})
    assert after == before.replace(OWN, b"") + row("vllm/aa.py", b"x") + OWN
    other = row("vllm/vendored/x-1.dist-info/RECORD", b"r")
    after = record.edit(before + other, {"vllm/aa.py": of(b"x")})
    assert after == before.replace(OWN, b"") + row("vllm/aa.py", b"x") + OWN + other


def test_a_new_row_goes_to_the_end_of_a_record_without_its_own() -> None:
    before = row("vllm/a.py", b"a") + row("vllm/c.py", b"c")
    after = record.edit(before, {"vllm/b.py": of(b"b")})
    assert after == before + row("vllm/b.py", b"b")


def test_a_removed_file_has_no_row() -> None:
    before = row("vllm/a.py", b"a") + row("vllm/b.py", b"b") + OWN
    assert record.edit(before, {"vllm/a.py": None}) == row("vllm/b.py", b"b") + OWN
    assert record.edit(before, {"vllm/no.py": None}) == before


def test_a_row_without_a_hash_stays_without_one() -> None:
    before = b"vllm/a.py,,\n" + OWN
    assert record.edit(before, {"vllm/a.py": of(b"new")}) == before


def test_only_whole_names_count() -> None:
    before = row("x/vllm/a.py", b"1") + row("vllm/a.pyi", b"2") + OWN
    assert record.edit(before, {"vllm/a.py": None}) == before
    assert not record.lists(before, "vllm/a.py")


@pytest.mark.parametrize("name", ['with "quotes".py', "with,comma.py"])
def test_quoted_names(name: str) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["b.py", "", ""], [name, "sha256=x", "1"]])
    before = text.getvalue().encode()
    after = record.edit(before, {name: of(b"new")})
    rows = list(csv.reader(io.StringIO(after.decode())))
    assert [one[0] for one in rows] == ["b.py", name]
    assert record.agrees(after, name, *of(b"new"))


@pytest.mark.parametrize(
    "name", ['with "quotes".py', "with,comma.py", "with\nend.py", "with\rend.py"]
)
def test_a_new_name_has_the_quotes_that_it_needs(name: str) -> None:
    after = record.edit(row("b.py", b"b"), {name: of(b"new")})
    assert sorted(one[0] for one in csv.reader(io.StringIO(after.decode(), ""))) == ["b.py", name]
    assert record.edit(after, {name: None}) == row("b.py", b"b")


def test_a_plain_name_in_needless_quotes_is_found() -> None:
    before = b'"a.py",sha256=x,1\n'
    after = record.edit(before, {"a.py": of(b"new")})
    assert after == row("a.py", b"new").replace(b"a.py", b'"a.py"', 1)


def test_a_new_file_goes_into_a_package_that_is_listed_wherever_that_lies() -> None:
    rows = row("a/b/__init__.py", b"") + row("a/x.py", b"") + row("c/__init__.py", b"")
    for path in ("a/b/c.py", "a/b/c/d/e.py", "c/d.py"):
        assert record.takes(rows, path)
    for path in ("a/x.py", "a/c/d.py", "b/d.py", "d.py", "ab/c.py"):
        assert not record.takes(rows, path)


def test_agrees_knows_true_false_and_does_not_know() -> None:
    rows = row("a.py", b"a") + b"b.py,,\n"
    assert record.agrees(rows, "a.py", *of(b"a")) is True
    assert record.agrees(rows, "a.py", *of(b"b")) is False
    assert record.agrees(rows, "b.py", *of(b"b")) is None
    assert record.agrees(rows, "c.py", *of(b"c")) is None


names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=6)


@given(
    before=st.dictionaries(names, st.binary(max_size=4), max_size=8),
    edits=st.dictionaries(names, st.none() | st.binary(max_size=4), max_size=4),
)
def test_csv_agrees(before: dict[str, bytes], edits: dict[str, bytes | None]) -> None:
    """Editing by bytes gives the same table as editing what the csv module reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, data in before.items():
        encoded = row("", data).decode().strip().split(",")
        writer.writerow([name, encoded[1], encoded[2]])
    plain = text.getvalue().encode()
    edited = record.edit(
        plain, {name: None if data is None else of(data) for name, data in edits.items()}
    )
    found = {one[0]: (one[1], one[2]) for one in csv.reader(io.StringIO(edited.decode()))}
    wanted = {**before, **edits}
    assert found == {
        name: tuple(row("", data).decode().strip().split(",")[1:])
        for name, data in wanted.items()
        if data is not None
    }
