"""Whatever script is made up of what mods do: what is read in it is what bash does, or it is left."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_tree import MemoryTree
from sampling import examples

from vllm_mods.making import reading
from vllm_mods.making.effects import SITE, Assume, Edit, Left, Remove, Whole
from vllm_mods.scripts.statements import BashError

F1 = '"$PYTHON_ROOT/vllm/f1.py"'
FILES = {"a.py": b"A\n", "sub/b.py": b"B\n", "sub/c.txt": b"C"}
TREE = {"vllm/__init__.py": b"", "vllm/base.py": b"BASE\n"}
names = st.sampled_from(["X", "Y", "Z"])
plain = st.sampled_from(["a.py", "sub/b.py", "sub", "one", "2", "base.py", "x.tar.gz"])
words = st.one_of(
    plain,
    names.map(lambda name: f'"${name}"'),
    names.map(lambda name: f"${name}"),
    names.map(lambda name: f'"${{{name}:-none}}"'),
    st.tuples(names, st.sampled_from(["%.*", "%%.*", "##*/", "#*/", "%/*"])).map(
        lambda pair: f'"${{{pair[0]}{pair[1]}}}"'
    ),
    plain.map(lambda word: f'"$(basename {word})"'),
    plain.map(lambda word: f'"$(echo {word})-x"'),
    st.sampled_from(['"$1"', '"$10"', '"${10}"', '"${2:-two}"', "$1a"]),
    st.sampled_from(["1", "2", "3"]).map(
        lambda n: f"\"$(printf 'a b\\n\\nc d e\\n' | awk '{{print ${n}}}')\""
    ),
)
targets = st.sampled_from(["f1.py", "f2.py", "base.py", "new/f3.py"]).map(
    lambda name: f'"$PYTHON_ROOT/vllm/{name}"'
)
sources = st.sampled_from(["a.py", "sub/b.py", "sub/c.txt"])
conditions = st.one_of(
    st.tuples(words, st.sampled_from(["=", "!="]), words).map(lambda t: f"[ {' '.join(t)} ]"),
    words.map(lambda word: f"[ -n {word} ]"),
    words.map(lambda word: f"[ ! -z {word} ]"),
    st.sampled_from(["a.py", "none.py", "sub"]).map(lambda name: f"[[ -f {name} ]]"),
    targets.map(lambda target: f"[ -e {target} ]"),
    st.sampled_from(["true", "false", "! false"]),
)
simple = st.one_of(
    st.tuples(names, words).map(lambda pair: f"{pair[0]}={pair[1]}"),
    st.tuples(words, st.sampled_from([">", ">>"]), targets).map(lambda t: "echo " + " ".join(t)),
    st.tuples(sources, targets).map(lambda pair: f"cp {pair[0]} {pair[1]}"),
    st.tuples(sources, targets).map(lambda pair: f"cat {pair[0]} > {pair[1]}"),
    st.tuples(sources, targets).map(lambda pair: f"cat {pair[0]} | tee {pair[1]} > /dev/null"),
    st.tuples(words, targets).map(lambda pair: f"cat > {pair[1]} <<END\nit is {pair[0]}\nEND"),
    st.just("mkdir -p $PYTHON_ROOT/vllm/new"),
    targets.map(lambda target: f"rm -f {target}"),
    words.map(lambda word: f"say {word}"),
    st.sampled_from(["shift || :", "exit 0", "cp -r sub $PYTHON_ROOT/vllm/", "unset X"]),
    targets.map(lambda target: f"{{ echo 1; say two; }} | cat > {target}"),
    targets.map(lambda target: f"say x > {target}"),
)


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.tuples(conditions, body).map(lambda t: f"if {t[0]}; then\n{t[1]}\nfi"),
        st.tuples(conditions, body, conditions, body, body).map(
            lambda t: f"if {t[0]}; then\n{t[1]}\nelif {t[2]}; then\n{t[3]}\nelse\n{t[4]}\nfi"
        ),
        st.tuples(names, st.lists(words, max_size=3), body).map(
            lambda t: f"for {t[0]} in {' '.join(t[1]) or 'one'}; do\n{t[2]}\ndone"
        ),
        st.tuples(conditions, inner).map(lambda t: f"{t[0]} && {{\n{t[1]}\n}} || :"),
        st.tuples(conditions, inner).map(lambda t: f"{t[0]} || {{\n{t[1]}\n}}"),
        body.map(lambda text: f"(\n{text}\n)"),
        st.tuples(body, words).map(lambda t: f"f() {{\n{t[0]}\n}}\nf {t[1]}"),
    )


scripts = st.lists(st.recursive(simple, compound, max_leaves=8), min_size=1, max_size=6)


def done_by_bash(script: str) -> tuple[int, dict[str, bytes]]:
    """Run a script in a folder of its own, and return what vLLM is then."""
    with tempfile.TemporaryDirectory() as scratch:
        site, home = Path(scratch, "site"), Path(scratch, "home")
        for folder, files in ((site, TREE), (home, FILES)):
            for path, data in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=home,
            env={"PATH": os.environ["PATH"], "PYTHON_ROOT": str(site)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        found = {
            str(path.relative_to(site)): path.read_bytes()
            for path in site.rglob("*")
            if path.is_file()
        }
        return ran.returncode, found


@settings(max_examples=examples(150), deadline=None)
@given(scripts)
# `$10` is `$1` and a 0; what is not quoted is split, or no word at all; what is set where only a run tells is not known
@example(["set -- a b c d e f g h i j", f'echo "$10" > {F1}'])
@example([f"echo \"$(printf 'a\\n' | awk '{{print $4}}')\" > {F1}"])
@example(["[ a.py = $X ] && X=a.py || :", f'[ a.py = "$X" ] && cp a.py {F1} || :'])
@example(["X='a c'", f"[ -n $X ] && echo 1 > {F1} || :"])
@example([f"[ -n $X ] && echo 1 > {F1} || :"])
@example([f"printf '{{x}} %s\\n' a > {F1}"])
@example(["f() {", "[ a = $X ] && shift || :", f'echo "$1" > {F1}', "}", "f a b"])
def test_what_is_read_is_what_bash_does(lines: list[str]) -> None:
    script = "\n".join(
        ['say() { echo "<$*>"; }', "X= Y=one Z=", "mkdir -p $PYTHON_ROOT/vllm/new", *lines, ""]
    )
    try:
        effects = reading.read("mine", {**FILES, "run.sh": script.encode()}, MemoryTree(dict(TREE)))
    except BashError:
        return
    # what is assumed is said, and need not be so here
    if any(isinstance(one, Left | Edit | Assume) for one in effects):
        return
    read = dict(TREE)
    for one in effects:
        if isinstance(one, Whole):
            read[one.path.removeprefix(f"{SITE}/")] = one.data
        elif isinstance(one, Remove):
            read.pop(one.path.removeprefix(f"{SITE}/"), None)
    code, done = done_by_bash(script)
    if code == 0:
        assert read == done, script
