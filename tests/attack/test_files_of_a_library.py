"""A mod whose files are no files: links out of it, pipes, sockets, devices, endless and too large ones."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError
from vllm_mods.cli import run
from vllm_mods.library import reading
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFEST = """\
schema = 1
name = "bad"
version = "1.0.0"
summary = "s"
license = "MIT"

[[variant]]
id = "a"
vllm = ">=0.1"
patches = ["x.patch"]
overlay = [{ source = "files/leak.py", path = "vllm/leak.py" }]
templates = [{ name = "chat", file = "chat.jinja" }]
"""
PATCH = b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-A = 1\n+A = 2\n"
FILES = {
    "patches/bad/mod.toml": MANIFEST.encode(),
    "patches/bad/mod.lock": b"{}",
    "patches/bad/x.patch": PATCH,
    "patches/bad/files/leak.py": b"LEAK = 1\n",
    "templates/chat/template.jinja": b"{{ messages }}",
    "pairings/pair.toml": b'schema = 1\nname = "pair"\n',
}


def link_to_secret(place: Path) -> None:
    place.symlink_to("/etc/passwd")


def link_to_zero(place: Path) -> None:
    place.symlink_to("/dev/zero")


def sock(place: Path) -> None:
    here = os.getcwd()
    os.chdir(place.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def device(place: Path) -> None:
    try:
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        place.open("rb").close()
    except PermissionError:
        pytest.skip("no device can be made here")


def folder_link(place: Path) -> None:
    """Put a link where the folder of the file was; the file behind it is one."""
    behind = place.parent.with_name("behind")
    place.parent.rename(behind)
    (behind / place.name).write_bytes(b"x")
    place.parent.symlink_to(behind)


KINDS = {
    "a symbolic link": (link_to_secret, link_to_zero, folder_link),
    "not a regular file": (os.mkfifo, sock, device),
}
CASES = [(what, make) for what, makers in KINDS.items() for make in makers]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / "library" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "library" / name).write_bytes(data)
    (tmp_path / "site/vllm").mkdir(parents=True)
    (tmp_path / "site/vllm/__init__.py").write_bytes(b"")
    (tmp_path / "site/vllm/a.py").write_bytes(b"A = 1\n")
    return tmp_path / "library"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the tool with as much time and memory as it may take; what hangs or eats fails here."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            code = 9
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)
                has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (has + (1 << 30), has + (1 << 30)))
                sys.stdout, sys.stderr = out, err
                code = run([*map(str, arguments)])
                out.flush()
                err.flush()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@pytest.mark.parametrize("file", [name for name in FILES if name != "pairings/pair.toml"])
@pytest.mark.parametrize(("what", "make"), CASES, ids=[make.__name__ for _, make in CASES])
def test_what_is_no_file_of_the_mod_is_refused_by_its_name(
    library: Path, file: str, what: str, make: Callable[[Path], object]
) -> None:
    (library / file).unlink()
    make(library / file)
    with pytest.raises(ManifestError, match=what) as caught:
        Library(library).load("bad")
    assert os.path.basename(file) in str(caught.value) or make is folder_link


@pytest.mark.parametrize(("what", "make"), CASES, ids=[make.__name__ for _, make in CASES])
def test_a_pairing_that_is_no_file_is_refused_by_its_name(
    library: Path, what: str, make: Callable[[Path], object]
) -> None:
    (library / "pairings/pair.toml").unlink()
    make(library / "pairings/pair.toml")
    with pytest.raises(ManifestError, match=what):
        Library(library).pairing("pair")


def test_a_link_out_of_the_mod_brings_no_secret_into_the_tree(library: Path) -> None:
    secret = library.parent / "secret"
    secret.write_text("TOKEN = 'x'\n")
    for name in ("patches/bad/mod.lock", "patches/bad/files/leak.py"):
        (library / name).unlink()
    (library / "patches/bad/files/leak.py").symlink_to(secret)
    site = library.parent / "site"
    done = command("apply", "bad", "--library", library, "--target", site)
    assert done.returncode == 2
    assert "leak.py is a symbolic link" in done.stderr
    assert sorted(os.listdir(site / "vllm")) == ["__init__.py", "a.py"]


COMMANDS = {
    "apply": ("apply", "bad", "--target", "{site}"),
    "check": ("check", "bad", "--target", "{site}"),
    "list": ("list",),
    "show": ("show", "bad"),
    "matrix": ("matrix", "bad", "--tree", "{site}"),
    "port": ("port", "bad", "--to", "{site}"),
    "export": ("export", "bad", "--output", "{site}/out"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("file", ["mod.toml", "files/leak.py"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_waits_for_a_pipe_or_reads_an_endless_file(
    library: Path, name: str, file: str
) -> None:
    place = library / "patches/bad" / file
    arguments = [
        one.format(site=library.parent / "site", library=library) for one in COMMANDS[name]
    ]
    for make in (os.mkfifo, link_to_zero):
        place.unlink()
        make(place)
        done = command(*arguments, "--library", library)
        assert done.returncode in {1, 2}, done.stdout + done.stderr
        assert place.name in done.stdout + done.stderr


@pytest.mark.slow
def test_template_commands_do_not_either(library: Path) -> None:
    for name in ("template.jinja", "template.toml", "conversations/a.json"):
        place = library / "templates/chat" / name
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        os.mkfifo(place)
        done = command("template", "check", "chat", "--library", library)
        assert done.returncode == 2
        assert f"{name}: 1 problem\n  is not a regular file" in done.stderr
        place.unlink()
        if name == "template.jinja":
            place.write_bytes(b"{{ messages }}")


def test_a_list_of_hashes_that_is_a_pipe_is_not_waited_for(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(library / "SHA256SUMS")
    policy = tmp_path / "policy.toml"
    policy.write_text(f'schema = 1\n[trust]\nrequire_hashes = ["sha256:{"0" * 64}"]\n')
    monkeypatch.setenv("VLLM_MODS_CONFIG", str(policy))
    done = command("apply", "bad", "--library", library, "--target", tmp_path / "site")
    assert done.returncode in {2, 3}
    assert "SHA256SUMS" in done.stderr


def test_import_does_not_wait_for_a_script_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.sh")
    done = command("import", tmp_path)
    assert done.returncode == 2, done.stdout
    assert "run.sh" in done.stderr


@pytest.mark.slow
def test_a_file_of_more_than_its_limit_is_refused_unread(library: Path) -> None:
    for name in ("mod.toml", "mod.lock", "x.patch"):
        place = library / "patches/bad" / name
        with place.open("ab") as file:
            file.truncate(1 << 40)
        done = command("check", "bad", "--library", library, "--target", library.parent / "site")
        assert done.returncode == 2
        assert f"{name}" in done.stderr
        assert "has more than" in done.stderr
        place.write_bytes(FILES[f"patches/bad/{name}"])


def test_of_a_file_that_is_too_large_not_a_byte_is_read(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = library / "patches/bad/x.patch"
    os.truncate(place, limits.PATCH + 1)
    monkeypatch.setattr(os, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ManifestError, match="has more than 4 MiB"):
        reading.read(str(place), str(library))


def test_all_of_a_mod_has_a_limit(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "MOD_BYTES", 10)
    with pytest.raises(ManifestError, match="the limit is 10 bytes"):
        Library(library).load("bad")


def test_a_library_that_is_named_by_a_link_is_read(library: Path) -> None:
    (library / "patches/bad/mod.lock").unlink()
    link = library.with_name("link")
    link.symlink_to(library)
    assert Library(link).load("bad").variants[0].overlay[0].data == b"LEAK = 1\n"


def test_a_mod_that_is_a_link_into_another_folder_is_none_of_the_library(library: Path) -> None:
    elsewhere = library.with_name("elsewhere")
    (library / "patches/bad").rename(elsewhere)
    (library / "patches/bad").symlink_to(elsewhere)
    with pytest.raises(ManifestError, match="patches/bad: 1 problem\n  is a symbolic link"):
        Library(library).load("bad")
