"""What to do next after a mod was refused: the one command that helps. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, ModPlan, Plan, Verdict

_INDEX_LINE = (
    "make the patch again with `git diff`: its `index` line tells which file it was made for"
)
_UNTOLD = frozenset({"look-alike", "ambiguous"})
_TOGETHER = frozenset({"conflicting-mod", "required-mod"})
_START = re.compile(r"(?:>=|==|~=)\s*([\w.]+?)(?:\.\*)?\s*(?:,|$)")


def hint(
    made: Plan, *, bundled: str, edited: Callable[[str], bool], again: Callable[[], str]
) -> str | None:
    """Return what helps with the first mod of a plan that does not go in, None if nothing is known.

    ``bundled`` is the folder of the bundled library; ``edited`` tells whether a file is not as its
    distribution brought it, ``again`` how that is installed anew.
    """
    refused = [one for one in made.mods if not one.verdict.ok]
    # what a mod lacks because of another one is told of that one
    refused.sort(key=lambda one: not _TOGETHER.isdisjoint(found.code for found in one.findings))
    return _of(refused[0], made, bundled, edited, again) if refused else None


def _of(
    one: ModPlan,
    made: Plan,
    bundled: str,
    edited: Callable[[str], bool],
    again: Callable[[], str],
) -> str | None:
    errors = [found for found in one.findings if found.level is Level.ERROR]
    codes = {found.code for found in errors}
    target = shlex.quote(made.spec)
    paths = dict.fromkeys(found.path for found in errors if found.path)
    if "other-version" in codes:
        said = f"vllm-mods revert {one.mod.name} --target {target}"
    elif "changed-since" in codes:
        said = (
            f"vllm-mods revert --discard-edits {one.mod.name} --target {target}  # then apply again"
        )
    elif FindingCode.UNDECLARED in codes:
        said = f"{_show(one, bundled)}  # read what it does; {one.mod.directory}/mod.toml has to say it"
    elif FindingCode.PYTHON_CONFLICT in codes and one.variant is not None:
        said = f"pip install {shlex.join(one.variant.python)}  # beside that vLLM, then again"
    elif _TOGETHER & codes or "two-variants" in codes:
        said = _show(one, bundled)
    elif one.verdict is Verdict.UNFIT:
        said = _show(one, bundled) if one.in_range else _port(one, made, bundled)
    elif other := next((path for path in paths if edited(path)), None):
        what, how = f"{other} differs from RECORD", again()
        said = f"{how}  # {what}" if how.startswith("pip ") else f"{what}: {how}"
    elif one.verdict is Verdict.UNREADABLE:
        return _elsewhere(one, made, bundled) if "not-in-tree" in codes else None
    elif one.verdict is Verdict.PARTIAL:
        said = again()
    else:
        said = _place(one, made, bundled, codes)
    return said


def _place(one: ModPlan, made: Plan, bundled: str, codes: AbstractSet[str]) -> str:
    """Return how a mod that has no place gets one."""
    if codes == {"both-ways"}:
        return _INDEX_LINE
    base = _base(one, made, bundled) if codes & _UNTOLD else None
    return base or _port(one, made, bundled)


def _elsewhere(one: ModPlan, made: Plan, bundled: str) -> str:
    """Return how to look at a mod where the packages are that it is for."""
    named = next((each.package for each in one.mod.variants if each.package), None)
    where = "--target SITE_PACKAGES  # an installation that has the package"
    if named and made.spec.startswith(("pypi:", "wheel:", "sdist:")):
        where = f"--target {shlex.quote(made.spec)} --with {named}==VERSION"
    words = ("vllm-mods check", one.mod.name, _library(one, bundled), where)
    return " ".join(filter(None, words))


def _base(one: ModPlan, made: Plan, bundled: str) -> str | None:
    """Return how to tell where a mod was written, which its lock does not; None where nothing names a release."""
    start = one.variant and _START.search(one.variant.vllm)
    if not start or one.mod.lock is not None:
        return None
    words = ("vllm-mods check", one.mod.name, _library(one, bundled))
    target = f"--target {shlex.quote(made.spec)} --base pypi:{start[1]}"
    return f"{' '.join(filter(None, words))} {target}  # the release that the patch was made for"


def _port(one: ModPlan, made: Plan, bundled: str) -> str:
    """Return how to port a mod; where that cannot be, how to look at it."""
    variants = (one.variant,) if one.variant else one.mod.variants
    if made.version is None or not any(variant.patches for variant in variants):
        return _show(one, bundled)
    words = ["vllm-mods port", one.mod.name, f"--to {shlex.quote(made.spec)}"]
    start = None if one.variant is None else _START.search(one.variant.vllm)
    stale = any(found.code == "stale-lock" for found in one.findings)
    if start and (one.mod.lock is None or stale):
        words.append(f"--from pypi:{start[1]}")  # port takes it from mod.lock, where there is one
    words.append(_library(one, bundled) or "--output ported")
    return " ".join(words)


def _show(one: ModPlan, bundled: str) -> str:
    return f"vllm-mods show {one.mod.name} {_library(one, bundled)}".rstrip()


def _library(one: ModPlan, bundled: str) -> str:
    """Return the option that names a mod's library; nothing for the bundled one, or where there is none."""
    root = os.path.dirname(os.path.dirname(one.mod.directory))
    return "" if root in {bundled, ""} else f"--library {shlex.quote(root)}"
