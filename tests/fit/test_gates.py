"""What of the type checker's words counts, rule by rule: on lines that the patch adds, and elsewhere."""

from __future__ import annotations

import pytest
from fit_tree import world_of

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.gates import RULES, judge
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.types import plain_getattr

USE = "vllm/use.py"
FILES = {
    "vllm/__init__.py": "",
    "vllm/kinds.py": """
        from abc import ABC, abstractmethod
        from typing import Protocol

        import torch.nn as nn
        from pydantic import BaseModel, Field
        from outside import Foreign


        class Plain:
            size = 1

            def take(self, a): ...

            def give(self, a): ...

            async def wait(self): ...


        class Below(Plain):
            more = 1

            def give(self, a, b): ...

            def __enter__(self): ...


        class Taker(Protocol):
            def take(self, a): ...


        class Fed(Taker):
            def feed(self, a): ...


        class Dynamic:
            x = 1

            def __getattr__(self, name): ...


        class Platform:
            def __getattr__(self, name): ...


        class Cuda(Platform):
            def is_below(self): ...


        class Outer(Foreign):
            x = 1


        class Empty:
            pass


        class Layer(nn.Module):
            scale = 1


        class Open(ABC):
            x = 1

            @abstractmethod
            def run(self): ...


        class Request(BaseModel):
            prompt: str
            limit: int = 3
            name: str = Field(alias="x")


        class Answer(BaseModel):
            prompt: str
            limit: int = 3


        def once(a): ...


        async def later(): ...


        def pair():
            return 1, 2


        def set_from_outside(plain):
            plain.outside = 1
            setattr(layer, "named", 1)
            read(layer.other)


        once.cached = 1
    """,
    "vllm/lazy.py": "def __getattr__(name):\n    if name == 'x': return 1\n    raise AttributeError\n",
}
_MANY = "Too many positional arguments to"


def judged(
    code: str, rule: str, text: str, *, gated: bool = True, more: str = ""
) -> Problem | None:
    """Let ty say something of the place in some code that ``§`` marks."""
    lines = ["from vllm.kinds import *", "import vllm.lazy as lazy", *code.split("\n"), ""]
    line, row = next((n, row) for n, row in enumerate(lines, 1) if "§" in row)
    column = row.index("§") + 1
    world = world_of(FILES, {USE: "\n".join(lines).replace("§", "")})
    return judge(world, Diagnostic(USE, line, column, rule, text, more), gated=gated)


def levels(code: str, rule: str, text: str, more: str = "") -> str:
    """Return what it is on an added line, and elsewhere."""
    answers = (judged(code, rule, text, gated=gated, more=more) for gated in (True, False))
    return " ".join("nothing" if one is None else one.level.value for one in answers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{_MANY} bound method `Plain.take`: expected 2, got 3", "error error"),
        (f"{_MANY} bound method `Plain.give`: expected 2, got 3", "note error"),
        (f"{_MANY} bound method `Taker.take`: expected 2, got 3", "note note"),
        # a class below a protocol is one like any other
        (f"{_MANY} bound method `Fed.feed`: expected 2, got 3", "error error"),
        # what the tree has not is the standard library's
        (f"{_MANY} bound method `list.append`: expected 2, got 3", "error error"),
        (f"{_MANY} class `partial`: expected 2, got 3", "error error"),
        (f"{_MANY} function `once`: expected 1, got 2", "error error"),
        (f"{_MANY} function `to_thread`: expected 1, got 2", "error error"),
        (f"{_MANY} constructor `Plain.__init__`: expected 1, got 2", "error error"),
        ("Argument `a` does not match any known parameter of `object.__init__`", "note note"),
        # of a layer one below may be meant, whose class ty does not say
        ("Something else", "note error"),
    ],
)
def test_calls_whose_arguments_do_not_fit(text: str, expected: str) -> None:
    assert levels("§f(1, 2)", "too-many-positional-arguments", text) == expected
    union = "info: Attempted to call union type `A | B`"
    on_added = levels("§f(1, 2)", "too-many-positional-arguments", text, union).split()[0]
    assert on_added == "note"


def test_a_kernel_is_started_with_more_than_it_takes() -> None:
    text = "Argument `x` does not match any known parameter"
    assert levels("f[1](§1, x=2)", "unknown-argument", text) == "nothing nothing"
    assert levels("f[1](§1, X=2)", "unknown-argument", text.replace("x", "X")) == "error error"
    assert levels("f(§1, x=2)", "unknown-argument", text) == "note error"
    assert levels("once(§1, x=2)", "unknown-argument", text) == "error error"
    # vllm/model_executor/models/moss_audio.py of 0.24.0: a layer of a class below
    assert levels("self.once(§1, x=2)", "unknown-argument", text) == "note error"
    # vllm/models/deepseek_v4/xpu/model.py of 0.27.0: self.experts is set to one of two layers
    union = "info: Attempted to call union type `A | B`"
    assert levels("self.once(§1, x=2)", "unknown-argument", text, union) == "note note"
    assert levels("made()(§1, x=2)", "unknown-argument", text) == "error error"


@pytest.mark.parametrize(
    ("code", "rule", "text", "expected"),
    [
        ("§Answer()", "missing-argument", "No argument provided for required parameter `prompt`", "error error"),
        ("§Answer()", "missing-argument", "No argument provided for required parameter `limit`", "nothing nothing"),
        ("§Answer(x=1)", "unknown-argument", "Argument `x` does not match any known parameter", "nothing nothing"),
        ("§Request()", "missing-argument", "No argument provided for required parameter `prompt`", "nothing nothing"),
        ("§Open()", "abstract-class-instantiation", "Cannot instantiate `Open`", "error error"),
        ("§Plain()", "abstract-class-instantiation", "Cannot instantiate `Plain`", "nothing nothing"),
    ],
)  # fmt: skip
def test_classes_that_are_made(code: str, rule: str, text: str, expected: str) -> None:
    assert levels(code, rule, text) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        ("int", "list[None]", "error error"),
        ("str", "int", "error error"),
        ("bytes", "Literal[3]", "error error"),
        ("int", 'Literal["a"]', "error error"),
        ("int", 'Literal[b"a"]', "error error"),
        ("float", "str", "error error"),
        ("int", "float", "note note"),
        ("str", "bytes", "note note"),
        ("str", "int | None", "note note"),
        ("int", "Plain", "note note"),
        ("Plain", "int", "note note"),
        ("int", "CoroutineType[Any, Any, int]", "error error"),
        ("Awaitable[int]", "CoroutineType[Any, Any, int]", "note note"),
    ],
)
def test_values_that_are_not_what_is_stated(wanted: str, given: str, expected: str) -> None:
    text = f"Argument to function `once` is incorrect: Expected `{wanted}`, found `{given}`"
    assert levels("once(§1)", "invalid-argument-type", text) == expected
    assert levels("once(§**given)", "invalid-argument-type", text) == "note note"
    returned = f"Return type does not match returned value: expected `{wanted}`, found `{given}`"
    assert levels("def f():\n    return §1", "invalid-explicit-return", returned) == expected


def test_what_a_builtin_is_asked_about() -> None:
    text = "Argument to function `isinstance` is incorrect: Expected `type`, found `{}`"
    for given, expected in (("def once(a)", "error error"), ("list[int]", "note note")):
        answer = levels("isinstance(x, §once)", "invalid-argument-type", text.format(given))
        assert answer == expected
    assert levels("f(§1)", "invalid-argument-type", "It does not suit") == "note note"
    text = "Argument to function `f` is incorrect: Expected `{}`, found `{}`"
    for wanted, given, expected in (
        ("SupportsNext[Unknown]", "list[int]", "error error"),
        ("Sized", "Plain", "error error"),
        ("Sized", "int", "note note"),
        ("Generator[Any, None, X] | Coroutine[Any, Any, X]", "def once(a)", "error error"),
    ):
        answer = levels("f(§1)", "invalid-argument-type", text.format(wanted, given))
        assert answer == expected
    text = "Object of type `int` is not iterable"
    assert levels("for i in §len(x): pass", "not-iterable", text) == "error error"


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        ("Plain", "gone", "error error"),
        ("type[Plain]", "gone", "error error"),
        ("Plain[Unknown]", "gone", "error error"),
        ("Plain[Unknown, Any]", "more", "note error"),
        ("Unknown", "gone", "note error"),
        ("<class 'Plain'>", "gone", "error error"),
        ("Plain", "more", "note error"),
        ("Plain", "outside", "note error"),
        ("Plain", "size", "nothing nothing"),
        ("Plain | Below", "gone", "note error"),
        ("Taker", "gone", "note note"),
        ("Dynamic", "gone", "note error"),
        ("Dynamic", "gone()", "note error"),
        ("Platform", "gone", "note error"),
        ("Platform", "gone()", "error error"),
        ("Platform", "is_below()", "note error"),
        ("Outer", "gone", "note error"),
        ("Empty", "gone", "note error"),
        ("Layer", "gone", "error error"),
        ("Layer", "named", "note note"),
        ("Layer", "register_buffer", "nothing nothing"),
        ("Layer | None", "gone", "note note"),
        ("Foreign", "gone", "note error"),
        ("str", "gone", "error error"),
        ('Literal["a"]', "gone", "error error"),
        ("int", "gone", "note error"),
        ("def once(a)", "gone", "error error"),
        ("def once(a)", "cached", "note error"),
        ("bound method Plain.take(a)", "gone", "error error"),
        ("CoroutineType[Any, Any, int]", "gone", "error error"),
        ("_GeneratorContextManager[int, None, None]", "gone", "error error"),
        # vllm/model_executor/models/qwen3_omni_moe_thinker.py of 0.17.0: what is stated to be a list is a tensor
        ("list[int]", "gone", "note error"),
        ("tuple[int]", "gone", "note error"),
        ("Iterable[int]", "gone", "note note"),
        ("T@f", "gone", "note note"),
        ("~None", "gone", "note error"),
        ("object", "gone", "nothing nothing"),
        ("type", "gone", "nothing nothing"),
    ],
)
def test_members_that_are_missing(owner: str, name: str, expected: str) -> None:
    text = f"Object of type `{owner}` has no attribute `{name.removesuffix('()')}`"
    assert levels(f"§x(1).{name}", "missing-attribute", text) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    def use(self):\n        §self.gone", "error error"),
        ("    def use(self):\n        §self.more", "note note"),
        ("    @made\n    def use(me):\n        §me.gone", "note note"),
        # names that are computed are those of fields, or stand somewhere
        ("    def use(self):\n        setattr(self, n, 1)\n        §self.gone", "note note"),
        ("    def use(self):\n        setattr(self, n, 1)\n        §self.gone()", "error error"),
        ("    def use(self):\n        setattr(self, n, 'gone')\n        §self.gone()", "note note"),
        (
            "    def use(self):\n        setattr(self, f'be_{n}', 1)\n        §self.be_gone()",
            "note note",
        ),
        (
            "    def __getattr__(self, n): ...\n    def use(self):\n        §self.gone()",
            "note note",
        ),
    ],
)
def test_members_of_the_object_itself(body: str, expected: str) -> None:
    code = f"class Mine(Plain):\n    x = 1\n{body}\nclass Under(Mine):\n    more = 1"
    name = body.rpartition(".")[2].removesuffix("()")
    text = f"Object of type `Self@use` has no attribute `{name}`"
    assert levels(code, "missing-attribute", text) == expected


@pytest.mark.parametrize(("name", "expected"), [("gone", "error error"), ("other", "note error")])
def test_a_layer_lacks_what_only_its_own_file_reads(name: str, expected: str) -> None:
    code = f"class Mine(Layer):\n    def use(self):\n        self.{name}\n        §self.{name}"
    text = f"Object of type `Self@use` has no attribute `{name}`"
    assert levels(code, "missing-attribute", text) == expected
    for setting in (
        f"for n in ('x', '{name}'): setattr(layer, n, 1)",
        f"setattr(x, f'{{x}}{name}')",
    ):
        assert levels(f"{code}\n{setting}", "missing-attribute", text) == "note error"


@pytest.mark.parametrize(
    ("bases", "body", "expected"),
    [
        ("Plain", "super().gone()", "error error"),
        ("Plain", "super().take(1)", "nothing nothing"),
        ("Outer", "super().gone()", "note note"),
        ("Dynamic", "super().gone()", "note note"),
        ("object", "super().gone()", "nothing nothing"),  # a mixin
    ],
)
def test_members_of_what_is_above_a_class(bases: str, body: str, expected: str) -> None:
    name = body.split(".")[1].partition("(")[0]
    code = f"class Mine({bases}):\n    def {name}(self):\n        §{body}"
    text = f"Object of type `<super: <class 'Mine'>, Self@{name}>` has no attribute `{name}`"
    assert levels(code, "missing-attribute", text) == expected
    below = "\n\n\nclass Under(Mine, Other): ..."
    assert levels(code + below, "missing-attribute", text) != "error error"
    own = f"\n\n\nclass Under(Mine):\n    def {name}(self): ..."
    assert levels(code + own, "missing-attribute", text) == expected
    beside = f"\n\n\nclass Has:\n    def {name}(self): ...\n\n\nclass Under(Mine, Has): ..."
    assert levels(code + beside, "missing-attribute", text) != "error error"


@pytest.mark.parametrize(
    ("code", "text", "rule", "expected", "finding"),
    [
        ("§lazy.y", "Module `vllm.lazy` has no member `y`", "missing-module-member", "error error", "fit-import"),
        ("§lazy.x", "Module `vllm.lazy` has no member `x`", "missing-module-member", "nothing nothing", ""),
        ("from vllm.lazy import §y", "Module `vllm.lazy` has no member `y`", "missing-module-member", "nothing nothing", ""),
        ("§ctypes.y", "Module `ctypes` has no member `y`", "missing-attribute", "error error", "fit-import"),
        ("import §json.gone", "Cannot resolve imported module `json.gone`", "import-not-found", "error error", "fit-import"),
        ("from json import §lods", "Module `json` has no member `lods`", "missing-module-member", "error error", "fit-import"),
        ("try:\n    from json import §lods\nexcept ImportError: ...", "Module `json` has no member `lods`", "missing-module-member", "nothing nothing", ""),
        ("import §torch.gone", "Cannot resolve imported module `torch.gone`", "import-not-found", "nothing nothing", ""),
        ("§torch.y", "Module `torch` has no member `y`", "missing-module-member", "nothing nothing", ""),
        ("§x.run()", "Attribute `run` is not defined on `None` in union `A | None`", "missing-union-attribute", "note note", "fit-kind"),
        ("§x.run()", "Attribute `run` is not defined on `B` in union `A | B`", "missing-union-attribute", "note note", "fit-attribute"),
        ("getattr(§x, 'gone')", "Object of type `Plain` has no attribute `gone`", "missing-attribute", "error error", "fit-string"),
        ("§once.gone", "Object of type `def once(a)` has no attribute `gone`", "missing-attribute", "error error", "fit-kind"),
        ("§later().gone", "Object of type `CoroutineType[Any, Any, None]` has no attribute `gone`", "missing-attribute", "error error", "fit-kind"),
    ],
)  # fmt: skip
def test_what_is_missing_of_what(
    code: str, text: str, rule: str, expected: str, finding: str
) -> None:
    assert levels(code, rule, text) == expected
    problem = judged(code, rule, text)
    assert (problem.code if problem else "") == finding


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("not-callable", "Object of type `str` is not callable", "error error"),
        ("not-callable", "Object of type `int` is not callable", "error error"),
        ("not-callable", "Object of type `None` is not callable", "note note"),
        ("not-callable", "Object of type `A | B` is not callable", "note note"),
        ("not-callable", "Object of type `Plain` is not callable", "error error"),
        ("not-iterable", "Object of type `int` is not iterable", "note error"),
        ("not-iterable", "Object of type `Plain` is not iterable", "error error"),
        ("not-iterable", "Object of type `CoroutineType[Any, Any, list[int | str]]` is not iterable", "error error"),
        ("not-iterable", "Object of type `CoroutineType[Any, Any, int] | list[int]` is not iterable", "note note"),
        ("not-subscriptable", "Cannot subscript object of type `Plain`", "error error"),
        ("invalid-context-manager", "Object of type `Plain` cannot be used with `with`", "note error"),
        ("invalid-context-manager", "Object of type `int` cannot be used with `with`", "error error"),
        ("invalid-await", "`Plain` is not awaitable", "error error"),
        ("invalid-await", "`int` is not awaitable", "error error"),
        ("unsupported-operator", "Operator `+` is not supported between objects of type `str` and `int`", "error error"),
        ("unsupported-operator", "Operator `+` is not supported between objects of type `int` and `Plain`", "note error"),
        ("unsupported-operator", "Operator `+` is not supported between objects of type `list[int]` and `list[str]`", "nothing nothing"),
        ("unsupported-operator", "Operator `+` is not supported between objects of type `list[int]` and `tuple[int]`", "error error"),
        ("unsupported-operator", "Operator `+` is not supported between objects of type `Plain` and `object`", "note note"),
        ("missing-attribute", "Attribute `x` can only be accessed on instances, not on the class object `<class 'A'>` itself.", "error error"),
        ("missing-attribute", "Attribute `x` can only be accessed on instances, not on the class object `type[A]` itself.", "note error"),
        ("missing-attribute", "Unresolved attribute `x` on type `Self@use`", "error error"),
        ("missing-attribute", "Unresolved attribute `x` on type `Plain`", "note error"),
        ("invalid-base", "Invalid class base with type `def once(a)`", "error error"),
        ("invalid-raise", "Cannot raise object of type `Foreign`", "note note"),
        ("duplicate-base", "Duplicate base class `A`", "error error"),
        ("isinstance-against-protocol", "Class `P` cannot be used", "error error"),
        ("invalid-typed-dict-key", 'Unknown key "b" for TypedDict `T`', "nothing nothing"),
        ("no-matching-overload", "No overload of function `f` matches arguments", "note note"),
        ("invalid-assignment", "Property `x` defined in `A` is read-only", "error error"),
        ("invalid-assignment", "Cannot assign to read-only property `x`", "error error"),
        ("invalid-assignment", "Cannot assign to unresolved attribute `x` on type `A`", "note note"),
        ("invalid-assignment", "Object of type `A` is not assignable to `B`", "nothing nothing"),
        ("invalid-assignment", "Object of type `CoroutineType[Any, Any, int]` is not assignable to attribute `x` of type `int | None`", "error error"),
        ("invalid-assignment", "Object of type `CoroutineType[Any, Any, int]` is not assignable to `Task[int]`", "nothing nothing"),
        ("invalid-assignment", "Object of type `CoroutineType[Any, Any, int] | A` is not assignable to `A`", "nothing nothing"),
        ("invalid-assignment", "Object of type `list[int | CoroutineType[Any, Any, int]]` is not assignable to `list[int]`", "nothing nothing"),
        ("index-out-of-bounds", "Index 2 is out of bounds for tuple `tuple[int]` with length 1", "error error"),
        ("index-out-of-bounds", "Index 0 is out of bounds for tuple `tuple[()]` with length 0", "nothing nothing"),
        ("index-out-of-bounds", "Index 0 is out of bounds for string `x` with length 0", "nothing nothing"),
        ("redundant-condition", "Method `A.b` is always truthy: Did you mean to call this method?", "error error"),
        ("redundant-condition", "`x` is always truthy (has type `bound method A.b()`)", "error error"),
        ("redundant-condition", "`x` is always truthy (has type `CoroutineType[Any, Any, int]`)", "error error"),
        ("redundant-condition", "`x` is always truthy", "nothing nothing"),
        ("unused-awaitable", "Object of type `CoroutineType[Any, Any, None]` is not awaited", "error error"),
        ("unused-awaitable", "Object of type `Future` is not awaited", "nothing nothing"),
    ],
)  # fmt: skip
def test_what_a_program_breaks_on(rule: str, text: str, expected: str) -> None:
    assert levels("§x = y", rule, text) == expected


@pytest.mark.parametrize(
    ("code", "overloads", "expected"),
    [
        ("§f(x, ky=1)", ["(x: int, /, *, key: None = None) -> A", "[_T](x: _T, /, *, key: (_T, /) -> B) -> _T"], "error error"),
        ("§f(x, key=1)", ["(x: int, /, *, key: None = None) -> A", "[_T](x: _T, /, *, key: (_T, /) -> B) -> _T"], "note note"),
        ("§g(h).f(1, default=2)", ["(self, key: object, default: None = None, /) -> A"], "error error"),
        ("§f(x, key=1)", ["(x: int, **more: int) -> A"], "note note"),
        ("§f(x, key=1)", ["(x: int) -> A", "omitted 2 overloads"], "note note"),
        ("§f(x)", ["(x: int, y: int) -> A"], "note note"),
    ],
)  # fmt: skip
def test_overloads_of_which_none_has_such_a_parameter(
    code: str, overloads: list[str], expected: str
) -> None:
    more = "".join(f"  info:   {text}\n" for text in overloads)
    text = "No overload of function `f` matches arguments"
    assert levels(code, "no-matching-overload", text, more) == expected


def test_an_annotation_that_python_cannot_evaluate() -> None:
    text = 'Operator `|` is unsupported between objects of type `Literal["A"]` and `None`'
    future = "from __future__ import annotations\n"
    assert levels("def f(a: §'A' | None): ...", "unsupported-operator", text) == "error error"
    other = text.replace('Literal["A"]', "Plain")
    assert levels("def f(a: §x | None): ...", "unsupported-operator", other) == "nothing nothing"
    assert levels(f"{future}def f(a: §'A' | None): ...", "unsupported-operator", text) == (
        "nothing nothing"
    )


def test_what_is_called_above_a_class_is_known() -> None:
    text = f"{_MANY} bound method `Plain.give`: expected 2, got 3"
    code = "class Mine(Plain):\n    def give(self):\n        §super().give(1, 2)"
    assert levels(code, "too-many-positional-arguments", text) == "error error"


def test_a_key_that_a_dictionary_is_not_stated_to_have_is_only_read_in_vain() -> None:
    text = 'Unknown key "b" for TypedDict `T`'
    assert levels("x[§'b']", "invalid-typed-dict-key", text) == "note error"
    assert levels("x[§'b'] = 1", "invalid-typed-dict-key", text) == "nothing nothing"


def test_a_coroutine_that_an_override_may_not_give_is_a_note() -> None:
    text = "Object of type `CoroutineType[Any, Any, None]` is not awaited"
    assert levels("x.§wait()", "unused-awaitable", text) == "error error"
    assert levels("x.§take()", "unused-awaitable", text) == "note note"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # vllm/models/kimi_k3/amd/mtp.py of 0.31.0: self.mtp_block is a layer, whose forward gives two or three
        ("a, b, c = §gone()", "nothing nothing"),
        ("a, b, c = §1, 2", "error error"),
        ("a, b, c = §x", "note note"),
        ("a, b, c = await §pair()", "nothing nothing"),
        ("for a, b in §x: pass", "note note"),
    ],
)
def test_values_that_are_unpacked(code: str, expected: str) -> None:
    assert levels(code, "invalid-assignment", "Too many values to unpack: Expected 2") == expected


@pytest.mark.parametrize(
    ("code", "rule", "expected"),
    [
        ("def f():\n    print(§x)\n    x = 1", "unresolved-reference", "error error"),
        ("def f():\n    print(§x)\n    import x.y", "unresolved-reference", "error error"),
        ("def f():\n    print(§x)", "unresolved-reference", "error error"),
        ("def f(a: §x): ...", "unresolved-reference", "error error"),
        ("def f(a: '§x'): ...", "unresolved-reference", "nothing nothing"),
        ("from elsewhere import *\n§x", "unresolved-reference", "nothing nothing"),
        ("print(§x)\nx = 1", "unresolved-reference", "error error"),
        ("print(§x)\nglobals().update(x=1)", "unresolved-reference", "nothing nothing"),
        ("def f():\n    global x\n    §x += 1", "unresolved-global", "error error"),
        ("def f():\n    global x\n    §x += 1\nx = 1", "unresolved-global", "nothing nothing"),
        ("def f():\n    global x\n    §x += 1\n    del x", "unresolved-global", "error error"),
        ("def f(c):\n    if c:\n        x = 1\n    print(§x)", "possibly-unresolved-reference", "note note"),
        ("def f(c):\n    if c:\n        x = 1\n    if c:\n        print(§x)", "possibly-unresolved-reference", "nothing nothing"),
        ("def f(c):\n    if c:\n        x = 1\n    if not c:\n        return\n    print(§x)", "possibly-unresolved-reference", "nothing nothing"),
        ("def f(c):\n    if c:\n        x = 1\n    if d:\n        return\n    print(§x)", "possibly-unresolved-reference", "nothing nothing"),
        ("def f(c):\n    if c:\n        x = 1\n    print(c)\n    print(§x)", "possibly-unresolved-reference", "note note"),
        ("def f(c):\n    for i in c:\n        x = 1\n    print(§x)", "possibly-unresolved-reference", "nothing nothing"),
        ("if c:\n    x = 1\nprint(§x)", "possibly-unresolved-reference", "nothing nothing"),
    ],
)  # fmt: skip
def test_names_that_nothing_has_set(code: str, rule: str, expected: str) -> None:
    assert levels(code, rule, "Name `x` used when not defined") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("§f(1)  # type: ignore[call-arg]", "note note"),
        ("§f(1)  # ty: ignore", "note note"),
        ("§f(1)  # typed: ignored", "error error"),
        ("f(  # mypy: ignore\n    §1)", "note note"),
        ("def f(x: §int): ...", "nothing nothing"),
        ("def f() -> §int: ...", "nothing nothing"),
        ("x: §int = 1", "nothing nothing"),
        ("try:\n    §f(1)\nexcept TypeError:\n    pass", "nothing nothing"),
        ("if TYPE_CHECKING:\n    §f(1)", "nothing nothing"),
        ("@triton.jit\ndef g():\n    §f(1)", "error error"),
    ],
)
def test_what_the_author_has_said_of_the_line(code: str, expected: str) -> None:
    text = f"{_MANY} function `once`: expected 1, got 2"
    assert levels(code, "too-many-positional-arguments", text) == expected


def test_what_another_compiler_makes_of_code_is_let_be_where_values_decide() -> None:
    text = "Object of type `str` is not callable"
    assert levels("@triton.jit(x)\ndef g():\n    §f()", "not-callable", text) == "nothing nothing"
    assert levels("@other\ndef g():\n    §f()", "not-callable", text) == "error error"


@pytest.mark.parametrize(
    ("code", "rule", "text", "message"),
    [
        (
            "Plain().tke(§1, 2)",
            "too-many-positional-arguments",
            f"{_MANY} function `once`: expected 1, got 2",
            "`Plain().tke(1, 2)`: too many positional arguments to function `once`: expected 1, got 2",
        ),
        (
            "Plain(§1)",
            "too-many-positional-arguments",
            f"{_MANY} constructor `Plain.__init__`: expected 1, got 2",
            (
                "`Plain(1)`: too many positional arguments to constructor `Plain.__init__`: expected 1, got 2; "
                "the class is Plain (vllm/kinds.py:9)"
            ),
        ),
        (
            "§x.tke",
            "missing-attribute",
            "Object of type `Plain` has no attribute `tke`",
            "`x.tke`: object of type `Plain` has no attribute `tke`; the class is Plain (vllm/kinds.py:9); the nearest is take",
        ),
        (
            "§x.y.tke + 1",
            "missing-attribute",
            "Object of type `FromOutside` has no attribute `tke`",
            "`x.y.tke + 1`: object of type `FromOutside` has no attribute `tke`",
        ),
        (
            f"§x.{'y' * 90}",
            "missing-attribute",
            f"Object of type `FromOutside` has no attribute `{'y' * 90}` {'z' * 200}",
            f"`x.{'y' * 58}`: object of type `FromOutside` has no attribute `{'y' * 90}` {'z' * 81}",
        ),
        ("§import x", "duplicate-base", "Words", "words"),
    ],
)
def test_what_is_said(code: str, rule: str, text: str, message: str) -> None:
    problem = judged(code, rule, text)
    assert problem is not None
    assert problem.message == f"{message} (ty: {rule})"
    assert (problem.path, problem.line, problem.scope) == (USE, 3, "")
    assert problem.key == (problem.message,)


def test_the_place_and_the_token_of_a_problem() -> None:
    code = "class A:\n    def f(self):\n        '§' if 'ö' else §x.gone".replace("'§'", "'x'")
    problem = judged(code, "missing-attribute", "Object of type `Plain` has no attribute `gone`")
    assert problem is not None
    assert (problem.line, problem.scope, problem.token) == (5, "A.f", "gone")
    assert problem.message.startswith("`x.gone`: ")


def test_every_rule_has_a_code_of_the_fit() -> None:
    assert {rule.code for rule in RULES.values()} == {
        FindingCode.FIT_CALL,
        FindingCode.FIT_TYPES,
        FindingCode.FIT_ATTRIBUTE,
        FindingCode.FIT_IMPORT,
        FindingCode.FIT_KIND,
        FindingCode.FIT_STRING,
        FindingCode.FIT_UNDEFINED_NAME,
    }


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ('getattr(a.b, "c")', "       (a.b.c   )"),
        ("x = getattr(f(1), 'c') + 1", "x =        (f(1).c   ) + 1"),
        ("getattr(a, 'c', None)", None),
        ("getattr(a, name)", None),
        ("getattr(a + b, 'c')", None),
        ("getattr(a,\n'c')", None),
        ("getattr(a, 'not a name')", None),
        ("other(a, 'c')", None),
        ("getattr(", None),
    ],
)
def test_getattr_with_a_plain_name_is_read_as_an_attribute(code: str, plain: str | None) -> None:
    answer = plain_getattr(code.encode()).decode()
    assert answer == (code if plain is None else plain)
    assert len(answer) == len(code)
