"""What commands answer, in words and as data: records of the rooms below, to the letter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, variant
from small_replies import FAST, NOTE, PATCH, TEXT, entry, lines, paint, plan, planned

from vllm_mods.api.run import ListedContainers
from vllm_mods.api.serve_check import ServeCell, ServeChecked
from vllm_mods.api.suggest import Suggested
from vllm_mods.api.sync import Synced
from vllm_mods.applying.carry_out import Exactly
from vllm_mods.applying.outcomes import Reverted, Status, Verified
from vllm_mods.applying.shadow import UsedCopy
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, ImageFile, Level
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.facts import LayerKinds, ModelFacts
from vllm_mods.checkpoints.fitting import PairingFit, Suggestion
from vllm_mods.checkpoints.model_fit import ModelFit, ModFit
from vllm_mods.diagnosis.diagnosis import Diagnosis, Examined, Tool, Trouble
from vllm_mods.diagnosis.listing import Listed
from vllm_mods.formats import pairing as pairings, receipt
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.project import LibrarySource, SyncTarget
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.formats.receipt import Receipt
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.making.compose import NewMod, ReleaseRow
from vllm_mods.recipes.recipe_yaml import ImportedRecipe
from vllm_mods.report import (
    checkpoint,
    data,
    doctor,
    imported,
    installed,
    keep,
    project,
    serve,
    words,
)
from vllm_mods.report.library import mod_data, mod_lines
from vllm_mods.running.evidence import Evidence, ServerEvidence
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault
from vllm_mods.sharing.changing import LibraryAdded, LibraryUpdate

TOUCHING = FAST._replace(
    outside=("flashinfer",),
    env=(("A", "1 2"),),
    serve_args=("--x", "a b"),
    files=(ImageFile("/etc/x", "x", b""),),
    variants=(
        variant(PATCH, diff_of("vllm/y.py", "A\n", "B\n"), python=("numpy>=2",)),
        variant(PATCH, name="two", python=("numpy>=2",)),
    ),
)


# --- keep ---------------------------------------------------------------------------------------

PORTED = KeptRelease(
    "m", "0.21.0", "ported", "conflict", "applies", ("by rule",), ("look", "there"), "keep/m", "c0"
)


def test_a_branch_that_was_made_has_its_name_and_a_message_of_a_title_a_table_and_lists() -> None:
    fits = PORTED._replace(did="fits", left=(), commit=None)
    body = (
        "m: a variant for vLLM 0.21.0\n\n| | vLLM 0.21.0 |\n| --- | --- |\n"
        "| before | conflict |\n| after | applies |\n\n"
        "Decided automatically:\n\n* by rule\n\nFor a person to look at:\n\n* look\n* there\n"
    )
    reply = keep.kept("lib", [PORTED, fits])
    assert reply.data == {
        "library": "lib",
        "branches": [
            {**PORTED._asdict(), "body": body},
            {**fits._asdict(), "branch": None, "body": None},
        ],
        "requests": [],
    }
    assert (reply.words, reply.ok) == (None, False)
    assert keep.kept("lib", [fits]).ok
    assert keep.kept("lib", []).words == "no mod has a new release to look at: nothing to do"


@pytest.mark.parametrize(
    ("did", "title"),
    [
        ("recorded", "m: applies to vLLM 0.21.0 unchanged"),
        ("widened", "m: applies to vLLM 0.21.0 unchanged"),
        ("ended", "m: vLLM 0.21.0 already has the change"),
        ("left", "m: the port to vLLM 0.21.0 is unfinished"),
    ],
)
def test_the_title_of_a_branch_says_what_was_done(did: str, title: str) -> None:
    message = keep.message(PORTED._replace(did=did, told=(), left=()))
    assert message.split("\n\n") == [
        title,
        "| | vLLM 0.21.0 |\n| --- | --- |\n| before | conflict |\n| after | applies |\n",
    ]


@pytest.mark.parametrize(
    ("did", "outcome"),
    [
        ("fits", "applies, nothing to do"),
        ("there", "the branch keep/m already exists and was left alone"),
        ("stuck", "no port could be started"),
        ("waits", "nothing was done"),
        ("ported", "ported, from conflict to applies, on branch keep/m"),
        ("recorded", "applies unchanged; branch keep/m adds the release to mod.lock"),
        ("widened", "applies unchanged; the range is widened on branch keep/m"),
        ("ended", "already has the change; the range now ends before it, on branch keep/m"),
        ("left", "the port is unfinished; what is done is on branch keep/m"),
    ],
)
def test_what_became_of_a_release_is_a_line_and_what_is_left_stands_below_it(
    did: str, outcome: str
) -> None:
    expected = [f"m, vLLM 0.21.0: {outcome}", "  left for you: look", "  left for you: there"]
    assert keep.line(PORTED._replace(did=did)).split("\n") == expected


# --- libraries of others ------------------------------------------------------------------------

GIT = LockedLibrary(LibrarySource("git", "https://x/y", rev="main"), "c0ffee" * 6, "f" * 64)
FOLDER = LockedLibrary(LibrarySource("path", "../lib"), "", "e" * 64)
GIT_DATA = {"source": "git+https://x/y@main", "commit": "c0ffee" * 6, "files": f"sha256:{'f' * 64}"}
FOLDER_DATA = {"source": "../lib", "files": f"sha256:{'e' * 64}"}
SHOWN = [f"  {line}" for line in mod_lines(TOUCHING)]


def test_a_library_that_was_added_is_told_with_all_that_its_mods_may_touch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/usr")
    reply = project.added("/usr/lib/it.toml", LibraryAdded("them", GIT, (TOUCHING,), ()))
    head = "them: git+https://x/y@main (commit c0ffeec0ffee)"
    assert lines(reply) == [head, *SHOWN]
    assert reply.data == {
        "project": "/usr/lib/it.toml",
        "library": {"name": "them", **GIT_DATA},
        "mods": [mod_data(TOUCHING)],
        "named": (),
    }
    step = 'vllm-mods show them/fast; to apply it, add "them/fast" to `mods` in the table [targets.default] of lib/it.toml, then vllm-mods sync'
    note = "note: wrote lib/it.toml and the lock beside it"
    assert reply[2:] == (True, step, (note,), False, None)


def test_of_a_library_that_was_added_the_next_step_is_about_what_the_target_names() -> None:
    reply = project.added("/p", LibraryAdded("them", FOLDER, (FAST,), ("them/fast", "them/b")))
    assert lines(reply)[-1] == "`vllm-mods sync` will apply: them/fast, them/b"
    step = "vllm-mods sync --check  # shows what would change in the target"
    assert reply.next_step == step
    empty = project.added("/p", LibraryAdded("them", FOLDER, (), ()))
    assert lines(empty) == ["them: ../lib", "  this library has no mods"]
    assert empty.next_step is None


def test_a_library_that_was_removed_is_told_with_the_mods_that_nothing_names_now() -> None:
    reply = project.removed("/p", "them", ("fast", "b"))
    assert lines(reply) == [
        "them was removed from /p",
        "  no target names fast now",
        "  no target names b now",
    ]
    assert reply.data == {"project": "/p", "removed": "them", "no_longer_named": ("fast", "b")}
    assert reply.next_step == "vllm-mods sync  # reverts the library's mods"


def test_of_libraries_that_were_updated_each_mod_that_is_another_is_named() -> None:
    stays, gone, fresh = (FAST._replace(name=name) for name in ("stays", "gone", "fresh"))
    newer = FAST._replace(version="1.1.0", digest="cd" * 32)
    new = TOUCHING._replace(name="fresh")
    moved = GIT._replace(resolved="decade" * 6)
    updates = [
        LibraryUpdate("same", FOLDER, FOLDER, None, ()),
        LibraryUpdate("first", None, GIT, (), (FAST,)),
        LibraryUpdate("moved", GIT, moved, (gone, FAST, stays), (new, newer, stays)),
        LibraryUpdate("lost", GIT, moved, None, (fresh,)),
    ]
    reply = project.updated("/p", updates, dry_run=False)
    at = "git+https://x/y@main (commit c0ffeec0ffee)"
    assert lines(reply) == [
        "same: ../lib: nothing is new",
        "first: git+https://x/y@main (not locked) → (commit c0ffeec0ffee)",
        "  fast is new → 1.0.0 (abababababab)",
        *(f"  {line}" for line in mod_lines(FAST)),
        f"moved: {at} → (commit decadedecade)",
        "  fast 1.0.0 (abababababab) → 1.1.0 (cdcdcdcdcdcd)",
        "  fresh is new → 1.0.0 (abababababab)",
        *(f"  {line}" for line in mod_lines(new)),
        "  gone 1.0.0 (abababababab) → gone",
        f"lost: {at} → (commit decadedecade)",
        "  the locked version is not stored here, so what changed in it is unknown",
    ]
    was = "1.0.0 (abababababab)"
    first = {"name": "fast", "before": None, "now": was}
    now = GIT_DATA | {"commit": "decade" * 6}
    same = {"name": "same", "changed": False, "before": FOLDER_DATA, "now": FOLDER_DATA, "mods": []}
    changed = [
        {"name": "fast", "before": was, "now": "1.1.0 (cdcdcdcdcdcd)"},
        {"name": "fresh", "before": None, "now": was},
        {"name": "gone", "before": was, "now": None},
    ]
    assert reply.data == {
        "project": "/p",
        "libraries": [
            same,
            {"name": "first", "changed": True, "before": None, "now": GIT_DATA, "mods": [first]},
            {"name": "moved", "changed": True, "before": GIT_DATA, "now": now, "mods": changed},
            {"name": "lost", "changed": True, "before": GIT_DATA, "now": now, "mods": []},
        ],
        "dry_run": False,
    }
    assert reply.next_step == "vllm-mods sync  # applies this"
    dry = project.updated("/p", updates, dry_run=True)
    assert (dry.data["dry_run"], dry.next_step) == (True, "vllm-mods update  # locks this")
    assert project.updated("/p", updates[:1], dry_run=False).next_step is None
    assert lines(project.updated("/p", [], dry_run=False)) == ["the project has no library"]


# --- serve-check, evidence ----------------------------------------------------------------------

UNKNOWN = ServeFault(FindingCode.FLAG_UNKNOWN, "--x", "no such flag", "--y")
TWICE = ServeFault(FindingCode.FLAG_TWICE, "--z", "is given 2 times", level=Level.NOTE)
CELL = ServeCell("0.19.1", "pypi:0.19.1", ServeAnswer((TWICE, UNKNOWN), 1))
UNKNOWN_DATA = {
    "code": "flag-unknown",
    "level": "error",
    "subject": "--x",
    "message": "no such flag",
    "suggestion": "--y",
}


def test_of_a_serve_command_what_is_wrong_stands_before_the_notes() -> None:
    reply = serve.checked(ServeChecked(("m", "--x"), "pair", (CELL,), over_releases=False))
    assert lines(reply) == [
        "pairing pair on vLLM 0.19.1 (pypi:0.19.1)",
        "  1 flag: 1 problem",
        "    --x: no such flag [flag-unknown]",
        "    note: --z: is given 2 times [flag-twice]",
    ]
    note = {
        "code": "flag-twice",
        "level": "note",
        "subject": "--z",
        "message": "is given 2 times",
        "suggestion": None,
    }
    assert (reply.ok, reply.data) == (
        False,
        {
            "pairing": "pair",
            "command": ("m", "--x"),
            "tree": {"spec": "pypi:0.19.1", "version": "0.19.1"},
            "ok": False,
            "findings": [note, UNKNOWN_DATA],
        },
    )


def test_a_serve_command_of_no_pairing_on_a_tree_of_no_version() -> None:
    cell = ServeCell("", "wheel:x", ServeAnswer((), 2))
    reply = serve.checked(ServeChecked(("m",), None, (cell,), over_releases=False))
    expected = ["vllm serve on vLLM of unknown version (wheel:x)", "  2 flags: nothing is wrong"]
    assert (reply.ok, lines(reply)) == (True, expected)
    assert reply.data["tree"] == {"spec": "wheel:x", "version": None}


def test_over_releases_each_finding_is_told_once_with_its_releases() -> None:
    newer, other = UNKNOWN._replace(message="gone since"), UNKNOWN._replace(subject="--w", near="")
    cells = (
        CELL,
        ServeCell("0.20.0", "pypi:0.20.0", ServeAnswer((), 1)),
        ServeCell("0.21.0", "pypi:0.21.0", ServeAnswer((newer, other), 1)),
    )
    reply = serve.checked(ServeChecked(("m",), None, cells, over_releases=True))
    assert lines(reply) == [
        "vLLM    problems",
        "0.19.1  --x",
        "0.20.0  none",
        "0.21.0  --x, --w",
        "",
        "--x: gone since [flag-unknown]",
        "  on 0.19.1 to 0.21.0, 2 of 3",
        "",
        "--w: no such flag [flag-unknown]",
        "  on 0.21.0",
    ]
    assert reply.data.keys() == {"pairing", "command", "cells"}
    assert reply.data["cells"][1:] == [
        {"version": "0.20.0", "tree": "pypi:0.20.0", "ok": True, "findings": []},
        {
            "version": "0.21.0",
            "tree": "pypi:0.21.0",
            "ok": False,
            "findings": [
                UNKNOWN_DATA | {"message": "gone since"},
                UNKNOWN_DATA | {"subject": "--w", "suggestion": None},
            ],
        },
    ]


def test_a_copy_is_told_with_the_process_that_asked_for_it() -> None:
    copies = (UsedCopy("/c", ("a@1",), 7, "vllm  serve"), UsedCopy("/d", ("a@1", "b@2"), 8, ""))
    reply = serve.containers(ListedContainers((), (), copies))
    assert reply.ok
    assert (reply.words or "").splitlines()[1:] == [
        "a copy with a@1 is used by process 7: vllm serve",
        "a copy with a@1 b@2 is used by what process 8 has started",
    ]


def test_what_a_log_tells_of_mods() -> None:
    mods = (
        Evidence("a", "ran", "w \n x"),
        Evidence("b", "other", "y" * 301),
        Evidence("c", "silent", None),
        Evidence("d", "untold", None),
    )
    reply = serve.evidence(ServerEvidence(mods, ready=False, restarts=1))
    assert lines(reply) == [
        "the server was restarted once; this answer is about the last start",
        "the server did not become ready: vLLM logged no `Starting vLLM server on …`",
        "a: its code ran: w x",
        f"b: other code ran instead: {'y' * 299}…",
        "c: the log does not mention the mod",
        "d: a log cannot show whether its code ran; its mod.toml names no evidence",
    ]
    assert reply.data == {"ok": False, "mods": mods, "ready": False, "restarts": 1}
    again = serve.evidence(ServerEvidence((), ready=True, restarts=2))
    expected = "the server was restarted 2 times; this answer is about the last start"
    assert (again.words, again.ok) == (expected, True)
    assert serve.evidence(ServerEvidence((), ready=True, restarts=0)).words == ""


# --- models -------------------------------------------------------------------------------------

NONE = LayerKinds(0, ())
NOTHING_SAID = ModelFacts(None, None, None, None, NONE, NONE, NONE, None)
PLAIN = Checkpoint("dir", None, {}, {}, "1" * 64, None)


def test_what_is_for_a_model_is_told_with_what_the_model_is() -> None:
    many = LayerKinds(10, tuple((f"l{n}.*", n) for n in range(10)))
    facts = ModelFacts("Arch", "qwen", "gptq", 4, LayerKinds(1, (("a.*", 1),)), many, NONE, 4096)
    fast, nice, t1, t2 = (
        ModFit(name, True, True, "", fails)
        for name, fails in (("fast", "it falls"), ("nice", ""), ("t1", ""), ("t2", ""))
    )
    pairings = (
        PairingFit("p1", True, True, ""),
        PairingFit("p2", True, False, ""),
        PairingFit("p3", False, False, "it lacks fast"),
    )
    tensors: Any = {"a.1": None}
    model = Checkpoint("org/m", "c0ffee", {}, tensors, "1" * 64, "2" * 64)
    reply = checkpoint.suggested(
        Suggested(
            model,
            Suggestion(facts, (fast, nice), (t1, t2), pairings),
            None,
            flags=("--a", "b"),
            clients=("Codex: works",),
            notes=("no head",),
        ),
        paint,
    )
    assert lines(reply) == [
        "org/m at c0ffee",
        "  architecture Arch (qwen)",
        "  quantization gptq, 4 bits",
        "  context      4,096 tokens",
        "  INT4         1 layer",
        "         1 a.*",
        "  block FP8    10 layers",
        *(f"         {n} l{n}.*" for n in range(8)),
        "           and 2 more kinds",
        "  no head",
        "",
        "mods",
        "  fast",
        "    without this mod vLLM fails: it falls",
        "  nice",
        "chat template",
        "  t1 (or t2)",
        "    --a b",
        "    Codex: works",
        "pairings",
        "  p1: for this model",
        "  p2: written for another model of this kind",
        "  p3: it lacks fast",
        "  whether a GPU has room was not checked: this machine has no GPU; --device-memory SIZE is the memory of another machine's GPU",
    ]
    layers = [{"pattern": f"l{n}.*", "count": n} for n in range(10)]
    assert reply.data == {
        "model": {
            "name": "org/m",
            "commit": "c0ffee",
            "config_sha256": "1" * 64,
            "index_sha256": "2" * 64,
            "architecture": "Arch",
            "model_type": "qwen",
            "quantization": "gptq",
            "bits": 4,
            "context": 4096,
            "weights": 0,
            "packed": {"count": 1, "layers": [{"pattern": "a.*", "count": 1}]},
            "block_fp8": {"count": 10, "layers": layers},
            "gdn": {"count": 0, "layers": []},
        },
        "mods": [
            {"name": "fast", "required": True, "without": "it falls"},
            {"name": "nice", "required": False, "without": None},
        ],
        "templates": [{"name": name, "required": False, "without": None} for name in ("t1", "t2")],
        "flags": ("--a", "b"),
        "clients": ("Codex: works",),
        "notes": ("no head",),
        "pairings": pairings,
        "ok": True,
    }


def test_of_a_model_that_says_nothing_nothing_is_said() -> None:
    bad = plan(planned("conflict", findings=(TEXT,)))
    reply = checkpoint.suggested(Suggested(PLAIN, Suggestion(NOTHING_SAID, (), (), ()), bad), paint)
    assert lines(reply) == [
        "dir",
        "  architecture unknown (no model_type)",
        "  quantization none",
        "  context      unknown",
        "  the model has no safetensors files, so its layers are unknown",
        "",
        "mods         none is known to be for this model",
        "pairings     none",
        "",
        "vLLM 0.19.1 (site)",
        "  fast 1.0.0  <conflict>: the source does not match the patch",
        "    <hunk 1: not there [text]>",
    ]
    assert (reply.ok, reply.data["plan"], reply.data["ok"]) == (False, data.plan(bad), False)


def test_all_kinds_of_layers_are_told_where_they_are_few() -> None:
    facts = NOTHING_SAID._replace(gdn=LayerKinds(8, tuple((f"l{n}", 1) for n in range(8))))
    only = ModFit("t1", True, True, "", "")
    reply = checkpoint.suggested(Suggested(PLAIN, Suggestion(facts, (), (only,), ()), None), paint)
    expected = lines(reply)
    assert expected[4:13] == ["  GDN          8 layers", *(f"         1 l{n}" for n in range(8))]
    assert expected[-3:] == ["chat template", "  t1", "pairings     none"]


def test_which_mods_are_not_for_a_model() -> None:
    wrong = ModFit("fast", False, True, "its model_type is other", "")
    fit = ModelFit("org/m", "c0", (wrong, ModFit("b", True, True, "", "")))
    expected = "model org/m at c0\n  fast is not for this model: its model_type is other"
    assert checkpoint.fit_text(fit) == expected
    assert checkpoint.fit_data(fit) == {
        "name": "org/m",
        "commit": "c0",
        "ok": False,
        "mods": [
            {"name": "fast", "meant": False, "why": "its model_type is other"},
            {"name": "b", "meant": True, "why": ""},
        ],
    }
    fine = fit._replace(commit=None, mods=fit.mods[1:])
    assert checkpoint.fit_text(fine) == "model org/m\n  each mod is for this model"


# --- new, import --------------------------------------------------------------------------------

FILES = {"mod.toml": b"# it\n", "a.patch": b""}
ROWS = (
    ReleaseRow("0.19.0", "a", "applies"),
    ReleaseRow("0.20.0", "a", "moved"),
    ReleaseRow("0.21.0", None, None, "gone"),
)
MADE = NewMod(
    FAST, FILES, planned(findings=(NOTE,)), ("look",), ("summary",), ROWS, "/lib/patches/fast"
)
WRITTEN = ["wrote /lib/patches/fast: applies", "  a.patch", "  mod.toml"]
REMARKS = (
    "note: look",
    "note: hunk 1 lands at line 4, +2",
    "note: 0.19.0 to 0.20.0: variant `a`",
    "note: 0.21.0: no variant: gone",
    "to add in mod.toml: summary",
)
MADE_DATA = {
    "folder": "/lib/patches/fast",
    "files": ["a.patch", "mod.toml"],
    "verdict": "applies",
    "findings": (NOTE,),
    "notes": ("look",),
    "unknown": ("summary",),
    "failed": (),
}


def test_a_new_mod_is_told_with_what_one_should_know_of_it() -> None:
    reply = imported.new(MADE)
    assert lines(reply) == [*WRITTEN, *REMARKS]
    assert reply.data == {"mod": "fast", "variant": "one", **MADE_DATA}
    partial = imported.new(MADE._replace(failed=("x: ValueError: no\n  | anchor",)))
    assert lines(partial)[-3:] == ["failed: x: ValueError: no", "  | anchor", REMARKS[-1]]
    assert (partial.ok, partial.data["failed"]) == (False, ("x: ValueError: no\n  | anchor",))
    bare = imported.new(NewMod(FAST, FILES, folder="/f"))
    assert lines(bare) == ["wrote /f", "  a.patch", "  mod.toml"]
    assert (bare.data["variant"], bare.data["verdict"], bare.data["findings"]) == (None, None, ())


def test_a_mod_that_was_imported_has_its_remarks_beside_its_words() -> None:
    reply = imported.mod(MADE, "x.diff")
    assert lines(reply) == WRITTEN
    head = {"kind": "mod", "path": "x.diff", "ok": True, "name": "fast"}
    assert reply.data == {**head, **MADE_DATA, "releases": ROWS}
    assert reply[2:] == (True, None, REMARKS, False, None)


def test_what_nobody_has_proven_of_an_imported_mod_is_the_next_step() -> None:
    unproven = MADE._replace(planned=None, releases=())
    step = "vllm-mods check fast --library /lib --target TREE"
    assert imported.mod(unproven, "x.diff").next_step == step
    assert imported.mod(unproven._replace(releases=ROWS), "x.diff").next_step is None
    assert imported.mod(MADE._replace(releases=()), "x.diff").next_step is None


def test_a_mod_that_was_not_written_is_its_manifest() -> None:
    reply = imported.mod(NewMod(FAST, FILES, notes=("n",)), "x.diff")
    step = "vllm-mods import x.diff --library DIR  # writes DIR/patches/fast"
    assert reply.words == "# it\n"
    assert reply[2:] == (True, step, ("note: n",), True, None)


# --- status, verify, revert, sync ---------------------------------------------------------------

A, B = entry("a", "vllm/a.py"), entry("b", "vllm/b.py")
A_DATA, B_DATA = (
    {"name": one.name, "version": "1.0.0", "variant": "v", "digest": "ab" * 32, "files": one.files}
    for one in (A, B)
)
CHANGED = Finding(FindingCode.CHANGED_SINCE, "is not as it was left", "vllm/b.py")


def test_status_tells_of_each_mod_what_has_become_of_it() -> None:
    c = entry("c", "vllm/c.py")
    whole = Receipt("0.19.1", (A, B, c), ())
    wrong = (CHANGED, Finding(FindingCode.UNFINISHED, "was interrupted"))
    undone = frozenset({"vllm/a.py"})
    names = ("a", "b", "c", "d")
    result = Status("/site", "0.19.1", whole, False, wrong, undone, "do it", names)
    reply = installed.status(result, "site")
    assert lines(reply) == [
        "vLLM 0.19.1 (site)",
        "  a 1.0.0 (variant v): was undone when vLLM was installed again",
        "    vllm/a.py",
        "  b 1.0.0 (variant v): was changed since it was applied",
        "    vllm/b.py",
        "  c 1.0.0 (variant v)",
        "    vllm/c.py",
        "  d: is not applied",
        "  vllm/b.py: is not as it was left [changed-since]",
        "  was interrupted [unfinished]",
    ]
    assert reply.data == {
        "tree": {"spec": "site", "version": "0.19.1"},
        "ok": False,
        "unfinished": False,
        "mods": [
            {**A_DATA, "standing": "undone"},
            {**B_DATA, "standing": "changed"},
            {**data.applied(c), "standing": "in"},
        ],
        "absent": ("d",),
        "findings": wrong,
        "hint": "do it",
        "plugins": [],
    }
    assert reply[2:] == (False, "do it", (), False, None)


@pytest.mark.parametrize("emptied", [None, Receipt("0.19.1", (), ())])
def test_status_of_a_tree_without_mods(emptied: Receipt | None) -> None:
    reply = installed.status(Status("/site", None, emptied, unfinished=True), "site")
    assert lines(reply) == ["vLLM of unknown version (site)", "  no mods are applied"]
    assert (reply.data["unfinished"], reply.ok) == (True, True)


def test_verify_says_what_is_not_as_it_was_left() -> None:
    reply = installed.verify(Verified("/s", "0.19.1", (B,), (CHANGED,)), "site", None)
    expected = ["vLLM 0.19.1 (site)", "  vllm/b.py: is not as it was left [changed-since]"]
    assert (lines(reply), reply.ok) == (expected, False)
    assert reply.data == {
        "tree": {"spec": "site", "version": "0.19.1"},
        "ok": False,
        "mods": [B_DATA],
        "findings": (CHANGED,),
    }


def test_verify_of_a_node_has_its_receipt_and_packages() -> None:
    whole = Receipt("0.19.1", (A, B), ())
    reply = installed.verify(Verified("/s", None, (A, B), ()), "site", (whole, {"numpy": "2"}))
    assert lines(reply)[1:] == ["  2 mods, all files unchanged"]
    assert reply.data["receipt"] == json.loads(receipt.dump(whole))
    assert reply.data["packages"] == {"numpy": "2"}
    none = installed.verify(Verified("/s", None, (), ()), "site", (None, {}))
    assert lines(none) == ["vLLM of unknown version (site)", "  no mods are applied"]
    assert none.data["receipt"] is None


def test_revert_says_what_is_out_and_what_stays() -> None:
    done = Reverted("/s", "0.19.1", ("a", "c"), (B,), ("x", "y"), ("why",))
    reply = installed.revert(done, "site")
    assert lines(reply) == [
        "vLLM 0.19.1 (site)",
        "  a was reverted",
        "  c was reverted",
        "2 files changed",
    ]
    assert reply.data == {
        "tree": {"spec": "site", "version": "0.19.1"},
        "reverted": ("a", "c"),
        "mods": [B_DATA],
        "changed": ("x", "y"),
    }
    assert reply[2:] == (True, None, ("note: why",), False, None)
    nothing = installed.revert(Reverted("/s", "0.19.1", (), (), (), ()), "site")
    assert lines(nothing) == ["vLLM 0.19.1 (site)", "nothing to do"]


TARGET = SyncTarget("default", None, (), None)
MOVED = Exactly("/s", plan(planned()), (A,), (B,), (), ("x",), ("n",), False, "/t")


def test_sync_says_what_went_out_and_in() -> None:
    reply = installed.sync(Synced("/p", TARGET, MOVED), check=False, again=())
    expected = ["vLLM 0.19.1 (/s)", "  a 1.0.0 reverted", "  b 1.0.0 applied", "1 file changed"]
    assert lines(reply) == expected
    assert reply.data == {
        **data.plan(MOVED.plan),
        "ok": True,
        "project": "/p",
        "target": "default",
        "settled": False,
        "out": [A_DATA],
        "into": [B_DATA],
        "renewed": [],
        "changed": ("x",),
        "check": False,
    }
    assert reply[2:] == (True, None, ("note: n",), False, None)
    renewed = installed.sync(
        Synced("/p", TARGET, MOVED._replace(renewed=(A,), out=(), into=())), check=False, again=()
    )
    assert lines(renewed)[1:] == ["  a 1.0.0 updated", "1 file changed"]


def test_sync_with_check_says_what_would_be_done_and_how_to_do_it() -> None:
    result = Synced("/p", TARGET, MOVED._replace(renewed=(A,)))
    reply = installed.sync(result, check=True, again=("--x", "a b"))
    assert lines(reply) == [
        "vLLM 0.19.1 (/s)",
        "  a 1.0.0 to be reverted",
        "  b 1.0.0 to be applied",
        "  a 1.0.0 to be updated",
        "1 file would be changed",
    ]
    assert (reply.ok, reply.data["ok"], reply.data["check"]) == (False, False, True)
    assert reply.next_step == "vllm-mods sync --x 'a b'"


def test_sync_says_that_nothing_but_the_order_is_another_or_nothing_at_all() -> None:
    same = MOVED._replace(out=(), into=(), changed=())
    order = installed.sync(Synced("/p", TARGET, same), check=True, again=())
    expected = ["  the receipt lists the mods in a different order", "no file changes"]
    assert (order.ok, lines(order)[1:]) == (False, expected)
    no_file = installed.sync(
        Synced("/p", TARGET, MOVED._replace(changed=())), check=False, again=()
    )
    assert lines(no_file)[1:] == ["  a 1.0.0 reverted", "  b 1.0.0 applied", "no file changes"]
    settled = same._replace(settled=True)
    reply = installed.sync(Synced("/p", TARGET, settled), check=True, again=())
    assert lines(reply)[1:] == ["exactly the wanted mods are applied: fast 1.0.0"]
    assert (reply.ok, reply.data["settled"], reply.next_step) == (True, True, None)
    none = installed.sync(
        Synced("/p", TARGET, settled._replace(plan=plan())), check=False, again=()
    )
    assert lines(none)[1:] == ["exactly the wanted mods are applied: none"]


PAIRING = Pairing("pair", "s", "org/m", "base:1", "vllm serve org/m")


def test_a_pairing_of_a_recipe_is_printed_unless_it_is_written_with_remarks_by_line() -> None:
    of_line = Finding(FindingCode.TEXT, "it is odd", line=3)
    result = ImportedRecipe(PAIRING, (of_line, NOTE._replace(line=None)))
    text = pairings.dump(PAIRING).decode()
    reply = imported.recipe(result, "it.yaml", None)
    assert reply.data == {
        "kind": "recipe",
        "path": "it.yaml",
        "ok": False,
        "name": "pair",
        "file": None,
        "pairing": text,
        "findings": result.findings,
    }
    remarks = (
        "it.yaml:3: error: it is odd [text]",
        "it.yaml: note: hunk 1 lands at line 4, +2 [offset]",
    )
    assert (reply.words, *reply[2:]) == (text, False, None, remarks, True, None)
    written = imported.recipe(ImportedRecipe(PAIRING, ()), "it.yaml", "x.toml")
    assert (written.words, written.ok, written.data["file"]) == (None, True, "x.toml")


# --- doctor -------------------------------------------------------------------------------------

TOOL = Tool("1.2", "wheel", "/place", "CPython 3.12", "/bin/python3", None, "/cache")
ERROR = Trouble(FindingCode.LOST, "it is lost", "find it")
REMARK = Trouble(FindingCode.NO_LIST, "it has no list", level=Level.NOTE)


def test_the_doctor_says_what_is_wrong_before_what_is_good_to_know() -> None:
    listed = Listed("RECORD", {"vllm/a.py": ("", "")})
    tree = MemoryTree({}, spec="site")
    target = Examined(tree, "installed", "0.19.1", Receipt("0.19.1", (A,), ()), listed)
    diagnosis = Diagnosis(TOOL, target, (), (REMARK, ERROR))
    reply = doctor.examined(diagnosis)
    assert lines(reply) == [
        "vllm-mods 1.2 (wheel: /place)",
        "  CPython 3.12 (/bin/python3)",
        "",
        "vLLM 0.19.1 (site)",
        "  1 files, compared with RECORD",
        "  a 1.0.0 (variant v) is applied",
        "",
        "what is wrong",
        "  it is lost [lost]",
        "    hint: find it",
        "",
        "good to know",
        "  it has no list [no-list]",
    ]
    assert (reply.ok, reply.data) == (
        False,
        {
            "ok": False,
            "tool": TOOL,
            "target": {
                "spec": "site",
                "kind": "installed",
                "version": "0.19.1",
                "mods": [A_DATA],
                "listed": {"by": "RECORD", "files": 1},
            },
            "elsewhere": (),
            "troubles": (REMARK, ERROR),
        },
    )
    fine = doctor.examined(diagnosis._replace(troubles=(REMARK,)))
    assert (fine.ok, lines(fine)[-1]) == (True, "nothing is wrong")


def test_the_doctor_says_how_far_it_can_tell() -> None:
    bare = Examined(MemoryTree({}, spec="site"), "installed", None, None, None)
    reply = doctor.examined(Diagnosis(TOOL, bare, (), ()))
    assert lines(reply)[3:] == [
        "vLLM of unknown version (site)",
        "  no mods are applied",
        "",
        "nothing wrong was found by the checks that could run",
    ]
    assert reply.data["target"]["listed"] is None
    none = doctor.examined(Diagnosis(TOOL, None, ("/x",), ()))
    assert lines(none)[2:] == ["", "nothing is wrong"]
    assert (none.data["target"], none.data["elsewhere"]) == (None, ("/x",))


# --- explain ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        words.Explained(
            "moved",
            "verdict",
            "every hunk matches, at another line",
            "`apply` changes the files; `check` exits with 0",
            "vllm-mods apply MOD --target DIR",
        ),
        words.Explained(
            "applied",
            "verdict",
            "already applied",
            "`apply` changes nothing, exit code 0; `check` exits with 0",
            "vllm-mods verify MOD --target DIR",
        ),
        words.Explained(
            "missing",
            "verdict",
            "a file, class or function that the mod changes is not in this tree",
            "`apply` refuses, exit code 3; `check` exits with 1",
            "vllm-mods port MOD --to TREE --library DIR",
        ),
        words.Explained(
            "1", "exit code", "the answer is no", "kinds of errors: tree, unreachable, not-rendered"
        ),
        words.Explained("70", "exit code", "a bug", ""),
        words.Explained(
            "usage",
            "error",
            "The call itself is wrong: an unknown mod, a target that is not vLLM.",
            "exit code 2",
        ),
    ],
    ids=lambda entry: entry.word,
)
def test_how_a_command_ends_is_explained(entry: words.Explained) -> None:
    assert [one for one in words.endings() if one.word == entry.word] == [entry]


def test_a_finding_is_explained_with_its_own_next_step_or_that_of_its_kind() -> None:
    entries = {entry.word: entry for entry in words.findings()}
    groups = words.code_groups().values()
    assert sorted(entries) == sorted(code for group in groups for code in group.codes)
    steps = {code: entries[code].next for code in ("mode", "stale-lock", "text")}
    assert steps == {
        "mode": None,
        "stale-lock": "vllm-mods matrix MOD --update-lock",
        "text": "vllm-mods port MOD --to TREE",
    }
    assert entries["stale-lock"].kind == "finding of matrix"


def test_an_error_in_place_of_an_answer() -> None:
    assert data.error("usage", "it is wrong", None, 2) == {
        "schema": 1,
        "error": {"code": "usage", "message": "it is wrong", "hint": None, "exit_code": 2},
    }
