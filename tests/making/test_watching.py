"""What the stand-ins noted of a run, and what follows from it."""

from __future__ import annotations

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
    ],
)
def test_python_that_only_looks(code: str, looks: bool) -> None:  # noqa: FBT001
    written = {f"{LAUNCHER}/asked": f"1\0\0python3\0-c\0{code}\0\n".encode()}
    files = {"edit.py": b"", "lib/x.py": b""}
    assert bool(watching.read(written, files, {}).failed) is not looks


def test_what_is_installed_is_each_requirement_once() -> None:
    seen = read("0 pip install -q --index-url https://x.test/ a==1 b[c]>=2", "0 pip install a==1")
    assert seen.installed == ("a==1", "b[c]>=2")


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
