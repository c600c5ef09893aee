"""Images and containers of a docker engine, by its API: what is read, what is left behind, what goes wrong."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import json
import os
import posixpath
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from lowering import lower
from making_images import ARCHITECTURE, File, Folder, Image, Link, Thing, digest, layer

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import docker
from vllm_mods.images.model import resolve
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.images.model import Base

FILES: dict[str, Thing] = {
    "srv": Folder(),
    "srv/link": Link("site"),
    "srv/site": Folder(),
    "srv/site/a.py": b"A = 1\n",
    "srv/site/big.py": bytes(2001),
    "srv/site/largest.py": bytes(2000),
    "srv/site/data.bin": b"data",
    "srv/site/data.json": b"{}",
    "srv/site/same.py": Link("srv/site/a.py", hard=True),
    "srv/siteless": Folder(0o1777, uid=7),
    "srv/siteless/b.py": b"B = 1\n",
    "void": b"",
}
IMAGE = Image([layer(FILES)], {"Env": ["PATH=/usr/bin"], "Labels": {"B": "1", "a": "ä"}})
NAME, CONTAINER = "docker:some/image:1", "c" * 64
ARCHIVE = f"/containers/{CONTAINER}/archive"
STAT = "X-Docker-Container-Path-Stat"
Answer = tuple[int, bytes]


class Engine:
    """An engine with an image and a container of it; ``answers`` go before what it would say.

    As docker's, it follows links on the way to a path and not at its end.
    """

    def __init__(self) -> None:
        self.info: dict[str, Any] = {"DriverStatus": [["Backing Filesystem", "extfs"]]}
        layers = [digest(tar) for tar in IMAGE.layers]
        self.image: dict[str, Any] = {
            "Id": digest(IMAGE.config),
            "Architecture": ARCHITECTURE,
            "Os": "linux",
            "GraphDriver": {"Name": "overlay2", "Data": {}},
            "Config": IMAGE.settings,
            "RootFS": {"Type": "layers", "Layers": layers},
        }
        self.answers: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.connections = 0
        self.bodies: list[dict[str, Any]] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                engine.answer(self)

            do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815  (the base's names)

            def setup(self) -> None:
                engine.connections += 1
                super().setup()

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # what was sent is not all read
                    super().handle()

            def finish(self) -> None:
                super().finish()
                engine.connections -= 1

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        verb = unquote(parts.path).removeprefix("/v1.43")
        given = {name: value for name, (value,) in parse_qs(parts.query).items()}
        line = " ".join((request.command, verb, *(f"{k}={v}" for k, v in sorted(given.items()))))
        self.requests.append(line)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.bodies += [json.loads(body)] if body else []
        usual, stat = self._usual(request.command, verb, given.get("path", "").strip("/"))
        status, data = self.answers.get(f"{request.command} {verb}", usual)
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.send_header(STAT, base64.b64encode(stat).decode())
        request.end_headers()
        request.wfile.write(b"" if request.command == "HEAD" else data)

    def _usual(self, command: str, verb: str, path: str) -> tuple[Answer, bytes]:
        documents: dict[str, object] = {
            "/version": {"ApiVersion": "1.43"},
            "/info": self.info,
            "/images/some/image:1/json": self.image,
            f"/images/{self.image['Id']}/json": self.image,
            "/containers/mine/json": {"Id": CONTAINER, "Image": self.image["Id"]},
            "/containers/create": {"Id": CONTAINER, "Warnings": []},
        }
        if verb in documents:
            return (200, json.dumps(documents[verb]).encode()), b""
        if command == "DELETE":
            return (204, b""), b""
        place = self._followed(path)
        if verb != ARCHIVE or (place and place not in FILES):
            return (404, b'{"message": "not there"}'), b""
        if command == "HEAD":
            kind = type(FILES.get(place, Folder()))
            mode = {Folder: 1 << 31, Link: 1 << 27}.get(kind, 0) | 0o755
            target = f"/{self._followed(f'{place}/x')[:-2]}" if kind is Link else ""
            return (200, b""), json.dumps({"mode": mode, "linkTarget": target}).encode()
        return (200, self._packed(place)), b""

    @staticmethod
    def _packed(place: str) -> bytes:
        """Return the tar of a path, which is in there by its last name; only in a folder has a file a second one."""

        def name(path: str) -> str:
            inner = posixpath.relpath(path, place or ".")
            top = posixpath.basename(place) or "."
            return top if inner == "." else posixpath.join(top, inner)

        things: dict[str, Thing] = {}
        for path, thing in FILES.items():
            if f"{path}/".startswith(f"{place}/" if place else ""):
                things[name(path)] = thing
                if isinstance(thing, Link) and thing.hard:
                    data = FILES[thing.target]
                    assert isinstance(data, bytes)
                    second = thing._replace(target=name(thing.target))
                    things[name(path)] = File(data, 0o777) if path == place else second
        return layer(things)

    def _followed(self, path: str) -> str:
        folder, name = posixpath.split(path)
        folder = self._followed(folder) if folder else ""
        thing = FILES.get(folder)
        if isinstance(thing, Link):
            folder = posixpath.join(posixpath.dirname(folder), thing.target)
        return posixpath.join(folder, name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    started = Engine()
    monkeypatch.setattr(docker, "_LARGEST_KEPT", 2000)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{started.server.server_port}")
    yield started
    started.server.shutdown()
    started.server.server_close()


@pytest.fixture
def base(engine: Engine) -> Iterator[Base]:
    opened = open_base(NAME)
    engine.requests.clear()
    yield opened
    engine.answers.clear()
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("listed", ["srv", None])
def test_an_engine_gives_the_files_that_a_layout_has(
    base: Base, tmp_path: Path, listed: str | None
) -> None:
    other = open_base(f"oci:{IMAGE.layout(tmp_path / 'l')}", cache_dir=str(tmp_path / "cache"))
    if listed is not None:
        mine = {entry.path: entry for entry in base.paths(listed)}
        assert mine == {entry.path: entry for entry in other.paths(listed)}
    more = ("srv/link/a.py", "srv/site/a.py/b", "srv/none", "none/a.py", "srv/none/a.py")
    for path in (*FILES, *more):
        assert base.entry(path) == other.entry(path), path
        assert base.read(path) == other.read(path), path
    assert resolve(base, "srv/link/../site/a.py") == "srv/site/a.py"
    assert (
        list(base.paths("void")) == list(base.paths("none")) == list(base.paths("srv/link")) == []
    )


def test_the_root_is_a_folder_with_everything(base: Base) -> None:
    assert sorted(entry.path for entry in base.paths("")) == sorted(FILES)
    root = base.entry("")
    assert root is not None
    assert (root.path, root.kind) == ("", "dir")


def test_what_was_listed_costs_no_further_request(base: Base, engine: Engine) -> None:
    assert len(list(base.paths("srv"))) == 10
    engine.requests.clear()
    assert base.read("srv/site/a.py") == b"A = 1\n"
    assert base.read("srv/site/largest.py") == bytes(2000)
    assert base.read("srv/site/data.json") == b"{}"
    assert base.entry("srv/site/none.py") is None
    assert [entry.path for entry in base.paths("srv/siteless")] == ["srv/siteless/b.py"]
    assert engine.requests == []
    assert base.read("srv/site/data.bin") == b"data"
    assert base.read("srv/site/big.py") == bytes(2001)
    assert len(engine.requests) == 2


def test_what_was_read_costs_no_further_request(base: Base, engine: Engine) -> None:
    paths = ("srv/site/a.py", "srv/site/largest.py", "srv/site/big.py", "srv/none")
    first = [base.read(path) for path in paths]
    engine.requests.clear()
    assert [base.read(path) for path in paths] == first
    assert engine.requests == []


def test_a_file_that_is_not_large_comes_with_its_entry(base: Base, engine: Engine) -> None:
    base.entry("srv/site/largest.py")
    base.entry("srv/site/big.py")
    engine.requests.clear()
    assert base.read("srv/site/largest.py") == bytes(2000)
    assert engine.requests == []
    assert base.read("srv/site/big.py") == bytes(2001)
    assert len(engine.requests) == 1


def test_the_kind_of_a_folder_is_all_that_is_asked_of_it(base: Base, engine: Engine) -> None:
    base.entry("srv/site/a.py")
    base.entry("srv/link/a.py")
    paths = [line.partition("path=")[::2] for line in engine.requests if "path=" in line]
    head, get = f"HEAD {ARCHIVE} ", f"GET {ARCHIVE} "
    assert paths == [
        (head, "/srv"),
        (head, "/srv/site"),
        (get, "/srv/site/a.py"),
        (head, "/srv/link"),
    ]


def test_what_is_looked_at_has_its_kind_and_a_link_where_it_ends(
    base: Base, engine: Engine
) -> None:
    engine.requests.clear()
    kinds = {
        path: base.look(path) for path in ("srv/siteless", "srv/site/a.py", "srv/link", "none")
    }
    assert {path: entry and (entry.kind, entry.target) for path, entry in kinds.items()} == {
        "srv/siteless": ("dir", ""),
        "srv/site/a.py": ("file", ""),
        "srv/link": ("link", "/srv/site"),
        "none": None,
    }
    assert [line.split()[0] for line in engine.requests].count("GET") == 0
    linked = base.entry("srv/link")
    assert linked is not None
    assert linked.target == "site"
    owned = base.entry("srv/siteless")
    assert owned is not None
    assert (owned.uid, owned.mode) == (7, 0o1777)


def test_what_is_listed_may_be_looked_at_and_read_meanwhile(base: Base) -> None:
    for entry in base.paths("srv/site"):
        assert base.look(f"none-{entry.path.count('/')}{len(entry.path)}") is None
        assert base.read(entry.path) is not None


def test_no_file_is_read_past_the_limit(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "UNPACKED_FILE", 2000)
    assert base.read("srv/site/largest.py") == bytes(2000)
    with pytest.raises(TreeError, match=r"broken or cut short: big\.py has more than 2,000 bytes"):
        base.read("srv/site/big.py")


def test_little_that_comes_first_in_a_folder_comes_with_it(
    base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    many: dict[str, Thing] = {f"many/{number:03}": Folder() for number in range(200)}
    monkeypatch.setattr(f"{__name__}.FILES", {**FILES, "many": Folder(), **many})
    assert base.entry("srv") is not None
    assert base.entry("many") is not None
    engine.requests.clear()
    passed = [base.entry(path) for path in ("srv/link", "srv/site", "many/050")]
    assert [entry and entry.kind for entry in passed] == ["link", "dir", "dir"]
    assert base.read("srv/site/a.py") == b"A = 1\n"
    assert engine.requests == []
    assert base.entry("srv/site/big.py") is not None
    assert base.entry("srv/site/none.py") is None
    assert base.entry("many/150") is not None
    assert [line.split()[0] for line in engine.requests] == ["GET", "GET", "GET"]


PACKAGES = "srv/python3-packages"
OF_IMAGE = ["/images/some/image:1/json"]


def test_a_vllm_without_large_files_comes_as_one_stream(
    base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = f"{PACKAGES}/vllm"
    inner: dict[str, Thing] = {site: Folder(), f"{site}/__init__.py": b"", f"{site}/x": Folder()}
    inner |= {f"{site}/x/a.py": b"A = 1\n", f"{site}/x/link": Link("/etc"), f"{site}/x/y": Folder()}
    monkeypatch.setattr(f"{__name__}.FILES", {**FILES, PACKAGES: Folder(), **inner})
    assert base.look(f"{site}/__init__.py") is not None
    engine.requests.clear()
    assert base.read(f"{site}/x/a.py") == b"A = 1\n"
    assert [base.entry(f"{site}/x/{name}") for name in ("none.py", "link/passwd", "y/z")] == [
        None,
        None,
        None,
    ]
    assert len(list(base.paths(site))) == 5
    assert engine.requests == []


def test_an_engine_with_another_store_says_where_it_is(engine: Engine) -> None:
    for name, asked in (("overlay2", 0), ("overlayfs", 1)):
        engine.requests.clear()
        engine.image["GraphDriver"] = {"Name": name}
        open_base(NAME).close()
        assert engine.requests.count("GET /info") == asked


def test_a_package_of_vllms_and_metadata_come_as_one_stream(
    base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = bytes(docker._LARGEST_PASSED + 1)
    inner = {
        "other/a.py": b"O = 1\n",
        "vllm/_C.so": large,
        "vllm/a.py": b"A = 1\n",
        "vllm/big/_C.so": large,
        "vllm/big/a.py": b"B = 1\n",
        "vllm/x/a.py": b"X = 1\n",
        "vllm/x/y/a.py": b"Y = 1\n",
        "vllm/x/y/z.json": b"{}",
        "vllm-1.dist-info/METADATA": b"Name: vllm\n",
        "vllm-1.dist-info/RECORD": b"vllm/a.py,,\n",
    }
    folders = {path.rpartition("/")[0] for path in inner} | {"vllm/x"}
    named = {path: Folder() for path in sorted(folders)} | inner
    more = {f"{PACKAGES}/{path}": thing for path, thing in sorted(named.items())}
    monkeypatch.setattr(f"{__name__}.FILES", {**FILES, PACKAGES: Folder(), **more})
    engine.requests.clear()
    for path in (
        "vllm/x/a.py",
        "vllm/x/y/a.py",
        "vllm-1.dist-info/METADATA",
        "vllm/a.py",
        "vllm/big/a.py",
    ):
        assert base.read(f"{PACKAGES}/{path}") == inner[path]
    assert base.read(f"{PACKAGES}/vllm-1.dist-info/RECORD") == b"vllm/a.py,,\n"
    assert base.entry(f"{PACKAGES}/vllm/x/none.py") is None
    assert base.entry(f"{PACKAGES}/vllm/x") is not None
    assert base.read(f"{PACKAGES}/other/a.py") == b"O = 1\n"
    read = [line.partition("path=")[2] for line in engine.requests if line.startswith("GET")]
    assert [path.removeprefix(f"/{PACKAGES}/") for path in read] == [
        "vllm",  # up to the large file
        "vllm/x",
        "vllm-1.dist-info",
        "vllm/a.py",
        "vllm/big",
        "vllm/big/a.py",
        "other/a.py",
    ]
    base.close()
    engine.requests.clear()
    with contextlib.closing(open_base(NAME)) as second:
        assert second.entry(f"{PACKAGES}/vllm/x/none.py") is None
        assert second.read(f"{PACKAGES}/vllm/x/a.py") == b"X = 1\n"
        assert [line.split()[1] for line in engine.requests[1:]] == OF_IMAGE


def test_an_image_that_was_read_before_is_not_asked_for_again(base: Base, engine: Engine) -> None:
    paths = ("srv/site/a.py", "srv/site/big.py", "srv/none", "srv/link/a.py", "none/a.py")
    first = [(base.entry(path), base.read(path), base.look(path)) for path in paths]
    listed = [*base.paths("srv/siteless")]
    base.close()
    engine.requests.clear()
    with contextlib.closing(open_base(NAME)) as second:
        again = [(second.entry(path), second.read(path), second.look(path)) for path in paths]
        assert again == first
        assert [*second.paths("srv/siteless")] == listed
    assert [line.split()[1] for line in engine.requests[1:]] == OF_IMAGE


def test_what_was_not_read_before_is_asked_for_and_kept_with_the_rest(
    base: Base, engine: Engine
) -> None:
    base.read("srv/site/a.py")
    base.close()
    for _ in range(2):
        engine.requests.clear()
        with contextlib.closing(open_base(NAME)) as again:
            assert again.read("srv/siteless/b.py") == b"B = 1\n"
            assert again.read("srv/site/a.py") == b"A = 1\n"
        assert not any("site/a.py" in line for line in engine.requests)
    assert [line.split()[1] for line in engine.requests[1:]] == OF_IMAGE


def test_another_image_of_the_name_one_built_here_and_a_container_are_asked_for(
    base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert base.read("srv/site/a.py") == b"A = 1\n"
    base.close()
    monkeypatch.setitem(FILES, "srv/site/a.py", b"A = 2\n")
    with contextlib.closing(open_base(NAME)) as same:
        assert same.read("srv/site/a.py") == b"A = 1\n"
    for name in (NAME, "container:mine"):
        engine.image["RootFS"] = {"Layers": ["sha256:other"]}
        with contextlib.closing(open_base(name)) as other:
            assert other.read("srv/site/a.py") == b"A = 2\n"
    engine.image["Config"] = {"Labels": {"vllm-mods.lock": "sha256:1"}}
    for data in (b"A = 3\n", b"A = 4\n"):
        monkeypatch.setitem(FILES, "srv/site/a.py", data)
        for name in (NAME, "container:mine"):  # what was built here is verified
            with contextlib.closing(open_base(name)) as live:
                assert live.read("srv/site/a.py") == data


def test_what_is_kept_of_an_image_and_is_broken_is_read_anew(base: Base, engine: Engine) -> None:
    assert base.read("srv/site/a.py") == b"A = 1\n"
    base.close()
    folder = Path(os.environ["VLLM_MODS_CACHE"])
    (record,) = (path for path in (folder / "engine-images").rglob("*") if path.is_file())
    (blob,) = (path for path in (folder / "blobs").rglob("*") if path.is_file())
    whole = record.read_bytes()
    blob.write_bytes(b"A = 9\n")
    for text in (whole, b"{}", b"[]", b"null", whole[:99], b'{"entries": {"a": 1}, "looked": {}}'):
        record.write_bytes(text)
        engine.requests.clear()
        with contextlib.closing(open_base(NAME)) as again:
            assert again.read("srv/site/a.py") == b"A = 1\n"
        assert any(line.startswith("POST") for line in engine.requests), text
        blob.unlink(missing_ok=True)


def test_what_an_engine_says_of_an_image(base: Base) -> None:
    assert (base.reference, base.where) == (NAME, "docker")
    assert base.config_digest == digest(IMAGE.config)
    assert base.diff_ids == tuple(digest(tar) for tar in IMAGE.layers)
    assert (base.manifest, base.manifest_digest, base.layers) == (None, None, None)


LAYERS = '"rootfs":{"diff_ids":["sha256:a"],"type":"layers"}'


@pytest.mark.parametrize(
    ("inspected", "config"),
    [
        ({}, '{"rootfs":{"diff_ids":[],"type":"layers"}}'),
        ({"RootFS": {"Layers": ["sha256:a"]}, "Config": None, "Author": ""}, f"{{{LAYERS}}}"),
        (
            {"RootFS": {"Layers": None}, "Config": {"Cmd": None, "User": "", "Image": "x"}},
            '{"rootfs":{"diff_ids":[],"type":"layers"}}',
        ),
        (
            {
                "RootFS": {"Type": "layers", "Layers": ["sha256:a"]},
                "Os": "linux",
                "Variant": "v8",
                "Architecture": "arm64",
                "Author": "ä",
                "Created": "2017",
                "Size": 7,
                "Config": {"User": "0", "Cmd": ["x"], "ArgsEscaped": True, "Hostname": "h"},
            },
            (
                '{"architecture":"arm64","author":"ä",'
                '"config":{"ArgsEscaped":true,"Cmd":["x"],"User":"0"},'
                f'"created":"2017","os":"linux",{LAYERS},"variant":"v8"}}'
            ),
        ),
    ],
)
def test_the_configuration_is_made_of_what_inspect_tells(
    inspected: dict[str, Any], config: str
) -> None:
    assert docker.rebuilt(inspected).decode() == config


def test_an_image_without_layers(engine: Engine) -> None:
    engine.image["RootFS"] = None
    base = open_base(NAME)
    assert base.diff_ids == ()
    base.close()


def test_the_container_that_is_read_from_is_never_run_and_is_removed(
    base: Base, engine: Engine
) -> None:
    base.read("void")
    base.read("srv/none")
    (body,) = engine.bodies
    assert body["Image"] == engine.image["Id"]
    assert body["Cmd"] == ["-"]
    assert body["Labels"] == {"vllm-mods.reading": "1"}
    assert body["NetworkDisabled"] is True
    base.close()
    base.close()
    of_all = [line.split()[:2] for line in engine.requests if not line.startswith(("GET", "HEAD"))]
    assert of_all == [["POST", "/containers/create"], ["DELETE", f"/containers/{CONTAINER}"]]
    assert engine.requests[-1].endswith(" force=True link=False v=True")


def test_no_connection_to_an_engine_stays_open(base: Base, engine: Engine) -> None:
    assert engine.connections == 1
    base.close()
    until = time.monotonic() + 5
    while engine.connections and time.monotonic() < until:
        time.sleep(0.002)
    assert engine.connections == 0


def test_an_image_of_which_no_file_is_read_needs_no_container(base: Base, engine: Engine) -> None:
    base.close()
    assert engine.requests == []


def test_an_image_that_nobody_closes_leaves_no_container(engine: Engine) -> None:
    base = open_base(NAME)
    base.read("void")
    client = base._client  # type: ignore[attr-defined]
    del base
    gc.collect()
    assert engine.requests[-1].startswith(f"DELETE /containers/{CONTAINER} ")
    client.close()


def test_a_container_is_read_itself_and_stays(engine: Engine) -> None:
    base = open_base("container:mine")
    assert base.read("srv/site/a.py") == b"A = 1\n"
    assert base.config_digest == engine.image["Id"]
    base.close()
    assert {line.split()[0] for line in engine.requests} == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        (
            "docker:none",
            "docker:none: the docker engine here has no image none",
            "docker pull none",
        ),
        ("container:x", "container:x: the docker engine here has no container x", "docker ps -a"),
    ],
)
def test_what_an_engine_does_not_have(
    engine: Engine, reference: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        open_base(reference)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert engine.requests[0] == "GET /version"


def test_an_image_that_was_removed_meanwhile(base: Base, engine: Engine) -> None:
    engine.answers["POST /containers/create"] = (404, b'{"message": "No such image: x"}')
    with pytest.raises(TreeError, match="the engine refused: No such image: x"):
        base.read("void")


AGAIN = "try again; `docker version` shows whether the engine works"


@pytest.mark.parametrize(
    ("verb", "answer", "message"),
    [
        ("GET", (500, b'{"message": "no disk"}'), "/void: the engine answered 500: no disk"),
        ("GET", (500, b"[]"), "/void: the engine answered 500: Internal Server Error"),
        ("GET", (500, b"{}"), "/void: the engine answered 500: Internal Server Error"),
        ("GET", (500, b"{"), "/void: the engine answered 500: Internal Server Error"),
        ("GET", (200, layer({})), "the engine sent nothing for /void"),
        ("GET", (200, layer({"other/x": b""})[512:]), "the engine sent nothing for /void"),
        (
            "GET",
            (200, layer({"void": b"xy"})[:513]),
            "/void: broken or cut short: unexpected end of data",
        ),
        ("GET", (200, b"x" * 512), "/void: broken or cut short: invalid header"),
    ],
)
def test_an_engine_that_does_not_give_a_file(
    base: Base, engine: Engine, verb: str, answer: Answer, message: str
) -> None:
    engine.answers[f"{verb} {ARCHIVE}"] = answer
    with pytest.raises(TreeError) as caught:
        base.read("void")
    assert (caught.value.message, caught.value.hint) == (f"{NAME}: {message}", AGAIN)


@pytest.mark.parametrize(
    "stat",
    [
        *(b"", b"{", b"{}", b"7", b"[" * 30000),
        *(b'{"mode": "x"}', b'{"mode": null}', b'{"mode": 1e999}'),
    ],
    ids=range(8),
)
def test_an_engine_that_does_not_say_what_is_there(
    base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch, stat: bytes
) -> None:
    monkeypatch.setattr(engine, "_usual", lambda *_: ((200, b'{"Id": "c"}'), stat))
    with pytest.raises(TreeError) as caught:
        base.read("srv/void")
    message = f"{NAME}: /srv: the engine answered 200 without a valid X-Docker-Container-Path-Stat"
    assert (caught.value.message, caught.value.hint) == (message, AGAIN)


def test_a_container_that_goes_while_it_is_read_is_told(base: Base, engine: Engine) -> None:
    base.look("void")
    engine.answers[f"HEAD {ARCHIVE}"] = (404, b"")
    message = f"{NAME}: the container was removed while it was being read"
    assert base.look("srv/none") is None
    with pytest.raises(TreeError) as caught:
        base.close()
    assert (caught.value.message, caught.value.hint) == (message, AGAIN)
    engine.answers[f"GET {ARCHIVE}"] = (404, b'{"message": "No such container: x"}')
    assert base.read("void") is None
    with pytest.raises(TreeError, match="was removed"):
        base.close()


def test_a_file_that_goes_while_it_is_asked_for(base: Base, engine: Engine) -> None:
    engine.answers[f"GET {ARCHIVE}"] = (404, b"")
    assert base.read("void") is None
    assert list(base.paths("")) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"message": "no disk"}', "no disk"), (b"odd", "odd"), (b"", "500 Server Error")],
)
def test_an_engine_that_refuses(engine: Engine, body: bytes, words: str) -> None:
    engine.answers["GET /images/some/image:1/json"] = (500, body)
    with pytest.raises(TreeError) as caught:
        open_base(NAME)
    assert caught.value.message.startswith(f"{NAME}: the engine refused: {words}")
    assert caught.value.hint == AGAIN


def test_a_container_that_cannot_be_removed_is_named(base: Base, engine: Engine) -> None:
    base.read("void")
    engine.answers[f"DELETE /containers/{CONTAINER}"] = (500, b'{"message": "busy"}')
    with pytest.raises(TreeError) as caught:
        base.close()
    short = CONTAINER[:12]
    prefix = f"the container {short}, whose files were read, could not be removed: "
    assert caught.value.message.startswith(f"{prefix}500 Server Error")
    assert caught.value.hint == f"docker rm -v {short}"


def test_a_container_that_somebody_has_removed_already(base: Base, engine: Engine) -> None:
    base.read("void")
    engine.answers[f"DELETE /containers/{CONTAINER}"] = (404, b'{"message": "No such container"}')
    base.close()


# docker's library leaves a connection that broke to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_stops(base: Base, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    base.read("void")
    monkeypatch.setattr(engine, "answer", lambda request: request.connection.shutdown(SHUT_RDWR))
    with pytest.raises(TreeError, match=f"{NAME}: the engine stopped in the middle: ") as caught:
        base.read("srv/site/a.py")
    assert caught.value.hint == AGAIN
    monkeypatch.undo()
    del caught
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["HEAD", "GET"])
def test_an_engine_that_says_nothing_is_not_waited_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    lower(monkeypatch, "ENGINE_SECONDS", 0.1)
    base = open_base(NAME)
    base.entry("srv")
    answer = engine.answer
    silent = threading.Event()
    monkeypatch.setattr(
        engine, "answer", lambda to: silent.wait(5) if to.command == command else answer(to)
    )
    with pytest.raises(TreeError, match=r"the engine stopped in the middle: .*timed out"):
        base.read("srv/siteless/b.py")
    silent.set()
    monkeypatch.undo()
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    base.close()


def test_the_engine_is_that_of_the_context_if_no_variable_names_one(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"tcp://127.0.0.1:{engine.server.server_port}"
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"currentContext": "mine"}')
    place = tmp_path / "contexts/meta" / hashlib.sha256(b"mine").hexdigest()
    place.mkdir(parents=True)
    meta = {"Name": "mine", "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}
    (place / "meta.json").write_text(json.dumps(meta))
    base = open_base(NAME)
    assert base.config_digest == engine.image["Id"]
    base.close()


@pytest.fixture
def store(engine: Engine, tmp_path: Path) -> Path:
    """Have the engine keep images with containerd; return where its blobs are."""
    engine.info = {
        "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        "DockerRootDir": str(tmp_path),
    }
    engine.image["GraphDriver"] = None
    engine.image["Descriptor"] = {"mediaType": "m", "digest": digest(IMAGE.blobs()[0]), "size": 7}
    return tmp_path / "containerd/daemon/io.containerd.content.v1.content"


def test_the_manifest_is_read_where_containerd_keeps_it(store: Path) -> None:
    IMAGE.layout(store)
    base = open_base(NAME)
    manifest = IMAGE.blobs()[0]
    assert base.where == "containerd"
    assert (base.manifest, base.manifest_digest) == (manifest, digest(manifest))
    assert (base.config, base.config_digest) == (IMAGE.config, digest(IMAGE.config))
    assert base.layers is not None
    assert [blob.digest for blob in base.layers] == list(base.diff_ids)
    base.close()


def test_of_an_index_that_containerd_keeps_it_is_the_manifest_of_this_machine(
    engine: Engine, store: Path
) -> None:
    IMAGE.layout(store)
    manifest = IMAGE.blobs()[0]
    index = IMAGE.index(manifest)
    (store / "blobs" / digest(index).replace(":", "/")).write_bytes(index)
    engine.image |= {"Id": digest(index), "Descriptor": None}
    base = open_base(NAME)
    assert (base.manifest_digest, base.config_digest) == (digest(manifest), digest(IMAGE.config))
    base.close()


@pytest.mark.usefixtures("store")
def test_what_containerd_keeps_elsewhere_is_told_by_the_engine(engine: Engine) -> None:
    base = open_base(NAME)
    assert base.where == "containerd"
    assert (base.manifest, base.layers) == (None, None)
    assert base.manifest_digest == engine.image["Descriptor"]["digest"]
    assert (base.config, base.config_digest) == (docker.rebuilt(engine.image), engine.image["Id"])
    base.close()
