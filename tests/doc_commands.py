"""Run a page's commands in one shell, in a fresh folder, and say where they do not do as it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from doc_pages import agrees, commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from doc_pages import Command, Page

RELEASE = "0.21.0"
MARK = "\x1e"
# The README's set-up line installs into a virtual environment and downloads 250 MB. CI runs it as it
# is; for the pages, what it leaves is put there. `test_pages` holds that these are parts of that line.
STOOD_IN = {
    "python3 -m venv .venv": 'mkdir -p .venv && ln -s "$DOCS_PREFIX/bin" .venv/bin',
    ".venv/bin/pip install -q .": ":",
    ".venv/bin/pip download -q --no-deps --only-binary :all: --platform manylinux_2_24_x86_64 "
    f"--python-version 3.12 -d .venv/wheel vllm=={RELEASE}": ":",
    f".venv/bin/python -m zipfile -e .venv/wheel/vllm-{RELEASE}-*.whl .venv/vllm-{RELEASE}": (
        f'cp -r "$DOCS_RELEASE" .venv/vllm-{RELEASE}'
    ),
}

PROVIDED = {
    "release": f'cp -r "$DOCS_RELEASE" vllm-{RELEASE}',
    "image": (
        "tar --transform 's,^\\./,usr/local/lib/python3.12/dist-packages/,' -C \"$DOCS_RELEASE\" -c . "
        f"| docker import - vllm-files:{RELEASE} >/dev/null"
    ),
}


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return what commands see: a home of their own, this tool first, downloads shared."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_MODS_", "WORKSPACE_DIR", "SOURCE_DATE_EPOCH", "PYTEST_"))
    }
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home.mkdir(exist_ok=True)
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{sys.prefix}/bin{os.pathsep}{kept['PATH']}",
        "XDG_CACHE_HOME": cache,
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",  # so that output and notes come in the order that a terminal shows
        "DOCS_PREFIX": sys.prefix,
        **more,
    }


def run(page: Page, folder: Path, more: Mapping[str, str], *, timeout: float = 300) -> list[str]:
    """Run a page in ``folder`` and return what is not as it says, one text for each command.

    Commands after the first that fails are run all the same: one shell, as a reader has.
    """
    place = folder / "page"
    place.mkdir()
    script = ["exec 2>&1 </dev/null", *(PROVIDED[need] for need in PROVIDED if need in page.needs)]
    asked: list[Command] = []
    for i, block in enumerate(page.blocks):
        if block.title is not None and block.reason is None:
            stored = folder / f"file-{i}"
            stored.write_text(block.body)
            target = block.title
            script.append(f"mkdir -p \"$(dirname '{target}')\" && cp '{stored}' '{target}'")
        if block.runs:
            for command in commands(block):
                asked.append(command)
                script += [stand_in(command.text), f"printf '{MARK}%s{MARK}' $?"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=place,
        env=environment(folder / "home", more),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=timeout,
    )
    answers = done.stdout.split(MARK)[:-1]
    told = list(zip(answers[::2], map(int, answers[1::2]), strict=True))
    wrong = [
        complaint
        for command, (printed, code) in zip(asked, told, strict=False)
        if (complaint := _compare(page, command, printed, code))
    ]
    if len(told) < len(asked):
        wrong.append(
            f"{page.path}:{asked[len(told)].line}: the shell ended here: {done.stdout[-500:]}"
        )
    return wrong


def stand_in(text: str) -> str:
    """Return command lines with the parts replaced that CI runs elsewhere."""
    lines = (line.split(" && ") for line in text.strip().splitlines())
    return "\n".join(" && ".join(STOOD_IN.get(part, part) for part in parts) for parts in lines)


def _compare(page: Page, command: Command, printed: str, code: int) -> str | None:
    where = f"{page.path}:{command.line}: $ {command.text.strip()}"
    if code != command.exit_code:
        return f"{where}\nexit code {code}, not {command.exit_code}, and it printed\n{printed}"
    if command.output is not None and not agrees(command.output, printed):
        return f"{where}\nprinted\n{printed}\nand not\n{command.output}"
    return None


def small_release(folder: Path) -> Path:
    """Put the Python files and the metadata of a vLLM release into a folder, as its wheel has them.

    From ``VLLM_MODS_DOCS_RELEASE``, where CI has unpacked the wheel; else its sources are downloaded
    (some 35 MB) and its metadata read.
    """
    target = folder / f"vllm-{RELEASE}"
    if given := os.environ.get("VLLM_MODS_DOCS_RELEASE"):
        return Path(shutil.copytree(given, target, ignore=_no_python))
    from vllm_mods.trees.open import open_tree

    sources, wheel = open_tree(f"pypi:vllm-{RELEASE}.tar.gz"), open_tree(f"pypi:{RELEASE}")
    info = f"vllm-{RELEASE}.dist-info"
    files = {path: sources.read(path) for path in sources.paths("vllm") if path.endswith(".py")}
    for path in (f"{info}/METADATA", f"{info}/RECORD", f"{info}/WHEEL", "vllm/_version.py"):
        files[path] = wheel.read(path)
    for path, data in files.items():
        if data is not None:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(data)
    return target


def _no_python(folder: str, names: list[str]) -> list[str]:
    """Return what is neither Python nor metadata: 0.5 GB of machine code and headers."""
    if folder.endswith(".dist-info"):
        return []
    files = (name for name in names if not os.path.isdir(os.path.join(folder, name)))
    return [name for name in files if not name.endswith(".py")]
