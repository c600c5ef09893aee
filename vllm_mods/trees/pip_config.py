"""pip's own settings: where packages come from, and how to reach that place.

Read as pip documents it ("Configuration", pip 25): the environment's ``PIP_*`` over the files; of
the files ``PIP_CONFIG_FILE`` over the environment's own, the user's and the global ones; in a file
the sections ``[install]`` and ``[download]`` over ``[global]``. pip is not asked itself: that costs
half a second, and it need not be installed beside this tool.
"""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_mods.base.errors import UsageError

_PYPI = "https://pypi.org/simple"
_SECTIONS = ("global", "install", "download")
_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


class PipSettings(NamedTuple):
    """The settings that matter here.

    ``index_urls`` are in the order they are asked; ``timeout`` is in seconds; ``verify`` is the
    file or folder with certificates, ``None`` for the default ones; ``client_cert`` a file.
    """

    index_urls: tuple[str, ...] = (_PYPI,)
    find_links: tuple[str, ...] = ()
    verify: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0
    retries: int = 5
    trusted_hosts: tuple[str, ...] = ()

    def trusts(self, url: str) -> bool:
        """Tell whether pip is told to ask the URL's host without TLS or without looking at its certificate."""
        parts = urlsplit(url)
        return parts.hostname is not None and any(
            host in {parts.hostname, f"{parts.hostname}:{parts.port}"}
            for host in self.trusted_hosts
        )


def read_settings(environ: Mapping[str, str], *, prefix: str = sys.prefix) -> PipSettings:
    """Read the settings; ``prefix`` is the environment whose ``pip.conf`` counts.

    Raises ``UsageError`` for a file or a value that pip would not take either.
    """
    text = _merge(environ, prefix)
    lists = ("extra-index-url", "find-links", "trusted-host")
    more_urls, links, trusted = (tuple(text.get(option, "").split()) for option in lists)
    index_urls = (text.get("index-url", _PYPI), *more_urls)
    # pip's requests honours the first two, its truststore the third.
    variables = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    certificates = (text.get("cert"), *map(environ.get, variables), "")
    try:
        for url in (*index_urls, *links):
            urlsplit(url).port  # noqa: B018  (what is wrong with it is said when it is asked for)
    except ValueError as error:
        # not the URL itself: a password may be in it
        raise UsageError(f"an index or find-links URL is invalid: {error}", hint=_SHOW) from error
    no_index = text.get("no-index", "false")
    if no_index.lower() not in _TRUE | _FALSE:
        raise UsageError(f"pip's no-index = {no_index!r} is neither true nor false", hint=_SHOW)
    return PipSettings(
        index_urls=() if no_index.lower() in _TRUE else index_urls,
        find_links=links,
        verify=_path(next(filter(None, certificates), ""), environ),
        client_cert=_path(text.get("client-cert", ""), environ),
        proxy=text.get("proxy"),
        timeout=_number("timeout", text.get("timeout", text.get("default-timeout", "15"))),
        retries=int(_number("retries", text.get("retries", "5"))),
        trusted_hosts=trusted,
    )


def config_files(environ: Mapping[str, str], prefix: str) -> Iterator[str]:
    """Yield the files that pip reads, the weakest first."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return
    home = environ.get("HOME") or os.path.expanduser("~")
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield os.path.join(folder, "pip", "pip.conf")
    yield "/etc/pip.conf"
    if not (own and os.path.exists(own)):
        yield os.path.join(home, ".pip", "pip.conf")
        config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        yield os.path.join(config, "pip", "pip.conf")
    yield os.path.join(prefix, "pip.conf")
    if own:
        yield own


def _merge(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the options that are set. Empty values count as not set, as with pip."""
    parser = configparser.RawConfigParser()
    parser.optionxform = _option  # type: ignore[assignment,method-assign]
    for file in config_files(environ, prefix):
        try:
            parser.read(file, encoding="utf-8")  # nothing of one that cannot be opened, as for pip
        except (UnicodeDecodeError, configparser.Error) as error:
            why = f"{file}: cannot read pip's settings: {error}"
            raise UsageError(why, hint="pip config debug") from error
    merged: dict[str, str] = {}
    for name in filter(parser.has_section, _SECTIONS):
        merged |= {option: value for option, value in parser.items(name) if value}
    for variable, value in environ.items():
        if variable.startswith("PIP_") and value and variable != "PIP_CONFIG_FILE":
            merged[_option(variable.removeprefix("PIP_"))] = value
    return merged


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _number(option: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(f"pip's {option} = {value!r} must be a number of at least 0", hint=_SHOW)
    return number


def _path(value: str, environ: Mapping[str, str]) -> str | None:
    if value.startswith("~/") and environ.get("HOME"):
        return os.path.join(environ["HOME"], value[2:])
    return os.path.expanduser(value) or None


_SHOW = "pip config list"
