"""``vllm-mods with``: a command over a copy of vLLM that has the mods; the installed vLLM is only read."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Answer
from installing import wheel

import vllm_mods as vm
from vllm_mods.base import limits
from vllm_mods.cli import with_command

Call = Callable[..., Answer]
Run = Callable[..., subprocess.CompletedProcess[str]]
WHERE = "import vllm, os; print(vllm.__file__); print(open(os.path.dirname(vllm.__file__) + '/loader.py').read())"

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache/shadow"


@pytest.fixture
def with_mods(site: Path, library: Path, cache: Path) -> Run:
    def run(
        *command: object, mods: tuple[str, ...] = ("fast",)
    ) -> subprocess.CompletedProcess[str]:
        given = ("with", *mods, "--library", library, "--target", site, "--", *command)
        words = [sys.executable, "-m", "vllm_mods", *map(str, given)]
        return subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=cache.parent.parent
        )

    return run


def seen(site: Path) -> dict[str, tuple[bytes, os.stat_result]]:
    return {
        str(path): (path.read_bytes(), path.stat()) for path in site.rglob("*") if path.is_file()
    }


def copies(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_the_command_imports_the_copy_and_the_installed_one_stays(
    with_mods: Run, site: Path, cache: Path
) -> None:
    before = {path: data for path, (data, _) in seen(site).items()}
    for path in site.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = with_mods(sys.executable, "-c", WHERE)
    (copy,) = copies(cache)
    file, _, text = answer.stdout.partition("\n")
    assert (answer.returncode, file) == (0, f"{copy}/vllm/__init__.py")
    assert text != (site / "vllm/loader.py").read_text() + "\n"
    assert answer.stderr == f"note: fast 1.0.0 in {copy}\n"
    assert {path: data for path, (data, _) in seen(site).items()} == before
    assert not (site / ".vllm-mods").exists()
    status = vm.status(copy)
    assert status.ok
    assert [mod.name for mod in status.mods] == ["fast"]


def test_the_same_copy_is_used_again_until_something_changes(
    with_mods: Run, site: Path, cache: Path
) -> None:
    assert with_mods("true").returncode == 0
    (first,) = copies(cache)
    made = (first / "vllm/loader.py").stat().st_ino
    assert with_mods("true").returncode == 0
    assert copies(cache) == [first]
    assert (first / "vllm/loader.py").stat().st_ino == made
    (site / "vllm/__init__.py").write_text("# another\n")
    answer = with_mods(sys.executable, "-c", "import vllm; print(open(vllm.__file__).read())")
    assert answer.stdout == "# another\n\n"
    assert len(copies(cache)) == 2


def test_what_is_big_and_no_source_is_a_link(with_mods: Run, site: Path, cache: Path) -> None:
    (site / "vllm/_C.abi3.so").write_bytes(b"x" * (1 << 20))
    (site / "vllm/small.so").write_bytes(b"x")
    (site / "vllm/big.py").write_text("#" * (1 << 20))
    (site / "vllm.libs").mkdir()
    (site / "vllm/dangling").symlink_to("nowhere")
    assert with_mods("true").returncode == 0
    (copy,) = copies(cache)
    assert {path.name for path in copy.rglob("*") if path.is_symlink()} == {
        "_C.abi3.so",
        "vllm.libs",
        "dangling",
    }
    assert (copy / "vllm/_C.abi3.so").samefile(site / "vllm/_C.abi3.so")


def test_a_command_keeps_its_code_signals_and_streams(with_mods: Run) -> None:
    answer = with_mods("bash", "-c", "cat; echo out; echo err >&2; trap -p PIPE; exit 7")
    assert (answer.returncode, answer.stdout) == (7, "out\n")
    assert answer.stderr.endswith("err\n")
    assert "bash is not a Python program, so its vLLM was not checked" in answer.stderr
    code = "import signal; print(open('/proc/self/status').read())"
    ignored = next(
        line
        for line in with_mods("cat", "/proc/self/status").stdout.splitlines()
        if line.startswith("SigIgn")
    )
    assert not int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1), code


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-I", "-c", "1"], "-I ignores PYTHONPATH"),
        (["-X", "dev", "-E", "-m", "json"], "-E ignores PYTHONPATH"),
        (["-Ic", "1"], "-I ignores PYTHONPATH"),
        (["-W", "error", "-BI", "-c", "1"], "-BI ignores PYTHONPATH"),
    ],
)
def test_a_command_that_would_import_another_vllm_is_not_run(
    with_mods: Run, flags: list[str], why: str
) -> None:
    answer = with_mods(sys.executable, *flags)
    assert answer.returncode == 3
    assert f"would import no vLLM, not the copy with mods: {why}" in answer.stderr


def test_a_folder_that_holds_vllm_comes_first(with_mods: Run, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/run.py").write_text("import vllm; print(vllm.__file__)")
    script = tmp_path / "scripts/serve"
    script.write_text(f"#!{sys.executable}\nimport vllm; print(vllm.__file__)")
    script.chmod(0o755)
    answer = with_mods(sys.executable, "-m", "vllm")
    assert answer.returncode == 3
    assert f"not the copy with mods: Python looks first in {tmp_path}" in answer.stderr
    assert with_mods(sys.executable, "-P", "-c", "import vllm").returncode == 0
    for command in ((sys.executable, "scripts/run.py"), (script,)):
        assert "/cache/shadow/" in with_mods(*command).stdout


def test_no_copy_is_made_of_what_does_not_fit(
    with_mods: Run, call: Call, cache: Path, site: Path
) -> None:
    (site / "vllm/loader.py").write_text("nothing = 1\n")
    answer = with_mods("true")
    assert answer.returncode == 3
    assert "nothing was changed in vLLM 0.19.1" in answer.stderr
    assert not cache.exists()
    assert call("with", "fast", "--target", site).code == 2
    assert call("with", "none", "--target", site, "--", "true").code == 2


def test_a_program_that_is_none_is_said(with_mods: Run, tmp_path: Path) -> None:
    answer = with_mods("no-such-program")
    assert (answer.returncode, "no-such-program is not a program" in answer.stderr) == (2, True)
    bare = tmp_path / "bare"
    bare.write_text("echo hi")
    bare.chmod(0o755)
    answer = with_mods(bare)
    assert answer.returncode == 2
    assert f"error: {bare}: Exec format error" in answer.stderr


def test_a_python_that_does_not_answer_is_refused(
    call: Call, site: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python3"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(limits, "IMPORT_SECONDS", limits.Limit(0, "seconds", "x"))
    answer = call("with", "fast", "--target", site, "--", slow, "-c", "1")
    assert answer.code == 3
    assert "cannot say which vLLM it would import" in answer.err
    assert len(copies(cache)) == 1


def test_a_patch_is_tried_before_it_is_a_mod(with_mods: Run, tmp_path: Path, site: Path) -> None:
    target = site / "vllm/__init__.py"
    target.write_text("A = 1\n")
    patch = tmp_path / "try.patch"
    patch.write_text(
        "--- a/vllm/__init__.py\n+++ b/vllm/__init__.py\n@@ -1 +1 @@\n-A = 1\n+A = 2\n"
    )
    answer = with_mods(sys.executable, "-c", "import vllm; print(vllm.A)", mods=(str(patch),))
    assert (answer.returncode, answer.stdout) == (0, "2\n"), answer.stderr


def test_what_a_copy_cannot_have_is_refused(
    call: Call, site: Path, library: Path, cache: Path
) -> None:
    mod = library / "patches/starts"
    mod.mkdir()
    (mod / "x").write_text("import os\n")
    (mod / "mod.toml").write_text(
        'schema = 1\nname = "starts"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n'
        'outside = ["starts.pth"]\n[[variant]]\nid = "a"\nvllm = ">=0"\n'
        'overlay = [{ source = "x", path = "starts.pth" }]\n'
    )
    answer = call("with", "starts", "--target", site, "--", "true")
    assert answer.code == 3
    assert (
        f"the mods change starts.pth, which Python does not read from a copy of {site}"
        in answer.err
    )
    assert not cache.exists()


def test_copies_that_nobody_uses_go_after_a_week(
    with_mods: Run, site: Path, library: Path, cache: Path
) -> None:
    mods = vm.Library(str(library)).mods("fast")
    old = time.time() - 8 * 86400
    with vm.shadow(mods, site) as used:
        os.utime(f"{used.root}.lock", (old, old))
        (site / "vllm/__init__.py").write_text("# 2\n")
        assert with_mods("true").returncode == 0
        assert len(copies(cache)) == 2
    (site / "vllm/__init__.py").write_text("# 3\n")
    assert with_mods("true").returncode == 0
    assert not Path(used.root).exists()
    assert not Path(f"{used.root}.lock").exists()


def test_a_command_keeps_its_copy_in_use(with_mods: Run, cache: Path) -> None:
    code = "import fcntl, glob, os; fcntl.flock(os.open(glob.glob(os.environ['VLLM_MODS_CACHE'] + '/shadow/*.lock')[0], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    answer = with_mods(sys.executable, "-c", code)
    assert answer.returncode == 1
    assert "BlockingIOError" in answer.stderr
    (lock,) = cache.glob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("where", ["address", "here", ""])
def test_workers_of_a_ray_that_runs_are_given_what_they_need(
    call: Call,
    site: Path,
    library: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    where: str,
) -> None:
    cluster = cache.parent.parent / "ray_current_cluster"
    monkeypatch.setattr(with_command, "_RAY", str(cluster))
    monkeypatch.setattr(os, "execvpe", lambda *_: sys.exit(0))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process stays as it is
    if where == "address":
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    elif where:
        cluster.touch()
    said = call("with", "fast", "--library", library, "--target", site, "--", sys.executable)
    _, _, told = said.err.partition("need the copy, and runtime_env=")
    assert bool(told) == bool(where)
    if told:
        wanted = json.loads(told.splitlines()[0])["env_vars"]
        assert wanted["PYTHONPATH"].startswith(f"{cache}/")


def test_ps_names_the_copies_in_use_and_who_uses_them(
    site: Path, library: Path, cache: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(cache.parent.parent))
    lone = call("ps")
    assert (lone.code, "not installed here" in lone.err) == (2, True)
    with vm.shadow(vm.Library(str(library)).mods("fast"), site) as used:
        listed = call("ps")
        (told,) = call("ps", "--json").json["copies"]
    assert listed.code == 0
    assert f"a copy with fast@1.0.0 is used by process {os.getpid()}: " in listed.out
    assert (told["root"], told["mods"], told["pid"]) == (used.root, ["fast@1.0.0"], os.getpid())
    assert call("ps").code == 2


def test_a_command_of_another_environment_is_noted(
    with_mods: Run, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs/vllm").mkdir(parents=True)
    (tmp_path / "theirs/vllm/__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/theirs:{os.environ.get('PYTHONPATH', '')}")
    answer = with_mods(sys.executable, "-c", WHERE)
    assert answer.returncode == 0
    note = f"belongs to another vLLM, {tmp_path}/theirs/vllm; the copy is of {site}\n"
    assert f"note: {sys.executable} {note}" in answer.stderr


def test_a_copy_in_use_is_used_by_others_at_once(
    with_mods: Run, site: Path, library: Path, cache: Path
) -> None:
    mods = vm.Library(str(library)).mods("fast")
    with vm.shadow(mods, site) as used, vm.shadow(mods, site) as again:
        assert again.root == used.root
        assert with_mods("true").returncode == 0
    assert len(copies(cache)) == 1


def test_two_that_start_at_once_make_one_copy(site: Path, library: Path, cache: Path) -> None:
    words = [sys.executable, "-m", "vllm_mods", "with", "fast", "--library", str(library)]
    words += ["--target", str(site), "--", sys.executable, "-c", WHERE]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {one.communicate()[0] for one in both}
    assert len(said) == len(copies(cache)) == 1


def test_a_release_is_unpacked_once_by_pip(
    call: Call, site: Path, library: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("vllm/**/*.py")}
    made = wheel(cache.parent.parent / "wheels", files)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.parent))
    monkeypatch.setenv("PIP_USER", "1")
    with vm.shadow(vm.Library(str(library)).mods("fast"), "pypi:0.19.1") as copy:
        assert (copy.of, vm.status(copy.root).ok) == (f"{cache}/vllm-0.19.1", True)
        assert vm.status(copy.of).mods == ()
    made.unlink()
    with vm.shadow(vm.Library(str(library)).mods("fast"), "pypi:0.19.1") as again:
        assert again.root == copy.root
    for spec, why in {
        "pypi:0.19.2": "pip finds no wheel of vllm 0.19.2",
        "pypi:new": "not the version of a release",
        f"pypi:{'9' * 5000}": "not the version of a release",
    }.items():
        answer = call("with", "fast", "--library", library, "--target", spec, "--", "true")
        assert (answer.code in {1, 2}, why in answer.err) == (True, True)
    monkeypatch.setenv("PIP_ROOT", str(site.parent / "root"))
    made = wheel(cache.parent.parent / "wheels", files, "0.19.3")
    answer = call("with", "fast", "--library", library, "--target", "pypi:0.19.3", "--", "true")
    assert (answer.code, "pip unpacked vllm 0.19.3 elsewhere" in answer.err) == (1, True)
    assert not (cache / "vllm-0.19.3").exists()
    answer = call("bench", "plain", "plain", "--target", "pypi:0.19.1", "--", "vllm", "serve", "m")
    assert (answer.code, "pypi:0.19.1: no such file or folder" in answer.err) == (2, True)


def test_a_half_made_copy_is_never_used(with_mods: Run, cache: Path) -> None:
    assert with_mods("true").returncode == 0
    (copy,) = copies(cache)
    copy.rename(f"{copy}.new")
    (Path(f"{copy}.new") / "vllm/loader.py").unlink()
    assert with_mods("true").returncode == 0
    assert copies(cache) == [copy]
    assert vm.status(copy).ok


def test_a_cache_of_somebody_else_is_refused(
    call: Call, site: Path, cache: Path, tmp_path: Path
) -> None:
    cache.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    answer = call("with", "fast", "--target", site, "--", "true")
    assert answer.code == 3
    assert f"{cache} was not created by vllm-mods" in answer.err


def test_variables_of_mods_are_set_beside_those_of_the_caller(
    with_mods: Run, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = library / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text() + '\n[env]\nVLLM_ONE = "mod"\nVLLM_TWO = "mod"\n')
    monkeypatch.setenv("VLLM_TWO", "mine")
    code = "import os, json; print(json.dumps([os.environ['VLLM_ONE'], os.environ['VLLM_TWO']]))"
    answer = with_mods(sys.executable, "-c", code)
    assert json.loads(answer.stdout) == ["mod", "mine"], answer.stderr


def test_copied_files_can_be_written_by_who_made_them(
    site: Path, library: Path, cache: Path
) -> None:
    (site / "vllm/__init__.py").chmod(0o444)
    with vm.shadow(vm.Library(str(library)).mods("fast"), site) as copy:
        mode = stat.S_IMODE(os.stat(f"{copy.root}/vllm/__init__.py").st_mode)
    assert mode == 0o644
    assert cache.exists()
