"""Where in an image a mod may put a file of its own, outside of Python's packages. Pure.

What decides who may log in, which library every program loads or what runs when anything starts is no
mod's to say; and what an engine lays over when a container starts would not be seen.
"""

import re

from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.formats import tree_names

_RULES = (
    (
        r"/(?:.*/)?\.wh\.[^/]*(?:/.*)?",
        "is how a layer takes files away, and a mod's files only add",
    ),
    (
        r"/(?:proc|sys|dev)(?:/.*)?|/etc/(?:hosts|hostname|resolv\.conf|mtab)|/\.dockerenv",
        "is what an engine lays over when a container starts",
    ),
    (
        (
            r".*/lib(?:32|64|x32)?/python[\d.]*(?:/.*)?|.*/(?:site|dist)-packages(?:/.*)?"
            r"|.*/(?:(?:site|user)customize\.py|pyvenv\.cfg|[^/]*\.pth|[^/]*\.egg-link)"
        ),
        "is among Python's own: patches, an overlay and `outside` are for its packages",
    ),
    (
        (
            r"/etc/(?:passwd|shadow|group|gshadow|subuid|subgid|sudoers|login\.defs|nsswitch\.conf|shells)(?:-|\.d/.*)?"
            r"|/etc/(?:pam|ld\.so|profile|environment|bash\.bashrc|ssh|ssl|security|cron\w*|init|systemd|apt|alternatives)"
            r"(?:[.\d/-].*)?|/etc/(?:rc.*|crypttab|fstab|inittab|pip\.conf|gitconfig|hosts\..*)"
            r"|/(?:root|home/[^/]+)/\.(?:ssh|bash\w*|profile|netrc|config|docker|zsh\w*|gitconfig)(?:/.*)?"
            r"|/var/spool/cron(?:/.*)?|/(?:usr/)?lib/systemd(?:/.*)?"
        ),
        "decides who may do what, or what runs when something starts",
    ),
    (
        r".*/(?:ld-[^/]*|lib(?:c|m|dl|rt|util|pthread|resolv|crypt|nss_[^/]*|pam[^/]*|gcc_s|stdc\+\+|python[^/]*))\.so[^/]*",
        "is a part of what every program is run by",
    ),
)


def objection(path: str) -> str | None:
    """Say why a mod may not have a file at a path in an image, None if it may."""
    if not path.startswith("/") or path.count("/") < 2 or not is_plain_path(path[1:]):
        return "is no absolute path of a file in a folder"
    if "\\" in path or not path.isprintable():
        return "is no path that everybody reads alike"
    if tree_names.is_reserved(path):
        return "is a name of what vllm-mods keeps itself"
    return next((why for rule, why in _RULES if re.fullmatch(rule, path)), None)
