"""``vllm-mods show NAME``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, Variant
from vllm_mods.cli import answers, manner, options
from vllm_mods.formats import diff
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.report import data


@click.command(name="show")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@options.libraries
@manner.json_output
def command(name: str) -> int:
    """Show one mod or pairing: what it changes and needs, or what is served and how."""
    library = options.open_library()
    if not library.has_pairing(name):
        mod = library.load(name)
        answer, lines = of_mod(mod), mod_lines(mod)
    elif library.has(name):
        raise UsageError(
            f"`{name}` is the name of a mod and of a pairing, {library.pairing_file(name)}",
            hint="rename the pairing: its file, and `name` in it",
        )
    else:
        pairing = library.pairing(name)
        file = library.pairing_file(name)
        answer, lines = of_pairing(pairing, file), pairing_lines(pairing, file)
    return answers.answer(answer, "\n".join(lines))


def of_mod(mod: Mod) -> dict[str, Any]:
    """Return a mod with its variants and the files that they touch."""
    return {
        "schema": 1,
        **data.fields(mod, "name", "version", "summary", "license", "default", "directory"),
        **data.fields(mod, "digest", "requires", "conflicts", "after"),
        "upstream": {"status": mod.upstream_status, "issues": list(mod.upstream_issues)},
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
                "python": list(variant.python),
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


def mod_lines(mod: Mod) -> list[str]:
    """Return what there is to say of a mod, for a person."""
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
    return lines


def of_pairing(pairing: Pairing, file: str) -> dict[str, Any]:
    """Return a pairing with its command as a template, filled in, and as the words of it."""
    return {
        "schema": 1,
        "kind": "pairing",
        **data.fields(pairing, "name", "summary"),
        "file": file,
        "digest": pairings.digest(pairing),
        **data.fields(pairing, "model", "revision", "base", "vllm", "topology", "mods"),
        **data.fields(pairing, "templates", "defaults", "env", "command"),
        "rendered": pairings.rendered(pairing),
        "arguments": list(pairings.arguments(pairing)),
        "recipe": None if pairing.recipe is None else pairing.recipe.name,
    }


def pairing_lines(pairing: Pairing, file: str) -> list[str]:
    """Return what there is to say of a pairing, for a person; the command last."""
    return [
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


def aligned(*pairs: tuple[str, str]) -> list[str]:
    """Return a line for each pair that has a value."""
    return [f"  {key.ljust(11)} {value}" for key, value in pairs if value]
