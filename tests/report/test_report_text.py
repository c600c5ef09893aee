"""Plans in words, and what is printed to be copied, which has to survive the shell it is copied into."""

from __future__ import annotations

import shlex

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant
from small_replies import FAST, NOTE, TEXT, lines, paint, plan as plan_of, planned

from vllm_mods.api.plan import CheckResult
from vllm_mods.applying.outcomes import Applied
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, PlacedHunk, TemplateFile
from vllm_mods.checkpoints.model_fit import ModelFit, ModFit
from vllm_mods.formats.pairing import Pairing
from vllm_mods.planning.planner import plan
from vllm_mods.report import checked, data, text

CHANGES = (
    FileChange("vllm/x.py", b"A = 1\n", b"A = 2\n"),
    FileChange("vllm/new.py", None, b"N = 1\nM = 1\n"),
    FileChange("vllm/gone.py", b"+G\n-H\n", None),
    FileChange("vllm/whole.py", b"1\n", b"2\n"),
)
HUNKS = tuple(
    PlacedHunk("p", "vllm/x.py", number, number, 0, "", proof)
    for number, proof in enumerate(("file", "scope", "file"), 1)
)
GOES_IN = planned(
    changes=CHANGES,
    hunks=HUNKS,
    findings=(NOTE,),
    proof="types",
    unexamined=(("cycles", "no reason"),),
)
CONFLICT = planned("conflict", findings=(TEXT, Finding(FindingCode.FIT_UNKNOWN, "cannot tell")))


def test_serve_arguments_can_be_pasted_into_a_shell() -> None:
    json = '{"preserve_thinking": true}'
    file = TemplateFile(name="t", file="t.jinja", source="templates/t/template.jinja", data=b"x")
    chat = mod(variant(templates=(file,)), serve_args=("--default-chat-template-kwargs", json))
    planned = plan([chat], MemoryTree({"vllm/x.py": b"x\n"}), workspace="/work space")
    (line,) = text.serve_arguments(planned, "/work space")
    said, _, arguments = line.partition(": ")
    assert said == "serve with (mod)"
    assert shlex.split(arguments) == [
        "--default-chat-template-kwargs", json, "--chat-template", "/work space/t.jinja"
    ]  # fmt: skip


# --- a plan in words ----------------------------------------------------------------------------

HEAD = "vLLM 0.19.1 (site)"
GOES_IN_WORDS = [
    "  fast 1.0.0  <applies>: every hunk matches at its stated line (variant one)",
    "    vllm/x.py: 3 hunks, found by mod.lock, class/function",
    "    vllm/new.py: new file",
    "    vllm/gone.py: deleted",
    "    vllm/whole.py: whole file",
    "    note: hunk 1 lands at line 4, +2 [offset]",
]


def test_a_plan_says_of_each_mod_its_verdict_what_it_changes_and_why() -> None:
    assert text.plan(plan_of(GOES_IN, CONFLICT), paint).split("\n") == [
        HEAD,
        *GOES_IN_WORDS,
        "  fast 1.0.0  <conflict>: the source does not match the patch",
        "    <hunk 1: not there [text]>",
    ]
    explained = text.plan(plan_of(GOES_IN, planned()), paint, explain=True).split("\n")
    expected = ["    checked with a type checker", "    not checked: cycles, since no reason"]
    assert explained[:-1] == [HEAD, *GOES_IN_WORDS, *expected]


def test_a_mod_that_brings_only_new_files_or_undeclared_ones_is_told_so() -> None:
    undeclared = Finding(FindingCode.UNDECLARED, "it is not named")
    brings = planned(changes=CHANGES[1:2])
    assert text.meaning(brings) == "it only adds new files"
    assert text.meaning(brings._replace(findings=(undeclared,))) == (
        "it changes files that its mod.toml does not declare"
    )
    assert text.meaning(planned("moved")) == "every hunk matches, at another line"


def test_a_refusal_names_each_mod_that_does_not_go_in() -> None:
    refused = text.refusal(plan_of(GOES_IN, CONFLICT), "first\nsecond", paint)
    expected = ["first", "  fast 1.0.0: <conflict>", "    <hunk 1: not there [text]>"]
    assert refused.split("\n") == expected


def test_a_long_finding_is_broken_between_words_and_never_in_a_command() -> None:
    command = "`vllm-mods port x --to pypi:0.19.1`"
    long = Finding(FindingCode.TEXT, "a word " * 13 + command + " and some more" * 6)
    assert text.findings([long, NOTE], "    ", "<{}>".format) == [
        f"    <{'a word ' * 12}a word>",
        f"    <  {command} and some more and some more and some more and some more>",
        "    <  and some more and some more [text]>",
        "    note: hunk 1 lands at line 4, +2 [offset]",
    ]


@pytest.mark.parametrize("length", [96, 97])
def test_a_finding_takes_all_of_a_line(length: int) -> None:
    finding = Finding(FindingCode.TEXT, "a" * 80 + " " + "b" * (length - 88))
    whole = str(finding)
    assert len(whole) == length
    assert (text.findings([finding], "    ") == [f"    {whole}"]) is (length == 96)


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        ("pypi:0.19.1", "0.19.1"),
        ("pypi:0.19", "pypi:0.19"),
        ("pypi:vllm-0.19.1-cp38-abi3-x.whl", "0.19.1 build 0"),
        ("pypi:vllm-0.19.1-1-cp38-abi3-x.whl", "0.19.1 build 1"),
        ("wheel:/a-b/vllm-0.19.1-cp38-abi3-x.whl", "0.19.1"),
        ("wheel:/a-b/vllm-0.19.1-2-cp38-abi3-x.whl", "0.19.1 build 2"),
        ("git:x", "git:x"),
    ],
)
def test_a_tree_is_named_shortly(tree: str, shown: str) -> None:
    assert text.label(tree, "0.19.1") == shown


# --- check, diff, apply -------------------------------------------------------------------------

TREE = MemoryTree({}, spec="site")


def test_check_says_whether_the_mods_are_for_a_model_and_how_a_release_was_read() -> None:
    result = CheckResult(TREE, plan_of(GOES_IN))
    reply = checked.check(result, paint, explain=False)
    answer = {**data.plan(plan_of(GOES_IN)), "beside": ()}
    assert (lines(reply), reply.data) == ([HEAD, *GOES_IN_WORDS], answer)
    assert (reply.ok, reply.next_step) == (True, None)
    found = Finding(FindingCode.UNMET_REQUIREMENT, "torch 1 is installed")
    beside = checked.check(result._replace(beside=(found,)), paint, explain=False)
    assert lines(beside)[-1] == "beside vLLM: torch 1 is installed [unmet-requirement]"
    assert (beside.data["beside"], beside.ok) == ((found,), True)
    fit = ModelFit("org/m", None, (ModFit("fast", False, True, "it is another", ""),))
    refused = checked.check(result._replace(model=fit), paint, explain=False)
    assert lines(refused)[-2:] == ["model org/m", "  fast is not for this model: it is another"]
    assert (refused.ok, refused.data["ok"], refused.next_step) == (
        False,
        False,
        "vllm-mods suggest org/m",
    )
    assert refused.data["model"]["name"] == "org/m"


def test_diff_counts_the_lines_of_each_file() -> None:
    reply = checked.diff(CheckResult(TREE, plan_of(GOES_IN, changes=CHANGES)), paint)
    assert reply.data == {
        **data.plan(plan_of(GOES_IN)),
        "files": [
            {"path": "vllm/x.py", "added": 1, "removed": 1},
            {"path": "vllm/new.py", "added": 2, "removed": 0},
            {"path": "vllm/gone.py", "added": 0, "removed": 2},
            {"path": "vllm/whole.py", "added": 1, "removed": 1},
        ],
    }
    assert lines(reply)[:2] == ["diff --git a/vllm/x.py b/vllm/x.py", "--- a/vllm/x.py"]
    assert (reply.is_file, reply.stderr, reply.ok) == (True, (), True)


def test_diff_names_a_template_in_a_folder_elsewhere_by_its_file() -> None:
    change = FileChange("/work space/t.jinja", None, b"x\n")
    reply = checked.diff(CheckResult(TREE, plan_of(planned(), changes=(change,))), paint)
    assert "+++ b/t.jinja" in lines(reply)
    assert reply.data["files"] == [{"path": change.path, "added": 1, "removed": 0}]


def test_diff_says_that_nothing_would_change_or_why_it_cannot() -> None:
    same = checked.diff(CheckResult(TREE, plan_of(planned("applied"))), paint)
    note = "note: everything is already applied, so nothing would change"
    assert (same.words, same.stderr) == ("", (note,))
    refused = checked.diff(CheckResult(TREE, plan_of(CONFLICT)), paint)
    assert lines(refused) == text.plan(plan_of(CONFLICT), paint).split("\n")
    assert (refused.ok, refused.data["files"], refused.is_file) == (False, [], False)
    assert refused.next_step is not None


def test_apply_says_what_was_done_and_how_to_serve_with_it() -> None:
    chat = planned()._replace(mod=FAST._replace(serve_args=("--x",), env=(("A", "1 2"),)))
    done = Applied("/s", plan_of(chat), ("vllm/x.py",), ("why",), "/t")
    reply = checked.apply(done, None, paint, dry_run=False)
    assert lines(reply)[2:] == ["1 file changed", "serve with (fast): A='1 2' --x"]
    assert reply.data == {**data.plan(done.plan), "changed": ("vllm/x.py",), "dry_run": False}
    assert reply.stderr == ("note: why",)
    pairing = Pairing("pair", "s", "org/m", "base:1", "vllm serve org/m --x")
    dry = checked.apply(done, pairing, paint, dry_run=True)
    script = "export A='1 2'\nvllm serve org/m --x"
    assert dry.data["serve"] == script
    assert lines(dry)[2:] == [
        "1 file would be changed",
        "serve with (pairing pair):",
        *script.split("\n"),
    ]
    assert dry.data["dry_run"] is True
    nothing = checked.apply(
        done._replace(changed=(), plan=plan_of(planned())), None, paint, dry_run=True
    )
    assert lines(nothing)[2:] == ["nothing to do"]
