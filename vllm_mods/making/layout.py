"""Where things lie in a launcher's container: Python's packages, the workspace, the home."""

from __future__ import annotations

SITE = "/usr/local/lib/python3.12/dist-packages"
WORKSPACE = "/workspace"
HOME = "/root"
TEMPORARY = "/tmp"  # noqa: S108  (as it is called in the container)
LAUNCHER = "/launcher"
"""The folder of the programs that watch a recorded command."""

_TEMPLATES = (".jinja", ".jinja2", ".j2")


def is_template(path: str) -> bool:
    """Return True if an absolute path is where a launcher looks for a chat template."""
    folder, _, name = path.rpartition("/")
    return folder == WORKSPACE and name.endswith(_TEMPLATES)
