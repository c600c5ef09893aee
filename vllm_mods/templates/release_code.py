"""A release's own modules, imported from their text: its parsers without torch, and without a file.

Some modules of vLLM are run as they are; every other one, and every library that parsers do without,
is stood in for by a module that has any name. It belongs into a process that is fenced in.
"""

import enum
import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

NEEDED = ("ijson", "partial_json_parser", "pydantic", "regex")
"""What parsers cannot do without."""
WANTED = ("cohere_melody", "openai_harmony")
"""What those of one family cannot do without."""
STANDARD = (
    "abc", "argparse", "ast", "asyncio", "base64", "bisect", "collections.abc", "contextlib",
    "contextvars", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions",
    "functools", "hashlib", "heapq", "html", "importlib.util", "inspect", "io", "itertools", "json",
    "keyword", "logging", "math", "numbers", "operator", "os", "pathlib", "pickle", "pprint", "random",
    "re", "secrets", "socket", "string", "struct", "sys", "tempfile", "textwrap", "threading", "time",
    "tokenize", "traceback", "types", "typing", "unicodedata", "urllib.parse", "uuid", "warnings",
    "weakref", "xml.etree.ElementTree", "xml.parsers.expat", "xml.sax.saxutils",
)  # fmt: skip
"""What may be imported of the standard library; it is imported before the process is locked."""


class StandInAskedError(Exception):
    """The release's code asks something that what stands in for a module cannot know: no answer about a template."""


class AnyName(type):
    """The type of stand-ins: whatever is asked of one is another of its ``stand_in_kind``."""

    stand_in_kind: type["StandIn"]

    def __getattr__(cls, name: str) -> Any:
        stand_in = _stand_in(f"{cls.__name__}.{name}", cls.stand_in_kind)
        setattr(cls, name, stand_in)
        return stand_in


class StandIn(metaclass=AnyName):
    """A class of a library that is not there: it can be made, called, inherited, and validates anything."""

    def __init__(self, *args: Any, **given: Any) -> None:
        del args
        self.__dict__.update(given)

    def __init_subclass__(cls, **given: Any) -> None:
        del given

    def __getattr__(self, name: str) -> Any:
        return _stand_in(f"{type(self).__name__}.{name}", type(self).stand_in_kind)()

    def __bool__(self) -> bool:
        """Refuse to say: either answer would be one that the release never gave."""
        raise StandInAskedError(f"whether {type(self).__name__} is true")

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Be a decorator, or a function without a result."""
        alone = len(args) == 1 and not given and callable(args[0])
        return args[0] if alone else self

    def __class_getitem__(cls, item: Any) -> Any:
        del item
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return importlib.import_module("pydantic_core.core_schema").any_schema()


StandIn.stand_in_kind = StandIn  # a class cannot name itself before it is there


def _stand_in(name: str, kind: type[StandIn]) -> Any:
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    make: Any = type(kind)
    return make(name, (kind,), {"stand_in_kind": kind})


class _Quiet:
    """A logger that says nothing, by any of the names that vLLM's has."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@functools.cache
def _replacements() -> dict[str, Any]:
    numbers = iter(range(1_000_000))
    return {
        "init_logger": lambda *_, **__: _Quiet(),
        "make_tool_call_id": lambda *_, **__: f"call-{next(numbers)}",
        "get_tool_call_id_type": lambda *_, **__: "random",
        "random_uuid": lambda: f"{next(numbers):032x}",
        "iinfo": lambda *_: SimpleNamespace(min=-(2**63), max=2**63 - 1),
        "SpecialTokens": _MistralTokens,
        "is_mistral_tokenizer": lambda *_: False,
        "is_mistral_tool_parser": lambda cls: bool(getattr(cls, "IS_MISTRAL_TOOL_PARSER", False)),
        "check_json_nesting": lambda *_, **__: None,
    }


class _MistralTokens(enum.StrEnum):
    """What ``mistral_common`` calls ``SpecialTokens``."""

    tool_calls = "[TOOL_CALLS]"
    args = "[ARGS]"
    call_id = "[CALL_ID]"
    begin_think = "[THINK]"
    end_think = "[/THINK]"


class _Stood(ModuleType):
    """A module that has any name."""

    def __init__(self, name: str, kind: type[StandIn]) -> None:
        super().__init__(name)
        self.stand_in_kind = kind

    def __getattr__(self, name: str) -> Any:
        stand_in = _replacements().get(name) or _stand_in(name, self.stand_in_kind)
        setattr(self, name, stand_in)
        return stand_in


class ReleaseModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of ``sources``, by their paths; what else is not there yet is stood in for by ``kind``.

    None of ``own``, by the beginnings of their names, and of ``libraries`` is.
    """

    own: tuple[str, ...] = ("vllm.parser", "vllm.reasoning", "vllm.tool_parsers")
    libraries: tuple[str, ...] = (*NEEDED, *WANTED)
    kind = StandIn

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.sources = sources

    def install(self) -> None:
        """Have all that is imported from now on come from here."""
        sys.meta_path[:] = [self]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find any module: standard and needed ones have to be there by now."""
        del path, target
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in self.libraries:
            return None
        origin = self._path(name)
        if origin is None and name.startswith(self.own):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=origin)
        if origin is None or origin.endswith("/__init__.py"):
            spec.submodule_search_locations = []
        return spec

    def _path(self, name: str) -> str | None:
        place = name.replace(".", "/")
        paths = (f"{place}.py", f"{place}/__init__.py")
        return next((path for path in paths if path in self.sources), None)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return a stand-in, or leave it to Python."""
        return _Stood(spec.name, self.kind) if spec.origin is None else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the release's text."""
        path = module.__spec__.origin if module.__spec__ else None
        if path is not None:
            exec(compile(self.sources[path], path, "exec"), module.__dict__)  # noqa: S102
