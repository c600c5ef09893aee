"""A matrix to report on: every verdict, every problem, and strings that mean harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from mod_making import diff_of, variant

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Mod, TemplateFile, Variant, Verdict, When
from vllm_mods.matrices.cell import Cell, CellProblem, HunkView, MatrixResult

Make = Callable[[], MatrixResult]

EVIL = "</script><script>alert(1)</script>|`@here` \x00\x1b\udcff<!--&amp;"
SOURCE = [
    "class Loader:",
    "    def load(self):",
    "        a = 1",
    "        b = 2",
    "        return a",
]


def cell(mod: str = "mod", version: str = "0.20.0", verdict: str = "applies", **more: Any) -> Cell:
    fields: dict[str, Any] = {
        "mod_version": "1.0.0",
        "tree": f"pypi:{version}",
        "variant": "one",
        "in_range": True,
        "meant": True,
    }
    return Cell(mod=mod, version=version, verdict=Verdict(verdict), **{**fields, **more})


def hunk(*lines: str, at: int | None = 2, proof: str | None = "header", **more: Any) -> HunkView:
    """Return a hunk beside ``SOURCE``, written for line 2; without lines, one that fits there."""
    fields: dict[str, Any] = {
        "patch": "one/x.patch",
        "path": "vllm/loader.py",
        "number": 1,
        "scope": "Loader.load",
        "offset": None if at is None else at - 2,
        "target": tuple(enumerate(SOURCE, 1)),
    }
    said = lines or ("     def load(self):", "         a = 1", "-        b = 2", "+        b = 3")
    return HunkView(line=at, proof=proof, lines=said, **{**fields, **more})


def example() -> MatrixResult:
    """Two mods over four releases: one that goes in, one that goes wrong in several ways."""
    text = Finding(
        FindingCode.TEXT,
        "hunk 1: its text is not in the file; nearest is line 3",
        "vllm/loader.py",
        3,
    )
    moved = Finding(
        FindingCode.OFFSET, "hunk 1 lands at line 4, +2", "vllm/loader.py", 4, level=Level.NOTE
    )
    cells = (
        cell("good", "0.19.1"),
        cell("bad", "0.19.1", "unsupported", variant=None, in_range=False, meant=False),
        cell("good", "0.20.0", "moved", offsets=(2, -1), findings=(moved,)),
        cell("bad", "0.20.0"),
        cell("good", "0.21.0", "upstream", in_range=False, meant=False),
        cell("bad", "0.21.0", "conflict", findings=(text,)),
        cell("good", "0.22.0", variant="two"),
        cell("bad", "0.22.0", "unreadable", variant=None, computed=False, findings=(text,)),
    )
    problems = (
        CellProblem(
            FindingCode.RANGE_TOO_WIDE, "bad", "pypi:0.21.0", "says `>=0.20`, and is conflict"
        ),
    )
    lost = hunk(
        "     def load(self):", "         c = 1", "-        b = 2", "+        b = 3", proof=None
    )
    hunks = {(one.mod, one.tree): (hunk(),) for one in cells if one.verdict.ok}
    hunks["bad", "pypi:0.21.0"] = (lost,)
    return with_hunks(MatrixResult(cells, problems), hunks)


def with_hunks(
    result: MatrixResult, hunks: Mapping[tuple[str, str], tuple[HunkView, ...]]
) -> MatrixResult:
    """Return a matrix whose cells have these hunks, by mod and tree, and no others."""
    cells = (one._replace(hunks=hunks.get((one.mod, one.tree), ())) for one in result.cells)
    return result._replace(cells=tuple(cells))


def every_verdict() -> MatrixResult:
    """Every verdict there is, of a mod that is meant for the release and of one that is not."""
    verdicts = [*Verdict, None]
    cells = [
        cell(name, f"0.{at}.0", verdict or "unreadable", meant=meant, computed=verdict is not None)
        for at, verdict in enumerate(verdicts)
        for name, meant in (("meant", True), ("other", False))
    ]
    return MatrixResult(tuple(cells))


def hostile() -> MatrixResult:
    """The same harm in every place that a string can be in."""
    finding = Finding(FindingCode.TEXT, EVIL, EVIL, 1, 1, EVIL)
    one = cell(EVIL, EVIL, "conflict", tree=EVIL, variant=EVIL, findings=(finding,))
    result = MatrixResult(
        cells=(one._replace(mod_version=EVIL),),
        problems=(
            CellProblem(cast("FindingCode", EVIL), EVIL, EVIL, EVIL),
            CellProblem(FindingCode.NEEDLESS, EVIL, None, EVIL),
        ),
    )
    view = HunkView(EVIL, EVIL, 1, EVIL, 1, 0, EVIL, (f" {EVIL}",), ((1, EVIL),))
    return with_hunks(result, {(EVIL, EVIL): (view,)})


def large(mods: int, trees: int) -> MatrixResult:
    """Return as many mods on as many releases, nearly all of them alike, as releases are."""
    cells = [
        cell(
            f"mod-{mod:02}",
            f"0.{tree // 4}.{tree % 4}",
            ("applies", "moved", "conflict")[(tree // 7 + mod) % 3],
            variant=f"0.{tree // 20}",
            findings=(
                Finding(
                    FindingCode.TEXT, f"hunk 1: nearest is line {tree}", "vllm/loader.py", tree
                ),
            ),
        )
        for tree in range(trees)
        for mod in range(mods)
    ]
    hunks = {
        (one.mod, one.tree): tuple(hunk(f" line {at} of {one.mod}", number=at) for at in range(4))
        for one in cells
    }
    return with_hunks(MatrixResult(tuple(cells)), hunks)


def about() -> MatrixResult:
    """Two mods that differ in all that a mod can be found by, one of them on a nightly."""
    whole = example()
    theirs = diff_of("flashinfer/x.py", "X = 1\n", "X = 2\n")
    both = diff_of("transformers/x.py", "X = 1\n", "X = 2\n") + diff_of("vllm/x.py", "A\n", "B\n")
    variants = (
        variant(theirs, name="a", package="flashinfer-python"),
        variant(both, name="b", package="transformers"),
    )
    good = Mod("good", "1.0.0", "Loads <weights> faster", "", "", "", variants=variants)
    bad = Mod(
        "bad",
        "1.0.0",
        "A template",
        "",
        "",
        "",
        when=(When(config=(("model_type", ("qwen3",)),)),),
        variants=(
            Variant("a", ">=0.19", templates=(TemplateFile("t", "t.jinja", "t.jinja", b""),)),
        ),
    )
    beside = (("transformers", "5.4.0"),)
    nightly = "0.22.1rc1.dev46+gc5e3454"
    cells = [
        one._replace(hunks=(hunk(proof="unique"),))
        if (one.mod, one.tree) == ("good", "pypi:0.20.0")
        else one
        for one in whole.cells
    ]
    return MatrixResult(
        (
            *cells,
            cell("good", nightly, packages=beside),
            cell("bad", nightly, "unsupported", variant=None, in_range=False, meant=False),
        ),
        mods=(good, bad),
    )
