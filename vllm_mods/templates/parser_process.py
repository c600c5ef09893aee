"""The parsers of a release, run in a process that is fenced in: ``parser_sandbox`` is started and asked."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.templates import answers
from vllm_mods.templates.rendering import run_apart

_PACKAGES = ("vllm/entrypoints/openai/parser", "vllm/parser", "vllm/reasoning", "vllm/tool_parsers")
MODULES = (
    "vllm/entrypoints/generate/base/protocol.py",
    "vllm/entrypoints/openai/chat_completion/protocol.py",
    "vllm/entrypoints/openai/engine/protocol.py",
    "vllm/entrypoints/serve/engine/protocol.py",
    "vllm/envs.py",
    "vllm/exceptions.py",
    "vllm/utils/collection_utils.py",
)
"""What is run of a release; anything else of it is stood in for."""
_HARMONY = "vllm/parser/harmony.py"
SANDBOX = "vllm_mods.templates.parser_sandbox"
INSTALL = (
    "pip install cohere_melody ijson oss-harmony partial-json-parser pydantic regex"
    "  # the extra `parsers` of vllm-mods"
)


class ReadingJob(NamedTuple):
    """An answer behind its prompt, the parsers that are to read it, and how (``reading_back.WAYS``).

    ``ended`` by the token that ends a turn; ``tags`` are tokens too.
    """

    prompt: str
    text: str
    ended: bool
    tool: str | None
    reasoning: str | None
    tools: Sequence[Any]
    tags: Sequence[str]
    ways: Sequence[str]


class ReleaseParsers(NamedTuple):
    """The parsers of a release."""

    spec: str
    version: str | None
    sources: Mapping[str, str]
    tools: tuple[str, ...]
    reasoners: tuple[str, ...]

    def require(self, tool: str | None, reasoning: str | None) -> None:
        """Raise ``UsageError`` for a parser that the release does not have."""
        for flag, name, known in (
            ("--tool-call-parser", tool, self.tools),
            ("--reasoning-parser", reasoning, self.reasoners),
        ):
            if name is not None and name not in known:
                why = f"{self.spec} has no {flag} {name}"
                raise UsageError(why, hint=f"one of {', '.join(known)}")
        if answers.is_harmony(tool, reasoning) and _HARMONY not in self.sources:
            why = f"{self.spec} has no {_HARMONY}: its server itself parses gpt-oss answers, so there is no parser to test"
            raise UsageError(why, hint="--target TREE with vLLM 0.24 or newer")

    def read(self, jobs: Sequence[ReadingJob]) -> list[dict[str, Any]]:
        """Return, for each job and way, the ``reasoning``, ``content`` and ``calls``, or an ``error``.

        One that is ``stood_in`` is no answer: the parser asks what is not known of a module that is not there.
        """
        asked = [job._asdict() for job in jobs]
        _, read = run(SANDBOX, self.sources, asked, 1 + len(jobs)) if jobs else ((), [{}])
        pairs = zip(jobs, read[1:], strict=True)
        return [{way: _sanitize(one.get(way, one)) for way in job.ways} for job, one in pairs]


def open_release(tree: Tree) -> ReleaseParsers:
    """Read the parsers of a tree, and start them once to hear their names.

    Raises ``TreeError`` if it has none that run, ``UsageError`` if what they need is not installed.
    """
    sources = read_sources(tree, _PACKAGES, MODULES)
    if not any(path.startswith("vllm/tool_parsers/") for path in sources):
        raise TreeError(f"{tree.spec} has no vllm/tool_parsers", hint="vLLM 0.15 or newer has it")
    missing, (names,) = run(SANDBOX, sources, (), 1)
    if "error" not in names:
        tools, reasoners = (_texts(names.get(name)) for name in ("tools", "reasoners"))
        return ReleaseParsers(tree.spec, tree.version, sources, tools, reasoners)
    if missing:
        raise UsageError(f"the parsers of vLLM need {', '.join(missing)}", hint=INSTALL)
    raise TreeError(f"{tree.spec}: its parsers cannot run: {names['error']}")


def read_sources(tree: Tree, packages: Iterable[str], modules: Iterable[str]) -> dict[str, str]:
    """Return the text of all modules of a tree's packages, and of others, by their paths; what is not there is left out."""
    paths = [path for under in packages for path in tree.paths(under) if path.endswith(".py")]
    read = ((path, tree.read(path)) for path in (*paths, *modules))
    return {path: data.decode("utf-8", "replace") for path, data in read if data is not None}


def as_text(value: Any) -> str:
    """Return a value as JSON text: two are alike only if their types are."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _sanitize(answer: Any) -> dict[str, Any]:
    """Return an answer in its expected shape: the process may write anything."""
    match answer:
        case {"reasoning": reasoning, "content": content, "calls": calls}:
            return {"reasoning": str(reasoning), "content": str(content), "calls": calls}
        case {"error": error}:
            return {"error": str(error), "stood_in": answer.get("stood_in") is True}
        case _:
            return {"error": "the parser gave no answer", "stood_in": False}


def run(
    sandbox: str, sources: Mapping[str, str], jobs: Sequence[Mapping[str, Any]], count: int
) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Return what a sandbox that runs a release's code lacks, and its answers (``run_apart``)."""
    case = {
        "sources": dict(sources),
        "jobs": list(jobs),
        "seconds": limits.PARSER_SECONDS,
        "memory": limits.TEMPLATE_MEMORY,
        "output": limits.PARSER_OUTPUT,
    }
    return run_apart(sandbox, case, count)
