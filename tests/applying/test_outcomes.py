"""What is told of a tree, of what was done to it, and what to do next; how far its receipt is believed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant
from small_site import ONE, sha

from vllm_mods.applying import advice, claims
from vllm_mods.applying.outcomes import Status, Verified, of_mods
from vllm_mods.base.errors import Refused
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, ImageFile, Level, ModPlan, Plan, Verdict
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import FileHash, Receipt, ReceiptFile, ReceiptMod
from vllm_mods.library import packed_mod
from vllm_mods.library.catalog import Library
from vllm_mods.site.undone import Undone
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from pathlib import Path


def entry(name: str, *paths: str) -> ReceiptMod:
    files = tuple(FileHash(path, None, None) for path in paths)
    return ONE.mods[0]._replace(name=name, files=files)


A, B, C = (entry(name, f"vllm/{name}.py", "vllm/all.py") for name in "abc")
RECORD = ReceiptFile("vllm.dist-info/RECORD", None, None, receipt.RECORD)
THERE = Receipt("0.19.1", (A, B, C), (RECORD,))


def error(code: str, path: str | None = None, level: Level = Level.ERROR) -> Finding:
    return Finding(FindingCode(code), "wrong", path, level=level)


def status(*findings: Finding, undone: str = "", names: tuple[str, ...] = ()) -> Status:
    gone = frozenset({undone} - {""})
    return Status(
        "/site", "0.19.1", THERE, unfinished=False, findings=findings, undone=gone, names=names
    )


def test_each_mod_is_in_or_undone_or_changed_by_the_findings_of_its_files() -> None:
    told = status(error("changed-since", "vllm/b.py"), undone="vllm/c.py")
    assert [told.standing(one) for one in told.mods] == ["in", "changed", "undone"]
    assert not told.ok
    everywhere = status(error("missing", "vllm/all.py"))
    assert {everywhere.standing(one) for one in everywhere.mods} == {"changed"}
    noted = status(error("leftover", "vllm/b.py", Level.NOTE))
    assert noted.ok
    assert noted.standing(B) == "in"
    assert of_mods([error("text", f"vllm/{name}.py") for name in "xab"], [A, C]) == (
        error("text", "vllm/a.py"),
    )


def test_what_was_asked_about_is_all_that_is_told_and_may_be_absent() -> None:
    assert status().mods == (A, B, C)
    assert status().ok
    told = status(names=("c", "x", "a"))
    assert (told.mods, told.absent, told.ok) == ((A, C), ("x",), False)
    assert status(names=("a",)).ok
    nothing = Status("/site", None, None, unfinished=False, names=("a",))
    assert (nothing.mods, nothing.absent) == ((), ("a",))


def test_a_note_makes_a_tree_no_worse() -> None:
    for level, ok in ((Level.NOTE, True), (Level.ERROR, False)):
        assert Verified("/site", None, (), (error("leftover", level=level),)).ok is ok


# --- what to do next --------------------------------------------------------------------------------------


# a tree whose name a shell would take apart
PLACE = MemoryTree({}, spec="a site")
PLACE.root = "/the site"
AGAIN = "vllm-mods apply a b c --target 'a site'"
DISCARD = "vllm-mods revert --only-edits --target 'a site'  # drops the edits, not the mods"
ANEW = "reinstall vLLM 0.19.1 from its original source, because a package index may have a different build  # then apply again"
GONE = Undone(frozenset({"vllm/a.py", RECORD.path}))


@pytest.mark.parametrize(
    ("findings", "undone", "command"),
    [
        ([error("unfinished"), error("unreadable")], Undone(), AGAIN),
        ([error("changed-since", "vllm/a.py")], GONE, AGAIN),
        ([error("missing", RECORD.path)], GONE, AGAIN),
        ([error("changed-since", "vllm/a.py")], GONE._replace(edited=("vllm/b.py",)), DISCARD),
        ([error("changed-since", "vllm/a.py")], Undone(), DISCARD),
        ([error("missing", "vllm/a.py")], Undone(), DISCARD),
        ([error("stale-bytecode", "a b.pyc"), error("stale-bytecode", "c.pyc")], Undone(), "rm '/the site/a b.pyc' '/the site/c.pyc'"),
        ([error("stale-bytecode", "c.pyc"), error("leftover", "x", Level.NOTE)], Undone(), "rm '/the site/c.pyc'"),
        ([error("stale-bytecode", "c.pyc"), error("mode-changed", "x")], Undone(), DISCARD),
        ([error("original-missing")], Undone(), ANEW),
        ([error("original-damaged")], Undone(), ANEW),
        ([error("unreadable")], Undone(), ANEW),
        ([error("unreadable", level=Level.NOTE)], Undone(), DISCARD),
        ([error("missing", RECORD.path)], Undone(), ANEW),
        ([error("missing", RECORD.path)], GONE._replace(edited=("x",)), DISCARD),
    ],
)  # fmt: skip
def test_each_thing_wrong_with_a_tree_has_its_command(
    findings: list[Finding], undone: Undone, command: str
) -> None:
    assert advice.next_command(PLACE, THERE, undone, findings) == command


def test_a_tree_is_put_right_where_its_templates_are_and_without_mods_it_is_put_back() -> None:
    findings = [error("unfinished")]
    spaced = THERE._replace(workspace="/my space")
    command = advice.next_command(PLACE, spaced, Undone(), findings)
    assert command == f"{AGAIN} --workspace '/my space'"
    bare = advice.next_command(PLACE, None, Undone(), findings)
    assert bare == "vllm-mods revert --target 'a site'"


def planned(name: str, verdict: Verdict, *files: str) -> ModPlan:
    images = tuple(ImageFile(source=path, path=path, data=b"") for path in files)
    return ModPlan(mod(variant(), name=name, files=images), None, verdict, in_range=True)


def test_what_only_an_image_gets_is_left_out_where_that_is_allowed() -> None:
    mods = (
        planned("one", Verdict.APPLIES, "/opt/a", "/opt/b"),
        planned("in", Verdict.APPLIED, "/opt/c"),
        planned("two", Verdict.MOVED, "/opt/d"),
    )
    plan = Plan("site", None, mods, ())
    lines = [
        f"{name}: {path} is outside Python's packages; only an image can hold it"
        for name, path in (("one", "/opt/a"), ("one", "/opt/b"), ("two", "/opt/d"))
    ]
    assert advice.left_out(plan, allowed=True) == [f"{line}; not written" for line in lines]
    with pytest.raises(Refused) as caught:
        advice.left_out(plan, allowed=False)
    head = "nothing was changed in site: the mods have files that only an image can hold"
    assert caught.value.message == "\n  ".join([head, *lines])
    assert caught.value.hint == (
        "`vllm-mods build PAIRING` puts them into an image; --without-files applies the mods without these files"
    )
    for allowed in (True, False):
        assert advice.left_out(Plan("site", None, mods[1:2], ()), allowed=allowed) == []


def test_a_refusal_names_each_mod_that_does_not_go_in_with_all_that_is_wrong() -> None:
    bad = planned("two", Verdict.CONFLICT)._replace(findings=(error("text"), error("edge", "x")))
    plan = Plan("site", None, (planned("one", Verdict.APPLIES), bad), ())
    refused = advice.refusal(plan, PLACE, ["a note"])
    assert refused.message.splitlines() == [
        "a note; nothing was changed in vLLM of unknown version (site)",
        "  two 1.0.0: conflict",
        *(f"    {finding}" for finding in bad.findings),
    ]
    assert (refused.plan, refused.hint) == (plan, "vllm-mods show two --library /lib")
    known = advice.refusal(Plan("site", "0.19.1", (bad,), ()), PLACE, ())
    assert known.message.startswith("nothing was changed in vLLM 0.19.1 (site)\n")


# --- how far a receipt is believed ------------------------------------------------------------------------

NEW = b"--- /dev/null\n+++ b/vllm/new.py\n@@ -0,0 +1 @@\n+NEW = 1\n"
FILLED = b"--- a/vllm/empty.py\n+++ b/vllm/empty.py\n@@ -0,0 +1 @@\n+NEW = 1\n"


def write_new_mod(tmp_path: Path) -> ReceiptMod:
    folder = tmp_path / "library/patches/new"
    folder.mkdir(parents=True)
    (folder / "n.patch").write_bytes(NEW)
    (folder / "e.patch").write_bytes(FILLED)
    (folder / "o.py").write_bytes(b"O = 1\n")
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "new"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0"\npatches = ["n.patch", "e.patch"]\n'
        'overlay = [{ source = "o.py", path = "vllm/o.py" }]\n'
        'replace = [{ path = "vllm/r.py", old = "a", new = "b" }]\n'
    )
    (made,) = Library(tmp_path / "library").mods("new")
    kept = tmp_path / "site" / receipt.kept("new")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(packed_mod.pack(made))
    return ReceiptMod("new", "1", made.digest, "a", "applies", ())


def told(tmp_path: Path, *files: ReceiptFile, **more: Any) -> str | None:
    """Return the paths that no mod has made, as far as the receipt of a tree names them."""
    made = write_new_mod(tmp_path)._replace(**more)
    site = tmp_path / "site"
    for file in files:
        (site / file.path).parent.mkdir(parents=True, exist_ok=True)
        (site / file.path).touch()
    tree = FolderTree(str(site), spec="site")
    try:
        claims.check(tree, Receipt("0.19.1", (made,), files))
    except Refused as error_:
        return error_.message.split("mods created ")[1].split(", but no mod")[0]
    return None


@pytest.mark.parametrize(
    ("path", "believed"),
    [
        ("vllm/new.py", True),
        ("vllm/o.py", True),
        ("vllm/empty.py", True),
        ("vllm/r.py", False),
        ("vllm/other.py", False),
    ],
)
def test_a_file_is_a_mods_that_the_kept_mod_makes(
    tmp_path: Path, path: str, *, believed: bool
) -> None:
    file = ReceiptFile(path, None, sha(b""))
    assert told(tmp_path, file) == (None if believed else path)
    os.unlink(tmp_path / "site" / path)
    tree = FolderTree(str(tmp_path / "site"))
    claims.check(tree, Receipt(None, (), (file,)))  # there is nothing to delete


@pytest.mark.parametrize("more", [{"digest": "0" * 64}, {"variant": "b"}, {"name": "gone"}])
def test_a_mod_that_is_kept_otherwise_makes_nothing(tmp_path: Path, more: dict[str, str]) -> None:
    file = ReceiptFile("vllm/new.py", None, sha(b""))
    assert told(tmp_path, file, **more) == "vllm/new.py"


@pytest.mark.parametrize(
    ("path", "kind", "before", "believed"),
    [
        ("vllm/other.py", receipt.FILE, sha(b"x"), True),
        ("vllm/folder/x", receipt.FOLDER, None, True),
        ("x.dist-info/RECORD", receipt.RECORD, sha(b"x"), True),
        ("x.dist-info/RECORD", receipt.RECORD, None, False),
        ("a/x.dist-info/RECORD", receipt.RECORD, sha(b"x"), False),
        ("x.dist-info/RECORD2", receipt.RECORD, sha(b"x"), False),
        ("vllm/other.py", receipt.RECORD, sha(b"x"), False),
        ("vllm/__pycache__/x.pyc", receipt.BYTECODE, sha(b"x"), True),
        ("__pycache__/x.pyc", receipt.BYTECODE, sha(b"x"), True),
        ("vllm/__pycache__/x.pyc", receipt.BYTECODE, None, False),
        ("vllm/x.pyc", receipt.BYTECODE, sha(b"x"), False),
        ("vllm/__pycache__/x.py", receipt.BYTECODE, sha(b"x"), False),
    ],
)
def test_what_follows_from_files_has_to_look_like_that(
    tmp_path: Path, path: str, kind: Any, before: str | None, *, believed: bool
) -> None:
    assert told(tmp_path, ReceiptFile(path, before, None, kind)) == (None if believed else path)


def test_what_has_an_original_was_there_before_any_mod(tmp_path: Path) -> None:
    original = tmp_path / "site" / receipt.original("vllm/new.py")
    original.parent.mkdir(parents=True)
    original.touch()
    assert told(tmp_path, ReceiptFile("vllm/new.py", None, sha(b""))) == "vllm/new.py"


def test_outside_of_a_tree_mods_only_made_files() -> None:
    own = ReceiptFile("/space/t", None, sha(b""))
    claims.check_outside(Receipt(None, (), (own, ReceiptFile("vllm/a.py", sha(b""), None))), "site")
    for file in (own._replace(before=sha(b"")), own._replace(kind=receipt.BYTECODE)):
        with pytest.raises(
            Refused, match="says that a mod replaced /space/t, which is outside"
        ) as caught:
            claims.check_outside(Receipt(None, (), (own, file)), "site")
        assert caught.value.hint == (
            "less site/.vllm-mods/receipt.json  # shows the receipt; reinstall vLLM if its origin is unknown"
        )
