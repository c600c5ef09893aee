"""What a variant requires beside vLLM's source: the platform of prebuilt code, and packages that the patched code imports."""

from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, ModPlan, Variant, Verdict, all_well
from vllm_mods.base.tree import Tree
from vllm_mods.formats.tree_names import canonical
from vllm_mods.planning.patching import add_notes, note, refuse
from vllm_mods.trees import packages


def platform_of(tree: Tree) -> str | None:
    """Return the platform of a tree: what it says, else that which releases are read for; None for a folder that says none."""
    return tree.platform or ("linux/amd64" if tree.pristine else None)


def judge(plan: ModPlan, tree: Tree) -> ModPlan:
    """Refuse a mod without a build for the platform, or for a package of another version; say what nobody can tell.

    What is in already stays in, and the package is named.
    """
    plan = _on_platform(plan, tree)
    if plan.variant is None or plan.verdict is Verdict.UPSTREAM or not plan.verdict.ok:
        return plan
    if not plan.verdict.writes:
        kept = (found._replace(level=Level.NOTE) for found in conflicts(plan.variant, tree))
        return add_notes(plan, *kept)
    findings = tuple(_findings(plan.variant, tree))
    if not all_well(findings):
        return refuse(plan, Verdict.UNFIT, *findings)
    return add_notes(plan, *findings)


def conflicts(variant: Variant, tree: Tree) -> tuple[Finding, ...]:
    """Return what lies beside a tree in another version than a variant's code imports."""
    return tuple(one for one in _findings(variant, tree) if one.code == FindingCode.PYTHON_CONFLICT)


def _on_platform(plan: ModPlan, tree: Tree) -> ModPlan:
    variant = plan.variant
    if variant is None or not variant.binary or not plan.verdict.writes:
        return plan
    platform = platform_of(tree)
    named = sorted({file.platform for file in variant.binary})
    matching = {file.path for file in variant.binary if file.platform == platform}
    paths = dict.fromkeys(file.path for file in variant.binary)
    lacking = [path for path in paths if path not in matching]
    if not lacking:
        return plan
    why = f"this vLLM is for {platform}" if platform else "this tree does not state its platform"
    message = f"{', '.join(lacking)}: built for {', '.join(named)}, but {why}"
    if platform is None and len(named) == 1:
        return add_notes(plan, note(FindingCode.PLATFORM, message))
    return refuse(plan, Verdict.UNFIT, Finding(FindingCode.PLATFORM, message, path=lacking[0]))


def _findings(variant: Variant, tree: Tree) -> Iterator[Finding]:
    if not variant.python:
        return
    needs = {text: packages.parse_requirement(text) for text in variant.python}
    names = {text: canonical(one.name) for text, one in needs.items() if one}
    present = packages.read_packages(tree, set(names.values()))
    for text, need in needs.items():
        name = names.get(text, "")
        installed, pinned = present.installed.get(name), present.pins.get(name)
        version = installed or pinned
        needed = f"the mod needs `{text}`"
        wrong = need and version and not need.specifier.contains(version, prereleases=True)
        if wrong and installed:
            why = f"{needed}, but {name} {installed} is installed beside this vLLM"
            yield Finding(FindingCode.PYTHON_CONFLICT, why)
        elif wrong:
            why = f"{needed}, but this vLLM requires {name}=={pinned}. vllm-mods refuses the mod in an environment that has {name} {pinned}"
            yield note(FindingCode.PYTHON_PIN, why)
        elif version is None:
            message = f"{needed}, which vllm-mods does not install"
            yield note(FindingCode.PYTHON_REQUIREMENT, message)
