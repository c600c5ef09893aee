"""A bug leaves a report that has what is needed and no secret; a user's mistake leaves no traceback."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of, write_mod

from vllm_mods.site import transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]

MARK = "s3cr3t"
"""In every secret that is planted here."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put secrets wherever people keep them; return the folder that reports go to."""
    home = tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    (home / ".netrc").write_text(f"machine pypi.example login me password {MARK}-netrc\n")
    (home / ".netrc").chmod(0o600)
    (home / ".docker/config.json").write_text(f'{{"auths": {{"r": {{"auth": "{MARK}-docker"}}}}}}')
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nindex-url = https://u:{MARK}-pip@pypi.example/simple\n"
    )
    repository = home / "vllm"
    subprocess.run(["git", "init", "-q", repository], check=True)
    remote = f"https://oauth2:{MARK}-remote@git.example/vllm.git"
    subprocess.run(["git", "-C", repository, "remote", "add", "origin", remote], check=True)
    for name, value in {
        "HOME": str(home),
        "TMPDIR": str(tmp_path / "reports"),
        "HF_TOKEN": f"hf_{MARK}env",
        "AWS_SECRET_ACCESS_KEY": f"{MARK}-aws",
        "DATABASE": f"postgres://me:{MARK}-url@db/x",
        "PIP_INDEX_URL": f"https://me:{MARK}-index@pypi.example/simple",
        "VLLM_MODS_CACHE": f"{home}/cache",
        "CI": "true",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "reports").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "reports"


def the_report(folder: Path) -> str:
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return file.read_text()


def fail(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def broken(*_: object, **__: object) -> None:
        password = f"{MARK}-local"  # what a variable holds is not shown
        raise RuntimeError(message, len(password))

    monkeypatch.setattr(transaction, "commit", broken)


def test_a_bug_leaves_a_report(
    call: Call, site: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "boom")
    answer = call("apply", "fast", "--target", site)
    assert answer.code == 70
    assert "this is a bug in vllm-mods" in answer.err
    assert str(planted) in answer.err
    text = the_report(planted)
    assert f"vllm-mods apply fast --target {site}" in text
    for wanted in ("RuntimeError", "boom", "libcst", "CPython", "Linux", "site root", "CI=true"):
        assert wanted in text
    assert '"verdict": "applies"' in text  # the plan
    assert "VLLM_MODS_CACHE=~/cache" in text
    assert "HF_TOKEN" in text  # the name alone


def test_no_secret_is_in_it(
    call: Call, site: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(
        monkeypatch,
        f"GET https://me:{MARK}-a@host/x?token={MARK}-b&X-Amz-Signature={MARK}c failed: "
        f"{{'Authorization': 'Basic {MARK}+d=='}} Bearer {MARK}-eeeeee hf_{MARK}fffff "
        f'{{"password": "{MARK}-g"}} {MARK}-aws {MARK}-index --api-key {MARK}-h',
    )
    target = ("--target", site)
    odd = (f"https://me:{MARK}-i@host/repo", f"--api-key={MARK}-j", f"TOKEN={MARK}-k")
    answer = call("apply", "fast", *target, "--workspace", site / "x", "--", *odd)
    assert answer.code == 2  # none of these is a mod
    assert call("apply", "fast", *target).code == 70
    text = the_report(planted)
    assert MARK not in text
    assert "RuntimeError" in text
    (file,) = planted.iterdir()
    file.unlink()
    answer = call("apply", "fast", *target)
    assert MARK not in answer.err


def test_the_command_line_is_shown_without_its_secrets() -> None:
    from vllm_mods.diagnosis.secrets import command

    shown = command(
        (
            *("new", "x", "--record", "--env", f"HF_TOKEN={MARK}-a", f"--env=PLAIN={MARK}-b"),
            *("--tree", f"git:https://me:{MARK}-c@host/vllm@v0.21.0", "--", "pip", "install"),
            *("--index-url", f"https://{MARK}-d@host/simple", "--password", f"{MARK}-e"),
            f"curl -H 'Authorization: Bearer {MARK}-f' --api-key {MARK}-g",
        ),
        {"HOME": "/home/me"},
    )
    assert MARK not in shown
    for kept in ("--env HF_TOKEN=", "--env=PLAIN=", "@host/vllm@v0.21.0", "--index-url", "curl"):
        assert kept in shown.replace("'", "")


def test_where_no_file_can_be_written_the_report_is_printed(
    call: Call, site: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "boom")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    answer = call("apply", "fast", "--target", site)
    assert answer.code == 70
    assert "## vllm-mods" in answer.err
    assert not list(planted.iterdir())


def test_a_report_without_a_bug(call: Call, site: Path, planted: Path) -> None:
    file = planted / "report.md"
    assert call("apply", "fast", "--target", site).code == 0
    answer = call("doctor", "--target", site, "--report", file)
    assert answer.code == 0
    text = the_report(planted)
    assert MARK not in text
    assert f"vllm-mods doctor --target {site}" in text
    assert '"receipt"' in text
    assert '"troubles": []' in text
    again = call("doctor", "--target", site, "--report", file)
    assert (again.code, "File exists" in again.err) == (2, True)
    printed = call("doctor", "--target", site, "--report", "-")
    assert printed.out.startswith("# A report")


def shell(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'vm() {{ {sys.executable} -m vllm_mods "$@"; }}; {line}'],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **environ},
        check=False,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("vm list >&-", 0, ""),
        ("vm list 2>&-", 0, ""),
        ("vm list <&- >&- 2>&-", 0, ""),
        ("vm check nope --target /nowhere 2>&-", 2, ""),
        ("vm check nope --target /nowhere 2>/dev/full", 2, ""),
        ("vm list >/dev/full", 1, "the answer could not be written: No space left on device"),
        ("vm list --json >/dev/full", 1, "could not be written"),
        ("vm check --target $'/tmp/\\xff\\xfe'", 2, "no such file or folder"),
        ("vm check $'\\xff' --target /nowhere", 2, "no such file"),
        ("cd $(mktemp -d); rmdir $PWD; vm list", 0, ""),
        ("cd $(mktemp -d); rmdir $PWD; vm check --target x", 2, "error: "),
    ],
)
def test_no_traceback_for_what_is_no_bug(line: str, code: int, says: str) -> None:
    done = shell(line)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "environ",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "utf-8:strict"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_any_locale_can_print_any_name(environ: dict[str, str], site: Path, library: Path) -> None:
    before = (site / "vllm/other.py").read_text()
    write_mod(
        library, "arrow", diff_of("vllm/other.py", before, before.replace("LIMIT = 1", "LIMIT = 3"))
    )
    manifest = library / "patches/arrow/mod.toml"
    manifest.write_text(manifest.read_text().replace('"s"', '"from a → b"'))
    odd = os.path.join(os.fsencode(site.parent), b"\xff-\xc3\xbc")
    os.rename(site, odd)
    place = os.fsdecode(odd)
    assert "from a" in (done := shell(f"vm list --library {library}", **environ)).stdout
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(f'vm check arrow --library {library} --target "$PLACE"', PLACE=place, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "arrow 1.0.0  applies" in done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        'raise ImportError("libz9.so.1: cannot open shared object file: No such file or directory")',
        'import ctypes; ctypes.CDLL("libz9.so.1")',
        "import of_which_there_is_none",
    ],
)
def test_a_package_that_does_not_load_is_no_bug(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/docker.py").write_text(text + "\n")
    done = shell("vm check --target image:docker:x", PYTHONPATH=str(tmp_path / "broken"))
    assert done.returncode == 2, done.stderr
    assert "docker, which vllm-mods needs, does not load: " in done.stderr
    assert "pip install --force-reinstall docker" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_ours_that_does_not_load_is_a_bug(
    call: Call, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm_mods.images.docker", None)
    assert call("check", "--target", "image:docker:x").code == 70
    assert the_report(planted)
