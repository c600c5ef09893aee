"""What a script has beside patches: variables that it exports, flags that it tells of, files for images."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_mods.making.compose import Wanted
from vllm_mods.making.effects import Advise, Effect, Export, OutsideFile

_ASKED = re.compile(
    r"(?i)\b(?:use|add|with|pass|set|serve|needs?|flags?|arguments?|parameters?|options?)\b"
)
_FLAG = re.compile(r"--[a-z][a-z0-9-]*(?:\.[\w.-]+)?(?:=\S+)?")
_OTHERS = re.compile(r"\b(?:git|pip3?|uv|patch|docker|curl|wget|apt|ray|cmake|python3?)\b")


def flags(text: str) -> tuple[str, ...]:
    """Return the flags that a text asks for: it has to end with them, each with a value or none."""
    before, dashes, after = text.partition("--")
    words = re.sub(r"[\s.;,!)'\"]*$", "", f"{dashes}{after}").split()
    asked = not before.strip() or _ASKED.search(before)
    if not words or not asked or _OTHERS.search(before):
        return ()
    found: list[str] = []
    for word, last in zip(words, ("", *words), strict=False):
        is_value = not word.startswith("-") and last.startswith("--") and "=" not in last
        if not (_FLAG.fullmatch(word) or is_value):
            return ()
        found.append(word)
    return () if "--chat-template" in found else tuple(found)  # a template brings that itself


def stated(wanted: Wanted, effects: Sequence[Effect]) -> Wanted:
    """Return what a mod says of itself, with what its script has for those who serve."""
    values: dict[str, set[str]] = {}
    for one in effects:
        if isinstance(one, Export) and one.brought:
            values.setdefault(one.name, set()).add(one.value)
    told = dict.fromkeys(one.args for one in effects if isinstance(one, Advise))
    return wanted._replace(
        # of one that is set twice nobody knows which one counts
        env=tuple((name, min(texts)) for name, texts in values.items() if len(texts) == 1),
        serve_args=tuple(word for args in told for word in args),
        files=tuple(
            {one.path: one.data for one in effects if isinstance(one, OutsideFile)}.items()
        ),
    )
