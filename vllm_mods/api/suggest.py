"""Which mods, chat template and pairing a model needs."""

from typing import NamedTuple

from vllm_mods.api.plan import plan
from vllm_mods.api.serve_check import demand_loading
from vllm_mods.base.model import Plan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.device import Device, device
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.library.catalog import Library
from vllm_mods.templates import client_table
from vllm_mods.templates.source import open_template
from vllm_mods.trees.open import as_tree


class Suggested(NamedTuple):
    """What is for a ``checkpoint``, and the ``plan`` of it on a tree, None where none was named or nothing is for it.

    ``flags`` are the serve arguments that the first template goes with, and ``clients`` say from which release on each
    works with it; on a tree, which ones lose what there. ``device`` is the GPU that pairings need room on, None where
    nobody knows one. ``notes`` say what of its tensors vLLM misses, or could not be held against the tree.
    """

    checkpoint: Checkpoint
    suggestion: fitting.Suggestion
    plan: Plan | None
    flags: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    device: Device | None = None
    notes: tuple[str, ...] = ()

    @property
    def mods(self) -> tuple[str, ...]:
        """The names of the mods that are for it, and of the first that brings a template."""
        return tuple(fit.name for fit in (*self.suggestion.mods, *self.suggestion.templates[:1]))

    @property
    def ok(self) -> bool:
        """Whether all of these would go into the tree."""
        return self.plan is None or self.plan.ok


def suggest(
    library: Library,
    model: str,
    *,
    revision: str | None = None,
    tree: Tree | Folder | None = None,
    model_folder: str | None = None,
    device_memory: str | None = None,
) -> Suggested:
    """Tell which mods, chat template and pairing of a library a checkpoint needs.

    ``model`` is a folder, or an id on the Hub (``HF_ENDPOINT``) of the commit, tag or branch ``revision``. Its
    ``config.json`` and the headers of its safetensors are read, no weights. With ``tree``, what is for it is
    planned there, and its tensors are held against the class there. ``model_folder`` is where the model lies, whatever it is
    called; ``device_memory`` (``96GiB``) that of each GPU on which a pairing is to have room, without it this machine's. Returns ``Suggested``.
    Raises ``UsageError`` for a folder that is no checkpoint, ``TreeError`` for one that cannot be read, ``Refused`` for one that the tree would not load.

    >>> _ = Path("model").mkdir(), Path("model/config.json").write_text('{"model_type": "llama"}')
    >>> vm.suggest(vm.Library("good"), "model").mods
    ()
    """
    gpu = device(device_memory)
    checkpoint = open_checkpoint(model, revision, folder=model_folder)
    mods = {name: library.load(name) for name in library.names()}
    pairings = [library.pairing(name) for name in library.pairing_names()]
    own = ((pairing, library.select(library.mods_of(pairing))) for pairing in pairings)
    suggestion = fitting.suggest(checkpoint, mods.values(), own, gpu)
    result = Suggested(checkpoint, suggestion, None, device=gpu)
    if tree is not None:
        opened, lacks = as_tree(tree), list[str]()
        planned = plan(library.select(result.mods), opened) if result.mods else None
        if planned is None or planned.ok:
            demand_loading(checkpoint, opened, planned, lacks.append)
        result = result._replace(plan=planned, notes=tuple(lacks))
    if suggestion.templates:
        name = suggestion.templates[0].name
        result = result._replace(flags=mods[name].serve_args)
        if name in library.template_names():
            version = result.plan.version if result.plan else None
            notes = client_table.notes(library, open_template(library, name), version)
            result = result._replace(clients=notes)
    return result
