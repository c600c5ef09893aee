"""What upstream renamed or moved is followed where its own callers show one successor, and only there."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange
from vllm_mods.fit.judge import judge
from vllm_mods.fit.world import SummaryCache
from vllm_mods.porting import successors

MOD = "vllm/mod.py"
PLAIN = "VALUE = 1\n"


def repaired(
    base: dict[str, str], target: dict[str, str], ours: str, theirs: str = PLAIN
) -> tuple[str, tuple[str, ...]]:
    """Return the mod's file as it comes out on the target, and what was told."""
    trees = [
        MemoryTree({path: text.encode() for path, text in files.items()}, spec=name)
        for name, files in {
            "base": {"vllm/__init__.py": "", MOD: theirs, **base},
            "target": {"vllm/__init__.py": "", MOD: theirs, **target},
        }.items()
    ]
    cut = FileChange(MOD, theirs.encode(), ours.encode())
    findings = judge((cut,), trees[1], (), SummaryCache()).findings
    done = successors.follow([cut], findings, *trees)
    (after,) = (one.after or b"" for one in done.cuts)
    if done.notes:
        again = judge((cut._replace(after=after),), trees[1], (), SummaryCache()).findings
        assert not [one for one in again if one.level == "error"], again
    return after.decode(), done.notes


HELP = "def weigh(path, limit=3):\n    total = len(path)\n    return total * limit\n"
USE = "from vllm.helpers import weigh\n\n\ndef run(path):\n    return weigh(path)\n"
OURS = f"{PLAIN}from vllm.helpers import weigh\n\n\ndef mine(p):\n    return weigh(p)\n"


def test_a_moved_name_follows_what_the_callers_import() -> None:
    after, told = repaired(
        {"vllm/helpers.py": HELP, "vllm/a.py": USE},
        {
            "vllm/helpers.py": "",
            "vllm/scales.py": HELP,
            "vllm/a.py": USE.replace("vllm.helpers", "vllm.scales"),
        },
        OURS,
    )
    assert after == OURS.replace("vllm.helpers", "vllm.scales")
    assert told == ("weigh of vllm.helpers is weigh of vllm.scales by now, as vllm/a.py has it",)


def test_a_renamed_name_keeps_the_one_that_the_mod_uses() -> None:
    after, told = repaired(
        {"vllm/helpers.py": HELP, "vllm/a.py": USE},
        {
            "vllm/helpers.py": HELP.replace("weigh", "heft"),
            "vllm/a.py": USE.replace("weigh", "heft"),
        },
        OURS,
    )
    assert after == OURS.replace("import weigh", "import heft as weigh")
    assert len(told) == 1


SEVERAL = f"""{PLAIN}from vllm.helpers import (
    kept,
    weigh,
)


def mine(p):
    return weigh(kept(p)), "weigh"
"""


def test_one_name_of_an_import_over_several_lines_is_taken_out_of_it() -> None:
    kept = "def kept(p):\n    return p\n"
    after, _ = repaired(
        {"vllm/helpers.py": HELP + kept, "vllm/a.py": USE},
        {
            "vllm/helpers.py": kept,
            "vllm/scales.py": HELP,
            "vllm/a.py": USE.replace("vllm.helpers", "vllm.scales"),
        },
        SEVERAL,
    )
    assert "from vllm.helpers import kept\nfrom vllm.scales import weigh\n" in after
    assert after.endswith(SEVERAL.partition(")\n")[2])


KLASS = """\
class Engine:
    def __init__(self) -> None:
        self.width = 3

    def fetch(self, key, limit=3):
        found = [key] * limit
        return found[: self.width]


def ready(engine: Engine):
    value = engine.fetch("a", limit=4)
    return value, engine.width
"""
OURS_OF_CLASS = f"""{PLAIN}from vllm.engine import Engine


def mine(engine: Engine, fetch, width):
    width = engine.fetch("fetch", limit=width)
    return fetch, width, engine.width
"""


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("fetch(", "obtain(", OURS_OF_CLASS.replace("engine.fetch", "engine.obtain")),
        ("limit", "most", OURS_OF_CLASS.replace("limit=", "most=")),
        ("width", "breadth", OURS_OF_CLASS.replace("engine.width", "engine.breadth")),
    ],
)
def test_a_renamed_member_or_keyword_is_renamed_at_its_place_alone(
    old: str, new: str, wanted: str
) -> None:
    after, told = repaired(
        {"vllm/engine.py": KLASS}, {"vllm/engine.py": KLASS.replace(old, new)}, OURS_OF_CLASS
    )
    assert after == wanted
    assert len(told) == 1
    assert told[0].endswith("as vllm/engine.py has it")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("def run(weigh, p):\n    return weigh(p)\n", "def run(heft, p):\n    return heft(p)\n"),
        ("class Scale(weigh):\n    pass\n", "class Scale(heft):\n    pass\n"),
        ("def run(p):\n    return weigh(p)\n", "def run(p):\n    return heft(p), weigh(p)\n"),
        ("def run(p):\n    return weigh(p)\n", "def other(p):\n    return heft(p)\n"),
        ("def run(p):\n    return weigh(p)\n", "def run(p):\n    return 'heft(p)'\n"),
    ],
)
def test_what_is_no_use_of_the_name_is_no_witness(was: str, now: str) -> None:
    after, told = repaired(
        {"vllm/helpers.py": HELP, "vllm/a.py": f"from vllm.helpers import weigh\n\n\n{was}"},
        {
            "vllm/helpers.py": HELP.replace("weigh", "heft"),
            "vllm/a.py": f"from vllm.helpers import heft\n\n\n{now}",
        },
        OURS,
    )
    assert (after, told) == (OURS, ())


def test_a_member_that_upstream_also_uses_otherwise_is_left_alone() -> None:
    """As ``CPUDNNLGEMMHandler.handler`` of 0.15.1, a number, and ``handler_tensor`` of 0.16.0."""
    changed = KLASS.replace("width", "breadth").replace("breadth = 3", "breadth = [3]")
    user = "from vllm.engine import Engine\n\n\ndef use(engine: Engine):\n    return engine.width\n"
    after, told = repaired(
        {"vllm/engine.py": KLASS, "vllm/user.py": user},
        {"vllm/engine.py": changed, "vllm/user.py": user.replace("width", "breadth")},
        OURS_OF_CLASS,
    )
    assert (after, told) == (OURS_OF_CLASS, ())


def test_a_keyword_of_another_type_is_left_alone() -> None:
    typed = KLASS.replace("limit=3", "limit: int = 3")
    changed = typed.replace("limit", "most").replace(": int", ": float")
    after, told = repaired({"vllm/engine.py": typed}, {"vllm/engine.py": changed}, OURS_OF_CLASS)
    assert (after, told) == (OURS_OF_CLASS, ())


def test_what_upstream_wrote_is_left_to_upstream() -> None:
    """The import that fails is the target's own line, which the mod only uses."""
    theirs = OURS.replace(
        "def mine(p):\n    return weigh(p)\n", "def theirs(p):\n    return weigh(p)\n"
    )
    ours = theirs + "\n\ndef mine(p):\n    return weigh(p)\n"
    helpers = HELP.replace("weigh", "heft")
    after, told = repaired(
        {"vllm/helpers.py": HELP, "vllm/a.py": USE},
        {"vllm/helpers.py": helpers, "vllm/a.py": USE.replace("weigh", "heft")},
        ours,
        theirs,
    )
    assert (after, told) == (ours, ())


class Drawn(NamedTuple):
    """A rename of upstream's, a mod that uses the old name, and what has to come out."""

    base: dict[str, str]
    target: dict[str, str]
    ours: str
    wanted: str


WORDS = ("alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta", "zeta")
TROUBLES = (
    "",
    "",
    "second",
    "existed",
    "shadowed",
    "string",
    "value",
    "unlike",
    "none",
)


def drawn(seed: int) -> Drawn:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one trouble per branch
    draw = random.Random(seed)
    old, new, other, cls, arg = draw.sample(WORDS, 5)
    cls = cls.title()
    kind = draw.choice(("moved", "renamed", "keyword", "member", "method"))
    trouble = draw.choice(TROUBLES)
    body = "\n".join(
        f"        found = found + {draw.randrange(9)}" for _ in range(draw.randrange(2, 5))
    )

    def engine(method: str, keyword: str, field: str, more: str = "", text: str = body) -> str:
        return (
            f"class {cls}:\n    def __init__(self, {arg}):\n        self.{field} = {arg}\n"
            f"{more}\n    def {method}(self, {keyword}=0):\n        found = {keyword}\n{text}\n        return found\n"
        )

    def caller(lines: str, scope: str = "run") -> str:
        return f"from vllm.core import {cls}\n\n\ndef {scope}(x: {cls}, n):\n{lines}"

    names = {"keyword": ("work", "KEY", "field"), "member": ("work", "key", "KEY")}
    method, keyword, field = names.get(kind, ("KEY", "key", "field"))
    use = {
        "keyword": "    return x.work(KEY=n)\n",
        "member": "    return [x.KEY, n]\n",
        "method": "    return [x.KEY(n), n]\n",
    }.get(kind, "    return KEY(n) + n\n")

    def world(
        name: str, module: str, used: str, more: str = "", text: str = body
    ) -> dict[str, str]:
        if kind in {"moved", "renamed"}:
            held = f"def {name}(n):\n    found = n\n{text}\n    return found\n".replace(
                "        ", "    "
            )
            files = {f"vllm/{module}.py": held + more}
            files["vllm/user.py"] = (
                f"from vllm.{module} import {name}\n\n\ndef run(n):\n{used.replace('KEY', name)}"
            )
            return files
        first, second, third = (one.replace("KEY", name) for one in (method, keyword, field))
        return {
            "vllm/core.py": engine(first, second, third, more, text),
            "vllm/user.py": caller(used.replace("KEY", name)),
        }

    module = "helpers" if kind != "moved" else "places"
    after = old if kind == "moved" else new
    base, target = world(old, "helpers", use), world(after, module, use)
    if kind == "moved":
        target["vllm/helpers.py"] = ""
    if kind in {"moved", "renamed"}:
        head = f"{PLAIN}from vllm.helpers import {old}\n\n\ndef mine(n):\n"
        ours = f"{head}    {new} = '{old} KEY'\n    return {old}(n), {new}\n"
        moved = f"vllm.{module} import {after}" + (f" as {old}" if after != old else "")
        wanted = ours.replace(f"vllm.helpers import {old}", moved)
    else:
        line = use.replace("KEY", old).strip()
        head = f"{PLAIN}from vllm.core import {cls}\n\n\ndef mine(x: {cls}, n, {old}='{old}='):\n"
        ours = f"{head}    {other} = {old}\n    {line}\n"
        wanted = ours.replace(f"    {line}\n", f"    {use.replace('KEY', new).strip()}\n")
    sure = draw.random() < 0.5  # the trouble comes first or last
    place = "vllm/aaa.py" if sure else "vllm/zzz.py"
    refused = Drawn(base, target, ours, ours)
    # what no caller shows, the one file that defines the name does
    if kind == "moved" and trouble in {"shadowed", "string", "none"}:
        refused = refused._replace(wanted=wanted)
    if trouble == "second":  # another caller follows another successor
        if kind in {"moved", "renamed"}:
            base[place] = base["vllm/user.py"]
            held = next(t for p, t in target.items() if f"def {after}" in t)
            target["vllm/thirds.py"] = held.replace(f"def {after}", f"def {other}")
            target[place] = (
                base[place]
                .replace(f"vllm.helpers import {old}", f"vllm.thirds import {other}")
                .replace(f"{old}(", f"{other}(")
            )
            return refused
        more = {
            "keyword": "",
            "member": f"        self.{other} = {arg}\n",
            "method": engine(other, "key", "field").split("\n\n")[1].join(("", "")),
        }[kind]
        core = target["vllm/core.py"]
        if kind == "keyword":
            core = core.replace(f"{new}=0", f"{new}=0, {other}=0")
        elif kind == "member":
            core = core.replace(f"self.{new} = {arg}\n", f"self.{new} = {arg}\n{more}")
        else:
            core += "\n" + engine(other, "key", "field").split("\n\n")[1]
        target["vllm/core.py"] = core
        base[place] = base["vllm/user.py"]
        target[place] = base["vllm/user.py"].replace(
            use.replace("KEY", old), use.replace("KEY", other)
        )
        return refused
    if trouble == "existed":  # upstream uses something that was there before
        if kind == "moved":
            base["vllm/places.py"] = target["vllm/places.py"]
        elif kind == "renamed":
            base["vllm/helpers.py"] += target["vllm/helpers.py"]
        elif kind == "keyword":
            base["vllm/core.py"] = base["vllm/core.py"].replace(f"{old}=0", f"{old}=0, {new}=0")
        elif kind == "member":
            line = f"        self.{old} = {arg}\n"
            base["vllm/core.py"] = base["vllm/core.py"].replace(line, line + line.replace(old, new))
        else:
            base["vllm/core.py"] += "\n" + engine(new, "key", "field").split("\n\n")[1]
        return refused
    if trouble == "shadowed":  # the only caller means something else by the old name
        for files, name in ((base, old), (target, after)):
            files["vllm/user.py"] = f"def run({name}, x, n):\n{use.replace('KEY', name)}"
        return refused
    if trouble == "string":  # the names stand in strings only
        for files, name in ((base, old), (target, after)):
            files["vllm/user.py"] = (
                f'def run(n):\n    return "{use.strip().replace("KEY", name)}"\n'
            )
        return refused
    if trouble == "value" and kind in {
        "keyword",
        "renamed",
    }:  # the caller says something else by it
        if kind == "keyword":
            target["vllm/user.py"] = target["vllm/user.py"].replace(f"{new}=n", f"{new}=not n")
        else:
            target["vllm/user.py"] = target["vllm/user.py"].replace(f"{new}(n)", f"{new}(n * 1000)")
        return refused
    if trouble == "unlike" and kind in {
        "renamed",
        "method",
        "moved",
    }:  # something new of another kind
        text = "\n".join(f"        found = [{n}, found][0]" for n in range(9))
        target.update(world(after, module, use, text=text))
        return refused
    if trouble == "none":  # no caller at all
        del base["vllm/user.py"], target["vllm/user.py"]
        return refused
    return Drawn(base, target, ours, wanted)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_drawn_renames_are_followed_or_left_alone(start: int) -> None:
    followed = 0
    for seed in range(start, start + 100):
        one = drawn(seed)
        after, _ = repaired(one.base, one.target, one.ours)
        assert after == one.wanted, seed
        followed += after != one.ours
    assert followed > 20
