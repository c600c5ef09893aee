"""``python -m fuzz [TARGET…] --seconds N``, from the folder ``tests``: a table of what was found."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from fuzz.targets import TARGETS


class Row(NamedTuple):
    """What became of one target."""

    name: str
    inputs: int
    seconds: float
    found: tuple[str, ...]


def run(name: str, seconds: int, folder: str) -> Row:
    """Run one target in a process of its own."""
    command = [sys.executable, "-m", "fuzz.child", name, str(seconds), folder]
    started = time.monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        timeout=seconds * 2 + 300,
        stdin=subprocess.DEVNULL,
    )
    took = time.monotonic() - started
    last = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
    try:
        said = json.loads(last)
    except ValueError:
        said = {"count": 0, "found": {}}
    found = [f"{kind}: {message}" for kind, message in said["found"].items()]
    if done.returncode or not said["count"]:
        place = os.path.join(folder, f"{name}-stopped.txt")
        with open(place, "wb") as file:
            file.write(done.stderr[-8000:])
        found.append(f"it stopped with {done.returncode}: {place}")
    return Row(name, said["count"], took, tuple(found))


def main() -> int:
    """Run the targets; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets at a time")
    parser.add_argument("--findings", default="findings", help="a folder for inputs that broke")
    asked = parser.parse_args()
    os.makedirs(asked.findings, exist_ok=True)
    folder = os.path.abspath(asked.findings)
    names = asked.target or list(TARGETS)
    bad = 0
    sys.stdout.write(f"{'target':<16}{'inputs':>9}{'seconds':>9}  findings\n")
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda name: run(name, asked.seconds, folder), names):
            bad += len(row.found)
            sys.stdout.write(
                f"{row.name:<16}{row.inputs:>9}{row.seconds:>9.0f}  {len(row.found)}\n"
            )
            sys.stdout.writelines(f"    {what}\n" for what in row.found)
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
