"""What is to be said of a recipe: problems, of which there is no pairing, and findings about one."""

from __future__ import annotations

from vllm_mods.base.model import Finding, Level
from vllm_mods.recipes.yaml_source import Document


class RecipeFindings:
    """Problems and findings, each with its key path and its line in the document."""

    def __init__(self, document: Document, where: str) -> None:
        self.document = document
        self.where = where
        self.problems: list[str] = []
        self.findings: list[Finding] = []

    def line(self, at: str) -> int | None:
        """Return the line of a key path."""
        return self.document.lines.get(at)

    def problem(self, at: str, why: str, line: int | None = None) -> None:
        """Say why there is no pairing."""
        there = self.line(at) if line is None else line
        self.problems.append(f"{at}: {f'line {there}: ' if there else ''}{why}")

    def error(
        self, code: str, at: str, why: str, line: int | None = None, level: Level = Level.ERROR
    ) -> None:
        """Say what the pairing does not do, or what would not work."""
        there = self.line(at) if line is None else line
        found = Finding(code, f"{at}: {why}", self.where, there, scope=at, level=level)
        self.findings.append(found)

    def note(self, code: str, at: str, why: str, line: int | None = None) -> None:
        """Say what is to be known."""
        self.error(code, at, why, line, Level.NOTE)
