"""Answers of ``template``."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Finding
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply, notes
from vllm_mods.report.template_verdict import verdict
from vllm_mods.templates.check import TemplateChecked, Weight, count_weights, weight
from vllm_mods.templates.client_table import ClientTable, ClientVerdict, Row
from vllm_mods.templates.reading_back import WAYS, PairRead, ReadBack, way_name
from vllm_mods.templates.rendering import Rendered, place
from vllm_mods.templates.replay import CaseOutcome
from vllm_mods.templates.source import SPECIAL, About, Template

# What every template gets; the rest are chat template arguments.
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt", *SPECIAL})
_SAID = tuple(name for name in About._fields if name not in {"name", "kwargs"})


def listed(templates: Sequence[Template], faults: Sequence[ManifestError]) -> Reply:
    """Return what templates say of themselves in two lines each: what it is, what it goes with; and which are faulty."""
    rows: list[tuple[str, str]] = []
    for template in templates:
        about = template.about
        if about is None:
            rows.append((template.name, "(it has no template.toml)"))
            continue
        flags = (
            ("--tool-call-parser", about.tool_call_parser),
            ("--reasoning-parser", about.reasoning_parser),
        )
        needs = " ".join(f"{flag} {value}" for flag, value in flags if value)
        goes = filter(None, (", ".join(about.families), needs))
        rows.append((template.name, f"{about.version}  {about.summary}"))
        rows.append(("", f"for {'; '.join(goes)}"))
    words = "\n".join(text.columns(rows)) or "there are no templates"
    return data.with_faults(Reply({"templates": list(map(_about, templates))}, words), faults)


def checked(results: Sequence[TemplateChecked]) -> Reply:
    """Return what was found of each template, and of each conversation that is not as it should be."""
    ok = all(one.ok for one in results)
    answer = {"ok": ok, "templates": list(map(_checked_data, results))}
    lines = [line for one in results for line in _checked_lines(one)]
    lines += [f"{one.template.name}: {verdict(one)}" for one in results]
    unread = any(one.code == "template-unreadable" for each in results for one in each.findings)
    way = "correct the template at the named line, then check again"
    return Reply(answer, "\n".join(lines), ok, way if unread else None)


def _checked_data(result: TemplateChecked) -> dict[str, Any]:
    answer = result.answer
    return {
        **data.fields(result.template, "name", "path"),
        "ok": result.ok,
        "verdict": verdict(result),
        "weights": count_weights(result.every),
        "content_format": [
            {"since": since, "format": name} for since, name in (answer.formats if answer else ())
        ],
        "variables": answer.variables if answer else (),
        "arguments": answer.arguments if answer else (),
        "findings": _findings(result.findings),
        "conversations": list(map(_outcome, result.outcomes)),
        "replays": list(map(_replay, result.replays)),
        **({"parsers": _parsers(result.back)} if result.back else {}),
    }


def rendered(template: Template, prompt: str, unread: Sequence[str]) -> Reply:
    """Return the prompt that a template made, and note arguments that it does not read."""
    notices = (f"the template does not read `{name}`, so vLLM drops it" for name in unread)
    answer = {"template": template.name, "prompt": prompt}
    return Reply(answer, prompt, stderr=notes(notices), is_file=True)


def diff(first: TemplateChecked, second: TemplateChecked, names: tuple[str, str]) -> Reply:
    """Return how the prompts of two templates differ, and what each keeps of the cache."""
    old, new = first.prompts, second.prompts
    rows = [(name, old[name], new[name]) for name in old if name in new]
    different = _differences(names, rows)
    count = text.counted(len(rows), "conversation")
    end = f"{len(different)} of {count} differ" if different else f"{count}: the same prompts"
    answer = {
        "ok": not different,
        "templates": [
            {**data.fields(one.template, "name", "path"), "weights": count_weights(one.every)}
            for one in (first, second)
        ],
        "replays": [
            {"name": name, "before": before and _replay(before), "after": after and _replay(after)}
            for name, before, after in _beside(first, second)
        ],
        "conversations": [
            {
                "name": name,
                "same": _shown(before) == _shown(after),
                "before": data.fields(before, "prompt", "error"),
                "after": data.fields(after, "prompt", "error"),
            }
            for name, before, after in rows
        ],
    }
    return Reply(answer, "\n".join((*different, _compared(first, second), end)), not different)


def _differences(of: tuple[str, str], rows: Sequence[tuple[str, Rendered, Rendered]]) -> list[str]:
    different = []
    for conversation, before, after in rows:
        if _shown(before) != _shown(after):
            old, new = (f"{name}: {conversation}" for name in of)
            lines = difflib.unified_diff(_lines(before), _lines(after), old, new, lineterm="")
            different.append("\n".join(lines))
    return different


def _compared(first: TemplateChecked, second: TemplateChecked) -> str:
    rows = [("cache kept", first.template.name, second.template.name)]
    rows += [(name, _kept(one), _kept(other)) for name, one, other in _beside(first, second)]
    before, after = count_weights(first.every), count_weights(second.every)
    rows += [(name, str(before[name]), str(after[name])) for name in Weight]
    return "\n".join(text.columns(rows))


def _beside(
    first: TemplateChecked, second: TemplateChecked
) -> list[tuple[str, CaseOutcome | None, CaseOutcome | None]]:
    sides = [{one.conversation.name: one for one in side.replays} for side in (first, second)]
    return [(name, sides[0].get(name), sides[1].get(name)) for name in sides[0] | sides[1]]


def _kept(replay: CaseOutcome | None) -> str:
    if replay is None:
        return "not tested"
    codes = [finding.code for finding in replay.findings]
    if "not-rendered" in codes:
        return "refused"
    lost = ", content lost" * ("content-lost" in codes)
    return f"{replay.turns_kept} of {replay.turns} turns, {replay.bytes_kept:,} of {replay.bytes:,} bytes{lost}"


def _checked_lines(result: TemplateChecked) -> list[str]:
    about = result.template.about
    wrong = [outcome for outcome in result.outcomes if not outcome.ok]
    lines = [f"{result.template.name} {about.version if about else ''}".rstrip()]
    if result.outcomes:
        how = f"{len(wrong)} wrong" if wrong else "all as expected"
        lines.append(f"  {text.counted(len(result.outcomes), 'conversation')}, {how}")
    if result.replays:
        found_again = sum(replay.turns_kept for replay in result.replays)
        turns = sum(replay.turns for replay in result.replays)
        count = text.counted(len(result.replays), "conversation")
        refused = all(_kept(replay) == "refused" for replay in result.replays)
        hits = f"the cache is hit for {found_again} of {turns} turns in {count}"
        lines.append(f"  {count}, all refused" if refused else f"  {hits}")
    if result.answer is not None:
        lines.append(f"  content format {_formats(result.answer.formats)}")
        said_names = [kwarg.name for kwarg in about.kwargs] if about else result.answer.arguments
        names = ", ".join(name for name in said_names if name not in _GIVEN)
        lines.append(f"  reads {names or 'no arguments'}")
    if result.back is not None:
        lines += _read_back(result.back)
    lines.append(f"  {_weights(result)}")
    lines += text.findings(result.findings, "  ")
    for noted in (*result.outcomes, *result.replays):
        if noted.findings:
            title = f": {noted.conversation.title}" if noted.conversation.title else ""
            lines.append(f"  {noted.conversation.name}{title}")
        for finding in noted.findings:
            where = "" if finding.line is None else f"{place(result.template.path, finding.line)}: "
            lines.append(f"    {where}{finding}")
    return lines


def _weights(result: TemplateChecked) -> str:
    weights = count_weights(result.every)
    heavy = [f"{name} {count}" for name, count in weights.items() if count and name != Weight.STYLE]
    style = weights[Weight.STYLE]
    light = [f"{text.counted(style, 'remark')} on style"] * bool(style)
    return ", ".join((heavy or ["nothing is refused or lost"]) + light)


def _formats(formats: Sequence[tuple[str, str]]) -> str:
    if len(formats) == 1:
        return f"{formats[0][1]}, in every vLLM from {formats[0][0]} on"
    return ", ".join(f"{name} from vLLM {since} on" for since, name in formats)


def _about(template: Template) -> dict[str, Any]:
    about = template.about
    nothing = {**dict.fromkeys(_SAID), "families": (), "other_tool_call_parsers": ()}
    return {
        **data.fields(template, "name", "path"),
        **(nothing if about is None else data.fields(about, *_SAID)),
        "kwargs": {
            kwarg.name: data.fields(kwarg, "type", "default", "summary")
            for kwarg in (about.kwargs if about else ())
        },
        "conversations": [conversation.name for conversation in template.conversations],
    }


def _outcome(outcome: CaseOutcome) -> dict[str, Any]:
    return {
        **data.fields(outcome.conversation, "name", "title"),
        "ok": outcome.ok,
        **data.fields(outcome.rendered, "prompt", "error"),
        "findings": _findings(outcome.findings),
    }


def _replay(replay: CaseOutcome) -> dict[str, Any]:
    return {
        "name": replay.conversation.name,
        **data.fields(replay, "turns", "turns_kept", "bytes", "bytes_kept"),
        "findings": _findings(replay.findings),
    }


def _findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [{**one._asdict(), "weight": weight(one)} for one in findings]


def _shown(rendered: Rendered) -> str:
    return f"error: {rendered.error}" if rendered.prompt is None else rendered.prompt


def _lines(rendered: Rendered) -> list[str]:
    lines = _shown(rendered).split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]} (no newline)"]


# --- what the parsers of a release read


def _read_back(back: ReadBack) -> list[str]:
    """Return what parsers that were named read; or which of a release read all, and what others lose."""
    release = back.release
    if back.named:
        lines = [f"  its answers, parsed by vLLM {release.version}"]
        for pair in back.pairs:
            lines.append(f"    parsed correctly with {_parser_names(pair)}: {_counts(pair)}")
            lines += text.findings(pair.findings, "      ")
        return [*lines, *text.findings(back.findings, "    ")]
    counts = f"{len(release.tools)} tool parsers and {len(release.reasoners)} reasoning parsers"
    lines = [f"  of {counts} of vLLM {release.version}"]
    for what, has_tool in (("calls", True), ("reasoning", False)):
        pairs = [pair for pair in back.pairs if bool(pair.tool) is has_tool]
        whole = [_parser_names(pair) for pair in pairs if pair.whole]
        partly = [pair for pair in pairs if not pair.whole]
        lines += [f"    read all its {what}: {', '.join(whole)}"] * bool(whole)
        if whole and partly:
            lines.append(f"    read some of its {what}: {', '.join(map(_parser_names, partly))}")
            continue
        for pair in partly:
            lines.append(f"    {what} parsed correctly with {_parser_names(pair)}: {_counts(pair)}")
            lines += text.findings(pair.findings, "      ")
    return [*lines, *text.findings(back.findings, "    ")]


def _parsers(back: ReadBack) -> dict[str, Any]:
    return {
        "vllm": back.release.version,
        "tool_call_parsers": back.release.tools,
        "reasoning_parsers": back.release.reasoners,
        "named": back.named,
        "pairs": [
            {
                "tool_call_parser": pair.tool,
                "reasoning_parser": pair.reasoning,
                "answers": pair.asked,
                "read": dict(zip(WAYS, pair.read, strict=True)),
                "findings": pair.findings,
            }
            for pair in back.pairs
        ],
        "findings": back.findings,
    }


def _parser_names(pair: PairRead) -> str:
    return " and ".join(filter(None, (pair.tool, pair.reasoning)))


def _counts(pair: PairRead) -> str:
    if pair.whole:
        return f"all {pair.asked}, streamed or not"
    counts = zip(WAYS, pair.read, strict=True)
    by_way = ", ".join(f"{count} {way_name(way)}" for way, count in counts)
    return by_way.replace(" ", f" of {pair.asked} ", 1)


# --- what clients are to expect


def clients(tables: Mapping[str, ClientTable]) -> Reply:
    """Return, for each template, what each client is to expect on which releases."""
    lines = []
    for name, table in tables.items():
        lines.append(name)
        for subject, rows in itertools.groupby(table.rows, key=lambda row: row.subject):
            lines.append(f"  {', '.join(table.clients.get(subject, (subject,)))}")
            lines += [f"    {line}" for line in text.columns(map(_client_row, rows))]
        if not table.rows:
            lines.append("  the table has no entry for this version of the template")
    keys = ("since", "until", "subject", "verdict", "why")
    answer = {
        "templates": [
            {"name": name, "rows": [data.fields(row, *keys) for row in table.rows]}
            for name, table in tables.items()
        ]
    }
    return Reply(answer, "\n".join(lines))


def _client_row(row: Row) -> tuple[str, str]:
    span = row.since if row.since == row.until else f"{row.since} to {row.until}"
    joint = ", but" if row.verdict is ClientVerdict.WORKS else ":"
    return span, f"{row.verdict}{joint} {row.why}" if row.why else str(row.verdict)
