"""``--each``: a registry of patches, recorded in one run; each entry that goes in is optional, each that fails is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.making import compose, entries, recording
from vllm_mods.making.compose import Composed, ModEffect, Wanted
from vllm_mods.making.fetching import Lacked
from vllm_mods.making.recording import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

A = "".join(f"A{n} = {n}\n" for n in range(20))
TREE = MemoryTree(
    {"vllm/__init__.py": b"", "vllm/a.py": A.encode(), "vllm/b.py": b"B = 1\n"}, version="0.19.1"
)
REGISTRY = """\
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(os.environ["VLLM_PACKAGE_DIR"])


@dataclass
class Entry:
    name: str
    path: str
    old: str
    new: str


class AnchorError(Exception):
    pass


def apply_patch(entry):
    place = ROOT / entry.path
    if not entry.old:
        place.write_text("new = 1\\n")
        raise ValueError("half of it")
    text = place.read_text()
    if entry.new in text:
        return "is in"
    if entry.old not in text:
        raise AnchorError(f"no {entry.old!r} in {entry.path}")
    place.write_text(text.replace(entry.old, entry.new))


ENTRIES = [
    Entry("first", "a.py", "A3 = 3", "A3 = 33"),
    Entry("no-anchor", "a.py", "A99 = 0", "A99 = 1"),
    Entry("second", "a.py", "A3 = 33", "A3 = 333"),
    Entry("raises", "c.py", "", ""),
    Entry("in already", "b.py", "B = 0", "B = 1"),
    Entry("other", "b.py", "B = 1", "B = 2"),
]
"""
NOTES = """
failed = []
for entry in ENTRIES:
    try:
        apply_patch(entry)
    except Exception as error:
        failed.append(f"{entry.name}: {error}")
raise SystemExit("; ".join(failed))
"""
ENDS = "\nfor entry in ENTRIES:\n    apply_patch(entry)\n"
AFTER = {"vllm/a.py": A.replace("A3 = 3\n", "A3 = 333\n").encode(), "vllm/b.py": b"B = 2\n"}
FAILED = ("no-anchor: AnchorError: no 'A99 = 0' in a.py", "raises: ValueError: half of it")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandboxed")]


def recorded(
    files: Mapping[str, str], each: str | None = "apply_patch", **limits: Any
) -> ModEffect:
    data = {name: text.encode() for name, text in files.items()}
    wanted = Limits(seconds=60, each=each, **{"partial": True, **limits})
    return recording.record(["bash", "run.sh"], "mine", data, TREE, wanted)


def changed(effect: ModEffect) -> dict[str, bytes | None]:
    return {one.path: one.after for one in effect.changes}


def composed(effect: ModEffect) -> Composed:
    return compose.compose(Wanted("mine"), effect, TREE)


@pytest.mark.parametrize("end", [NOTES, ENDS])
@pytest.mark.parametrize("start", ["", "set -e\n"])
def test_a_registry_in_python(end: str, start: str) -> None:
    run = f"#!/usr/bin/env bash\n{start}python3 registry.py\n"
    effect = recorded({"run.sh": run, "registry.py": REGISTRY + end})
    assert effect.failed == FAILED
    assert changed(effect) == AFTER
    assert effect.notes[0] == "in-already changed no file: it returned 'is in'"
    made = composed(effect)
    steps = [f"0.19/{name}.patch" for name in ("first", "second", "other")]
    assert [(one.source, one.optional) for one in made.mod.variants[0].patches] == [
        (step, True) for step in steps
    ]
    assert {one.path: one.after for one in made.planned.changes} == AFTER


def test_entries_of_several_threads_are_told_apart() -> None:
    script = """\
import os, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(os.environ["VLLM_PACKAGE_DIR"])

def apply_patch(name, seconds):
    file = ROOT / f"{name}.py"
    file.write_text(file.read_text() + "NEW = 1\\n")
    time.sleep(seconds)
    if name == "a":
        raise ValueError("half of it")

with ThreadPoolExecutor(thread_name_prefix="entry") as pool:
    runs = [pool.submit(apply_patch, name, seconds) for name, seconds in (("b", 1), ("a", 0))]
"""
    effect = recorded({"run.sh": "python3 registry.py\n", "registry.py": script})
    assert effect.failed == ("a: ValueError: half of it",)
    assert changed(effect) == {"vllm/b.py": b"B = 1\nNEW = 1\n"}


def test_a_script_that_says_that_entries_failed_is_noted() -> None:
    effect = recorded({"run.sh": "python3 registry.py\n", "registry.py": REGISTRY + NOTES})
    assert effect.notes[1].splitlines() == [
        "the script ended with exit code 1 after 6 calls of apply_patch",
        "  | no-anchor: no 'A99 = 0' in a.py; raises: half of it",
    ]


@pytest.mark.parametrize("end", ["|| failed=1", "|| true"])
@pytest.mark.parametrize("last", ["", "exit ${failed:-0}\n"])
@pytest.mark.parametrize("start", ["", "set -e\n"])
def test_a_loop_over_programs(start: str, end: str, last: str) -> None:
    loop = f"for step in steps/*; do\n  bash $step {end}\ndone\n"
    steps = {
        "steps/1-a.sh": "cp $VLLM_PACKAGE_DIR/b.py $VLLM_PACKAGE_DIR/d.py\n",
        "steps/2-b.sh": "set -e\necho >> $VLLM_PACKAGE_DIR/b.py\npatch $VLLM_PACKAGE_DIR/b.py x\n",
        "steps/3-c.sh": "sed -i s/1/5/ $VLLM_PACKAGE_DIR/b.py\n",
        "steps/4-d.sh": "echo no; exit 3\n",
        "steps/5-e.sh": "rm $VLLM_PACKAGE_DIR/d.py; bash -c true\n",
    }
    own = "#!/usr/bin/env bash\necho N=1 > $VLLM_PACKAGE_DIR/new.py\n"
    effect = recorded({"run.sh": own + start + loop + last, **steps}, "bash")
    assert [one.partition(":")[0] for one in effect.failed] == ["2-b", "4-d"]
    assert "Can't open patch file x" in effect.failed[0]
    assert effect.failed[1].endswith(" returned non-zero exit status 3.\n  | no")
    assert changed(effect) == {"vllm/b.py": b"B = 5\n", "vllm/new.py": b"N=1\n"}
    made = composed(effect)
    assert [one.source for one in made.mod.variants[0].patches] == ["0.19/3-c.patch"]
    assert {one.path: one.after for one in made.planned.changes} == changed(effect)


@pytest.mark.parametrize("how", ['-d "$PYTHON_ROOT" < $one', '-d "$PYTHON_ROOT" -i $PWD/$one'])
def test_patches_are_called_as_their_files(how: str) -> None:
    loop = f"for one in *.patch; do patch -p1 {how} || failed+=($one); done\nexit ${{#failed[@]}}\n"
    texts = {
        "x.patch": ("B = 1", "B = 2"),
        "y.patch": ("B = 1", "B = 3"),
        "z.patch": ("B = 2", "B = 4"),
    }
    files = {
        name: diff_of("vllm/b.py", f"{old}\n", f"{new}\n").decode()
        for name, (old, new) in texts.items()
    }
    effect = recorded({"run.sh": loop, **files}, "patch")
    assert ([name for name, _ in effect.optional], changed(effect)) == (
        ["x", "z"],
        {"vllm/b.py": b"B = 4\n"},
    )
    assert [one.partition(":")[0] for one in effect.failed] == ["y"]
    assert "1 out of 1 hunk FAILED" in effect.failed[0]


def test_a_registry_that_returns_how_an_entry_went() -> None:
    told = REGISTRY.replace("raise AnchorError(f", "return str(f")
    ends = f"{told}\nhow = [apply_patch(one) for one in ENTRIES if one.old]\nexit(1)\n"
    effect = recorded({"run.sh": "python3 registry.py\n", "registry.py": ends})
    assert effect.failed == (
        "no-anchor: it returned \"no 'A99 = 0' in a.py\"",
        "in-already: it returned 'is in'",
    )
    false = told.replace("return str(f", "return bool('' and ") + (
        "\nfor one in ENTRIES:\n    if apply_patch(one) is False:\n        exit('no')\n"
    )
    effect = recorded({"run.sh": "python3 registry.py\n", "registry.py": false})
    assert effect.failed == ("no-anchor: it returned False", FAILED[1])
    assert changed(effect) == AFTER


def test_entries_are_called_as_their_arguments_say() -> None:
    calls = """import os
class Registry:
    name = "all"
    @staticmethod
    def twice(function):
        return function
    def put(self, one, line=1):
        place = os.environ["VLLM_PACKAGE_DIR"] + "/b.py"
        with open(place, "a") as file:
            print(line, file=file)
        if line:
            self.put(one, 0)
def named(): pass
for one in ({"id": "by key"}, ("in row", 2), "x/place.patch", named, 7, 8, {"id": "by key"}):
    Registry().put(one)
"""
    effect = recorded({"run.sh": f"PYTHONPATH= python3 -I - <<'X'\n{calls}X\n"}, "put")
    names = ["by-key", "in-row", "place", "named", "main", "main-6", "by-key-7"]
    assert [name for name, _ in effect.optional] == names
    assert changed(effect) == {"vllm/b.py": b"B = 1\n" + b"1\n0\n" * 7}
    assert composed(effect).planned.verdict.value == "applies"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"run.sh": "python3 x.py\n", "x.py": "import entries_that_are_gone\n"}, ["exit code 1 after 0 calls of apply_patch; nothing", "No module named 'entries_that_are_gone'"]),
        ({"run.sh": "echo A=1 > $VLLM_PACKAGE_DIR/a.py; printf '0\\0\\0x\\0\\n' > $VLLM_MODS_HOME/entries\n"}, ["exit code 0 after 0 calls of apply_patch"]),
        ({"run.sh": "python3 x.py\n", "x.py": f"{REGISTRY}\napply_patch(ENTRIES[0])\n1/0\n"}, ["failed with exit code 1; nothing was", "ended at run.sh:1: `python3 x.py`", "ZeroDivisionError"]),
        ({"run.sh": "python3 x.py\n", "x.py": f"{REGISTRY}\napply_patch(ENTRIES[1])\n"}, ["1 of 1 calls failed; nothing was written\n  no-anchor: AnchorError: no"]),
        ({"run.sh": "cp x y || true; python3 x.py\n", "x.py": REGISTRY + NOTES}, ["a step failed and the command continued", "run.sh:1: `cp x y`"]),
    ],
)  # fmt: skip
def test_a_registry_that_is_broken_itself(files: Mapping[str, str], said: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        recorded(files)
    for text in said:
        assert text in caught.value.message


def test_partial_is_for_entries() -> None:
    with pytest.raises(UsageError, match="--partial needs --each"):
        recorded({"run.sh": "true"}, None)


PUT = """import os, sys
ROOT = os.environ["VLLM_PACKAGE_DIR"]
def put(name, text="N = 1\\n", end=None):
    with open(ROOT + "/b.py", "a") as file:
        file.write(text)
    if end == "beside":
        with open(ROOT + "/../beside.py", "a") as file:
            file.write(text)
    if end == "gone":
        os._exit(9)
    if end == "in the way":
        os.remove(ROOT + "/a.py")
        os.mkdir(ROOT + "/a.py")
    if end is not None:
        raise end if isinstance(end, BaseException) else ValueError(end)
def tried(*given):
    try:
        put(*given)
    except (Exception, SystemExit):
        pass
"""


def put(calls: str, **more: str) -> ModEffect:
    return recorded({"run.sh": "python3 x.py || true\n", "x.py": PUT + calls, **more}, "put")


def test_what_watches_a_function_stays_out_of_the_mod() -> None:
    text = "class Q:\n    def put(self):\n        return 1\n"
    copied = "import shutil\nshutil.copy('q.py', ROOT + '/q.py')\n"
    effect = put(f'{copied}put("a", """{text}""")\n', **{"q.py": text})
    assert changed(effect) == {"vllm/b.py": f"B = 1\n{text}".encode(), "vllm/q.py": text.encode()}
    written = entries.watched({"x.py": f'X = """\n{text}"""\ndef put(): ...\n'.encode()}, "put")
    assert written["x.py"].count(b"@eval") == 1


def test_entries_of_one_name_are_all_told() -> None:
    effect = put('tried("b-3", "", "no")\ntried("b")\ntried("b")\n')
    assert [name for name, _ in effect.optional] == ["b", "b-3"]
    assert effect.failed == ("b-3: ValueError: no",)
    named = composed(put('tried("mine-2", "N = 1\\n")\ntried("mine", "M = 1\\n")\n'))
    steps = [one.source for one in named.mod.variants[0].patches]
    assert steps == ["0.19/mine-2.patch", "0.19/mine-2-2.patch"]


def test_an_entry_that_ends_python_without_a_failure_is_in() -> None:
    effect = put('tried("a", "N = 1\\n", SystemExit(0))\n')
    assert (effect.failed, [name for name, _ in effect.optional]) == ((), ["a"])


@pytest.mark.parametrize("end", ["gone", "in the way"])
def test_what_no_entry_ends_or_undoes_is_refused(end: str) -> None:
    with pytest.raises(Refused, match="`patch b did not end`"):
        put(f'tried("a", "", "no")\ntried("c")\ntried("b", "half", {end!r})\n')


def test_what_a_failed_entry_writes_beside_vllm_is_undone() -> None:
    effect = put('tried("a", "N = 1\\n", "beside")\ntried("b")\n')
    assert (effect.failed, changed(effect)) == (
        ("a: ValueError: beside",),
        {"vllm/b.py": b"B = 1\nN = 1\n"},
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def put(name):\n    yield add()", "it returned <generator object put"),
        ("async def put(name):\n    yield add()", "it returned <async_generator object put"),
        ("def put(name):\n    return LOOP.create_task(later())", "it returned <Task pending"),
        ("def put(name):\n    return POOL.submit(add)", "it returned <Future at"),
        ("def put(name):\n    return map(open, [])", "it returned <map object"),
        (
            "async def put(name):\n    asyncio.get_running_loop().create_task(later())",
            "RuntimeError: it left tasks that go on: {<Task pending",
        ),
    ],
)
def test_what_an_entry_does_later_is_no_entry(function: str, said: str) -> None:
    text = (
        "import asyncio, concurrent.futures, os, time\n"
        "LOOP, POOL = asyncio.new_event_loop(), concurrent.futures.ThreadPoolExecutor()\n"
        "def add():\n    time.sleep(0.1)\n"
        '    open(os.environ["VLLM_PACKAGE_DIR"] + "/b.py", "w").close()\n'
        "async def later():\n    await asyncio.sleep(0.1)\n    add()\n"
        f"{function}\nput('a')\n"
    )
    with pytest.raises(Refused, match=f"a: {said}"):
        recorded({"run.sh": "python3 x.py\n", "x.py": text}, "put")


def test_a_reason_or_a_name_with_a_zero_byte_is_one_word() -> None:
    effect = put('tried("b", "N = 0\\n", "x\\0" * 4 + "vllm/b.py")\ntried("a\\0")\n')
    assert effect.failed == ("b: ValueError: x x x x vllm/b.py",)
    assert [name for name, _ in effect.optional] == ["a"]
    assert changed(effect) == {"vllm/b.py": b"B = 1\nN = 1\n"}


def test_entries_of_several_processes_come_one_after_the_other() -> None:
    slow = """
import time
def put(name):
    for n in range(3):
        time.sleep(0.02)
        with open(f"{ROOT}/{name}.py", "a") as file:
            file.write(f"N{n} = 1\\n")
    assert name != "c"
for name in "cde":
    if not os.fork():
        tried(name)
        os._exit(0)
for name in "cde":
    os.wait()
"""
    effect = put(slow)
    assert effect.failed == ("c: AssertionError:",)
    text = b"N0 = 1\nN1 = 1\nN2 = 1\n"
    assert changed(effect) == {"vllm/d.py": text, "vllm/e.py": text}
    assert sorted(name for name, _ in effect.optional) == ["d", "e"]


LATER = """import asyncio, os
ROOT = os.environ["VLLM_PACKAGE_DIR"]
async def put(name, end=None):
    with open(f"{ROOT}/{name}.py", "a") as file:
        file.write("N = 1\\n")
    await asyncio.sleep(0.01)
    if end:
        raise ValueError(end)
    if name == "b":
        return await put("c")
"""


@pytest.mark.parametrize(
    "calls",
    [
        "asyncio.run(main())\n",
        "def by(one):\n    return one()\nasync def over():\n    for one in (lambda: put('a', 'no'), lambda: put('b')):\n        try:\n            await by(one)\n        except ValueError: ...\nasyncio.run(over())\n",
    ],
)
def test_an_entry_that_is_a_coroutine_is_run_to_its_end_before_the_next(calls: str) -> None:
    both = "async def main():\n    await asyncio.gather(put('a', 'no'), put('b'))\n"
    files = {"run.sh": "python3 x.py\n", "x.py": f"{LATER}{both}{calls}"}
    effect = recorded(files, "put" if "over" not in calls else "by")
    assert [one.partition(": ")[2] for one in effect.failed] == ["ValueError: no"]
    assert changed(effect) == {"vllm/b.py": b"B = 1\nN = 1\n", "vllm/c.py": b"N = 1\n"}
    assert len(effect.optional) == 1


NEEDS = """import socket, subprocess, urllib.request
def fetched(name):
    tried(name)
    urllib.request.urlopen("https://example.org/")
def curled(name):
    tried(name)
    subprocess.run(["curl", "-fsSo", "x", "https://example.org/x"], check=True, capture_output=True)
def quiet(name):
    tried(name)
    try:
        socket.create_connection(("192.0.2.1", 443))
    except OSError:
        pass
def by(one, name):
    return one(name)
for one in (fetched, curled, quiet, tried):
    try:
        by(one, one.__name__)
    except Exception:
        pass
"""


def test_entries_that_need_the_network_fail_alone() -> None:
    files = {"run.sh": "python3 x.py\n", "x.py": PUT + NEEDS}
    effect = recorded(files, "by")
    assert [one.partition(":")[0] for one in effect.failed] == ["fetched", "curled", "quiet"]
    assert "name resolution" in effect.failed[0]
    assert "curl: (6) Could not resolve host: example.org" in effect.failed[1]
    assert effect.failed[2].endswith("it went on without the network: Network is unreachable")
    assert changed(effect) == {"vllm/b.py": b"B = 1\nN = 1\n"}
    with pytest.raises(Lacked, match="3 of 4 calls failed") as caught:
        recorded(files, "by", partial=False)
    assert caught.value.urls == ("https://example.org/x",)
    assert (
        "--partial makes the mod without the calls that failed; put the files that the command downloads"
        in str(caught.value.hint)
    )
    beside = f"{PUT}{NEEDS}socket.create_connection(('192.0.2.1', 443))\n"
    with pytest.raises(Refused, match="It refused"):
        recorded({"run.sh": "python3 x.py || true\n", "x.py": beside}, "by")


def test_what_no_call_of_goes_through_is_told_from_a_function_of_bash() -> None:
    script = "put() { rm $VLLM_PACKAGE_DIR/a.py; }\nput a\n"
    with pytest.raises(Refused, match="0 calls of put") as caught:
        recorded({"run.sh": script}, "put")
    assert "bash functions are neither" in str(caught.value.hint)
