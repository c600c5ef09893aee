"""Sequences of commands, kills, installations and edits: the tree is a legal one, and all agree about which.

What is legal says a model that knows no patches: a mod is a function from files to files. After every step the
files are those of the model, and `status`, `verify`, `check` and RECORD say the same of them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import faults
import installing
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from mod_making import diff_of, indexed, write_mod
from sampling import ALL, few
from small_site import sha

import vllm_mods as vm
from vllm_mods.formats import record
from vllm_mods.planning import lock_entries
from vllm_mods.site import transaction
from vllm_mods.site.journal import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Files = dict[str, bytes]

LOADER = b'import os\n\n\ndef load(name):\n    return os.path.join("weights", name)\n\n\ndef save(name):\n    return name\n'
TWIN = "def {}(x):\n    x = int(x)\n    y = x + 1\n    z = y\n    return z\n"
TWINS = TWIN.format("first") + "\n\n" + TWIN.format("second")
A = {
    "vllm/__init__.py": b"",
    "vllm/loader.py": LOADER,
    "vllm/limit.py": b"LIMIT = 1\n\n\ndef limit():\n    return LIMIT\n",
    "vllm/rival.py": b"RIVAL = 1\n",
    "vllm/twins.py": TWINS.encode(),
    "vllm/sub/__init__.py": b"",
    "vllm/sub/old.py": b"OLD = 1\n",
    "vllm/sub/used.py": b"USED = 1\n",
}
RELEASES = {
    "0.19.1": A,
    # all mods fit, at other lines; a file is new, one that a mod removes is gone
    "0.20.0": {path: data for path, data in A.items() if path != "vllm/sub/old.py"}
    | {"vllm/loader.py": b"# later\n" + LOADER, "vllm/more.py": b""}
    | {"vllm/twins.py": b"# later\n" + TWINS.encode()},
    # `fast` does not fit, and what `limit` does is in
    "0.21.0": A
    | {
        "vllm/loader.py": b"x = 1\n",
        "vllm/limit.py": A["vllm/limit.py"].replace(b"LIMIT = 1", b"LIMIT = 2"),
    },
}
REBUILT = A | {"vllm/loader.py": LOADER + b"# built elsewhere\n", "vllm/rival.py": b"RIVAL = 0\n"}
"""Another build of the first release."""


class Kind(NamedTuple):
    """A mod: what it puts in place of what, what it brings, what it removes.

    Only the mod.lock of one that is ``locked`` tells its place from a twin of it.
    """

    texts: Mapping[str, tuple[str, str]] = MappingProxyType({})
    new: Mapping[str, bytes] = MappingProxyType({})
    gone: tuple[str, ...] = ()
    more: str = ""
    locked: bool = False

    @property
    def paths(self) -> set[str]:
        return {*self.texts, *self.new, *self.gone}

    def put_in(self, files: Files) -> Files:
        left = {path: data for path, data in files.items() if path not in self.gone}
        for path, (old, new) in self.texts.items():
            left[path] = files[path].replace(old.encode(), new.encode(), 1)
        return {**left, **self.new}


FIRST, SECOND = TWIN.format("first"), TWIN.format("second")
MODS = {
    "fast": Kind({"vllm/loader.py": ('"weights"', '"fast"')}),
    "limit": Kind({"vllm/limit.py": ("LIMIT = 1", "LIMIT = 2")}),
    "higher": Kind({"vllm/limit.py": ("LIMIT = 2", "LIMIT = 3")}, more='requires = ["limit"]'),
    "rival": Kind({"vllm/rival.py": ("RIVAL = 1", "RIVAL = 2")}, more='conflicts = ["fast"]'),
    "new": Kind({"vllm/sub/used.py": ("USED = 1", "USED = 2")}, {"vllm/sub/new.py": b"NEW = 1\n"}),
    "gone": Kind(gone=("vllm/sub/old.py",)),
    "beside": Kind(new={"kernels/a.py": b"K = 1\n"}, more='outside = ["kernels/a.py"]'),
    "chat": Kind(),
    "first": Kind({"vllm/twins.py": (FIRST, FIRST.replace("return z", "return -z"))}),
    "second": Kind({"vllm/twins.py": (SECOND, SECOND.replace("+ 1", "+ 2"))}, locked=True),
}
NAMES = st.lists(st.sampled_from(sorted(MODS)), min_size=1, max_size=3, unique=True)
KILL = st.none() | st.integers(1, 60) | st.integers(1, 60) | st.integers(1, 120)


def make_library(folder: Path) -> Path:
    for name, kind in MODS.items():
        patch = b""
        for path, (old, new) in kind.texts.items():
            before = (
                A[path].decode() if name != "higher" else A[path].decode().replace("= 1", "= 2")
            )
            after = before.replace(old, new, 1)
            if kind.locked:
                patch += indexed(diff_of(path, before, after, context=1), before, after, path)
            else:
                section = "def first(x):" if old == FIRST else ""
                patch += diff_of(path, before, after, section=section)
        for path, data in kind.new.items():
            patch += f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{data.decode()}".encode()
        for path in kind.gone:
            patch += f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{A[path].decode()}".encode()
        made = write_mod(folder, name, patch, more=kind.more)
        if kind.locked:
            site = folder / "written-for"
            installing.install(site, A)
            tree = vm.open_tree(site)
            (planned,) = vm.plan(vm.Library(folder).mods(name), tree).mods
            locked = lock_entries.first(planned.mod, [(planned, tree)])
            (made / "mod.lock").write_bytes(locked["mod.lock"])
        if name == "chat":
            text = (made / "mod.toml").read_text().replace('patches = ["x.patch"]', "")
            (made / "mod.toml").write_text(
                text + 'templates = [{ name = "t", file = "t.jinja" }]\n'
            )
    (folder / "templates/t").mkdir(parents=True)
    (folder / "templates/t/template.jinja").write_text("{{ x }}")
    return folder


class Counted(NamedTuple):
    """How far a run got; printed at its end."""

    steps: list[int]
    kills: list[int]


COUNT = Counted([0], [0])


class Commands(RuleBasedStateMachine):
    """One tree, and what the model knows of it.

    ``base`` is the installation, with what somebody did to it, ``files`` all that there is. ``mods`` are
    those of the receipt, ``after`` is what they left of the files they touched; ``undone`` are paths that
    are the installation's again, of which ``by_hand`` were put back without pip.
    """

    library: vm.Library

    def __init__(self) -> None:
        super().__init__()
        shared = "/dev/shm"  # noqa: S108  (tempfile makes the folder in it)
        self.patched = pytest.MonkeyPatch()
        self.folder = tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None)
        self.root = Path(self.folder) / "site"
        self.library = vm.Library(make_library(Path(self.folder) / "library"))
        self.mods: tuple[str, ...] = ()
        self.after: dict[str, bytes | None] = {}
        self.undone: set[str] = set()
        self.by_hand: set[str] = set()
        self.unlisted: set[str] = set()
        self.saved: tuple[tuple[str, ...], dict[str, bytes | None]] | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder)
        self.patched.undo()

    # --- what happens -------------------------------------------------------------

    @initialize(version=st.sampled_from(["0.19.1", "0.20.0"]))
    def first(self, version: str) -> None:
        self.base: Files = dict(RELEASES[version])
        self.files: Files = dict(self.base)
        installing.install(self.root, self.base, version)
        self.agree()

    @rule(names=NAMES, kill=KILL)
    def apply(self, names: list[str], kill: int | None) -> None:
        chosen = self.library.mods(*names)
        wanted = [mod.name for mod in chosen]

        def command() -> None:
            vm.apply(chosen, self.root, source_date_epoch=1_700_000_000)

        self.command(command, kill, lambda: self.applied(wanted))

    @precondition(lambda self: self.mods)
    @rule(data=st.data(), kill=KILL, discard=st.booleans())
    def revert(self, data: st.DataObject, kill: int | None, discard: bool) -> None:  # noqa: FBT001
        self.take_out(data.draw(st.lists(st.sampled_from(self.mods), unique=True)), kill, discard)

    def take_out(self, names: list[str], kill: int | None, discard: bool) -> None:  # noqa: FBT001
        """Revert some mods, all if none is named. Only edits and mods that require them are in the way."""

        def command() -> None:
            vm.revert(self.root, *names, discard_edits=discard)

        needed = names and "limit" in names and "higher" in {*self.mods} - {*names}
        self.command(
            command,
            kill,
            lambda: self.reverted(names, discard=discard),
            may_refuse=bool(self.edited or self.undone or needed),
        )

    @rule(version=st.sampled_from([*RELEASES, "rebuilt"]), first=st.booleans())
    def pip(self, version: str, first: bool) -> None:  # noqa: FBT001
        """Upgrade or reinstall; with ``first`` uninstall before."""
        left = self.unlisted_files()
        self.install(version, first=first)
        self.installed(version, left)
        self.agree()

    @rule(names=NAMES, kill=st.integers(1, 80), version=st.sampled_from([*RELEASES, "rebuilt"]))
    def pip_after_a_kill(self, names: list[str], kill: int, version: str) -> None:
        """Install before anything has recovered: what is put back is never of the installation that is gone."""
        chosen = self.library.mods(*names)

        def killed() -> None:
            faults.at(kill, faults.kill)
            vm.apply(chosen, self.root, source_date_epoch=1_700_000_000)

        if faults.in_child(killed) == -9:
            COUNT.kills[0] += 1
            halfway = [*self.root.glob(f"{PREFIX}*/journal.json")]
            if not halfway and (self.on_disk(), self.receipt()) != (self.files, self.mods):
                self.applied([mod.name for mod in chosen])
            left = self.unlisted_files()
            self.install(version, first=kill % 2 == 0)
            transaction.recover(str(self.root))
            self.installed(version, left)
        elif self.on_disk() != self.files or self.receipt() != self.mods:
            self.applied([mod.name for mod in chosen])
        self.agree()

    def unlisted_files(self) -> Files:
        """Return what pip leaves where it is."""
        (rows,) = (path.read_bytes() for path in self.root.glob("vllm-*.dist-info/RECORD"))
        there = self.on_disk()
        return {p: d for p, d in self.files.items() if p in there and not record.lists(rows, p)}

    def install(self, version: str, *, first: bool) -> None:
        files = REBUILT if version == "rebuilt" else RELEASES[version]
        if first:
            installing.uninstall(self.root)
        installing.install(self.root, files, "0.19.1" if version == "rebuilt" else version)

    def installed(self, version: str, left: Files) -> None:
        files = REBUILT if version == "rebuilt" else RELEASES[version]
        mine = {p: d for p, d in left.items() if p not in self.after or p in self.base}
        self.base = mine | files
        self.files = left | self.base
        self.undone |= {path for path in self.after if path.startswith("vllm/")}
        self.by_hand.clear()
        self.unlisted = self.base.keys() - files.keys()

    @rule(path=st.sampled_from(sorted({*A, "vllm/sub/new.py", "kernels/a.py", "vllm/mine.py"})))
    def edit(self, path: str) -> None:
        if path.startswith("kernels/") and path not in self.files:
            return
        self.write(path, self.files.get(path, b"") + b"# edited\n")
        self.agree()

    @rule(
        path=st.sampled_from(sorted({*A, "vllm/sub/new.py", "kernels/a.py"} - {"vllm/__init__.py"}))
    )
    def delete(self, path: str) -> None:
        # what a mod removed and pip brought back may be gone again: nothing tells whose doing that is
        if path in self.files and path not in {
            one for one, data in self.after.items() if data is None
        }:
            self.write(path, None)
            self.agree()

    @rule(path=st.sampled_from(sorted(A)))
    def put_back(self, path: str) -> None:
        """Put the untouched file back by hand, over a mod's."""
        theirs = path in self.after and path not in self.undone and path in self.base
        if theirs and self.files.get(path) == self.after[path] != self.base[path]:
            self.write(path, self.base[path])
            self.undone.add(path)
            self.by_hand.add(path)
            self.agree()

    @precondition(lambda self: self.mods and not self.saved)
    @rule()
    def save(self) -> None:
        """Keep the tool's folder, as a backup of the environment would."""
        shutil.copytree(self.root / ".vllm-mods", Path(self.folder) / "saved")
        self.saved = (self.mods, dict(self.after))

    @precondition(lambda self: self.saved and not self.mods)
    @rule(version=st.sampled_from([*RELEASES]))
    def leftover(self, version: str) -> None:
        """A fresh installation that such a folder comes back to."""
        self.pip(version, first=True)
        shutil.copytree(Path(self.folder) / "saved", self.root / ".vllm-mods")
        assert self.saved is not None
        self.mods, self.after = self.saved[0], dict(self.saved[1])
        self.base = {
            path: data for path, data in self.base.items() if not path.startswith("kernels/")
        }
        self.undone = {path for path in self.after if path.startswith("vllm/")}
        self.by_hand.clear()
        self.agree()

    @precondition(lambda self: self.mods)
    @rule()
    def follow_the_hint(self) -> None:
        there = vm.status(self.root)
        if there.hint is None:
            return
        for command in there.hint.partition("  #")[0].split(" && "):
            words = command.split()
            if words[:2] == ["vllm-mods", "revert"]:
                self.take_out([], None, "--discard-edits" in words)
            else:
                assert words[:2] == ["vllm-mods", "apply"], there.hint
                self.apply([word for word in words[2:] if word in MODS], None)

    # --- what that means ------------------------------------------------------------

    def write(self, path: str, data: bytes | None) -> None:
        place = self.root / path
        if data is None:
            place.unlink()
            del self.files[path]
        else:
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(data)
            self.files[path] = data
        pristine = path not in self.after or (path in self.undone and path.startswith("vllm/"))
        if pristine and (path not in self.after or self.is_new()):
            if data is None:
                self.base.pop(path, None)
            else:
                self.base[path] = data
            self.unlisted.add(path)
        else:
            self.undone.discard(path)

    def is_new(self) -> bool:
        """Tell whether pip installed vLLM since the mods went in: then nothing of it is theirs."""
        theirs = self.undone - self.by_hand
        return all(one in theirs for one in self.after if one.startswith("vllm/"))

    @property
    def edited(self) -> set[str]:
        return {
            path
            for path, data in self.after.items()
            if path not in self.undone and self.files.get(path) != data
        }

    @property
    def lost(self) -> set[str]:
        """What a mod brought and somebody removed: nothing of anybody's is lost if that comes back."""
        return {path for path in self.after if path not in self.files and path not in self.base}

    @property
    def torn(self) -> set[str]:
        """The mods that are not in whole, with what requires one of them."""
        out = {name for name in self.mods if MODS[name].paths & self.undone}
        return out | ({"higher"} & {*self.mods} if "limit" in out else set())

    def applied(self, names: Sequence[str]) -> None:
        if self.undone and not self.edited - self.lost:
            stay = [name for name in self.mods if name not in self.torn]
            self.settle(stay, names)
            return
        before = dict(self.files)
        for name in names:
            if name not in self.mods:
                self.files = MODS[name].put_in(self.files)
                self.take(name, before)

    def reverted(self, names: Sequence[str], *, discard: bool) -> None:
        gone = {*(names or self.mods), *self.torn}
        assert discard or not self.edited - self.lost
        self.settle([name for name in self.mods if name not in gone], ())

    def settle(self, stay: Sequence[str], more: Iterable[str]) -> None:
        """Take all mods out, whatever else was done to their files, and put some in."""
        outside = {path: data for path, data in self.files.items() if path not in self.after}
        self.files = {**outside, **{p: d for p, d in self.base.items() if p not in outside}}
        self.mods, self.after, self.undone = (), {}, set()
        self.by_hand.clear()
        before = dict(self.files)
        for name in [*stay, *(name for name in more if name not in stay)]:
            self.files = MODS[name].put_in(self.files)
            self.take(name, before)

    def take(self, name: str, before: Files) -> None:
        """Note that a mod went in, unless the release has it."""
        changed = {p for p in MODS[name].paths if self.files.get(p) != before.get(p)}
        if changed or name == "chat":
            self.mods += (name,)
        self.after |= {path: self.files.get(path) for path in changed}

    def command(
        self,
        work: Callable[[], None],
        kill: int | None,
        done: Callable[[], None],
        *,
        may_refuse: bool = True,
    ) -> None:
        """Run a command, killed at a call that changes the disk or not; the tree is as before or as after."""
        if kill is None:
            try:
                work()
            except vm.Refused:
                assert may_refuse
                self.agree()
                return
            done()
            self.agree()
            return

        def killed() -> None:
            faults.at(kill, faults.kill)
            work()

        code = faults.in_child(killed)
        assert code in {faults.DONE, -9, *([faults.REFUSED] if may_refuse else [])}, code
        if code == -9:
            COUNT.kills[0] += 1
            there = vm.status(self.root)
            halfway = [*self.root.glob(f"{PREFIX}*/journal.json")]
            assert there.unfinished or not halfway
            assert there.ok is vm.verify(self.root).ok
            transaction.recover(str(self.root))
        if code == faults.DONE or (code == -9 and self.on_disk() != self.files):
            done()
        elif code == -9 and self.receipt() != self.mods:
            done()  # what it changed is the receipt alone
        self.agree()

    # --- what holds -------------------------------------------------------------------

    def on_disk(self) -> Files:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for top in ("vllm", "kernels")
            for path in (self.root / top).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }

    def receipt(self) -> tuple[str, ...]:
        return tuple(one.name for one in vm.status(self.root).mods)

    def agree(self) -> None:
        COUNT.steps[0] += 1
        assert self.on_disk() == self.files
        there = vm.status(self.root)
        assert not there.unfinished
        assert sorted(one.name for one in there.mods) == sorted(self.mods)
        undone = {name for name in self.mods if MODS[name].paths & self.undone}
        changed = {name for name in self.mods if MODS[name].paths & self.edited} - undone
        inside = {*self.mods} - undone - changed
        standing = {one.name: there.standing(one) for one in there.mods}
        expected = dict.fromkeys(inside, "in") | dict.fromkeys(undone, "undone")
        assert standing == expected | dict.fromkeys(changed, "changed")
        assert there.ok is vm.verify(self.root).ok is (not self.undone and not self.edited)
        assert (there.hint is None) is there.ok
        planned = vm.plan(self.library.mods(*MODS), vm.open_tree(self.root))
        verdicts = {one.mod.name: one for one in planned.mods}
        for name in MODS:
            said = verdicts[name].verdict.value
            if name in inside:
                assert said == "applied", (name, said)
            elif name in changed:
                assert said == "partial", (name, said)
            elif said == "applied":  # by hand, or by the release: no receipt says so
                assert "no-receipt" in {one.code for one in verdicts[name].findings}, name
        if "higher" in inside:
            assert b"LIMIT = 3" in self.files["vllm/limit.py"]
        assert not {"rival", "fast"} <= inside
        self.record_agrees()

    def record_agrees(self) -> None:
        (info,) = self.root.glob("vllm-*.dist-info")
        rows = (info / "RECORD").read_bytes()
        for path, data in self.files.items():
            if path.startswith("vllm/") and path not in self.unlisted | self.edited | self.undone:
                assert record.agrees(rows, path, sha(data), len(data)) is True, path


TestCommands = pytest.mark.slow(Commands.TestCase)
TestCommands.settings = settings(
    max_examples=200 if ALL else 5, stateful_step_count=50 if ALL else 30, deadline=None
)


PAIRS = list(itertools.permutations(MODS, 2))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.19.1", "0.20.0"])
@pytest.mark.parametrize("names", few(PAIRS, 12, "pairs of mods"), ids="-".join)
def test_each_of_two_mods_comes_out_alone(names: tuple[str, str], version: str) -> None:
    """However a mod's place is proven, whatever went in before it, and whichever goes."""
    for gone in names:
        tree = Commands()
        try:
            tree.first(version)
            for name in names:
                tree.apply([name], None)
            if gone in tree.mods:
                tree.take_out([gone], None, discard=False)
        finally:
            tree.teardown()
