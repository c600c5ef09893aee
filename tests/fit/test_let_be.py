"""What working plugins do, and looks wrong at first: each is let be, and its broken neighbour is not."""

from __future__ import annotations

import pytest
from fit_tree import errors

FILES = {
    "vllm/__init__.py": "",
    "vllm/envs.py": """
        names = {"VLLM_" + "PORT": 1}


        def __getattr__(name):
            if name in {"VLLM_PORT"}:
                return names[name]
            raise AttributeError(name)
    """,
    "vllm/base.py": """
        class Backend:
            @staticmethod
            def shape(blocks, size, kind="auto"):
                return blocks, size

            def mha(self, q, k, output): ...


        class Flash(Backend): ...


        class Eager(Backend): ...


        def load(name):
            return name


        def blocks(backend: type[Backend], number):
            kinds = tuple(one for one in (Flash, load(Eager)) if one is not None)
            if not issubclass(backend, kinds):
                raise NotImplementedError(backend)
            return lambda size: backend.shape(number, size, "auto")


        def run(backend: Backend, q):
            return backend.mha(q, q, output=None)
    """,
    "vllm/mine.py": """
        from vllm import envs
        from vllm.base import Backend, Flash


        class Mine(Backend):
            x = 1
    """,
}
SHAPE = "@staticmethod\n    def shape(blocks, size):\n        return blocks, size"
RAISES = 'raise NotImplementedError("call forward")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "line", "wrong"),
    [
        ("Backend", SHAPE, ""),
        ("Flash", SHAPE, "passes 3 positional arguments where 2 fit"),
        ("Backend", f"def mha(self, name):\n        {RAISES}", ""),
        ("Backend", f'def mha(self, name):\n        """Not here."""\n        {RAISES}', ""),
        ("Backend", f"def mha(self, name):\n        print(name)\n        {RAISES}", "passes 2"),
        ("Backend", "try:\n        y = envs.VLLM_HOST\n    except Exception:\n        y = 1", ""),
        ("Backend", "try:\n        y = envs.VLLM_HOST\n    except KeyError:\n        y = 1", "VLLM_HOST"),
        (
            "Backend",
            "def groups(self, of: dict[Backend, int]):\n        for (a, b), c in of.items():\n            print(a, b, c)",
            "",
        ),
        (
            "Backend",
            "def groups(self, of: list[Backend]):\n        for a in of:\n            for b in a:\n                print(b)",
            "not iterable",
        ),
    ],
)
def test_what_looks_wrong_and_works_is_let_be(base: str, line: str, wrong: str) -> None:
    pairs = ("x = 1", line), ("Mine(Backend)", f"Mine({base})")
    found = [one.message for one in errors("vllm/mine.py", *pairs, files=FILES)]
    assert [message for message in found if wrong in message] == found
    assert bool(found) is bool(wrong)
