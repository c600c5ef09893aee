"""Families of verdicts that were false on real trees, each on a tree as small as it can be."""

from __future__ import annotations

import re

import pytest
from hypothesis import event, given, settings, strategies as st
from memory_tree import MemoryTree
from mod_making import diff_of, indexed, lock_of, lock_with, mod, variant
from sampling import examples

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Mod, ModPlan, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.formats.receipt import FileHash
from vllm_mods.planning.planner import plan

PATH = "vllm/x.py"
IN = {Verdict.APPLIED, Verdict.UPSTREAM}


def tree(text: str, **more: object) -> MemoryTree:
    return MemoryTree({PATH: text.encode()}, **more)  # type: ignore[arg-type]


def one(patch: bytes, text: str, **more: object) -> ModPlan:
    return seen(mod(variant(patch)), tree(text, **more))


def seen(mod_: Mod, there: MemoryTree) -> ModPlan:
    (planned,) = plan([mod_], there).mods
    return planned


def after(planned: ModPlan) -> str:
    (change,) = planned.changes
    return (change.after or b"").decode()


def refused(planned: ModPlan) -> bool:
    return not planned.verdict.ok and not planned.changes


def proofs(planned: ModPlan) -> list[str]:
    return [hunk.proof for hunk in planned.hunks]


def bare(patch: bytes) -> bytes:
    """Take away what stands behind ``@@``."""
    return re.sub(rb"(?m)^(@@ [^@]* @@).*$", rb"\1", patch)


def function(name: str, *body: str) -> str:
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in body)


def module(*parts: str) -> str:
    return "\n\n".join(parts)


# --- 1: the first and the last lines of a file -----------------------------------------------------

HEAD = function("head", "a = 1", "b = 2", "return a + b")
LAST = function("last", "c = 1", "d = 2", "return c + d")
MORE = function("more", "e = 1", "f = 2", "return e + f")


def test_an_addition_at_the_end_does_not_go_in_before_something_that_came_after_it() -> None:
    patch = diff_of(PATH, module(HEAD, LAST), module(HEAD, LAST, MORE))
    assert one(patch, module(HEAD, LAST)).verdict is Verdict.APPLIES
    other = function("other", "return 0")
    assert refused(one(patch, module(HEAD, LAST, other)))


def test_an_addition_at_the_end_moves_with_the_end() -> None:
    patch = diff_of(PATH, module(HEAD, LAST), module(HEAD, LAST, MORE))
    planned = one(patch, module("import os\n", HEAD, LAST))
    assert planned.verdict is Verdict.MOVED
    assert after(planned) == module("import os\n", HEAD, LAST, MORE)


@pytest.mark.slow
def test_of_two_places_the_end_is_that_of_a_hunk_without_context_below_it() -> None:
    tail = "    finally:\n        close()\n    return 1\n"
    body = "def first():\n    try:\n        one()\n" + tail
    twice = body + "\n\ndef second():\n    try:\n        two()\n" + tail
    patch = bare(diff_of(PATH, twice, twice + "\n\nLIMIT = 3\n"))
    planned = one(patch, "import os\n\n\n" + twice)
    assert planned.verdict is Verdict.MOVED
    assert after(planned) == "import os\n\n\n" + twice + "\n\nLIMIT = 3\n"


def test_a_change_of_the_first_line_goes_to_the_first_line() -> None:
    base = "x = 1\ny = 2\nz = 3\nw = 4\n"
    patch = diff_of(PATH, base, "import os\n" + base)
    assert one(patch, base).verdict is Verdict.APPLIES
    assert refused(one(patch, "import sys\n" + base))
    assert refused(one(patch, "def f():\n    pass\n\n\n" + base))


def test_an_addition_at_the_start_that_is_in_below_other_lines_is_not_put_in_again() -> None:
    base = "x = 1\ny = 2\nz = 3\nw = 4\n"
    patch = diff_of(PATH, base, "import os\n" + base)
    assert one(patch, "import os\n" + base).verdict is Verdict.APPLIED
    assert not one(patch, "import sys\nimport os\n" + base).verdict.writes


@pytest.mark.slow
def test_a_deletion_at_the_end_goes_in_on_its_own_tree() -> None:
    base = module(HEAD, LAST, MORE)
    patch = diff_of(PATH, base, module(HEAD, LAST))
    for text in (patch, bare(patch), indexed(patch, base, module(HEAD, LAST))):
        for pristine in (False, True):
            planned = one(text, base, pristine=pristine)
            assert planned.verdict is Verdict.APPLIES
            assert after(planned) == module(HEAD, LAST)


def test_a_deletion_at_the_end_is_seen_as_in_on_its_result() -> None:
    patch = diff_of(PATH, module(HEAD, LAST, MORE), module(HEAD, LAST))
    assert one(patch, module(HEAD, LAST)).verdict is Verdict.APPLIED
    assert one(patch, module(HEAD, LAST), pristine=True).verdict is Verdict.UPSTREAM


@pytest.mark.parametrize("pristine", [False, True])
def test_a_deletion_at_the_end_is_not_in_where_one_token_of_the_body_differs(
    pristine: bool,  # noqa: FBT001
) -> None:
    patch = diff_of(PATH, module(HEAD, LAST, MORE), module(HEAD, LAST))
    planned = one(patch, module(HEAD, LAST, MORE.replace("f = 2", "f = 3")), pristine=pristine)
    assert refused(planned)
    assert planned.verdict is not Verdict.PARTIAL


def test_a_deletion_is_not_in_where_the_function_above_ends_as_the_one_to_delete_does() -> None:
    above = function("above", "x = 0", "a = 1", "b = 2", "return a")
    gone = function("gone", "x = 5", "a = 1", "b = 2", "return a")
    there = gone.replace("x = 5", "x = 6")
    at_end = diff_of(PATH, module(above, gone), module(above))
    between = diff_of(PATH, module(above, gone, LAST), module(above, LAST))
    for pristine in (False, True):
        # what stands around the deletion stands around the function that is still there
        assert refused(one(at_end, module(above, there), pristine=pristine))
        assert refused(one(between, module(above, there, LAST), pristine=pristine))
    known = indexed(at_end, module(above, gone), module(above))
    assert refused(one(known, module(above, there)))
    assert one(known, module(above, gone)).verdict is Verdict.APPLIES
    assert one(known, module(above)).verdict is Verdict.APPLIED


def test_a_deletion_is_not_in_where_upstream_moved_the_function_and_changed_it() -> None:
    patch = diff_of(PATH, module(HEAD, LAST, MORE), module(HEAD, MORE))
    moved = module(LAST.replace("d = 2", "d = 3"), HEAD, MORE)
    assert refused(one(patch, moved, pristine=True))


def test_a_deletion_at_the_start_goes_in_is_seen_and_is_not_seen_where_it_is_not() -> None:
    base = "import os\nx = 1\ny = 2\nz = 3\nw = 4\n"
    patch = diff_of(PATH, base, base.removeprefix("import os\n"))
    planned = one(patch, base)
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == base.removeprefix("import os\n")
    assert one(patch, after(planned)).verdict is Verdict.APPLIED
    assert refused(one(patch, base.replace("import os", "import sys")))


def test_an_addition_at_the_end_is_seen_as_in_on_its_result() -> None:
    patch = diff_of(PATH, module(HEAD, LAST), module(HEAD, LAST, MORE))
    for text in (patch, bare(patch)):
        assert one(text, module(HEAD, LAST, MORE)).verdict is Verdict.APPLIED
        assert one(text, module(HEAD, LAST, MORE), pristine=True).verdict is Verdict.UPSTREAM


def test_an_addition_at_the_end_that_is_in_and_followed_by_more_is_not_put_in_again() -> None:
    patch = diff_of(PATH, module(HEAD, LAST), module(HEAD, LAST, MORE))
    followed = module(HEAD, LAST, MORE, function("other", "return 0"))
    for pristine in (False, True):
        assert not one(patch, followed, pristine=pristine).verdict.writes


def test_one_hunk_in_and_one_at_the_end_not_is_partial_on_an_edited_tree() -> None:
    base, final = (module(HEAD, LAST), module(HEAD.replace("b = 2", "b = 3"), LAST, MORE))
    patch = diff_of(PATH, base, final, context=1)
    assert patch.count(b"@@ -") == 2
    half = module(HEAD.replace("b = 2", "b = 3"), LAST)
    assert one(patch, half).verdict is Verdict.PARTIAL
    assert one(patch, module(HEAD, LAST, MORE)).verdict is Verdict.PARTIAL


def test_an_import_that_is_in_at_the_start_and_a_call_that_is_not_is_partial() -> None:
    top = "x = 1\ny = 2\nz = 3\n\n\n"
    final = "import os\n" + top + module(HEAD, LAST.replace("d = 2", "d = 3"))
    patch = diff_of(PATH, top + module(HEAD, LAST), final)
    assert patch.count(b"@@ -") == 2
    assert one(patch, "import os\n" + top + module(HEAD, LAST)).verdict is Verdict.PARTIAL


def test_a_second_definition_of_a_name_in_one_scope_is_never_silent() -> None:
    base, spare = module(HEAD, LAST), function("spare", "e = 1", "f = 2", "return e + f")
    patch = diff_of(PATH, base, module(HEAD, spare, LAST))
    planned = one(patch, base + "\n\n" + spare.replace("f = 2", "f = 3"))
    said = [f for f in planned.findings if f.code not in {"offset", "unique-only"}]
    assert any("spare" in finding.message for finding in said)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_one_line_is_changed_emptied_and_filled(end: str) -> None:
    for before, now in (("x = 1" + end, "x = 2" + end), ("x = 1" + end, ""), ("", "x = 1" + end)):
        old, new = before.encode(), now.encode()
        patch = (
            b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
            + (b"@@ -1 " if old else b"@@ -0,0 ")
            + (b"+1 @@\n" if new else b"+0,0 @@\n")
            + b"".join(
                sign + text.rstrip(b"\n") + (b"\n" if end else b"\n\\ No newline at end of file\n")
                for sign, text in ((b"-", old), (b"+", new))
                if text
            )
        )
        planned = one(patch, before)
        assert planned.verdict is Verdict.APPLIES
        assert after(planned) == now
        assert one(patch, now).verdict is Verdict.APPLIED


# --- 2: text in strings, and definitions that are dead ----------------------------------------------

F = function("f", "a = 1", "b = 2", "return a")
F_PATCH = diff_of(
    PATH, "import os\n\n\n" + F, "import os\n\n\n" + F.replace("b = 2", "b = 3"), context=2
)


@pytest.mark.parametrize(
    "quoted",
    [
        '"""How it is written:\n\n{0}"""\n\n\n',
        'TEMPLATE = """\\\n{0}"""\n\n\n',
        "TEMPLATE = f'''\\\n{0}'''\n\n\n",
        'class K:\n    """\n{0}    """\n\n\n',
    ],
)
def test_a_function_in_a_string_is_not_the_function(quoted: str) -> None:
    whole = diff_of(PATH, F, F.replace("b = 2", "b = 3"))
    text = quoted.format(F)
    changed = F.replace("a = 1", "a = 7")
    assert refused(one(whole, text + changed))
    assert refused(one(F_PATCH, text + changed))
    # where both stand, the one that is code is meant
    planned = one(whole, text + F)
    if planned.verdict.writes:
        assert after(planned) == text + F.replace("b = 2", "b = 3")


def test_a_first_definition_that_a_later_one_replaces_is_not_the_function() -> None:
    whole = diff_of(PATH, F, F.replace("b = 2", "b = 3"))
    assert refused(one(whole, module(F, F.replace("a = 1", "a = 7"))))
    assert refused(one(whole, module("import os\n", F, HEAD, F.replace("a = 1", "a = 7"))))
    assert refused(one(whole, module(F, "from vllm.y import g as f\n")))
    assert refused(one(whole, module(F, "f = None\n")))


def test_a_method_that_a_later_one_of_its_class_replaces_is_not_the_method() -> None:
    method = "    def f(self):\n        a = 1\n        b = 2\n        return a\n"
    base = f"class A:\n{method}"
    patch = diff_of(PATH, base, base.replace("b = 2", "b = 3"), context=5)
    later = method.replace("a = 1", "a = 7")
    assert refused(one(patch, f"class A:\n{method}\n{later}"))
    # another class's method of that name replaces nothing
    assert one(patch, f"class A:\n{method}\n\nclass B:\n{later}").verdict is Verdict.APPLIES


GETTER = """\
class A:
    @property
    def f(self):
        return os.sep

    @f.setter
    def f(self, value):
        self.value = value
"""
CONDITION = """\
if os.name == "posix":
    def f():
        return os.sep
else:
    def f():
        return None
"""
OVERLOADED = """\
@overload
def f(a: int) -> int:
    return os.sep
@overload
def f(a: str) -> str: ...
def f(a):
    return a
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [GETTER, CONDITION, OVERLOADED])
def test_a_getter_an_overload_and_the_two_sides_of_a_condition_are_not_dead(text: str) -> None:
    base = "import os\nfrom typing import overload\n\n\n" + text
    patch = diff_of(PATH, base, base.replace("return os.sep", "return os.linesep"))
    planned = one(patch, base)
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == base.replace("return os.sep", "return os.linesep")


METHOD = "    def f(self):\n        a = 1\n        b = 2\n        return a\n"


@pytest.mark.parametrize("header", ["", "def f(self):"])
def test_a_place_is_not_the_only_one_because_the_other_is_in_a_dead_definition(header: str) -> None:
    base = f"class A:\n{METHOD}\n\nclass B:\n{METHOD}\n\nclass A:\n    x = 1\n"
    final = base.replace("b = 2", "b = 3", 1)
    patch = diff_of(PATH, base, final, context=1, section=header)
    for there in (base, final):
        planned = one(patch, there)
        assert not planned.verdict.writes or after(planned) == final
    assert not one(patch, final).verdict.writes


@pytest.mark.parametrize("context", [1, 2])
def test_a_patch_of_a_template_does_not_go_into_the_function_that_it_quotes(context: int) -> None:
    code = function("f", "a = 1", "b = 2", "c = 3", "d = 4", "return a")
    base = f'TEMPLATE = """\\\n{code}"""\n\n\n{code}'
    final = base.replace("b = 2", "b = 3", 1)
    patch = diff_of(PATH, base, final, context=context)
    planned = one(patch, base)
    assert not planned.verdict.writes or after(planned) == final
    assert not one(patch, final).verdict.writes


def test_the_very_file_that_a_patch_was_made_from_does_not_carry_it_already() -> None:
    base = f"class B:\n{METHOD}\n\nclass B:\n{METHOD.replace('b = 2', 'b = 3')}"
    final = base.replace("b = 2", "b = 3", 1)
    for header in ("", "class B:", "def f(self):"):
        patch = diff_of(PATH, base, final, context=1, section=header)
        planned = one(indexed(patch, base, final), base)
        assert planned.verdict is Verdict.APPLIES
        assert after(planned) == final


def test_a_header_that_names_a_method_tells_no_class() -> None:
    base = f"class A:\n{METHOD}"
    patch = diff_of(PATH, base, base.replace("b = 2", "b = 3"), context=1, section="def f(self):")
    planned = one(patch, base.replace("class A", "class B"))
    assert refused(planned) or proofs(planned) == ["stated"]


# --- 3: all hunks of a file are placed together -----------------------------------------------------


def method(name: str, *body: str) -> str:
    return f"    def {name}(self):\n" + "".join(f"        {line}\n" for line in body) + "\n"


SAME = ("load()", "check()", "free()", "return 1")
FORWARD = method("forward", *SAME)
LOOK_ALIKES = (
    "class A:\n"
    + method("early", *SAME)
    + method("middle", "p = 1", "q = 2", "r = 3", "s = 4")
    + method("late", *SAME)
)


@pytest.mark.slow
def test_of_two_places_the_one_between_proven_hunks_is_taken_and_order_is_the_proof() -> None:
    base = "class A:\n" + method("first", "m = 1", "n = 2", "o = 3") + LOOK_ALIKES[9:]
    base = base.replace("\n\n    def", "\n\n\n\n\n    def")
    final = base.replace("n = 2", "n = 3").replace("q = 2", "q = 3").replace("free()", "free(1)", 1)
    patch = diff_of(PATH, base, final, context=2, section="class A:")
    assert patch.count(b"@@ -") == 3
    for above in ("import os\n\n\n", "def g():\n    return 0\n\n\n"):
        planned = one(patch, above + base)
        assert planned.verdict is Verdict.MOVED
        assert after(planned) == above + final
        assert proofs(planned) == ["scope", "order", "scope"]
    # with nothing proven before it, it may be the other one
    only = base.replace("q = 2", "q = 3").replace("free()", "free(1)", 1)
    assert refused(one(diff_of(PATH, base, only, context=2, section="class A:"), above + base))


def test_hunks_that_would_have_to_change_places_are_refused() -> None:
    final = LOOK_ALIKES.replace("q = 2", "q = 3")
    cut = final.index("def late")
    patch = diff_of(
        PATH, LOOK_ALIKES, final[:cut] + final[cut:].replace("free()", "free(1)"), context=1
    )
    other = (
        "class A:\n" + method("early", *SAME) + method("middle", "p = 1", "q = 2", "r = 3", "s = 4")
    )
    assert refused(one(patch, other))


@pytest.mark.slow
def test_all_hunks_at_their_stated_lines_prove_one_that_nothing_else_places() -> None:
    base = "import os\nimport re\nimport sys\n\n\n" + LOOK_ALIKES
    base = base.rstrip("\n") + "\n\n\nLAST = 1\nEND = 2\n"
    first = base.replace("import re", "import json", 1).replace("free()", "free(1)", 1)
    final = first.replace("LAST = 1", "LAST = 3")
    patch = diff_of(PATH, base, final, context=1)
    planned = one(patch, base)
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == final
    assert proofs(planned)[1] == "stated"
    # with nothing proven behind it, the text may have moved by its own length
    assert refused(one(diff_of(PATH, base, first, context=1), base))
    # elsewhere nothing is left of that
    moved = base.replace("import sys\n", "import sys\nimport types\n")
    assert one(patch, moved).verdict is Verdict.MISPLACED


def test_a_single_hunk_in_two_look_alike_functions_needs_the_very_file_it_was_made_from() -> None:
    base = "def f1():\n    a = 1\n    b = 2\n    return a\n\n\ndef f2():\n    a = 1\n    b = 2\n    return a\n"
    final = base[:40] + base[40:].replace("b = 2", "b = 3")
    patch = bare(diff_of(PATH, base, final, context=1))
    assert one(patch, base).verdict is Verdict.MISPLACED
    known = indexed(patch, base, final)
    planned = one(known, base)
    assert planned.verdict is Verdict.APPLIES
    assert after(planned) == final
    assert proofs(planned) == ["file"]
    # another file of the same lines is not that file
    assert one(known, base + "x = 1\n").verdict is Verdict.MISPLACED
    unknown = re.sub(rb"index \w+\.\.\w+", b"index 0123456789ab..ba9876543210", known)
    assert one(unknown, base).verdict is Verdict.MISPLACED


def test_the_result_of_a_look_alike_patch_is_seen_as_in_by_the_other_blob_of_its_index_line() -> (
    None
):
    base = "def f1():\n    a = 1\n    b = 2\n    return a\n\n\ndef f2():\n    a = 1\n    b = 2\n    return a\n"
    final = base[:40] + base[40:].replace("b = 2", "b = 3")
    known = indexed(bare(diff_of(PATH, base, final, context=1)), base, final)
    assert one(known, final).verdict is Verdict.APPLIED


TWIN = method("forward", "y = self.x", "y += 1", "return y")


@pytest.mark.slow
def test_of_two_classes_with_the_same_forward_the_header_tells_which_in_any_order() -> None:
    base = f"class A:\n{TWIN}\nclass B:\n{TWIN}"
    swapped = f"class B:\n{TWIN}\nclass A:\n{TWIN}"
    for name, other in (("A", "B"), ("B", "A")):
        changed = f"class {name}:\n{TWIN.replace('+= 1', '+= 2')}"
        final = base.replace(f"class {name}:\n{TWIN}", changed, 1)
        patch = diff_of(PATH, base, final, context=2, section=f"class {name}:")
        planned = one(patch, base)
        assert (planned.verdict, after(planned)) == (Verdict.APPLIES, final)
        assert proofs(planned) == ["scope"]
        there = one(patch, swapped)
        assert there.verdict is Verdict.MOVED
        assert after(there) == swapped.replace(f"class {name}:\n{TWIN}", changed, 1)
        assert refused(one(patch, f"class {other}:\n{TWIN}"))


@pytest.mark.slow
def test_a_text_that_stands_once_has_its_place_only_if_the_patch_names_what_it_is_in() -> None:
    base = "class A:\n" + method("f", *(f"{name} = 1" for name in "abcdefg"))
    final = base.replace("d = 1", "d = 9")
    for section in ("", "class A:", "def f(self):"):
        patch = diff_of(PATH, base, final, context=2, section=section)
        assert proofs(one(patch, base)) == ["stated"]
        # the one that it was written for may be gone, and this be its twin
        moved = one(patch, f"import os\n{base}")
        assert [finding.code for finding in moved.findings] == ["unprovable"]
    named = diff_of(PATH, base, final, context=4, section="class A:")
    assert proofs(one(named, f"import os\n{base}")) == ["scope"]


def test_nothing_encloses_a_statement_of_the_module() -> None:
    base = "".join(f"{name} = 1\n" for name in "abcdefg")
    patch = diff_of(PATH, base, base.replace("d = 1", "d = 9"), context=2)
    planned = one(patch, f"import os\n{base}")
    assert proofs(planned) == ["unique"]
    assert "unique-only" in {finding.code for finding in planned.findings}


# --- 5: what the release carries --------------------------------------------------------------------


def test_a_release_that_carries_one_patch_and_conflicts_with_the_other_is_no_half_applied_tree() -> (
    None
):
    both = {"vllm/x.py": module(HEAD, LAST), "vllm/y.py": module(LAST, MORE)}
    first = diff_of("vllm/x.py", both["vllm/x.py"], both["vllm/x.py"].replace("b = 2", "b = 3"))
    second = diff_of("vllm/y.py", both["vllm/y.py"], both["vllm/y.py"].replace("f = 2", "f = 3"))
    release = {
        "vllm/x.py": both["vllm/x.py"].replace("b = 2", "b = 3").encode(),
        "vllm/y.py": both["vllm/y.py"].replace("f = 2", "f = 5").encode(),
    }
    two = mod(variant(first, second))
    planned = seen(two, MemoryTree(release, pristine=True))
    assert planned.verdict is Verdict.CONFLICT
    assert "half-applied" not in {finding.code for finding in planned.findings}
    assert any(
        "one/0.patch" in finding.message and "already has" in finding.message
        for finding in planned.findings
    )
    installed = MemoryTree(release, released=release)
    assert seen(two, installed).verdict is Verdict.CONFLICT
    # an edited tree is another matter
    assert seen(two, MemoryTree(release)).verdict is Verdict.PARTIAL


@pytest.mark.parametrize("edge", ["start", "middle", "end"])
def test_a_release_that_carries_one_patch_and_could_take_the_other_is_never_partial(
    edge: str,
) -> None:
    base = module(HEAD, LAST)
    final = {
        "start": "import os\n" + base,
        "middle": base.replace("d = 2", "d = 3"),
        "end": module(base, MORE),
    }[edge]
    first = diff_of(PATH, base, final)
    second = diff_of("vllm/y.py", base, base.replace("b = 2", "b = 3"))
    release = {PATH: final.encode(), "vllm/y.py": base.encode()}
    planned = seen(mod(variant(first, second)), MemoryTree(release, pristine=True))
    assert planned.verdict is not Verdict.PARTIAL
    assert after_of(planned, PATH) in {None, final.encode()}


def after_of(planned: ModPlan, path: str) -> bytes | None:
    return next((change.after for change in planned.changes if change.path == path), None)


# --- 6: in by our own doing, or by the release's ----------------------------------------------------


def test_an_applied_mod_whose_receipt_is_gone_is_not_the_release_s_own() -> None:
    base, final = module(HEAD, LAST), module(HEAD, LAST.replace("d = 2", "d = 3"))
    plain = mod(variant(diff_of(PATH, base, final)))
    locked = plain._replace(lock=lock_of(seen(plain, tree(base))))
    # RECORD was kept true when the mod went in
    gone = tree(final, released={PATH: final.encode()})
    assert seen(locked, gone).verdict is Verdict.APPLIED
    assert seen(plain, gone).verdict is Verdict.APPLIED
    # a release as published has no rows of ours
    assert seen(plain, tree(final, pristine=True)).verdict is Verdict.UPSTREAM


# --- 7: the lock adds nothing that the patch does not show ------------------------------------------

TWINS = f"class A:\n{TWIN}\nclass B:\n{TWIN}"
A_CHANGED = TWINS.replace("+= 1", "+= 2", 1)
B_CHANGED = f"class A:\n{TWIN}\nclass B:\n{TWIN.replace('+= 1', '+= 2')}"
FOR_B = diff_of(PATH, TWINS, B_CHANGED, context=2, section="class B:")


def forged(mod_: Mod, before: str, result: str, line: int, scope: str) -> bytes:
    """A lock of this very mod that puts its one hunk where it does not belong."""
    one_tree = mod_lock.LockedTree(
        vllm=("0.19.1",),
        in_range=True,
        variant="one",
        verdict="applies",
        files=(FileHash(path=PATH, before=sha256(before.encode()), after=sha256(result.encode())),),
        hunks=(
            mod_lock.LockedHunk(patch="one/0.patch", path=PATH, number=1, line=line, scope=scope),
        ),
        beside=(),
        witness=(sha256(b"") or "",),
    )
    return lock_with(mod_, one_tree)


@pytest.mark.slow
@pytest.mark.parametrize("above", ["", "import os\n\n\n"])
def test_a_forged_lock_does_not_put_a_hunk_of_one_class_into_another(above: str) -> None:
    plain = mod(variant(FOR_B))
    lies = plain._replace(lock=forged(plain, TWINS, A_CHANGED, 3, "A.forward"))
    planned = seen(lies, tree(above + TWINS))
    assert planned.verdict is seen(plain, tree(above + TWINS)).verdict
    assert after(planned) == above + B_CHANGED
    only_a = f"class A:\n{TWIN}"
    wanted = only_a.replace("+= 1", "+= 2")
    lies = plain._replace(lock=forged(plain, only_a, wanted, 3, "A.forward"))
    assert refused(seen(lies, tree(above + only_a)))


STATEMENTS = st.lists(st.sampled_from(["x = 1", "y = 2", "z = 3"]), min_size=1, max_size=5)


@st.composite
def classes(draw: st.DrawFn) -> str:
    """Few classes with few methods of few statements, so that most text stands twice."""
    names = draw(st.lists(st.sampled_from("AB"), min_size=1, max_size=3))
    return "\n".join(
        f"class {name}:\n"
        + "".join(method(m, *draw(STATEMENTS)) for m in draw(st.sampled_from(["f", "fg", "ff"])))
        for name in names
    )


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    base=classes(),
    there=st.one_of(st.none(), classes()),
    at=st.integers(0, 30),
    how=st.sampled_from(["header", "bare", "indexed"]),
    context=st.integers(1, 3),
)
def test_a_lock_valid_or_stale_or_absent_changes_no_verdict_and_no_byte(
    base: str, there: str | None, at: int, how: str, context: int
) -> None:
    lines = base.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if " = " in line]
    place = places[at % len(places)]
    changed = "".join([*lines[:place], lines[place].replace(" = ", " = 1"), *lines[place + 1 :]])
    owner = next(line for line in reversed(lines[:place]) if line.startswith("class")).rstrip()
    patch = diff_of(PATH, base, changed, context=context, section=owner if how == "header" else "")
    if how == "indexed":
        patch = indexed(patch, base, changed)
    plain = mod(variant(patch))
    target = base if there is None else there
    for made_on, looked_at in (
        (base, target),
        (target, base),
        (base, changed),
        (base, target + base),
    ):
        written = seen(plain, tree(made_on))
        if not written.verdict.writes:
            event(f"no lock: {written.verdict.value}")
            continue
        valid = plain._replace(lock=lock_of(written))
        stale = valid._replace(digest="0" * 64)
        alone = seen(plain, tree(looked_at))
        event(f"{how}: {alone.verdict.value}")
        for locked in (valid, stale):
            planned = seen(locked, tree(looked_at))
            assert (planned.verdict, planned.changes) == (alone.verdict, alone.changes)


# --- 8: words ---------------------------------------------------------------------------------------


def test_one_line_that_got_a_condition_is_named_as_the_nearest() -> None:
    base = "def f(a):\n\n    if a.ready:\n\n        return 1\n"
    patch = diff_of(PATH, base, base.replace("a.ready", "a.done"), context=1)
    planned = one(patch, base.replace("a.ready", "a.ready and True"))
    assert planned.verdict is Verdict.CONFLICT
    (finding,) = planned.findings
    assert finding.line == 3
    assert "if a.ready and True:" in finding.message
    assert "nothing in the file resembles" not in finding.message


def test_a_method_that_is_gone_is_not_said_to_be_in_another_class_that_has_one_of_its_name() -> (
    None
):
    base = f"class Inc:\n{method('get_method', 'a = 1', 'b = 2', 'return a')}"
    patch = diff_of(PATH, base, base.replace("b = 2", "b = 3"), context=5)
    files = {
        PATH: b"class Inc:\n    pass\n",
        "vllm/awq.py": f"class Awq:\n{method('get_method', 'return 3')}".encode(),
    }
    planned = seen(mod(variant(patch)), MemoryTree(files))
    assert refused(planned)
    assert not any("now in vllm/awq.py" in finding.message for finding in planned.findings)


def test_a_refusal_is_said_in_a_few_lines_of_a_hundred_columns() -> None:
    base = f"class A:\n{method('forward', *SAME)}"
    patch = diff_of(PATH, base, base.replace("free()", "free(1)"), section="class A:", context=1)
    trees = (base.replace("check()", "check(2)"), base.replace("class A", "class B"), "x = 1\n")
    for text in trees:
        planned = one(patch, text)
        assert refused(planned)
        assert sum(1 + len(finding.message) // 100 for finding in planned.findings) <= 5
