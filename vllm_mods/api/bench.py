"""Which of two sides is faster here: one server with the mods of each, started by turns and asked the same."""

import contextlib
import functools
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from vllm_mods.applying.shadow import shadow
from vllm_mods.base import limits, secrets
from vllm_mods.base.errors import ManifestError, Refused, UsageError, refusing_to_write
from vllm_mods.base.model import Mod
from vllm_mods.base.output import write_whole
from vllm_mods.base.tree import Folder
from vllm_mods.formats import container, receipt
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.schema import decode, encode
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.images import engine_command
from vllm_mods.running import benched_start, evidence, ratios
from vllm_mods.running.benched_start import BenchedStart, BenchLoad
from vllm_mods.running.interpreter import check_import
from vllm_mods.trees.folder import find_site_root

PLAIN = "plain"
"""The name of a side without mods."""
_DOUBT = 0.05
_UNREACHABLE = re.compile(r"--(uds|headless|ssl[-_]|api[-_]key|grpc\Z)")
_VARIABLES = re.compile(r"(VLLM|OMP|CUDA|TORCH)_(?!MODS_|API_KEY)")


class BenchResult(NamedTuple):
    """What a bench found: its ``sides``, how each number differs, and what each start showed.

    ``apart`` is how far the log probabilities of the sides are from each other, ``noise`` how far those of two starts
    of one side. ``asked`` and ``machine`` are what it holds for.
    """

    sides: Sequence[str]
    numbers: Mapping[str, ratios.Ratio]
    apart: float
    noise: float | None
    starts: tuple[BenchedStart, ...]
    asked: Mapping[str, Any]
    machine: Mapping[str, Any]


def bench(
    first: Sequence[Mod],
    second: Sequence[Mod],
    command: Sequence[str],
    target: Folder,
    *,
    output: str,
    pairings: Sequence[Pairing | None] = (None, None),
    starts: int = 4,
    load: BenchLoad | None = None,
    note: Callable[[str], object] = lambda _text: None,
) -> BenchResult:
    """Start a server by turns with the mods of either side, or without any, and compare what it does.

    ``command`` is its ``vllm serve …``, ``starts`` are those of each side. A side that is one of the ``pairings`` has
    that one's environment, and its command where ``command`` is empty. The folder ``output`` keeps what they
    show: what the same call left there is not measured again. Raises ``Refused`` for a folder of another call,
    ``TreeError`` for a server that does not serve, and as ``shadow``.

    >>> vm.bench((), vm.Library("library").mods("fast"), ["true"], "site-packages", output="measured")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: plain needs a command that serves HTTP on a port, without a key; this one has no word `serve`
    """
    target, load = find_site_root(os.fspath(target)), load or BenchLoad()
    asked: dict[str, Any] = load._asdict()
    with contextlib.ExitStack() as stack:
        prepare = functools.partial(_prepared, stack, target, command)
        sides = [prepare(*side) for side in zip((first, second), pairings, strict=True)]
        for text in (text for side in sides for text in side.notes):
            note(text)
        titles = [side.title for side in sides]
        asked |= {"sides": titles, "copies": [side.root for side in sides]}
        asked["commands"] = [side.command for side in sides]
        asked["environments"] = [
            {name: text for name, text in side.environ.items() if _VARIABLES.match(name)}
            for side in sides
        ]
        if leaks := secrets.problems(asked):
            hint = "env --unset=NAME vllm-mods bench A B -- vllm serve MODEL"
            raise UsageError(leaks[0], hint=hint)
        head = encode({"schema": 1, "asked": asked, "machine": _machine()})
        file, done = f"{output}/bench.json", _read(f"{output}/bench.json", head)
        with refusing_to_write(output):
            os.makedirs(output, exist_ok=True)
        order = ("ABBA" * starts)[: 2 * starts]
        for number, side in enumerate(order[len(done) :], len(done) + 1):
            which, log = "AB".index(side), f"{output}/start-{number}.log"
            note(f"start {number} of {len(order)}: {titles[which]}")
            done.append(
                benched_start.measure(side, sides[which].command, sides[which].environ, load, log)
            )
            with refusing_to_write(file):
                write_whole(file, json.dumps({**head, "starts": encode(done)}, indent=1).encode())
            with open(log, "rb") as said:
                seen = evidence.of_mods((first, second)[which], said.read(limits.LOG))
            for mod in seen.mods:
                if not mod.ok:
                    note(f"nothing in {log} shows that the code of {mod.name} ran")
    return _result(done, asked, head["machine"])


class _Side(NamedTuple):
    """How the servers of a side are started; ``root`` is the copy of vLLM that they import, if any."""

    title: str
    root: str
    command: Sequence[str]
    environ: Mapping[str, str]
    notes: Sequence[str]


def _prepared(
    stack: contextlib.ExitStack,
    target: str,
    command: Sequence[str],
    mods: Sequence[Mod],
    pairing: Pairing | None,
) -> _Side:
    copy = stack.enter_context(shadow(mods, target)) if mods else None
    title, environ = ", ".join(mod.title for mod in mods) or PLAIN, dict(os.environ)
    templates: Mapping[str, str] = {}
    notes: list[str] = []
    if copy is not None:
        environ = copy.environ
        templates = copy.plan.template_paths(f"{copy.root}/{receipt.TEMPLATES}")
    if pairing is not None:
        title, own = pairing.name, taken_over(pairing, mods).pairing
        env, command = (own.env, command) if command else container.served(own, templates)[:2]
        differing = [name for name in env if os.environ.get(name, env[name]) != env[name]]
        notes = [f"{name} of {title} is not used: it has another value here" for name in differing]
        environ = {**env, **environ}
    flag = next((word for word in command if _UNREACHABLE.match(word)), "").partition("=")[0]
    if flag or "serve" not in command[1:]:
        what = f"this one has {flag or 'no word `serve`'}" if command else "there is none"
        why = f"{title} needs a command that serves HTTP on a port, without a key; {what}"
        raise UsageError(why, hint="vllm-mods bench A B -- vllm serve MODEL")
    if copy is None:
        return _Side(title, "", command, environ, notes)
    notes += (*copy.notes, *check_import(command, copy.root, copy.of, environ))
    return _Side(title, copy.root, command, environ, notes)


def _read(file: str, head: Mapping[str, Any]) -> list[BenchedStart]:
    """Return what the same call measured before. Raises ``Refused`` for what another one left."""
    try:
        with open(file, "rb") as opened:
            data = json.load(opened)
        done = [decode(BenchedStart, start) for start in data.pop("starts")]
        other = [key for key in head["asked"] if data["asked"].get(key) != head["asked"][key]]
    except FileNotFoundError:
        return []
    except (ManifestError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refused(f"{file} cannot be read: {error}", hint="--output NEW_DIR") from error
    if data == head:
        return done
    why = f"{file} has results of another bench command, with another {' and '.join(other) or 'machine'}; nothing was started"
    raise Refused(why, hint="--output NEW_DIR")


def _machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as file:
        processors = Counter(re.findall(r"model name\s*: (.*)", file.read()))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts = {"system": " ".join(os.uname()[::2]), "processors": processors, "memory": memory}
    return {**facts, "gpus": engine_command.gpus("name")}


def _result(
    starts: Sequence[BenchedStart], asked: Mapping[str, Any], machine: Mapping[str, Any]
) -> BenchResult:
    """Return what the starts show. The intervals hold together: of many numbers none is to differ by chance."""
    sides = [[start for start in starts if start.side == side] for side in "AB"]
    names, numbers = [*dict.fromkeys(name for start in starts for name in start.numbers)], {}
    for name in names:
        begin = int(name.startswith("start-up"))  # the first one of a side fills caches
        a, b = ([start.numbers.get(name, 0.0) for start in side[begin:]] for side in sides)
        if a and b:
            numbers[name] = ratios.compare(a, b, 1 - _DOUBT / len(names))
    own = [_distance(*two) for side in sides for two in itertools.combinations(side, 2)]
    apart = median(_distance(*two) for two in itertools.product(*sides))
    noise = max(own, default=None)
    return BenchResult(asked["sides"], numbers, apart, noise, tuple(starts), asked, machine)


def _distance(one: BenchedStart, other: BenchedStart) -> float:
    """Return the largest difference of two starts' log probabilities."""
    return max((abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=False)), default=0)
