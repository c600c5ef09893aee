"""Checks asked one by one, without the type checker: strings, operators, duplicates, names, imports, hooks, writes at run time."""

from __future__ import annotations

import ast
import os
import re
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from fit_tree import tree_of, users_of, world_of

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit, overrides
from vllm_mods.fit.dead import dead_problems
from vllm_mods.fit.duplicates import duplicate_problems
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.overlay import LaidOut, Overlay, python_of
from vllm_mods.fit.overrides import override_problems, overrides_of
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.results import call_misuses, result_misuses
from vllm_mods.fit.run_time import run_time_writes, soften
from vllm_mods.fit.search import classes_named
from vllm_mods.fit.strings import string_misuses
from vllm_mods.fit.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_mods.fit.problems import Misuses
    from vllm_mods.fit.walk import CodeSite
    from vllm_mods.fit.world import World

USE = "vllm/use.py"
QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
REGISTRY = "vllm/model_executor/models/registry.py"
ENVS = "vllm/envs.py"
FILES = {
    "vllm/__init__.py": "",
    "vllm/envs.py": "VLLM_LOGGING = VLLM_PORT = 1\nenvironment_variables = {'VLLM_PORT': 1}\n",
    QUANTIZATION: "METHODS = ['fp8', \"awq\"]\n",
    "vllm/more.py": """
        from vllm.names import Backend

        register_quantization_config("mine")


        def work(self): ...


        class Held:
            x: int


        def add(x: Tensor, by: int) -> Tensor: ...


        def other(x: Tensor) -> Tensor: ...


        direct_register_custom_op(op_name="add", op_func=add)
        direct_register_custom_op("both", add)
        direct_register_custom_op("both", other)
        print(torch.ops.vllm.kept, "vllm::kept", "FLASH_ATTN_TWO")
    """,
    "vllm/v1/attention/backends/registry.py": "class E:\n    FLASH_ATTN = 1\n    TRITON_ATTN = 2\n",
    "vllm/names.py": """
        import enum


        class Backend(enum.Enum):
            FLASH = 1
            TRITON = 2


        class Plain:
            FLASH = 1
    """,
    "vllm/model_executor/models/one.py": "class One: ...\n",
    "vllm/workers.py": "class A:\n    def lend(self, a): ...\n\n\nclass B:\n    def lend(self, a, b): ...\n    @made\n    def wrapped(self): ...\n",
    REGISTRY: "",
}


def _sites(text: str) -> tuple[CodeSite, ...]:
    return tuple(walk(ast.parse(text), frozenset(range(1, text.count("\n") + 2))))


def _messages(
    check: Callable[[World, str, CodeSite], Misuses], text: str, path: str = USE
) -> list[str]:
    """Return what a check says of the sites of a file, notes with their word."""
    world = world_of(FILES, {path: text})
    return [
        f"{'note: ' if misuse.level is Level.NOTE else ''}{misuse.text}"
        for site in _sites(dedent(text))
        for misuse in check(world, path, site)
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os.environ['VLLM_PORTT']", "note: nothing else in the tree mentions the environment variable 'VLLM_PORTT'; the nearest is VLLM_PORT"),
        ("os.environ['VLLM_PORT']", ""),
        ("os.environ['HOME']", ""),
        ("os.getenv('VLLM_LOGGINGS', 1)", "note: nothing else in the tree mentions the environment variable 'VLLM_LOGGINGS'; the nearest is VLLM_LOGGING"),
        ("os.environ.get('VLLM_QQ', 'VLLM_RR')", "note: nothing else in the tree mentions the environment variable 'VLLM_QQ'"),
        ("other.get('VLLM_QQ')", ""),
        ("x['VLLM_QQ']", ""),
        ("get_quantization_config('fp9')", f"{QUANTIZATION} has no quantization method 'fp9'; the nearest is fp8"),
        ("get_quantization_config('awq')", ""),
        ("get_quantization_config('mine')", ""),
        ("get_quantization_config(name, 'fp9')", ""),
        ("x.quantization == 'fp9'", f"{QUANTIZATION} has no quantization method 'fp9'; the nearest is fp8"),
        ("x.quantization in ('fp8', 'zzz')", f"{QUANTIZATION} has no quantization method 'zzz'"),
        ("x.other == 'fp9'", ""),
        ("def f() -> QuantizationMethods:\n    return 'fp9'", f"{QUANTIZATION} has no quantization method 'fp9'; the nearest is fp8"),
        ("def f() -> str:\n    return 'fp9'", ""),
        ("x.collective_rpc('wrk')", "no class defines 'wrk', which workers should call"),
        ("x.collective_rpc(method='wrk')", "no class defines 'wrk', which workers should call"),
        ("x.collective_rpc('work')", ""),
        ("x.collective_rpc(other='wrk')", ""),
        ("x.collective_rpc('lend', args=())", "lend of workers is vllm/workers.py:6, but the call fails: missing a required argument: 'a'"),
        ("x.collective_rpc('lend', 3, (1, 2, 3))", "lend of workers is vllm/workers.py:6, but the call fails: too many positional arguments"),
        ("x.collective_rpc('lend', kwargs={'a': 1, 'c': 2})", "lend of workers is vllm/workers.py:6, but the call fails: missing a required argument: 'b'"),
        ("x.collective_rpc('lend', args=(1, 2)), x.collective_rpc('lend', None, (1,), {'b': 1})", ""),
        ("x.collective_rpc('lend', args=given), x.collective_rpc('lend', args=(*given,))", ""),
        ("x.collective_rpc('lend', *given), x.collective_rpc('lend', **given), x.collective_rpc('lend', kwargs={**given})", ""),
        ("x.collective_rpc('wrapped', args=(1,))", ""),
        ("register('x', 'vllm.gone.names', 'Backend')", "there is no module vllm.gone.names"),
        ("register(path='vllm.model_executor.models.one', name='Two')", "vllm/model_executor/models/one.py does not define Two"),
        ("register('x', 'vllm.model_executor.models.one', 'One'), register('vllm.gone.names', 'lower'), register('vllm.gone', 'Gone')", ""),
        ("replace(a, x=1, **more), a.replace(gone=1)", ""),
        ("f(attention_backend='FLASH_ATTM')", "note: nothing else in the tree mentions the attention backend 'FLASH_ATTM'; the nearest is FLASH_ATTN"),
        ("f(my_attention_backend='FLASH_ATTN')", ""),
        ("f(backend='FLASH_ATTM')", ""),
        ("a_backend.get_name() == 'TRITON_ATTM'", "note: nothing else in the tree mentions the attention backend 'TRITON_ATTM'; the nearest is TRITON_ATTN"),
        ("a.get_name() == 'TRITON_ATTM'", ""),
        ("'vllm.names.Bakend'", "'vllm.names.Bakend': vllm/names.py does not define Bakend; the nearest is Backend"),
        ("'vllm.names:Bakend'", ""),
        ("'vllm.names.deep:Bakend'", "'vllm.names.deep:Bakend': there is no module vllm.names.deep"),
        ("'vllm.nams.Backend'", "'vllm.nams.Backend': there is no module vllm.nams"),
        ("'vllm.names.Backend'", ""),
        ("'vllm.names.gone'", ""),
        ("'vllm.names.Backend.Inner'", ""),
        ("from vllm.names import Backend\nBackend['FLSH']", "Backend (vllm/names.py:4) has no member FLSH; the nearest is FLASH"),
        ("from vllm.names import Backend\nBackend['FLASH']", ""),
        ("from vllm.names import Plain\nPlain['FLSH']", ""),
        ("TABLE = {'one': 1, 'two': 2}\nTABLE['oen']", "TABLE (vllm/use.py:1) has no key 'oen'; the nearest is one"),
        ("TABLE: dict = {'one': 1}\nTABLE['one'], TABLE.get('oen'), other['oen'], TABLE[oen]", ""),
        ("TABLE = {'one': 1}\nTABLE['two'] = 2\nTABLE['two']", ""),
        ("TABLE = {'one': 1}\nTABLE.update(two=2)\nTABLE['two']", ""),
        ("TABLE = {'one': 1, **more}\nTABLE['two']", ""),
        ("TABLE = {}\nTABLE['two']", ""),
        ("TABLE = {'one': 1}\ndef f(TABLE):\n    return TABLE['two']", ""),
        ("try:\n    TABLE = {'one': 1}\nexcept E: ...\nTABLE['two']", ""),
        ("envs.is_set('VLLM_PORTT')", "environment_variables (vllm/envs.py:2) has no key 'VLLM_PORTT'; the nearest is VLLM_PORT"),
        ("envs.is_set('VLLM_PORT'), is_set('VLLM_PORTT'), envs.is_set(name)", ""),
        ("logger.info('%s %s', a)", "the format '%s %s' takes 2 values but gets 1"),
        ("self.logger.warning_once('%s')", "the format '%s' takes 1 values but gets 0"),
        ("logger.info('100%', a, b)", "the format '100%' takes 0 values but gets 2"),
        ("logger.info('100%', a)", ""),
        ("logger.info('100% of %%s')", ""),
        ("logger.info('%%', 1, 2)", "the format '%%' takes 0 values but gets 2"),
        ("logger.info('%d%%', 1)", ""),
        ("logger.info('%(a)s', {})", ""),
        ("logger.info('%*d', 1, 2)", ""),
        ("logger.info('x', a)", ""),
        ("logger.info('%s %s', *a)", ""),
        ("logger.other('%s %s', a)", ""),
        ("other.info('%s %s', a)", ""),
        ("'%s %s' % (a,)", "the format '%s %s' takes 2 values but gets 1"),
        ("'%s %s' % (a, b)", ""),
        ("'%-5.2f|%+d' % (a,)", "the format '%-5.2f|%+d' takes 2 values but gets 1"),
        ("'%s %s' % (*a,)", ""),
    ],
)  # fmt: skip
def test_a_string_that_names_what_is_not_there(code: str, message: str) -> None:
    assert _messages(string_misuses, code) == ([message] if message else [])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('{"A": ("one", "One")}', ""),
        ('{"A": ("vllm.names", "Backend")}', ""),
        ('{"A": ("vllm.names", "Bakend")}', "vllm/names.py does not define Bakend; the nearest is Backend"),
        ('{"A": ("oen", "One")}', "there is no module vllm.model_executor.models.oen; the nearest is one"),
        ('{"A": "oen"}', ""),
    ],
)  # fmt: skip
def test_the_models_of_the_registry(table: str, message: str) -> None:
    assert _messages(string_misuses, table, REGISTRY) == ([message] if message else [])
    assert _messages(string_misuses, table) == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("'VLLM_X': lambda: os.x('VLLM_X') or os.x('VLLM_Y')", ""),
        (
            "'VLLM_X': lambda: os.x('VLLM_Y')",
            "VLLM_X is read from VLLM_Y, a name that is used nowhere else",
        ),
        ("'VLLM_X': lambda: os.x('VLLM_HOST')", ""),
        ("'VLLM_X': lambda: os.x('HOME'), **more", ""),
    ],
)
def test_variables_that_are_read_as_another(entry: str, message: str) -> None:
    table = f"VLLM_HOST = 1\ntable = {{{entry}}}\n"
    assert _messages(string_misuses, table, ENVS) == ([message] if message else [])
    assert _messages(string_misuses, table) == []


@pytest.mark.parametrize(
    ("code", "messages"),
    [
        ("torch.ops.vllm.add(1, 2)", []),
        ("torch.ops.vllm.add(1)", ["torch.ops.vllm.add is vllm/more.py:13, but the call fails: missing a required argument: 'by'"]),
        ("torch.ops.vllm.both(1)", []),
        ("torch.ops.vllm.both(1, 2, 3)", ["torch.ops.vllm.both is vllm/more.py:13, but the call fails: too many positional arguments"]),
        ("torch.ops.vllm.ad", ["nothing registers torch.ops.vllm.ad; the nearest is add"]),
        ("torch.ops.vllm.kept", []),
        ("torch.ops.vllm.work", []),
        ("torch.ops.other.ad", []),
        ("def f(x: list[int], y: Other = 1) -> None: ...\ndirect_register_custom_op('f', f)", []),
        ("def f(x: int) -> None: ...\ndirect_register_custom_op('f', f, mutates_args=['x'])", []),
        ("def f(x: int) -> None: ...\ndirect_register_custom_op('f', f, mutates_args=['y'])", ["vllm/use.py:1 has no parameter y, but mutates_args names it"]),
        ("def f(x: int, y: int = 1) -> None: ...\ndef g(x): ...\ndef h(x, *more): ...\ndirect_register_custom_op('f', f, fake_impl=g), direct_register_custom_op('f', f, fake_impl=h)", []),
        ("def f(x: int, y: int) -> None: ...\ndef g(x): ...\ndirect_register_custom_op('f', f, fake_impl=g)", ["vllm/use.py:2 is the fake of vllm/use.py:1, but a call like the operator's fails: too many positional arguments"]),
        ("def f(x: int) -> None: ...\ndef g(x, y): ...\ndirect_register_custom_op('f', f, fake_impl=g)", ["vllm/use.py:2 is the fake of vllm/use.py:1, but a call like the operator's fails: missing a required argument: 'y'"]),
        ("def f(x: 'dict[str, int]', y: list) -> None: ...\ndirect_register_custom_op('f', f)", ["torch cannot make an operator of vllm/use.py:1: its parameter x is of type dict[str, int], which operators do not accept"]),
        ("def f(x: list) -> None: ...\ndirect_register_custom_op('f', f)", ["torch cannot make an operator of vllm/use.py:1: its parameter x is of type list, which operators do not accept"]),
        ("@made\ndef f(x): ...\ndirect_register_custom_op('f', f)", []),
        ("direct_register_custom_op('f', gone)", []),
        ("direct_register_custom_op('f')", []),
    ],
)  # fmt: skip
def test_operators_of_torch(code: str, messages: list[str]) -> None:
    assert _messages(string_misuses, code) == messages


RESULTS = """\
def pair(): return 1, 2
def either(a):
    if a: return 1, 2
    return 1, 2, 3
def unknown(a): return a
async def later(): return 1, 2
def walk(): yield 1
@contextmanager
def entered(): yield 1
@made
def wrapped(): return 1, 2
class A:
    def two(self): return 1, 2
    def gen(self): yield 1
    @cache
    def kept(self, a): return a
    def use(self):
        {}
class B:
    def three(self): return 1, 2, 3
    def use(self):
        {}
class C(B):
    def three(self): return 1, 2
async def run():
    {}
@functools.cache
def once(a, *, b=1): return a
@dataclass
class Data:
    left: int = 1
"""


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        ("x, y, z = pair()", "pass", "pass", "pair() is unpacked into 3 values, but vllm/use.py:1 returns 2"),
        ("x, y = pair()", "pass", "pass", ""),
        ("x, *y = pair()", "pass", "pass", ""),
        ("x, = either(1)", "pass", "pass", "either() is unpacked into 1 values, but vllm/use.py:2 returns 2 or 3"),
        ("x, y = either(1)", "pass", "pass", ""),
        ("x, y, z = unknown(1)", "pass", "pass", ""),
        ("x, y, z = wrapped()", "pass", "pass", ""),
        ("x, y, z = self.two()", "pass", "pass", "self.two() is unpacked into 3 values, but vllm/use.py:13 returns 2"),
        ("x, y, z = self.a.two()", "pass", "pass", ""),
        ("pass", "x, y = self.three()", "pass", ""),
        ("pass", "pass", "x, y, z = await later()", "later() is unpacked into 3 values, but vllm/use.py:6 returns 2"),
        ("pass", "pass", "x, y, z = later()", ""),
        ("pass", "pass", "x, y, z = await pair()", ""),
        ("with walk() as x: pass", "pass", "pass", "walk() is used in `with`, but vllm/use.py:7 is a generator without @contextmanager"),
        ("with a, walk(): pass", "pass", "pass", "walk() is used in `with`, but vllm/use.py:7 is a generator without @contextmanager"),
        ("with entered() as x: pass", "pass", "pass", ""),
        ("with pair() as x: pass", "pass", "pass", ""),
        ("self.kept(1, 2)", "pass", "pass", "self.kept is vllm/use.py:16, but the call fails: too many positional arguments"),
        ("self.kept(1), self.a.kept(1, 2), once(1, b=2), once(*a)", "pass", "pass", ""),
        ("once(1, c=2)", "pass", "pass", "once is vllm/use.py:28, but the call fails: got an unexpected keyword argument 'c'"),
        ("Thread(target=either)", "pass", "pass", "either is vllm/use.py:2, but the call fails: missing a required argument: 'a'"),
        ("threading.Thread(target=self.two, args=(1,))", "pass", "pass", "self.two is vllm/use.py:13, but the call fails: too many positional arguments"),
        ("Thread(target=either, args=(1,)), Thread(target=self.two), Thread(target=either, args=given), Thread(target=either, kwargs=given)", "pass", "pass", ""),
        ("Other(target=either), pool.submit(either), self.call_soon(wrapped, 1)", "pass", "pass", ""),
        ("pass", "self.call_soon(self.three, 1), Thread(target=self.three, args=(1,))", "pass", ""),
        ("pass", "pass", "await loop.run_in_executor(None, either)", "either is vllm/use.py:2, but the call fails: missing a required argument: 'a'"),
        ("pass", "pass", "loop.call_soon(either, 1), loop.call_later(3, either, 1), loop.call_soon(lambda: 1), loop.run_in_executor(None, unknown, *a)", ""),
        ("with self.gen(): pass", "pass", "pass", "self.gen() is used in `with`, but vllm/use.py:14 is a generator without @contextmanager"),
    ],
)  # fmt: skip
def test_what_functions_give_and_take(a: str, b: str, c: str, message: str) -> None:
    text = RESULTS.format(a, b, c)
    found = (*_messages(result_misuses, text), *_messages(call_misuses, text))
    assert found == ((message,) if message else ())


# ---- duplicates ------------------------------------------------------------------------------------


def _duplicates(before: str, after: str) -> list[str]:
    lines = added_lines(before.encode(), after.encode())
    problems = duplicate_problems("a.py", ast.parse(after), lines)
    return [
        f"{'note: ' if p.level is Level.NOTE else ''}{p.line} {p.scope}: {p.message}"
        for p in problems
    ]


@pytest.mark.parametrize(
    ("before", "after", "messages"),
    [
        ("f(1)\n", "f(1)\nf(1)\n", ["note: 2 : the patch adds `f(1)`, which the module already has at line 1"]),
        ("f(1)\n" + "x\n" * 11, "f(1)\n" + "x\n" * 11 + "f(1)\n", ["note: 13 : the patch adds `f(1)`, which the module already has at line 1"]),
        ("f(1)\n" + "x\n" * 12, "f(1)\n" + "x\n" * 12 + "f(1)\n", []),
        ("a = 1\n", "a = 1\na = 1\n", ["note: 2 : the patch adds `a = 1`, which the module already has at line 1"]),
        ("import a\n", "import a\nimport a\n", ["note: 2 : the patch adds `import a`, which the module already has at line 1"]),
        ("f(a)\n", "f(a)\na = 2\nf(a)\n", []),
        ("return_\n", "return_\nreturn_\n", []),
        ("if a:\n    f()\n", "if a:\n    f()\nif a:\n    f()\n", ["3 : the patch adds `if a:`, which the module already has at line 1"]),
        ("if a:\n    f()\n" + "x\n" * 12, "if a:\n    f()\n" + "x\n" * 12 + "if a:\n    f()\n", ["note: 15 : the patch adds `if a:`, which the module already has at line 1"]),
        ("def f(): ...\n", "def f(): ...\ndef f(): pass\n", ["2 : the patch adds `def f():`, which the module already has at line 1"]),
        ("x\n", "x\ndef f(): ...\ndef f(): pass\n", ["3 : the patch adds `def f():`, which the module already has at line 2"]),
        ("@overload\ndef f(): ...\n", "@overload\ndef f(): ...\n@overload\ndef f(a): ...\n", []),
        ("@made\ndef f(): ...\n", "@made\ndef f(): ...\n@made\ndef f(a): ...\n", ["4 : the patch adds `@made`, which the module already has at line 2"]),
        ("@made\ndef f(): ...\n", "@made\ndef f(): ...\n@other\ndef f(a): ...\n", []),
        ("@a.register\ndef f(): ...\n", "@a.register\ndef f(): ...\n@a.register\ndef f(a): ...\n", []),
        ("class A:\n    def f(self): ...\n", "class A:\n    def f(self): ...\n    def f(self): ...\n", ["3 A: the patch adds `def f(self):`, which A already has at line 2"]),
        ("class A:\n    @property\n    def f(self): ...\n", "class A:\n    @property\n    def f(self): ...\n    def f(self): ...\n", ["4 A: the patch adds `def f(self):`, which A already has at line 3"]),
        ("try:\n    f()\nexcept E:\n    g()\nelse:\n    h()\nfinally:\n    i()\n", "try:\n    f()\nexcept E:\n    g()\n    g()\nelse:\n    h()\n    h()\nfinally:\n    i()\n    i()\n", ["note: 8 : the patch adds `h()`, which the module already has at line 7", "note: 10 : the patch adds `i()`, which the module already has at line 11", "note: 5 : the patch adds `g()`, which the module already has at line 4"]),
        ("@r.get('/x')\ndef a(): ...\n", "@r.get('/x')\ndef a(): ...\n@r.get('/x')\ndef b(): ...\n", ["4 : the patch adds `@r.get('/x')`, which the module already has at line 2"]),
        ("@r.get('/x')\ndef a(): ...\n", "@r.get('/x')\ndef a(): ...\n@r.post('/x')\ndef b(): ...\n", []),
        ("r.route('/x', methods=[1])\n", "r.route('/x', methods=[1])\nr.route('/x', methods=[2])\n", []),
        ("r.route('/x', a=1)\n", "r.route('/x', a=1)\nr.route('/x', a=2)\n", ["2 : the patch adds `r.route('/x', a=2)`, which the module already has at line 1"]),
        ("R.lazy_register_module('a', 1)\n", "R.lazy_register_module('a', 1)\nR.lazy_register_module('a', 2)\n", ["2 : the patch adds `R.lazy_register_module('a', 2)`, which the module already has at line 1"]),
        ("r.other('a', 1)\n", "r.other('a', 1)\nr.other('a', 2)\n", []),
        ("x\n", "x\nr.route('/x')\nr.route('/x')\n", ["3 : the patch adds `r.route('/x')`, which the module already has at line 2"]),
        ("d = {\n    'a': 1,\n}\n", "d = {\n    'a': 1,\n    'a': 2,\n}\n", ["3 : the patch adds the key 'a', which the same table already has at line 2"]),
        ("d = {\n    'a': 1,\n}\n", "d = {\n    'a': 2,\n    'a': 1,\n}\n", ["3 : the patch adds the key 'a', which the same table already has at line 2"]),
        ("d = {\n    1: 1,\n}\n", "d = {\n    1: 1,\n    True: 2,\n    **x,\n    y: 3,\n}\n", []),
        ("d = {\n    'a': 1,\n    'a': 2,\n}\n", "d = {\n    'a': 1,\n    'a': 2,\n    'b': 2,\n}\n", []),
        ("def f():\n    g({'a': 1,\n    })\n", "def f():\n    g({'a': 1,\n    'a': 2})\n", ["3 f: the patch adds the key 'a', which the same table already has at line 2"]),
    ],
)  # fmt: skip
def test_what_a_patch_adds_a_second_time(before: str, after: str, messages: list[str]) -> None:
    assert _duplicates(before, after) == messages


def test_a_long_statement_is_cut() -> None:
    line = f"f('{'y' * 70}')\n"
    (message,) = _duplicates(line, line * 2)
    assert f"`f('{'y' * 54}...`" in message


# ---- names and imports -----------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    tree = tree_of({"vllm/__init__.py": "", "vllm/stars.py": "Shown = 1\n"})
    after = dedent(text).lstrip("\n").encode()
    found = fit((FileChange(USE, None, after),), tree).findings
    told = (one for one in found if one.code == "fit-undefined-name" and one.level is Level.ERROR)
    words = re.compile(r".*: name `(\w+)` used when( not defined) \(ty.*|.*?: (?=the name)")
    return [
        f"{one.line} {one.scope}: {words.sub(lambda m: f'the name {m[1]} is{m[2]}' if m[1] else '', one.message)}"
        for one in told
    ]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("a = 1\nprint(a, __file__, int)", []),
        ("print(a)\nb = a", ["1 : the name a is not defined"]),
        ("def f():\n    return a", ["2 f: the name a is not defined"]),
        ("class A:\n    def f(self):\n        return [a for b in c]", ["3 A.f: the name c is not defined"]),
        ("def f():\n    global a\n    a = 1\ndef g():\n    return a", []),
        ("def f(a):\n    return lambda: a", []),
        ("def f():\n    return {a for b in c}", ["2 f: the name c is not defined"]),
        ("def f():\n    return (a for b in c)", ["2 f: the name c is not defined"]),
        ("def f():\n    return {a: 1 for b in c}", ["2 f: the name c is not defined"]),
        ("x = lambda b: a + b\nclass A:\n    y = lambda self: c", ["1 : the name a is not defined", "3 A: the name c is not defined"]),
        ("def f(b):\n    return lambda c=d: [a for e in b + c]", ["2 f: the name a is not defined"]),
        ("def f() -> a: ...", ["1 f: the name a is not defined"]),
        ("from __future__ import annotations\ndef f(x: a = 1) -> a: ...", []),
        ("from __future__ import annotations\n@a\ndef f(x=b, *, y=c): ...", ["2 : the name a is not defined", "3 f: the name c is not defined"]),
        ("from __future__ import annotations\nx: a = b", ["2 : the name b is not defined"]),
        ("from __future__ import annotations\nclass A:\n    x: a = b", ["3 A: the name b is not defined"]),
        ("x: a = 1", ["1 : the name a is not defined"]),
        ("def f():\n    x: a = b", ["2 f: the name b is not defined"]),
        ("class A:\n    x: a", ["2 A: the name a is not defined"]),
        ("import typing\nif typing.TYPE_CHECKING:\n    from x import A, B\n    C = 1\ndef f(a: 'A'):\n    return B, C", ["6 f: the name B is imported for type checkers only, but used at run time", "6 f: the name C is imported for type checkers only, but used at run time"]),
        ("from vllm.stars import *\nShown, Gone", ["2 : the name Gone is not defined"]),
        ("from elsewhere import *\nGone", []),
        ("globals().update(x=1)\nGone", []),
        ("del a", ["1 : the name a is not defined"]),
        ("a = b\ndef b(): ...", ["1 : the name b is not defined"]),
        ("class A:\n    def f(self) -> A: ...", ["2 A.f: the name A is not defined"]),
        ("for a in b: pass", ["1 : the name b is not defined"]),
    ],
)  # fmt: skip
def test_names_that_nothing_defines(text: str, messages: list[str]) -> None:
    assert sorted(_names(text)) == messages


IMPORTS = {
    "vllm/__init__.py": "",
    "vllm/a.py": "A = 1\n",
    "vllm/lazy.py": "def __getattr__(name):\n    if name == 'Named':\n        return 1\n    raise AttributeError\n",
    "vllm/only.py": "class Moved: ...\n",
    "vllm/stated.py": "if TYPE_CHECKING:\n    from .a import A\n    from .a import B, C\nelse:\n    B = C = object\n",
    "vllm/stated_lazily.py": "if TYPE_CHECKING:\n    from .a import A\n\n\ndef __getattr__(name): ...\n",
    "beside/__init__.py": "x = 1\n",
    "beside/made.py": "def __getattr__(name): ...\n",
    "beside/pack/deep.py": "",
    "beside/full/__init__.py": "",
    "beside/full/part.so": "",
    "lonely.py": "y = 1\n",
}


def _imports(text: str) -> list[str]:
    world = world_of(IMPORTS, {USE: text})
    lines = frozenset(range(1, text.count("\n") + 2))
    return [
        f"{p.line} {p.scope}: {p.message}" if isinstance(p, Problem) else f"? {p.why}"
        for p in import_problems(world, USE, _sites(text), lines)
    ]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("import vllm.a\nfrom vllm.a import A\nfrom . import a\nfrom .a import *", []),
        ("import vllm.gone", ["1 : cannot import vllm.gone: the tree has no module vllm.gone"]),
        ("from vllm.a import B", ["1 : cannot import B from vllm.a: vllm/a.py does not define B"]),
        ("from vllm.a import Moved", ["1 : cannot import Moved from vllm.a: vllm/a.py does not define Moved; Moved is defined only in vllm.only"]),
        ("from .gone import A", ["1 : cannot import A from vllm.gone: the tree has no module vllm.gone; A is defined only in vllm.a"]),
        ("from .... import A", ["? a relative import leaves the tree"]),
        ("import vllm._C", ["? vllm._C is generated when vLLM is built"]),
        ("import_module('vllm.gone')\nimportlib.import_module('vllm.a')", ["1 : cannot import vllm.gone: the tree has no module vllm.gone"]),
        ("import_module(name), import_module('.gone', 'vllm'), other('vllm.gone')", []),
        ("if find_spec('vllm.gone'):\n    import vllm.gone", ["? the import fails, but the code catches the error, or is for another vLLM version or type checkers only"]),
        ("import torch.nn", ["? torch is not in the tree"]),
        ("try:\n    import vllm.gone\nexcept ImportError:\n    pass", ["? the import fails, but the code catches the error, or is for another vLLM version or type checkers only"]),
        ("if TYPE_CHECKING:\n    import vllm.gone", ["? the import fails, but the code catches the error, or is for another vLLM version or type checkers only"]),
        ("def f():\n    import vllm.gone", ["2 f: cannot import vllm.gone: the tree has no module vllm.gone"]),
        ("from vllm.lazy import Named", []),
        ("from vllm.stated import A", ["1 : cannot import A from vllm.stated: vllm/stated.py defines A for type checkers only; A is defined only in vllm.a"]),
        ("from vllm.stated import B, C\nfrom vllm.stated_lazily import A", []),
        ("from vllm import a\na.Other", []),
        ("import json, os.path\nfrom json import loads\nfrom xml import dom", []),
        ("import jsonn.x.y", ["? jsonn is not in the tree"]),
        ("import beside, lonely\nfrom beside import x\nfrom lonely import y", []),
        ("from beside import z", ["1 : cannot import z from beside: beside/__init__.py, installed beside vLLM, does not define z"]),
        ("from lonely import z", ["1 : cannot import z from lonely: lonely.py, installed beside vLLM, does not define z"]),
        ("import beside.gone", ["1 : cannot import beside.gone: the beside installed beside vLLM has no module beside.gone"]),
        ("from beside import pack, full, made\nimport beside.pack\nfrom beside.full import part", []),
        ("from beside.made import z", ["? beside/made.py creates names at run time"]),
        ("import beside.full.part", []),
    ],
)  # fmt: skip
def test_imports_that_fail(text: str, messages: list[str]) -> None:
    assert _imports(text) == messages


# ---- what nothing reaches, and what the code writes ------------------------------------------------

HOOKS = {
    "vllm/__init__.py": "",
    "vllm/base.py": "class Base:\n    def hook(self): ...\n\n    def other(self): ...\n",
    USE: "from vllm.base import Base\n\n\nclass Mine(Base):\n    x = 1\n",
    "vllm/caller.py": "def f(a):\n    a.called()\n    getattr(a, f'made_{a}')(f'{a}_of')\n",
    "vllm/far.py": """
        class Far:
            def late_hook(self, a): ...

            def late_works(self, a): ...

            def lone_hook(self, a): ...

            def made_hook(self, a): ...

            def hook_of(self, a): ...


        class Near(Far):
            def late_hook(self, a): ...

            def late_works(self, a): ...

            def made_hook(self, a): ...

            def hook_of(self, a): ...
    """,
}


def _dead(after: str, origin: str | None = None, path: str = USE) -> list[str]:
    before, now = world_of(HOOKS), world_of(HOOKS, {path: after})
    there = None if origin is None else world_of(HOOKS, {"vllm/base.py": origin})
    return [
        f"{p.level.value} {p.line} {p.scope}: {p.message}"
        for p in dead_problems(before, now, path, there)
    ]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def hok(self): ...", "note 6 Mine.hok: nothing calls Mine.hok, and no base class defines it; the nearest is hook"),
        ("def zzz(self): ...", "note 6 Mine.zzz: nothing calls Mine.zzz, and no base class defines it"),
        ("def hook(self): ...", ""),
        ("def called(self): ...", ""),
        ("def zzz(self): self.zzz()", ""),
        ("@made\n    def zzz(self): ...", ""),
        ("def __zzz__(self): ...", ""),
        ("def visit_zzz(self): ...", ""),
    ],
)  # fmt: skip
def test_hooks_that_nobody_calls(method: str, message: str) -> None:
    assert _dead(f"{HOOKS[USE]}    {method}\n") == ([message] if message else [])


@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("def late_hok(self, a): ...", "error"),
        ("def late_hok(self, b): ...", "note"),
        ("def late_calls(self, a): ...", "note"),
        ("def late_hok(self, a): ...\n\n    late_hook = 1", "note"),
        ("def lone_hok(self, a): ...", "note"),  # nobody overrides that
        ("def made_hok(self, a): ...", "note"),  # its name may be put together
        ("def hok_of(self, a): ...", "note"),
    ],
)
def test_a_hook_of_another_name_that_takes_the_same_is_meant(method: str, level: str) -> None:
    for base in ("Far", "Near"):
        (found,) = _dead(f"from vllm.far import *\n\n\nclass New({base}):\n    {method}\n")
        assert found.startswith(f"{level} 5 New.")
        assert found.endswith(", a hook with the same parameters") is (level == "error")


def test_hooks_of_new_classes_count_where_there_is_a_base() -> None:
    assert _dead(HOOKS[USE] + "\n\nclass New:\n    def zzz(self): ...\n") == []
    assert len(_dead(HOOKS[USE] + "\n\nclass New(Base):\n    def zzz(self): ...\n")) == 1
    assert _dead(HOOKS[USE] + "\n\nclass New(Base, other.X):\n    def zzz(self): ...\n") == []


def test_hooks_that_were_ones_where_the_patch_was_written() -> None:
    origin = HOOKS["vllm/base.py"].replace("hook", "early_hook")
    text = "Mine.early_hook overrides Base.early_hook in 0.19.1, but no base class defines it here"
    after = HOOKS[USE] + "\n    def early_hook(self): ...\n"
    assert _dead(after, origin) == [
        f"error 7 Mine.early_hook: {text}, and nothing calls it; the nearest is hook"
    ]
    assert _dead(after.replace("...", "self.early_hook()"), origin) == [
        f"note 7 Mine.early_hook: {text}; the nearest is hook"
    ]
    # no comment, text or call of what is gone calls it
    for idle in ("'See early_hook.'  # early_hook", "super().early_hook()"):
        assert _dead(after.replace("...", idle), origin)[0].startswith("error")
    own = after.replace("early_hook", "__early__")
    assert _dead(own, origin.replace("early_hook", "__early__")) == []


def test_files_that_nothing_imports() -> None:
    message = "note 1 : the patch adds this file, but nothing in the tree imports it"
    assert _dead("x = 1\n", path="vllm/alone.py") == [message]
    assert _dead("x = 1\n", path="vllm/called.py") == []
    assert _dead("x = 1\n", path="vllm/__main__.py") == []
    assert _dead("x = 1\n", path="other/alone.py") == []


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("A.b = 1", "A.b"),
        ("a.B.c = d.e = 1", "a.B.c d.e"),
        ("A.b, A.c = 1, 2", "A.b A.c"),
        ("A.b: int = 1", "A.b"),
        ("class A:\n    def f(self): self.b = 1", ""),
        ("def f(self): self.b = 1", "self.b"),
        ("b = 1\nb[0] = 1", ""),
        ("setattr(A, 'b', 1)", "A.b"),
        ("setattr(m.A, name, 1)", "m.A.?"),
        ("type.__setattr__(A, 'b', 1)", "A.b"),
        ("mock.patch.object(A, 'b')", "A.b"),
        ("mock.patch('vllm.a.b', 1)", "'vllm.a'.b"),
        ("mock.patch(name, 1)", ""),
        ("other(A, 'b', 1)", ""),
        ("vars(A)['b'] = 1", "A.b"),
        ("A.__dict__['b'] = 1", "A.b"),
        ("A.__dict__[x] = 1", "A.?"),
        ("vars(m.A).update(x)", "m.A.?"),
        ("A.update(x)", ""),
        ("sys.modules['a.b'] = x", "'a.b'.?"),
        ("others['a.b'] = x", ""),
    ],
)
def test_what_code_writes_while_it_runs(code: str, writes: str) -> None:
    found = run_time_writes(USE, code.encode(), frozenset(range(99)))
    assert sorted(f"{ast.unparse(w.owner)}.{w.name or '?'}" for w in found) == writes.split()
    assert not [*run_time_writes(USE, code.encode(), frozenset())]


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("Worker.fast = 1", "no `x.fast` of Worker", "fast is"),
        ("Worker.fast = 1", "no fast (vllm/a.py:3), Worker", "fast is"),
        ("Worker.fast = 1", "no `x.fast` of Other", ""),
        ("who.fast = 1", "no `x.fast` of Other", "fast is"),
        ("setattr(Worker, name, 2)", "no Worker here", "attributes of Worker are"),
        ("setattr(Worker, name, 2)", "`Worker.x`: no more", ""),
        ("setattr(who, name, 2)", "no `x.fast` of who", ""),
        ("Worker.fast = 1", "no fast of Worker", ""),
        ("Below.fast = 1", "no `x.fast` of Worker", "fast is"),
        ("Worker.fast = 1", "no `x.fast` of Below", "fast is"),
        ("a.fast = 1", "no `x.fast`", "fast is"),
        ("a.fast = 1", "module `other` has no `fast`", ""),
        # a parameter is no attribute
        ("x.fast = 1", "required parameter `fast` of `Worker.f`", ""),
        ("def f(c):\n    c.fast = 1\nf(Worker)", "no `x.fast` of Other", ""),
        ("def f(c: Worker):\n    c.fast = 1\nf(x)", "no `x.fast` of Worker", "fast is"),
        ("mock.patch('vllm.a.Worker.fast', 1)", "no `x.fast` of Worker", "fast is"),
        ("Worker.__init__ = f", "no Worker here", "attributes of Worker are"),
    ],
)
def test_only_what_may_rest_on_a_write_is_a_note(code: str, message: str, reason: str) -> None:
    classes = "class Worker: ...\nclass Below(Worker): ...\nclass Other: ...\n"
    text = f"import vllm.a as a\nfrom vllm.a import Worker, Below\n{code}\n"
    world = world_of({"vllm/__init__.py": "", "vllm/a.py": classes}, {USE: text})
    problem = Problem(FindingCode.FIT_CALL, USE, 9, "", message, ())
    softened = soften(world, problem)
    assert (softened.level is Level.NOTE) is bool(reason)
    assert softened.message == (f"{message} ({reason} changed at run time)" if reason else message)
    syntax = problem._replace(code=FindingCode.FIT_SYNTAX)
    assert soften(world, syntax) == syntax


# ---- users, and the folders that the type checker reads --------------------------------------------

OLD = "class A:\n    field: int\n    b = 1\n    def f(self, a): self.c = 1\n    def __init__(self): ...\ndef g(a): ...\nX = 1\nT = {'a': 1, 'b': 2}\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("X = 1", "Y = 1", "X"),
        ("X = 1", "X = 2", ""),
        ("'a': 1, ", "", "T"),
        ("'b': 2", "'b': 3, 'c': 3", ""),
        ("def g(a)", "def g(a, b)", "g"),
        ("def g(a)", "async def g(a)", "g"),
        ("def g(a): ...", "def g(a): yield", "g"),
        ("def g(a): ...", "def g(a): pass", ""),
        ("self.c = 1", "self.d = 1", "c"),
        ("    b = 1\n", "", "b"),
        ("field: int", "field: int = 1", "A field"),
        ("field: int", "field: str", "A field"),
        ("def __init__(self)", "def __init__(self, x)", "A"),
        ("class A:", "class A(B):", "A"),
        ("class A:", "@made\nclass A:", "A"),
    ],
)
def test_what_the_users_of_a_file_are_looked_for_by(old: str, new: str, words: str) -> None:
    files = {
        "vllm/__init__.py": "",
        "vllm/a.py": OLD,
        "vllm/u.py": "import a\n\na.g\nA.c, field\nX\nnog\n",
    }
    after = world_of(files, {"vllm/a.py": OLD.replace(old, new)})
    who, looked_for = users_of(world_of(files), after)
    assert looked_for == set(words.split())
    rows = {"g": 3, "c": 4, "field": 4, "A": 4, "X": 5}
    lines = {rows[word] for word in words.split() if word in rows}
    assert who == ({"vllm/u.py": frozenset(lines)} if lines else {})


def test_a_common_name_is_followed_where_its_class_or_module_is_named() -> None:
    files = {f"vllm/u{n}.py": "x.c\n" for n in range(39)}
    files |= {"vllm/class_too.py": "A\nx.c\n", "vllm/module_too.py": "import vllm.a\nx.c\n"}
    change = {"vllm/a.py": OLD.replace("self.c = 1", "self.d = 1")}

    def who(several: dict[str, str]) -> dict[str, frozenset[int]]:
        before = {**several, "vllm/a.py": OLD}
        return users_of(world_of(before), world_of(before, change))[0]

    assert who(files) == {"vllm/class_too.py": {2}, "vllm/module_too.py": {2}}
    assert len(who({path: text for path, text in files.items() if path != "vllm/u1.py"})) == 40


@pytest.mark.parametrize(
    ("old", "new", "is_used_otherwise"),
    [
        ("(a)", "(a, b=1)", False),
        ("(a)", "(a, *, b=1)", False),
        ("(a, b=1)", "(a, b=2)", False),
        ("(a)", "(  # b\n    a\n)", False),
        ("(a, *, b)", "(a, *, b=1)", True),
        ("(a)", "(b=1, a=1)", True),
        ("(a)", "(a, *, b)", True),
        ("(a, *, b=1)", "(a)", True),
        ("(a, b=1)", "(a)", True),
        ("(a)", "(a: int)", True),
        ("(a)", "(a, /)", True),
        ("(a)", "(a, **b)", True),
        ("(a)", "(a) -> int", True),
    ],
)
def test_a_function_that_only_takes_more_has_no_users_to_look_at(
    old: str, new: str, *, is_used_otherwise: bool
) -> None:
    text = "def g{}: ...\n"
    files = {"vllm/a.py": text.format(old)}
    after = world_of(files, {"vllm/a.py": text.format(new)})
    words = users_of(world_of(files), after)[1]
    assert words == ({"g"} if is_used_otherwise else set())


def test_what_is_still_stored_elsewhere_in_a_class_is_not_gone() -> None:
    text = "class A:\n    def __init__(self):\n        self.c = 1\n\n    def m(self):\n        self.c = 2\n"
    after = world_of({}, {"vllm/a.py": text.replace("self.c = 2", "pass")})
    assert users_of(world_of({"vllm/a.py": text}), after)[1] == set()


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("from vllm.a import json\n", True),
        ("from vllm.a import (\n    X,\n    json,\n)\n", True),
        ("import vllm.a as b\nb.json\n", True),
        ("from vllm import a\na.json\n", True),
        ("'vllm.a.json'\n", True),
        ("import json\nfrom vllm.a import X\n", False),
        ("import json  # not that of a\n", False),
    ],
)
def test_who_takes_an_import_from_a_module_uses_it_there(text: str, *, uses: bool) -> None:
    old = {"vllm/a.py": "import json\nX = 1\n", "vllm/u.py": text}

    def who(files: dict[str, str]) -> dict[str, frozenset[int]]:
        return users_of(world_of(files), world_of(files, {"vllm/a.py": "X = 1\n"}))[0]

    assert ("vllm/u.py" in who(old)) is uses
    copied = {"vllm/all.py": "from vllm.a import *\n", **old}
    assert "vllm/u.py" in who(copied), "it may be taken from where all of it is copied"


def test_who_names_a_module_that_is_gone_is_a_user_of_it() -> None:
    files = {"vllm/a.py": OLD, "vllm/u.py": "import vllm.a\n"}
    who, words = users_of(world_of(files), world_of(files, {"vllm/a.py": None}))
    assert "a" in words
    assert who == {"vllm/u.py": {1}}


def test_a_folder_shows_a_tree_with_other_files(tmp_path: Path) -> None:
    for path in ("vllm/a.py", "vllm/sub/b.py", "vllm/__pycache__/c.pyc", "beside/d.py", "other.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("old")
    files = {
        "vllm/sub/new/e.py": b"new",
        "vllm/a.py": None,
        "extra.py": b"top",
        "beside/d.py": b"d",
    }
    tree = tree_of({})
    tree.root = str(tmp_path)
    overlay = Overlay(tree)
    folder = overlay.show(files)
    seen = sorted(
        os.path.relpath(os.path.join(where, name), folder)
        for where, _, names in os.walk(folder, followlinks=True)
        for name in names
    )
    assert seen == ["beside/d.py", "extra.py", "vllm/sub/b.py", "vllm/sub/new/e.py"]
    assert os.path.islink(f"{folder}/vllm/sub/b.py")
    with open(f"{folder}/beside/d.py", encoding="utf-8") as file:
        assert file.read() == "d"
    del overlay
    assert not os.path.exists(folder)
    assert (tmp_path / "vllm/a.py").read_text() == "old"
    tree.root = str(tmp_path / "nothing")
    overlay = Overlay(tree)
    assert os.listdir(overlay.show({})) == []


def test_layers_of_files_lie_over_each_other() -> None:
    first, second = {"a.py": b"1", "b.txt": b"2", "c.pyi": b"3"}, {"a.py": None}
    assert python_of(first, second) == {"a.py": None, "c.pyi": b"3"}


@pytest.mark.slow
def test_the_python_of_the_last_two_trees_is_laid_out() -> None:
    laid_out = LaidOut()
    trees = [tree_of({"vllm/a.py": f"x = {n}\n", "vllm/b.txt": "no"}) for n in range(3)]
    folders = [laid_out.show(tree) for tree in trees]
    assert [os.path.exists(folder) for folder in folders] == [False, True, True]
    assert os.listdir(f"{folders[2]}/vllm") == ["a.py"]
    assert laid_out.show(trees[2], {"vllm/a.py": b"changed"}) == folders[2]
    assert laid_out.show(trees[0]) not in folders


# ---- calls that reach an override ------------------------------------------------------------------

BASE_CLASS = """\
class Base:
    def run(self, a, b=None): ...
    def use(self):
        {base}


class Below(Base):
    {decorator}
    def run({parameters}): ...
    {below}


{more}
def f(x):
    {call}
"""


def _calls(
    kind: str = "",
    *,
    root: str = "vllm",
    name: str = "run",
    decorator: str = "# none",
    base: str = "pass",
    below: str = "pass",
    more: str = "",
    call: str = "pass",
    parameters: str = "self, a",
) -> list[str]:
    """Return what is said of the override where the receivers of calls have a type."""
    text = BASE_CLASS.format(
        decorator=decorator, base=base, below=below, more=more, call=call, parameters=parameters
    )
    text = text.replace("run", name)
    world = world_of({"vllm/__init__.py": "", "vllm/a.py": text}, {"vllm/a.py": text})
    if root != "vllm":
        first, second = text.split("class Below")
        own = f"from vllm.a import Base\n\n\nclass Below{second}"
        text = first + "def f(x):\n    x.run(1, b=2)\n"
        world = world_of({"vllm/a.py": text}, {f"{root}/b.py": own})
    (owner,) = classes_named(world, "Below")
    (override,) = overrides_of(world, owner, frozenset((name,)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(overrides, "receiver_types", lambda _, calls: dict.fromkeys(calls, kind))
        return [
            f"{one.level.value}: {one.message}" if isinstance(one, Problem) else f"? {one.why}"
            for one in override_problems(world, override, "vllm/a.py", 8)
        ]


RUN = "x.run(1, b=2)"
REFUSED = (
    "error: Below.run(self, a) overrides Base.run(self, a, b=…), but the call in vllm/a.py:{} "
    "fails: got an unexpected keyword argument 'b'"
)


@pytest.mark.parametrize(
    ("kind", "call", "line"),
    [
        ("Base", RUN, 15),
        ("Below | None", RUN, 15),
        ("Other", RUN, 0),
        ("", RUN, 15),
        ("Unknown", RUN, 15),
        ("Base", "x.run(1)", 0),
        ("Base", "x.run(1, c=2)", 0),
        ("Base", "x.other(1, b=2)", 0),
        ("Base", "super().run(1, b=2)", 0),
        ("Base", "Base().run(1, b=2)", 0),
        ("Below", "Below().run(1, b=2)", 15),
        ("<class 'Base'>", RUN, 0),
    ],
)
def test_which_calls_reach_an_override(kind: str, call: str, line: int) -> None:
    assert _calls(kind, call=call) == ([REFUSED.format(line)] if line else [])


@pytest.mark.parametrize(
    ("base", "below", "reaches"),
    [
        ("self.run(1, b=2)", "pass", True),
        ("self.run(1, b=2)", "def use(self): ...", False),
        ("self.run(1, b=2)", "def use(self): super().use()", True),
        ("Base.run(self, 1, b=2)", "pass", False),
    ],
)
def test_calls_on_the_object_itself(base: str, below: str, *, reaches: bool) -> None:
    assert _calls(base=base, below=below) == ([REFUSED.format(4)] if reaches else [])


def test_calls_on_an_object_of_another_class_do_not_reach_it() -> None:
    more = "class Other:\n    def use(self):\n        self.run(1, b=2)\n\n\n"
    assert _calls(more=more) == []


@pytest.mark.parametrize("kind", ["", "Any", "Unknown | None", "object"])
def test_a_receiver_of_unknown_type_may_be_one_of_another_family(kind: str) -> None:
    why = ["? 2 calls of run may reach this method, but the type of the receiver is unknown"]
    other = "class Other:\n    def run(self, q): ...\n\n\n"
    assert _calls(kind, more=other, call=f"{RUN}; {RUN}") == why
    family = other.replace("Other:", "Other(Base):")
    assert _calls(kind, more=family, call=RUN) == [REFUSED.format(19)]
    assert _calls(kind, name="get", call="x.get(1, b=2)") == [
        why[0].replace("2 calls of run", "1 calls of get")
    ]


def test_an_override_whose_decorator_may_change_its_signature_is_a_doubt() -> None:
    assert _calls("Base", decorator="@made", call=RUN) == ["? the method is decorated with made"]
    assert _calls("Base", decorator="@made", call="x.run(1)") == []
    for decorator in ("@staticmethod", "@classmethod"):
        assert _calls("Base", decorator=decorator, call=RUN) == []


HOOKED = """
class Base:
    {base}

    async def use(self):
        {use}


class Below(Base):
    {below}
"""


@pytest.mark.parametrize(
    ("base", "below", "use", "why"),
    [
        ("async def run(self): ...", "def run(self): return 1", "await self.run()", "Below.run(self) overrides Base.run(self), but the call in vllm/a.py:5 awaits the result, which is not a coroutine"),
        ("async def run(self): ...", "def run(self): return later()", "await self.run()", ""),
        ("async def run(self): ...", "def run(self): return 1", "self.run()", ""),
        ("def run(self): ...", "async def run(self): ...", "self.run().x", "Below.run(self) overrides Base.run(self), but the call in vllm/a.py:5 uses the result without awaiting it"),
        ("def run(self) -> AsyncIterator: ...", "async def run(self): yield 1", "self.run().aclose()", ""),
        ("def run(self): return 1, 2, 3", "def run(self): return 1, 2", "a, b, c = self.run()", "Below.run(self) overrides Base.run(self), but the call in vllm/a.py:5 unpacks 3 values, but gets 2"),
        ("def run(self): return 1, 2", "def run(self): return 1, 2, 3", "a, *b = self.run()", ""),
        ("def run(self): return 1, 2", "def run(self): return other()", "a, b = self.run()", ""),
        ("@property\n    def run(self): ...", "def run(self): ...", "self.run + 1", "Below.run(self) overrides Base.run(self), but that is a property, and callers use it as a property"),
        ("def run(self): ...", "@property\n    def run(self): ...", "self.run()", "Below.run(self) overrides Base.run(self), but that is a method, and callers use it as a method"),
        ("def run(self): ...", "@property\n    def run(self): ...", "pass", ""),
        ("def run(self): ...", "@made_property\n    def run(self): ...", "self.run()", ""),
    ],
)  # fmt: skip
def test_an_override_is_what_it_overrides(base: str, below: str, use: str, why: str) -> None:
    text = HOOKED.format(base=base, below=below, use=use).lstrip("\n")
    world = world_of({"vllm/a.py": text}, {"vllm/a.py": text})
    (owner,) = classes_named(world, "Below")
    (override,) = overrides_of(world, owner, frozenset(("run",)))
    said = override_problems(world, override, "vllm/a.py", 8)
    assert [one.message for one in said if isinstance(one, Problem)] == ([why] if why else [])


def test_a_class_of_another_package_that_is_called_its_own_way_there_makes_a_note() -> None:
    (refused,) = _calls("Base", root="plugin")
    assert refused.startswith("error: plugin/b.py:6: Below.run(self, a) overrides Base.run(")
    (own,) = _calls("Base", root="plugin", call="x.run(1, c=2)", parameters="self, a, c=1")
    assert own.startswith("note: plugin/b.py:6: ")
