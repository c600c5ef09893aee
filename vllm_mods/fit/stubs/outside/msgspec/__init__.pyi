from typing import Any, ClassVar
from typing_extensions import dataclass_transform

def field(*, default: Any = ..., default_factory: Any = ..., name: str | None = ...) -> Any: ...

@dataclass_transform(field_specifiers=(field,))
class _Meta(type): ...

class Struct(metaclass=_Meta):
    __struct_fields__: ClassVar[Any]
    __struct_config__: ClassVar[Any]
    def __init_subclass__(cls, **options: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
