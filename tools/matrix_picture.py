"""Make docs/matrix.png, a picture of the page that `matrix` writes of the bundled mods.

    python tools/matrix_picture.py docs/matrix.png            # makes it
    python tools/matrix_picture.py docs/matrix.png --check    # makes one, and says if this one shows another matrix

It needs the extra `browser`, and a Chromium. Fonts differ from machine to machine, so what is compared are
the cells: they lie in the picture as text.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

# Chromium looks for its maker's servers at every start unless it is told not to.
ALONE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)
_MATRIX = ("matrix", "--vllm", ">=0.15,<0.34")  # as far as .ci/run looks
_MARGIN = 24
_KEY = b"Cells"
_CORNERS = """() => {
    const head = document.querySelector("header").getBoundingClientRect();
    return [head.left, head.right, document.querySelector("#grid").getBoundingClientRect().bottom];
}"""


def picture(browser: Browser, page: Path, cells: str) -> bytes:
    """Return a PNG of a page from its title to the end of its grid, with the cells as text in it."""
    context = browser.new_context(viewport={"width": 1320, "height": 800}, device_scale_factor=1.5)
    try:
        shown = context.new_page()
        shown.goto(page.as_uri())
        left, right, bottom = shown.evaluate(_CORNERS)
        width, height = right - left + 2 * _MARGIN, bottom + _MARGIN
        png = shown.screenshot(
            full_page=True,
            clip={"x": max(0, left - _MARGIN), "y": 0, "width": width, "height": height},
        )
    finally:
        context.close()
    return with_text(png, cells)


def with_text(png: bytes, text: str) -> bytes:
    """Return a PNG with a compressed text in it (PNG 1.2, zTXt), in front of the end."""
    body = b"zTXt" + _KEY + b"\0\0" + zlib.compress(text.encode("ascii"), 9)
    end = png.rindex(b"IEND") - 4
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:end] + chunk + png[end:]


def text_of(png: bytes) -> str:
    """Return that text, nothing if there is none."""
    at = 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        if png[at + 4 : at + 8] == b"zTXt":
            key, _, packed = png[at + 8 : at + 8 + size].partition(b"\0")
            if key == _KEY:
                return zlib.decompress(packed[1:]).decode("ascii")
        at += size + 12
    return ""


def cells_of(matrix: str) -> str:
    """Return a line for each cell of what `matrix --json` prints."""
    lines = (
        f"{cell['mod']} on {cell['tree']}: {cell['verdict']}, variant {cell['variant']}\n"
        for cell in json.loads(matrix)["cells"]
    )
    return "".join(sorted(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a picture of the matrix page.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="leave the file as it is")
    asked = parser.parse_args()
    file: Path = asked.file
    tool = [sys.executable, "-m", "vllm_mods", *_MATRIX]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "matrix.html")
        subprocess.run(
            [*tool, "--format=html", f"--output={page}"], capture_output=True, check=True
        )
        said = subprocess.run([*tool, "--json"], capture_output=True, text=True, check=True).stdout
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ALONE))
        png = picture(browser, page, cells_of(said))
        browser.close()
    if not asked.check:
        file.write_bytes(png)
        return
    before, now = (text_of(one).splitlines() for one in (file.read_bytes(), png))
    if before != now:
        sys.stdout.writelines(
            f"{line}\n"
            for line in difflib.unified_diff(before, now, str(file), "now", "", "", 0, "")
        )
        raise SystemExit(f"error: {file} shows another matrix\n\nhint: python {sys.argv[0]} {file}")


if __name__ == "__main__":
    main()
