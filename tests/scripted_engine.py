"""An engine's program that is a script: it prints what lies in its files, and writes down how it was called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """#!/bin/sh
cd {0}
echo "$@" >> calls
case "$1 $2" in
"image inspect") cat image 2>/dev/null;;
"container inspect") cat container 2>/dev/null;;
stop*) sed -i 's/"Running": true/"Running": false/' container;;
ps*) cat names 2>/dev/null || true;;
logs*) printf "$(cat log)\\n"; echo error >&2;;
"run --detach")
  while [ $# -gt 0 ]; do [ "$1" = --cidfile ] && file=$2; shift; done
  [ -e identity ] && cat identity > $file
  [ -e refusal ] && {{ cat refusal >&2; exit 125; }}
  cat identity;;
esac
"""


class Program:
    """An engine's program that prints what lies in its files; ``calls`` are its words."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        program = folder / "bin" / name
        program.write_text(SCRIPT.format(self.folder))
        program.chmod(0o755)

    def has(self, **files: object) -> None:
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


STATE = {"Running": True, "StartedAt": "2026-11-23T10:00:00Z", "Status": "running", "ExitCode": 0}
RAW: dict[str, Any] = {
    "Name": "/x", "Config": {"Labels": {"a": "b"}}, "RestartCount": 2, "State": STATE,
}  # fmt: skip
"""What an engine says of a container."""
