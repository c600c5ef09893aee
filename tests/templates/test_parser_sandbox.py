"""What the parsers of a release find where they are run: a tokenizer, stand-ins, nothing of this machine; and what they say is read with care."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from toy_release import toy_release

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.templates import parser_process
from vllm_mods.templates.parser_process import ReadingJob, as_text, open_release

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PROBE = """
import json
from types import SimpleNamespace

def _value(code, tokenizer):
    names = {{"tokenizer": tokenizer}}
    try:
        exec(code, names)
        return str(names["x"])
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

class Toy:
    def __init__(self, tokenizer, tools=None):
        self.tokenizer = tokenizer

    def adjust_request(self, request):
        return request

    def extract_tool_calls(self, text, request):
        {first}
        content = json.dumps([_value(code, self.tokenizer) for code in {codes!r}])
        return SimpleNamespace(tools_called=True, tool_calls=[], content=content)

    def extract_tool_calls_streaming(self, *given):
        return SimpleNamespace(content=given[2], tool_calls=[])
"""
JOB = ReadingJob("P", "Tx", False, "toy", None, (), (), ("whole",))


def _read(
    codes: Sequence[str] = (), job: ReadingJob = JOB, *, first: str = "pass", **files: str
) -> dict[str, dict[str, Any]]:
    """Return what is read of an answer by a parser that runs some code."""
    files["vllm/tool_parsers/toy.py"] = _PROBE.format(codes=list(codes), first=first)
    (read,) = open_release(toy_release(**files)).read([job])
    return read


def _values(codes: Sequence[str], job: ReadingJob = JOB, **files: str) -> dict[str, str]:
    values: list[str] = json.loads(_read(codes, job, **files)["whole"]["content"])
    return dict(zip(codes, values, strict=True))


@pytest.mark.slow
def test_a_tokenizer_of_letters_and_of_the_tags_that_are_asked_for() -> None:
    first = 0x110000
    expected = {
        "x = tokenizer.get_vocab()['a']": "97",
        "x = tokenizer.vocab.get('<new>')": f"{first + 2}",
        "x = tokenizer.vocab['[ARGS]']": "KeyError: '[ARGS]'",
        "x = tokenizer.vocab.get('[ARGS]', 7)": "7",
        "x = '[ARGS]' in tokenizer.vocab": "False",
        "x = '<other>' in tokenizer.vocab": "True",
        "x = 3 in tokenizer.vocab": "False",
        "x = len(tokenizer)": f"{first + 3}",
        "x = tokenizer.all_special_tokens": "['<the end of a turn>', '<tag>', '<new>']",
        "x = tokenizer.all_special_ids": f"[{first}, {first + 1}, {first + 2}]",
        "x = tokenizer.eos_token, tokenizer.eos_token_id": f"('<the end of a turn>', {first})",
        "x = tokenizer.encode('a<tag>b<ta', more=1)": f"[97, {first + 1}, 98, 60, 116, 97]",
        "x = tokenizer.encode('a<tag>', 1, add=2)": f"[97, {first + 1}]",
        "x = tokenizer.decode([97, 0x110000, 0x110001], skip=1)": "a<tag>",
        "x = tokenizer.decode(98)": "b",
        "x = tokenizer.convert_tokens_to_ids(['a', '<tag>'])": f"[97, {first + 1}]",
        "x = tokenizer.convert_tokens_to_ids('<tag>')": f"{first + 1}",
        "x = tokenizer.decode(0x10ffff) == chr(0x10ffff)": "True",
        "tokenizer.vocab.add('<tag>x'); x = tokenizer.encode('<tag>x')": f"[{first + 3}]",
    }
    assert _values([*expected], JOB._replace(tags=("<tag>",))) == expected


def test_what_stands_in_for_modules_that_are_not_there() -> None:
    expected = {
        "from torch import nn; x = nn.Linear.__name__": "nn.Linear",
        "import torch.nn.functional as f; x = f.__name__": "torch.nn.functional",
        "from torch import nn; x = nn.Linear is nn.Linear": "True",
        "import torch; x = torch.a is torch.a": "True",
        "import torch; x = torch.Tensor(1, a=2).a": "2",
        "import torch; x = type(torch.Tensor().shape).__name__": "Tensor.shape",
        "import torch; x = torch.no_grad()(len) is len": "True",
        "import torch; t = torch.a(); x = t(len, 1) is t, t(len, a=1) is t, t(1) is t": (
            "(True, True, True)"
        ),
        "import torch; x = bool(torch.cuda())": "StandInAskedError: whether cuda is true",
        "import torch; x = torch.List[int] is torch.List": "True",
        "import torch\nclass A(torch.B, flag=1): pass\nx = A(c=3).c": "3",
        "import torch; x = torch.__version__": "AttributeError: __version__",
        "import torch; x = torch.A.__wrapped__": "AttributeError: A.__wrapped__",
        "from pydantic import BaseModel; import torch\nclass M(BaseModel):\n    a: torch.B\n"
        "x = M(a=5).a": "5",
        "from pydantic import BaseModel\nclass M(BaseModel):\n    a: list[int]\n"
        "x = M.model_validate_json('{\"a\": [1]}').model_dump_json()": '{"a":[1]}',
        "from vllm.logger import init_logger; x = init_logger('a').info('b', c=1)": "None",
        "from vllm.utils import random_uuid; a = random_uuid(); x = len(a), a != random_uuid()": (
            "(32, True)"
        ),
        "from vllm.x import make_tool_call_id as m; a = m(id_type=1); x = a[:5], a != m()": (
            "('call-', True)"
        ),
        "from vllm.x import get_tool_call_id_type as g; x = g(1)": "random",
        "from torch import iinfo; x = iinfo(1).min, iinfo(1).max": f"({-(2**63)}, {2**63 - 1})",
        "from mistral_common import SpecialTokens as s; x = s.tool_calls.value": "[TOOL_CALLS]",
        "from vllm.x import is_mistral_tokenizer as i; x = i(1)": "False",
        "from vllm.x import is_mistral_tool_parser as i; x = i(int)": "False",
        "from vllm.x import is_mistral_tool_parser as i\nclass A: IS_MISTRAL_TOOL_PARSER = 1\n"
        "x = i(A)": "True",
        "from vllm.x import check_json_nesting as c; x = c(1, a=2)": "None",
    }
    assert _values([*expected]) == expected


def test_what_of_a_release_is_run_as_it_is() -> None:
    expected = {
        "from vllm.utils.collection_utils import own; x = own": "3",
        "from vllm.parser import own; x = own": "ModuleNotFoundError: No module named 'vllm.parser'",
        "import vllm.tool_parsers.gone": "ModuleNotFoundError: No module named 'vllm.tool_parsers.gone'",
        "from vllm.tool_parsers.more.deep import own; x = own, __import__('vllm.tool_parsers.more')"
        ".tool_parsers.more.__path__": "(4, [])",
        "import colorsys": "ModuleNotFoundError: No module named 'colorsys'",
        "import regex.gone": "ModuleNotFoundError: No module named 'regex.gone'",
        "import xml.etree.ElementTree, pathlib, os; x = dict(os.environ)": "{}",
    }
    files = {
        "vllm/utils/collection_utils.py": "own = 3",
        "vllm/tool_parsers/more/__init__.py": "",
        "vllm/tool_parsers/more/deep.py": "own = 4",
    }
    assert _values([*expected], JOB, **files) == expected


def test_every_way_is_asked_for_by_itself() -> None:
    job = JOB._replace(ways=("1", "whole", "2"), ended=True)
    read = _read(["x = 1"], job)
    assert [*read] == ["1", "whole", "2"]
    assert read["1"] == read["2"] == {"reasoning": "", "content": "Tx", "calls": []}


@pytest.mark.parametrize(
    ("first", "error"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (
            (
                "e = KeyError('k'); e.__cause__ = OSError('o'); e.__cause__.__cause__ = "
                "TypeError('t'); e.__cause__.__cause__.__cause__ = ValueError('v'); raise e"
            ),
            "KeyError: 'k' from OSError: o from TypeError: t",
        ),
        ("raise ValueError('x' * 999)", f"ValueError: {'x' * 288}"),
    ],
)
def test_a_parser_that_fails_says_why(first: str, error: str) -> None:
    assert _read(first=first)["whole"] == {"error": error, "stood_in": False}


def test_an_answer_has_its_time_and_the_next_way_has_its_own() -> None:
    hasty = "\nimport vllm_mods.templates.parser_sandbox as sandbox\nsandbox._SECONDS = 0.05\n"
    manager = toy_release(hasty).files["vllm/tool_parsers/__init__.py"].decode()
    files = {"vllm/tool_parsers/__init__.py": manager}
    read = _read((), JOB._replace(ways=("whole", "1")), first="while True: pass", **files)
    assert read == {
        "whole": {
            "error": "TimeoutError: more than 0.05 seconds for one answer",
            "stood_in": False,
        },
        "1": {"reasoning": "", "content": "Tx", "calls": []},
    }


def test_a_parser_that_asks_a_stand_in_has_no_answer() -> None:
    first = "import torch; torch.a() or 1"
    assert _read(first=first)["whole"] == {"error": "whether a is true", "stood_in": True}


_SAY = "import sys; sys.stdout.write({!r}); sys.stdout.flush()"


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("5", {"error": "the parser gave no answer", "stood_in": False}),
        ('{"whole": 5}', {"error": "the parser gave no answer", "stood_in": False}),
        ('{"whole": {"error": [1], "stood_in": 1}}', {"error": "[1]", "stood_in": False}),
        (
            '{"whole": {"reasoning": 1, "content": "", "calls": "c", "more": 2}}',
            {"reasoning": "1", "content": "", "calls": "c"},
        ),
    ],
)
def test_what_the_release_writes_itself_is_an_answer_in_shape(
    line: str, read: dict[str, Any]
) -> None:
    assert _read(first=_SAY.format(f"{line}\n"))["whole"] == read


@pytest.mark.parametrize(
    ("first", "error"),
    [
        ("import os; os._exit(0)", "it ended too early"),
        ("import ctypes; ctypes.string_at(0)", "the process that ran it died of SIGSEGV"),
        ("while True: print('x' * 9999)", "it prints more than 4 KiB"),
    ],
)
def test_how_the_process_ended_is_the_answer_and_the_others_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, first: str, error: str
) -> None:
    release = open_release(
        toy_release(**{"vllm/tool_parsers/toy.py": _PROBE.format(codes=[], first=first)})
    )
    lower(monkeypatch, "PARSER_OUTPUT", 4096)
    errors = [one["whole"]["error"] for one in release.read([JOB, JOB, JOB])]
    assert errors == [error, "not tried again", "not tried again"]
    assert release.read([]) == []


def test_what_was_read_before_the_process_ended_is_kept() -> None:
    first = "import os; text == 'bad' and os._exit(0)"
    release = open_release(
        toy_release(**{"vllm/tool_parsers/toy.py": _PROBE.format(codes=[], first=first)})
    )
    bad = JOB._replace(text="bad")
    assert [one["whole"].get("error") for one in release.read([JOB, bad, JOB])] == [
        None,
        "it ended too early",
        "not tried again",
    ]


def test_names_that_the_release_writes_itself_are_texts() -> None:
    for line, tools, reasoners in (
        ('{"tools": "x", "reasoners": ["a", 1]}', (), ("a", "1")),
        ('{"tools": ["b"]}', ("b",), ()),
    ):
        release = open_release(toy_release(_SAY.format(f"{line}\n")))
        assert (release.tools, release.reasoners) == (tools, reasoners)
    release = open_release(toy_release())
    assert (release.tools, release.reasoners) == (("toy",), ("toy",))
    assert (release.spec, release.version) == (toy_release().spec, "0.21.0")


@pytest.mark.slow
def test_libraries_that_are_not_installed_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "without.py").write_text(
        "import sys\nfrom vllm_mods.templates import parser_sandbox, release_code\n"
        "sys.modules['pydantic'] = None\nrelease_code.STANDARD = ('json', 'types')\n"
        "release_code.NEEDED, release_code.WANTED = ('pydantic',), ('gone_library', 're')\n"
        "main = parser_sandbox.main\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(parser_process, "SANDBOX", "without")
    with pytest.raises(UsageError, match="need pydantic, gone_library"):
        open_release(toy_release("import pydantic"))


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        ("raise ValueError('no') from KeyError('k')", "ValueError: no from KeyError: 'k'"),
        ("import os; os._exit(3)", "it ended too early"),
        (_SAY.format('{"error": "mine"}\n'), "mine"),
    ],
)
def test_a_release_whose_parsers_do_not_run(hostile: str, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        open_release(toy_release(hostile))
    assert caught.value.message == f"{toy_release().spec}: its parsers cannot run: {why}"


def test_a_tree_has_its_parsers_beside_others_and_bytes_that_are_no_text() -> None:
    tree = toy_release(**{"vllm/parser/x.py": "1", "vllm/envs.py": "2", "vllm/other.py": "3"})
    tree.files["vllm/reasoning/odd.py"] = b"# \xff"
    tree.files["vllm/reasoning/data.json"] = b"{}"
    sources = open_release(tree).sources
    assert {"vllm/parser/x.py", "vllm/envs.py", "vllm/reasoning/odd.py"} <= sources.keys()
    assert sources["vllm/reasoning/odd.py"] == "# \ufffd"
    assert not {"vllm/other.py", "vllm/reasoning/data.json"} & sources.keys()


def test_json_text_tells_types_apart_and_not_the_order_of_keys() -> None:
    assert as_text({"b": "ö", "a": 1}) == '{"a": 1, "b": "ö"}'
    assert as_text(1) != as_text("1") != as_text(True)


@pytest.mark.slow
def test_the_tokenizer_of_gpt_oss_is_that_of_its_library() -> None:
    expected = {
        "x = tokenizer.decode(tokenizer.encode('a <|end|>'))": "a <|end|>",
        "x = tokenizer.decode(tokenizer.encode('a')[0])": "a",
        "x = tokenizer.decode(tokenizer.eos_token_id)": "<|return|>",
        "x = len(tokenizer.encode('<|end|>'))": "1",
    }
    manager = toy_release().files["vllm/tool_parsers/__init__.py"].decode()
    files = {
        "vllm/tool_parsers/__init__.py": manager.replace('"toy":', '"openai":'),
        "vllm/parser/harmony.py": "",
    }
    assert _values([*expected], JOB._replace(tool="openai"), **files) == expected
