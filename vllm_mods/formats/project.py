"""``vllm-mods.toml``: a project's libraries and targets, and whose mods it takes. Bytes in, ``ProjectFile`` out. Pure."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.schema import BUNDLED, NAME, NAME_IN_WORDS, Table, in_words, reading

SCHEMA = 1
KINDS = ("git", "package", "path")
_HOST = r"(?:[A-Za-z0-9][\w.-]*|\[[0-9a-f:]+\])(?::\d+)?"
_REST = r"[^\s?#@\x00-\x1f\x7f]*\Z"
_FORMS = {
    "git": (
        (
            rf"(?:(?:https://|ssh://(?:[\w.]+@)?){_HOST}/|http://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?/"
            rf"|[\w.]+@[A-Za-z0-9][\w.-]*:(?![-/])|file:///|\.{{0,2}}/(?!/)){_REST}"
        ),
        (
            "https://HOST/PATH, ssh://HOST/PATH, user@HOST:PATH or a path (/…, ./…), without user and password: git gets these from its credential helpers"
        ),
    ),
    "package": (r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?\Z", "the name of a distribution"),
    "path": (r"[^\x00]+\Z", "a folder"),
}
_HINT = "docs/reference/vllm-mods-toml.md has every key"
_REVISION = r"(?!.*(?:\.\.|//|\.lock\Z))[A-Za-z0-9_][\w./+-]*\Z"


class LibrarySource(NamedTuple):
    """Where a library comes from: its ``kind``, one of ``KINDS``, and what is named there.

    ``rev`` and ``subdirectory`` are of git alone; ``""`` is its default branch, and all of it.
    ``allowed_signers`` is a file: one of these has to have signed it.
    """

    kind: str
    place: str
    rev: str = ""
    subdirectory: str = ""
    allowed_signers: str = ""

    @property
    def keys(self) -> dict[str, str]:
        """What a table has of it."""
        texts = {self.kind: self.place, "rev": self.rev, "subdirectory": self.subdirectory}
        texts["allowed_signers"] = self.allowed_signers
        return {key: text for key, text in texts.items() if text}

    def __str__(self) -> str:
        """Name it as ``add`` takes it."""
        if self.kind == "path":
            return self.place
        rev = f"@{self.rev}" if self.rev else ""
        below = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
        return f"{self.kind}{'+' if self.kind == 'git' else ':'}{self.place}{rev}{below}"


class SyncTarget(NamedTuple):
    """What a vLLM is to hold: the mods of a pairing, and ``mods``. ``path`` is it, None for the active one."""

    name: str
    path: str | None
    mods: tuple[str, ...]
    pairing: str | None


class Policy(NamedTuple):
    """Whose mods go in. ``where`` is its file; what it names lies beside that.

    One of ``allowed_signers`` has to have signed a library's list of hashes; ``require_hashes`` are the sha256 of such
    lists (``sha256:HEX``), or files with lists of the project's own. ``bundled`` says
    whether what comes with the tool is taken without. A pairing's model lies below one of ``model_roots``, if there are any.
    """

    where: str
    allowed_signers: str | None
    require_hashes: tuple[str, ...]
    bundled: bool
    model_roots: tuple[str, ...]

    @property
    def pins(self) -> bool:
        """Whether somebody has to vouch for mods."""
        return self.allowed_signers is not None or bool(self.require_hashes)


class ProjectFile(NamedTuple):
    """A project that has no problems. ``where`` is its file; paths in it are from there."""

    where: str
    libraries: Mapping[str, LibrarySource]
    targets: tuple[SyncTarget, ...] = ()
    policy: Policy | None = None


def parse(data: bytes, where: str) -> ProjectFile | None:
    """Read a project; None for a ``pyproject.toml`` without one. Raises ``ManifestError`` with every problem."""
    raw: Mapping[str, Any] = toml_of(data, where)
    at = ""
    if where.endswith("pyproject.toml"):
        tools = raw.get("tool")
        if not isinstance(tools, dict) or "vllm-mods" not in tools:
            return None
        at, raw = "tool.vllm-mods", tools["vllm-mods"]
        if not isinstance(raw, dict):
            why = f"{at}: expected a table, found {in_words(raw)}"
            raise ManifestError(where, (why,), hint=_HINT)
    with reading(raw, where, SCHEMA, at=at, hint=_HINT) as top:
        trust = top.table("trust")
        libraries, targets = top.named("libraries", _library), top.named("targets", _target)
        policy = _policy(trust, where) if "trust" in top.raw else None
        return ProjectFile(where, libraries, tuple(targets.values()), policy)


def source_of(table: Table) -> LibrarySource:
    """Read where a library comes from, of a table that may have other keys too."""
    kinds = [kind for kind in KINDS if kind in table.raw]
    if len(kinds) != 1:
        table.problem("", f"expected one of {', '.join(KINDS)}, found {', '.join(kinds) or 'none'}")
    for kind in kinds:
        pattern, words = _FORMS[kind]
        place = table.text(kind, required=True)
        # the text may be a secret, and is not repeated
        if place and not re.match(pattern, place, re.ASCII):
            table.problem(kind, f"expected {words}")
        rev = below = ""
        if kind == "git":
            rev, below = table.text("rev"), table.text("subdirectory")
            if rev and not re.match(_REVISION, rev):  # nor is this: it ends an address
                table.problem("rev", "expected a tag, a branch or a commit")
            if below.startswith("/") or re.search(r"[\\\0?@]|(?:\A|/)\.\.(?:/|\Z)", below):
                table.problem("subdirectory", "expected a folder of the repository, with '/'")
            below = below.strip("/")
        return LibrarySource(kind, place, rev, below, table.text("allowed_signers"))
    return LibrarySource("path", "")


def _library(table: Table) -> LibrarySource:
    if table.name == BUNDLED:
        table.problem("", "is reserved for vllm-mods")
    elif not re.match(NAME, table.name):
        table.problem("", f"expected {NAME_IN_WORDS}")
    return source_of(table)


def _target(table: Table) -> SyncTarget:
    pairing, place = table.get("pairing", str), table.get("path", str)
    if place is not None and ("\0" in place or not place):
        table.problem("path", "is not a path")
    target = SyncTarget(table.name, place, table.strings("mods"), pairing)
    if "mods" not in table.raw and pairing is None:
        table.problem("", "names neither mods nor a pairing; if no mods are meant, write mods = []")
    return target


def _policy(trust: Table, where: str) -> Policy:
    bundled = trust.get("bundled", bool)
    policy = Policy(
        where=where,
        allowed_signers=trust.get("allowed_signers", str),
        require_hashes=trust.strings("require_hashes", r".+\Z", "a file, or sha256:HEX"),
        bundled=bundled is None or bundled,
        model_roots=trust.strings("model_roots", r"[^\0]+\Z", "a folder"),
    )
    if not policy.pins and not policy.model_roots:
        trust.problem(
            "", "needs one of allowed_signers, require_hashes and model_roots to trust anything"
        )
    trust.refuse_unknown()
    return policy
