"""What a patch takes away or defines in another way, and which lines of the tree mention that."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple, Self

from vllm_mods.fit.bodies import is_generator
from vllm_mods.fit.lines import lines_with
from vllm_mods.fit.search import classes_in, files_mentioning, words_mentioned
from vllm_mods.fit.signatures import DefNode, bindings, statements, table_of
from vllm_mods.fit.world import World, module_stem, remembered
from vllm_mods.formats import syntax_tree

# A name that more files than this mention is followed only where its class or its module is named too.
_COMMON = 40
_MAKERS = {"__init__", "__new__", "__post_init__", "__init_subclass__"}
_IMPORTED = "import"
_STAR = re.compile(rb"(\w+) import \*")
# Comments and texts: of these nobody runs what is no name, and has no code in braces.
_TEXT = re.compile(
    rb"#[^\n]*|(?P<quote>\"\"\"|''')(?:\\.|.)*?(?P=quote)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_NAMES = re.compile(rb"[^#\s]*|[^#].*\{.*", re.DOTALL)


class _Form(NamedTuple):
    """How a definition is used: what it is but for its ``parameters``, of which one that may be left out ends in ``=``."""

    text: str
    parameters: frozenset[str] = frozenset()

    def covers(self, was: Self) -> bool:
        """Tell whether whatever used the other may use this: it is the same, or takes more."""
        more = self.parameters - was.parameters
        keeps = self.text == was.text and self.parameters >= was.parameters
        return keeps and all(parameter.endswith("=") for parameter in more)


class Sought(NamedTuple):
    """A name to look for, and the ``word``, maybe ``taken`` from, by which a file means this one; one ``alone`` says enough where it is rare."""

    name: str
    word: str
    taken: bool = False
    alone: bool = True

    def is_in(self, data: bytes) -> bool:
        """Tell whether a file that has the name means this one."""
        word, name = self.word.encode(), self.name.encode()
        if word not in data:
            return False
        listed = rb"(?:[^\n(]*|\s*\([^)]*)\b%b\b" % name
        taken = rb"(?:\s+import\b(?:\s*\*|%b)|\.%b\b|\s+as\b)" % (listed, name)
        return re.search(rb"\b%b%b" % (word, taken if self.taken else rb"\b"), data) is not None


_Part = tuple[str, bytes, ast.AST]
"""A statement: the class around it, dotted, with a dot behind it, and its text, of a class that of its head."""


def users(
    after: World, sought: Iterable[Sought]
) -> tuple[dict[str, frozenset[int]], frozenset[str]]:
    """Return who mentions what a patch takes away or redefines: files beside the changed ones, with the lines, and the words that were looked for."""
    uses: dict[str, set[Sought]] = defaultdict(set)
    for use in sought:
        uses[use.name].add(use)
    mentioned: dict[str, list[str]] = defaultdict(list)
    for path, words in words_mentioned(after, frozenset(uses)) if uses else ():
        for word in words if path not in after.files else ():
            mentioned[word].append(path)
    wanted: dict[str, set[str]] = defaultdict(set)
    for word, where in mentioned.items():
        is_rare = len(where) <= _COMMON and any(use.alone for use in uses[word])
        for path in where:
            data = after.glance(path) or b""
            if is_rare or any(use.is_in(data) for use in uses[word]):
                wanted[path].add(word)
    lines = {path: _uses(after.glance(path) or b"", some) for path, some in wanted.items()}
    after.consulted.update(lines)
    return {path: some for path, some in sorted(lines.items()) if some}, frozenset(uses)


def _uses(data: bytes, words: Iterable[str]) -> frozenset[int]:
    """Return the lines of code that have one of some words, but for definitions of functions of these names."""
    return lines_with(without_texts(data), words, rb"(?<!def )\b")


def without_texts(data: bytes) -> bytes:
    """Return a file with its comments and texts empty, but for those that are names or have code in braces."""
    return _TEXT.sub(lambda m: m[0] if _NAMES.fullmatch(m[0]) else b"\n" * m[0].count(b"\n"), data)


def changed_names(before: World, after: World, path: str) -> Iterator[Sought]:
    """Yield what was defined in a file and is not, or in another way."""
    old, new = (_parts_of(world, path) for world in (before, after))
    same = {part[:2] for part in old} & {part[:2] for part in new}
    left, come = ([part for part in parts if part[:2] not in same] for parts in (old, new))
    was_of, now_of = _definitions(before, path, left), _definitions(after, path, come)
    stem = module_stem(path)
    if after.glance(path) is None and old:
        yield Sought(stem, stem)
    for name, was in was_of.items():
        now = now_of.get(name, [])
        if len(was) == len(now) and all(one.covers(of) for one, of in zip(now, was, strict=True)):
            continue
        owner, _, last = name.rpartition(".")
        cls = owner.rpartition(".")[2]
        if last in _MAKERS or (cls and " " in was[0].text):
            yield Sought(cls, stem)
        if last in _MAKERS:
            continue
        if cls:
            yield Sought(last, cls)
            yield Sought(last, stem)
        else:
            is_import = was[0].text == _IMPORTED and stem not in _copied_whole(after)
            yield Sought(last, stem, taken=True, alone=not is_import)


@remembered
def _copied_whole(world: World) -> frozenset[str]:
    """Return the last words of modules of which all names are imported somewhere."""
    texts = (data for _, data in files_mentioning(world, ("import *",)))
    return frozenset(word.decode() for data in texts for word in _STAR.findall(data))


def _parts_of(world: World, path: str) -> list[_Part]:
    data = world.glance(path)
    if data is None or (tree := syntax_tree.module(data)) is None:
        return []
    return list(_parts(tree.body, "", data.splitlines()))


def _parts(body: Iterable[ast.AST], prefix: str, rows: list[bytes]) -> Iterator[_Part]:
    for node, _ in statements(body):
        if not isinstance(node, ast.stmt):
            continue
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.ClassDef):
            last = max(node.lineno, syntax_tree.first_line(node.body[0]) - 1)
            yield from _parts(node.body, f"{prefix}{node.name}.", rows)
        yield prefix, b"\n".join(rows[syntax_tree.first_line(node) - 1 : last]), node


def _definitions(world: World, path: str, parts: Iterable[_Part]) -> dict[str, list[_Form]]:
    """Return each name that is bound in some parts of a file, and each attribute of its classes, dotted, with how it is used."""
    forms: dict[str, list[_Form]] = defaultdict(list)
    for prefix, _, node in parts:
        keys = frozenset(f"{key}=" for key in table_of(node)[1])
        match node:
            case ast.ClassDef():
                heads = (*node.bases, *node.keywords, *node.decorator_list)
                forms[prefix + node.name].append(_Form(" ".join(map(ast.dump, heads))))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                forms[prefix + node.name].append(_form(node))
            case ast.Import() | ast.ImportFrom() | ast.Assign():
                form = _Form("" if isinstance(node, ast.Assign) else _IMPORTED, keys)
                for name, _ in bindings(node):
                    forms[prefix + name].append(form)
            case ast.AnnAssign(target=ast.Name(id=name)):
                # with a space it is a field: the class is called with it
                default = "" if node.value is None else "="
                forms[prefix + name].append(_Form(f"{ast.dump(node.annotation)} {default}", keys))
            case _:
                pass
    for owner, symbol in classes_in(world, path):
        for name in symbol.cls.attributes:
            forms.setdefault(f"{owner}.{name}", [_Form("")])
    return forms


def _form(node: DefNode) -> _Form:
    """Describe a function; a parameter that goes by its place has that in front."""
    args = node.args
    beside = (args.vararg, args.kwarg, node.returns, *node.decorator_list)
    text = (type(node).__name__, str(is_generator(node)), *(ast.dump(one) for one in beside if one))
    pairs = enumerate(syntax_tree.with_defaults(args))
    placed = [(f"{n} {n < len(args.posonlyargs)} ", *pair) for n, pair in pairs]
    named = zip(repeat(""), args.kwonlyargs, args.kw_defaults, strict=False)
    parameters = (
        f"{place}{ast.dump(argument)}{'' if default is None else '='}"
        for place, argument, default in (*placed, *named)
    )
    return _Form("".join(text), frozenset(parameters))
