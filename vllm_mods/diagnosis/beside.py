"""The packages beside an installed vLLM, held against what its own METADATA requires of them."""

import platform
import re
from collections.abc import Iterator

from vllm_mods.base import versions
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.base.tree import Tree
from vllm_mods.diagnosis.diagnosis import Trouble
from vllm_mods.formats import tree_names
from vllm_mods.formats.tree_names import canonical
from vllm_mods.trees import packages

# An extension that is built for GPUs only.
_OF_GPU = "vllm/cumem_allocator.abi3.so"
_PYTHON = re.compile(r"/python(3\.\d+)/")


def requirement_troubles(tree: Tree) -> Iterator[Trouble]:
    """Yield the packages in a site root that are not of the versions that vLLM requires; those that are elsewhere are a note."""
    named = tree_names.dist_infos(tree.folders())
    own = next((folder for folder, (name, _) in named.items() if name == "vllm"), None)
    if own is None or tree.root is None:
        return
    installed = {canonical(name): version for name, version in named.values()}
    python = _PYTHON.search(f"{tree.root}/")
    machine = packages.markers(
        python[1] if python else ".".join(platform.python_version_tuple()[:2]), platform.machine()
    )
    absent = []
    for required in packages.needs(tree.read(f"{own}/METADATA") or b"", machine):
        version = installed.get(canonical(required.name))
        if version is None:
            absent.append(required.name)
            continue
        known = versions.parse(version)  # None: somebody's own, of which nothing is known
        if known is not None and not required.specifier.contains(known, prereleases=True):
            yield Trouble(
                FindingCode.UNMET_REQUIREMENT,
                f"{required.name} {version} is installed, but this vLLM requires {required.name}{required.specifier}",
                f"pip install '{required.name}{required.specifier}'",
            )
    torch = installed.get("torch", "")
    if torch.endswith("+cpu") and tree.read(_OF_GPU) is not None:
        yield Trouble(
            FindingCode.UNMET_REQUIREMENT,
            f"torch {torch} is built for a CPU, but this vLLM is built for a GPU: it has {_OF_GPU}",
            "pip install --force-reinstall torch, from the package index for your CUDA or ROCm",
        )
    if absent:
        named_few = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
        yield Trouble(
            FindingCode.REQUIREMENT_ELSEWHERE,
            f"{len(absent)} of the packages that this vLLM requires are not in {tree.root}: {named_few}",
            level=Level.NOTE,
        )
