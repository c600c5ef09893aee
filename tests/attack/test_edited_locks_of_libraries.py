"""A lock or a cache that somebody edited: what `sync` puts in is the commit's own files, signed, or nothing."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import lone_project
import pytest
from git_host import commit, git, mod, write
from small_site import build, snapshot

from vllm_mods.base.errors import TreeError
from vllm_mods.cli import run
from vllm_mods.sharing import git_objects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., tuple[int, str]]

EVIL = "X = 'evil'\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lone_project.project(tmp_path, monkeypatch)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def do(*arguments: object) -> tuple[int, str]:
        code = run([str(argument) for argument in arguments])
        return code, "".join(capfd.readouterr())

    return do


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


@pytest.fixture
def alice(tmp_path: Path, call: Call) -> Path:
    """Lock a good library under one tag and an evil one, which is kept too, under another."""
    folder = tmp_path / "alice"
    commit(folder, mod("fast", text=EVIL), "evil")
    commit(folder, mod("fast"), "v1")
    assert call("add", "git+../alice@evil", "--name", "eve")[0] == 0
    assert call("add", "git+../alice@v1", "--name", "alice")[0] == 0
    return folder


def entry(lock: str, name: str) -> dict[str, str]:
    """Return the keys that a lock has of a library."""
    (text,) = re.findall(rf"\[libraries\.{name}\]\n((?:.+\n)+)", lock)
    return dict(re.findall(r'(\w+) = "(.*)"', text))


def edit(place: Path, name: str, **keys: str) -> None:
    """Give a library of the lock, and no other, other values."""
    lock = place / "vllm-mods.lock"
    head, mark, rest = lock.read_text().partition(f"[libraries.{name}]\n")
    own, blank, others = rest.partition("\n\n")
    for key, value in keys.items():
        own = re.sub(rf'^{key} = ".*"', f'{key} = "{value}"', own, flags=re.MULTILINE)
    lock.write_text(f"{head}{mark}{own}{blank}{others}")


def use(place: Path, *mods: str) -> None:
    project = place / "vllm-mods.toml"
    project.write_text(f"{project.read_text()}\n[targets.default]\nmods = {list(mods)}\n")


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("online", [True, False])
def test_files_of_another_commit_are_not_those_of_the_locked_one(
    call: Call, place: Path, alice: Path, site: Path, *, online: bool
) -> None:
    """The hash of the files was changed to one that is in the cache, and the commit left as it was."""
    use(place, "alice/fast")
    edit(place, "alice", files=entry((place / "vllm-mods.lock").read_text(), "eve")["files"])
    if not online:
        alice.rename(alice.with_name("gone"))
    before = snapshot(site)
    code, text = call("sync", "--target", site)
    assert code == (3 if online else 1), text
    assert ("differs from" if online else "git fetch failed") in text
    assert snapshot(site) == before
    code, text = call("check", "alice/fast", "--target", site)
    assert code == 2
    assert "has not been fetched" in text


@pytest.mark.slow
def test_another_commit_than_the_one_that_the_project_names(
    call: Call, place: Path, alice: Path, site: Path
) -> None:
    """Commit and files of the lock agree with each other, and `rev` is another commit."""
    good = git(alice, "rev-parse", "v1^{commit}")
    evil = entry((place / "vllm-mods.lock").read_text(), "eve")
    assert call("add", f"git+../alice@{good}", "--name", "exact", "--mod", "fast")[0] == 0
    edit(place, "exact", commit=evil["commit"], files=evil["files"])
    before = snapshot(site)
    code, text = call("sync", "--target", site)
    assert code == 2
    assert "has no entry for this source, revision and signers" in text
    assert snapshot(site) == before


def relist(folder: Path) -> str:
    """Write the list of a kept library anew, and return its hash."""
    rows = sorted(
        (str(path.relative_to(folder / "files")), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (folder / "files").rglob("*")
        if path.is_file()
    )
    (folder / "list").write_text("".join(f"{digest}  {path}\n" for path, digest in rows))
    return hashlib.sha256((folder / "list").read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_cache_and_a_lock_that_agree_with_each_other_are_not_the_commit(
    call: Call,
    place: Path,
    alice: Path,
    site: Path,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever writes to the cache and to the lock cannot write to the commit's hash."""
    use(place, "alice/fast")
    (folder,) = (
        folder
        for folder in (tmp_path / "cache/libraries").iterdir()
        if (folder / "files/patches/fast/x.py").read_text() != EVIL
    )
    write(folder / "files", {"patches/fast/x.py": EVIL})
    edit(place, "alice", files=f"sha256:{relist(folder)}")
    # wherever it would be looked for
    monkeypatch.setattr("vllm_mods.sharing.kept._place", lambda _: str(folder))
    alice.rename(alice.with_name("gone"))
    before = snapshot(site)
    code, text = call("sync", "--target", site)
    assert code == 1, text
    assert snapshot(site) == before


def signed(folder: Path, key: Path) -> None:
    """Write and sign the list of a library's files."""
    sums = subprocess.run(
        ["sh", "-c", "find patches -type f | sort | xargs sha256sum"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    (folder / "SHA256SUMS").write_bytes(sums.stdout)
    (folder / "SHA256SUMS.sig").unlink(missing_ok=True)
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "vllm-mods"]
    subprocess.run([*sign, str(folder / "SHA256SUMS")], check=True, capture_output=True)


@pytest.fixture
def key(tmp_path: Path, place: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen (OpenSSH)")
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    public = file.with_suffix(".pub").read_text()
    (place / "signers").write_text(f'alice namespaces="vllm-mods" {public}')
    return file


def unsigned_file(folder: Path) -> None:
    write(folder, {"patches/fast/x.py": EVIL})


def file_beside(folder: Path) -> None:
    write(folder, mod("more"))


def no_list(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()


def no_signature(folder: Path) -> None:
    (folder / "SHA256SUMS.sig").unlink()


def list_of_its_own(folder: Path) -> None:
    write(folder, {"patches/fast/x.py": EVIL})
    digest = hashlib.sha256(EVIL.encode()).hexdigest()
    text = (folder / "SHA256SUMS").read_text()
    (folder / "SHA256SUMS").write_text(re.sub(r"\w+(?=  patches/fast/x\.py)", digest, text))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["git", "path", "package"])
@pytest.mark.parametrize(
    "spoil", [unsigned_file, file_beside, no_list, no_signature, list_of_its_own]
)
def test_a_lock_that_fits_what_nobody_signed(
    call: Call,
    place: Path,
    site: Path,
    *,
    tmp_path: Path,
    key: Path,
    kind: str,
    spoil: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commit, version and hash of the lock are those of the unsigned files: the signature alone decides."""
    folder = tmp_path / ("installed/acme" if kind == "package" else "lib")
    write(folder, mod("fast"))
    signed(folder, key)
    if kind == "package":
        info = "acme_mods-1.dist-info"
        points = "[vllm_mods.libraries]\na = acme\n"
        metadata = "Metadata-Version: 2.1\nName: acme-mods\nVersion: 1\n"
        write(folder.parent, {f"{info}/METADATA": metadata, f"{info}/entry_points.txt": points})
        monkeypatch.syspath_prepend(str(folder.parent))
    source = {"git": "git+../lib@main", "path": "../lib", "package": "package:acme-mods"}[kind]
    save = functools.partial(commit, folder, {}) if kind == "git" else lambda: None
    save()
    words = ("--name", "lib", "--mod", "fast")
    assert call("add", source, "--allowed-signers", "signers", *words)[0] == 0
    assert call("sync", "--target", site)[0] == 0
    assert call("sync", "--check", "--target", site)[0] == 0

    (place / "signed.lock").write_bytes((place / "vllm-mods.lock").read_bytes())
    (place / "signed.toml").write_bytes((place / "vllm-mods.toml").read_bytes())
    call("remove", "lib")
    assert call("sync", "--target", site)[0] == 0
    spoil(folder)
    save()
    assert call("add", source, *words)[0] == 0  # nobody asks for a signature, so it is kept
    unsigned = entry((place / "vllm-mods.lock").read_text(), "lib")
    (place / "vllm-mods.toml").write_bytes((place / "signed.toml").read_bytes())
    (place / "vllm-mods.lock").write_bytes((place / "signed.lock").read_bytes())
    edit(place, "lib", **{one: unsigned[one] for one in ("commit", "files") if one in unsigned})
    before = snapshot(site)
    code, text = call("sync", "--target", site)
    assert code in {2, 3}, text
    assert snapshot(site) == before
    if spoil is not file_beside:  # the mod itself is signed
        code, text = call("apply", "lib/fast", "--target", site)
        assert code in {2, 3}, text
        assert snapshot(site) == before


# --- objects ------------------------------------------------------------------------------


def stored(folder: Path) -> dict[str, bytes]:
    """Return all objects of a repository, as git hashes them."""
    names = git(
        folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"
    )
    objects = {}
    for line in names.splitlines():
        name, kind = line.split()
        content = subprocess.run(
            ["git", "-C", folder, "cat-file", kind, name], capture_output=True, check=True
        ).stdout
        objects[name] = git_objects.with_header(kind, content)
    return objects


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_the_files_of_a_commit_are_those_that_git_lists(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", f"--object-format={form}")
    files = {f"a/b/{path}": text for path, text in (mod("fast") | mod("slow")).items()}
    more = {"a/b/patches/.hidden": "", "a/b/README.md": "", "a/b/SHA256SUMS": "", "patches/x": ""}
    head = commit(folder, files | more)
    found = git_objects.library_files(head, "a/b", stored(folder).__getitem__, "it")
    wanted = {path: git(folder, "rev-parse", f"HEAD:{path}") for path in [*files, "a/b/SHA256SUMS"]}
    assert {f"a/b/{path}": blob for path, blob in found} == wanted
    assert list(git_objects.library_files(head, "a/c", stored(folder).__getitem__, "it")) == []


def test_each_object_is_held_against_its_name(tmp_path: Path) -> None:
    head = commit(tmp_path / "one", mod("fast"))
    objects = stored(tmp_path / "one")
    trees = [name for name, data in objects.items() if data.startswith((b"tree", b"commit"))]
    assert len(trees) == 4
    for name in trees:
        kind, _, content = objects[name].partition(b"\0")
        for bad in (kind + b"\0" + content + b"x", kind + b"\0" + content[:-1], b""):
            with pytest.raises(TreeError, match="has another hash"):
                list(git_objects.library_files(head, "", (objects | {name: bad}).__getitem__, "it"))
        without = {one: data for one, data in objects.items() if one != name}
        with pytest.raises(TreeError, match="was not sent by"):
            list(git_objects.library_files(head, "", without.__getitem__, "it"))


def made(objects: dict[str, bytes], kind: str, content: bytes) -> str:
    data = git_objects.with_header(kind, content)
    name = hashlib.sha1(data).hexdigest()  # noqa: S324  (git's)
    objects[name] = data
    return name


def row(mode: str, name: str, of: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(of)


@pytest.mark.parametrize(
    ("mode", "name", "why"),
    [
        ("100644", "a/b", "has an invalid name"),
        ("40000", "a/b", "points outside the repository"),
        ("40000", "", "points outside the repository"),
        ("120000", "x", "is a symbolic link"),
        ("160000", "x", "is a submodule"),
        ("644", "x", "is no file"),
        ("100644", "a\nb", "other systems do not support"),
    ],
)
def test_an_entry_that_no_library_may_have(mode: str, name: str, why: str) -> None:
    objects: dict[str, bytes] = {}
    leaf = made(objects, "tree" if mode == "40000" else "blob", b"")
    tree = made(
        objects, "tree", row("40000", "patches", made(objects, "tree", row(mode, name, leaf)))
    )
    head = made(objects, "commit", f"tree {tree}\n".encode())
    with pytest.raises(TreeError, match=why):
        list(git_objects.library_files(head, "", objects.__getitem__, "it"))


@pytest.mark.parametrize("mode", ["100644", "40000"])
@pytest.mark.parametrize("name", [".", "..", ".git", "__pycache__"])
def test_an_entry_that_is_no_part_of_a_library(mode: str, name: str) -> None:
    objects: dict[str, bytes] = {}
    leaf = made(objects, "tree" if mode == "40000" else "blob", b"")
    tree = made(
        objects, "tree", row("40000", "patches", made(objects, "tree", row(mode, name, leaf)))
    )
    head = made(objects, "commit", f"tree {tree}\n".encode())
    assert list(git_objects.library_files(head, "", objects.__getitem__, "it")) == []


@pytest.mark.slow
@pytest.mark.parametrize("leaf", ["file", "nothing"])
def test_ten_to_the_tenth_paths_in_ten_objects(leaf: str) -> None:
    """The same tree ten times in each of ten levels: a listing would be hundreds of gigabytes."""
    objects: dict[str, bytes] = {}
    below = made(objects, "blob" if leaf == "file" else "tree", b"")
    mode = "100644" if leaf == "file" else "40000"
    for _ in range(10):
        rows = b"".join(row(mode, f"d{number}", below) for number in range(10))
        below, mode = made(objects, "tree", rows), "40000"
    head = made(
        objects, "commit", f"tree {made(objects, 'tree', row(mode, 'patches', below))}\n".encode()
    )
    with pytest.raises(TreeError, match="more than 20,000"):
        list(git_objects.library_files(head, "", objects.__getitem__, "it"))


@pytest.mark.slow
def test_what_is_kept_needs_no_network_and_no_git(
    call: Call, place: Path, alice: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(place, "alice/fast")
    alice.rename(alice.with_name("gone"))
    monkeypatch.setenv("PATH", os.devnull)
    assert call("sync", "--target", site)[0] == 0
    assert (site / "vllm/fast.py").read_text() == "X = 1\n"
