"""What a script does where steps of it fail, and where nobody knows a condition: read as bash does it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from memory_tree import MemoryTree
from mod_making import diff_of
from sampling import examples

from vllm_mods.making import reading
from vllm_mods.making.effects import SITE, Assume, Edit, Left, Patch, Remove, Whole, changes
from vllm_mods.scripts.statements import BashError

PUT = 'patch -s -f -F0 -p1 -d "$PYTHON_ROOT" < {}.patch'
FORMS = [
    "{P}",
    "{P} || echo no",
    "{P} || true",
    "{P} || exit 1",
    "{P} || {{ echo no; exit 1; }}",
    "{P} || {{ echo no; exit 0; }}",
    "if {P}; then echo yes; else echo no; fi",
    "if {P}; then echo yes; fi",
    "if ! {P}; then exit 3; fi",
    "if ! {P}; then echo no; fi",
    "if {P}; then echo yes; elif true; then echo no; else exit 1; fi",
    "{P} && echo yes",
    "{P} && exit 0",
    "{P} | cat",
    "cat {N}.patch | " + PUT.split(" <", maxsplit=1)[0],
    "put() {{ {P}; }}; put",
    "put() {{ {P}; echo yes; }}; put",
    "put() {{ {P} || return 1; }}; put",
    "put() {{ {P} || return 1; echo yes; }}; put || echo no",
    "put() {{ {P} || return 0; echo yes; }}; put",
    "for n in {N}; do {P} || continue; echo yes; done",
    "for n in {N}; do {P} || break; echo yes; done",
    "( {P} )",
    "{{ {P}; }} || echo no",
    "bash -e other{N}.sh",
    "bash other{N}.sh",
    "set -e",
    "set +e",
    "echo between",
]
TOPS = ["", "set -e\n", "set -euo pipefail\n", "set -o pipefail\n"]


def run(
    script: str, site: dict[str, bytes], home: dict[str, bytes]
) -> tuple[int, dict[str, bytes]]:
    with tempfile.TemporaryDirectory() as scratch:
        for folder, files in (("site", site), ("home", home)):
            for path, data in files.items():
                place = Path(scratch, folder, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=f"{scratch}/home",
            env={"PATH": os.environ["PATH"], "PYTHON_ROOT": f"{scratch}/site"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        root = Path(scratch, "site")
        found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        found = {k: v for k, v in found.items() if not k.endswith((".rej", ".orig"))}
        return ran.returncode, found


def number(one: Patch) -> int:
    return int(one.data.partition(b"vllm/f")[2][:1])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(TOPS),
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
)
@example("", ["{P}", "{P}"], {0})
@example("set -e\n", ["{P} && echo yes", "{P}"], {0})
@example("", ["{P} && exit 0", "{P}"], {0})
def test_a_script_that_reading_says_survives_a_patch_does(
    top: str, forms: list[str], lost: set[int]
) -> None:
    home: dict[str, bytes] = {}
    site: dict[str, bytes] = {"vllm/__init__.py": b""}
    body = []
    for i, form in enumerate(forms):
        put = PUT.format(i)
        body.append(form.format(P=put, N=i))
        home[f"{i}.patch"] = diff_of(f"vllm/f{i}.py", "A = 1\n", "A = 2\n")
        home[f"other{i}.sh"] = f"{put}\necho yes\n".encode()
        site[f"vllm/f{i}.py"] = b"B = 1\n" if i in lost else b"A = 1\n"
    script = top + "\n".join(body) + "\n"
    effects = reading.read("mine", {**home, "run.sh": script.encode()}, MemoryTree(dict(site)))
    if any(isinstance(one, Left | Edit | Assume) for one in effects):
        return
    patches = [one for one in effects if isinstance(one, Patch)]
    fails = any(number(one) in lost for one in patches if not one.optional)
    expected = dict(site)
    for one in patches:
        if number(one) not in lost:
            expected[f"vllm/f{number(one)}.py"] = b"A = 2\n"
    code, done = run(script, site, home)
    assert (code != 0) == fails, script
    if not fails:
        assert done == expected, script


# --- conditions that nobody knows ---------------------------------------------------------------

FILES = {"a.py": b"A\n", "b.py": b"B\n"}
TREE = {"vllm/__init__.py": b"", "vllm/base.py": b"BASE\n"}
ASKED = '[ "$(uname -m)" = yes ]'
put = st.tuples(st.sampled_from(["a.py", "b.py"]), st.sampled_from(["base.py", "f1.py"])).map(
    lambda pair: f'cp {pair[0]} "$PYTHON_ROOT/vllm/{pair[1]}"'
)
given_x = st.just('if [ -n "$X" ]; then cp a.py "$PYTHON_ROOT/vllm/$X.py"; fi')
small = st.one_of(
    put, given_x, st.sampled_from(["X=one", "X=", "echo between", "break", "continue", "return 0"])
)
one_body = st.lists(small, min_size=1, max_size=3).map("\n".join)


def unknown(body: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        body.map(lambda text: f"if {ASKED}; then\n{text}\nfi"),
        st.tuples(body, body).map(lambda t: f"if {ASKED}; then\n{t[0]}\nelse\n{t[1]}\nfi"),
        body.map(lambda text: f"{ASKED} && {{\n{text}\n}}"),
        body.map(lambda text: f"{ASKED} || {{\n{text}\n}}"),
        st.tuples(body, body).map(
            lambda t: f'case "$(uname -m)" in yes)\n{t[0]}\n;;\n*)\n{t[1]}\n;;\nesac'
        ),
        body,
    )


lines = st.lists(unknown(one_body), min_size=1, max_size=3).map("\n".join)
whole = st.one_of(
    lines.map(lambda text: f"for f in 1 2; do\n{text}\ndone".replace("return 0", "continue")),
    lines.map(lambda text: f"f() {{\n{text}\n}}\nf"),
    lines.map(lambda text: f"f() {{\n{text}\n}}\nfor f in 1 2; do\nf\ndone"),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(whole, min_size=1, max_size=2), given_x)
@example(
    [f"for f in 1 2; do\nif {ASKED}; then X=one; break; fi\ndone"],
    '[ -z "$X" ] || cp a.py "$PYTHON_ROOT/vllm/f1.py"',
)
@example(
    [f"f() {{\n{ASKED} && {{ X=one; return 0; }}\nX=\n}}\nf"],
    '[ -z "$X" ] || cp a.py "$PYTHON_ROOT/vllm/f1.py"',
)
@example(['case "$(uname -m)" in yes) exit 0 ;; *) cp a.py "$PYTHON_ROOT/vllm/f1.py" ;; esac'], ":")
def test_what_is_not_known_is_said_or_makes_no_difference(bodies: list[str], last: str) -> None:
    script = "\n".join(["X=", *bodies, last, ""])
    ran = [run(f"uname() {{ echo {word}; }}\n{script}", TREE, FILES) for word in ("yes", "no")]
    assume(all(code == 0 for code, _ in ran))
    try:
        effects = reading.read("mine", {**FILES, "run.sh": script.encode()}, MemoryTree(dict(TREE)))
    except BashError:
        return
    if any(isinstance(one, Left | Edit) for one in effects):
        return
    read = dict(TREE)
    for one in effects:
        if isinstance(one, Whole):
            read[one.path.removeprefix(f"{SITE}/")] = one.data
        elif isinstance(one, Remove):
            read.pop(one.path.removeprefix(f"{SITE}/"), None)
    worlds = [done for _, done in ran]
    taken = [one for one in effects if isinstance(one, Assume)]
    if len(taken) < 2:  # one answer may be taken for a yes here and for a no there; both are said
        assert read in worlds, script
    if not taken:
        assert worlds[0] == worlds[1], script
    if not any(changes(one) for one in effects):
        assert worlds == [TREE, TREE], script
