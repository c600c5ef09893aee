"""The answer of ``port``."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from vllm_mods.api.port import PortResult
from vllm_mods.base.model import Finding, Level
from vllm_mods.library import catalog
from vllm_mods.planning.next_step import update_lock
from vllm_mods.porting.files import FilePort
from vllm_mods.porting.job import PortOutcome
from vllm_mods.porting.variant import NewVariant
from vllm_mods.porting.writing import Unfinished
from vllm_mods.report.data import fields
from vllm_mods.report.reply import Reply


def ported(result: PortResult) -> Reply:
    """Return what became of a port."""
    outcome, work = result.outcome, result.unfinished
    job, new = outcome.job, None if result.enough else outcome.new
    answer = {
        "mod": job.mod.name,
        "from": {"variant": job.variant.id, "version": job.base_version},
        "to": {"tree": job.target.spec, "version": job.target.version},
        **fields(outcome, "clean", "carried"),
        "files": [
            {
                **fields(one, "path", "new_path"),
                "proof": one.ported.proof,
                "scopes": one.ported.touched,
                "problems": one.ported.problems,
            }
            for one in outcome.files
        ],
        **fields(outcome, "followed", "repaired", "steps"),
        "variant": new and job.name,
        "verdict": new and new.planned.verdict,
        "findings": () if new is None else new.planned.findings,
        "wrote": result.wrote or None,
        "enough": result.enough or None,
        "unfinished": work and work.folder,
    }
    return Reply(answer, "\n".join(_lines(result)), result.ok, _next_step(result))


def _next_step(result: PortResult) -> str | None:
    job, work = result.outcome.job, result.unfinished
    if work is not None:
        return f"edit these files, then vllm-mods port {work.mod} --continue  # or --abort"
    if not result.wrote:
        return None
    if catalog.root_of(job.mod) not in job.roots:  # two mods have that name now
        words = ("vllm-mods", "check", job.mod.directory, "--target", job.target.spec)
        return f"{shlex.join(words)}  # the copy, by its path"
    return f"{update_lock(job.mod)}  # on every release in its range"


def _lines(result: PortResult) -> Iterator[str]:
    outcome, work = result.outcome, result.unfinished
    job, new = outcome.job, None if result.enough else outcome.new
    target = job.target_version
    left = {} if work is None else {path: _errors(path, new) for path, _ in work.files}
    did = "ported" if result.ok else "not ported" if work is None else "not yet ported"
    yield f"{job.mod.name}: variant {job.variant.id}, written for vLLM {job.base_version}, {did} to {target}"
    for file in outcome.files:
        yield from _file(file)
    for move in outcome.followed:
        yield f"  followed: {move.old} is now {move.new} ({move.how})"
    yield from _how(outcome)
    if outcome.carried:
        yield f"  vLLM {target} already has every change"
    if new is not None:
        yield f"variant {job.name} ({job.vllm}) {new.planned.verdict}"
        shown = {one for found in left.values() for one in found}
        yield from (f"  {one.message}" for one in new.planned.findings if one not in shown)
    if result.enough:
        yield f"nothing was written: {result.enough}"
    yield from (f"note: {one}" for one in result.notes)
    if result.wrote:
        yield from (f"wrote {path}" for path in result.wrote)
    elif new is not None:
        yield "the port would not work on the target; the mod was not changed"
    if work is not None:
        yield from _left(work, left)
    elif not outcome.clean:
        yield "nothing was written"


def _how(outcome: PortOutcome) -> Iterator[str]:
    if outcome.steps and not outcome.left:
        yield f"  release by release, over {', '.join(outcome.steps)}"
    elif outcome.steps:
        last = outcome.steps[-1]
        where = "; the conflicts come from later releases" if outcome.origin == last else ""
        yield f"  a port to {last} would need no edits; no variant for that release was written{where}"
    yield from (f"  repaired: {one}" for one in outcome.repaired)


def _left(work: Unfinished, left: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    yield f"to edit by hand, in {work.folder}:"
    for path, errors in left.items():
        edited = work.edited(path)
        for finding in errors:
            yield f"  {edited}:{finding.line}: {finding.message.removeprefix(f'{path}:{finding.line}: ')}"
        if not errors:
            yield f"  {edited}"
    for name in work.patches:
        patch = os.path.join(work.folder, name)
        yield f"  {patch}: make the changes of this patch by hand, where they belong in the target; then delete the patch"


def _errors(path: str, new: NewVariant | None) -> list[Finding]:
    findings = () if new is None else new.planned.findings
    return [one for one in findings if one.path == path and one.line and one.level is Level.ERROR]


def _file(file: FilePort) -> Iterator[str]:
    where = file.path if file.new_path == file.path else f"{file.path} -> {file.new_path}"
    if file.carried:
        yield f"  {where}: already has the change"
    elif file.ported.text is not None:
        how = {
            "file": "merged",
            "scopes": "merged class by class",
            "statements": "merged statement by statement",
        }[file.ported.proof or "file"]
        yield f"  {where}: {how}"
    else:
        yield f"  {where}: to edit by hand"
    for problem in file.ported.problems:
        scope = f"`{problem.scope}`" if problem.scope else "module level"
        yield f"    {scope}: {problem.message} [{problem.code}]"
