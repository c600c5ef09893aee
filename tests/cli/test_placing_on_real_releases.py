"""Where hunks belong on real releases: what upstream did at the ends of files, and a patch as people post it."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of, mod, variant

from vllm_mods.base.model import Level, Mod, ModPlan, PatchFile, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.library.catalog import Library
from vllm_mods.planning import lock_entries
from vllm_mods.planning.planner import hunk_states, plan
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.network

ROPE = "vllm/model_executor/layers/rotary_embedding/deepseek_scaling_rope.py"
CPU = "vllm/platforms/cpu.py"
MOE = "vllm/model_executor/layers/fused_moe/fused_moe.py"
INC = "vllm/model_executor/layers/quantization/inc.py"


@cache
def text(version: str, path: str) -> str:
    return (open_tree(f"pypi:{version}").read(path) or b"").decode()


def seen(mod_: Mod, version: str) -> ModPlan:
    (planned,) = plan([mod_], open_tree(f"pypi:{version}")).mods
    return planned


def written_on(version: str, mine: Mod) -> Mod:
    """Return a mod whose lock says that it was written for a release."""
    places = lock_entries.places_in(mine, open_tree(f"pypi:{version}"))
    assert places
    return mine._replace(lock=mod_lock.dump(lock_entries.of(mine, (), written=places)))


def result(planned: ModPlan, path: str) -> str | None:
    changed = {change.path: change.after for change in planned.changes}
    after = changed.get(path)
    return None if after is None else after.decode()


def last_hunk(path: str, before: str, after: str) -> Mod:
    """Return what upstream did at the end of a file, as a mod of one hunk."""
    patch = diff_of(path, text(before, path), text(after, path))
    head, _, hunk = patch.rpartition(b"\n@@ -")
    sizes = re.match(rb"(\d+)((?:,\d+)?) \+\d+((?:,\d+)?) @@", hunk)
    assert sizes is not None
    start = b"@@ -%b%b +%b%b @@" % (sizes[1], sizes[2], sizes[1], sizes[3])
    names = head[: head.index(b"\n@@ -") + 1]
    return mod(variant(names + start + hunk[sizes.end() :], vllm=">=0.1"))


@pytest.mark.parametrize(
    ("path", "name"),
    [(ROPE, "class DeepseekV4ScalingRotaryEmbedding"), (CPU, "    def pack_kv_cache")],
)
def test_what_upstream_added_at_the_end_of_a_file_is_seen_as_in_and_never_added_again(
    path: str, name: str
) -> None:
    added = last_hunk(path, "0.19.1", "0.20.0")
    assert name in added.variants[0].patches[0].data.decode()
    # a method's end looks like that of others: only where it was written tells that it is this class
    assert not seen(added, "0.20.0").verdict.writes
    assert seen(written_on("0.19.1", added), "0.20.0").verdict is Verdict.UPSTREAM
    # upstream has since changed what it added, so no reading of the patch alone tells that it is in
    later = seen(added, "0.21.0")
    assert not later.verdict.writes
    assert later.verdict is not Verdict.PARTIAL
    assert not later.changes


def test_a_method_added_at_the_end_goes_in_at_the_end_of_the_release_before() -> None:
    planned = seen(written_on("0.19.1", last_hunk(CPU, "0.19.1", "0.20.0")), "0.19.1")
    assert planned.verdict is Verdict.APPLIES
    made = result(planned, CPU) or ""
    assert made.startswith(text("0.19.1", CPU))
    assert "def pack_kv_cache" in made.removeprefix(text("0.19.1", CPU))


def test_what_upstream_deleted_at_the_end_of_a_file_goes_in_where_it_stands_and_is_seen_where_not() -> (
    None
):
    deleted = last_hunk(MOE, "0.20.0", "0.21.0")
    assert not seen(deleted, "0.21.0").verdict.writes
    assert seen(written_on("0.20.0", deleted), "0.21.0").verdict is Verdict.UPSTREAM
    # the class still stands there, with other lines
    for version in ("0.19.1", "0.19.0"):
        planned = seen(deleted, version)
        assert not planned.verdict.ok
        assert planned.verdict is not Verdict.PARTIAL
        assert not planned.changes
    # its place is found on its own tree; that the package still imports the classes is the fit's to say
    planned = seen(deleted, "0.20.0")
    assert planned.verdict is Verdict.UNFIT
    errors = [one for one in planned.findings if one.level is Level.ERROR]
    assert {one.code for one in errors} == {"fit-import"}
    assert all("TritonExperts" in one.message or "WNA16" in one.message for one in errors)
    states = hunk_states(deleted, deleted.variants[0], open_tree("pypi:0.20.0"))
    assert [one.state for one in states] == ["placed"]


def as_posted(version: str, *, context: int, index: bool = False) -> Mod:
    """Return the bundled loader with a patch of its change without section headers.

    ``index`` says whether git's line with the names of both contents is in it.
    """
    bundled = Library().load("hybrid-int4-fp8")
    planned = seen(bundled._replace(lock=None), version)
    assert planned.variant is not None
    after = result(planned, INC)
    assert after is not None
    patch = diff_of(INC, text(version, INC), after, context=context)
    if index:
        old = blob(text(version, INC).encode())
        names = f"diff --git a/{INC} b/{INC}\nindex {old}..{blob(after.encode())} 100644\n"
        patch = names.encode() + patch
    one = planned.variant._replace(patches=(PatchFile(source="posted.patch", data=patch),))
    return bundled._replace(variants=(one,), lock=None)


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("version", ["0.19.1", "0.17.0"])
def test_the_loader_as_posted_goes_in_where_it_was_written_and_nowhere_else(version: str) -> None:
    right = result(seen(Library().load("hybrid-int4-fp8"), version), INC)
    # its last hunk's text stands in six places
    posted = as_posted("0.19.1", context=1)
    assert seen(posted, version).verdict is Verdict.MISPLACED
    planned = seen(written_on("0.19.1", posted), version)
    assert planned.verdict is Verdict.APPLIES
    assert result(planned, INC) == right


@pytest.mark.parametrize("version", ["0.20.0", "0.21.0", "0.23.0"])
def test_the_loader_as_posted_goes_in_without_headers_by_where_it_was_written(version: str) -> None:
    right = result(seen(Library().load("hybrid-int4-fp8"), version), INC)
    planned = seen(written_on("0.20.0", as_posted("0.20.0", context=2)), version)
    assert planned.verdict.writes
    assert result(planned, INC) == right


def test_the_loader_as_posted_is_refused_where_nothing_tells_its_places_apart() -> None:
    # three places are left for its last hunk: behind it nothing says which
    for version in ("0.21.0", "0.23.0"):
        planned = seen(as_posted("0.20.0", context=1), version)
        assert planned.verdict is Verdict.MISPLACED
        assert not planned.changes
    known = seen(as_posted("0.20.0", context=1, index=True), "0.20.0")
    assert known.verdict is Verdict.APPLIES
    assert {hunk.proof for hunk in known.hunks} == {"file"}
    assert result(known, INC) == result(seen(Library().load("hybrid-int4-fp8"), "0.20.0"), INC)


TREES = (
    *("0.15.0", "0.17.0", "0.18.0", "0.19.1", "0.20.0"),
    *("0.22.0", "0.25.0", "0.27.0", "0.30.0", "0.33.0"),
)


def test_no_answer_depends_on_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With an empty cache, with a full one and with none, with and without what mod.lock knows of the tree."""
    nowhere = tmp_path / "file"
    nowhere.write_text("a file is not a folder\n")
    mods = [Library().load(name) for name in ("hybrid-int4-fp8", "flashqla")]
    mods += [one._replace(lock=None) for one in mods]
    answers: dict[str, list[tuple[object, ...]]] = {}
    for name, folder in (("cold", "cache"), ("warm", "cache"), ("none", "file")):
        monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / folder))
        for version in TREES:
            with open_tree(f"pypi:{version}") as tree:
                plans = [plan([one], tree).mods[0] for one in mods]
            answers.setdefault(name, []).extend(
                (one.verdict, one.changes, one.hunks, one.findings) for one in plans
            )
    assert answers["cold"] == answers["warm"] == answers["none"]
