"""``new --record`` and ``import``: run apart from the machine, on a copy; what changed becomes the mod."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from memory_tree import MemoryTree
from mod_folders import FAST, FIX, SITE, TOP
from mod_making import diff_of
from small_site import snapshot
from test_import_mods import made, written

from vllm_mods.base.errors import UsageError
from vllm_mods.making import recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    Call = Callable[..., Answer]


LOST = diff_of("vllm/a.py", "GONE = 1\n", "GONE = 2\n").decode()


pytestmark = pytest.mark.usefixtures("sandboxed")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a command is run in."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path / "cwd"


@pytest.fixture
def record(call: Call, site: Path, mine: Path, tmp_path: Path) -> Callable[..., Answer]:
    """Record a bash script, and hold the tree and the folder to every byte."""

    def do(script: str, *options: str, name: str = "new") -> Answer:
        before = snapshot(site, mine)
        answer = call(
            *("new", name, "--record", "--tree", site, "--library", tmp_path / "made", *options),
            *("--", "bash", "-euc", script),
        )
        assert snapshot(site, mine) == before
        return answer

    return do


@pytest.mark.slow
def test_an_edit_becomes_a_patch(
    record: Callable[..., Answer], mine: Path, site: Path, tmp_path: Path
) -> None:
    (mine / "edit.py").write_text(
        "import pathlib, vllm\nfile = pathlib.Path(vllm.__file__).parent / 'loader.py'\n"
        "text = file.read_text()\nassert vllm.__version__ == '0.19.1'\n"
        "file.write_text(text.replace('weights', 'fast', 1))\n"
    )
    answer = record(
        'python3 edit.py; echo ADDED=1 > "$VLLM_PACKAGE_DIR/added.py"; rm $PYTHON_ROOT/vllm/b.py',
        "--json",
    )
    assert answer.code == 0, answer.err
    assert answer.json["verdict"] == "applies"
    folder = tmp_path / "made/patches/new"
    assert made(folder, site) == {
        "vllm/loader.py": FAST,
        "vllm/added.py": "ADDED=1\n",
        "vllm/b.py": None,
    }
    assert "@@ " in (folder / "0.19/new.patch").read_text()


@pytest.mark.slow
def test_it_sees_a_launchers_surroundings(record: Callable[..., Answer], mine: Path) -> None:
    (mine / "q.jinja").write_text("{{ messages }}")
    answer = record(
        f'test "$WORKSPACE_DIR" = /workspace; test "$PYTHON_ROOT" = {SITE}; cd "$VLLM_PACKAGE_DIR"; '
        f'test "$PWD" = {SITE}/vllm; cd /workspace/mods/new; test -f q.jinja; test "$(id -un)" = nobody; '
        'test "$HOME" = /root; python3 -c "import importlib.metadata as m; assert m.version(\'vllm\')"; '
        'cp q.jinja "$WORKSPACE_DIR"; touch ~/.x /tmp/y "$WORKSPACE_DIR/parser.py"',
        "--json",
    )
    assert answer.code == 0, answer.err
    assert "templates/q/template.jinja" in answer.json["files"]
    told = [line for line in answer.json["notes"] if "a mod cannot contain" in line]
    assert [line.split()[3].rstrip(",") for line in told] == [
        "/root/.x",
        "/tmp/y",  # noqa: S108  (as it is called in there)
        "/workspace/parser.py",
    ]


@pytest.mark.slow
def test_modules_of_vllm_are_found_without_what_they_need(
    record: Callable[..., Answer], site: Path, tmp_path: Path
) -> None:
    (site / "vllm/deep").mkdir()
    (site / "vllm/deep/__init__.py").write_text("")
    (site / "vllm/deep/x.py").write_text("X = 1\nimport torch_is_not_here\nY = 2\n")
    answer = record(
        "F=$(python3 -c 'import vllm.deep.x as m; assert m.X == 1; print(m.__file__)'); "
        'test "$MODE" = fast; sed -i s/2/3/ "$F"',
        *("--env", "MODE=fast"),
    )
    assert answer.code == 0, answer.err
    assert made(tmp_path / "made/patches/new", site) == {
        "vllm/deep/x.py": "X = 1\nimport torch_is_not_here\nY = 3\n"
    }
    answer = record("true", "--env", "MODE")
    assert (answer.code, "--env MODE is not NAME=VALUE" in answer.err) == (2, True)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    [
        "touch /usr/here",
        "touch /etc/here",
        "touch /here",
        "mkdir /opt && touch /opt/x",
        "echo x > /dev/here",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /usr && touch /usr/here",
        "unshare -Urm mount -o remount,rw,bind /usr",
    ],
)
def test_it_cannot_write_elsewhere(record: Callable[..., Answer], command: str) -> None:
    answer = record(f'echo "# x" >> "$VLLM_PACKAGE_DIR/a.py"; {command}')
    assert answer.code == 3
    assert "failed with exit code" in answer.err
    assert not os.path.lexists("/usr/here")
    assert not os.path.lexists("/etc/here")


@pytest.mark.slow
def test_it_cannot_read_what_is_not_its_own(
    record: Callable[..., Answer], tmp_path: Path, site: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    paths = (tmp_path / "secret", site / "vllm/a.py", Path(__file__), "/etc/shadow")
    answer = record(
        f"for one in {' '.join(map(str, paths))}; do ! cat $one || exit 8; done; exit 9"
    )
    assert answer.code == 3
    assert "exit code 9" in answer.err
    assert answer.err.count("No such file or directory") == len(paths)
    answer = record(f"ls /proc | grep -c '^{os.getpid()}$'; exit 7")
    assert "exit code 1" in answer.err  # of grep: this process is not there


@pytest.mark.slow
def test_it_has_no_network(record: Callable[..., Answer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f'exec 3<>/dev/tcp/127.0.0.1/{port}; echo "# x" >> "$VLLM_PACKAGE_DIR/a.py"'
        answer = record(script)
        assert answer.code == 3
        assert "hint: put the files that the command downloads" in answer.err
        assert "--fetch" not in answer.err  # `new` has no such option


@pytest.mark.slow
def test_it_ends_in_time_and_leaves_nothing_behind(record: Callable[..., Answer]) -> None:
    mark = f"{os.getpid()}{id(record)}"
    answer = record(f"(exec -a m{mark} sleep 1000) & exec -a n{mark} sleep 1000", "--timeout", "1")
    assert answer.code == 3
    assert "did not end within 1 s" in answer.err
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert mark not in running.stdout


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo oh no; exit 9",
            "exit code 9; nothing was written\n  the command ended at line:1: `",
        ),
        ("false || echo 'it may be in already'", "changed nothing in vLLM\n  | it may be"),
        (f"ln -sf /etc/passwd {SITE}/vllm/a.py", "vllm/a.py became a link"),
        (f"printf '\\0' > {SITE}/vllm/x.so; printf '\\0' > {SITE}/vllm/a.py; false", "exit code 1"),
        (f"cd {SITE}; echo 'import vllm.nowhere' >> vllm/a.py", "unfit"),
    ],
)
def test_what_becomes_no_mod(
    record: Callable[..., Answer], tmp_path: Path, script: str, says: str
) -> None:
    answer = record(script)
    assert answer.code == 3, answer.out
    assert says in answer.err
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_a_patch_that_goes_in_by_half(
    record: Callable[..., Answer], mine: Path, tmp_path: Path
) -> None:
    lost = "@@ -12,3 +12,3 @@\n def gone():\n-    return 1\n+    return 2\n     x\n"
    (mine / "half.patch").write_text(FIX + lost)
    answer = record(f"patch -p1 -d {SITE} < half.patch || echo 'in already'")
    assert answer.code == 3
    assert "a patch was only partly applied: vllm/loader.py.rej" in answer.err
    assert not (tmp_path / "made").exists()


# --- what it could not have, and what it survived ------------------------------------------------

CHANGE = 'echo "# x" >> "$VLLM_PACKAGE_DIR/a.py"'


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("curl -s https://x.test/a.patch | patch -p1 || echo Warning", "run.sh:4: `curl -s"),
        ("wget -q https://x.test/a.py -O a.py || true", "run.sh:4: `wget -q"),
        ("if ! git clone -q https://x.test/a; then echo no; fi", "run.sh:4: `git clone"),
        (
            "python3 -c \"import urllib.request as u; u.urlopen('http://1.2.3.4/')\" || :",
            "run.sh:4: `network",
        ),
        (
            "(exec 3<>/dev/tcp/1.2.3.4/80) 2>/dev/null || true",
            "the command tried to use the network",
        ),
        ("nvidia-smi > /dev/null || true", "run.sh:4: `nvidia-smi`"),
        ("pip install -q ./none.whl || true", "run.sh:4: `pip install ./none.whl"),
        ("pip uninstall -y x || true", "run.sh:4: `pip uninstall"),
        ("set +e; patch -p1 < no.patch; set -e", "run.sh:4: `patch -p1"),
        ("put() { timeout 9 patch -p1 < no.patch; }; put || A=1", "run.sh:4: `patch -p1"),
        ("if ! git apply no.patch 2>/dev/null; then echo no; fi", "run.sh:4: `git apply"),
        ("python3 edit.py || echo skipped", "run.sh:4: `python3 edit.py"),
        ("cp none.py $PYTHON_ROOT/vllm/ 2>/dev/null || true", "run.sh:4: `cp none.py"),
        ("set +e; sed -i s/a/b/ none.py; set -e", "run.sh:4: `sed -i"),
    ],
)
def test_what_it_lacked_or_survived_is_named_by_line_and_no_mod(
    call: Call, tmp_path: Path, site: Path, step: str, says: str
) -> None:
    files = {
        "run.sh": f"{TOP}{CHANGE}\n{step}\n",
        "no.patch": LOST,
        "edit.py": "open('x', 'w')\n1 / 0\n",
    }
    folder = written(tmp_path, files)
    answer = call("import", folder, "--tree", site, "--library", tmp_path / "made")
    assert answer.code == 3, answer.out
    assert says in answer.err
    assert "hint: " in answer.err
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "question",
    [
        "patch --dry-run -p1 < no.patch || echo no",
        "git apply --check no.patch || echo no",
        "git rev-parse --git-dir || true",
        "python3 -c 'import flashinfer' 2>/dev/null || echo no",
        "grep -q nowhere run.sh || echo no",
        "sed -n 1p none.py || true",
    ],
)
def test_a_question_may_be_answered_with_no(
    call: Call, tmp_path: Path, site: Path, question: str
) -> None:
    folder = written(tmp_path, {"run.sh": f"{TOP}{CHANGE}\n{question}\n", "no.patch": LOST})
    answer = call("import", folder, "--tree", site)
    assert answer.code == 0, answer.err


@pytest.mark.slow
def test_where_a_script_failed_is_said_though_it_says_nothing(
    call: Call, tmp_path: Path, site: Path
) -> None:
    folder = written(
        tmp_path, {"run.sh": f"{TOP}{CHANGE}\ngrep -q nowhere run.sh.none 2>/dev/null\n"}
    )
    answer = call("import", folder, "--tree", site)
    assert answer.code == 3
    assert "the command ended at run.sh:4: `grep -q nowhere run.sh.none" in answer.err


@pytest.mark.slow
def test_a_last_check_is_ignored_where_the_author_says_so(
    record: Callable[..., Answer], tmp_path: Path
) -> None:
    script = 'echo ADDED=1 > "$VLLM_PACKAGE_DIR/added.py"\npython3 -c "import no_such_thing"'
    refused = record(script)
    assert refused.code == 3
    assert "or --ignore-checks, if line:2: `python3 -c import no_such_thing` only checks" in (
        refused.err
    )
    assert not (tmp_path / "made").exists()
    answer = record(script, "--ignore-checks", "--json")
    assert answer.code == 0, answer.err
    (note,) = (one for one in answer.json["notes"] if "ignored" in one)
    assert note.startswith("line:2: `python3 -c import no_such_thing` failed with exit code 1")
    assert "No module named 'no_such_thing'" in note


@pytest.mark.slow
def test_it_answers_as_the_container_does(call: Call, tmp_path: Path, site: Path) -> None:
    asks = (
        'test "$(python3 -c "import site; print(site.getsitepackages()[0])")" = "$PYTHON_ROOT"\n'
        'test "$(python -c "import sysconfig; print(sysconfig.get_paths()[\'purelib\'])")" = $PYTHON_ROOT\n'
        'test "$(python3 -c "import sysconfig; print(sysconfig.get_path(\'platlib\'))")" = $PYTHON_ROOT\n'
        "test \"$(pip show vllm 2>/dev/null | awk '/^Location/ {print $2}')\" = $PYTHON_ROOT\n"
        "test \"$(pip3 show vllm | awk '/^Version/ {print $2}')\" = 0.19.1\n"
        "! pip show nothing 2>/dev/null\n"
    )
    listed = {"req.txt": "# these\nflash-qla==0.1.3\n\n", "run.sh": f"{TOP}{asks}{CHANGE}\n"}
    listed["run.sh"] += (
        "pip install -q --no-deps -r req.txt\nuv pip install --system 'einops>=0.8'\n"
    )
    answer = call("import", written(tmp_path, listed), "--tree", site)
    assert answer.code == 0, answer.err
    assert 'python = ["flash-qla==0.1.3", "einops>=0.8"]' in answer.out


@pytest.mark.slow
def test_a_binary_that_is_swapped(record: Callable[..., Answer], tmp_path: Path) -> None:
    answer = record(f"printf 'new\\0' > {SITE}/vllm/_C.abi3.so")
    assert answer.code == 0, answer.err
    overlay = tmp_path / "made/patches/new/overlay/vllm/_C.abi3.so"
    assert overlay.read_bytes() == b"new\0"


@pytest.mark.slow
def test_packages_beside_vllm(record: Callable[..., Answer], site: Path, tmp_path: Path) -> None:
    (site / "beside").mkdir()
    (site / "beside/x.py").write_text("X = 1\n")
    script = f"sed -i s/1/2/ {SITE}/beside/x.py"
    assert record(script).code == 3
    assert record(script, "--also", "beside").code == 0
    assert made(tmp_path / "made/patches/new", site) == {"beside/x.py": "X = 2\n"}
    assert record(script, "--also", "nothing").code == 2


def test_what_it_needs(call: Call, site: Path, mine: Path) -> None:
    for arguments, says in (
        (["--record", "--tree", site], "--record needs a command"),
        (["--tree", site, "--", "true"], "--record needs a command"),
        (["--record", "--", "true"], "no --tree was named"),
    ):
        answer = call("new", "x", *arguments)
        assert (answer.code, says in answer.err) == (2, True), answer.err
    tree = MemoryTree({"vllm/__init__.py": b""}, remote=True)
    with pytest.raises(UsageError, match="is read in parts"):
        recording.record(["true"], "x", {}, tree, recording.Limits())
    assert mine.is_dir()


def test_a_folder_that_holds_far_more(
    record: Callable[..., Answer], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "MOD_FILES", 1)
    (mine / "a").write_text("")
    (mine / "b").write_text("")
    answer = record("true")
    assert answer.code == 2
    assert "run the command from a folder that contains only what it needs" in answer.err


@pytest.mark.parametrize("program", ["exit 1", "echo 'not allowed' >&2; exit 1", None])
def test_where_it_cannot_be_had_nothing_is_run(
    record: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str | None,
) -> None:
    (tmp_path / "bin").mkdir()
    if program is not None:
        (tmp_path / "bin/bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bin/bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    answer = record("true")
    assert answer.code == 3
    assert "--image REF" in answer.err
    if program is None:
        assert "hint: apt-get install bubblewrap" in answer.err
    else:
        assert (
            f"bubblewrap does not start here: {'not allowed' if 'not' in program else ''}"
            in answer.err
        )
