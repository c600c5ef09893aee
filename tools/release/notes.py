"""What a release is called, and what CHANGELOG says of it. Pure, but for reading git."""

from __future__ import annotations

import re

UNRELEASED = "Unreleased"


def section(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, without its heading.

    Raises ``SystemExit`` if there is no such section, if it says nothing, and, but for ``UNRELEASED``, if its
    heading has no date.
    """
    parts = re.split(r"^## +(.*)$", changelog, flags=re.MULTILINE)[1:]
    dated = "" if version == UNRELEASED else r" - \d{4}-\d\d-\d\d"
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        if re.fullmatch(rf"\[{re.escape(version)}\]{dated}", heading.strip()) and text.strip():
            return f"{text.strip()}\n"
    heading = f"## [{version}]{' - YYYY-MM-DD' if dated else ''}"
    raise SystemExit(f"error: CHANGELOG.md has nothing under `{heading}`")


def check_tag(tag: str, version: str) -> None:
    """Raise ``SystemExit`` unless a tag is that of the version."""
    if tag != f"v{version}":
        raise SystemExit(
            f"error: the tag is {tag}, and vllm_mods/__init__.py says {version}\n\nhint: v{version}"
        )
