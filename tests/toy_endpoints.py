"""The endpoints of a release, small enough to read: a request goes in, and what a chat template gets comes out."""

from __future__ import annotations

from memory_tree import MemoryTree

CHAT = """
from types import SimpleNamespace
from pydantic import BaseModel

class Tool(BaseModel, extra="allow"):
    type: str

class ChatCompletionRequest(BaseModel):
    model: str
    messages: list[dict]
    tools: list[Tool] | None = None
    reasoning_effort: str | None = None

    def build_chat_params(self, template, content_format):
        kwargs = {"add_generation_prompt": True, "documents": None, "reasoning_effort": self.reasoning_effort}
        return SimpleNamespace(chat_template_kwargs=kwargs)
"""
PARSING = """
import json

def parse_chat_messages(messages, config, content_format):
    conversation = []
    for message in messages:
        made = {"role": message["role"], "content": message.get("content") or ""}
        if message.get("reasoning"):
            made["reasoning"] = message["reasoning"]
        if calls := message.get("tool_calls"):
            for call in calls:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            made["tool_calls"] = calls
        conversation.append(made)
    return conversation, None, None
"""
ANTHROPIC = """
from typing import Literal
from pydantic import BaseModel

class Message(BaseModel):
    role: Literal["user", "assistant", "system"]
    content: str

class AnthropicMessagesRequest(BaseModel):
    model: str
    system: str
    messages: list[Message]
"""
SERVING = """
import jinja2, jinja2.sandbox
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

class AnthropicServingMessages(OpenAIServingChat):
    @staticmethod
    def _detect_merge_inline_system(template):
        try:
            turns = [{"role": role, "content": "t"} for role in ("system", "user", "system")]
            jinja2.sandbox.SandboxedEnvironment().from_string(template).render(messages=turns)
            return False
        except jinja2.TemplateError:
            return True

    @classmethod
    def to_chat_completion_request(cls, request, *, merge_inline_system=False):
        rest = [one.model_dump() for one in request.messages]
        first = request.system
        if merge_inline_system:
            first += "".join(one["content"] for one in rest if one["role"] == "system")
            rest = [one for one in rest if one["role"] != "system"]
        messages = [{"role": "system", "content": first}, *rest]
        return ChatCompletionRequest(model=request.model, messages=messages)
"""
RESPONSES = """
from types import SimpleNamespace
from typing import Literal
from pydantic import BaseModel

class Thought(BaseModel):
    type: Literal["reasoning"]
    id: str
    content: str

class Said(BaseModel):
    type: Literal["message"]
    role: str
    content: str

class ResponsesRequest(BaseModel):
    model: str
    instructions: str | None = None
    input: str | list[Said | Thought]
    tools: list = []
    tool_choice: str = "auto"

    def build_chat_params(self, template, content_format):
        return SimpleNamespace(chat_template_kwargs={})
"""
ITEMS = """
def construct_input_messages(*, request_instructions, request_input):
    said = [one.model_dump(include={"role", "content"}) for one in request_input if one.type == "message"]
    return [{"role": "system", "content": request_instructions}, *said]

def construct_tool_dicts(tools, tool_choice):
    return None
"""
FILES = {
    "vllm/entrypoints/openai/chat_completion/protocol.py": CHAT,
    "vllm/entrypoints/chat_utils.py": PARSING,
    "vllm/entrypoints/anthropic/protocol.py": ANTHROPIC,
    "vllm/entrypoints/anthropic/serving.py": SERVING,
    "vllm/entrypoints/openai/responses/protocol.py": RESPONSES,
    "vllm/entrypoints/openai/responses/utils.py": ITEMS,
}


def toy_endpoints(**changed: str) -> MemoryTree:
    """Return a tree with these modules; those that are ``changed`` to nothing are not there."""
    files = {path: text.encode() for path, text in {**FILES, **changed}.items() if text}
    return MemoryTree(files, version="0.25.0")
