"""What to do next after a mod was refused: the one command that helps."""

import os
import re
import shlex

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, Mod, ModPlan, Plan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.library import mod_path
from vllm_mods.library.mod_folder import data_root
from vllm_mods.library.packed_mod import kept_mod
from vllm_mods.trees import packages
from vllm_mods.trees.receipt_tree import receipt_of

_UNTOLD = frozenset({"look-alike", "ambiguous"})
_TOGETHER = frozenset({"conflicting-mod", "required-mod"})
_START = re.compile(r"(?:>=|==|~=)\s*([\w.]+?)(?:\.\*)?\s*(?:,|$)")


def hint(plan: Plan, tree: Tree) -> str | None:  # noqa: C901, PLR0912 - one kind of refusal per branch
    """Return what helps with the first mod of a plan for a tree that does not go in, None if nothing is known."""
    refused = [one for one in plan.mods if not one.verdict.ok]
    # what a mod lacks because of another one is told of that one
    refused.sort(key=lambda one: not _TOGETHER.isdisjoint(found.code for found in one.findings))
    if not refused:
        return None
    mod_plan = refused[0]
    errors = [found for found in mod_plan.findings if found.level is Level.ERROR]
    codes = {found.code for found in errors}
    target = shlex.quote(plan.spec)
    if (outside := _outside_of_libraries(mod_plan)) is not None:
        return outside or None
    paths = dict.fromkeys(found.path for found in errors if found.path)
    beside = {change.path: one.mod.name for one in plan.mods for change in one.changes}
    if "other-version" in codes:
        advice = f"vllm-mods revert {mod_plan.mod.name} --target {target}"
    elif "changed-since" in codes:
        advice = drop_edits(plan.spec)
    elif FindingCode.UNDECLARED in codes:
        advice = f"{_command('show', mod_plan)}  # read the mod, then declare the change in {mod_plan.mod.directory}/mod.toml"
    elif FindingCode.PYTHON_CONFLICT in codes and mod_plan.variant is not None:
        needed = shlex.join(mod_plan.variant.python)
        advice = f"pip install {needed}  # in the environment of that vLLM, then try again"
    elif "conflicting-mod" in codes:
        advice = _beside_other(mod_plan.mod, plan, tree, same_lines=bool(paths))
    elif _TOGETHER & codes or "two-variants" in codes:
        advice = _command("show", mod_plan)
    elif mod_plan.verdict is Verdict.UNFIT:
        advice = _command("show", mod_plan) if mod_plan.in_range else _port(mod_plan, plan)
    elif other := next((path for path in paths if _is_edited(tree, path)), None):
        what, how = f"{other} differs from RECORD", packages.reinstalling(tree, plan.version)
        advice = f"{how}  # {what}" if how.startswith("pip ") else f"{what}: {how}"
    elif mod_plan.verdict is Verdict.UNREADABLE:
        where = "--target SITE_PACKAGES  # an installation that has the package"
        return _command("check", mod_plan, where) if "not-in-tree" in codes else None
    elif mod_plan.verdict is Verdict.PARTIAL and (both := paths.keys() & beside.keys()):
        name = beside[min(both)]
        advice = f"name {mod_plan.mod.name} or {name} alone: both change the same files"
    elif mod_plan.verdict is Verdict.PARTIAL:
        advice = packages.reinstalling(tree, plan.version)
    elif codes == {"both-ways"}:
        advice = "make the patch again with `git diff`, whose `index` line identifies the file that the patch was made for"
    else:
        base = _base(mod_plan, plan) if codes & _UNTOLD else None
        advice = base or _port(mod_plan, plan)
    return advice


def _outside_of_libraries(mod_plan: ModPlan) -> str | None:
    """Return what makes a mod of a patch alone, or of a folder elsewhere one that other commands can name; what explains the fault of one that no port would help."""
    place = mod_plan.mod.directory
    if not place:
        codes = [found.code for found in mod_plan.findings if found.level is Level.ERROR]
        no_port = {Verdict.UNFIT, Verdict.UNREADABLE}
        if FindingCode.FILE_GONE in codes or mod_plan.verdict in no_port:
            return f"vllm-mods explain {codes[0]}"
        # what stands in several places here does so in the release that it was made on, too
        made_on = "pypi:VERSION" if {*codes} & {*_UNTOLD, "unprovable"} else "auto"
        return mod_path.naming(mod_plan.mod.variants[0].patches[0].source, made_on)
    return mod_path.naming(place) if os.path.basename(os.path.dirname(place)) != "patches" else None


def _beside_other(mod: Mod, plan: Plan, tree: Tree, *, same_lines: bool) -> str:
    """Return how a mod goes in that another one keeps out: one that is asked for too, or is applied."""
    if same_lines:
        return f"leave one of the two mods out, or make {mod.name} again on a tree where the other one is applied"
    asked, current = {one.mod.name for one in plan.mods}, receipt_of(tree)
    inside = [one.name for one in (current.mods if current else ()) if one.name not in asked]
    kept = ((name, kept_mod(tree, name)) for name in inside)
    theirs = {name: one.conflicts if one else () for name, one in kept}
    rivals = [name for name in theirs if name in mod.conflicts or mod.name in theirs[name]]
    undo = f"vllm-mods revert {' '.join(rivals)} --target {shlex.quote(plan.spec)}"
    return f"{undo}  # then {mod.name} can be applied" if rivals else "name one of the two mods"


def _is_edited(tree: Tree, path: str) -> bool:
    try:
        data = None if tree.remote else tree.read(path)
        return data is not None and tree.is_released(path, data) is False
    except TreeError:
        return False  # the findings say what cannot be read


def _base(mod_plan: ModPlan, plan: Plan) -> str | None:
    """Return how to tell where a mod was written, which its lock does not; None where nothing names a release."""
    start = mod_plan.variant and _START.search(mod_plan.variant.vllm)
    if not start or mod_plan.mod.lock is not None:
        return None
    target = f"--target {shlex.quote(plan.spec)} --base pypi:{start[1]}"
    why = "  # the release that the patch was made for"
    return _command("check", mod_plan, f"{target}{why}")


def _port(mod_plan: ModPlan, plan: Plan) -> str:
    variants = (mod_plan.variant,) if mod_plan.variant else mod_plan.mod.variants
    patched = [variant for variant in variants if variant.patches]
    if plan.version is None or not patched:
        return _command("show", mod_plan)
    words = ["vllm-mods port", mod_plan.mod.name, f"--to {shlex.quote(plan.spec)}"]
    start = _START.search(patched[-1].vllm)
    stale = any(found.code == "stale-lock" for found in mod_plan.findings)
    if mod_plan.mod.lock is None or stale:  # else port takes it from there
        words += () if mod_plan.variant else (f"--variant {patched[-1].id}",)
        words.append(f"--from pypi:{start[1]}" if start else "--from TREE")
    return " ".join(words) + (library_option(mod_plan.mod) or " --output ported")


def _command(name: str, mod_plan: ModPlan, *more: str) -> str:
    return " ".join((f"vllm-mods {name} {mod_plan.mod.name}{library_option(mod_plan.mod)}", *more))


def drop_edits(spec: str) -> str:
    """Return the command that makes the files of all mods again as these left them."""
    return f"vllm-mods revert --only-edits --target {shlex.quote(spec)}  # drops the edits, not the mods"


def update_lock(mod: Mod, *options: str) -> str:
    """Return the command that writes a mod's lock."""
    return " ".join(("vllm-mods matrix", mod.name, *options, "--update-lock")) + library_option(mod)


def library_option(mod: Mod) -> str:
    """Return the option that names a mod's library; nothing for the bundled one, or where there is none."""
    root = os.path.dirname(os.path.dirname(mod.directory))
    return "" if root in {data_root(), ""} else f" --library {shlex.quote(root)}"
