"""What a chat template is good for, in one sentence: what ``template check`` says last."""

from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, all_well
from vllm_mods.templates.check import TemplateChecked

_WORKS_FOR = {"chat": "chat", "agent": "agents"}
_LOSSES: dict[str, str] = {
    FindingCode.NOT_RENDERED: "does not render",
    FindingCode.CONTENT_LOST: "loses",
    FindingCode.CACHE_LOST: "loses the cache of",
    FindingCode.WRITTEN_TWICE: "writes twice",
    FindingCode.ROLES_ALIKE: "does not mark who speaks in",
    FindingCode.ANSWER_NOT_BEGUN: "does not begin the answer in",
}
_LIMITS: dict[str, str] = {
    FindingCode.NO_TOOLS: "no tools",
    FindingCode.RUST_FRONTEND: "other prompts with the Rust frontend",
}


def verdict(result: TemplateChecked) -> str:
    """Return the sentence of a template; it begins with "at fault" where the exit code is 1."""
    if result.answer is None:
        return "problems: it cannot be read"
    faultless = (replay.conversation.name for replay in result.replays if not replay.findings)
    works = [_WORKS_FOR[name] for name in faultless if name in _WORKS_FOR]
    good = [f"works for {' and '.join(works)}"] if works else []
    if not result.replays:
        good = ["not tested with conversations"]
    codes = {finding.code for finding in result.findings}
    limits = [*_losses(result, Level.NOTE), *(_LIMITS[code] for code in _LIMITS if code in codes)]
    if result.replays and not any("reason" in one.conversation.name for one in result.replays):
        limits.append("no reasoning")
    first, *others = (*_faults(result), *good, *limits)
    return "; ".join((first if result.ok else f"problems: {first}", *others))


def _faults(result: TemplateChecked) -> Iterator[str]:
    yield from _losses(result, Level.ERROR)
    wrong = sum(not outcome.ok for outcome in result.outcomes)
    if wrong:
        yield f"{wrong} of {len(result.outcomes)} conversations are not as expected"
    if not all_well(result.findings):
        yield "it differs from its template.toml"
    if result.back and not result.back.ok:
        yield f"vLLM {result.back.release.version} does not parse its answers completely"


def _losses(result: TemplateChecked, level: Level) -> Iterator[str]:
    losses: dict[str, list[str]] = {}
    for replay in result.replays:
        asked = replay.conversation.title or replay.conversation.name
        for code in dict.fromkeys(one.code for one in replay.findings if one.level is level):
            losses.setdefault(_LOSSES[code], []).append(asked)
    for loses, titles in losses.items():
        yield f"{loses} {', '.join(titles)}"
