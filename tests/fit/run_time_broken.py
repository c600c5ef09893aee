"""Code that replaces what is vLLM's at run time, and breaks it: by what is wrong."""

BROKEN = {
    "a method that takes too few": """
def step(self): return (), 0
Worker.step = step
""",
    "a method without the keyword that is passed": """
def step(self, batch): return batch, 1
Worker.step = step
""",
    "a method that calls the keyword otherwise": """
def step(self, batch, *, dry_run=False): return batch, 1
Worker.step = step
""",
    "a method that needs one more": """
def run(self, a, stream): return a
Worker.run = run
""",
    "a method without self": """
def run(a): return a
Worker.run = run
""",
    "a lambda that takes too few": """
Worker.run = lambda self: 1
""",
    "a function that takes too few": """
a.helper = lambda: []
""",
    "a function that its own module calls": """
def split(): return "", ""
a.split = split
""",
    "by setattr": """
def step(self, batch): return batch, 1
setattr(Worker, "step", step)
""",
    "the method of another class": """
class Donor:
    def step(self, batch): return batch, 1
Worker.step = Donor.step
""",
    "a static method that has self": """
def run(self, a): return a
Worker.run = staticmethod(run)
""",
    "a function in place of a static method": """
def parse(text): return []
Worker.parse = parse
""",
    "a function in place of a class method": """
def make(cls, name): return cls()
Worker.make = make
""",
    "a function in place of a property": """
def size(self): return 1
Worker.size = size
""",
    "a plain function in place of a coroutine": """
def fetch(self, key): return {"key": key}
Worker.fetch = fetch
""",
    "a coroutine in place of a plain function": """
async def step(self, batch, *, dry=False): return batch, 1
Worker.step = step
""",
    "a method that gives one value": """
def step(self, batch, *, dry=False): return (batch,)
Worker.step = step
""",
    "a method that gives three values": """
def step(self, batch, *, dry=False): return batch, 1, 2
Worker.step = step
""",
    "a function that gives three values": """
def split(text): return text, text, text
a.split = split
""",
    "a constructor that needs something": """
def init(self, size): self.x = size
Worker.__init__ = init
""",
    "a wrapper that takes too few": """
_step = Worker.step
@functools.wraps(_step)
def step(self, batch): return _step(self, batch)
Worker.step = step
""",
    "a partial method with one too many": """
Worker.run = functools.partialmethod(Worker.run, 1)
""",
    "a class that needs something": """
class Other:
    def __init__(self, size): ...
a.Worker = Other
""",
    "in a function that installs it": """
def install():
    def step(self, batch): return batch, 1
    Worker.step = step
""",
    "in a function that imports the class": """
def install():
    from vllm.a import Worker as Theirs
    def step(self, batch): return batch, 1
    Theirs.step = step
""",
    "as long as a context lasts": """
import contextlib
@contextlib.contextmanager
def fast():
    kept = Worker.run
    Worker.run = lambda self: 1
    try:
        yield
    finally:
        Worker.run = kept
""",
    "where a variable says so": """
import os
if os.environ.get("FAST"):
    def step(self, batch): return batch, 1
    Worker.step = step
""",
    "by mock.patch.object": """
from unittest import mock
def bad(self): return (), 0
mock.patch.object(Worker, "step", bad).start()
""",
    "under another name of the class": """
Theirs = Worker
def step(self, batch): return batch, 1
Theirs.step = step
""",
    "by the whole name of the module": """
import vllm.a
def step(self, batch): return batch, 1
vllm.a.Worker.step = step
""",
    "what a function makes": """
def wrapping(before):
    def step(self, batch): return before(self, batch)
    return step
Worker.step = wrapping(Worker.step)
""",
    "by a decorator that replaces": """
def replaces(cls, name):
    def decorate(function):
        setattr(cls, name, function)
        return function
    return decorate
@replaces(Worker, "step")
def step(self, batch): return batch, 1
""",
    "the method of an instance": """
def calm(engine: Engine):
    engine.worker.step = lambda batch: (batch, 1)
""",
    "the original is gone": """
_gone = Worker.gone
def gone(self): return _gone(self)
Worker.gone = gone
""",
    "the original is gone, in a function": """
def install():
    before = Worker.gone
    Worker.gone = lambda self: before(self)
""",
    "the original function is gone": """
_gone = a.gone
a.gone = lambda: _gone()
""",
    "what is wrapped is gone": """
@functools.wraps(Worker.gone)
def gone(self): return 1
Worker.gone = gone
""",
    "the original is called with too few": """
_run = Worker.run
def run(self, a): return _run(self)
Worker.run = run
""",
    "the original is called with too many": """
def install():
    before = Worker.run
    def run(self, a): return before(self, a, 1)
    Worker.run = run
""",
    "imported from where it is no more": """
from vllm.a import gone
a.helper = gone
""",
    "imported from a module that is no more": """
from vllm.gone import Planner
Planner.run = lambda self: 1
""",
    "read before it is written": """
start = a.extra
a.extra = 1
""",
    "read before it is written, in a function": """
def x(w: Worker):
    if w.turbo:
        Worker.turbo = True
""",
    "written on the other path": """
def x(flag):
    if flag:
        Worker.turbo = True
    else:
        return Worker.turbo
""",
    "under a misspelt name": """
def stpe(self, batch, *, dry=False): return batch, 1
Worker.stpe = stpe
""",
    "under a misspelt name, by setattr": """
setattr(Worker, "setp", lambda self, batch, dry=False: (batch, 1))
""",
    "written on another class": """
class Mine: ...
Mine.turbo = lambda self: 1
def x(w: Worker):
    return w.turbo()
""",
    "written on another class of vLLM": """
Engine.turbo = lambda self: 1
def x(w: Worker):
    return w.turbo()
""",
    "written on another module": """
import vllm.engine as engine
engine.extra = 1
def x():
    return a.extra
""",
    "setattr without a value": """
setattr(Worker, "step")
""",
    "called where it should be put in": """
def run(self, a): return a
Worker.run = run()
""",
    "what is taken out is not there": """
del Worker.turbo
""",
    "a frozen field": """
def x(options: Options):
    options.depth = 2
""",
    "a member of an enumeration": """
Worker.kind = Kind.HUGE
""",
    "a class that cannot be made takes a place": """
class Mine(Store):
    def load(self, name): ...
a.Store = Mine
def x():
    return Mine()
""",
    "super in a function outside": """
def run(self, a): return super(Fast, self).walk(a)
Fast.run = run
""",
    "the result of the original is unpacked": """
_step = Worker.step
def step(self, batch, *, dry=False):
    one, two, three = _step(self, batch)
    return one, two
Worker.step = step
""",
}

MISSED = {
    "a partial method with one too many",
    "by a decorator that replaces",
    "the method of an instance",
    "super in a function outside",
}
"""What nobody sees yet: who finds one of these takes it out here."""
