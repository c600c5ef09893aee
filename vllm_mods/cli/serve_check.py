"""``vllm-mods serve-check``."""

from __future__ import annotations

import re

import click
from packaging.version import Version

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.cli import answers, command_check, manner, options
from vllm_mods.cli.command_check import ServeArguments
from vllm_mods.cli.manner import option
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.report import serve as report
from vllm_mods.report import text
from vllm_mods.serving import releases
from vllm_mods.serving.known import names_among
from vllm_mods.trees.release import Releases

_CALL = "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE"


@click.command(name="serve-check")
@click.argument("pairing", required=False)
@option("--command TEXT", "A command line instead of a pairing's.", "line")
@option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the pairing's vLLM].",
)
@option("--vllm SPEC", "All these releases, such as '>=0.19'.", "spec")
@options.libraries
@manner.offline
@manner.json_output
def command(pairing: str | None, line: str | None, target: str | None, spec: str | None) -> int:
    """Hold a serve command against the vLLM it will run on.

    PAIRING's command, environment, templates and mods, or --command alone. Flags, values,
    keys of JSON and variables are read from the tree's source; vLLM is not imported. With
    --vllm and no --target, a matrix over releases. Exit code 0 if nothing is wrong.
    """
    if (pairing is None) == (line is None):
        raise UsageError(
            "name a pairing or give --command, one of them",
            hint=_CALL,
        )
    if line is not None:
        asked = command_check.of_script(line, "--command", _CALL)
    else:
        library = options.open_library()
        asked = command_check.of_pairing(library, library.pairing(pairing or ""))
    if spec is not None and target is None:
        return _matrix(asked, spec)
    return _one(asked, target, spec)


def _one(asked: ServeArguments, target: str | None, spec: str | None) -> int:
    chosen = target or _default_target(asked)
    tree = options.open_tree(chosen)
    answer = command_check.question(asked)(tree)
    if unknown := releases.unknown(answer.faults):
        known = {
            **_known_flags(unknown, spec),
            tree.version or chosen: answer.names,
        }
        answer = releases.told(answer, tree.version, known)
    what = f"pairing {asked.name}" if asked.name else "vllm serve"
    return answers.answer(
        report.answer_data(
            answer, pairing=asked.name, argv=asked.argv, spec=tree.spec, version=tree.version
        ),
        report.answer_text(answer, head=f"{what} on {text.tree_name(tree.version, tree.spec)}"),
        ok=answer.ok,
    )


def _matrix(asked: ServeArguments, spec: str) -> int:
    index, specs = _releases(spec)
    found = releases.cells(
        specs, lambda name: options.open_one(name, index), command_check.question(asked)
    )
    return answers.answer(
        report.cells_data(found, pairing=asked.name, argv=asked.argv),
        report.cells_text(found),
        ok=all(cell.answer.ok for cell in found),
    )


def _default_target(asked: ServeArguments) -> str:
    """Return the newest release that the pairing is for."""
    if asked.vllm is None:
        what = f"pairing `{asked.name}` does not say its vLLM" if asked.name else "no tree is named"
        raise UsageError(f"{what}: which one is it to be held against?", hint="--target TREE")
    if re.fullmatch(r"\d[\w.+]*", asked.vllm):
        return f"pypi:{asked.vllm}"
    _, specs = _releases(asked.vllm)
    plain = [one for one in specs if not one.endswith(".whl")]
    final = [one for one in plain if not Version(one.removeprefix("pypi:")).is_prerelease]
    if not final:
        raise UsageError(
            f"no release of vLLM is in {asked.vllm}, which pairing `{asked.name}` is for",
            hint="--target TREE",
        )
    return final[-1]


def _releases(spec: str) -> tuple[Releases, tuple[str, ...]]:
    index = options.open_releases()
    specs = choose_releases((), index.files(), spec)
    if not specs:
        raise UsageError(f"no release of vLLM is in {spec}", hint="such as --vllm '>=0.19,<0.22'")
    return index, specs


def _known_flags(wanted: frozenset[str], spec: str | None) -> dict[str, frozenset[str]]:
    """Return which releases in ``spec``, else of those in the cache, have flags; by version."""
    index = Releases(offline=manner.is_offline() or spec is None)
    known: dict[str, frozenset[str]] = {}
    try:
        specs = choose_releases((), index.files(), spec or ">=0.9")
    except TreeError:
        return known  # it only adds to what is found already
    for one in specs:
        try:
            tree = index.open(one.removeprefix("pypi:"))
            known[tree.version or one] = names_among(tree, wanted)
        except TreeError:
            continue  # not in the cache
    return known
