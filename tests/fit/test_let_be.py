"""What working plugins do, and looks wrong at first: each is let be, and its broken neighbour is not."""

from __future__ import annotations

import pytest
from fit_tree import errors, tree_of

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit

FILES = {
    "vllm/__init__.py": "",
    "vllm/envs.py": """
        names = {"VLLM_" + "PORT": 1}


        def __getattr__(name):
            if name in {"VLLM_PORT"}:
                return names[name]
            raise AttributeError(name)
    """,
    "vllm/base.py": """
        class Backend:
            @staticmethod
            def shape(blocks, size, kind="auto"):
                return blocks, size

            def mha(self, q, k, output): ...


        class Flash(Backend): ...


        class Eager(Backend): ...


        def mha(q, k, output): ...


        def load(name):
            return name


        def blocks(backend: type[Backend], number):
            kinds = tuple(one for one in (Flash, load(Eager)) if one is not None)
            if not issubclass(backend, kinds):
                raise NotImplementedError(backend)
            return lambda size: backend.shape(number, size, "auto")


        def run(backend: Backend, q):
            return mha(q, q, output=None) or backend.mha(q, q, output=None)
    """,
    "vllm/mine.py": """
        from vllm import envs
        from vllm.base import Backend, Flash


        class Mine(Backend):
            x = 1
    """,
}
SHAPE = "@staticmethod\n    def shape(blocks, size):\n        return blocks, size"
RAISES = 'raise NotImplementedError("call forward")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "line", "wrong"),
    [
        ("Backend", SHAPE, ""),
        ("Flash", SHAPE, "fails: too many positional arguments"),
        ("Backend", f"def mha(self, name):\n        {RAISES}", ""),
        ("Backend", f'def mha(self, name):\n        """Not here."""\n        {RAISES}', ""),
        (
            "Backend",
            f"def mha(self, name):\n        print(name)\n        {RAISES}",
            "too many positional",
        ),
        ("Backend", "try:\n        y = envs.VLLM_HOST\n    except Exception:\n        y = 1", ""),
        (
            "Backend",
            "try:\n        y = envs.VLLM_HOST\n    except KeyError:\n        y = 1",
            "VLLM_HOST",
        ),
        # the file is in the tree: its own name in a text loads nothing
        ("Backend", "name = f'{id}.mine'\n    y = envs.VLLM_HOST", "VLLM_HOST"),
        (
            "Backend",
            "def groups(self, of: dict[Backend, int]):\n        for (a, b), c in of.items():\n            print(a, b, c)",
            "",
        ),
        (
            "Backend",
            "def groups(self, of: list[Backend]):\n        for a in of:\n            for b in a:\n                print(b)",
            "not iterable",
        ),
    ],
)
def test_what_looks_wrong_and_works_is_let_be(base: str, line: str, wrong: str) -> None:
    pairs = ("x = 1", line), ("Mine(Backend)", f"Mine({base})")
    found = [one.message for one in errors("vllm/mine.py", *pairs, files=FILES)]
    assert [message for message in found if wrong in message] == found
    assert bool(found) is bool(wrong)


PLUGIN = {
    **FILES,
    "vllm/data.py": """
        from dataclasses import dataclass


        @dataclass
        class Context:
            pieces: list

            def total(self):
                return 1


        class Scheduler:
            def schedule(self, manager: "Manager"):
                return manager.allocate(1, full=True)


        class Manager:
            def allocate(self, number, full=False):
                return number
    """,
    "plugin/__init__.py": "",
    "plugin/envs.py": """
        table = {"PLUGIN_PORT": 1}


        def __getattr__(name):
            if name in {"PLUGIN_PORT"}:
                return table[name]
            import vllm.envs as theirs

            try:
                return getattr(theirs, name)
            except AttributeError:
                raise AttributeError(name) from None
    """,
}
WORKING = {
    "a class whose base is not there": """
from dataclasses import dataclass as made
from elsewhere import Output
@made
class Ours(Output):
    more: int = 1
def x():
    return Ours(loss=1, more=2)
""",
    "a class that workers are made of": """
class Extension:
    def report(self):
        return self.model_runner
options = {"worker_extension_cls": "plugin.mine.Extension"}
""",
    "a module that the code makes": """
import sys
def make(name):
    sys.modules[name] = Context
make("vllm.fresh")
def x():
    from vllm.fresh import Layer
""",
    "a function for another version": """
def legacy():
    return envs.VLLM_TRACE
def setup():
    if importlib.util.find_spec("vllm.profiler") is None:
        return legacy()
    return 1
""",
    "variables of another module": """
from plugin import envs as ours
port = ours.VLLM_HOST
""",
    "a dotted name that is compared": """
def known(name):
    return name == "vllm.gone.Formatter" or name in ("vllm.gone.Other",)
""",
    "what may fail": """
def hint():
    try:
        return Context(1, 2, 3)
    except Exception:
        pass
""",
    "a field that holds something else": """
@dataclass
class Request:
    blocks: tuple[int, ...]
def together(request: Request):
    return [1] + request.blocks
state = {"hits": 0, "places": {}}
state["hits"] += 1
""",
    "the caller is replaced too": """
class OurManager(Manager):
    def allocate(self, number):
        return number
class OurScheduler(Scheduler):
    def schedule(self, manager):
        return manager.allocate(1)
""",
    "a file that is loaded by its place": """
def load(name): ...
load("frozen.py")
""",
    "a module for each version": """
def choose(release):
    if release == (0, 1):
        return ".frozen"
    return ".other"
""",
}
FAILING = {
    "an older form of a class": """
def old(context: Context):
    return context.lengths
""",
    "a class whose base is not there, and has its own constructor": """
from elsewhere import Output
class Ours(Output):
    def __init__(self, more): ...
def x():
    return Ours(loss=1, more=2)
""",
    "a class that is made": """
class Extension:
    def report(self):
        return self.model_runner
report = Extension().report()
""",
    "a module that the code names and does not make": """
name = "vllm.fresh"
def x():
    from vllm.fresh import Layer
""",
    "a function for each version": """
def legacy():
    return envs.VLLM_TRACE
def setup():
    if importlib.util.find_spec("vllm.profiler") is None:
        return legacy()
    return legacy()
""",
    "a variable that neither has": """
from vllm import envs as ours
port = ours.VLLM_HOST
""",
    "a dotted name that is passed on": """
name = str("vllm.gone.Formatter")
""",
    "what may fail, and is told": """
def hint():
    try:
        return Context(1, 2, 3)
    except Exception:
        print("no")
""",
    "values that do not go together": """
def together():
    return [1] + (2, 3)
""",
    "the caller is vLLM's": """
class OurManager(Manager):
    def allocate(self, number):
        return number
""",
    "the caller is replaced, and called too": """
class OurManager(Manager):
    def allocate(self, number):
        return super().allocate(number)
class OurScheduler(Scheduler):
    def schedule(self, manager):
        return super().schedule(manager)
""",
    "a file that is imported": """
from plugin import frozen
""",
}
MINE = "import importlib.util\nfrom dataclasses import dataclass\nfrom vllm import envs\nfrom vllm.data import Context, Manager, Scheduler\n"
FROZEN = "from .gone import Layer\nfrom vllm.data import Context\nnumber = Context(1).lengths\n"


def refused(text: str, frozen: str = "") -> list[str]:
    added = {"plugin/mine.py": MINE + text, **({"plugin/frozen.py": frozen} if frozen else {})}
    changes = tuple(FileChange(path, None, data.encode()) for path, data in added.items())
    found = fit(changes, tree_of(PLUGIN)).findings
    return [one.message for one in found if one.level is Level.ERROR]


@pytest.mark.slow
@pytest.mark.parametrize("what", WORKING)
def test_what_plugins_do_for_several_versions_is_let_be(what: str) -> None:
    imports, _, _ = FROZEN.rpartition("number")
    frozen = {"a module for each version": FROZEN, "a file that is loaded by its place": imports}
    assert refused(WORKING[what], frozen.get(what, "")) == []


@pytest.mark.slow
@pytest.mark.parametrize("what", FAILING)
def test_what_plugins_do_wrong_is_refused(what: str) -> None:
    assert refused(FAILING[what], FROZEN if "file" in what else "") != []
