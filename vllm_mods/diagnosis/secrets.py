"""Takes out of a text what nobody but its owner should read. Pure.

What a secret looks like can only be guessed at; where in doubt, it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "…"
_SHORTEST = 5
_NAME = (
    r"[\w.-]{0,40}(?:token|secret|passw|passphrase|credential|auth(?!or(?!iz))|(?:api|access|private)[_-]?key)"
    r"[\w.-]{0,40}"
)
_SECRET_NAME = re.compile(rf"(?i)(?:{_NAME}|[\w.-]*key)\Z")
_USER_IN_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]*://)([^/\s'\"<>]+)@")
# The value of a variable, a JSON key, a header, a part of a query; of an option also behind a blank.
_VALUE = r"""(?:(?:basic|bearer|token)\s+)?(?:'[^']*'|"[^"]*"|[^\s'",;&]+)"""
_PATTERNS = (
    (_USER_IN_URL, rf"\1{HIDDEN}@"),
    # the same without a scheme; `name:tag@sha256:…` is an image
    (
        re.compile(r"""(?i)(?<![\w.-])([\w.-]+:)[^\s/:@'"<>]{5,}@(?=[a-z0-9])(?!sha\d)"""),
        rf"\1{HIDDEN}@",
    ),
    (re.compile(rf"""(?i)(--{_NAME}[\s=]+){_VALUE}"""), rf"\1{HIDDEN}"),
    (re.compile(rf"""(?i)(\b{_NAME}["']?\s*[=:]\s*){_VALUE}"""), rf"\1{HIDDEN}"),
    (re.compile(r"""(?i)([?&](?:key|sig|signature|x-amz-[\w-]+)=)[^&\s'"#]+"""), rf"\1{HIDDEN}"),
    (re.compile(r"""(?i)\b(bearer|basic)\s+[^\s'",;]{8,}"""), rf"\1 {HIDDEN}"),
    # What Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, PyPI, NVIDIA, Docker begin theirs with; JWT
    (
        re.compile(
            r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox[abeprs]-|AKIA|pypi-Ag|nvapi-|dckr_pat_"
            r"|eyJ[\w-]+\.)[\w.-]{8,}"
        ),
        HIDDEN,
    ),
)


def clean(text: str, environ: Mapping[str, str]) -> str:
    """Return ``text`` without secrets, and with ``~`` for the home folder.

    Taken out are values of variables whose names speak of a secret, users and passwords in URLs (also
    where they are repeated elsewhere), values with such a name, and tokens of well-known forms.
    """
    for value in sorted(_values(environ), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern, put in _PATTERNS:
        text = pattern.sub(put, text)
    home = environ.get("HOME", "").rstrip("/")
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home else text


def _values(environ: Mapping[str, str]) -> set[str]:
    """Return what must not be shown wherever it stands."""
    found = set()
    for name, value in environ.items():
        if _SECRET_NAME.match(name):
            found.add(value)
        for match in _USER_IN_URL.finditer(value):
            found.update((match[2], match[2].partition(":")[2]))
    return {value for value in found if len(value) >= _SHORTEST}
