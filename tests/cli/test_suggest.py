"""`suggest`, `check --model`, and what `lock` says of a pairing's model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hybrid_checkpoints import bf16, fp8, int4, write_checkpoint
from paired import NAME, Caller
from test_lock_and_build import base, caller

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., Any]

CONFIG = {
    "model_type": "qwen3_5_moe",
    "quantization_config": {"quant_method": "auto-round", "bits": 4},
}
TOY = {
    "vllm/model_executor/models/registry.py": b'_M = {"ToyForCausalLM": ("toy", "Toy")}\n',
    "vllm/model_executor/models/toy.py": b"class Toy(nn.Module):\n    def load_weights(self, weights):\n"
    b"        loader = AutoWeightsLoader(self)\n        return loader.load_weights(weights)\n",
}
TOY_WITH_HEAD = b"""class Toy(nn.Module):
    def __init__(self, config):
        self.model = Model(config)
        self.lm_head = ParallelLMHead(config.vocab_size, config.hidden_size)
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        return loader.load_weights(weights)
"""
WHEN = '\n[[when]]\nconfig = { model_type = ["qwen3_5_moe"] }\nfails = "KeyError"\n'


def hybrid(tmp_path: Path, name: str = "Qwen3.5-122B-A10B-hybrid-int4fp8") -> str:
    tensors = int4("model.layers.0.mlp.up_proj") | fp8("model.layers.0.self_attn.q_proj")
    return write_checkpoint(str(tmp_path / name), [tensors], config=CONFIG)


def plain(tmp_path: Path) -> str:
    return write_checkpoint(str(tmp_path / "plain"), [bf16("a")], config={"model_type": "llama"})


@pytest.mark.slow
def test_a_hybrid_checkpoint_needs_its_mod_and_has_a_pairing(call: Call, tmp_path: Path) -> None:
    said = call("suggest", hybrid(tmp_path), "--json").json
    (mod,) = said["mods"]
    assert (mod["name"], mod["required"]) == ("hybrid-int4-fp8", True)
    assert "weight_scale_inv" in mod["without"]
    assert [one["name"] for one in said["templates"]] == [
        "qwen3.5-enhanced",
        "qwen3.6-enhanced",
        "qwen3.8-enhanced",
    ]
    first, *others = said["pairings"]
    assert (first["name"], first["ok"], first["same"]) == ("qwen3.5-122b-hybrid", True, True)
    assert all("lacks hybrid-int4-fp8" in one["why"] for one in others)
    text = call("suggest", hybrid(tmp_path)).out
    assert "without this mod vLLM fails: KeyError" in text
    assert "  qwen3.5-122b-hybrid: for this model\n" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("My-Qwen3.6-35B", "qwen3.6-enhanced (or qwen3.5-enhanced, qwen3.8-enhanced)"),
        ("Qwen3.8-27B", "qwen3.8-enhanced (or qwen3.5-enhanced, qwen3.6-enhanced)"),
    ],
)
def test_the_template_that_is_called_as_the_model_stands_first(
    call: Call, tmp_path: Path, model: str, words: str
) -> None:
    assert f"\n  {words}\n" in call("suggest", hybrid(tmp_path, model)).out


@pytest.mark.slow
def test_suggest_says_whether_what_is_needed_goes_into_a_tree(
    call: Call, site: Path, tmp_path: Path
) -> None:
    answer = call("suggest", hybrid(tmp_path), "--target", site, "--json")
    verdicts = [(one["name"], one["verdict"]) for one in answer.json["plan"]["mods"]]
    assert verdicts == [("hybrid-int4-fp8", "missing"), ("qwen3.5-enhanced", "applies")]
    assert (answer.code, answer.json["ok"]) == (1, False)


@pytest.mark.parametrize("by_folder", [False, True])
def test_suggest_refuses_a_model_that_the_vllm_of_the_target_would_not_load(
    call: Call, site: Path, library: Path, tmp_path: Path, *, by_folder: bool
) -> None:
    place = write_checkpoint(
        str(tmp_path / "model"),
        [bf16("model.a.weight")],
        config={"architectures": ["ToyForCausalLM"]},
    )
    model = ("org/name", "--model-folder", place) if by_folder else (place,)
    words = ("suggest", *model, "--library", library)
    for path, data in TOY.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    answer = call(*words, "--target", site)
    assert answer.code == 3
    assert (
        f"would not load {model[0]}: Toy (vllm/model_executor/models/toy.py:1) has no part named model, "
        in answer.err
    )
    assert call(*words).code == 0  # of no vLLM nothing is known
    (site / "vllm/model_executor/models/toy.py").write_bytes(TOY_WITH_HEAD)
    config = {"architectures": ["ToyForCausalLM"], "tie_word_embeddings": False}
    write_checkpoint(place, [bf16("model.a.weight")], config=config)
    noted = "the model has no tensors for lm_head of Toy (vllm/model_executor/models/toy.py:1): vLLM answers nonsense"
    answer = call(*words, "--target", site)
    assert (answer.code, f"\n  {noted}\n" in answer.out) == (0, True)
    assert call(*words, "--target", site, "--json").json["notes"] == [noted]


@pytest.mark.slow
def test_nothing_is_for_a_model_of_another_kind(call: Call, tmp_path: Path) -> None:
    said = call("suggest", plain(tmp_path))
    assert said.code == 0
    assert "mods         none is for this model\n" in said.out


@pytest.mark.slow
def test_check_holds_mods_against_a_model(
    call: Call, site: Path, library: Path, tmp_path: Path
) -> None:
    manifest = library / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text() + WHEN)
    good = call("check", "fast", "limit", "--model", hybrid(tmp_path), "--target", site)
    assert (good.code, "each mod is for this model" in good.out) == (0, True)
    bad = call("check", "fast", "limit", "--model", plain(tmp_path), "--target", site, "--json")
    assert bad.code == 1
    assert bad.json["ok"] is False
    assert [(one["name"], one["meant"]) for one in bad.json["model"]["mods"]] == [
        ("fast", False),
        ("limit", True),
    ]
    shown = call(
        "check", "fast", "--model", plain(tmp_path), "--target", site, "--format", "github"
    )
    assert shown.code == 1
    assert "title=fast 1.0.0%3A model::the mod is not for this model: " in shown.out
    said = call("check", "fast", "--model", plain(tmp_path), "--target", site)
    assert (
        "fast is not for this model: config.json has 'llama' for model_type, and the mod needs 'qwen3_5_moe'"
        in said.out
    )
    assert said.err.endswith(f"hint: vllm-mods suggest {tmp_path}/plain --target {site}\n")


def test_a_manifest_says_what_is_wrong_with_its_models(call: Call, library: Path) -> None:
    manifest = library / "patches/fast/mod.toml"
    manifest.write_text(
        manifest.read_text()
        + '\n[[when]]\n[[when]]\nconfig = { a = [{}] }\ntensors = { b = [1] }\nname = "x"\n'
    )
    said = call("show", "fast")
    assert said.code == 2
    assert "when[0]: names no key of config.json" in said.err
    assert "when[1].config.a[0]: expected text, a number, true or false, found a table" in said.err
    assert "when[1].tensors.b[0]: expected a string" in said.err
    assert "when[1].name: unknown key" in said.err


@pytest.fixture
def locking(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    found = caller(tmp_path, capfd, monkeypatch)
    manifest = found.library / "patches/patching/mod.toml"
    manifest.write_text(manifest.read_text() + WHEN)
    return found


def serve(caller: Caller, model: str) -> None:
    pairing = caller.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("org/small", model))


@pytest.mark.slow
def test_lock_writes_down_what_the_model_was(locking: Caller, tmp_path: Path) -> None:
    place = hybrid(tmp_path)
    serve(locking, place)
    locking("lock", NAME, "--base", locking.base)
    locked = json.loads(locking.lock.read_bytes())["checkpoint"]
    assert locked["index_sha256"] is None
    locking("lock", NAME, "--base", locking.base, "--check")
    locking("build", NAME, "--base", locking.base, "--output", f"oci:{tmp_path / 'made'}")
    Path(place, "config.json").write_text(json.dumps({**CONFIG, "more": 1}))
    moved = locking("lock", NAME, "--base", locking.base, "--check", code=1)
    assert moved.out.startswith(f"checkpoint.config_sha256: {locked['config_sha256']} → ")


def test_lock_refuses_a_model_that_its_mods_are_not_for(locking: Caller, tmp_path: Path) -> None:
    serve(locking, plain(tmp_path))
    said = locking("lock", NAME, "--base", locking.base, code=3)
    assert "\n  patching: config.json has 'llama'" in said.err
    assert not locking.lock.exists()


@pytest.mark.slow
def test_lock_and_build_refuse_tensors_that_the_class_in_the_base_has_no_place_for(
    locking: Caller, tmp_path: Path
) -> None:
    place = hybrid(tmp_path)
    serve(locking, place)
    config = Path(place, "config.json")
    config.write_text(json.dumps({**CONFIG, "architectures": ["ToyForCausalLM"]}))
    with_class = f"oci:{base(tmp_path / 'with', more=TOY)}"
    why = (
        "vLLM 0.19.1 would not load "
        + place
        + ": Toy (vllm/model_executor/models/toy.py:1) has no part named model, "
    )
    said = locking("lock", NAME, "--base", with_class, code=3)
    assert (
        f"error: {why}but the model has tensors for it (1); the first is model.layers.0.self_attn."
        in said.err
    )
    named = config.read_text()
    config.write_text(json.dumps(CONFIG))
    locking("lock", NAME, "--base", with_class)
    config.write_text(named)
    made = f"oci:{tmp_path / 'made'}"
    assert why in locking("build", NAME, "--base", with_class, "--output", made, code=3).err
    assert not Path(made[4:]).exists()


@pytest.mark.slow
def test_lock_says_where_nobody_could_look_at_the_model(locking: Caller) -> None:
    said = locking("lock", NAME, "--base", locking.base)
    assert "the mods were not checked against the model org/small: " in said.err
    assert "checkpoint" not in json.loads(locking.lock.read_bytes())
    serve(locking, "/models/not-here")
    assert (
        "/models/not-here is not on this machine"
        in locking("lock", NAME, "--base", locking.base).err
    )


@pytest.mark.slow
def test_lock_names_the_mod_that_a_model_cannot_do_without(locking: Caller, tmp_path: Path) -> None:
    serve(locking, hybrid(tmp_path))
    said = locking("lock", NAME, "--base", locking.base)
    assert "the pairing lacks hybrid-int4-fp8, which this model needs: KeyError" in said.err
