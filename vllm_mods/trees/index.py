"""The pages of a package index, as data, and which of a release's files is read.

Formats: the simple repository API of the Python packaging specifications, in HTML (PEP 503, with
PEP 592 yanking, PEP 658/714 metadata) and in JSON (PEP 691, PEP 700 sizes). Pure.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urldefrag, urljoin, urlsplit

from packaging import utils
from packaging.version import Version

from vllm_mods.base import limits, versions
from vllm_mods.base.untrusted import json_of

ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
PROJECT = "vllm"
_PIECE = 16 << 10  # letters


class WebPage(NamedTuple):
    """A page; ``url`` is where it was in the end, without a login: links are relative to it."""

    url: str
    content_type: str
    body: bytes


class ReleaseFile(NamedTuple):
    """One file of a release.

    ``kind`` is ``wheel`` or ``sdist``; ``build`` the wheel's build tag as (number, rest) or ``()``;
    ``platforms`` its platform tags; ``yanked`` the reason, ``None`` if it is not yanked; ``size``
    in bytes; the hashes in hexadecimal, of the file and of its ``METADATA``; ``uploaded`` a time as ISO 8601 has it. Whatever the index
    does not say is ``None``. ``page`` is the URL of what links to it, ``""`` where nothing has to.
    """

    filename: str
    url: str
    version: str
    kind: str
    build: tuple[int, str] | tuple[()] = ()
    interpreters: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    sha256: str | None = None
    metadata_sha256: str | None = None
    size: int | None = None
    requires_python: str | None = None
    uploaded: str | None = None
    yanked: str | None = None
    page: str = ""


def parse_page(
    body: bytes, content_type: str, url: str, project: str = PROJECT
) -> tuple[ReleaseFile, ...]:
    """Return the files of a project that a page links to, in the page's order.

    Links to anything else are passed over. Raises ``ValueError`` for a page that is no index page.
    """
    if len(body) > limits.PAGE:
        raise ValueError(f"it has more than {limits.PAGE}")
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    read = _from_json if kind.endswith(("+json", "/json")) else _from_html
    files = read(body, url, project)
    return tuple(file._replace(page=url) for file in files if file is not None)


def release_file(filename: str, url: str, project: str = PROJECT) -> ReleaseFile | None:
    """Read what a file name says; ``None`` if it names no wheel or sdist of the project."""
    try:
        if filename.endswith(".whl"):
            name, version, build, tags = utils.parse_wheel_filename(filename)
        elif filename.endswith(".tar.gz"):
            (name, version), build, tags = utils.parse_sdist_filename(filename), (), frozenset()
        else:
            return None
    except (utils.InvalidWheelFilename, utils.InvalidSdistFilename):
        return None
    if name != project:
        return None
    return ReleaseFile(
        filename=filename,
        url=url,
        version=str(version),
        kind="wheel" if filename.endswith(".whl") else "sdist",
        build=build,
        interpreters=tuple(sorted({tag.interpreter for tag in tags})),
        platforms=tuple(sorted({tag.platform for tag in tags})),
    )


def choose(name: str, files: tuple[ReleaseFile, ...]) -> tuple[ReleaseFile, ...]:
    """Return the files that ``name`` can stand for, the best first; ``()`` if there are none.

    ``name`` is a file name, which stands for itself, or a version: then a wheel for Linux on x86_64 is best,
    whatever machine this is, so that an answer does not depend on who asks; among them the highest build tag;
    then any wheel; then the sdist. A version without a local part stands for one with it only if there is no
    other. Yanked files come into it, as with pip, only if nothing else has that version.
    """
    exact = tuple(file for file in files if file.filename == name)
    if exact:
        return exact
    wanted = versions.parse(name)
    if wanted is None:
        return ()
    matching = [file for file in files if Version(file.version) == wanted]
    if not matching and wanted.local is None:
        local = [file for file in files if Version(file.version).public == str(wanted)]
        newest = max((Version(file.version) for file in local), default=None)
        matching = [file for file in local if Version(file.version) == newest]
    usable = [file for file in matching if file.yanked is None] or matching
    return tuple(sorted(usable, key=_preference, reverse=True))


def _from_json(body: bytes, url: str, project: str) -> Iterator[ReleaseFile | None]:
    page = json_of(body)
    if not isinstance(page, dict) or not isinstance(page.get("files"), list):
        raise ValueError("the JSON has no list of files")  # noqa: TRY004  (wrong data, not a wrong call)
    meta = page.get("meta")
    version = str(meta.get("api-version", "1.0") if isinstance(meta, dict) else "1.0")
    if version.split(".", maxsplit=1)[0] != "1":
        raise ValueError(f"its API version is {version}, but only version 1 is supported")
    _check_count(len(page["files"]))
    return (_json_file(entry, url, project) for entry in page["files"] if isinstance(entry, dict))


def _check_count(links: int) -> None:
    if links > limits.LINKS:
        raise ValueError(f"it has more than {limits.LINKS}")


def _json_file(entry: dict[str, Any], url: str, project: str) -> ReleaseFile | None:
    if not isinstance(entry.get("filename"), str) or not isinstance(entry.get("url"), str):
        return None
    hashes = entry.get("hashes")
    metadata = entry.get("core-metadata", entry.get("dist-info-metadata"))
    size = entry.get("size")
    python = entry.get("requires-python")
    yanked = entry.get("yanked", False)
    file = release_file(entry["filename"], urljoin(url, entry["url"]), project)
    return file and file._replace(
        sha256=_hex(hashes.get("sha256")) if isinstance(hashes, dict) else None,
        metadata_sha256=_hex(metadata.get("sha256")) if isinstance(metadata, dict) else None,
        size=size if isinstance(size, int) else None,
        requires_python=python if isinstance(python, str) else None,
        uploaded=_time(entry.get("upload-time")),
        yanked=None if yanked is False else (yanked if isinstance(yanked, str) else ""),
    )


def _from_html(body: bytes, url: str, project: str) -> Iterator[ReleaseFile | None]:
    parser = _Anchors(url)
    text = body.decode("utf-8", "replace")
    try:
        for start in range(0, len(text), _PIECE):
            parser.feed(text[start : start + _PIECE])
            # a tag that does not end is looked through again and again, by the square of its length
            if len(parser.rawdata) > limits.TAG:
                raise ValueError(f"it has a tag of more than {limits.TAG}")
        parser.close()
    except AssertionError as error:  # what the standard library says of a broken declaration
        raise ValueError(str(error)) from error
    return (_html_file(anchor, parser.base, project) for anchor in parser.anchors)


def _html_file(anchor: dict[str, str | None], base: str, project: str) -> ReleaseFile | None:
    target, fragment = urldefrag(urljoin(base, anchor["href"] or ""))
    metadata = anchor.get("data-core-metadata", anchor.get("data-dist-info-metadata")) or ""
    file = release_file(unquote(urlsplit(target).path).rpartition("/")[2], target, project)
    return file and file._replace(
        sha256=_named(fragment),
        metadata_sha256=_named(metadata),
        requires_python=anchor.get("data-requires-python"),
        yanked=(anchor["data-yanked"] or "") if "data-yanked" in anchor else None,
    )


def _preference(file: ReleaseFile) -> tuple[bool, bool, tuple[int, str] | tuple[()], list[int]]:
    of_linux = (one for one in file.platforms if one.startswith(("manylinux", "linux")))
    linux = any(one.endswith("_x86_64") for one in of_linux)
    # cp38-abi3 < cp311: among wheels per interpreter any will do, but always the same one.
    digits = [int("".join(filter(str.isdigit, tag)) or 0) for tag in file.interpreters]
    return file.kind == "wheel", linux, file.build, sorted(digits)


def _named(text: str) -> str | None:
    """Return the value of ``sha256=…`` in a fragment or an attribute."""
    return _hex(dict(parse_qsl(text)).get("sha256"))


def _time(value: object) -> str | None:
    """Return a time of PEP 700 as it is, with its zone."""
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return str(value) if read is not None and read.tzinfo is not None else None


def _hex(value: object) -> str | None:
    if isinstance(value, str) and re.fullmatch("[0-9a-fA-F]{64}", value):
        return value.lower()
    return None


class _Anchors(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.base = url
        self.anchors: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        href = attributes.get("href")
        if tag == "a" and href:
            self.anchors.append(attributes)
            _check_count(len(self.anchors))
        elif tag == "base" and href:
            self.base = urljoin(self.base, href)
