"""``curl`` and ``wget`` in a recording, with the files that were fetched before: each is put where it would be put."""

from __future__ import annotations

import getopt
import json
import os
import sys

FOLDER, INDEX = "fetched", "index.json"

# What neither changes the bytes that come nor asks for others.
_CURL = "LfsSkgO#vo:m:A:"
_CURL_LONG = (
    *("location", "fail", "silent", "show-error", "insecure", "globoff", "remote-name", "verbose"),
    *("compressed", "progress-bar", "no-progress-meter", "create-dirs", "fail-with-body", "ipv4"),
    *("output=", "max-time=", "connect-timeout=", "retry=", "retry-delay=", "user-agent=", "url="),
    *("retry-all-errors", "retry-connrefused", "proto=", "tlsv1.2", "http1.1", "output-dir="),
)
_WGET = "qcvO:P:t:T:U:n:46"
_WGET_LONG = (
    *("quiet", "continue", "verbose", "no-verbose", "no-check-certificate", "show-progress"),
    *("output-document=", "directory-prefix=", "tries=", "timeout=", "user-agent=", "progress="),
    *("https-only", "no-clobber", "inet4-only"),
)


def parse(argv: list[str]) -> tuple[str, str] | None:
    """Return the URL of a ``curl`` or ``wget``, and the file that it writes, ``""`` for its output.

    None for a use that is not known: what it gets may be something else than what lies at the URL.
    """
    curl = os.path.basename(argv[0]) == "curl"
    known = (_CURL, [*_CURL_LONG]) if curl else (_WGET, [*_WGET_LONG])
    try:
        options, urls = getopt.gnu_getopt(argv[1:], *known)
    except getopt.GetoptError:
        return None
    given = dict(options)
    urls += [value for name, value in options if name == "--url"]
    if len(urls) != 1:
        return None
    url = urls[0]
    own = url.partition("?")[0].rpartition("/")[2]
    if curl:
        named = given.get("-o", given.get("--output"))
        if named is None and not given.keys() & {"-O", "--remote-name"}:
            return url, ""
        folder = given.get("--output-dir", "")
    else:
        named = given.get("-O", given.get("--output-document"))
        folder = given.get("-P", given.get("--directory-prefix", "")) if named is None else ""
    if named == "-":
        return url, ""
    name = named or own
    return (url, os.path.join(folder, name)) if name else None


def main() -> int:
    """Serve one call out of the folder of this file; note one that is not there."""
    home = os.path.dirname(os.path.abspath(__file__))
    argv = sys.argv[1:]
    with open(os.path.join(home, FOLDER, INDEX), encoding="utf-8") as file:
        index = json.load(file)
    asked = parse(argv)
    if asked is None or asked[0] not in index:
        sys.stderr.write(f"{argv[0]}: not fetched before\n")
        code = 6 if argv[0] == "curl" else 4
        parts = (str(code), os.environ.get("VLLM_MODS_LINE", ""), *argv)
        with open(os.path.join(home, "asked"), "ab") as log:
            log.writelines(part.encode("utf-8", "surrogateescape") + b"\0" for part in parts)
            log.write(b"\n")
        return code
    url, place = asked
    with open(os.path.join(home, FOLDER, index[url]), "rb") as file:
        data = file.read()
    if not place:
        sys.stdout.buffer.write(data)
        return 0
    if "--create-dirs" in argv or argv[0] == "wget":
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    with open(place, "wb") as out:
        out.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
