"""Members, flow, kinds, strings and dead code: what is wrong, and what only looks so."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from fit_tree import errors, findings, tree_of

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import AtOrigin, fit

USE = "vllm/use.py"
FILES = {
    "PKG-INFO": "Metadata-Version: 2.4\nRequires-Python: <3.15,>=3.10\n",
    "vllm/__init__.py": "",
    "vllm/config.py": """
        from dataclasses import dataclass
        from enum import Enum, EnumMeta
        from typing import Annotated

        from pydantic import BaseModel, Field, model_validator


        class Meta(EnumMeta):
            def __getitem__(cls, name): ...


        class Backend(Enum, metaclass=Meta):
            FLASH = "vllm.parts.Flash"
            TRITON = "vllm.parts.Triton"


        @dataclass(frozen=True)
        class ModelConfig:
            dtype: str = "auto"

            @property
            def heads(self) -> int:
                return 3

            def layers(self) -> int:
                return 3


        class Made:
            def __new__(cls, name):
                return super().__new__(cls)


        class Stated:
            @staticmethod
            def __new__(cls, name):
                return Made.__new__(Made, name)


        class Base(BaseModel):
            @model_validator(mode="wrap")
            @classmethod
            def look(cls, data, handler):
                aliased = {f.alias for f in cls.model_fields.values()}
                return handler(data)


        class Usage(Base):
            total: int
            cost: int


        class Request(BaseModel):
            prompt: str
            limit: Annotated[int, Field(default=3)]
            seed: int | None = None


        @dataclass
        class Config:
            model_config: ModelConfig
            backend: Backend = Backend.FLASH
            late: object = None

            @classmethod
            def from_config(cls, data): ...
    """,
    "vllm/filled.py": "_all = globals()\nbuild('Message', _all)\n",
    "vllm/filled_too.py": "build('Message', globals())\n",
    "vllm/platforms/__init__.py": "from .interface import Platform\ncurrent_platform: Platform\n",
    "vllm/platforms/interface.py": """
        import torch


        class Platform:
            def is_cuda(self) -> bool: ...

            def __getattr__(self, key: str): ...
    """,
    "vllm/worker.py": """
        import torch
        import torch.distributed


        class Worker:
            @torch.inference_mode()
            def start(self, tokens: int): ...
    """,
    "vllm/lazy.py": "torch = LazyLoader('torch', globals(), 'torch')\n",
    "vllm/parts.py": """
        import contextlib
        from abc import ABC, abstractmethod
        from typing import TYPE_CHECKING, Protocol, TypedDict

        from torch import nn

        if TYPE_CHECKING:
            from vllm.config import ModelConfig


        class Flash(ABC):
            @abstractmethod
            def run(self): ...

            def hook(self): ...


        def pair():
            return 1, 2


        def walk():
            yield 1


        @contextlib.contextmanager
        def entered():
            yield 1


        async def fetch():
            return 1


        class Sized(Protocol):
            size: int


        class Sizes(TypedDict):
            first: int


        class Mlp(nn.Module):
            def forward(self, x): ...


        class Wide(Mlp):
            def forward(self, x, y=None): ...


        class Bare(nn.Module):
            pass


        def register(op_name, op_func): ...


        def direct_register_custom_op(op_name, op_func): ...


        register(op_name="fused_add", op_func=pair)


        def scaled(x: torch.Tensor, by: int) -> torch.Tensor: ...


        def tabled(x: torch.Tensor, by: dict[str, int]) -> None: ...


        direct_register_custom_op(op_name="scaled", op_func=scaled)
        print(Flash().hook)


        def count(n: int, label: str = ""): ...


        def find(n) -> "Flash | None":
            return None
    """,
    "vllm/envs.py": """
        VLLM_LOGGING = 1
        variables = {}


        def __getattr__(name):
            if name in variables:
                return variables[name]()
            raise AttributeError


        def keep():
            global __getattr__
            __getattr__ = kept(__getattr__)
    """,
    "vllm/model_executor/layers/quantization/__init__.py": "METHODS = ['fp8']\n",
    USE: """
        from vllm.config import Backend, Config, ModelConfig, Request, Usage
        from vllm.parts import Flash, count, direct_register_custom_op, entered, fetch, find, pair
        from vllm.parts import scaled, tabled, walk

        import torch


        class Mine(Flash):
            def run(self):
                return 1

            def run_at(self, place: int):
                return place


        def use(c: Config, m: ModelConfig):
            pass
    """,
}
BODY = "    pass\n"

# (statements of `use`, code of the one error, words of its message)
NOES = [
    (
        # a platform gives ``None`` for what it lacks
        "from vllm.platforms import current_platform\ncurrent_platform.gone()",
        "fit-attribute",
        "`Platform` has no attribute `gone`",
    ),
    (
        "from vllm import envs\nenvs.VLLM_GONE",
        "fit-import",
        "`vllm.envs` has no member `VLLM_GONE`",
    ),
    (
        "class A:\n    __slots__ = ('x',)\n    def f(self):\n        self.x = self.gone = 1",
        "fit-attribute",
        "`gone`",
    ),
    (
        "import functools\nfunctools.partial(count, nn=1)",
        "fit-call",
        "`nn` does not match any known parameter",
    ),
    (
        "from dataclasses import dataclass\n@dataclass(frozn=True)\nclass A:\n    x: int",
        "fit-types",
        "no overload of function `dataclass`",
    ),
    ("from vllm.lazy import Message", "fit-import", "does not define Message"),
    ("c.model_config.no_such", "fit-attribute", "ModelConfig (vllm/config.py:"),
    ("c.model_confg", "fit-attribute", "the nearest is model_config"),
    ("Config.from_confg({})", "fit-attribute", "the nearest is from_config"),
    ("k: type[Config] = print(c)\nk.from_confg({})", "fit-attribute", "the nearest is from_config"),
    ("Backend.FLASHY", "fit-attribute", "the nearest is FLASH"),
    ("Backend['TRITN']", "fit-string", "the nearest is TRITON"),
    ("Mine().runs()", "fit-attribute", "the nearest is run"),
    ("getattr(c, 'bakend')", "fit-string", "the nearest is backend"),
    ("print(x)\nx = 1", "fit-undefined-name", "`x` used when not defined"),
    ("x = 1\ndel x\nprint(x)", "fit-undefined-name", "`x` used when not defined"),
    ("global counter\ncounter += 1", "fit-undefined-name", "counter"),
    ("n = 3\nwith n:\n    pass", "fit-kind", "cannot be used with `with`"),
    ("n = 3\nn()", "fit-kind", "`n()`: object of type `Literal[3]` is not callable"),
    ("n = 3\nprint('a' + n)", "fit-kind", "`+` is not supported between"),
    ("m.dtype = 'x'", "fit-kind", "`dtype` defined in `ModelConfig` is read-only"),
    ("Flash()", "fit-kind", "unimplemented abstract method `run`"),
    ("a, b, d = pair()", "fit-kind", "returns 2"),
    ("with walk():\n    pass", "fit-kind", "is a generator"),
    ("fetch()", "fit-kind", "is not awaited"),
    ("m.heads()", "fit-kind", "`m.heads()`: object of type `int` is not callable"),
    ("return m.layers < 2", "fit-kind", "bound method ModelConfig.layers() -> int"),
    ("isinstance(c, pair)", "fit-call", "found `def pair()"),
    ("class A(pair): ...", "fit-kind", "invalid class base"),
    ("torch.ops.vllm.fused_ad(c)", "fit-string", "the nearest is fused_add"),
    ("return 'vllm.parts.Flsh'", "fit-string", "the nearest is Flash"),
    ("return 'vllm.prts.Flash'", "fit-string", "there is no module vllm.prts"),
    ("torch.ops.vllm.scaled(c)", "fit-string", "the call fails: missing a required argument: 'by'"),
    ("direct_register_custom_op('pair', pair)", "fit-string", "its return type is not annotated"),
    (
        "direct_register_custom_op(op_name='t', op_func=tabled)",
        "fit-string",
        "its parameter by is of type dict[str, int], which operators do not accept",
    ),
    (
        "c.late.collective_rpc('hok')",
        "fit-string",
        "no class defines 'hok', which workers should call",
    ),
    (
        "c.late.collective_rpc('start', args=(1, 2))",
        "fit-string",
        "vllm/worker.py:7, but the call fails",
    ),
    (
        "from vllm.worker import Worker\nw: Worker = m\nw.start(1, gone=2)",
        "fit-call",
        "parameter of bound method `Worker.start`",
    ),
    ("import importlib\nimportlib.import_module('vllm.gone')", "fit-import", "no module vllm.gone"),
    (
        "c.late.register('x', 'vllm.parts.gone', 'Mine')",
        "fit-string",
        "there is no module vllm.parts.gone",
    ),
    ("Request(seed=1)", "fit-call", "required parameters `prompt`"),
    (
        "from vllm.config import Stated\nStated()",
        "fit-call",
        "required parameter `name` of constructor `Stated.__new__`",
    ),
    ("print('%s %s' % (c,))", "fit-string", "takes 2 values but gets 1"),
    ("if fetch():\n    pass", "fit-kind", "is always truthy (has type `CoroutineType"),
    ("count('a')", "fit-call", "to function `count` is incorrect: Expected `int`"),
    ("count(n=[None])", "fit-call", "found `list[None]`"),
    ("count(3, label=3)", "fit-call", "Expected `str`, found `Literal[3]`"),
    ("Mine().run_at('a')", "fit-call", "bound method `Mine.run_at` is incorrect"),
    ("Usage(cost=2)", "fit-call", "required parameter `total`"),
    (
        "from vllm.parts import ModelConfig",
        "fit-import",
        "defines ModelConfig for type checkers only",
    ),
    ("from vllm.parts import Sized\nisinstance(c, (Sized, int))", "fit-kind", "class `Sized`"),
    ("from vllm.parts import Sizes\nisinstance(c, Sizes)", "fit-kind", "class `Sizes`"),
    ("import vllm.parts as p\ndef f(x: p.Gone): ...", "fit-import", "has no member `Gone`"),
    ("from vllm.parts import Mlp\nMlp()(c, m)", "fit-call", "expected 1, got 2"),
    ("entered().size", "fit-attribute", "`_GeneratorContextManager["),
]
# What is likely wrong and need not be: (statements of `use`, code of the one note, its words)
NOTES = [
    ("if c:\n    x = 1\nprint(x)", "fit-undefined-name", "`x` used when possibly not defined"),
    (
        "if c:\n    x = 1\nelse:\n    y = 2\nwith open(x) as f:\n    pass",
        "fit-undefined-name",
        "`x` used when possibly not defined",
    ),
    (
        "if c:\n    x = 1\nwith open('a') as f:\n    print(x)",
        "fit-undefined-name",
        "`x` used when possibly not defined",
    ),
    ("find(c).run()", "fit-kind", "`run` is not defined on `None`"),
    ("found = find(c)\nprint(found.run())", "fit-kind", "`run` is not defined on `None`"),
    ("import os\nos.environ['VLLM_LOG'] = '1'", "fit-string", "the nearest is VLLM_LOGGING"),
    ("import os\nreturn os.getenv('VLLM_LOGING')", "fit-string", "the nearest is VLLM_LOGGING"),
    (
        "a_backend = c.late\nprint(a_backend.get_name() == 'FLSH')",
        "fit-string",
        "attention backend 'FLSH'",
    ),
    (
        "a_backend = c.late\nprint(a_backend.get_name() == 'FLASH_x')",
        "fit-string",
        "attention backend 'FLASH_x'",
    ),
    ("from vllm.parts import Sizes\nd: Sizes = m\nprint(d['x'])", "fit-string", 'unknown key "x"'),
    (
        "from vllm.platforms import current_platform\ncurrent_platform.gone",
        "fit-attribute",
        "`Platform` has no attribute `gone`",
    ),
    ("from vllm.parts import Mlp\nlayer: Mlp = m\nlayer(c, y=m)", "fit-call", "argument `y`"),
]
YESES = [
    "from vllm.config import Made, Stated\nMade('a'), Stated('a'), Stated(name='a')",
    "from vllm.config import Made, Stated\nMade.__new__(Made, 'a'), Stated.__new__(Stated, 'a')",
    "from vllm.config import Made\nclass A(Made):\n    def __new__(cls, name):\n        return super().__new__(cls, name)",
    "c.model_config.dtype.lower()",
    "c.late.anything",
    "k: type[Config] = print(c)\nk.from_config({})\nk.__name__\nk.mro()",
    "k: type[Flash] = Mine\nk().run()",
    "if hasattr(c, 'soon'):\n    c.soon",
    "import inspect\nif 'old' in inspect.signature(find).parameters:\n    find(1, 2, 3, 4)\nelse:\n    find(c)",
    "from vllm import filled\nfilled.Message()",
    "from vllm import filled_too\nfilled_too.Message()",
    "Backend['FLASH'].name",
    "Backend.FLASH.value",
    "Mine().run()",
    "getattr(c, 'bakend', None)",
    "for i in []:\n    print(x) if i else None\n    x = 1",
    "if c:\n    x = 1\nprint(x)",
    "if (x := c):\n    print(x)",
    "try:\n    x = 1\nexcept ValueError:\n    print(x)",
    "def inner():\n    return x\nx = inner",
    "x = 1\nif c:\n    del x\nprint(x)",
    "[y for y in [1] if (z := y)]\nprint(z)",
    "print(type(c) and [q for q in (1,)])",
    "with entered() as one:\n    print(one)",
    "a, b = pair()",
    "for one in walk():\n    print(one)",
    "n = 3\nprint('a' * n, 2.0 * n, [0] * n)",
    "isinstance(c, (Config, int))",
    "torch.ops.vllm.fused_add(c)",
    "return 'vllm.parts.Flash', 'vllm.parts.Flash.Inner', 'vllm.parts.lower', 'vllm.gone.lower'",
    "torch.ops.vllm.scaled(c, 2), torch.ops.vllm.scaled(c, by=2)",
    "def f(x: torch.Tensor, y: 'list[int] | None') -> None: ...\ndirect_register_custom_op('f', f)",
    "direct_register_custom_op(op_name='scaled', op_func=scaled)",
    "c.late.collective_rpc('hook'), c.late.collective_rpc(c.late)",
    "c.backend = Backend.TRITON",
    "print('%s' % c, '%d%%' % (1,), '%(a)s' % {'a': 1})",
    "c.no_such  # type: ignore[attr-defined]",
    "type(c).__name__",
    "Request(prompt='a', more=1)",
    "assert isinstance(c, Mine)\nc.no_such",
    "count(True), count(3, 'a'), count(*[c]), count(c), count(3, None)",
    "Mine().run_at(3)",
    "Usage(cost=2, total=3)",
    "from vllm.parts import Bare, Mlp, Wide\nMlp()(c), Mlp()(x=c), Wide()(c, y=m), Bare()(c, 2, d=3)",
    "import torch\ntorch.nn.Linear(1, 2)(c, c), torch.nn.Module()(c, 2)",
    "from vllm.parts import Sizes\nd: Sizes = m\nd['x'] = 1\nSizes(first=1, second=2)",
    "import vllm.parts as p\ndef f(x: 'p.Gone'):\n    y: p.Gone = 1",
]
# Nothing is said of these, not even a note.
SILENT = [
    "if c:\n    x = 1\nif c:\n    print(x)",
    "if c:\n    x = 1\nelse:\n    raise ValueError\nprint(x)",
    "if c:\n    x = 1\nif not c:\n    return\nprint(x)",
    "for i in (1, 2):\n    if i == 1:\n        x = 1\n    print(x)",
    "x = 0\nif c:\n    x = 1\nprint(x)",
    "if c:\n    x = 1\nelse:\n    exit()\nprint(x)",
    "if (x := c) is None:\n    x = 1\nprint(x)",
    "found = find(c)\nif found:\n    found.run()",
    "found = find(c)\nassert found is not None\nprint(found.run())",
    "find(c)",
    "import os\nos.environ['VLLM_LOGGING'], os.environ['HOME']",
    "import os\nos.environ['VLLM_OWN'] = '1'\nprint(os.environ['VLLM_OWN'])",
    "from vllm.platforms import current_platform\ncurrent_platform.is_cuda(), current_platform.synchronize()",
    "c.late.collective_rpc('start', args=(1,)), c.late.collective_rpc('start', None, (), {'tokens': 1})",
    "import importlib\nimportlib.import_module('vllm.parts')\nimportlib.import_module('.gone', 'vllm')",
    "c.late.register('x', 'vllm.parts', 'Flash', module='vllm.model_executor.gone')",
    "print(c.late.quant_method == 'fp8' or c.late.quant_method == 'FP9')",
]


def used(body: str) -> tuple[str, str]:
    return BODY, indent(body, "    ") + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(("body", "code", "words"), NOES)
def test_no(body: str, code: str, words: str) -> None:
    found = errors(USE, used(body), files=dict(FILES))
    assert [(f.code, f.path) for f in found] == [(code, USE)], found
    assert words in found[0].message
    assert len(found[0].message) <= 300


@pytest.mark.parametrize("body", YESES)
def test_no_false_alarm(body: str) -> None:
    assert errors(USE, used(body), files=dict(FILES)) == []


@pytest.mark.parametrize(("body", "code", "words"), NOTES)
def test_what_need_not_be_wrong_is_a_note(body: str, code: str, words: str) -> None:
    found = [f for f in findings(USE, used(body), files=dict(FILES)) if f.code != "fit-unknown"]
    assert [(f.code, f.level) for f in found] == [(code, Level.NOTE)], found
    assert words in found[0].message


@pytest.mark.parametrize("body", SILENT)
def test_nothing_is_said(body: str) -> None:
    found = findings(USE, used(body), files=dict(FILES))
    assert [f for f in found if f.code != "fit-unknown"] == []


@pytest.mark.slow
def test_an_awaited_result_is_none_of_a_coroutine() -> None:
    old, new = "def use(c: Config, m: ModelConfig):\n    pass", "async def use(c: Config):\n    "
    assert errors(USE, (old, new + "await fetch()"), files=dict(FILES)) == []
    (found,) = errors(USE, (old, new + "fetch().real"), files=dict(FILES))
    assert (found.code, "CoroutineType" in found.message) == ("fit-kind", True)


@pytest.mark.slow
def test_a_class_that_leaves_an_abstract_method_open_cannot_be_made() -> None:
    two = FILES["vllm/parts.py"].replace(
        "def hook(self): ...",
        "def hook(self): ...\n\n            @abstractmethod\n            def stop(self): ...",
    )
    other = "class Mine(Flash):\n    def run(self):\n        return 2\n"
    tree = tree_of({**FILES, "vllm/parts.py": two})
    new = FileChange(
        path="vllm/new.py",
        before=None,
        after=f"from vllm.parts import Flash\n\n\n{other}\n\nMine()\n".encode(),
    )
    found = fit((new,), tree).findings
    assert {f.code for f in found if f.level is Level.ERROR} == {"fit-kind"}
    assert "the class has no stop" in found[0].message
    alone = new._replace(after=new.after and new.after.removesuffix(b"\n\nMine()\n"))
    found = fit((alone,), tree).findings
    assert [f.level for f in found if "the class has no stop" in f.message] == [Level.NOTE]
    # for which the hunk was written; the base did not ask for it
    found = fit((alone,), tree, origin=AtOrigin(tree_of(FILES), (alone,))).findings
    assert [f.level for f in found if "the class has no stop" in f.message] == [Level.ERROR]


@pytest.mark.slow
def test_a_hook_that_nobody_calls_is_the_first_note() -> None:
    pair = ("        return 1\n", "        return 1\n\n    def hok(self): ...\n")
    found = findings(USE, pair, files=dict(FILES))
    assert (found[0].code, found[0].level) == ("fit-dead", Level.NOTE)
    assert (
        "nothing calls Mine.hok, and no base class defines it; the nearest is hook"
        in found[0].message
    )
    assert not [
        f
        for f in findings(USE, (pair[0], pair[1].replace("hok", "hook")), files=dict(FILES))
        if f.code == "fit-dead"
    ]


@pytest.mark.slow
def test_a_file_that_nothing_imports_is_a_note() -> None:
    tree = tree_of(FILES)
    new = FileChange(path="vllm/alone.py", before=None, after=b"x = 1\n")
    user = FileChange(
        path=USE, before=tree.files[USE], after=tree.files[USE] + b"import vllm.alone\n"
    )
    assert [f.code for f in fit((new,), tree).findings] == ["fit-dead"]
    assert not [f for f in fit((new, user), tree).findings if f.code == "fit-dead"]


@pytest.mark.slow
def test_a_model_is_looked_up_beside_the_registry_or_by_its_whole_name() -> None:
    registry = "vllm/model_executor/models/registry.py"
    model = "vllm/model_executor/models/one.py"
    files = {registry: "MODELS = {}\n", model: "class One: ...\n", **FILES}
    rows = '{"One": ("one", "One"), "Two": ("vllm.parts", "Flash"), "Three": ("one", "On")}'
    (found,) = errors(registry, ("{}", rows), files=files)
    assert f"{model} does not define On; the nearest is One" in found.message
    (found,) = errors(registry, ("{}", '{"One": ("oen", "One")}'), files=files)
    assert "there is no module vllm.model_executor.models.oen; the nearest is one" in found.message


def test_a_name_that_the_patch_defines_twice_is_reported() -> None:
    twice = dedent(
        "\n\n    def again():\n        return 1\n\n\n    def again():\n        return 2\n"
    )
    assert [f.code for f in errors(USE, (BODY, BODY + twice), files=dict(FILES))] == [
        "fit-duplicate"
    ]


@pytest.mark.slow
def test_a_hook_that_the_release_before_had_is_refused_where_nobody_calls_it() -> None:
    parts = FILES["vllm/parts.py"]
    origin = tree_of({**FILES, "vllm/parts.py": parts.replace("def hook(", "def early_hook(")})
    tree = tree_of(FILES)
    before = tree.files[USE]
    after = before.replace(
        b"        return 1\n", b"        return 1\n\n    def early_hook(self): ...\n", 1
    )
    new = FileChange(path=USE, before=before, after=after)
    first = fit((new,), tree, origin=AtOrigin(origin, (new,))).findings[0]
    assert (first.code, first.level) == ("fit-dead", Level.ERROR)
    assert "Mine.early_hook overrides Flash.early_hook in" in first.message
    assert (
        "no base class defines it here, and nothing calls it; the nearest is hook" in first.message
    )
    assert not [
        f
        for f in fit((new,), origin, origin=AtOrigin(origin, (new,))).findings
        if f.code == "fit-dead"
    ]
    # A remote tree is not searched for who calls it, and the bases say enough.
    far = tree_of(FILES, remote=True)
    assert [f.code for f in fit((new,), far, origin=AtOrigin(origin, (new,))).findings][:1] == [
        "fit-dead"
    ]
    # Of an origin only what was read before may be in the cache.
    origin.read = _nothing  # type: ignore[method-assign]
    assert "fit-dead" in {
        f.code for f in fit((new,), tree, origin=AtOrigin(origin, (new,))).findings
    }


def _nothing(path: str) -> bytes | None:
    raise TreeError(f"the cache does not have {path}")


@pytest.mark.slow
def test_a_line_that_is_taken_out_of_a_call_is_looked_at() -> None:
    long = "    count(\n        3,\n    )\n"
    files = {**FILES, USE: FILES[USE].replace("            pass\n", indent(long, "        "))}
    found = errors(USE, ("        3,\n", ""), files=files)
    assert [(f.code, "parameter `n` of" in f.message) for f in found] == [("fit-call", True)]


@pytest.mark.slow
def test_a_fault_that_was_there_before_is_no_news_where_the_patch_moves_what_it_names() -> None:
    tree = tree_of(
        {**FILES, USE: FILES[USE].replace("            pass\n", "            count('a')\n")}
    )
    pairs = (
        (USE, b"count('a')", b"count('a', 'b')"),
        ("vllm/parts.py", b"import con", b"\nimport con"),
    )
    changes = tuple(
        FileChange(path, tree.files[path], tree.files[path].replace(old, new))
        for path, old, new in pairs
    )
    assert [f for f in fit(changes, tree).findings if f.level is Level.ERROR] == []
