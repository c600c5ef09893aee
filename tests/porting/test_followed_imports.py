"""An import that a mod adds follows a name to the one module that defines it by now, and only there."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange
from vllm_mods.fit.judge import judge
from vllm_mods.fit.world import SummaryCache
from vllm_mods.porting import imports

MOD = "vllm/mod.py"
PLAIN = "VALUE = 1\n"


def repaired(
    base: dict[str, str], target: dict[str, str], ours: str, theirs: str = PLAIN
) -> tuple[str, tuple[str, ...]]:
    """Return the mod's file as it comes out on the target, and what was told."""
    trees = [
        MemoryTree({path: text.encode() for path, text in files.items()}, spec=name)
        for name, files in {
            "base": {"vllm/__init__.py": "", MOD: theirs, **base},
            "target": {"vllm/__init__.py": "", MOD: theirs, **target},
        }.items()
    ]
    cut = FileChange(MOD, theirs.encode(), ours.encode())
    findings, _ = judge((cut,), trees[1], SummaryCache(), None)
    done = imports.follow([cut], findings, *trees)
    (after,) = (one.after or b"" for one in done.cuts)
    if done.notes:
        again, _ = judge((cut._replace(after=after),), trees[1], SummaryCache(), None)
        assert not [one for one in again if one.level == "error"], again
    return after.decode(), done.notes


HELP = "def weigh(path, limit=3):\n    total = len(path)\n    return total * limit\n"
OURS = f"{PLAIN}from vllm.helpers import weigh\n\n\ndef mine(p):\n    return weigh(p)\n"


@pytest.mark.slow
def test_a_moved_name_follows_to_the_one_module_that_defines_it() -> None:
    after, told = repaired(
        {"vllm/helpers.py": HELP}, {"vllm/helpers.py": "", "vllm/scales.py": HELP}, OURS
    )
    assert after == OURS.replace("vllm.helpers", "vllm.scales")
    assert told == ("weigh of vllm.helpers is now weigh of vllm.scales, its only definition",)


@pytest.mark.slow
def test_a_name_keeps_what_the_mod_calls_it() -> None:
    ours = OURS.replace("import weigh", "import weigh as w").replace("return weigh", "return w")
    after, _ = repaired(
        {"vllm/helpers.py": HELP}, {"vllm/helpers.py": "", "vllm/scales.py": HELP}, ours
    )
    assert after == ours.replace("vllm.helpers", "vllm.scales")


SEVERAL = f"""{PLAIN}from vllm.helpers import (
    kept,
    weigh,
)


def mine(p):
    return weigh(kept(p)), "weigh"
"""


@pytest.mark.slow
def test_one_name_of_an_import_over_several_lines_is_taken_out_of_it() -> None:
    kept = "def kept(p):\n    return p\n"
    after, _ = repaired(
        {"vllm/helpers.py": HELP + kept},
        {"vllm/helpers.py": kept, "vllm/scales.py": HELP},
        SEVERAL,
    )
    assert "from vllm.helpers import kept\nfrom vllm.scales import weigh\n" in after
    assert after.endswith(SEVERAL.partition(")\n")[2])


UNLIKE = "def weigh(path):\n" + "".join(f"    path = [path, {n}]\n" for n in range(9))


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        {"vllm/helpers.py": HELP.replace("weigh", "heft")},  # another name
        {"vllm/helpers.py": "", "vllm/a.py": HELP, "vllm/b.py": HELP},  # two homes
        {"vllm/helpers.py": "", "vllm/scales.py": UNLIKE},  # another thing of that name
        {"vllm/helpers.py": ""},  # none
    ],
)
def test_a_name_without_one_such_home_is_left_to_a_person(target: dict[str, str]) -> None:
    assert repaired({"vllm/helpers.py": HELP}, target, OURS) == (OURS, ())


def test_another_thing_that_was_there_before_is_no_new_home() -> None:
    before = {"vllm/helpers.py": HELP, "vllm/scales.py": HELP}
    assert repaired(before, {"vllm/helpers.py": "", "vllm/scales.py": HELP}, OURS) == (OURS, ())


@pytest.mark.slow
def test_what_upstream_wrote_is_left_to_upstream() -> None:
    """The import that fails is the target's own line, which the mod only uses."""
    theirs = OURS.replace("def mine(p)", "def theirs(p)")
    ours = theirs + "\n\ndef mine(p):\n    return weigh(p)\n"
    after, told = repaired(
        {"vllm/helpers.py": HELP}, {"vllm/helpers.py": "", "vllm/scales.py": HELP}, ours, theirs
    )
    assert (after, told) == (ours, ())


KEPT = "def kept(p):\n    return p\n"
MOVED = {"vllm/helpers.py": KEPT, "vllm/scales.py": HELP}


def moved(ours: str, theirs: str = PLAIN) -> str:
    """Return the mod's file where ``weigh`` went from helpers to scales, and ``kept`` stayed."""
    return repaired({"vllm/helpers.py": HELP + KEPT}, MOVED, ours, theirs)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from vllm.helpers import weigh\n", "from vllm.scales import weigh\n"),
        ("from .helpers import weigh\n", "from vllm.scales import weigh\n"),
        ("from vllm.helpers import weigh  # why\n", None),
        ("from vllm.helpers import weigh; x = 1\n", None),
        ("x = 1; from vllm.helpers import weigh\n", None),
        ("if VALUE: from vllm.helpers import weigh\n", None),
        (
            "if VALUE:\n    from vllm.helpers import weigh\n",
            "if VALUE:\n    from vllm.scales import weigh\n",
        ),
        (
            "from vllm.helpers import kept as k, weigh\n",
            "from vllm.helpers import kept as k\nfrom vllm.scales import weigh\n",
        ),
        (
            "from vllm.helpers import (\n    weigh,\n    weigh as w,\n)\n",
            "from vllm.scales import weigh\nfrom vllm.scales import weigh as w\n",
        ),
    ],
)
def test_an_import_of_the_mod_that_has_its_lines_alone_is_written_anew(
    old: str, new: str | None
) -> None:
    rest = "\n\ndef mine(p):\n    return weigh(p)\n"
    assert moved(PLAIN + old + rest) == PLAIN + (old if new is None else new) + rest


@pytest.mark.slow
def test_line_ends_stay_as_they_are() -> None:
    theirs, ours = PLAIN.replace("\n", "\r\n"), OURS.replace("\n", "\r\n")
    assert moved(ours, theirs) == ours.replace("vllm.helpers", "vllm.scales")


@pytest.mark.parametrize(
    ("row", "is_followed"),
    [
        ("    weigh,\n", True),
        ("    weigh as w,\n", True),
        ("    weigh,  # why\n", False),
        ("    weigh, kept as again,\n", False),
    ],
)
def test_of_an_import_of_the_target_a_line_of_the_mod_is_taken_out(
    row: str, *, is_followed: bool
) -> None:
    theirs = f"{PLAIN}from vllm.helpers import (\n    kept,\n)\n"
    ours = theirs.replace("    kept,\n", f"    kept,\n{row}")
    after = moved(ours, theirs)
    name = row.strip().rstrip(",")
    assert after == (f"{theirs}from vllm.scales import {name}\n" if is_followed else ours)


def test_a_file_with_a_mark_at_its_beginning_is_left_to_a_person() -> None:
    assert moved(f"\ufeff{OURS}", f"\ufeff{PLAIN}") == f"\ufeff{OURS}"
