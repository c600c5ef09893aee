"""Verdicts, exit codes and environment variables, as the code has them."""

from __future__ import annotations

import ast
import functools

from reference.commands import walk
from reference.markdown import code, plain, table
from reference.messages import sources
from vllm_mods.base import errors, limits as every_limit
from vllm_mods.base.model import Verdict
from vllm_mods.report.text import MEANING
from vllm_mods.report.words import NEXT, does


def verdicts() -> str:
    """Return a row per verdict: what it means, what ``apply`` does, and if ``check`` is content."""
    return table(
        ("verdict", "meaning", "`apply`", "`check` exits with", "next"),
        (
            (
                code(verdict),
                MEANING[verdict],
                does(verdict),
                "0" if verdict.ok else "1",
                plain(NEXT[verdict]),
            )
            for verdict in Verdict
        ),
    )


def limits() -> str:
    """Return a row per limit of what is read and waited for."""
    rows = ((code(name), str(one), one.what) for name, one in every_limit.table().items())
    return table(("name", "at most", "of what"), rows)


def exit_codes() -> str:
    """Return a row per exit code, with the name that the code has for it."""
    names = {
        value: name
        for name, value in vars(errors).items()
        if name.startswith("EXIT_") and isinstance(value, int)
    }
    return table(
        ("code", "meaning", "in `errors.py`"),
        (
            (str(number), meaning, code(names[number]))
            for number, meaning in errors.EXIT_MEANINGS.items()
        ),
    )


def variables() -> str:
    """Return a row per environment variable that the code reads, with where it does."""
    return table(
        ("variable", "read in"),
        (
            (code(name), ", ".join(code(place) for place in sorted(places)))
            for name, places in sorted(read_variables().items())
        ),
    )


@functools.cache
def read_variables() -> dict[str, set[str]]:
    """Return the environment variables that are read by name: ``environ.get("X")``, an option's."""
    found: dict[str, set[str]] = {}
    named = {
        node.targets[0].id: node.value
        for _, tree in sources()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for place, tree in sources():
        for node in ast.walk(tree):
            name = _asked_of_environ(node)
            if isinstance(name, ast.Name):
                name = named.get(name.id, name)
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.setdefault(name.value, set()).add(place)
    for command, context in walk():
        for option in command.params:
            if option.envvar:
                found.setdefault(option.envvar, set()).add(context.command_path)
    return found


def _asked_of_environ(node: ast.AST) -> ast.expr | None:
    """Return what ``environ.get(…)`` or ``environ[…]`` is asked for, None for anything else."""
    match node:
        case (
            ast.Call(
                func=ast.Attribute(value=ast.Name(id=of) | ast.Attribute(attr=of), attr="get"),
                args=[name, *_],
            )
            | ast.Subscript(value=ast.Name(id=of) | ast.Attribute(attr=of), slice=name)
        ) if of.endswith("environ"):
            return name
    return None
