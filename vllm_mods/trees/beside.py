"""The packages beside a vLLM, held against what its own METADATA requires of them."""

from collections.abc import Iterator

from vllm_mods.base import versions
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.formats.tree_names import canonical
from vllm_mods.trees.packages import MODULES, read_packages

# An extension that is built for GPUs only.
_OF_GPU = "vllm/cumem_allocator.abi3.so"


def unmet(tree: Tree, *, elsewhere: bool = False) -> Iterator[tuple[Finding, str | None]]:
    """Yield the packages in a site root that are not of the versions that vLLM requires, each with what to do about it.

    With ``elsewhere``, those that are not in it are a note, and each requirement is parsed. An image's folders are not listed: there
    it is known of ``MODULES`` alone.
    """
    present = read_packages(tree, MODULES, every=elsewhere)
    if present.why:
        message = f"what this vLLM requires could not be read: {present.why}"
        yield _wrong(message, "pip install --force-reinstall --no-deps vllm")
    absent = []
    for required in present.wanted:
        version = present.installed.get(canonical(required.name))
        if version is None:
            absent.append(required.name)
            continue
        known = versions.parse(version)  # None: somebody's own, of which nothing is known
        if known is not None and not required.specifier.contains(known, prereleases=True):
            wanted = f"{required.name}{required.specifier}"
            said = f"{required.name} {version} is installed, but this vLLM requires {wanted}"
            yield _wrong(said, f"pip install '{wanted}'")
    torch, python, cubin = map(present.installed.get, MODULES)
    if torch and torch.endswith("+cpu") and tree.read(_OF_GPU) is not None:
        yield _wrong(
            f"torch {torch} is built for a CPU, but this vLLM is built for a GPU (it has {_OF_GPU})",
            "pip install --force-reinstall torch, from the package index for your CUDA or ROCm",
        )
    if python and cubin and python.partition("+")[0] != cubin.partition("+")[0]:
        said = f"flashinfer-python {python} does not work with flashinfer-cubin {cubin}, which is installed"
        yield _wrong(said, f"pip install flashinfer-cubin=={python}")
    if elsewhere and absent:
        few = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
        where = f"are not in {tree.root}" if tree.root else "were not searched for"
        said = f"packages that this vLLM requires {where} ({len(absent)}): {few}"
        yield Finding(FindingCode.REQUIREMENT_ELSEWHERE, said, level=Level.NOTE), None


def _wrong(said: str, hint: str) -> tuple[Finding, str]:
    return Finding(FindingCode.UNMET_REQUIREMENT, said), hint
