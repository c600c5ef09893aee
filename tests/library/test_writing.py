"""Files put into a library: all of them, or what was there before."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING

import pytest
from git_host import mod, write

from vllm_mods.base import ssh_signatures
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.library import checksums, writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = mod("fast")
NEW = {
    **dict.fromkeys(OLD, b"new\n"),
    "patches/fast/deep/er/y.py": b"y\n",
    "templates/t/template.jinja": b"t\n",
}


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write(tmp_path / "library", OLD)


def test_all_are_put_in(library: Path) -> None:
    writing.replace(str(library), NEW)
    assert files(library) == {path: data.decode() for path, data in NEW.items()}
    assert not [name for name in os.listdir(library) if name.startswith(".")]


@pytest.mark.parametrize("moves", range(len(NEW)))
def test_a_move_that_fails_leaves_what_was_there(
    library: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    real = os.replace
    done: list[str] = []

    def replace(source: str, target: str) -> None:
        if len(done) == moves and f"/{writing.READY}/" in source:
            done.append(target)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Refused, match="No space left on device; nothing was changed"):
        writing.replace(str(library), NEW)
    assert files(library) == OLD
    assert sorted(os.listdir(library)) == ["patches"]
    assert (
        os.listdir(library / "patches/fast") == ["mod.toml", "x.py"]
        or not (library / "patches/fast/deep").exists()
    )


def test_the_manifest_comes_last(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, order = os.replace, []

    def replace(source: str, target: str) -> None:
        order.append(os.path.relpath(target, library))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    writing.replace(str(library), {**NEW, "patches/fast/mod.lock": b"{}"})
    assert order[-2:] == ["patches/fast/mod.lock", "patches/fast/mod.toml"]


def test_what_is_new_may_not_be_there_and_nothing_leads_out(library: Path) -> None:
    with pytest.raises(Refused, match=r"x\.py already exists; nothing was written"):
        writing.replace(str(library), NEW, new={"patches/fast/x.py"})
    with pytest.raises(Refused, match="is outside"):
        writing.replace(str(library), {"../x": b""})
    assert files(library) == OLD


def test_another_run_that_writes_is_waited_for_by_nobody(library: Path) -> None:
    with (
        writing.alone(str(library)),
        pytest.raises(Refused, match="another vllm-mods is writing") as caught,
    ):
        writing.replace(str(library), NEW)
    assert caught.value.hint == "wait until it has finished"
    assert files(library) == OLD


def plant_link(library: Path) -> Path:
    (library / writing.READY / "patches").mkdir(parents=True)
    (library / writing.READY / "patches/x").symlink_to("/etc/passwd")
    return library / writing.READY / "patches/x"


def plant_below_a_link(library: Path) -> Path:
    (library / "patches/fast/deep").symlink_to(library)
    return write(library / writing.READY, {"patches/fast/deep/x": ""}) / "patches/fast/deep/x"


def plant_beside(library: Path) -> Path:
    return write(library / writing.READY, {"scripts/x": ""}) / "scripts/x"


@pytest.mark.parametrize("plant", [plant_link, plant_below_a_link, plant_beside])
def test_what_somebody_planted_as_ready_is_not_moved(
    library: Path, plant: Callable[[Path], Path]
) -> None:
    place = plant(library)
    with pytest.raises(Refused) as caught:
        writing.recover(str(library))
    assert caught.value.message == f"{place} was not created by vllm-mods; nothing was written"
    assert caught.value.hint == f"ls -ld {place}  # who created it?"
    assert files(library) == OLD


@pytest.mark.parametrize("name", [writing.LAID_OUT, writing.READY])
def test_what_lies_in_the_way_and_is_no_folder_is_refused(library: Path, name: str) -> None:
    (library / name).write_text("somebody's\n")
    with pytest.raises(Refused, match=f"{name} was not created by vllm-mods;"):
        writing.recover(str(library))
    with pytest.raises(Refused, match=f"{name} was not created by vllm-mods;"):
        writing.replace(str(library), NEW)
    assert files(library) == {**OLD, name: "somebody's\n"}


def test_what_a_killed_run_laid_out_is_removed_and_what_it_had_ready_is_moved(
    library: Path,
) -> None:
    write(library / writing.LAID_OUT, {"patches/fast/x.py": "half"})
    writing.recover(str(library))
    assert files(library) == OLD
    write(library / writing.READY, {"patches/fast/x.py": "X = 2\n", "pairings/p.toml": "p\n"})
    writing.recover(str(library))
    assert files(library) == {**OLD, "patches/fast/x.py": "X = 2\n", "pairings/p.toml": "p\n"}
    assert sorted(os.listdir(library)) == ["pairings", "patches"]


def test_a_new_folder_is_there_whole_and_never_over_another(tmp_path: Path) -> None:
    place = tmp_path / "deep/made"
    writing.folder(str(place), {"a/b": b"1", "c": b"2"})
    assert files(tmp_path) == {"deep/made/a/b": "1", "deep/made/c": "2"}
    with pytest.raises(Refused) as caught:
        writing.folder(str(place), {"c": b"3"})
    assert caught.value.message == f"{place} already exists; nothing was written"
    assert caught.value.hint == f"rm -r {place}, or choose another name"
    assert (place / "c").read_text() == "2"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file/made"
    with pytest.raises(Refused) as caught:
        writing.folder(str(place), {"c": b""})
    assert caught.value.message == (f"{place} cannot be written: File exists; nothing was changed")
    assert caught.value.hint == f"ls -la {tmp_path}/file"


SUMS = f"{'0' * 64}  patches/fast/x.py\n".encode()


def test_a_library_is_pinned_by_the_hash_of_its_list(library: Path, tmp_path: Path) -> None:
    (library / checksums.SUMS).write_bytes(SUMS)
    pin = f"sha256:{hashlib.sha256(SUMS).hexdigest()}"
    assert checksums.sums(str(library), [pin], None) == {"patches/fast/x.py": "0" * 64}
    with pytest.raises(Refused) as caught:
        checksums.sums(str(library), [f"sha256:{'1' * 64}"], None)
    assert caught.value.message == (f"{library}/SHA256SUMS has another hash than required: {pin}")
    assert caught.value.hint == "accept the new hash only if you know why the library changed"
    # with a list from elsewhere too, what both say is what counts
    elsewhere = tmp_path / "list"
    elsewhere.write_text(f"{'0' * 64}  patches/other\n")
    assert checksums.sums(str(library), [str(elsewhere)], None) == {"patches/other": "0" * 64}
    assert checksums.sums(str(library), [str(elsewhere), pin], None) == {}


@pytest.mark.parametrize(
    ("listed", "data", "says"),
    [
        ({}, b"x", "is in no hash list"),
        ({"x": "0" * 64}, None, "is missing, but is in the hash list"),
        ({"x": "0" * 64}, b"x", f"but the list of hashes has {'0' * 64} for it"),
    ],
)
def test_a_file_is_as_it_is_listed(
    tmp_path: Path, listed: dict[str, str], data: bytes | None, says: str
) -> None:
    with pytest.raises(Refused, match=says) as caught:
        checksums.check(str(tmp_path), str(tmp_path / "x"), data, listed)
    assert caught.value.hint == (
        f"(cd {tmp_path} && sha256sum --check {checksums.SUMS})  # or get the library again from its source"
    )
    checksums.check(str(tmp_path), str(tmp_path / "x"), None, {})


@pytest.mark.parametrize("line", ["nonsense", f"{'0' * 63}  x", f"{'0' * 64} x"])
def test_a_line_that_is_none(line: str) -> None:
    with pytest.raises(UsageError, match=r"SUMS:2: .* is not a line of a hash list") as caught:
        checksums.parse(f"{'0' * 64}  a\n{line}\n".encode(), "SUMS")
    assert caught.value.hint == (
        "cd LIBRARY && find patches templates pairings -type f | sort | xargs sha256sum > SHA256SUMS"
    )


def test_a_path_with_two_hashes() -> None:
    with pytest.raises(UsageError, match="SUMS:2: a is listed with two hashes"):
        checksums.parse(f"{'0' * 64}  a\n{'1' * 64} *./a\n".encode(), "SUMS")


def test_a_list_that_nobody_of_the_signers_signed(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, signers = str(library / checksums.SUMS), tmp_path / "signers"
    (library / checksums.SUMS).write_bytes(SUMS)
    with pytest.raises(UsageError) as missing:
        checksums.sums(str(library), [], str(signers))
    why = "no such file, so the expected contents of the library are unknown"
    assert missing.value.message == f"{place}.sig: {why}"
    assert missing.value.hint == "docs/security.md explains how to pin and sign a library"
    (library / f"{checksums.SUMS}.sig").write_text("signature")
    with pytest.raises(UsageError, match="signers: no such file"):
        checksums.sums(str(library), [], str(signers))
    signers.write_text("somebody")
    monkeypatch.setattr(ssh_signatures, "why_not", lambda *_: "no principal")
    with pytest.raises(Refused, match=f"by a signer in {signers}: no principal") as caught:
        checksums.sums(str(library), [], str(signers))
    assert caught.value.hint == (
        f"ssh-keygen -Y check-novalidate -n vllm-mods -s {place}.sig < {place}  # shows who signed it"
    )
    asked: list[object] = []
    monkeypatch.setattr(ssh_signatures, "why_not", lambda *given: asked.extend(given))
    assert checksums.sums(str(library), [], str(signers)) == {"patches/fast/x.py": "0" * 64}
    assert asked == [SUMS, f"{place}.sig", str(signers), checksums.NAMESPACE]
