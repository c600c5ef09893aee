"""A second opinion: a type checker, on what a patch changes, before and after.

``ty`` is pinned by the extra ``vllm-mods[types]`` and run in a process of its own, on a copy of the
tree's Python files, without any package outside: what it cannot know there is the same before and
after, and only the difference counts.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit.bodies import scope_at
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import every
from vllm_mods.fit.walk import walk
from vllm_mods.fit.world import module_stem
from vllm_mods.formats import syntax_tree

# Rules of names and calls, which a program breaks on, and members, which it may. What a module has
# is for the static proof: it knows of imports to fall back on, and of names that are made when asked.
_SURE = words(
    "missing-argument too-many-positional-arguments unknown-argument parameter-already-assigned "
    "positional-only-parameter-as-kwarg not-callable unresolved-reference unresolved-global "
    "missing-attribute invalid-argument-type"
)
_RULES = _SURE | words(
    "abstract-class-instantiation index-out-of-bounds invalid-await invalid-base invalid-assignment "
    "invalid-context-manager missing-union-attribute no-matching-overload not-iterable "
    "not-subscriptable truthiness-test-of-callable unsupported-base unsupported-operator "
    "unused-awaitable invalid-attribute-access"
)
# What it says in full: a headline, a place, a piece of code and remarks.
_SAID = re.compile(
    r"^\w+\[(?P<rule>[\w-]+)\]: (?P<text>.*)\n"
    r" *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+\n(?P<more>(?:.+\n)*)",
    re.MULTILINE,
)
# What is no one class: a union, a narrowed type, something from outside, anything at all, or what
# somebody asked to be there before.
_VAGUE = re.compile(
    r"`[^`]*(?:\||&|Unknown|Any|Self|@|Literal|Protocol|typing|\.\.\.)[^`]*`"
    r"|^Object of type `(?:object|type|None)`"
)
# ``take = getattr(x, "take", f)`` may be another function than the ``f`` that is told of.
_UNION = "info: Attempted to call union type"
_CALLED = re.compile(r"(?:of|to) (?:[a-z]+ )*`([\w.]+)`")
# A builtin where another one is wanted; what else does not suit, a program may well take.
_UNLIKE = re.compile(
    r"Expected `(?:int|str|bytes|bool)`, found `(?:list|dict|tuple|set)\[.*\]`"
    r"|Expected `(?:int|bool)`, found `(?:str|bytes)`|Expected `(?:str|bytes)`, found `(?:int|float)`"
)
_LACKS = re.compile(r"`(?:type\[|<class ')?(?:\w+\.)*(\w+)(?:'>|\])?` has no attribute `(\w+)`")
_CLASS = re.compile(rb"class\s+(\w+)[^(:\n]*\((.*?)\)\s*:", re.DOTALL)
_BEFORE_CLASS = re.compile(rb"^(?=class\s)", re.MULTILINE)
_DEFINED = re.compile(rb"^[ \t]*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
# An environment without a package, and its Python where the tree states none.
_NONE, _PYTHON = ".none", 12
_SECONDS = 60
_USERS = 40


def second_opinion(
    changes: tuple[FileChange, ...], files: Mapping[str, bytes], lowest: tuple[int, int] | None
) -> tuple[tuple[Problem, ...], str]:
    """Return what the checker says of the changed files and their direct users that is new.

    ``files`` are the Python files of the tree before. The second part is why there is no
    answer, ``""`` where there is one.
    """
    names = _changed_names(changes)
    asked = {change.path for change in changes} | _users(changes, files, names)
    with tempfile.TemporaryDirectory(prefix="vllm-mods-types-") as folder:
        try:
            _lay(folder, {**files, **{change.path: change.after for change in changes}})
            after = _check(folder, asked, lowest)
            _lay(folder, {change.path: change.before for change in changes})
            # Of what nothing is said now, nothing that was said before is asked.
            before = _check(folder, {found["path"] for found in after}, lowest)
        except (OSError, RuntimeError) as error:
            return (), f"ty failed: {error}"
    return _news(changes, before, after, files, names), ""


def _users(changes: Iterable[FileChange], files: Mapping[str, bytes], names: set[str]) -> set[str]:
    """Return the files that import a changed module by its name, and name what was changed."""
    stems = {module_stem(change.path).encode() for change in changes if change.before is not None}
    own = sorted(name.encode() for name in names if not name.startswith("__"))
    if not stems or not own:
        return set()
    named = re.compile(rb"\b(?:%b)\b" % b"|".join(own))
    words_ = b"|".join(sorted(map(re.escape, stems)))
    imports = re.compile(rb"^[ \t]*(?:from|import)\s[^\n]*\b(?:%b)\b" % words_, re.MULTILINE)
    near = ((p, data) for p, data in files.items() if any(stem in data for stem in stems))
    users = (p for p, data in near if imports.search(data) and named.search(data))
    return set(islice(users, _USERS))


def _lay(folder: str, files: Mapping[str, bytes | None]) -> None:
    folders: set[str] = set()
    for path, data in files.items():
        whole = os.path.join(folder, path)
        parent = os.path.dirname(whole)
        if parent not in folders:
            os.makedirs(parent, exist_ok=True)
            folders.add(parent)
        if data is None:
            if os.path.exists(whole):
                os.unlink(whole)
            continue
        with open(whole, "wb") as file:
            file.write(data)


def _check(
    folder: str, asked: Iterable[str], lowest: tuple[int, int] | None
) -> list[re.Match[str]]:
    """Run the checker. Raises ``OSError`` or ``RuntimeError``."""
    import subprocess  # noqa: PLC0415  (where it is asked only)

    from ty import find_ty_bin  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    paths = [path for path in sorted(asked) if os.path.exists(os.path.join(folder, path))]
    if not paths:
        return []
    rules = "\n".join(f'{rule} = "error"' for rule in sorted(_RULES))
    version = f"3.{lowest[1] if lowest else _PYTHON}"
    os.makedirs(
        os.path.join(folder, _NONE, "lib", f"python{version}", "site-packages"), exist_ok=True
    )
    with open(os.path.join(folder, "ty.toml"), "w", encoding="utf-8") as file:
        file.write(
            f'[environment]\npython-version = "{version}"\npython = "{_NONE}"\n[rules]\nall = "ignore"\n{rules}\n'
        )
    command = [find_ty_bin(), "check", "--exit-zero", "--no-progress"]
    # Nothing of this environment, which ty takes otherwise: it is not what vLLM runs beside.
    home = {"HOME": folder, "XDG_CONFIG_HOME": folder, "NO_COLOR": "1", "TY_MAX_PARALLELISM": "2"}
    try:
        done = subprocess.run(
            [*command, *paths],
            cwd=folder,
            env=home,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it took more than {_SECONDS} seconds") from error
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace").strip()[:200] or "no answer")
    return [*_SAID.finditer(done.stdout.decode(errors="replace"))]


def _news(
    changes: Iterable[FileChange],
    before: list[re.Match[str]],
    after: list[re.Match[str]],
    files: Mapping[str, bytes],
    names: set[str],
) -> tuple[Problem, ...]:
    """Leave what was not said before; an error where the patch is plainly the reason."""
    old = Counter(found.group("path", "rule", "text") for found in before)
    added = {c.path: added_lines(c.before, c.after) for c in changes if c.after is not None}
    scopes = {**files, **{c.path: c.after for c in changes if c.after is not None}}
    problems: list[Problem] = []
    notes: dict[str, Counter[str]] = {}
    # From the end: of several that are alike, the first ones were there before.
    for match in reversed(after):
        path, rule, text = key = match.group("path", "rule", "text")
        if old[key] > 0:
            old[key] -= 1
            continue
        line = int(match["line"])
        meant = line in added.get(path, ()) or not names.isdisjoint(re.findall(r"\w+", text))
        # A problem of a call is the call's, as in the static proof, and told once.
        if meant and "argument" in rule:
            line = _call(scopes.get(path, b""), line)
        if (
            meant
            and _UNION not in match["more"]
            and _sure(rule, text, scopes)
            and not _tolerant(scopes.get(path, b""), line)
        ):
            problems.append(_problem(path, line, f"{text[:200]} (ty: {rule})", Level.ERROR, scopes))
        else:
            notes.setdefault(path, Counter())[rule] += 1
    for path, rules in notes.items():
        counts = ", ".join(f"{many} {rule}" for rule, many in sorted(rules.items()))
        problems.append(
            _problem(path, 1, f"a type checker may be right to say more: {counts}", Level.NOTE, {})
        )
    return tuple(problems)


def _call(data: bytes, line: int) -> int:
    """Return the first line of the innermost call around a line."""
    nodes = every(syntax_tree.module(data) or ast.Pass())
    calls = (node for node in nodes if isinstance(node, ast.Call))
    around = (call.lineno for call in calls if call.lineno <= line <= (call.end_lineno or 0))
    return max(around, default=line)


def _tolerant(data: bytes, line: int) -> bool:
    """Tell whether the code at a line says itself that it may be wrong, or is an annotation."""
    module = syntax_tree.module(data) or ast.Module([], [])
    if any(site.scope.tolerant for site in walk(module, frozenset((line,)))):
        return True
    # In a function nobody evaluates them; elsewhere the static proof knows whether somebody does.
    stated = (node.annotation for node in every(module) if isinstance(node, ast.AnnAssign))
    return any(one.lineno <= line <= (one.end_lineno or 0) for one in stated)


def _sure(rule: str, text: str, files: Mapping[str, bytes]) -> bool:
    """Tell whether a program breaks on it, whatever else may be true of its types."""
    if rule not in _SURE or _VAGUE.search(text):
        return False
    if rule == "missing-attribute":
        lacks = _LACKS.search(text)
        return bool(
            lacks and _concrete(lacks[1], files) and not _set_below(lacks[1], lacks[2], files)
        )
    if rule == "invalid-argument-type" and not _UNLIKE.search(text):
        return False
    called = _CALLED.search(text) if "argument" in rule else None
    if called is None:
        return rule not in {"unknown-argument", "too-many-positional-arguments"}
    # What the tree does not define may be another thing where vLLM runs.
    owner, _, name = called[1].rpartition(".")
    if owner:
        owner = owner.rpartition(".")[2]
        is_init = name == "__init__"
        return _concrete(owner, files) and (is_init or not _overrides(owner, name, files))
    defined = re.compile(rb"^[ \t]*(?:async\s+)?def\s+%b\b" % name.encode(), re.MULTILINE)
    return any(defined.search(data) for data in files.values())


def _concrete(owner: str, files: Mapping[str, bytes]) -> bool:
    """Tell whether the tree defines such a class, and no protocol, which others may only resemble."""
    pattern = re.compile(rb"^[ \t]*class\s+%b\b[^:]*" % owner.encode(), re.MULTILINE)
    heads = [head for data in files.values() for head in pattern.findall(data)]
    return bool(heads) and not any(b"Protocol" in head for head in heads)


def _heirs(owner: str, files: Mapping[str, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the text of each class below those of a name, and that of its whole file."""
    known, queue = {owner.encode()}, [owner.encode()]
    while queue:
        base = queue.pop()
        for data in files.values():
            if base not in data:
                continue
            for text in _BEFORE_CLASS.split(data):
                for name, bases in _CLASS.findall(text):
                    if name not in known and base in re.findall(rb"\w+", bases):
                        known.add(name)
                        queue.append(name)
                        yield text, data


def _set_below(owner: str, name: str, files: Mapping[str, bytes]) -> bool:
    """Tell whether a file with a class below one of that name may give it such an attribute."""
    sets = re.compile(rb"(?:\bdef\s+|\bself\.|\bcls\.|^[ \t]*)%b\b" % name.encode(), re.MULTILINE)
    return any(sets.search(data) for _, data in _heirs(owner, files))


def _overrides(owner: str, name: str, files: Mapping[str, bytes]) -> bool:
    """Tell whether a class below has such a method of its own: an object may be one of these."""
    defined = re.compile(rb"\bdef\s+%b\b" % name.encode())
    return any(defined.search(text) for text, _ in _heirs(owner, files))


def _problem(
    path: str, line: int, message: str, level: Level, scopes: Mapping[str, bytes]
) -> Problem:
    scope = scope_at(scopes.get(path, b""), line)
    return Problem(FindingCode.FIT_TYPES, path, line, scope, message, key=(message,), level=level)


def _changed_names(changes: Iterable[FileChange]) -> set[str]:
    """Return the functions and classes that a patch adds, takes away or gives other first lines."""
    names: set[str] = set()
    for change in changes:
        for side, other in ((change.before, change.after), (change.after, change.before)):
            rows = (side or b"").splitlines()
            for line in added_lines(other, side) if side is not None else ():
                match = _DEFINED.match(rows[line - 1])
                if match:
                    names.add(match[1].decode())
    return names
