"""``python -m vllm_mods`` and the ``vllm-mods`` script."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType
from typing import Any


class _Inspect(ModuleType):
    """Stands in for ``inspect`` until somebody needs it.

    click imports it for ``cleandoc`` alone, and with it come the tokenizer, the syntax tree and
    the disassembler: a tenth of the time that ``apply`` takes.
    """

    def cleandoc(self, text: str) -> str:
        if "\n" not in text and not text[:1].isspace():
            return text
        cleaned: str = self.__getattr__("cleandoc")(text)
        return cleaned

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever ``inspect`` has)
        del sys.modules[self.__name__]
        import inspect  # noqa: PLC0415

        vars(self).update(vars(inspect))
        return getattr(inspect, name)


def main() -> None:
    """Run the command line and exit with its code."""
    # A run is short and allocates little: collecting while modules load costs a tenth of its time.
    gc.disable()
    sys.modules.setdefault("inspect", _Inspect("inspect"))
    from vllm_mods.cli import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    # All is printed and on disk. Taking the interpreter apart, module by module, would cost as
    # much time as half a bare start.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
