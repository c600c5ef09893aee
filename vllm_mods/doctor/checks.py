"""What is wrong with the facts. Each check is a pure function of them; none has a second opinion.

Whether a mod fits says the plan, whether it could be written says the draft of the transaction,
whether it is still in says ``verify``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.model import Level, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_mods.doctor.facts import Facts, Folder, Target, Tool

_SHOWN = 3


class Trouble(NamedTuple):
    """One thing that is wrong (``ERROR``) or good to know (``NOTE``), and what to do about it."""

    code: str
    message: str
    hint: str | None = None
    level: Level = Level.ERROR


def check(facts: Facts) -> tuple[Trouble, ...]:
    """Return everything that is wrong, errors first."""
    found = [*_tool(facts.tool)]
    found += [Trouble("unreadable", one.message, one.hint) for one in facts.unreadable]
    if facts.target is None:
        found += _no_target(facts.elsewhere)
    else:
        found += _state(facts.target)
        found += _mods(facts.target)
        found += _version(facts.target)
        if facts.target.folder is not None:
            found += _metadata(facts.target, facts.target.folder)
            found += _files(facts.target, facts.target.folder)
            found += _disk(facts.target.folder)
            found += _around(facts.target.folder)
    return tuple(sorted(found, key=lambda one: one.level is Level.NOTE))


def _tool(tool: Tool) -> Iterator[Trouble]:
    for one in tool.packages:
        if one.fault is not None:
            yield Trouble(
                "package",
                f"{one.name} {one.version or ''}".strip() + f": {one.fault}",
                f"{shlex.quote(tool.executable)} -m pip install --force-reinstall "
                f"{shlex.quote(one.name + one.needs)}",
            )
    if tool.git is None:
        yield Trouble(
            "no-git",
            "there is no git program: git: trees and `bisect --repo` cannot be read; nothing else "
            "needs it",
            "apt-get install git",
            Level.NOTE,
        )
    if tool.cache_fault is not None:
        yield Trouble(
            "no-cache",
            f"nothing can be kept in {tool.cache}: {tool.cache_fault}; each command reads a release "
            "anew",
            "VLLM_MODS_CACHE=FOLDER names another place",
            Level.NOTE,
        )


def _no_target(elsewhere: tuple[str, ...]) -> Iterator[Trouble]:
    place = elsewhere[0] if elsewhere else "TREE"
    more = f"; one is in {' and in '.join(elsewhere)}" if elsewhere else ""
    yield Trouble(
        "no-target",
        f"the Python that this runs in has no vLLM{more}",
        f"vllm-mods doctor --target {place}",
        Level.NOTE,
    )


def _state(target: Target) -> Iterator[Trouble]:
    """Say what is not as the receipt says, and what puts it right."""
    spec = shlex.quote(target.spec)
    entries = target.receipt.mods if target.receipt else ()
    names = " ".join(one.name for one in entries)
    for one in target.findings:
        hint = None
        if one.code == "unfinished":
            # Each of these undoes it first, and then has nothing to do.
            hint = f"vllm-mods apply {names} --target {spec}" if names else None
            hint = hint or f"vllm-mods revert --target {spec}"
        elif one.code == "stale-bytecode" and target.folder is not None:
            hint = f"rm {shlex.quote(f'{target.folder.root}/{one.path}')}"
        elif one.code in {"changed-since", "missing"} and target.kind != "image":
            hint = f"vllm-mods revert --target {spec} --discard-edits  # then apply again"
        elif one.code == "mode-changed":
            hint = f"vllm-mods verify --target {spec}"
        elif one.level is Level.ERROR:
            hint = f"pip install --force-reinstall --no-deps {_release(target)}  # then apply again"
            hint = "build the image again" if target.kind == "image" else hint
        where = f"{one.path}: " if one.path else ""
        yield Trouble(one.code, f"{where}{one.message}", hint, one.level)


def _mods(target: Target) -> Iterator[Trouble]:
    spec = shlex.quote(target.spec)
    refused: dict[str, list[str]] = {}
    hints: dict[str, str | None] = {}
    known = {one.name for one in target.receipt.mods} if target.receipt else set()
    for one in target.fits:
        if one.mod in known:
            continue  # `verify` has told
        if one.refusal is not None:
            refused.setdefault(one.refusal.message, []).append(one.mod)
            hints[one.refusal.message] = one.refusal.hint
        elif one.planned is not None and one.planned.verdict in _BROKEN:
            said = [found.message for found in one.planned.findings if found.level is Level.ERROR]
            yield Trouble(
                f"mod-{one.planned.verdict.value}",
                f"{one.mod} is {one.planned.verdict.value}: {said[0] if said else 'no reason given'}",
                f"vllm-mods check {one.mod} --target {spec}",
            )
        elif one.planned is not None and one.planned.verdict is Verdict.APPLIED:
            yield Trouble(
                "no-receipt",
                f"{one.mod} is in, and no receipt says so: something else put it there, and "
                "`revert` cannot take it out",
                f"pip install --force-reinstall --no-deps {_release(target)}  # then apply it",
                Level.NOTE,
            )
    for message, mods in refused.items():
        yield Trouble(
            "not-writable", f"apply would refuse {', '.join(mods)}: {message}", hints[message]
        )


_BROKEN = frozenset({Verdict.PARTIAL, Verdict.UNREADABLE})
"""Verdicts that say that the tree is not in order; every other is an answer."""


def _version(target: Target) -> Iterator[Trouble]:
    """Hold the version against the files, as far as the locks of mods know them."""
    for one in target.known:
        if not one.stated or target.version in one.releases:
            continue
        what = f"the tree says it is {target.version}, and {_some(one.paths)} "
        if one.releases:
            what += f"{'is' if len(one.paths) == 1 else 'are'} of {_range(one.releases)}"
        else:
            what += f"{'is' if len(one.paths) == 1 else 'are'} of no release that {one.mod} knows"
        yield Trouble(
            "version-disagrees",
            f"{what}: a rebuilt wheel, or an edited file",
            f"vllm-mods check {one.mod} --target {shlex.quote(target.spec)}  # the bytes decide",
            Level.NOTE,
        )


def _metadata(target: Target, folder: Folder) -> Iterator[Trouble]:
    if len(folder.distributions) > 1:
        listed = ", ".join(one.folder for one in folder.distributions)
        wrong = [one for one in folder.distributions if one.version != target.version]
        stale = (wrong or folder.distributions)[0]
        yield Trouble(
            "two-distributions",
            f"several distributions say that vllm/ is theirs: {listed}; an upgrade was not clean",
            f"pip uninstall {stale.name}  # then install the one that you want",
        )
    recorded = folder.recorded
    again = f"pip install --force-reinstall --no-deps {_release(target)}"
    if recorded is None:
        return
    touched = {file.path for file in target.receipt.files} if target.receipt else set()
    for code, paths, what in (
        ("edited", recorded.differs, "not as {} lists: edited by hand, or by another tool"),
        ("lost", recorded.gone, "listed in {} and not there"),
    ):
        left = [path for path in paths if path not in touched]  # of those `verify` has told
        if left:
            verb = "is" if len(left) == 1 else "are"
            yield Trouble(code, f"{_some(left)} {verb} {what.format(recorded.folder)}", again)
    if recorded.extra:
        yield Trouble(
            "unlisted",
            f"{_some(recorded.extra)}: no row of {recorded.folder} names "
            f"{'it' if len(recorded.extra) == 1 else 'them'}; somebody added "
            f"{'it' if len(recorded.extra) == 1 else 'them'}, or they are left of another version",
            level=Level.NOTE,
        )


def _files(target: Target, folder: Folder) -> Iterator[Trouble]:
    if folder.closed:
        yield Trouble(
            "closed",
            f"{_some(folder.closed)} cannot be read, and what lies there is left out",
            f"ls -la {shlex.quote(f'{folder.root}/{folder.closed[0]}')}",
        )
    if folder.links:
        yield Trouble(
            "links",
            f"{_some(folder.links)}: symbolic links, which are not followed: what lies behind them "
            "may be an installer's cache that other environments share",
            f"uv pip install --link-mode copy --reinstall {_release(target)}",
        )
    told = {one.path for one in target.findings}  # leftovers beside patched files
    left = [path for path in folder.leftovers if path not in told]
    if left:
        yield Trouble(
            "leftovers",
            f"{_some(left)}: left by `patch` or an editor; somebody has patched this tree by hand",
            level=Level.NOTE,
        )


def _disk(folder: Folder) -> Iterator[Trouble]:
    disk, place = folder.disk, shlex.quote(folder.root)
    if disk.read_only:
        yield Trouble(
            "read-only",
            f"{folder.root} lies on a file system that is mounted read-only ({disk.kind})",
            f"findmnt -T {place}",
        )
    elif disk.full:
        yield Trouble(
            "disk-full",
            f"{folder.root} lies on a disk with {disk.free / 1e6:.1f} MB left, or no room for "
            "more files",
            f"df -h {place}; df -i {place}",
        )
    if disk.lock_fault is not None:
        yield Trouble(
            "no-lock",
            f"a folder in {folder.root} cannot be locked ({disk.kind}: {disk.lock_fault}), and "
            "nothing is changed without a lock",
            "copy the tree to a local disk, or apply in the image: vllm-mods build",
        )


def _around(folder: Folder) -> Iterator[Trouble]:
    for other in folder.others:
        if other.first:
            yield Trouble(
                "shadowed",
                f"Python would take the vLLM in {other.place} for the one in {folder.root}: "
                f"{other.why}",
                f"vllm-mods doctor --target {shlex.quote(other.place)}, or take that one away",
            )
        else:
            yield Trouble(
                "another",
                f"there is another vLLM in {other.place}: {other.why}",
                level=Level.NOTE,
            )
    for one in folder.processes:
        if one.stale:
            yield Trouble(
                "old-code-runs",
                f"process {one.pid} ({one.name}) started before the mods went in and has loaded "
                f"{one.file}: it runs the old code",
                "start it again",
            )


def _release(target: Target) -> str:
    version = target.version
    return f"vllm=={version}" if version and "+" not in version else "vllm"


def _range(labels: tuple[str, ...]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _some(paths: Iterable[str]) -> str:
    """Name the first few of many."""
    named = list(paths)
    more = len(named) - _SHOWN
    return ", ".join(named[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
