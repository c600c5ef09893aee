"""A Dockerfile's RUN is a script on the lines where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples

from vllm_mods.linting import places
from vllm_mods.scripts import bash, dockerfile
from vllm_mods.scripts.statements import BashError, Call, walk

STEPS = ["patch -p1 -F0 < a", "cp a b", "echo x", "sed -i s/x/y/ f", "pip install einops", "cd /x"]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["one line", "chained", "document", "with a comment", "words", "flags"]
            ),
            st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_each_command_of_a_run_is_read_on_its_line(
    runs: list[tuple[str, list[str], int]],
) -> None:
    lines = ["# syntax=docker/dockerfile:1", "FROM vllm/vllm-openai:v0.21.0 AS made"]
    wanted: list[tuple[int, str]] = []
    for form, steps, gap in runs:
        lines += [""] * gap
        at = len(lines) + 1
        if form == "one line":
            lines.append(f"RUN {' && '.join(steps)}")
            wanted += [(at, step) for step in steps]
        elif form in {"chained", "with a comment"}:
            between = ["    # a comment"] if form == "with a comment" else []
            for i, step in enumerate(steps):
                last = i == len(steps) - 1
                wanted.append((len(lines) + 1, step))
                lines.append(
                    f"{'RUN' if i == 0 else '   '} {step}{'' if last else ' && '}{'' if last else chr(92)}"
                )
                lines += [] if last else between
        elif form == "document":
            lines += ["RUN <<'END'", *steps, "END"]
            wanted += [(at + i, step) for i, step in enumerate(steps, 1)]
        elif form == "flags":
            lines += ["RUN --mount=type=cache,target=/c \\", f"    --network=none {steps[0]}"]
            wanted.append((at + 1, steps[0]))
        else:
            lines.append('RUN ["echo", "x"]')
            wanted.append((at, "echo x"))
    found = [
        (one.line, one.text.partition(" <")[0])
        for run in dockerfile.read("\n".join([*lines, ""]))
        if run.name == "RUN"
        for one in walk(bash.read(run.text).body)
        if isinstance(one, Call)
    ]
    assert found == [(line, step.partition(" <")[0]) for line, step in wanted], lines


@pytest.mark.parametrize(
    ("text", "line"),
    [("FROM x\nRUN <<END\ncp a b\n", 2), ("FROM x\n+ what\n", 2), ("# escape=`\nFROM x\n", 1)],
)
def test_what_is_no_dockerfile_is_said_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BashError) as caught:
        dockerfile.read(text)
    assert caught.value.line == line


def codes(text: str) -> list[tuple[int, str]]:
    return [(flaw.line, flaw.code) for flaw in places.script(text)]


def test_lint_reads_each_run_as_the_shell_that_it_is() -> None:
    text = (
        "FROM vllm/vllm-openai:v0.21.0\n"
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\n'
        "RUN cd /usr/local/lib/python3.12/dist-packages && patch -p1 -F0 < /a.patch\n"
        "RUN patch -p1 -F0 < /a.patch || true\n"
        "RUN cp a b; \\\n    cp c d\n"
        "RUN curl -fsSL https://x.test/1.0/x.py -o x.py\n"
        "RUN curl -L https://github.com/a/b/pull/1.diff | git apply\n"
        "RUN cp a b | cat\n"
        "RUN export X=1\n"
    )
    assert codes(text) == [
        (4, "fail-open"),
        (5, "no-set-e"),
        (8, "live-diff"),
        (8, "network-patch"),
        (10, "lost-export"),
    ]
    assert "`ENV`" in places.script(text)[-1].message
