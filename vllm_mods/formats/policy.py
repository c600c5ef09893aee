"""``vllm-mods.toml``: whose mods a project or a machine takes. Bytes in, ``Policy`` out. Pure."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats.toml_table import Table

SCHEMA = 1


class Policy(NamedTuple):
    """A policy that has no problems. ``where`` is its file; what it names lies beside that.

    ``allowed_signers`` and ``require_hashes`` are as the options of these names; ``bundled`` says
    whether what comes with the tool is taken without.
    """

    where: str
    allowed_signers: str | None
    require_hashes: tuple[str, ...]
    bundled: bool


def parse(data: bytes, where: str) -> Policy | None:
    """Read a policy, None where a file has no ``[trust]``. Raises ``ManifestError`` with every problem."""
    top = Table(toml_of(data, where), "", [])
    top.check_schema(SCHEMA)
    trust = top.table("trust")
    bundled = trust.get("bundled", bool)
    found = Policy(
        where=where,
        allowed_signers=trust.get("allowed_signers", str),
        require_hashes=trust.strings("require_hashes", r".+\Z", "a file, or sha256:HEX"),
        bundled=bundled is None or bundled,
    )
    if "trust" in top.raw and found.allowed_signers is None and not found.require_hashes:
        trust.problem(
            "", "names neither allowed_signers nor require_hashes: nobody could be trusted"
        )
    for table in (top, trust):
        table.refuse_unknown()
    if top.problems:
        raise ManifestError(
            where, tuple(top.problems), hint="docs/reference/vllm-mods-toml.md has every key"
        )
    return found if "trust" in top.raw else None
