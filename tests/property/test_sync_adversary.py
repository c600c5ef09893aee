"""Somebody edits the lock, the cache and the repositories between commands: nothing unsigned goes in, nothing signed is refused."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from git_host import commit, git, mod
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sampling import ALL
from small_site import build, snapshot

from vllm_mods.base import ssh_signatures
from vllm_mods.cli import run
from vllm_mods.formats import project_lock
from vllm_mods.formats.project import LibrarySource
from vllm_mods.sharing import kept, repositories
from vllm_mods.sharing.kept import FetchedLibrary

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)"
)
VARIABLES = ("VLLM_MODS_CONFIG", "VLLM_MODS_LIBRARY", "VLLM_MODS_TARGET", "WORKSPACE_DIR")
SIGNED = ("v1", "v2")
COMMITS = (*SIGNED, "evil", "forged", "listed")
REPOSITORIES = {"alice": COMMITS, "plain": SIGNED}
MODS = {"alice": "fast", "plain": "slow"}
PROJECT = """\
schema = 1
[libraries.alice]
git = "../alice"
rev = "main"
allowed_signers = "./signers"
[libraries.plain]
git = "../plain"
rev = "main"
[targets.default]
mods = ["alice/fast", "plain/slow"]
"""


def text_of(tag: str) -> str:
    return f"X = {tag!r}\n"


def sign(folder: Path, key: Path) -> None:
    """List the files of a library and sign the list."""
    listed = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in sorted((folder / "patches").rglob("*.*"))
    )
    (folder / "SHA256SUMS").write_text(listed)
    (folder / "SHA256SUMS.sig").unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "vllm-mods"]
    subprocess.run([*words, str(folder / "SHA256SUMS")], check=True, capture_output=True)


class World(NamedTuple):
    """Two repositories, a project and a cache, made once; what a machine changes is a copy.

    ``commits`` are by ``alice v1`` and the like; ``known`` is what a lock may say of each.
    """

    folder: Path
    commits: dict[str, str]
    known: dict[str, dict[str, str]]


@functools.cache
def world() -> World:
    here = Path(tempfile.mkdtemp())
    commits = {}
    for name in ("key", "mallory"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(here / name)]
        subprocess.run(words, check=True)
    for tag in SIGNED:
        commits[f"plain {tag}"] = commit(here / "plain", mod("slow", text=text_of(tag)), tag)
    folder = here / "alice"
    for tag in ("evil", "forged", "v1", "listed", "v2"):
        files = mod("fast", text=text_of(tag))
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        if tag != "listed":  # which keeps the signed list of v1
            sign(folder, here / ("mallory" if tag == "forged" else "key"))
        if tag == "evil":
            (folder / "SHA256SUMS.sig").unlink()
        commits[f"alice {tag}"] = commit(folder, files, tag)
    for name in REPOSITORIES:
        shutil.rmtree(here / name / ".git/hooks", ignore_errors=True)
    project = here / "project"
    project.mkdir()
    for name, path in (("key", "signers"), ("mallory", "others")):
        public = (here / f"{name}.pub").read_text()
        (project / path).write_text(f'alice namespaces="vllm-mods" {public}')
    build(here / "site")
    with contextlib.ExitStack() as stack:
        enter(stack, here)
        return World(here, commits, fill(here, commits))


def enter(stack: contextlib.ExitStack, here: Path) -> None:
    """Be in the project of a folder, with its cache, until the stack is closed."""
    stack.enter_context(contextlib.chdir(here / "project"))
    before = dict(os.environ)
    stack.callback(os.environ.update, before)
    stack.callback(os.environ.clear)
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {"VLLM_MODS_CACHE": str(here / "cache"), "HOME": str(here)}


def fill(here: Path, commits: dict[str, str]) -> dict[str, dict[str, str]]:
    """Keep each commit of both repositories, as somebody has who asks for no signature, and lock the first of each."""
    lock, project = here / "project/vllm-mods.lock", here / "project/vllm-mods.toml"
    known = {}
    for owner, tags in REPOSITORIES.items():
        for tag in tags:
            project.write_text(
                f'schema = 1\nlibraries.x.git = "../{owner}"\nlibraries.x.rev = "{tag}"\n'
            )
            assert run(["update"]) == 0
            entry = project_lock.parse(lock.read_bytes(), "")["x"]
            known[f"{owner} {tag}"] = {
                "git": f"../{owner}",
                "commit": entry.resolved,
                "files": f"sha256:{entry.files}",
            }
        git(here / owner, "update-ref", "refs/heads/main", commits[f"{owner} v1"])
    lock.unlink()
    project.write_text(PROJECT)
    assert run(["update"]) == 0
    return known


class Remembered:
    """What git and ssh-keygen have answered, by all that they are asked of: each repository's branch, and the very bytes."""

    def __init__(self) -> None:
        self._fetched: dict[tuple[object, ...], FetchedLibrary] = {}
        self._reasons: dict[tuple[object, ...], str] = {}
        self._fetch, self._why_not = repositories.fetch, ssh_signatures.why_not

    def fetch(self, source: LibrarySource, beside: str, commit: str | None) -> FetchedLibrary:
        branch = Path(beside, source.place, ".git/refs/heads/main")
        if not branch.exists():
            return self._fetch(source, beside, commit)
        key = source, commit, branch.read_bytes()
        if key not in self._fetched:
            self._fetched[key] = self._fetch(source, beside, commit)
        return self._fetched[key]

    def why_not(self, data: bytes, signature: str, signers: str, namespace: str) -> str:
        key = data, Path(signature).read_bytes(), Path(signers).read_bytes(), namespace
        if key not in self._reasons:
            self._reasons[key] = self._why_not(data, signature, signers, namespace)
        return self._reasons[key]


REMEMBERED = Remembered()


class Adversary(RuleBasedStateMachine):
    """A project with a signed library and one that nobody signs; a user, and somebody who may write all but the project's file."""

    def __init__(self) -> None:
        super().__init__()
        made, self.commits, self.known = world()
        self.stack = contextlib.ExitStack()
        here = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("alice", "plain", "project", "site", "cache"):
            shutil.copytree(made / name, here / name)
        self.here, self.cache = here, here / "cache/libraries"
        self.lock, self.project = here / "project/vllm-mods.lock", here / "project/vllm-mods.toml"
        enter(self.stack, here)
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(repositories, "fetch", REMEMBERED.fetch)
        patch.setattr(ssh_signatures, "why_not", REMEMBERED.why_not)
        self.honest = self.lock.read_bytes()
        self.is_damaged = False

    def teardown(self) -> None:
        self.stack.close()

    def call(self, *words: str) -> int:
        self.said = io.StringIO()
        with contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
            return run(list(words))

    def move(self, owner: str, tag: str) -> None:
        for folder in (self.here / owner, self.here / f"{owner}-gone"):
            if folder.exists():
                (folder / ".git/refs/heads/main").write_text(self.commits[f"{owner} {tag}"] + "\n")

    def read_text(self, owner: str) -> str | None:
        path = self.here / f"site/vllm/{MODS[owner]}.py"
        return path.read_text() if path.exists() else None

    def locked_tag(self, owner: str) -> str:
        """Return the tag of the commit that the lock names."""
        entry = project_lock.parse(self.lock.read_bytes(), "")[owner]
        tags = {sha: name.split()[1] for name, sha in self.commits.items()}
        return tags[entry.resolved]

    # --- the user

    @rule()
    def applies(self) -> None:
        self.put_in("apply")

    @invariant()
    def syncs(self) -> None:
        self.put_in("sync")

    def put_in(self, command: str) -> None:
        before = snapshot(self.here / "site")
        names = () if command == "sync" else ("alice/fast",)
        code = self.call(command, *names, "--target", str(self.here / "site"))
        if code != 0:
            assert snapshot(self.here / "site") == before
            is_reachable = all((self.here / owner).exists() for owner in REPOSITORIES)
            may_be_had = not self.is_damaged or (is_reachable and command == "sync")
            is_honest = self.lock.exists() and self.lock.read_bytes() == self.honest
            assert not (is_honest and may_be_had), self.said.getvalue()
            return
        assert self.read_text("alice") in {text_of(tag) for tag in SIGNED}
        if command == "sync":
            for owner in REPOSITORIES:
                assert self.read_text(owner) == text_of(self.locked_tag(owner))

    @rule(name=st.sampled_from([(), ("alice",), ("plain",)]))
    def updates(self, name: tuple[str, ...]) -> None:
        before = self.lock.read_bytes() if self.lock.exists() else None
        if self.call("update", *name) == 0:
            entries = project_lock.parse(self.lock.read_bytes(), "")
            if entries.keys() == set(REPOSITORIES) and all(
                not name or owner in name or before == self.honest for owner in entries
            ):
                self.honest = self.lock.read_bytes()
            if "alice" in (name or REPOSITORIES):
                assert self.locked_tag("alice") in SIGNED
        else:
            assert (self.lock.read_bytes() if self.lock.exists() else None) == before

    @rule()
    def removes_and_adds(self) -> None:
        before, lock = self.project.read_bytes(), self.lock.exists() and self.lock.read_bytes()
        if self.call("remove", "alice") != 0:
            return
        words = ("--name", "alice", "--allowed-signers", "signers", "--mod", "fast")
        if self.call("add", "git+../alice@main", *words) != 0:
            self.project.write_bytes(before)
            if lock:
                self.lock.write_bytes(lock)
            return
        assert self.locked_tag("alice") in SIGNED
        self.project.write_text(PROJECT)
        if lock == self.honest:
            self.honest = self.lock.read_bytes()

    # --- somebody else

    @rule(
        name=st.sampled_from(
            [f"{owner} {tag}" for owner in REPOSITORIES for tag in REPOSITORIES[owner]]
        )
    )
    def moves_the_branch(self, name: str) -> None:
        owner, tag = name.split()
        self.move(owner, tag)
        self.updates((owner,))

    @rule(what=st.sampled_from(["alice", "plain", "lock", "no lock", "mods"]))
    def takes_away_or_brings_back(self, what: str) -> None:
        if what == "mods":
            self.call("revert", "--target", str(self.here / "site"))
        elif what == "lock":
            self.lock.write_bytes(self.honest)
        elif what == "no lock":
            self.lock.unlink(missing_ok=True)
        else:
            folder, gone = self.here / what, self.here / f"{what}-gone"
            shutil.move(*((folder, gone) if folder.exists() else (gone, folder)))

    @rule(owner=st.sampled_from(sorted(REPOSITORIES)), data=st.data())
    def edits_the_lock(self, owner: str, data: st.DataObject) -> None:
        if not self.lock.exists():
            return
        values = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        keys = data.draw(st.sampled_from([("commit", "files"), ("commit",), ("files",), ("git",)]))
        signers = data.draw(st.sampled_from(["./signers", "./others", None]))
        self.edit_entry(owner, {key: values[key] for key in keys}, signers)

    def edit_entry(
        self, owner: str, values: dict[str, str], signers: str | None = "./signers"
    ) -> None:
        head, mark, rest = self.lock.read_text().partition(f"[libraries.{owner}]\n")
        own, blank, others = rest.partition("\n\n")
        for key, value in values.items():
            own = re.sub(rf'^{key} = ".*"', f'{key} = "{value}"', own, flags=re.MULTILINE)
        told = f'allowed_signers = "{signers}"\n' if signers else ""
        own = re.sub(r"^allowed_signers.*(\n|\Z)", told, own, flags=re.MULTILINE)
        self.lock.write_text(f"{head}{mark}{own}{blank}{others}")

    @rule(data=st.data())
    def edits_the_cache(self, data: st.DataObject) -> None:
        folder = self.drawn_folder(data)
        files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
        if not folder or not files:
            return
        self.is_damaged = True
        file = data.draw(st.sampled_from(files))
        way = data.draw(st.sampled_from(["evil", "gone", "folder", "link", "other"]))
        mode = file.parent.stat().st_mode
        file.parent.chmod(0o755)
        other = data.draw(st.sampled_from(files)).read_bytes()
        file.unlink()
        if way == "folder":
            file.mkdir()
        elif way == "link":
            file.symlink_to(self.here / "key")
        elif way != "gone":
            file.write_bytes(other if way == "other" else text_of("evil").encode())
        file.parent.chmod(mode)
        if data.draw(st.booleans()):
            rows = sorted(
                (str(path.relative_to(folder / "files")), path.read_bytes())
                for path in (folder / "files").rglob("*")
                if path.is_file()
            )
            listing = "".join(
                f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in rows
            )
            shutil.rmtree(folder / "list", ignore_errors=True)
            (folder / "list").unlink(missing_ok=True)
            (folder / "list").write_text(listing)
            if self.lock.exists() and data.draw(st.booleans()):  # and lock and cache agree
                owner = data.draw(st.sampled_from(sorted(REPOSITORIES)))
                digest = hashlib.sha256(listing.encode()).hexdigest()
                self.edit_entry(owner, {"files": f"sha256:{digest}"})
                self.put_where_it_is_looked_for(folder, owner)

    @rule(data=st.data())
    def moves_in_the_cache(self, data: st.DataObject) -> None:
        """Put what is kept of one library where the lock's is looked for."""
        source = self.drawn_folder(data)
        if source is not None and self.lock.exists():
            self.put_where_it_is_looked_for(
                source, data.draw(st.sampled_from(sorted(REPOSITORIES)))
            )

    def put_where_it_is_looked_for(self, source: Path, owner: str) -> None:
        entries = project_lock.parse(self.lock.read_bytes(), "")
        place = Path(kept._place(entries[owner])) if owner in entries else source
        if place != source:
            self.is_damaged = True
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place, symlinks=True)

    def drawn_folder(self, data: st.DataObject) -> Path | None:
        folders = sorted(self.cache.iterdir()) if self.cache.exists() else []
        return data.draw(st.sampled_from(folders)) if folders else None


TestAdversary = pytest.mark.slow(Adversary.TestCase)
TestAdversary.settings = settings(
    max_examples=2000 if ALL else 12,
    stateful_step_count=16 if ALL else 10,
    deadline=None,
    phases=[Phase.generate],  # ten steps are read soon enough; to make them fewer takes minutes
)
