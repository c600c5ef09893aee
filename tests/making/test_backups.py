"""Backups and rejects that lie beside a file are no part of a mod, whichever way it is made; each is said."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of

from vllm_mods.making import compose, from_diff, recording
from vllm_mods.making.recording import Limits

FILES = {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n", "vllm/k.so": b"\0k"}


class Whole(MemoryTree):
    """A tree that lists all that it has."""

    def paths(self, under: str = "vllm") -> list[str]:
        return [path for path in self.files if path.startswith(f"{under}/" if under else "")]


TREE = Whole(FILES, version="0.19.1")
ASIDE = (
    *("a.py.orig", "a.py.bak", "a.py~", "a.py.bak-2026.01.01", "a.py.backup", "a.py.old", "a.bak"),
    *(".a.py.swp", "#a.py#", "a.py.orig~", "k.so.bak", "a.py.save"),
)
OWN = (
    "b.py.bak",
    "bak.py",
    "a.pyi",
    "a_old.py",
    "a.older.py",
    "old",
    "sub/a.py.bak",
    "a.oldest.py",
)
"""What has no file beside it, or another ending."""


def test_of_two_trees() -> None:
    left = {f"vllm/{name}": b"A = 1\n" for name in (*ASIDE, "a.py.rej")}
    own = {f"vllm/{name}": b"x\n" for name in OWN}
    new = Whole(FILES | left | own | {"vllm/a.py": b"A = 2\n"}, version="0.19.1")
    effect = compose.difference(TREE, new)
    assert {one.path for one in effect.changes} == {"vllm/a.py", *own}
    assert {note.split()[2].rstrip(":") for note in effect.notes} == left.keys()
    assert "left out vllm/a.bak: it looks like a backup of vllm/a.py" in effect.notes
    # one that a release has itself is a file like any other
    had = Whole(FILES | {"vllm/a.py.bak": b"x\n"}, version="0.19.1")
    assert len(compose.difference(had, TREE).changes) == 1


def test_of_a_diff() -> None:
    diff = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
    diff += b"--- /dev/null\n+++ b/vllm/a.py.orig\n@@ -0,0 +1 @@\n+A = 1\n"
    effect = from_diff.changes(diff, "x.diff", TREE)
    assert [one.path for one in effect.changes] == ["vllm/a.py"]
    assert effect.notes[-1] == "left out vllm/a.py.orig: it looks like a backup of vllm/a.py"


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("step", "aside"),
    [
        ("sed -i.bak s/1/2/ a.py", "vllm/a.py.bak"),
        ("perl -pi.old -e s/1/2/ a.py", "vllm/a.py.old"),
        ("cp a.py a.py~; echo 'A = 2' > a.py", "vllm/a.py~"),
        ("patch --forward -b -p1 -d .. < $OLDPWD/x.patch", "vllm/a.py.orig"),
    ],
)
def test_of_a_script(step: str, aside: str) -> None:
    files = {"run.sh": f'set -e\ncd "$VLLM_PACKAGE_DIR"\n{step}\n'.encode()}
    files["x.patch"] = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
    effect = recording.record(["bash", "run.sh"], "mine", files, TREE, Limits(seconds=30))
    assert [(one.path, one.after) for one in effect.changes] == [("vllm/a.py", b"A = 2\n")]
    assert effect.notes == (f"left out {aside}: it looks like a backup of vllm/a.py",)
