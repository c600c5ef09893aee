"""A tree with changes laid over it: what it reads, lists and says has changed."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant

from vllm_mods.base.model import FileChange, ModPlan, Verdict
from vllm_mods.planning import outside
from vllm_mods.planning.layered_tree import LayeredTree

BELOW = {"vllm/a.py": b"a", "vllm/b.py": b"b", "other/c.py": b"c"}


def change(path: str, after: bytes | None, mode: int | None = None) -> FileChange:
    return FileChange(path, BELOW.get(path), after, mode)


def test_what_lies_on_top_is_read_and_what_lies_below_is_read_once() -> None:
    below = MemoryTree(BELOW)
    view = LayeredTree(below, [change("vllm/a.py", b"A"), change("vllm/b.py", None)])
    view.lay([change("vllm/new/d.py", b"d")])
    paths = ("vllm/a.py", "vllm/b.py", "vllm/new/d.py", "other/c.py", "none")
    for _ in range(2):
        assert [view.read(path) for path in paths] == [b"A", None, b"d", b"c", None]
        assert [view.original(path) for path in paths] == [b"a", b"b", None, b"c", None]
    assert set(below.reads.values()) == {1}
    assert sorted(view.paths()) == ["vllm/a.py", "vllm/new/d.py"]
    assert list(view.paths("other")) == ["other/c.py"]
    assert list(view.paths("vllm/new")) == ["vllm/new/d.py"]
    upper = LayeredTree(view, [change("vllm/a.py", b"AA")])
    laid = {"vllm/a.py": b"AA", "vllm/b.py": None, "vllm/new/d.py": b"d"}
    assert upper.layers() == (below, laid)


def test_changes_are_the_net_difference_in_the_order_of_paths() -> None:
    view = LayeredTree(MemoryTree(BELOW))
    view.lay([change("vllm/b.py", b"B", 0o755), change("vllm/a.py", b"A")])
    view.lay([change("vllm/b.py", b"BB"), change("other/c.py", b"c", 0o600)])
    view.lay([change("vllm/new.py", b"n", 0o644), change("vllm/a.py", b"a")])
    view.lay([change("vllm/none.py", b"x", 0o755), change("vllm/none.py", None)])
    assert view.changes() == (
        FileChange("other/c.py", b"c", b"c", 0o600),
        FileChange("vllm/b.py", b"b", b"BB", 0o755),
        FileChange("vllm/new.py", None, b"n", 0o644),
    )
    view.lay([change("vllm/b.py", None)])
    assert FileChange("vllm/b.py", b"b", None) in view.changes()


# --- outside of vllm/ -------------------------------------------------------------------------------


def plan(*paths: str, declared: tuple[str, ...] = ()) -> ModPlan:
    made = mod(variant(), outside=declared)
    changes = tuple(FileChange(path, None, b"") for path in paths)
    return ModPlan(made, made.variants[0], Verdict.APPLIES, in_range=True, changes=changes)


def test_only_the_package_and_the_folder_of_templates_are_inside() -> None:
    paths = ["vllm/a.py", "/w/t", "w.pth", "vllm2/a.py", "/w2/t", "kernels/k.py", "w.pth"]
    assert outside.of(paths, "/w") == ("/w2/t", "kernels/k.py", "vllm2/a.py", "w.pth")


def test_what_a_mod_does_not_declare_is_refused_with_the_line_that_would_declare_it() -> None:
    planned = plan("vllm/a.py", "k/b.py", "k/a.py", "k/c.py", declared=("k/b.py",))
    judged = outside.judge(planned, "/w")
    assert (judged.verdict, judged.changes) == (Verdict.CONFLICT, ())
    (finding,) = judged.findings
    assert (finding.code, finding.path, finding.level) == ("undeclared", "k/a.py", "error")
    assert finding.message == (
        "it changes k/a.py, k/c.py outside vllm/, but mod.toml does not declare that; if the change is intended, "
        'add to mod.toml: outside = ["k/b.py", "k/a.py", "k/c.py"]'
    )


def test_what_a_mod_declares_is_a_note() -> None:
    planned = plan("vllm/a.py", "k/b.py", "k/a.py", declared=("k/b.py", "k/a.py", "k/z.py"))
    judged = outside.judge(planned, "/w")
    (note,) = judged.findings
    assert judged == planned._replace(findings=(note,))
    assert (note.code, note.path, note.level) == ("outside", "k/a.py", "note")
    assert note.message == "it changes k/a.py, k/b.py outside vllm/, as mod.toml declares"
    assert outside.judge(plan("vllm/a.py", "/w/t"), "/w").findings == ()


@pytest.mark.parametrize(
    ("path", "starts"),
    [
        ("x.pth", True),
        ("sitecustomize.py", True),
        ("usercustomize/__init__.py", True),
        ("__editable__.x", True),
        ("x.egg-link", True),
        ("x.dist-info/entry_points.txt", True),
        ("k/x.pth", False),
        ("k/sitecustomize.py", False),
        ("sitecustomized.py", False),
        ("x.dist-info/METADATA", False),
    ],
)
def test_what_python_runs_when_it_starts_is_said_to_be_that(path: str, *, starts: bool) -> None:
    (note,) = outside.judge(plan(path, "k/a.py", declared=(path, "k/a.py")), "/w").findings
    runs = f" (Python loads {path} at every start)"
    assert (runs in note.message) is starts
