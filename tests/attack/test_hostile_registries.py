"""A registry of patchers that is hostile: whatever its entries do, a mod of one is what the whole did, or there is none."""

from __future__ import annotations

import json
import os

import pytest
from memory_tree import MemoryTree

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Mod
from vllm_mods.library import mod_folder
from vllm_mods.making import each_entry, entry_runs
from vllm_mods.making.compose import Wanted
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits
from vllm_mods.planning import planner

FILES = {
    "vllm/__init__.py": b"",
    "vllm/a.py": b"# A\nA = 1\nB = 1\n",
    "vllm/deep/b.py": b"# B\nC = 1\n",
}
HEAD = """import os, sys, time
from pathlib import Path
root = Path(os.environ['VLLM_PACKAGE_DIR'])
def put(path, old, new):
    p = root / path
    s = p.read_text()
    assert s.count(old) == 1, old
    p.write_text(s.replace(old, new))
"""


pytestmark = pytest.mark.usefixtures("namespaces")


def taken(text: str, seconds: float = 30) -> each_entry.EachMade:
    files = {"run.sh": b"set -e\npython3 edit.py\n", "edit.py": (HEAD + text).encode()}
    files["run.sh"] = b"#!/bin/bash\n" + files["run.sh"]
    tree = MemoryTree(dict(FILES), "0.21.0", "pypi:0.21.0", pristine=True)
    source = LauncherFolder("mine", "mine", files)
    return each_entry.make(source, Wanted("mine"), tree, Limits(seconds=seconds), lambda _: None)


def loaded(one: each_entry.EntryMod) -> Mod:
    return mod_folder.load_files(one.name, one.files)


@pytest.mark.slow
def test_no_entrys_name_leads_anywhere() -> None:
    rows = ["../../x", "/etc/passwd", "..", "con\x1b[2J", "x" * 500, "a b"]
    made = taken(
        f"NAMES = {rows!r}\nfor i, name in enumerate(NAMES):\n"
        "    put('a.py', '# A', f'# A{i}') if not i else put('a.py', f'# A{i - 1}', f'# A{i}')\n"
    )
    for one in made.mods:
        assert one.name == os.path.basename(one.name)
        assert set(one.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        assert len(one.name) < 80
        assert all(not path.startswith(("/", "..")) for path in one.files)


@pytest.mark.slow
def test_an_entry_that_writes_beside_vllm_when_alone_is_not_taken_as_it_is_alone() -> None:
    made = taken(
        "def first():\n    put('a.py', 'A = 1', 'A = 2')\n"
        "def second():\n    put('a.py', 'B = 1', 'B = 2')\n"
        "    if 'A = 2' not in (root / 'a.py').read_text():\n"
        "        Path('/workspace/left').write_text('x')\n"
        "for function in (first, second):\n    function()\n"
    )
    assert [one.requires for one in made.mods] == [(), ("mine-first",)]


@pytest.mark.slow
def test_an_entry_that_waits_for_another_ends() -> None:
    made = taken(
        "def first():\n    put('a.py', 'A = 1', 'A = 2')\n"
        "def second():\n    while 'A = 2' not in (root / 'a.py').read_text():\n        time.sleep(.1)\n"
        "    put('a.py', 'B = 1', 'B = 2')\n"
        "for function in (first, second):\n    function()\n",
        seconds=3,
    )
    assert [one.requires for one in made.mods] == [(), ("mine-first",)]


@pytest.mark.slow
def test_more_entries_than_are_taken_apart_are_refused_at_once() -> None:
    with pytest.raises(Refused, match=f"more than {limits.ENTRIES}"):
        taken(
            "ROWS = [('a.py', f'# A{i}', f'# A{i + 1}') for i in range(100_000)]\n"
            "put('a.py', '# A', '# A0')\ns = (root / 'a.py').read_text()\n"
            "for path, old, new in ROWS:\n    s = s.replace(old, new)\n(root / 'a.py').write_text(s)\n"
        )


@pytest.mark.slow
def test_what_a_program_itself_says_of_its_entries_is_not_believed() -> None:
    false = [
        {"point": "edit.py:1:0:list", "index": i, "names": [["key", f"n{i}"]]} for i in range(5)
    ]
    lines = "\\n".join(json.dumps(one) for one in false)
    with pytest.raises(Refused, match="still changes"):
        taken(
            f"with open('/launcher/points', 'w') as log:\n    log.write('''{lines}\\nnot json\\n[]\\n''')\n"
            "put('a.py', 'A = 1', 'A = 2')\n"
        )


def test_too_much_said_of_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = limits.Limit(4 << 10, "bytes", "what the programs of a mod go over")
    monkeypatch.setattr(limits, "POINTS", small)
    with pytest.raises(Refused, match="4 KiB"):
        taken("open('/launcher/points', 'w').write('x' * 10_000)\nput('a.py', 'A = 1', 'A = 2')\n")


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[1]", b'{"point": 3, "index": 0}', b'{"point": "a:1:0:list", "index": -1}',
             b'{"point": "a:1:0:list", "index": 99999999999}', b'{"point": "a:1:0:list", "index": "x"}',
             b'{"point": "a:1:0:list", "index": 0, "names": 4, "texts": 5, "line": []}',
             b'{"point": "a:1:0:list", "index": 0, "names": [[[], {}], 7], "texts": [7, null]}', b"\xff"],
)  # fmt: skip
def test_no_line_that_is_said_of_entries_breaks_anything(line: bytes) -> None:
    good = b'{"point": "a:1:0:list", "index": 0}\n{"point": "a:1:0:list", "index": 1}\n'
    assert len(entry_runs.read(good + line)) <= 1
    for place in entry_runs.read(line + b"\n" + good):
        assert len(set(entry_runs.names(place, "mine"))) == 2


@pytest.mark.slow
def test_a_program_that_knows_that_it_is_run_with_one_entry_has_to_make_the_whole_all_the_same() -> (
    None
):
    made = taken(
        "alone = os.path.exists('/launcher/chosen.json')\n"
        "EDITS = [('a.py', 'A = 1', 'A = 2'), ('a.py', 'B = 1', 'B = 2')]\n"
        "for path, old, new in EDITS:\n    put(path, old, new + ('  # other' if alone else ''))\n"
    )
    mods = [loaded(one) for one in made.mods]
    (change,) = planner.plan(mods, MemoryTree(dict(FILES), "0.21.0")).changes
    assert change.after == b"# A\nA = 2\nB = 2\n"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "trace",
    [
        "(root / 'deep' / 'left.pyc').write_bytes(b'x')",
        "(root / 'left').mkdir()",
        "os.chmod(root / 'deep', 0o000)",
        "os.chmod(root / 'a.py', 0o755)",
        "os.symlink('/etc/passwd', root / 'deep' / 'x.pyc')",
        "(root / 'deep' / '__pycache__').mkdir() or (root / 'deep' / '__pycache__' / 'x.pyc').touch()",
    ],
)
def test_nothing_of_a_run_is_there_for_the_next(trace: str) -> None:
    made = taken(
        "seen = sorted((str(p), p.lstat().st_mode) for p in root.rglob('*'))\n"
        "assert len(seen) == 4 and {m & 0o777 for _, m in seen} <= {0o644, 0o755, 0o600, 0o700}, seen\n"
        "assert not (root / 'a.py').stat().st_mode & 0o100\n"
        "EDITS = [('a.py', 'A = 1', 'A = 2'), ('a.py', 'B = 1', 'B = 2')]\n"
        f"for path, old, new in EDITS:\n    put(path, old, new)\n{trace}\n"
    )
    assert len(made.mods) == 2


@pytest.mark.parametrize("line", ['{"point": "x", "index": "many"}', '{"a":' * 100_000])
def test_what_a_program_writes_there_itself_counts_no_entries(line: str) -> None:
    assert entry_runs.largest(line.encode()) == 0
    assert entry_runs.read(line.encode()) == ()


def test_names_that_are_one_behind_the_mods_own_are_numbers() -> None:
    """Else the one's folder would be the other's."""
    entries = tuple(entry_runs.Entry({".name": name}, (), None) for name in ("a", "mine-a"))
    place = entry_runs.EntryPlace("/x.py:1:0:list", "list", entries)
    assert entry_runs.names(place, "mine") == ["mine-1", "mine-2"]
