"""``--image``: a command that is recorded in a container of an image, by a real engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from vllm_mods.cli import run

if TYPE_CHECKING:
    from pathlib import Path

    from real_engines import Engine

PYTHON = "/usr/local/bin/python3"  # the image has no shell for a stand-in
CODE = """\
import os, pathlib, vllm
place = pathlib.Path(vllm.__file__).parent
assert str(place) == os.environ["VLLM_PACKAGE_DIR"] and os.getuid() == 65534
(place / "a.py").write_text("A = 7\\n")
(place / "added.py").write_text("ADDED = 1\\n")
pathlib.Path("/workspace/mine.jinja").write_text("{{ messages }}")
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
    given += ["--library", str(library)]
    assert run([*given, "--", PYTHON, "-c", CODE]) == 0, capsys.readouterr().err
    folder = library / "patches/seven"
    assert "+A = 7" in next(folder.glob("*/seven.patch")).read_text()
    assert (folder / "overlay/vllm/added.py").read_text() == "ADDED = 1\n"
    assert (folder / "templates/mine/template.jinja").read_text() == "{{ messages }}"


@pytest.mark.usefixtures("docker_small", "_elsewhere")
@pytest.mark.parametrize(
    "code",
    [
        "open('/usr/local/bin/x', 'w')",
        "open('/proc/sys/kernel/hostname', 'w')",
        "import os; os.setuid(0)",
        "import socket; socket.create_connection(('1.1.1.1', 80), 1)",
        "import time; time.sleep(99)",
    ],
)
def test_it_reaches_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    given = ("new", "x", "--record", "--image", "localhost/small", "--library", str(tmp_path))
    assert run([*given, "--timeout", "3", "--", PYTHON, "-c", code]) == 3
    assert "exit code 1" in capsys.readouterr().err or "sleep" in code


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
