"""One part of a variant that does not go in: the finding says which code, and which file, line, hunk and scope."""

from __future__ import annotations

import pytest
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, lock_of, mod, variant
from small_plans import PATH, found, one, tree

from vllm_mods.base.errors import DiffError
from vllm_mods.base.model import (
    BinaryFile,
    Mod,
    OverlayFile,
    PatchFile,
    TemplateFile,
    TextReplacement,
    Verdict,
)
from vllm_mods.planning.patching import parts_of
from vllm_mods.planning.planner import plan_alone

TEXT = "def f():\n    a = 1\n    return a\n\n\ndef g():\n    a = 1\n    return a\n"
F = diff_of(PATH, TEXT, TEXT.replace("a = 1", "a = 2", 1), context=1, section="def f():")
NEW = b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n"
GONE = b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-d = 1\n"
RENAMED = b"diff --git a/vllm/o.py b/vllm/p.py\nrename from vllm/o.py\nrename to vllm/p.py\n"
ONE_F = TEXT.partition("\n\n\n")[0] + "\n"


def put(path: str, old: str, count: int = 1) -> Mod:
    return mod(variant(replace=(TextReplacement(path, old, "new", count),)))


def files(**data: str) -> MemoryTree:
    return MemoryTree({f"vllm/{name}.py": text.encode() for name, text in data.items()})


OVERLAID = mod(variant(overlay=(OverlayFile("o.py", PATH, b"new"),)))
CASES: dict[str, tuple[Mod, MemoryTree, tuple[str, str, int | None, int | None, str | None]]] = {
    "text is nowhere": (put(PATH, "b = 1"), files(x=TEXT), ("text", PATH, None, None, None)),
    "text is there too often": (
        put(PATH, "a = 1"),
        files(x=TEXT),
        ("ambiguous", PATH, 2, None, None),
    ),
    "text is there too rarely": (
        put(PATH, "def g", 2),
        files(x=TEXT),
        ("text", PATH, 6, None, None),
    ),
    "a file for text is gone": (put(PATH, "a"), files(y=""), ("file-gone", PATH, None, None, None)),
    "a package for text is not there": (
        put("ext/x.py", "a"),
        files(y=""),
        ("not-in-tree", "ext/x.py", None, None, None),
    ),
    "a whole file is there": (OVERLAID, files(x="old"), ("file-there", PATH, None, None, None)),
    "a new file is there": (
        mod(variant(NEW)),
        files(n="old"),
        ("file-there", "vllm/n.py", None, None, None),
    ),
    "a name is taken": (
        mod(variant(RENAMED)),
        files(o="o", p="p"),
        ("file-there", "vllm/p.py", None, None, None),
    ),
    "what is to go is another file": (
        mod(variant(GONE)),
        files(d="other\n"),
        ("text", "vllm/d.py", 1, None, None),
    ),
    "no Python": (mod(variant(F)), files(x="def f(:\n"), ("unparsable", PATH, None, None, None)),
    "what it was in is gone": (
        mod(
            variant(
                F.replace(b"@@ -1,3 +1,3 @@ def f():\n def f():\n", b"@@ -2,2 +2,2 @@ def f():\n")
            )
        ),
        files(x="def h():\n    b = 1\n", y=ONE_F),
        ("scope-gone", PATH, None, 1, "f"),
    ),
    "a line of it is another": (
        mod(variant(F)),
        files(x=ONE_F.replace("return a", "return 3")),
        ("text", PATH, 3, 1, "f"),
    ),
    "a package of a patch is not there": (
        mod(variant(F.replace(b"vllm/", b"ext/"))),
        files(y=""),
        ("not-in-tree", "ext/x.py", None, None, None),
    ),
    "a file is gone": (
        mod(variant(F)),
        files(y="def f(): pass\n"),
        ("file-gone", PATH, None, None, "f"),
    ),
}


def test_the_parts_of_a_variant_are_in_the_order_in_which_they_go_in() -> None:
    binary = [
        BinaryFile(f"b{n}", path, "0" * 64, platform, b"b", ("r",))
        for n, (path, platform) in enumerate([("x.so", "p"), ("x.so", "q"), ("y.so", "q")])
    ]
    made = mod(
        variant(
            F + NEW,
            overlay=(OverlayFile("o", "o.py", b"o", ("r", "s")),),
            replace=(TextReplacement("a.py", "a", "b"), TextReplacement("b.py", "a", "b")),
            templates=(TemplateFile("t", "t.jinja", "templates/t", b"T"),),
            binary=tuple(binary),
        )
    )
    (this,) = made.variants
    (patch,) = this.patches
    this = this._replace(patches=(patch, PatchFile("low", GONE, root="sub", optional=True)))
    parts = parts_of(made, this, "/w")
    assert [(part.source, part.path, part.optional) for part in parts] == [
        ("one/0.patch", PATH, False),
        ("one/0.patch", "vllm/n.py", False),
        ("low", "sub/vllm/d.py", True),
        ("replace[0]", "a.py", False),
        ("replace[1]", "b.py", False),
        ("o", "o.py", False),
        ("b2", "y.so", False),
        ("b0", "x.so", False),
        ("templates/t", "/w/t.jinja", False),
    ]
    assert [part.other for part in parts] == [
        None,
        None,
        None,
        *this.replace,
        None,
        None,
        None,
        None,
    ]
    assert [(part.whole, part.replaces) for part in parts[5:]] == [
        (b"o", ("r", "s")),
        (b"b", ("r",)),
        (b"b", ("r",)),
        (b"T", ()),
    ]
    built = [part.source for part in parts_of(made, this, "/w", platform="q")[6:-1]]
    assert built == ["b2", "b1"]


@pytest.mark.parametrize("vouched", [True, False])
@pytest.mark.parametrize(("name", "least"), [("HUNKS", 2), ("PATCH", 2 * len(F))])
def test_all_patches_of_a_variant_have_one_limit(
    monkeypatch: pytest.MonkeyPatch, name: str, least: int, *, vouched: bool
) -> None:
    made = mod(variant(F, F))
    lower(monkeypatch, name, least)
    assert len(parts_of(made, made.variants[0], "", vouched=vouched)) == 2
    lower(monkeypatch, name, least - 1)
    with pytest.raises(
        DiffError, match=f"this patch and those before it have more than {least - 1} "
    ) as caught:
        parts_of(made, made.variants[0], "", vouched=vouched)
    assert str(caught.value).startswith("/lib/patches/mod/one/1.patch:1: ")
    assert caught.value.hint == "split it into several mods"


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_told_with_its_place(case: str) -> None:
    made, there, place = CASES[case]
    (finding,) = one(made, there).findings
    assert finding.level == "error"
    assert (finding.code, *finding[2:6]) == place


def test_of_more_hunks_than_are_looked_into_the_rest_is_told_in_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower(monkeypatch, "EXPLAINED", 1)
    other = TEXT.replace("a = 1", "a = 5")
    whole = diff_of(PATH, other, other.replace("a = 5", "a = 6"), context=1)
    apart = [diff_of(PATH, text, text.replace("5", "6")) for text in other.split("\n\n\n")]
    for made in (mod(variant(whole)), mod(variant(*apart))):
        lines = [finding.line for finding in one(made, files(x=TEXT)).findings]
        assert lines == [2, None]


def test_notes_of_what_goes_in_have_its_place() -> None:
    planned = one(mod(variant(F)), files(x=f"import os\n\n\n{ONE_F}"))
    finding = found(planned, "offset")
    assert (finding.level, *finding[2:6]) == ("note", PATH, 4, 1, "f")
    assert finding.message == "hunk 1: applies at line 4, offset +3"
    other = F.replace(PATH.encode(), b"vllm/y.py")
    both = one(mod(variant(F, other)), files(x=f"import os\n\n\n{ONE_F}", y=f"\n{ONE_F}"))
    assert [found.message for found in both.findings if found.code == "offset"] == [
        f"hunk 1 of {PATH} (one/0.patch): applies at line 4, offset +3",
        "hunk 1 of vllm/y.py (one/1.patch): applies at line 2, offset +1",
    ]
    mode = f"diff --git a/{PATH} b/{PATH}\nold mode 100644\nnew mode 100755\n".encode()
    finding = found(one(mod(variant(mode)), files(x=TEXT)), "mode")
    assert (finding.level, *finding[2:6]) == ("note", PATH, None, None, None)
    assert (
        finding.message
        == f"{PATH} gets the permission bits 0755; the present bits of the file were not compared with these"
    )


def test_an_optional_patch_of_a_file_that_cannot_be_made_out_is_left_out() -> None:
    """Whether the mod is in is told by the rest, too."""
    bad = PatchFile("v/bad.patch", F.replace(b"vllm/x.py", b"vllm/bad.py"), optional=True)
    both = variant(NEW)
    made = mod(both._replace(patches=(*both.patches, bad)))
    planned = one(made, files(bad="def f(:\n"))
    assert planned.verdict is Verdict.APPLIES
    assert [(free.patch, free.verdict) for free in planned.optional] == [
        ("v/bad.patch", Verdict.UNREADABLE)
    ]
    assert one(made, files(n="n = 1\n", bad="def f(:\n")).verdict is Verdict.APPLIED


def test_text_for_text_is_put_in_the_long_way_beside_a_lock() -> None:
    there = files(x=TEXT)
    made = mod(variant(replace=(TextReplacement(PATH, "def g", "def h", 1),)))
    known = made._replace(lock=lock_of(one(made, there)))
    planned = one(known, there)
    assert (planned.verdict, planned.vouched) == (Verdict.APPLIES, False)


def test_a_mod_alone_rests_on_no_other_and_on_the_variants_that_are_named() -> None:
    other = variant(diff_of(PATH, "z\n", "zz\n"), name="other")
    made = mod(variant(F), other, requires=("x",), conflicts=("mod",), after=("y",))
    there = tree(ONE_F)
    assert one(made, there).verdict is Verdict.CONFLICT
    planned = plan_alone(made, there)
    assert (planned.verdict, planned.variant) == (Verdict.APPLIES, made.variants[0])
    assert planned.mod.variants == made.variants
    refused = plan_alone(made, there, other)
    assert refused.verdict is Verdict.CONFLICT
    assert refused.mod.variants == (other,)
