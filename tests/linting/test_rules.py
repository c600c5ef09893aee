"""Rules of ``lint`` on the text of a script: the code, the line, what the message names."""

from __future__ import annotations

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.linting import commands, licence, places, rules

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
    assert flaws("true && cp a b\n") == []
    assert flaws("cat x | cp a b\n") == [("no-set-e", 1)]
    assert flaws("set o\nset errexit -x\ncp a b\n") == [("no-set-e", 3)]


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
        ("pip install -r x.txt", []),
        ("pip install --require-hashes -r x.txt", []),
        ("pip install -i https://x.org/simple a==1", []),
        ("export A=1", [("lost-export", 3)]),
        ("export PIP_INDEX_URL=x", []),
        ("export A=1 B", [("lost-export", 3)]),
        ("A=1", []),
        ("export A=1; echo $A", []),
        ("export A=1; echo ${A}", []),
        ("echo $A; export A=1", [("lost-export", 3)]),
        ("sudo env X=1 /usr/bin/patch < x", [("fuzz", 3)]),
        ("/usr/bin/python3.12 -c 'print(1)' || true", []),
        ("python3 -c 'open(x).write(y)' || true", [("fail-open", 3)]),
        ("python3 -c 'a.replace(b)' || true", [("fail-open", 3)]),
        ("python3 fix.py || true", [("fail-open", 3)]),
        ("python fix.py || true", [("fail-open", 3)]),
        ("/usr/bin/python3.12 fix.py || true", [("fail-open", 3)]),
        ("cp a b\ntrue && grep x y || true", []),
        ("git clone x || true", [("fail-open", 3)]),
        ("git am x || true", [("fail-open", 3)]),
        ("git checkout x || true", [("fail-open", 3)]),
        ("git pull || true", [("fail-open", 3)]),
        ("git log || true", []),
        ("git apply --check x || true", []),
        ("patch -F0 --dry-run < x || true", []),
        ("sed s/a/b/ x || true", []),
        ("sed -i s/a/b/ x || true", [("edit-unchecked", 3), ("fail-open", 3)]),
        ("perl -pi -e s/a/b/ x", [("edit-unchecked", 3)]),
        ("sed --in-place s/a/b/ x", [("edit-unchecked", 3)]),
        ("cp a b || exit 1", []),
        ("cp a b || return 1", []),
        ("cp a b || cp c b", []),
        ("cp a b || :", [("fail-open", 3)]),
        ("cp a b || printf no", [("fail-open", 3)]),
        ("cp a b || (echo no; exit 1)", []),
        ("cp a b || (echo no)", [("fail-open", 3)]),
        ("cp a b || { echo no; false; }", []),
        ("cp a b || { die no; }", []),
        ("cp a b || { fail no; }", []),
        ("cp a b || { abort; }", []),
        ("{ cp a b; true; } || true", [("fail-open", 3)]),
        ("{ true; false; } || true", []),
        ("cp a b | cat || true", [("fail-open", 3)]),
        ("if cp a b; then true; fi", []),
        ("pip install", []),
        ("pip3 install x -r", []),
        ("pip install -t /x a===1", []),
        ("pip install --root /x a==1.0+cu129", []),
        ("pip install git+https://x.org/a@main", []),
        (f"pip install 'a @ git+https://x.org/a@{'0' * 40}'", []),
        (f"pip install https://x.org/a.tgz#sha256={'0' * 64}", []),
        ("apt install x", []),
        ("cp a /usr/lib/python3/dist-packages/vllm/a", []),
        ("cp a ${ROOT:-/usr/lib/python3/dist-packages}/vllm/a", []),
        ("cp a venv/lib/python3.12/site-packages/vllm/a", []),
        ("curl x | tee y | python3", [("network", 3), ("network-patch", 3)]),
        ("curl x; cat y | python3", [("network", 3)]),
        ("curl https://patch-diff.githubusercontent.com/raw/a/b/pull/1.diff", [("live-diff", 3)]),
        ("patch --fuzz=2 < x", [("fuzz", 3)]),
        ("patch -F 0 < x", []),
        ("echo 'cp a b || true'", []),
        ("# cp a b || true", []),
        ("echo \\\ncp a b", []),
        ("echo cp a || true", []),
    ],
)
def test_a_line_of_a_strict_script(line: str, expected: list[tuple[str, int]]) -> None:
    assert flaws(f"{STRICT}{line}\n") == expected


def test_the_message_names_the_command_and_what_hides_its_failure() -> None:
    (flaw,) = places.script(f"{STRICT}git apply fix.patch || echo done\n")
    assert flaw.message == "`git apply fix.patch` may fail, and `echo done` makes that a success"
    (flaw,) = places.script(f"{STRICT}cp {'a' * 80} b || true\n")
    assert f"`cp {'a' * 54}...` may fail" in flaw.message


def test_what_is_read_from_a_server_by_a_program_is_named() -> None:
    fetched, piped = places.script(f"{STRICT}curl https://x.org/y | bash\n")
    assert fetched.message.startswith("no network, no mod")
    assert piped.message.startswith("what `bash` gets is whatever the server sends")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("echo 'x\n", 1, "a quote or a backslash has no end"),
        ("echo a\nif true\nthen echo b\n", 3, "a branch, a loop or a block has no end"),
        ("echo a\ncat <<EOF\nx\n", 2, "<<EOF has no end"),
        ("echo a\n" + "if true; then " * 2000, 2, "it is nested too deeply to be read"),
    ],
)
def test_what_is_no_bash_is_told_with_its_line(text: str, line: int, why: str) -> None:
    assert places.script(text) == (rules.Flaw(FindingCode.NOT_BASH, line, why),)


def test_a_command_has_its_words_and_what_is_around_it() -> None:
    text = "a 'b c' \"d\" >x 2>&1 && sudo /bin/e <<-EOF <<<f\n\tinside\nEOF\nfor i in 1; do g & done\n(h | i)\n"
    read = commands.split(text, 5)
    assert [(one.line, one.name, one.before, one.after, one.depth) for one in read] == [
        (5, "a", "\n", "&&", 0),
        (5, "e", "&&", "\n", 0),
        (8, "i", "\n", ";", 1),
        (8, "g", ";", "&", 1),
        (8, "", "&", "\n", 0),
        (9, "h", "(", "|", 1),
        (9, "i", "|", ")", 1),
    ]
    assert read[0].words == ("a", "b c", "d")
    assert read[0].text == "a 'b c' \"d\" >x 2>&1"
    assert read[1].document == "\tinside\n"
    assert read[2].keywords == ("for",)
    assert (read[3].keywords, read[4].keywords) == (("do",), ("done",))


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
