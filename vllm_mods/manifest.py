"""mod.toml as data: dict in, ``Manifest`` out, every problem found at once.

Problems carry their key path (``variant[0].overlay[1].path: …``). Nothing here
reads a file: ``library`` does, and turns a manifest into a ``model.Mod``.
"""

# No `from __future__ import annotations`: see model.py.

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

from vllm_mods.errors import ManifestError
from vllm_mods.model import Allowance, Expectation

SCHEMA = 1
# Patterns as text: `re` compiles one when a manifest first has that key.
_NAME = r"[a-z0-9][a-z0-9._-]*\Z"
# PEP 440 in outline. packaging would cost a fifth of the time that `apply` has on a known tree;
# it reads the specifier for real when a version is compared with it.
_VERSION = r"v?\d+(\.\d+)*([-_.]?(a|b|rc|post|dev)\d*)*(\+[a-z0-9.]+)?\Z"
_SPECIFIER = r"\s*(===|==|!=|~=|<=|>=|<|>)\s*\d[\w.*+!-]*\s*\Z"
_REQUIREMENT = r"[A-Za-z0-9][\w.-]*\s*(\[[\w, .-]*\])?\s*([=<>!~;@(].*)?\Z"
_CAPABILITY = r"\d+\.\d\Z"
_SHA256 = r"[0-9a-f]{64}\Z"
_T = TypeVar("_T")
_STATUSES = ("open", "merged", "rejected", "none")


class OverlayEntry(NamedTuple):
    """``overlay = [{ source, path, replaces }]``: ``source`` is relative to the mod's folder."""

    source: str
    path: str
    replaces: tuple[str, ...]


class TemplateEntry(NamedTuple):
    """``templates = [{ name, file }]``: ``name`` is a folder of ``templates/``."""

    name: str
    file: str


class VariantEntry(NamedTuple):
    """One ``[[variant]]``, its files still by name."""

    id: str
    vllm: str
    patches: tuple[str, ...]
    root: str
    overlay: tuple[OverlayEntry, ...]
    templates: tuple[TemplateEntry, ...]
    python: tuple[str, ...]
    expects: tuple[Expectation, ...]
    allow: tuple[Allowance, ...]


class Manifest(NamedTuple):
    """A mod.toml that has no problems."""

    name: str
    version: str
    summary: str
    license: str
    default: bool
    requires: tuple[str, ...]
    conflicts: tuple[str, ...]
    after: tuple[str, ...]
    upstream_status: str
    upstream_issues: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]
    serve_args: tuple[str, ...]
    compute_capability: tuple[str, ...]
    variants: tuple[VariantEntry, ...]


def from_toml(data: bytes, where: str) -> Manifest:
    """Read a manifest. Raises ``ManifestError`` with every problem."""
    import tomllib  # noqa: PLC0415  (4 ms that a call without mods need not pay)

    try:
        table = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestError(where, (f"not UTF-8: byte {error.start}",)) from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(
            where, (f"not TOML: {error}",), hint="https://toml.io/en/v1.0.0 has the syntax"
        ) from error
    read = from_dict(table, where)
    _check_ranges(read, where)
    return read


def from_dict(table: Mapping[str, Any], where: str, *, checked: bool = False) -> Manifest:
    """Read a manifest from a parsed table. Raises ``ManifestError`` with every problem.

    ``checked`` says that it is out of mod.lock, which is written from a manifest whose words were
    held against their patterns: not once more, since compiling these takes longer than the rest.
    """
    top = _Table(table, "", [], checked=checked)
    schema = top.get("schema", int, required=True)
    if schema is not None and schema != SCHEMA:
        top.problem("schema", f"this version of vllm-mods reads schema {SCHEMA}, not {schema}")
    upstream = top.table("upstream")
    evidence = top.table("evidence")
    serve = top.table("serve")
    hardware = top.table("hardware")
    variants = tuple(_variant(entry) for entry in top.tables("variant"))
    manifest = Manifest(
        name=top.match(
            "name", _NAME, "lower case letters, digits, '.', '_' and '-'", required=True
        ),
        version=top.match("version", _VERSION, "a version such as 1.0.0", required=True),
        summary=top.get("summary", str, required=True) or "",
        license=top.get("license", str, required=True) or "",
        default=top.get("default", bool) or False,
        requires=top.strings("requires", _NAME, "the name of a mod"),
        conflicts=top.strings("conflicts", _NAME, "the name of a mod"),
        after=top.strings("after", _NAME, "the name of a mod"),
        upstream_issues=upstream.strings("issues"),
        upstream_status=upstream.choice("status", _STATUSES, "none"),
        evidence=_evidence(evidence),
        serve_args=serve.strings("args"),
        compute_capability=hardware.strings(
            "compute_capability", _CAPABILITY, "a capability such as '9.0'"
        ),
        variants=variants,
    )
    if not variants and "variant" not in top.bad:
        top.problem("variant", "a mod needs at least one [[variant]]")
    ids = [variant.id for variant in variants]
    for repeated in sorted({name for name in ids if name and ids.count(name) > 1}):
        top.problem("variant", f"two variants have the id {repeated!r}")
    for key in ("requires", "conflicts", "after"):
        if manifest.name and manifest.name in getattr(manifest, key):
            top.problem(key, "a mod cannot name itself")
    for table_ in (top, upstream, evidence, serve, hardware):
        table_.refuse_unknown()
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    return manifest


def _check_ranges(read: Manifest, where: str) -> None:
    """Have packaging read what only looked like a specifier; nothing of it needs doing twice."""
    from vllm_mods import versions  # noqa: PLC0415

    problems = []
    for i, variant in enumerate(read.variants):
        try:
            versions.in_range("0", variant.vllm)
        except ValueError as error:
            problems.append(f"variant[{i}].vllm: {error}")
    if problems:
        raise ManifestError(where, tuple(problems))


def _evidence(table: "_Table") -> tuple[tuple[str, str], ...]:
    found = []
    for key in ("log", "behaviour"):
        if (text := table.get(key, str)) is not None:
            found.append((key, text))
            if key == "log" and not table.checked:
                try:
                    re.compile(text)
                except re.error as error:
                    table.problem(key, f"not a regular expression: {error}")
    return tuple(found)


def _variant(table: "_Table") -> VariantEntry:
    entries = {key: table.tables(key) for key in ("overlay", "templates", "expects", "allow")}
    overlay = tuple(
        OverlayEntry(
            source=entry.path("source", required=True),
            path=entry.path("path", required=True),
            replaces=entry.strings("replaces", _SHA256, "a sha256 in hexadecimal"),
        )
        for entry in entries["overlay"]
    )
    templates = tuple(
        TemplateEntry(
            name=entry.match("name", _NAME, "the name of a template", required=True),
            file=entry.path("file", required=True),
        )
        for entry in entries["templates"]
    )
    expects = tuple(
        Expectation(
            path=entry.path("path", required=True),
            symbol=entry.get("symbol", str, required=True) or "",
            signature=entry.get("signature", str),
            base=entry.get("base", str),
        )
        for entry in entries["expects"]
    )
    allow = tuple(
        Allowance(
            code=entry.get("code", str, required=True) or "",
            scope=entry.get("scope", str) or "",
            reason=entry.get("reason", str, required=True) or "",
        )
        for entry in entries["allow"]
    )
    variant = VariantEntry(
        id=table.get("id", str, required=True) or "",
        vllm=table.specifier("vllm"),
        patches=table.paths("patches"),
        root=table.path("root"),
        overlay=overlay,
        templates=templates,
        python=table.strings("python", _REQUIREMENT, "a PEP 508 requirement"),
        expects=expects,
        allow=allow,
    )
    if not (variant.patches or overlay or templates) and not table.problems:
        table.problem("", "a variant needs patches, an overlay or templates")
    for entry in templates:
        if "/" in entry.file:
            table.problem("templates", f"{entry.file!r} is not a plain file name")
    for part in (table, *(entry for group in entries.values() for entry in group)):
        part.refuse_unknown()
    return variant


class _Table:
    """A TOML table with its key path; problems go to one list for the whole manifest."""

    def __init__(
        self, table: Mapping[str, Any], at: str, problems: list[str], *, checked: bool
    ) -> None:
        self.raw = table
        self.at = at
        self.problems = problems
        self.checked = checked
        self.known: set[str] = set()
        self.bad: set[str] = set()

    def problem(self, key: str, why: str) -> None:
        where = f"{self.at}.{key}" if self.at and key else self.at or key
        self.bad.add(key)
        self.problems.append(f"{where}: {why}")

    def get(self, key: str, kind: type[_T], *, required: bool = False) -> _T | None:
        self.known.add(key)
        value = self.raw.get(key)
        if value is None:
            if required:
                self.problem(key, "is required")
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.problem(key, f"expected {_WORDS[kind]}, found {_found(value)}")
            return None
        if required and value == "":
            self.problem(key, "is empty")
        return cast("_T", value)

    def matches(self, pattern: str, text: str) -> bool:
        return self.checked or re.match(pattern, text) is not None

    def match(self, key: str, pattern: str, words: str, *, required: bool = False) -> str:
        text = self.get(key, str, required=required)
        if text and not self.matches(pattern, text):
            self.problem(key, f"expected {words}, found {text!r}")
        return text or ""

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        text = self.get(key, str)
        if text is not None and text not in allowed:
            self.problem(key, f"expected one of {', '.join(allowed)}, found {text!r}")
        return text or default

    def strings(self, key: str, pattern: str | None = None, words: str = "") -> tuple[str, ...]:
        found = []
        for i, value in enumerate(self.get(key, list) or []):
            if not isinstance(value, str):
                self.problem(f"{key}[{i}]", f"expected a string, found {_found(value)}")
            elif pattern is not None and not self.matches(pattern, value):
                self.problem(f"{key}[{i}]", f"expected {words}, found {value!r}")
            else:
                found.append(value)
        return tuple(found)

    def path(self, key: str, *, required: bool = False) -> str:
        text = self.get(key, str, required=required) or ""
        self._check_path(key, text)
        return text.strip("/") if key == "root" else text

    def paths(self, key: str) -> tuple[str, ...]:
        found = self.strings(key)
        for i, text in enumerate(found):
            self._check_path(f"{key}[{i}]", text)
        return found

    def _check_path(self, key: str, text: str) -> None:
        if text.startswith("/") or "\\" in text:
            self.problem(key, f"expected a relative path with '/', found {text!r}")
        elif ".." in text.split("/"):
            self.problem(key, f"{text!r} leads out of its folder")

    def specifier(self, key: str) -> str:
        text = self.get(key, str, required=True) or ""
        for part in text.split(",") if text else []:
            if not self.matches(_SPECIFIER, part):
                self.problem(key, f"{part.strip()!r} is not a version specifier such as '>=0.20'")
                return text
        return text

    def table(self, key: str) -> "_Table":
        return self.child(self.get(key, dict) or {}, key)

    def child(self, table: Mapping[str, Any], key: str) -> "_Table":
        return _Table(table, self._path(key), self.problems, checked=self.checked)

    def tables(self, key: str) -> "tuple[_Table, ...]":
        found = []
        for i, value in enumerate(self.get(key, list) or []):
            if isinstance(value, dict):
                found.append(self.child(value, f"{key}[{i}]"))
            else:
                self.problem(f"{key}[{i}]", f"expected a table, found {_found(value)}")
        return tuple(found)

    def refuse_unknown(self) -> None:
        for key in self.raw:
            if key not in self.known:
                import difflib  # noqa: PLC0415

                near = difflib.get_close_matches(key, self.known, 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                self.problem(key, f"unknown key{meant}")

    def _path(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at else key


_WORDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    list: "an array",
    dict: "a table",
}


def _found(value: object) -> str:
    return next((words for kind, words in _WORDS.items() if type(value) is kind), repr(value))
