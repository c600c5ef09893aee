"""Commands against the sample: what is wrong is named, and what is right passes."""

from __future__ import annotations

import posixpath
import shlex

import pytest
from client_table.asking import ClientAnswer
from client_table.rows import collect, write
from memory_tree import MemoryTree
from mod_making import mod, variant
from serve_asking import ask, changed, errors, messages, notes, only, planned
from serve_tree import FILES, LATER

from vllm_mods.base.errors import UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, TemplateFile, Verdict
from vllm_mods.library.catalog import Library
from vllm_mods.serving.check import check
from vllm_mods.serving.command import words
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving
from vllm_mods.templates import client_table
from vllm_mods.templates.client_table import ClientVerdict


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
        ("--no-dtype", "flag-unknown", "--no-dtype", ""),
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
_ABOUT = """\
schema = 1
name = "t"
version = "1"
summary = "s"
license = "l"
content_format = "openai"
tool_call_parser = "qwen3_coder"
other_tool_call_parsers = ["qwen3_xml"]
[kwargs]
enable_thinking = { type = "boolean", default = true }
add_vision_id = { type = "boolean", default = false }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A library with the template ``t``, of which one client loses something."""
    place = tmp_path_factory.mktemp("library")
    folder = place / "templates" / "t"
    folder.mkdir(parents=True)
    (folder / "template.jinja").write_bytes(b"text")
    (folder / "template.toml").write_text(_ABOUT)
    refused = ClientAnswer("t", "codex", ClientVerdict.REFUSED, "no")
    table = collect({"0.19.1": [refused]}, {"t": b"text"})
    (place / "templates" / client_table.FILE).write_bytes(write(table))
    return Library(place)


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
    line: str, fault: tuple[str, str, str] | None, served: Library
) -> None:
    file = TemplateFile(name="t", file="t.jinja", source="s", data=b"text")
    brings = planned(
        mod(variant(templates=(file,)), serve_args=("--tool-call-parser", "qwen3_coder"))
    )
    needs = ("mod-flag-absent", "mod", "--tool-call-parser qwen3_coder")

    def held(template: str) -> list[tuple[str, str, str]]:
        argv = words(shlex.split(f"vllm serve m --chat-template {template} {line}"))
        serving = Serving(argv, mods=(brings,), library=served)
        answer = check(KnownFlags(MemoryTree(dict(_WITH_FORMAT))), serving)
        faults = [(f.code.value, f.subject, f.near) for f in answer.faults]
        return [one for one in faults if one != needs and one[0] != "client-loses"]

    assert held("/site-packages/.vllm-mods/templates/t.jinja") == ([fault] if fault else [])
    assert "template-terms" not in {code for code, *_ in held("/else/other.jinja")}


def test_clients_that_lose_something_with_the_template_are_noted(served: Library) -> None:
    file = TemplateFile(name="t", file="t.jinja", source="s", data=b"text")
    brings = planned(mod(variant(templates=(file,))))
    argv = words(shlex.split("vllm serve m --chat-template .vllm-mods/templates/t.jinja"))
    serving = Serving(argv, mods=(brings,), library=served)
    answer = check(KnownFlags(MemoryTree(dict(_WITH_FORMAT))), serving)
    assert [(f.subject, f.message) for f in answer.faults if f.code == "client-loses"] == [
        (
            "t.jinja",
            "Codex is refused on vLLM 0.19.1 (no), and is not known to work on the newest vLLM",
        )
    ]
    assert answer.ok


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
        assert ask(f"--chat-template {place}", image=_Work()).faults == ()
    fault = only(ask("--chat-template else.jinja", image=_Work()))
    assert (fault.code, fault.level) == ("template-missing", Level.ERROR)
    assert fault.message == "the image has no /app/else.jinja"
    assert errors(ask("--chat-template /else/there.jinja", image=_Work())) != []


def test_what_only_begins_like_an_object_is_refused_where_no_text_is_taken() -> None:
    model = FILES["vllm/config/model.py"].replace(
        b"hf_overrides: dict[str, Any]", b"hf_overrides: dict[str, Any] | Callable"
    )
    files = {**FILES, "vllm/config/model.py": model}
    fault = only(ask("--hf-overrides '{abc'", files=files))
    assert fault.code == "json-value"
    assert fault.message == "'hf_overrides': \"{abc\" is not accepted: expected a JSON object"
    text = model.replace(b"| Callable", b"| str")
    either = {**FILES, "vllm/config/model.py": text}
    assert ask("--hf-overrides '{abc'", files=either).faults == ()
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--t 1",
            (
                "--t: could mean --template-kwargs or --tensor-parallel-size or --timeout or "
                "--tool-call-parser or 3 others: write the full name"
            ),
        ),
        (
            "--en",
            (
                "--en: could mean --enable-auto-tool-choice or --enable-log-outputs or "
                "--enable-log-requests or --enable-prefix-caching: write the full name"
            ),
        ),
        ("--dtyp2 x", "--dtyp2: vLLM 0.19.1 has no such flag; did you mean --dtype?"),
        ("--zzzzzz x y", "--zzzzzz: vLLM 0.19.1 has no such flag"),
        (
            "--no-trust-remote-cod",
            "note: --no-trust-remote-cod: stands for --no-trust-remote-code: write the full name",
        ),
        (
            "--no-trust-remot-code",
            "--no-trust-remot-code: vLLM 0.19.1 has no such flag; did you mean --no-trust-remote-code?",
        ),
        ("--no-quite", "--no-quite: vLLM 0.19.1 has no such flag"),
        ("--no-dtype x", "--no-dtype: vLLM 0.19.1 has no such flag"),
        ("--no-quiet", "--no-quiet: vLLM 0.19.1 has no such flag"),
        ("--no-names", "--no-names: vLLM 0.19.1 has no such flag"),
        ("--dty auto", "note: --dty: stands for --dtype: write the full name"),
        ("--dtype --quiet", "--dtype: takes a value; none follows"),
        ("--names --quiet", "--names: takes one value or more; none follows"),
        ("--quiet=true", "--quiet: takes no value, but has 'true'"),
        ("--host.a 1", "--host.a: takes a value, not keys after a dot"),
        ("--quiet.a 1", "--quiet.a: takes no value, not keys after a dot"),
        ("--pc.mode --quiet", "--pc.mode: vLLM 0.19.1 has no such flag; did you mean -pc?"),
        ("-pc.mode --quiet", "-pc.mode: takes a value; none follows"),
        ("-pc.mode x", """-pc.mode: 'mode': "x" is not accepted: expected a whole number"""),
        (
            "-pc.passes.fuse 7 --quiet",
            "-pc.passes.fuse: 'passes.fuse': 7 is not accepted: expected true or false",
        ),
        ("-pc.sizes+ 1,x", """-pc.sizes+: 'sizes': ["1", "x"] is not accepted: expected a list"""),
        (
            "--old-way",
            "note: --old-way: is deprecated in vLLM 0.19.1: --old-way is deprecated and will go.",
        ),
        (
            "--enable-auto-tool-choice --tool-call-parser qwen3_code",
            (
                "--tool-call-parser: 'qwen3_code' is not accepted: did you mean 'qwen3_coder'? expected "
                "hermes, qwen3_coder (unless a plugin adds it)"
            ),
        ),
        (
            "--enable-auto-tool-choice --tool-parser-plugin p.py --tool-call-parser mine",
            "note: --tool-call-parser: it is unknown whether 'mine' is accepted: --tool-parser-plugin may register it",
        ),
        (
            "--load-format my.own.Loader",
            (
                "note: --load-format: it is unknown whether 'my.own.Loader' is accepted: "
                "it names your own code or file"
            ),
        ),
        (
            "--load-format a/b",
            "note: --load-format: it is unknown whether 'a/b' is accepted: it names your own code or file",
        ),
        (
            "--device cuda",
            (
                "note: --device: it is unknown whether 'cuda' is accepted: vLLM computes the choices "
                "when it runs: ['auto'] + others()"
            ),
        ),
        (
            "--traces a,b",
            "note: --traces: it is unknown whether 'a,b' is accepted: vLLM adds to the choices when it runs",
        ),
        (
            """--sampling '{"seed": 1}'""",
            "note: --sampling: 'seed' has no effect here: vLLM reads only temperature, top_p, top_k",
        ),
        (
            """--sampling '{"top_k": 1, "temprature": 1}'""",
            (
                "--sampling: vLLM does not read 'temprature': did you mean 'temperature'? "
                "it reads temperature, top_p, top_k"
            ),
        ),
        (
            """--sampling '{"zzz": 1}'""",
            "--sampling: vLLM does not read 'zzz': it reads temperature, top_p, top_k",
        ),
        (
            "--port 1 --dtype auto --port 2 --port 3",
            "note: --port: is given 3 times; the last counts",
        ),
        (
            """-sc '{"method": "mtp"}' -sc.num_speculative_tokens 1""",
            (
                "--speculative-config: is given as one JSON object and also by single keys; "
                "vLLM ignores the object and takes only the keys"
            ),
        ),
        (
            "\u2013port 80",
            "\u2013port: begins with a typographic dash, so it is not read as a flag",
        ),
        (
            "--port 1 ' ' --quiet",
            "' ': is a separate word, because a blank follows the backslash at a line's end",
        ),
        ("x", "x: is neither a flag nor a value"),
        ("--dtype auto x", "x: is neither a flag nor a value"),
        ("--quiet x", "--quiet: takes no value, but is followed by 'x'"),
        ("--model x", "--model: the model is already 'm'; vLLM takes only one"),
        ("--config a.yaml", "note: --config: flags in this file are not checked"),
        ("--enable-log-outputs", "--enable-log-outputs: needs --enable-log-requests, too"),
        (
            "--enable-log-outputs --no-enable-log-requests",
            "--enable-log-outputs: needs --enable-log-requests, too",
        ),
    ],
)
def test_what_is_said(line: str, message: str) -> None:
    assert messages(ask(line)) == [message]


@pytest.mark.parametrize(
    "line",
    [
        "-pc.mode 1 -pc.free 2",
        "--enable-log-outputs --enable-log-requests",
        "--no-enable-log-requests",
        "--quantization None",
        "--quantization ''",
        "--reasoning-parser ''",
        "--hf-overrides.a.b 1",
        "--names a --port 1",
        "-h",
        "--help=all",
    ],
)
def test_what_is_right_as_well(line: str) -> None:
    assert ask(line).faults == ()


def test_a_flag_that_does_not_exist_may_be_of_a_mod_that_no_library_has() -> None:
    assert messages(ask("--zzzzzz", missing=(("one", "why"), ("two", "why")))) == [
        "note: one: could not be read, so what it adds is not checked: why",
        "note: two: could not be read, so what it adds is not checked: why",
        "--zzzzzz: vLLM 0.19.1 has no such flag (unless one, two adds it)",
    ]


def test_flags_are_counted_and_faults_are_said_once() -> None:
    answer = ask("--dtype x --dtype x --quiet")
    assert answer.used == 3
    assert [fault.code for fault in answer.faults] == ["value-choice", "flag-twice"]


def test_words_behind_one_with_a_wrong_dash_are_meant_for_it() -> None:
    answer = ask("--quiet \u2014port 80 more")
    assert errors(answer) == [("dash", "\u2014port")]
    assert only(answer).near == "--port"
    assert errors(ask("\u2013\u2013port 80 --quiet x")) == [
        ("dash", "\u2013\u2013port"),
        ("value-unexpected", "--quiet"),
    ]
    assert errors(ask("--dtype auto \u2014 x")) == [
        ("argument-extra", "\u2014"),
        ("argument-extra", "x"),
    ]


def test_words_that_a_shell_fills_in_are_noted_and_no_more() -> None:
    answer = ask(
        "--dtype auto $MORE -pc.mode $N --sampling '$X' $MORE", unknown=("$MORE", "$N", "$X")
    )
    assert messages(answer) == [
        f"note: {name}: contains shell syntax, so its value at run time was not checked"
        for name in ("$MORE", "$N", "$X")
    ]


def test_the_model_may_be_given_by_a_flag_alone() -> None:
    argv = words(("python3", "/x/api_server.py", "--model", "m"))
    assert messages(check(KnownFlags(MemoryTree(dict(FILES))), Serving(argv))) == [
        "note: --model: is deprecated; write the model as the first word after `vllm serve`"
    ]


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (("help=_OLD", 'help="Old."'), None),
        (("help=_OLD", 'help="Of the deprecated ways."'), None),
        (("help=_OLD", 'help="Fine. It has been deprecated! Why."'), ": It has been deprecated!"),
        (("help=_OLD", 'help="Fine.\\n  DEPRECATED: use\\n  x."'), ": DEPRECATED: use x."),
        (("help=_OLD", "help=_OLD.upper()"), None),
        (("help=_OLD", "deprecated=True"), ""),
        (("help=_OLD", "deprecated=False"), None),
    ],
)
def test_a_flag_is_deprecated_that_says_so(pair: tuple[str, str], why: str | None) -> None:
    lines = messages(ask("--old-way", files=changed("vllm/engine/arg_utils.py", pair)))
    assert lines == ([] if why is None else [f"note: --old-way: is deprecated in vLLM 0.19.1{why}"])


def test_the_words_below_a_field_deprecate_its_flag() -> None:
    pair = ("    batch: int = 1\n", '    batch: int = 1\n    """Many. These are deprecated."""\n')
    assert messages(ask("-b 1", files=changed("vllm/config/model.py", pair))) == [
        "note: -b: is deprecated in vLLM 0.19.1: These are deprecated."
    ]


def test_bounds_of_what_only_some_models_have_make_a_note() -> None:
    files = changed(
        "vllm/config/engine.py",
        (
            "class CacheConfig:\n    prefix: bool = True",
            "class MultiModalConfig:\n    prefix: float = Field(lt=1)",
        ),
    )
    for path in ("vllm/config/__init__.py", "vllm/engine/arg_utils.py"):
        files[path] = files[path].replace(b"CacheConfig", b"MultiModalConfig")
    assert messages(ask("--enable-prefix-caching 2", files=files)) == [
        (
            "note: --enable-prefix-caching: 2.0 is out of range: it must be < 1; vLLM refuses this value "
            "for models with images or sound, and ignores it for others"
        )
    ]
    assert errors(ask("--enable-prefix-caching x", files=files)) == [
        ("value-type", "--enable-prefix-caching")
    ]


@pytest.mark.parametrize(
    ("condition", "then", "line", "alone"),
    [
        ("args.quiet and not args.port", "raise E", "--quiet", "--quiet"),
        ("args.quiet and not args.port", "x = 1\n        raise E", "--quiet", "--quiet"),
        ("args.quiet and not args.port", "raise E", "--quiet --port 1", ""),
        ("args.quiet and not args.port", "pass", "--quiet", ""),
        ("args.quiet or not args.port", "raise E", "--quiet", ""),
        ("args.quiet and -args.port", "raise E", "--quiet", ""),
        ("args.quiet and not other.port", "raise E", "--quiet", ""),
        ("other.quiet and not args.port", "raise E", "--quiet", ""),
        ("args.trust_remote_code and not args.port", "raise E", "--no-trust-remote-code", ""),
    ],
)
def test_which_flags_need_another_is_what_the_release_asks(
    condition: str, then: str, line: str, alone: str
) -> None:
    pair = (
        "    if args.enable_log_outputs",
        f"    if {condition}:\n        {then}\n    if args.enable_log_outputs",
    )
    answer = ask(line, files=changed("vllm/entrypoints/openai/cli_args.py", pair))
    assert errors(answer) == ([("flag-alone", alone)] if alone else [])


def test_what_is_said_of_the_flags_that_a_mod_needs() -> None:
    needs = planned(mod(variant(), serve_args=("--attention-backend", "TRITON", "--old-way")))
    assert messages(ask("", mods=(needs,))) == [
        "mod: needs --attention-backend TRITON, which is missing",
        "mod: needs --old-way, which is missing",
    ]
    assert ask("", mods=(needs,)).faults[0].near == "--attention-backend TRITON"
    line = "--attention-backend TRITON --attention-backend auto --no-old-way"
    assert messages(ask(line, mods=(needs,)))[-2:] == [
        "note: mod: is meant for --attention-backend TRITON, but the command has --attention-backend auto",
        "note: mod: is meant for --old-way, but the command has --no-old-way",
    ]
    several = planned(mod(variant(), serve_args=("--gone", "1", "--quiet")))
    assert messages(ask("", mods=(several,))) == [
        "mod: needs --gone 1, but vLLM 0.19.1 has no such flag",
        "mod: needs --quiet, which is missing",
    ]


def test_what_is_said_of_a_mod_that_does_not_go_in() -> None:
    out = planned(mod(variant(), serve_args=("--quiet",)), Verdict.CONFLICT)
    assert messages(ask("", mods=(out,))) == ["mod: does not apply: `conflict`"]
    why = out._replace(
        findings=(Finding(FindingCode.REMOVED, "it is gone"), Finding(FindingCode.REMOVED, "more"))
    )
    assert messages(ask("", mods=(why,))) == ["mod: does not apply: `conflict`: it is gone"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "tiny.jinja",
            (
                "note: --chat-template: a mod puts tiny.jinja into the workspace (by default .vllm-mods/templates "
                "beside vllm/), so give --chat-template the path that `apply` prints"
            ),
        ),
        ("/x/.vllm-mods/templates/tiny.jinja", ""),
        (
            "/x/.vllm-mods/templates/zzz.jinja",
            "note: --chat-template: it is unknown whether '/x/.vllm-mods/templates/zzz.jinja' will be at that path when vLLM starts",
        ),
        ("zzz", "--chat-template: no mod has 'zzz': the mods have atom.jinja, tiny.jinja"),
        (
            "x/tinny.jinja",
            "--chat-template: no mod has 'x/tinny.jinja': the mods have atom.jinja, tiny.jinja",
        ),
        (
            "x/zzz",
            "note: --chat-template: it is unknown whether 'x/zzz' will be in the working directory when vLLM starts",
        ),
        ("/usr/lib/dist-packages/vllm/x.jinja", "--chat-template: vllm/x.jinja is not in the tree"),
        ("/usr/lib/dist-packages/vllm/other.py", ""),
        ("''", ""),
        ("'{# x #}'", ""),
        ("'a}'", ""),
        ("'a\nb'", ""),
    ],
)
def test_where_a_template_is_looked_for(place: str, message: str) -> None:
    files = tuple(
        TemplateFile(name=name, file=f"{name}.jinja", source="s", data=b"")
        for name in ("tiny", "atom")
    )
    brings = planned(mod(variant(templates=files)))
    answer = ask(f"--chat-template {place}", mods=(brings,))
    assert messages(answer) == ([message] if message else [])


def test_a_template_that_a_shell_names_is_not_looked_for() -> None:
    answer = ask("--chat-template $WHERE", unknown=("$WHERE",))
    assert notes(answer) == [("shell", "$WHERE")]


def test_a_template_that_nobody_brings() -> None:
    bare = planned(mod(variant()))
    assert messages(ask("--chat-template x.jinja", mods=(bare,))) == [
        "--chat-template: no mod has 'x.jinja', so vLLM looks for it in the container's working directory"
    ]
    assert notes(ask("--chat-template a/x.jinja", mods=(bare,))) == [
        ("template-unclear", "--chat-template")
    ]
    file = TemplateFile(name="t", file="tiny.jinja", source="s", data=b"")
    brings = planned(mod(variant(templates=(file,))))
    assert messages(ask("", mods=(brings, bare))) == [
        "mod: has the template tiny.jinja, but no --chat-template uses it"
    ]
    assert ask("", mods=(brings,)).faults[0].near == "--chat-template tiny.jinja"
    out = planned(mod(variant(templates=(file,))), Verdict.CONFLICT)
    assert errors(ask("", mods=(out,))) == [("mod-verdict", "mod")]


def test_the_engine_of_the_rust_frontend_is_asked_of_the_template_in_use() -> None:
    table = ("environment_variables = {", 'environment_variables = {"VLLM_USE_RUST_FRONTEND": 1,')
    rusted = changed("vllm/envs.py", table)
    data = (("tiny", b"{{ messages | nothing }}"), ("atom", b"{{ messages[0].content }}"))
    templates = tuple(
        TemplateFile(name=name, file=f"{name}.jinja", source="s", data=text) for name, text in data
    )
    brings = planned(mod(variant(templates=templates)))

    def codes(line: str, value: str = "1", files: dict[str, bytes] = rusted) -> list[str]:
        answer = ask(line, env={"VLLM_USE_RUST_FRONTEND": value}, mods=(brings,), files=files)
        return [text for text in messages(answer) if "workspace" not in text]

    assert codes("--chat-template /a/tiny.jinja") == [
        "tiny.jinja: this template in the Rust frontend: tiny.jinja:1: No filter named 'nothing'."
    ]
    assert codes("--chat-template atom.jinja") == []
    assert codes("--chat-template tiny.jinja", " 0 ") == []
    assert codes("--chat-template tiny.jinja", "") == []
    assert codes("--chat-template built_in.jinja", " 1 ") == [
        "note: --chat-template: VLLM_USE_RUST_FRONTEND uses minijinja, and it is unknown whether minijinja can render this template"
    ]
    assert "renders it" not in codes("--chat-template built_in.jinja", files=dict(FILES))[0]
    assert ask("--chat-template tiny.jinja", mods=(brings,), files=rusted).ok
