"""Code that replaces what is vLLM's at run time, and works: by how it does it."""

WORKING = {
    "a method that takes what is passed": """
def step(self, batch, *, dry=False): return batch, 1
Worker.step = step
""",
    "a method that takes anything": """
def step(self, *args, **kwargs): return args, 1
Worker.step = step
""",
    "a method with one more that has a default": """
def run(self, a, stream=None): return a
Worker.run = run
""",
    "a static method that takes no self": """
Worker.run = staticmethod(lambda a: a)
""",
    "a static method in place of one": """
def parse(text): return []
Worker.parse = staticmethod(parse)
""",
    "a plain function for a static method that is called on the class": """
def parse(self, text): return []
Worker.parse = parse
""",
    "a class method in place of one": """
@classmethod
def make(cls, name): return cls()
Worker.make = make
""",
    "a property in place of one": """
Worker.size = property(lambda self: 1)
""",
    "a property by its decorator": """
@property
def size(self): return 1
Worker.size = size
""",
    "a function that gives a coroutine in place of one": """
_fetch = Worker.fetch
def fetch(self, key): return _fetch(self, key)
Worker.fetch = fetch
""",
    "a coroutine in place of one": """
async def fetch(self, key): return key
Worker.fetch = fetch
""",
    "a method that gives what another gives": """
_step = Worker.step
def step(self, batch, *, dry=False): return _step(self, batch, dry=dry)
Worker.step = step
""",
    "a method that gives two values or an exception": """
def step(self, batch, *, dry=False):
    if not dry:
        raise RuntimeError("busy")
    return batch, 1
Worker.step = step
""",
    "a constructor that takes more, with defaults": """
_init = Worker.__init__
def init(self, size=1, **kwargs): _init(self)
Worker.__init__ = init
""",
    "a partial method": """
Worker.step = functools.partialmethod(Worker.step)
""",
    "a class below takes the place": """
class Other(Worker):
    def __init__(self, size=2):
        super().__init__()
a.Worker = Other
""",
    "a context that patches and restores": """
import contextlib
@contextlib.contextmanager
def fast():
    kept = Worker.run
    Worker.run = lambda self, a: 1
    try:
        yield
    finally:
        Worker.run = kept
""",
    "what a function makes of the original": """
def wrapping(before):
    @functools.wraps(before)
    def step(self, batch, *, dry=False): return before(self, batch, dry=dry)
    return step
Worker.step = wrapping(Worker.step)
""",
    "a wrapper for every method": """
def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs): return function(*args, **kwargs)
    return inner
for name in ("run", "step"):
    setattr(Worker, name, timed(getattr(Worker, name)))
""",
    "by a decorator that replaces": """
def replaces(cls, name):
    def decorate(function):
        setattr(cls, name, function)
        return function
    return decorate
@replaces(Worker, "step")
def step(self, batch, dry=False): return batch, 1
""",
    "the original under a name of its own": """
Worker._plain_run = Worker.run
def run(self, a, more=None): return self._plain_run(a)
Worker.run = run
def x(w: Worker):
    return w.run(1, more=2)
""",
    "the method of an instance": """
def calm(engine: Engine):
    engine.worker.step = lambda batch, dry: (batch, 1)
""",
    "a lambda that gives what it unpacks": """
Worker.step = lambda self, batch, *, dry=False: (*[batch, 1],)
""",
    "a function that its own module calls": """
def split(text, at=1): return text[:at], text[at:]
a.split = split
""",
    "written in a function that is called first": """
def install():
    a.extra = 1
install()
start = a.extra
""",
    "written before it is read": """
a.extra = 1
start = a.extra
""",
    "written on each path": """
import os
if os.environ.get("FAST"):
    Worker.turbo = True
else:
    Worker.turbo = False
def x(w: Worker):
    return w.turbo
""",
    "written on one path and read there": """
def x(flag):
    if flag:
        Worker.turbo = True
        return Worker.turbo
""",
    "written in the round before": """
def x():
    for number in range(3):
        if number:
            print(Worker.turbo)
        Worker.turbo = number
""",
    "written on a class above": """
Worker.turbo = True
def x(w: Fast):
    return w.turbo
""",
    "written on a class below": """
Fast.turbo = True
def x(w: Worker):
    return w.turbo
""",
    "written through another name of the class": """
Theirs = a.Worker
Theirs.turbo = True
def x(w: Worker):
    return w.turbo
""",
    "read by a function that is called later": """
def x(w: Worker):
    return w.turbo
Worker.turbo = True
""",
    "a module takes the place of one that is gone": """
import sys
import vllm.a as planner
sys.modules["vllm.gone"] = planner
from vllm.gone import Planner
""",
    "a module that is made of a class": """
import sys
class Gone:
    Planner = Worker
sys.modules["vllm.gone"] = Gone()
import vllm.gone
def x():
    from vllm.gone import Planner
    return Planner()
""",
    "for another version": """
import vllm
if vllm.__version__ == "0.15.0":
    from vllm.gone import Planner
    Planner.run = lambda self: 1
else:
    Worker.run = lambda self, a: 1
""",
    "for another version, by a function": """
def vllm_version_is(version): ...
def install():
    if vllm_version_is("0.15.0"):
        Worker.gone.__name__
        a.helper(1, 2, 3)
""",
    "the name that there is": """
target = "gone" if hasattr(Worker, "gone") else "run"
setattr(Worker, target, lambda self, a: a)
if hasattr(a, "gone"):
    before = a.gone
    a.gone = lambda: before()
""",
    "a fallback under except Exception": """
try:
    depth = Worker.depth
except Exception:
    depth = 1
""",
    "a name of ours that only others read": """
def report(self): return self.x
Worker.report_state = report
""",
    "a marker": """
Worker._patched_by_me = True
""",
    "types.MethodType on a typed attribute": """
import types
def step(self, batch, dry=False): return batch, 1
def calm(engine: Engine):
    engine.worker.step = types.MethodType(step, engine.worker)
""",
    "a class with what is left of the interface": """
class Mine(Store):
    def load(self, name): ...
Mine.save = lambda self, name, data: None
Mine.__abstractmethods__ = frozenset()
def x():
    return Mine()
""",
    "what is put in is handed in": """
def step(): ...
def install(step):
    Worker.step = step
""",
    "a method of the class around is not meant": """
class Installer:
    def run(self): ...
    def install(self, run):
        Worker.run = run
""",
    "one of two is put in": """
import os
if os.environ.get("FAST"):
    def step(self): ...
else:
    def step(self, batch, dry=False): return batch, 1
Worker.step = step
""",
}
