"""What the product prints is plain: short sentences, subject first, in the words of those who patch and serve."""

from __future__ import annotations

import re

import pytest
from message_texts import FIELD, Message, messages, sentences

LONGEST = 30
"""Words of a sentence; a value that is filled in counts as one."""

RETIRED = {
    # what is retired, as a pattern: what to write instead
    r"(?<![Tt]here )\b(is|are|was|were) no [a-z]+ (of|that|for)\b": "is not a …",
    r"(?<!there )\b(is|are|was) none\b": "is not a …; has no …",
    r"\bstands?\b(?! for)": "is at line …, is in …",
    r"\b(nobody|somebody|anybody) (knows|looked|says|can|could|made|has|who)\b": "the subject: who, or a passive verb",
    r"\bby whom\b": "by an unknown program",
    r"\bas (it|they) (is|was|were)( left| before)?\b": "unchanged; restored",
    r"\b(goes|go|went) in\b": "applies, was applied",
    r"\b(is|are|was) in already\b": "already applied",
    r"\b(comes|came) with\b": "is bundled with",
    r"\bnothing (says|tells) (what|which|where|who|whether)\b": "… is unknown",
    r"\b(held|hold|holds) .*\bagainst\b": "compare with, check against",
    r"\b(as|where) [\w-]+ (has|have|says) it\b(?!\.$)": "recorded in …; in …",
    r"\bany more\b": "no longer",
    r"\banew\b": "again",
    r"\bby now\b": "now",
    r"\bcan(not|'t)? be told\b": "is unknown",
    r"\bother bytes\b": "different contents",
    r"\b(lies|lay) (in|below|outside|on)\b": "is in …",
    r"\bbrings?\b": "has, sets, adds",
    r"\bcarries\b": "already has the change",
    r"\bof (its|one's|your) own\b(?!: a| library|:)": "its own …",
    r"\botherwise\b": "differently",
    r"\bis (called|wanted)\b": "is named; is needed",
    r"\b(leads|lead) (out|elsewhere)\b": "points outside",
    r"\ball that places\b": "hunk …: only the text proves the place",
    r"\bit was written in\b(?! …)": "every enclosing class and function",
    r"\bto be had\b": "available",
    r"\b(word|words) of it\b": "mention",
    r"\bthe very\b": "this exact …",
    r"\bwithout a word\b": "silently",
    r"\bfor (another|others) it\b": "the subject first",
    r"\bthat there (is|are|was)\b": "the subject first",
    r"\bso that (no|nobody|what)\b": "so …",
}
INVERTED = {
    r"^(Of|In|With|By|To) [^,:;…]{1,40}, (is|are|has|have|was|were|can|will)\b": "a predicate before its subject",
    r"^(Looked for|Written|Taken|Read|Named|Left|Meant) (is|are|was)\b": "a participle before its subject",
    r"^(That|Whether|What|Who|Where|Which) .+ (is|are|cannot be|can't be) (not )?(known|unknown|clear|told|said)\b": "a clause before the verdict on it",
    r"^(Not|Only|Never|Nowhere) [^.]{1,60}\b(is|are|does|do|has|have|can) (it|they|the|a|any)\b": "a negation before its verb",
}
PLAIN = (
    # sentences that say what a rule is for
    "hunk 4: only the text, which matches once in the file, proves the place; the patch does not name every enclosing class and function",
    "the receipt records another version of the mod as applied",
    "vllm/a.py already exists, with different contents from overlay/a.py",
)
RIDDLES = {
    # sentences that the product printed before
    "all that places hunk 4 is that its text occurs once in the file": r"\ball that places\b",
    "was in, and another installation of vLLM has undone it; it is not as it was left": r"\bas (it",
    "the mod brings it to a pairing": r"\bbrings",
    "Looked for is what each mod's [evidence] names": "^(Looked for",
    "no.toml is none of these": r"(?<!there )\b(is|are|was) none",
    "nothing says what was there before": r"\bnothing (says",
    "a.patch goes in at line 3": r"\b(goes",
}


def rules_broken(text: str) -> list[str]:
    """Return the rules that a message breaks, each with the part that does."""
    broken = [
        f"{found[0]!r}: write {instead}"
        for pattern, instead in RETIRED.items()
        if (found := re.search(pattern, text))
    ]
    for sentence in sentences(text):
        count = len(sentence.split())
        if count > LONGEST:
            broken.append(f"{count} words in {sentence[:60]!r}")
        broken += [
            f"{found[0]!r} is {why}"
            for pattern, why in INVERTED.items()
            if (found := re.search(pattern, sentence.strip()))
        ]
    return broken


def is_prose(message: Message) -> bool:
    """Tell a sentence from a list of names: half of its words are no code."""
    words = message.text.split()
    return sum(
        re.fullmatch(r"[A-Za-z…][a-z…'-]*[.,:;!?)]*", word) is not None for word in words
    ) * 2 > len(words) and not re.fullmatch(r"(\w+_\w+|\w+)( (\w+_\w+|\w+)){40,}", message.text)


def test_every_text_of_the_product_is_read() -> None:
    every = messages()
    assert len(every) > 2500
    texts = {message.text for message in every}
    assert "the answer is no" in texts
    assert f"there is no command `{FIELD}`{FIELD}" in texts
    assert any(text.startswith("Check whether mods apply") for text in texts)
    assert any(message.place == "report/finding_codes.toml:offset" for message in every)


def test_every_message_is_plain() -> None:
    broken = [
        f"{message.place}: {message.text[:100]!r}: {'; '.join(rules)}"
        for message in messages()
        if is_prose(message) and (rules := rules_broken(message.text))
    ]
    assert broken == []


@pytest.mark.parametrize("riddle", RIDDLES)
def test_a_riddle_breaks_its_rule(riddle: str) -> None:
    (rule,) = (key for key in (*RETIRED, *INVERTED) if key.startswith(RIDDLES[riddle]))
    assert re.search(rule, riddle)


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_breaks_none(sentence: str) -> None:
    assert rules_broken(sentence) == []


def test_a_long_sentence_is_found() -> None:
    assert rules_broken("word " * LONGEST) == []
    (broken,) = rules_broken("word " * (LONGEST + 1))
    assert broken.startswith("31 words")
