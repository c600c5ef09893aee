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
    "a class takes the place of another, and is called under a third name": """
class Other:
    def __init__(self, *, size): ...
a.Worker = Other
def x():
    from vllm.a import Worker as Later
    return Later(size=2)
""",
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
    "several names in a loop over a table": """
def one(self): return 1
def two(self): return 2
for name, function in {"one": one, "two": two}.items():
    setattr(Worker, name, function)
def x(w: Worker):
    return w.one() + w.two()
""",
    "by vars": """
vars(a)["made"] = 1
def x():
    return a.made
""",
    "by __dict__ of the module": """
a.__dict__["made"] = lambda: 1
def x():
    return a.made()
""",
    "by __dict__.update": """
a.__dict__.update(made=lambda: 1)
def x():
    return a.made()
""",
    "a function that patches": """
def install(module):
    module.made = lambda: 1
install(a)
def x():
    return a.made()
""",
    "a function that patches a class": """
def install(cls):
    cls.turbo = lambda self: 1
install(Worker)
def x(w: Worker):
    return w.turbo()
""",
    "a class decorator that adds": """
def with_turbo(cls):
    cls.turbo = lambda self: 1
    return cls
@with_turbo
class Fast(Worker):
    pass
def x(w: Fast):
    return w.turbo()
""",
    "a method through partialmethod": """
Worker.twice = functools.partialmethod(Worker.run, 2)
def x(w: Worker):
    return w.twice()
""",
    "types.MethodType on an instance": """
import types
def fast(self):
    return 1
def x(w: Worker):
    w.fast = types.MethodType(fast, w)
    return w.fast()
""",
    "__get__ on an instance": """
def fast(self):
    return 1
def x(w: Worker):
    w.fast = fast.__get__(w)
    return w.fast()
""",
    "an attribute on an instance": """
def x(w: Worker):
    w.label = "a"
    return w.label.upper()
""",
    "an attribute on an instance in another function": """
def mark(w: Worker):
    w.label = "a"
def x(w: Worker):
    mark(w)
    return w.label.upper()
""",
    "a function attribute": """
def counted():
    counted.calls += 1
counted.calls = 0
""",
    "hasattr first": """
def x(w: Worker):
    if hasattr(w, "turbo"):
        return w.turbo()
""",
    "getattr with a default": """
def x(w: Worker):
    return getattr(w, "turbo", None)
""",
    "caught": """
def x(w: Worker):
    try:
        return w.turbo()
    except AttributeError:
        return None
""",
    "a new base at run time": """
class Turbo:
    def turbo(self): return 1
Worker.__bases__ = (Turbo,)
def x(w: Worker):
    return w.turbo()
""",
    "type() makes a class": """
Fast = type("Fast", (Worker,), {"turbo": lambda self: 1})
def x():
    return Fast().turbo()
""",
    "a mixin that is put before": """
class Turbo:
    def run(self, a, b=None):
        return super().run(a)
class Fast(Turbo, Worker):
    pass
def x(w: Fast):
    return w.run(1, b=2)
""",
    "a wrapped module function with *args": """
_helper = a.helper
def helper_too(*args, **kwargs):
    return _helper(*args, **kwargs)
a.helper = helper_too
def x():
    return a.helper(1)
""",
    "an imported name is rebound": """
def wrapped(a, b):
    return a
helper = wrapped
def x():
    return helper(1, 2)
""",
    "globals()": """
globals()["made"] = lambda: 1
def x():
    return made()
""",
    "a guard that it is done once": """
if not getattr(Worker, "_patched", False):
    Worker._patched = True
    _run = Worker.run
    def run(self, a, *rest):
        return _run(self, a)
    Worker.run = run
def x(w: Worker):
    return w.run(1, 2)
""",
    "a property takes the place of a method": """
Worker.size = property(lambda self: self.x)
def x(w: Worker):
    return w.size + 1
""",
    "a static method is put in": """
Worker.made = staticmethod(lambda q: q)
def x():
    return Worker.made(1)
""",
    "a class method is put in": """
Worker.made = classmethod(lambda cls, q: cls())
def x():
    return Worker.made(1)
""",
    "an import hook's module": """
import sys, types
module = types.ModuleType("vllm.made")
module.thing = 1
sys.modules["vllm.made"] = module
def x():
    return module.thing
""",
    "the module is imported after it was made": """
import sys, types
module = types.ModuleType("vllm.made")
module.thing = 1
sys.modules["vllm.made"] = module
from vllm.made import thing
""",
    "unittest.mock.patch.object": """
from unittest import mock
def x():
    with mock.patch.object(a, "made", 1, create=True):
        return a.made
""",
    "importlib by a name": """
import importlib
def x():
    module = importlib.import_module("vllm.a")
    module.made = 1
    return module.made
""",
    "a nested function is patched in a factory": """
def make(base):
    class Made(base):
        def turbo(self): return 1
    return Made
def x():
    return make(Worker)().turbo()
""",
    "setattr of a name that is computed": """
PREFIX = "turbo"
setattr(Worker, PREFIX + "_on", lambda self: True)
def x(w: Worker):
    return w.turbo_on()
""",
    "object.__setattr__ on a frozen one": """
def x(w: Worker):
    object.__setattr__(w, "label", "a")
    return w.label
""",
}
WORKING |= {
    "a kernel's numbers are tensors": """
import triton
@triton.jit
def kernel(out, n: int):
    for i in range(3):
        i.to(n)
    return kernel
""",
    "a result is stated shorter than it is": """
def pair() -> tuple[int, int]:
    return 1, 2, 3
def x():
    a, b, c = pair()
""",
}
BROKEN = {
    "a keyword has the name of an attribute": """
def keep(other):
    other.cached = 1
def x():
    return Worker(cached=2)
""",
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
    "a function that patches another module": """
import vllm.use as use
def install(module):
    module.made = 1
install(use)
def x():
    return a.made
""",
    "a table of another module": """
import vllm.use as use
vars(use)["made"] = 1
def x():
    return a.mode
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


@pytest.mark.slow
@pytest.mark.parametrize("what", WORKING)
def test_what_is_written_at_run_time_is_there(what: str) -> None:
    assert errors(WORKING[what]) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_what_nobody_writes_is_not(what: str) -> None:
    assert len(errors(BROKEN[what])) == 1


def test_what_may_rest_on_a_write_is_a_note_that_says_so() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": A, "vllm/use.py": USE})
    added = WORKING["a module gets a name"].encode()
    findings = fit((FileChange("vllm/use.py", USE, USE + added),), tree).findings
    (note,) = [one for one in findings if one.code == FindingCode.FIT_IMPORT]
    assert note.level is Level.NOTE
    assert note.message.endswith("(extra is changed at run time)")
