"""What fit says no to, what it lets through, and what it can't tell."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pytest
from fit_tree import BASE, FILES, INC, change, errors, findings, tree_of
from memory_tree import MemoryTree

from vllm_mods.base.model import Allowance, FileChange, Level
from vllm_mods.fit import Fit, fit
from vllm_mods.fit.world import SummaryCache

if TYPE_CHECKING:
    from collections.abc import Collection

CONFIG = "vllm/config/vllm.py"
PICK = "        return Layer(name, self.bits)\n"
OLD_SIGNATURE = (
    PICK,
    PICK
    + "\n    def maybe_update_config(self, model_name, revision=None):\n        self.model = model_name\n",
)

# (file, text, text instead, code of the one error, words that its message has)
NOES = [
    (INC, PICK, "        return Layer(name self.bits)\n", "fit-syntax", "Python 3.10"),
    (INC, PICK, "        return Layre(name, self.bits)\n", "fit-undefined-name", "Layre"),
    (INC, "import init_logger\n", "import init_loger as init_logger\n", "fit-import", "init_loger"),
    (INC, "import dataclass, field", "import dataclass, feild as field", "fit-import", "feild"),
    (INC, "from vllm.logger import", "from vllm.loggers import", "fit-import", "vllm.loggers"),
    (INC, PICK, "        return VllmConfig()\n", "fit-undefined-name", "type checkers only"),
    (INC, PICK, "        return Layer(name, bitz=self.bits)\n", "fit-call", "`bitz`"),
    (INC, PICK, "        return Layer(name, 1, [], 2)\n", "fit-call", "expected 3, got 4"),
    (INC, PICK, "        return Layer(bits=1)\n", "fit-call", "required parameter `name`"),
    (
        INC,
        PICK,
        "        return self.get_name(name)\n",
        "fit-call",
        "bound method `INCConfig.get_name`",
    ),
    (INC, PICK, "        return type(name)(self.bitz)\n", "fit-attribute", "self.bitz"),
    (INC, "                self.bits = bits\n".lstrip(), "pass\n", "fit-attribute", "self.bits"),
    (INC, "import dataclass, field\n", "import dataclass\n", "fit-undefined-name", "field"),
    (INC, "bits: int, group: int = 128", "group: int = 128", "fit-undefined-name", "bits"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "old", "new", "code", "words"), NOES)
def test_no(path: str, old: str, new: str, code: str, words: str) -> None:
    found = errors(path, (old, new))
    assert [finding.code for finding in found] == [code]
    assert words in found[0].message
    assert found[0].path == path
    assert f"{path}:{found[0].line}: " in found[0].message


YESES = [
    (INC, PICK, "        return Layer(name, bits=self.bits, tags=[])\n"),
    (INC, PICK, "        return Layer(*name, **{})\n"),
    (INC, PICK, "        return self.packed_modules_mapping.get(name)\n"),
    (INC, "from vllm.logger import init_logger\n", "from vllm import LLM\ninit_logger = LLM\n"),
    (INC, "import dataclass, field\n", "import dataclass, field, replace\n"),
    (INC, PICK, "        from vllm.config import make\n        return make(name, seed=1)\n"),
    (INC, PICK, "        return getattr(self, 'anything', None)\n"),
    (INC, PICK, "        return self.soon if hasattr(self, 'soon') else None\n"),
    (
        INC,
        PICK,
        "        try:\n            import vllm.nothing\n        except ImportError:\n            pass\n",
    ),
    (INC, PICK, "        import vllm._C\n"),
    # vllm/benchmarks/forward/pipeline.py of 0.33.0: set in a function inside a method
    (
        INC,
        PICK,
        "        def keep(batch):\n            self.batch = batch\n\n        keep(1)\n        return self.batch\n",
    ),
    # vllm/model_executor/models/gpt_oss.py of 0.29.0
    (
        INC,
        PICK,
        PICK
        + "\n    import typing\n\n    @typing.overload\n    def one(self, a: int) -> int: ...\n"
        "\n    @typing.overload\n    def one(self, a: str) -> str: ...\n"
        "\n    def one(self, a):\n        return a\n",
    ),
    (INC, PICK, "        return [bit for bit in range(self.bits) if (more := bit)]\n"),
]


FALLBACK = """\
        try:
            from vllm.logger import {first}
        except ImportError:
            from vllm.logger import {second} as {first}
        return {first}
"""


@pytest.mark.slow
def test_an_import_to_fall_back_on_is_no_error() -> None:
    old = FALLBACK.format(first="init_logger", second="make_logger")
    assert [(f.code, f.level) for f in findings(INC, (PICK, old))] == [("fit-unknown", Level.NOTE)]
    new = FALLBACK.format(first="make_logger", second="init_logger")
    assert errors(INC, (PICK, new)) == []


@pytest.mark.slow
def test_a_fallback_that_can_be_reached_another_way_counts_always() -> None:
    old = FALLBACK.format(first="init_logger", second="make_logger")
    more = old.replace("        except", "            init_logger(str(self))\n        except")
    (found,) = errors(INC, (PICK, more))
    assert (found.code, "make_logger" in found.message) == ("fit-import", True)


@pytest.mark.slow
def test_a_fallback_for_what_cannot_be_told_is_a_note() -> None:
    maybe = FALLBACK.replace("vllm.logger import {first}", "elsewhere import {first}")
    found = findings(INC, (PICK, maybe.format(first="one", second="make_logger")))
    assert [(f.code, f.level) for f in found] == [("fit-unknown", Level.NOTE)]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "old", "new"), YESES)
def test_no_false_alarm(path: str, old: str, new: str) -> None:
    assert errors(path, (old, new)) == []


@pytest.mark.slow
def test_an_override_must_take_the_calls_of_the_tree() -> None:
    (found,) = errors(INC, OLD_SIGNATURE)
    assert found.code == "fit-override"
    assert found.scope == "INCConfig.maybe_update_config"
    assert "QuantizationConfig.maybe_update_config" in found.message
    assert f"{CONFIG}:11" in found.message
    assert "hf_config=" in found.message


@pytest.mark.slow
def test_the_same_override_fits_where_nobody_passes_the_keyword() -> None:
    files = FILES | {CONFIG: FILES[CONFIG].replace("(model, hf_config=hf_config)", "(model)")}
    assert errors(INC, OLD_SIGNATURE, files=files) == []


@pytest.mark.slow
def test_a_remote_tree_is_read_whole_and_once() -> None:
    files = FILES | {f"vllm/models/m{number}.py": "x = 1\n" for number in range(20)}
    tree = LoadedTree(tree_of(files).files, remote=True)
    found = fit((change(tree, INC, OLD_SIGNATURE),), tree).findings
    assert [f.code for f in found if f.level is Level.ERROR] == ["fit-override"]
    assert tree.loaded == [sorted(path for path in files if path.endswith(".py"))]


class LoadedTree(MemoryTree):
    """A tree that remembers which files it was asked to have here."""

    @cached_property
    def loaded(self) -> list[list[str]]:
        return []

    def load(self, paths: Collection[str]) -> None:
        self.loaded.append(sorted(paths))


@pytest.mark.slow
def test_overrides_elsewhere_must_follow_a_changed_signature() -> None:
    inc = (
        FILES[INC]
        + "\n            def maybe_update_config(self, model_name, hf_config=None, revision=None):\n                pass\n"
    )
    files = FILES | {INC: inc, CONFIG: FILES[CONFIG].replace("hf_config=hf_config)", "extra=1)")}
    (found,) = errors(BASE, ("revision=None)", "revision=None, extra=None)"), files=files)
    assert (found.code, found.path) == ("fit-override", BASE)
    assert INC in found.message
    assert "extra=" in found.message


@pytest.mark.slow
def test_a_call_elsewhere_must_follow_a_changed_signature() -> None:
    files = FILES | {"vllm/v1/run.py": "from vllm.config import make\n\nmake('m', seed=3)\n"}
    (found,) = errors(CONFIG, ("model, *, seed=0", "model"), files=files)
    assert (found.code, found.path, found.line) == ("fit-call", "vllm/v1/run.py", 3)


@pytest.mark.slow
def test_a_removed_name_must_not_be_imported_elsewhere() -> None:
    found = errors("vllm/logger.py", ("init_logger", "make_logger"))
    assert {(f.code, f.path) for f in found} == {("fit-import", INC)}


def test_a_deleted_module_must_not_be_imported() -> None:
    tree = tree_of(FILES)
    gone = FileChange(path="vllm/logger.py", before=tree.files["vllm/logger.py"], after=None)
    assert {f.code for f in fit((gone,), tree).findings if f.level is Level.ERROR} == {"fit-import"}


@pytest.mark.slow
def test_two_files_of_one_patch_are_judged_together() -> None:
    tree = tree_of(FILES)
    helper = FileChange(path="vllm/new.py", before=None, after=b"def helped(one, *, two): ...\n")
    good = change(
        tree, INC, (PICK, "        from vllm.new import helped\n        helped(1, two=2)\n")
    )
    bad = change(tree, INC, (PICK, "        from vllm.new import helped\n        helped(1, 2)\n"))
    assert not [f for f in fit((helper, good), tree).findings if f.level is Level.ERROR]
    assert [f.code for f in fit((helper, bad), tree).findings if f.level is Level.ERROR] == [
        "fit-call"
    ]
    assert [f.code for f in fit((good,), tree).findings if f.level is Level.ERROR] == ["fit-import"]


@pytest.mark.slow
def test_what_was_wrong_before_is_no_news() -> None:
    wrong = FILES[INC].replace(
        "return Layer(name, self.bits)", "return Layer(nothing, self.bitz, 1, 2)"
    )
    files = FILES | {INC: wrong}
    assert errors(INC, ("Layer(nothing", "Layer( nothing"), files=files) == []


@pytest.mark.slow
def test_a_guard_that_is_there_already_is_reported() -> None:
    guard = "                if name is None:\n                    return None\n"[8:].replace(
        "\n        ", "\n"
    )
    (found,) = errors(INC, (PICK, guard + PICK))
    assert found.code == "fit-duplicate"
    assert found.scope == "INCConfig.pick"


@pytest.mark.slow
def test_a_method_defined_a_second_time_is_reported() -> None:
    again = PICK + "\n    def get_name(self):\n        return 'again'\n"
    assert [f.code for f in errors(INC, (PICK, again))] == ["fit-duplicate"]


@pytest.mark.slow
def test_what_cannot_be_told_is_one_note_per_file() -> None:
    new = "        import torch\n        torch.x(name.y(), name.z())\n        return name(1)\n"
    notes = findings(INC, (PICK, new))
    assert [(n.code, n.level) for n in notes] == [("fit-unknown", Level.NOTE)]
    assert "torch is not in the tree" in notes[0].message


@pytest.mark.slow
def test_packages_beside_vllm_are_judged_by_what_is_installed() -> None:
    files = FILES | {
        "flashinfer/__init__.py": "from .prefill import run\n",
        "flashinfer/prefill.py": "def run(): ...\n",
    }
    good = (
        PICK,
        "        from flashinfer.prefill import run\n        from flashinfer import run\n",
    )
    assert errors(INC, good, files=files) == []
    (found,) = errors(INC, (PICK, "        from flashinfer.prefill import rnu\n"), files=files)
    assert (found.code, "flashinfer/prefill.py" in found.message) == ("fit-import", True)


def test_an_allowance_makes_a_note_with_its_reason() -> None:
    tree = tree_of(FILES)
    allow = Allowance(
        code="fit-override", scope="INCConfig.maybe_update_config", reason="never called here"
    )
    (found,) = fit((change(tree, INC, OLD_SIGNATURE),), tree, allow=(allow,)).findings
    assert found.level is Level.NOTE
    assert "never called here" in found.message


@pytest.mark.slow
def test_a_shared_cache_changes_nothing() -> None:
    cache = SummaryCache()
    tree = tree_of(FILES)
    patch = (change(tree, INC, OLD_SIGNATURE),)
    assert fit(patch, tree, cache=cache) == fit(patch, tree, cache=cache) == fit(patch, tree)
    assert cache.modules


def test_an_answer_rests_on_the_modules_in_question_only() -> None:
    files = FILES | {f"vllm/models/m{number}.py": "x = 1\n" for number in range(50)}
    tree = tree_of(files)
    done = fit((change(tree, INC, (PICK, "        return Layer(name)\n")),), tree)
    assert not [path for path in done.beside if path.startswith("vllm/models/")]


def test_files_that_are_not_python_are_left_alone() -> None:
    change_ = FileChange(path="vllm/config.json", before=b"{}", after=b"{")
    assert fit((change_,), tree_of(FILES)) == Fit()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
def test_marks_and_line_endings_change_nothing(ending: bytes) -> None:
    tree = tree_of(FILES)
    patch = change(tree, INC, OLD_SIGNATURE)
    assert patch.before is not None
    assert patch.after is not None
    before = b"\xef\xbb\xbf" + patch.before.replace(b"\n", ending)
    after = b"\xef\xbb\xbf" + patch.after.replace(b"\n", ending)
    tree.files[INC] = before
    found = fit((FileChange(path=INC, before=before, after=after),), tree).findings
    assert [f.code for f in found if f.level is Level.ERROR] == ["fit-override"]


def test_a_whole_patch_is_judged_against_what_earlier_mods_left() -> None:
    tree = tree_of(FILES)
    earlier = tree.files[INC].replace(b"bits: int, group", b"bits: int, prefix: str, group")
    later = earlier + b"\n\nDEFAULT = INCConfig(4, 'model')\n"
    found = fit((FileChange(path=INC, before=earlier, after=later),), tree).findings
    assert not [f for f in found if f.level is Level.ERROR]


@pytest.mark.slow
def test_an_attribute_of_a_torch_module_may_be_set_from_outside() -> None:
    layer = "import torch.nn as nn\n\n\nclass Layer(nn.Module):\n    def forward(self): ...\n"
    quiet = {"vllm/layer.py": layer, "vllm/method.py": "def setup(layer):\n    layer.other = 1\n"}
    setter = quiet | {"vllm/method.py": "def setup(layer):\n    layer.scale = 1\n"}
    patch = ("def forward(self): ...", "def forward(self):\n        return self.scale")
    assert [f.code for f in errors("vllm/layer.py", patch, files=quiet)] == ["fit-attribute"]
    assert errors("vllm/layer.py", patch, files=setter) == []


@pytest.mark.slow
def test_a_mixin_may_use_what_stands_beside_it() -> None:
    files = {
        "vllm/mixin.py": "class Mixin:\n    def run(self): ...\n",
        "vllm/base.py": "class Base:\n    def step(self, one):\n        return one\n",
        "vllm/model.py": "from vllm.base import Base\nfrom vllm.mixin import Mixin\n\n\nclass Model(Mixin, Base): ...\n",
    }
    good = ("def run(self): ...", "def run(self):\n        self.step(1)")
    bad = ("def run(self): ...", "def run(self):\n        self.stop(1)")
    assert errors("vllm/mixin.py", good, files=files) == []
    assert [f.code for f in errors("vllm/mixin.py", bad, files=files)] == ["fit-attribute"]


def test_the_same_question_about_another_value_is_no_duplicate() -> None:
    again = "        name = self.get_name()\n        if name is None:\n            return None\n"
    assert errors(INC, (PICK, again + PICK)) == []


@pytest.mark.slow
def test_a_call_in_a_method_that_the_class_replaces_does_not_reach_its_override() -> None:
    files = {
        "vllm/runner.py": "class Runner:\n    def run(self, one, two=None): ...\n\n    def warm_up(self):\n        self.run(1, two=2)\n",
        "vllm/encoder.py": "from vllm.runner import Runner\n\n\nclass Encoder(Runner):\n    def warm_up(self): ...\n",
    }
    patch = ("def warm_up(self): ...", "def warm_up(self): ...\n\n    def run(self, one): ...")
    assert errors("vllm/encoder.py", patch, files=files) == []
    files["vllm/encoder.py"] = files["vllm/encoder.py"].replace("warm_up", "other")
    patch = (patch[0].replace("warm_up", "other"), patch[1].replace("warm_up", "other"))
    assert [f.code for f in errors("vllm/encoder.py", patch, files=files)] == ["fit-override"]


SERVER = """\
from fastapi import APIRouter

router = APIRouter()
TABLE = {
    "a": 1,
    "b": 2,
}


@router.post("/count_tokens", dependencies=[1])
async def count_tokens(request):
    return request.tokens


@router.get("/count_tokens")
async def count_of(request):
    return request
"""
ROUTE = """

@router.post("/count_tokens")
async def {name}(request):
    return 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "    return request.tokens\n",
            f"    return request.tokens\n{ROUTE.format(name='other')}",
            "router.post",
        ),
        ('    "b": 2,\n', '    "b": 2,\n    "a": 3,\n', "the key 'a'"),
        (
            "router = APIRouter()\n",
            "router = APIRouter()\nrouter.add_api_route('/x')\nrouter.add_api_route('/x')\n",
            "add_api_route",
        ),
    ],
)
def test_what_one_scope_can_have_once_is_not_put_in_twice(old: str, new: str, text: str) -> None:
    path = "vllm/server.py"
    (problem, *_) = errors(path, (old, new), files=FILES | {path: SERVER})
    assert problem.code == "fit-duplicate"
    assert text in problem.message
    assert problem.level.value == "error"


def test_another_route_of_the_same_path_is_no_duplicate() -> None:
    path = "vllm/server.py"
    more = ROUTE.format(name="more").replace(".post", ".delete")
    pair = ("    return request.tokens\n", f"    return request.tokens\n{more}")
    assert errors(path, pair, files=FILES | {path: SERVER}) == []


@pytest.mark.slow
def test_a_mixin_has_what_those_have_that_it_is_mixed_into() -> None:
    # vllm/model_executor/models/minicpmo.py of 0.16.0
    files = {
        "vllm/model.py": "class Base:\n    def __init__(self):\n        self.size = 1\n\n\nclass Audio(Base):\n    def read(self):\n        return self.size\n"
    }
    patch = ("class Audio(Base):", "class Audio:")
    both = ("return self.size\n", "return self.size\n\n\nclass Model(Audio, Base):\n    pass\n")
    assert errors("vllm/model.py", patch, both, files=files) == []
    assert [f.code for f in errors("vllm/model.py", patch, files=files)] == ["fit-attribute"]


@pytest.mark.slow
def test_what_a_method_returns_in_one_of_its_forms_may_be_unpacked() -> None:
    # vllm/model_executor/layers/fused_moe/runner/default_moe_runner.py of 0.17.0
    files = {
        "vllm/group.py": "class Group:\n    def send(self, a) -> tuple[int, int] | tuple[int, int, int]:\n        ...\n\n\ndef group() -> Group: ...\n",
        "vllm/use.py": "from vllm.group import group\n\n\ndef f():\n    pass\n",
    }
    patch = ("    pass\n", "    a, b = group().send(1)\n    return a, b\n")
    assert errors("vllm/use.py", patch, files=files) == []
