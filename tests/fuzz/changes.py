"""Diffs, mods, and the Python that comes out of putting them in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from mod_folders import FAST, FIX, LOADER
from mod_making import diff_of, mod, variant

from fuzz.contract import Target
from fuzz.parts import joined, taken
from vllm_mods.fit import judge
from vllm_mods.formats import diff, diff_writer, manifest, mod_lock, project, project_lock, receipt
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.library import mod_folder, packed_mod
from vllm_mods.library.mod_folder import data_root
from vllm_mods.making import from_diff
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.planning import layered_tree, planner
from vllm_mods.porting import text as porting

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = {
    "vllm/__init__.py": b"",
    "vllm/loader.py": LOADER.encode(),
    "vllm/user.py": b"from vllm.loader import Loader\n\n\ndef use():\n    return Loader().load('x')\n",
}
MANIFEST = """\
schema = 1
name = "mod"
version = "1.0.0"
summary = "s"
license = "MIT"
requires = ["other"]
[upstream]
issues = ["vllm-project/vllm#1"]
status = "open"
[evidence]
log = 'Hybrid \\d+ layers'
[serve]
args = ["--x"]
[hardware]
compute_capability = ["9.0"]
[[variant]]
id = "0.19"
vllm = ">=0.19,<0.20"
patches = ["fix.patch"]
python = ["torch>=2"]
overlay = [{ source = "new.py", path = "vllm/new.py" }]
allow = [{ code = "fit-call", scope = "f", reason = "r" }]
"""

PROJECT = """\
schema = 1
[trust]
allowed_signers = "allowed_signers"
require_hashes = ["sha256:00", "sums"]
bundled = false
[libraries.alice]
git = "https://host/alice/mods"
rev = "v1"
subdirectory = "vllm"
[targets.default]
path = "site"
mods = ["alice/fast"]
pairing = "pair"
"""
PROJECT_LOCK = f"""\
schema = 1
[libraries.alice]
git = "https://host/alice/mods"
rev = "v1"
commit = "{"0" * 40}"
files = "sha256:{"0" * 64}"
"""


def _bundled(name: str) -> Iterator[bytes]:
    for folder, _, names in os.walk(os.path.join(data_root(), "patches")):
        for one in sorted(names):
            if one.endswith(name):
                with open(os.path.join(folder, one), "rb") as file:
                    data = file.read()
                if len(data) < 40_000:
                    yield data


def _diff(data: bytes, _folder: str) -> None:
    for file in diff.parse(data, "x.patch"):
        file.reversed()
    planner.plan([mod(variant(data))], MemoryTree(dict(SMALL)))


def _diff_seeds() -> tuple[bytes, ...]:
    quoted = FIX.replace("a/vllm/loader.py", '"a/vllm/\\303\\244.py"')
    return (
        FIX.encode(),
        quoted.encode(),
        diff_of("vllm/loader.py", LOADER, FAST, section="class Loader:"),
        b"diff --git a/vllm/a.py b/vllm/b.py\nsimilarity index 100%\nrename from vllm/a.py\nrename to vllm/b.py\n",
        b"diff --git a/vllm/n.py b/vllm/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+x = 1\n\\ No newline at end of file\n",
        diff_writer.file_diff("vllm/loader.py", LOADER.encode(), None),
        *list(_bundled(".patch"))[:3],
    )


def _from_diff(data: bytes, _folder: str) -> None:
    from_diff.changes(data, "x.diff", MemoryTree(dict(SMALL)))


def _project(data: bytes, _folder: str) -> None:
    project.parse(data, "vllm-mods.toml")


def _project_lock(data: bytes, _folder: str) -> None:
    made = project_lock.parse(data, "vllm-mods.lock")
    assert project_lock.parse(project_lock.dump(made.items()), "again") == made


def _manifest(data: bytes, _folder: str) -> None:
    files = {"/mod/mod.toml": data, "/mod/fix.patch": FIX.encode(), "/mod/new.py": b"NEW = 1\n"}
    made = mod_folder.load_mod("/mod", read=files.get)
    packed_mod.unpack(packed_mod.pack(made), "kept", "mod")
    planner.plan([made._replace(requires=())], MemoryTree(dict(SMALL)))


def _lock(data: bytes, _folder: str) -> None:
    toml = MANIFEST.replace('requires = ["other"]\n', "").encode()
    files = {
        "/mod/mod.toml": toml,
        "/mod/mod.lock": data,
        "/mod/fix.patch": FIX.encode(),
        "/mod/new.py": b"NEW = 1\n",
    }
    made = mod_folder.load_mod("/mod", read=files.get)
    # the digest is the library's own; the rest of the lock is what came
    read = mod_lock.parse(data, "mod.lock")
    whole = mod_lock.dump(read._replace(digest=made.digest))
    planner.plan([made._replace(lock=whole)], MemoryTree(dict(SMALL)))


def _lock_seeds() -> tuple[bytes, ...]:
    from mod_making import lock_of

    tree = MemoryTree(dict(SMALL))
    toml = MANIFEST.replace('requires = ["other"]\n', "").encode()
    files = {"/mod/mod.toml": toml, "/mod/fix.patch": FIX.encode(), "/mod/new.py": b"NEW = 1\n"}
    made = mod_folder.load_mod("/mod", read=files.get)
    planned = planner.plan([made], tree).mods[0]
    assert planned.verdict.writes, planned.findings
    table = manifest.from_toml(toml, "x")
    assert table.name == "mod"
    return (lock_of(planned),)


def _kept(data: bytes, _folder: str) -> None:
    packed_mod.unpack(data, "kept", "mod")


def _kept_seeds() -> tuple[bytes, ...]:
    toml = MANIFEST.encode()
    files = {"/mod/mod.toml": toml, "/mod/fix.patch": FIX.encode(), "/mod/new.py": b"NEW = 1\n"}
    return (packed_mod.pack(mod_folder.load_mod("/mod", read=files.get)),)


def _python(data: bytes, _folder: str) -> None:
    """A file as a mod leaves it."""
    before = SMALL["vllm/loader.py"]
    if data == before:
        return
    try:
        patch = diff_writer.file_diff("vllm/loader.py", before, data)
    except ValueError:
        return
    planner.plan([mod(variant(patch))], MemoryTree(dict(SMALL)))
    # and as what lies in the tree already
    files = {**SMALL, "vllm/loader.py": data}
    planner.plan([mod(variant(FIX.encode()))], MemoryTree(files))
    with_user = diff_of("vllm/user.py", SMALL["vllm/user.py"].decode(), "import vllm.loader\n")
    planner.plan([mod(variant(with_user))], MemoryTree(files))


def _python_seeds() -> tuple[bytes, ...]:
    sources = []
    for module in (layered_tree, judge, receipt):
        with open(module.__file__ or "", "rb") as file:
            sources.append(file.read())
    return (FAST.encode(), *sources)


def _scopes(data: bytes, _folder: str) -> None:
    found = read_scopes(data)
    found.above(3)
    found.chain(range(1, 20))


def _port(data: bytes, _folder: str) -> None:
    base, ours, theirs = taken(data, 3)
    path, os.environ["PATH"] = os.environ.get("PATH", ""), "/nonexistent"  # not git's merge: ours
    try:
        porting.port(base, ours, theirs, python=True)
        porting.port(base, ours, theirs, python=False)
    finally:
        os.environ["PATH"] = path


def _port_seeds() -> tuple[bytes, ...]:
    later = "# a line\n" + LOADER.replace("class Saver", "@final\nclass Saver")
    return (joined(LOADER, FAST, later), joined(LOADER, FAST, LOADER.replace("path", "place")))


TARGETS = (
    Target("diff", _diff, _diff_seeds),
    Target("from-diff", _from_diff, lambda: (FIX.encode(), *_diff_seeds()[2:5])),
    Target("project", _project, lambda: (PROJECT.encode(),)),
    Target("project-lock", _project_lock, lambda: (PROJECT_LOCK.encode(),)),
    Target("mod-toml", _manifest, lambda: (MANIFEST.encode(), *_bundled("mod.toml"))),
    Target("mod-lock", _lock, _lock_seeds),
    Target("kept-mod", _kept, _kept_seeds),
    Target("python", _python, _python_seeds),
    Target(
        "scopes",
        _scopes,
        lambda: tuple(taken(one, 2)[0] for one in _python_seeds()),
        (UnparsableError,),
    ),
    Target("port", _port, _port_seeds),
)
