"""``import --fetch``: what a script has from the network is taken once, pinned, and lies in the mod from then on."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from mod_folders import FAST, FIX, SITE, TOP
from package_server import PackageServer, serving, settings_of_none

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library import mod_folder
from vllm_mods.making import fetching
from vllm_mods.making.inside import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

pytestmark = pytest.mark.usefixtures("sandboxed")
HOST = "diffs.example"
PIN = hashlib.sha256(FIX.encode()).hexdigest()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate of its own authority, ``cert.pem``, and in ``both.pem`` the key as well."""
    folder = tmp_path_factory.mktemp("certificates")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
         "-out", cert, "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both.pem").write_bytes(key.read_bytes() + cert.read_bytes())
    return folder


@pytest.fixture
def server(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PackageServer]:
    """Serve the patch by https, under a name and with a certificate of its own authority."""
    settings_of_none(tmp_path, monkeypatch)
    monkeypatch.setenv("PIP_CERT", str(certificates / "cert.pem"))
    real = socket.getaddrinfo

    def found(host: Any, *given: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == HOST else host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with serving(
        PackageServer(files={"fix.diff": FIX.encode()}), certificate=str(certificates / "both.pem")
    ) as running:
        running.url = running.url.replace("127.0.0.1", HOST)
        yield running


def folder(tmp_path: Path, text: str, **files: bytes) -> Path:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "run.sh").write_text(TOP + text)
    for name, data in files.items():
        (place / name).write_bytes(data)
    return place


FORMS = [
    "curl -sL {url} | patch -p1 -F0 -d {site}",
    "curl -fsSL -o /tmp/x.diff {url}\npatch -p1 -F0 -d {site} < /tmp/x.diff",
    "curl -LO {url}\ngit -C {site} apply -p1 $PWD/fix.diff",
    "wget -q {url}\npatch -p1 -F0 -d {site} < fix.diff",
    "wget -qO- {url} | patch -p1 -F0 -d {site}",
    'U={url}\nwget -O p.diff "$U" || exit 1\npatch -p1 -F0 -d {site} < p.diff',
]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_taken_once_and_pinned(
    call: Call, site: Path, tmp_path: Path, server: PackageServer, form: str
) -> None:
    url = f"{server.url}/files/fix.diff"
    source = folder(tmp_path, form.format(url=url, site=SITE) + "\n")
    made = tmp_path / "library-of-mine"
    answer = call("import", source, "--tree", site, "--library", made, "--fetch")
    assert answer.code == 0, answer.err
    assert f"fetching {url}" in answer.err
    assert len(server.requests) == 1
    text = (made / "patches/mine/mod.toml").read_text()
    assert f'{{ url = "{url}", sha256 = "{PIN}", file = "fetched/fix.diff" }}' in text
    assert (made / "patches/mine/fetched/fix.diff").read_bytes() == FIX.encode()
    assert call("apply", "mine", "--library", made, "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == FAST
    assert call("revert", "--target", site).code == 0
    assert len(server.requests) == 1


@pytest.mark.slow
def test_what_only_a_run_asks_for_is_taken_and_the_run_made_again(
    call: Call, site: Path, tmp_path: Path, server: PackageServer
) -> None:
    url = f"{server.url}/files/fix.diff"
    text = (
        f"U=$(python3 -c 'print(\"{url}\"[::-1][::-1])')\ncurl -sL $U | patch -p1 -F0 -d {SITE}\n"
    )
    answer = call("import", folder(tmp_path, text), "--tree", site, "--fetch")
    assert answer.code == 0, answer.err
    assert f'url = "{url}"' in answer.out
    assert len(server.requests) == 1


@pytest.mark.slow
def test_what_entries_ask_for_is_taken_and_those_that_fail_all_the_same_are_told(
    call: Call, site: Path, tmp_path: Path, server: PackageServer
) -> None:
    calls = f"""import subprocess
def put(name):
    shell = f"curl -sLf $BASE/{{name}} -o {{name}} && patch -p1 -F0 -d {SITE} < {{name}}"
    subprocess.run(["bash", "-c", shell], check=True)
for name in ("fix.diff", "fix.diff"):
    try:
        put(name)
    except subprocess.CalledProcessError:
        pass
"""
    text = f"export BASE={server.url}/files\npython3 x.py\n"
    source = folder(tmp_path, text, **{"x.py": calls.encode()})
    asked = ("import", source, "--tree", site, "--each", "put", "--fetch")
    answer = call(*asked)
    assert answer.code == 1
    assert "1 of 2 calls failed" in answer.err
    answer = call(*asked, "--partial")
    assert answer.code == 1
    assert "failed: fix-2: CalledProcessError" in answer.err
    assert f'url = "{server.url}/files/fix.diff"' in answer.out


@pytest.mark.slow
def test_without_it_nothing_is_taken_and_the_hint_names_it(
    call: Call, site: Path, tmp_path: Path, server: PackageServer
) -> None:
    url = f"{server.url}/files/fix.diff"
    source = folder(tmp_path, FORMS[0].format(url=url, site=SITE) + "\n")
    recorded = call("import", source, "--tree", site)
    assert recorded.code == 3
    assert "--fetch lets the script" in recorded.err
    assert "no network and no GPU" in recorded.err
    assert call("import", source, "--fetch", "--offline").code == 2
    assert server.requests == []


@pytest.mark.slow
def test_what_is_not_there_refuses_the_import(
    call: Call, site: Path, tmp_path: Path, server: PackageServer
) -> None:
    text = f"curl -sL {server.url}/files/gone.diff | patch -p1 -F0 -d {SITE} || true\n"
    answer = call("import", folder(tmp_path, text), "--tree", site, "--fetch")
    assert answer.code != 0
    assert "404" in answer.err


@pytest.mark.slow
def test_a_file_that_is_another_by_now_is_a_problem_of_the_mod(
    call: Call, site: Path, tmp_path: Path, server: PackageServer
) -> None:
    url = f"{server.url}/files/fix.diff"
    source = folder(tmp_path, FORMS[0].format(url=url, site=SITE) + "\n")
    made = tmp_path / "library-of-mine"
    assert call("import", source, "--tree", site, "--library", made, "--fetch").code == 0
    (made / "patches/mine/fetched/fix.diff").write_text(FIX + "\n")
    with pytest.raises(
        ManifestError, match=r"fetch\[0\]\.file: the sha256 of fetched/fix\.diff is"
    ):
        mod_folder.load_mod(str(made / "patches/mine"))
    (made / "patches/mine/fetched/fix.diff").unlink()
    assert call("check", "mine", "--library", made, "--target", site).code == 2


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h.example/x", "only https"),
        ("ftp://h.example/x", "only https"),
        ("file:///etc/passwd", "only https"),
        ("https://user:word@h.example/x", "login"),
        ("https://127.0.0.1/x", "address"),
        ("https://[::1]/x", "address"),
        ("https://169.254.169.254/latest/meta-data", "address"),
        ("https://localhost/x", "this machine"),
        ("https:///x", "this machine"),
    ],
)
def test_what_is_never_asked_for(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        fetching.check(url)
    assert "word" not in str(caught.value)


def test_a_redirect_to_plain_http_is_refused_and_nobodys_login_is_sent(
    tmp_path: Path, server: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.netrc").write_text(f"machine {HOST} login me password s3cret\n")
    (tmp_path / "home/.netrc").chmod(0o600)
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("//", "//me:s3cret@") + "/simple")
    server.login = "me:s3cret"
    with pytest.raises(Exception, match="401"):
        fetching.Fetcher(lambda _: None).take([f"{server.url}/files/fix.diff"])
    server.login = None
    server.moved = f"http://{HOST}/files/fix.diff"
    with pytest.raises(Exception, match="refused"):
        fetching.Fetcher(lambda _: None).take([f"{server.url}/files/fix.diff"])


def test_each_url_is_taken_once_and_lies_in_a_file_of_its_own(server: PackageServer) -> None:
    server.files |= {"a": b"1", "-b c": b"2"}
    notes: list[str] = []
    fetcher = fetching.Fetcher(notes.append)
    paths = ("fix.diff", "fix.diff?again", "-b%20c", "a")
    urls = [f"{server.url}/files/{path}" for path in paths]
    assert fetcher.take([urls[0], urls[0]])
    assert not fetcher.take(urls[:1])
    assert fetcher.take(urls)
    assert [(one.url, one.file) for one in fetcher.files()] == [
        (urls[0], "fetched/fix.diff"),
        (urls[1], "fetched/1-fix.diff"),
        (urls[2], "fetched/b-20c"),
        (urls[3], "fetched/a"),
    ]
    assert notes[:2] == [f"fetching {urls[0]}", f"{len(FIX):,} bytes, sha256 {PIN}"]
    assert len(notes) == 8


def test_no_more_is_fetched_than_a_mod_may_have(
    server: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{server.url}/files/fix.diff"
    lower(monkeypatch, "MOD_BYTES", len(FIX))
    assert fetching.Fetcher(lambda _: None).take([url])
    lower(monkeypatch, "MOD_BYTES", len(FIX) - 1)
    with pytest.raises(UsageError, match=f"^{url}: more than {len(FIX) - 1} bytes$") as caught:
        fetching.Fetcher(lambda _: None).take([f"{url}?token=x"])
    assert caught.value.hint == "put the file into the mod's folder"


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ("curl -H x:y https://h/a", None),
        ("curl -X POST https://h/a", None),
        ("curl -d @/etc/passwd https://h/a", None),
        ("curl https://h/a https://h/b", None),
        ("curl -o - https://h/a", ("https://h/a", "")),
        ("curl -O https://h/d/a?b=c/d", ("https://h/d/a?b=c/d", "a")),
        ("curl --create-dirs --output-dir d -o a https://h/", ("https://h/", "d/a")),
        ("curl -O https://h/", None),
        ("wget -P d https://h/a", ("https://h/a", "d/a")),
        ("wget --post-file=x https://h/a", None),
        ("wget -i list", None),
    ],
)
def test_only_uses_that_get_what_lies_at_a_url_are_known(
    argv: str, asked: tuple[str, str] | None
) -> None:
    assert served.parse(argv.split()) == asked


def test_what_is_another_url_in_each_run_comes_to_an_end(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_MOST", 3)
    monkeypatch.setattr(fetching, "_download", lambda _url: b"N = 1\n")
    text = 'curl -fsSo "$VLLM_PACKAGE_DIR/a.py" "https://h.example/x?t=$(date +%s%N)"\n'
    answer = call("import", folder(tmp_path, text), "--tree", site, "--fetch")
    assert answer.code == 2
    assert answer.err.count("fetching https://h.example/x?t=") == 3
    assert "more than 3 URLs in all its runs; nothing was written" in answer.err
