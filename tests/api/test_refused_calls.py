"""What the functions behind the door refuse: in which words, and with which next command."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from lone_project import project
from matrix_making import cell
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod
from small_site import FILES, build

import vllm_mods as vm
from vllm_mods.api import import_mod, keep, libraries, matrix, on_base, port, run
from vllm_mods.api.access import releases_in
from vllm_mods.api.import_mod import ImportTerms
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import LockedBase, LockedImage, LockedVllm, PairingLock
from vllm_mods.formats.project import SyncTarget
from vllm_mods.keeping.proposing import RequestText
from vllm_mods.library.catalog import Library, Shared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
BASE = LockedBase("base:1", f"sha256:{'a' * 64}", (), "linux/amd64")
LOCK = PairingLock(
    pairing="pair",
    pairing_digest="0" * 64,
    model="org/m",
    revision=None,
    base=BASE,
    vllm=LockedVllm("0.19.1", "site", None),
    mods=(),
    templates=(),
    wheels=(),
    command="vllm serve org/m",
    image=LockedImage({}, ()),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder that is the current one: a small vLLM, and a library with a mod and pairings."""
    folder = project(tmp_path, monkeypatch)
    build(folder / "site", FILES)
    write_mod(folder / "own", "fast", PATCH)
    pairings = {"pair": "", "new": 'vllm = ">=0.19"\n', "other": 'vllm = "0.19.1"\n'}
    (folder / "own/pairings").mkdir()
    for name, more in pairings.items():
        (folder / f"own/pairings/{name}.toml").write_text(
            f'schema = 1\nname = "{name}"\nsummary = "s"\nmodel = "org/m"\nbase = "base:1"\n'
            f'{more}command = "vllm serve org/m"\n'
        )
    return folder


def library(*more: Shared) -> Library:
    return Library("own", shared=more)


def shelved(*trees: MemoryTree) -> vm.Access:
    """Return an access to releases in memory."""
    by_version = {tree.version or "": tree for tree in trees}
    files = [SimpleNamespace(version=one, yanked=None, kind="sdist") for one in by_version]
    access = vm.Access(offline=True)
    access.__dict__["releases"] = SimpleNamespace(
        files=lambda: files, open=lambda name, **_: by_version[name], verify=lambda *_, **__: None
    )
    return access


def lock_of(folder: Path, lock: PairingLock = LOCK) -> str:
    (folder / "it.lock").write_bytes(pairing_lock.dump(lock))
    return str(folder / "it.lock")


Refusing = list[tuple[Any, str, "str | None"]]
CALL = "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE"
REFUSALS: Refusing = [
    (
        lambda _: vm.Access().open("pypi:0.19.1", platform="linux/arm64"),
        "pypi:0.19.1 is not an image; --platform and --target-in-image are for images",
        "--target image:REF",
    ),
    (
        lambda _: vm.Access().open("site", in_image="/venv"),
        "site is not an image; --platform and --target-in-image are for images",
        "--target image:REF",
    ),
    (
        lambda _: releases_in(shelved(MemoryTree({}, version="0.19.1")), ">=0.20"),
        ">=0.20 contains no release of vLLM; the newest is 0.19.1",
        "such as --vllm '>=0.19,<0.22'",
    ),
    (
        lambda _: libraries.find_variant(library().load("fast"), "z"),
        "fast has no variant `z`",
        "--variant a",
    ),
    (
        lambda _: list(keep.keep("own", ["none"], message=str, request=RequestText, access=shelved())),
        "own is not in the working tree of a git repository, and `keep` writes its results as git branches",
        "git init own && git -C own add -A -- ':!patches/*/.port-*' && git -C own commit",
    ),
    (
        lambda _: vm.new("x", tree="site"),
        "a new mod needs a tree and one of these: a diff, an edited tree or a command",
        "vllm-mods new x --from-diff FILE --tree auto",
    ),
    (
        lambda _: vm.new("x", tree="site", diff=PATCH, edited="site"),
        "a new mod needs a tree and one of these: a diff, an edited tree or a command",
        "vllm-mods new x --from-diff FILE --tree auto",
    ),
    (
        lambda _: vm.new("x", diff=PATCH),
        "a new mod needs a tree and one of these: a diff, an edited tree or a command",
        "vllm-mods new x --from-diff FILE --tree auto",
    ),
    # a pairing's lock
    (
        lambda place: on_base.read_lock(library(), f"{place}/none.lock", "pair"),
        "pairing pair has no lock: {place}/none.lock does not exist",
        "vllm-mods lock pair --output none.lock",
    ),
    (
        lambda place: on_base.read_lock(library(), lock_of(place), "other"),
        "{place}/it.lock is the lock of pairing pair, not of other",
        "vllm-mods lock other --output FILE",
    ),
    (
        lambda _: on_base.parts_of(LOCK, "base:1", "linux/arm64"),
        "the lock of pair is for linux/amd64, not for linux/arm64",
        "vllm-mods lock pair --platform linux/amd64,linux/arm64",
    ),
    # serve-check
    (lambda _: vm.serve_check(), "give either a pairing or --command", CALL),
    (
        lambda _: vm.serve_check(library(), "pair", command="vllm serve m"),
        "give either a pairing or --command",
        CALL,
    ),
    (lambda _: vm.serve_check(command=" ", target="site"), "--command is empty", CALL),
    (
        lambda _: vm.serve_check(command="vllm serve 'm", target="site"),
        "bash cannot read --command: line 1: a ' is not closed",
        CALL,
    ),
    (
        lambda _: vm.serve_check(command="vllm serve m", target="site", vllm=">=0.19"),
        "--vllm and --target both name the vLLM to check",
        "omit one",
    ),
    (
        lambda _: vm.serve_check(command="vllm serve m"),
        "no vLLM to check against was named",
        "--target TREE",
    ),
    (
        lambda _: vm.serve_check(library(), "pair"),
        "pairing `pair` names no vLLM, and no vLLM to check against was named",
        "--target TREE",
    ),
    # templates, evidence, import
    (
        lambda _: vm.template_check(library(), inside="site"),
        "--in TREE needs a TEMPLATE, a path in TREE",
        "vllm-mods template check examples/tool_chat_template_hermes.jinja --in sdist:FILE",
    ),
    (
        lambda _: run.of_log(library(), (), b"", "the log", vm.Access()),
        "no mod or pairing was named, and the log does not show which ones were used",
        "vllm-mods list  # then name one of these",
    ),
    (
        lambda _: import_mod.is_mod("x.diff"),
        "x.diff is a diff",
        "vllm-mods new NAME --from-diff x.diff --tree TREE",
    ),
    (
        lambda _: import_mod.is_mod("x.patch"),
        "x.patch is a diff",
        "vllm-mods new NAME --from-diff x.patch --tree TREE",
    ),
    (
        lambda _: imported("own/patches/fast", license="MIT"),
        "own/patches/fast is already a mod of vllm-mods, so no option can change its name, summary, licence or range",
        "vllm-mods import own/patches/fast --library DIR",
    ),
    (
        lambda _: imported("own/patches/fast", others=("numpy==2",)),
        "--with is for the vLLM of --tree only",
        "--tree pypi:VERSION",
    ),
    (
        lambda _: imported("script", tree="site", images=["x"]),
        "--tree and --image both name the vLLM to run on",
        "omit one",
    ),
    (
        lambda _: imported("script"),
        "script has a run.sh, which has to run on a vLLM; no vLLM was named",
        "--tree pypi:VERSION, --image REF, or --vllm SPEC for a variant per release",
    ),
    (
        lambda _: import_mod.recipe_text(b"abc\xff", "x.yaml"),
        "x.yaml is not a recipe: byte 3 is not UTF-8",
        "a recipe is YAML",
    ),
    # port
    (
        lambda _: port.port(library(), "fast", "site", name="a"),
        "fast has a variant `a` already",
        "--as ANOTHER",
    ),
    (
        lambda place: port.port(library(), "fast", unversioned(place)),
        "nameless does not state its version, so the range of the variant is unknown",
        "--vllm SPEC, such as --vllm '==0.23.0'",
    ),
    (
        lambda place: port.port(plain(place, 'overlay = [{ source = "x.patch", path = "vllm/new.py" }]\n'), "plain", "site"),
        "variant `a` of plain replaces files or has no patches, and `port` can port patches only",
        "vllm-mods check plain --target site",
    ),
    (
        lambda place: port.port(
            plain(place, 'replace = [{ path = "vllm/a.py", old = "1", new = "2" }]\n'),
            "plain",
            "site",
        ),
        "variant `a` of plain replaces files or has no patches, and `port` can port patches only",
        "vllm-mods check plain --target site",
    ),
]  # fmt: skip


def imported(path: str, **terms: Any) -> vm.NewMod:
    os.makedirs("script", exist_ok=True)
    with open("script/run.sh", "w", encoding="utf-8") as file:
        file.write("true\n")
    return import_mod.import_mod(
        path, ImportTerms(**terms), library=None, progress=print, access=vm.Access()
    )


def unversioned(place: Path) -> str:
    build(place / "nameless", FILES, installed=False)
    return "nameless"


def plain(place: Path, more: str) -> Library:
    """Write a mod without patches, and return its library."""
    folder = write_mod(place / "own", "plain", b"")
    text = (folder / "mod.toml").read_text().replace('patches = ["x.patch"]\n', more)
    (folder / "mod.toml").write_text(text)
    return library()


@pytest.mark.slow
@pytest.mark.parametrize(("call", "message", "hint"), REFUSALS)
def test_what_is_refused_says_why_and_what_to_do(
    place: Path, call: Callable[[Path], object], message: str, hint: str | None
) -> None:
    with pytest.raises(vm.UsageError) as caught:
        call(place)
    assert caught.value.message == message.replace("{place}", str(place))
    assert caught.value.hint == hint


def test_two_mods_of_one_name_are_never_taken_for_one(place: Path) -> None:
    (fast,) = library().mods("fast")
    both = [fast, fast._replace(digest="0" * 64)]
    for call in (
        lambda: vm.plan(both, place / "site"),
        lambda: vm.apply(both, place / "site"),
        lambda: vm.matrix(both, [str(place / "site")]),
    ):
        with pytest.raises(vm.UsageError, match="two of these mods are named fast"):
            call()
    assert vm.plan([fast, fast], place / "site").ok


def test_mods_of_one_name_in_several_libraries_are_no_matrix(place: Path) -> None:
    for owner in ("theirs", "others"):
        write_mod(place / owner, "fast", PATCH)
    shared = [Shared(name, str(place / name)) for name in ("theirs", "others")]
    with pytest.raises(vm.UsageError) as caught:
        matrix.choose_mods(Library(shared=shared), (), None)
    assert "have the same name, and a tree can hold only one of them" in caught.value.message


@pytest.mark.parametrize(
    ("names", "pairing", "chosen"),
    [
        ((), None, ["fast", "slow"]),
        (("slow",), None, ["slow"]),
        ((), "both", ["fast"]),
        (("slow",), "both", ["fast", "slow"]),
    ],
)
def test_a_matrix_is_of_a_pairing_and_the_named_mods_or_of_all_that_are_the_callers_own(
    place: Path, names: tuple[str, ...], pairing: str | None, chosen: list[str]
) -> None:
    write_mod(place / "own", "slow", PATCH)
    text = (place / "own/pairings/pair.toml").read_text()
    more = text.replace('name = "pair"', 'name = "both"\nmods = ["fast"]')
    (place / "own/pairings/both.toml").write_text(more)
    assert [mod.name for mod in matrix.choose_mods(library(), names, pairing)] == chosen


def test_a_library_that_has_lost_its_mods_is_no_matrix_of_the_bundled_ones(place: Path) -> None:
    (place / "lost/patches").mkdir(parents=True)
    lost = Library(place / "lost")
    with pytest.raises(
        vm.UsageError, match=r"the libraries that were named have no mods: .*/lost$"
    ):
        matrix.choose_mods(lost, (), None)
    assert [mod.name for mod in matrix.choose_mods(lost, ("flashqla",), None)] == ["flashqla"]
    assert matrix.choose_mods(Library(), (), None)


def test_the_lock_of_what_came_with_the_tool_is_not_written(place: Path) -> None:
    write_mod(place / "installed", "theirs", PATCH)
    opened = library()
    theirs = Library("installed").load("theirs")
    mine = opened.load("fast")
    notes: list[str] = []
    assert matrix.choose_own_mods(opened, (mine, theirs), (), notes.append) == (mine,)
    assert notes == ["theirs is bundled with vllm-mods: its mod.lock is not changed"]
    for mods, named in (((mine, theirs), ("theirs",)), ((theirs,), ())):
        with pytest.raises(vm.UsageError) as caught:
            matrix.choose_own_mods(opened, mods, named, notes.append)
        folder = f"{place}/installed/patches/theirs"
        assert caught.value.message == (
            f"theirs is bundled with vllm-mods, so {folder} is not changed; nothing was written"
        )
        assert caught.value.hint == (
            "make a copy of your own:\n"
            f"  mkdir -p mods/patches && cp -r {folder} mods/patches/my-theirs\n"
            "  sed -i 's/^name = .*/name = \"my-theirs\"/' mods/patches/my-theirs/mod.toml\n"
            "  vllm-mods matrix my-theirs --update-lock --library mods"
        )


def test_a_pairing_that_came_with_the_tool_is_not_upgraded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = library()
    libraries.check_own_pairing(opened, "pair")
    monkeypatch.setattr(opened, "is_writable", lambda _path: False)
    file = f"{place}/own/pairings/pair.toml"
    with pytest.raises(vm.UsageError) as caught:
        libraries.check_own_pairing(opened, "pair")
    assert caught.value.message == (
        f"pair is bundled with vllm-mods, so {file} is not changed; nothing was written"
    )
    assert caught.value.hint == (
        "make a copy of your own:\n  mkdir -p mods/pairings\n"
        f"  sed 's/^name = .*/name = \"my-pair\"/' {file} >mods/pairings/my-pair.toml\n"
        "  vllm-mods lock my-pair --library mods"
    )
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may write anywhere
    with pytest.raises(vm.Refused) as refused:
        libraries.check_own_pairing(opened, "pair")
    assert refused.value.message == f"{file} cannot be written; nothing was changed"
    assert refused.value.hint == f"ls -l {file}"


def test_no_lock_is_written_where_a_release_could_not_be_read(place: Path) -> None:
    mods = library().mods("fast")
    cells = [cell("fast", "0.19.1", "unreadable")]
    with pytest.raises(vm.UsageError) as caught:
        matrix.write_locks(mods, cells, shelved())
    assert caught.value.message == "no mod.lock was written: pypi:0.19.1 could not be read"
    assert caught.value.hint == "run the command again when every release can be read"
    assert not (place / "own/patches/fast/mod.lock").exists()


# --- sync ---------------------------------------------------------------------------------------


def targets(*lines: str) -> None:
    with open("vllm-mods.toml", "w", encoding="utf-8") as file:
        file.write("\n".join(("schema = 1", *lines, "")))


@pytest.mark.parametrize(
    ("lines", "name", "message", "hint"),
    [
        (
            [],
            None,
            "has no target named `default`",
            'add the table [targets.default] with a line mods = ["LIBRARY/MOD"]',
        ),
        (
            ["[targets.a]", "mods = []", "[targets.b]", "mods = []"],
            None,
            "has no target named `default`: it has a, b",
            "vllm-mods sync a",
        ),
        (
            ["[targets.a]", "mods = []"],
            "z",
            "has no target named `z`: it has a",
            "vllm-mods sync a",
        ),
        (
            ["[targets.a]", "mods = []"],
            None,
            "names no path for the target `a`",
            '--target DIR, or path = "DIR" in that target',
        ),
    ],
)
def test_sync_says_which_targets_there_are(
    place: Path, lines: list[str], name: str | None, message: str, hint: str
) -> None:
    targets(*lines)
    with pytest.raises(vm.UsageError) as caught:
        vm.sync(name, write=False)
    assert (caught.value.message, caught.value.hint) == (f"{place}/vllm-mods.toml {message}", hint)


def test_sync_takes_the_one_target_or_the_default_one_and_the_vllm_that_is_named_first(
    place: Path,
) -> None:
    targets("[targets.a]", 'path = "site"', "mods = []", "[targets.default]", "mods = []")
    by_name = vm.sync("a", write=False)
    assert (by_name.target.name, by_name.done.target) == ("a", str(place / "site"))
    by_default = vm.sync(write=False, default_target=lambda: "site")
    assert (by_default.target.name, by_default.done.target) == ("default", str(place / "site"))
    build(place / "more", FILES)
    for name in ("a", "default"):
        assert vm.sync(name, "more", write=False).done.target == str(place / "more")
    targets("[targets.a]", 'path = "site"', "mods = []")
    assert vm.sync(write=False).target == SyncTarget("a", "site", (), None)


def test_the_vllm_of_an_environment_is_found_in_it_unless_there_are_several(place: Path) -> None:
    for minor in (11, 12):
        build(place / f"venv/lib/python3.{minor}/site-packages", FILES)
    targets("[targets.a]", 'path = "venv"', "mods = []")
    with pytest.raises(vm.UsageError) as caught:
        vm.sync(write=False)
    both = " or ".join(f"{place}/venv/lib/python3.{minor}/site-packages/vllm" for minor in (11, 12))
    assert caught.value.message == f"{place}/venv is an environment with several vLLMs"
    assert caught.value.hint == f"name the vLLM that you mean: {both}"
    os.rename(place / "venv/lib/python3.12", place / "away")
    alone = vm.sync(write=False)
    assert alone.done.target == str(place / "venv/lib/python3.11/site-packages")
