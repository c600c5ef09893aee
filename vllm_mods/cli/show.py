"""``vllm-mods show MOD``."""

from __future__ import annotations

import shlex

import click

from vllm_mods import diff
from vllm_mods.cli import options
from vllm_mods.errors import EXIT_OK


@click.command(name="show")
@click.argument("name", metavar="MOD", shell_complete=options.complete_mods)
@options.libraries
@options.json_output
def command(name: str, libraries: tuple[str, ...], *, as_json: bool) -> int:
    """Show one mod: its variants and what they change, its evidence, what it needs."""
    mod = options.open_library(libraries).load(name)
    variants = []
    for variant in mod.variants:
        touched = [
            file.path
            for patch in variant.patches
            for file in diff.parse(patch.data, f"{mod.directory}/{patch.source}", root=patch.root)
        ]
        touched += [file.path for file in variant.overlay]
        touched += [f"<workspace>/{file.file}" for file in variant.templates]
        variants.append(
            {
                "id": variant.id,
                "vllm": variant.vllm,
                "files": list(dict.fromkeys(touched)),
                "python": list(variant.python),
            }
        )
    answer = {
        "schema": 1,
        "name": mod.name,
        "version": mod.version,
        "summary": mod.summary,
        "license": mod.license,
        "default": mod.default,
        "directory": mod.directory,
        "digest": mod.digest,
        "requires": list(mod.requires),
        "conflicts": list(mod.conflicts),
        "after": list(mod.after),
        "upstream": {"status": mod.upstream_status, "issues": list(mod.upstream_issues)},
        "evidence": dict(mod.evidence),
        "serve_args": list(mod.serve_args),
        "compute_capability": list(mod.compute_capability),
        "variants": variants,
    }
    if as_json:
        options.print_json(answer)
        return EXIT_OK
    lines = [
        f"{mod.name} {mod.version}: {mod.summary}",
        f"  licence     {mod.license}",
        f"  folder      {mod.directory}",
    ]
    pairs = (
        ("upstream", " ".join((mod.upstream_status, *mod.upstream_issues))),
        ("requires", ", ".join(mod.requires)),
        ("conflicts", ", ".join(mod.conflicts)),
        ("after", ", ".join(mod.after)),
        *(("evidence", f"{kind}: {text}") for kind, text in mod.evidence),
        ("serve with", shlex.join(mod.serve_args)),
        ("GPU", ", ".join(mod.compute_capability)),
    )
    lines += [f"  {key.ljust(11)} {value}" for key, value in pairs if value]
    for one in variants:
        lines.append(f"  variant {one['id']} for vLLM {one['vllm']}")
        lines += [f"    {path}" for path in one["files"]]
        lines += [f"    needs {requirement}" for requirement in one["python"]]
    click.echo("\n".join(lines))
    return EXIT_OK
