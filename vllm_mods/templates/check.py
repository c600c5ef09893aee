"""A chat template held against its own words, and against conversations."""

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from vllm_mods.base.errors import NotRendered
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, all_well
from vllm_mods.templates import reading_back, rendering, replay
from vllm_mods.templates.conversation import Conversation, Expected
from vllm_mods.templates.parser_process import ReleaseParsers
from vllm_mods.templates.source import SPECIAL, About, Template

_SHORT = 200
# How models are called that rank, embed or judge: nobody chats with them.
_NO_CHAT = re.compile(r"(?<!f)rank|2vec|embed|retriev|colbert|reward|judge|guard", re.IGNORECASE)
_RANKED = frozenset(("document", "documents", "passage", "query"))
_SNAPSHOT = re.compile(r"[0-9a-f]{40}")


class Weight(StrEnum):
    """What a finding of a chat template costs its user, from the heaviest to the lightest."""

    REFUSED = "refused"
    CONTENT = "content lost"
    CACHE = "cache lost"
    STYLE = "style"


_WEIGHTS = {
    "not-rendered": Weight.REFUSED,
    "template-unreadable": Weight.REFUSED,
    "content-lost": Weight.CONTENT,
    "text-missing": Weight.CONTENT,
    "roles-alike": Weight.CONTENT,
    "answer-not-begun": Weight.CONTENT,
    "written-twice": Weight.CONTENT,
    "cache-lost": Weight.CACHE,
}


class TemplateChecked(NamedTuple):
    """What was found of a template; ``answer`` is ``None`` if it is none that can be read."""

    template: Template
    answer: rendering.RenderAnswer | None
    findings: tuple[Finding, ...]
    outcomes: tuple[replay.CaseOutcome, ...] = ()
    replays: tuple[replay.CaseOutcome, ...] = ()
    back: reading_back.ReadBack | None = None

    @property
    def ok(self) -> bool:
        """Whether everything is as it is said to be, and nothing is lost."""
        is_read = self.back is None or self.back.ok
        return all_well(self.every) and is_read

    @property
    def every(self) -> tuple[Finding, ...]:
        """All findings: of the template, of conversations beside it, and of those for any template."""
        judged = (*self.outcomes, *self.replays)
        return (*self.findings, *(found for one in judged for found in one.findings))

    @property
    def prompts(self) -> dict[str, rendering.Rendered]:
        """What was made of each conversation beside it; without any, of those for any template."""
        return {one.conversation.name: one.rendered for one in self.outcomes or self.replays}


def check(
    template: Template,
    conversations: Sequence[Conversation],
    release: ReleaseParsers | None = None,
    parsers: reading_back.ParserPair = (None, None),
) -> TemplateChecked:
    """Render conversations with a template, and hold everything against what is said of it.

    Those of ``replay`` too, which any template has to get right, and all again with minijinja. The
    parsers of a ``release`` read answers back: those named, here or by the template, or all.
    """
    about = template.about
    # once more for each argument with what its default is said to be, which must change nothing
    defaults = [
        (kwarg.name, i, one._replace(kwargs={**one.kwargs, kwarg.name: kwarg.default}))
        for kwarg in (about.kwargs if about else ())
        for i, one in enumerate(conversations)
        if kwarg.name not in one.kwargs
    ]
    jobs = [*conversations, *(one for _, _, one in defaults)]
    render = functools.partial(rendering.render, template, marked=True, later=True)
    try:
        answer = render(jobs)
    except NotRendered as error:
        finding = Finding(FindingCode.TEMPLATE_UNREADABLE, error.message)
        return TemplateChecked(template, None, (finding,))
    count = len(conversations)
    plain, again = answer.rendered[:count], answer.rendered[count:]
    findings = [*_note_unknown_tokens(template, answer)]
    findings += _check_own_words(about, answer) if about else ()
    wrong: set[str] = set()
    for (name, i, case), rendered in zip(defaults, again, strict=True):
        if plain[i].prompt in {None, rendered.prompt} or name in wrong:
            continue
        wrong.add(name)
        how = f"fails with it: {rendered.error}" if rendered.error else "has another prompt with it"
        message = f"kwargs.{name}: {case.kwargs[name]!r} is not the default: {case.name} {how}"
        findings.append(Finding(FindingCode.KWARG_DEFAULT, message))
    outcomes = tuple(
        replay.CaseOutcome(one, rendered, tuple(_findings(one.expect, rendered)))
        for one, rendered in zip(conversations, plain, strict=True)
    )

    def prompts_of(parts: Sequence[Conversation]) -> Sequence[rendering.Rendered]:
        return render(parts).rendered

    scenes = replay.scenes(answer.variables, answer.formats[-1][1], template.data)
    no_chat = _why_no_chat(template.path, answer.variables)
    if no_chat:
        message = f"{no_chat}: only the conversations beside the template were tested"
        findings.append(Finding(FindingCode.NO_CHAT, message, level=Level.NOTE))
    elif "tools" not in answer.variables:
        message = "it does not read `tools`, so the model sees no tools; calls were not tested"
        findings.append(Finding(FindingCode.NO_TOOLS, message, level=Level.NOTE))
    replays = () if no_chat else replay.judge_scenes(scenes, prompts_of)
    pairs = [one[:2] for one in (*outcomes, *replays) if one.rendered.prompt is not None]
    rust = render([job for job, _ in pairs], rust=True).rendered
    findings += _compare_engines(pairs, rust)
    of_model = (about.tool_call_parser, about.reasoning_parser) if about else (None, None)
    pair = (parsers[0] or of_model[0], parsers[1] or of_model[1])
    back = release and reading_back.read_back(
        release, prompts_of, answer.formats, pair, with_tools="tools" in answer.variables
    )
    whole = answer._replace(rendered=plain)
    return TemplateChecked(template, whole, tuple(findings), outcomes, replays, back)


def _why_no_chat(path: str, variables: Sequence[str]) -> str | None:
    """Say why a template is for something else than chats; None for a chat template.

    The name of its file, or of the model that it lies in, says so, or it reads a query or documents and no messages: what
    it renders does not, as a broken chat template renders as little.
    """
    others = _RANKED.intersection(variables)
    if others and "messages" not in variables:
        return f"the template reads {', '.join(sorted(others))} but not `messages`"
    *above, folder, file = ("", "", *os.path.abspath(path).split("/"))
    if _SNAPSHOT.fullmatch(folder):  # of the Hub's cache: models--OWNER--NAME/snapshots/COMMIT
        folder = above[-2]
    name = next((one for one in (file, folder) if _NO_CHAT.search(one)), None)
    return name and f"{name} has a name for ranking, embedding or judging"


def _note_unknown_tokens(template: Template, answer: rendering.RenderAnswer) -> Iterator[Finding]:
    """Note which special tokens have stand-ins: only what a template reads makes a difference."""
    given = dict(template.tokens)
    missing = [name for name in SPECIAL if name in answer.variables and name not in given]
    if missing:
        message = f"{', '.join(missing)}: the model's tokenizer sets these values, but it was not found; give the model's folder as TEMPLATE"
        yield Finding(FindingCode.TOKENS_UNKNOWN, message, level=Level.NOTE)


def _compare_engines(
    pairs: Sequence[tuple[Conversation, rendering.Rendered]], rusts: Sequence[rendering.Rendered]
) -> Iterator[Finding]:
    """Tell whether vLLM's Rust frontend, which renders with minijinja, makes the same prompts."""
    both = zip(pairs, rusts, strict=True)
    other = [(one, job.name) for (job, ours), one in both if ours.prompt != one.prompt]
    for first, name in other[:1]:
        what = first.error or "the prompt is different"
        message = f"with VLLM_USE_RUST_FRONTEND=1 (minijinja) {len(other)} of {len(pairs)} conversations are rendered differently. The first is {name}: {what}"
        yield Finding(FindingCode.RUST_FRONTEND, message, line=first.line, level=Level.NOTE)


def _check_own_words(about: About, answer: rendering.RenderAnswer) -> Iterator[Finding]:
    for since, detected in answer.formats:
        if detected != about.content_format:
            message = f"content_format: vLLM treats it as {detected!r} from {since} on, not as {about.content_format!r}"
            yield Finding(FindingCode.CONTENT_FORMAT, message)
    for kwarg in about.kwargs:
        if kwarg.name not in answer.variables:
            message = f"kwargs.{kwarg.name}: the template does not read it, so vLLM drops it"
            yield Finding(FindingCode.KWARG_UNREAD, message)


def _findings(expect: Expected, rendered: rendering.Rendered) -> Iterator[Finding]:
    prompt, error = rendered.prompt, rendered.error or ""
    if prompt is None:
        if expect.error is None or expect.error not in error:
            wanted = f", not {expect.error!r}" if expect.error is not None else ""
            yield Finding(FindingCode.NOT_RENDERED, f"{error}{wanted}", line=rendered.line)
        return
    if expect.error is not None:
        yield Finding(FindingCode.RENDERED, f"it made a prompt, not the error {expect.error!r}")
    if expect.rendered is not None and prompt != expect.rendered:
        yield Finding(FindingCode.PROMPT_DIFFERS, _first_difference(expect.rendered, prompt))
    for text in expect.contains:
        if text not in prompt:
            yield Finding(FindingCode.TEXT_MISSING, f"{_shorten(repr(text))} is not in the prompt")
    for text in expect.absent:
        if text in prompt:
            yield Finding(FindingCode.TEXT_PRESENT, f"{_shorten(repr(text))} is in the prompt")


def _shorten(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _first_difference(expected: str, prompt: str) -> str:
    sides = [text.split("\n") for text in (expected, prompt)]
    same = len(os.path.commonprefix(sides))  # noqa: RUF071  (lines are meant)
    first, second = (_shorten(repr(one[same])) if same < len(one) else "its end" for one in sides)
    return f"line {same + 1} of the prompt is {second}, not {first}"


def weight(finding: Finding) -> Weight:
    """Return what a finding weighs: what loses nothing is style."""
    return _WEIGHTS.get(finding.code, Weight.STYLE)


def count_weights(findings: Iterable[Finding]) -> dict[Weight, int]:
    """Count findings by weight."""
    counts = Counter(map(weight, findings))
    return {one: counts[one] for one in Weight}
