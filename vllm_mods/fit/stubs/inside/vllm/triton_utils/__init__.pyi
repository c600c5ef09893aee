# Which of two modules vLLM's own switch gives depends on what is installed: the real one is meant.
from typing import Any
import triton as triton
tl: Any
def __getattr__(name: str) -> Any: ...
