"""What a mod takes out of a file has users elsewhere: a whole tree shows them, and one read in parts proves nothing."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import OverlayFile, Verdict
from vllm_mods.planning import lock_entries
from vllm_mods.planning.planner import plan

PATH = "vllm/entrypoints/serving.py"
SERVING = """\
import os
from vllm.base import Base

LIMIT = 1


def load(path):
    return os.fspath(path)


class OpenAIServing(Base):
    def _with_cleanup(self, work):
        return work

    def serve(self, work):
        return self._other(work)

    def _other(self, work):
        return work
"""
METHOD = "    def _with_cleanup(self, work):\n        return work\n\n"
SUBCLASS = """\
from vllm.entrypoints.serving import OpenAIServing


class Chat(OpenAIServing):
    def create(self, work):
        return {}
"""
REMOVED = {
    "a method, by subclasses": (
        SERVING.replace(METHOD, ""),
        SUBCLASS.format("self._with_cleanup(work)"),
    ),
    "a renamed method": (
        SERVING.replace("_with_cleanup", "_with_care"),
        SUBCLASS.format("self._with_cleanup(work)"),
    ),
    "a method, by super": (
        SERVING.replace(METHOD, ""),
        SUBCLASS.format("super()._with_cleanup(work)"),
    ),
    "a method, of an instance": (
        SERVING.replace(METHOD, ""),
        "from vllm.entrypoints.serving import OpenAIServing\n\nOpenAIServing()._with_cleanup(1)\n",
    ),
    "a method, of the class": (
        SERVING.replace(METHOD, ""),
        "from vllm.entrypoints import serving\n\nRUN = serving.OpenAIServing._with_cleanup\n",
    ),
    "a function, of its module": (
        SERVING.replace("def load", "def load_all"),
        "from vllm.entrypoints import serving\n\nserving.load(1)\n",
    ),
    "a constant, of its module": (
        SERVING.replace("LIMIT = 1\n", ""),
        "import vllm.entrypoints.serving as serving\n\nprint(serving.LIMIT)\n",
    ),
    "a class": (
        SERVING.replace("OpenAIServing", "Serving"),
        "from vllm.entrypoints.serving import OpenAIServing\n",
    ),
    "an import, by who imports it from here": (
        SERVING.replace("import os\n", "").replace("os.fspath(path)", "path"),
        "from vllm.entrypoints.serving import os\n",
    ),
    "a base, by who calls what it has": (
        SERVING.replace("(Base)", "").replace("from vllm.base import Base\n", ""),
        SUBCLASS.format("self.of_base(work)"),
    ),
}


def tree(user: str, *, remote: bool = False) -> MemoryTree:
    files = {f"vllm/f{number}.py": "A = 1\n" for number in range(30)}
    files |= {PATH: SERVING, "vllm/zz/first.py": user, "vllm/zz/second.py": user}
    files |= {"vllm/base.py": "class Base:\n    def of_base(self, work):\n        return work\n"}
    files |= {f"vllm/{name}__init__.py": "" for name in ("", "entrypoints/", "zz/")}
    return MemoryTree({path: text.encode() for path, text in files.items()}, remote=remote)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["patch", "overlay"])
@pytest.mark.parametrize("name", REMOVED)
def test_what_is_used_elsewhere_does_not_go_and_no_lock_says_so(name: str, form: str) -> None:
    after, user = REMOVED[name]
    overlay = OverlayFile("x.py", PATH, after.encode(), (sha256(SERVING.encode()),))
    removing = mod(
        variant(diff_of(PATH, SERVING, after)) if form == "patch" else variant(overlay=(overlay,))
    )
    assert plan([removing], tree(user)).mods[0].verdict is Verdict.UNFIT
    there = tree(user, remote=True)
    assert lock_entries.entry(plan([removing], there).mods[0]) is None
    assert lock_entries.entry(plan([removing], tree("A = 1\n")).mods[0]) is not None
