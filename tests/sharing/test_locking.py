"""A project's libraries as its lock has them: what does not fit it, what is not here, what pip installed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import lone_project
import pytest
from git_host import mod, write

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import project_lock
from vllm_mods.formats.project import LibrarySource, ProjectFile
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.library.catalog import Shared
from vllm_mods.sharing import locking

if TYPE_CHECKING:
    from pathlib import Path

ACME = LibrarySource("package", "acme-mods")
GIT = LibrarySource("git", "https://h.org/alice/mods", "v1")
HASH, OTHER = "0" * 40, "1" * 40


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lone_project.project(tmp_path, monkeypatch)


def project(place: Path, **libraries: LibrarySource) -> ProjectFile:
    return ProjectFile(str(place / "vllm-mods.toml"), libraries)


def write_lock(place: Path, **locked: LockedLibrary) -> None:
    (place / locking.LOCK).write_bytes(project_lock.dump(locked.items()))


def installed(place: Path, monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> Path:
    """Install a distribution as pip does, with a library in a package without ``__init__.py``; change files of its record (None: without one)."""
    info = "acme_mods-1.2.dist-info"
    files = {f"acme/mods/{path}": text for path, text in mod("fast").items()}
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: acme-mods\nVersion: 1.2\n"
    files[f"{info}/entry_points.txt"] = "[vllm_mods.libraries]\nacme = acme.mods\n"
    for name, text in changed.items():
        path = f"{info}/{name if name == 'METADATA' else f'{name}.txt'}"
        files.pop(path) if text is None else files.update({path: text})
    folder = write(place.parent / "site", files)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.parametrize(
    ("source", "locked"),
    [
        (GIT, None),
        (GIT, LockedLibrary(GIT._replace(rev="v2"), HASH, "f" * 64)),
        (GIT._replace(allowed_signers="signers"), LockedLibrary(GIT, HASH, "f" * 64)),
        (GIT._replace(rev=HASH), LockedLibrary(GIT._replace(rev=HASH), OTHER, "f" * 64)),
        (GIT._replace(rev="0" * 64), LockedLibrary(GIT._replace(rev="0" * 64), OTHER, "f" * 64)),
    ],
)
def test_a_lock_that_does_not_fit_the_file_is_said(
    place: Path, source: LibrarySource, locked: LockedLibrary | None
) -> None:
    if locked is not None:
        write_lock(place, acme=locked)
    with pytest.raises(UsageError) as caught:
        locking.open_shared(project(place, acme=source))
    file, lock = place / "vllm-mods.toml", place / "vllm-mods.lock"
    assert caught.value.message == (
        f"{file} names {source} for library acme, but {lock} has no entry for this source, revision and signers"
    )
    assert caught.value.hint == "vllm-mods update acme  # writes the lock for the present source"


def test_what_is_not_fetched_is_told_with_the_way_to_get_it(place: Path) -> None:
    write_lock(place, acme=LockedLibrary(ACME, "1.2", "f" * 64))
    write(place / "mods", mod("fast"))
    ours = project(place, acme=ACME, ours=LibrarySource("path", "mods"))
    with pytest.raises(UsageError) as caught:
        locking.open_shared(ours)
    assert caught.value.message == (
        "acme (package:acme-mods) has not been fetched on this machine, or the fetched files were changed"
    )
    hint = "vllm-mods sync --fetch  # fetches all libraries of the project at their locked versions"
    assert caught.value.hint == hint
    del ours.libraries["acme"]  # type: ignore[attr-defined]
    assert locking.open_shared(ours) == (Shared("ours", str(place / "mods"), None),)


def test_what_pip_installed_needs_no_init_and_is_kept_as_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed(place, monkeypatch)
    ours = project(place, acme=ACME)
    locked = locking.resolve(ours, "acme", ACME)
    assert (locked.source, locked.resolved) == (ACME, "1.2")
    write_lock(place, acme=locked)
    (folder / "acme/mods/patches/fast/x.py").write_text("X = 2\n")
    (library,) = locking.open_shared(ours, fetching=True)  # it is whole, so nothing is fetched
    assert library.owner == "acme"
    assert library.listed is not None
    assert sorted(library.listed) == ["patches/fast/mod.toml", "patches/fast/x.py"]


def test_what_is_not_as_it_was_locked_is_refused_with_both(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(place, monkeypatch)
    ours = project(place, acme=ACME)
    now = locking.resolve(ours, "acme", ACME)
    write_lock(place, acme=LockedLibrary(ACME, "1.1", "f" * 64))
    with pytest.raises(Refused) as caught:
        locking.open_shared(ours, fetching=True)
    assert caught.value.message == (
        f"acme (package:acme-mods) differs from {place}/vllm-mods.lock: it is now 1.2 and sha256:{now.files}, "
        f"not 1.1 and sha256:{'f' * 64}; nothing was changed"
    )
    hint = "vllm-mods update acme  # accepts the change, if you know why it was made"
    assert caught.value.hint == hint


def test_a_folder_is_held_to_the_lock_only_where_all_is_fetched(place: Path) -> None:
    write(place / "mods", mod("fast"))
    source = LibrarySource("path", "./mods")
    ours = project(place, ours=source)
    write_lock(place, ours=locking.resolve(ours, "ours", source))
    (library,) = locking.open_shared(ours, fetching=True)
    assert library.folder != str(place / "mods")  # it is the one that is kept
    write(place / "mods", mod("fast", text="X = 2\n"))
    (library,) = locking.open_shared(ours)
    assert library.folder == os.path.join(place, "./mods")
    with pytest.raises(Refused, match=r"it is now sha256:\w+, not sha256:\w+;"):
        locking.open_shared(ours, fetching=True)


REINSTALL = "pip install --force-reinstall acme-mods"
OTHER_ONE = f"{REINSTALL}, or name another distribution"
NO_LIBRARY = (
    "1.2 has no library: vllm_mods.libraries in its entry points must name one existing package"
)


@pytest.mark.parametrize(
    ("changed", "why", "hint"),
    [
        ({"METADATA": None}, "its installation record is damaged: ", REINSTALL),
        (
            {"METADATA": "Name: acme-mods\nVersion: x y\n"},
            "its installation record is damaged:",
            REINSTALL,
        ),
        ({"entry_points": None}, NO_LIBRARY, OTHER_ONE),
        (
            {"entry_points": "[vllm_mods.libraries]\na = acme.mods\nb = acme\n"},
            NO_LIBRARY,
            OTHER_ONE,
        ),
        ({"entry_points": "[vllm_mods.libraries]\na = acme.none\n"}, NO_LIBRARY, OTHER_ONE),
        ({"entry_points": "[vllm_mods.libraries]\na = acme./mods\n"}, NO_LIBRARY, OTHER_ONE),
        ({"entry_points": "[vllm_mods.libraries]\na = nothing.mods\n"}, NO_LIBRARY, OTHER_ONE),
    ],
)
def test_a_distribution_without_a_library_is_named_with_what_helps(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str | None],
    why: str,
    hint: str,
) -> None:
    installed(place, monkeypatch, **changed)
    with pytest.raises(UsageError) as caught:
        locking.resolve(project(place), "acme", ACME)
    assert caught.value.message.startswith(f"package:acme-mods: {why}")
    assert caught.value.hint == hint


def test_a_distribution_that_is_not_installed_is_named(place: Path) -> None:
    with pytest.raises(UsageError) as caught:
        locking.resolve(project(place), "acme", ACME)
    why = "package:acme-mods: it is not installed beside vllm-mods"
    assert (caught.value.message, caught.value.hint) == (why, "pip install acme-mods")
