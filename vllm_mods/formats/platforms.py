"""The platform that machine code is for, as OCI names it: ``linux/amd64``. Pure."""

import re

_TAGS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_MACHINES = {0x3E: "linux/amd64", 0xB7: "linux/arm64"}
NAMES = tuple(_TAGS.values())


def of_wheel(metadata: bytes | None) -> str | None:
    """Return what the tags of a ``WHEEL`` state; None for one that is for any, or several."""
    tags = re.findall(rb"(?m)^Tag:.*-\w*linux\w*?_(x86_64|aarch64)\s*$", metadata or b"")
    platforms = {_TAGS[tag.decode()] for tag in tags}
    return platforms.pop() if len(platforms) == 1 else None


def of_code(data: bytes) -> str | None:
    """Return what a file of machine code (ELF, 64 bits) is for; None for what is none, or for others."""
    if data[:4] != b"\x7fELF" or data[4:6] != b"\x02\x01":
        return None
    return _MACHINES.get(int.from_bytes(data[18:20], "little"))
