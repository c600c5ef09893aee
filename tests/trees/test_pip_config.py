"""pip's settings, with pip itself as the judge where it is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import UsageError
from vllm_mods.trees.pip_config import config_files, read_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_settings_it_is_pypi(tmp_path: Path) -> None:
    settings = read_settings({"PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)})
    assert settings.index_urls == ("https://pypi.org/simple",)
    assert (settings.find_links, settings.verify, settings.proxy) == ((), None, None)
    assert (settings.timeout, settings.retries) == (15, 5)


def test_each_place_is_stronger_than_the_one_before(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    prefix = tmp_path / "venv"
    places = [
        tmp_path / "xdg" / "pip" / "pip.conf",
        tmp_path / "home" / ".pip" / "pip.conf",
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        prefix / "pip.conf",
    ]
    for number, place in enumerate(places):
        write(place, f"[global]\nindex-url = https://{number}.example/simple\n")
        settings = read_settings(environ, prefix=str(prefix))
        assert settings.index_urls == (f"https://{number}.example/simple",)
    own = tmp_path / "own.conf"
    write(own, "[global]\nindex_url = https://own.example/simple\n")
    environ["PIP_CONFIG_FILE"] = str(own)
    assert read_settings(environ, prefix=str(prefix)).index_urls == ("https://own.example/simple",)
    # With a file of one's own the user's files are not read, the environment's is.
    files = list(config_files(environ, str(prefix)))
    assert str(places[2]) not in files
    assert str(places[3]) in files
    environ["PIP_INDEX_URL"] = "https://env.example/simple"
    assert read_settings(environ, prefix=str(prefix)).index_urls == ("https://env.example/simple",)


def test_the_commands_sections_are_stronger_than_global_in_any_file(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    write(
        tmp_path / "xdg" / "pip" / "pip.conf",
        "[install]\nretries = 1\ntimeout = 1\n[download]\ntimeout = 2\n",
    )
    prefix = tmp_path / "venv"
    write(prefix / "pip.conf", "[global]\nretries = 9\ntimeout = 9\nproxy = http://p:1\n")
    settings = read_settings(environ, prefix=str(prefix))
    assert (settings.retries, settings.timeout, settings.proxy) == (1, 2, "http://p:1")


def test_all_settings_that_matter(tmp_path: Path) -> None:
    write(
        tmp_path / "pip.conf",
        """[global]
index-url = https://one.example/simple
extra-index-url =
    https://two.example/simple
    file:///three/simple
find-links = /wheels
    https://four.example/list.html
trusted-host = five.example six.example:8080
client-cert = ~/key.pem
timeout = 3.5
""",
    )
    settings = read_settings(
        {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": "/h", "PIP_CERT": "/c.pem"},
        prefix="/nowhere",
    )
    assert settings.index_urls == (
        "https://one.example/simple",
        "https://two.example/simple",
        "file:///three/simple",
    )
    assert settings.find_links == ("/wheels", "https://four.example/list.html")
    assert settings.trusted_hosts == ("five.example", "six.example:8080")
    assert (settings.verify, settings.client_cert) == ("/c.pem", "/h/key.pem")
    assert settings.timeout == 3.5


def test_no_index_leaves_find_links_only() -> None:
    base = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "/w", "PIP_NO_INDEX": "true"}
    settings = read_settings(base)
    assert settings.index_urls == ()
    assert settings.find_links == ("/w",)
    assert read_settings({**base, "PIP_NO_INDEX": "0"}).index_urls != ()


def test_empty_values_count_as_not_set() -> None:
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "", "PIP_NO_INDEX": ""}
    assert read_settings(environ).index_urls == ("https://pypi.org/simple",)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_of_the_environment(name: str) -> None:
    environ = {"PIP_CONFIG_FILE": os.devnull, name: "/env.pem"}
    assert read_settings(environ).verify == "/env.pem"
    assert read_settings({**environ, "PIP_CERT": "/pip.pem"}).verify == "/pip.pem"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[global\n", "cannot read pip's settings"),
        ("[global]\ntimeout = soon\n", "pip's timeout = 'soon'"),
        ("[global]\nretries = -1\n", "retries"),
        ("[global]\nno-index = perhaps\n", "neither true nor false"),
    ],
)
def test_settings_that_pip_would_not_take_either(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "pip.conf", text)
    with pytest.raises(UsageError, match=message) as caught:
        read_settings({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, prefix="/nowhere")
    assert caught.value.hint


@pytest.mark.slow
def test_pip_reads_the_same_files_in_the_same_order(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = pytest.importorskip("pip._internal.configuration")
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    import sys

    found = configuration.get_configuration_files()
    kinds = getattr(configuration, "kinds", None) or configuration.Kind  # pip 26.3 renamed them
    expected = [*found[kinds.GLOBAL], *found[kinds.USER], *found[kinds.SITE]]
    assert list(config_files(environ, sys.prefix)) == expected
