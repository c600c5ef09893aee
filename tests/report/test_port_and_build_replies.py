"""What ``port``, ``bisect``, ``lock``, ``build``, ``upgrade`` and ``image`` answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from folder_base import FolderBase
from making_images import digest
from memory_tree import MemoryTree
from small_replies import FAST, NOTE, TEXT, entry, lines, paint, planned

from vllm_mods.api.build import BuildResult, Upgraded
from vllm_mods.api.image_verify import ImageVerified
from vllm_mods.api.on_base import BuiltFor, ReadLock
from vllm_mods.api.port import PortResult
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.building.inspection import Inspection
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import Output, Written
from vllm_mods.formats.pairing_lock import (
    LockDifference,
    LockedBase,
    LockedImage,
    LockedMod,
    LockedPlatform,
    LockedVllm,
    LockedWheel,
    PairingLock,
)
from vllm_mods.formats.receipt import Receipt
from vllm_mods.images import oci
from vllm_mods.matrices.bisect import BisectOutcome, Judged, Point
from vllm_mods.porting.files import FilePort
from vllm_mods.porting.follow import Followed
from vllm_mods.porting.job import Job, PortOutcome
from vllm_mods.porting.structure import Ported
from vllm_mods.porting.variant import NewVariant
from vllm_mods.porting.writing import Unfinished
from vllm_mods.report import bisect, built, data, image as report, port
from vllm_mods.trees.git import Commit
from vllm_mods.trees.image import ImageTree

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import ModPlan

# --- port ---------------------------------------------------------------------------------------

TARGET = MemoryTree({}, version="0.21.0", spec="pypi:0.21.0")
JOB = Job(FAST, FAST.variants[0], None, "0.19.1", TARGET, "0.21", "==0.21.*", ("/lib",))
CLASHES = tuple(Finding(FindingCode.TEXT, "clashes", scope=scope) for scope in ("A.b", ""))
CLASHING = FilePort("vllm/f.py", "vllm/f.py", b"x", Ported(None, [], CLASHES))
MERGED = tuple(
    FilePort(path, new, before, Ported(b"y", [], touched=("A",), proof=proof))
    for path, new, before, proof in (
        ("vllm/a.py", "vllm/a.py", b"x", "file"),
        ("vllm/b.py", "vllm/c.py", b"x", "scopes"),
        ("vllm/d.py", "vllm/d.py", b"x", "statements"),
        ("vllm/n.py", "vllm/n.py", None, None),
    )
)
NEW = NewVariant(FAST, {}, planned("moved", findings=(NOTE,)))
OUTCOME = PortOutcome(
    JOB,
    changes=(),
    files=MERGED,
    new=NEW,
    followed=(Followed("a: X", "b: X", 0.876),),
    repaired=("an import",),
    steps=("0.20.0", "0.20.1"),
)
NO_VARIANT = OUTCOME._replace(new=None, followed=(), repaired=(), steps=())
HEAD = "fast: variant one, written for vLLM 0.19.1, ported to 0.21.0"
LEFT_TO_YOU = [
    "  vllm/f.py: to edit by hand",
    "    `A.b`: clashes [text]",
    "    module level: clashes [text]",
]
ELSEWHERE = FAST._replace(directory="/my lib/patches/fast")


def test_a_port_that_was_written_says_how_each_file_was_merged_and_what_to_run() -> None:
    reply = port.ported(PortResult(OUTCOME, ("/lib/mod.toml", "x"), None, ("look",)))
    assert lines(reply) == [
        HEAD,
        "  vllm/a.py: merged",
        "  vllm/b.py -> vllm/c.py: merged class by class",
        "  vllm/d.py: merged statement by statement",
        "  vllm/n.py: merged",
        "  followed: a: X is now b: X (88% alike)",
        "  release by release, over 0.20.0, 0.20.1",
        "  repaired: an import",
        "variant 0.21 (==0.21.*) moved",
        "  hunk 1 lands at line 4, +2",
        "note: look",
        "wrote /lib/mod.toml",
        "wrote x",
    ]
    assert reply.data == {
        "mod": "fast",
        "from": {"variant": "one", "version": "0.19.1"},
        "to": {"tree": "pypi:0.21.0", "version": "0.21.0"},
        "clean": True,
        "carried": False,
        "files": [
            {
                "path": file.path,
                "new_path": file.new_path,
                "proof": file.ported.proof,
                "scopes": ("A",),
                "problems": (),
            }
            for file in MERGED
        ],
        "followed": OUTCOME.followed,
        "repaired": ("an import",),
        "steps": ("0.20.0", "0.20.1"),
        "variant": "0.21",
        "verdict": "moved",
        "findings": (NOTE,),
        "wrote": ("/lib/mod.toml", "x"),
        "enough": None,
        "unfinished": None,
    }
    assert reply.ok


def test_a_port_of_what_the_target_has_already() -> None:
    file = FilePort("vllm/e.py", "vllm/e.py", b"x", Ported(b"x", []))
    reply = port.ported(PortResult(NO_VARIANT._replace(files=(file,))))
    expected = ["  vllm/e.py: already has the change", "  vLLM 0.21.0 already has every change"]
    assert (reply.ok, lines(reply)) == (True, [HEAD, *expected])
    assert (reply.data["carried"], reply.data["variant"], reply.data["verdict"]) == (
        True,
        None,
        None,
    )
    assert (reply.data["findings"], reply.data["wrote"]) == ((), None)


@pytest.mark.parametrize(
    ("origin", "where"), [("0.20.1", "; the conflicts come from later releases"), ("0.19.1", "")]
)
def test_a_port_that_clashes_says_how_far_it_needs_no_hand(origin: str, where: str) -> None:
    outcome = NO_VARIANT._replace(files=(CLASHING,), steps=OUTCOME.steps, origin=origin)
    reply = port.ported(PortResult(outcome))
    step = f"  a port to 0.20.1 would need no edits; no variant for that release was written{where}"
    assert lines(reply) == [
        HEAD.replace("ported", "not ported"),
        *LEFT_TO_YOU,
        step,
        "nothing was written",
    ]
    assert (reply.ok, reply.data["clean"]) == (False, False)
    assert reply.data["files"][0]["problems"] == CLASHES


def test_a_port_that_would_not_work_leaves_the_mod_as_it_was() -> None:
    unfit = NEW._replace(planned=planned("unfit", findings=(TEXT,)))
    reply = port.ported(PortResult(OUTCOME._replace(files=MERGED[:1], new=unfit, steps=())))
    assert lines(reply)[-3:] == [
        "variant 0.21 (==0.21.*) unfit",
        "  hunk 1: not there",
        "the port would not work on the target; the mod was not changed",
    ]


def test_what_is_left_of_a_port_is_told_by_the_files_that_a_person_edits() -> None:
    error = Finding(FindingCode.TEXT, "vllm/f.py:3: is wrong", "vllm/f.py", 3)
    others = (NOTE._replace(path="vllm/f.py"), error._replace(line=None, message="of no line"))
    unfit = NEW._replace(planned=planned("unfit", findings=(error, *others)))
    files = (("vllm/f.py", True), ("vllm/g.py", True))
    work = Unfinished(
        "/w", "fast", "one", "0.19.1", "n", "v", "t", files=files, patches=("x.patch",)
    )
    outcome = NO_VARIANT._replace(files=(CLASHING,), new=unfit)
    reply = port.ported(PortResult(outcome, unfinished=work))
    assert lines(reply) == [
        HEAD.replace("ported", "not yet ported"),
        *LEFT_TO_YOU,
        "variant 0.21 (==0.21.*) unfit",
        "  hunk 1 lands at line 4, +2",
        "  of no line",
        "the port would not work on the target; the mod was not changed",
        "to edit by hand, in /w:",
        "  /w/files/vllm/f.py:3: is wrong",
        "  /w/files/vllm/g.py",
        "  /w/x.patch: make the changes of this patch by hand, where they belong in the target; then delete the patch",
    ]
    assert reply.next_step == "edit these files, then vllm-mods port fast --continue  # or --abort"
    assert reply.data["unfinished"] == "/w"


def test_after_a_port_in_another_library_the_next_command_names_it() -> None:
    job = JOB._replace(mod=ELSEWHERE, roots=("/my lib",))
    reply = port.ported(PortResult(OUTCOME._replace(job=job), ("x",)))
    command = "vllm-mods matrix fast --update-lock --library '/my lib'"
    assert reply.next_step == f"{command}  # on every release in its range"


def test_a_copy_of_a_mod_is_named_by_its_path() -> None:
    job = JOB._replace(mod=ELSEWHERE, roots=("/other",))
    step = port.ported(PortResult(OUTCOME._replace(job=job), ("x",))).next_step
    assert (
        step
        == f"vllm-mods check '/my lib/patches/fast' --target {job.target.spec}  # the copy, by its path"
    )


# --- bisect -------------------------------------------------------------------------------------

COMMIT = Commit("0123456789abcdef" * 2, ("p",), "2026-01-02T03", "Do it (#12)", frozenset())


def judged(name: str, verdict: ModPlan, commit: Commit | None = None) -> Judged:
    return Judged(Point(name, commit), f"git:{name}", "0.19.0", verdict)


GOOD = judged("v1", planned(findings=(NOTE,)))
BAD = judged("v2", planned("missing", findings=(TEXT,)), COMMIT)
AFTER = judged("x", planned("conflict", findings=(TEXT, NOTE)), COMMIT)
GOOD_DATA = {
    "tree": "git:v1",
    "version": "0.19.0",
    "commit": None,
    "date": None,
    "subject": None,
    "pull_request": None,
    "variant": "one",
    "verdict": "applies",
    "in_range": True,
    "findings": (NOTE,),
}
OF_COMMIT = {
    "commit": COMMIT.sha,
    "date": "2026-01-02T03",
    "subject": "Do it (#12)",
    "pull_request": 12,
}
BAD_DATA = GOOD_DATA | OF_COMMIT | {"tree": "git:v2", "verdict": "missing", "findings": (TEXT,)}


def test_a_bisect_names_the_commit_and_what_was_so_before_and_after_it() -> None:
    noted = GOOD._replace(planned=planned(findings=(NOTE, TEXT)))
    outcome = BisectOutcome(GOOD, BAD, noted, AFTER, (TEXT, NOTE), 1000, 2, 3)
    reply = bisect.bisect(outcome, "v1", "v2", repository="/r", paint=paint)
    assert lines(reply) == [
        "fast 1.0.0",
        "  v1: <applies>: it only adds new files (variant one)",
        "  v2: <missing>: a file, class or function that the mod changes is not in this tree",
        "  1,000 commits, 2 of them touch a file that the verdict depends on; 3 checks",
        "the verdict changes at 0123456789ab, 2026-01-02: Do it (#12)",
        "  pull request: #12",
        "  before: <applies>: it only adds new files (variant one)",
        "    hunk 1: not there [text]",
        "  after:  <conflict>: the source does not match the patch",
        "    hunk 1: not there [text]",
        "  the verdict changes again later: `missing` at v2",
    ]
    after = BAD_DATA | {"tree": "git:x", "verdict": "conflict", "findings": (TEXT, NOTE)}
    assert reply.data == {
        "mod": "fast",
        "version": "1.0.0",
        "repository": "/r",
        "found": True,
        "good": GOOD_DATA,
        "bad": BAD_DATA,
        "before": GOOD_DATA | {"findings": (NOTE, TEXT)},
        "after": after,
        "points": 1000,
        "touching": 2,
        "planned": 3,
    }
    assert reply.ok


def test_a_bisect_between_ends_that_say_the_same_says_why() -> None:
    outcome = BisectOutcome(BAD, BAD, points=10)
    reply = bisect.bisect(outcome, "v1", "v2", repository="/r", paint=paint)
    assert lines(reply)[3:] == [
        "  10 commits, 0 of them touch a file that the verdict depends on; 0 checks",
        "the verdict is the same at both revisions",
        "    hunk 1: not there [text]",
    ]
    assert (reply.ok, reply.data["before"], reply.data["after"]) == (False, None, None)


def test_a_bisect_to_a_merge_says_how_to_go_on_and_shows_the_notes_of_what_goes_in() -> None:
    merge = COMMIT._replace(parents=("p", "q"), subject="Merge")
    after = GOOD._replace(point=Point("x", merge))
    outcome = BisectOutcome(BAD, GOOD, BAD, after, (NOTE,), 2, 2, 3)
    reply = bisect.bisect(outcome, "v1", "v2", repository="/r", paint=paint)
    ends = "--good 0123456789ab^1 --bad 0123456789ab^2"
    assert lines(reply)[4:] == [
        "the verdict changes at 0123456789ab, 2026-01-02: Merge",
        "  before: <missing>: a file, class or function that the mod changes is not in this tree",
        "    hunk 1: not there [text]",
        "  after:  <applies>: it only adds new files (variant one)",
        "    note: hunk 1 lands at line 4, +2 [offset]",
        f"  this is a merge; to find the commit inside it: {ends}",
    ]


# --- lock, build, upgrade -----------------------------------------------------------------------

BASE = LockedBase("base:1", f"sha256:{'ab' * 32}", (), "linux/amd64")
LOCK = PairingLock(
    pairing="pair",
    pairing_digest="0" * 64,
    model="org/m",
    revision=None,
    base=BASE,
    vllm=LockedVllm("0.19.1", "site", None),
    mods=(LockedMod("fast", "1.0.0", "d", "one", "applies", (), ""),),
    templates=(),
    wheels=(LockedWheel("numpy", "2", "numpy-2.whl", "e" * 64),),
    command="vllm serve",
    image=LockedImage({}, ()),
)
ARM = LockedPlatform(
    BASE._replace(platform="linux/arm64"), LOCK.vllm, (), (), (), "vllm serve", LOCK.image
)
READ = ReadLock("/l/pair.lock", b"x", LOCK)
IMAGE = BuiltImage(b"c", b"l", ("a", "b"), {}, b"m")
C, D, M = map(digest, (b"c", b"d", b"m"))


@pytest.fixture
def images(tmp_path: Path) -> tuple[BuiltFor, BuiltFor]:
    """Return an image for each platform."""
    base = FolderBase(tmp_path)
    arm = IMAGE._replace(config=b"d", manifest=None)
    return BuiltFor(LOCK, IMAGE, base), BuiltFor(LOCK._replace(base=ARM.base), arm, base)


def test_a_lock_that_was_written_is_told_platform_by_platform() -> None:
    reply = built.lock(READ._replace(lock=LOCK._replace(platforms=(ARM,))), base=None, output=None)
    assert lines(reply) == [
        "pair on base:1 (sha256:abababababab…, linux/amd64), vLLM 0.19.1",
        "  fast 1.0.0  applies (variant one)",
        "  numpy-2.whl",
        "pair on base:1 (sha256:abababababab…, linux/arm64), vLLM 0.19.1",
        f"image: {READ.tag}",
    ]
    assert reply.data == {
        "lock": "/l/pair.lock",
        "sha256": digest(b"x").removeprefix("sha256:"),
        "pairing": "pair",
        "tag": READ.tag,
        "base": f"sha256:{'ab' * 32}",
        "platform": "linux/amd64",
        "platforms": ["linux/amd64", "linux/arm64"],
        "vllm": "0.19.1",
        "mods": [{"name": "fast", "version": "1.0.0"}],
    }
    assert reply.next_step == "vllm-mods build pair"
    named = built.lock(READ, base="docker:x", output="my lock")
    assert named.next_step == "vllm-mods build pair --lock 'my lock'"
    # no engine takes a layer for what is not in one
    for base in ("oci:x", "registry:h/x"):
        elsewhere = built.lock(READ, base=base, output=None)
        assert elsewhere.next_step == "vllm-mods build pair --output oci:pair"


def test_what_moved_since_a_lock_was_made() -> None:
    moved = LockDifference("vllm", "1", "2")
    reply = built.moved([moved, moved], "p")
    assert (reply.ok, lines(reply)) == (False, ["vllm: 1 → 2", "vllm: 1 → 2"])
    assert reply.data == {"ok": False, "differences": [moved, moved]}
    holds = built.moved([], "p")
    assert (holds.ok, holds.words, holds.data["ok"]) == (True, "p is up to date", True)


def test_an_image_that_an_engine_has_can_be_run_next(images: tuple[BuiltFor, BuiltFor]) -> None:
    result = BuildResult(images[:1], "t", Output("docker", "x"), Written("put it"), "l")
    reply = built.build(result, ("pair", "--x y"), output=None)
    assert lines(reply) == ["put it", f"image  {C}"]
    assert reply.data == {
        "image": C,
        "manifest": M,
        "layer": "b",
        "lock": "l",
        "tag": "t",
        "output": "docker",
    }
    assert reply.next_step == "vllm-mods run pair '--x y'"


def test_images_of_several_platforms_are_told_each(images: tuple[BuiltFor, BuiltFor]) -> None:
    result = BuildResult(images, "t", Output("registry", "x"), Written("put it", "pushed"), "l")
    reply = built.build(result, ("pair",), output="registry:x")
    assert lines(reply) == ["put it", f"image  {C}  linux/amd64", f"image  {D}  linux/arm64"]
    assert reply.data == {
        "image": C,
        "manifest": "pushed",
        "layer": "b",
        "lock": "l",
        "tag": "t",
        "output": "registry:x",
        "platforms": {
            "linux/amd64": {"image": C, "manifest": M, "layer": "b"},
            "linux/arm64": {"image": D, "manifest": None, "layer": "b"},
        },
    }
    assert reply.next_step is None


def test_an_upgrade_says_what_moved_and_what_stays(images: tuple[BuiltFor, BuiltFor]) -> None:
    newer = LOCK._replace(vllm=LOCK.vllm._replace(version="0.20.0"))
    now = ReadLock("/l/2", b"y", newer)
    reply = built.upgrade(Upgraded(READ, now, images[:1], Written("put it", "pushed")))
    assert lines(reply) == [
        f"pair: vLLM 0.19.1 → 0.20.0, now {now.tag} on base:1",
        "  fast 1.0.0  applies (variant one)",
        "what changed:",
        "  vllm.version: 0.19.1 → 0.20.0",
        "put it",
        f"image  {C}",
        f"old image: {READ.tag}",
    ]
    assert reply.data == {
        "pairing": "pair",
        "changed": True,
        "tag": now.tag,
        "lock": "/l/2",
        "base": "base:1",
        "vllm": "0.20.0",
        "mods": [{"name": "fast", "version": "1.0.0", "verdict": "applies"}],
        "differences": (LockDifference("vllm.version", "0.19.1", "0.20.0"),),
        "image": C,
        "manifest": "pushed",
    }
    same = built.upgrade(Upgraded(READ, READ))
    assert same.words == "pair is up to date with base:1: nothing changed"
    assert (same.data["changed"], "image" in same.data, same.data["differences"]) == (
        False,
        False,
        (),
    )


# --- image --------------------------------------------------------------------------------------


def inspected(folder: Path, *fields: Any) -> Inspection:
    (folder / "site/vllm").mkdir(parents=True, exist_ok=True)
    (folder / "site/vllm/_version.py").write_text("__version__ = '0.19.1'\n")
    return Inspection(ImageTree(FolderBase(folder, manifest_digest=M), "site"), *fields)


RECEIPT = Receipt("0.19.1", (entry("a", "vllm/a.py"), entry("b", "vllm/b.py")), ())
CHANGED = Finding(FindingCode.CHANGED_SINCE, "is not as it was left", "vllm/b.py")
INDEX = Finding(FindingCode.TEXT, "of the index")


def test_of_an_image_its_mods_are_told_and_whether_they_are_as_they_were(tmp_path: Path) -> None:
    lock = LOCK._replace(revision="c0")
    image = inspected(tmp_path, RECEIPT, lock, "f" * 64, {"org.x": "y"}, (CHANGED, INDEX))
    reply = report.inspect(image)
    config = image.tree.base.config_digest
    assert lines(reply) == [
        "vLLM 0.19.1 (folder:base)",
        f"  oci-layout, 1 layer, {config}",
        "  vLLM in /site",
        f"  pairing pair for org/m, lock {'f' * 64}",
        "  a 1.0.0 (variant v): applied, unchanged",
        "  b 1.0.0 (variant v): applied, changed since",
        "  vllm/b.py: is not as it was left [changed-since]",
        "  of the index [text]",
    ]
    assert reply.data == {
        "schema": 1,
        "ok": False,
        "image": {
            "reference": "folder:base",
            "where": "oci-layout",
            "config": config,
            "manifest": M,
            "layers": 1,
            "site_root": "/site",
            "version": "0.19.1",
        },
        "labels": {"org.x": "y"},
        "lock": {
            "pairing": "pair",
            "model": "org/m",
            "revision": "c0",
            "base": "base:1",
            "sha256": "f" * 64,
        },
        "mods": [
            {**data.applied(one), "verdict": "applies", "intact": intact}
            for one, intact in zip(RECEIPT.mods, (True, False), strict=True)
        ],
        "findings": (CHANGED, INDEX),
    }
    assert reply.ok  # what is in it was asked, not whether that is well


def test_an_image_without_mods_and_without_a_lock(tmp_path: Path) -> None:
    reply = report.inspect(inspected(tmp_path, None, None, None, {}, ()))
    assert lines(reply)[3:] == ["  no mods are applied"]
    assert (reply.data["lock"], reply.data["mods"], reply.data["ok"]) == (None, [], True)


def test_of_an_index_each_platform_is_told_and_this_machine_s_is_the_answer(tmp_path: Path) -> None:
    mine = oci.this_platform()
    other = "linux/s390x"
    fine, bad = (inspected(tmp_path, None, None, None, {}, found) for found in ((), (CHANGED,)))
    result = ImageVerified({other: bad, mine: fine}, (INDEX,), (other, mine))
    reply = report.verified(result)
    words = {name: report.inspect(one).words for name, one in result.images.items()}
    assert reply.words == (f"{other}: {words[other]}\n{mine}: {words[mine]}\n  of the index [text]")
    images = {name: report.inspect(one).data for name, one in result.images.items()}
    assert (reply.ok, reply.data) == (
        False,
        {**images[mine], "ok": False, "findings": [INDEX], "platforms": images},
    )
    away = report.verified(ImageVerified({other: bad}, (), (other,)))
    assert away.words == words[other]
    assert away.data == {
        **images[other],
        "findings": [CHANGED],
        "platforms": {other: images[other]},
    }


def test_an_image_without_an_index_is_the_answer_itself(tmp_path: Path) -> None:
    fine = inspected(tmp_path, None, None, None, {}, ())
    reply = report.verified(ImageVerified({"": fine}, (), ()))
    assert (reply.ok, reply[:2]) == (True, report.inspect(fine)[:2])


def test_of_an_index_that_nothing_can_be_read_of_the_findings_are_told() -> None:
    reply = report.verified(ImageVerified({}, (INDEX,), ("linux/s390x",)))
    assert (reply.ok, reply.words) == (False, "  of the index [text]")
    assert reply.data == {"ok": False, "findings": [INDEX], "platforms": {}}
