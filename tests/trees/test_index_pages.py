"""Index pages, and which file a name stands for."""

from __future__ import annotations

import json

import pytest

from vllm_mods.trees.index import ReleaseFile, choose, parse_page, release_file

URL = "https://example.org/simple/vllm/"
SHA = "a" * 64


def files(*names: str, yanked: tuple[str, ...] = ()) -> tuple[ReleaseFile, ...]:
    page = {"files": [{"filename": n, "url": n, "yanked": n in yanked} for n in names]}
    return parse_page(json.dumps(page).encode(), "application/json", URL)


def test_an_html_page() -> None:
    page = f"""<!DOCTYPE html><html><head><base href="../../files/"></head><body>
    <a href="vllm-0.19.1%2Bcu129-cp38-abi3-linux_x86_64.whl?token=x#egg=vllm&amp;sha256={SHA.upper()}"
       data-requires-python="&lt;3.15,&gt;=3.11" data-yanked="too &quot;new&quot;"
       data-core-metadata="sha256={"b" * 64}">any text</a>
    <a href="https://other.example/vllm-0.19.1.tar.gz" data-yanked data-core-metadata="true">s</a>
    <a href="torch-2.0.tar.gz#sha256={SHA}">torch</a> <a>no link</a> <a href="vllm-1.zip">zip</a>
    <a href="vllm-not.a.version.tar.gz">odd</a></body></html>"""
    wheel, sdist = parse_page(page.encode(), "text/html; charset=UTF-8", URL)
    assert wheel == ReleaseFile(
        filename="vllm-0.19.1+cu129-cp38-abi3-linux_x86_64.whl",
        url="https://example.org/files/vllm-0.19.1%2Bcu129-cp38-abi3-linux_x86_64.whl?token=x",
        version="0.19.1+cu129",
        kind="wheel",
        interpreters=("cp38",),
        platforms=("linux_x86_64",),
        sha256=SHA,
        metadata_sha256="b" * 64,
        requires_python="<3.15,>=3.11",
        yanked='too "new"',
        page=URL,
    )
    assert sdist.kind == "sdist"
    assert sdist.url == "https://other.example/vllm-0.19.1.tar.gz"
    assert (sdist.sha256, sdist.metadata_sha256, sdist.yanked) == (None, None, "")


@pytest.mark.parametrize("kind", ["application/vnd.pypi.simple.v1+json", "application/json; q=1"])
def test_a_json_page(kind: str) -> None:
    page = {
        "meta": {"api-version": "1.4"},
        "files": [
            {
                "filename": "vllm-0.21.0-1-cp38-abi3-manylinux_2_24_x86_64.whl",
                "url": "../../f/vllm-0.21.0-1-cp38-abi3-manylinux_2_24_x86_64.whl",
                "hashes": {"sha256": SHA, "md5": "x"},
                "size": 12,
                "yanked": True,
                "core-metadata": {"sha256": "b" * 64},
                "requires-python": None,
            },
            {"filename": "vllm-0.21.0.tar.gz", "url": "x/vllm-0.21.0.tar.gz", "hashes": {}},
            {"filename": "vllm-0.21.0.exe", "url": "x"},
            {"url": "nameless"},
        ],
    }
    wheel, sdist = parse_page(json.dumps(page).encode(), kind, URL)
    assert wheel.url == "https://example.org/f/vllm-0.21.0-1-cp38-abi3-manylinux_2_24_x86_64.whl"
    assert (wheel.build, wheel.size, wheel.sha256, wheel.yanked) == ((1, ""), 12, SHA, "")
    assert wheel.metadata_sha256 == "b" * 64
    assert (sdist.sha256, sdist.size, sdist.yanked) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("<html>", "Expecting value"),
        ("[]", "no list of files"),
        ('{"files": 3}', "no list of files"),
        ('{"files": [], "meta": {"api-version": "2.0"}}', "API version is 2.0"),
    ],
)
def test_json_of_something_else_is_an_error(body: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_page(body.encode(), "application/vnd.pypi.simple.v1+json", URL)


def test_a_hash_that_is_none_is_not_taken_for_one() -> None:
    (file,) = parse_page(b'<a href="vllm-1.tar.gz#sha256=xyz">x</a>', "text/html", URL)
    assert file.sha256 is None


X86 = "vllm-0.20.1-cp38-abi3-manylinux_2_35_x86_64.whl"
REBUILT = "vllm-0.20.1-1-cp38-abi3-manylinux_2_35_x86_64.whl"
ARM = "vllm-0.20.1-2-cp38-abi3-manylinux_2_35_aarch64.whl"
SDIST = "vllm-0.20.1.tar.gz"


@pytest.mark.parametrize(
    ("names", "best"),
    [
        ((SDIST, X86, ARM, REBUILT), REBUILT),
        ((SDIST, ARM, X86), X86),
        ((SDIST, ARM), ARM),
        ((SDIST,), SDIST),
        (("vllm-0.20.1-1-cp38-abi3-win_amd64.whl", X86), X86),
        (
            tuple(f"vllm-0.20.1-{tag}-{tag}-manylinux1_x86_64.whl" for tag in ("cp39", "cp311")),
            "vllm-0.20.1-cp311-cp311-manylinux1_x86_64.whl",
        ),
        (
            tuple(f"vllm-0.20.1-{n}-cp38-abi3-manylinux1_x86_64.whl" for n in (9, 10)),
            "vllm-0.20.1-10-cp38-abi3-manylinux1_x86_64.whl",
        ),
    ],
)
def test_a_version_stands_for_the_wheel_that_pip_takes_on_linux(
    names: tuple[str, ...], best: str
) -> None:
    for order in (names, names[::-1]):
        assert choose("0.20.1", files(*order))[0].filename == best


def test_a_file_name_stands_for_itself() -> None:
    for name in (X86, REBUILT, ARM, SDIST):
        chosen = choose(name, files(SDIST, X86, ARM, REBUILT))
        assert [file.filename for file in chosen] == [name]


def test_yanked_files_count_only_where_nothing_else_has_the_version() -> None:
    assert choose("0.20.1", files(X86, REBUILT, yanked=(REBUILT,)))[0].filename == X86
    assert choose("0.20.1", files(X86, yanked=(X86,)))[0].filename == X86
    assert choose(REBUILT, files(X86, REBUILT, yanked=(REBUILT,)))[0].filename == REBUILT


def test_versions_are_compared_as_versions() -> None:
    local = "vllm-0.20.1+cu129-cp38-abi3-linux_x86_64.whl"
    assert choose("v0.20.1.0", files(X86, local))[0].filename == X86
    assert choose("0.20.1", files(local))[0].filename == local
    assert choose("0.20.1+cu129", files(X86, local))[0].filename == local
    assert choose("0.20.1+cu130", files(X86, local)) == ()
    assert choose("nonsense", files(X86)) == ()


@pytest.mark.parametrize("name", ["vllm_mods-1.tar.gz", "vllm-1.whl", "vllm-1.tar.bz2", "README"])
def test_names_of_other_things(name: str) -> None:
    assert release_file(name, "") is None
