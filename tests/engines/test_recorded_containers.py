"""``--image``: a command that is recorded in a container of an image, by a real engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.cli import run

if TYPE_CHECKING:
    from real_engines import Engine

PYTHON = "/usr/local/bin/python3"  # the image has no shell for a stand-in
CODE = """\
import os, pathlib, vllm
place = pathlib.Path(vllm.__file__).parent
assert str(place) == os.environ["VLLM_PACKAGE_DIR"] and os.getuid() == 0
(place / "a.py").write_text("A = 7\\n")
(place / "added.py").write_text("ADDED = 1\\n")
(place.parent / "sitecustomize.py").write_text("import added\\n")
pathlib.Path("/workspace/mine.jinja").write_text("{{ messages }}")
pathlib.Path("/etc/nccl.conf").write_text("NCCL_DEBUG=INFO\\n")
pathlib.Path("/usr/local/bin/python3").unlink()
"""


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.mark.usefixtures("docker_small", "_elsewhere")
def test_what_a_command_does_in_a_container_becomes_a_mod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library"
    given = [*("new", "seven", "--record", "--image", "localhost/small", "--vllm", "==0.19.1")]
    given += ["--library", str(library), "--also", "numpy"]
    assert run([*given, "--", PYTHON, "-c", CODE]) == 0, capsys.readouterr().err
    folder = library / "patches/seven"
    assert "+A = 7" in next(folder.glob("*/seven.patch")).read_text()
    assert (folder / "overlay/vllm/added.py").read_text() == "ADDED = 1\n"
    assert (folder / "overlay/sitecustomize.py").read_text() == "import added\n"
    assert (folder / "templates/mine/template.jinja").read_text() == "{{ messages }}"
    said = capsys.readouterr().out
    for line in (
        "the command wrote /etc/nccl.conf; if container images need that file, add it to [[files]] in mod.toml",
        "the command removed /usr/local/bin/python3, which a mod cannot do",
        "--also numpy has no effect on an image",
    ):
        assert f"note: {line}\n" in said


@pytest.mark.usefixtures("docker_small", "_elsewhere")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("open('/proc/sys/kernel/hostname', 'w')", "Read-only file system"),
        ("import os; os.setuid(1)", "Operation not permitted"),
        ("import os; os.chown('/etc/passwd', 1, 1)", "Operation not permitted"),
        ("import os; os.mknod('/sda', 0o60600, os.makedev(8, 0))", "Operation not permitted"),
        ("import os; os.open('/proc/1/fd/1', os.O_WRONLY)", "Permission denied"),
        ("import socket; socket.create_connection(('1.1.1.1', 80), 1)", "Network is unreachable"),
        ("open('/workspace/secret').read()", "No such file or directory"),
        ("import time; time.sleep(99)", "did not end within 3 s"),
        ("while True: print('x' * 9999)", "the command printed more than 1 MiB"),
        ("import os\nwhile True: os.fork()", "exit code 1|more than 60 at a time|within 3 s"),
        ("open('/big', 'w').write('x' * (9 << 20))", "exit code|wrote more than 8 MiB"),
        ("for n in range(3): open(f'/{n}', 'w').write('x' * (7 << 20))", "wrote more than 8 MiB"),
        ("for n in range(3): open(f'/tmp/{n}', 'w').write('x' * (7 << 20))", "No space|8 MiB"),
    ],
)
def test_it_reaches_nothing_else(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    says: str,
) -> None:
    # more than 16 times as much counts as its own, and others write to this disk, too
    bounds = {"PROCESSES": 60, "OUTPUT": 1 << 20, "BYTES": (8 if "MiB" in says else 99) << 20}
    for name, value in bounds.items():
        lower(monkeypatch, f"RECORDED_{name}", value)
    Path("secret").write_text("s3cret")
    Path("../secret").write_text("s3cret")
    given = ("new", "x", "--record", "--image", "localhost/small", "--library", str(tmp_path))
    assert run([*given, "--timeout", "3", "--", PYTHON, "-c", code]) == 3
    assert re.search(says, capsys.readouterr().err)
    assert not list(tmp_path.glob("patches/*"))


@pytest.mark.usefixtures("_elsewhere")
def test_nothing_outlives_a_killed_tool(docker_small: Engine) -> None:
    command = [
        *(sys.executable, "-m", "vllm_mods", "new", "x", "--record", "--image", "localhost/small"),
        *("--library", ".", "--", PYTHON, "-c", "import time; time.sleep(99)"),
    ]
    tool = subprocess.Popen(command, env={**os.environ})
    end = time.monotonic() + 30
    while not docker_small("ps", "-q") and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)
    assert docker_small("ps", "-q")
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    while docker_small("ps", "-q") and time.monotonic() < end:
        time.sleep(0.1)
    assert docker_small("ps", "-q") == ""
    while ids := docker_small("ps", "-aq", "--filter", "label=vllm-mods.reading"):
        docker_small("rm", *ids.split())  # the one that the image was read from never ran
    while docker_small("ps", "-aq") and time.monotonic() < end:
        time.sleep(0.1)
