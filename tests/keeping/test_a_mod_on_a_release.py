"""What a release asks of a mod: a wider range, an end of it, a port, or a person. In memory, but for the mod's folder."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from git_host import commit, git
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.formats import mod_lock
from vllm_mods.keeping import branches, keeping
from vllm_mods.keeping.keeping import KeptRelease, Ways
from vllm_mods.library.catalog import Library
from vllm_mods.planning import lock_entries, planner
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

MOVED = "import sys\n" + LOADER
LANDED = LOADER.replace('"weights"', '"fast"', 1)
CLASHING = LOADER.replace('"weights"', '"heavy"', 1)
PORTED = MOVED.replace("class Loader:", "class Loader(object):")


class InMemory(Releases):
    """Releases that differ in one file; ``opened`` says which were looked at."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.opened: list[str] = []

    def files(self) -> tuple[ReleaseFile, ...]:
        return tuple(
            ReleaseFile(
                filename=f"vllm-{version}.tar.gz",
                url="https://x.test",
                version=version,
                kind="sdist",
            )
            for version in self.texts
        )

    def open(self, name: str, **_: object) -> MemoryTree:
        if name not in self.texts:
            raise TreeError(f"{name} cannot be read")
        self.opened.append(name)
        files = {path: data for path, data in FILES.items() if path.startswith("vllm/")}
        files["vllm/loader.py"] = self.texts[name].encode()
        return MemoryTree(files, version=name, spec=f"pypi:{name}", pristine=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a mod's folder with a variant for 0.19.0."""
    place = write_mod(tmp_path, "mine", diff_of("vllm/loader.py", LOADER, LANDED))
    set_range(place, "==0.19.0")
    return place


def set_range(place: Path, spec: str) -> None:
    manifest = place / "mod.toml"
    stated = tomllib.loads(manifest.read_text())["variant"][0]["vllm"]
    manifest.write_text(manifest.read_text().replace(f'"{stated}"', f'"{spec}"'))


def add_variant(place: Path, name: str, spec: str, patch: bytes) -> None:
    (place / f"{name}.patch").write_bytes(patch)
    with (place / "mod.toml").open("a") as manifest:
        manifest.write(
            f'\n[[variant]]\nid = "{name}"\nvllm = "{spec}"\npatches = ["{name}.patch"]\n'
        )


def load(place: Path) -> Mod:
    return Library(place.parents[1]).load("mine")


def lock(place: Path) -> None:
    """Record the release that the mod was made on."""
    tree = InMemory({"0.19.0": LOADER}).open("0.19.0")
    mod = load(place)
    data = lock_entries.first(mod, [(planner.plan_alone(mod, tree), tree)])
    (place / "mod.lock").write_bytes(data["mod.lock"])


def keep(place: Path, releases: InMemory, version: str) -> KeptRelease:
    ways = Ways(releases, Library(place.parents[1]).roots)
    return keeping.keep(load(place), releases.open(version), ways)


def ranges(place: Path) -> dict[str, str]:
    variants = tomllib.loads((place / "mod.toml").read_text())["variant"]
    return {variant["id"]: variant["vllm"] for variant in variants}


def test_a_release_that_takes_the_variant_is_in_its_range(folder: Path) -> None:
    releases = InMemory({"0.19.0": LOADER, "0.20.0": MOVED})
    kept = keep(folder, releases, "0.20.0")
    (name,) = ranges(folder)
    assert kept == KeptRelease(
        "mine",
        "0.20.0",
        "widened",
        before=f"moved (variant {name})",
        after=f"moved (variant {name})",
        told=("the patches are unchanged",),
    )
    assert ranges(folder) == {name: ">=0.19.0,<=0.20.0"}
    assert not (folder / "mod.lock").exists()


def test_what_is_recorded_already_needs_nothing(folder: Path) -> None:
    lock(folder)
    set_range(folder, ">=0.19.0,<=0.20.0")
    lock(folder)
    releases = InMemory({"0.19.0": LOADER, "0.20.0": MOVED})
    before = (folder / "mod.toml").read_bytes()
    kept = keep(folder, releases, "0.20.0")
    assert (kept.did, kept.left) == ("recorded", ())
    assert (folder / "mod.toml").read_bytes() == before
    assert '"0.20.0"' in (folder / "mod.lock").read_text()
    assert keep(folder, releases, "0.20.0").did == "fits"


@pytest.mark.parametrize(
    ("stated", "wide"),
    [
        ("==0.19.0", ">=0.19.0,<=0.22.0"),
        (">=0.19", ">=0.19"),
        (">=0.19,<0.20", ">=0.19,<=0.22.0"),
        (">=0.18,<=0.19.0,!=0.18.1", ">=0.18,!=0.18.1,<=0.22.0"),
        ("~=0.19.0", ">=0.19.0,<=0.22.0"),
        ("== 0.19.0", ">=0.19.0,<=0.22.0"),
        ("==0.19.*", ">=0.19,<=0.22.0"),
        ("===0.19.0", ">=0.19.0,<=0.22.0"),
        ("~=0.19.0, !=0.19.5", ">=0.19.0,!=0.19.5,<=0.22.0"),
    ],
)
def test_a_range_ends_with_the_new_release(folder: Path, stated: str, wide: str) -> None:
    set_range(folder, stated)
    releases = InMemory({"0.18.1": CLASHING, "0.19.0": LOADER, "0.22.0": LOADER})
    kept = keep(folder, releases, "0.22.0")
    assert [*ranges(folder).values()] == [wide]
    assert kept.did == ("fits" if stated == wide else "widened")


def test_releases_between_are_looked_at_and_left_out_if_the_variant_does_not_go_in(
    folder: Path,
) -> None:
    texts = {"0.19.0": LOADER, "0.19.1": MOVED, "0.20.0rc1": CLASHING, "0.20.0": CLASHING}
    releases = InMemory({**texts, "0.21.0": LANDED, "0.22.0": LOADER, "0.23.0": CLASHING})
    kept = keep(folder, releases, "0.22.0")
    assert [*ranges(folder).values()] == [">=0.19.0,<=0.22.0,!=0.20.0"]
    assert kept.told[1:] == (
        "the variant does not apply to vLLM 0.20.0, so the range leaves it out",
    )
    assert releases.opened == ["0.22.0", "0.19.1", "0.20.0", "0.21.0"]


@pytest.mark.parametrize(
    ("stated", "wide"),
    [
        ("==0.19.0", ">=0.17.0,<=0.19.0,!=0.18.0"),
        ("~=0.19.0", ">=0.17.0,<0.20,!=0.18.0"),
        ("==0.19.*", ">=0.17.0,<0.20,!=0.18.0"),
        (">0.18,!=0.20,<0.21", ">=0.17.0,!=0.20,<0.21,!=0.18.0"),
    ],
)
def test_an_older_release_is_where_the_range_begins(folder: Path, stated: str, wide: str) -> None:
    set_range(folder, stated)
    releases = InMemory({"0.17.0": LOADER, "0.18.0": CLASHING, "0.19.0": LOADER})
    keep(folder, releases, "0.17.0")
    assert [*ranges(folder).values()] == [wide]


def test_a_release_that_the_range_names_as_left_out_stays_so(folder: Path) -> None:
    set_range(folder, ">=0.19.0,<=0.21.0,!=0.20.0")
    releases = InMemory({"0.19.0": LOADER, "0.20.0": LOADER, "0.21.0": LOADER})
    assert keep(folder, releases, "0.20.0").did == "fits"
    assert [*ranges(folder).values()] == [">=0.19.0,<=0.21.0,!=0.20.0"]


@pytest.mark.slow
def test_a_release_between_that_another_variant_is_for_is_left_out(folder: Path) -> None:
    add_variant(folder, "b", "==0.20.0", diff_of("vllm/loader.py", CLASHING, LANDED))
    releases = InMemory({"0.19.0": LOADER, "0.20.0": CLASHING, "0.21.0": LOADER})
    keep(folder, releases, "0.21.0")
    assert ranges(folder) == {"a": ">=0.19.0,<=0.21.0,!=0.20.0", "b": "==0.20.0"}


@pytest.mark.parametrize(
    ("version", "stated", "ended"),
    [
        ("0.20.0", ">=0.19,<=0.25", ">=0.19,<0.20.0"),
        ("0.20.0", ">=0.19, !=0.19.5", ">=0.19,!=0.19.5,<0.20.0"),
        ("0.20.0+cu129", ">=0.19", ">=0.19,<0.20.0"),
    ],
)
def test_a_release_that_carries_the_change_ends_the_range(
    folder: Path, version: str, stated: str, ended: str
) -> None:
    set_range(folder, stated)
    releases = InMemory({"0.19.0": LOADER, version: LANDED})
    assert keep(folder, releases, version) == KeptRelease(
        "mine",
        version,
        "ended",
        before="upstream (variant a)",
        after="upstream",
        told=(f"vLLM {version} already has every change, so the range ends before it",),
    )
    assert ranges(folder) == {"a": ended}


def test_the_variants_that_are_for_the_release_end_before_it_and_no_other(folder: Path) -> None:
    set_range(folder, ">=0.19")
    patch = diff_of("vllm/loader.py", LOADER, LANDED)
    add_variant(folder, "b", "==0.20.0", patch)
    add_variant(folder, "c", "<0.19", patch)
    kept = keep(folder, InMemory({"0.19.0": LOADER, "0.20.0": LANDED}), "0.20.0")
    assert ranges(folder) == {"a": ">=0.19,<0.20.0", "b": "==0.20.0", "c": "<0.19"}
    assert (kept.did, kept.after) == ("ended", "upstream")
    why = "variant `b` (==0.20.0) covers only releases that already have the change: remove the variant"
    assert kept.left == (why,)


def test_a_range_that_would_name_no_release_stays_and_the_variant_can_go(folder: Path) -> None:
    set_range(folder, ">=0.20")
    (name,) = ranges(folder)
    kept = keep(folder, InMemory({"0.19.0": LOADER, "0.20.0": LANDED}), "0.20.0")
    assert kept.did == "fits"
    assert kept.left == (
        f"variant `{name}` (>=0.20) covers only releases that already have the change: remove the variant",
    )
    assert ranges(folder) == {name: ">=0.20"}


@pytest.mark.slow
def test_a_release_that_takes_none_gets_a_variant(folder: Path) -> None:
    lock(folder)
    releases = InMemory({"0.19.0": LOADER, "0.21.0": PORTED})
    kept = keep(folder, releases, "0.21.0")
    assert (kept.did, kept.left) == ("ported", ())
    assert kept.before.startswith("unsupported")
    assert kept.after == "applies (variant 0.21)"
    assert ranges(folder)["0.21"] == "==0.21.0"
    assert any(line.startswith("vllm/loader.py: merged, proof `") for line in kept.told)
    assert '"0.21.0"' in (folder / "mod.lock").read_text()
    planned = planner.plan_alone(load(folder), releases.open("0.21.0"))
    assert planned.verdict.writes
    assert planned.variant is not None
    assert planned.variant.id == "0.21"


def test_a_release_that_is_recorded_in_the_lock_is_so_once(folder: Path) -> None:
    lock(folder)
    releases = InMemory({"0.19.0": LOADER, "0.20.0": MOVED})
    assert keep(folder, releases, "0.20.0").did == "widened"
    (first, second) = mod_lock.parse((folder / "mod.lock").read_bytes(), "mod.lock").trees
    assert (first.vllm, second.vllm) == (("0.19.0",), ("0.20.0",))
    assert (second.variant, second.verdict, second.in_range) == ("a", "moved", True)
    set_range(folder, "==0.19.0")
    assert keep(folder, releases, "0.20.0").did == "widened"
    assert len(mod_lock.parse((folder / "mod.lock").read_bytes(), "mod.lock").trees) == 2


@pytest.mark.slow
def test_what_a_port_followed_is_told(folder: Path) -> None:
    lock(folder)
    renamed = CLASHING.replace("def load(", "def fetch(")
    kept = keep(folder, InMemory({"0.19.0": LOADER, "0.21.0": renamed}), "0.21.0")
    assert kept.told == ("followed: Loader.load is now Loader.fetch (50% alike)",)


@pytest.mark.slow
def test_what_the_release_changed_too_is_left_to_a_person(folder: Path) -> None:
    lock(folder)
    releases = InMemory({"0.19.0": LOADER, "0.21.0": CLASHING})
    kept = keep(folder, releases, "0.21.0")
    assert kept.did == "left"
    assert kept.left == (
        "`Loader.load` of vllm/loader.py: the target changed the same lines",
        "`git checkout vllm-mods/mine/0.21.0`, edit patches/mine/.port-0.21, then `vllm-mods port mine --continue --library .`",
    )
    assert "<<<<<<< " in (folder / ".port-0.21/files/vllm/loader.py").read_text()
    assert "0.21" not in ranges(folder)


class WithoutOther(InMemory):
    """Releases of which the newer ones lack a module that the first one has."""

    def open(self, name: str, **_: object) -> MemoryTree:
        tree = super().open(name)
        if name == "0.19.0":
            return tree
        files = {path: tree.read(path) or b"" for path in tree.paths()}
        del files["vllm/other.py"]
        return MemoryTree(files, version=name, spec=f"pypi:{name}", pristine=True)


@pytest.mark.slow
def test_what_was_merged_and_would_not_work_is_left_with_what_is_wrong(folder: Path) -> None:
    uses = LANDED.replace("import os\n", "import os\n\nfrom vllm.other import limit\n").replace(
        "return path", "return limit() and path", 1
    )
    (folder / "x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, uses))
    lock(folder)
    kept = keep(folder, WithoutOther({"0.19.0": LOADER, "0.21.0": PORTED}), "0.21.0")
    assert (kept.did, kept.before) == ("left", "unsupported (variant a)")
    assert kept.left == (
        "vllm/loader.py:4: cannot import limit from vllm.other: the tree has no module vllm.other",
        "`git checkout vllm-mods/mine/0.21.0`, edit patches/mine/.port-0.21, then `vllm-mods port mine --continue --library .`",
    )


def test_a_port_that_cannot_be_begun_is_stuck_with_the_reason(folder: Path) -> None:
    set_range(folder, "==0.18.0")  # of which nobody has the release
    kept = keep(folder, InMemory({"0.21.0": CLASHING}), "0.21.0")
    assert kept.did == "stuck"
    why, hint = kept.left
    assert why.startswith("the release that variant `a` of mine was written for is unknown")
    assert hint.startswith("vllm-mods port mine --from TREE")
    assert ranges(folder) == dict.fromkeys(ranges(folder), "==0.18.0")


@pytest.fixture
def repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "An Author")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "author@example.org")
    set_range(folder, ">=0.19,<=0.19.1")
    commit(folder.parents[1], {"README": "mine\n"})
    return folder.parents[1]


def run_all(library: Path, texts: dict[str, str], *names: str) -> list[KeptRelease]:
    home = branches.home(str(library))
    at = branches.tip(home, "HEAD") or ""
    found = keeping.run(
        home, at, "mine", names, InMemory(texts), message=lambda kept: f"{kept.did}\n"
    )
    return list(found)


@pytest.mark.slow
def test_a_branch_begins_where_the_last_one_that_was_made_ends(repository: Path) -> None:
    texts = {"0.19.1": LOADER, "0.20.0": MOVED, "0.21.0": MOVED}
    fits, first, second = run_all(repository, texts, "0.21.0", "0.19.1", "0.20.0")
    assert (fits.did, fits.commit) == ("fits", None)
    assert (first.did, second.did) == ("widened", "widened")
    assert git(repository, "rev-parse", f"{first.branch}^") == git(repository, "rev-parse", "HEAD")
    assert git(repository, "rev-parse", f"{second.branch}^") == first.commit
    assert git(repository, "log", "-1", "--format=%s", first.branch) == "widened"


@pytest.mark.slow
def test_a_port_that_is_left_ends_the_row(repository: Path) -> None:
    lock(repository / "patches/mine")
    commit(repository, {"README": "locked\n"})
    texts = {"0.19.0": LOADER, "0.20.0": CLASHING, "0.21.0": MOVED}
    (left,) = run_all(repository, texts, "0.20.0", "0.21.0")
    assert (left.did, left.branch) == ("left", "vllm-mods/mine/0.20.0")
    assert left.commit == git(repository, "rev-parse", left.branch)
    assert left.left[-1] == "later releases wait: 0.21.0"


def test_what_is_new_follows_the_newest_of_the_lock_by_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [SimpleNamespace(vllm=("0.10.0", "0.8.0")), SimpleNamespace(vllm=("0.9.0",))]
    locked = SimpleNamespace(trees=trees, written=())
    monkeypatch.setattr(lock_entries, "current", lambda _: locked)
    assert keeping.new_to(load(folder), ("0.9.1", "0.10.0", "0.11.0"), None) == ("0.11.0",)


@pytest.mark.parametrize(("base", "first"), [("0.20.0", "0.21.0"), ("mine", "0.20.0")])
def test_what_is_new_of_a_mod_that_was_tried_on_no_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch, base: str, first: str
) -> None:
    """Its lock names what it was written for; without that, its ranges do."""
    locked = SimpleNamespace(trees=(), written=[SimpleNamespace(base=base)])
    monkeypatch.setattr(lock_entries, "current", lambda _: locked)
    assert keeping.new_to(load(folder), ("0.0.1", "0.20.0", "0.21.0"), None)[0] == first


@pytest.mark.slow
def test_a_file_that_lies_in_git_lfs_is_not_kept_up(repository: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    commit(repository, {"patches/fast/big.bin": pointer})
    with pytest.raises(TreeError, match=r"fast/big\.bin is stored in git-lfs") as caught:
        run_all(repository, {"0.20.0": MOVED}, "0.20.0")
    assert caught.value.hint == "commit the file itself"


def test_a_library_in_no_repository_names_the_way(folder: Path) -> None:
    library = folder.parents[1]
    with pytest.raises(
        UsageError, match="is not in the working tree of a git repository,"
    ) as caught:
        run_all(library, {"0.20.0": MOVED}, "0.20.0")
    assert (caught.value.hint or "").startswith(f"git init {library} && git -C {library} add -A")
