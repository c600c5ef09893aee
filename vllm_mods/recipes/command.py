"""What is wrong with a recipe and with its command, read as a launcher and then a shell would."""

import re

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.container import model_of
from vllm_mods.recipes.yaml_source import Document
from vllm_mods.scripts import command_line

_TYPOGRAPHIC = re.compile(r"(?<!\S)[\u2010-\u2015\u2212]+(?=\w)|[\u2018\u2019\u201c-\u201e]")


class RecipeFindings:
    """Problems, which keep a recipe from becoming a pairing, and findings about the pairing; each has its key path and line."""

    def __init__(self, document: Document, where: str) -> None:
        self.document = document
        self.where = where
        self.problems: list[str] = []
        self.findings: list[Finding] = []

    def problem(self, at: str, why: str, line: int | None = None) -> None:
        """Say why there is no pairing."""
        place = self.document.lines.get(at) if line is None else line
        self.problems.append(f"{at}: {f'line {place}: ' if place else ''}{why}")

    def error(
        self,
        code: FindingCode,
        at: str,
        why: str,
        line: int | None = None,
        level: Level = Level.ERROR,
    ) -> None:
        """Say what the pairing does not do, or what would not work."""
        place = self.document.lines.get(at) if line is None else line
        finding = Finding(code, f"{at}: {why}", self.where, place, scope=at, level=level)
        self.findings.append(finding)

    def note(self, code: FindingCode, at: str, why: str, line: int | None = None) -> None:
        """Say what is to be known."""
        self.error(code, at, why, line, Level.NOTE)


def _line(findings: RecipeFindings, line: int) -> int | None:
    """Return where a line of the command stands in the recipe: one of several lines is a block below its key."""
    start = findings.document.lines.get("command")
    is_block = "\n" in findings.document.value["command"]
    return start + line if start is not None and is_block else start


def _check_marks(findings: RecipeFindings, command: str) -> None:
    for number, row in enumerate(command.split("\n"), 1):
        if mark := _TYPOGRAPHIC.search(row):
            why = f"{mark[0]} is a typographic character: write two hyphens, or a plain quote"
            findings.error(FindingCode.DASH, "command", why, _line(findings, number))


def check(findings: RecipeFindings, pairing: pairings.Pairing) -> None:
    """Say what is wrong with the command, as a launcher and then a shell would read it."""
    used = {name for _, name in pairings.placeholders(pairing.command)}
    for key in pairing.defaults:
        if key not in used:
            findings.note(FindingCode.UNUSED_DEFAULT, f"defaults.{key}", "no {placeholder} uses it")
    _check_marks(findings, pairing.command)
    wrong = pairings.faults(pairing)
    for fault in wrong:
        match = re.match(r"line (\d+): (.*)", fault, re.DOTALL)
        number, why = (int(match[1]), match[2]) if match else (1, fault)
        findings.problem("command", why, _line(findings, number))
    if wrong or not pairing.command.strip():
        return
    _, script = pairings.serve_command(pairing)
    serving = pairings.serving(script)
    for i, command in enumerate(script.commands):
        line = _line(findings, command.line)
        if i > serving:
            why = "is a separate command that runs after vLLM has ended, because the line before it ends without a backslash or in a comment"
            findings.error(FindingCode.CUT_OFF, "command", f"`{_short(command)}` {why}", line)
        elif i < serving:
            why = "runs before the server, and a pairing cannot run other commands"
            findings.error(FindingCode.NOT_DONE, "command", f"`{_short(command)}` {why}", line)
    for unknown in script.unknown:
        why = f"`{unknown.text}` gets its value from the shell of the server"
        findings.note(FindingCode.SHELL, "command", why, _line(findings, unknown.line))


def with_model(findings: RecipeFindings, pairing: pairings.Pairing) -> pairings.Pairing:
    """Take the model from the command of a recipe that names it nowhere else."""
    named = model_of(pairings.arguments(pairing))
    if named and not pairing.model:
        message = f"the recipe names no model; the command serves {named}"
        findings.note(FindingCode.MODEL, "model", message)
        return pairing._replace(model=named)
    if not pairing.model:
        findings.problem("model", "is required, because the command names no model")
    elif named and named != pairing.model:
        findings.note(FindingCode.MODEL, "model", f"is {pairing.model}; the command serves {named}")
    return pairing


def _short(command: command_line.WordedCommand) -> str:
    words = " ".join(command.argv) or " ".join(f"{name}=…" for name, _ in command.assignments)
    return words if len(words) <= 40 else f"{words[:39]}…"
