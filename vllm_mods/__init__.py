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
    shadow, bench           mods in a copy, so that nothing installed is touched; how fast that serves (BenchLoad)
    begin_record            which code of a copy's mods runs, in which process (read_record)
    status, verify          which mods are in, and whether they are as they were left
Mods over time
    matrix, bisect          verdicts on many trees; the commit that changes one
    new, port               make a mod of changes; carry it to another vLLM
Pairings and images
    suggest, serve_check, template_check    a model's mods; a serve command; chat templates
    plugin_check, plugin_matrix  what of a plugin of others a vLLM breaks, or several
    lock, build, image_verify   a pairing resolved to hashes; its image; an image and its lock

What these take and return (help() of each says what it has)
    Mod, Pairing, Tree, Plan (ok, mods, changes), ModPlan (verdict, findings), Finding, Verdict,
    FileChange, Applied, Reverted, Shadow, BenchResult, Recorded, Status, Verified, CheckResult, Synced, MatrixResult (ok, cells),
    Cell, BisectOutcome, NewMod, PortResult, Suggested, ServeChecked, TemplateChecked,
    PluginChecked, PluginMatrix, ReadLock, BuildResult, ImageVerified

VllmModsError, with message and hint, is every error: UsageError, ManifestError, DiffError, TreeError (Unreachable among
them), NotRendered, Refused (nothing was changed; its plan says why), NotRestored.

help(vllm_mods.plan) and so on say what goes in and comes out, with an example. What is not named
here or in what these return is private, modules included: it may change with any release.
"""

# Nothing is imported here: `python -m vllm_mods` runs this before it has made the current folder no
# place to import from.
__version__ = "0.1.0"

# The public names, by the module that each is loaded from when it is first asked for; for type checkers they are in
# __init__.pyi. No `__all__`: with it, help() would print every class whole, down to what a tuple can do.
_PUBLIC = {
    "library.catalog": ("Library",),
    "formats.pairing": ("Pairing",),
    "trees.open": ("open_tree",),
    "api.access": ("Access",),
    "api.libraries": ("open_library",),
    "api.plan": ("CheckResult", "check", "plan"),
    "applying.carry_out": ("apply", "revert"),
    "api.installed": ("status", "verify"),
    "api.sync": ("Synced", "sync"),
    "api.matrix": ("bisect", "matrix"),
    "api.new": ("new",),
    "api.plugin_check": ("PluginChecked", "PluginMatrix", "plugin_check", "plugin_matrix"),
    "api.port": ("PortResult", "port"),
    "api.suggest": ("Suggested", "suggest"),
    "api.serve_check": ("ServeChecked", "serve_check"),
    "api.template_check": ("template_check",),
    "api.build": ("BuildResult", "build", "lock"),
    "api.on_base": ("ReadLock",),
    "api.image_verify": ("ImageVerified", "image_verify"),
    "applying.shadow": ("Shadow", "shadow"),
    "api.bench": ("BenchResult", "bench"),
    "running.benched_start": ("BenchLoad",),
    "running.recording": ("Recorded", "begin_record", "read_record"),
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


def __getattr__(name: str) -> object:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (when something is asked for)

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
