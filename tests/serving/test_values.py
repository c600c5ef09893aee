"""Values of flags and of JSON keys: which ones the annotation of their field lets through, and what is said of others."""

from __future__ import annotations

import json
import shlex

import pytest
from serve_asking import ask, changed, messages, only
from serve_tree import FILES

ENGINE, MODEL, ARGS = "vllm/config/engine.py", "vllm/config/model.py", "vllm/engine/arg_utils.py"


def of_key(annotation: str, value: object, *more: tuple[str, str]) -> list[str]:
    """Return what is said of a value under a key whose field has an annotation."""
    pairs = (("free: Any = None", f"free: {annotation}"), *more)
    line = f"-pc {shlex.quote(json.dumps({'free': value}))}"
    return messages(ask(line, files=changed(ENGINE, *pairs)))


def of_flag(annotation: str, value: str, *more: tuple[str, str]) -> list[str]:
    """Return what is said of a flag's value whose field has an annotation."""
    pairs = (("sampling: dict[str, Any] = {}", f"sampling: {annotation}"), *more)
    return messages(ask(f"--sampling {value}", files=changed(MODEL, *pairs)))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("bool", True),
        ("bool", 1),
        ("bool", "Yes"),
        ("int", 1.0),
        ("int", True),
        ("int", "3"),
        ("float", 1),
        ("float", "1e3"),
        ("str", "x"),
        ("int | None", None),
        ("Optional[int]", None),
        ("Union[int, list[str]]", ["x"]),
        ("typing.List[int]", ["1", 2]),
        ("List", [[]]),
        ("set[int]", [1]),
        ("tuple[int, str]", ["x"]),
        ("dict[str, int]", {"a": 1}),
        ("Dict[str, list[int]]", {"a": [1]}),
        ("Literal['a', 'b']", "b"),
        ("Literal[-1, 2]", -1),
        ("Literal[Method, 'x']", "mimo_mtp"),
        ("Level", 3),
        ("Level", "3"),
        ("Strange", "x"),
        ("list[Strange]", ["x"]),
        ("'int | None'", None),
        ("'1 +'", "x"),
        ("(lambda: 1)", "x"),
        ("json.Number", 1),
        ("SkipValidation[int]", "x"),
        ("Annotated[int, 'text']", 4),
        ("Final[int]", 4),
        ("list[Callable] | int", ["x"]),
        ("PassConfig | int", 3),
    ],
)
def test_a_value_that_pydantic_takes_passes(annotation: str, value: object) -> None:
    assert of_key(annotation, value) == []


@pytest.mark.parametrize(
    ("annotation", "value", "offered"),
    [
        ("bool", 2, "true or false"),
        ("bool", "maybe", "true or false"),
        ("bool", [], "true or false"),
        ("int", 1.5, "a whole number"),
        ("int", "x", "a whole number"),
        ("int", "yes", "a whole number"),
        ("int", None, "a whole number"),
        ("float", {}, "a number"),
        ("str", 1, "text"),
        ("int | None", "x", "a whole number"),
        ("list[int] | str", 3, "a list, text"),
        ("list[int]", [1, "x"], "a list"),
        ("Tuple[int, ...]", "x", "a list"),
        ("set", {}, "a list"),
        ("dict[str, int]", {"a": "x"}, "a JSON object"),
        ("dict", [], "a JSON object"),
        ("Literal['aa', 'bb'] | int", "cc", "aa, bb, a whole number"),
        ("Level", 2, "0, 3"),
        ("PassConfig", 3, "a JSON object"),
        ("Callable | int", "x", "a whole number"),
        ("'int'", "x", "a whole number"),
        ("Required[int]", "x", "a whole number"),
    ],
)
def test_a_value_that_pydantic_refuses_is_said_with_what_there_is(
    annotation: str, value: object, offered: str
) -> None:
    message = f"-pc: 'free': {json.dumps(value)} is not accepted: expected {offered}"
    assert of_key(annotation, value) == [message]


@pytest.mark.parametrize("member", ["(1, 2)", "enum.auto()"])
def test_members_whose_values_are_not_plain_refuse_nothing(member: str) -> None:
    assert of_key("Level", 7, ("    O0 = 0\n    O3 = 3\n", f"    O0 = {member}\n")) == []


def test_an_alias_of_a_type_is_followed() -> None:
    alias = ("MTP = ", "Alias: TypeAlias = int | None\nMTP = ")
    assert of_key("Alias", None, alias) == []
    assert of_key("Alias", "x", alias) == [
        """-pc: 'free': "x" is not accepted: expected a whole number"""
    ]


def test_an_alias_of_itself_ends() -> None:
    assert of_key("Alias", "x", ("MTP = ", "Alias = list | Alias\nMTP = ")) == []


def test_a_name_near_one_of_many_is_said_without_the_others() -> None:
    few = "Literal['alpha', 'b', 'c', 'd', 'e', 'f', 'g', 'h']"
    every = "expected alpha, b, c, d, e, f, g, h"
    front = """-pc: 'free': "alphx" is not accepted: did you mean 'alpha'?"""
    assert of_key(few, "alphx") == [f"{front} {every}"]
    assert of_key(few.replace("]", ", 'i']"), "alphx") == [front]
    assert of_key(few.replace("]", ", 'i']"), "zz") == [
        f"""-pc: 'free': "zz" is not accepted: {every}, i"""
    ]


def test_case_and_dashes_do_not_hide_what_was_meant() -> None:
    assert "did you mean 'full_and_fast'?" in of_key("Literal['full_and_fast']", "FULL-AND-FAST")[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"passes": {"fuze": 1}}, "PassConfig has no 'passes.fuze'; did you mean 'fuse'?"),
        (
            {"passes": {"fuse": "x"}},
            """'passes.fuse': "x" is not accepted: expected true or false""",
        ),
        ({"made": 1}, "PlanConfig sets 'made' itself: leave this key out"),
        ({"zzzz": 1}, "PlanConfig has no 'zzzz'"),
        ([1], "[1] must be a JSON object, of the fields of PlanConfig"),
    ],
)
def test_a_key_is_named_with_those_above_it(value: object, message: str) -> None:
    assert messages(ask(f"-pc {shlex.quote(json.dumps(value))}")) == [f"-pc: {message}"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "    fuse: bool = False",
            "    fuse: bool = False\n    def __init__(self): ...",
            "PassConfig has its own __init__",
        ),
        (
            "    fuse: bool = False",
            '    fuse: bool = False\n    @model_validator(mode="before")\n    def f(cls, v): ...',
            "PassConfig.f may change the keys first",
        ),
        ("@config\nclass PassConfig:", "@config(extra='allow')\nclass PassConfig:", ""),
    ],
)
def test_a_class_that_may_take_any_key_only_makes_a_note(old: str, new: str, why: str) -> None:
    files = changed(ENGINE, (old, new))
    assert messages(ask("""-pc '{"passes": {"fuze": 1}}'""", files=files)) == [
        "note: -pc: PassConfig has no 'passes.fuze', but this is not certain: "
        + (why or "PassConfig accepts extra keys")
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@config\nclass PassConfig:", "@config(extra='forbid')\nclass PassConfig:"),
        (
            "    fuse: bool = False",
            '    fuse: bool = False\n    @model_validator(mode="after")\n    def f(self): ...',
        ),
    ],
)
def test_a_class_that_forbids_other_keys_does_not(old: str, new: str) -> None:
    answer = ask("""-pc '{"passes": {"fuze": 1}}'""", files=changed(ENGINE, (old, new)))
    assert only(answer).code == "json-key"


def test_fields_of_a_base_class_are_keys_and_those_of_the_class_itself_come_last() -> None:
    based = (
        "@config\nclass PassConfig:\n    fuse: bool = False",
        (
            "@dataclass\nclass Above:\n    fuse: int = 0\n    deep: int = 0\n\n\n"
            "class PassConfig(Above):\n    fuse: bool = False"
        ),
    )
    files = changed(ENGINE, based)
    assert messages(ask("""-pc '{"passes": {"deep": "x", "fuse": 7}}'""", files=files)) == [
        """-pc: 'passes.deep': "x" is not accepted: expected a whole number""",
        "-pc: 'passes.fuse': 7 is not accepted: expected true or false",
    ]


@pytest.mark.parametrize(
    ("field", "value", "bounds"),
    [
        ("Field(gt=0)", 0, "> 0"),
        ("Field(ge=1, lt=3)", 3, ">= 1 and < 3"),
        ("Field(le=2)", 2.5, "<= 2"),
        ("Field(gt=0)", 1, ""),
        ("Field(ge=1, lt=3)", 1, ""),
        ("Field(le=2)", 2, ""),
        ("Field(le=computed())", 9, ""),
        ("Field(le=computed(), gt=5)", 5, "> 5"),
        ("Field(gt=True or 0)", 0, ""),
    ],
)
def test_a_number_out_of_its_bounds(field: str, value: float, bounds: str) -> None:
    message = f"{value} is out of range: it must be {bounds}"
    assert of_key(f"float = {field}", value) == ([f"-pc: 'free': {message}"] if bounds else [])
    assert of_flag(f"float = {field}", str(value)) == (
        [f"--sampling: {float(value)} is out of range: it must be {bounds}"] if bounds else []
    )


BEFORE = '    @field_validator("{}", mode="{}")\n    def early(cls, value{}):\n        {}\n\n'
SKIP = '    @field_validator("sizes", mode="wrap")'


@pytest.mark.parametrize(
    ("names", "mode", "parameters", "body", "is_judged"),
    [
        ("free", "wrap", ", handler", "return handler(value)", True),
        ("free", "wrap", ", handler", "return handler(int(value))", False),
        ("free", "before", "", "return int(value) + 1", False),
        ("*", "before", "", "return value", False),
        ("free", "plain", "", "return value", False),
        ("free", "after", "", "return int(value)", True),
        ("sizes2", "before", "", "return value", True),
    ],
)
def test_what_a_validator_in_front_may_change_is_not_judged(
    names: str, mode: str, parameters: str, body: str, *, is_judged: bool
) -> None:
    early = (SKIP, BEFORE.format(names, mode, parameters, body) + SKIP)
    assert bool(of_key("int", "x", early)) is is_judged
    assert bool(of_key("int = Field(gt=3)", 2, early)) is is_judged
    assert bool(of_key("PassConfig", {"fuze": 1}, early)) is is_judged


def test_what_a_validator_in_front_makes_an_object_of_is_judged_key_by_key() -> None:
    body = "return PassConfig(**value) if isinstance(value, dict) else value"
    early = (SKIP, BEFORE.format("free", "before", "", body) + SKIP)
    assert of_key("PassConfig", {"fuze": 1}, early) == [
        "-pc: PassConfig has no 'free.fuze'; did you mean 'fuse'?"
    ]


def test_a_validator_that_looks_up_names_takes_those_of_the_enumeration() -> None:
    early = (SKIP, BEFORE.format("free", "before", "", "return Level[value.upper()]") + SKIP)
    assert of_key("Level | None", "o3", early) == []
    assert of_key("Level | None", None, early) == []
    assert of_key("Level", "o33", early) == [
        "-pc: 'free': 'o33' is not accepted: did you mean 'O3'? expected O0, 0, O3, 3"
    ]
    assert of_key("Level | str", "o33", early) == []
    assert of_key("Level", 9, early) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{{"a": 1}}',
            """doubled braces in {{"a": 1}}, which belong only in the template of a recipe""",
        ),
        (
            '"a": 1}}',
            """doubled braces in "a": 1}}, which belong only in the template of a recipe""",
        ),
        ("{'a': 1}", "single quotes in {'a': 1}; JSON has double ones"),
        ("{a: 1}", "{a: 1} has lost its quotes; put the whole value in single quotes"),
        ("{\u201ea\u201c: 1}", "typographic quotes in {\u201ea\u201c: 1}"),
    ],
)
def test_why_a_text_is_no_json(text: str, why: str) -> None:
    assert messages(ask(f"-pc {shlex.quote(text)}")) == [f"-pc: not JSON: {why}"]


@pytest.mark.parametrize("text", ["[1", """{"a": {"b": 1}""", """{"a": 'b'}"""])
def test_other_json_that_is_none_says_where(text: str) -> None:
    (message,) = messages(ask(f"-pc {shlex.quote(text)}"))
    assert message.startswith("-pc: not JSON: ")
    assert message.endswith(f" in {text}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-tp two", "-tp: 'two' is not a whole number"),
        ("-tp 1k", "-tp: '1k' is not a whole number"),
        ("--share x", "--share: 'x' is not a number"),
        ("--share 1k", "--share: '1k' is not a number"),
        ("--batch x", "--batch: 'x' is not a whole number, optionally with k, M or G (32k, 4M)"),
        (
            "--batch auto",
            "--batch: 'auto' is not a whole number, optionally with k, M or G (32k, 4M)",
        ),
        (
            "--max-model-len 1.5",
            "--max-model-len: '1.5' is not a whole number, optionally with k, M or G (32k, 4M)",
        ),
        (
            "--batch 1.5K",
            "--batch: '1.5K' is not a whole number, optionally with k, M or G (32k, 4M)",
        ),
        ("--rank 9", "--rank: 9 is not accepted: expected 1, 8, 16"),
        ("--share 82", "--share: 82.0 is out of range: it must be > 0 and <= 1"),
    ],
)
def test_what_is_said_of_a_number(line: str, message: str) -> None:
    assert messages(ask(line)) == [message]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2k", 2000),
        ("2K", 2048),
        ("1.5m", 1_500_000),
        ("3M", 3 * 2**20),
        ("1g", 10**9),
        ("1G", 2**30),
        ("1t", 10**12),
        ("1T", 2**40),
        ("' 7 '", 7),
    ],
)
def test_a_number_that_people_write_is_what_it_stands_for(text: str, number: int) -> None:
    bound = f"int = Field(default=1, gt={number})"
    files = changed(MODEL, ("batch: int = 1", f"batch: {bound}"))
    assert messages(ask(f"--batch {text}", files=files)) == [
        f"--batch: {number} is out of range: it must be > {number}"
    ]


def test_auto_is_minus_one() -> None:
    files = changed(MODEL, ("max_model_len: int = None", "max_model_len: int = Field(ge=0)"))
    for text in ("auto", "AUTO", "-1"):
        assert messages(ask(f"--max-model-len {text}", files=files)) == [
            "--max-model-len: -1 is out of range: it must be >= 0"
        ]


def test_suffixes_stand_in_json_where_the_release_writes_them_out() -> None:
    text = """'{"mode": 32k, "sizes": [1K, 2], "free": "32k \\" 1k"}'"""
    assert only(ask(f"-pc {text}")).code == "json-invalid"
    pair = (
        "def get_kwargs(cls):\n",
        "def get_kwargs(cls):\n    _expand_json_human_readable_numbers(1)\n",
    )
    files = changed(ARGS, pair)
    assert messages(ask(f"-pc {text}", files=files)) == []
    line = """-pc '{"mode": 1.5K}'"""
    assert only(ask(line, files=files)).code == "json-invalid"


ADAPTERS = {
    **FILES,
    "vllm/entrypoints/openai/cli_args.py": FILES["vllm/entrypoints/openai/cli_args.py"].replace(
        b"    origins: list[str] = []\n",
        b"    origins: list[str] = []\n    lora_modules: list[Adapter] | None = None\n",
    )
    + b"\n\n@config\nclass Adapter:\n    name: str\n    path: str\n    rank: int = 8\n",
}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a=b c=d", ""),
        ("''", ""),
        ("""'{"name": "a", "path": "b"}'""", ""),
        ("""'{"name": "a", "path": "b=c,d"}'""", ""),
        ("a", "a is neither name=path nor a JSON object"),
        ("a=b,c=d", "a=b,c=d is neither name=path nor a JSON object"),
        ("[]", "[] is neither name=path nor a JSON object"),
        ("""'{"name": "a"}'""", """'path' is missing in {"name": "a"}"""),
        (
            """'{"name": "a", "path": "b", "rnk": 1}'""",
            "Adapter has no 'rnk'; did you mean 'rank'?",
        ),
    ],
)
def test_an_adapter_is_a_pair_or_an_object(value: str, message: str) -> None:
    answer = ask(f"--lora-modules {value}", files=ADAPTERS)
    assert messages(answer) == ([f"--lora-modules: {message}"] if message else [])
