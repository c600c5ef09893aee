"""Where in an image a mod may put a file of its own, outside of Python's packages. Pure.

What decides who may log in, which library every program loads or what runs when anything starts is no
mod's to say; and what an engine lays over when a container starts would not be seen.
"""

import re

from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.formats import tree_names

_RULES = {
    "marks a deleted file in a layer, and a mod can only add files": r"/(?:.*/)?\.wh\.[^/]*(?:/.*)?",
    "is replaced by the engine when a container starts": (
        r"/(?:proc|sys|dev)(?:/.*)?|/etc/(?:hosts|hostname|resolv\.conf|mtab)|/\.dockerenv"
    ),
    "is one of Python's own files: use patches, an overlay or `outside` for packages": (
        r".*/lib(?:32|64|x32)?/python[\d.]*(?:/.*)?|.*/(?:site|dist)-packages(?:/.*)?"
        r"|.*/(?:(?:site|user)customize\.py|pyvenv\.cfg|[^/]*\.pth|[^/]*\.egg-link)"
    ),
    "controls permissions or what runs at startup": (
        r"/etc/(?:passwd|shadow|group|gshadow|subuid|subgid|sudoers|login\.defs|nsswitch\.conf|shells)(?:-|\.d/.*)?"
        r"|/etc/(?:pam|ld\.so|profile|environment|bash\.bashrc|ssh|ssl|security|cron\w*|init|systemd|apt|alternatives)"
        r"(?:[.\d/-].*)?|/etc/(?:rc.*|crypttab|fstab|inittab|pip\.conf|gitconfig|hosts\..*)"
        r"|/(?:root|home/[^/]+)/\.(?:ssh|bash\w*|profile|netrc|config|docker|zsh\w*|gitconfig)(?:/.*)?"
        r"|/var/spool/cron(?:/.*)?|/(?:usr/)?lib/systemd(?:/.*)?"
    ),
    "is a system file that every program needs": (
        r".*/(?:ld-[^/]*|lib(?:c|m|dl|rt|util|pthread|resolv|crypt|nss_[^/]*|pam[^/]*|gcc_s|stdc\+\+|python[^/]*))\.so[^/]*"
    ),
}
"""Why a mod may not have a file at the paths that a pattern takes."""


def objection(path: str) -> str | None:
    """Say why a mod may not have a file at a path in an image, None if it may."""
    if not path.startswith("/") or path.count("/") < 2 or not is_plain_path(path[1:]):
        return "is not the absolute path of a file in a folder"
    if "\\" in path or not path.isprintable():
        return "is a path that systems read differently"
    if tree_names.is_reserved(path):
        return "is reserved for vllm-mods"
    return next((why for why, rule in _RULES.items() if re.fullmatch(rule, path)), None)
