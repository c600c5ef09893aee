"""``python -m vllm_mods`` and the ``vllm-mods`` script."""

from __future__ import annotations

import gc
import os
import signal
import sys

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if __name__ == "__main__" and not sys.flags.safe_path and os.path.abspath(sys.path[0]) != _HERE:
    # `python -m` looks into the current folder before the standard library: in a tree from a stranger
    # a json.py would be run.
    del sys.path[0]


def main() -> None:
    """Run the command line and exit with its code."""
    _streams()
    # Nearly all that a command makes at first stays; looking for garbage in it takes 3 % of a `check`.
    gc.set_threshold(50_000)
    for sent in (signal.SIGTERM, signal.SIGHUP):  # what was begun is ended, as after Ctrl-C
        if signal.getsignal(sent) == signal.SIG_DFL:  # under nohup one is ignored
            signal.signal(sent, signal.default_int_handler)
    code = 1
    try:
        from vllm_mods.cli import run  # noqa: PLC0415

        code = run(sys.argv[1:])
        sys.stderr.flush()
    except KeyboardInterrupt:  # while modules were loaded
        code = 130
    except (
        OSError
    ):  # nobody reads what is said on stderr, nor what Python would say of that at its end
        code = code or 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gc.freeze()  # the end looks for garbage twice more, and all of it goes with the process
    sys.exit(code)


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
