"""Where upstream changed what a patch was written for and left its twin alone, the patch goes nowhere."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, indexed, mod, variant
from small_plans import PATH, after, found, one, tree

from vllm_mods.base.model import Mod, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.planning import lock_entries
from vllm_mods.planning.planner import plan


def body(*names: str, indent: int = 8) -> str:
    lines = (
        "shard = weight.narrow(0, start, size)",
        "shard = shard.contiguous()",
        "if shard.is_meta:",
        "    return None",
        "{0}.copy_(shard)",
        "return {0}",
    )
    return "".join(f"{' ' * indent}{line.format(*names)}\n" for line in lines)


def method(name: str, *, changed: bool = False) -> str:
    text = f"    def {name}(self, weight, start, size, param):\n{body('param')}\n"
    return text.replace("is_meta", "is_sparse") if changed else text


def touched(text: str, where: str, old: str, new: str) -> str:
    """Change one line behind the first ``where``."""
    at = text.index(where)
    return text[:at] + text[at:].replace(old, new, 1)


def written(base: str, where: str, *, context: int = 2, header: str = "") -> Mod:
    final = touched(base, where, "shard.contiguous()", "shard.clone()")
    return mod(variant(diff_of(PATH, base, final, context=context, section=header)))


CLASS = f"class Loader:\n{method('load_w13')}{method('load_w2')}"
NEWER = f"import os\n\nclass Loader:\n{method('load_w13')}{method('load_w2', changed=True)}"


def test_a_hunk_stands_at_its_line_in_the_release_that_it_is_for() -> None:
    near = f"class Loader:\n{method('load_w13')}{method('load_w2')}"
    bare = written(near, "load_w2", context=1)
    only = bare._replace(variants=(bare.variants[0]._replace(vllm="==0.19.1"),))
    assert one(only, tree(near, pristine=True)).verdict is Verdict.APPLIES
    # its twin is so near that it would stand there if somebody had put lines in above
    for mod_, pristine in ((only, False), (bare, True)):
        assert one(mod_, tree(near, pristine=pristine)).verdict is Verdict.MISPLACED


@pytest.mark.parametrize("header", ["", "class Loader:"])
def test_a_hunk_does_not_go_into_the_twin_of_its_method(header: str) -> None:
    planned = one(written(CLASS, "load_w2", context=1, header=header), tree(NEWER))
    assert planned.verdict is Verdict.MISPLACED
    finding = found(planned, "look-alike")
    assert "`Loader.load_w13`" in finding.message
    assert "`Loader.load_w2`" in finding.message
    assert finding.level.value == "error"


def test_a_patch_that_names_class_and_method_tells_it_from_its_twin() -> None:
    by_name = written(CLASS, "load_w2", context=2, header="class Loader:")
    planned = one(by_name, tree(f"import os\n\n{CLASS}"))
    assert planned.verdict is Verdict.MOVED
    assert after(planned) == touched(f"import os\n\n{CLASS}", "load_w2", "contiguous", "clone")
    assert not one(by_name, tree(NEWER)).verdict.ok
    # another class may have a method of that name
    header = "def load_w2(self, weight, start, size, param):"
    half = one(written(CLASS, "load_w2", context=1, header=header), tree(f"import os\n\n{CLASS}"))
    assert found(half, "unprovable")


def test_a_hunk_does_not_stay_in_the_class_that_its_method_has_left() -> None:
    planned = one(
        written(CLASS, "load_w2", context=1, header="class Loader:"),
        tree(f"class Loader:\n{method('load_w13')}\nclass Other:\n{method('load_w2')}"),
    )
    assert planned.verdict is Verdict.MISPLACED


def around(inner: str) -> tuple[str, Mod]:
    """Return a file in which functions stand before and behind others, and a mod of these and of `load_w2`."""
    ends = [
        f"def {name}(x):\n" + "".join(f"    {name}_{i} = x\n" for i in range(8)) for name in "fg"
    ]
    base = f"{ends[0]}\n{inner}{ends[1]}"
    final = touched(base, "load_w2", "shard.contiguous()", "shard.clone()")
    for name in "fg":
        final = touched(final, f"{name}_0", "= x", "= x + x")
    return base, mod(variant(diff_of(PATH, base, final, context=1)))


def test_hunks_around_one_say_where_it_is_if_all_moved_alike() -> None:
    base, mine = around(f"class Loader:\n{method('load_w2')}")
    assert one(mine, tree(f"import os\n\n{base}")).verdict is Verdict.MOVED
    longer = base.replace("class Loader:\n", "class Loader:\n    rows = 1\n")
    assert found(one(mine, tree(longer)), "unprovable").hunk == 2


def test_a_twin_between_the_hunks_around_is_not_what_a_hunk_was_written_for() -> None:
    base, mine = around(CLASS)
    # upstream wrote the method anew: its twin is the only place left between the other two hunks
    rewritten = "    def load_w2(self, *args):\n        self.rows += args\n\n"
    planned = one(mine, tree(base.replace(method("load_w2"), rewritten)))
    assert planned.verdict is Verdict.MISPLACED
    assert found(planned, "unprovable").hunk == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("    if kind:\n", "    else:\n"),
        ("    try:\n", "    except ValueError:\n"),
        ("    match kind:\n        case 1:\n", "        case 2:\n"),
    ],
)
def test_a_hunk_does_not_go_into_the_twin_of_its_branch(first: str, second: str) -> None:
    deep = 12 if "match" in first else 8
    branches = f"{first}{body('a', indent=deep)}{second}"
    base = f"def load(kind, a):\n{branches}{body('a', indent=deep)}"
    newer = (
        f"def load(kind, a):\n{branches.replace('is_meta', 'is_sparse')}{body('a', indent=deep)}"
    )
    mine = written(base, "load", context=1, header="def load(kind, a):")
    assert one(mine, tree(f"import os\n\n{newer}")).verdict is Verdict.MISPLACED


TABLES = """\
_TEXT = {
    "Alpha": ("alpha", "Alpha"),
    "Beta": ("beta", "Beta"),
    "Gamma": ("gamma", "Gamma"),
}

_EMBED = {
    "Alpha": ("alpha", "Alpha"),
    "Beta": ("beta", "Beta"),
    "Gamma": ("gamma", "Gamma"),
}
"""


@pytest.mark.parametrize("header", ["", "_EMBED = {"])
def test_a_row_does_not_go_into_another_table(header: str) -> None:
    row = '    "New": ("new", "New"),\n'
    at = TABLES.rindex('    "Gamma"')
    final = TABLES[:at] + row + TABLES[at:]
    mine = mod(variant(diff_of(PATH, TABLES, final, context=1, section=header)))
    cut = TABLES.rindex('    "Beta"')
    newer = "import os\n\n" + TABLES[:cut] + TABLES[cut:].replace('("beta", "Beta")', '("b", "B")')
    assert not one(mine, tree(newer)).verdict.ok
    moved = one(mine, tree(f"import os\n\n{TABLES}"))
    if header:
        assert after(moved) == f"import os\n\n{final}"
    else:
        assert moved.verdict is Verdict.MISPLACED


@pytest.mark.slow
def test_a_statement_that_git_does_not_name_is_held_to_no_header() -> None:
    base = "import os\n\n(\n    A,\n    B,\n    C,\n) = os.make(\n    1,\n)\n\nif os:\n    from x import (\n        D,\n        E,\n        F,\n    )\n"
    for old, new, header in (
        ("    B,\n", "    B2,\n", "import os"),
        ("        E,\n", "        E2,\n", "if os:"),
    ):
        final = base.replace(old, new)
        mine = mod(variant(diff_of(PATH, base, final, context=1, section=header)))
        assert after(one(mine, tree(base))) == final


@pytest.mark.parametrize("pristine", [False, True])
def test_a_fix_in_the_twin_does_not_count_as_in(*, pristine: bool) -> None:
    mine = written(CLASS, "load_w2", context=1, header="class Loader:")
    only_twin = touched(f"import os\n\n{CLASS}", "load_w13", "contiguous", "clone")
    assert not one(mine, tree(only_twin, pristine=pristine)).verdict.ok
    both = touched(only_twin, "load_w2", "contiguous", "clone")
    assert not one(mine, tree(both, pristine=pristine)).verdict.ok


def test_a_change_that_is_in_does_not_go_in_once_more_at_a_place_like_it() -> None:
    mine = written(CLASS, "load_w2", context=1)
    there = touched(f"import os\n\n{CLASS}", "load_w2", "contiguous", "clone")
    assert not one(mine, tree(there)).verdict.writes


def indented(*rows: str) -> str:
    return "".join(f"    {row}\n" for row in rows)


@pytest.mark.slow
def test_an_insertion_of_which_upstream_rewrote_half_since_does_not_go_in_beside_it() -> None:
    head = "def run(job, fast):\n    check(job)\n\n"
    tail = "    return start(job, mode)\n"
    why = ("# the kernel wants both halves in turn", "# for weights that were shuffled", "# above")
    block = indented(
        *why,
        'mode = ""',
        "if job.is_small:",
        "    try:",
        "        from kernels.common import Mode",
        "        mode = Mode.IN_TURN.value",
        "    except ImportError:",
        "        pass",
    )
    mine = mod(
        variant(diff_of(PATH, head + tail, f"{head}{block}\n{tail}", context=1, section="def run("))
    )
    rewritten = indented(
        *why,
        "from kernels.common import Mode",
        "",
        'mode = ""',
        "if job.is_small:",
        "    mode = Mode.IN_TURN.value",
        "elif fast is not None:",
        "    mode = (Mode.IN_TURN if fast else Mode.APART).value",
    )
    newer = f"import os\n\n{head}{rewritten}\n{tail}"
    assert not one(mine, tree(newer)).verdict.ok
    assert one(mine, tree(f"import os\n\n{head}{tail}")).verdict is Verdict.MOVED


def call(name: str, *, changed: bool = False) -> str:
    ending = ".copy()" if changed else ""
    rows = [f"{row}{ending}" for row in ("view", "[int(bid) * size for bid in job.ids]")]
    texts = [f"batch_{name}", *rows, f"self.{name}_options"]
    lines = "".join(f"            {text},\n" for text in texts)
    return f"    def {name}(self, job, size, view):\n        run(\n{lines}        )\n\n"


def test_a_twin_of_few_lines_that_has_come_to_the_stated_line_is_no_place() -> None:
    base = f"class Manager:\n{call('store')}{call('load')}"
    final = touched(base, "batch_load", "            [int", "            0,\n            [int")
    above = "".join(f"import m{n}\n" for n in range(call("store").count("\n")))
    newer = f"{above}class Manager:\n{call('store')}{call('load', changed=True)}"
    for header in ("", "class Manager:"):
        patch = diff_of(PATH, base, final, context=1, section=header)
        mine = mod(variant(patch, vllm=">=0.17"))
        assert one(mine, tree(newer)).verdict is Verdict.MISPLACED
        twin = touched(newer, "batch_store", "            [int", "            0,\n            [int")
        assert not one(mine, tree(twin)).verdict.ok


@pytest.mark.parametrize(
    ("head", "base", "old", "new", "header"),
    [
        (
            "",
            "from a import (\n    A,\n)\nfrom z import (\n    Z,\n)\n",
            ")\nfrom z",
            ")\nfrom m import (\n    handle,\n)\nfrom z",
            "",
        ),
        (
            "class Inputs(TypedDict):\n",
            "    text: str\n\n    salt: str\n",
            "    salt",
            '    time: float\n    """When it came."""\n\n    salt',
            "class Inputs(TypedDict):",
        ),
        (
            "# a licence\n",
            "\nimport json\n",
            "import json",
            "from __future__ import annotations\n\nimport json",
            "",
        ),
    ],
)
def test_lines_that_stand_beside_the_place_do_not_go_in_a_second_time(
    head: str, base: str, old: str, new: str, header: str
) -> None:
    final = base.replace(old, new)
    gone = final.count("\n") - base.count("\n")  # upstream took as many lines away above
    above = "".join(f"import m{n}\n" for n in range(gone))
    before, after_ = f"{above}{head}{base}", f"{above}{head}{final}"
    mine = mod(variant(diff_of(PATH, before, after_, context=1, section=header)))
    assert not one(mine, tree(f"{head}{final}")).verdict.writes


def test_an_equal_line_in_the_own_context_was_there_when_the_patch_was_written() -> None:
    twice = mod(variant(diff_of(PATH, "a = 1\nb = 2\n", "a = 1\na = 1\nb = 2\n", context=1)))
    assert one(twice, tree("a = 1\nb = 2\n", pristine=True)).verdict is Verdict.APPLIES


def test_blank_lines_do_not_show_that_what_was_between_them_is_gone() -> None:
    head = "def load(kind):\n    check(kind)\n\n"
    part = "    for one in kind:\n        one.pop('reasoning')\n\n"
    base = f"{head}{part}    return [one for one in kind]\n\n\ndef check(kind):\n    return kind\n"
    final = base.replace(f"{part}    return [one for one in kind]\n\n", "")
    mine = mod(variant(diff_of(PATH, base, final, context=1, section="def load(kind):")))
    # not yet written so, or rewritten: a part of what the patch removes stands there
    other = base.replace("    return [one for one in kind]\n", "    return kind\n")
    assert not one(mine, tree(other)).verdict.ok


# --- what mod.lock knows ---------------------------------------------------------------------------


def locked(mine: Mod, base: str) -> Mod:
    written_for = lock_entries.places_in(mine, tree(base))
    return mine._replace(lock=mod_lock.dump(lock_entries.of(mine, (), written=written_for)))


def test_a_lock_tells_twins_apart_wherever_they_are() -> None:
    mine = locked(written(CLASS, "load_w2", context=1), CLASS)
    twice = f"import os\n\n{CLASS}"
    planned = one(mine, tree(twice))
    assert planned.verdict is Verdict.MOVED
    assert planned.hunks[0].proof == "scope"
    assert after(planned) == touched(twice, "load_w2", "contiguous", "clone")
    refused = one(mine, tree(NEWER))
    assert refused.verdict is Verdict.MISPLACED
    assert found(refused, "elsewhere").scope == "Loader.load_w2"
    fixed = touched(twice, "load_w13", "contiguous", "clone")
    assert after(one(mine, tree(fixed))) == touched(fixed, "load_w2", "contiguous", "clone")
    done = touched(twice, "load_w2", "contiguous", "clone")
    assert one(mine, tree(done)).verdict is Verdict.APPLIED


def test_a_twin_at_the_stated_line_is_no_place_and_a_lock_leads_to_the_right_one() -> None:
    far = "".join(f"    v{i} = {i}\n" for i in range(60))
    base = f"class Loader:\n{method('load_w2')}{far}{method('load_w13')}"
    swapped = f"class Loader:\n{method('load_w13')}{far}{method('load_w2')}"
    mine = written(base, "load_w2", context=1)
    newer = tree(swapped, version="0.20.0")
    assert not one(mine, newer).changes
    planned = one(locked(mine, base), newer)
    assert after(planned) == touched(swapped, "load_w2", "contiguous", "clone")


@pytest.mark.slow
def test_a_lock_names_a_statement_and_not_which_of_its_arguments_a_line_was_in() -> None:
    arguments = "".join(
        f"        {name}=empty(\n            {size},\n            kind=int32,\n            device=job.device,\n        ),\n"
        for name, size in (("first", "rows"), ("second", "rows + 1"))
    )
    base = f"def start(job, rows):\n    job.group = make(\n{arguments}    )\n    return job\n"
    line = "            device=job.device,\n"
    mine = locked(mod(variant(diff_of(PATH, base, base.replace(line, "", 1), context=1))), base)
    assert one(mine, tree(base)).verdict is Verdict.APPLIES
    start, end = base.index("        first="), base.index("        second=")
    assert not one(mine, tree(f"import os\n\n{base[:start]}{base[end:]}")).verdict.ok


def test_a_lock_does_not_prove_the_place_of_few_lines_in_an_argument_and_why_is_said() -> None:
    base = "".join(
        f"def {name}(job):\n    made = make(\n        job.image,\n        kind=job.kind,\n    )\n    return made\n\n\n"
        for name in ("now", "later")
    )
    start = base.rindex("        kind")
    patched = f"{base[:start]}{base[start:].replace('job.kind', '1', 1)}"
    mine = locked(mod(variant(diff_of(PATH, base, patched, context=1))), base)
    (why,) = one(mine, tree(f"import os\n\n{base}")).findings
    assert why.code == "unprovable"
    assert (
        "its text is at line 13, the only match in `later.made =`, for which the hunk was written"
        in why.message
    )


def test_the_lock_of_another_patch_says_nothing() -> None:
    other = locked(written(CLASS, "load_w13", context=1), CLASS)
    mine = written(CLASS, "load_w2", context=1)._replace(lock=other.lock)
    planned = one(mine, tree(f"import os\n\n{CLASS}"))
    assert planned.verdict is Verdict.MISPLACED
    assert found(planned, "stale-lock")


@pytest.mark.slow
def test_a_branch_is_part_of_where_a_hunk_was_written() -> None:
    base = f"def load(kind, a):\n    if kind:\n{body('a')}    else:\n{body('a')}"
    mine = locked(written(base, "else"), base)
    for text, verdict in (
        (f"import os\n\n{base}", Verdict.MOVED),
        (f"import os\n\n{base}".replace("if kind", "if not kind"), Verdict.MISPLACED),
    ):
        assert one(mine, tree(text)).verdict is verdict


# --- several mods of one file ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mod_is_placed_through_what_another_one_did_to_its_file() -> None:
    first = mod(variant(diff_of(PATH, CLASS, f"import json\n{CLASS}")), name="first")
    final = touched(CLASS, "load_w2", "shard.contiguous()", "shard.clone()")
    patch = indexed(diff_of(PATH, CLASS, final, context=1), CLASS, final)
    second = mod(variant(patch), name="second")
    planned = plan([first, second], tree(CLASS))
    assert [each.verdict for each in planned.mods] == [Verdict.APPLIES, Verdict.MOVED]
    assert planned.mods[1].hunks[0].proof == "file"
    wanted = touched(f"import json\n{CLASS}", "load_w2", "contiguous", "clone")
    assert planned.changes[0].after == wanted.encode()


def test_a_mod_whose_lines_another_one_changed_is_in_conflict() -> None:
    first = written(CLASS, "load_w2", header="class Loader:")._replace(name="first")
    final = touched(CLASS, "load_w2", "shard.contiguous()", "shard.detach()")
    second = mod(variant(diff_of(PATH, CLASS, final, context=3)), name="second")
    planned = plan([first, second], tree(CLASS))
    assert planned.mods[1].verdict is Verdict.CONFLICT


def test_other_files_of_the_tree_tell_nothing() -> None:
    planned = one(
        written(CLASS, "load_w2", context=1),
        MemoryTree({PATH: NEWER.encode(), "vllm/__init__.py": b"", "vllm/y.py": CLASS.encode()}),
    )
    assert planned.verdict is Verdict.MISPLACED
