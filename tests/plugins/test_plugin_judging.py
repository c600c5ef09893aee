"""A plugin beside a vLLM: what breaks it is found, what was so before and what it guards is not, and none of it is run."""

from __future__ import annotations

import itertools
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from toy_plugin import NEW, OLD, PLUGIN, tree_of

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.world import SummaryCache
from vllm_mods.plugins.judging import View, judge
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_mods.base.model import Finding


def on(plugin: str, more: Mapping[str, str] = {}, *, made_for: bool = True) -> tuple[Finding, ...]:
    held = tree_of({"fast_plugin/__init__.py": plugin, **more}, "").files
    origin = View(tree_of(OLD, "0.18.0"), held, SummaryCache()) if made_for else None
    return judge(held, tree_of(NEW, "0.19.0"), origin)


def errors(findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.level is Level.ERROR]


@pytest.mark.slow
def test_every_break_is_found_and_what_is_gone_comes_first() -> None:
    found = errors(on(PLUGIN))
    told = {
        FindingCode.FIT_IMPORT: ["cannot import old_name from vllm.names"],
        FindingCode.FIT_DEAD: ["Fast.close overrides Loader.close", "Engine.stop is replaced"],
        FindingCode.FIT_ATTRIBUTE: ["has no attribute `limit`"],
        FindingCode.FIT_CALL: ["required parameter `b`"],
        FindingCode.FIT_OVERRIDE: [
            "Fast.place(self, config, tensors, sizes=…) takes tensors as parameter 3, but this vLLM has it as parameter ",
            "Fast.size(self, name) overrides Loader.size",
            "Engine.shape is replaced at run time by shape(self, config, tensors, *rest), which takes",
        ],
        FindingCode.FIT_KIND: ["Fast cannot be instantiated: the class has no unload", "`Fast()`"],
    }
    assert [code for code, _ in itertools.groupby(one.code for one in found)] == list(told)
    assert len(found) == sum(map(len, told.values()))
    for code, texts in told.items():
        for text in texts:
            assert any(text in one.message for one in found if one.code == code), text


@pytest.mark.slow
def test_a_plugin_that_is_installed_beside_vllm_is_judged_as_any() -> None:
    held = tree_of({"fast_plugin/__init__.py": PLUGIN}, "").files
    new, old = tree_of(NEW, "0.19.0"), tree_of(OLD, "0.18.0")
    alone = judge(held, new, View(old, held, SummaryCache()))
    new.files.update(held)
    assert judge(held, new, View(old, held, SummaryCache())) == alone


@pytest.mark.slow
def test_what_was_wrong_where_it_was_made_is_no_news() -> None:
    broken = "from vllm.names import never_there\n\n\ndef f():\n    return never_there.x\n"
    assert on(broken) == ()


def test_a_class_that_was_open_where_it_was_made_is_no_news() -> None:
    loader = "from abc import ABC, abstractmethod\n\n\nclass Loader(ABC):\n"
    asked = "    @abstractmethod\n    def {}(self): ...\n"
    begun = "from vllm.loader import Loader\n\n\nclass Begun(Loader):\n    def load(self): ...\n"
    held = tree_of({"p/__init__.py": begun}, "").files
    whole, open_, wider = (
        tree_of({"vllm/loader.py": loader + "".join(map(asked.format, names))}, "")
        for names in (("load",), ("load", "close"), ("load", "close", "stop"))
    )
    assert [one.code for one in judge(held, open_, View(whole, held, SummaryCache()))] == [
        FindingCode.FIT_KIND
    ]
    origin = View(open_, held, SummaryCache())  # of a row of the matrix
    assert judge(held, open_, origin) == judge(held, wider, origin) == ()


@pytest.mark.slow
def test_without_a_vllm_that_it_was_made_for_nothing_counts() -> None:
    found = on(PLUGIN, made_for=False)
    assert not errors(found)
    assert "cannot import old_name from vllm.names" in found[0].message


GUARDED = {
    "an import that may fail": "try:\n    from vllm.names import old_name\nexcept ImportError:\n    old_name = None\n",
    "a branch for a version": (
        "from fast_plugin.utils import vllm_version_is\n"
        'if vllm_version_is("0.18.0"):\n    from vllm.names import old_name\n'
    ),
    "a value for a version": (
        "from vllm.names import kept\nfrom fast_plugin.utils import vllm_version_is\n\n\n"
        'def f():\n    return kept(1) if vllm_version_is("0.18.0") else kept(1, 2)\n'
    ),
    "a version that was asked before": (
        "import vllm\nfrom vllm.names import kept\nIS_OLD = vllm.__version_tuple__ < (0, 19)\n\n\n"
        "f = lambda: kept(1) if IS_OLD else kept(1, 2)\n"
    ),
    "a version of the installation": (
        "from importlib.metadata import version\nmatch version('vllm')[:4]:\n"
        "    case '0.18':\n        from vllm.names import old_name\n"
    ),
    "a range of versions": (
        "from fast_plugin.utils import Range, found\n"
        "if Range('>=0.17,<0.19').contains(found):\n    from vllm.names import old_name\n"
    ),
    "what is suppressed": (
        "from contextlib import suppress\nfrom vllm.names import kept\n"
        "with suppress(ImportError):\n    from vllm.names import old_name\n"
        "with suppress(Exception):\n    kept(1)\n"
    ),
    "a class and a method for a version": (
        "import vllm\nfrom vllm.loader import Loader\nIS_OLD = vllm.__version__ < '0.19'\n"
        "if IS_OLD:\n    class Fast(Loader):\n        def load(self, name): ...\n        def size(self, name): ...\n"
        "else:\n    class Faster(Loader):\n        def load(self, name): ...\n        def unload(self): ...\n"
        "        if IS_OLD:\n            def close(self): ...\n"
    ),
    "a name that may be there": (
        "from vllm.loader import Engine\n"
        "if 'stop' in vars(Engine):\n    setattr(Engine, 'stop', lambda self: 1)\n"
    ),
    "a base that may have it": (
        "from vllm.loader import Loader\n\n\nclass Fast(Loader):\n    def load(self, name): ...\n    def unload(self): ...\n"
        "    def end(self):\n        return super().close() if hasattr(super(), 'close') else None\n"
    ),
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.names import old_name\n",
    "a file for a version": (
        "from fast_plugin.utils import vllm_version_is\n"
        'if vllm_version_is("0.18.0"):\n    from fast_plugin import of_0_18\n'
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GUARDED)
def test_what_the_plugin_guards_does_not_count(kind: str) -> None:
    of_old = "from vllm.names import old_name\n" if kind == "a file for a version" else ""
    more = {
        "fast_plugin/of_0_18.py": of_old,
        "fast_plugin/utils.py": "def vllm_version_is(version): ...\n",
    }
    assert not errors(on(GUARDED[kind], more))
    unguarded = on("from fast_plugin import of_0_18\n", more)
    assert len(errors(unguarded)) == (kind == "a file for a version")


@pytest.mark.slow
def test_one_cause_in_many_places_is_one_finding() -> None:
    calls = "".join(f"def f{n}():\n    return kept(1)\n\n\n" for n in range(3))
    (found,) = on(f"from vllm.names import kept\n\n\n{calls}")
    assert (found.line, found.message.endswith("the same in 2 other places")) == (5, True)


def test_a_class_that_is_handed_around_is_known_by_its_name() -> None:
    patch = """
        def shape(self, config, tensors, *rest):
            return tensors


        def patch(Engine):
            Engine.shape = shape
    """
    assert [one.code for one in on(patch)] == [FindingCode.FIT_OVERRIDE]


@pytest.mark.slow
def test_a_file_that_is_no_python_is_a_note_and_the_rest_is_judged() -> None:
    found = on("from vllm.names import old_name\n", {"fast_plugin/torn.py": "def (:\n"})
    assert [(one.level, one.code) for one in found] == [
        (Level.ERROR, FindingCode.FIT_IMPORT),
        (Level.NOTE, FindingCode.FIT_SYNTAX),
    ]
    deep = on("x = 1\n", {"fast_plugin/deep.py": f"x = {'(' * 5000}1{')' * 5000}\n"})
    assert [(one.level, one.path) for one in deep] == [(Level.NOTE, "fast_plugin/deep.py")]


def test_a_name_that_no_code_can_read_is_not_searched_for() -> None:
    """Of a class it would be a pattern that is none, or half of a character."""
    patch = """
        from vllm.loader import Engine


        def stop(self):
            return 2


        setattr(Engine, "shap(", stop)
        setattr(Engine, "\\ud800", stop)
    """
    assert on(patch) == ()


OPS = """
    def scale(x):
        return x


    class Layer:
        def run(self):
            return scale(1)
"""
SCALE = OPS.partition("class")[0]
TAKEN = {"vllm/layer.py": "from vllm.ops import scale\n" + dedent(OPS).partition("\n\n\n")[2]}
PATCH = "import vllm.ops\n\n\ndef scale(x):\n    return 2\n\n\n"
REGISTER = f"{PATCH}def register():\n    vllm.ops.scale = scale\n"
TOLD = "in vllm/layer.py:4 still uses the old one"


@pytest.mark.parametrize(
    ("patch", "moved", "told"),
    [
        # who has imported it by then still uses the old one, and who comes later has the new one
        (f"import vllm.layer\n{REGISTER}", TAKEN, f"{TOLD}: vllm/layer.py imported it before"),
        (REGISTER, TAKEN, None),
        (f"{PATCH}vllm.ops.scale = scale\nimport vllm.layer\n", TAKEN, None),
        # it is defined elsewhere, and the old place only passes it on
        (
            REGISTER,
            {
                "vllm/base.py": SCALE,
                "vllm/ops.py": "from vllm.base import scale\n",
                "vllm/layer.py": TAKEN["vllm/layer.py"].replace("ops", "base"),
            },
            f"{TOLD}, of vllm/base.py",
        ),
        # both are replaced, or whatever has it, or what calls it does not run
        (f"import vllm.layer\n{REGISTER}    vllm.layer.scale = scale\n", TAKEN, None),
        (f"import vllm.layer\n{REGISTER}    setattr(find(), 'scale', scale)\n", TAKEN, None),
        (f"import vllm.layer\n{REGISTER}    vllm.layer.Layer = object\n", TAKEN, None),
        # who has it is loaded anew, or a helper that gets its name may replace it there
        (f"import vllm.layer\n{REGISTER}    reload(vllm.layer)\n", TAKEN, None),
        (
            f"import vllm.layer\n{REGISTER}    put(vllm.layer, 'scale')\n\n\ndef put(where, name):\n    setattr(where, name, scale)\n",
            TAKEN,
            None,
        ),
    ],
)
def test_a_call_that_has_the_old_function_is_found(
    patch: str, moved: dict[str, str], told: str | None
) -> None:
    held = tree_of({"p/__init__.py": patch}, "").files
    old = tree_of({"vllm/__init__.py": "", "vllm/ops.py": OPS}, "0.18.0")
    new = tree_of({"vllm/__init__.py": "", "vllm/ops.py": SCALE, **moved}, "0.19.0")
    origin = View(old, held, SummaryCache())
    found = judge(held, new, origin)
    assert [one.code for one in found] == [FindingCode.FIT_DEAD] * bool(told)
    assert all(told in one.message for one in found if told)
    assert judge(held, old, origin) == judge(held, new, View(new, held, SummaryCache())) == ()


LAYERS = """
    from torch import nn


    class Layer(nn.Module):
        def __new__(cls, *args, **kwargs):
            return super().__new__(choose(cls))

        def __init__(self, size: int, kind: str = "a"):
            super().__init__()
            self.scale = size


    class Request:
        def __init__(self, name: str, size: int | None = None):
            self.count = 0


    class Marked:
        mark = 1


    def start(config):
        Request = config.request
        return Request(name="a"), Layer(1)


    class Runner:
        held: dict[str, list] = {}

        def given(self):
            return find()

        def times(self) -> float:
            return find()

        def pair(self) -> tuple[int, int]:
            return find()
"""
RUNNER = "from vllm.layers import Runner\n\n\n"
FAST = f"{RUNNER}class Fast(Runner):\n    def {{}}\n"
UNREGISTERED = "from vllm.layers import Layer\n\n\nclass Fast(Layer):\n    def {}\n"
LAYER = f'{UNREGISTERED}\n\nFASTER = {{{{"Layer": Fast}}}}\n'
REQUEST = "from vllm.layers import Request\n\n\n"
COUNTED = f"{REQUEST}def f(one: Request, find):\n    find().count = 1\n    return one.count\n"
MARKED = f"{RUNNER}def f(one: Runner, find):\n    find().{{0}} = 1\n    return one.given().{{0}}\n"
OWN = "class Fast(Request):\n    def __init__(self, {}):\n        super().__init__(*rest)\n"
SCALED = "from vllm.layers import Layer\n\n\ndef f(one: Layer):\n    return one.scale, one.scale\n"
UNSCALED = {"self.scale = size": "self.size = size"}
WITH_KIND = {"Layer(1)": 'Layer(1, kind="b")'}
TRIPLE = {"tuple[int, int]": "tuple[int, int, int]"}
TRACED = {'name="a")': 'name="a", trace=True)', "size: int | None = None)": "trace=False)"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "changes", "told"),
    [
        # what a layer had, and nobody gives it from outside; what a plugin writes on one of a class is not vLLM's
        (SCALED, UNSCALED, "no attribute `scale`"),
        (SCALED, {**UNSCALED, "return Request": "one.scale = Layer\n        return Request"}, None),
        (COUNTED, {"self.count = 0": "pass"}, "no attribute `count`"),
        (f"{COUNTED}\n\nRequest.count = 0\n", {"self.count = 0": "pass"}, None),
        # what a plugin writes, and no vLLM ever had
        (MARKED.format("own_mark"), {"given(self)": "given(self) -> Request"}, None),
        (MARKED.format("mark"), {"given(self)": "given(self) -> Request"}, "no attribute `mark`"),
        # one of a class of the plugin is made by the name of vLLM's
        (f"{REQUEST}{OWN.format('*rest, name')}", TRACED, "unexpected keyword argument 'trace'"),
        (f"{REQUEST}{OWN.format('*rest, name, trace')}", TRACED, None),
        (LAYER.format("__init__(self, size): ..."), WITH_KIND, "argument 'kind'"),
        (UNREGISTERED.format("__init__(self, size): ..."), WITH_KIND, None),
        (
            UNREGISTERED.format("__init__(self, size): ...\n\n\nNAMES = ['Layer', 'Fast']"),
            WITH_KIND,
            None,
        ),
        # what is given back is of another class, or as many as it was
        (FAST.format("times(self) -> float: ..."), {"float:": "Request:"}, "returns float, but"),
        (FAST.format("times(self) -> float: ..."), {"float:": "int:"}, None),
        (
            FAST.format("pair(self) -> tuple[int, int]: ..."),
            TRIPLE,
            "Runner returns tuple[_, _, _]",
        ),
        (
            FAST.format("pair(self) -> tuple[int, int]: ..."),
            {"tuple[int, int]": "tuple[int, ...]"},
            None,
        ),
        (
            f"{RUNNER}def f(one: Runner):\n    at = one.held.get('a')\n    return at is not None and [*at]\n",
            {"str, list": "str, object"},
            None,
        ),
        (f"{RUNNER}def f(one: Runner):\n    a, b = one.pair()\n", TRIPLE, "Expected 2"),
        (f"{RUNNER}def f(one: Runner):\n    return one.pair()\n", TRIPLE, None),
    ],
)
def test_what_vllm_had_and_gave_is_missed(
    plugin: str, changes: dict[str, str], told: str | None
) -> None:
    held = tree_of({"p/__init__.py": plugin}, "").files
    text = LAYERS
    for was, now in changes.items():
        assert was in text
        text = text.replace(was, now)
    old, new = (
        tree_of({"vllm/__init__.py": "", "vllm/layers.py": one}, "") for one in (LAYERS, text)
    )
    found = errors(judge(held, new, View(old, held, SummaryCache())))
    assert len(found) == bool(told), found
    assert all(told in one.message for one in found if told)


ADAPTER = "class Adapter:\n    def __init__(self, server_urls): ...\n    def end(self): ...\n"
TAKING = "try:\n    from p.adapter import Adapter\nexcept ImportError:\n    from vllm.own import Adapter\n\n\ndef start(url):\n    return Adapter({})\n"
NEEDED = "def start():\n    from p.{} import scale\n    return scale(1)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("now", "before", "told"),
    [
        # one thing for a call, and none for the class that stands in where the plugin is missing
        (TAKING.format("server_url=url"), TAKING.format("[url]"), ["parameter `server_urls`"]),
        (TAKING.format("[url]"), TAKING.format("server_url=url"), []),
        (
            "from p.adapter import Adapter\n\n\ndef stop(one: Adapter):\n    one.halt()\n",
            "",
            ["has no attribute `halt`"],
        ),
        # what stands below an import that fails does not run
        (f"from p.adapter import Gone, Lost\n{TAKING.format('1, 2')}", "", ["cannot import Gone"]),
        (NEEDED.format("gone"), "", ["cannot import scale from p.gone"]),
        # what vLLM expects to fail, or asks for
        ("try:\n    import p.gone\nexcept ImportError:\n    pass\n", "", []),
        (
            f"import p\n{TAKING.format('1, 2')}".replace("return", "try:\n        return")
            + "    except Exception:\n        return None\n",
            "",
            [],
        ),
        (
            "import p\n\n\ndef f():\n    return hasattr(p, 'x') and g()\n\n\ndef g():\n    p.x()\n",
            "",
            [],
        ),
        ("HAS = False\nif HAS:\n    from p import gone\n", "", []),
        (NEEDED.format("gone") + "\n\nHAS = find_spec('p')\n", "", []),
        ("from p import gone\n\nNAMES = [('p', 'gone')]\n", "", []),
        ("def f(g):\n    def made():\n        from p import gone\n    return g(made)\n", "", []),
        # what is compiled, made while it runs, or another distribution's
        (NEEDED.format("ops"), "", []),
        (NEEDED.format("built"), "", []),
        (NEEDED.format("sealed") + "\n\nfrom p import bound\n", "", []),
        (NEEDED.format("made"), "", []),
        ("from space.other import scale\n", "", []),
    ],
)
def test_what_vllm_takes_of_a_plugin_has_to_be_there(
    now: str, before: str, told: list[str]
) -> None:
    held = {
        "p/__init__.py": "from p.built import scale\n",
        "p/adapter.py": ADAPTER,
        "p/old.py": "from p.adapter import Adapter\n\nAdapter(server_url=1)\n",
        "p/parts.py": "from . import bound\nfrom .sealed import scale\n",
        "p/ops.abi3.so": "",
        "p/made.py": "import sys\nfor one in NAMES:\n    setattr(sys.modules[__name__], one, sum)\n",
        "space/one.py": "",
    }
    files = tree_of(held, "").files
    own = {"vllm/__init__.py": "", "vllm/own.py": ADAPTER.replace("server_urls", "server_url")}
    old, new = (
        tree_of({**own, "vllm/connector.py": text}, version)
        for text, version in ((before, "0.18.0"), (now, "0.19.0"))
    )
    found = judge(files, new, View(old, files, SummaryCache()))
    assert [one.level for one in found] == [Level.ERROR] * len(told), found
    assert all(text in one.message for text, one in zip(told, found, strict=True))
    again = judge(files, new, View(new, files, SummaryCache()))
    assert [one.level for one in again] == [Level.NOTE] * len(told)
    assert all("; so it is with vLLM 0.19.0, for which" in one.message for one in again)


@pytest.mark.slow
def test_what_vllm_calls_comes_first_and_what_it_cannot_load_last() -> None:
    held = tree_of({"p/__init__.py": "from vllm.own import gone\n", "p/adapter.py": ADAPTER}, "")
    texts = {"vllm/__init__.py": "", "vllm/own.py": "gone = 1\n"}
    old = tree_of(texts, "")
    calls = {"vllm/z.py": TAKING.format("1, 2"), "vllm/a.py": "import p.lost\n", "vllm/own.py": ""}
    found = judge(
        held.files, tree_of({**texts, **calls}, ""), View(old, held.files, SummaryCache())
    )
    assert [one.path for one in found] == ["vllm/z.py", "p/__init__.py", "vllm/a.py"]


def test_what_is_no_module_of_a_folder_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "vllm/space").mkdir(parents=True)
    (tmp_path / "vllm/space/kept.py").write_text("")
    held = tree_of({"p/__init__.py": "from vllm.space import gone, kept\n"}, "").files
    origin = View(tree_of({"vllm/space/gone.py": ""}, ""), held, SummaryCache())
    (found,) = judge(held, FolderTree(str(tmp_path)), origin)
    assert "cannot import gone from vllm.space" in found.message
