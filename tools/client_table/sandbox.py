"""The process in which a release's own code takes the requests of clients, behind a fence of the kernel.

``chat_clients`` starts it. What comes in are bodies of requests, and what goes out is what the chat template
would be given of each: its messages, its tools and its arguments.
"""

import importlib
import json
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from vllm_mods.templates import fence, parser_sandbox
from vllm_mods.templates.release_code import AnyName, ReleaseModules, StandIn, StandInAskedError

_CHAT = "vllm.entrypoints.openai.chat_completion.protocol"
_RESPONSES = "vllm.entrypoints.openai.responses"
_ANTHROPIC = "vllm.entrypoints.anthropic"
_UTILITIES = ("vllm.renderers.chat_utils", "vllm.entrypoints.chat_utils")
"""Where a message becomes what a template gets; the newest place first."""
_CONVERTERS = ("to_chat_completion_request", "_convert_anthropic_to_openai_request")
_MERGES = "_detect_merge_inline_system"
_CONFIG = SimpleNamespace(
    allowed_local_media_path="",
    allowed_media_domains=None,
    enable_prompt_embeds=False,
    multimodal_config=None,
)
"""What is asked of a model's configuration where messages are texts; anything else of it is not known."""
_FORM = 4
"""So deep lies the form of an item in the place of an error: the field, its list, the number, the form."""
_KINDS = (("type",), ("role",))
_LIBRARIES = (
    "encodings.unicode_escape", "html", "jinja2.constants", "jinja2.debug", "jinja2.ext", "jinja2.sandbox",
    "openai",
)  # fmt: skip


class _SilentName(AnyName):
    def __instancecheck__(cls, value: object) -> bool:  # noqa: N805  (of a metaclass)
        if not issubclass(type(value), StandIn):
            raise StandInAskedError(f"whether {value!r:.40} is a {cls.__name__}")
        return super().__instancecheck__(value)


class _SilentStandIn(StandIn, metaclass=_SilentName):
    """What says nothing of any value: neither whether it is one of its own, nor whether it is valid."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        schemas = importlib.import_module("pydantic_core.core_schema")
        return schemas.no_info_plain_validator_function(_refuse_to_validate)


def _refuse_to_validate(value: Any) -> Any:
    raise StandInAskedError(f"whether {value!r:.40} is valid")


class _EndpointModules(ReleaseModules):
    """Those of a server's endpoints: what stands in is silent, and their libraries are the real ones."""

    own = (
        "vllm.entrypoints.anthropic.",
        "vllm.entrypoints.chat_utils",
        "vllm.entrypoints.openai.chat_completion.protocol",
        "vllm.entrypoints.openai.responses.",
        "vllm.renderers.chat_utils",
        "vllm.renderers.params",
    )
    libraries = (*ReleaseModules.libraries, "jinja2", "openai")
    kind = _SilentStandIn


def main() -> None:
    """Take the requests of the case on stdin."""
    fence.serve(import_all, _answer)


def _answer(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    _EndpointModules(case["sources"]).install()
    yield from map(_take, case["jobs"])


def import_all() -> list[str]:
    """Import all that may be imported, and return what is not installed."""
    missing = parser_sandbox.import_named(_LIBRARIES)
    if "openai" not in missing:
        types = importlib.import_module("openai.types")
        for module in pkgutil.walk_packages(types.__path__, "openai.types."):
            importlib.import_module(module.name)
    return [*missing, *parser_sandbox.import_all()]


def _take(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a template gets of a request, or why it is ``refused``, or why nobody knows."""
    try:
        try:
            answer = _convert(job["endpoint"], job["body"], job["template"], job["content_format"])
        except ValueError as error:
            errors = error.errors() if hasattr(error, "errors") else []
            json.dumps([one["input"] for one in errors], default=_dump)
            return {"refused": _words(errors) if errors else str(error)}
        return json.loads(json.dumps(answer))  # type: ignore[no-any-return]
    except BaseException as error:  # noqa: BLE001  (whatever it is, the release has it)
        return {"error": parser_sandbox.describe(error)}


def _convert(endpoint: str, body: Any, template: str, content_format: str) -> dict[str, Any]:
    chat = importlib.import_module(_CHAT)
    if endpoint == "/v1/responses":
        request = importlib.import_module(f"{_RESPONSES}.protocol").ResponsesRequest(**body)
        utilities = importlib.import_module(f"{_RESPONSES}.utils")
        messages = utilities.construct_input_messages(
            request_instructions=request.instructions, request_input=request.input
        )
        tools = utilities.construct_tool_dicts(request.tools, request.tool_choice)
    else:
        request = (
            _of_anthropic(body, template)
            if endpoint == "/v1/messages"
            else chat.ChatCompletionRequest(**body)
        )
        messages = request.messages
        tools = [tool.model_dump() for tool in request.tools] if request.tools else None
    arguments = request.build_chat_params(template, content_format).chat_template_kwargs
    utilities = next(filter(None, map(_module, _UTILITIES)))
    conversation, *_ = utilities.parse_chat_messages(messages, _CONFIG, content_format)
    kwargs = {name: value for name, value in arguments.items() if value is not None}
    return {"messages": conversation, "tools": tools, "kwargs": kwargs}


def _of_anthropic(body: Any, template: str) -> Any:
    request = importlib.import_module(f"{_ANTHROPIC}.protocol").AnthropicMessagesRequest(**body)
    serving = importlib.import_module(f"{_ANTHROPIC}.serving").AnthropicServingMessages
    own = vars(serving)  # asked for anything else, a class that inherits from a stand-in has it
    convert = getattr(serving, next(name for name in _CONVERTERS if name in own))
    if _MERGES not in own:
        return convert(request)
    return convert(request, merge_inline_system=getattr(serving, _MERGES)(template))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _dump(value: Any) -> Any:
    """Return a model's data; of anything else that is no JSON the release had nothing to refuse: it is a stand-in."""
    if isinstance(value, importlib.import_module("pydantic").BaseModel):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is not JSON serializable, and was validated")


def _words(errors: Sequence[Any]) -> str:
    """Return what is refused, and its place: of several forms that it could have, that of the one it is nearest to."""
    forms = [(one["loc"][:_FORM], one) for one in errors]
    others = {form for form, one in forms if one["loc"][-1:] in _KINDS}
    near = Counter(form for form, _ in forms)
    _, first = min(forms, key=lambda one: (one[0] in others, near[one[0]], -len(one[1]["loc"])))
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    return f"{place}: {first['msg']}".removeprefix(": ")
