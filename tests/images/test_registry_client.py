"""One repository of a registry: what is asked for, how a login is found and shown, what a refusal says."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from making_images import INDEX, MANIFEST, digest
from web_site import Site, site

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import names, registry
from vllm_mods.images.model import Descriptor
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

DATA = b'{"manifests": []}'
ROOT = "/v2/some/image/"
TAG = f"{ROOT}manifests/1"
ACCEPT = (
    "application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)


class Asked:
    """A client of the repository ``some/image:1``, and what its server has seen."""

    def __init__(self, url: str, handler: type[Site], home: Path) -> None:
        self.url, self.host, self.handler = url, url.removeprefix("http://"), handler
        self.environ = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        self.clients: list[registry.Client] = []
        self.client = self.of(":1")

    def of(self, version: str) -> registry.Client:
        name = names.parse(f"{self.host}/some/image{version}")
        self.clients.append(registry.Client(name, self.environ))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client._session.close()

    def wants(self, challenge: str) -> None:
        """Have the tag want a token, of a realm below the server's own address."""
        answer = wants(challenge.format(self.url), "Bearer good")
        self.handler.answers = {**self.handler.answers, TAG: answer}

    @property
    def seen(self) -> list[tuple[str, str, dict[str, str]]]:
        return [(command, path, dict(headers)) for command, path, headers in self.handler.seen]


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Asked]]:
    """Give what starts a server with such answers, by path, and returns who asks it."""
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between two tries
    with contextlib.ExitStack() as stack:

        def start(answers: Mapping[str, Callable[[Site], None]]) -> Asked:
            url, handler = stack.enter_context(site(answers))
            return stack.enter_context(contextlib.closing(Asked(url, handler, tmp_path)))

        yield start


def says(status: int, body: bytes = b"", **headers: str) -> Callable[[Site], None]:
    return lambda site: site.say(status, body, **headers)


def test_a_manifest_is_asked_for_by_its_kinds_and_without_a_login_of_another_program(
    asking: Callable[..., Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    ask = asking({TAG: says(200, DATA, Content_Type=INDEX)})
    assert ask.client.manifest("it") == Descriptor(INDEX, digest(DATA), len(DATA))
    ((command, path, headers),) = ask.seen
    assert (command, path) == ("GET", TAG)
    assert (headers["Accept"], headers["Accept-Encoding"]) == (ACCEPT, "identity")
    assert "Authorization" not in headers
    assert "Range" not in headers


@pytest.mark.parametrize(
    ("stated", "version"),
    [("", ":1"), (digest(DATA), ":1"), ("sha512:0", ":1"), ("", f"@{digest(DATA)}")],
)
def test_a_manifest_has_the_digest_that_is_stated_if_it_is_of_a_known_kind(
    asking: Callable[..., Asked], stated: str, version: str
) -> None:
    path = f"{ROOT}manifests/{version[1:]}"
    ask = asking({path: says(200, DATA, Docker_Content_Digest=stated)})
    assert ask.of(version).manifest("it") == Descriptor("", digest(DATA), len(DATA))


ZEROS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(("stated", "version"), [(ZEROS, ":1"), ("", f"@{ZEROS}")])
def test_a_manifest_of_another_digest_is_refused(
    asking: Callable[..., Asked], stated: str, version: str
) -> None:
    path = f"{ROOT}manifests/{version[1:]}"
    ask = asking({path: says(200, DATA, Docker_Content_Digest=stated)})
    with pytest.raises(TreeError) as caught:
        ask.of(version).manifest("it")
    why = f"it: the registry sent a manifest with the digest {digest(DATA)}, not {ZEROS}"
    assert caught.value.message == why
    assert caught.value.hint == "the registry or a proxy sent another file: try again"


@pytest.mark.parametrize(
    ("kind", "place"),
    [(MANIFEST, "manifests"), (INDEX, "manifests"), ("", "blobs"), ("some.layer", "blobs")],
)
def test_blobs_and_manifests_have_places_of_their_own(
    asking: Callable[..., Asked], kind: str, place: str
) -> None:
    ask = asking({f"{ROOT}{place}/{ZEROS}": says(200, b"data")})
    with ask.client.open(Descriptor(kind, ZEROS, 4)) as file:
        assert file.read() == b"data"
    ((_, _, headers),) = ask.seen
    assert headers["Accept"] == (ACCEPT if place == "manifests" else "*/*")


def test_the_manifest_of_the_tag_is_asked_for_once(asking: Callable[..., Asked]) -> None:
    ask = asking({TAG: says(200, DATA, Content_Type=INDEX)})
    top = ask.client.manifest("it")
    with ask.client.open(top) as file:
        assert file.read() == DATA
    assert len(ask.seen) == 1


@pytest.mark.parametrize(
    ("refusal", "why", "hint"),
    [
        ((403, "manifests/1"), "the registry answered 403 Forbidden (asked {who})", "docker login {host}"),
        ((401, "blobs/x"), "the registry answered 401 Unauthorized (asked {who})", "docker login {host}"),
        ((418, "manifests/1"), "the registry answered 418 I'm a Teapot", "try again later"),
        ((599, "blobs/x"), "the registry answered 599", "try again later"),
        (
            (404, "manifests/1"),
            "{host} has no such image, or it is private and needs a login",
            "check the name and the tag; docker login {host}",
        ),
        (
            (404, "blobs/x"),
            "{host} has no blobs/x of this image, or it is private and needs a login",
            "check the name and the tag; docker login {host}",
        ),
    ],
)  # fmt: skip
def test_what_a_refusal_says(
    asking: Callable[..., Asked], tmp_path: Path, refusal: tuple[int, str], why: str, hint: str
) -> None:
    status, path = refusal
    ask = asking({f"{ROOT}{path}": says(status)})
    kind = UsageError if refusal == (404, "manifests/1") else TreeError
    for who in ("without a login", "as me"):
        with pytest.raises(kind) as caught:
            ask.client.get(path)
        message = why.format(who=who, host=ask.host)
        assert caught.value.message == f"{ask.host}/some/image:1: {message}"
        assert caught.value.hint == hint.format(host=ask.host)
        keep(tmp_path / ".docker/config.json", ask.host, "me")


def keep(path: Path, host: str, user: str, **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    login = base64.b64encode(f"{user}:pass:word".encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": login, **more}}}))


def test_the_rest_of_a_blob_is_asked_for_where_it_broke_off(asking: Callable[..., Asked]) -> None:
    ask = asking({f"{ROOT}blobs/x": says(206, b"56789")})
    with ask.client.get("blobs/x", start=5) as response:
        assert response.content == b"56789"
    assert ask.seen[0][2]["Range"] == "bytes=5-"


DIGITS = b"0123456789" * 100


def breaking(*, knows_ranges: bool, times: int = 1) -> Callable[[Site], None]:
    """Return an answer that ends early for so many times."""
    left = [times]

    def answer(site: Site) -> None:
        start = int(site.headers.get("Range", "bytes=0-")[6:-1])
        status = 206 if start and knows_ranges else 200
        data = DIGITS[start:] if knows_ranges else DIGITS
        site.send_response(status)
        site.send_header("Content-Length", str(len(data)))
        site.end_headers()
        left[0] -= 1
        site.close_connection = True
        site.wfile.write(data if left[0] < 0 else data[: len(data) // 2])

    return answer


@pytest.mark.parametrize("knows_ranges", [True, False])
@pytest.mark.parametrize("size", [300, -1])
def test_a_blob_that_breaks_off_comes_whole_all_the_same(
    asking: Callable[..., Asked], size: int, *, knows_ranges: bool
) -> None:
    times = 1 if not knows_ranges or size < 0 else 3
    ask = asking({f"{ROOT}blobs/{ZEROS}": breaking(knows_ranges=knows_ranges, times=times)})
    with ask.client.open(Descriptor("", ZEROS, 1000)) as file:
        assert file.readable()
        data = b"".join(iter(lambda: file.read(size), b""))
    assert data == DIGITS


def test_a_blob_that_breaks_off_each_time_is_given_up(asking: Callable[..., Asked]) -> None:
    answer = breaking(knows_ranges=True, times=99)

    def first_only(site: Site) -> None:
        if "Range" in site.headers:
            site.send_response(206)
            site.send_header("Content-Length", "9")
            site.end_headers()
            site.close_connection = True
        else:
            answer(site)

    ask = asking({f"{ROOT}blobs/{ZEROS}": first_only})
    with ask.client.open(Descriptor("", ZEROS, 1000)) as file:
        assert file.read(500) == DIGITS[:500]
        with pytest.raises(TreeError) as caught:
            file.read(500)
    why = f"blobs/{ZEROS}: interrupted 4 times, last after 500 bytes"
    assert caught.value.message == f"{ask.host}/some/image:1: {why}"
    assert caught.value.hint == "try again: complete layers are kept"
    assert len(ask.seen) == 4


def wants(challenge: str, login: str) -> Callable[[Site], None]:
    """Return the answer of a registry that wants such a login."""

    def answer(site: Site) -> None:
        if site.headers.get("Authorization", "") == login:
            site.say(200, DATA)
        else:
            site.say(401, WWW_Authenticate=challenge)

    return answer


@pytest.mark.parametrize("word", ["Basic", "basic"])
def test_a_registry_that_wants_user_and_password(
    asking: Callable[..., Asked], tmp_path: Path, word: str
) -> None:
    login = base64.b64encode(b"me:pass:word").decode()
    ask = asking({TAG: wants(f'{word} realm="x"', f"Basic {login}")})
    with pytest.raises(TreeError, match=r"401 Unauthorized \(asked without a login\)"):
        ask.client.manifest("it")
    keep(tmp_path / ".docker/config.json", ask.host, "me")
    assert ask.client.manifest("it").digest == digest(DATA)


@pytest.mark.parametrize("kind", ["token", "access_token"])
@pytest.mark.parametrize(
    ("more", "query"),
    [
        ("", "service=&scope=repository%3Asome%2Fimage%3Apull"),
        (',service="s"', "service=s&scope=repository%3Asome%2Fimage%3Apull"),
        (',scope="a:b"', "service=&scope=a%3Ab"),
    ],
)
def test_a_token_is_for_what_the_registry_names_or_for_reading(
    asking: Callable[..., Asked], kind: str, more: str, query: str
) -> None:
    token = json.dumps({kind: "good"}).encode()
    challenge = 'bearer realm="{}/token"' + more
    ask = asking({"/token": says(200, token)})
    ask.wants(challenge)
    assert ask.client.manifest("it").digest == digest(DATA)
    assert [(command, path) for command, path, _ in ask.seen] == [
        ("GET", TAG),
        ("GET", f"/token?{query}"),
        ("GET", TAG),
    ]
    assert "Authorization" not in ask.seen[1][2]


def test_an_identity_token_is_sent_in_a_form(asking: Callable[..., Asked], tmp_path: Path) -> None:
    forms: list[str] = []

    def token(site: Site) -> None:
        forms.append(site.rfile.read(int(site.headers["Content-Length"])).decode())
        site.headers.replace_header("Content-Length", "0")
        site.say(200, b'{"access_token": "good"}')

    challenge = 'Bearer realm="{}/token",service="s"'
    ask = asking({"/token": token})
    ask.wants(challenge)
    keep(tmp_path / ".docker/config.json", ask.host, "", identitytoken="long")
    assert ask.client.manifest("it").digest == digest(DATA)
    scope = "scope=repository%3Asome%2Fimage%3Apull"
    assert forms == [
        f"service=s&{scope}&grant_type=refresh_token&refresh_token=long&client_id=vllm-mods"
    ]
    assert ask.seen[1][0] == "POST"
    assert "Authorization" not in ask.seen[1][2]


@pytest.mark.parametrize(
    ("challenge", "token"),
    [
        ("", says(200)),
        ('Digest realm="{}/token"', says(200, b'{"token": "good"}')),
        ('Bearer service="x"', says(200, b'{"token": "good"}')),
        ('Bearer realm="{}/token"', says(403, b'{"token": "good"}')),
        ('Bearer realm="{}/token"', says(200, b"no JSON")),
        ('Bearer realm="{}/token"', says(200, b'{"token": 7}')),
        ('Bearer realm="{}/token"', says(200, b"{}")),
        ('Bearer realm="http://[x"', says(200)),
    ],
)
def test_where_no_token_is_to_be_had_the_refusal_stands(
    asking: Callable[..., Asked], challenge: str, token: Callable[[Site], None]
) -> None:
    ask = asking({"/token": token})
    ask.wants(challenge)
    with pytest.raises(TreeError, match="the registry answered 401 Unauthorized"):
        ask.client.manifest("it")


def test_a_token_is_not_fetched_where_anybody_could_listen(asking: Callable[..., Asked]) -> None:
    ask = asking({TAG: says(401, WWW_Authenticate='Bearer realm="http://h.example/token"')})
    with pytest.raises(TreeError) as caught:
        ask.client.manifest("it")
    words = f"{ask.url}{ROOT} leads to http://h.example/token: refused"
    assert caught.value.message.startswith(words)


def test_a_login_stays_with_its_registry(asking: Callable[..., Asked], tmp_path: Path) -> None:
    login = base64.b64encode(b"me:pass:word").decode()
    ask = asking({TAG: wants("Basic", f"Basic {login}"), "/else": says(200, b"x")})
    keep(tmp_path / ".docker/config.json", ask.host, "me")
    ask.client.manifest("it")
    port = ask.host.rpartition(":")[2]
    with ask.client.get(f"http://localhost:{port}/else") as response:
        assert response.content == b"x"
    assert "Authorization" not in ask.seen[-1][2]


HOST = "h.example"
TOKEN = "<token>"  # noqa: S105  (docker's mark)
HOLDING: Any = {
    "podman's own": ("REGISTRY_AUTH_FILE", "own.json"),
    "of the session": ("XDG_RUNTIME_DIR", "containers/auth.json"),
    "of the user": ("XDG_CONFIG_HOME", "containers/auth.json"),
    "docker's": ("DOCKER_CONFIG", "config.json"),
}


def test_logins_are_looked_up_in_podmans_files_and_then_in_dockers(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    for n, (name, (variable, file)) in enumerate(reversed(HOLDING.items())):
        folder = tmp_path / str(n)
        keep(folder / file, HOST, name)
        is_file = variable == "REGISTRY_AUTH_FILE"
        environ[variable] = str(folder / file if is_file else folder)
        assert registry.find_login(HOST, "a/b", environ) == (name, "pass:word")
    assert registry.find_login("other.example", "a/b", environ) is None


@pytest.mark.parametrize("file", [".config/containers/auth.json", ".docker/config.json"])
def test_without_variables_logins_are_in_the_home(tmp_path: Path, file: str) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "none")}
    assert registry.find_login(HOST, "a/b", environ) is None
    keep(tmp_path / file, HOST, "me")
    assert registry.find_login(HOST, "a/b", environ) == ("me", "pass:word")


@pytest.mark.parametrize(
    ("place", "repository", "is_for"),
    [
        (f"{HOST}/a", "a", True),
        (f"{HOST}/a/b", "a/b", True),
        (f"{HOST}/a", "a/b", True),
        (HOST, "a/b", True),
        (f"https://{HOST}/v1/", "a/b", True),
        (f"{HOST}:5000", "a/b", False),
    ],
)
def test_a_login_for_a_part_of_a_registry(
    tmp_path: Path, place: str, repository: str, *, is_for: bool
) -> None:
    keep(tmp_path / "x.json", place, "me")
    login = registry.find_login(HOST, repository, {"REGISTRY_AUTH_FILE": str(tmp_path / "x.json")})
    assert login == (("me", "pass:word") if is_for else None)


def test_of_several_logins_the_nearest_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    logins: dict[str, object] = {}
    for place in (HOST, f"{HOST}/a", f"{HOST}/a/b"):
        keep(path, place, place)
        logins |= json.loads(path.read_text())["auths"]
    path.write_text(json.dumps({"auths": logins}))
    environ = {"REGISTRY_AUTH_FILE": str(path)}
    for repository, place in (("a/b/c", f"{HOST}/a/b"), ("a/c", f"{HOST}/a"), ("c", HOST)):
        assert registry.find_login(HOST, repository, environ) == (place, "pass:word")


def test_an_identity_token_goes_before_a_password(tmp_path: Path) -> None:
    keep(tmp_path / "x.json", HOST, "me", identitytoken="long")
    environ = {"REGISTRY_AUTH_FILE": str(tmp_path / "x.json")}
    assert registry.find_login(HOST, "a", environ) == (TOKEN, "long")


@pytest.mark.parametrize("secret", ["word", ""])
def test_a_login_of_a_credential_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    helper = tmp_path / "docker-credential-mine"
    answer = json.dumps({"Username": "me", "Secret": secret, "ServerURL": HOST})
    helper.write_text(f"#!/bin/sh\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"credHelpers": {HOST: "mine"}}))
    environ = {"REGISTRY_AUTH_FILE": str(path)}
    assert registry.find_login(HOST, "a", environ) == ("me", secret)
    helper.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(
        TreeError, match=f"^{path}: the login for {HOST} cannot be read: "
    ) as caught:
        registry.find_login(HOST, "a", environ)
    assert caught.value.hint == f"docker login {HOST}"


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("python", "https://registry-1.docker.io/v2/library/python/"),
        ("h.example/a", "https://h.example/v2/a/"),
        ("plain.example:5000/a", "http://plain.example:5000/v2/a/"),
        ("localhost/a", "http://localhost/v2/a/"),
    ],
)
def test_where_a_registry_is_asked(name: str, root: str) -> None:
    environ = {registry.PLAIN_HTTP: "x.example,plain.example:5000"}
    assert registry.Client(names.parse(name), environ)._root == root


def test_a_registry_is_not_asked_offline() -> None:
    with pytest.raises(TreeError) as caught:
        open_base(f"registry:{HOST}/a:1", offline=True)
    message = f"registry:{HOST}/a:1: a registry cannot be read with --offline"
    assert (caught.value.message, caught.value.hint) == (message, "run without --offline")
