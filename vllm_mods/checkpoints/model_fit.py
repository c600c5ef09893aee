"""How mods fit a checkpoint, as data: what `check` loads where no model is named, too."""

from typing import NamedTuple

TENSORS_UNKNOWN = "without safetensors files its tensors are unknown; name a folder or an id on the Hub that has them"


class ModFit(NamedTuple):
    """Whether a mod is for a checkpoint; ``why`` says what is not so where it is not.

    ``fails`` is what vLLM says without the mod, empty where it serves the checkpoint all the same;
    ``stated`` whether its manifest says anything of checkpoints.
    """

    name: str
    meant: bool
    stated: bool
    why: str
    fails: str

    @property
    def verb(self) -> str:
        """How a mod that is not for a checkpoint, or possibly not, is (not) meant for it."""
        return "is possibly not" if TENSORS_UNKNOWN in self.why else "is not"


class ModelFit(NamedTuple):
    """A model as it was named, the commit of it on the Hub (None for a folder), and how each mod fits it."""

    name: str
    commit: str | None
    mods: tuple[ModFit, ...]

    @property
    def ok(self) -> bool:
        """Whether every mod is for it."""
        return all(fit.meant for fit in self.mods)
