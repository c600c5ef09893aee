"""Which of two sides is faster here: the same server without mods and with some, started by turns and asked the same."""

import contextlib
import itertools
import json
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.applying.shadow import shadow
from vllm_mods.base import secrets
from vllm_mods.base.errors import Refused, UsageError, refusing_to_write
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.output import write_whole
from vllm_mods.base.tree import Folder
from vllm_mods.formats.schema import decode, encode
from vllm_mods.running import benched_start, ratios
from vllm_mods.running.benched_start import BenchedStart, BenchLoad
from vllm_mods.running.interpreter import check_import

_CONFIDENCE = 0.95
PLAIN = "plain"
"""The name of a side without mods."""


class BenchRow(NamedTuple):
    """A number of both sides, by its name: the mean of their starts', and the ``ratio`` of B to A where there is one."""

    name: str
    means: tuple[float, float]
    ratio: ratios.Ratio | None


class BenchResult(NamedTuple):
    """What a bench found: the two ``sides`` by their mods, a row per number, and all that was measured.

    ``apart`` is how far the log probabilities of the sides are from each other, ``noise`` how far those of starts of
    one side are; ``file`` has the starts, and the ``machine``.
    """

    sides: tuple[str, str]
    rows: tuple[BenchRow, ...]
    apart: float
    noise: float | None
    starts: tuple[BenchedStart, ...]
    machine: Mapping[str, Any]
    file: str


def bench(
    first: Sequence[Mod],
    second: Sequence[Mod],
    command: Sequence[str],
    target: Folder,
    *,
    starts: int = 4,
    load: BenchLoad | None = None,
    output: str = "bench",
    planned: Callable[[Plan], object] | None = None,
    note: Callable[[str], object] = lambda _text: None,
    progress: Callable[[str], object] = lambda _text: None,
) -> BenchResult:
    """Start a server by turns with the mods of either side, none for vLLM as it is, and compare what it does.

    ``command`` is its ``vllm serve …``, ``starts`` are those of each side, ``output`` is the folder for what they
    show: what is in there of the same call is not measured again. Raises ``Refused`` for a folder of another call,
    ``TreeError`` for a server that does not serve, and as ``shadow`` does.

    >>> vm.bench((), vm.Library("library").mods("fast"), ["true"], "site-packages")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    if "serve" not in command[1:]:
        why = "the command must start a server: the word `serve` is not in it"
        raise UsageError(why, hint="-- vllm serve MODEL")
    load = load or BenchLoad()
    sides, copies, environs = [], [], []
    with contextlib.ExitStack() as stack:
        for mods in (first, second):
            environ, copied = dict(os.environ), None
            if mods:
                copy = stack.enter_context(shadow(mods, target, planned=planned))
                environ, copied = copy.environ, copy.root
                for text in (*copy.notes, *check_import(command, copy.root, copy.of, environ)):
                    note(text)
            environ.pop("VLLM_API_KEY", None)  # nobody else comes to 127.0.0.1
            environs.append(environ)
            copies.append(copied)
            sides.append(", ".join(mod.title for mod in mods) or PLAIN)
        variables = {
            k: v for k, v in environs[0].items() if re.match(r"(VLLM|OMP|CUDA)_(?!MODS_)", k)
        }
        asked = {"sides": sides, "copies": copies, "command": [*command], **load._asdict()}
        asked = encode({**asked, "environment": variables})
        if leaks := secrets.problems(asked):
            raise UsageError(leaks[0], hint="leave it out of the command")
        machine, file = _machine(), os.path.join(output, "bench.json")
        done = _read(file, {"schema": 1, "asked": asked, "machine": machine})
        with refusing_to_write(output):
            os.makedirs(output, exist_ok=True)
        order = list(itertools.islice(itertools.cycle("ABBA"), 2 * starts))
        for number, side in enumerate(order[len(done) :], len(done) + 1):
            which, log = "AB".index(side), os.path.join(output, f"start-{number}.log")
            title = f"start {number} of {len(order)}, {sides[which]}"

            def tell(phase: str, title: str = title) -> None:
                progress(f"{title}: {phase}")

            done.append(benched_start.measure(side, command, environs[which], load, log, tell))
            data = {"schema": 1, "asked": asked, "machine": machine, "starts": encode(done)}
            with refusing_to_write(file):
                write_whole(file, json.dumps(data, indent=1).encode())
    return _result((sides[0], sides[1]), done, machine, file)


def _read(file: str, head: Mapping[str, Any]) -> list[BenchedStart]:
    """Return what was measured before by the same call. Raises ``Refused`` for what another one left."""
    try:
        with open(file, "rb") as opened:
            data = json.load(opened)
        starts = [decode(BenchedStart, each) for each in data.pop("starts")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError) as error:
        raise Refused(f"{file} cannot be read: {error}", hint="--output DIR") from error
    if data == head:
        return starts
    asked = data.get("asked", {})
    other = [key for key, value in head["asked"].items() if asked.get(key) != value] or ["machine"]
    why = f"{file} is of a bench with different values ({', '.join(other)}); nothing was started"
    raise Refused(why, hint="--output DIR  # a new folder")


def _machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "processor": model[1] if model else "",
        "processors": os.cpu_count(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "gpus": benched_start.gpus("name"),
    }


def _result(
    sides: tuple[str, str], starts: Sequence[BenchedStart], machine: Mapping[str, Any], file: str
) -> BenchResult:
    """Return what the starts show. All intervals hold together with 95 %, so that none of many is found by chance."""
    of_a, of_b = ([one for one in starts if one.side == side] for side in "AB")
    numbers: dict[str, tuple[list[float], list[float]]] = {}
    for name in starts[0].numbers:
        first = name == "start-up"  # the first start of each side fills caches
        a, b = (
            [one.numbers[name] for one in side[first:] if name in one.numbers]
            for side in (of_a, of_b)
        )
        if a and b:
            numbers[name] = (a, b)
    compared = [
        name for name, (a, b) in numbers.items() if min(len(a), len(b)) > 1 and min(*a, *b) > 0
    ]
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(compared))
    rows = tuple(
        BenchRow(
            name,
            (statistics.fmean(a), statistics.fmean(b)),
            ratios.compare(a, b, confidence) if name in compared else None,
        )
        for name, (a, b) in numbers.items()
    )
    own = [
        ratios.farthest(one.logprobs, other.logprobs)
        for side in (of_a, of_b)
        for one, other in itertools.combinations(side, 2)
    ]
    apart = statistics.median(ratios.farthest(a.logprobs, b.logprobs) for a in of_a for b in of_b)
    return BenchResult(sides, rows, apart, max(own, default=None), tuple(starts), machine, file)
