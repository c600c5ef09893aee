"""What was done to keep a library up with vLLM, for people, for scripts and for a pull request."""

import re
from collections.abc import Sequence

from vllm_mods.base.digest import sha256
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import Proposal, RequestText
from vllm_mods.report.matrix_grid import clean
from vllm_mods.report.reply import Reply

_TITLES = {
    "recorded": "applies to vLLM {release} unchanged",
    "widened": "applies to vLLM {release} unchanged",
    "ported": "a variant for vLLM {release}",
    "ended": "vLLM {release} already has the change",
    "left": "the port to vLLM {release} is unfinished",
}
# What a forge acts on, in code too: words that close an issue; elsewhere: mentions, references, links, HTML, GitLab's commands.
_CLOSING = re.compile(
    r"(?i)\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
    r"(?=:?\s+(?:issues?:?\s+)?\S*\d)"
)
_LIVE = re.compile(
    r"(?im)@(?=\w)|[#!](?=\d)|<(?=[a-z/!?])|\](?=[(\[:])|:(?=//)|\bwww(?=\.)|^\s*/(?=\w)"
)
_ROOM = 60_000  # letters; GitHub takes 65,536
_REQUESTS = {
    "opened": "a pull request was opened",
    "updated": "the pull request was updated",
    "closed": "the pull request was closed, because nothing is left to do",
    "current": "the pull request is up to date",
    "merged": "the pull request is already merged",
    "declined": "the pull request was closed without a merge, so it is not opened again",
}


def message(release: KeptRelease) -> str:
    """Return a commit's message, which is the text for a pull request too: title, blank line, Markdown."""
    title = f"{release.mod}: {_TITLES[release.did].format(release=release.release)}"
    table = f"| | vLLM {release.release} |\n| --- | --- |\n"
    parts = [title, f"{table}| before | {release.before} |\n| after | {release.after} |"]
    told, left = ("Decided automatically", release.told), ("For a person to look at", release.left)
    for head, lines in (told, left):
        rows = [f"* {inert(' '.join(text.split()))}" for text in lines]
        parts += [f"{head}:", "\n".join(rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def inert(text: str, *, is_code: bool = False) -> str:
    """Return a text with a character of no width behind all that a forge would act on."""
    text = _CLOSING.sub("\\g<0>\u200b", clean(text))
    return text if is_code else _LIVE.sub("\\g<0>\u200b", text)


def request(message: str, diff: str) -> RequestText:
    """Return the text of a pull request: the message of its commit, and the diff as far as there is room."""
    title, _, body = message.partition("\n")
    parts = [_cut(body.strip(), _ROOM // 2)]
    if diff:
        fence = "`" * (1 + max((2, *map(len, re.findall("`+", diff)))))
        shown = _cut(inert(diff, is_code=True), _ROOM - len(parts[0]) - 2 * len(fence))
        head = "The changes to the mod; a new variant is compared with the variant that is most like it:"
        parts += [head, f"{fence}diff\n{shown}\n{fence}"]
    mark = sha256("\n".join((title, *parts)).encode())[:16]
    return RequestText(title, "\n\n".join((*parts, f"<!-- vllm-mods {mark} -->")))


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text.rstrip("\n")
    return f"{text[: max(0, room)].rpartition(chr(10))[0]}\n… and more: see the branch"


def kept(library: str, outcomes: Sequence[KeptRelease | Proposal]) -> Reply:
    """Return what became of every mod, release and pull request; a person was told of each as it was done."""
    releases = [outcome for outcome in outcomes if isinstance(outcome, KeptRelease)]
    branches = [
        {
            **release._asdict(),
            "branch": release.branch if release.commit else None,
            "body": message(release) if release.did in _TITLES else None,
        }
        for release in releases
    ]
    requests = [
        {"branch": done.branch, "did": done.did, "url": done.request and done.request.url}
        for done in outcomes
        if isinstance(done, Proposal)
    ]
    answer = {"library": library, "branches": branches, "requests": requests}
    words = None if branches else "no mod has a new release to look at: nothing to do"
    return Reply(answer, words, not any(release.left for release in releases))


def line(outcome: KeptRelease | Proposal, *, dry_run: bool = False) -> str:
    """Return what became of a mod on a release, and below it what is left to a person; or of a pull request."""
    if isinstance(outcome, Proposal):
        text = _REQUESTS[outcome.did].replace(" was ", " would be " if dry_run else " was ", 1)
        return f"{outcome.branch}: {text}{f', {outcome.request.url}' if outcome.request else ''}"
    words = {
        "fits": f"{outcome.after}, nothing to do",
        "there": f"the branch {outcome.branch} already exists and was left alone",
        "stuck": "no port could be started",
        "waits": "nothing was done",
        "recorded": f"applies unchanged; branch {outcome.branch} adds the release to mod.lock",
        "widened": f"applies unchanged; the range is widened on branch {outcome.branch}",
        "ported": f"ported, from {outcome.before} to {outcome.after}, on branch {outcome.branch}",
        "ended": f"already has the change; the range now ends before it, on branch {outcome.branch}",
        "left": f"the port is unfinished; what is done is on branch {outcome.branch}",
    }
    rows = [f"{outcome.mod}, vLLM {outcome.release}: {words[outcome.did]}"]
    rows += [f"  left for you: {text}" for text in outcome.left]
    return "\n".join(rows)
