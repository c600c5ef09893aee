"""What the type checker is told of packages outside the tree: enough for a class below one of theirs to be a known one.

Nothing else of these packages is stated: any other name of theirs is anything at all. Keys are paths below a folder
that the checker searches, values the text of the stub.
"""

from vllm_mods.fit.hierarchy import TORCH_MODULE

_ANY = "def __getattr__(name: str) -> Any: ...\n"

_TORCH = f"""
from typing import Any, Callable, TypeVar, overload

from torch import nn as nn

_F = TypeVar("_F", bound=Callable[..., Any])

class _Mode:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: Any) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...

@overload
def no_grad(function: _F, /) -> _F: ...
@overload
def no_grad() -> _Mode: ...
@overload
def enable_grad(function: _F, /) -> _F: ...
@overload
def enable_grad() -> _Mode: ...
@overload
def inference_mode(mode: bool = ...) -> _Mode: ...
@overload
def inference_mode(function: _F, /) -> _F: ...
{_ANY}"""

_MODULE = (
    """
from typing import Any

class Module:
    training: bool
    def __init__(self, *args: Any, **options: Any) -> None: ...
    def __call__(self, *args: Any, **options: Any) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __delattr__(self, name: str) -> None: ...
"""
    + "".join(f"    {name}: Any\n" for name in sorted(TORCH_MODULE - {"training"}))
    + _ANY
)

_PYDANTIC = f"""
from typing import Any, ClassVar
from typing_extensions import dataclass_transform

def Field(default: Any = ..., *, default_factory: Any = ..., alias: str = ..., init: bool = ..., **rest: Any) -> Any: ...
def PrivateAttr(default: Any = ..., *, default_factory: Any = ..., init: bool = ..., **rest: Any) -> Any: ...

@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class _Meta(type):
    def __getattr__(cls, name: str) -> Any: ...

class BaseModel(metaclass=_Meta):
    model_config: ClassVar[Any]
    model_fields: ClassVar[Any]
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

{_ANY}"""

_MSGSPEC = f"""
from typing import Any, ClassVar
from typing_extensions import dataclass_transform

def field(*, default: Any = ..., default_factory: Any = ..., name: str | None = ...) -> Any: ...

@dataclass_transform(field_specifiers=(field,))
class _Meta(type): ...

class Struct(metaclass=_Meta):
    __struct_fields__: ClassVar[Any]
    __struct_config__: ClassVar[Any]
    def __init_subclass__(cls, **options: Any) -> None: ...

{_ANY}"""

_TRITON = f"""
from typing import Any, Callable, Generic, ParamSpec, overload

_P = ParamSpec("_P")

class _Kernel(Generic[_P]):
    def __getitem__(self, grid: Any) -> Callable[_P, Any]: ...
    def __call__(self, *args: _P.args, **options: _P.kwargs) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

@overload
def jit(function: Callable[_P, Any], /) -> _Kernel[_P]: ...
@overload
def jit(**options: Any) -> Callable[[Callable[_P, Any]], _Kernel[_P]]: ...
{_ANY}"""

STUBS = {
    "torch/__init__.pyi": _TORCH,
    "torch/nn/__init__.pyi": f"from typing import Any\nfrom torch.nn.modules import Module as Module\n{_ANY}",
    "torch/nn/modules/__init__.pyi": f"from typing import Any\nfrom torch.nn.modules.module import Module as Module\n{_ANY}",
    "torch/nn/modules/module.pyi": _MODULE,
    "pydantic/__init__.pyi": _PYDANTIC,
    "msgspec/__init__.pyi": _MSGSPEC,
    "triton/__init__.pyi": _TRITON,
}
# Which of two modules that vLLM's own switch gives depends on what is installed: the real one is meant.
BESIDE = {
    "vllm/triton_utils/__init__.py": f"from typing import Any\nimport triton as triton\ntl: Any\n{_ANY}"
}
