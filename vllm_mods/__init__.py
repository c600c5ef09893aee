"""Version, prove, apply and revert patches ("mods") to an installed vLLM.

    import vllm_mods as vm

    mods = vm.Library("./mods").mods("hybrid-int4-fp8")   # the bundled ones too
    planned = vm.plan(mods, "pypi:0.21.0")                # reads only
    done = vm.apply(mods, "/opt/venv/lib/python3.12/site-packages")
    vm.status(done.target), vm.verify(done.target)
    vm.revert(done.target)

Libraries and trees
    Library, open_library   mods and pairings by name: bundled ones, folders, a project's
    open_tree, Access       a vLLM to read: installed, a release, a wheel, a revision, an image
Mods in a vLLM
    plan, check             what mods would do to a tree, and whether they fit it and a model
    apply, revert, sync     put mods in, whole or not at all; take them out; hold exactly some
    status, verify          which mods are in, and whether they are as they were left
Mods over time
    matrix, bisect          verdicts on many trees; the commit that changes one
    new, port               make a mod of changes; carry it to another vLLM
Pairings and images
    suggest, serve_check, template_check    a model's mods; a serve command; chat templates
    plugin_check            what of a plugin of others a vLLM breaks
    lock, build, image_verify   a pairing resolved to hashes; its image; an image and its lock

What these take and return (help() of each says what it has)
    Mod, Pairing, Tree, Plan (ok, mods, changes), ModPlan (verdict, findings), Finding, Verdict,
    FileChange, Applied, Reverted, Status, Verified, CheckResult, Synced, MatrixResult (ok, cells),
    Cell, BisectOutcome, NewMod, PortResult, Suggested, ServeChecked, TemplateChecked,
    PluginChecked, ReadLock, BuildResult, ImageVerified

VllmModsError, with message and hint, is every error: UsageError, ManifestError, DiffError, TreeError (Unreachable among
them), NotRendered, Refused (nothing was changed; its plan says why), NotRestored.

help(vllm_mods.plan) and so on say what goes in and comes out, with an example. What is not named
here or in what these return is private, modules included: it may change with any release.
"""

# Nothing is imported here: `python -m vllm_mods` runs this before it has made the current folder no
# place to import from.
TYPE_CHECKING = False
__version__ = "0.1.0"

# The public names, by the module that each is loaded from when it is first asked for. No `__all__`:
# with it, help() would print every class whole, down to what a tuple can do.
_PUBLIC = {
    "library.catalog": ("Library",),
    "formats.pairing": ("Pairing",),
    "trees.open": ("open_tree",),
    "api.access": ("Access",),
    "api.libraries": ("open_library",),
    "api.plan": ("CheckResult", "check", "plan"),
    "api.installed": ("apply", "revert", "status", "verify"),
    "api.sync": ("Synced", "sync"),
    "api.matrix": ("bisect", "matrix"),
    "api.new": ("new",),
    "api.plugin_check": ("PluginChecked", "plugin_check"),
    "api.port": ("PortResult", "port"),
    "api.suggest": ("Suggested", "suggest"),
    "api.serve_check": ("ServeChecked", "serve_check"),
    "api.template_check": ("template_check",),
    "api.build": ("BuildResult", "build", "lock"),
    "api.on_base": ("ReadLock",),
    "api.image_verify": ("ImageVerified", "image_verify"),
    "applying.outcomes": ("Applied", "Reverted", "Status", "Verified"),
    "making.compose": ("NewMod",),
    "matrices.bisect": ("BisectOutcome",),
    "matrices.cell": ("Cell", "MatrixResult"),
    "templates.check": ("TemplateChecked",),
    "base.tree": ("Tree",),
    "base.model": ("FileChange", "Finding", "Mod", "ModPlan", "Plan", "Verdict"),
    "base.errors": (
        "VllmModsError",
        "UsageError",
        "ManifestError",
        "DiffError",
        "TreeError",
        "Unreachable",
        "NotRendered",
        "Refused",
        "NotRestored",
    ),
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}

if TYPE_CHECKING:
    from vllm_mods.api.access import Access as Access
    from vllm_mods.api.build import BuildResult as BuildResult, build as build, lock as lock
    from vllm_mods.api.image_verify import (
        ImageVerified as ImageVerified,
        image_verify as image_verify,
    )
    from vllm_mods.api.installed import (
        apply as apply,
        revert as revert,
        status as status,
        verify as verify,
    )
    from vllm_mods.api.libraries import open_library as open_library
    from vllm_mods.api.matrix import bisect as bisect, matrix as matrix
    from vllm_mods.api.new import new as new
    from vllm_mods.api.on_base import ReadLock as ReadLock
    from vllm_mods.api.plan import CheckResult as CheckResult, check as check, plan as plan
    from vllm_mods.api.plugin_check import (
        PluginChecked as PluginChecked,
        plugin_check as plugin_check,
    )
    from vllm_mods.api.port import PortResult as PortResult, port as port
    from vllm_mods.api.serve_check import ServeChecked as ServeChecked, serve_check as serve_check
    from vllm_mods.api.suggest import Suggested as Suggested, suggest as suggest
    from vllm_mods.api.sync import Synced as Synced, sync as sync
    from vllm_mods.api.template_check import template_check as template_check
    from vllm_mods.applying.outcomes import (
        Applied as Applied,
        Reverted as Reverted,
        Status as Status,
        Verified as Verified,
    )
    from vllm_mods.base.errors import (
        DiffError as DiffError,
        ManifestError as ManifestError,
        NotRendered as NotRendered,
        NotRestored as NotRestored,
        Refused as Refused,
        TreeError as TreeError,
        Unreachable as Unreachable,
        UsageError as UsageError,
        VllmModsError as VllmModsError,
    )
    from vllm_mods.base.model import (
        FileChange as FileChange,
        Finding as Finding,
        Mod as Mod,
        ModPlan as ModPlan,
        Plan as Plan,
        Verdict as Verdict,
    )
    from vllm_mods.base.tree import Tree as Tree
    from vllm_mods.formats.pairing import Pairing as Pairing
    from vllm_mods.library.catalog import Library as Library
    from vllm_mods.making.compose import NewMod as NewMod
    from vllm_mods.matrices.bisect import BisectOutcome as BisectOutcome
    from vllm_mods.matrices.cell import Cell as Cell, MatrixResult as MatrixResult
    from vllm_mods.templates.check import TemplateChecked as TemplateChecked
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
