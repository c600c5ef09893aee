"""What was done to keep a library up with vLLM, for people, for scripts and for a pull request."""

from collections.abc import Sequence

from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.report.reply import Reply

_TITLES = {
    "recorded": "applies to vLLM {release} unchanged",
    "widened": "applies to vLLM {release} unchanged",
    "ported": "a variant for vLLM {release}",
    "ended": "vLLM {release} already has the change",
    "left": "the port to vLLM {release} is unfinished",
}


def message(release: KeptRelease) -> str:
    """Return a commit's message, which is the text for a pull request too: title, blank line, Markdown."""
    title = f"{release.mod}: {_TITLES[release.did].format(release=release.release)}"
    rows = ["| | vLLM " + release.release + " |", "| --- | --- |"]
    rows += [f"| before | {release.before} |", f"| after | {release.after} |"]
    parts = [title, "\n".join(rows)]
    for head, lines in (
        ("Decided by a rule", release.told),
        ("For a person to look at", release.left),
    ):
        parts += [f"{head}:", "\n".join(f"* {one}" for one in lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def kept(library: str, releases: Sequence[KeptRelease]) -> Reply:
    """Return what became of every mod and release; a person was told of each as it was done."""
    branches = [
        {
            **release._asdict(),
            "branch": release.branch if release.commit else None,
            "body": message(release) if release.did in _TITLES else None,
        }
        for release in releases
    ]
    answer = {"library": library, "branches": branches}
    words = None if branches else "no release is new for any mod: nothing to do"
    return Reply(answer, words, not any(release.left for release in releases))


def line(release: KeptRelease) -> str:
    """Return what became of a mod on a release, in a line, and below it what is left to a person."""
    words = {
        "fits": f"{release.before}: nothing to do",
        "there": f"the branch {release.branch} already exists and was left alone",
        "stuck": "no port could be begun",
        "waits": "nothing was done",
    }
    outcome = (
        words.get(release.did) or f"{release.before} -> {release.after}, branch {release.branch}"
    )
    rows = [f"{release.mod} {release.release}: {outcome}"]
    rows += [f"  left for you: {text}" for text in release.left]
    return "\n".join(rows)
