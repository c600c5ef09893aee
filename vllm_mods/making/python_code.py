"""Python code in a mod's script: what it prints, if that follows from where vLLM lies, and if it only asks.

Nothing is run. What is understood is what mods write to find a folder.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Mapping

from vllm_mods.formats import syntax_tree
from vllm_mods.making.effects import SITE

_PACKAGES = {"vllm", "flashinfer", "transformers", "torch", "triton", "compressed_tensors"}
_MODULES = {"io", "os", "codecs", "gzip"}
_ASKING = {
    *("print", "len", "str", "int", "repr", "sorted", "list", "set", "any", "all", "bool", "type"),
    *("isinstance", "hasattr", "getattr", "import_module", "find_spec", "exit", "_exit"),
    *("dirname", "basename", "join", "abspath", "realpath", "exists", "isfile", "is_file"),
    *("isdir", "is_dir", "Path", "read_text", "read_bytes", "read", "splitlines", "strip", "split"),
    *("parse", "compile", "getsource", "getsourcefile", "getfile", "signature", "version", "lower"),
    *("getsitepackages", "get_paths", "get_path", "startswith", "endswith", "count", "parent"),
    *("is_available", "find", "index", "format", "match", "search", "RuntimeError", "SystemExit"),
    *("AssertionError", "ImportError", "ValueError", "Version", "files", "resolve", "get"),
}


def _read(code: str) -> ast.Module | None:
    try:
        tree: ast.Module = syntax_tree.parse(code)
        syntax_tree.check_depth(tree)
    except (SyntaxError, ValueError):
        return None
    return tree


def only_asks(code: str, files: Iterable[str]) -> bool:
    """Tell whether code calls nothing but what looks: it changes no file.

    ``files`` are those that the mod brings: importing one runs it.
    """
    own = {part.removesuffix(".py") for path in files for part in path.split("/")}
    tree = _read(code)
    if tree is None:
        return False
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] in own for name in names):
            return False
        if isinstance(node, ast.Call) and not _looks(node):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.With | ast.AsyncWith | ast.Delete):
            return False
    return True


def printed(code: str) -> str | None:
    """Return what code prints if it asks where vLLM or its packages lie; None for anything else."""
    tree = _read(code)
    if tree is None:
        return None
    names: dict[str, object] = {}
    out: str | None = None
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _value(node.value, names)
        elif out is None and isinstance(node, ast.Expr) and (of := _printed(node.value)):
            value = _value(of, names)
            if not isinstance(value, str):
                return None
            out = value
        else:
            return None
    return out


def _looks(node: ast.Call) -> bool:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "open":
        of = function.value if isinstance(function, ast.Attribute) else None
        at = 1 if of is None or (isinstance(of, ast.Name) and of.id in _MODULES) else 0
        modes = [*node.args[at:][:1], *(one.value for one in node.keywords if one.arg == "mode")]
        return all(isinstance(mode, ast.Constant) and mode.value in {"r", "rb"} for mode in modes)
    return name in _ASKING


def _printed(node: ast.expr) -> ast.expr | None:
    """Return the one thing that a ``print`` prints; None for anything else."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {
        "print",
        "sys.stdout.write",
    }:
        return None
    plain = all(one.arg in {"end", "flush"} for one in node.keywords)
    return node.args[0] if plain and len(node.args) == 1 else None


def _value(node: ast.expr, names: Mapping[str, object]) -> object:  # noqa: PLR0911  (one for each form)
    """Return the text or list of texts that an expression stands for; None if that is not known."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Subscript):
        inner = _value(node.value, names)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(inner, list) and key == 0:
            return inner[0]
        return inner.get(key) if isinstance(inner, dict) else None
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, names), _value(node.right, names)
        if not (isinstance(left, str) and isinstance(right, str)):
            return None
        if isinstance(node.op, ast.Div):
            return posixpath.join(left, right)
        return left + right if isinstance(node.op, ast.Add) else None
    if isinstance(node, ast.Attribute):
        return _attribute(node, names)
    if isinstance(node, ast.Call):
        return _call(node, names)
    return None


def _attribute(node: ast.Attribute, names: Mapping[str, object]) -> object:
    of = ast.unparse(node.value).replace('"', "'")
    spec = re.search(r"find_spec\('(\w+)'\)$", of)
    package = spec[1] if spec else of
    if package in _PACKAGES:
        folder = f"{SITE}/{package}"
        places = {"origin": f"{folder}/__init__.py", "submodule_search_locations": [folder]}
        attributes = {"__file__": f"{folder}/__init__.py", "__path__": [folder]}
        return (places if spec else attributes).get(node.attr)
    inner = _value(node.value, names)
    return posixpath.dirname(inner) if isinstance(inner, str) and node.attr == "parent" else None


def _call(node: ast.Call, names: Mapping[str, object]) -> object:  # noqa: PLR0911  (one for each form)
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "getsitepackages":
        return [SITE]
    if name == "get_paths":
        return {"purelib": SITE, "platlib": SITE}
    arguments = [_value(one, names) for one in node.args]
    if name == "get_path" and arguments in (["purelib"], ["platlib"]):
        return SITE
    if name == "resolve" and isinstance(node.func, ast.Attribute):
        return _value(node.func.value, names)
    if not arguments or not all(isinstance(one, str) for one in arguments):
        return None
    texts = [str(one) for one in arguments]
    if name == "dirname":
        return posixpath.dirname(texts[0])
    if name == "join" and "path" in ast.unparse(node.func):
        return posixpath.join(*texts)
    same = {"str", "Path", "abspath", "realpath", "PosixPath"}
    return posixpath.normpath(texts[0]) if name in same and len(texts) == 1 else None
