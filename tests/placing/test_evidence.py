"""Where a hunk goes, by what proof, and what is said of one that has no place."""

from __future__ import annotations

import hashlib

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import PATH, after, codes, found, one, tree

from vllm_mods.base.model import Finding, ModPlan, Verdict


def put(patch: bytes, text: str) -> ModPlan:
    return one(mod(variant(patch)), tree(text))


def hunk(stated: int, old: int, new: int, *lines: str, header: str = "") -> bytes:
    """Return a patch of one hunk, with any line numbers and any header."""
    head = f"--- a/{PATH}\n+++ b/{PATH}\n@@ -{stated},{old} +{stated},{new} @@ {header}".rstrip()
    return "\n".join([head, *lines, ""]).encode()


def places(planned: ModPlan) -> list[tuple[int, int, str, str]]:
    return [(one.line, one.offset, one.scope, one.proof) for one in planned.hunks]


def error(planned: ModPlan) -> Finding:
    """Return the one finding of a mod that has no place."""
    assert not planned.verdict.ok
    assert not planned.changes
    (finding,) = (one for one in planned.findings if one.level.value == "error")
    return finding


METHOD = "    def f(self):\n        a = 1\n        b = 2\n        c = 3\n        return a\n"
BODY = (" " * 8 + "a = 1", " " * 8 + "b = 2", " " * 8 + "c = 3")
CHANGE = (f" {BODY[0]}", f"-{BODY[1]}", f"+{BODY[1]}0", f" {BODY[2]}")


def classes(*names: str) -> str:
    return "\n\n".join(f"class {name}:\n{METHOD}" for name in names)


# --- the very file --------------------------------------------------------------------------------


def test_the_file_that_the_index_line_names_is_proof_enough_for_look_alikes() -> None:
    text = classes("A", "B")
    name = hashlib.sha1(b"blob %d\0" % len(text) + text.encode()).hexdigest()  # noqa: S324
    bare = hunk(11, 3, 3, *CHANGE)
    for known, proof in ((name, True), (name[:7], True), (name[:6], False), ("0" * 40, False)):
        index = f"diff --git a/{PATH} b/{PATH}\nindex {known}..{'1' * len(known)} 100644\n"
        planned = put(index.encode() + bare, text)
        assert planned.verdict.ok == proof, known
        if proof:
            assert places(planned) == [(11, 0, "B.f", "file")]
    # a line of it that is not as stated makes the patch its own enemy
    elsewhere = f"diff --git a/{PATH} b/{PATH}\nindex {name}..{'1' * 40} 100644\n".encode()
    assert not put(elsewhere + hunk(10, 3, 3, *CHANGE), text).verdict.ok
    assert not put(elsewhere + hunk(99, 3, 3, *CHANGE), text).verdict.ok


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["class B:", "class B(Base):", "def f(self):", "class B"])
def test_a_header_is_a_class_or_function_by_its_name(header: str) -> None:
    text = classes("A", "B").replace("class A:\n    def f", "class A:\n    def g")
    planned = put(hunk(11, 3, 3, *CHANGE, header=header), text)
    assert [(line, scope) for line, _, scope, _ in places(planned)] == [(11, "B.f")]


def test_a_header_without_a_definition_holds_outside_of_definitions_only() -> None:
    text = f"import os\na = 1\nb = 2\nc = 3\n\n\nclass A:\n{METHOD}"
    flat = (" a = 1", "-b = 2", "+b = 20", " c = 3")
    assert places(put(hunk(2, 3, 3, *flat, header="import os"), text))[0][0] == 2
    planned = put(hunk(9, 3, 3, *CHANGE, header="import os"), text)
    finding = error(planned)
    assert (planned.verdict, finding.code, finding.line) == (Verdict.MISPLACED, "elsewhere", 9)
    assert (
        "its text is at line 9, the stated one (`A.f`), but the hunk was written for the part below `import os`"
        in (finding.message)
    )


def test_a_header_that_names_another_function_than_the_one_around_is_contradicted() -> None:
    text = "def g():\n    pass\n\n\ndef f():\n    a = 1\n    b = 2\n    c = 3\n"
    lines = ("     a = 1", "-    b = 2", "+    b = 20", "     c = 3")
    finding = error(put(hunk(6, 3, 3, *lines, header="def g():"), text))
    assert (finding.code, finding.scope, finding.line) == ("elsewhere", "g", 6)
    assert "(`g`)" in finding.message
    assert put(hunk(6, 3, 3, *lines, header="def f():"), text).verdict.ok
    assert put(hunk(6, 3, 3, *lines, header="async def f():"), text).verdict.ok


def test_what_a_hunk_shows_counts_where_something_was_put_in_between() -> None:
    shown = "def f():\n    a = 1\n    b = 2\n"
    patch = hunk(
        3, 3, 3, " def f():", "     a = 1", "-    b = 2", "+    b = 20", header="import os"
    )
    planned = put(patch, f"import os\n\ndef ord():\n    pass\n\n{shown}")
    assert places(planned) == [(6, 3, "f", "scope")]
    # only where all of the change is below it
    above = hunk(2, 3, 3, "-x = 1", "+x = 2", " def f():", "     a = 1", header="import os")
    text = f"import os\n\ndef ord():\n    pass\n\nx = 1\n{shown}"
    assert error(put(above, text)).code == "elsewhere"


@pytest.mark.slow
def test_the_import_or_the_assignment_that_a_hunk_is_part_of_is_a_proof() -> None:
    lines = (" X = [", "     1,", "-    2,", "+    20,", " ]")
    assert places(put(hunk(1, 4, 4, *lines), "X = [\n    1,\n    2,\n]\n"))[0][3] == "scope"
    planned = put(hunk(1, 3, 3, " int()", "-str()", "+set()", " list()"), "int()\nstr()\nlist()\n")
    assert places(planned)[0][3] == "stated"
    planned = put(
        hunk(1, 3, 3, " int()", "-str()", "+set()", " list()"), "\nint()\nstr()\nlist()\n"
    )
    assert places(planned)[0][3] == "unique"
    note = found(planned, "unique-only")
    assert (note.path, note.line, note.hunk, note.level.value) == (PATH, 2, 1, "note")


def test_a_header_of_an_import_does_not_hold_in_the_class_that_a_file_begins_with() -> None:
    first = error(put(hunk(3, 3, 3, *CHANGE, header="import os"), classes("A")))
    assert (first.code, first.line) == ("elsewhere", 3)


# --- several places -------------------------------------------------------------------------------


def test_places_that_nothing_tells_apart_are_all_named_up_to_five() -> None:
    finding = error(put(hunk(3, 3, 3, *CHANGE), classes("A", "B")))
    assert (finding.code, finding.line, finding.hunk, finding.scope) == ("ambiguous", 3, 1, None)
    assert finding.message == (
        f"{PATH}, hunk 1 of one/0.patch: its text matches in 2 places, and nothing tells them apart: "
        "line 3, the stated one (`A.f`), line 11 (`B.f`)"
    )
    many = error(put(hunk(3, 3, 3, *CHANGE), classes(*"ABCDEFG"))).message
    assert "line 35 (`E.f`) and 2 more" in many
    assert "`F.f`" not in many


@pytest.mark.slow
def test_a_text_in_more_places_than_can_be_told_apart_belongs_to_none() -> None:
    for count, code in ((1000, "ambiguous"), (1001, "ambiguous"), (1, None)):
        planned = put(
            hunk(2, 3, 3, " int()", "-str()", "+set()", " list()"),
            "len()\n" + "int()\nstr()\nlist()\n" * count,
        )
        if code is None:
            assert planned.verdict.ok
            continue
        message = error(planned).message
        assert codes(planned) == {code}
        assert ("more than 1,000 places" in message) == (count > 1000)


@pytest.mark.slow
def test_a_proven_hunk_before_and_one_behind_hold_the_one_at_its_stated_line() -> None:
    twin = "int()\nstr()\nset()\nlen()\n"
    text = f"all()\ntuple()\nany()\nbin()\n{twin}{twin}hex()\nbytes()\noct()\n"
    changed = text.replace("tuple()", "tuple(1)").replace("bytes()", "bytes(1)")
    cut = changed.rindex(twin)
    changed = changed[:cut] + changed[cut:].replace("str()", "str(1)", 1)
    patch = diff_of(PATH, text, changed, context=1)
    planned = put(patch, text)
    assert [proof for *_, proof in places(planned)] == ["stated", "stated", "stated"]
    assert after(planned) == changed
    # moved together they are at their stated lines no more
    assert codes(put(patch, f"# new\n{text}")) == {"ambiguous"}
    # and between two that were not there is nothing to hold it
    only = diff_of(PATH, text, changed.replace("bytes(1)", "bytes()"), context=1)
    assert codes(put(only, text)) == {"ambiguous"}


@pytest.mark.slow
def test_hunks_are_placed_in_their_order_and_do_not_overlap() -> None:
    first, second = "abs()\nall()\nany()\n", "bin()\nhex()\noct()\n"
    text = f"{first}len()\nint()\n{second}"
    final = text.replace("all()", "all(1)").replace("hex()", "hex(1)")
    patch = diff_of(PATH, text, final, context=1)
    planned = put(patch, f"{second}len()\nint()\n{first}")
    assert planned.verdict is Verdict.MISPLACED
    orders = [finding for finding in planned.findings if finding.code == "order"]
    assert orders
    for finding in orders:
        assert "in another order than the hunks in the patch" in finding.message
        assert "its text is only at line " in finding.message
        assert finding.line in {1, 6}
    touching = put(patch, first + second)
    assert after(touching) == (first + second).replace("all()", "all(1)").replace("hex()", "hex(1)")
    shared = diff_of(PATH, text, final, context=1).replace(b" bin()", b" any()")
    assert not put(shared, "abs()\nall()\nany()\nhex()\noct()\n").verdict.ok


# --- edges ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_written_for_an_edge_of_the_file_says_where_its_text_is() -> None:
    start = hunk(1, 2, 3, "+dict()", " int()", " str()")
    finding = error(put(start, "len()\nint()\nstr()\n"))
    assert (finding.code, finding.line) == ("edge", 2)
    assert finding.message.endswith(
        "the hunk has less context above than below, so it belongs at the start of the file; but its text is at line 2"
    )
    assert after(put(start, "int()\nstr()\nset()\n")) == "dict()\nint()\nstr()\nset()\n"
    end = hunk(1, 2, 3, " int()", " str()", "+dict()")
    finding = error(put(end, "int()\nstr()\nset()\n"))
    assert (finding.code, finding.line) == ("edge", 1)
    assert (
        "the hunk has less context below than above, so it belongs at the end of the file; but more lines follow its text, which is at line 1"
        in (finding.message)
    )
    assert after(put(end, "len()\nint()\nstr()\n")) == "len()\nint()\nstr()\ndict()\n"


def test_a_hunk_without_context_is_not_said_to_be_for_the_end_of_the_file() -> None:
    bare = hunk(9, 1, 1, "-int()", "+str()")
    finding = error(put(bare, "x = 1\nint()\ny = 1\nint()\nz = 1\n"))
    assert (finding.code, finding.line) == ("edge", 2)
    assert finding.message.endswith(
        "the hunk has no context lines, and its text occurs 2 times: line 2, line 4"
    )
    once = error(put(bare, "x = 1\nint()\ny = 1\n"))
    assert once.message.endswith("the hunk has no context lines, and its text is at line 2")


@pytest.mark.slow
def test_of_the_same_text_in_the_middle_and_at_the_edge_the_edge_is_meant() -> None:
    end = hunk(3, 2, 3, " int()", " str()", "+dict()")
    assert after(put(end, "int()\nstr()\nint()\nstr()\n")) == "int()\nstr()\nint()\nstr()\ndict()\n"
    start = hunk(1, 2, 3, "+dict()", " int()", " str()")
    assert (
        after(put(start, "int()\nstr()\nint()\nstr()\n")) == "dict()\nint()\nstr()\nint()\nstr()\n"
    )


def test_a_last_line_without_an_end_is_the_last_one() -> None:
    text = "int()\nstr()\nset()"
    patch = diff_of(PATH, text, text.replace("str()", "str(1)"))
    assert after(put(patch, f"len()\n{text}")) == "len()\nint()\nstr(1)\nset()"
    assert put(patch, f"{text}(2)\n").verdict is Verdict.CONFLICT


def test_a_text_is_whole_lines() -> None:
    patch = hunk(2, 1, 1, "-str()", "+set()")
    assert put(patch, "int()\nbstr()\nlist()\n").verdict is Verdict.CONFLICT
    assert put(patch, "int()\nstr()b\nlist()\n").verdict is Verdict.CONFLICT
    assert not put(hunk(1, 2, 2, " int()", "-str()", "+set()"), "xint()\nstr()\n").verdict.ok


# --- what stands both ways ------------------------------------------------------------------------


def test_what_a_hunk_looks_for_beside_what_it_leaves_is_told_by_nothing() -> None:
    lines = (" int()", "-str()", "+set()", " list()")
    finding = error(put(hunk(1, 3, 3, *lines), "int()\nstr()\nlist()\nint()\nset()\nlist()\n"))
    assert (finding.code, finding.line) == ("look-alike", 1)
    assert "line 4, in module level, where 100% of the hunk's new text matches" in finding.message
    # what it leaves stands in another function than the one it was written for: that says nothing
    text = "def f():\n    int()\n    str()\n    list()\n\n\ndef g():\n    int()\n    set()\n    list()\n"
    inner = ("     int()", "-    str()", "+    set()", "     list()")
    assert put(hunk(2, 3, 3, *inner, header="def f():"), text).verdict is Verdict.APPLIES


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("def f():\n    int()\n\n\ndef h():\n    set()\n", True),
        # another body by now, or the very function further down: it was not removed
        ("def f():\n    int()\n\n\ndef h():\n    set()\n\n\ndef g():\n    ord()\n", False),
    ],
)
def test_a_function_that_was_to_go_is_gone_only_where_none_of_its_name_is_left(
    text: str,
    inside: bool,  # noqa: FBT001
) -> None:
    base = "def f():\n    int()\n\n\ndef g():\n    str()\n\n\ndef h():\n    set()\n"
    gone = base.replace("def g():\n    str()\n\n\n", "")
    planned = put(diff_of(PATH, base, gone), text)
    assert (planned.verdict is Verdict.APPLIED) == inside


def test_a_method_that_was_to_go_is_gone_only_where_its_class_has_none_of_its_name() -> None:
    parts = [f"    def {name}(self):\n        {name} = 1\n" for name in "fgh"]
    base = "class A:\n" + "\n".join(parts)
    gone = "class A:\n" + "\n".join([parts[0], parts[2]])
    patch = diff_of(PATH, base, gone)
    assert put(patch, gone).verdict is Verdict.APPLIED
    moved = f"{gone}\n    def g(self):\n        b = 3\n"
    assert put(patch, moved).verdict is not Verdict.APPLIED


BLOCK, OTHER = "def f():\n    a = 1\n    b = 2\n", "def g():\n    c = 3\n    b = 2\n"
CONSTANT = "X = 1\n"
WITHOUT = "def f():\n    a()\n    b()\n    c()\n"


@pytest.mark.parametrize("path", [PATH, "vllm/x.jinja"])
@pytest.mark.parametrize(
    ("base", "target"),
    [
        ([CONSTANT, BLOCK], [BLOCK, CONSTANT]),
        ([BLOCK, CONSTANT], [CONSTANT, BLOCK]),
        ([BLOCK, CONSTANT, OTHER], [BLOCK, OTHER, CONSTANT]),
        ([BLOCK, CONSTANT], [CONSTANT + "Y = 1\n", BLOCK]),
        ([BLOCK, CONSTANT[:-1]], [CONSTANT, BLOCK]),
    ],
)
def test_what_a_mod_removes_is_not_gone_where_upstream_moved_it(
    base: list[str], target: list[str], path: str
) -> None:
    gap = "\n\n"
    gone = gap.join(one for one in base if one not in {CONSTANT, CONSTANT[:-1]})
    one_of = mod(variant(diff_of(path, gap.join(base), gone)))
    assert one(one_of, MemoryTree({path: gone.encode()})).verdict is Verdict.APPLIED
    assert not one(one_of, MemoryTree({path: gap.join(target).encode()})).verdict.ok


@pytest.mark.parametrize("statement", ["import b", "from b import c", "b = 1"])
def test_a_statement_of_the_module_is_not_gone_where_another_block_of_it_has_it(
    statement: str,
) -> None:
    kept = "try:\n    import a\n    import d\nexcept E:\n    a = d = None\n"
    text = kept.replace("    import d", f"    {statement}\n    import d")
    patch = diff_of(PATH, text, kept)
    assert one(mod(variant(patch)), tree(kept)).verdict is Verdict.APPLIED
    moved = f"{kept}try:\n    {statement}\nexcept F:\n    pass\n"
    assert not one(mod(variant(patch)), tree(moved)).verdict.ok


def test_a_statement_is_not_gone_where_its_function_has_it_further_down() -> None:
    removed = diff_of(PATH, "def f():\n    a()\n    x()\n    b()\n    c()\n", WITHOUT)
    assert put(removed, WITHOUT).verdict is Verdict.APPLIED
    assert not put(removed, f"{WITHOUT}    d()\n    x()\n").verdict.ok
    # in another function it says nothing, nor where the mod itself moves it
    assert put(removed, f"{WITHOUT}\n\ndef g():\n    x()\n").verdict is Verdict.APPLIED
    moved = f"{WITHOUT}    x()\n"
    patch = diff_of(PATH, "def f():\n    a()\n    x()\n    b()\n    c()\n", moved)
    assert put(patch, moved).verdict is Verdict.APPLIED


@pytest.mark.slow
def test_inside_a_string_a_hunk_has_a_place_only_by_its_header() -> None:
    body = "    if a:\n        b = 1\n    c = 1\n"
    change = hunk(2, 3, 3, "     if a:", "-        b = 1", "+        b = 2", "     c = 1")
    text = f'TEXT = """\\\ndef f():\n{body}"""\n'
    for there in (text, f"def f():\n    {text[7:]}"):
        assert "in a string at line" in error(put(change, there)).message
    assert not put(change, text.replace("b = 1", "b = 2")).verdict.ok
    assert put(change, f"def f():\n{body}").verdict is Verdict.APPLIES
    named = hunk(3, 3, 3, *map(bytes.decode, change.split(b"\n")[3:-1]), header='TEXT = """\\')
    assert put(named, text).verdict is Verdict.APPLIES


# --- definitions ----------------------------------------------------------------------------------


def test_a_definition_in_a_string_and_one_that_is_bound_again_are_named() -> None:
    lines = (" def f():", "-    a = 1", "+    a = 2", "     b = 2")
    quoted = error(put(hunk(2, 3, 3, *lines), 'X = """\ndef f():\n    a = 1\n    b = 2\n"""\n'))
    assert (quoted.code, quoted.line) == ("elsewhere", 2)
    assert "`def f` is text in a string at line 2, not a definition" in quoted.message
    twice = "def f():\n    a = 1\n    b = 2\n\n\ndef f():\n    c = 3\n"
    dead = error(put(hunk(1, 3, 3, *lines), twice))
    assert (dead.code, dead.line) == ("elsewhere", 1)
    only_less = hunk(2, 3, 2, "     a = 1", "-    b = 2", "     c = 3")
    twice = "def f():\n    a = 1\n    b = 2\n    c = 3\n\n\ndef f():\n    d = 3\n"
    assert error(put(only_less, twice)).code == "elsewhere"
    assert (
        "its text is in `f` (line 1), a definition that a later statement replaces" in dead.message
    )


def test_the_first_line_of_a_dead_definition_is_a_part_of_it() -> None:
    twice = "x = 1\n\n\ndef f():\n    a = 1\n    b = 2\n\n\ndef f():\n    c = 3\n"
    patch = hunk(3, 3, 3, " ", "-def f():", "+def f(x):", "     a = 1")
    dead = error(put(patch, twice))
    assert "a definition that a later statement replaces" in dead.message


def test_what_is_added_in_a_dead_definition_is_refused_and_what_is_changed_beside_it_is_not() -> (
    None
):
    text = "def f():\n    a = 1\n    b = 2\n\n\nx = 1\n\n\ndef f():\n    c = 3\n"
    inside = hunk(2, 2, 3, "     a = 1", "+    new = 1", "     b = 2")
    assert "a definition that a later statement replaces" in error(put(inside, text)).message
    beside = hunk(3, 5, 5, "     b = 2", " ", " ", "-x = 1", "+x = 2", " ")
    assert put(beside, text).verdict is Verdict.APPLIES


def test_what_is_added_without_any_line_around_it_is_told_to_be_unprovable() -> None:
    nowhere = error(put(hunk(5, 0, 1, "+y = 2"), "x = 1\nz = 3\n"))
    assert nowhere.code == "unprovable"
    assert "the hunk has no context lines, so nothing proves where it belongs" in nowhere.message


def test_what_is_added_at_the_end_of_a_dead_definition_is_not_in_it() -> None:
    text = "def f():\n    a = 1\n    b = 2\n\n\nx = 1\n\n\ndef f():\n    c = 3\n"
    beside = hunk(5, 3, 4, " ", " x = 1", "+y = 2", " ", header="def f():")
    assert "elsewhere" not in codes(put(beside, text)) or put(beside, text).verdict.ok


def test_in_a_file_without_scopes_only_a_single_place_will_do() -> None:
    path = "vllm/t.txt"
    patch = diff_of(path, "a\nb\nc\nd\n", "a\nb\nx\nd\n", context=1).replace(
        b" @@", b" @@ def f():"
    )
    planned = one(mod(variant(patch)), MemoryTree({path: b"0\na\nb\nc\nd\n"}))
    assert [(hunk.line, hunk.scope) for hunk in planned.hunks] == [(3, "")]
    assert "unique-only" not in codes(planned)
    twice = one(mod(variant(patch)), MemoryTree({path: b"b\nc\nd\nb\nc\nd\n"}))
    assert "places, and nothing tells them apart: line 1, line 4" in error(twice).message
    stated = one(mod(variant(patch)), MemoryTree({path: b"0\nb\nc\nd\nb\nc\nd\n"}))
    assert "apart: line 2, the stated one, line 5" in error(stated).message


def test_what_is_most_alike_is_that_of_the_longest_line_whatever_its_bytes() -> None:
    patch = diff_of(PATH, "x = 1\nsomething_long = compute(1)\n", "y = 1\n")
    planned = one(
        mod(variant(patch)),
        MemoryTree({PATH: b"# \xff\nx = 2\nsomething_long = compute(17)  # \xc3\xa4\n"}),
    )
    finding = error(planned)
    assert (finding.code, finding.line) == ("text", 3)
    assert "line 3 is `something_long = compute(17)  # ä`" in finding.message
    text = MemoryTree({"vllm/t.txt": b"a\n\xff\nb\n"})
    other = one(mod(variant(diff_of("vllm/t.txt", "a\nc\nb\n", "a\nd\nb\n"))), text)
    assert "line 2 is `\ufffd`, but the patch has `c`" in error(other).message


# --- what is against the only place, unless all hunks stand at their stated lines ---------------------


def test_a_removal_that_slides_is_in_only_at_its_stated_line() -> None:
    """What it kept would stand beside another text in place of the removed one, too."""
    code = ["    first_step(1)", "    second_step(2)", "    third_step(3)", "    last_step(4)"]
    lines = [
        f" {code[0]}",
        f" {code[1]}",
        f"-{code[2]}",
        *(f"-{one}" for one in code[:2]),
        f" {code[3]}",
    ]
    patch = hunk(2, 6, 3, *lines, header="def f():")
    done = "\n".join(["def f():", *code[:2], code[3], ""])
    assert put(patch, done).verdict is Verdict.APPLIED
    assert not put(patch, f"import os\n\n\n{done}").verdict.ok
