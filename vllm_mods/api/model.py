"""A pairing's model where it lies, held against the pairing before anything is locked, built or started."""

import os
from collections.abc import Callable, Mapping, Sequence

from vllm_mods.base.errors import Refused, Unreachable, UsageError, refusing
from vllm_mods.base.model import Mod
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.checkpoint import CONFIG, Checkpoint
from vllm_mods.checkpoints.device import device
from vllm_mods.checkpoints.sources import is_hub_id, open_checkpoint
from vllm_mods.formats.pairing import Pairing

NO_DEVICE = "this machine has no GPU; --device-memory SIZE gives that of another machine's GPU"


@refusing()
def look_at_model(
    wanted: Pairing,
    mods: Sequence[Mod],
    *,
    folder: str | None = None,
    memory: str | None = None,
    arguments: Sequence[str] = (),
    here: bool = False,
    on_gpu: bool = True,
    environ: Mapping[str, str] | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> Checkpoint | None:
    """Return a pairing's model, None where nobody can look at it, which is noted.

    ``folder`` is where it lies, None for where the pairing says; ``memory`` is that of each GPU that is to serve it, None for
    this machine's. ``arguments`` come behind the command, ``mods`` are the pairing's. ``here`` asks no Hub; not ``on_gpu``, nothing is said of memory. Raises
    ``Refused`` for one that cannot be read, that the mods are not for, or that the memory is too small for, and
    ``UsageError`` as ``open_checkpoint`` does.
    """
    gpu = device(memory)
    model = wanted.model
    if folder is None and not os.path.isdir(model) and not is_hub_id(model):
        note(f"the model {model} is not on this machine, so the mods were not checked against it")
        return None
    try:
        checkpoint = open_checkpoint(
            model, wanted.revision, folder=folder, environ=environ, here=here
        )
    except Unreachable as error:
        note(f"the mods were not checked against the model {model}: {error.message}")
        return None
    if not {"architectures", "model_type"} & checkpoint.config.keys():
        why = f"{folder or model}: its {CONFIG} names no architecture"
        raise UsageError(why, hint="name the folder that a model was downloaded to (`hf download`)")
    fitting.demand(mods, checkpoint, wanted.name, folder or model)
    need = fitting.of_command(wanted, mods, checkpoint, arguments)
    if not on_gpu:
        return checkpoint
    if need is None:
        note(f"the memory that {model} needs with this command is unknown, so it was not checked")
    elif gpu is None:
        note(f"the memory that {model} needs was not checked: {NO_DEVICE}")
    elif why := need.shortfall(gpu):
        why = f"pairing {wanted.name}: the GPU has no room for {model}: {why}"
        hint = f"in the pairing's command: {need.remedy(gpu)}; or --device-memory SIZE, if another machine serves it"
        raise Refused(why, hint=hint)
    return checkpoint
