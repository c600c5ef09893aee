"""``vllm-mods serve-check``."""

from __future__ import annotations

import click

from vllm_mods.api.access import Access
from vllm_mods.api.serve_check import serve_check
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.report import serve as report


@click.command(name="serve-check")
@click.argument("pairing", required=False)
@option("--command TEXT", "A command line instead of a pairing's.", "line")
@option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the pairing's vLLM].",
)
@option("--vllm SPEC", "All these releases, such as '>=0.19'.")
@options.libraries
@options.access
@manner.json_output
def command(
    pairing: str | None,
    line: str | None,
    target: str | None,
    vllm: str | None,
    *,
    libraries: LibraryArguments,
    access: Access,
    as_json: bool,
) -> int:
    """Hold a serve command against the vLLM it will run on.

    PAIRING's command, environment, templates and mods, or --command alone. Flags, values,
    keys of JSON and variables are read from the tree's source; vLLM is not imported. With
    --vllm and no --target, a matrix over releases. Exit code 0 if nothing is wrong.
    """
    result = serve_check(
        None if pairing is None else libraries.open(),
        pairing,
        command=line,
        target=target,
        vllm=vllm,
        access=access,
    )
    return answers.answer(report.data(result), report.text(result), as_json=as_json, ok=result.ok)
