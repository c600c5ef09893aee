"""``[ … ]`` and ``[[ … ]]``: true, false, or known only when it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_mods.making import words
from vllm_mods.making.shell_state import ShellState
from vllm_mods.scripts import bash
from vllm_mods.scripts.statements import BashError, Call, Unread


def test(shell: ShellState, text: str) -> bool | None:
    """Tell what the text of a test comes to."""
    inner = re.sub(r"^\[\[?\s|\s\]\]?$", "", text)
    try:
        (call,) = bash.read(f"test {inner}").body
    except (BashError, ValueError):
        return None
    if not isinstance(call, Call) or call.redirects:
        return None
    found: list[str] = []
    for word in call.argv[1:]:
        patterns = (part.text for part in word.parts if isinstance(part, Unread))
        if not all(text.startswith(("$", "`")) for text in patterns):
            return None
        if text.startswith("[["):
            known = words.text(shell, word)
            items = None if known is None else [known]
        else:
            items = words.values(shell, word)  # what is not quoted is split, or is nothing at all
        if items is None:
            return None
        found += items
    return evaluate(shell, found)


def evaluate(shell: ShellState, argv: Sequence[str]) -> bool | None:  # noqa: PLR0911  (one for each form)
    """Tell what the words of a test come to."""
    if argv and argv[0] == "!":
        inner = evaluate(shell, argv[1:])
        return None if inner is None else not inner
    if len(argv) == 1:
        return bool(argv[0])
    if len(argv) == 3 and argv[1] in {"=", "==", "!="}:
        same = argv[0] == argv[2]
        return same if argv[1] != "!=" else not same
    if len(argv) != 2:
        return None
    flag, name = argv
    if flag in {"-n", "-z"}:
        return bool(name) is (flag == "-n")
    path = shell.path(name) if name else None
    if path is None:
        return None
    if flag in {"-f", "-s", "-r"}:
        return shell.is_file(path)
    if flag == "-d":
        return shell.is_folder(path)
    if flag == "-e":
        is_file, is_folder = shell.is_file(path), shell.is_folder(path)
        return True if is_file or is_folder else (None if None in {is_file, is_folder} else False)
    return None
