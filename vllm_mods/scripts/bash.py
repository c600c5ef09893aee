"""A bash script as statements. tree-sitter is imported here only; nothing is run, nothing expanded.

``command_line`` reads the one command line of a recipe, and knows words; a mod's ``run.sh`` has functions,
branches and loops, and needs a grammar.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from vllm_mods.base import limits
from vllm_mods.scripts.statements import (
    Assign,
    BashError,
    BashFunction,
    Block,
    Call,
    Chain,
    For,
    If,
    Not,
    Other,
    Pipe,
    Redirect,
    Script,
    Statement,
    Test,
    Unread,
    Variable,
    Word,
)

Part = str | Variable | Unread


_ENDINGS = ("_statement", "command", "_definition")
_WHOLE = {"list", "pipeline", "variable_assignment", "subshell"}
_NO_STATEMENT = {"comment", "heredoc_body", "heredoc_end"}


def read(text: str) -> Script:
    """Read a script. Raises ``BashError`` at the first place that is no bash."""
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > limits.SCRIPT:
        why = f"a script of {len(data):,} bytes: {limits.SCRIPT} is the most that is read"
        raise BashError(1, why)
    root = Parser(Language(tree_sitter_bash.language())).parse(data).root_node
    if root.has_error:
        raise BashError(_first_error(root), "bash would not read this")
    _check_depth(root)
    reader = _ScriptReader(data)
    first = text.partition("\n")[0]
    return Script(
        interpreter=first[2:].strip() if first.startswith("#!") else "",
        body=reader.statements(root),
        lines=text.count("\n") + (not text.endswith("\n")),
    )


def _check_depth(root: Node) -> None:
    """Raise ``BashError`` for what is nested so deeply that reading it would have no end."""
    cursor = root.walk()
    depth = 0
    while True:
        if depth > limits.SCRIPT_NESTING:
            line = _line(cursor.node) if cursor.node is not None else 1
            raise BashError(line, "it is nested too deeply to be read")
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _first_error(node: Node) -> int:
    while (inner := next((child for child in node.children if child.has_error), None)) is not None:
        node = inner
    row, column = node.end_point
    return int(row) + (1 if column or row == node.start_point[0] else 0)


def _line(node: Node) -> int:
    return int(node.start_point[0]) + 1


def _fields(node: Node, *names: str) -> list[Node]:
    """Return parts of a node that the grammar always has."""
    return [part for name in names for part in node.children_by_field_name(name)[:1]]


class _ScriptReader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def text(self, node: Node) -> str:
        return self.span(node.start_byte, node.end_byte)

    def span(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def statements(self, node: Node) -> tuple[Statement, ...]:
        found = []
        for child in node.named_children:
            if child.type in _NO_STATEMENT:
                continue
            one = self.statement(child)
            after = child.next_sibling
            if after is not None and after.type == "&":
                one = Other(one.line, one.text, "background", (one,))
            found.append(one)
        return tuple(found)

    def statement(self, node: Node) -> Statement:  # noqa: C901, PLR0911  (one for each kind)
        line, text = _line(node), self.text(node)
        kind = node.type
        if kind == "command":
            return self.command(node)
        if kind == "redirected_statement":
            return self.redirected(node)
        if kind in {"variable_assignment", "declaration_command"}:
            return self.assign(node)
        if kind == "pipeline":
            return Pipe(line, text, self.statements(node))
        if kind == "list":
            left, right = self.statements(node)
            operator = next(child.type for child in node.children if child.type in {"&&", "||"})
            return Chain(line, text, left, operator, right)
        if kind == "negated_command":
            (inner,) = self.statements(node)
            return Not(line, text, inner)
        if kind == "if_statement":
            return If(line, text, tuple(self.branches(node)))
        if kind == "for_statement" and node.child_by_field_name("variable"):
            return self.loop(node)
        if kind in {"compound_statement", "subshell"}:
            return Block(line, text, self.statements(node), kind == "subshell")
        if kind == "function_definition":
            name, body = _fields(node, "name", "body")
            inside = self.statements(body)
            if body.type == "subshell":
                inside = (Block(line, text, inside, subshell=True),)
            return BashFunction(line, text, self.text(name), inside)
        if kind == "test_command":
            return Test(line, text)
        return Other(line, text, kind, self.below(node))

    def below(self, node: Node) -> tuple[Statement, ...]:
        """Return the statements in a node of which no more is known."""
        found: list[Statement] = []
        for child in node.named_children:
            if child.type in {"do_group", "case_item", "compound_statement"}:
                found += self.below(child)
            elif child.type.endswith(_ENDINGS) or child.type in _WHOLE:
                found.append(self.statement(child))
        return tuple(found)

    def command(self, node: Node) -> Statement:
        """Read a command; assignments on lines above it, which the grammar takes for its own, are none."""
        call = self.call(node)
        own = len(call.assignments)
        children = node.named_children
        for i, (one, after) in enumerate(itertools.islice(itertools.pairwise(children), own), 1):
            between = self.data[one.end_byte : after.start_byte].replace(b"\\\n", b"")
            if b"\n" in between:
                above = tuple(
                    Assign(_line(each), self.text(each), *pair, exported=False)
                    for each, pair in zip(children[:i], call.assignments, strict=False)
                )
                rest = self.span(after.start_byte, node.end_byte)
                own_line, left = _line(after), call.assignments[i:]
                call = call._replace(line=own_line, text=rest, assignments=left)
                return Block(above[0].line, self.text(node), (*above, call), subshell=False)
        return call

    def call(self, node: Node) -> Call:
        argv, assignments, redirects = [], [], []
        for child in node.named_children:
            if child.type == "variable_assignment":
                assignments.append(self.pair(child))
            elif child.type.endswith("_redirect"):
                redirects.append(self.redirect(child))
            elif child.type != "comment":
                argv.append(self.word(child))
        parts = tuple(argv), tuple(assignments), tuple(redirects)
        return Call(_line(node), self.text(node), *parts)

    def redirected(self, node: Node) -> Statement:
        line, text = _line(node), self.text(node)
        body = node.child_by_field_name("body")
        nodes = [child for child in node.named_children if child.type.endswith("_redirect")]
        # The grammar has what follows `<<END` on its line inside of the redirect.
        nodes += [c for one in nodes for c in one.named_children if c.type.endswith("_redirect")]
        redirects = tuple(self.redirect(child) for child in nodes)
        # What follows on the line is the command's, and the grammar gives it to the redirect.
        rest = [one for child in nodes for one in child.children_by_field_name("destination")[1:]]
        words = tuple(self.word(one) for one in rest)
        if body is None:
            return Call(line, text, words, (), redirects)
        inner = self.statement(body)
        if isinstance(inner, Call):
            inner = inner._replace(argv=(*inner.argv, *words))
        elif words:
            return Other(line, text, "redirected_statement", (inner,))
        found = _with(inner, redirects, text)
        for one in nodes:
            for child in one.named_children:
                if child.type == "pipeline":
                    found = Pipe(line, text, (found, *self.statements(child)))
            right, operator = map(one.child_by_field_name, ("right", "operator"))
            if operator is not None and right is not None:
                found = Chain(line, text, found, self.text(operator), self.statement(right))
        return found

    def redirect(self, node: Node) -> Redirect:
        descriptor = node.child_by_field_name("descriptor")
        number = "" if descriptor is None else self.text(descriptor)
        if node.type == "heredoc_redirect":
            start, body = (
                next((child for child in node.children if child.type == kind), None)
                for kind in ("heredoc_start", "heredoc_body")
            )
            dash = any(child.type == "<<-" for child in node.children)
            quoted = start is not None and any(mark in self.text(start) for mark in "'\"\\")
            if body is None:
                return Redirect("<<", number, Word("", ("",)))
            whole = self.text(body)
            word = Word(whole, (whole,)) if quoted else Word(whole, self.pieces(body, 0))
            return Redirect("<<", number, _dedented(word) if dash else word)
        operator = next((c.type for c in node.children if not c.is_named), "<<<")
        target = node.child_by_field_name("destination")
        last = target if target is not None else node.named_children[-1]
        return Redirect(operator, number, self.word(last))

    def assign(self, node: Node) -> Statement:
        line, text = _line(node), self.text(node)
        if node.type == "variable_assignment":
            name, value = self.pair(node)
            return Assign(line, text, name, value, exported=False)
        word = text.split()[0]
        exported = word in {"export", "declare", "typeset"} and not text.startswith("declare -r")
        found = tuple(
            Assign(line, text, *self.pair(child), exported)
            for child in node.named_children
            if child.type == "variable_assignment"
        )
        return found[0] if len(found) == 1 else Other(line, text, "declaration_command", found)

    def pair(self, node: Node) -> tuple[str, Word]:
        name, value = (node.child_by_field_name(part) for part in ("name", "value"))
        text = "" if name is None else self.text(name)
        return text, Word("", ("",)) if value is None else self.word(value)

    def branches(self, node: Node) -> Iterator[tuple[tuple[Statement, ...], tuple[Statement, ...]]]:
        condition: list[Statement] = []
        body: list[Statement] = []
        into = condition
        for child in node.children:
            if child.type == "then":
                into = body
            elif child.is_named and child.type not in {
                "elif_clause",
                "else_clause",
                *_NO_STATEMENT,
            }:
                into.append(self.statement(child))
        yield tuple(condition), tuple(body)
        for child in node.named_children:
            if child.type == "elif_clause":
                yield from self.branches(child)
            elif child.type == "else_clause":
                yield (), self.statements(child)

    def loop(self, node: Node) -> Statement:
        name, body = _fields(node, "variable", "body")
        values = tuple(map(self.word, node.children_by_field_name("value")))
        return For(_line(node), self.text(node), self.text(name), values, self.statements(body))

    def word(self, node: Node) -> Word:
        return Word(self.text(node), tuple(self.parts(node)))

    def parts(self, node: Node) -> Iterator[Part]:
        kind, text = node.type, self.text(node)
        if kind in {"simple_expansion", "expansion"} and text != text.lstrip():
            # The grammar counts blanks between two of them to the second.
            yield text[: len(text) - len(text.lstrip())]
            text = text.lstrip()
        if kind in {"command_name", "concatenation"}:
            for child in node.children:
                yield from self.parts(child)
        elif kind == "raw_string":
            yield text[1:-1]
        elif kind == "string":
            yield from self.pieces(node, 1)
        elif kind == "simple_expansion":
            yield from _simple(text)
        elif kind == "expansion":
            yield self.expansion(node, text)
        elif node.child_count == 0 and kind in {"word", "number", "variable_name", "="}:
            special = re.search(r"(?<!\\)[*?\[~]", text)
            yield Unread(text) if special else re.sub(r"\\(.)", r"\1", text)
        else:
            yield Unread(text)

    def pieces(self, node: Node, quote: int) -> tuple[Part, ...]:
        """Return what is between double quotes, or in a here-document."""
        found: list[Part] = []
        at = node.start_byte + quote
        for child in node.named_children:
            if child.type in {"string_content", "heredoc_content"}:
                continue
            found += [*self.plain(at, child.start_byte), *self.parts(child)]
            at = child.end_byte
        found += self.plain(at, node.end_byte - quote)
        return tuple(part for part in found if part != "")

    def plain(self, start: int, end: int) -> Iterator[Part]:
        """Yield text, and what the grammar does not see in here-documents: ``$1``, ``$$``, backquotes."""
        for piece in re.split(r"(?<!\\)(\$[\d*@#?$!-]|`[^`]*`)", self.span(start, end)):
            if re.fullmatch(r"\$\d", piece):
                yield Variable(piece[1:])
            elif piece[:1] in {"$", "`"} and len(piece) > 1 and not re.match(r"\$[\s\"'(]", piece):
                yield Unread(piece)
            else:
                yield re.sub(r"\\([$`\"\\])", r"\1", piece).replace("\\\n", "")

    def expansion(self, node: Node, text: str) -> Variable | Unread:
        name = r"[A-Za-z_]\w*|\d{1,9}"
        match = re.fullmatch(rf"\$\{{({name})(?::?-(.*))?\}}", text, re.DOTALL | re.ASCII)
        if match is None:
            return Unread(text)
        if match[2] is None:
            return Variable(match[1])
        kinds = [child.type for child in node.children]
        operator = next((i for i, kind in enumerate(kinds) if kind in {":-", "-"}), len(kinds))
        rest = node.children[operator + 1 : -1]
        parts = tuple(part for child in rest for part in self.parts(child))
        return Variable(match[1], Word(match[2], parts))


def _simple(text: str) -> Iterator[Part]:
    """Yield what ``$NAME`` is; ``$10`` is the first argument, and a 0 behind it."""
    match = re.fullmatch(r"\$(?:(\d)(\w*)|([A-Za-z_]\w*))", text, re.ASCII)
    yield Unread(text) if match is None else Variable(match[1] or match[3])
    if match is not None and match[2]:
        yield match[2]


def _dedented(word: Word) -> Word:
    """Take the tabs off the start of each line, as ``<<-`` does."""
    start = re.compile(r"(?:\A|(?<=\n))\t+")
    parts: list[Part] = []
    for part in word.parts:
        if isinstance(part, str):
            first = not parts or (isinstance(parts[-1], str) and parts[-1].endswith("\n"))
            part = start.sub("", part) if first else part[:1] + start.sub("", part[1:])  # noqa: PLW2901
        parts.append(part)
    return Word(start.sub("", word.text), tuple(parts))


def _with(one: Statement, redirects: tuple[Redirect, ...], text: str) -> Statement:  # noqa: PLR0911  (one for each kind)
    """Give redirects to the command that they belong to: the last one of a list."""
    if isinstance(one, Call):
        return one._replace(redirects=(*one.redirects, *redirects))
    if isinstance(one, Chain):
        return one._replace(right=_with(one.right, redirects, one.right.text), text=text)
    if isinstance(one, Pipe):
        last = _with(one.stages[-1], redirects, one.stages[-1].text)
        return one._replace(stages=(*one.stages[:-1], last), text=text)
    if isinstance(one, Not):
        return one._replace(inner=_with(one.inner, redirects, one.inner.text), text=text)
    written = text.startswith(("{", "("))  # else one that `command` made
    if isinstance(one, Block) and isinstance(one.body[0], Assign) and not written:
        return one._replace(body=(*one.body[:-1], _with(one.body[-1], redirects, text)))
    if all(it.target.text == "/dev/null" or "&" in it.operator for it in redirects):
        return one
    # What goes into or comes out of a loop, a block, a branch: not followed, and not forgotten.
    return Other(one.line, text, "redirected_statement", (one,))
