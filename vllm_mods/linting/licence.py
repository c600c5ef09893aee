"""Whether a licence says under which terms a mod may be passed on."""

from __future__ import annotations

import re

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

_NAMES_NOTHING = re.compile(
    r"LicenseRef-(unstated|unknown|undefined|unspecified|none|nil|null|na|noassertion|todo|tbd|fixme|name|xx*)\b(?![-.])",
    re.IGNORECASE,
)


def is_stated(text: str) -> bool:
    """Tell whether a text is an SPDX expression, and none of its own references says that nothing is known."""
    try:
        expression = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return False
    return _NAMES_NOTHING.search(expression) is None
