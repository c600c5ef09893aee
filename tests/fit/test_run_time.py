"""Code that writes attributes of classes and modules while it runs is not refused for what it has written."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, Level
from vllm_mods.fit import fit

A = b"""class Worker:
    def __init__(self):
        self.x = 1

    def run(self, a):
        return a


def helper(a):
    return a
"""
USE = b"""import functools
import vllm.a as a
from vllm.a import Worker, helper
"""


def errors(added: str) -> list[Finding]:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": A, "vllm/use.py": USE})
    change = FileChange("vllm/use.py", USE, USE + added.encode())
    return [one for one in fit((change,), tree).findings if one.level is Level.ERROR]


WORKING = {
    "a method is put into a class": """
def fast(self, b):
    return b
Worker.fast = fast
def x(w: Worker):
    return w.fast(1)
""",
    "a function takes the place of another": """
def other(a, b=1, *, c=2):
    return a
a.helper = other
def x():
    return a.helper(1, 2, c=3)
""",
    "by the module's whole name": """
import vllm.a
def other(a, b):
    return a
vllm.a.helper = other
def x():
    return vllm.a.helper(1, 2)
""",
    "a module gets a name": """
a.extra = lambda q: q
def x():
    return a.extra(2)
""",
    "and it is imported": """
a.fresh = lambda: 1
def x():
    from vllm.a import fresh
    return fresh()
""",
    "by setattr": """
setattr(Worker, "fast", lambda self, z: z)
def x(w: Worker):
    return w.fast(3)
""",
    "by setattr in a loop": """
for name in ("p", "q"):
    setattr(Worker, name, lambda self: name)
def x(w: Worker):
    return w.p()
""",
    "by a decorator": """
def patch(cls):
    def decorate(f):
        setattr(cls, f.__name__, f)
        return f
    return decorate
@patch(Worker)
def added(self):
    return 1
def x(w: Worker):
    return w.added()
""",
    "a method is wrapped": """
_run = Worker.run
@functools.wraps(_run)
def run(self, a, extra=None):
    return _run(self, a)
Worker.run = run
def x(w: Worker):
    return w.run(1, extra=2)
""",
    "a constructor is exchanged": """
def init(self, size):
    self.size = size
Worker.__init__ = init
def x():
    return Worker(3).size
""",
    "a subclass gets a property": """
class Fast(Worker):
    pass
Fast.turbo = property(lambda self: 1)
def x(w: Fast):
    return w.turbo
""",
    "a module by sys.modules": """
import sys
def x():
    module = sys.modules["vllm.a"]
    module.thing = 1
    return module.thing + a.thing
""",
    "a decorated function in a class is no method": """
import triton
class Kernels:
    @triton.jit
    def kernel(cfg, n):
        return cfg.REL_EXTENT
""",
}
BROKEN = {
    "another name is written": """
Worker.fast = lambda self: 1
def x(w: Worker):
    return w.fats()
""",
    "another module is written to": """
import vllm.use as use
use.extra = 1
def x():
    return a.other
""",
    "self under a decorator": """
import triton
class Kernels:
    @triton.jit
    def kernel(self, n):
        return self.REL_EXTENT
""",
    "a loop of setattr on another class": """
class Mine:
    pass
for name in ("p", "q"):
    setattr(Mine, name, 1)
def x(w: Worker):
    return w.p
""",
}


@pytest.mark.parametrize("what", WORKING)
def test_what_is_written_at_run_time_is_there(what: str) -> None:
    assert errors(WORKING[what]) == []


@pytest.mark.parametrize("what", BROKEN)
def test_what_nobody_writes_is_not(what: str) -> None:
    assert len(errors(BROKEN[what])) == 1


def test_what_may_rest_on_a_write_is_a_note_that_says_so() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": A, "vllm/use.py": USE})
    added = WORKING["a module gets a name"].encode()
    findings = fit((FileChange("vllm/use.py", USE, USE + added),), tree).findings
    (note,) = [one for one in findings if one.code == FindingCode.FIT_IMPORT]
    assert note.level is Level.NOTE
    assert note.message.endswith("(extra is written while the code runs)")
