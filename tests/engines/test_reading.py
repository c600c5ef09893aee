"""Images read out of real engines and registries: the same files everywhere, and nothing left behind."""

from __future__ import annotations

import base64
import gc
import json
import os
import stat
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from real_engines import PASSWORD, REAL, SITE, USER, Engine, need, started

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.cli import run
from vllm_mods.images.model import resolve
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from making_images import Image
    from real_engines import Registry

    from vllm_mods.images.model import Base


@pytest.fixture
def oci(small_base: Image, tmp_path: Path) -> Iterator[Base]:
    """Return the base as it was made, to compare with."""
    base = open_base(
        f"oci:{small_base.layout(tmp_path / 'layout', 'gzip')}", cache_dir=str(tmp_path / "cache")
    )
    yield base
    base.close()


def same_files(one: Base, other: Base) -> None:
    """Compare what matters to a layer: every field of every entry, and contents."""
    # Not etc: docker puts hosts, hostname and the like into every container, a created one too.
    for folder in (SITE, "usr/local/bin", "root"):
        mine = {entry.path: entry for entry in one.paths(folder)}
        theirs = {entry.path: entry for entry in other.paths(folder)}
        assert mine == theirs, folder
    for path in ("tmp", "root", "lib", "usr", SITE, f"{SITE}/vllm", "nothing", "lib/python3"):
        assert one.entry(path) == other.entry(path), path
    for path in (f"{SITE}/vllm/a.py", "etc/passwd", f"{SITE}/vllm/none.py", "lib", "tmp", "lib/x"):
        assert one.read(path) == other.read(path), path
    for path in ("/lib/x/../y", f"lib/../{SITE}/vllm/a.py", "nothing/at/all"):
        assert resolve(one, path) == resolve(other, path), path


def test_docker_gives_what_went_in(docker_small: Engine, oci: Base) -> None:
    base = open_base("localhost/small")
    try:
        same_files(base, oci)
        assert base.config_digest == docker_small("inspect", "-f", "{{.Id}}", "localhost/small")
        assert base.diff_ids == oci.diff_ids
        told, made = json.loads(base.config), json.loads(oci.config)
        for key in ("architecture", "os", "config", "rootfs", "created"):
            assert told[key] == made[key]
        assert docker_small("ps", "-aq", "--filter", "label=vllm-mods.reading")
    finally:
        base.close()


def test_layers_cover_each_other_in_docker_too(docker_small: Engine, tmp_path: Path) -> None:
    """Whiteouts, a folder made anew and a file in place of a folder, made by a real builder."""
    (tmp_path / "Dockerfile").write_text(
        "FROM localhost/small\n"
        f'RUN ["python3", "-Bc", "import os,shutil; s=\'/{SITE}/vllm\'; os.unlink(s+\'/b.py\');'
        " shutil.rmtree(s+'/sub'); os.mkdir(s+'/sub'); open(s+'/sub/new.py','w');"
        " shutil.rmtree(s+'/__pycache__'); open(s+'/__pycache__','w')\"]\n"
    )
    docker_small("build", "--network", "none", "-t", "localhost/covered", tmp_path)
    docker_small("save", "-o", tmp_path / "saved.tar", "localhost/covered")
    need("skopeo")
    layout = f"oci:{tmp_path}/layout"
    command = ["skopeo", "copy", "-q", f"docker-archive:{tmp_path / 'saved.tar'}", layout]
    subprocess.run(command, check=True)
    saved = open_base(layout, cache_dir=str(tmp_path / "cache"))
    seen = {entry.path.removeprefix(f"{SITE}/vllm/") for entry in saved.paths(f"{SITE}/vllm")}
    assert {"sub", "sub/new.py", "__pycache__", "a.py"} <= seen
    assert not {"b.py", "sub/c.py", "sub/__init__.py"} & seen
    base = open_base("docker:localhost/covered")
    try:
        mine = {entry.path: entry for entry in base.paths(f"{SITE}/vllm")}
        assert mine == {entry.path: entry for entry in saved.paths(f"{SITE}/vllm")}
        assert base.read(f"{SITE}/vllm/sub/c.py") is None
    finally:
        base.close()
    saved.close()


def test_a_running_container_as_it_is_now(docker_small: Engine) -> None:
    code = f"open('/{SITE}/vllm/a.py', 'w').write('A = 9\\n'); import time; time.sleep(60)"
    name = docker_small(
        "run", "-d", "--network=none", "localhost/small", "python3", "-u", "-c", code
    )
    found = None
    try:
        for _ in range(50):
            base = open_base(f"container:{name}")
            found = base.read(f"{SITE}/vllm/a.py")
            base.close()
            if found == b"A = 9\n":
                break
        assert found == b"A = 9\n"
    finally:
        docker_small("rm", "-f", "-v", name)
    with pytest.raises(UsageError, match="has no container"):
        open_base(f"container:{name}")


def test_an_image_that_is_not_there(docker_small: Engine) -> None:
    assert docker_small("images", "-q", "localhost/none") == ""
    with pytest.raises(UsageError, match="has no image localhost/none") as caught:
        open_base("docker:localhost/none")
    assert caught.value.hint == "docker pull localhost/none"


def test_no_container_is_left_by_a_command_that_fails(
    docker_small: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["image", "inspect", "docker:localhost/small"]) == 0
    assert run(["check", "no-such-mod", "--target", "image:localhost/small"]) == 2
    assert "no-such-mod" in capfd.readouterr().err
    assert docker_small("ps", "-aq") == ""


# The connections that the engine broke off are left to the garbage collector by docker's library.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_stops_in_the_middle(
    small_archive: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("dockerd", "docker")
    daemon = started(tmp_path_factory.mktemp("stopping"))
    with daemon as engine:
        engine("load", "-i", small_archive)
        monkeypatch.setenv("DOCKER_HOST", engine.environ["DOCKER_HOST"])
        base = open_base("docker:localhost/small")
        assert base.read(f"{SITE}/vllm/a.py") == b"A = 1\n"
        daemon.kill()
        with pytest.raises(TreeError, match="the engine stopped in the middle") as caught:
            base.read(f"{SITE}/numpy-2.0.dist-info/RECORD")
        assert caught.value.hint
        with pytest.raises(TreeError, match="could not be removed"):
            base.close()
        del caught  # It holds the frames, and they the sockets that could not connect.
        gc.collect()


def test_podman_gives_what_went_in(
    buildah: Engine, oci: Base, small_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("podman")
    for name, value in buildah.environ.items():
        monkeypatch.setenv(name, value)
    buildah("pull", "-q", f"docker-archive:{small_archive}")
    base = open_base("podman:localhost/small:latest")
    try:
        assert base.where == "podman"
        same_files(base, oci)
        assert base.config == oci.config
        assert base.diff_ids == oci.diff_ids
        assert base.manifest is not None
        assert base.layers is not None
    finally:
        base.close()
    assert buildah("containers", "-q") == ""
    with pytest.raises(UsageError, match="podman has no image localhost/none"):
        open_base("podman:localhost/none")


def test_links_in_a_mounted_image_do_not_lead_out(
    buildah: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from making_images import Image, Link, Thing, layer

    need("podman")
    for name, value in buildah.environ.items():
        monkeypatch.setenv(name, value)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x").write_text("of this machine")
    things: dict[str, Thing] = {"out": Link(str(secret)), "file": Link(f"{secret}/x"), "a": b"a"}
    image = Image([layer(things)], name="localhost/links:latest")
    buildah("pull", "-q", f"docker-archive:{image.archive(tmp_path / 'i.tar')}")
    base = open_base("podman:localhost/links")
    try:
        assert base.read("a") == b"a"
        assert base.read("out/x") is None
        assert base.read("file") is None
        assert base.entry("out/x") is None
        assert resolve(base, "out/x") == f"{secret}/x".lstrip("/")
    finally:
        base.close()


def push(registry: Registry, archive: Path, name: str, *login: str) -> str:
    target = f"{registry.host}/{name}"
    subprocess.run(
        ["skopeo", "copy", "-q", "--dest-tls-verify=false", *login, f"oci-archive:{archive}",
         f"docker://{target}"],
        check=True,
    )  # fmt: skip
    return target


def test_a_registry_gives_what_went_in(
    registry: Registry, oci: Base, small_archive: Path, tmp_path: Path
) -> None:
    target = push(registry, small_archive, "some/small:1")
    cache = str(tmp_path / "other")
    base = open_base(f"registry:{target}", cache_dir=cache)
    same_files(base, oci)
    assert base.config == oci.config
    assert base.manifest_digest is not None
    pinned = f"registry:{registry.host}/some/small@{base.manifest_digest}"
    again = open_base(pinned, cache_dir=cache)
    assert again.manifest == base.manifest
    with pytest.raises(UsageError, match="has no such image"):
        open_base(f"registry:{registry.host}/some/none:1")
    with pytest.raises(TreeError, match="cannot be read with --offline"):
        open_base(pinned, offline=True)


def test_a_registry_that_wants_a_login(
    locked_registry: Registry, small_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = f"{USER}:{PASSWORD}"
    target = push(locked_registry, small_archive, "small:1", "--dest-creds", login)
    home = tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))

    def read() -> bytes | None:
        base = open_base(f"registry:{target}", cache_dir=str(tmp_path / "cache"))
        return base.read(f"{SITE}/vllm/a.py")

    with pytest.raises(TreeError, match=r"401 Unauthorized \(asked without a login\)") as caught:
        read()
    assert caught.value.hint == f"docker login {locked_registry.host}"
    settings = home / ".docker/config.json"

    def entry(text: str) -> dict[str, object]:
        return {"auths": {locked_registry.host: {"auth": base64.b64encode(text.encode()).decode()}}}

    settings.write_text(json.dumps(entry(f"{USER}:wrong")))
    with pytest.raises(TreeError, match=f"asked as {USER}"):
        read()
    settings.write_text(json.dumps(entry(login)))
    assert read() == b"A = 1\n"
    # Podman's file, which comes first, by the name of a part of the host.
    settings.write_text(json.dumps(entry(f"{USER}:wrong")))
    (home / "run/containers").mkdir(parents=True)
    podman = entry(login)["auths"]
    assert isinstance(podman, dict)
    named = {f"{locked_registry.host}/small": podman[locked_registry.host]}
    (home / "run/containers/auth.json").write_text(json.dumps({"auths": named}))
    assert read() == b"A = 1\n"
    (home / "run/containers/auth.json").unlink()
    # A credential helper.
    helper = home / "docker-credential-tests"
    helper.write_text(
        f'#!/bin/sh\necho \'{{"Username": "{USER}", "Secret": "{PASSWORD}", "ServerURL": "x"}}\'\n'
    )
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    settings.write_text(json.dumps({"credHelpers": {locked_registry.host: "tests"}}))
    assert read() == b"A = 1\n"
    helper.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(TreeError, match=r"the login for .* cannot be read"):
        read()


def test_a_registry_that_breaks_off_and_goes_on(
    registry: Registry, small_archive: Path, tmp_path: Path
) -> None:
    """A proxy in front ends the first answer for each blob early; the rest comes by range."""
    push(registry, small_archive, "breaking/small:1")
    asked: list[tuple[str, str | None]] = []
    proxy = breaking_proxy(registry.host, asked)
    try:
        host = f"127.0.0.1:{proxy.server_address[1]}"
        base = open_base(f"registry:{host}/breaking/small:1", cache_dir=str(tmp_path / "cache"))
        passwd = base.read("etc/passwd")  # in the lowest layer, of some megabytes
        assert passwd is not None
        assert passwd.startswith(b"root:")
    finally:
        proxy.shutdown()
        proxy.server_close()
    assert any(wanted for path, wanted in asked if "/blobs/" in path)


def breaking_proxy(upstream: str, asked: list[tuple[str, str | None]]):  # type: ignore[no-untyped-def]  # noqa: ANN201
    import http.client
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            asked.append((self.path, wanted))
            connection = http.client.HTTPConnection(upstream)
            headers = {key: value for key, value in self.headers.items() if key != "Host"}
            connection.request("GET", self.path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in {"connection", "transfer-encoding"}:
                    self.send_header(key, value)
            self.end_headers()
            cut = "/blobs/" in self.path and wanted is None and len(body) > 4000
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_python_runs_in_the_base(docker_small: Engine) -> None:
    code = "import vllm.a, sys; print(vllm.a.A, sys.prefix)"
    said = docker_small("run", "--rm", "--network=none", "localhost/small", "python3", "-c", code)
    assert said == "1 /usr/local"


@pytest.mark.network
def test_a_real_vllm_in_an_image_is_judged_as_its_sdist(
    dockerd: Engine,
    real_base: Image,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    dockerd("load", "-i", real_base.archive(tmp_path / "real.tar"))
    monkeypatch.setenv("DOCKER_HOST", dockerd.environ["DOCKER_HOST"])
    answers = []
    for target in (
        "image:localhost/real",
        f"image:oci:{real_base.layout(tmp_path / 'layout')}",
        f"pypi:{REAL}",
    ):
        assert run(["check", "hybrid-int4-fp8", "--target", target, "--json"]) == 0
        answer = json.loads(capfd.readouterr().out)
        assert answer["tree"]["version"] == REAL
        for mod in answer["mods"]:
            del mod["unexamined"]  # of a release not all files are read
        answers.append(answer["mods"])
    assert answers[0][0]["verdict"] == "applies"
    assert answers[0] == answers[1] == answers[2]
