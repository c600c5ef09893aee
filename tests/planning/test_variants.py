"""Which variant goes in: the bytes decide, the range only says which to ask first."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import PATH, after, codes, found, one, tree

from vllm_mods.base.errors import DiffError, TreeError
from vllm_mods.base.model import ImageFile, Level, PatchFile, Variant, Verdict
from vllm_mods.fit.world import SummaryCache
from vllm_mods.planning.context import PlanContext

TEXT = "def f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    return a\n"


def change(old: str, new: str, name: str = "v", vllm: str = ">=0.19", **more: object) -> Variant:
    patch = diff_of(PATH, TEXT, TEXT.replace(old, new), context=1)
    return variant(patch, name=name, vllm=vllm, **more)


def apart(name: str, vllm: str, *wrong: str) -> Variant:
    """Return a variant that goes in nowhere: a hunk for each text that is not there."""
    patches = [diff_of(PATH, f"{text}\n", "x = 0\n") for text in wrong]
    return variant(*patches, name=name, vllm=vllm)


# --- what fits --------------------------------------------------------------


def test_of_variants_with_one_result_the_one_that_goes_in_as_written_is_taken() -> None:
    moved = variant(
        diff_of(
            PATH,
            "# 1\n# 2\n" + TEXT,
            "# 1\n# 2\n" + TEXT.replace("b = 2", "b = 3"),
            context=1,
            section="def f():",
        ),
        name="moved",
    )
    planned = one(mod(moved, change("b = 2", "b = 3", "exact")), tree(TEXT))
    assert planned.verdict is Verdict.APPLIES
    assert planned.variant is not None
    assert planned.variant.id == "exact"
    assert one(mod(moved), tree(TEXT)).verdict is Verdict.MOVED


def test_the_first_of_equals_is_taken() -> None:
    two = mod(change("b = 2", "b = 3", "p"), change("b = 2", "b = 3", "q"))
    planned = one(two, tree(TEXT))
    assert planned.variant is not None
    assert planned.variant.id == "p"


@pytest.mark.parametrize("vllm", [">=0.19", "==0.1"])
def test_variants_that_fit_with_different_results_are_named_with_their_ranges(vllm: str) -> None:
    two = mod(change("b = 2", "b = 3", "p", vllm), change("c = 3", "c = 4", "q", vllm))
    planned = one(two, tree(TEXT))
    assert (planned.verdict, planned.variant) == (Verdict.UNSUPPORTED, None)
    assert f"`p` ({vllm}) and `q` ({vllm}) both fit" in found(planned, "two-variants").message
    assert not planned.changes


def test_of_variants_that_are_in_the_one_that_is_meant_for_the_tree_is_named() -> None:
    outside = change("b = 2", "b = 9", "outside", "<0.1")
    inside = change("b = 2", "b = 9", "inside", "==0.19.1")
    for two in ((outside, inside), (inside, outside)):
        planned = one(mod(*two), tree(TEXT.replace("b = 2", "b = 9")))
        assert (planned.verdict, planned.variant) == (Verdict.APPLIED, inside)


@pytest.mark.slow
def test_a_variant_that_is_meant_for_the_tree_is_taken_before_one_that_is_not() -> None:
    outside = change("b = 2", "b = 9", "outside", "<0.1")
    inside = change("c = 3", "c = 9", "inside", "==0.19.1")
    for two in ((outside, inside), (inside, outside)):
        planned = one(mod(*two), tree(TEXT))
        assert (planned.variant, planned.in_range) == (inside, True)
        assert after(planned) == TEXT.replace("c = 3", "c = 9")
        assert "version-range" not in codes(planned)


def test_a_variant_for_other_versions_goes_in_with_a_note_unless_the_range_is_to_be_kept() -> None:
    outside = mod(change("b = 2", "b = 9", "outside", "<0.1"))
    planned = one(outside, tree(TEXT))
    assert (planned.verdict, planned.in_range) == (Verdict.APPLIES, False)
    note = found(planned, "version-range")
    assert note.level is Level.NOTE
    assert "variant `outside` (<0.1) is used although its range" in note.message
    unknown = found(one(outside, tree(TEXT, version=None)), "version-range")
    assert "does not include this version" in unknown.message
    strict = one(outside, tree(TEXT), strict_version=True)
    assert (strict.verdict, strict.variant, strict.in_range) == (Verdict.UNSUPPORTED, None, False)
    message = found(strict, "no-variant").message
    assert message == "no variant covers this version; the variants are `outside` (<0.1)"


def test_what_the_patched_code_imports_is_told_and_not_installed() -> None:
    planned = one(mod(change("b = 2", "b = 9", python=("flash>=2", "mega"))), tree(TEXT))
    notes = [finding for finding in planned.findings if finding.code == "python-requirement"]
    assert ["`flash>=2`" in notes[0].message, "`mega`" in notes[1].message] == [True, True]
    assert {note.level for note in notes} == {Level.NOTE}


@pytest.mark.parametrize("suffix", [".rej", ".orig"])
def test_what_patch_leaves_behind_is_pointed_at_unless_it_takes_a_request(suffix: str) -> None:
    files = {PATH: TEXT.encode(), PATH + suffix: b"", "vllm/other.py.rej": b""}
    for one_variant in (change("b = 2", "b = 9"), apart("x", ">=0.19", "nothing")):
        for remote in (False, True):
            planned = one(mod(one_variant), MemoryTree(files, remote=remote))
            notes = [n for n in planned.findings if n.code == "leftover"]
            told = [(note.path, note.level) for note in notes]
            assert told == ([] if remote else [(PATH + suffix, Level.NOTE)])
            message = f"{PATH}{suffix} shows that a run of `patch` stopped half-way"
            assert {note.message for note in notes} <= {message}


# --- what does not ----------------------------------------------------------


def test_a_refusal_is_in_the_words_of_the_variant_that_comes_nearest() -> None:
    far = apart("far", ">=0.19", "first", "second", "third")
    near = apart("near", ">=0.19", "first", "second")
    out = apart("out", "<0.1", "first")
    planned = one(mod(out, far, near), tree(TEXT))
    assert (planned.verdict, planned.variant, planned.in_range) == (Verdict.CONFLICT, near, True)
    assert [finding.code for finding in planned.findings] == ["text", "text"]


def test_where_no_variant_is_meant_the_nearest_range_speaks_and_all_are_named() -> None:
    old, mid, new = (
        apart(name, vllm, name) for name, vllm in (("o", "<0.5"), ("m", ">=0.18"), ("n", "==0.40"))
    )
    mid = mid._replace(vllm=">=0.18,<0.19")
    for order in ((old, mid, new), (new, mid, old)):
        planned = one(mod(*order), tree(TEXT, version="0.20.0", pristine=True))
        assert (planned.verdict, planned.variant, planned.in_range) == (
            Verdict.UNSUPPORTED,
            mid,
            False,
        )
        message = planned.findings[0].message
        assert message.startswith("no variant covers this version, and none fits its source; ")
        assert "`o` (<0.5)" in message
        assert "`m` (>=0.18,<0.19)" in message
        assert "`n` (==0.40)" in message
        assert [finding.code for finding in planned.findings] == ["no-variant", "text"]
        assert "m/0.patch" in planned.findings[1].message


def test_of_a_tree_without_a_version_no_range_says_anything() -> None:
    near, far = apart("near", "<0.1", "first"), apart("far", "<0.1", "first", "second")
    planned = one(mod(far, near), tree(TEXT, version=None))
    assert (planned.verdict, planned.variant) == (Verdict.CONFLICT, near)
    assert codes(planned) == {"text"}


@pytest.mark.slow
def test_a_variant_that_goes_in_and_would_not_work_says_more_than_that_none_is_meant() -> None:
    planned = one(
        mod(apart("p", "<0.1", "x"), change("b = 2", "b = nowhere", "q", "<0.2")), tree(TEXT)
    )
    assert planned.verdict is Verdict.UNFIT
    assert planned.variant is not None
    assert planned.variant.id == "q"
    assert not planned.changes
    assert not planned.in_range


def test_a_variant_that_would_not_work_does_not_stand_in_the_way_of_one_that_does() -> None:
    broken = change("b = 2", "b = nowhere", "broken")
    works = change("c = 3", "c = 9", "works")
    planned = one(mod(broken, works), tree(TEXT))
    assert (planned.verdict, planned.variant) == (Verdict.APPLIES, works)


def test_a_patch_below_a_folder_is_of_the_files_there() -> None:
    bare = diff_of("x.py", TEXT, TEXT.replace("b = 2", "b = 9"))
    below = variant()._replace(patches=(PatchFile("p", bare, root="vllm"),))
    assert after(one(mod(below), tree(TEXT))) == TEXT.replace("b = 2", "b = 9")


def test_a_finding_names_file_hunk_patch_and_where_the_text_is_nearest() -> None:
    patch = diff_of(PATH, "p = 1\nq = 2\n", "p = 1\nq = 3\n")
    finding = found(one(mod(variant(patch)), tree("p = 1\nq = 5\n")), "text")
    assert (finding.path, finding.hunk, finding.line) == (PATH, 1, 2)
    assert finding.message.startswith(f"{PATH}, hunk 1 of one/0.patch: ")


def test_every_hunk_that_has_no_place_is_told() -> None:
    gone = TEXT.replace("a = 1", "p = 1").replace("d = 4", "q = 4")
    patch = diff_of(PATH, TEXT, TEXT.replace("a = 1", "a = 9").replace("d = 4", "d = 9"), context=0)
    planned = one(mod(variant(patch)), tree(gone))
    assert [(finding.code, finding.hunk) for finding in planned.findings] == [
        ("text", 1),
        ("text", 2),
    ]


def test_what_the_fit_learns_of_files_is_kept_for_the_next_tree() -> None:
    cache = SummaryCache()
    planned = one(mod(change("b = 2", "b = 9")), tree(TEXT), cache=cache)
    assert planned.verdict is Verdict.APPLIES
    learnt = dict(cache.modules)
    assert learnt
    one(mod(change("b = 2", "b = 9")), tree(TEXT, version="0.20.0"), cache=cache)
    assert cache.modules == learnt


def test_what_the_fit_has_to_say_of_what_works_is_told_too() -> None:
    added = f"{TEXT}\n\ndef g():\n    from flash import x\n    return x.y(b=1)\n"
    planned = one(mod(variant(diff_of(PATH, TEXT, added))), tree(TEXT))
    assert planned.verdict is Verdict.APPLIES
    notes = [finding for finding in planned.findings if finding.code.startswith("fit-")]
    assert notes
    assert {note.level for note in notes} == {Level.NOTE}


def test_what_cannot_be_read_is_told_beside_what_does_not_fit() -> None:
    class Torn(MemoryTree):
        def read(self, path: str) -> bytes | None:
            if path == "vllm/y.py":
                raise TreeError("vllm/y.py is a link")
            return super().read(path)

    patches = [diff_of(PATH, "p = 1\n", "p = 2\n"), diff_of("vllm/y.py", "b\n", "c\n")]
    planned = one(mod(variant(*patches, vllm="<0.1")), Torn({PATH: TEXT.encode()}, pristine=True))
    assert planned.verdict is Verdict.UNSUPPORTED
    assert [(finding.code, finding.path) for finding in planned.findings] == [
        ("no-variant", None),
        ("text", PATH),
        ("unreadable", "vllm/y.py"),
    ]


@pytest.mark.slow
def test_what_goes_in_and_would_not_work_is_unfit() -> None:
    planned = one(mod(change("b = 2", "b = nowhere")), tree(TEXT))
    assert planned.verdict is Verdict.UNFIT
    assert Level.ERROR in {finding.level for finding in planned.findings}
    assert not planned.changes
    base = {
        "vllm/base.py": b"class Base:\n    def f(self, x):\n        pass\n",
        "vllm/caller.py": b"from vllm.base import Base\n\n\ndef start(one: Base):\n    one.f('x')\n",
    }
    text = "from vllm.base import Base\n\n\nclass A(Base):\n    n = 1\n"
    patch = diff_of(PATH, text, text + "\n    def f(self):\n        return 1\n")
    planned = one(mod(variant(patch)), MemoryTree(base | {PATH: text.encode()}))
    assert planned.verdict is Verdict.UNFIT
    assert "vllm/base.py" in planned.beside
    fine = one(mod(change("b = 2", "b = 9")), tree(TEXT))
    assert fine.verdict is Verdict.APPLIES


def test_a_tree_that_cannot_be_read_is_unreadable_in_the_words_and_with_the_hint_of_the_error() -> (
    None
):
    class Torn(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"{path}: no connection", hint="try again")

    planned = one(mod(change("b = 2", "b = 9")), Torn({}))
    assert (planned.verdict, planned.variant) == (Verdict.UNREADABLE, None)
    assert [finding.message for finding in planned.findings] == [
        f"{PATH}: no connection; try again"
    ]
    assert codes(planned) == {"unreadable"}


def test_a_bad_patch_of_any_variant_is_an_error() -> None:
    bad = variant(b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ what @@\n", name="bad", vllm="<0.1")
    with pytest.raises(DiffError, match=r"/lib/patches/mod/bad/0\.patch"):
        one(mod(bad), tree(TEXT))


@pytest.mark.slow
def test_a_variant_for_a_package_is_in_range_by_the_version_of_the_package() -> None:
    class WithPackage(MemoryTree):
        def package(self, name: str) -> str | None:
            return {"transformers": "5.4.0"}.get(name)

    there = WithPackage({PATH: b"a\n"})
    change = diff_of(PATH, "a\n", "b\n")
    for asked, inside in ((">=5", True), ("<5", False)):
        made = variant(change, package="transformers", package_version=asked)
        assert one(mod(made), there).in_range is inside


@pytest.mark.parametrize("known", ["5.4.0", None])
def test_what_a_variant_is_for_and_what_lies_beside_it_is_noted(known: str | None) -> None:
    class WithPackage(MemoryTree):
        def package(self, name: str) -> str | None:
            return known if name == "ext" else None

    change = diff_of(PATH, "a = 1\n", "a = 2\n")
    made = variant(change, package="ext", package_version="<5", vllm="<0.1")
    files = (ImageFile("/opt/x", "x", b""), ImageFile("/opt/y", "y", b""))
    planned = one(mod(made, files=files), WithPackage({PATH: b"a = 1\n"}))
    messages = [(finding.code, finding.message) for finding in planned.findings]
    apart = (
        "version-range",
        "variant `one` is for ext <5; the variant is used because 5.4.0 has the same source",
    )
    assert messages[-4 - (known is not None) :] == [
        ("image-only", "/opt/x is outside Python's packages, so only an image can hold the file"),
        ("image-only", "/opt/y is outside Python's packages, so only an image can hold the file"),
        ("package", f"ext {known or 'of unknown version'} is installed beside this vLLM"),
        *([apart] if known else []),
        (
            "version-range",
            (
                "variant `one` (<0.1) is used although its range does not include this version, because "
                "the code that it changes is the same"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("vllm", "begins"),
    [
        (">=0.19", True),
        (">=0.19.1", True),
        ("==0.19.1", True),
        (" ~= 0.19 , <0.30", True),
        (">=0.19.0", False),
        (">=0.18", False),
        ("", False),
        ("==0.19.*", True),
    ],
)
def test_a_range_begins_at_a_version_of_its_first_series(vllm: str, *, begins: bool) -> None:
    made = mod(variant(diff_of(PATH, "a\n", "b\n"), vllm=vllm))
    context = PlanContext(MemoryTree({PATH: b"a\n"}), None, "/w", None)
    (part,) = context.located(made, made.variants[0])
    assert part.at_base is begins


@pytest.mark.parametrize(
    ("vllm", "more", "is_base"),
    [
        ("==0.19.1", {"pristine": True}, True),
        (" == 0.19.1 ", {"released": {PATH: b"a\n"}}, True),
        ("==0.19.1", {"released": {PATH: b"b\n"}}, False),
        ("==0.19.1", {}, False),
        (">=0.19.1", {"pristine": True}, False),
        ("==0.19.1,!=0.20", {"pristine": True}, False),
        ("==0.19.0", {"pristine": True}, False),
    ],
)
def test_the_file_of_the_one_version_of_a_range_is_what_it_was_written_for(
    vllm: str, more: dict[str, Any], *, is_base: bool
) -> None:
    made = mod(variant(diff_of(PATH, "a\n", "b\n"), vllm=vllm))
    context = PlanContext(MemoryTree({PATH: b"a\n"}, **more), None, "/w", None)
    (part,) = context.located(made, made.variants[0])
    assert part.base == (b"a\n" if is_base else None)


def test_a_patch_of_what_this_tool_keeps_is_reserved() -> None:
    path = ".vllm-mods/receipt.json"
    planned = one(mod(variant(diff_of(path, "a\n", "b\n"))), MemoryTree({path: b"a\n"}))
    assert (planned.verdict, codes(planned)) == (Verdict.CONFLICT, {"reserved"})
