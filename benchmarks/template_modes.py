"""How chat templates for Qwen's format fail: a table of known failure modes, and what each keeps of the cache.

Every mode is one that people reported of a public template, with a conversation of ours that shows it. The
bundled templates are always there; templates of others, or folders of them, are arguments:

    python benchmarks/template_modes.py official-3.5.jinja official-3.6.jinja others/

The first table has a row for each mode: `.` if a template does well, `x` if it does not, `r` if it refuses or
fails, `c` if it is a choice that an argument of the template turns. The second has a row for each conversation
that `template check` asks of every template: turns and bytes of the cache that are found again. Exit code 1 if a
bundled template does badly in any row.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from template_scenes import MODES, Mode

from vllm_mods.library.catalog import Library
from vllm_mods.templates import rendering, replay
from vllm_mods.templates.source import Template, open_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.templates.conversation import Conversation
    from vllm_mods.templates.rendering import Rendered
    from vllm_mods.templates.replay import CaseOutcome


class Column(NamedTuple):
    """What one template does."""

    template: Template
    marks: dict[str, str]
    replays: dict[str, CaseOutcome]


def column(template: Template) -> Column:
    """Render everything with one template, and judge it."""

    def render(jobs: Sequence[Conversation], **how: Any) -> tuple[Rendered, ...]:  # noqa: ANN401
        return rendering.render(template, jobs, **how).rendered

    jobs = [mode.conversation for mode in MODES]
    answer = rendering.render(template, jobs)
    rust = render(jobs, rust=True)
    kept = replay.judge_scenes([mode.conversation for mode in MODES if mode.cached], render)
    losses = {one.conversation.name: one for one in kept}
    marks = {
        mode.name: mark(mode, one, losses.get(mode.name), ours=template.about is not None)
        for mode, one in zip(MODES, answer.rendered, strict=True)
    }
    alike = all(
        one.prompt in {None, other.prompt} for one, other in zip(answer.rendered, rust, strict=True)
    )
    marks["rust-frontend"] = "." if alike else "x"
    marks["content-format"] = "." if len(answer.formats) == 1 else "x"
    scenes = replay.scenes(answer.variables, answer.formats[-1][1], template.data)
    replays = {one.conversation.name: one for one in replay.judge_scenes(scenes, render)}
    return Column(template, marks, replays)


def mark(mode: Mode, rendered: Rendered, replayed: CaseOutcome | None, *, ours: bool) -> str:
    """Return the sign of one template in one mode."""
    if mode.refused is not None:
        well = rendered.error is not None and mode.refused in rendered.error
        return "." if well else "r" if rendered.prompt is None else "x"
    if rendered.prompt is None:
        return "r"
    well = mode.holds(rendered.prompt)
    if replayed is not None:
        refused = any(one.code == "not-rendered" for one in replayed.findings)
        well = well and not refused and replayed.turns_kept == replayed.turns
    return "." if well else "c" if ours and mode.choice else "x"


def tables(columns: Sequence[Column]) -> str:
    """Return both tables, with a legend."""
    heads = [chr(ord("A") + i) for i in range(len(columns))]
    lines = [f"{head}  {one.template.name}" for head, one in zip(heads, columns, strict=True)]
    says = {mode.name: mode.says for mode in MODES}
    says |= {
        "rust-frontend": "every prompt is the same with minijinja (VLLM_USE_RUST_FRONTEND=1)",
        "content-format": "every vLLM from 0.15 on takes it for the same content format",
    }
    width = max(map(len, says))
    lines += ["", f"{'mode'.ljust(width)}  {' '.join(heads)}"]
    for name, text in says.items():
        lines.append(f"{name.ljust(width)}  {' '.join(one.marks[name] for one in columns)}  {text}")
    sums = [sum(value == "." for value in one.marks.values()) for one in columns]
    lines.append(f"of {len(says)}, well:")
    lines += [f"  {head}  {count}" for head, count in zip(heads, sums, strict=True)]
    choices = ", ".join(f"{mode.name} ({mode.choice})" for mode in MODES if mode.choice)
    lines.append(f"choices: {choices}")
    scenes = list(dict.fromkeys(name for one in columns for name in one.replays))
    width = max(map(len, scenes))
    lines += ["", "turns of the cache kept, and bytes lost of those that could be found again"]
    lines.append(f"{'conversation'.ljust(width)}  {' '.join(head.rjust(11) for head in heads)}")
    for name in scenes:
        cells = (_cell(one.replays.get(name)).rjust(11) for one in columns)
        lines.append(f"{name.ljust(width)}  {' '.join(cells)}")
    totals = (
        [sum(parts) for parts in zip(*map(_numbers, one.replays.values()), strict=True)]
        for one in columns
    )
    cells = (f"{kept}/{turns} -{lost}".rjust(11) for kept, turns, lost in totals)
    lines.append(f"{'all'.ljust(width)}  {' '.join(cells)}")
    return "\n".join(lines)


def _cell(one: CaseOutcome | None) -> str:
    if one is None or not one.turns:
        return "refused" if one else "not asked"
    kept, turns, lost = _numbers(one)
    return f"{kept}/{turns} -{lost}"


def _numbers(one: CaseOutcome) -> tuple[int, int, int]:
    return one.turns_kept, one.turns, one.bytes - one.bytes_kept


def well(one: Column) -> bool:
    """Tell whether a template does well, but for its choices, and loses nothing of the cache."""
    kept = all(replay.turns_kept == replay.turns > 0 for replay in one.replays.values())
    return kept and set(one.marks.values()) <= {".", "c"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("templates", nargs="*", help="files, or folders of *.jinja")
    named = parser.parse_args().templates
    paths = [
        path
        for one in named
        for path in (
            sorted(os.path.join(one, file) for file in os.listdir(one) if file.endswith(".jinja"))
            if os.path.isdir(one)
            else [one]
        )
    ]
    library = Library()
    ours = [column(open_template(library, name)) for name in library.template_names()]
    others = [
        column(open_template(library, path)._replace(name=os.path.basename(path))) for path in paths
    ]
    print(tables([*ours, *others]))
    return 0 if all(map(well, ours)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
