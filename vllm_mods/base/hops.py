"""Where a link or a redirect may lead; and what of a URL may be shown. Pure."""

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from vllm_mods.base.errors import TreeError


def check_hop(first: str, then: str, plain: Callable[[str], bool] = lambda _: False) -> None:
    """Raise ``TreeError`` for a redirect or a link that leads where the rule of ``first`` does not.

    https leads to https. http leads there too, and to http where ``plain`` has the host, or from this machine
    to this machine. Only what a file says leads to a file.
    """
    before, after = urlsplit(first).scheme, urlsplit(then).scheme
    local = is_local(urlsplit(first).hostname) and is_local(urlsplit(then).hostname)
    is_plain = before == after == "http" and (local or plain(then))
    if before == "file" or after == "https" or is_plain:
        return
    if after == "http":
        why = "anybody on the network could change the data"
        if before == "http":
            why = "the connection to that machine does not use TLS"
    else:
        why = "a server must not name a local file" if after == "file" else "this is not a URL"
    why = f"{redact(first)} leads to {redact(then)}: refused, because {why}"
    raise TreeError(why, hint="use an index or registry whose links and redirects use https")


def is_local(host: str | None) -> bool:
    """Tell whether a host is this machine."""
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def place(url: str) -> str:
    """Return the host and port of a URL."""
    return urlsplit(url).netloc.rpartition("@")[2]


def redact(url: str) -> str:
    """Return a URL to show: without the user, the password and the query (a token may be in it)."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, place(url), parts.path, "", ""))
