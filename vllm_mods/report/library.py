"""Answers of ``list`` and ``show``: which mods and pairings there are, and one of them whole."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_mods.api.libraries import LibraryContents
from vllm_mods.base.model import Mod
from vllm_mods.base.versions import joined
from vllm_mods.formats import diff, pairing as pairings
from vllm_mods.formats.schema import BUNDLED
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.report import data
from vllm_mods.report.reply import Reply
from vllm_mods.report.text import columns

_EVIDENCE = {"instead": "log, if its code did not run"}
_OF_PAIRING = ("name", "summary", "model", "base", "vllm", "mods", "templates", "topology")


def listed(contents: LibraryContents, library: Library) -> Reply:
    """Return the mods and pairings of a library, and what is faulty in it."""
    lines = _listed_mods(contents.mods, library) or ["there are no mods"]
    if contents.pairings:
        lines += ["", "pairings", *_listed_pairings(contents.pairings.values())]
    answer = {
        "mods": [
            {
                **data.fields(mod, "name", "version", "summary", "default"),
                "vllm": [variant.vllm for variant in mod.variants],
                "directory": mod.directory,
                "library": library.owner(mod.directory),
            }
            for mod in contents.mods.values()
        ],
        "pairings": [
            {
                **data.fields(pairing, *_OF_PAIRING),
                "file": (file := library.pairing_file(name)),
                "library": library.owner(file),
            }
            for name, pairing in contents.pairings.items()
        ],
    }
    return data.with_faults(Reply(answer, "\n".join(lines)), contents.faults)


def mod(shown: Mod) -> Reply:
    """Return one mod whole."""
    return Reply(mod_data(shown), "\n".join(mod_lines(shown)))


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
                **data.fields(variant, "id", "vllm"),
                "package": variant.package or None,
                "package_version": variant.package_version or None,
                "files": diff.touched(mod, variant),
                "python": variant.python,
            }
            for variant in mod.variants
        ],
    }


def mod_lines(mod: Mod) -> list[str]:
    """Return what a mod is, and all that it may touch, for a person."""
    lines = [f"{mod.title}: {mod.summary}"]
    lines += _aligned(
        ("licence", mod.license),
        ("folder", mod.directory),
        ("upstream", " ".join((mod.upstream_status, *mod.upstream_issues))),
        ("requires", ", ".join(mod.requires)),
        ("conflicts", ", ".join(mod.conflicts)),
        ("after", ", ".join(mod.after)),
        *(("evidence", f"{_EVIDENCE.get(kind, kind)}: {text}") for kind, text in mod.evidence),
        ("serve with", shlex.join(mod.serve_args)),
        *(("variable", f"{name}={shlex.quote(value)}") for name, value in mod.env),
        ("GPU", ", ".join(mod.compute_capability)),
        ("outside", ", ".join(mod.outside)),
        ("binary", ", ".join(one.path for variant in mod.variants for one in variant.binary)),
        ("in images", ", ".join(file.path for file in mod.files)),
        *(("model has", ", ".join(dict((*one.config, *one.tensors)))) for one in mod.when),
    )
    for variant in mod.variants:
        lines.append(f"  variant {variant.id} for vLLM {variant.meant}")
        lines += [f"    {path}" for path in diff.touched(mod, variant)]
        lines += [f"    needs {requirement}" for requirement in variant.python]
    return lines


def pairing(shown: pairings.Pairing, file: str) -> Reply:
    """Return a pairing with its command as a template, filled in, and as the words of it."""
    lines = [
        f"{shown.name}: {shown.summary}",
        *_aligned(
            ("file", file),
            ("model", " at ".join(filter(None, (shown.model, shown.revision)))),
            ("image", shown.base),
            ("vLLM", shown.vllm or ""),
            ("mods", ", ".join(shown.mods)),
            ("templates", ", ".join(shown.templates)),
            ("nodes", {"solo": "one", "cluster": "several"}.get(shown.topology, "")),
            ("recipe", shown.recipe.name if shown.recipe else ""),
        ),
        pairings.serve_script(shown, {}),
    ]
    answer = {
        "kind": "pairing",
        **data.fields(shown, "name", "summary"),
        "file": file,
        "digest": pairings.digest(shown),
        **data.fields(shown, "model", "revision", "base", "vllm", "topology", "mods"),
        **data.fields(shown, "templates", "defaults", "env", "command"),
        "rendered": pairings.rendered(shown),
        "arguments": pairings.arguments(shown),
        "recipe": None if shown.recipe is None else shown.recipe.name,
    }
    return Reply(answer, "\n".join(lines))


def _aligned(*pairs: tuple[str, str]) -> list[str]:
    """Return a line for each pair that has a value."""
    return [f"  {key.ljust(11)} {value}" for key, value in pairs if value]


def _listed_mods(mods: Mapping[str, Mod], library: Library) -> list[str]:
    """Return two lines per mod, by the name that it has among all: what it is, and whose."""
    rows = []
    for name, mod in mods.items():
        ranges = "; ".join(joined(variant.vllm for variant in mod.variants))
        owner = library.owner(mod.directory)
        whose = f"library {owner or root_of(mod)}" if owner != BUNDLED else "bundled with vllm-mods"
        mark = " [default]" if mod.default else ""
        rows += [(name, f"{mod.version}  {mod.summary}{mark}"), ("", f"vLLM {ranges}; {whose}")]
    return columns(rows)


def _listed_pairings(pairings: Iterable[pairings.Pairing]) -> list[str]:
    rows = []
    for pairing in pairings:
        parts = ", ".join((*pairing.mods, *pairing.templates)) or "no mods"
        rows += [(pairing.name, pairing.summary), ("", f"{pairing.model} with {parts}")]
    return columns(rows)
