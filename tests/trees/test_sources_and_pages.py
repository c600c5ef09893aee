"""Pages of an index, the sources that pip names, and pip's settings: what each field comes from, and what is refused."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from lowering import lower

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, Unreachable, UsageError
from vllm_mods.trees.index import ACCEPT, ReleaseFile, WebPage, choose, parse_page, release_file
from vllm_mods.trees.pip_config import PipSettings, config_files, read_settings
from vllm_mods.trees.sources import IndexSources, local_path

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.trees.http import Http

URL = "https://h.example/simple/vllm/"
JSON = "application/vnd.pypi.simple.v1+json"
SHA, META = "a" * 64, "B" * 64
NAME = "vllm-0.21.0.tar.gz"
PLAIN = ReleaseFile(NAME, f"{URL}{NAME}", "0.21.0", "sdist", page=URL)


def listed(**fields: object) -> tuple[ReleaseFile, ...]:
    page = {"files": [{"filename": NAME, "url": NAME, **fields}]}
    return parse_page(json.dumps(page).encode(), JSON, URL)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"hashes": {"sha256": SHA.upper()}}, {"sha256": SHA}),
        ({"hashes": {"sha256": SHA[1:]}}, {}),
        ({"hashes": {"md5": SHA}}, {}),
        ({"hashes": []}, {}),
        ({"core-metadata": {"sha256": META}}, {"metadata_sha256": META.lower()}),
        ({"dist-info-metadata": {"sha256": META}}, {"metadata_sha256": META.lower()}),
        ({"core-metadata": True, "dist-info-metadata": {"sha256": META}}, {}),
        ({"size": 7}, {"size": 7}),
        ({"size": "7"}, {}),
        ({"requires-python": ">=3.9"}, {"requires_python": ">=3.9"}),
        ({"requires-python": 3}, {}),
        ({"upload-time": "2026-01-01T00:00:00Z"}, {"uploaded": "2026-01-01T00:00:00Z"}),
        ({"upload-time": "2026-01-01T00:00:00"}, {}),
        ({"upload-time": "once"}, {}),
        ({"upload-time": 7}, {}),
        ({"yanked": False}, {}),
        ({"yanked": True}, {"yanked": ""}),
        ({"yanked": "broken"}, {"yanked": "broken"}),
    ],
)
def test_each_field_of_a_file_in_json(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert listed(**fields) == (PLAIN._replace(**expected),)


@pytest.mark.parametrize("fields", [{"filename": 7}, {"url": None}, {"filename": "other-1.tar.gz"}])
def test_what_names_no_file_of_the_project_is_passed_over(fields: dict[str, Any]) -> None:
    assert listed(**fields) == ()
    assert parse_page(b'{"files": [7]}', JSON, URL) == ()


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"files": {}}, "the JSON has no list of files"),
        ([], "the JSON has no list of files"),
        ({"files": [], "meta": {"api-version": "2.1"}}, "its API version is 2.1, but only version 1 is supported"),
        ({"files": [{}, {}, {}]}, "it has more than 2 links"),
    ],
)  # fmt: skip
def test_json_that_is_no_page(monkeypatch: pytest.MonkeyPatch, page: object, why: str) -> None:
    lower(monkeypatch, "LINKS", 2)
    with pytest.raises(ValueError, match=f"^{why}$"):
        parse_page(json.dumps(page).encode(), JSON, URL)
    for meta in ("", ', "meta": {}', ', "meta": []'):
        assert parse_page(f'{{"files": []{meta}}}'.encode(), JSON, URL) == ()
    fine = {"files": [], "meta": {"api-version": "1.9"}}
    assert parse_page(json.dumps(fine).encode(), JSON, URL) == ()


@pytest.mark.parametrize("kind", [JSON, "application/json", "Application/JSON; charset=x"])
def test_the_type_of_a_page_says_how_it_is_read(kind: str) -> None:
    assert parse_page(b'{"files": []}', kind, URL) == ()
    with pytest.raises(ValueError, match="Expecting value"):
        parse_page(b"<html>", kind, URL)
    assert parse_page(b"<html>", "text/html", URL) == ()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (f'href="{NAME}"', {}),
        (f'href="{NAME}#sha256={SHA}"', {"sha256": SHA}),
        (f'href="{NAME}#md5={SHA}"', {}),
        (f'href="{NAME}" data-core-metadata="sha256={META}"', {"metadata_sha256": META.lower()}),
        (
            f'href="{NAME}" data-dist-info-metadata="sha256={META}"',
            {"metadata_sha256": META.lower()},
        ),
        (f'href="{NAME}" data-core-metadata="true"', {}),
        (f'href="{NAME}" data-requires-python="&gt;=3.9"', {"requires_python": ">=3.9"}),
        (f'href="{NAME}" data-yanked', {"yanked": ""}),
        (f'href="{NAME}" data-yanked="broken"', {"yanked": "broken"}),
        ('href="vllm-0.21.0%2Etar.gz"', {"url": f"{URL}vllm-0.21.0%2Etar.gz"}),
        (f'href="{NAME}?x=1"', {"url": f"{URL}{NAME}?x=1"}),
        (f'href="/f/{NAME}"', {"url": f"https://h.example/f/{NAME}"}),
    ],
)
def test_each_field_of_a_file_in_html(attributes: str, expected: dict[str, Any]) -> None:
    body = f"<a>x</a><a {attributes}>x</a><p href='{NAME}'>".encode()
    assert parse_page(body, "text/html", URL) == (PLAIN._replace(**expected),)


def test_links_are_relative_to_the_base_that_a_page_names() -> None:
    body = f'<base href="/f/"><a href="{NAME}">x</a>'.encode()
    (file,) = parse_page(body, "text/html", URL)
    assert (file.url, file.page) == (f"https://h.example/f/{NAME}", URL)


def test_a_page_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "LINKS", 1)
    link = f'<a href="{NAME}">x</a>'.encode()
    assert len(parse_page(link, "text/html", URL)) == 1
    with pytest.raises(ValueError, match="it has more than 1 links"):
        parse_page(link * 2, "text/html", URL)
    lower(monkeypatch, "TAG", 30)
    with pytest.raises(ValueError, match="it has a tag of more than 30 letters"):
        parse_page(b"<a " + b"x" * 40, "text/html", URL)
    lower(monkeypatch, "PAGE", len(link))
    assert len(parse_page(link, "text/html", URL)) == 1
    with pytest.raises(ValueError, match=f"^it has more than {len(link)} bytes$"):
        parse_page(link + b" ", "text/html", URL)


WHEEL = "vllm-1.0-2b-cp38.cp311-abi3-manylinux_2_31_x86_64.linux_x86_64.whl"


def test_what_the_name_of_a_file_says() -> None:
    assert release_file(WHEEL, "u") == ReleaseFile(
        WHEEL,
        "u",
        "1.0",
        "wheel",
        (2, "b"),
        ("cp311", "cp38"),
        ("linux_x86_64", "manylinux_2_31_x86_64"),
    )
    assert release_file("six-1.tar.gz", "u", "six") == ReleaseFile(
        "six-1.tar.gz", "u", "1", "sdist"
    )
    for name in (
        "six-1.tar.gz",
        "vllm.whl",
        "vllm.tar.gz",
        "vllm-1.zip",
        "vllm-x-py3-none-any.whl",
    ):
        assert release_file(name, "u") is None


def some(*names: str, yanked: tuple[str, ...] = ()) -> tuple[ReleaseFile, ...]:
    files = [release_file(name, "") for name in names]
    return tuple(
        one._replace(yanked="" if one.filename in yanked else None) for one in files if one
    )


LOCAL = [f"vllm-1.0{local}-py3-none-any.whl" for local in ("+cu128", "+cu129", "+a")]
ANY, MAC = "vllm-1.0-py3-none-any.whl", "vllm-1.0-py3-none-macosx_11_0_x86_64.whl"
LINUX = ("vllm-1.0-cp310-cp310-manylinux1_x86_64.whl", "vllm-1.0-cp311-cp311-linux_x86_64.whl")
ARM = "vllm-1.0-cp312-cp312-manylinux1_aarch64.whl"


@pytest.mark.parametrize(
    ("names", "yanked", "wanted", "order"),
    [
        (("vllm-1.0.tar.gz", ANY), (), "1", (ANY, "vllm-1.0.tar.gz")),
        ((ANY, MAC, *LINUX, ARM), (), "1.0", (LINUX[1], LINUX[0], ARM, ANY, MAC)),
        (LOCAL, (), "1.0", (LOCAL[1],)),
        (LOCAL, (), "1.0+a", (LOCAL[2],)),
        (LOCAL, (), "1.0+b", ()),
        ((*LOCAL, ANY), (), "1.0", (ANY,)),
        ((ANY, MAC), (MAC,), "1.0", (ANY,)),
        ((ANY,), (ANY,), "1.0", (ANY,)),
        ((ANY, MAC), (), MAC, (MAC,)),
        ((ANY,), (), "1.1", ()),
        ((ANY,), (), "odd", ()),
    ],
)
def test_which_files_a_name_stands_for_the_best_first(
    names: tuple[str, ...], yanked: tuple[str, ...], wanted: str, order: tuple[str, ...]
) -> None:
    chosen = choose(wanted, some(*names, yanked=yanked))
    assert tuple(file.filename for file in chosen) == order


class Pages:
    """A server of pages by URL, or of what it raises; ``asked_for`` are their URLs."""

    def __init__(self) -> None:
        self.pages: dict[str, WebPage | TreeError] = {}
        self.urls: list[str] = []

    def page(self, url: str, accept: str) -> WebPage | None:
        assert accept == ACCEPT
        self.urls.append(url)
        page = self.pages.get(url)
        if isinstance(page, TreeError):
            raise page
        return page


ONE, TWO = "https://one.example/simple", "https://two.example/simple/"


def page_of(url: str, *names: str) -> WebPage:
    links = "".join(f'<a href="{name}">x</a>' for name in names)
    return WebPage(url, "text/html", links.encode())


def sources_of(
    tmp_path: Path, pages: Pages | None, notes: list[str] | None = None, **settings: tuple[str, ...]
) -> IndexSources:
    given = PipSettings(**{"index_urls": (ONE, TWO), **settings})  # type: ignore[arg-type]
    note = None if notes is None else notes.append
    return IndexSources(given, Cache(str(tmp_path / "cache")), cast("Http | None", pages), note)


def test_every_index_is_asked_and_the_first_that_has_a_file_wins(tmp_path: Path) -> None:
    pages = Pages()
    first, second = f"{ONE}/vllm/", f"{TWO}vllm/"
    pages.pages = {first: page_of(first, NAME), second: page_of(second, NAME, ANY)}
    asker = sources_of(tmp_path, pages)
    answer = asker.ask(fresh=False)
    assert [(file.filename, file.page) for file in answer.files] == [(NAME, first), (ANY, second)]
    assert (answer.failures, answer.old) == ((), False)
    assert asker.ask(fresh=False) is answer
    assert pages.urls == [first, second]
    assert asker.ask(fresh=True).files == answer.files
    assert len(pages.urls) == 4


def test_a_page_is_kept_for_a_while_and_stands_in_where_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, notes = Pages(), list[str]()
    first = f"{ONE}/vllm/"
    pages.pages = {first: page_of(first, NAME)}
    known = sources_of(tmp_path, pages, index_urls=(ONE,)).ask(fresh=False)
    again = sources_of(tmp_path, pages, index_urls=(ONE,)).ask(fresh=False)
    assert (again.files, again.old, len(pages.urls)) == (known.files, True, 1)
    offline = sources_of(tmp_path, None, index_urls=(ONE,)).ask(fresh=False)
    assert (offline.files, offline.old) == (known.files, False)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 700)
    pages.pages[first] = TreeError("down", hint="h")
    late = sources_of(tmp_path, pages, notes, index_urls=(ONE,)).ask(fresh=False)
    assert (late.files, late.failures, len(pages.urls)) == (known.files, (), 2)
    assert notes == ["down; using the cached page"]
    monkeypatch.setattr(time, "time", lambda: now - 10)
    sources_of(tmp_path, pages, index_urls=(ONE,)).ask(fresh=False)
    assert len(pages.urls) == 3


def test_that_an_index_has_no_such_project_is_kept_too(tmp_path: Path) -> None:
    pages = Pages()
    assert sources_of(tmp_path, pages).ask(fresh=False) == ((), (), False)
    assert sources_of(tmp_path, pages).ask(fresh=False) == ((), (), True)
    assert len(pages.urls) == 2


def test_why_a_source_does_not_answer_is_told(tmp_path: Path) -> None:
    pages = Pages()
    first, second = f"{ONE}/vllm/", f"{TWO}vllm/"
    pages.pages = {first: TreeError("down", hint="h"), second: WebPage(second, JSON, b"<")}
    answer = sources_of(tmp_path, pages).ask(fresh=False)
    assert answer.failures[0] == "down"
    assert answer.failures[1].startswith(f"{second}: not a page of a package index: ")
    (offline,) = (
        sources_of(tmp_path, None, index_urls=("https://me:pw@x.example",))
        .ask(fresh=False)
        .failures
    )
    why = "this page is not in the cache, and --offline forbids the network"
    assert offline == f"https://x.example/vllm/: {why}"


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"time": "x"}', b'{"time": 1, "blob": "0"}'])
def test_a_kept_page_that_is_broken_counts_for_nothing(tmp_path: Path, record: bytes) -> None:
    Cache(str(tmp_path / "cache")).record("pages", f"{ONE}/vllm/", data=record)
    (failure,) = sources_of(tmp_path, None, index_urls=(ONE,)).ask(fresh=False).failures
    assert "this page is not in the cache," in failure


def test_folders_and_pages_on_this_machine_are_sources(tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "index.html").write_bytes(page_of("", f"../x/{ANY}").body)
    for name in (NAME, "other.txt"):
        (links / name).touch()
    answer = sources_of(tmp_path, None, index_urls=(), find_links=(str(links),)).ask(fresh=False)
    assert [(file.filename, file.url) for file in answer.files] == [
        (ANY, f"file://{tmp_path}/x/{ANY}"),
        (NAME, f"file://{links}/{NAME}"),
    ]
    page = f"file://{links}/index.html"
    only = sources_of(tmp_path, None, index_urls=(), find_links=(page,)).ask(fresh=False)
    assert [file.filename for file in only.files] == [ANY]
    none = sources_of(tmp_path, None, index_urls=(f"file://{tmp_path}",)).ask(fresh=False)
    assert none == ((), (), False)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("file:/a", "/a"),
        ("https://h/a", None),
        ("~/x", "{home}/x"),
    ],
)
def test_what_lies_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, path: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path(url) == (path and path.format(home=tmp_path))


def test_a_folder_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_place: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refused)
    asker = sources_of(tmp_path, None, index_urls=(), find_links=(str(tmp_path),))
    assert asker.ask(fresh=False).failures == (f"{tmp_path}: Permission denied",)


ALONE = {"PIP_CONFIG_FILE": "/dev/null", "HOME": "/home/me"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"PIP_INDEX_URL": "https://a/b"}, {"index_urls": ("https://a/b",)}),
        ({"PIP_EXTRA_INDEX_URL": "https://c https://d"}, {"index_urls": ("https://pypi.org/simple", "https://c", "https://d")}),
        ({"PIP_NO_INDEX": "Yes", "PIP_FIND_LINKS": "a b"}, {"index_urls": (), "find_links": ("a", "b")}),
        ({"PIP_NO_INDEX": "0"}, {}),
        ({"PIP_CERT": "~/c", "SSL_CERT_FILE": "/s"}, {"verify": "/home/me/c"}),
        ({"REQUESTS_CA_BUNDLE": "/r", "CURL_CA_BUNDLE": "/c"}, {"verify": "/r"}),
        ({"CURL_CA_BUNDLE": "/c", "SSL_CERT_FILE": "/s"}, {"verify": "/c"}),
        ({"SSL_CERT_FILE": "/s"}, {"verify": "/s"}),
        ({"PIP_CLIENT_CERT": "/k"}, {"client_cert": "/k"}),
        ({"PIP_PROXY": "p:1"}, {"proxy": "p:1"}),
        ({"PIP_TIMEOUT": "3.5"}, {"timeout": 3.5}),
        ({"PIP_DEFAULT_TIMEOUT": "4"}, {"timeout": 4.0}),
        ({"PIP_DEFAULT_TIMEOUT": "4", "PIP_TIMEOUT": "0"}, {"timeout": 0.0}),
        ({"PIP_RETRIES": "2"}, {"retries": 2}),
        ({"PIP_TRUSTED_HOST": "a b:1"}, {"trusted_hosts": ("a", "b:1")}),
        ({"PIP_INDEX_URL": ""}, {}),
    ],
)  # fmt: skip
def test_each_setting_of_pip(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert read_settings({**ALONE, **given}) == PipSettings(**expected)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"PIP_TIMEOUT": "x"}, "pip's timeout = 'x' must be a number of at least 0"),
        ({"PIP_TIMEOUT": "-1"}, "pip's timeout = '-1' must be a number of at least 0"),
        ({"PIP_TIMEOUT": "inf"}, "pip's timeout = 'inf' must be a number of at least 0"),
        ({"PIP_DEFAULT_TIMEOUT": "x"}, "pip's timeout = 'x' must be a number of at least 0"),
        ({"PIP_RETRIES": "x"}, "pip's retries = 'x' must be a number of at least 0"),
        ({"PIP_NO_INDEX": "x"}, "pip's no-index = 'x' is neither true nor false"),
        (
            {"PIP_FIND_LINKS": "https://me:pw@h:x/"},
            "an index or find-links URL is invalid: Port could not be cast to integer value as 'x'",
        ),
    ],
)  # fmt: skip
def test_a_setting_that_pip_would_not_take(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({**ALONE, **given})
    assert (caught.value.message, caught.value.hint) == (why, "pip config list")


def test_a_file_that_pip_would_not_read(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    for text in (b"timeout\n", b"\xff"):
        file.write_bytes(text)
        with pytest.raises(UsageError, match=f"^{file}: cannot read pip's settings: ") as caught:
            read_settings({"PIP_CONFIG_FILE": str(file), "HOME": str(tmp_path)}, prefix="/none")
        assert caught.value.hint == "pip config debug"


def test_the_files_of_pip_are_in_its_order(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "XDG_CONFIG_DIRS": "/x:/y", "XDG_CONFIG_HOME": "/c"}
    first = ["/x/pip/pip.conf", "/y/pip/pip.conf", "/etc/pip.conf"]
    mine = ["/h/.pip/pip.conf", "/c/pip/pip.conf"]
    assert list(config_files(environ, "/p")) == [*first, *mine, "/p/pip.conf"]
    own = {**environ, "PIP_CONFIG_FILE": "/none"}
    assert list(config_files(own, "/p")) == [*first, *mine, "/p/pip.conf", "/none"]
    (tmp_path / "own").touch()
    own["PIP_CONFIG_FILE"] = str(tmp_path / "own")
    assert list(config_files(own, "/p")) == [*first, "/p/pip.conf", f"{tmp_path}/own"]
    plain = [
        "/etc/xdg/pip/pip.conf",
        "/etc/pip.conf",
        "/h/.pip/pip.conf",
        "/h/.config/pip/pip.conf",
    ]
    assert list(config_files({"HOME": "/h"}, "/p")) == [*plain, "/p/pip.conf"]
    assert list(config_files(ALONE, "/p")) == []


@pytest.mark.parametrize(
    ("url", "trusts"),
    [
        ("https://a/x", True),
        ("http://a:80/x", True),
        ("https://b:1/x", True),
        ("https://b/x", False),
        ("https://c/", False),
        ("file:///a", False),
    ],
)
def test_the_hosts_that_pip_is_told_to_trust(url: str, *, trusts: bool) -> None:
    assert PipSettings(trusted_hosts=("a", "b:1")).trusts(url) is trusts


def test_what_is_asked_for_offline_is_out_of_reach(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        sources_of(tmp_path, None)._page(f"{ONE}/vllm/", fresh=True)
