"""The names in the heads of a unified diff, as `git apply` reads them. Pure, on bytes."""

import re

from vllm_mods.base.errors import VllmModsError

_NULL = b"/dev/null"
# a blank in front where a terminal or a mail has turned the tab into blanks
_STAMP = rb"[\t ]+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [-+]\d\d:?\d\d)?[ \t]*\Z"
_CLOCK = r"(?:[01]\d|2[0-3]):?[0-5]\d"
_EPOCH = rf".*\t((?:1969-12-31|1970-01-01) {_CLOCK}:00)(?:\.0+)?( [-+]{_CLOCK})\Z".encode()
# Octal, or one of C's letters; a backslash before anything else is one of its own.
_QUOTED = rb'\\(?:[0-3][0-7]{2}|[abtnvfr"\\])|"|[^"\\]+|(\\)'


class BadName(VllmModsError):
    """A name that no file of a tree can have: the reader of a diff says in which of its lines."""


def is_no_file(raw: bytes) -> bool:
    """Tell whether what is behind ``---`` or ``+++`` is /dev/null."""
    return raw.startswith(_NULL) and not raw[len(_NULL) :][:1].strip()


def is_epoch(raw: bytes) -> bool:
    """Tell whether a name is stamped with the beginning of 1970: `diff -N` means "no such file"."""
    stamp = re.match(_EPOCH, raw)
    if stamp is None:
        return False
    from datetime import datetime  # noqa: PLC0415  (few patches have stamps)

    return (
        datetime.strptime((stamp[1] + stamp[2]).decode(), "%Y-%m-%d %H:%M:%S %z").timestamp() == 0
    )


def bare(raw: bytes) -> bytes:
    """Return a name without its quotes, or without the time stamp behind it."""
    if raw.startswith(b'"'):
        return _unquoted(raw)
    if b" " not in raw and b"\t" not in raw:
        return raw
    name = re.sub(_STAMP, b"", raw)
    return name if name != raw else raw.split(b"\t", 1)[0]


def is_backup_of(name: str, other: str) -> bool:
    """Tell whether a name is another one with an ending such as ``.orig`` or ``~``."""
    return name.startswith(other) and re.match(r"[.~_-][\w.~-]*\Z", name[len(other) :]) is not None


def path(raw: bytes, *, prefix: bytes | None) -> str:
    """Return a name, as the head has it, as a path in a tree. Raises ``BadName``."""
    name = bare(raw)
    if prefix is not None:
        if not name.startswith(prefix):
            raise BadName(
                f"the path {name.decode(errors='replace')!r} does not start with {prefix.decode()!r}",
                hint="make the patch with `git diff --src-prefix=a/ --dst-prefix=b/`; "
                "`vllm-mods new NAME --from-diff FILE --tree TREE` takes any paths",
            )
        name = name[len(prefix) :]
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadName("a path is not UTF-8") from error
    parts = text.split("/")
    if text.startswith("/") or ".." in parts:
        why = f"the path {text!r} points outside the tree"
        raise BadName(why, hint="paths in a patch are relative to the folder that contains vllm/")
    if "" in parts or "." in parts or any(ord(char) < 32 for char in text):
        raise BadName(f"the path {text!r} is not a plain relative path")
    return text


def in_git_head(rest: bytes) -> str:
    """Return the name in ``diff --git a/NAME b/NAME``, which states it twice. Raises ``BadName``."""
    if rest.startswith(b'"'):
        return path(rest, prefix=b"a/")
    half = (len(rest) - 1) // 2
    first, second = rest[:half], rest[half + 1 :]
    if first[2:] != second[2:] or rest[half : half + 1] != b" ":
        why = f"`diff --git {rest.decode(errors='replace')}` names two files, but no line says that one is renamed to the other"
        raise BadName(why, hint="make the patch with `git diff`, which marks renamed files")
    return path(first, prefix=b"a/")


def _unquoted(raw: bytes) -> bytes:
    name = b""
    for part in re.finditer(_QUOTED, raw[1:]):
        if part[0] == b'"':
            return name
        if part[1] is not None:
            raise BadName("a quoted path has an unknown escape sequence")
        # Python has C's escapes, and bytes that are none stay what they are in Latin-1.
        name += part[0].decode("unicode_escape").encode("latin-1")
    raise BadName("a quoted path has no closing quote")
