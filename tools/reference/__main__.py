"""Write the generated parts of the docs into their pages: ``python -m reference``."""

from __future__ import annotations

from pathlib import Path

from reference import fill_in

for page in sorted((Path(__file__).parents[2] / "docs").rglob("*.md")):
    before = page.read_text()
    if (after := fill_in(before)) != before:
        page.write_text(after)
        print(f"wrote {page}")  # noqa: T201
