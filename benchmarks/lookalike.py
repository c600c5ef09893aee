"""Patches for a place that has a look-alike, on releases in which upstream changed one of the two.

    python benchmarks/lookalike.py [--trees FOLDER] [--pairs RELEASE…] [--sample N] [--seed S] [--jobs N]
                                   [--wrong FILE | --replay FILE]

FOLDER is that of ``placing.py``. ``lookalike_sites.py`` searches pairs of releases (neighbours and two apart; of
vLLM, and of ``OTHERS``, whose files stand below ``vllm/`` there) for sites and writes a patch for each.
Each is planned in the forms of ``FORMS`` on a tree of one file, of the fit with what is no Python or defined twice alone: its own base, its
own result, the newer release, and that with the same change in the twin; one that is upstream's own also on
a release before both, which has not got it, and on one after. ``git apply`` and ``patch -F0`` put in the
same. ``--pairs`` names the older one of each pair to take, ``--sample`` says how many sites to replay. Counted
for each form:

**right**          it goes into what it was written for; or it is in already, and that is so
**followed**       it goes into what upstream made of that: a new definition or branch that has its lines now
**refused**        it is not put in; in brackets how many of these have all the text that it was written for,
                   in its place, and not the change
**wrong**          it goes into another definition, branch, table or call, or a second time; in brackets how
                   many of these in another class or function
**falsely in**     it is in already, says the tool, and what it was written for has not got it
**base refused**   on its own base; **result unseen**: on its own result it is not said to be in

What is wrong and falsely in counts on the base and the result too. ``--wrong`` writes each of these and each refusal
on the own base to a file, a JSON object a line; ``--replay`` takes the sites of such a file, in place of a search.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import os
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import placing
from lookalike_places import Edit, Places, edited, grouped, places
from lookalike_sites import KINDS, SHARES, Sides, Site, Work, changed_files, find, releases
from lookalike_truth import Target, Truth, judged
from placing import Answer, Cell, Made, OneFile, Piece

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.model import Level, Mod
from vllm_mods.fit.duplicates import duplicate_problems
from vllm_mods.fit.lines import added_lines
from vllm_mods.formats import mod_lock
from vllm_mods.planning import lock_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Form(NamedTuple):
    """How a patch is written, and what the planner has beside it: its base, or a mod.lock that knows it."""

    context: int
    index_line: bool = False
    header: bool = False
    at_hand: bool = False
    locked: bool = False


FORMS = {
    "git diff": Form(3, index_line=True, header=True),
    "git diff, no index": Form(3, header=True),
    "git diff -U1, no index": Form(1, header=True),
    "diff -u": Form(3),
    "diff -U1": Form(1),
    "diff -u, base at hand": Form(3, at_hand=True),
    "diff -u, with lock": Form(3, locked=True),
    "diff -U1, with lock": Form(1, locked=True),
}
TOOLS = (*FORMS, "git apply", "git apply -U1", "patch -F0", "patch -F0 -U1")
BY_DEFAULT = rb"[A-Za-z_$]"
BY_DRIVER = rb"[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]"
"""What git takes for the words behind @@, without a driver and with that for Python: one patch in four."""

# --- patches ---------------------------------------------------------------------------------


def written(site: Site, base: Places, context: int, head: bytes) -> Made:
    """Write a site's patch as git does, with so many lines of context."""
    lines = base.lines
    pieces = []
    for group in grouped(site.edits, context):
        start = max(0, group[0].at - context)
        end = min(len(lines), group[-1].at + group[-1].removed + context)
        body: list[bytes] = []
        at = start
        for edit in group:
            body += [b" " + line for line in lines[at : edit.at]]
            at = edit.at + edit.removed
            body += [b"-" + line for line in lines[edit.at : at]]
            body += [b"+" + line for line in edit.added]
        body += [b" " + line for line in lines[at:end]]
        ended = (x if x[-1:] == b"\n" else x + b"\n\\ No newline at end of file\n" for x in body)
        grown = sum(len(edit.added) - edit.removed for edit in group)
        above = next((line for line in reversed(lines[:start]) if re.match(head, line)), b"")
        words = (b" " + above.strip()[:80]).rstrip()
        pieces.append(Piece(start + 1, end - start, end - start + grown, words, b"".join(ended)))
    return Made(0, tuple(pieces), b"".join(lines), edited(lines, site.edits), is_edge=False)


def patch_of(made: Made, path: str, form: Form) -> bytes:
    return made.patch(path, index=form.index_line, header=form.header)


def targets(site: Site, work: Work, made: Made, sides: Sides, trees: str) -> Iterator[Target]:
    """Yield what a site's patch is planned on."""
    yield Target("own base", work.old, made.base, expected=made.result)
    yield Target("own result", work.old, made.result, is_in=True)
    new = b"".join(sides.new.lines)
    if site.kind == "upstream":
        yield Target("newer", work.new, new, is_in=True)
        chance = random.Random(f"{work.path} {site}")
        for more, name in ((work.before, "a release before"), (work.after, "a release after")):
            other = chance.choice(more) if more else work.old
            data = placing.read(trees, other, work.path)
            if data and data not in (made.base, new) and places(data):
                never, later = other in work.before, other in work.after
                yield Target(f"{name}: {other}", other, data, never_in=never, later=later)
        return
    moved = [sides.moved(edit) for edit in site.edits]
    stay = [
        after
        for edit, after in zip(site.edits, moved, strict=True)
        if after is not None and sides.new.at(after.at) == sides.old.at(edit.at)
    ]
    expected = edited(sides.new.lines, stay) if len(stay) == len(moved) else None
    yield Target("newer", work.new, new, expected=expected)
    main = site.edits[site.main]
    rest = [edit for n, edit in enumerate(moved) if n != site.main]
    edits = sorted([main._replace(at=site.twin_line), *(edit for edit in rest if edit)])
    apart = all(a.at + a.removed < b.at for a, b in itertools.pairwise(edits))
    if site.kind != "fixed twin" and None not in rest and apart:
        twin = edited(sides.new.lines, edits)
        if places(twin):
            yield Target("newer, twin patched", work.new, twin)


# --- one file --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What each tool did with one site on one target."""

    site: Site
    target: str
    judgements: dict[str, str]
    wrongs: list[dict[str, object]]


class Question(NamedTuple):
    """A site on a target, with the mod and the truth for so many lines of context each."""

    site: Site
    mods: dict[int, Made]
    truths: dict[int, Truth]
    target: Target


def replay(trees: str, work: Work) -> list[Outcome]:
    """Ask every tool about the sites of a file."""
    placing.switch_fit_off()
    sides = Sides.read(*(placing.read(trees, name, work.path) or b"" for name in work[1:3]))
    assert sides is not None
    questions = []
    for site in work.sites:
        head = BY_DRIVER if random.Random(f"{work.path} {site}").random() < 0.25 else BY_DEFAULT
        mods = {n: written(site, sides.old, n, head) for n in {site.context, 1}}
        truths = {n: Truth.of(mod, site, n) for n, mod in mods.items()}
        questions += [
            Question(site, mods, truths, target)
            for target in targets(site, work, mods[1], sides, trees)
        ]
    others = ask_others(questions)
    return [ask(question, work, others) for question in questions]


def ask_others(questions: Sequence[Question]) -> dict[str, Iterator[Answer]]:
    """Return the answers of git and patch, for those questions that have so much context."""
    answers: dict[str, Iterator[Answer]] = {}
    with tempfile.TemporaryDirectory(dir=placing.shared_memory()) as scratch:
        for context, more in ((3, ""), (1, " -U1")):
            cells = [
                Cell("", mods[context], target.data, target.release, target.name)
                for _, mods, _, target in questions
                if context in mods
            ]
            if cells:
                answers[f"git apply{more}"] = iter(placing.by_git_apply(cells, scratch))
                answers[f"patch -F0{more}"] = iter(placing.by_patch(cells, scratch))
    return answers


def ask(question: Question, work: Work, others: dict[str, Iterator[Answer]]) -> Outcome:
    """Judge all answers to a question; ``others`` come in the order of the questions."""
    site, mods, truths, target = question
    outcome = Outcome(site, target.name.partition(":")[0], {}, [])
    for tool in TOOLS:
        form = FORMS.get(tool, Form(1 if tool.endswith("-U1") else 3))
        if form.context not in mods:
            continue
        patch = patch_of(mods[form.context], work.path, form)
        ours = tool in FORMS
        answer = planned(work, form, patch, mods[1], target) if ours else next(others[tool])
        judgement, landed = judged(answer, truths[form.context], target)
        outcome.judgements[tool] = judgement
        own_base = target.name == "own base" and judgement != "right"
        if ours and (own_base or judgement.startswith(("wrong", "falsely"))):
            case = {"tool": tool, "judgement": judgement, "landed": landed, "target": target.name}
            case |= {"words": answer.words, "patch": patch.decode(errors="replace")}
            case["did"] = placing.short_diff(target.data, answer.text)
            case |= work._replace(sites=())._asdict()
            outcome.wrongs.append({**case, "site": site_as_json(site)})
    return outcome


def planned(work: Work, form: Form, patch: bytes, made: Made, target: Target) -> Answer:
    """Ask the planner."""
    mod: Mod = placing.a_mod(patch, version(work.old))
    base = OneFile(work.path, made.base, version(work.old))
    if form.locked:
        places = lock_entries.places_in(mod, base)
        mod = mod._replace(lock=mod_lock.dump(lock_entries.of(mod, (), written=places)))
    tree = OneFile(work.path, target.data, version(target.release))
    answer = placing.seen(mod, tree, base if form.at_hand else None)
    twice = answer.text is not None and unfit(target.data, answer.text)
    return Answer(None, f"unfit: {twice}") if twice else answer


def unfit(before: bytes, after: bytes) -> str:
    """Say what is wrong with a change by itself, if anything: of the fit this is asked here, too."""
    try:
        ast.parse(before)
        tree = ast.parse(after)
    except (SyntaxError, ValueError) as error:
        return f"no Python: {error}"
    problems = duplicate_problems("x.py", tree, added_lines(before, after))
    return next((one.message for one in problems if one.level is Level.ERROR), "")


def version(release: str) -> str:
    return release.rpartition("-")[2]


def site_as_json(site: Site) -> dict[str, object]:
    lines = [[line.decode("latin-1") for line in edit.added] for edit in site.edits]
    edits = [(*edit[:2], added) for edit, added in zip(site.edits, lines, strict=True)]
    return site._asdict() | {"edits": edits}


def from_file(name: str) -> list[Work]:
    """Return the works that a file of wrong answers was written of."""
    works: dict[Work, set[Site]] = defaultdict(set)
    for line in Path(name).read_text().splitlines():
        case = json.loads(line)
        site = case["site"]
        edits = [
            Edit(at, removed, tuple(text.encode("latin-1") for text in added))
            for at, removed, added in site.pop("edits")
        ]
        names = case["project"], case["old"], case["new"], case["path"]
        work = Work(*names, tuple(case["before"]), tuple(case["after"]))
        works[work].add(Site(**site, edits=tuple(edits)))
    return [work._replace(sites=tuple(sorted(some))) for work, some in works.items()]


# --- the whole -------------------------------------------------------------------------------


HEAD = (
    f"{'cells':>7}{'right':>7}{'followed':>9}{'refused':>9}{'':8}{'wrong':>7}{'':7}{'falsely in':>12}"
    f"{'base refused':>18}{'result unseen':>18}"
)


def table(title: str, rows: dict[str, Counter[tuple[str, str]]]) -> None:
    """Print what each tool did with some targets: ``rows`` count target and judgement."""
    print(f"\n{title:24}{HEAD}")
    for name, counts in rows.items():
        own: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        refused = 0
        for (target, judgement), n in counts.items():
            short = judgement.partition(",")[0]
            own[target] += n
            refused += n * (target == "own base" and short == "refused")
            if not target.startswith("own") or short in {"wrong", "falsely in"}:
                sums[short] += n
                sums[judgement] += n * ("," in judgement)
        bases, results = own["own base"], own["own result"]
        unseen = results - counts["own result", "right"]
        shares = "".join(f"{n:10} {n / max(1, bases):6.1%} " for n in (refused, unseen))
        print(
            f"{name:24}{own.total() - bases - results:7}{sums['right']:7}{sums['followed']:9}{sums['refused']:9}"
            f" ({sums['refused, text there']:5}){sums['wrong']:7} ({sums['wrong, another definition']:4})"
            f"{sums['falsely in']:12}{shares}"
        )


def searched(options: argparse.Namespace, pool: ProcessPoolExecutor) -> list[Work]:
    """Search files in an order by chance until there are enough sites of each project."""
    os.makedirs(options.trees, exist_ok=True)
    chosen: list[Work] = []
    for project, names in releases(options.trees).items():
        works = changed_files(options.trees, project, names, options.pairs or ())
        random.Random(options.seed).shuffle(works)
        wanted = options.sample if options.pairs else options.sample * SHARES[project]
        sites = files = 0
        while sites < wanted and files < len(works):
            some = pool.map(
                functools.partial(find, options.trees, options.seed), works[files : files + 40]
            )
            with_sites = [work for work in some if work.sites]
            files += 40
            sites += sum(len(work.sites) for work in with_sites)
            chosen += with_sites
        if works:
            print(
                f"{project}: {sites} sites in {min(files, len(works))} of {len(works)} changed files",
                flush=True,
            )
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", default=os.path.join(cache_folder(os.environ), "sources"))
    parser.add_argument(
        "--pairs", nargs="+", help="the older release of each pair to take (else all)"
    )
    parser.add_argument("--sample", type=int, default=1000, help="about so many sites")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--wrong", help="write each wrong answer to this file, a JSON object a line"
    )
    parser.add_argument("--replay", help="take the sites of such a file")
    options = parser.parse_args()
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs, initializer=os.nice, initargs=(10,)) as pool:
        works = from_file(options.replay) if options.replay else searched(options, pool)
        summary([site for work in works for site in work.sites])
        for some in pool.map(functools.partial(replay, options.trees), works, chunksize=4):
            outcomes += some
    by_tool: dict[str, Counter[tuple[str, str]]] = {tool: Counter() for tool in TOOLS}
    by_kind: dict[str, Counter[tuple[str, str]]] = {kind: Counter() for kind in KINDS}
    for outcome in outcomes:
        for tool, judgement in outcome.judgements.items():
            by_tool[tool][outcome.target, judgement] += 1
            if tool in FORMS:
                by_kind[outcome.site.kind][outcome.target, judgement] += 1
    table("", by_tool)
    table("all forms, by kind", by_kind)
    print(f"\n{time.perf_counter() - start:.0f} s")
    if options.wrong:
        with open(options.wrong, "w") as file:
            file.writelines(
                json.dumps(case) + "\n" for outcome in outcomes for case in outcome.wrongs
            )


def summary(sites: Sequence[Site]) -> None:
    """Print how many sites there are of each sort."""
    sorts = {
        "kind": [site.kind for site in sites],
        "place": [site.shape for site in sites],
        "edit": [site.edit_kind for site in sites],
        "hunks": [str(min(len(site.edits), 4)) for site in sites],
    }
    for name, values in sorts.items():
        counts = Counter(values).most_common()
        print(f"{name}: " + ", ".join(f"{value} {n}" for value, n in counts), flush=True)


if __name__ == "__main__":
    main()
