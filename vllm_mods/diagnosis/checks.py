"""What is wrong with this installation and with a tree. Reads only, imports no vLLM.

It repeats no check: ``check`` says whether a mod fits, and ``verify`` whether it is still in.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vllm_mods.applying import advice
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.diagnosis import search
from vllm_mods.diagnosis.diagnosis import Diagnosis, Examined, Trouble, tool
from vllm_mods.diagnosis.listing import Listed, compare, listed
from vllm_mods.formats.receipt import Receipt
from vllm_mods.plugins.installed import installed_plugins
from vllm_mods.site import integrity
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.undone import Undone
from vllm_mods.trees import beside
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.packages import dist_infos, reinstalling
from vllm_mods.trees.receipt_tree import receipt_of

_SHOWN = 3
# Bytes that an apply needs at most: the bundled mods, all of them, take less than 1 MB.
_ENOUGH = 4 << 20


def examine(spec: str | None, opener: Callable[[str], Tree]) -> Diagnosis:
    """Look at this installation and at the tree ``spec``, else at the vLLM of the active environment.

    Raises what ``opener`` does for a tree that is named and is none.
    """
    active = () if spec is not None else search.active(os.environ)
    spec = active[0] if len(active) == 1 else spec
    if spec is None:
        elsewhere = active or search.installed(os.environ)
        place = elsewhere[0] if elsewhere else "TREE"
        more = f"; vLLM is installed in {' and in '.join(elsewhere)}" if elsewhere else ""
        message = f"the active environment has {'several vLLMs' if active else 'no vLLM'}{more}"
        hint = f"vllm-mods doctor --target {place}"
        none = Trouble(FindingCode.NO_TARGET, message, hint, Level.NOTE)
        return Diagnosis(tool(), None, elsewhere, (none,))
    issues: list[Trouble] = []
    target = _look(opener(spec), issues)
    issues.sort(key=lambda issue: issue.level is Level.NOTE)
    return Diagnosis(tool(), target, (), tuple(issues))


@contextmanager
def _collect_errors(issues: list[Trouble]) -> Iterator[None]:
    try:
        yield
    except VllmModsError as error:
        issues.append(Trouble(FindingCode.UNREADABLE, error.message, error.hint))


def _look(tree: Tree, issues: list[Trouble]) -> Examined:
    current: Receipt | None = None
    version: str | None = None
    files: Listed | None = None
    findings: tuple[Finding, ...] = ()
    undone = Undone()
    with _collect_errors(issues):  # a damaged receipt, say: the rest can still be told
        current, findings, undone = _state(tree)
    with _collect_errors(issues):
        version = tree.version
    again = reinstalling(tree, version)
    issues += _receipt_troubles(tree, current, findings, undone, again)
    with _collect_errors(issues):
        unmet = beside.unmet(tree, elsewhere=True)
        issues += (Trouble(one.code, one.message, hint, one.level) for one, hint in unmet)
    if not isinstance(tree, ImageTree):  # an engine lists a folder by sending all that is in it
        with _collect_errors(issues):
            issues += _distributions(tree)
            issues += _plugins(tree, current)
            files = listed(tree)
            issues += _files(tree, files, current, again)
    if tree.root is not None:
        issues += _around(tree.root)
    return Examined(tree, _kind(tree), version, current, files)


def _kind(tree: Tree) -> str:
    if tree.root is None:
        return tree.spec.partition(":")[0]
    source = any(os.path.lexists(f"{tree.root}/{name}") for name in ("setup.py", "pyproject.toml"))
    return "source" if source else "installed"


def _state(tree: Tree) -> tuple[Receipt | None, tuple[Finding, ...], Undone]:
    """Return the receipt, everything that is not as it says, and what of that an installer has undone."""
    if tree.root is not None:
        state = read_state(tree.root)
        undone = integrity.undone_in(state)
        return state.receipt, integrity.findings(state, undone.paths), undone
    if isinstance(tree, ImageTree):
        from vllm_mods.building.inspection import inspect  # noqa: PLC0415  (what folders do without)

        seen = inspect(tree)
        return seen.receipt, seen.findings, Undone()
    return receipt_of(tree), (), Undone()


def _receipt_troubles(
    tree: Tree, current: Receipt | None, findings: Sequence[Finding], undone: Undone, again: str
) -> Iterator[Trouble]:
    hint = f"{again}  # then apply again"
    if findings and tree.root is not None:
        hint = advice.next_command(tree, current, undone, findings)
    for finding in findings:
        mine = hint if finding.level is Level.ERROR else None
        if finding.code == FindingCode.STALE_BYTECODE and tree.root is not None:
            mine = f"rm {shlex.quote(f'{tree.root}/{finding.path}')}"
        where = f"{finding.path}: " if finding.path else ""
        yield Trouble(finding.code, f"{where}{finding.message}", mine, finding.level)


def _distributions(tree: Tree) -> Iterator[Trouble]:
    owners = dist_infos(tree)
    if len(owners) < 2:
        return
    stale = [folder for folder, said in owners.items() if said != ("vllm", tree.version)]
    yield Trouble(
        FindingCode.TWO_DISTRIBUTIONS,
        f"several distributions claim vllm/: {', '.join(owners)}; an upgrade left an old one behind",
        # The metadata alone: to uninstall it would take the files of the other too.
        f"rm -r {' '.join(shlex.quote(f'{tree.root}/{one}') for one in stale)}"
        if tree.root is not None and len(stale) < len(owners)
        else None,
    )


def _plugins(tree: Tree, current: Receipt | None) -> Iterator[Trouble]:
    for one in installed_plugins(tree, current):
        name, place = f"{one.name} {one.version}", f"{tree.root or tree.spec}/{one.package}"
        told = f"{name}: a plugin, which may change vLLM while it runs ({one.entry_point})"
        hint = f"vllm-mods check --plugin {shlex.quote(place)} --target {shlex.quote(tree.spec)}"
        yield Trouble(FindingCode.PLUGIN, told, hint, Level.NOTE)
        told = f"{name} replaces {', '.join(one.shared)} at run time, and {' or '.join(one.mods)} changes the same code: one of the two changes is lost, unless the plugin calls the code that it replaces"
        yield from [Trouble(FindingCode.PLUGIN, told, level=Level.NOTE)] * bool(one.shared)


def _files(
    tree: Tree, listed: Listed | None, current: Receipt | None, again: str
) -> Iterator[Trouble]:
    if (listed is None or len(listed.rows) == 1) and not tree.read("vllm/__init__.py"):
        message = "vllm/__init__.py is empty: this is not a complete vLLM"
        yield Trouble(FindingCode.NO_VLLM, message, again)
    if listed is None and not tree.remote:
        why = "this tree has no list of files (RECORD), so missing or edited files cannot be found"
        yield Trouble(FindingCode.NO_LIST, why, level=Level.NOTE)
    if listed is None:
        return
    held = compare(tree, listed)
    touched = {file.path for file in current.files} if current else set()  # `verify` tells of them
    edited = f"differs from {listed.name}: edited, or written by another tool"
    link = "a symbolic link, which vllm-mods does not follow: other environments may share the file"
    extra = f"not in {listed.name}: added, left by `patch`, or from another version"
    for code, paths, what in (
        (FindingCode.EDITED, held.differs, edited),
        (FindingCode.LOST, held.gone, f"listed in {listed.name} but missing"),
        (FindingCode.LINKS, held.links, link),
        (FindingCode.UNLISTED, held.extra, extra),
    ):
        if some := [path for path in paths if path not in touched]:
            is_extra = code is FindingCode.UNLISTED
            level, hint = (Level.NOTE, None) if is_extra else (Level.ERROR, again)
            more = f" and {len(some) - _SHOWN} more" * (len(some) > _SHOWN)
            yield Trouble(code, f"{', '.join(some[:_SHOWN])}{more}: {what}", hint, level)


def _around(root: str) -> Iterator[Trouble]:
    """Yield what keeps mods from going into a folder, or its code from being what runs."""
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    if free < _ENOUGH or (disk.f_files > 0 and disk.f_favail == 0):
        place = shlex.quote(root)
        why = f"{root} is on a disk with {free / 1e6:.1f} MB left, or without free inodes"
        yield Trouble(FindingCode.DISK_FULL, why, f"df -h {place}; df -i {place}")
    if (other := search.ahead_of(root, os.environ, sys.path)) is not None:
        why = f"Python would import the vLLM in {other} instead of the vLLM in {root}"
        hint = f"vllm-mods doctor --target {shlex.quote(other)}, or remove the vLLM in {other}"
        yield Trouble(FindingCode.SHADOWED, why, hint)
