"""What a secret looks like: taken out of a text that is shown, refused in what is passed on. Pure.

What it looks like can only be guessed at. Where in doubt, it is taken out, and it is not refused.
"""

import re
from collections.abc import Iterator, Mapping

HIDDEN = "…"
NAMED = re.compile(r"(?i).*_(TOKEN|KEY|SECRET|PASSWORD)\Z")
"""Names of variables whose value nobody may read in an image, or in a file that is passed on."""
# What Hugging Face, GitHub, AWS, and then GitHub, GitLab, OpenAI, Slack, PyPI, NVIDIA, Docker begin theirs with.
_PLAIN = r"hf_|gh[opsur]_|AKIA"
_MIXED = r"github_pat_|glpat-|sk-|xox[abeprs]-|pypi-Ag|nvapi-|dckr_pat_"
_TOKEN = (
    rf"(?a)(?<![\w-])(?!(?<=/)sk-)(?:({_PLAIN})[A-Za-z0-9]{{16,}}|({_MIXED})[\w-]{{16,}}|(eyJ)[\w-]{{8,}}\.eyJ[\w-]{{8,}})"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
)
_SHORTEST = 5
_NAME = (
    r"[\w.-]{0,40}(?:token|secret|passw|passphrase|credential|auth(?!or(?!iz))|(?:api|access|private)[_-]?key)"
    r"[\w.-]{0,40}"
)
_SECRET_NAME = rf"(?i)(?:{_NAME}|[\w.-]*key)\Z"
_USER_IN_URL = r"(?i)([a-z][a-z0-9+.-]*://)([^/\s'\"<>]+)@"
# The value of a variable, a JSON key, a header, a part of a query; of an option also behind a blank.
_VALUE = r"""(?:(?:basic|bearer|token)\s+)?(?:'[^']*'|"[^"]*"|[^\s'",;&]+)"""
_TAKEN_OUT = {
    _USER_IN_URL: rf"\1{HIDDEN}@",
    # the same without a scheme; `name:tag@sha256:…` is an image
    r"""(?i)(?<![\w.-])([\w.-]+:)[^\s/:@'"<>]{5,}@(?=[a-z0-9])(?!sha\d)""": rf"\1{HIDDEN}@",
    rf"""(?i)(--{_NAME}[\s=]+){_VALUE}""": rf"\1{HIDDEN}",
    rf"""(?i)(\b{_NAME}["']?\s*[=:]\s*){_VALUE}""": rf"\1{HIDDEN}",
    r"""(?i)([?&](?:key|sig|signature|x-amz-[\w-]+)=)[^&\s'"#]+""": rf"\1{HIDDEN}",
    r"""(?i)\b(bearer|basic)\s+[^\s'",;]{8,}""": rf"\1 {HIDDEN}",
    rf"\b(?:{_PLAIN}|{_MIXED}|eyJ[\w-]+\.)[\w.-]{{8,}}": HIDDEN,
}
"""What is taken out of a text that is shown, and what is put there."""


def kind(text: str) -> str | None:
    """Return how a secret in a text begins, None if nothing in it is surely one: a token, a private key."""
    match = re.search(_TOKEN, text)
    if match is None:
        return None
    begin = next(filter(None, match.groups()), None)
    return f"{begin}…" if begin else "-----BEGIN … PRIVATE KEY-----"


def problems(value: object, at: str = "") -> list[str]:
    """Return why a value with secrets in it is refused, each with its key path; none of them is repeated."""
    why = "contains what looks like a secret ({}), which would be published: remove it"
    return [f"{place}: {why.format(begin)}" for place, begin in _within(value, at)]


def _within(value: object, at: str) -> Iterator[tuple[str, str]]:
    """Yield the key path and the ``kind`` of each secret in a value, its keys included."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            hidden = kind(str(key))
            below = f"{at}.{HIDDEN if hidden else key}".lstrip(".")
            if hidden:
                yield below, hidden
            yield from _within(inner, below)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _within(inner, f"{at}[{i}]")
    elif isinstance(value, str) and (secret := kind(value)):
        yield at, secret


def clean(text: str, environ: Mapping[str, str]) -> str:
    """Return ``text`` without secrets, and with ``~`` for the home folder.

    Taken out are values of variables whose names speak of a secret, users and passwords in URLs (also
    where they are repeated elsewhere), values with such a name, and tokens of well-known forms.
    """
    for value in sorted(_values(environ), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern, put in _TAKEN_OUT.items():
        text = re.sub(pattern, put, text)
    home = environ.get("HOME", "").rstrip("/")
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home else text


def _values(environ: Mapping[str, str]) -> set[str]:
    """Return what must not be shown wherever it stands."""
    hidden = set()
    for name, value in environ.items():
        if re.match(_SECRET_NAME, name):
            hidden.add(value)
        for match in re.finditer(_USER_IN_URL, value):
            hidden.update((match[2], match[2].partition(":")[2]))
    return {value for value in hidden if len(value) >= _SHORTEST}
