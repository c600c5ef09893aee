"""What is offered for flags of free text: tables, what is registered beside them, enumerations and their validators."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from serve_asking import ask, changed, messages, only
from serve_tree import FILES

from vllm_mods.serving import registry
from vllm_mods.serving.source import ModuleSources

PARSERS = "vllm/tool_parsers/__init__.py"
MODEL = "vllm/config/model.py"
TABLE = '_TOOL_PARSERS_TO_REGISTER = {"hermes": 1, None: 2, 3: 4}\n'


def offered(text: str, *, path: str = PARSERS) -> str:
    """Return what is said of a parser that nobody has, where a file has the table."""
    files = {name: data for name, data in FILES.items() if name != PARSERS}
    answer = ask(
        "--enable-auto-tool-choice --tool-call-parser zzzz", files={**files, path: text.encode()}
    )
    return only(answer).message.removeprefix("'zzzz' is not accepted: expected ")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", "hermes"),
        ('Manager.register_module("a")', "hermes, a"),
        ('@Manager.register_module(name="b", force=True)\nclass B: ...', "hermes, b"),
        ('register("c", "d", other="e")', "hermes, c"),
        ("register(3); register(made()); register()", "hermes"),
        ('other("c")', "hermes"),
        ('_TOOL_PARSERS_TO_REGISTER["f"] = 1', "hermes, f"),
        ('x = _TOOL_PARSERS_TO_REGISTER["g"]; other["h"] = 1', "hermes"),
        ("_TOOL_PARSERS_TO_REGISTER[made()] = 1", "hermes"),
    ],
)
def test_a_table_and_what_is_registered_beside_it(more: str, names: str) -> None:
    assert offered(TABLE + more) == f"{names} (unless a plugin adds it)"
    assert offered(TABLE, path="vllm/entrypoints/openai/tool_parsers/__init__.py").startswith(
        "herm"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '_TOOL_PARSERS_TO_REGISTER = {"a": 1, **more}\n',
            "vllm/tool_parsers/__init__.py computes keys of _TOOL_PARSERS_TO_REGISTER",
        ),
        (
            '_TOOL_PARSERS_TO_REGISTER = {"a": 1, made(): 2}\n',
            "vllm/tool_parsers/__init__.py computes keys of _TOOL_PARSERS_TO_REGISTER",
        ),
        (
            "_TOOL_PARSERS_TO_REGISTER = made()\n",
            (
                "no table _TOOL_PARSERS_TO_REGISTER is in vllm/tool_parsers/__init__.py or "
                "vllm/entrypoints/openai/tool_parsers/__init__.py"
            ),
        ),
    ],
)
def test_a_table_that_is_computed_makes_a_note(text: str, why: str) -> None:
    assert offered(text) == f"it is unknown whether 'zzzz' is accepted: {why}"


def test_a_name_of_the_table_is_also_taken_where_more_are_computed() -> None:
    files = {**FILES, PARSERS: b'_TOOL_PARSERS_TO_REGISTER = {"a": 1, **more}\n'}
    assert ask("--enable-auto-tool-choice --tool-call-parser a", files=files).faults == ()


@pytest.mark.parametrize(
    ("annotation", "value", "names"),
    [
        ("Backend | None", "zzzz", "FLASHINFER, TRITON"),
        ("Methods | str", "zzzz", "awq, gptq, fp8"),
        ("Number", "zzzz", "ONE, 1, TWO, two, LIST"),
        ("Number", "two", ""),
        ("Number", "1", ""),
        ("Number", "one", "ONE, 1, TWO, two, LIST"),
        ("str", "zzzz", ""),
        ("Strange", "zzzz", ""),
    ],
)
def test_the_names_that_an_annotation_lists(annotation: str, value: str, names: str) -> None:
    number = (
        "class Number(enum.Enum):\n    ONE = 1\n    TWO = 'two'\n    LIST = [3]\n    _x = 4\n\n\n"
    )
    files = changed(
        MODEL,
        ("sampling: dict[str, Any] = {}", f"sampling: {annotation}"),
        ("@config\nclass ModelConfig", f"{number}@config\nclass ModelConfig"),
    )
    lines = messages(ask(f"--sampling {value}", files=files))
    near = "did you mean 'ONE'? " if value == "one" else ""
    expected = (
        f"--sampling: {value!r} is not accepted: {near}expected {names} (unless a plugin adds it)"
    )
    assert lines == ([expected] if names else [])


@pytest.mark.parametrize(
    ("mode", "body", "right", "wrong"),
    [
        ("before", "return Backend[value]", ("FLASHINFER",), ("flashinfer", "FLASH-INFER")),
        ("before", "return Backend[value.upper()]", ("flashinfer", "Triton"), ("auto",)),
        ("before", "return Backend[value.lower()]", ("flashinfer",), ("auto",)),
        ("before", "if value == 'auto': return None", ("auto", "TRITON"), ("AUTO",)),
        ("before", "if value in ('a', 'b'): return None", ("a", "b"), ("c",)),
        ("before", "x = 'auto'", ("TRITON",), ("auto",)),
        ("before", "return value.replace('-', '_')", ("TRI_TON2", "TRI-TON2"), ("tri-ton2",)),
        ("after", "return Backend[value.upper()]", ("triton",), ("auto",)),
    ],
)
def test_what_validators_make_of_a_name(
    mode: str, body: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    text = FILES[MODEL].decode()
    start, end = (
        text.index('    @field_validator("backend"'),
        text.index("    def sampling_defaults"),
    )
    validator = f'    @field_validator("backend", mode="{mode}")\n    def f(cls, value):\n        {body}\n\n'
    text = text[:start] + validator + text[end:]
    text = text.replace("    TRITON =", "    TRI_TON2 = 'x.y'\n    TRITON =")
    files = {**FILES, MODEL: text.encode()}
    for value in right:
        assert messages(ask(f"--attention-backend {value}", files=files)) == []
    for value in wrong:
        assert only(ask(f"--attention-backend {value}", files=files)).code == "value-choice"


def test_a_validator_of_the_whole_counts_only_in_front() -> None:
    validator = (
        '    @model_validator(mode="{}")\n    def f(self):\n        self.backend == "all"\n\n'
    )
    for mode, faults in (("before", 0), ("after", 1)):
        pair = (
            '    @field_validator("backend"',
            validator.format(mode) + '    @field_validator("backend"',
        )
        answer = ask("--attention-backend all", files=changed(MODEL, pair))
        assert len(answer.faults) == faults


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ('        taken = ["temperature", "top_p", "top_k"]\n', "temperature, top_p, top_k"),
        ("        taken = ('a', 'b', 'a')\n        more = ['c']\n", "a, b, c"),
        ("        taken = {'a'}\n", ""),
    ],
)
def test_the_keys_that_vllm_takes_out_of_an_object(body: str, keys: str) -> None:
    pair = ('        taken = ["temperature", "top_p", "top_k"]\n', body)
    lines = messages(ask("""--sampling '{"zzzz": 1}'""", files=changed(MODEL, pair)))
    assert lines == ([f"--sampling: vLLM does not read 'zzzz': it reads {keys}"] if keys else [])


def test_a_method_that_does_not_use_the_field_lists_no_keys() -> None:
    pair = ("found.update(self.sampling)", "found.update(self.other)")
    assert ask("""--sampling '{"zzzz": 1}'""", files=changed(MODEL, pair)).faults == ()
    assert ask("--sampling '[1]'").faults == ()


MODELS = """
_TEXT = {"QwenForCausalLM": ("qwen", "QwenForCausalLM"), "BertModel": ("bert", "BertEmbedding"), made(): ("x", "X")}
_VLLM_MODELS = {**_TEXT}
_PREVIOUSLY_SUPPORTED_MODELS = {"OldForCausalLM": "0.9"}
"""


@pytest.mark.parametrize(
    ("named", "lacking"),
    [
        (("QwenForCausalLM",), False),
        (("NewForCausalLM", "QwenForCausalLM"), False),
        (("QwenForSequenceClassification",), False),
        (("QwenModel",), False),
        (("BertLMHeadModel",), False),
        (("QwenMoeForCausalLM",), True),
        (("OldForCausalLM",), True),
    ],
)
def test_a_model_whose_class_vllm_has_not(named: tuple[str, ...], *, lacking: bool) -> None:
    path = "vllm/model_executor/models/registry.py"
    sources = ModuleSources(MemoryTree({path: MODELS.encode()}, version="0.19.1"))
    said = f"vLLM 0.19.1 has no class for {', '.join(named)}, the model's architecture; "
    assert registry.lacks(sources, named).startswith(said) == lacking
    for text in (b"", b"_VLLM_MODELS = made()\n", b"x = {1: (2, 3)}\n", b"("):
        unread = ModuleSources(MemoryTree({path: text}, version="0.19.1"))
        assert (
            registry.lacks(unread, named)
            .partition(", so ")[2]
            .startswith("it is unknown whether vLLM 0.19.1 has")
        )
