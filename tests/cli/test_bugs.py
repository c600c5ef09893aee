"""A bug shows its traceback, without secrets; a user's mistake shows none."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of, write_mod

from vllm_mods.site import transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

MARK = "s3cr3t"
"""In every secret that is planted here."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put secrets wherever people keep them."""
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
        "HF_TOKEN": f"hf_{MARK}env",
        "AWS_SECRET_ACCESS_KEY": f"{MARK}-aws",
        "DATABASE": f"postgres://me:{MARK}-url@db/x",
        "PIP_INDEX_URL": f"https://me:{MARK}-index@pypi.example/simple",
        "VLLM_MODS_CACHE": f"{home}/cache",
        "CI": "true",
    }.items():
        monkeypatch.setenv(name, value)


def fail(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def broken(*_: object, **__: object) -> None:
        password = f"{MARK}-local"  # what a variable holds is not shown
        raise RuntimeError(message, len(password))

    monkeypatch.setattr(transaction, "commit", broken)


@pytest.mark.usefixtures("planted")
def test_a_bug_shows_where_it_comes_from(
    call: Call, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "boom")
    answer = call("apply", "fast", "--target", site)
    assert answer.code == 70
    assert "error: this is a bug in vllm-mods" in answer.err
    assert "hint: report this bug with the output above" in answer.err
    for wanted in ("Traceback", "RuntimeError", "boom", "in broken"):
        assert wanted in answer.err


@pytest.mark.usefixtures("planted")
def test_no_secret_is_in_it(call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(
        monkeypatch,
        f"GET https://me:{MARK}-a@host/x?token={MARK}-b&X-Amz-Signature={MARK}c failed: "
        f"{{'Authorization': 'Basic {MARK}+d=='}} Bearer {MARK}-eeeeee hf_{MARK}fffff "
        f'{{"password": "{MARK}-g"}} {MARK}-aws {MARK}-index --api-key {MARK}-h',
    )
    answer = call("apply", "fast", "--target", site)
    assert answer.code == 70
    assert "RuntimeError" in answer.err
    assert MARK not in answer.err


def shell(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'vm() {{ {sys.executable} -m vllm_mods "$@"; }}; {line}'],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **environ},
        check=False,
    )


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert "docker, which vllm-mods needs, cannot be loaded: " in done.stderr
    assert "pip install --force-reinstall docker" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_ours_that_does_not_load_is_a_bug(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("vllm_mods.images.docker", raising=False)  # if a test has loaded it
    monkeypatch.setitem(sys.modules, "vllm_mods.images.docker", None)
    assert call("check", "--target", "image:docker:x").code == 70
