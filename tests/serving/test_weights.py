"""The names of a checkpoint's tensors against the classes of a vLLM, which are read and not imported."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.serving import weights
from vllm_mods.serving.source import ModuleSources
from vllm_mods.trees.release import Releases

MODELS = "vllm/model_executor/models"
REGISTRY = """
_VLLM_MODELS = {
    # "OldForCausalLM": ("toy", "ToyForCausalLM"),
    "ToyForCausalLM": ("toy", "ToyForCausalLM"),
    "SeesForConditionalGeneration": (
        "sees",
        "SeesForConditionalGeneration",
    ),
    "ToyModel": ("toy", "ToyModel"),
}
"""
TOY = """
class Mixin(Protocol[T]): ...
class RMSNorm(nn.Module): ...

class ToyModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens: nn.Module = Embedding(config.vocab_size)
        self.start, self.end, self.layers = make_layers(config, lambda prefix: Layer(prefix))
        self.norm = RMSNorm(config.hidden_size)

class Base(nn.Module, Mixin):
    def __init__(self, config):
        super().__init__()
        self.model = self.make(config, getattr(config, "x", None))
        self.first = self.second = Embedding(config)
        if config.last:
            self.lm_head = Head(config)
        else:
            self.lm_head = Missing()

    def make(self, config, more):
        return ToyModel(config)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        loader = AutoWeightsLoader(
            self, skip_prefixes=["draft."] if self.config.tie_word_embeddings else None)
        return loader.load_weights(weights)

class ToyForCausalLM(Base):
    packed_modules_mapping = {"qkv_proj": ["q_proj"]}
"""
SEES = """
from .toy import ToyForCausalLM
class SeesForConditionalGeneration(nn.Module):
    hf_to_vllm_mapper = First.hf_to_vllm_mapper | WeightsMapper(
        orig_to_new_prefix={"model.visual.": "tower.", "lm_head.": "text.lm_head.", "model.": "text.model."},
        orig_to_new_suffix={"gone.weight": "tower.weight"},
        orig_to_new_stacked={".q": (".qkv", 0)},
    )
    def __init__(self, config):
        self.tower = init(config)
        with self._mark_language_model(config):
            self.text = ToyForCausalLM(config)
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        loaded = loader.load_weights(weights, mapper=self.hf_to_vllm_mapper)
        return loaded
class First:
    hf_to_vllm_mapper = WeightsMapper(orig_to_new_substr={"rotary.": None, ".attn.": "."})
"""
FILES = {f"{MODELS}/{name}.py": text for name, text in (("toy", TOY), ("sees", SEES))}
RIGHT = ("model.embed_tokens.weight", "model.layers.0.q.weight", "model.norm.weight")


def ask(*names: str, named: str = "ToyForCausalLM", swap: tuple[str, str] = ("", "")) -> list[str]:
    """Return what is said of a checkpoint where one text of the classes is another."""
    assert any(swap[0] in text for text in FILES.values())
    files = {path: text.replace(*swap).encode() for path, text in FILES.items()}
    tree = MemoryTree({f"{MODELS}/registry.py": REGISTRY.encode(), **files})
    return [*weights.stray(ModuleSources(tree), [named] if named else [], names)]


def test_a_checkpoint_of_its_class_is_taken() -> None:
    assert ask(*RIGHT, "lm_head.weight", "draft.x.weight", "v.bias", "first.weight") == []


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (
            "language_model.model.norm.weight",
            "ToyForCausalLM (toy.py:30) has no part named language_model",
        ),
        (
            "base_model.model.model.norm.weight",
            "ToyForCausalLM (toy.py:30) has no part named base_model",
        ),
        (
            "model.language_model.norm.weight",
            "ToyModel (toy.py:5) has no part named model.language_model",
        ),
        ("model.model.norm.weight", "ToyModel (toy.py:5) has no part named model.model"),
    ],
)
def test_a_name_that_leads_to_no_part_is_found(wrong: str, part: str) -> None:
    said, *names = ask(*RIGHT, wrong, f"{wrong[:-11]}other.weight")
    assert said.replace(f"{MODELS}/", "") == part
    assert names == [wrong, f"{wrong[:-11]}other.weight"]


def test_names_are_mapped_before_they_are_looked_for() -> None:
    see = "SeesForConditionalGeneration"
    right = ("model.visual.a.weight", "lm_head.weight", "x.rotary.weight", "gone.weight", *RIGHT)
    assert ask(*right, named=see) == []
    assert ask("visual.a.weight", *right, named=see)[1:] == ["visual.a.weight"]
    said, *names = ask("model.language_model.norm.weight", named=see)
    assert said.endswith(" has no part named text.model.language_model")
    assert names == ["model.language_model.norm.weight"]
    # what a mapper makes of a name may be wrong itself: so it was in vLLM 0.25 for MiniCPM-V 4.6
    swap = ('".q": (".qkv", 0)', '"q": ("qkv", 0), "v.": ("qkv.", 1)')
    assert ask("q.weight", named=see, swap=swap)[0].endswith(" has no part named qkqkv")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Base(nn.Module, Mixin)", "class Base(nn.ModuleDict, Mixin)"),
        ('["draft."]', "self.skipped"),
        ("return loader.load_weights(weights)", "return loader.load_weights(rename(weights))"),
        ("        loader = Auto", "        weights = list(weights)\n        loader = Auto"),
        ("        super().__init__()\n        self.model", "        setattr(self, name, 1)\n        self.model"),
        ("    def make(", "    def __new__(cls): return Other()\n    def make("),
        ("    def make(", "    load_weights = Other.load_weights\n    def make("),
        ("        self.model = ", "        self.hf_to_vllm_mapper |= Other\n        self.model = "),
    ],
)  # fmt: skip
def test_of_a_class_that_computes_anything_nothing_is_said(old: str, new: str) -> None:
    why = "the names of the model's tensors were not checked: ToyForCausalLM loads them by itself"
    assert ask("language_model.a.weight", swap=(old, new)) == [why]
    see = {"named": "SeesForConditionalGeneration", "swap": ('"rotary.": None', "**more")}
    assert ask("zzz.a.weight", **see)[0].startswith("the names ")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return ToyModel(config)", "return ToyModel(config) if config.a else Other(config)"),
        ("return ToyModel(config)", "return ToyModel(config).inner"),
        (
            "return ToyModel(config)",
            "if config.a:\n            return Other()\n        return ToyModel(config)",
        ),
        ("return ToyModel(config)", "return other.ToyModel(config)"),
        ('self.make(config, getattr(config, "x", None))', "other.ToyModel(config)"),
        ("self.model = self.make", "self.model, self.b = self.make"),
        ("        if config.last", "        self.model.other = 1\n        if config.last"),
        ("class ToyModel(nn.Module)", "class ToyModel(nn.Module, transformers.Model)"),
    ],
)
def test_below_a_part_that_may_be_anything_nothing_is_said(old: str, new: str) -> None:
    assert ask(*RIGHT, "model.language_model.a.weight", swap=(old, new)) == []
    assert ask(*RIGHT, "language_model.a.weight", swap=(old, new))[1:] == [
        "language_model.a.weight"
    ]


def test_a_class_within_itself_is_followed_no_deeper_than_names_go() -> None:
    itself = ("self.norm = RMSNorm(", "self.norm = ToyModel(")
    assert ask(f"model.{'norm.' * 9}a.weight", swap=itself)[0].endswith(".norm.a")
    assert ask(f"model.{'norm.' * 9_000}a.weight", swap=itself) == []


def test_a_tensor_may_be_of_what_a_class_registers() -> None:
    see = "SeesForConditionalGeneration"
    swap = ("        self.tower = init(config)\n", "        self.register_buffer('tower', None)\n")
    assert ask("gone.weight", named=see, swap=swap) == []


def test_a_class_that_does_not_generate_is_wrapped_and_another_is_not_listed() -> None:
    assert ask("zzz.weight", named="ToyModel") == ask("zzz.weight", named="") == [""]
    for name in ("OldForCausalLM", "NewForCausalLM"):
        (said,) = ask("zzz.weight", named=name)
        assert said.startswith(f"vLLM 0.19.1 has no class for {name}, ")


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.19.1", "0.28.0", "0.33.0"])
def test_real_classes_take_what_they_should_and_nothing_else(version: str) -> None:
    sources = ModuleSources(Releases().open(version))
    layer = "layers.0.self_attn.q_proj.weight"
    for named, right, wrong in (
        ("Qwen3ForCausalLM", f"model.{layer}", f"language_model.model.{layer}"),
        ("LlamaForCausalLM", f"model.{layer}", f"base_model.model.model.{layer}"),
        (
            "Qwen2AudioForConditionalGeneration",
            "audio_tower.a.weight",
            "model.audio_tower.a.weight",
        ),
        ("Qwen3VLForConditionalGeneration", f"model.language_model.{layer}", f"module.{layer}"),
    ):
        assert weights.stray(sources, [named], [right]) == ()
        assert weights.stray(sources, [named], [right, wrong])[1:] == (wrong,)
    deep = weights.stray(sources, ["Qwen3ForCausalLM"], [f"model.language_model.{layer}"])
    assert bool(deep) == (version != "0.19.1")  # there the inner class loads by itself


@pytest.mark.network
@pytest.mark.parametrize(
    ("version", "part"), [("0.24.0", None), ("0.25.1", "qkqkv_proj"), ("0.27.0", "q_proj")]
)
def test_a_release_that_could_not_load_its_own_model_is_found(version: str, part: str) -> None:
    """MiniCPM-V 4.6, as people reported it: vllm-project/vllm issues 48449 and 51842."""
    named, name = (
        "MiniCPMV4_6ForConditionalGeneration",
        "model.vision_tower.vit_merger.self_attn.q_proj.weight",
    )
    said = weights.stray(ModuleSources(Releases().open(version)), [named], [name])
    assert (said[0].rpartition(".")[2] if said else None) == part
