"""The names and sizes of a checkpoint's tensors against the classes of a vLLM, which are read and not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree

from vllm_mods.formats.safetensors import Tensor
from vllm_mods.serving.source import ModuleSources
from vllm_mods.serving.weights import ModelLoading
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Return what is said of a checkpoint where one text of the classes is another, a refusal first."""
    assert any(swap[0] in text for text in FILES.values())
    files = {path: text.replace(*swap).encode() for path, text in FILES.items()}
    tree = MemoryTree({f"{MODELS}/registry.py": REGISTRY.encode(), **files})
    tensors = {name: Tensor("BF16", (), 0, "f") for name in names}
    notes: list[str] = []
    why = ModelLoading(ModuleSources(tree), {}, tensors).fault(
        [named] if named else [], notes.append
    )
    return [why.replace(f"{MODELS}/", ""), *notes]


def test_a_checkpoint_of_its_class_is_taken() -> None:
    assert ask(*RIGHT, "lm_head.weight", "draft.x.weight", "v.bias", "first.weight") == [""]


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
    many = f"{part}, but the model has tensors for it (2); the first is {wrong} in f"
    assert ask(*RIGHT, wrong, f"{wrong[:-11]}other.weight") == [many]


def test_names_are_mapped_before_they_are_looked_for() -> None:
    see = "SeesForConditionalGeneration"
    right = ("model.visual.a.weight", "lm_head.weight", "x.rotary.weight", "gone.weight", *RIGHT)
    assert ask(*right, named=see) == [""]
    assert ask("visual.a.weight", *right, named=see)[0].endswith(
        "; the first is visual.a.weight in f"
    )
    (said,) = ask("model.language_model.norm.weight", named=see)
    assert " has no part named text.model.language_model, " in said
    # what a mapper makes of a name may be wrong itself: so it was in vLLM 0.25 for MiniCPM-V 4.6
    swap = ('".q": (".qkv", 0)', '"q": ("qkv", 0), "v.": ("qkv.", 1)')
    assert " has no part named qkqkv, " in ask("q.weight", named=see, swap=swap)[0]


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
    assert ask("language_model.a.weight", swap=(old, new)) == ["", why]
    see = {"named": "SeesForConditionalGeneration", "swap": ('"rotary.": None', "**more")}
    assert ask("zzz.a.weight", **see)[1].startswith("the names ")  # type: ignore[arg-type]


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
    assert ask(*RIGHT, "model.language_model.a.weight", swap=(old, new)) == [""]
    assert ask(*RIGHT, "language_model.a.weight", swap=(old, new)) != [""]


def test_a_class_within_itself_is_followed_no_deeper_than_names_go() -> None:
    itself = ("self.norm = RMSNorm(", "self.norm = ToyModel(")
    assert ask(f"model.{'norm.' * 9}a.weight", swap=itself)[0].find(".norm.a, ") > 0
    assert ask(f"model.{'norm.' * 9_000}a.weight", swap=itself) == [""]


def test_a_tensor_may_be_of_what_a_class_registers() -> None:
    see = "SeesForConditionalGeneration"
    swap = ("        self.tower = init(config)\n", "        self.register_buffer('tower', None)\n")
    assert ask("gone.weight", named=see, swap=swap) == [""]


def test_a_class_that_does_not_generate_is_wrapped_and_another_is_not_listed() -> None:
    assert ask("zzz.weight", named="ToyModel") == ask("zzz.weight", named="") == [""]
    for name in ("OldForCausalLM", "NewForCausalLM"):
        (why, said) = ask("zzz.weight", named=name)
        assert why == ""
        assert said.startswith(f"vLLM 0.19.1 has no class for {name}, ")


SIZED = """
class TextModel(nn.Module):
    def __init__(self, config):
        self.vocab_size = config.vocab_size
        if get_pp_group().is_first_rank:
            self.embed_tokens = VocabParallelEmbedding(self.vocab_size, config.hidden_size, prefix=f"{prefix}.e")
        else:
            self.embed_tokens = PPMissingLayer()
        self.start, self.end, self.layers = make_layers(config.num_hidden_layers, lambda p: Layer(p), prefix=p)

class LoopModel(TextModel):
    def load_weights(self, weights):
        params_dict = dict(self.named_parameters())
        loaded_params = set()
        for name, loaded_weight in weights:
            for shard_id in ("q", "k"):
                name = name.replace("midlayer.", "layers.0.")
            if name.endswith("scale"):
                loaded_weight = loaded_weight[0]
            param = params_dict[name]
            weight_loader = getattr(param, "weight_loader", default_weight_loader)
            weight_loader(param, loaded_weight)
            loaded_params.add(name)
        return loaded_params

class SizedForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = TextModel(config)
        self.lm_head = ParallelLMHead(
            self.unpadded, config.hidden_size, org_num_embeddings=config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head = self.lm_head.tie_weights(self.model.embed_tokens)
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        return loader.load_weights(weights)

class SizedForConditionalGeneration(SizedForCausalLM):
    def __init__(self, config):
        nn.Module.__init__(self)
        self.text = init_vllm_registered_model(config, architectures=["SizedForCausalLM"])
"""
SIZED_CONFIG = {"vocab_size": 12, "hidden_size": 4, "num_hidden_layers": 2}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
LAYERS = {f"model.layers.{n}.norm.weight": (4,) for n in range(2)}
SHAPES = {EMBEDDING: (12, 4), HEAD: (12, 4), **LAYERS}


def size(
    shapes: dict[str, tuple[int, ...]],
    config: dict[str, Any] = SIZED_CONFIG,
    *,
    named: str = "SizedForCausalLM",
    swap: tuple[str, str] = ("", ""),
    dtype: str = "BF16",
    needs_all: bool = True,
    note: Callable[[str], None] = lambda _note: None,
) -> str:
    """Return why a checkpoint of some shapes is refused."""
    assert swap[0] in SIZED
    names = ("SizedForCausalLM", "SizedForConditionalGeneration")
    table = "".join(f"'{one}': ('sized', '{one}')," for one in names)
    files = {"registry": f"MODELS = {{{table}}}", "sized": SIZED.replace(*swap)}
    tree = MemoryTree({f"{MODELS}/{name}.py": text.encode() for name, text in files.items()})
    tensors = {name: Tensor(dtype, shape, 0, "f") for name, shape in shapes.items()}
    loading = ModelLoading(ModuleSources(tree), config, tensors, needs_all)
    return loading.fault([named], note).replace(f"{MODELS}/", "")


def test_a_checkpoint_of_the_sizes_of_its_config_is_taken() -> None:
    assert size(SHAPES) == size({**SHAPES, "model.layers.1.x.weight": (9, 9)}) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({EMBEDDING: (14, 4)}, "gives model.embed_tokens the size 12 by 4 by config.json, but the model's is 14 by 4: model.embed_tokens.weight in f"),
        ({EMBEDDING: (12, 8)}, "gives model.embed_tokens the size 12 by 4 by config.json, but the model's is 12 by 8: model.embed_tokens.weight in f"),
        ({"model.layers.2.x.weight": (4,)}, "has 2 model.layers by config.json, but the model has more; the first tensor beyond is model.layers.2.x.weight in f"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_size_than_its_config_is_found(
    changed: dict[str, tuple[int, ...]], why: str
) -> None:
    assert size({**SHAPES, **changed}) == f"TextModel (sized.py:2) {why}"


def test_a_layer_without_tensors_is_found_where_vllm_misses_it() -> None:
    config = {**SIZED_CONFIG, "num_hidden_layers": 3}
    why = "has 3 model.layers by config.json, but the model has no tensors of model.layers.2"
    assert size(SHAPES, config) == f"TextModel (sized.py:2) {why}"
    assert size(SHAPES, config, needs_all=False) == ""
    # those of linear layers are not missed: https://allenai.org/olmo has no others
    linear = {name.replace("norm", "up_proj"): shape for name, shape in SHAPES.items()}
    assert size(linear, config) == ""


@pytest.mark.parametrize(
    ("config", "is_refused"),
    [
        ({"tie_word_embeddings": False}, True),
        ({"tie_word_embeddings": True}, False),
        ({}, False),  # by default it may be the embedding's, and what stands in the file is skipped
        ({"tie_word_embeddings": False, "audio": {"tie_word_embeddings": True}}, False),
    ],
)
def test_a_head_is_looked_at_where_it_surely_has_weights_of_its_own(
    config: dict[str, Any], *, is_refused: bool
) -> None:
    assert bool(size({**SHAPES, HEAD: (14, 4)}, {**SIZED_CONFIG, **config})) == is_refused


def notes_of(
    *missing: str, config: dict[str, Any], swap: tuple[str, str] = ("", ""), more: str = ""
) -> list[str]:
    """Return what is noted of a checkpoint that lacks some tensors, and has ``more``."""
    notes: list[str] = []
    shapes = {name: shape for name, shape in SHAPES.items() if name not in missing}
    shapes |= {more: (12, 4)} if more else {}
    size(shapes, {**SIZED_CONFIG, **config}, swap=swap, note=notes.append)
    return notes


UNTIED = {"tie_word_embeddings": False}
NO_TIE = (
    "        if config.tie_word_embeddings:\n            self.lm_head = self.lm_head.tie_weights(self.model.embed_tokens)\n",
    "",
)


def test_a_checkpoint_without_its_head_or_its_embedding_is_noted() -> None:
    head = f"the model has no tensors for lm_head of SizedForCausalLM ({MODELS}/sized.py:26): vLLM answers nonsense"
    assert notes_of(HEAD, config=UNTIED) == [head]
    embedding = head.replace("lm_head", "model.embed_tokens")
    embedding = embedding.replace("SizedForCausalLM", "TextModel").replace(":26)", ":2)")
    assert notes_of(EMBEDDING, config=UNTIED) == [embedding]
    assert notes_of(config=UNTIED) == []


@pytest.mark.parametrize(
    ("config", "swap", "is_noted"),
    [
        (UNTIED, ("", ""), True),
        ({"tie_word_embeddings": True}, ("", ""), False),
        ({}, ("", ""), False),  # what the class of the config has by default is not known here
        ({}, NO_TIE, True),
        ({"tie_word_embeddings": True}, NO_TIE, False),
        (
            {"text_config": {**SIZED_CONFIG, **UNTIED}},
            ("", ""),
            False,
        ),  # vLLM takes that of the top
        ({**UNTIED, "audio": {"tie_word_embeddings": True}}, ("", ""), False),
        (UNTIED, ("self.lm_head = ParallelLMHead(", "self.lm_head = Head("), False),
        (UNTIED, ("AutoWeightsLoader(self)", "OtherLoader(self)"), False),
    ],
)
def test_a_head_that_may_be_tied_or_be_made_otherwise_is_not_missed(
    config: dict[str, Any], swap: tuple[str, str], *, is_noted: bool
) -> None:
    notes = notes_of(HEAD, config=config, swap=swap)
    assert any("no tensors for lm_head" in note for note in notes) == is_noted


@pytest.mark.parametrize("name", ["lm_head.qweight", "lm_head.weight_packed", "x.lm_head.weight"])
def test_a_head_that_lies_otherwise_is_not_missed(name: str) -> None:
    assert notes_of(HEAD, config=UNTIED, more=name) == []


@pytest.mark.parametrize(("text", "is_noted"), [("embed_tokens", False), ("midlayer.", True)])
def test_an_embedding_that_a_loop_may_rename_is_not_missed(text: str, *, is_noted: bool) -> None:
    changed = SIZED.replace("self.model = TextModel(", "self.model = LoopModel(")
    swap = (SIZED, changed.replace("midlayer.", text))
    assert bool(notes_of(EMBEDDING, config=UNTIED, swap=swap)) == is_noted


@pytest.mark.parametrize(
    ("config", "is_refused"),
    [
        ({"text_config": SIZED_CONFIG, "vocab_size": 99}, True),
        ({"text_config": SIZED_CONFIG, "decoder": {"x": {"vocab_size": 14}}}, False),
        ({**SIZED_CONFIG, "text_config": {"hidden_size": 4}}, False),  # its own is the default
        ({"hidden_size": 4}, False),
        ({**SIZED_CONFIG, "vocab_size": "12"}, False),
        ({**SIZED_CONFIG, "vocab_size": [12], "hidden_size": {"a": 4}}, False),
    ],
)
def test_a_size_is_wrong_only_if_the_config_has_it_nowhere(
    config: dict[str, Any], *, is_refused: bool
) -> None:
    assert bool(size({**SHAPES, EMBEDDING: (14, 4)}, config)) == is_refused


@pytest.mark.parametrize(
    "swap",
    [
        ("self.vocab_size = config.vocab_size", "self.vocab_size = config.vocab_size + 2"),
        ("self.vocab_size = config.vocab_size", "self.vocab_size = vision_config.vocab_size"),
        ("VocabParallelEmbedding(self.vocab_size", "VocabParallelEmbedding(vocab_size"),
        ("VocabParallelEmbedding(", "MyEmbedding("),
        ("        else:", "            self.embed_tokens = nn.Embedding(config)\n        else:"),
    ],
)
def test_of_a_size_that_is_computed_nothing_is_said(swap: tuple[str, str]) -> None:
    assert size({**SHAPES, EMBEDDING: (14, 4)}, swap=swap) == ""


@pytest.mark.parametrize("config", ["self.config", "text_config", "config.text_config"])
def test_a_size_is_read_of_the_config_of_the_text(config: str) -> None:
    swap = ("self.vocab_size = config.", f"self.vocab_size = {config}.")
    assert size({**SHAPES, EMBEDDING: (14, 4)}, swap=swap) != ""


def test_of_a_quantised_table_nothing_is_said() -> None:
    assert size({**SHAPES, EMBEDDING: (12, 2)}, dtype="U8") == ""


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        ("", "", True),
        ("loaded_weight = loaded_weight[0]", "loaded_weight = padded(loaded_weight)", False),
        ("midlayer.", "embed_tokens", False),
    ],
)
def test_a_loop_that_leaves_a_tensor_as_it_is_is_followed(
    old: str, new: str, *, is_refused: bool
) -> None:
    text = SIZED.replace("self.model = TextModel(", "self.model = LoopModel(").replace(old, new)
    assert bool(size({**SHAPES, EMBEDDING: (14, 4)}, swap=(SIZED, text))) == is_refused
    assert size({**SHAPES, "other.layers.2.x.weight": (4,)}, swap=(SIZED, text)) != ""
    assert size({**SHAPES, "model.other.weight": (4,)}, swap=(SIZED, text)) == ""


def test_a_model_within_a_model_is_followed_and_what_a_base_would_make_is_not_there() -> None:
    named = "SizedForConditionalGeneration"
    inner = {f"text.{name}": shape for name, shape in SHAPES.items()}
    assert size(inner, named=named) == ""
    wrong = size({**inner, f"text.{EMBEDDING}": (14, 4)}, named=named)
    assert wrong.startswith(
        "TextModel (sized.py:2) gives text.model.embed_tokens the size 12 by 4 "
    )
    assert " has no part named model, " in size(SHAPES, named=named)
    behind = ("nn.Module.__init__(self)", "super(SizedForCausalLM, self).__init__()")
    assert " has no part named model, " in size(SHAPES, named=named, swap=behind)
    assert (
        size(SHAPES, named=named, swap=("nn.Module.__init__(self)", "super().__init__(config)"))
        == ""
    )


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.19.1", "0.28.0", "0.33.0"])
def test_real_classes_take_what_they_should_and_nothing_else(version: str) -> None:
    def stops(named: str, *names: str) -> str:
        tensors = {name: Tensor("BF16", (), 0, "f") for name in names}
        return ModelLoading(sources, {}, tensors).fault([named], lambda _note: None)

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
        assert stops(named, right) == ""
        assert stops(named, right, wrong).endswith(
            f"has tensors for it (1); the first is {wrong} in f"
        )
    deep = stops("Qwen3ForCausalLM", f"model.language_model.{layer}")
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
    sources = ModuleSources(Releases().open(version))
    loading = ModelLoading(sources, {}, {name: Tensor("BF16", (), 0, "f")})
    said = loading.fault([named], lambda _note: None)
    assert f".{part}, but " in said if part else said == ""
