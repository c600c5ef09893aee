"""Version numbers of vLLM builds, and what little they say. Pure.

A version is advice: a development build such as ``0.19.1rc1.dev46+gc5e3454e5`` sorts before 0.19.1 and has the sources
of what became 0.20.0, and releases were rebuilt from other sources under the same number. The tree decides.
"""

import itertools
import re
from collections.abc import Iterable

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

# As text: `re` compiles them where they are first used.
_DESCRIBED = r"(?a)v?(?P<tag>\d.*)-(?P<distance>\d+)-(?P<node>g[0-9a-f]+)\Z"
_NODE = r"(?a)\+(?:.*\.)?g([0-9a-f]{7,40})\b"
_SPAN = r"(?a)\s*>=\s*(\d+(?:\.\d+)*)\s*(?:,\s*<\s*(\d+(?:\.\d+)*)\s*)?\Z"
_START = r"(?a)(?:>=?|===?|~=)\s*v?(\d+(?:\.\d+)*)"
_LAST_NUMBER = r"(?a)(.*?)(\d+)\Z"


def in_range(version: str | None, spec: str) -> bool | None:
    """Tell whether ``version`` satisfies the PEP 440 specifier ``spec``; ``""`` takes all.

    Pre-releases and development builds count like any other version. ``None`` if there is no
    version or it is not one of PEP 440. Raises ``ValueError`` for a specifier that is none.
    """
    try:
        allowed = SpecifierSet(spec)
    except InvalidSpecifier as error:
        raise ValueError(f"{spec!r} is not a version specifier such as '>=0.20'") from error
    parsed = parse(version)
    return None if parsed is None else allowed.contains(parsed, prereleases=True)


def only(version: str) -> str:
    """Return the range of a version: of all its builds, or of the commit that it names."""
    return f"=={version if node(version) else public(version)}"


def has_end(spec: str) -> bool:
    """Tell whether a specifier leaves out all versions from some number on."""
    return any(clause.strip().startswith(("<", "==", "~=")) for clause in spec.split(","))


def lowest(specs: Iterable[str]) -> str | None:
    """Return the lowest number with which one of some specifiers begins, None if one has no beginning."""
    starts = []
    for spec in specs:
        numbers = re.findall(_START, spec)
        if not numbers:
            return None
        starts.append(max(numbers, key=sort_key))
    return min(starts, key=sort_key, default=None)


def joined(specs: Iterable[str]) -> tuple[str, ...]:
    """Return ranges for a person to read: those ``>=A,<B`` that touch or overlap as one, then the others.

    A pre-release of a number at which two touch may be in neither, and is in what they make.
    """
    specs = tuple(dict.fromkeys(specs))
    spans = {spec: match for spec in specs if (match := re.match(_SPAN, spec)) is not None}
    ranges: list[tuple[str, str | None]] = []
    for low, high in sorted(
        (match.groups() for match in spans.values()), key=lambda ends: Version(ends[0])
    ):
        first, last = ranges[-1] if ranges else (low, "0")
        if not ranges or (last is not None and Version(low) > Version(last)):
            ranges.append((low, high))
        elif last is not None and (high is None or Version(high) > Version(last)):
            ranges[-1] = (first, high)
    texts = (f">={low}" if high is None else f">={low},<{high}" for low, high in ranges)
    return (*texts, *(spec for spec in specs if spec not in spans))


def is_final(version: str) -> bool:
    """Tell whether a number is that of a release: neither a pre-release nor a development build."""
    parsed = parse(version)
    return parsed is not None and not parsed.is_prerelease


def public(version: str) -> str:
    """Return a version without its local part, which only ``==`` and ``!=`` may name."""
    return version.partition("+")[0]


def node(version: str) -> str | None:
    """Return the abbreviated id of the commit that a build's local version names, if it does."""
    match = re.search(_NODE, version)
    return None if match is None else match[1]


def sort_key(version: str) -> tuple[bool, Version | str]:
    """Return a key that sorts by PEP 440, with what is no version before everything else."""
    parsed = parse(version)
    return (False, version) if parsed is None else (True, parsed)


def nearest(version: str, versions: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the ``count`` versions nearest to ``version``, the nearest first.

    Near is by the numbers from the left, as people mean it: of 0.19.0 and 0.20.0, the first is
    nearer to 0.19.9. Behind the number that differs, the next newer or older version is.
    """
    wanted = _numbers(version)

    def distance(other: str) -> tuple[int, ...]:
        pairs = itertools.zip_longest(wanted, _numbers(other), fillvalue=0)
        sign, distances = 0, []
        for mine, its in pairs:
            distances.append(sign * its if sign else abs(mine - its))
            sign = sign or (mine < its) - (mine > its)
        return tuple(distances)

    return tuple(sorted(sorted(versions, key=sort_key, reverse=True), key=distance)[:count])


def from_describe(text: str) -> str | None:
    """Return the version for what ``git describe --tags --long`` says, ``None`` if it is not one.

    ``v0.19.1-0-gb1388b1`` is 0.19.1, and ``v0.19.1-46-gc5e3454`` is ``0.19.2.dev46+gc5e3454``: the
    development version that setuptools-scm's default scheme gives the same commit.
    """
    match = re.match(_DESCRIBED, text.strip())
    if match is None or parse(match["tag"]) is None:
        return None
    if match["distance"] == "0":
        return match["tag"]
    last = re.match(_LAST_NUMBER, match["tag"].partition("+")[0])
    if last is None:
        return None
    bumped = f"{last[1]}{int(last[2]) + 1}.dev{match['distance']}+{match['node']}"
    return bumped if parse(bumped) is not None else None


def _numbers(version: str) -> tuple[int, ...]:
    parsed = parse(version)
    return parsed.release if parsed is not None else ()


def parse(version: str | None) -> Version | None:
    """Return a version of PEP 440, None for what is none."""
    if version is None:
        return None
    try:
        return Version(version)
    except ValueError:  # an InvalidVersion, or a number of thousands of digits
        return None
