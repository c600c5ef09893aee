"""Rules of ``lint`` on the text of a script: the code, the line, what the message names."""

from __future__ import annotations

import pytest

from vllm_mods.linting import licence, places

STRICT = "#!/bin/bash\nset -euo pipefail\n"


def flaws(text: str) -> list[tuple[str, int]]:
    return [(flaw.code, flaw.line) for flaw in places.script(text)]


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("#!/bin/bash", [("no-set-e", 2)]),
        ("#!/bin/bash -e", []),
        ("#!/bin/bash -xe", []),
        ("set -e", []),
        ("set -eu -o pipefail", []),
        ("set -o errexit", []),
        ("set -o nounset", [("no-set-e", 2)]),
        ("set -u", [("no-set-e", 2)]),
    ],
)
def test_a_script_has_to_end_where_a_command_fails(
    top: str, expected: list[tuple[str, int]]
) -> None:
    assert flaws(f"{top}\ncp a b\n") == expected


def test_only_the_first_change_that_may_fail_is_named() -> None:
    assert flaws("echo hello\ncp a b\ncp c d\n") == [("no-set-e", 2)]
    assert flaws("echo hello\n[ -e x ]\n") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cp a b || true", [("fail-open", 3)]),
        ("cp a b || { echo no; exit 1; }", []),
        ("cp a b || { echo no; exit 0; }", [("fail-open", 3)]),
        ("cp a b && true", []),
        ("grep x y || true", []),
        ("patch -F1 < x", [("fuzz", 3)]),
        ("patch --fuzz=0 < x", []),
        ("patch -p1F0 < x", []),
        ("curl -O https://x.org/y", [("network", 3)]),
        ("wget https://github.com/a/b/pull/7.patch", [("live-diff", 3)]),
        ("curl https://x.org/y | sh", [("network", 3), ("network-patch", 3)]),
        ("curl https://x.org/y | cat", [("network", 3)]),
        ("pip install a==1 b@https://x.org/b.whl", []),
        ("pip install -r x.txt", [("unpinned-install", 3)]),
        ("pip install --require-hashes -r x.txt", []),
        ("pip install -i https://x.org/simple a==1", []),
        ("export A=1", [("lost-export", 3)]),
        ("export PIP_INDEX_URL=x", []),
    ],
)
def test_a_line_of_a_strict_script(line: str, expected: list[tuple[str, int]]) -> None:
    assert flaws(f"{STRICT}{line}\n") == expected


def test_the_message_names_the_command_and_what_hides_its_failure() -> None:
    (flaw,) = places.script(f"{STRICT}git apply fix.patch || echo done\n")
    assert flaw.message == "`git apply fix.patch` may fail, and `echo done` makes that a success"
    (flaw,) = places.script(f"{STRICT}cp {'a' * 80} b || true\n")
    assert f"`cp {'a' * 54}...` may fail" in flaw.message


def test_a_dockerfile_fails_with_the_last_command_of_a_run() -> None:
    text = "FROM x\nRUN cp a b; cp c d\nRUN cp a b\n"
    assert flaws(text) == [("no-set-e", 2)]
    assert flaws("FROM x\nRUN curl -O https://x.org/y\n") == []
    (flaw,) = places.script("FROM x\nRUN set -e; export A=1; cp a b\n")
    assert flaw.code == "lost-export"
    assert flaw.message.endswith("Put it into `ENV`")


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("MIT", True),
        ("Apache-2.0 OR MIT", True),
        ("LicenseRef-acme-internal", True),
        ("LicenseRef-unstated", False),
        ("LicenseRef-TODO", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_licence_is_an_expression_of_spdx(text: str, stated: bool) -> None:  # noqa: FBT001
    assert licence.is_stated(text) is stated
