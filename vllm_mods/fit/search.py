"""Text searches: which files mention a name. They come before any parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vllm_mods.fit.world import World

# How many files of a remote tree a search may read.
REMOTE_READS = 24
# Where vLLM calls into its models, layers and quantization methods.
_CALLERS = (
    "vllm/config/vllm.py",
    "vllm/config/model.py",
    "vllm/model_executor/model_loader/weight_utils.py",
    "vllm/model_executor/model_loader/utils.py",
    "vllm/model_executor/model_loader/base_loader.py",
    "vllm/model_executor/model_loader/default_loader.py",
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/v1/worker/gpu_worker.py",
    "vllm/model_executor/layers/linear.py",
    "vllm/model_executor/layers/fused_moe/layer.py",
    "vllm/model_executor/layers/quantization/__init__.py",
)


def _shared(one: str, other: str) -> int:
    """Count the folders that two paths have in common."""
    count = 0
    for left, right in zip(one.split("/"), other.split("/"), strict=False):
        if left != right:
            break
        count += 1
    return count


def candidates(world: World, near: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Return the Python files that a search reads, and whether these are all there are.

    A remote tree is read file by file over the network, so there only the files where
    vLLM's callers live are asked: beside ``near``, then the configuration, the model
    loader and the worker.
    """
    if world.python is None:
        roots = sorted(world.roots)
        found = (path for root in roots for path in world.paths(root) if path.endswith(".py"))
        world.python = tuple(sorted(found))
    every = world.python
    if not world.tree.remote:
        return every, True
    near = tuple(near)
    folders = tuple(path.rpartition("/")[0] for path in near)

    def distance(path: str) -> tuple[int, int, str]:
        folder = path.rpartition("/")[0]
        for rank, wanted in enumerate(_CALLERS):
            if path.startswith(wanted):
                return (0 if rank < 2 else 1, rank, path)
        if folder in folders:
            return (2, 0, path)
        shared = max((_shared(folder, other) for other in folders), default=0)
        return (3, -shared, path)

    ranked = [path for path in near if path in every]
    ranked += [path for path in sorted(every, key=distance) if path not in ranked]
    chosen = tuple(ranked[:REMOTE_READS])
    return chosen, len(chosen) == len(every)


def files_mentioning(
    world: World, words: frozenset[bytes], near: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield each file (and its bytes) that mentions one of some identifiers."""
    for path in candidates(world, near)[0]:
        data = world.glance(path)
        if data is None:
            continue
        if len(words) <= 24:
            found = any(word in data for word in words)
        else:
            found = not words.isdisjoint(re.findall(rb"[A-Za-z_]\w*", data))
        if found:
            world.consulted.add(path)
            yield path, data
