"""What is told of an installed vLLM, and of what was done to it."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from typing import NamedTuple

from vllm_mods.base.model import Finding, Level, Plan
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


class Status(NamedTuple):
    """What the receipt of a tree says.

    ``target`` is the site root, ``version`` vLLM's. ``unfinished`` says that an ``apply`` or
    ``revert`` was interrupted: the next one puts the tree back first.
    """

    target: str
    version: str | None
    receipt: Receipt | None
    unfinished: bool

    @property
    def mods(self) -> tuple[ReceiptMod, ...]:
        """The mods that are in, in the order they went in."""
        return () if self.receipt is None else self.receipt.mods


class Verified(NamedTuple):
    """In what a tree differs from its receipt: ``findings``, of the ``mods`` that were asked about."""

    target: str
    version: str | None
    mods: tuple[ReceiptMod, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether all is as it was left; notes do not count."""
        return not any(finding.level is Level.ERROR for finding in self.findings)
