"""The data that everything else passes around. Pure, frozen, no I/O.

Paths are POSIX paths relative to the *site root*, the folder that holds ``vllm/``. The one exception is a
chat template written to a workspace outside the site root: its path is absolute.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode

_REPR_LINES = 20  # a plan's repr fits a screen


class Verdict(StrEnum):
    """What would become of one mod on one tree.

    ``applies`` and ``moved`` (the same, at another line) would be written; ``applied`` and
    ``upstream`` are in already; all others are refused.

    >>> vm.Verdict("moved").writes, vm.Verdict("upstream").ok, vm.Verdict("conflict").ok
    (True, True, False)
    """

    APPLIES = "applies"
    MOVED = "moved"
    APPLIED = "applied"
    UPSTREAM = "upstream"
    CONFLICT = "conflict"
    MISPLACED = "misplaced"
    UNFIT = "unfit"
    MISSING = "missing"
    PARTIAL = "partial"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"

    @property
    def writes(self) -> bool:
        """Whether ``apply`` would change files for this verdict."""
        return self in {Verdict.APPLIES, Verdict.MOVED}

    @property
    def ok(self) -> bool:
        """Whether the mod would end up in the tree."""
        return self.writes or self in {Verdict.APPLIED, Verdict.UPSTREAM}


class Level(StrEnum):
    """An ``ERROR`` decides a verdict; a ``NOTE`` is something the user should know."""

    ERROR = "error"
    NOTE = "note"


class Finding(NamedTuple):
    """One thing found while planning.

    ``code`` is a stable identifier; ``path`` and ``line`` (1-based) are places in
    the target tree, ``hunk`` counts from 1 in the patch's part for that file, and
    ``scope`` is a dotted chain of classes and functions (``""`` is module level). What a finding does
    not have is None. A finding of the ``level`` ``error`` decides a verdict, a ``note`` does not.

    >>> (one,) = vm.plan(vm.Library("library").mods("stale"), vm.open_tree("site-packages")).mods
    >>> finding = one.findings[0]
    >>> finding.level.value, finding.path, finding.hunk
    ('error', 'vllm/loader.py', 1)
    """

    code: FindingCode
    message: str
    path: str | None = None
    line: int | None = None
    hunk: int | None = None
    scope: str | None = None
    level: Level = Level.ERROR

    def __str__(self) -> str:
        """Say it on one line, a note marked as such."""
        return f"{'note: ' * (self.level is Level.NOTE)}{self.message} [{self.code}]"


def all_well(findings: Iterable[Finding]) -> bool:
    """Tell whether nothing that was found is an error; notes do not count."""
    return not any(finding.level is Level.ERROR for finding in findings)


class FileChange(NamedTuple):
    """One file before and after; ``None`` stands for "no such file".

    ``mode`` is the permission bits of a new file, or of one whose mode changes.

    >>> vm.plan(vm.Library("library").mods("fast"), "site-packages").changes
    (FileChange('vllm/loader.py', 97 bytes, 94 bytes),)
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None

    def __repr__(self) -> str:
        sizes = (None if data is None else f"{len(data):,} bytes" for data in self[1:3])
        return f"FileChange({self.path!r}, {', '.join(map(str, sizes))})"


class PatchFile(NamedTuple):
    """One patch of a variant. ``root`` is put in front of every path that it names.

    The variant goes in without one that is ``optional``, where that one does not.
    """

    source: str
    data: bytes
    root: str = ""
    optional: bool = False


class OverlayFile(NamedTuple):
    """A whole file of a variant; it replaces only files whose sha256 is in ``replaces``."""

    source: str
    path: str
    data: bytes
    replaces: tuple[str, ...] = ()


class BinaryFile(NamedTuple):
    """Prebuilt machine code that a variant brings for one ``platform``, pinned by its ``sha256``; as an overlay else."""

    source: str
    path: str
    sha256: str
    platform: str
    data: bytes
    replaces: tuple[str, ...] = ()


class TemplateFile(NamedTuple):
    """A chat template that a variant puts into the workspace under the name ``file``.

    ``source`` is its path in ``root``, the mod's folder where that is empty.
    """

    name: str
    file: str
    source: str
    data: bytes
    root: str = ""


class TextReplacement(NamedTuple):
    """Exact text for exact text in one file, which has it so many ``times`` and nowhere else."""

    path: str
    old: str
    new: str
    times: int = 1


class FetchedFile(NamedTuple):
    """A file in the mod's folder that came from a URL when the mod was imported; its ``sha256`` is pinned."""

    url: str
    sha256: str
    source: str
    data: bytes


class Allowance(NamedTuple):
    """A finding of the fit that the author has looked at: its ``code``, its ``scope``, and why."""

    code: str
    scope: str
    reason: str


class When(NamedTuple):
    """A kind of checkpoint that a mod is for; all that it names has to hold.

    ``config`` are dotted keys of config.json, ``tensors`` patterns of names in safetensors headers, each
    with the values or dtypes that count (none: any). ``fails`` is what vLLM says to such a checkpoint
    without the mod, empty where it serves it all the same.
    """

    config: tuple[tuple[str, tuple[str | int | float | bool, ...]], ...] = ()
    tensors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fails: str = ""


class Variant(NamedTuple):
    """One form of a mod. ``vllm`` is a PEP 440 specifier and only advice: the tree decides.

    ``package`` is a distribution beside vLLM that it changes, ``package_version`` the like for that.
    """

    id: str
    vllm: str
    patches: tuple[PatchFile, ...] = ()
    overlay: tuple[OverlayFile, ...] = ()
    templates: tuple[TemplateFile, ...] = ()
    python: tuple[str, ...] = ()
    allow: tuple[Allowance, ...] = ()
    replace: tuple[TextReplacement, ...] = ()
    package: str = ""
    package_version: str = ""
    fetch: tuple[FetchedFile, ...] = ()
    binary: tuple[BinaryFile, ...] = ()

    @property
    def meant(self) -> str:
        """What it is meant for, in words: a range of vLLM's versions, and one of its package's."""
        return f"{self.vllm}, {self.package} {self.package_version}" if self.package else self.vllm


class ImageFile(NamedTuple):
    """A file at an absolute ``path`` of images only; it takes the place of one with a sha256 in ``replaces``."""

    path: str
    source: str
    data: bytes
    mode: int = 0o644
    replaces: tuple[str, ...] = ()


class Mod(NamedTuple):
    """A mod, read whole. ``digest`` is the sha256 over its manifest and every file it names.

    ``vllm`` are the releases that it promises to go into (``""``: those its variants name and all newer ones), ``until``
    why they end. ``outside`` are the paths that it says it changes outside of ``vllm/``, ``when`` the checkpoints that it is for (none: any),
    ``serve_args`` and ``env`` what a pairing takes over for what serves, ``files`` what only an image gets.

    >>> (mod,) = vm.Library("library").mods("fast")
    >>> mod, mod.version, [variant.vllm for variant in mod.variants]
    (<Mod fast 1.0.0>, '1.0.0', ['>=0.19'])
    """

    name: str
    version: str
    summary: str
    license: str
    directory: str
    digest: str
    default: bool = False
    vllm: str = ""
    until: str = ""
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    upstream_status: str = "none"
    upstream_issues: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    serve_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    compute_capability: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    when: tuple[When, ...] = ()
    files: tuple[ImageFile, ...] = ()
    variants: tuple[Variant, ...] = ()
    lock: bytes | None = None
    manifest: bytes = b""

    @property
    def title(self) -> str:
        """Name and version; a patch alone has no version."""
        return f"{self.name} {self.version}" if self.directory else self.name

    def __repr__(self) -> str:
        return f"<Mod {self.title}>"


class PlacedHunk(NamedTuple):
    """Where a hunk lands: 1-based ``line`` in the target, ``offset`` from the stated line.

    ``proof`` is what placed it: ``file``, ``scope``, ``order``, ``stated`` or ``unique`` (see ``locate``).
    """

    patch: str
    path: str
    number: int
    line: int
    offset: int
    scope: str
    proof: str


class HunkState(NamedTuple):
    """A hunk by its ``number`` in its file's part of the patch, None for the whole part.

    ``state``: ``placed`` could be put in, ``carried`` is in already, ``absent`` is neither.
    """

    patch: str
    path: str
    number: int | None
    state: str

    @property
    def label(self) -> str:
        """Name it for a person."""
        return self.path if self.number is None else f"{self.path} hunk {self.number}"


class OptionalPatch(NamedTuple):
    """What becomes of an optional patch of a mod that goes in; ``message`` says why it does not."""

    patch: str
    verdict: Verdict
    message: str | None = None


class ModPlan(NamedTuple):
    """What one mod would do to the tree. ``changes`` starts from what the mods before it left.

    ``vouched`` means that mod.lock knew every file by its hash, so nothing had to be parsed. ``beside`` are
    the files of vLLM that the fit rests on, ``witness`` the digest of their bytes. ``proof`` is ``types``,
    ``""`` where no Python changes; ``unexamined`` are the classes of faults that the fit did not look for,
    each with the reason. ``optional`` has the verdict of each patch that the variant calls so.

    >>> (one,) = vm.plan(vm.Library("library").mods("fast"), vm.open_tree("site-packages")).mods
    >>> one.mod.name, one.variant.id, one.verdict.value, [hunk.line for hunk in one.hunks]
    ('fast', 'a', 'applies', [3])
    """

    mod: Mod
    variant: Variant | None
    verdict: Verdict
    in_range: bool
    changes: tuple[FileChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    hunks: tuple[PlacedHunk, ...] = ()
    vouched: bool = False
    beside: tuple[str, ...] = ()
    witness: str = ""
    proof: str = ""
    unexamined: tuple[tuple[str, str], ...] = ()
    optional: tuple[OptionalPatch, ...] = ()

    def __repr__(self) -> str:
        return f"<ModPlan {self.mod.title}: {self.verdict}>"


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Mods on one tree. ``changes`` is the net effect of all mods that would write.

    ``spec`` is the tree as it was named, ``version`` what it says of itself.

    >>> planned = vm.plan(vm.Library("library").mods("fast", "stale"), "site-packages")
    >>> planned.ok, planned.version, [one.verdict.ok for one in planned.mods]
    (False, '0.19.1', [True, False])
    >>> planned
    <Plan of site-packages, vLLM 0.19.1: refused
      fast 1.0.0: applies
      stale 1.0.0: conflict>
    """

    spec: str
    version: str | None
    mods: tuple[ModPlan, ...]
    changes: tuple[FileChange, ...]

    @property
    def ok(self) -> bool:
        """Whether every mod would end up in the tree."""
        return all(mod.verdict.ok for mod in self.mods)

    def template_paths(self, folder: str) -> dict[str, str]:
        """Return where the chat templates lie that the mods bring to ``folder``, by their file names."""
        variants = (one.variant for one in self.mods if one.variant is not None)
        files = [template.file for variant in variants for template in variant.templates]
        return {file: f"{folder}/{file}" for file in files}

    def __repr__(self) -> str:
        answer = f"{len(self.changes)} files would change" if self.ok else "refused"
        head = f"{self.spec}, vLLM {self.version or 'of unknown version'}: {answer}"
        lines = [head, *(f"{one.mod.title}: {one.verdict}" for one in self.mods)]
        if len(lines) > _REPR_LINES:
            lines[_REPR_LINES - 1 :] = [f"and {len(lines) - _REPR_LINES + 1} more"]
        return "<Plan of " + "\n  ".join(lines) + ">"
