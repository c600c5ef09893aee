"""Libraries that only images need: the extra ``image``."""

from __future__ import annotations

import importlib
from typing import Any

from vllm_mods.errors import UsageError


def needed(module: str) -> Any:  # noqa: ANN401  (a module)
    """Import a library of the extra. Raises ``UsageError`` that says how to have it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"this image cannot be read without `{error.name}`, which is not installed",
            hint="pip install 'vllm-mods[image]'",
        ) from error
