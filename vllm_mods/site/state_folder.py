"""What an earlier run left in ``.vllm-mods``: its receipt, and whether it was interrupted. Reads only."""

import os
from typing import NamedTuple

from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt, ReceiptMod
from vllm_mods.site import journal, obstacles, site


class State(NamedTuple):
    """What an earlier run left in the tree at ``root``.

    ``unfinished`` is the work folder of a transaction that was interrupted while it changed the tree:
    until ``recover`` has undone it, that is neither what it was nor what the receipt says.
    """

    root: str
    receipt: Receipt | None
    unfinished: str | None = None

    @property
    def mods(self) -> tuple[ReceiptMod, ...]:
        """The mods that are in, in the order they went in."""
        return () if self.receipt is None else self.receipt.mods


def read_state(root: str) -> State:
    """Return what lies in a tree. Raises ``Refused`` for a broken receipt."""
    root = os.path.realpath(root)
    try:
        data = site.Look(site.Site(root), {}).read(receipt.RECEIPT)
        unfinished = journal.unfinished(root)
    except OSError as error:
        raise obstacles.refusal(root, error) from error
    applied = None if data is None else receipt.parse(data, f"{root}/{receipt.RECEIPT}")
    return State(root, applied, unfinished)
