"""Three small releases of a vLLM of our own: two layouts, lines that move, text that goes."""

from __future__ import annotations

ENVS = '''"""Settings."""
import os

SETTINGS = {
    "VLLM_TIMEOUT": lambda: int(os.getenv("VLLM_TIMEOUT", "10000")),
    "VLLM_KEEP_ALIVE": lambda: int(os.environ.get("VLLM_KEEP_ALIVE", "5")),
    "VLLM_USE_FAST": lambda: os.environ.get("VLLM_USE_FAST", "0") == "1",
}
'''
LOADER = '''"""Loading."""
import os


class Loader:
    def load(self, name):
        path = os.path.join("weights", name)
        return path

    def close(self):
        return None


class Saver:
    def save(self, name):
        path = os.path.join("weights", name)
        return path
'''
BACKEND = '''"""Attention."""


class Backend:
    block_size = 16

    def forward(self, query, key):
        scale = 1.0
        if query is None:
            raise ValueError("query")
        return query * key * scale

    def supports(self, capability):
        return capability >= 90


def choose(capability):
    if capability >= 90:
        return Backend()
    raise RuntimeError("no backend")
'''
OPS = '''"""Operations."""


def add(left, right):
    return left + right


def scale(value, by=1.0):
    """Scale a value."""
    return value * by
'''
PARSERS = '''"""Parsers by name."""
PARSERS = {
    "plain": "vllm.parsers.plain",
    "qwen": "vllm.parsers.qwen",
}
'''
PLAIN = '''"""The plain parser."""


def parse(text):
    return text
'''
CONFIG = '''"""Configuration."""
from vllm.envs import SETTINGS

MAX_LEN = 4096


def check(config):
    if config.get("max_len", MAX_LEN) > MAX_LEN:
        raise ValueError("too long")
    return SETTINGS
'''


def _release(version: str, files: dict[str, str]) -> dict[str, bytes]:
    whole = {
        "vllm/__init__.py": f'__version__ = "{version}"\n',
        "vllm/envs.py": ENVS,
        "vllm/attention/__init__.py": "",
        "vllm/attention/backend.py": BACKEND,
        "vllm/attention/ops.py": OPS,
        "vllm/parsers/__init__.py": PARSERS,
        "vllm/parsers/plain.py": PLAIN,
        "vllm/config.py": CONFIG,
        **files,
    }
    return {path: text.encode() for path, text in whole.items()}


RELEASES: dict[str, dict[str, bytes]] = {
    "0.21.0": _release("0.21.0", {"vllm/loader.py": LOADER}),
    # lines move, a constant has another value
    "0.22.0": _release(
        "0.22.0",
        {
            "vllm/loader.py": LOADER,
            "vllm/attention/backend.py": BACKEND.replace(
                '"""Attention."""\n', '"""Attention."""\nimport math\n\nPI = math.pi\n'
            ),
            "vllm/config.py": CONFIG.replace("4096", "8192"),
        },
    ),
    # the loader is elsewhere, the backend has another shape
    "0.23.0": _release(
        "0.23.0",
        {
            "vllm/model_executor/__init__.py": "",
            "vllm/model_executor/loader.py": LOADER.replace("weights", "checkpoints"),
            "vllm/attention/backend.py": BACKEND.replace(
                "scale = 1.0", "scale = self.scale()"
            ).replace(
                "    block_size = 16\n",
                "    block_size = 32\n\n    def scale(self):\n        return 1.0\n",
            ),
            "vllm/config.py": CONFIG.replace("4096", "8192"),
        },
    ),
}
