"""What a patch takes away or defines in another way, and which lines of the tree mention that."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from vllm_mods.fit.search import WORD, files_mentioning
from vllm_mods.fit.signatures import DefNode, every, statements
from vllm_mods.fit.summary import target_names
from vllm_mods.fit.world import World, module_stem
from vllm_mods.formats import syntax_tree

# A member of a class that more files than this mention is followed only where the class or its module is named too.
_COMMON = 40
_MAKERS = {"__init__", "__new__", "__post_init__", "__init_subclass__"}


def users(
    before: World, after: World, paths: Iterable[str]
) -> tuple[dict[str, frozenset[int]], frozenset[str]]:
    """Return who mentions what the change of some files takes away or defines in another way.

    That is files beside the changed ones, with the lines that mention such, and the words that were looked for.
    """
    contexts: dict[str, set[str]] = defaultdict(set)
    for name, context in (pair for path in paths for pair in _changed(before, after, path)):
        contexts[name] |= context
    words = frozenset(contexts)
    if not words:
        return {}, words
    held: dict[str, frozenset[str]] = {}
    counts: Counter[str] = Counter()
    for path, data in files_mentioning(after, words):
        if path in after.files:
            continue
        held[path] = frozenset(word.decode() for word in set(WORD.findall(data)))
        counts.update(held[path] & words)
    lines: dict[str, frozenset[int]] = {}
    for path, mentioned in held.items():
        wanted = {
            word
            for word in mentioned & words
            if counts[word] <= _COMMON or not contexts[word].isdisjoint(mentioned)
        }
        if wanted:
            lines[path] = _mentions(after.read(path) or b"", wanted)
    return lines, words


def _mentions(data: bytes, words: Iterable[str]) -> frozenset[int]:
    pattern = re.compile(rb"\b(?:%b)\b" % b"|".join(word.encode() for word in sorted(words)))
    return frozenset(n for n, text in enumerate(data.splitlines(), 1) if pattern.search(text))


def _changed(before: World, after: World, path: str) -> Iterator[tuple[str, set[str]]]:
    """Yield names whose definition changed or is gone, and the words that a file has to mention, too, if one is common."""
    old, new = (_definitions(world, path) for world in (before, after))
    stem = module_stem(path)
    if after.glance(path) is None and old:
        yield stem, set()
    for name, was in old.items():
        if new.get(name) == was:
            continue
        owner, _, last = name.rpartition(".")
        cls = owner.rpartition(".")[2]
        if last in _MAKERS or (cls and " " in was[0]):
            yield cls, {stem}
        if last not in _MAKERS:
            yield last, {cls or stem, stem}


def _definitions(world: World, path: str) -> dict[str, list[str]]:
    """Return each name of a module and its classes, dotted, with a text that is another one where its use is."""
    definitions: dict[str, list[str]] = defaultdict(list)
    data = world.glance(path)
    if data is not None and (tree := syntax_tree.module(data)) is not None:
        _of_body(tree.body, "", definitions)
        world.module(path)  # it is asked for, and the syntax tree is at hand
    return definitions


def _of_body(  # noqa: C901 - one kind of statement per branch
    body: Iterable[ast.AST], prefix: str, definitions: dict[str, list[str]]
) -> None:
    for node, _ in statements(body):
        match node:
            case ast.ClassDef():
                heads = (*node.bases, *node.keywords, *node.decorator_list)
                definitions[prefix + node.name].append(" ".join(map(ast.dump, heads)))
                _of_body(node.body, f"{prefix}{node.name}.", definitions)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                definitions[prefix + node.name].append(_signature(node))
                for inner in every(node) if prefix and node.args.args else ():
                    match inner:
                        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if (
                            name == node.args.args[0].arg
                        ):
                            definitions[prefix + inner.attr] = definitions[prefix + inner.attr] or [
                                ""
                            ]
                        case _:
                            pass
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    definitions[prefix + (alias.asname or alias.name)].append("")
            case ast.Assign():
                for name in (n for target in node.targets for n in target_names(target)):
                    definitions[prefix + name].append("")
            case ast.AnnAssign(target=ast.Name(id=name)):
                # with a space it is a field: the class is called with it
                default = "" if node.value is None else "="
                definitions[prefix + name].append(f"{ast.dump(node.annotation)} {default}")
            case _:
                pass


def _signature(node: DefNode) -> str:
    parts = (node.args, *node.decorator_list, *([node.returns] if node.returns else []))
    yields = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in every(node))
    return "".join((type(node).__name__, str(yields), *map(ast.dump, parts)))
