"""Verdicts: the cases that the usual tools get wrong with exit code 0 are marked ``danger``."""

from __future__ import annotations

import pytest
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, lock_of, mod, patched, variant
from small_plans import PATH, after, codes, one, tree

from vllm_mods.base.errors import DiffError, UsageError
from vllm_mods.base.model import Mod, OverlayFile, TemplateFile, Verdict
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning.planner import plan

TWINS = """\
class A:
    def forward(self, x):
        y = x + 1
        return y


class B:
    def forward(self, x):
        y = x + 1
        return y
"""
# the patch for A.forward, with the header that git writes for it
A_PATCH = (
    b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
    b"@@ -2,3 +2,3 @@ class A:\n     def forward(self, x):\n-        y = x + 1\n+        y = x + 2\n         return y\n"
)


def test_hunks_are_counted_over_all_patches_of_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "HUNKS", 1)
    with pytest.raises(DiffError, match="this patch and those before it have more than 1 hunks"):
        plan([mod(variant(A_PATCH, A_PATCH))], tree(TWINS))


@pytest.mark.slow
def test_what_would_not_work_says_what_was_not_looked_for() -> None:
    planned = one(
        mod(variant(diff_of(PATH, TWINS, TWINS.replace("x + 1", "gone(x)", 1)))), tree(TWINS)
    )
    assert planned.verdict is Verdict.UNFIT
    assert planned.unexamined


# --- placement ---------------------------------------------------------------


def test_applies_at_the_stated_line_in_the_stated_class() -> None:
    planned = one(mod(variant(A_PATCH)), tree(TWINS))
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == TWINS.replace("x + 1", "x + 2", 1)
    assert [(hunk.line, hunk.proof, hunk.scope) for hunk in planned.hunks] == [
        (2, "scope", "A.forward")
    ]


def test_danger_twin_classes_swapped_upstream_are_told_apart() -> None:
    a, b = TWINS.split("\n\n\n")
    swapped = f"{b.rstrip()}\n\n\n{a}\n"
    planned = one(mod(variant(A_PATCH)), tree(swapped))
    assert planned.verdict is Verdict.MOVED
    assert after(planned).index("x + 2") > after(planned).index("class A")
    assert "offset" in codes(planned)


def test_danger_the_stated_line_in_the_wrong_class_is_misplaced() -> None:
    only_b = TWINS.replace("class A", "class C")
    planned = one(mod(variant(A_PATCH)), tree(only_b))
    assert planned.verdict is Verdict.MISPLACED
    assert not planned.changes
    (finding,) = planned.findings
    assert "`C.forward`" in finding.message
    assert "class A" in finding.message
    assert finding.hunk == 1


def test_danger_without_a_header_twins_are_not_told_apart() -> None:
    bare = A_PATCH.replace(b" class A:", b"")
    planned = one(mod(variant(bare)), tree(TWINS))
    assert planned.verdict is Verdict.MISPLACED
    assert codes(planned) == {"ambiguous"}


def test_danger_lines_inserted_above_repeated_blocks() -> None:
    block = "    a = 1\n    b = 2\n    c = 3\n"
    base = f"def f():\n{block}{block}"
    patch = diff_of(PATH, base, f"def f():\n{block}    a = 1\n    b = 9\n    c = 3\n", context=1)
    shifted = f"import os\n\n\ndef f():\n{block}{block}"
    assert one(mod(variant(patch)), tree(shifted)).verdict is Verdict.MISPLACED


def test_danger_a_look_alike_function_is_never_patched_instead() -> None:
    base = "def f1():\n    a = 1\n    b = 2\n    return a\n\n\ndef f2():\n    a = 1\n    b = 3\n    return a\n"
    patch = diff_of(PATH, base, base.replace("b = 3", "b = 4"), context=1, section="def f2():")
    gone = base.replace("def f2():\n    a = 1\n    b = 3", "def f2():\n    a = 7\n    b = 8")
    planned = one(mod(variant(patch)), tree(gone))
    assert planned.verdict is Verdict.CONFLICT
    assert planned.findings[0].line == 8


def test_danger_indentation_is_part_of_the_text() -> None:
    base = "class A:\n    def f(self):\n        a = 1\n        return a\n"
    patch = diff_of(PATH, base, base.replace("a = 1", "a = 2"))
    dedented = "class A:\n  def f(self):\n    a = 1\n    return a\n"
    assert one(mod(variant(patch)), tree(dedented)).verdict is Verdict.CONFLICT


def test_a_module_level_hunk_is_anchored_on_the_import_it_is_part_of() -> None:
    base = "from p import (\n    a,\n    b,\n)\nfrom q import (\n    a,\n    b,\n)\n"
    patch = diff_of(
        PATH, base, base.replace("    b,\n)\nfrom q", "    b,\n    c,\n)\nfrom q"), context=1
    )
    locked = one(
        mod(variant(patch)), tree(base.replace("from q import (\n    a,\n    b,\n)\n", ""))
    )
    assert locked.verdict is Verdict.APPLIES
    assert locked.hunks[0].scope == "from p import"
    assert locked.hunks[0].proof == "stated"


def test_a_hunk_without_context_proves_nothing() -> None:
    patch = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -3,0 +4 @@ class A:\n+        z = 1\n"
    planned = one(mod(variant(patch)), tree(TWINS))
    assert planned.verdict is Verdict.MISPLACED
    assert codes(planned) == {"unprovable"}


def test_a_lock_decides_nothing_about_a_tree_that_it_does_not_know() -> None:
    bare = A_PATCH.replace(b" class A:", b"")
    plain = mod(variant(bare))
    written = one(mod(variant(A_PATCH)), tree(TWINS))
    recorded = lock_of(written._replace(mod=plain, variant=plain.variants[0]))
    a, b = TWINS.split("\n\n\n")
    unknown = f"import os\n\n\n{b.rstrip()}\n\n\n{a}\n"
    for text in (TWINS, unknown):
        without = one(plain, tree(text))
        assert without.verdict is Verdict.MISPLACED
        assert one(plain._replace(lock=recorded), tree(text)) == without._replace(
            mod=plain._replace(lock=recorded)
        )


def test_crlf_files_match_crlf_patches_only() -> None:
    crlf = TWINS.replace("\n", "\r\n")
    assert one(mod(variant(A_PATCH)), tree(crlf)).verdict is Verdict.CONFLICT
    body = A_PATCH.split(b"\n")
    in_crlf = b"\n".join(body[:3]) + b"\n" + b"".join(line + b"\r\n" for line in body[3:-1])
    planned = one(mod(variant(in_crlf)), tree(crlf))
    assert planned.verdict is Verdict.APPLIES
    assert after(planned).count("\r\n") == crlf.count("\r\n")


def test_a_missing_final_newline_stays_missing() -> None:
    base = "def f():\n    a = 1\n    return a"
    patch = diff_of(PATH, base, base.replace("a = 1", "a = 2"))
    assert after(one(mod(variant(patch)), tree(base))) == base.replace("a = 1", "a = 2")
    assert one(mod(variant(patch)), tree(base + "\n")).verdict is Verdict.CONFLICT


@pytest.mark.parametrize("end", [b"def (:\n", b"# no UTF-8: \xff\n"])
@pytest.mark.parametrize("patch", [A_PATCH, diff_of(PATH, TWINS, TWINS.replace("B:", "C:"))])
def test_python_that_does_not_parse_is_unreadable(patch: bytes, end: bytes) -> None:
    planned = one(mod(variant(patch)), MemoryTree({PATH: TWINS.encode() + end}))
    assert (planned.verdict, codes(planned)) == (Verdict.UNREADABLE, {"unparsable"})


def test_a_form_feed_ends_no_line() -> None:
    base = "\x0c" + TWINS + "\x0cx = 1\n"
    planned = one(mod(variant(A_PATCH)), tree(base))
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == base.replace("x + 1", "x + 2", 1)


def test_an_indented_def_in_the_hunk_tells_no_class() -> None:
    base = "class A:\n    def f(self):\n        a = 1\n        return a\n\n"
    patch = diff_of(PATH, base, base.replace("1", "2"), context=1)
    other = base.replace("class A", "class B") + "\n\nclass A:\n    def f(self):\n        pass\n"
    planned = one(mod(variant(patch)), tree(f"import os\n{other}"))
    assert codes(planned) == {"unprovable"}


def test_a_function_that_the_hunk_shows_may_have_another_one_above_it_by_now() -> None:
    base = "import os\n\n\ndef f():\n    return 1\n"
    patch = diff_of(PATH, base, base.replace("1", "2"), section="import os")
    between = "\n\ndef g():\n    return 3\n"
    planned = one(mod(variant(patch)), tree(base.replace("import os\n", "import os\n" + between)))
    assert planned.verdict is Verdict.MOVED
    assert planned.hunks[0].proof == "scope"


def test_a_file_that_is_not_python_needs_a_unique_match() -> None:
    path = "vllm/t.json"
    patch = diff_of(path, "{\n1\n2\n3\n}\n", "{\n1\n9\n3\n}\n", context=1)
    assert (
        one(mod(variant(patch)), MemoryTree({path: b"{\n1\n2\n3\n}\n"})).verdict is Verdict.APPLIES
    )
    assert (
        one(mod(variant(patch)), MemoryTree({path: b"1\n2\n3\n1\n2\n3\n"})).verdict
        is Verdict.MISPLACED
    )


# --- modes and empty files ---------------------------------------------------

MODE = b"diff --git a/vllm/x.py b/vllm/x.py\nold mode 100644\nnew mode 100755\n"
FIRST_LINES = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -0,0 +1 @@\n+x = 1\n"


def test_a_change_of_the_mode_alone_is_made_and_says_that_no_tree_tells_modes() -> None:
    for pristine in (False, True):
        planned = one(mod(variant(MODE)), tree(TWINS, pristine=pristine))
        assert planned.verdict is Verdict.APPLIES
        (change,) = planned.changes
        assert (change.before, change.after, change.mode) == (*[TWINS.encode()] * 2, 0o755)
        assert codes(planned) == {"mode"}
    assert one(mod(variant(MODE)), MemoryTree({"vllm/y.py": b""})).verdict is Verdict.MISSING


def test_a_change_of_the_mode_does_not_hide_whether_the_rest_is_in() -> None:
    mod_ = mod(variant(MODE, diff_of("vllm/y.py", "y = 1\n", "y = 2\n")))
    files = {PATH: b"", "vllm/y.py": b"y = 1\n"}
    assert one(mod_, MemoryTree(files)).verdict is Verdict.APPLIES
    files["vllm/y.py"] = b"y = 2\n"
    assert one(mod_, MemoryTree(files)).verdict is Verdict.APPLIED
    files["vllm/y.py"] = b"y = 3\n"
    assert one(mod_, MemoryTree(files)).verdict is Verdict.CONFLICT


@pytest.mark.parametrize("empty", [None, b""])
def test_first_lines_go_into_an_empty_file_or_make_it(empty: bytes | None) -> None:
    files = {"vllm/__init__.py": b""} if empty is None else {PATH: empty}
    planned = one(mod(variant(FIRST_LINES)), MemoryTree(files))
    assert planned.verdict is Verdict.APPLIES
    assert [(change.before, change.after) for change in planned.changes] == [(empty, b"x = 1\n")]


def test_first_lines_go_into_no_file_that_has_lines() -> None:
    assert one(mod(variant(FIRST_LINES)), tree("y = 1\n")).verdict is Verdict.CONFLICT


def test_git_s_first_lines_of_an_empty_file_make_none() -> None:
    patch = b"diff --git a/vllm/x.py b/vllm/x.py\nindex e69de29..b03db2e 100644\n" + FIRST_LINES
    planned = one(mod(variant(patch)), MemoryTree({"vllm/__init__.py": b""}))
    assert planned.verdict is Verdict.MISSING


# --- what is in already ------------------------------------------------------


@pytest.mark.slow
def test_danger_a_second_run_is_told_by_the_stated_lines_although_the_text_still_matches() -> None:
    base = "def f():\n    a()\n    b()\n"
    patch = diff_of(PATH, base, base.replace("    b()", "    a()\n    b()"), context=1)
    planned = one(mod(variant(patch)), tree(base))
    assert planned.verdict is Verdict.APPLIES
    # `a()` and `b()` are neighbours again, so the patch would go in a second time
    for pristine, verdict in ((False, Verdict.APPLIED), (True, Verdict.UPSTREAM)):
        again = one(mod(variant(patch)), tree(after(planned), pristine=pristine))
        assert again.verdict is verdict
        assert not again.changes
    # where the lines have moved, nothing tells whether it is in
    moved = one(mod(variant(patch)), tree(f"import os\n{after(planned)}"))
    assert moved.verdict is Verdict.MISPLACED
    assert codes(moved) == {"both-ways"}


def test_danger_a_half_applied_file_is_partial_not_applied() -> None:
    base = "".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(6))
    final = base.replace("return 1\n", "return 11\n").replace("return 4\n", "return 44\n")
    patch = diff_of(PATH, base, final)
    half = base.replace("return 1\n", "return 11\n")
    planned = one(mod(variant(patch)), tree(half))
    assert planned.verdict is Verdict.PARTIAL
    assert "hunk 1" in planned.findings[0].message
    assert one(mod(variant(patch)), tree(final)).verdict is Verdict.APPLIED


def test_danger_a_stack_is_recognised_from_the_top() -> None:
    base = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
    first = base.replace("b = 2", "b = 20")
    second = first.replace("b = 20", "b = 200")
    stack = variant(diff_of(PATH, base, first), diff_of(PATH, first, second))
    assert after(one(mod(stack), tree(base))) == second
    assert one(mod(stack), tree(second)).verdict is Verdict.APPLIED
    assert one(mod(stack), tree(first)).verdict in {Verdict.PARTIAL, Verdict.CONFLICT}


def test_mods_that_build_on_each_other_are_recognised_together() -> None:
    base = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
    middle = base.replace("b = 2", "b = 20")
    final = middle.replace("b = 20", "b = 200")
    low = mod(variant(diff_of(PATH, base, middle)), name="low")
    high = mod(variant(diff_of(PATH, middle, final)), name="high", requires=("low",))
    planned = plan([high, low], tree(base))
    assert [one_.mod.name for one_ in planned.mods] == ["low", "high"]
    assert [one_.verdict for one_ in planned.mods] == [Verdict.APPLIES, Verdict.APPLIES]
    (net,) = planned.changes
    assert (net.before, net.after) == (base.encode(), final.encode())
    again = plan([low, high], tree(final))
    assert [one_.verdict for one_ in again.mods] == [Verdict.APPLIED, Verdict.APPLIED]


def test_upstream_when_the_release_itself_has_it() -> None:
    base = "def f():\n    a = 1\n    return a\n"
    final = base.replace("a = 1", "a = 2")
    mod_ = mod(variant(diff_of(PATH, base, final)))
    assert one(mod_, tree(final, pristine=True)).verdict is Verdict.UPSTREAM
    installed = tree(final, released={PATH: final.encode()})
    # RECORD says so of what this tool put in too, once its receipt is gone
    assert one(mod_, installed).verdict is Verdict.APPLIED
    assert one(mod_, installed, receipt=Receipt("0.19.1", (), ())).verdict is Verdict.UPSTREAM
    assert one(mod_, tree(final)).verdict is Verdict.APPLIED
    edited = tree(final, released={PATH: base.encode()})
    assert one(mod_, edited).verdict is Verdict.APPLIED


# --- what is gone ------------------------------------------------------------


def test_missing_says_where_the_class_went() -> None:
    moved = MemoryTree({"vllm/x/core.py": TWINS.encode(), "vllm/other.py": b"x = 1\n"})
    planned = one(mod(variant(A_PATCH)), moved)
    assert planned.verdict is Verdict.MISSING
    assert "`A` is defined in vllm/x/core.py:1" in planned.findings[0].message


def test_missing_says_where_a_function_of_a_file_that_stays_went() -> None:
    base = "def f():\n    a = 1\n    return a\n"
    patch = diff_of(PATH, base, base.replace("a = 1", "a = 2"), context=1, section="def f():")
    patch = patch.replace(b"@@ -1,3 +1,3 @@ def f():\n def f():\n", b"@@ -2,2 +2,2 @@ def f():\n")
    gone = MemoryTree({PATH: b"x = 1\n", "vllm/y.py": base.encode()})
    planned = one(mod(variant(patch)), gone)
    assert planned.verdict is Verdict.MISSING
    assert "vllm/y.py:1" in planned.findings[0].message


def test_conflict_names_the_nearest_text() -> None:
    planned = one(mod(variant(A_PATCH)), tree(TWINS.replace("y = x + 1", "y = x + 5")))
    assert planned.verdict is Verdict.CONFLICT
    assert planned.findings[0].line == 3
    assert "y = x + 5" in planned.findings[0].message


# --- variants ----------------------------------------------------------------

OLD = "def f():\n    a = 1\n    return a\n"
NEW = "def f():\n    a = 2\n    return a\n"
FOR_OLD = variant(diff_of(PATH, OLD, OLD.replace("1", "10")), name="0.19", vllm=">=0.19,<0.20")
FOR_NEW = variant(diff_of(PATH, NEW, NEW.replace("2", "20")), name="0.20", vllm=">=0.20,<0.22")


def test_the_tree_decides_and_the_range_advises() -> None:
    two = mod(FOR_OLD, FOR_NEW)
    dev = tree(NEW, version="0.19.1rc1.dev46+gc5e3454e5.d20260406")
    planned = one(two, dev)
    assert (planned.verdict, planned.in_range) == (Verdict.APPLIES, False)
    assert planned.variant is not None
    assert planned.variant.id == "0.20"
    assert "version-range" in codes(planned)
    strict = one(two, dev, strict_version=True)
    assert strict.verdict is Verdict.CONFLICT or strict.verdict is Verdict.UNSUPPORTED
    assert one(two, tree(OLD)).in_range


def test_unsupported_when_no_variant_is_meant_and_none_fits() -> None:
    planned = one(mod(FOR_OLD), tree("x = 1\n", version="0.33.0"))
    assert planned.verdict is Verdict.UNSUPPORTED
    assert planned.findings[0].code == "no-variant"
    assert len(planned.findings) > 1


def test_two_variants_out_of_range_with_different_results_are_not_guessed() -> None:
    base = "def f():\n    a = 1\n    b = 2\n    return a\n"
    first = variant(diff_of(PATH, base, base.replace("a = 1", "a = 3")), name="p", vllm="==0.1")
    second = variant(diff_of(PATH, base, base.replace("b = 2", "b = 3")), name="q", vllm="==0.2")
    planned = one(mod(first, second), tree(base))
    assert planned.verdict is Verdict.UNSUPPORTED
    assert "`p`" in planned.findings[0].message
    assert "`q`" in planned.findings[0].message


# --- files, overlays, templates ----------------------------------------------


def test_files_are_created_deleted_and_renamed() -> None:
    patch = (
        b"diff --git a/vllm/n.py b/vllm/n.py\nnew file mode 100755\n--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n"
        b"diff --git a/vllm/d.py b/vllm/d.py\ndeleted file mode 100644\n--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-d = 1\n"
        b"diff --git a/vllm/o.py b/vllm/p.py\nrename from vllm/o.py\nrename to vllm/p.py\n"
    )
    files = {"vllm/d.py": b"d = 1\n", "vllm/o.py": b"o = 1\n"}
    planned = one(mod(variant(patch)), MemoryTree(files))
    assert planned.verdict is Verdict.APPLIES
    result = patched(files, planned)
    assert result == {"vllm/n.py": b"n = 1\n", "vllm/p.py": b"o = 1\n"}
    assert next(c.mode for c in planned.changes if c.path == "vllm/n.py") == 0o755
    assert one(mod(variant(patch)), MemoryTree(result)).verdict is Verdict.APPLIED
    edited = one(mod(variant(patch)), MemoryTree({**files, "vllm/d.py": b"d = 2\n"}))
    assert edited.verdict is Verdict.CONFLICT


def test_an_overlay_never_replaces_what_it_does_not_know() -> None:
    def overlaid(**more: object) -> Mod:
        file = OverlayFile(source="o.py", path="vllm/new.py", data=b"new = 1\n", **more)  # type: ignore[arg-type]
        return mod(variant(overlay=(file,)))

    assert one(overlaid(), MemoryTree({})).verdict is Verdict.APPLIES
    assert one(overlaid(), MemoryTree({"vllm/new.py": b"new = 1\n"})).verdict is Verdict.APPLIED
    other = MemoryTree({"vllm/new.py": b"other\n"})
    assert one(overlaid(), other).verdict is Verdict.CONFLICT
    known = "84eff6a0d3e1a3a0bcb3bc84a2ddb2b2d9d0a4bb5cb9ba4dba7a1dcb8dd4f7a3"
    assert one(overlaid(replaces=(known,)), other).verdict is Verdict.CONFLICT
    import hashlib

    known = hashlib.sha256(b"other\n").hexdigest()
    assert one(overlaid(replaces=(known,)), other).verdict is Verdict.APPLIES


def test_a_template_goes_to_the_workspace() -> None:
    file = TemplateFile(
        name="t", file="t.jinja", source="templates/t/template.jinja", data=b"{{ x }}"
    )
    template = mod(variant(templates=(file,)))
    assert [c.path for c in one(template, MemoryTree({})).changes] == [
        ".vllm-mods/templates/t.jinja"
    ]
    outside = one(template, MemoryTree({}), workspace="/workspace")
    assert [c.path for c in outside.changes] == ["/workspace/t.jinja"]


# --- other mods --------------------------------------------------------------


def test_conflicting_mods_and_refused_requirements() -> None:
    first = mod(FOR_OLD, name="first", conflicts=("second",))
    second = mod(variant(diff_of("vllm/y.py", OLD, NEW)), name="second")
    files = MemoryTree({PATH: OLD.encode(), "vllm/y.py": OLD.encode()})
    planned = plan([first, second], files)
    assert {one_.verdict for one_ in planned.mods} == {Verdict.CONFLICT}
    broken = mod(FOR_NEW, name="broken")
    needy = mod(variant(diff_of("vllm/y.py", OLD, NEW)), name="needy", requires=("broken",))
    planned = plan([broken, needy], files)
    assert [one_.mod.name for one_ in planned.mods] == ["broken", "needy"]
    assert "required-mod" in codes(planned.mods[1])
    assert not planned.ok


def test_a_circle_is_reported_whole() -> None:
    a = mod(FOR_OLD, name="a", after=("b",))
    b = mod(FOR_OLD, name="b", requires=("a",))
    with pytest.raises(UsageError, match=r"a → b → a|b → a → b"):
        plan([a, b], tree(OLD))


def test_a_bad_patch_is_an_error_whatever_the_tree() -> None:
    with pytest.raises(DiffError):
        plan([mod(variant(b"garbage"))], tree(OLD))


# --- mod.lock ----------------------------------------------------------------


def test_a_vouched_tree_gives_the_same_answer_without_libcst() -> None:
    long = one(mod(variant(A_PATCH)), tree(TWINS))
    locked = mod(variant(A_PATCH))._replace(lock=lock_of(long))
    quick = one(locked, tree(TWINS))
    assert quick.vouched
    assert not long.vouched
    assert (quick.verdict, quick.changes, quick.in_range) == (
        long.verdict,
        long.changes,
        long.in_range,
    )


def test_a_lock_of_another_state_of_the_mod_vouches_for_nothing() -> None:
    long = one(mod(variant(A_PATCH)), tree(TWINS))
    locked = mod(variant(A_PATCH))._replace(lock=lock_of(long), digest="0" * 64)
    planned = one(locked, tree(TWINS))
    assert not planned.vouched
    assert "stale-lock" in codes(planned)
    assert planned.verdict is Verdict.APPLIES


@pytest.mark.slow
def test_a_lock_whose_result_is_not_what_comes_out_is_not_believed() -> None:
    long = one(mod(variant(A_PATCH)), tree(TWINS))
    lying = lock_of(long).replace(b'"line": 2', b'"line": 8')
    planned = one(mod(variant(A_PATCH))._replace(lock=lying), tree(TWINS))
    assert not planned.vouched
    assert after(planned) == TWINS.replace("x + 1", "x + 2", 1)


BASE = "vllm/base.py"
CALLER = "vllm/caller.py"
BESIDE = {
    BASE: "class Config:\n    def update(self, model):\n        pass\n",
    CALLER: "from vllm.base import Config\n\n\ndef start(config: Config):\n    config.update('m')\n",
    PATH: "from vllm.base import Config\n\n\nclass Inc(Config):\n    bits = 4\n",
}
OVERRIDE = diff_of(
    PATH, BESIDE[PATH], BESIDE[PATH] + "\n    def update(self, model):\n        self.bits = 8\n"
)


def beside(**files: str) -> MemoryTree:
    texts = BESIDE | {f"vllm/{name}.py": text for name, text in files.items()}
    return MemoryTree({path: text.encode() for path, text in texts.items()})


@pytest.mark.slow
def test_a_lock_vouches_for_the_fit_only_beside_the_files_it_was_asked_beside() -> None:
    long = one(mod(variant(OVERRIDE)), beside())
    assert BASE in long.beside
    locked = mod(variant(OVERRIDE))._replace(lock=lock_of(long))
    assert one(locked, beside()).vouched
    assert one(locked, beside(other="x = 1\n")).vouched
    passes_more = beside(
        base=BESIDE[BASE].replace("model)", "model, hf_config=None)"),
        caller=BESIDE[CALLER].replace("'m')", "'m', hf_config=1)"),
    )
    planned = one(locked, passes_more)
    assert not planned.vouched
    assert planned.verdict is Verdict.UNFIT


@pytest.mark.slow
def test_planning_reads_each_file_twice_at_most() -> None:
    """Once for itself, and once for the type checker."""
    there = MemoryTree({PATH: TWINS.encode(), **{f"vllm/m{i}.py": b"x\n" for i in range(50)}})
    one(mod(variant(A_PATCH)), there)
    assert max(there.reads.values()) == 2
    assert {there.reads[f"vllm/m{i}.py"] for i in range(50)} == {1}


@pytest.mark.slow
def test_what_a_lock_vouches_for_is_planned_from_the_files_in_question() -> None:
    more = {f"vllm/m{i}.py": b"x\n" for i in range(50)}
    there = MemoryTree({PATH: TWINS.encode(), **more})
    first = mod(variant(A_PATCH))
    locked = first._replace(lock=lock_of(one(first, there)))
    there.reads.clear()
    assert one(locked, there).vouched
    assert there.reads.get(PATH) == 1
    assert not any(path.startswith("vllm/m") for path in there.reads)
