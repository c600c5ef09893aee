"""Version, prove, apply and revert patches ("mods") to an installed vLLM.

    import vllm_mods as vm

    mods = vm.Library("./mods").mods("hybrid-int4-fp8")   # the bundled ones too
    planned = vm.plan(mods, vm.open_tree("pypi:0.21.0"))  # reads only
    done = vm.apply(mods, "/opt/venv/lib/python3.12/site-packages")
    vm.status(done.target), vm.verify(done.target)
    vm.revert(done.target)

    Library      mods and pairings by name: the bundled ones, and folders of your own
    open_tree    a vLLM to read: installed, a release, a wheel, a revision, an image
    plan         what mods would do to a tree, and whether they fit; nothing is written
    apply        put mods into an installed vLLM, whole or not at all
    revert       take mods out again
    status       which mods are in
    verify       whether what they put in is still as they left it
    matrix       a verdict for each mod on each of many trees

    Tree         what open_tree returns: a protocol, so that a tree may be one of your own
    Plan         what plan returns: ok, version, mods (ModPlan), changes
    ModPlan      one mod of it: mod, variant, verdict (Verdict), findings (Finding), changes

    VllmModsError, with message and hint, is every error: UsageError, ManifestError, DiffError,
    TreeError (Unreachable among them), NotRendered, Refused (nothing was changed; its plan says
    why), NotRestored.

help(vllm_mods.plan) and so on say what goes in and comes out, with an example. What is not named
here is private, modules included: it may change with any release.
"""

# Nothing is imported here: `python -m vllm_mods` runs this before it has made the current folder no
# place to import from.
TYPE_CHECKING = False
__version__ = "0.1.0"

# The public names, by the module that each is loaded from when it is first asked for. No `__all__`:
# with it, help() would print every class whole, down to what a tuple can do.
_PUBLIC = {
    "library.catalog": ("Library",),
    "trees.open": ("open_tree",),
    "api.apply": ("plan", "apply", "revert", "status", "verify"),
    "matrices.whole": ("matrix",),
    "base.tree": ("Tree",),
    "base.model": ("Plan", "ModPlan", "Verdict", "Finding"),
    "base.errors": (
        *("VllmModsError", "UsageError", "ManifestError", "DiffError", "TreeError"),
        *("Unreachable", "NotRendered", "Refused", "NotRestored"),
    ),
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}

if TYPE_CHECKING:
    from vllm_mods.api.apply import apply as apply
    from vllm_mods.api.apply import plan as plan
    from vllm_mods.api.apply import revert as revert
    from vllm_mods.api.apply import status as status
    from vllm_mods.api.apply import verify as verify
    from vllm_mods.base.errors import DiffError as DiffError
    from vllm_mods.base.errors import ManifestError as ManifestError
    from vllm_mods.base.errors import NotRendered as NotRendered
    from vllm_mods.base.errors import NotRestored as NotRestored
    from vllm_mods.base.errors import Refused as Refused
    from vllm_mods.base.errors import TreeError as TreeError
    from vllm_mods.base.errors import Unreachable as Unreachable
    from vllm_mods.base.errors import UsageError as UsageError
    from vllm_mods.base.errors import VllmModsError as VllmModsError
    from vllm_mods.base.model import Finding as Finding
    from vllm_mods.base.model import ModPlan as ModPlan
    from vllm_mods.base.model import Plan as Plan
    from vllm_mods.base.model import Verdict as Verdict
    from vllm_mods.base.tree import Tree as Tree
    from vllm_mods.library.catalog import Library as Library
    from vllm_mods.matrices.whole import matrix as matrix
    from vllm_mods.trees.open import open_tree as open_tree
else:

    def __getattr__(name: str) -> object:
        """Load a public name from its module (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415  (when something is asked for)

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return [*_HOMES, "__version__"]
