"""Make mods and patches for tests out of a few words."""

from __future__ import annotations

import difflib
import hashlib
from typing import TYPE_CHECKING, Any

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Mod, PatchFile, Variant
from vllm_mods.formats import mod_lock
from vllm_mods.formats.receipt import FileHash

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_mods.base.model import ModPlan


def diff_of(path: str, before: str, after: str, *, context: int = 3, section: str = "") -> bytes:
    """Return a unified diff as git writes it; ``section`` goes behind every ``@@``."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
        n=context,
    )
    out = []
    for line in lines:
        text = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        out.append(text[:-1] + f" {section}\n" if text.startswith("@@") and section else text)
    return "".join(out).encode()


def variant(*patches: bytes, name: str = "one", vllm: str = ">=0.19", **more: Any) -> Variant:
    """Return a variant with these patches, named ``<name>/0.patch`` and so on."""
    files = tuple(
        PatchFile(source=f"{name}/{i}.patch", data=data) for i, data in enumerate(patches)
    )
    return Variant(id=name, vllm=vllm, patches=files, **more)


def mod(*variants: Variant, name: str = "mod", **more: Any) -> Mod:
    """Return a mod of these variants."""
    base: dict[str, Any] = {
        "version": "1.0.0",
        "summary": "a mod",
        "license": "Apache-2.0",
        "directory": f"/lib/patches/{name}",
        "digest": (sha256(repr(variants).encode()) or ""),
    }
    return Mod(name=name, variants=tuple(variants), **{**base, **more})


def lock_of(planned: ModPlan, *, vllm: tuple[str, ...] = ("0.19.1",)) -> bytes:
    """Return the mod.lock that vouches for exactly this plan."""
    assert planned.variant is not None
    tree = mod_lock.LockedTree(
        vllm=vllm,
        in_range=planned.in_range,
        variant=planned.variant.id,
        verdict=planned.verdict.value,
        files=tuple(
            FileHash(path=change.path, before=sha256(change.before), after=sha256(change.after))
            for change in planned.changes
        ),
        hunks=tuple(
            mod_lock.LockedHunk(
                patch=h.patch, path=h.path, number=h.number, line=h.line, scope=h.scope
            )
            for h in planned.hunks
        ),
        beside=planned.beside,
        witness=(planned.witness,),
        proof="types",
    )
    return lock_with(planned.mod, tree)


def lock_with(mod_: Mod, tree: mod_lock.LockedTree) -> bytes:
    """Return a mod.lock of this very mod that says one thing."""
    return mod_lock.dump(
        mod_lock.Lock(mod=mod_.name, version=mod_.version, digest=mod_.digest, trees=(tree,))
    )


def patched(files: Mapping[str, bytes], planned: ModPlan) -> dict[str, bytes]:
    """Return the files as the plan would leave them."""
    result = dict(files)
    for change in planned.changes:
        if change.after is None:
            del result[change.path]
        else:
            result[change.path] = change.after
    return result


def write_mod(
    library: Path, name: str, patch: bytes, *, more: str = "", vllm: str = ">=0.19"
) -> Path:
    """Write a mod of one patch into a library; ``more`` goes into its manifest. Return its folder."""
    folder = library / "patches" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.patch").write_bytes(patch)
    (folder / "mod.toml").write_text(
        f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n{more}\n'
        f'[[variant]]\nid = "a"\nvllm = "{vllm}"\npatches = ["x.patch"]\n'
    )
    return folder


def indexed(patch: bytes, before: str, now: str, path: str = "vllm/x.py") -> bytes:
    """Put git's headers in front of a patch of one file, with both blobs' abbreviated names."""
    blobs = (hashlib.sha1(b"blob %d\0" % len(t.encode()) + t.encode()) for t in (before, now))  # noqa: S324
    old, new = (blob.hexdigest()[:12] for blob in blobs)
    return f"diff --git a/{path} b/{path}\nindex {old}..{new} 100644\n".encode() + patch
