"""The module that hybrid-int4-fp8 adds to vLLM: which layers are FP8, under which names.

It is loaded by its path and imports no vLLM until a layer asks for its method; the few
functions of vLLM that it calls for a model on the Hub are stood in for.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import re
import sys
import tomllib
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hybrid_checkpoints import bf16, fp8, headers, int4, write_checkpoint, write_file

from vllm_mods.library.mod_folder import data_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hybrid_checkpoints import Tensors

MOD = os.path.join(data_root(), "patches", "hybrid-int4-fp8")
QKV = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


def _load() -> Any:
    path = os.path.join(MOD, "overlay", "inc_hybrid_fp8.py")
    spec = importlib.util.spec_from_file_location("inc_hybrid_fp8", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look it up there
    spec.loader.exec_module(module)
    return module


hybrid = _load()


def found(*parts: Tensors) -> Any:
    tensors: Tensors = {}
    for part in parts:
        tensors |= part
    return hybrid.find_fp8_layers(headers(tensors))


class Mapper:
    """The two methods of vLLM's WeightsMapper that configs use, for prefixes."""

    def __init__(self, prefixes: dict[str, str | None]) -> None:
        self.prefixes = prefixes

    def name(self, name: str) -> str | None:
        for old, new in self.prefixes.items():
            if name.startswith(old):
                return None if new is None else new + name[len(old) :]
        return name

    def apply_list(self, names: list[str]) -> list[str]:
        return [new for name in names if (new := self.name(name)) is not None]

    def apply_dict(self, values: dict[str, Any]) -> dict[str, Any]:
        return {new: v for name, v in values.items() if (new := self.name(name)) is not None}


# Which layers


def test_layers_with_block_scales_are_found_and_the_others_are_not() -> None:
    scaled_per_tensor: Tensors = {
        "d.weight": ("F8_E4M3", [256, 256]),
        "d.weight_scale": ("F32", [1]),
        "e.weight": ("F8_E4M3", [256, 256]),
        "e.weight_scale_inv": ("F32", [1]),
        "f.weight": ("BF16", [256, 256]),
        "f.weight_scale_inv": ("F32", [2, 2]),
        "g.weight": ("F8_E5M2", [256, 256]),
        "g.weight_scale_inv": ("F32", [2, 2]),
    }
    assert found(int4("a"), bf16("b"), fp8("c"), scaled_per_tensor).blocks == {"c": (128, 128)}


def test_a_plain_checkpoint_has_none() -> None:
    layers = found(int4("model.layers.0.mlp.up_proj"), bf16("lm_head"))
    assert not layers
    assert not layers.others


@pytest.mark.parametrize(
    ("shape", "scales", "block"),
    [
        ([256, 512], [2, 4], (128, 128)),
        ([200, 300], [2, 3], (128, 128)),  # the last block is short
        ([64, 64], [1, 1], (128, 128)),  # a single block says only: not smaller than this
        ([256, 512], [4, 8], (64, 64)),
        ([256, 512], [1, 4], (256, 128)),
        ([96, 96], [3, 3], (32, 32)),
        ([90, 90], [3, 3], (32, 32)),
        ([100, 100], [2, 2], (64, 64)),
        ([300, 256], [300, 2], (1, 128)),
    ],
)
def test_block_size_is_what_the_shapes_imply(
    shape: list[int], scales: list[int], block: tuple[int, int]
) -> None:
    layers = found({"a.weight": ("F8_E4M3", shape), "a.weight_scale_inv": ("F32", scales)})
    assert layers.blocks == {"a": block}
    assert [-(-size // edge) for size, edge in zip(shape, block, strict=True)] == scales


def test_one_block_size_is_sought_for_the_whole_checkpoint() -> None:
    # Alone, the small one would get the usual 128.
    layers = found(fp8("big", block=64), fp8("small", rows=64, columns=64, block=64))
    assert set(layers.blocks.values()) == {(64, 64)}


def test_layers_of_different_block_sizes_keep_their_own() -> None:
    layers = found(fp8("a", block=64), fp8("b", block=128))
    assert layers.blocks == {"a": (64, 64), "b": (128, 128)}


@pytest.mark.parametrize("scales", [[3, 2], [7, 2], [11, 2], [0, 2]])
def test_shapes_that_no_block_size_explains_are_an_error(scales: list[int]) -> None:
    tensors: Tensors = {
        "x.weight": ("F8_E4M3", [10, 256] if scales[0] != 3 else [4, 256]),
        "x.weight_scale_inv": ("F32", scales),
    }
    with pytest.raises(ValueError, match=r"'x\.weight' of shape .*'x\.weight_scale_inv'"):
        found(tensors)


# Which layer of the model


def test_a_fused_layer_is_fp8_when_its_shards_are() -> None:
    layers = found(fp8("m.q_proj"), fp8("m.k_proj", rows=128), fp8("m.v_proj"), int4("m.o_proj"))
    assert layers.linear("m.qkv_proj", QKV) == (128, 128)
    assert layers.linear("m.o_proj", QKV) is None
    assert layers.linear("m.q_proj", QKV) == (128, 128)
    assert layers.linear("n.qkv_proj", QKV) is None
    assert layers.linear("m.qkv_proj", {}) is None


def test_a_layer_fused_in_the_checkpoint_goes_by_its_own_name() -> None:
    assert found(fp8("m.qkv_proj")).linear("m.qkv_proj", QKV) == (128, 128)


def test_a_fused_layer_that_is_fp8_in_part_names_both_parts() -> None:
    layers = found(fp8("m.q_proj"), int4("m.k_proj"), bf16("m.v_proj"))
    with pytest.raises(ValueError, match=r"'m\.qkv_proj'.*FP8 m\.q_proj; not FP8 m\.k_proj, m\.v_"):
        layers.linear("m.qkv_proj", QKV)


def test_a_shard_that_the_checkpoint_lacks_has_no_say() -> None:
    layers = found(fp8("m.q_proj"), fp8("m.k_proj"), bf16("m.q_norm"))
    assert layers.linear("m.qkv_proj", QKV) == (128, 128)


def test_shards_of_different_block_sizes_are_an_error() -> None:
    layers = found(fp8("m.q_proj", block=64), fp8("m.k_proj"), fp8("m.v_proj"))
    with pytest.raises(ValueError, match=r"different block sizes.*\[\(64, 64\), \(128, 128\)\]"):
        layers.linear("m.qkv_proj", QKV)


def _experts(make: Callable[[str], Tensors], *numbers: int) -> Tensors:
    tensors: Tensors = {}
    for number in numbers:
        for part in ("gate_proj", "up_proj", "down_proj"):
            tensors |= make(f"m.experts.{number}.{part}")
    return tensors


def test_experts_are_fp8_when_all_of_them_are() -> None:
    layers = found(_experts(fp8, 0, 1), int4("m.shared_expert.up_proj"), bf16("m.gate"))
    assert layers.experts("m.experts") == (128, 128)
    assert layers.experts("m.expert") is None
    assert layers.experts("m") is None


def test_experts_that_are_fp8_in_part_are_an_error() -> None:
    layers = found(_experts(fp8, 0), _experts(int4, 1))
    with pytest.raises(ValueError, match=r"FP8 m\.experts\.0\..*; not FP8 m\.experts\.1\."):
        layers.experts("m.experts")


def test_int4_experts_beside_fp8_layers_stay_as_they_are() -> None:
    layers = found(_experts(int4, 0, 1), fp8("m.shared_expert.up_proj"))
    assert layers.experts("m.experts") is None


# Names


def test_names_follow_the_mapping_of_the_weights() -> None:
    layers = found(
        fp8("model.language_model.layers.0.a"),
        bf16("model.language_model.layers.0.b"),
        fp8("lm_head"),
        fp8("mtp.layers.0.a"),
    )
    mapper = Mapper(
        {
            "model.language_model.": "language_model.model.",
            "lm_head.": "language_model.lm_head.",  # has the dot that only a tensor's name has
            "mtp.": None,
        }
    )
    mapped = layers.renamed(mapper)
    assert set(mapped.blocks) == {"language_model.model.layers.0.a", "language_model.lm_head"}
    assert mapped.others == {"language_model.model.layers.0.b"}
    assert mapped.renamed(mapper) == mapped


def test_a_prefix_without_the_outer_model_is_understood() -> None:
    layers = found(fp8("model.layers.0.q_proj"), _experts(fp8, 0))
    assert layers.linear("layers.0.q_proj", QKV) == (128, 128)
    assert layers.linear("layers.0.qkv_proj", QKV) == (128, 128)
    assert layers.linear("other.layers.0.q_proj", QKV) is None


def test_what_was_found_survives_a_pickle() -> None:
    layers = found(fp8("a"), int4("b"))
    assert pickle.loads(pickle.dumps(layers)) == layers  # noqa: S301  (its own bytes)


# Where the headers come from


def _config() -> Any:
    return SimpleNamespace(data_type="int", hybrid_fp8=None, packed_modules_mapping={})


def attached(model: object, revision: str | None = None) -> Any:
    config = _config()
    hybrid.attach(config, str(model), revision)
    return config


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    # whatever other tests of this process have set up
    monkeypatch.setattr(hybrid.logger, "disabled", False)
    monkeypatch.setattr(hybrid.logger, "propagate", True)
    monkeypatch.setattr(logging.root.manager, "disable", 0)
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO, logger=hybrid.logger.name)
    return caplog


def _evidence() -> str:
    with open(os.path.join(MOD, "mod.toml"), "rb") as file:
        text = tomllib.load(file)["evidence"]["log"]
    assert isinstance(text, str)
    return text


def test_a_checkpoint_that_is_fp8_throughout_is_left_to_inc(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    folder = write_checkpoint(str(tmp_path / "model"), [fp8("a")])
    config = _config()
    config.data_type = "fp"
    hybrid.attach(config, folder)
    assert config.hybrid_fp8 is None
    assert not log.records


class Method:
    """A method of a release, which notes the layers that it has the weights of."""

    def __init__(self) -> None:
        self.layers: list[object] = []

    def process_weights_after_loading(self, layer: object) -> None:
        assert layer != "broken", "its weights do not fit"
        self.layers.append(layer)


def test_the_evidence_is_logged_when_the_weights_are_in(log: pytest.LogCaptureFixture) -> None:
    hybrid._log_loaded.cache_clear()
    methods = [Method(), Method()]
    for method in methods:
        hybrid._log_when_loaded(method)
    with pytest.raises(AssertionError, match="do not fit"):
        methods[0].process_weights_after_loading("broken")
    assert not log.messages
    for method in methods:
        method.process_weights_after_loading("a")
    assert [method.layers for method in methods] == [["a"], ["a"]]
    (line,) = log.messages
    assert re.search(_evidence(), line)


def test_the_log_has_the_count_and_it_is_no_evidence_yet(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    folder = write_checkpoint(str(tmp_path), [fp8("a") | int4("b") | fp8("c")])
    config = attached(folder)
    assert set(config.hybrid_fp8.blocks) == {"a", "c"}
    assert config.use_deep_gemm is None
    (line,) = log.messages
    assert not re.search(_evidence(), line)
    assert "2 FP8 layers" in line
    assert "128x128" in line


def test_a_plain_checkpoint_leaves_the_config_as_it_was(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    config = attached(write_checkpoint(str(tmp_path), [int4("a")]))
    assert vars(config) == vars(_config())
    (line,) = log.messages
    assert "no FP8 layers" in line
    assert not re.search(_evidence(), line)
    hybrid.rename(config, Mapper({}))
    # Had it looked for a method, it would have imported vLLM.
    assert hybrid.quant_method(config, object(), "a") is None


def test_shards_are_read_as_the_index_lists_them(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path), [fp8("a") | int4("b"), fp8("c")])
    write_file(str(tmp_path / "consolidated.safetensors"), fp8("stale"))
    assert set(attached(tmp_path).hybrid_fp8.blocks) == {"a", "c"}


def test_without_an_index_every_file_counts(tmp_path: Path) -> None:
    write_file(str(tmp_path / "one.safetensors"), fp8("a"))
    write_file(str(tmp_path / "two.safetensors"), fp8("b"))
    assert set(attached(tmp_path).hybrid_fp8.blocks) == {"a", "b"}
    assert set(attached(tmp_path / "two.safetensors").hybrid_fp8.blocks) == {"b"}


def _cut_short(folder: Path) -> object:
    write_file(str(folder / "model.safetensors"), fp8("a"))
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(40)
    return folder


def _missing_shard(folder: Path) -> object:
    write_checkpoint(str(folder), [fp8("a"), fp8("b")])
    os.unlink(folder / "model-00002-of-00002.safetensors")
    return folder


def _pointer(folder: Path) -> object:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    return folder


def _index_only(folder: Path) -> object:
    write_checkpoint(str(folder), [fp8("a"), fp8("b")])
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            os.unlink(folder / name)
    return folder


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder,
        _cut_short,
        _missing_shard,
        _pointer,
        _index_only,
        lambda _: "s3://bucket/model",
    ],
)
def test_no_headers_means_inactive_with_one_line_and_no_failure(
    make: Callable[[Path], object], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    config = attached(make(tmp_path))
    assert vars(config) == vars(_config())
    (line,) = log.messages
    assert "inactive" in line
    assert not re.search(_evidence(), line)


class Hub:
    """What vLLM and huggingface_hub answer for one model."""

    def __init__(self, tensors: Tensors | Exception, cached: str | None = None) -> None:
        self.tensors = tensors
        self.cached = cached
        self.asked: list[tuple[str, str | None]] = []

    def metadata(self, model: str, *, revision: str | None = None) -> dict[str, Any]:
        self.asked.append((model, revision))
        if isinstance(self.tensors, Exception):
            raise self.tensors
        return headers(self.tensors)

    def snapshot(self, model: str, **_: object) -> str:
        if self.cached is None:
            message = f"{model} is not in the cache"
            raise FileNotFoundError(message)
        return self.cached

    def install(self, monkeypatch: pytest.MonkeyPatch, *, modelscope: str | None = None) -> None:
        members: dict[str, dict[str, object]] = {
            "vllm": {},
            "vllm.envs": {"VLLM_USE_MODELSCOPE": modelscope is not None},
            "vllm.transformers_utils": {},
            "vllm.transformers_utils.config": {"get_safetensors_params_metadata": self.metadata},
            "vllm.transformers_utils.utils": {"convert_model_repo_to_path": lambda _: modelscope},
            "huggingface_hub": {"snapshot_download": self.snapshot},
        }
        for name, attributes in members.items():
            module = ModuleType(name)
            vars(module).update(attributes)
            monkeypatch.setitem(sys.modules, name, module)
        vars(sys.modules["vllm"])["envs"] = sys.modules["vllm.envs"]
        hybrid._find_on_hub.cache_clear()


def test_a_model_on_the_hub_is_read_at_its_revision_once(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    hub = Hub(fp8("a"))
    hub.install(monkeypatch)
    assert set(attached("org/model", "abc123").hybrid_fp8.blocks) == {"a"}
    assert attached("org/model", "abc123").hybrid_fp8
    assert hub.asked == [("org/model", "abc123")]
    assert "org/model at revision abc123" in log.messages[0]
    attached("org/model")
    assert hub.asked[1:] == [("org/model", None)]


def test_without_the_hub_the_downloaded_files_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cached = write_checkpoint(str(tmp_path), [fp8("a")])
    Hub({}, cached).install(monkeypatch)
    assert attached("org/model").hybrid_fp8


@pytest.mark.parametrize("answer", [{}, ValueError("Repo id must be …"), OSError("no network")])
def test_a_hub_that_does_not_answer_is_no_failure_and_is_asked_again(
    answer: Tensors | Exception, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    hub = Hub(answer)
    hub.install(monkeypatch)
    assert vars(attached("org/model")) == vars(_config())
    assert len(log.messages) == 1
    assert "inactive" in log.messages[0]
    hub.tensors = fp8("a")
    assert attached("org/model").hybrid_fp8


def test_shapes_that_make_no_sense_are_not_taken_for_a_silent_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Hub({"x.weight": ("F8_E4M3", [10, 9]), "x.weight_scale_inv": ("F32", [7, 1])}).install(
        monkeypatch
    )
    with pytest.raises(ValueError, match="no block size"):
        attached("org/model")


def test_modelscope_models_are_read_where_vllm_keeps_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    hub = Hub(AssertionError("the hub is not asked"))
    hub.install(monkeypatch, modelscope=str(tmp_path / "model"))
    assert attached("org/model").hybrid_fp8 is None
    assert "ModelScope" in log.messages[0]
    write_checkpoint(str(tmp_path / "model"), [fp8("a")])
    assert attached("org/model").hybrid_fp8
