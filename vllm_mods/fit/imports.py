"""Whether what code imports is there."""

import ast
import re
from collections.abc import Iterable

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.problems import Answers, Doubt, Problem
from vllm_mods.fit.search import defines_plainly, files_mentioning
from vllm_mods.fit.shapes import Import, is_standard
from vllm_mods.fit.signatures import imports_of
from vllm_mods.fit.walk import CodeSite, named_module
from vllm_mods.fit.world import World, absolute


def import_problems(
    world: World, path: str, sites: Iterable[CodeSite], lines: frozenset[int]
) -> Answers:
    """Judge every import of a file among some sites."""
    for site in sites:
        node = site.node
        if isinstance(node, ast.Import | ast.ImportFrom):
            for _, alias in imports_of(node):
                if lines & {alias.line, node.lineno}:
                    yield from _import(world, path, site, alias)
        elif name := named_module(node, "import_module"):
            yield from _import(world, path, site, Import(0, name, None, node.lineno))


def _import(world: World, path: str, site: CodeSite, alias: Import) -> Answers:
    scope = site.scope
    module, name = absolute(path, alias.level, alias.module), alias.name
    answer, why = _exists(world, module, name)
    if answer is True:
        return
    if answer is None or scope.guarded or scope.typing_only:
        if answer is False:
            why = "the import fails, but the code catches the error, or is for another vLLM version or type checkers only"
        if why:
            yield Doubt(path, "import", why)
        return
    what = module if name is None else f"{name} from {module}"
    token = (name or module).rpartition(".")[2]
    message, key = f"cannot import {what}: {why}{_moved_to(world, name)}", (module, name or "")
    yield Problem(FindingCode.FIT_IMPORT, path, alias.line, scope.name, message, key, token)


def _moved_to(world: World, name: str | None) -> str:
    """Name the one module of the tree that defines a name, for the end of a message."""
    if name is None or name == "*":
        return ""
    places = [p for p, _ in files_mentioning(world, (name,)) if defines_plainly(world, p, name)]
    if len(places) != 1:
        return ""
    module = places[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"; {name} is defined only in {module}"


def _exists(world: World, module: str, name: str | None) -> tuple[bool | None, str]:  # noqa: PLR0911
    """Tell whether a module, and a name in it, exist; the reason for anything but yes."""
    if not module:
        return None, "a relative import leaves the tree"
    if module.partition(".")[0] not in world.roots:
        try:
            return _installed(world, module, name)
        except TreeError as error:  # what of a package beside vLLM cannot be told is not examined
            if isinstance(error, Unreachable):
                raise
            return None, error.message
    where = world.locate(module)
    if where.exists is not True:
        return where.exists, where.why or f"the tree has no module {module}"
    path = where.module
    if name is None or name == "*" or path is None or defines_plainly(world, path, name):
        return True, ""
    answer, found = world.lookup(path, name), None if path[-1] == "/" else world.module(path)
    bound = found.names.get(name) if found and not (found.lazy or found.dynamic) else None
    only_stated = bound and all(getattr(binding, "typing_only", False) for binding in bound)
    if only_stated and world.locate(f"{module}.{name}").exists is False:
        return False, f"{path} defines {name} for type checkers only"
    return answer.exists, answer.why or f"{path} does not define {name}"


def _installed(world: World, module: str, name: str | None) -> tuple[bool | None, str]:
    """Judge an import from outside vLLM by what is installed beside it."""
    if is_standard(module):
        return True, ""  # the type checker knows
    root = module.partition(".")[0]
    stem = module.replace(".", "/")
    places = (f"{stem}/__init__.py", f"{stem}.py")
    path = next((place for place in places if world.read(place) is not None), None)
    if path is None:
        if world.read(f"{root}/__init__.py") is None and world.read(f"{root}.py") is None:
            return None, f"{root} is not in the tree"
        below = any(p.startswith((f"{stem}/", f"{stem}.")) for p in world.paths(root))
        return below, f"the {root} installed beside vLLM has no module {module}"
    data, inner = world.read(path) or b"", (f"{stem}/{name}/", f"{stem}/{name}.")
    if (
        name in {None, "*"}
        or re.search(rb"\b%b\b" % re.escape(str(name).encode()), data)
        or any(p.startswith(inner) for p in world.paths(root))
    ):
        return True, ""
    if re.search(rb"import \*|__getattr__|globals\(\)|sys\.modules|setattr\(", data):
        return None, f"{path} creates names at run time"
    return False, f"{path}, installed beside vLLM, does not define {name}"
