"""The image that a container of a pairing starts from: the lock's, or the plain one, into which all that `build` would add is bound."""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from vllm_mods.api import on_base, serve_check
from vllm_mods.api.access import Access
from vllm_mods.applying import ground
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Plan
from vllm_mods.base.tree import Tree
from vllm_mods.building.building import Drafted, labels
from vllm_mods.building.layer import WHITEOUT
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.formats import pairing_lock, receipt
from vllm_mods.images.model import environment, settings
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.running.bound import bind
from vllm_mods.running.service import MODS_LABEL, MOUNTED_LABEL, Mount, Service
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import pristine, receipt_of

_FOR_ITSELF = (receipt.RECEIPT, receipt.ORIGINALS, receipt.MODS, pairing_lock.PLACE)
"""By these an image says what it holds."""


class ServedPairing(NamedTuple):
    """A pairing's container, and its lock, with the path if that lies ``beside`` the pairing; ``mount`` wants its base's image.

    ``model`` is None where nobody could look at it.
    Once its image is opened, ``plan`` is what mods changed of the vLLM at ``root`` in it, and ``variables`` are the image's.
    """

    service: Service
    locked: on_base.ReadLock
    beside: tuple[str, ...] = ()
    mount: bool = False
    model: Checkpoint | None = None
    plan: Plan | None = None
    root: str = ""
    variables: Mapping[str, str] = {}

    @property
    def lock(self) -> str:
        """What the label of the image says of its lock."""
        return f"sha256:{self.locked.sha256}"

    def demand(self, tree: Tree, planned: Plan | None, note: Callable[[str], None]) -> None:
        """Raise ``Refused`` if a vLLM would not take the command with what comes behind it."""
        what = f"the command of {self.service.image}"
        asked = serve_check.of_script(self.service.command, what, "docker ps --all")
        argv = (*asked.serving.argv, *self.service.arguments)
        serving, name = asked.serving._replace(argv=argv), self.service.pairing
        asked = asked._replace(serving=serving, name=name, model=self.model)
        serve_check.demand(asked, tree, planned, note=note)


def open_image(served: ServedPairing, program: str, access: Access) -> ImageTree:
    """Open the image of the lock, once its vLLM would take the command. Raises ``Refused`` if it would not, and as ``open_tree``."""
    spec = f"image:{program}:{served.service.image}"
    tree = access.open(spec, in_image=f"/{served.locked.lock.vllm.site_root}")
    served.demand(tree, None, access.note)
    return cast("ImageTree", tree)


def of_image(served: ServedPairing, program: str, access: Access) -> ServedPairing:
    """Plan the mods of the lock's image as they went in. Raises as ``open_image``."""
    tree = open_image(served, program, access)
    applied = receipt_of(tree)
    mods = ground.staying(tree, applied, ()) if applied else ()
    space = (applied and applied.workspace) or planner.WORKSPACE
    plan = planner.plan(mods, pristine(tree, applied), workspace=space)
    variables = environment(settings(tree.base))
    return served._replace(plan=plan, root=f"/{tree.site_root}", variables=variables)


def of_base(library: Library, served: ServedPairing, program: str, access: Access) -> ServedPairing:
    """Bind what a lock makes of its base into a container of that. Raises ``Refused`` for another base, and for what cannot be bound."""
    planned, locked = served.service, served.locked
    wanted, ref = library.pairing(planned.pairing), f"{program}:{planned.image}"
    parts = on_base.parts_of(locked.lock, ref, None)
    how: dict[str, Any] = {"epoch": locked.lock.epoch, "beside": served.beside}
    with on_base.on_bases(library, wanted, ref, parts, **how, access=access) as opened:
        on_base.demand_locked(locked, parts, opened)
        ((drafted, tree, plan),) = opened
        served.demand(tree, plan, access.note)
        own, mounts = environment(settings(tree.base)), tuple(_mounts(drafted))
    stated, wished = labels(drafted.lock, b"", {}), drafted.lock.image.config["config"]
    named = {key: stated[key] for key in (MODS_LABEL, "vllm-mods.model")}
    root, variables = f"/{tree.site_root}", environment(wished)
    service = planned._replace(
        mounts=(*planned.mounts, *mounts),
        labels={**named, MOUNTED_LABEL: served.lock},
        added=dict(variables.items() - own.items()),
        entrypoint=tuple(wished["Entrypoint"]),
    )
    return served._replace(service=service, plan=plan, root=root, variables=variables)


def _mounts(drafted: Drafted) -> Iterator[Mount]:
    own = tuple(f"{drafted.lock.vllm.site_root}/{path}" for path in _FOR_ITSELF)
    for entry in drafted.entries:
        folder, name = posixpath.split(entry.path)
        if entry.data is None or entry.path.startswith(own):
            continue
        path, is_gone = f"/{folder}/{name.removeprefix(WHITEOUT)}", name.startswith(WHITEOUT)
        if is_gone and not name.endswith(".pyc"):  # Python compiles anew what has empty bytecode
            why = f"a mod removes {path}, and --mount cannot remove files; nothing was started"
            raise Refused(why, hint=f"vllm-mods build {drafted.lock.pairing}")
        yield bind(entry.data, path, entry.mode)
