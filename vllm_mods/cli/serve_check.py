"""``vllm-mods serve-check``."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.api.serve_check import serve_check
from vllm_mods.cli import options
from vllm_mods.cli.options import option
from vllm_mods.report import serve as report
from vllm_mods.report.reply import Reply


@click.command(name="serve-check")
@click.argument("pairing", required=False)
@option("--command TEXT", "A command line instead of a pairing's.")
@option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the pairing's vLLM].",
)
@option("--vllm SPEC", "All these releases, such as '>=0.19'.")
@options.library
@options.access
@options.json_output
def command(**given: Any) -> Reply:
    """Hold a serve command against the vLLM it will run on.

    PAIRING's command, environment, templates and mods, or --command alone. Flags, values,
    keys of JSON and variables are read from the tree's source; vLLM is not imported. With
    --vllm, a matrix over releases. Exit code 0 if nothing is wrong.
    """
    return report.checked(serve_check(**given))
