"""What this Python says of a file, and what LibCST says, whose grammar is its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vllm_mods.fit import syntax
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.formats import concrete_syntax, syntax_tree
from vllm_mods.formats.concrete_syntax import UnparsableError

if TYPE_CHECKING:
    from collections.abc import Callable

# Python, and not for LibCST.
ONLY_HERE = b"(a): int = 1\n"
SOURCES = {
    "a line": b"x = 1\n",
    "byte-order mark": b"\xef\xbb\xbfx = 'e'\n",
    "latin": "# coding: latin-1\nx = 'é'\n".encode("latin-1"),
    "formats": b"f'{x!r:>{w}}' + t'{a}'\n",
    "newer statements": b"type X[T: int] = 1\ndef f[T](a, /, b, *, c=1, **k): ...\ntry:\n 1\nexcept* E: 1\n",
    "match": b"match x:\n case {'a': 1, **r}: pass\n case A(b=1) | [*_]: pass\n",
    "the old print": b"x = 1\nprint 'x'\n",
    "an indent": b"x = 1\n  y = 2\n",
    "no bytes of its encoding": b"x = '\xff'\n",
    "an encoding that is none": b"# coding: nonsense\nx = 1\n",
    "only here": ONLY_HERE,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_parser_alone_says_what_the_library_says(kind: str) -> None:
    def outcome(parse: Callable[[bytes], object]) -> str | None:
        try:
            parse(SOURCES[kind])
        except UnparsableError as error:
            return str(error).partition(":")[0]
        return None

    real = sys.modules.pop("libcst", None)
    try:
        alone = outcome(concrete_syntax._parse_alone)
    finally:
        if real is not None:
            sys.modules["libcst"] = real
    whole = outcome(concrete_syntax._parse)
    assert (alone is None) == (whole is None)
    assert (alone or "").startswith("line") == (whole or "").startswith("line")


def test_the_parser_alone_leaves_nothing_behind() -> None:
    code = (
        "import sys; from vllm_mods.formats import concrete_syntax as c\n"
        "assert c.refusal(b'x = 1\\n', {1}) is None\n"
        "assert c.refusal(b'x = \\n', {1}).startswith('line 1')\n"
        "assert 'libcst' not in sys.modules\n"
        "import libcst; assert libcst.parse_module('x = 1').body\n"
        "assert c.read_places(b'x = 1\\n')[0].name == 'x ='\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_this_python_takes_and_libcst_does_not_is_said() -> None:
    (found,) = syntax.syntax_problems("a.py", b"", ONLY_HERE, (3, 10))
    assert isinstance(found, Doubt)
    assert "takes it, and LibCST, the second reader, does not: line 1" in found.why


def test_what_the_patch_left_alone_is_not_read_again() -> None:
    before = ONLY_HERE + b"x = 1\n"
    assert not list(syntax.syntax_problems("a.py", before, before.replace(b"x", b"y"), (3, 10)))


def test_where_this_python_is_too_old_libcst_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "_error", lambda *_: SyntaxError("newer than this Python"))
    monkeypatch.setattr(syntax_tree, "only", lambda data, _: data)
    (fine,) = syntax.syntax_problems("a.py", b"", b"x = 1\n", (3, 99))
    assert isinstance(fine, Doubt)
    (wrong,) = syntax.syntax_problems("a.py", b"", b"x = 1\nx = = 1\n", (3, 99))
    assert isinstance(wrong, Problem)
    assert wrong.line == 2
    assert "not valid Python 3.99" in wrong.message
