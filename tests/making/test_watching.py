"""What the stand-ins noted of a run, and what follows from it."""

from __future__ import annotations

import time

import pytest

from vllm_mods.making import watching
from vllm_mods.making.watching import LAUNCHER, SITE, Watched


def read(*steps: str, exported: str = "", **files: str) -> Watched:
    """Read steps, each ``CODE WORD WORD…``, of line 3 of run.sh."""
    rows = (step.split(" ") for step in steps)
    log = b"".join(
        b"\0".join(word.encode() for word in (row[0], "/x/run.sh:3", *row[1:])) + b"\0\n"
        for row in rows
    )
    written = {f"{LAUNCHER}/asked": log, f"{LAUNCHER}/exported": exported.encode()}
    mine = {name.replace("_", "."): text.encode() for name, text in files.items()}
    return watching.read(written, mine, {"LANG": "C.UTF-8"})


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("git apply a.patch || echo skipping", True),
        ("patch -p1 < a.patch || true", True),
        ("patch -p1 < a.patch 2>/dev/null || :", True),
        ("git apply a.patch || patch -p1 < a.patch || { echo skipping; }", True),
        ("git apply a.patch \\\n  || printf 'none\\n'", True),
        ("git apply a.patch ||\n  echo none", True),
        ('git apply "$p" || failed+=("$p")', True),
        ('git apply "$p" || failed="$failed $p"', True),
        ('git apply "$p" || failed=1', False),
        ("git apply $p || { failed=$((failed + 1)); }", True),
        ("git apply $p || A=1 exit 1", False),
        ("git apply $p || { failed=1; exit 1; }", False),
        ("git apply a.patch", False),
        ("git apply a.patch || patch -p1 < a.patch", False),
        ("git apply a.patch || exit 1", False),
        ("git apply a.patch || echoes", False),
        ("cp a b || true", False),
        ("git apply a.patch\ncp a b || true", False),
    ],
)
def test_a_line_that_puts_a_patch_in_or_goes_on(line: str, *, is_one: bool) -> None:
    files = {"run.sh": f"set -e\n{line}\n".encode(), "notes.txt": line.encode()}
    numbers = range(2, 3 + line.count("\n"))
    assert watching.lines_that_may_fail(files) == {f"run.sh:{n}" for n in numbers if is_one}


@pytest.mark.parametrize(
    ("step", "lacked", "failed"),
    [
        ("7 curl -s https://x.test/a", True, False),
        ("128 git clone https://x.test/a", True, False),
        ("1 network 1.2.3.4", True, False),
        ("127 nvidia-smi", True, False),
        ("0 nvidia-smi", True, False),
        ("0 pip install ./none.whl", True, False),
        ("0 pip uninstall x", True, False),
        ("0 pip install x==1", False, False),
        ("0 pip install -c c.txt --target t -U x", False, False),
        ("0 pip install --upgrade", False, False),
        ("0 pip install vllm==0.20", True, False),
        ("0 pip install vllm-flash==1", False, False),
        ("0 pip install x.whl", True, False),
        ("0 pip install git+https://x.test/a", True, False),
        ("0 pip install -e .", True, False),
        ("0 pip install -i https://x.test x[a,b]>=1", False, False),
        ("0 curl -s https://x.test/a", False, False),
        ("22 wget https://x.test/a", True, False),
        ("100 apt-get install x", True, False),
        ("0 git clone https://x.test/a", False, False),
        ("1 git -C x pull", True, False),
        ("1 git checkout x", False, True),
        ("1 git stash list --stat", False, False),
        ("1 perl -pi -e x y", False, True),
        ("1 perl -e x", False, False),
        ("1 sed --in-place s/a/b/ x", False, True),
        ("1 tar --version", False, False),
        ("1 tar -xf x", False, True),
        ("1 grep x y", False, False),
        ("1 python3", False, True),
        ("1 python3 -m x", False, True),
        ("1 patch -p1", False, True),
        ("1 patch --dry-run -p1", False, False),
        ("1 git apply x.patch", False, True),
        ("1 git apply --check x.patch", False, False),
        ("128 git rev-parse HEAD", False, False),
        ("1 sed -i s/a/b/ x", False, True),
        ("1 sed -n 1p x", False, False),
        ("1 cp a b", False, True),
        ("1 python3 edit.py", False, True),
        ("1 python3 -c import\tflashinfer", False, False),
    ],
)
def test_what_was_lacked_and_what_failed(step: str, lacked: bool, failed: bool) -> None:  # noqa: FBT001
    seen = read(step)
    assert (bool(seen.lacked), bool(seen.failed)) == (lacked, failed)
    for command in (*seen.lacked, *seen.failed):
        assert str(command).startswith("run.sh:3: `")


@pytest.mark.parametrize(
    ("code", "looks"),
    [
        ("import flashinfer", True),
        ("import vllm; print(vllm.__version__)", True),
        ("from w import y\nassert y.z > 1", True),
        ("import edit", False),
        ("import lib.edit", False),
        ("print(open('x', 'w'))", False),
        ("x()", False),
        ("import os; os.remove('x')", False),
        ("import os; print(os.popen)", False),
        ("import os\nexit(1)", True),
        ("raise SystemExit(1); sys.exit(2)", True),
        ("", True),
        ("print(1) ; from edit import x", False),
        ("importlib.reload(x)", False),
    ],
)
def test_python_that_only_looks(code: str, looks: bool) -> None:  # noqa: FBT001
    written = {f"{LAUNCHER}/asked": f"1\0\0python3\0-c\0{code}\0\n".encode()}
    files = {"edit.py": b"", "lib/x.py": b""}
    assert bool(watching.read(written, files, {}).failed) is not looks


def test_what_is_installed_is_each_requirement_once() -> None:
    seen = read("0 pip install -q --index-url https://x.test/ a==1 b[c]>=2", "0 pip install a==1")
    assert seen.installed == ("a==1", "b[c]>=2")


def test_a_command_is_shown_with_its_line_and_as_far_as_it_fits() -> None:
    log = b""
    for place, words in (
        (b"/x/y/run.sh:3", b"patch -p1"),
        (b":7", b"patch x"),
        (b"", b"patch y"),
        (b"run.sh:9", b"cp " + b"a" * 67),
        (b"run.sh:9", b"cp " + b"a" * 68),
    ):
        log += b"\0".join((b"1", place, *words.split(b" "))) + b"\0\n"
    seen = watching.read({f"{LAUNCHER}/asked": log}, {}, {})
    assert [str(one) for one in seen.failed] == [
        "run.sh:3: `patch -p1`",
        "line:7: `patch x`",
        "`patch y`",
        f"run.sh:9: `cp {'a' * 67}`",
        f"run.sh:9: `cp {'a' * 64}...`",
    ]


def test_every_command_that_is_watched_has_its_stand_in() -> None:
    programs = watching.programs()
    stand_in = programs[f"{watching.BIN}/curl"]
    assert stand_in.startswith(b"#!/")
    names = {path.rpartition("/")[2] for path, data in programs.items() if data == stand_in}
    assert names >= {"wget", "apt-get", "nvidia-smi", "pip", "uv", "python3", "patch", "git", "sed"}
    others = {path for path, data in programs.items() if data != stand_in}
    assert others == {
        f"{LAUNCHER}/{name}"
        for name in ("sitecustomize.py", "supervise.py", "pip_stand_in.py", "served.py", "lines.sh")
    }


@pytest.mark.parametrize(
    ("row", "is_left"),
    [
        ("VLLM_A=", True),
        ("VLLM_A=a=b", True),
        ("VLLM_A", False),
        ("VLLM-A=1", False),
        ("GIVEN=1", False),
        ("GIVEN=2", True),
        ("X=/launcher/bin", False),
        ("X=/workspace/mods", False),
        ("API_KEY=1", False),
        (f"X=hf_{'a' * 20}", False),
        ("https_proxy=x", False),
        ("HTTPS_PROXY=x", False),
        ("PIP_INDEX_URL=x", False),
        ("LD_LIBRARY_PATH=x", False),
        ("OLDPWD=x", False),
        ("NAMED=1", False),
        ("QUOTED=1", False),
        ("NAME=1", True),
    ],
)
def test_a_variable_is_left_to_vllm_if_nothing_else_needs_it(row: str, *, is_left: bool) -> None:
    files = {"a.sh": b"echo $NAMED", "b.py": b"os.environ['QUOTED']", "c.txt": b"$VLLM_A $NAME"}
    written = {f"{LAUNCHER}/exported": row.encode()}
    (*exported,) = watching.read(written, files, {"GIVEN": "1"}).exported
    assert exported == ([tuple(row.split("=", 1))] if is_left else [])


def test_the_step_that_ended_a_script() -> None:
    seen = read("0 pip install a", "1 exit grep -q x y")
    assert str(seen.ended) == "run.sh:3: `grep -q x y`"
    assert read("0 pip install a").ended is None


def test_what_a_script_leaves_to_vllm() -> None:
    rows = {
        "VLLM_A": "1",
        "LANG": "C.UTF-8",
        "PATH": "/x",
        "HF_TOKEN": "x",
        "USED": "1",
        "READ": "1",
        "PLACE": f"{SITE}/vllm",
        "LINES": "a\nb",
        "_": "x",
        "VLLM_MODS_LINE": "x",
    }
    exported = "\0".join(f"{name}={value}" for name, value in rows.items())
    assert read(
        exported=exported, run_sh="echo ${USED}", edit_py="os.environ['READ']"
    ).exported == (("VLLM_A", "1"),)


def test_a_log_that_a_command_wrote_itself_is_read_as_far_as_it_goes() -> None:
    log = b"\0\n\xff\0\n12\0\0\n1\0x\0patch\0\n" + b"9" * 300_000
    seen = watching.read({f"{LAUNCHER}/asked": log}, {}, {})
    assert [command.argv for command in seen.failed] == [("patch",)]


def test_a_script_of_one_endless_line_is_read_in_time() -> None:
    started = time.monotonic()
    for words in ("git ||", "git || ", "|| \\\n", "git   ||  \\\n  ", "patch ||{"):
        assert not watching.lines_that_may_fail({"run.sh": (words * 20_000).encode()})
    assert time.monotonic() - started < 5


def test_a_code_that_is_no_number_is_nobodys() -> None:
    assert not read(f"{'9' * 5000} patch x", "² patch x", "x patch x").failed
