"""Commands against the sample: what is wrong is named, and what is right passes."""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant
from serve_tree import FILES, LATER

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Level, ModPlan, TemplateFile, Verdict
from vllm_mods.serving.check import ServeAnswer, Serving, check
from vllm_mods.serving.command import words
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import ContainerSettings, TemplateTerms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Mod


def ask(
    line: str,
    *,
    env: Mapping[str, str] | None = None,
    mods: tuple[ModPlan, ...] = (),
    unknown: tuple[str, ...] = (),
    files: Mapping[str, bytes] = FILES,
    container: ContainerSettings | None = None,
) -> ServeAnswer:
    argv = words(shlex.split(f"vllm serve m {line}"))
    serving = Serving(argv, env or {}, unknown, mods, container)
    return check(KnownFlags(MemoryTree(dict(files))), serving)


def errors(answer: ServeAnswer) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in answer.faults if f.level is Level.ERROR]


def notes(answer: ServeAnswer) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in answer.faults if f.level is Level.NOTE]


def only(answer: ServeAnswer) -> ServeFault:
    assert len(answer.faults) == 1, answer.faults
    return answer.faults[0]


def planned(one: Mod, verdict: Verdict = Verdict.APPLIES) -> ModPlan:
    return ModPlan(mod=one, variant=one.variants[0], verdict=verdict, in_range=True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--dtype bfloat16 --max-model-len 32k --batch 8K -tp 2 --share 0.5",
        "--dtype=half --max_model_len=auto --no-enable-prefix-caching --trust_remote_code",
        "--batch 1.5k --max-model-len -1 --timeout -1",
        "-qawq -tp=2 -b 5 -O3",
        "-O 3",
        "-O=0",
        "--names a b c --pair 1 2 --rank 16",
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""",
        "-sc.method mimo_mtp --speculative-config.num_speculative_tokens 3",
        """--plan-config '{"mode": 3, "sizes": [1, 2], "passes": {"fuse": true}, "free": "x"}'""",
        "-pc.passes.fuse true -pc.sizes+ 1,2",
        "--attention-backend flashinfer",
        "--attention-backend auto",
        "--load-format tensorizer --quantization fp8 --reasoning-parser NONE",
        "--tool-call-parser hermes --enable-auto-tool-choice",
        "--tool-call-parser None",
        """--hf-overrides '{"anything": 1}' --sampling '{"top_k": 20}'""",
        """--chat-template built_in.jinja""",
        "--chat-template '{{ messages }}'",
        "--middleware a --middleware b",
        "--all2all pplx --gdn triton --traces model --device auto",
        "--",
    ],
)
def test_what_is_right_passes_without_a_word(line: str) -> None:
    assert ask(line).faults == ()


@pytest.mark.parametrize(
    ("line", "code", "subject", "near"),
    [
        ("--dtyp2 auto", "flag-unknown", "--dtyp2", "--dtype"),
        ("--tool-cal-parser hermes", "flag-unknown", "--tool-cal-parser", "--tool-call-parser"),
        ("--no-dtype", "flag-unknown", "--no-dtype", "--dtype"),
        ("--plan-confg.mode 3", "flag-unknown", "--plan-confg.mode", "--plan-config"),
        ("--disable-prefix-caching", "flag-unknown", "--disable-prefix-caching", None),
        ("--enable-", "flag-ambiguous", "--enable-", None),
        ("--dtype bfloat61", "value-choice", "--dtype", "bfloat16"),
        ("--dtype BFLOAT16", "value-choice", "--dtype", "bfloat16"),
        ("--rank 9", "value-choice", "--rank", None),
        ("--rank x", "value-type", "--rank", None),
        ("--all2all none", "value-choice", "--all2all", None),
        ("--gdn flashqla", "value-choice", "--gdn", None),
        (
            "--enable-auto-tool-choice --tool-call-parser qwen3_code",
            "value-choice",
            "--tool-call-parser",
            "qwen3_coder",
        ),
        ("--reasoning-parser qwen4", "value-choice", "--reasoning-parser", "qwen3"),
        ("--load-format tensorized", "value-choice", "--load-format", "tensorizer"),
        ("--quantization awqq", "value-choice", "--quantization", "awq"),
        ("--attention-backend FLASHINFR", "value-choice", "--attention-backend", "FLASHINFER"),
        ("-tp two", "value-type", "-tp", None),
        ("-tp 1k", "value-type", "-tp", None),
        ("-tp 0", "value-range", "-tp", None),
        ("--share 82", "value-range", "--share", None),
        ("--batch 1.5K", "value-type", "--batch", None),
        ("--max-model-len 32kk", "value-type", "--max-model-len", None),
        (f"--max-model-len {'9' * 400}k", "value-type", "--max-model-len", None),
        ("--dtype", "value-missing", "--dtype", None),
        ("--dtype --quiet", "value-missing", "--dtype", None),
        ("--quiet=true", "value-unexpected", "--quiet", None),
        ("--trust-remote-code true", "value-unexpected", "--trust-remote-code", None),
        ("--dtype auto half", "argument-extra", "half", None),
        ("--speculative-config {method:mtp}", "json-invalid", "--speculative-config", None),
        ("--speculative-config '[1]'", "json-value", "--speculative-config", None),
        ("""-sc '{"methd": "mtp"}'""", "json-key", "-sc", "method"),
        ("""-sc '{"method": "mtpp"}'""", "json-value", "-sc", "mtp"),
        ("""-sc '{"num_speculative_tokens": 0}'""", "value-range", "-sc", None),
        ("""-sc '{"num_speculative_tokens": Infinity}'""", "json-value", "-sc", None),
        ("-sc.methd mtp", "json-key", "-sc.methd", "method"),
        ("""-pc '{"passes": {"fuze": true}}'""", "json-key", "-pc", "fuse"),
        ("""-pc '{"made": 1}'""", "json-key", "-pc", None),
        ("""-pc '{"SIZE": 1}'""", "json-key", "-pc", None),
        ("""-pc '{"sizes": 3}'""", "json-value", "-pc", None),
        ("""-pc '{"mode": null}'""", "json-value", "-pc", None),
        ("""--sampling '{"temprature": 1}'""", "json-key", "--sampling", "temperature"),
        ("--host.a 1", "json-value", "--host.a", None),
        ("--enable-auto-tool-choice", "flag-alone", "--enable-auto-tool-choice", None),
        ("--model x", "argument-extra", "--model", None),
        ("--optimization-level 7", "value-choice", "--optimization-level", None),
    ],
)
def test_what_is_wrong_is_named(line: str, code: str, subject: str, near: str | None) -> None:
    answer = ask(line)
    assert errors(answer) == [(code, subject)]
    assert not answer.ok
    if near is not None:
        assert only(answer).near == near
        assert near in only(answer).message


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--dty auto", "flag-shortened"),
        ("--dtype auto --dtype half", "flag-twice"),
        ("--old-way", "flag-deprecated"),
        ("--no-old-way", "flag-deprecated"),
        ("--traces a,b", "value-unclear"),
        ("--device cuda", "value-unclear"),
        ("""--sampling '{"seed": 1}'""", "json-key-unused"),
        ("--config my.yaml", "config-file"),
        ("--chat-template mine.jinja", "template-unclear"),
        ("--chat-template /x/mine.jinja", "template-unclear"),
        ("--chat-template ../mine.jinja", "template-unclear"),
        ("--load-format my.own.Loader", "value-unclear"),
        (
            "--enable-auto-tool-choice --tool-parser-plugin p.py --tool-call-parser mine",
            "value-unclear",
        ),
    ],
)
def test_what_can_not_be_told_or_only_has_to_be_known_is_a_note(line: str, code: str) -> None:
    answer = ask(line)
    assert [found for found, _ in notes(answer)] == [code]
    assert answer.ok


def test_typographic_dashes_and_quotes_are_named_with_what_was_meant() -> None:
    answer = ask("\u2013port 8000 --quiet")
    assert errors(answer) == [("dash", "\u2013port")]
    assert only(answer).near == "--port"
    answer = ask("-sc '{\u201cmethod\u201d: \u201cmtp\u201d}'")
    assert "typographic quotes" in only(answer).message


def test_a_json_flag_given_whole_and_by_key_loses_the_whole() -> None:
    answer = ask("""-sc '{"method": "mtp"}' -sc.num_speculative_tokens 1""")
    assert errors(answer) == [("flag-shadowed", "--speculative-config")]


def test_paired_switches_are_those_of_releases_that_pair_them() -> None:
    assert ask("--disable-prefix-caching", files=LATER).faults == ()
    assert errors(ask("--disable-prefix-cachin2", files=LATER))[0][0] == "flag-unknown"


def test_only_the_model_itself_may_be_a_loose_word() -> None:
    argv = words(("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"))
    answer = check(KnownFlags(MemoryTree(dict(FILES))), Serving(argv))
    assert notes(answer) == [("flag-deprecated", "--model")]
    with pytest.raises(UsageError, match="no `vllm serve`"):
        words(("vllm", "bench"))


def test_what_a_shell_fills_in_is_not_judged() -> None:
    answer = ask("--dtype '$DTYPE' --port '$PORT'", unknown=("$DTYPE", "$PORT"))
    assert notes(answer) == [("shell", "$DTYPE"), ("shell", "$PORT")]


def test_environment_variables() -> None:
    env = {"VLLM_PORT": "1", "VLLM_ATOMIC_ADD": "yes", "HF_HUB_OFFLINE": "1", "VLLM_LEVEL": "low"}
    assert ask("", env=env).faults == ()
    answer = ask("", env={"VLLM_PROT": "1", "VLLM_PORT": "x", "VLLM_LEVEL": "LOW"})
    assert errors(answer) == [
        ("env-unknown", "VLLM_PROT"),
        ("env-value", "VLLM_PORT"),
        ("env-value", "VLLM_LEVEL"),
    ]
    assert answer.faults[0].near == "VLLM_PORT"
    assert notes(ask("", env={"VLLM_ELSEWHERE": "1"})) == [("env-elsewhere", "VLLM_ELSEWHERE")]


def test_the_flags_that_a_mod_needs() -> None:
    needs = planned(mod(variant(), serve_args=("--attention-backend", "TRITON", "--quiet")))
    assert errors(ask("", mods=(needs,))) == [("mod-flag-absent", "mod")] * 2
    assert ask("--attention-backend TRITON --quiet", mods=(needs,)).faults == ()
    answer = ask("--attention-backend FLASHINFER --quiet", mods=(needs,))
    assert notes(answer) == [("mod-flag-differs", "mod")]
    gone = planned(mod(variant(), serve_args=("--gone", "1")))
    assert errors(ask("", mods=(gone,))) == [("mod-flag-unknown", "mod")]
    out = planned(mod(variant(), serve_args=("--quiet",)), Verdict.CONFLICT)
    assert errors(ask("", mods=(out,))) == [("mod-verdict", "mod")]


def test_the_template_that_a_mod_brings() -> None:
    file = TemplateFile(name="t", file="tiny.jinja", source="s", data=b"")
    brings = planned(mod(variant(templates=(file,))))
    placed = "/usr/lib/python3.12/site-packages/.vllm-mods/templates/tiny.jinja"
    assert ask(f"--chat-template {placed}", mods=(brings,)).faults == ()
    for place in ("tiny.jinja", "/w/tiny.jinja"):
        answer = ask(f"--chat-template {place}", mods=(brings,))
        assert notes(answer) == [("template-place", "--chat-template")]
        assert answer.ok
    answer = ask("--chat-template tny.jinja", mods=(brings,))
    assert errors(answer) == [("template-missing", "--chat-template")]
    assert only(answer).near == "tiny.jinja"
    assert errors(ask("", mods=(brings,))) == [("template-unused", "mod")]
    bare = planned(mod(variant()))
    assert errors(ask("--chat-template x.jinja", mods=(bare,))) == [
        ("template-missing", "--chat-template")
    ]
    site = "/usr/lib/python3.12/site-packages/vllm/x.jinja"
    assert errors(ask(f"--chat-template {site}")) == [("template-missing", "--chat-template")]


_FRONTEND = "vllm/entrypoints/openai/cli_args.py"
_WITH_FORMAT = FILES | {
    _FRONTEND: FILES[_FRONTEND]
    .replace(b"template_kwargs", b"default_chat_template_kwargs")
    .replace(b"    port:", b"    chat_template_content_format: str = 'auto'\n    port:")
}
_TERMS = TemplateTerms(
    {
        "--chat-template-content-format": ("auto", "openai"),
        "--tool-call-parser": ("qwen3_coder", "qwen3_xml"),
    },
    ("enable_thinking", "add_vision_id"),
)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("--chat-template-content-format openai", None),
        (
            "--chat-template-content-format string",
            ("template-terms", "--chat-template-content-format", "auto or openai"),
        ),
        (
            "--enable-auto-tool-choice --tool-call-parser hermes",
            ("template-terms", "--tool-call-parser", "qwen3_coder or qwen3_xml"),
        ),
        ("--enable-auto-tool-choice --tool-call-parser qwen3_coder", None),
        ("--default-chat-template-kwargs '{\"enable_thinking\": false}'", None),
        (
            "--default-chat-template-kwargs '{\"enable_thinkng\": false}'",
            ("template-terms", "--default-chat-template-kwargs", "enable_thinking"),
        ),
        (
            "--default-chat-template-kwargs.enable_thinkng false",
            ("template-terms", "--default-chat-template-kwargs.enable_thinkng", "enable_thinking"),
        ),
        (
            "--default-chat-template-kwargs '{\"mine\": 1}'",
            ("json-key-unused", "--default-chat-template-kwargs", ""),
        ),
    ],
)
def test_a_command_is_held_against_what_its_template_goes_with(
    line: str, fault: tuple[str, str, str] | None
) -> None:
    file = TemplateFile(name="t", file="t.jinja", source="s", data=b"text")
    brings = planned(
        mod(variant(templates=(file,)), serve_args=("--tool-call-parser", "qwen3_coder"))
    )
    needs = ("mod-flag-absent", "mod", "--tool-call-parser qwen3_coder")

    def held(template: str) -> list[tuple[str, str, str]]:
        argv = words(shlex.split(f"vllm serve m --chat-template {template} {line}"))
        terms = {("t.jinja", b"text"): _TERMS}.get
        serving = Serving(argv, mods=(brings,), terms=lambda *of: terms(of))
        answer = check(KnownFlags(MemoryTree(dict(_WITH_FORMAT))), serving)
        faults = [(f.code.value, f.subject, f.near) for f in answer.faults]
        return [one for one in faults if one != needs]

    assert held("/site-packages/.vllm-mods/templates/t.jinja") == ([fault] if fault else [])
    assert "template-terms" not in {code for code, *_ in held("/else/other.jinja")}


def test_a_tool_parser_is_not_used_without_the_choice_of_tools() -> None:
    fault = only(ask("--tool-call-parser hermes"))
    assert (fault.code, fault.subject, fault.near) == (
        "flag-unused",
        "--tool-call-parser",
        "--enable-auto-tool-choice",
    )
    assert not ask("--tool-call-parser hermes --no-enable-auto-tool-choice").ok
    openai = {
        "vllm/tool_parsers/__init__.py": b'_TOOL_PARSERS_TO_REGISTER = {"openai": ("a", "B")}'
    }
    assert ask("--tool-call-parser openai", files=FILES | openai).ok


class _Work:
    directory = "/app"

    def has(self, path: str) -> bool:
        return posixpath.join(self.directory, path) == "/app/there.jinja"


def test_the_template_that_an_image_has_or_has_not() -> None:
    for place in ("there.jinja", "/app/there.jinja"):
        assert ask(f"--chat-template {place}", container=_Work()).faults == ()
    fault = only(ask("--chat-template else.jinja", container=_Work()))
    assert (fault.code, fault.level) == ("template-missing", Level.ERROR)
    assert fault.message == "the image has no /app/else.jinja"
    assert errors(ask("--chat-template /else/there.jinja", container=_Work())) != []


def test_what_only_begins_like_an_object_is_text() -> None:
    model = FILES["vllm/config/model.py"].replace(
        b"hf_overrides: dict[str, Any]", b"hf_overrides: dict[str, Any] | Callable"
    )
    files = {**FILES, "vllm/config/model.py": model}
    assert ask("--hf-overrides '{abc'", files=files).faults == ()
    assert only(ask("--hf-overrides '{abc}'", files=files)).code == "json-invalid"


def test_one_of_several_values_may_be_none() -> None:
    names = (b"names: str | list[str]", b"names: list[int]")
    files = {**FILES, "vllm/config/model.py": FILES["vllm/config/model.py"].replace(*names)}
    assert ask("--names None 1", files=files).faults == ()
    assert only(ask("--names None x", files=files)).code == "value-type"


def test_only_the_files_that_the_command_needs_are_read() -> None:
    tree = MemoryTree(dict(FILES), remote=True)
    check(KnownFlags(tree), Serving(("m", "--gdn", "triton", "--port", "1")))
    assert "vllm/config/engine.py" not in tree.reads
    assert "vllm/envs.py" not in tree.reads
    assert max(tree.reads.values()) == 1
