from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile

import pytest
from hypothesis import given, strategies as st

from vllm_mods.building import tarball
from vllm_mods.building.tarball import TarEntry

AWKWARD = (
    TarEntry("usr", None, 0o755),
    TarEntry("tmp", None, 0o1777),
    TarEntry("usr/a.py", b"x = 1\n", 0o644, 5, (1000, 1001)),
    TarEntry("usr/block", b"\1" * 512, 0o4755, mtime=1_700_000_000),
    TarEntry("a/" * 60 + "b" * 90, b"split at a slash", 0o600),
    TarEntry("c" * 150, b"no slash to split at", 0o644),
    TarEntry("d/" * 120 + "x", None, 0o2755),
    TarEntry("é/ü.py", b"", 0o644, owner=(9_999_999, 3_000_000)),
    TarEntry("before-1970", b"", 0o644, mtime=-1),
)
# Not to be changed without `LAYER_FORMAT` in pairing_lock.py: every image has another ID then.
GOLDEN = "d61c9cbde6b7a1dd790ddb7e9b24bb1b7608edec9e231ff1eb6f6df4171ce552"


def members(archive: bytes) -> list[TarEntry]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = []
        for one in opened:
            file = opened.extractfile(one)
            data = file.read() if file is not None else None
            found.append(TarEntry(one.name, data, one.mode, int(one.mtime), (one.uid, one.gid)))
        return found


def test_the_bytes_never_change() -> None:
    assert hashlib.sha256(tarball.write(AWKWARD)).hexdigest() == GOLDEN


def test_pythons_tarfile_reads_it_back() -> None:
    owned = [entry._replace(owner=entry.owner or (0, 0)) for entry in AWKWARD]
    assert members(tarball.write(AWKWARD)) == owned


def test_gnu_tar_reads_it_without_a_word() -> None:
    archive = tarball.write(AWKWARD[:-1])  # it has something to say about times before 1970
    listed = subprocess.run(
        ["tar", "--list", "--file=-"], input=archive, capture_output=True, check=True
    )
    assert listed.stderr == b""
    assert len(listed.stdout.splitlines()) == len(AWKWARD) - 1


names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
paths = (
    st.lists(names.filter(lambda name: name not in {".", ".."}), min_size=1, max_size=9)
    .map("/".join)
    .filter(lambda path: not path.endswith("/"))
)


@pytest.mark.slow
@given(
    st.lists(
        st.builds(
            TarEntry,
            path=paths,
            data=st.none() | st.binary(max_size=1100),
            mode=st.integers(0, 0o7777),
            owner=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
            mtime=st.integers(-(2**31), 2**40),
        ),
        unique_by=lambda entry: entry.path,
    )
)
def test_whatever_is_written_is_read_back(entries: list[TarEntry]) -> None:
    assert members(tarball.write(entries)) == entries


@pytest.mark.parametrize("path", ["", "/etc", "a//b", "../x", "a/./b", "a/", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a plain relative path"):
        tarball.write([TarEntry(path, b"", 0o644)])


def test_a_path_comes_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        tarball.write([TarEntry("a", b"", 0o644), TarEntry("a", b"", 0o644)])
