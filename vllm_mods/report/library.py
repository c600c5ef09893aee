"""Answers of ``list`` and ``show``: which mods and pairings there are, and one of them whole."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_mods.api.listing import LibraryContents
from vllm_mods.base.model import Mod, Variant
from vllm_mods.base.versions import joined
from vllm_mods.formats import diff
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.schema import BUNDLED
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.report import data
from vllm_mods.report.columns import columns

_OF_PAIRING = ("name", "summary", "model", "base", "vllm", "mods", "templates", "topology")


def list_data(listed: LibraryContents, library: Library) -> dict[str, Any]:
    """Return the mods and pairings of a library, and what is faulty in it."""
    return {
        "mods": [
            {
                **data.fields(mod, "name", "version", "summary", "default"),
                "vllm": [variant.vllm for variant in mod.variants],
                "directory": mod.directory,
                "library": library.owner(mod.directory),
            }
            for mod in listed.mods.values()
        ],
        "pairings": [
            {
                **data.fields(pairing, *_OF_PAIRING),
                "file": (file := library.pairing_file(name)),
                "library": library.owner(file),
            }
            for name, pairing in listed.pairings.items()
        ],
        "faulty": list(map(data.fault, listed.faults)),
    }


def list_text(listed: LibraryContents, library: Library) -> str:
    """Return two lines for each mod and each pairing."""
    lines = _mod_lines(listed.mods, library) or ["there are no mods"]
    if listed.pairings:
        lines += ["", "pairings", *_pairing_lines(listed.pairings.values())]
    return "\n".join(lines)


def mod_data(mod: Mod) -> dict[str, Any]:
    """Return a mod with its variants and the files that they touch."""
    return {
        "schema": data.SCHEMA,
        **data.fields(mod, "name", "version", "summary", "license", "default", "directory"),
        **data.fields(mod, "digest", "requires", "conflicts", "after"),
        "upstream": {"status": mod.upstream_status, "issues": mod.upstream_issues},
        "evidence": dict(mod.evidence),
        "env": dict(mod.env),
        "files": [data.fields(file, "path", "source", "mode") for file in mod.files],
        **data.fields(mod, "serve_args", "compute_capability", "outside"),
        "when": [
            {"config": dict(one.config), "tensors": dict(one.tensors), "fails": one.fails}
            for one in mod.when
        ],
        "variants": [
            {
                "id": variant.id,
                "vllm": variant.vllm,
                "package": variant.package or None,
                "package_version": variant.package_version or None,
                "files": touched(mod, variant),
                "python": variant.python,
            }
            for variant in mod.variants
        ],
    }


def touched(mod: Mod, variant: Variant) -> list[str]:
    """Return the paths of the files that a variant changes or brings."""
    paths = [
        file.path
        for patch in variant.patches
        for file in diff.parse(patch.data, f"{mod.directory}/{patch.source}", root=patch.root)
    ]
    paths += [one.path for one in variant.replace]
    paths += [file.path for file in variant.overlay]
    paths += [file.path for file in variant.binary]
    paths += [f"<workspace>/{file.file}" for file in variant.templates]
    return list(dict.fromkeys(paths))


def mod_text(mod: Mod) -> str:
    """Return the same for a person."""
    lines = [
        f"{mod.name} {mod.version}: {mod.summary}",
        f"  licence     {mod.license}",
        f"  folder      {mod.directory}",
    ]
    lines += aligned(
        ("upstream", " ".join((mod.upstream_status, *mod.upstream_issues))),
        ("requires", ", ".join(mod.requires)),
        ("conflicts", ", ".join(mod.conflicts)),
        ("after", ", ".join(mod.after)),
        *(("evidence", f"{kind}: {text}") for kind, text in mod.evidence),
        ("serve with", shlex.join(mod.serve_args)),
        *(("variable", f"{name}={shlex.quote(value)}") for name, value in mod.env),
        ("GPU", ", ".join(mod.compute_capability)),
        ("outside", ", ".join(mod.outside)),
        ("in images", ", ".join(file.path for file in mod.files)),
        *(("models", ", ".join(key for key, _ in (*one.config, *one.tensors))) for one in mod.when),
    )
    for variant in mod.variants:
        lines.append(f"  variant {variant.id} for vLLM {variant.meant}")
        lines += [f"    {path}" for path in touched(mod, variant)]
        lines += [f"    needs {requirement}" for requirement in variant.python]
    return "\n".join(lines)


def pairing_data(pairing: Pairing, file: str) -> dict[str, Any]:
    """Return a pairing with its command as a template, filled in, and as the words of it."""
    return {
        "kind": "pairing",
        **data.fields(pairing, "name", "summary"),
        "file": file,
        "digest": pairings.digest(pairing),
        **data.fields(pairing, "model", "revision", "base", "vllm", "topology", "mods"),
        **data.fields(pairing, "templates", "defaults", "env", "command"),
        "rendered": pairings.rendered(pairing),
        "arguments": pairings.arguments(pairing),
        "recipe": None if pairing.recipe is None else pairing.recipe.name,
    }


def pairing_text(pairing: Pairing, file: str) -> str:
    """Return the same for a person; the command last."""
    lines = [
        f"{pairing.name}: {pairing.summary}",
        *aligned(
            ("file", file),
            ("model", " at ".join(filter(None, (pairing.model, pairing.revision)))),
            ("image", pairing.base),
            ("vLLM", pairing.vllm or ""),
            ("mods", ", ".join(pairing.mods)),
            ("templates", ", ".join(pairing.templates)),
            ("nodes", {"solo": "one", "cluster": "several"}.get(pairing.topology, "")),
            ("recipe", pairing.recipe.name if pairing.recipe else ""),
        ),
        *pairings.serve_script(pairing, {}).split("\n"),
    ]
    return "\n".join(lines)


def aligned(*pairs: tuple[str, str]) -> list[str]:
    """Return a line for each pair that has a value."""
    return [f"  {key.ljust(11)} {value}" for key, value in pairs if value]


def _mod_lines(mods: Mapping[str, Mod], library: Library) -> list[str]:
    """Return two lines per mod, by the name that it has among all: what it is, and whose."""
    rows = []
    for name, mod in mods.items():
        ranges = "; ".join(joined(variant.vllm for variant in mod.variants))
        owner = library.owner(mod.directory)
        whose = f"library {owner or root_of(mod)}" if owner != BUNDLED else "comes with vllm-mods"
        mark = " [default]" if mod.default else ""
        rows += [(name, f"{mod.version}  {mod.summary}{mark}"), ("", f"vLLM {ranges}; {whose}")]
    return columns(rows)


def _pairing_lines(pairings: Iterable[Pairing]) -> list[str]:
    """Return two lines per pairing."""
    rows = []
    for pairing in pairings:
        parts = ", ".join((*pairing.mods, *pairing.templates)) or "no mods"
        rows += [(pairing.name, pairing.summary), ("", f"{pairing.model} with {parts}")]
    return columns(rows)
