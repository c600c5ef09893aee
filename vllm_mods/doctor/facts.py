"""What a doctor looks at. Pure data, gathered once; ``checks`` says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vllm_mods.model import Finding, ModPlan
    from vllm_mods.receipt import Receipt


class Package(NamedTuple):
    """A package that vllm-mods needs; ``fault`` is why it is no good, None if it is good."""

    name: str
    needs: str
    version: str | None
    fault: str | None


class Tool(NamedTuple):
    """This vllm-mods. ``origin`` is ``wheel``, ``checkout`` or ``single file``, ``place`` where.

    ``cache_fault`` is why the cache folder cannot be written, None if it can.
    """

    version: str
    origin: str
    place: str
    python: str
    executable: str
    packages: tuple[Package, ...]
    git: str | None
    cache: str
    cache_fault: str | None


class Distribution(NamedTuple):
    """A ``*.dist-info`` beside ``vllm/`` that is vLLM's, or lists its files."""

    folder: str
    name: str
    version: str


class Recorded(NamedTuple):
    """The rows that a RECORD has for ``vllm/``, held against the files.

    ``checked`` files were hashed or, where large, had their size compared. ``extra`` are Python
    files that no row names.
    """

    folder: str
    checked: int
    differs: tuple[str, ...]
    gone: tuple[str, ...]
    extra: tuple[str, ...]


class Known(NamedTuple):
    """The releases whose files a tree has, of those that a mod touches, by the mod's lock.

    ``stated`` tells whether the lock knows the version that the tree says it is.
    """

    mod: str
    paths: tuple[str, ...]
    stated: bool
    releases: tuple[str, ...]


class Refusal(NamedTuple):
    """An answer of the code that would do it, why it would not."""

    message: str
    hint: str | None


class Fit(NamedTuple):
    """A mod on the tree: its plan, and what ``apply`` would say on disk although the mod fits."""

    mod: str
    planned: ModPlan | None
    refusal: Refusal | None


class Process(NamedTuple):
    """A process that has loaded a file of the tree; ``stale``: it started before the mods went in."""

    pid: int
    name: str
    file: str
    stale: bool


class Other(NamedTuple):
    """Another vLLM that Python could find: ``first`` if before the target, ``why`` it looks there."""

    place: str
    why: str
    first: bool


class Disk(NamedTuple):
    """The file system of a folder. ``lock_fault`` is why folders cannot be locked there."""

    kind: str
    read_only: bool
    free: int
    full: bool
    lock_fault: str | None


class Folder(NamedTuple):
    """A tree that lies in a folder, and what is around it. ``closed`` may not be read by us."""

    root: str
    distributions: tuple[Distribution, ...]
    version_from: str
    recorded: Recorded | None
    leftovers: tuple[str, ...]
    links: tuple[str, ...]
    closed: tuple[str, ...]
    unfinished: str | None
    disk: Disk
    processes: tuple[Process, ...]
    others: tuple[Other, ...]


class Target(NamedTuple):
    """The tree that was asked about. ``folder`` is None for what is no folder."""

    spec: str
    kind: str
    version: str | None
    receipt: Receipt | None
    findings: tuple[Finding, ...]
    known: tuple[Known, ...]
    fits: tuple[Fit, ...]
    folder: Folder | None


class Facts(NamedTuple):
    """Everything. ``unreadable`` are refusals of what should have been looked at.

    ``elsewhere`` are trees that were found while none was named.
    """

    tool: Tool
    target: Target | None
    unreadable: tuple[Refusal, ...]
    elsewhere: tuple[str, ...]
