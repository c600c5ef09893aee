"""Reading flags: names, what they take, choices, as the sample's own parser would make them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from serve_asking import ask, changed, messages
from serve_tree import ARGS, FILES, LATER

from vllm_mods.base.errors import TreeError
from vllm_mods.serving import flags
from vllm_mods.serving.shape import KnownFlags

if TYPE_CHECKING:
    from vllm_mods.serving.shape import FlagShape

FLAGS = KnownFlags(MemoryTree(dict(FILES)))


def shape_of(name: str) -> FlagShape:
    return FLAGS.shape(FLAGS.by_name[name])


def config_of(name: str) -> str | None:
    config = shape_of(name).config
    return config.node.name if config and isinstance(config.node, ast.ClassDef) else None


def test_every_flag_is_there_and_no_other() -> None:
    names = (
        "headless config chat-template tool-call-parser enable-auto-tool-choice "
        "enable-log-outputs template-kwargs middleware tool-parser-plugin host port origins "
        "model dtype max-model-len batch tensor-parallel-size share trust-remote-code names "
        "pair rank quantization attention-backend hf-overrides sampling reasoning-parser "
        "all2all traces enable-prefix-caching load-format speculative-config plan-config gdn "
        "device old-way quiet timeout optimization-level enable-log-requests"
    )
    assert {flag.name.removeprefix("--") for flag in FLAGS.flags} == set(names.split())


@pytest.mark.parametrize(
    ("name", "kind", "nargs"),
    [
        ("--headless", "flag", None),
        ("--config", "text", None),
        ("--middleware", "text", None),
        ("--origins", "json", None),
        ("--template-kwargs", "json", None),
        ("--port", "int", None),
        ("--max-model-len", "human-auto", None),
        ("--batch", "human", None),
        ("-tp", "int", None),
        ("--share", "float", None),
        ("--trust-remote-code", "switch", None),
        ("--enable-prefix-caching", "switch", None),
        ("--old-way", "switch", None),
        ("--names", "text", "+"),
        ("--pair", "int", "+"),
        ("--rank", "int", None),
        ("--speculative-config", "json", None),
        ("-pc", "json", None),
        ("--hf-overrides", "json", None),
        ("--timeout", "int", None),
    ],
)
def test_what_a_flag_takes(name: str, kind: str, nargs: object) -> None:
    found = shape_of(name)
    assert (found.kind, found.nargs) == (kind, nargs)


def test_choices_are_those_that_the_parser_enforces() -> None:
    assert shape_of("--dtype").choices == ("auto", "half", "bfloat16")
    assert shape_of("--rank").choices == (1, 8, 16)
    assert shape_of("--gdn").choices == ("flashinfer", "triton")
    assert shape_of("--all2all").choices == ("naive", "pplx")
    assert shape_of("--quantization").choices is None
    assert shape_of("--load-format").choices is None


def test_computed_choices_are_said_to_be_so() -> None:
    device = shape_of("--device")
    assert device.choices == ("auto",)
    assert "others()" in device.open
    assert shape_of("--traces").open
    assert not shape_of("--dtype").open


def test_json_flags_know_the_class_of_their_keys() -> None:
    assert config_of("--speculative-config") == "SpeculativeConfig"
    assert config_of("--plan-config") == "PlanConfig"
    assert config_of("--hf-overrides") is None


def test_optional_flags_take_none() -> None:
    assert shape_of("--quantization").optional
    assert shape_of("--speculative-config").optional
    assert not shape_of("--dtype").optional


def test_names_need_two_files_and_those_that_these_import_from() -> None:
    tree = MemoryTree(dict(FILES))
    KnownFlags(tree)
    assert "vllm/config/engine.py" not in tree.reads
    assert max(tree.reads.values()) == 1


def test_the_later_release_has_moved_and_pairs_its_switches() -> None:
    found = KnownFlags(MemoryTree(dict(LATER)))
    assert found.entry.path == "vllm/entrypoints/common/cli_args.py"
    assert found.rules.inverses == {"--enable-": "--disable-", "--disable-": "--enable-"}
    assert "--silent" in found.by_name
    assert "--quiet" not in found.by_name
    assert not FLAGS.rules.inverses


def test_a_tree_without_a_parser_is_an_error() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/entrypoints/cli_args.py": b"x = 1\n"})
    with pytest.raises(TreeError, match=r"no cli_args\.py"):
        KnownFlags(tree)


def test_a_loop_that_adds_flags_by_their_names_is_an_error() -> None:
    plain = '        parser.add_argument("--quiet", action="store_true")'
    loop = '        for name in ["--quiet"]:\n            parser.add_argument(name, action="store_true")'
    files = {**FILES, "vllm/engine/arg_utils.py": ARGS.replace(plain, loop).encode()}
    with pytest.raises(TreeError, match=r"arg_utils.py:\d+: cannot read which flags this loop"):
        KnownFlags(MemoryTree(files))


def test_a_patched_literal_changes_the_choices() -> None:
    patched = {
        **FILES,
        "vllm/config/model.py": FILES["vllm/config/model.py"].replace(
            b'Literal["auto", "half"', b'Literal["auto", "mine", "half"'
        ),
    }
    found = KnownFlags(MemoryTree(patched))
    dtype = found.shape(found.by_name["--dtype"])
    assert dtype.choices == ("auto", "mine", "half", "bfloat16")


def shaped(name: str, *pairs: tuple[str, str], path: str = "vllm/engine/arg_utils.py") -> FlagShape:
    """Return what a flag takes in the sample with some texts changed."""
    changed_flags = KnownFlags(MemoryTree(changed(path, *pairs)))
    return changed_flags.shape(changed_flags.by_name[name])


GDN = 'parser.add_argument("--gdn", choices=["flashinfer", "triton"], default=None)'
TIMEOUT = 'parser.add_argument("--timeout", type=int, default=0)'


@pytest.mark.parametrize(
    ("more", "kind", "nargs", "optional"),
    [
        ("", "text", None, False),
        ("type=str", "text", None, False),
        ("type=int", "int", None, False),
        ("type=float", "float", None, False),
        ("type=json.loads", "json", None, False),
        ("type=human_readable_int", "human", None, False),
        ("type=human_readable_int_or_auto", "human-auto", None, False),
        ("type=union_dict_and_str", "json-or-text", None, False),
        ("type=optional_type(float)", "float", None, True),
        ("type=parse_type(float)", "float", None, False),
        ("type=optional_type()", "text", None, False),
        ("type=made(float)", "text", None, False),
        ("type=lambda text: text", "text", None, False),
        ('type=int, nargs="?"', "int", "?", False),
        ('nargs="*"', "text", "*", False),
        ("nargs=2", "text", "+", False),
        ("nargs=None", "text", None, False),
        ("nargs=computed()", "text", None, False),
        ('action="store_true"', "flag", None, False),
        ('action="store_false"', "flag", None, False),
        ('action="store_const"', "flag", None, False),
        ('action="count"', "flag", None, False),
        ('action="version"', "flag", None, False),
        ('action="help"', "flag", None, False),
        ('action="store"', "text", None, False),
        ('nargs="?", action=argparse.BooleanOptionalAction', "switch", None, False),
        ("action=MyBooleanOptionalAction", "switch", None, False),
        ("action=Loud", "text", None, False),
        ("type=computed", "text", None, False),
    ],
)
def test_what_the_keywords_make_of_a_flag(
    more: str, kind: str, nargs: str | None, *, optional: bool
) -> None:
    call = f'parser.add_argument("--timeout", {more})'
    taken = shaped("--timeout", (TIMEOUT, call))
    assert (taken.kind, taken.nargs, taken.optional) == (kind, nargs, optional)
    assert not taken.append
    assert taken.takes_value is (kind not in ("flag", "switch"))


@pytest.mark.parametrize("action", ["append", "extend"])
def test_a_flag_that_gathers_its_values_may_be_given_again(action: str) -> None:
    pair = (TIMEOUT, f'parser.add_argument("--timeout", action="{action}")')
    files = changed("vllm/engine/arg_utils.py", pair)
    assert shaped("--timeout", pair).append
    assert messages(ask("--timeout 1 --timeout 2", files=files)) == []


@pytest.mark.parametrize(
    ("nargs", "line", "lines"),
    [
        ("?", "--timeout --quiet", []),
        ("*", "--timeout --quiet", []),
        ("*", "--timeout a b", []),
        ("?", "--timeout a b", ["b: is neither a flag nor a value"]),
        ("?", "--no-timeout", ["--no-timeout: vLLM 0.19.1 has no such flag"]),
        ("*", "--no-timeout", ["--no-timeout: vLLM 0.19.1 has no such flag"]),
        ("+", "--timeout", ["--timeout: takes one value or more; none follows"]),
    ],
)
def test_how_many_values_follow(nargs: str, line: str, lines: list[str]) -> None:
    pair = (TIMEOUT, f'parser.add_argument("--timeout", nargs="{nargs}")')
    assert messages(ask(line, files=changed("vllm/engine/arg_utils.py", pair))) == lines


@pytest.mark.parametrize(
    ("choices", "values", "computed"),
    [
        ('("a", "b")', ("a", "b"), ""),
        ("[1, 2]", (1, 2), ""),
        ("_WAYS", ("x", "y"), ""),
        ("get_args(Way)", ("l", "m", 3), ""),
        ("typing.get_args(Way)", ("l", "m", 3), ""),
        ("sorted(Way)", (), "sorted(Way)"),
        ("made()", (), "made()"),
        ('[*more, "a"] + ["b", "c"]', ("b", "c"), "[*more, 'a'] + ['b', 'c']"),
        ("list(more)", (), "list(more)"),
    ],
)
def test_choices_are_listed_named_of_a_type_or_computed(
    choices: str, values: tuple[object, ...], computed: str
) -> None:
    taken = shaped(
        "--gdn",
        (GDN, f'parser.add_argument("--gdn", choices={choices})'),
        (
            "PASSTHROUGH = ",
            '_WAYS = ["x", "y"]\nWay = Literal["l", Literal["m", 3]]\nPASSTHROUGH = ',
        ),
    )
    why = f"vLLM computes the choices when it runs: {computed}" if computed else ""
    assert (taken.choices, taken.open) == (values, why)


DTYPE = '        group.add_argument("--dtype", **model_kwargs["dtype"])\n'
KEYS = 'model_kwargs["dtype"]["choices"]'


@pytest.mark.parametrize(
    ("before", "choices", "is_open"),
    [
        (f'{KEYS}.remove("half")', ("auto", "bfloat16"), False),
        (f'{KEYS}.remove("half"); x.remove("auto"); other.remove()', ("auto", "bfloat16"), False),
        (f"{KEYS}.remove(made())", ("auto", "half", "bfloat16"), True),
        (f"{KEYS}.remove()", ("auto", "half", "bfloat16"), True),
        (f'{KEYS}.append("x")', ("auto", "half", "bfloat16"), True),
        (f'{KEYS}.extend(["x"])', ("auto", "half", "bfloat16"), True),
        (f'{KEYS}.insert(0, "x")', ("auto", "half", "bfloat16"), True),
        (f"{KEYS}.update(x)", ("auto", "half", "bfloat16"), True),
        (f'{KEYS} += ["x"]', ("auto", "half", "bfloat16"), True),
        ('x["choices"] += ["x"]', ("auto", "half", "bfloat16"), False),
        ('model_kwargs["dtype"]["help"] += "x"', ("auto", "half", "bfloat16"), False),
        (f'{KEYS} = ["p", "q"]', ("p", "q"), False),
        ('d = model_kwargs["dtype"]; d["choices"] = ["p"]', ("p",), False),
        (f"x = y = 1; {KEYS} = z = 2", ("auto", "half", "bfloat16"), False),
        (f"del {KEYS}, other, x[1]", ("auto", "half", "bfloat16"), False),
        (f'if x:\n            {KEYS} = ["p"]', ("p",), False),
        (f'if x:\n            y = 1\n        else:\n            {KEYS} = ["p"]', ("p",), False),
        (f'for x in y:\n            {KEYS} = ["p"]', ("p",), False),
        (f'for x in y.z():\n            {KEYS} = ["p"]', ("p",), False),
        ('model_kwargs[1]["choices"] = ["p"]', ("auto", "half", "bfloat16"), False),
        ('model_kwargs["dtype"][1] = ["p"]', ("auto", "half", "bfloat16"), False),
        ('model_kwargs["dtype"]["choices"][0] = "p"', ("auto", "half", "bfloat16"), False),
    ],
)
def test_what_is_done_to_the_keywords_before_they_are_given(
    before: str, choices: tuple[str, ...], *, is_open: bool
) -> None:
    lines = "".join(f"        {line}\n" for line in before.split("; "))
    taken = shaped("--dtype", (DTYPE, lines + DTYPE))
    assert (taken.choices, bool(taken.open)) == (choices, is_open)
    assert taken.cls is not None


@pytest.mark.parametrize(
    "call",
    [
        'group.add_argument("--dtype", **{**model_kwargs["dtype"], "choices": ["p"]})',
        'group.add_argument("--dtype", choices=["p"], **model_kwargs["dtype"])',
        (
            'group.add_argument("--dtype", **model_kwargs["dtype"], **other)\n        '
            f'{KEYS} = ["p"]'
        ),
    ],
)
def test_keywords_of_the_call_go_over_those_of_the_field(call: str) -> None:
    taken = shaped("--dtype", (DTYPE, f"        {call}\n"))
    assert taken.field is not None
    assert taken.choices == (("p",) if "other" not in call else ("auto", "half", "bfloat16"))


def test_a_flag_of_both_branches_is_one() -> None:
    both = f"        if x:\n    {DTYPE}        else:\n            group.add_argument('-d', '--dtype')\n"
    known = KnownFlags(MemoryTree(changed("vllm/engine/arg_utils.py", (DTYPE, both))))
    assert [one.names for one in known.flags if "--dtype" in one.names] == [("--dtype",)]


def test_a_flag_of_a_field_that_the_class_has_not_takes_any_text() -> None:
    taken = shaped("--dtype", ('["dtype"])', '["gone"])'))
    assert (taken.kind, taken.choices, taken.open) == ("text", None, "gone is not found")
    assert shaped("--gdn").open == ""


def test_short_names_stand_beside_the_long_one() -> None:
    assert FLAGS.by_name["-tp"].name == "--tensor-parallel-size"
    assert FLAGS.by_name["-tp"].names == ("--tensor-parallel-size", "-tp")
    assert flags.Flag(("-x",), None, None, {}, [], set()).name == "-x"


def test_a_loop_over_fields_gives_the_short_names_that_are_stated() -> None:
    pair = ('kwargs["origins"]["type"] = json.loads', 'kwargs["origins"]["flags"] = ["-o"]')
    known = KnownFlags(MemoryTree(changed("vllm/entrypoints/openai/cli_args.py", pair)))
    assert known.by_name["-o"].names == ("-o", "--origins")


@pytest.mark.parametrize(
    ("annotation", "kind", "nargs", "optional", "choices"),
    [
        ("int", "int", None, False, None),
        ("int | None", "int", None, True, None),
        ("int | float", "int", None, False, None),
        ("float | str", "float", None, False, None),
        ("str", "text", None, False, None),
        ("bool | None", "switch", None, False, None),
        ("bool | str | None", "switch", None, False, None),
        ("dict", "json", None, False, None),
        ("dict[str, Any] | None", "json", None, True, None),
        ("dict | str", "json-or-text", None, False, None),
        ("dict | Strange", "json-or-text", None, False, None),
        ("Literal['a', 'b']", "text", None, False, ("a", "b")),
        ("Literal['a', 1]", "text", None, False, ("a", 1)),
        ("Literal[1, 2] | None", "int", None, True, (1, 2)),
        ("Literal[True, 2]", "text", None, False, (True, 2)),
        ("Literal['a'] | str", "text", None, False, None),
        ("list[Literal['a', 'b']]", "text", "+", False, ("a", "b")),
        ("list[float] | None", "float", "+", True, None),
        ("set[int]", "int", "+", False, None),
        ("list[int | str]", "text", "+", False, None),
        ("list[bool]", "text", "+", False, None),
        ("tuple", "text", "+", False, None),
        ("Strange", "text", None, False, None),
        ("PlanConfig | None", "text", None, True, None),
    ],
)
def test_what_an_annotation_makes_of_a_flag(
    annotation: str, kind: str, nargs: str | None, *, optional: bool, choices: object
) -> None:
    pair = ("names: str | list[str] | None", f"names: {annotation}")
    taken = shaped("--names", pair, path="vllm/config/model.py")
    assert (taken.kind, taken.nargs, taken.optional) == (kind, nargs, optional)
    assert taken.choices == choices


KWARGS = "def get_kwargs(cls):\n    for name in fields(cls):\n"


def ruled(names: str, *pairs: tuple[str, str]) -> FlagShape:
    files = changed("vllm/engine/arg_utils.py", *pairs)
    model = FILES["vllm/config/model.py"].decode()
    model = model.replace("names: str | list[str] | None", f"names: {names}")
    model += "\n\nclass Mine(dict[str, int]):\n    pass\n\n\nclass Plain(dict):\n    pass\n"
    known = KnownFlags(MemoryTree({**files, "vllm/config/model.py": model.encode()}))
    return known.shape(known.by_name["--names"])


@pytest.mark.slow
def test_optional_text_is_a_rule_of_releases_that_have_it() -> None:
    rule = (KWARGS, f"{KWARGS}        type_hints == {{bool, str, type(None)}}\n")
    assert (ruled("bool | str | None", rule).kind, ruled("bool | str | None", rule).nargs) == (
        "text",
        "?",
    )
    assert ruled("bool | str", rule).kind == "switch"
    assert ruled("bool | str | None | Strange", rule).kind == "switch"
    assert ruled("bool | str | None").kind == "switch"


@pytest.mark.parametrize("name", ["Mine", "Plain"])
def test_classes_above_which_is_dict_are_json_in_releases_that_look(name: str) -> None:
    rule = (KWARGS, f"def is_dict_subclass(cls):\n    pass\n\n\n{KWARGS}")
    assert ruled(f"{name} | None", rule).kind == "json"
    assert ruled(f"{name} | None").kind == "text"
    assert ruled("Backend", rule).kind == "text"


def test_numbers_in_json_are_a_rule_of_releases_that_have_it() -> None:
    rule = (KWARGS, f"{KWARGS}        _expand_json_human_readable_numbers(x)\n")
    assert shaped("--plan-config", rule).human_json
    assert not shaped("--plan-config").human_json
    assert not shaped("--speculative-config", rule).human_json


@pytest.mark.parametrize(
    "code",
    [
        'names = {"rank", "timeout"}\n        if name in names:\n            f(human_readable_int)',
        'names = {x: y}\n        if name == "rank":\n            f(human_readable_int)',
        'if name in {"rank"}:\n            k = human_readable_int',
    ],
)
def test_the_fields_that_take_numbers_as_people_write_them(code: str) -> None:
    model = ("    rank: Literal[1, 8, 16] = 8", "    rank: int = 8")
    files = changed("vllm/config/model.py", model)
    plain = f"{KWARGS}        {code}\n"
    files["vllm/engine/arg_utils.py"] = ARGS.replace(KWARGS, plain).encode()
    assert messages(ask("--rank 1k -tp 1", files=files)) == []
    other = code.replace("if name", "if other").replace("names = {", "names = [")
    files["vllm/engine/arg_utils.py"] = ARGS.replace(KWARGS, f"{KWARGS}        {other}\n").encode()
    assert len(messages(ask("--rank 1k", files=files))) == 1


def test_the_rules_may_be_in_another_function_of_the_file() -> None:
    files = changed(
        "vllm/engine/arg_utils.py", ("def get_kwargs(cls):\n", "def _compute_kwargs(cls):\n")
    )
    files["vllm/engine/arg_utils.py"] += b"\n\ndef get_kwargs(cls):\n    return {}\n"
    assert messages(ask("--batch 1k", files=files)) == []
    files["vllm/engine/arg_utils.py"] = files["vllm/engine/arg_utils.py"].replace(
        b"_compute_k", b"_k"
    )
    assert len(messages(ask("--batch 1k", files=files))) == 1
