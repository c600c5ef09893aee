"""A small made-up vLLM with the shapes of a real one's command line, and a later release of it."""

from __future__ import annotations

ARGS = """\
import argparse
import json

from vllm.config import CacheConfig, EngineConfig, ModelConfig, PlanConfig
from vllm.config.model import ModelConfig as Same
from vllm.utils.parsing import FlexibleArgumentParser

PASSTHROUGH = "none"
_OLD = "--old-way is deprecated and will go. Use --dtype."


def human_readable_int(value):
    return int(value)


def human_readable_int_or_auto(value):
    return int(value)


def optional_type(return_type):
    return return_type


def reads_parser(text):
    return "" if text.lower() == "none" else text


def get_kwargs(cls):
    for name in fields(cls):
        if name == "max_model_len":
            kind = human_readable_int_or_auto
        elif name in ("batch", "bytes"):
            kind = human_readable_int
    return {}


class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        if not ("--help" in sys.argv):
            group.add_argument("--model", **model_kwargs["model"])
        group.add_argument("--dtype", **model_kwargs["dtype"])
        group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        group.add_argument("--batch", "-b", **model_kwargs["batch"])
        group.add_argument("--tensor-parallel-size", "-tp", **model_kwargs["tp"])
        group.add_argument("--share", **model_kwargs["share"])
        group.add_argument("--trust-remote-code", **model_kwargs["trust_remote_code"])
        group.add_argument("--names", **model_kwargs["names"])
        group.add_argument("--pair", **model_kwargs["pair"])
        group.add_argument("--rank", **model_kwargs["rank"])
        group.add_argument("--quantization", "-q", **model_kwargs["quantization"])
        group.add_argument("--attention-backend", **model_kwargs["backend"])
        group.add_argument("--hf-overrides", **model_kwargs["hf_overrides"])
        group.add_argument("--sampling", **model_kwargs["sampling"])
        model_kwargs["reasoning_parser"]["type"] = reads_parser
        group.add_argument("--reasoning-parser", **model_kwargs["reasoning_parser"])
        model_kwargs["all2all"]["choices"].remove(PASSTHROUGH)
        group.add_argument("--all2all", **model_kwargs["all2all"])
        choices = model_kwargs["traces"]["choices"]
        model_kwargs["traces"]["choices"] += [",".join(pair) for pair in choices]
        group.add_argument("--traces", **model_kwargs["traces"])

        cache_kwargs = get_kwargs(CacheConfig)
        group.add_argument(
            "--enable-prefix-caching", **{**cache_kwargs["prefix"], "default": None}
        )
        group.add_argument("--load-format", **cache_kwargs["load_format"])
        engine_kwargs = get_kwargs(EngineConfig)
        engine_kwargs["speculative"]["type"] = optional_type(json.loads)
        group.add_argument("--speculative-config", "-sc", **engine_kwargs["speculative"])
        plan_kwargs = get_kwargs(EngineConfig)["plan"]
        plan_kwargs["default"] = argparse.SUPPRESS
        group.add_argument("--plan-config", "-pc", **plan_kwargs)
        parser.add_argument("--gdn", choices=["flashinfer", "triton"], default=None)
        parser.add_argument("--device", choices=["auto"] + others(), default="auto")
        parser.add_argument("--old-way", action=argparse.BooleanOptionalAction, help=_OLD)
        parser.add_argument("--quiet", action="store_true")
        parser.add_argument("--timeout", type=int, default=0)
        parser.add_argument("--optimization-level", **engine_kwargs["level"])
        return parser


class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser, async_args_only=False):
        if not async_args_only:
            parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction)
        return parser
"""

CLI = """\
import json
from typing import Any, Literal

from vllm.config import config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.tool_parsers import ToolParserManager


@config
class BaseFrontendArgs:
    chat_template: str | None = None
    tool_call_parser: str | None = None
    enable_auto_tool_choice: bool = False
    enable_log_outputs: bool = False
    template_kwargs: dict[str, Any] | None = None
    middleware: list[str] = []
    tool_parser_plugin: str = ""

    @classmethod
    def _customize(cls, kwargs):
        kwargs["template_kwargs"]["type"] = json.loads
        return kwargs

    @classmethod
    def add_cli_args(cls, parser):
        from vllm.engine.arg_utils import get_kwargs

        kwargs = get_kwargs(cls)
        kwargs = cls._customize(kwargs)
        group = parser.add_argument_group(title="Frontend")
        for key, value in kwargs.items():
            group.add_argument(f"--{key.replace('_', '-')}", **value)
        return parser


@config
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
    origins: list[str] = []

    @classmethod
    def _customize(cls, kwargs):
        kwargs = super()._customize(kwargs)
        kwargs["origins"]["type"] = json.loads
        del kwargs["origins"]["nargs"]
        kwargs["middleware"]["action"] = "append"
        if "nargs" in kwargs["middleware"]:
            del kwargs["middleware"]["nargs"]
        return kwargs


def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--headless", action="store_true", default=False)
    parser.add_argument("--config")
    parser = FrontendArgs.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser


def validate_parsed_serve_args(args):
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("needs a parser")
    if args.enable_log_outputs and not args.enable_log_requests:
        raise TypeError("needs requests")
"""

MODEL = """\
import enum
from typing import TYPE_CHECKING, Any, Literal, Optional

from pydantic import Field, field_validator

from vllm.config.utils import config

if TYPE_CHECKING:
    from vllm.quantization import Methods
else:
    Methods = Any

DType = Literal["auto", "half", "bfloat16"]
_Mixed = Literal["a", DType]


class Backend(enum.Enum):
    FLASHINFER = "vllm.backends.FlashInfer"
    TRITON = "vllm.backends.Triton"


@config
class ModelConfig:
    model: str = "m"
    dtype: DType = "auto"
    max_model_len: int = None
    batch: int = 1
    tp: int = Field(default=1, ge=1)
    share: float = Field(default=0.9, gt=0, le=1)
    trust_remote_code: bool = False
    names: str | list[str] | None = None
    pair: tuple[int, int] = (1, 2)
    rank: Literal[1, 8, 16] = 8
    quantization: Optional[Methods | str] = None
    backend: Backend | None = None
    hf_overrides: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    reasoning_parser: str = ""
    all2all: Literal["naive", "pplx", "none"] = "naive"
    traces: Literal["model", "worker"] = "model"

    @field_validator("backend", mode="before")
    def validate_backend(cls, value):
        if isinstance(value, str):
            return None if value.lower() == "auto" else Backend[value.upper()]
        return value

    def sampling_defaults(self):
        found = {}
        found.update(self.sampling)
        taken = ["temperature", "top_p", "top_k"]
        return {name: found[name] for name in taken if name in found}
"""

ENGINE = """\
import enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from vllm.config.utils import config

if TYPE_CHECKING:
    from vllm.loader import Formats
else:
    Formats = str

MTP = Literal["mtp", "mimo_mtp"]
Method = Literal["ngram", MTP]


class Level(enum.IntEnum):
    O0 = 0
    O3 = 3


@config
class CacheConfig:
    prefix: bool = True
    load_format: str | Formats = "auto"


@config
class SpeculativeConfig:
    method: Method | None = None
    num_speculative_tokens: int = Field(default=None, gt=0)
    model: str | None = None


@config
class PassConfig:
    fuse: bool = False


@config
class PlanConfig:
    SIZE: ClassVar[int] = 1
    mode: int = 0
    sizes: list[int] | None = None
    passes: PassConfig = Field(default_factory=PassConfig)
    made: int = Field(default=0, init=False)
    free: Any = None

    @field_validator("sizes", mode="wrap")
    def skip_none(cls, value, handler):
        if value is None:
            return value
        return handler(value)


@config
class LooseConfig:
    a: int = 0

    @model_validator(mode="before")
    def rename(cls, values):
        return values


@config
class EngineConfig:
    speculative: SpeculativeConfig | None = None
    plan: PlanConfig = Field(default_factory=PlanConfig)
    level: Level = Level.O3
"""

ENVS = """\
import os

environment_variables = {
    "VLLM_PORT": lambda: int(os.getenv("VLLM_PORT", "0")),
    "VLLM_LEVEL": env_with_choices("VLLM_LEVEL", "low", ["low", "high"]),
    "VLLM_ATOMIC_ADD": lambda: os.environ.get("VLLM_ATOMIC_ADD", "0") == "1",
}
"""

SOURCES = {
    "vllm/__init__.py": "",
    "vllm/_version.py": "__version__ = version = '0.19.1'\n",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": ARGS,
    "vllm/entrypoints/openai/cli_args.py": CLI,
    "vllm/config/__init__.py": (
        "from vllm.config.model import *\n"
        "from vllm.config.engine import CacheConfig, EngineConfig, PlanConfig\n"
        "from vllm.config.utils import config\n"
    ),
    "vllm/config/model.py": MODEL,
    "vllm/config/engine.py": ENGINE,
    "vllm/config/utils.py": "def config(cls):\n    return cls\n",
    "vllm/utils/__init__.py": "",
    "vllm/utils/parsing.py": "class FlexibleArgumentParser:\n    pass\n",
    "vllm/quantization.py": 'from typing import Literal\nMethods = Literal["awq", "gptq", "fp8"]\n',
    "vllm/loader.py": 'from typing import Literal\nFormats = Literal["auto", "hf"]\n',
    "vllm/model_executor/model_loader/__init__.py": (
        '_LOAD_FORMAT_TO_MODEL_LOADER: dict = {"auto": 1, "hf": 1, "tensorizer": 2}\n'
    ),
    "vllm/tool_parsers/__init__.py": (
        '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("a", "B"), "qwen3_coder": ("c", "D")}\n'
    ),
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"qwen3": ("a", "B")}\n',
    "vllm/sampling_params.py": (
        "class SamplingParams(Struct):\n    temperature: float = 1\n    seed: int = 0\n"
    ).replace("class", "@dataclass\nclass"),
    "vllm/envs.py": ENVS,
    "vllm/other.py": 'import os\nX = os.environ.get("VLLM_ELSEWHERE")\n',
    "vllm/transformers_utils/chat_templates/built_in.jinja": "{{ messages }}",
}

FILES = {path: text.encode() for path, text in SOURCES.items()}

LATER = FILES | {
    "vllm/_version.py": b"__version__ = version = '0.20.0'\n",
    "vllm/engine/arg_utils.py": ARGS.replace('"--quiet"', '"--silent"').encode(),
    "vllm/utils/parsing.py": b"""\
from argparse import BooleanOptionalAction


class PairedAction(BooleanOptionalAction):
    _inverse = {"--enable-": "--disable-", "--disable-": "--enable-"}


class FlexibleArgumentParser:
    pass
""",
    "vllm/entrypoints/common/cli_args.py": CLI.encode(),
}
del LATER["vllm/entrypoints/openai/cli_args.py"]
