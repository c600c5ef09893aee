"""``python -m vllm_mods`` and the ``vllm-mods`` script."""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if __name__ == "__main__" and not sys.flags.safe_path and os.path.abspath(sys.path[0]) != _HERE:
    # `python -m` looks into the current folder before the standard library: in a tree from a stranger
    # a json.py would be run.
    del sys.path[0]

import gc  # noqa: E402  (behind what keeps these imports safe)
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402


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
    _streams()
    code = 1
    try:
        from vllm_mods.cli import run  # noqa: PLC0415

        code = run(sys.argv[1:])
        # All is printed and on disk. Taking the interpreter apart, module by module, would cost as
        # much time as half a bare start.
        sys.stderr.flush()
    except KeyboardInterrupt:  # while modules were loaded
        code = 130
    except OSError:  # nobody reads what is said on stderr
        code = code or 1
    os._exit(code)


def _streams() -> None:
    """Make the standard streams such that nothing that is printed can fail for its characters.

    One that was closed (``>&-``) is opened on nothing, or the next file to be opened, one of the tree
    perhaps, would be taken for it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115
        elif number and stream.errors == "strict":
            # A path need not be text; a locale need not know an arrow.
            utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
        elif number and stream.errors == "surrogateescape" and stream.encoding == "ascii":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
