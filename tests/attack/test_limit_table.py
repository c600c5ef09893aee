"""Every limit of the table is met: each is made small, and something goes past it."""

from __future__ import annotations

import ast
import contextlib
import gzip
import io
import os
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hybrid_checkpoints
import pytest
import toy_vllm
import tree_bomb
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from web_site import DRIPS, Site, moved, site

from vllm_mods.base import limits, line_diff, sessions, untrusted
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.model import Mod, OverlayFile, Variant
from vllm_mods.building import wheels
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.cli import named_files, run
from vllm_mods.formats import concrete_syntax, diff, receipt, syntax_tree, tars
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockedWheel
from vllm_mods.formats.project import LibrarySource
from vllm_mods.images import docker, engine_command, layer, names, oci
from vllm_mods.images.model import LINK, Descriptor, ImageEntry, resolve
from vllm_mods.images.registry import Client
from vllm_mods.keeping import forges
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.library import reading
from vllm_mods.making import folder, recording
from vllm_mods.placing import locate, scopes, target
from vllm_mods.placing.answers import Lost
from vllm_mods.planning import planner
from vllm_mods.plugins.reading import read_plugin
from vllm_mods.recipes import yaml_source
from vllm_mods.running import benched_start, engine, evidence, interpreter, starting
from vllm_mods.running.service import StartOptions, service
from vllm_mods.scripts import command_line
from vllm_mods.sharing import contents, repositories
from vllm_mods.site import site as writing
from vllm_mods.templates import parser_process, rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import Template
from vllm_mods.trees import git, git_process
from vllm_mods.trees.archive import TarArchive, ZipArchive
from vllm_mods.trees.http import Http
from vllm_mods.trees.index import parse_page
from vllm_mods.trees.pip_config import PipSettings

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = Conversation(name="hello", messages=({"role": "user", "content": "Hello"},))


def http(silence: float = 5.0) -> Http:
    return Http(PipSettings(retries=0, timeout=silence), backoff=0)


def client(url: str) -> Client:
    return Client(names.parse(f"{url[7:]}/a/b:c"), {"HOME": "/nonexistent"})


def served(answer: Callable[[Site], None], ask: Callable[[str], object]) -> object:
    paths = ("/x", *(f"/v2/a/b/{one}" for one in ("manifests/c", "blobs/sha256:00")))
    with site(dict.fromkeys(paths, answer)) as (url, _):
        return ask(url)


def dripped(ask: Callable[[str], object], head: bytes = DRIPS["body"][0]) -> object:
    return served(lambda one: one.drip(head, b"x", 0.05), ask)


def zipped(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, data in files:
            whole.writestr(name, data)
    return stream.getvalue()


def tarred(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as whole:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            whole.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def written(where: Path, data: bytes) -> str:
    (where / "x").write_bytes(data)
    return str(where / "x")


def imported(where: Path) -> object:
    (where / "mod").mkdir()
    for name in "abc":
        (where / "mod" / f"{name}.py").write_bytes(b"x" * 99)
    return folder.read(str(where / "mod"))


def shared(where: Path) -> object:
    (where / "patches/x").mkdir(parents=True)
    for name in ("mod.toml", "x.patch"):
        (where / "patches/x" / name).write_bytes(b"x" * 9)
    return contents.read_files(str(where))


def page(html: bytes) -> object:
    return parse_page(html, "text/html", "https://a.org/")


def after(count: int, tree: str = "x = 1\n") -> Any:
    patch = b"".join(diff_of(f"vllm/{n}.py", "a\nb\nc\n", "a\nz\nc\n") for n in range(count))
    there = {f"vllm/{n}.py": tree.encode() for n in range(count)}
    return planner.plan([mod(variant(patch))], MemoryTree({"vllm/__init__.py": b"", **there}))


def requests_of(url: str) -> object:
    environ = {"GITHUB_SERVER_URL": url, "GITHUB_TOKEN": "x"}
    return ForgeClient(forges.find(f"{url}/us/mods", environ), "x").list_all()


def looked_at(folder: Path, **config: object) -> object:
    files = (hybrid_checkpoints.int4("a"), hybrid_checkpoints.bf16("b"))
    place = hybrid_checkpoints.write_checkpoint(str(folder / "model"), files, config=config)
    return open_checkpoint(place)


def seen(pattern: str, message: str) -> evidence.ServerEvidence:
    brought = Variant("a", ">=0.1", overlay=(OverlayFile("m.py", "vllm/m.py", b""),))
    mod = Mod("m", "1", "s", "MIT", "", "", evidence=(("log", pattern),), variants=(brought,))
    line = f"(EngineCore pid=1) INFO 11-23 10:00:00 [m.py:1] {message}"
    return evidence.of_mods([mod], line.encode())


def logged(folder: Path) -> None:
    place = folder / "log"
    place.write_bytes(b"x" * 99)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert run(["evidence", "hybrid-int4-fp8", "--log", str(place)]) == 1
    raise ValueError(told.getvalue())


def waited(_: Path) -> None:
    wanted = Pairing("x", "s", "org/m", "base", "vllm serve org/m --port 1")
    one = service(wanted, StartOptions(), image="x", command="x", cache="/")
    there = engine.EngineContainer("docker", "x", {}, running=True, restarts=0, started="")
    with (
        mock.patch.object(engine, "container", return_value=there),
        mock.patch.object(engine, "log", return_value=b""),
    ):
        starting.wait(one, "docker", lambda *_: None)


def benched(folder: Path) -> None:
    """Measure a stand-in, whose client has no time."""
    (folder / "vllm").mkdir()
    (folder / "vllm/__init__.py").touch()
    (folder / "vllm/loader.py").touch()
    command = [sys.executable, toy_vllm.__file__, "serve"]
    environ = {**os.environ, "PYTHONPATH": str(folder), "TOY_FOLDER": str(folder)}
    benched_start.measure("A", command, environ, benched_start.BenchLoad(), str(folder / "log"))


def asked_what_it_imports(_: Path) -> None:
    interpreter.check_import([sys.executable, "-c", "1"], "/", "/", dict(os.environ))


def looked_for(_: Path) -> None:
    findings = after(3).mods[0].findings
    assert [one.message.endswith("its text is not in the file") for one in findings] == [
        False,
        True,
        True,
    ]
    raise ValueError("said")


def in_many_places(_: Path) -> None:
    (file,) = diff.parse(b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n a\n", "x")
    (lost,) = locate.place(file, target.Target(b"a\nb\n" * 9 + b"a\n", None))
    assert isinstance(lost, Lost)
    raise ValueError(lost.message)


def weighed(_: Path) -> None:
    assert line_diff.matching([b"a\n", b"b\n"] * 9, [b"b\n", b"a\n"] * 9) == []
    raise ValueError("all of it changed")


def silent(_: Path) -> object:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        return docker.connect()


def tool(where: Path) -> object:
    (where / "podman").write_text("#!/bin/sh\nexec sleep 9\n")
    (where / "podman").chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{where}:{os.environ['PATH']}")
        return engine_command.call("podman", "info")


def tried(_: Path) -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(concrete_syntax, "_TRIAL", "slow_module")
        return scopes.read_scopes(b"print 'x'\n" + b"(" * 900)


def recorded(command: str, seconds: float = 30) -> None:
    tree = MemoryTree({"vllm/__init__.py": b""}, version="0.19.1")
    recording.record(["bash", "-c", command], "x", {}, tree, recording.Limits(seconds=seconds))


def said(answer: object) -> None:
    raise ValueError(repr(answer))


class Circle:
    """An image in which each link leads to the next one."""

    reference = "x"

    def look(self, path: str) -> ImageEntry | None:
        number = path.removeprefix("l")
        return (
            ImageEntry(path, LINK, 0o777, 0, 0, 0, target=f"/l{int(number) + 1}")
            if number.isdigit()
            else None
        )


def store(data: bytes) -> Any:
    return type("Store", (), {"open": lambda *_: io.BytesIO(data)})()


def listed_commits(where: Path) -> object:
    import git as library  # noqa: TID251  (makes what is read)

    library.Repo.init(where).index.commit("first")
    return git.Repository(str(where)).commit("HEAD")


def taken_away(folder: Path) -> object:
    """Ask what a commit did that takes away a million files, each of them the same."""
    tree_bomb.write(folder, depth=6)
    repository = git.Repository(str(folder))
    older, newer = repository.commit("HEAD~1"), repository.commit("HEAD")
    return repository.line(older, newer)


def recipe_file(folder: Path) -> object:
    (folder / "x.yaml").write_bytes(b"x" * 99)
    return named_files.read(str(folder / "x.yaml"), limits.RECIPE)


def library_file(folder: Path, name: str) -> object:
    (folder / name).write_bytes(b"x" * 99)
    return reading.read(str(folder / name), str(folder))


def plugin_folder(folder: Path) -> object:
    (folder / "__init__.py").write_bytes(b"x = 1  # and more\n")
    return read_plugin(str(folder), pytest.fail)


def rendered(text: str) -> None:
    (one,) = rendering.render(Template("t", "x", text.encode()), (HELLO,)).rendered
    raise ValueError(one.error)


def parsers(text: str) -> None:
    parser_process.open_release(MemoryTree({"vllm/tool_parsers/__init__.py": text.encode()}))


def silence(_: Path) -> object:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return client(f"http://127.0.0.1:{server.getsockname()[1]}").manifest("x")


def paused(_: Path) -> object:
    started = time.monotonic()
    busy: Callable[[Site], None] = lambda one: one.say(503, Retry_After="99999")  # noqa: E731
    asking = Http(PipSettings(retries=1, timeout=5.0), backoff=0)
    try:
        return served(busy, lambda url: asking.page(f"{url}/x", "*/*"))
    finally:
        assert time.monotonic() - started < 5


def cloned(folder: Path) -> None:
    """Fetch a library of more than a few kilobytes."""
    (folder / "mods/patches").mkdir(parents=True)
    (folder / "mods/patches/much").write_bytes(os.urandom(100_000))
    for typed in (["init", "-q"], ["add", "-A"], [*BY_ME, "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", folder / "mods", *typed], check=True)
    repositories.fetch(LibrarySource("git", "./mods"), str(folder), None)


def waited_for_git(folder: Path) -> None:
    """Ask a server that says nothing, by ssh."""
    with mock.patch.dict(os.environ, {"GIT_SSH_COMMAND": "sleep 25 #"}):
        repositories.fetch(LibrarySource("git", "ssh://host/mods"), str(folder), None)


REFUSED = (
    VllmModsError,
    ValueError,
    tarfile.TarError,
    yaml_source.YamlError,
    command_line.ShellError,
    UnparsableError,
    syntax_tree.DeepError,
    *sessions.BROKEN,
)
LONG = b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-98/99\r\nContent-Length: 99\r\n\r\n"
BLOB = Descriptor("", "sha256:00", 100_000)
BY_ME = ("-c", "user.name=me", "-c", "user.email=me@example.org")
WHEEL = LockedWheel("x", "1", "x-1-py3-none-any.whl", "0" * 64)
HEADER = tarfile.TarInfo("x" * 3000).tobuf(tarfile.PAX_FORMAT)

ENOUGH: dict[
    str, tuple[float | None, str, Callable[[Path], object]]
] = {  # the value a limit is given, and what goes past it in a folder of its own
    "PAGE": (9, "more than 9 bytes", lambda _: page(b"<a href=x>x</a>")),
    "LINKS": (1, "more than 1 links", lambda _: page(b"<a href=x>x</a>" * 2)),
    "TAG": (9, "a tag of more than 9", lambda _: page(b"<!-- one that does not end")),
    "SPAN": (
        9,
        "the limit is 9 bytes",
        lambda _: served(
            lambda one: one.drip(LONG, b"x", 0), lambda url: http().span(f"{url}/x", 0, 99)
        ),
    ),
    "DOWNLOAD": (
        9,
        "/x sends more than 9 bytes",
        lambda _: served(
            lambda one: one.say(200, b"x" * 99),
            lambda url: http().download(f"{url}/x", io.BytesIO()),
        ),
    ),
    "ANSWER": (
        9,
        "manifest has more than 9 bytes",
        lambda _: served(
            lambda one: one.say(200, b"x" * 99), lambda url: client(url).manifest("x")
        ),
    ),
    "REQUESTS": (
        99,
        "more than 99 pull requests",
        lambda _: served(lambda one: one.say(200, b"[]"), requests_of),
    ),
    "REFUSAL": (
        9,
        "more than 9 bytes",
        lambda _: served(
            lambda one: one.say(404, b"x" * 9999),
            lambda url: sessions.session(0).get(f"{url}/x").content,
        ),
    ),
    "ANSWER_SECONDS": (
        0.2,
        "no complete answer within 0.2 seconds",
        lambda _: dripped(lambda url: http().page(f"{url}/x", "*/*")),
    ),
    "SPAN_SECONDS": (
        0.2,
        "no complete answer within 0.2 seconds",
        lambda _: dripped(lambda url: http().span(f"{url}/x", 0, 99), LONG),
    ),
    "DOWNLOAD_SECONDS": (
        0.2,
        "server took too long to answer|was interrupted",
        lambda _: dripped(lambda url: client(url).open(BLOB).read()),
    ),
    "SILENT_SECONDS": (0.2, "timed out", silence),
    "PAUSE_SECONDS": (0.1, "tried 2 times", paused),
    "REDIRECTS": (
        2,
        "Exceeded 2 redirects",
        lambda _: served(moved("/x"), lambda url: http().page(f"{url}/x", "*/*")),
    ),
    "TOOL_SECONDS": (0.2, "did not answer within 0.2", tool),
    "ENGINE_SECONDS": (0.2, "no docker engine responds", silent),
    "UNPACKED_FILE": (
        9,
        "more than 9 bytes",
        lambda where: writing.read(written(where, bytes(99))),
    ),
    "ZIP_DIRECTORY": (
        9,
        "its directory takes 47",
        lambda _: ZipArchive(io.BytesIO(zipped(("x", b""))), label="x"),
    ),
    "SDIST": (
        9,
        "unpacks to more than 9",
        lambda _: TarArchive(io.BytesIO(gzip.compress(tarred(("a/x", b"")))), label="x"),
    ),
    "WHEEL": (
        9,
        "unpacks to more than 9 bytes",
        lambda _: wheels.unpack(
            zipped(("x.py", bytes(99)), ("x-1.dist-info/RECORD", b"")), WHEEL, "s", epoch=0
        ),
    ),
    "MOD_BYTES": (9, "and 9 bytes", imported),
    "MOD_FILES": (2, "the limit is 2 files", imported),
    "RECORDED_BYTES": (
        1 << 20,
        "wrote more than 1 MiB",
        lambda _: recorded("for i in {1..9}; do truncate -s 999K /tmp/$i; done"),
    ),
    "RECORDED_FILES": (99, "more than 99 files", lambda _: recorded("touch /tmp/{1..200}")),
    "RECORDED_MEMORY": (
        32 << 20,
        "exit code 1|more than 32 MiB",
        lambda _: recorded("python3 -c 'x = b\"x\" * (99 << 20)'"),
    ),
    "RECORDED_OUTPUT": (99, "printed more than 99 bytes", lambda _: recorded("echo {1..99}")),
    "RECORDED_PROCESSES": (
        9,
        "exit code|more than 9 processes",
        # bash would wait for a process to end, and try again
        lambda _: recorded(
            "python3 -c 'import os, time; [os.fork() or time.sleep(60) for _ in range(20)]'"
        ),
    ),
    "LIBRARY": (9, "has more than 9 bytes", shared),
    "LIBRARY_FILES": (1, "or 1 files", shared),
    "CLONE": (4096, "more than 4 KiB", cloned),
    "GIT_MEMORY": (64 << 20, "cannot walk the history", taken_away),
    "CLONE_SECONDS": (1, "it did not finish within 1 second", waited_for_git),
    "GIT_OUTPUT": (20, "prints more than 20 bytes", listed_commits),
    "TAR_MEMBERS": (
        2,
        "more than 2 members",
        lambda _: list(tars.members(io.BytesIO(tarred(("a", b""), ("b", b""), ("c", b""))))),
    ),
    "TAR_HEADER": (
        9,
        "the limit is 9 bytes",
        lambda _: list(tars.members(io.BytesIO(HEADER + bytes(1024)))),
    ),
    "LAYER": (99, "more than 99 bytes", lambda _: layer.scan(io.BytesIO(tarred(("a", b""))), "x")),
    "LAYER_FILES": (
        1,
        "more than 1 files",
        lambda _: layer.scan(io.BytesIO(tarred(("a", b""), ("b", b""))), "x"),
    ),
    "DOCUMENT": (9, "too long", lambda _: oci.document_of(store(b"x").open, BLOB, "x")),
    "INDEXES": (
        0,
        "nested too deeply",
        lambda _: oci.pick(store(b"").open, BLOB, "x", oci.Choice(), depth=1),
    ),
    "LINKS_FOLLOWED": (3, "is a loop", lambda _: resolve(Circle(), "l0")),  # type: ignore[arg-type]
    "RECEIPT": (9, "more than 9 bytes", lambda _: receipt.parse(b"{}" + b" " * 99)),
    "MANIFEST": (9, "more than 9 bytes", lambda _: untrusted.toml_of(b"x = 1\n" * 9, "x")),
    "DOTS": (9, "more than 9 dots", lambda _: untrusted.toml_of(b"a" + b".a" * 20 + b" = 1", "x")),
    "LIBRARY_TEXT": (9, "more than 9 bytes", lambda at: library_file(at, "x.jinja")),
    "PLUGIN": (9, "more than 9 bytes", plugin_folder),
    "SIGNATURE": (9, "more than 9 bytes", lambda at: library_file(at, "SHA256SUMS.sig")),
    "PATCH": (99, "more than 99 bytes", lambda _: after(3)),
    "HUNKS": (2, "more than 2 hunks", lambda _: after(3)),
    "NESTING": (
        9,
        "nested too deeply",
        lambda _: untrusted.toml_of(b"a = " + b"[" * 20 + b"]" * 20, "x"),
    ),
    "RECIPE_VALUES": (
        9,
        "more than 9 values",
        lambda _: yaml_source.load("a: [" + "1," * 20 + "]"),
    ),
    "RECIPE": (9, "more than 9 bytes", recipe_file),
    "PYTHON_NESTING": (
        9,
        "nested too deeply",
        lambda _: syntax_tree.check_depth(ast.parse("-" * 30 + "x")),
    ),
    "PYTHON_OPERANDS": (
        9,
        "nested too deeply",
        lambda _: syntax_tree.check_depth(ast.parse("x" + " and x" * 30)),
    ),
    "TRIAL_SECONDS": (0.2, "within 0.2 seconds", tried),
    "STDERR": (9, "'fatal: no'", lambda at: said(git_process.run(str(at), ("log",), os.environ))),
    "SERVE_COMMAND": (9, "the limit is 9", lambda _: command_line.read("echo " * 9)),
    "TEMPLATE": (
        9,
        "at most 9 bytes",
        lambda _: rendering.render(Template("t", "x", b"x" * 99), (HELLO,)),
    ),
    "PROMPT": (None, "more than 16,777,216 letters", lambda _: rendered("{{ 'x' * 17000000 }}")),
    "TEMPLATE_SECONDS": (
        1,
        "more than 1 seconds",
        lambda _: rendered(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
        ),
    ),
    "TEMPLATE_MEMORY": (
        256 << 20,
        "MemoryError|more than 256 MiB",
        lambda _: rendered("{% set x = 'x' * 999999999 %}{{ x }}"),
    ),
    "PARSER_SECONDS": (1, "more than 1 seconds", lambda _: parsers("while True: pass")),
    "PARSER_OUTPUT": (
        1 << 20,
        "more than 1 MiB",
        lambda _: parsers("import sys\nwhile True: sys.stdout.write('x' * 9999)"),
    ),
    "CHECKPOINT_CONFIG": (9, "is 9 bytes", lambda at: looked_at(at, a="x" * 9)),
    "CHECKPOINT_INDEX": (9, "is 9 bytes", looked_at),
    "SAFETENSORS_HEADER": (9, "is 9 bytes", looked_at),
    "SHARDS": (1, "the limit is 1 files", looked_at),
    "TENSORS": (2, "more than 2 tensors", looked_at),
    "LOG": (9, "only the first 9 bytes", logged),
    "LOG_LINE": (99, "SILENT|silent", lambda _: said(seen("b", "a" * 99 + "b").mods)),
    "IMPORT_SECONDS": (0, "timed out after 0 seconds", asked_what_it_imports),
    "START_SECONDS": (0, "within 0 seconds", waited),
    "BENCH_SECONDS": (0, "timed out after 0 seconds", benched),
    "EVIDENCE_SECONDS": (1, "took more than 1 seconds", lambda _: seen("(a+)+$", "a" * 99 + "b")),
    "PLACES": (3, "more than 3 places", in_many_places),
    "EXPLAINED": (1, "said", looked_for),
    "EQUAL_PAIRS": (9, "all of it changed", weighed),
}


def test_each_limit_has_its_attack() -> None:
    assert list(ENOUGH) == list(limits.table())


@pytest.mark.slow
@pytest.mark.sampled(21)
@pytest.mark.parametrize("name", ENOUGH)
def test_a_limit_is_met(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value, why, attack = ENOUGH[name]
    if value is not None:
        lower(monkeypatch, name, value)
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    started = time.monotonic()
    with pytest.raises(REFUSED, match=why):
        attack(tmp_path)
    assert time.monotonic() - started < 30
