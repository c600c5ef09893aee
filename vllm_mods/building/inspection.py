"""What is in an image, and whether it is still what went in."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.applying import ground
from vllm_mods.base.digest import sha256
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, all_well
from vllm_mods.building.identity import differences, differs
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.receipt import Receipt
from vllm_mods.images.model import settings
from vllm_mods.images.oci import UNKNOWN, IndexEntry, platform_of
from vllm_mods.planning import requirements
from vllm_mods.site import undone
from vllm_mods.site.integrity import compare
from vllm_mods.trees import beside
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import receipt_of

LOCK = pairing_lock.PLACE
_OURS = ("vllm-mods.", "org.opencontainers.image.")


class Inspection(NamedTuple):
    """What the image of a ``tree`` says of itself, and the findings where it is not so.

    ``lock_digest`` is the sha256 of the lock's bytes; ``labels`` are those of ours and OCI's.
    """

    tree: ImageTree
    receipt: Receipt | None
    lock: pairing_lock.PairingLock | None
    lock_digest: str | None
    labels: dict[str, str]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing that was found is an error."""
        return all_well(self.findings)

    def changed(self, name: str) -> bool:
        """Tell whether a finding is about a file of this mod."""
        mod = self.receipt.mod(name) if self.receipt else None
        paths = {file.path for file in mod.files} if mod else set()
        return any(found.path in paths and found.level is Level.ERROR for found in self.findings)


def inspect(tree: ImageTree) -> Inspection:
    """Look at an image: receipt and lock in it, every file that they name, the labels."""
    applied = receipt_of(tree)
    written = tree.read(LOCK)
    lock = None if written is None else pairing_lock.parse(written, f"{tree.spec}: {LOCK}")
    digest = None if written is None else sha256(written)
    every = settings(tree.base).get("Labels") or {}
    labels = {key: str(text) for key, text in sorted(every.items()) if key.startswith(_OURS)}
    findings: list[Finding] = []
    if applied is not None:
        tree.workspace = applied.workspace
        findings += compare(applied, tree, undone.look(applied, tree).paths)
    for variant in ground.variants_in(tree, applied):
        findings += requirements.conflicts(variant, tree)
    findings += (found._replace(level=Level.NOTE) for found, _ in beside.unmet(tree))
    if lock is not None and written is not None:
        findings += _against(tree, lock, written, findings)
    stated = labels.get("vllm-mods.lock")
    if stated is not None and stated != f"sha256:{digest}":
        inside = f"is sha256:{digest}" if digest else "is not there"
        message = f"the label vllm-mods.lock says {stated}, but the lock in the image {inside}"
        findings.append(Finding(FindingCode.LABEL_DISAGREES, message, path=LOCK))
    return Inspection(tree, applied, lock, digest, labels, tuple(findings))


def compare_with_lock(
    inspection: Inspection, data: bytes | None, where: str
) -> tuple[Finding, ...]:
    """Compare an image with a lock that lies elsewhere, if there is one. Raises ``ManifestError`` for a broken one.

    Returned is what ``inspection`` does not have yet. Of an image without a lock, only a receipt says what it should be.
    """
    wanted = None if data is None else pairing_lock.parse(data, where)
    if inspection.lock is None:
        is_compared = data is None and inspection.receipt is not None
        what = "only the files of its mods were compared" if is_compared else "nothing was compared"
        level = Level.NOTE if is_compared else Level.ERROR
        why = f"the image contains no lock of a pairing, so {what}"
        return (Finding(FindingCode.LOCK_MISSING, why, level=level, path=LOCK),)
    if wanted is None or data is None or inspection.lock_digest == sha256(data):
        return ()
    messages = [
        f"{one.path} is {one.after or 'not there'} in the image and {one.before or 'not there'} in {where}"
        for one in pairing_lock.differences(wanted, inspection.lock)
    ] or [f"the lock in the image differs from {where}"]
    differing = [Finding(FindingCode.LOCK_DIFFERS, message, LOCK) for message in messages]
    differing += _against(inspection.tree, wanted, data, inspection.findings)
    return tuple(one for one in differing if one not in inspection.findings)


def _against(
    tree: ImageTree, lock: pairing_lock.PairingLock, data: bytes, earlier: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Compare an image with a lock, whose bytes are ``data``; ``earlier`` was found already."""
    platform, every = platform_of(tree.base.config), pairing_lock.by_platform(lock)
    if len(every) > 1 and platform not in every:
        message = f"the image is for {platform}, but the lock is for {' and '.join(every)}"
        return (Finding(code=FindingCode.LOCK_DIFFERS, message=message, path=LOCK),)
    lock = every.get(platform, lock)
    known = {one.path for one in earlier if one.path is not None and one.level is Level.ERROR}
    return tuple(differences(tree.base, lock, data, known))


def index_findings(
    images: Sequence[Inspection], entries: Sequence[IndexEntry]
) -> Iterator[Finding]:
    """Yield where the images of an index are not those that one lock makes, in its order."""
    locks = [one.lock for one in images if one.lock is not None and one.lock.platforms]
    wanted = {name: None for lock in locks for name in pairing_lock.by_platform(lock)}.keys()
    platforms = {platform_of(one.tree.base.config) for one in images}
    if wanted and len({one.lock_digest for one in images}) > 1:
        yield differs("the images of the index were built from different locks")
    for name in sorted(wanted - platforms):
        yield differs(f"the index has no image for {name}, but the lock has one")
    for name in sorted(platforms - wanted if wanted else ()):
        yield differs(f"the index has an image for {name}, but the lock has none")
    listed = [entry.platform for entry in entries]
    if listed != [*wanted] and sorted(listed) == sorted(wanted):
        yield differs(f"the index lists {', '.join(listed)}; the lock lists {', '.join(wanted)}")


def entry_findings(entries: Sequence[IndexEntry]) -> Iterator[Finding]:
    """Yield what an index lists beside one image for each platform: engines take the first entry that fits them, or one without a platform."""
    for place, entry in enumerate(entries):
        before = entries[:place]
        name = f"entry {place + 1} of the index, {entry.blob.digest}"
        if entry.platform in {"", UNKNOWN}:
            says = "names no platform" if not entry.platform else f"is for {UNKNOWN}"
            yield differs(f"{name}, {says}, and no lock creates such an entry")
        elif any(one.platform == entry.platform for one in before):
            yield differs(f"{name}, is a second image for {entry.platform}")
        elif any(one.blob.digest == entry.blob.digest for one in before):
            yield differs(f"{name}, appears twice")
