"""A distribution's RECORD, edited row by row. Pure: bytes in, bytes out.

Format: "Recording installed projects" of the Python packaging specifications: CSV rows
``path,sha256=<urlsafe base64 without padding>,<size>``. Rows of other files keep their bytes.
"""

import re
from binascii import a2b_hex, b2a_base64
from collections.abc import Mapping
from itertools import accumulate

# In quotes, in which two stand for one; quotes that are not closed go on to the end.
_NAME = rb'"(?:[^"]|"")*+"|".*|[^,]*'


def edit(record: bytes, files: Mapping[str, tuple[str, int] | None]) -> bytes:
    """Return RECORD with the given files' rows made true.

    A file is (sha256 in hex, size in bytes), or None if it is gone. A row that states no hash goes on stating
    none. A new row goes before RECORD's own row, else to the end.
    """
    for path, file in sorted(files.items()):
        span = _find(record, path)
        if span is None:
            record = record if file is None else _add(record, path, file)
            continue
        start, end = span
        content = record[start:end].rstrip(b"\r\n")
        name = _name(content)
        if file is None:
            record = record[:start] + record[end:]
        elif content != name + b",,":
            rest = record[start + len(content) :]
            record = record[:start] + name + _columns(file) + rest
    return record


def lists(record: bytes, path: str) -> bool:
    """Tell whether RECORD has a row for ``path``."""
    return _find(record, path) is not None


def takes(record: bytes, path: str) -> bool:
    """Tell whether RECORD lists the package that a new file goes into."""
    folders = accumulate(path.split("/")[:-1], "{}/{}".format)
    return any(lists(record, f"{folder}/__init__.py") for folder in folders)


def agrees(record: bytes, path: str, digest: str, size: int) -> bool | None:
    """Compare a file with its row; None where there is no row or the row states no sha256."""
    stated = columns(record, path)
    if stated is None or not stated.startswith(b",sha256="):
        return None
    return stated == _columns((digest, size))


def columns(record: bytes, path: str) -> bytes | None:
    """Return what stands behind a path in its row, the comma first; None where there is no row."""
    span = _find(record, path)
    if span is None:
        return None
    row = record[slice(*span)].rstrip(b"\r\n")
    return row[len(_name(row)) :]


def _find(record: bytes, path: str) -> tuple[int, int] | None:
    """Return where the row of ``path`` starts and ends. By its bytes: a RECORD may have 10,000 rows."""
    plain = path.encode("utf-8", "surrogateescape")
    for name in (_written(plain), _quoted(plain)):
        start = 0 if record.startswith(name + b",") else record.find(b"\n" + name + b",") + 1
        if start or record.startswith(name + b","):
            return start, record.find(b"\n", start + len(name)) + 1 or len(record)
    return None


def _quoted(name: bytes) -> bytes:
    return b'"' + name.replace(b'"', b'""') + b'"'


def _written(name: bytes) -> bytes:
    """Return a name as a row begins with it."""
    return _quoted(name) if any(mark in name for mark in (b",", b'"', b"\r", b"\n")) else name


def _name(row: bytes) -> bytes:
    """Return a row's first column as it is written, quotes included."""
    match = re.match(_NAME, row, re.DOTALL)
    return match[0] if match else row


def _columns(file: tuple[str, int]) -> bytes:
    digest, size = file
    encoded = b2a_base64(a2b_hex(digest), newline=False).rstrip(b"=")
    return b",sha256=" + encoded.translate(bytes.maketrans(b"+/", b"-_")) + b",%d" % size


def _add(record: bytes, path: str, file: tuple[str, int]) -> bytes:
    ending = b"\r\n" if b"\r\n" in record else b"\n"
    own = record.find(b".dist-info/RECORD,")
    place = record.rfind(b"\n", 0, own) + 1 if own >= 0 else len(record)
    row = _written(path.encode("utf-8", "surrogateescape")) + _columns(file)
    cut = place == len(record) and record and not record.endswith(b"\n")
    row = ending + row if cut else row + ending
    return record[:place] + row + record[place:]
