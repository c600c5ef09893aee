"""``serve-check``: a command line, a pairing with a mod that changes the choices, many releases."""

from __future__ import annotations

import os
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod
from serve_tree import ARGS, FILES, LATER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

PAIRING = """\
schema = 1
name = "desk"
summary = "A small one"
model = "example/m"
base = "example/vllm:1"
vllm = "{vllm}"
mods = ["wide"]
command = '''
export VLLM_LEVEL=low
vllm serve {{model}} --port {{port}} \\
  --gdn flashqla {more}
'''
[defaults]
port = 8000
[env]
VLLM_ATOMIC_ADD = "1"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for path, data in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


@pytest.fixture
def paired(library: Path) -> Callable[..., None]:
    """Write a pairing whose mod adds a choice; its patch fits the earlier release only."""
    wide = ARGS.replace('choices=["flashinfer", "triton"]', 'choices=["flashinfer", "flashqla"]')
    patch = diff_of("vllm/engine/arg_utils.py", ARGS, wide, context=1)
    write_mod(library, "wide", patch, more='[serve]\nargs = ["--gdn", "flashqla"]')

    def write(more: str = "", vllm: str = "0.19.1") -> None:
        (library / "pairings").mkdir(exist_ok=True)
        text = PAIRING.format(more=more, vllm=vllm)
        (library / "pairings/desk.toml").write_text(text)

    return write


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer two releases in a folder that pip is told of; no index is asked."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "links"
    folder.mkdir()
    for version, files in (("0.19.1", FILES), ("0.20.0", LATER)):
        name = f"vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl"
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for path, data in files.items():
                wheel.writestr(path, data)
            wheel.writestr(f"vllm-{version}.dist-info/METADATA", f"Version: {version}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    return folder


def test_a_command_line_that_is_right(call: Call, tree: Path) -> None:
    line = "A=1 VLLM_PORT=80 exec vllm serve m --dtype auto --no-trust-remote-code"
    answer = call("serve-check", "--command", line, "--target", tree)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"vllm serve on vLLM 0.19.1 ({tree})\n  2 flags: nothing is wrong\n"


def test_a_command_that_is_quoted_as_one_word_is_no_name(call: Call, tree: Path) -> None:
    answer = call("serve-check", "vllm serve m --dtypes auto", "--target", tree)
    assert (answer.code, answer.err) == (1, "")
    assert "did you mean --dtype?" in answer.out


def test_a_command_stands_behind_two_dashes_as_well(call: Call, tree: Path) -> None:
    answer = call("serve-check", "--target", tree, "--", "vllm", "serve", "m", "--dtypes", "auto")
    assert (answer.code, answer.err) == (1, "")
    assert "did you mean --dtype?" in answer.out
    twice = call(
        "serve-check", "--command", "vllm serve m", "--target", tree, "--", "vllm", "serve"
    )
    assert (twice.code, twice.out) == (2, "")
    assert "give one" in twice.err


def test_a_command_with_a_template_of_the_library_is_held_against_it(
    call: Call, tree: Path
) -> None:
    template = "/srv/.vllm-mods/templates/qwen3.6-enhanced.jinja"
    line = f"vllm serve m --chat-template={template} --tool-call-parser hermes"
    answer = call("serve-check", "--command", line, "--target", tree, "--json", "--offline")
    assert answer.code == 1
    assert [(f["code"], f["suggestion"]) for f in answer.json["findings"]][:3] == [
        ("flag-unused", "--enable-auto-tool-choice"),
        ("template-terms", "qwen3_coder or qwen3_xml"),
        ("mod-flag-absent", "--enable-auto-tool-choice"),
    ]
    losing = [f["message"] for f in answer.json["findings"] if f["code"] == "client-loses"]
    assert [re.split(" (?:is|loses) ", one)[0] for one in losing] == [
        "Claude Code",
        "Cline",
        "Codex",
        "OpenAI Responses",
        "OpenCode",
    ]
    assert losing[0].endswith(", and works from vLLM 0.24.0 on")


XML_CALLS = """{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
<function={{ c.function.name }}>
{{ c.function.arguments | tojson }}
</function>
</tool_call>
{% endfor %}{% endfor %}"""


@pytest.mark.parametrize("named", ["{}", "m --chat-template {}/chat_template.jinja"])
def test_a_parser_that_does_not_read_what_the_models_own_template_writes_is_wrong(
    call: Call, tree: Path, tmp_path: Path, named: str
) -> None:
    model = tmp_path / "qwen3.6-27b"
    model.mkdir()
    (model / "chat_template.jinja").write_text(XML_CALLS)
    line = f"vllm serve {named.format(model)} --enable-auto-tool-choice --tool-call-parser "
    answer = call("serve-check", "--command", f"{line}hermes", "--target", tree, "--json")
    (fault,) = [one for one in answer.json["findings"] if one["level"] == "error"]
    assert (answer.code, fault["code"], fault["suggestion"]) == (1, "parser-terms", "qwen3_coder")
    assert "<function=NAME>" in fault["message"]
    for text, codes in (
        ("{{ messages }}", []),
        ("{% for m in messages %}", ["template-unreadable"]),
    ):
        (model / "chat_template.jinja").write_text(text)
        answer = call("serve-check", "--command", f"{line}hermes", "--target", tree, "--json")
        wrong = [one["code"] for one in answer.json["findings"] if one["level"] == "error"]
        assert (answer.code, wrong) == (bool(codes), codes)


@pytest.mark.parametrize(("maker", "level"), [("Qwen", "error"), ("somebody", "note")])
def test_by_its_name_the_makers_own_model_is_known_and_anothers_is_a_note(
    call: Call, tree: Path, maker: str, level: str
) -> None:
    line = f"vllm serve {maker}/Qwen3.6-27B --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser deepseek_r1"
    answer = call("serve-check", "--command", line, "--target", tree, "--json")
    told = [(one["code"], one["level"], one["subject"]) for one in answer.json["findings"]]
    code = "parser-terms" if level == "error" else "parser-unclear"
    assert (code, level, "--tool-call-parser") in told
    assert ("parser-unclear", "note", "--reasoning-parser") in told


@pytest.mark.usefixtures("releases")
def test_a_command_line_that_is_not(call: Call, tree: Path) -> None:
    line = "VLLM_PROT=80 vllm serve m --silent --dtype half --dtype bf16"
    answer = call("serve-check", "--command", line, "--target", tree)
    assert answer.code == 1
    assert answer.out.splitlines()[1:] == [
        "  3 flags: 3 problems",
        "    --silent: vLLM 0.19.1 has no such flag [flag-unknown]",
        "    --dtype: 'bf16' is not accepted: expected auto, half, bfloat16 [value-choice]",
        "    VLLM_PROT: vLLM 0.19.1 knows no such variable and ignores it; did you mean VLLM_PORT? [env-unknown]",
        "    note: --dtype: is given 2 times; the last counts [flag-twice]",
    ]


def test_json_has_every_finding(call: Call, tree: Path) -> None:
    line = "vllm serve m --dtypes auto --config x.yaml"
    answer = call("serve-check", "--command", line, "--target", tree, "--json", "--offline")
    assert answer.code == 1
    found = answer.json
    assert found["schema"] == 1
    assert found["pairing"] is None
    assert found["command"] == ["m", "--dtypes", "auto", "--config", "x.yaml"]
    assert found["tree"] == {"spec": str(tree), "version": "0.19.1"}
    assert found["ok"] is False
    assert [(f["code"], f["level"], f["subject"], f["suggestion"]) for f in found["findings"]] == [
        ("flag-unknown", "error", "--dtypes", "--dtype"),
        ("config-file", "note", "--config", None),
    ]


@pytest.mark.slow
def test_a_pairing_is_checked_with_its_mods_in(
    call: Call, tree: Path, paired: Callable[..., None]
) -> None:
    paired()
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    answer = call("serve-check", "desk", "--target", tree)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("pairing desk on vLLM 0.19.1")
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before
    paired("--quite")
    answer = call("serve-check", "desk", "--target", tree, "--json", "--offline")
    assert answer.code == 1
    assert [(f["subject"], f["suggestion"]) for f in answer.json["findings"]] == [
        ("--quite", "--quiet")
    ]


def test_without_the_mod_the_choice_is_not_offered(call: Call, tree: Path) -> None:
    answer = call("serve-check", "--command", "vllm serve m --gdn flashqla", "--target", tree)
    assert answer.code == 1
    assert "'flashqla' is not accepted: expected flashinfer, triton" in answer.out


@pytest.mark.slow
@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(("vllm", "version"), [("0.19.1", "0.19.1"), (">=0.19,<0.20", "0.19.1")])
def test_the_tree_is_the_pairing_s_own_vllm(
    call: Call, paired: Callable[..., None], vllm: str, version: str
) -> None:
    paired(vllm=vllm)
    answer = call("serve-check", "desk", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["tree"] == {"spec": f"pypi:{version}", "version": version}


@pytest.mark.slow
@pytest.mark.usefixtures("releases")
def test_many_releases(call: Call, paired: Callable[..., None]) -> None:
    paired("--quiet")
    answer = call("serve-check", "desk", "--vllm", ">=0.19")
    assert answer.code == 1
    rows = answer.out.splitlines()
    assert rows[:3] == ["vLLM    problems", "0.19.1  none", "0.20.0  --quiet"]
    assert "--quiet: vLLM 0.20.0 has no such flag [flag-unknown]" in rows
    answer = call("serve-check", "desk", "--vllm", ">=0.19", "--json")
    assert [(cell["version"], cell["ok"]) for cell in answer.json["cells"]] == [
        ("0.19.1", True),
        ("0.20.0", False),
    ]
    assert call("serve-check", "desk", "--vllm", "<0.20").code == 0


@pytest.mark.slow
def test_a_release_that_cannot_be_read_fails_its_own_row(
    call: Call, paired: Callable[..., None], releases: Path
) -> None:
    paired()
    (wheel,) = releases.glob("vllm-0.20.0-*")
    wheel.write_bytes(wheel.read_bytes()[:1000])
    answer = call("serve-check", "desk", "--vllm", ">=0.19", "--json")
    assert answer.code == 1
    assert [(cell["version"], cell["ok"]) for cell in answer.json["cells"]] == [
        ("0.19.1", True),
        ("0.20.0", False),
    ]
    assert answer.json["cells"][1]["findings"][0]["code"] == "unreadable"


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either a pairing or --command"),
        (("desk", "--command", "vllm serve m"), "give either a pairing"),
        (("nothing",), "no pairing named `nothing`"),
        (("--command", "vllm serve m"), "no vLLM to check against was named"),
        (("--command", "vllm bench m", "--target", "TREE"), "not start a server: it has"),
        (("--command", "vllm serve 'm", "--target", "TREE"), "bash cannot read"),
        (("--command", "vllm serve m; vllm serve m --x", "--target", "TREE"), "several servers"),
        (("--command", " ", "--target", "TREE"), "empty"),
        (("--command", "vllm serve m", "--vllm", "new"), "new"),
        (("--command", "vllm serve m", "--vllm", ">=0.19", "--target", "TREE"), "omit one"),
        (("--command", "vllm serve m", "--vllm", ">9"), ">9 contains no release of vLLM"),
    ],
)
def test_a_wrong_call_is_usage(
    call: Call, tree: Path, arguments: tuple[str, ...], said: str
) -> None:
    answer = call("serve-check", *(str(tree) if one == "TREE" else one for one in arguments))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "hint: " in answer.err


def test_a_tree_without_flags_is_a_no(call: Call, site: Path) -> None:
    answer = call("serve-check", "--command", "vllm serve m", "--target", site)
    assert answer.code == 1
    assert "so vLLM's flags cannot be read" in answer.err


@pytest.mark.slow
def test_a_mod_that_adds_a_flag_is_part_of_what_is_checked(
    call: Call, library: Path, tree: Path
) -> None:
    flag = '        parser.add_argument("--quiet", action="store_true")\n'
    more = ARGS.replace(flag, flag + '        parser.add_argument("--my-flag", type=int)\n')
    write_mod(library, "adding", diff_of("vllm/engine/arg_utils.py", ARGS, more, context=1))
    refused = diff_of("vllm/config/model.py", "nothing of this\n", "is there\n")
    write_mod(library, "refused", refused)
    (library / "pairings").mkdir(exist_ok=True)
    place = library / "pairings/desk.toml"
    text = PAIRING.format(more="--my-flag x", vllm="0.19.1").replace("flashqla", "triton")
    place.write_text(text.replace('"wide"', '"adding"'))
    answer = call("serve-check", "desk", "--target", tree, "--json")
    assert (answer.code, [one["code"] for one in answer.json["findings"]]) == (1, ["value-type"])
    place.write_text(text.replace('"wide"', '"adding", "refused"'))
    answer = call("serve-check", "desk", "--target", tree, "--json")
    assert sorted(one["code"] for one in answer.json["findings"]) == ["mod-verdict", "value-type"]


@pytest.mark.slow
def test_a_mod_that_no_library_has_is_said_and_the_rest_is_checked(
    call: Call, library: Path, tree: Path
) -> None:
    (library / "pairings").mkdir(exist_ok=True)
    place = library / "pairings/desk.toml"
    text = PAIRING.format(more="", vllm="0.19.1").replace("flashqla", "triton")
    place.write_text(text.replace("[defaults]", 'templates = ["gone"]\n[defaults]'))
    answer = call("serve-check", "desk", "--target", tree)
    assert answer.code == 0
    assert "wide: could not be read, so what it adds is not checked: " in " ".join(
        answer.out.split()
    )
    assert "so what it adds is not checked: pairing `desk` names the template `gone`" in " ".join(
        answer.out.split()
    )
    place.write_text(text.replace("--gdn triton", "--of-the-mod 1 --batch x"))
    answer = call("serve-check", "desk", "--target", tree, "--json")
    assert answer.code == 1
    assert [one["code"] for one in answer.json["findings"]] == [
        "mod-unread",
        "flag-unknown",
        "value-type",
    ]
    assert "unless wide adds it" in answer.json["findings"][1]["message"]


RUSTED = {
    "vllm/envs.py": FILES["vllm/envs.py"].replace(
        b"environment_variables = {",
        b'environment_variables = {\n    "VLLM_USE_RUST_FRONTEND": lambda: '
        b'bool(int(os.getenv("VLLM_USE_RUST_FRONTEND", "0"))),',
    )
}


@pytest.fixture
def paired_tree(library: Path, tree: Path) -> tuple[Path, Path]:
    return library, tree


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "value", "code"),
    [
        ("{{ messages[0].content }}", "1", ""),
        ("{{ messages[0].content | my_filter }}", "0", ""),
        ("{% for m in messages %}{{ '%s' % m.content }}{% endfor %}", "1", "template-engine"),
    ],
)
def test_the_engine_of_the_environment_renders_the_template(
    call: Call, paired_tree: tuple[Path, Path], template: str, value: str, code: str
) -> None:
    library, tree = paired_tree
    (tree / "vllm/envs.py").write_bytes(RUSTED["vllm/envs.py"])
    (library / "templates/own").mkdir(parents=True, exist_ok=True)
    (library / "templates/own/template.jinja").write_text(template)
    folder = write_mod(library, "own", b"")
    manifest = (folder / "mod.toml").read_text()
    brought = 'templates = [{ name = "own", file = "own.jinja" }]'
    (folder / "mod.toml").write_text(manifest.replace('patches = ["x.patch"]', brought))
    (library / "pairings").mkdir(exist_ok=True)
    text = PAIRING.format(more="--chat-template own.jinja", vllm="0.19.1").replace(
        "flashqla", "triton"
    )
    text = text.replace('"wide"', '"own"') + f'VLLM_USE_RUST_FRONTEND = "{value}"\n'
    (library / "pairings/desk.toml").write_text(text)
    answer = call("serve-check", "desk", "--target", tree, "--json")
    found = {one["code"] for one in answer.json["findings"]}
    assert "template-place" in found
    assert found & {"template-engine"} == ({code} - {""})
