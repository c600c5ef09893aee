"""Mods into an installed vLLM and out of it, without the command line: all of it or nothing, on the terms that are given."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import installing
import pytest
from command_line import FILES, LOADER, OTHER
from mod_making import diff_of, write_mod
from small_site import snapshot

from vllm_mods.applying import carry_out, ground
from vllm_mods.applying.carry_out import Exactly
from vllm_mods.applying.ground import Terms
from vllm_mods.applying.outcomes import Applied, Reverted
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import Mod, Plan
from vllm_mods.library.catalog import Library
from vllm_mods.site import transaction
from vllm_mods.site.journal_text import Foreign
from vllm_mods.site.state_folder import read_state
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

B, BESIDE = "vllm/b.py", "kernels/fast.py"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an installation, and a library of mods: `high` builds on `low`, `alone` on none, `old` fits no more."""
    folder = tmp_path_factory.mktemp("ready")
    installing.install(folder / "site", FILES)
    library = folder / "library"
    write_mod(library, "low", diff_of(B, "B = 1\n", "B = 2\n"))
    write_mod(library, "high", diff_of(B, "B = 2\n", "B = 3\n"), more='requires = ["low"]')
    write_mod(library, "alone", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    write_mod(library, "on-top", diff_of("vllm/a.py", "A = 2\n", "A = 3\n"))
    beside = f"--- /dev/null\n+++ b/{BESIDE}\n@@ -0,0 +1 @@\n+FAST = 1\n".encode()
    write_mod(library, "beside", beside, more=f'outside = ["{BESIDE}"]')
    write_mod(library, "old", diff_of("vllm/other.py", "gone\n", "x\n"), vllm="<0.1")
    write_mod(library, "limit", diff_of("vllm/other.py", OTHER, OTHER.replace("= 1", "= 2")))
    return folder


@pytest.fixture
def site(ready: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ready / "site", tmp_path / "site")


@pytest.fixture
def mods(ready: Path) -> Callable[..., tuple[Mod, ...]]:
    return Library(ready / "library").mods


def put_in(site: Path, mods: tuple[Mod, ...], **terms: Any) -> Applied:
    return carry_out.apply(mods, site, **terms)


def names(site: Path) -> list[str]:
    return [entry.name for entry in read_state(str(site)).mods]


@pytest.mark.slow
def test_what_is_rehearsed_is_what_is_done(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    before, plans = snapshot(site), list[Plan]()
    told = put_in(site, mods("low", "alone"), write=False, planned=plans.append)
    assert snapshot(site) == before
    done = put_in(site, mods("low", "alone"), planned=plans.append)
    assert done == told
    assert plans == [done.plan] * 2
    record = "vllm-0.19.1.dist-info/RECORD"
    assert {path for path in done.changed if path.endswith((".py", "RECORD"))} == {
        "vllm/a.py",
        B,
        record,
    }
    assert (done.target, done.notes) == (str(site), ())
    assert done.templates == f"{site}/.vllm-mods/templates"
    again = put_in(site, mods("low", "alone"))
    assert (again.changed, again.notes) == ((), ())
    assert [one.verdict.value for one in again.plan.mods] == ["applied", "applied"]


def test_one_mod_that_does_not_fit_keeps_all_out_unless_it_may_be_left_out(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    before = snapshot(site)
    with pytest.raises(Refused) as caught:
        put_in(site, mods("low", "old"))
    assert snapshot(site) == before
    assert caught.value.plan is not None
    assert [one.verdict.value for one in caught.value.plan.mods] == ["applies", "unsupported"]
    head, *lines = caught.value.message.splitlines()
    assert head == f"nothing was changed in vLLM 0.19.1 ({site})"
    assert lines[0] == "  old 1.0.0: unsupported"
    assert lines[1].startswith("    ")
    done = put_in(site, mods("low", "old"), only_supported=True)
    assert [one.mod.name for one in done.plan.mods] == ["low"]
    assert names(site) == ["low"]


def test_a_range_is_kept_where_that_is_asked_for(site: Path, tmp_path: Path) -> None:
    write_mod(tmp_path / "l", "m", diff_of(B, "B = 1\n", "B = 2\n"), vllm="<0.1")
    (made,) = Library(tmp_path / "l").mods("m")
    with pytest.raises(Refused):
        put_in(site, (made,), strict_version=True)
    assert put_in(site, (made,), source_date_epoch=7).changed
    assert (site / B).stat().st_mtime == 7


def test_hard_links_are_kept_where_that_is_asked_for(
    site: Path, tmp_path: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    (tmp_path / "cache").hardlink_to(site / B)
    for write in (True, False):
        with pytest.raises(Refused, match="2 hard links"):
            put_in(site, mods("low"), keep_links=True, write=write)
    (note,) = put_in(site, mods("low")).notes
    assert note.startswith(f"{B} is hard-linked")


def test_a_base_has_to_be_the_one_of_every_mod(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    from vllm_mods.trees.folder import FolderTree

    base = FolderTree(str(site))
    ground.check_base(mods("low", "alone"), base)
    with pytest.raises(UsageError, match=f"^high was not made for {site}: not every") as caught:
        put_in(site, mods("low", "high"), base=base)
    assert caught.value.hint == "--base TREE, the vLLM that the patch was made on"
    assert put_in(site, mods("low"), base=base).changed


def test_what_is_no_mod_is_told() -> None:
    with pytest.raises(UsageError, match="this is not a mod: 'low'") as caught:
        carry_out.apply(["low"], "/nowhere")  # type: ignore[list-item]
    assert caught.value.hint == 'Library().mods("NAME")'


# --- out ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mods_go_out_by_name_or_all_of_them(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    before = snapshot(site)
    put_in(site, mods("low", "alone", "limit"))
    entries = read_state(str(site)).mods
    done = carry_out.revert(site, "mine/alone", source_date_epoch=7)
    assert done == Reverted(
        str(site), "0.19.1", ("alone",), (entries[0], entries[2]), done.changed, ()
    )
    assert "vllm/a.py" in done.changed
    assert B not in done.changed
    assert (site / "vllm/a.py").read_bytes() == FILES["vllm/a.py"]
    assert names(site) == ["low", "limit"]
    done = carry_out.revert(site)
    assert (done.reverted, done.mods) == (("low", "limit"), ())
    assert snapshot(site) == before
    assert carry_out.revert(site) == Reverted(str(site), "0.19.1", (), (), (), ())
    with pytest.raises(UsageError, match=f"^low is not applied to {site}; applied: ") as caught:
        carry_out.revert(site, "low")
    assert caught.value.hint == f"vllm-mods status --target {site}"


@pytest.mark.slow
def test_what_others_need_does_not_go_out_without_them(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "high", "alone", "on-top"))
    before = snapshot(site)
    with pytest.raises(Refused) as caught:
        carry_out.revert(site, "low")
    assert caught.value.message == f"nothing was changed in {site}: high needs low"
    assert caught.value.hint == f"vllm-mods revert low high alone on-top --target {site}"
    with pytest.raises(Refused) as caught:
        carry_out.revert(site, "alone")
    head, line, *_ = caught.value.message.splitlines()
    assert (
        head
        == f"nothing was changed in {site}: one of the mods that stay cannot be applied again without alone"
    )
    assert line == "  on-top 1.0.0: conflict"
    assert caught.value.hint == f"vllm-mods revert alone on-top --target {site}"
    assert caught.value.plan is not None
    assert snapshot(site) == before
    assert carry_out.revert(site, "low", "high").reverted == ("low", "high")


@pytest.mark.slow
def test_edits_go_only_where_that_is_asked_for(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "alone"))
    (site / B).write_bytes(b"mine\n")
    for gone in ([], ["low"]):
        with pytest.raises(Refused, match="changed after the mods were applied:"):
            carry_out.revert(site, *gone)
    carry_out.revert(site, "low", discard_edits=True)
    assert (site / B).read_bytes() == FILES[B]
    assert names(site) == ["alone"]
    (site / "vllm/a.py").write_bytes(b"mine\n")
    carry_out.revert(site, discard_edits=True)
    assert (site / "vllm/a.py").read_bytes() == FILES["vllm/a.py"]


@pytest.mark.slow
def test_a_mod_that_stays_is_put_where_it_was_proven_to_belong(
    site: Path, mods: Callable[..., tuple[Mod, ...]], tmp_path: Path
) -> None:
    text = "class Long:\n" + "".join(f"    x{number} = {number}\n" for number in range(40))
    write_mod(tmp_path, "long", diff_of("vllm/long.py", text, text.replace("= 20", "= 21")))
    shutil.copytree(site, tmp_path / "base")
    (tmp_path / "base/vllm/long.py").write_text(text)
    long, moved = site / "vllm/long.py", "# moved\n" * 5 + text
    long.write_text(moved)
    both = (*Library(tmp_path).mods("long"), *mods("alone"))
    with pytest.raises(Refused, match="unprovable"):
        put_in(site, both)
    put_in(site, both, base=FolderTree(str(tmp_path / "base"), spec="base"))
    changed = long.read_bytes()
    carry_out.revert(site, "alone")
    assert (names(site), long.read_bytes()) == (["long"], changed)
    long.write_bytes(b"mine\n")
    carry_out.revert(site, only_edits=True)
    assert (names(site), long.read_bytes()) == (["long"], changed)
    carry_out.revert(site)
    assert long.read_text() == moved


def test_a_mod_that_was_not_kept_cannot_be_planned_anew(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "alone"))
    (site / ".vllm-mods/mods/low.json").unlink()
    with pytest.raises(Refused) as caught:
        carry_out.revert(site, "alone")
    assert caught.value.message == (
        f"{site}: .vllm-mods/mods/low.json is gone, and no other change can be made while low stays applied without it; "
        "nothing was changed"
    )
    assert caught.value.hint == f"vllm-mods revert --target {site}  # removes all mods"


# --- exactly these --------------------------------------------------------------------------------------


def entry_names(done: Exactly) -> tuple[list[str], ...]:
    return tuple([one.name for one in rows] for rows in (done.out, done.into, done.renewed))


@pytest.mark.slow
def test_a_tree_is_made_to_hold_exactly_some_mods(
    site: Path, tmp_path: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    before = snapshot(site)
    put_in(site, mods("low", "alone"))
    wanted = mods("low", "limit")
    told = carry_out.hold(wanted, site, Terms(write=False))
    assert names(site) == ["low", "alone"]
    done = carry_out.hold(wanted, site, Terms())
    assert done == told
    assert entry_names(done) == (["alone"], ["limit"], [])
    assert (done.target, done.settled, done.notes) == (str(site), False, ())
    assert done.templates == f"{site}/.vllm-mods/templates"
    assert {"vllm/a.py", "vllm/other.py"} < set(done.changed)
    assert B not in done.changed
    assert names(site) == ["low", "limit"]
    assert (site / "vllm/a.py").read_bytes() == FILES["vllm/a.py"]
    again = carry_out.hold(wanted, site, Terms())
    assert (again.settled, again.changed, entry_names(again)) == (True, (), ([], [], []))
    write_mod(tmp_path / "l", "low", diff_of(B, "B = 1\n", "B = 7\n"))
    newer = Library(tmp_path / "l").mods("low")
    done = carry_out.hold(newer, site, Terms())
    assert entry_names(done) == (["limit"], [], ["low"])
    assert (site / B).read_bytes() == b"B = 7\n"
    done = carry_out.hold((), site, Terms())
    assert entry_names(done) == (["low"], [], [])
    assert snapshot(site) == before


def test_what_does_not_fit_leaves_a_tree_with_what_it_holds(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("alone"))
    before = snapshot(site)
    with pytest.raises(Refused, match=r"old 1\.0\.0: unsupported"):
        carry_out.hold(mods("low", "old"), site, Terms())
    (site / "vllm/a.py").write_bytes(b"mine\n")
    with pytest.raises(Refused, match="changed after the mods were applied:"):
        carry_out.hold(mods("low"), site, Terms())
    (site / "vllm/a.py").write_bytes(b"A = 2\n")
    assert snapshot(site).keys() == before.keys()


@pytest.mark.slow
def test_what_an_installer_undid_is_put_in_again(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "alone"))
    installing.install(site, FILES)
    done = carry_out.hold(mods("low", "alone"), site, Terms())
    assert (done.settled, entry_names(done)) == (False, ([], [], []))
    assert (site / B).read_bytes() == b"B = 2\n"
    installing.install(site, FILES)
    done_ = carry_out.revert(site, "low")
    assert done_.reverted == ("low", "alone")
    assert (site / B).read_bytes() == FILES[B]
    assert names(site) == []


@pytest.mark.slow
def test_of_mods_that_an_installer_undid_what_was_kept_is_set_aside_and_those_are_named(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "high", "alone", "limit"))
    (site / B).write_bytes(FILES[B])
    told = put_in(site, mods("low"), write=False)
    assert told.notes == (
        (
            "low, high was undone when vLLM was installed again; the old originals are now in "
            ".vllm-mods.old-1 and can be removed"
        ),
        f"the same installation undid high; to apply again: vllm-mods apply high --target {site}",
    )
    (planned,) = told.plan.mods
    (note,) = (one for one in planned.findings if one.code == "undone")
    assert note.message == "low was applied, but a later installation of vLLM undid it"
    assert note.level == "note"
    assert [change.path for change in told.plan.changes] == [B]
    assert put_in(site, mods("low")) == told
    assert names(site) == ["alone", "limit", "low"]
    assert (site / ".vllm-mods.old-1/receipt.json").exists()
    assert read_state(str(site)).receipt is not None


@pytest.mark.slow
def test_beside_what_was_edited_nothing_is_put_in_again(
    site: Path, mods: Callable[..., tuple[Mod, ...]]
) -> None:
    put_in(site, mods("low", "beside", "alone"))
    installing.install(site, {**FILES, B: b"B = 2\n"}, "0.20.0")
    (site / BESIDE).write_bytes(b"mine\n")
    with pytest.raises(Refused) as caught:
        put_in(site, mods("low", "alone", "limit"))
    assert caught.value.plan is not None
    low, alone, limit = caught.value.plan.mods
    (finding,) = low.findings
    assert (low.verdict, finding.code, finding.path) == ("partial", "changed-since", BESIDE)
    assert finding.message == (
        "low was undone when vLLM was installed again, and applying the mod again would lose edits "
        f"to these files: {BESIDE}"
    )
    assert alone.findings[0].path == "vllm/a.py"
    assert limit.verdict.writes


@pytest.mark.slow
def test_no_mod_is_put_on_what_was_edited_since(
    site: Path, mods: Callable[..., tuple[Mod, ...]], tmp_path: Path
) -> None:
    put_in(site, mods("alone"))
    edited = "A = 2\nmine = 1\n"
    (site / "vllm/a.py").write_text(edited)
    write_mod(tmp_path / "l", "late", diff_of("vllm/a.py", edited, edited.replace("2", "3")))
    with pytest.raises(Refused) as caught:
        put_in(site, (*Library(tmp_path / "l").mods("late"), *mods("low")))
    assert caught.value.plan is not None
    late, low = caught.value.plan.mods
    (finding,) = late.findings
    assert (late.verdict, finding.code, finding.path) == ("partial", "changed-since", "vllm/a.py")
    assert finding.message == (
        "late changes files that were edited after other mods were applied to them: vllm/a.py"
    )
    assert low.verdict.writes
    assert (
        caught.value.hint
        == f"vllm-mods revert --only-edits --target {site}  # drops the edits, not the mods"
    )
    assert (site / "vllm/a.py").read_text() == edited
    assert names(site) == ["alone"]
    put_in(site, mods("low"))
    assert (site / "vllm/a.py").read_text() == edited


# --- what is opened ---------------------------------------------------------------------------------------


def test_only_a_folder_of_this_machine_is_changed(site: Path) -> None:
    for spec in ("pypi:0.19.1", "image:x", "git:/a@b", "wheel:x.whl", "sdist:x"):
        with pytest.raises(UsageError, match=f"^{spec} is not an installed vLLM") as caught:
            carry_out.revert(spec)
        assert (
            caught.value.hint == "--target FOLDER  # one that contains vllm/, such as site-packages"
        )
    there = site.parent / "pypi:x"
    site.rename(there)
    assert carry_out.revert(there).target == str(there)


def test_the_workspace_of_a_tree_stays_its_workspace(site: Path, tmp_path: Path) -> None:
    folder = write_mod(tmp_path / "l", "chat", diff_of("vllm/a.py", "A = 1\n", "A = 7\n"))
    text = (folder / "mod.toml").read_text()
    (folder / "mod.toml").write_text(text + 'templates = [{ name = "t", file = "t.jinja" }]\n')
    (tmp_path / "l/templates/t").mkdir(parents=True)
    (tmp_path / "l/templates/t/template.jinja").write_text("{{ x }}")
    mods = Library(tmp_path / "l").mods("chat")
    (tmp_path / "space").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "space")
    done = put_in(site, mods, workspace=tmp_path / "link")
    assert done.templates == str(tmp_path / "space")
    assert (tmp_path / "space/t.jinja").read_text() == "{{ x }}"
    assert put_in(site, mods, workspace=tmp_path / "space").changed == ()
    with pytest.raises(UsageError) as caught:
        put_in(site, mods, workspace=tmp_path)
    assert caught.value.message == (
        f"this tree's chat templates are in {tmp_path}/space, not in {tmp_path}"
    )
    assert caught.value.hint == (
        f"--workspace {tmp_path}/space, or `vllm-mods revert --target {site}` first"
    )
    assert carry_out.revert(site).changed
    assert not (tmp_path / "space/t.jinja").exists()


def test_a_tree_in_which_a_run_was_interrupted_is_told_or_put_back_first(
    site: Path, mods: Callable[..., tuple[Mod, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        for name in ("_undo", "_settle_folders"):
            patched.setattr(transaction, name, _dies)
        with pytest.raises(Foreign):
            put_in(site, mods("alone"))
    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"
    for call, what in (
        (lambda: put_in(site, mods("low"), write=False), "apply"),
        (lambda: carry_out.hold(mods("low"), site, Terms(write=False)), "sync"),
    ):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.message == (
            f"{site}: an earlier run was interrupted here and must be undone before {what}"
        )
        undoing = f"vllm-mods apply alone --target {site}  # undoes that run first"
        assert caught.value.hint == undoing
    put_in(site, mods("low"))
    assert (site / "vllm/a.py").read_bytes() == FILES["vllm/a.py"]
    assert names(site) == ["low"]
    assert LOADER.encode() == (site / "vllm/loader.py").read_bytes()


def _dies(*_arguments: object) -> None:
    raise Foreign("killed")
