"""What the code can say: the codes of its findings, and its errors with their hints."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import vllm_mods
from reference.markdown import code, plain, table
from vllm_mods.base import errors as error_classes
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.report.words import code_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = Path(vllm_mods.__file__).parent
# What makes a finding, and how many arguments stand before its code.
_MAKES = {
    "Finding": 0,
    "Problem": 0,
    "at_site": 2,
    "Lost": 0,
    "Fault": 0,
    "ServeFault": 0,
    "YamlFault": 0,
    "ValueProblem": 0,
    "MergeProblem": 0,
    "CellProblem": 0,
    "Flaw": 0,
    "Trouble": 0,
    "_note": 0,
    "note": 0,
    "fail": 1,
    "say": 1,
}
_ERRORS = {
    name: kind
    for name, kind in vars(error_classes).items()
    if isinstance(kind, type) and issubclass(kind, error_classes.VllmModsError)
}
_NEAR = 2  # lines
_CODE = re.compile("[a-z]+(-[a-z]+)*")
# Of the same names, and made of keys or of what went wrong with a process: no findings.
_NO_FINDINGS = "matrices/work.py"


class Said(NamedTuple):
    """A finding that the code can make: its code, its message if that can be read, the module."""

    code: str
    message: str
    place: str


@functools.cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """Return every module of the package by its path, parsed."""
    places = {str(path.relative_to(_PACKAGE)): path for path in sorted(_PACKAGE.rglob("*.py"))}
    return tuple(
        (place, ast.parse(path.read_text()))
        for place, path in places.items()
        if not place.startswith("_data")
    )


def codes() -> str:
    """Return the codes of findings, grouped by what finds them, with the messages that have each."""
    messages: dict[str, dict[str, None]] = {}
    for finding in findings():
        messages.setdefault(finding.code, {})[finding.message] = None
    parts = []
    for group in code_groups().values():
        rows = (
            (
                code(name),
                _cell(meaning),
                plain(group.next.get(name, group.next_step)),
                "<br>".join(map(plain, filter(None, messages.get(name, ())))),
            )
            for name, meaning in sorted(group.codes.items())
        )
        commands = ", ".join(map(code, group.commands.split(", ")))
        body = table(("code", "meaning", "next", "messages"), rows)
        parts.append(f"### {group.title} ({commands})\n\n{body}")
    return "\n\n".join(parts)


def codes_on(page: str) -> str:
    """Return the codes of the groups that have a table on a page."""
    groups = [group for group in code_groups().values() if group.page == f"docs/{page}"]
    rows = [(code(name), _cell(text)) for one in groups for name, text in one.codes.items()]
    return table(("code", groups[0].head), rows)


def _cell(meaning: str) -> str:
    return meaning.replace("|", r"\|")


@functools.cache
def findings() -> list[Said]:
    """Return every finding whose code stands in the source as a word."""
    found = []
    for place, function, name, call in _calls():
        # `problem` of a reader of manifests has a key there, that of a port a code.
        a_code = (name, place.split("/")[0]) in {("problem", "porting"), ("error", "recipes")}
        before = 0 if a_code else _MAKES.get(name)
        if before is None or place == _NO_FINDINGS:
            continue
        given = {word.arg: word.value for word in call.keywords}
        words = (_text(given.get("code", _nth(call, before)), function) or "").split(" / ")
        told = [given["message"]] if "message" in given else call.args[before + 1 :]
        texts = (_text(one, function) or "" for one in told)
        message = next((text for text in texts if " " in text), "")
        found += [Said(one, message, place) for one in words if _CODE.fullmatch(one)]
    return found


def errors() -> str:
    """Return every error, by its class, with its hint."""
    rows: dict[str, set[tuple[str, str]]] = {}
    for _, function, name, call in _calls():
        # These two are lists of problems, each with a place in a file.
        if name in _ERRORS and name not in {"ManifestError", "DiffError"}:
            message = _text(_nth(call, 0), function)
            hint = next((word.value for word in call.keywords if word.arg == "hint"), None)
            if message:
                rows.setdefault(name, set()).add((message, _text(hint, function) or ""))
    parts = []
    for name, found in sorted(rows.items()):
        about = " ".join((_ERRORS[name].__doc__ or "").split())
        body = table(("message", "hint"), ((plain(m), code(h)) for m, h in sorted(found)))
        parts.append(f"### {name}: exit code {_ERRORS[name].exit_code}\n\n{plain(about)}\n\n{body}")
    return "\n\n".join(parts)


@functools.cache
def _calls() -> tuple[tuple[str, ast.AST, str, ast.Call], ...]:
    """Return every call: its module, the function that it is in, what is called, but the call."""
    return tuple(
        (place, function, _last(node.func), node)
        for place, tree in sources()
        for node, function in _within(tree, tree)
        if isinstance(node, ast.Call)
    )


def _last(called: ast.expr) -> str:
    """Return the last name of what is called."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ast.unparse(called).rpartition(".")[2]


def _within(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield a node and all in it, each with the function that it is in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node
    yield node, function
    for inner in ast.iter_child_nodes(node):
        yield from _within(inner, function)


def _nth(call: ast.Call, number: int) -> ast.expr | None:
    return call.args[number] if len(call.args) > number else None


def _text(node: ast.expr | None, function: ast.AST) -> str | None:
    """Return a text as the code has it, ``‹name›`` for what is filled in; None where it is computed."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "FindingCode":
        node = ast.Constant(FindingCode[node.attr].value)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
            else _filled(part, function)
            for part in node.values
        )
    if isinstance(node, ast.IfExp):
        either = [_text(node.body, function), _text(node.orelse, function)]
        return " / ".join(text for text in either if text) or None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left, function) or "‹…›") + (_text(node.right, function) or "‹…›")
    if isinstance(node, ast.Name):
        nearest = _assigned(node, function)
        return None if nearest is None else _text(nearest, function)
    return None


def _assigned(node: ast.Name, function: ast.AST) -> ast.expr | None:
    """Return what a name was last given above the place where it stands."""
    before = (one for one in _assignments(function).get(node.id, ()) if one.lineno < node.lineno)
    nearest = max(before, key=lambda one: one.lineno, default=None)
    return None if nearest is None else nearest.value


@functools.cache
def _assignments(function: ast.AST) -> dict[str, list[ast.Assign]]:
    """Return what is assigned in a function, or in a module, by the name that gets it first."""
    found: dict[str, list[ast.Assign]] = {}
    for one in ast.walk(function):
        if not isinstance(one, ast.Assign):
            continue
        pairs = [(one.targets[0], one.value)]
        if isinstance(one.targets[0], ast.Tuple) and isinstance(one.value, ast.Tuple):
            pairs = list(zip(one.targets[0].elts, one.value.elts, strict=False))
        for target, value in pairs:
            if isinstance(target, ast.Name):
                given = ast.Assign([target], value, lineno=one.lineno)
                found.setdefault(target.id, []).append(given)
    return found


def _filled(part: ast.expr, function: ast.AST) -> str:
    """Return ``‹name›`` for a value in an f-string: its last name, or dots for an expression.

    A text that got a name in the lines right above, so that they are short enough, stands as it is.
    """
    value = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(value, ast.Name):
        given = _assigned(value, function)
        text = _text(given, function) if isinstance(given, (ast.Constant, ast.JoinedStr)) else None
        if given is not None and text and " " in text and value.lineno - given.lineno <= _NEAR:
            return text
    if isinstance(value, (ast.Name, ast.Attribute)):
        return f"‹{ast.unparse(value).rpartition('.')[2]}›"
    return "‹…›"
