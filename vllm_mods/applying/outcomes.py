"""What is told of an installed vLLM, and of what was done to it."""

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Plan, all_well
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.receipt import Receipt, ReceiptMod


class Applied(NamedTuple):
    """What ``apply`` did.

    ``target`` is the site root, ``plan`` what was carried out, ``changed`` the paths of the files
    that were written or removed (``()``: all was in already), ``notes`` what one should know of it,
    ``templates`` the folder that chat templates are in.
    """

    target: str
    plan: Plan
    changed: tuple[str, ...]
    notes: tuple[str, ...]
    templates: str

    def serve_script(self, pairing: Pairing) -> str:
        """Return the serve command of a pairing, with what these mods bring and its template where it lies now."""
        from vllm_mods.formats import pairing as pairings  # noqa: PLC0415  (where one is named)
        from vllm_mods.formats.taken_over import taken_over  # noqa: PLC0415

        served = taken_over(pairing, [planned.mod for planned in self.plan.mods]).pairing
        return pairings.serve_script(served, self.plan.template_paths(self.templates))


class Reverted(NamedTuple):
    """What ``revert`` did.

    ``target`` is the site root, ``version`` vLLM's; ``reverted`` names the mods that were taken out,
    ``mods`` are those that stay, ``changed`` the paths of the files that were written or removed.
    """

    target: str
    version: str | None
    reverted: tuple[str, ...]
    mods: tuple[ReceiptMod, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...]


class InstalledPlugin(NamedTuple):
    """A package beside a vLLM which an ``entry_point`` starts; it replaces the names ``shared`` at run time, whose code ``mods`` have changed."""

    name: str
    version: str
    package: str
    entry_point: str
    shared: tuple[str, ...]
    mods: tuple[str, ...]

    @property
    def note(self) -> Finding:
        """What it is called, and what it and mods change, in words."""
        both = f"; it replaces {', '.join(self.shared)} at run time, which {' or '.join(self.mods)} changes too"
        text = f"beside vLLM: plugin {self.name} {self.version}{both * bool(self.shared)}"
        return Finding(FindingCode.PLUGIN, text, level=Level.NOTE)


class Status(NamedTuple):
    """What the receipt of a tree says, and whether the tree is so.

    ``target`` is the site root, ``version`` vLLM's. ``unfinished`` says that an ``apply`` or ``revert`` was
    interrupted: the next one puts the tree back first. ``findings`` are those of ``verify``; ``undone`` are paths at which an
    installer has put its own files in place of what mods had changed; ``hint`` is the command that puts things right, None where nothing
    is wrong; ``names`` are the mods that were asked about, all of them if empty; ``plugins`` lie beside vLLM, each with what it and ``mods`` change.
    """

    target: str
    version: str | None
    receipt: Receipt | None
    unfinished: bool
    findings: tuple[Finding, ...] = ()
    undone: frozenset[str] = frozenset()
    hint: str | None = None
    names: tuple[str, ...] = ()
    plugins: tuple[InstalledPlugin, ...] = ()

    @property
    def mods(self) -> tuple[ReceiptMod, ...]:
        """The mods that went in, in the order they did, of these the ones that were asked about."""
        mods = () if self.receipt is None else self.receipt.mods
        return tuple(entry for entry in mods if not self.names or entry.name in self.names)

    @property
    def absent(self) -> tuple[str, ...]:
        """The mods that were asked about and never went in."""
        return tuple(name for name in self.names if name not in {mod.name for mod in self.mods})

    @property
    def ok(self) -> bool:
        """Whether all that went in is in, as it was left, and nothing that was asked about is absent."""
        return all_well(self.findings) and not self.absent

    def standing(self, mod: ReceiptMod) -> str:
        """Tell of one of ``mods``: it is ``in``, an installer has ``undone`` it, or a file of it was ``changed``."""
        if any(file.path in self.undone for file in mod.files):
            return "undone"
        return "in" if all_well(of_mods(self.findings, [mod])) else "changed"


class Verified(NamedTuple):
    """In what a tree differs from its receipt: ``findings``, of the ``mods`` that were asked about; ``hint`` puts it right."""

    target: str
    version: str | None
    mods: tuple[ReceiptMod, ...]
    findings: tuple[Finding, ...]
    hint: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all is as it was left; notes do not count."""
        return all_well(self.findings)


def of_mods(findings: Sequence[Finding], mods: Sequence[ReceiptMod]) -> tuple[Finding, ...]:
    """Return the findings of the files that some mods changed."""
    mine = {file.path for entry in mods for file in entry.files}
    return tuple(finding for finding in findings if finding.path in mine)
