"""What a checkpoint is: read from a folder, or in parts from a Hub of our own; weights are not read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hybrid_checkpoints import Tensors, bf16, fp8, int4, write_checkpoint
from lowering import lower
from mod_making import mod, variant
from package_server import settings_of_none
from web_site import Site, site

from vllm_mods.base.errors import Refused, TreeError, Unreachable, UsageError
from vllm_mods.base.model import TemplateFile, When
from vllm_mods.checkpoints import fitting, sources
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.device import Device
from vllm_mods.checkpoints.facts import facts
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.safetensors import Tensor
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_mods.base.model import Mod

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "quantization_config": {"quant_method": "auto-round", "bits": 4},
    "text_config": {
        "max_position_embeddings": 262144,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    },
}
GDN: Tensors = {"model.layers.2.linear_attn.A_log": ("F32", [8])}
FILES = (
    int4("model.layers.0.mlp.up_proj") | fp8("model.layers.0.self_attn.q_proj"),
    int4("model.layers.1.mlp.up_proj") | fp8("model.layers.1.self_attn.q_proj") | GDN,
)


def hybrid(folder: Path, config: dict[str, Any] = CONFIG) -> str:
    return write_checkpoint(str(folder / "model"), FILES, config=config)


def test_a_folder_says_what_its_layers_are(tmp_path: Path) -> None:
    said = facts(open_checkpoint(hybrid(tmp_path)))
    assert (said.architecture, said.quantization, said.bits) == (
        "Qwen3_5MoeForConditionalGeneration",
        "auto-round",
        4,
    )
    assert said.packed.patterns == (("model.layers.*.mlp.up_proj", 2),)
    assert said.block_fp8.patterns == (("model.layers.*.self_attn.q_proj", 2),)
    assert said.gdn.patterns == (("model.layers.*.linear_attn", 1),)
    assert (said.gdn.total, said.context) == (1, 262144)


def test_no_weights_are_read(tmp_path: Path) -> None:
    place = hybrid(tmp_path)
    for name in os.listdir(place):
        if name.endswith(".safetensors"):
            os.truncate(f"{place}/{name}", 1 << 40)  # a terabyte of nothing
    assert facts(open_checkpoint(place)).block_fp8.total == 2


def test_the_bundled_mods_know_what_they_are_for(tmp_path: Path) -> None:
    one = open_checkpoint(hybrid(tmp_path))
    library = Library()
    fits = {name: fitting.of_mod(library.load(name), one) for name in library.names()}
    assert all(fit.meant and fit.stated for fit in fits.values())
    assert [fit.name for fit in fits.values() if fit.fails] == ["hybrid-int4-fp8"]
    plain = open_checkpoint(
        write_checkpoint(str(tmp_path / "plain"), [bf16("a")], config={"model_type": "qwen3"})
    )
    others = (fitting.of_mod(library.load(name), plain) for name in library.names())
    assert not any(fit.meant for fit in others if fit.stated)
    with pytest.raises(
        Refused, match=r"hybrid-int4-fp8: config\.json has nothing for quantization"
    ):
        fitting.demand(library.mods("hybrid-int4-fp8"), plain, "x", "org/x")


def test_an_int4_checkpoint_without_fp8_layers_needs_no_hybrid_mod(tmp_path: Path) -> None:
    place = write_checkpoint(str(tmp_path / "m"), [int4("a.b")], config=CONFIG)
    fit = fitting.of_mod(Library().load("hybrid-int4-fp8"), open_checkpoint(place))
    assert (fit.meant, fit.why) == (False, "the model has no F8_E4M3 tensor named *.weight")


def whole(data: bytes) -> Callable[[Site], None]:
    """Answer as the Hub's storage does: ranges where they are asked for."""

    def answer(one: Site) -> None:
        first, last = one.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1]
        one.say(206, part, Content_Range=f"bytes {first}-{last}/{len(data)}")

    return answer


def hub(folder: str, revision: str = "main") -> dict[str, Callable[[Site], None]]:
    names = sorted(os.listdir(folder))
    said = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name} for name in names]})
    answers = {
        f"/org/model/resolve/{COMMIT}/{name}": whole(Path(folder, name).read_bytes())
        for name in names
    }
    return {
        f"/api/models/org/model/revision/{revision}": lambda one: one.say(200, said.encode()),
        **answers,
    }


def test_a_model_on_the_hub_is_read_in_parts_at_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_of_none(tmp_path, monkeypatch)
    place = hybrid(tmp_path)
    with site(hub(place, "refs%2Fpr%2F1")) as (url, seen):
        one = open_checkpoint("org/model", "refs/pr/1", environ={"HF_ENDPOINT": f"{url}/"})
    here = open_checkpoint(place)
    assert (one.commit, one.tensors, one.config_sha256) == (
        COMMIT,
        here.tensors,
        here.config_sha256,
    )
    assert one.index_sha256 == here.index_sha256
    asked = [
        headers["Range"]
        for _, path, headers in seen.seen
        if path.endswith("00001-of-00002.safetensors")
    ]
    size = os.path.getsize(f"{place}/config.json")
    ranges = [headers["Range"] for _, path, headers in seen.seen if path.endswith("/config.json")]
    assert ranges == ["bytes=0-0", f"bytes=0-{size - 1}"]
    assert asked[0] == "bytes=0-7"
    assert len(asked) == 2


def test_of_a_model_on_the_hub_only_what_lies_on_top_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM reads no other: below lie checkpoints of the training, and adapters."""
    settings_of_none(tmp_path, monkeypatch)
    place = write_checkpoint(str(tmp_path / "m"), [bf16("a")], config={"model_type": "llama"})
    answers = hub(place)
    named = [{"rfilename": name} for name in (*os.listdir(place), "step-5/adapter.safetensors")]
    said = json.dumps({"sha": COMMIT, "siblings": named}).encode()
    answers["/api/models/org/model/revision/main"] = lambda one: one.say(200, said)
    with site(answers) as (url, _):
        one = open_checkpoint("org/model", environ={"HF_ENDPOINT": url})
    assert one.tensors == open_checkpoint(place).tensors


CONFIG_BYTES = b'{"model_type": "llama"}'


def config_of(answer: Callable[[Site], None], *names: str) -> dict[str, Callable[[Site], None]]:
    """A Hub whose model has a config.json, and files that it does not send."""
    siblings = [{"rfilename": name} for name in ("config.json", *names)]
    page = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    return {
        "/api/models/org/model/revision/main": lambda asked: asked.say(200, page),
        f"/org/model/resolve/{COMMIT}/config.json": answer,
        **{
            f"/org/model/resolve/{COMMIT}/{name}": lambda asked: asked.say(200, bytes(64))
            for name in names
        },
    }


@pytest.mark.parametrize("ranges", [True, False])
def test_a_configuration_is_read_up_to_its_limit_with_ranges_and_without(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranges: bool,  # noqa: FBT001
) -> None:
    settings_of_none(tmp_path, monkeypatch)

    def answer(asked: Site) -> None:
        if ranges:
            whole(CONFIG_BYTES)(asked)
        else:
            asked.say(200, CONFIG_BYTES)

    with site(config_of(answer)) as (url, _):
        lower(monkeypatch, "CHECKPOINT_CONFIG", len(CONFIG_BYTES))
        read = open_checkpoint("org/model", environ={"HF_ENDPOINT": url})
        assert (read.config["model_type"], read.tensors) == ("llama", {})
        lower(monkeypatch, "CHECKPOINT_CONFIG", len(CONFIG_BYTES) - 1)
        with pytest.raises(TreeError, match=f"config.json has {len(CONFIG_BYTES)} bytes, and"):
            open_checkpoint("org/model", environ={"HF_ENDPOINT": url})


def test_a_folders_configuration_is_read_up_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes(CONFIG_BYTES)
    lower(monkeypatch, "CHECKPOINT_CONFIG", len(CONFIG_BYTES))
    assert open_checkpoint(str(tmp_path)).config["model_type"] == "llama"
    lower(monkeypatch, "CHECKPOINT_CONFIG", len(CONFIG_BYTES) - 1)
    with pytest.raises(TreeError, match=r"the limit for the config\.json"):
        open_checkpoint(str(tmp_path))


def test_what_the_hub_does_not_have_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_of_none(tmp_path, monkeypatch)
    with site({}) as (url, _), pytest.raises(UsageError) as caught:
        open_checkpoint("org/model", "v9", environ={"HF_ENDPOINT": url})
    assert caught.value.message == ("org/model: the Hub has no such model at v9, or wants a login")
    assert caught.value.hint == "download it (`hf download`), and name the folder"
    with pytest.raises(UsageError) as wrong:
        open_checkpoint("/nowhere/at/all")
    assert wrong.value.message == (
        "/nowhere/at/all: no such folder, and not a model id on the Hub (ORGANISATION/NAME)"
    )
    assert wrong.value.hint == "name the folder that contains its config.json"


@pytest.mark.parametrize("ranges", [1, 0])
def test_a_server_that_sends_ranges_no_more_is_told_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int
) -> None:
    settings_of_none(tmp_path, monkeypatch)
    answers = config_of(whole(CONFIG_BYTES), "model.safetensors")
    left = [ranges]

    def answer(one: Site) -> None:
        left[0] -= 1
        if left[0] < 0:
            one.say(200, bytes(64))
        else:
            whole((40).to_bytes(8, "little") + bytes(56))(one)

    path = f"/org/model/resolve/{COMMIT}/model.safetensors"
    with site({**answers, path: answer}) as (url, _), pytest.raises(TreeError) as caught:
        open_checkpoint("org/model", environ={"HF_ENDPOINT": url})
    why = (
        f"it has fewer than {48 if ranges else 8} bytes, or the server does not support byte ranges"
    )
    hint = "download it (`hf download`), and name the folder"
    assert (caught.value.message, caught.value.hint) == (f"{url}{path}: {why}", hint)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"[]", "not what the Hub|not an object"),
        (b'{"sha": "../../x", "siblings": []}', "not the Hub's description"),
        (b'{"sha": 1, "siblings": []}', "not the Hub's description"),
        (b'{"sha": "' + COMMIT.encode() + b'", "siblings": {}}', "not the Hub's description"),
        (
            b'{"sha": "' + COMMIT.encode() + b'", "siblings": [1, {"rfilename": 2}]}',
            "no config.json",
        ),
    ],
)
def test_a_hub_that_answers_nonsense_is_an_error(
    said: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_of_none(tmp_path, monkeypatch)
    answers = {"/api/models/org/model/revision/main": lambda one: one.say(200, said)}
    with site(answers) as (url, _), pytest.raises(TreeError, match=why):
        open_checkpoint("org/model", environ={"HF_ENDPOINT": url})


def of(config: object = None, **tensors: tuple[str, list[int]]) -> Checkpoint:
    table = config if isinstance(config, dict) else {"model_type": "x"}
    read = {name: Tensor(dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()}
    return Checkpoint("org/x", None, table, read, "0" * 64, None)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (None, None, None, None, None)),
        (
            {
                "architectures": ["A", "B"],
                "model_type": "x",
                "quantization_config": {"quant_method": "gptq", "bits": 4},
                "max_position_embeddings": 7,
            },
            ("A", "x", "gptq", 4, 7),
        ),
        (
            {"text_config": {"model_type": "y", "max_position_embeddings": 8}},
            (None, "y", None, None, 8),
        ),
        (
            {
                "architectures": [],
                "model_type": 1,
                "quantization_config": {"quant_method": ["gptq"], "bits": True},
                "text_config": [],
            },
            (None, None, None, None, None),
        ),
        ({"architectures": "A", "quantization_config": "gptq"}, (None, None, None, None, None)),
    ],
)
def test_what_a_config_says_is_told_where_it_is_of_the_kind(
    config: dict[str, Any], expected: tuple[object, ...]
) -> None:
    shown = facts(of(config))
    values = (shown.architecture, shown.model_type, shown.quantization, shown.bits, shown.context)
    assert values == expected


def test_layers_are_counted_by_their_patterns() -> None:
    shown = facts(
        of(
            {},
            **{
                "a.0.qweight": ("I32", []),
                "a.11.qweight": ("I32", []),
                "b.7": ("I32", []),
                "b1.up.weight_packed": ("I32", []),
                "c.3.q.weight": ("F8_E5M2", []),
                "c.3.q.weight_scale_inv": ("F32", []),
                "d.weight": ("F8_E4M3", []),  # without a scale
                "e.weight": ("BF16", []),
                "e.weight_scale_inv": ("F32", []),
            },
        )
    )
    assert shown.packed == (3, (("a.*", 2), ("b1.up", 1)))
    assert shown.block_fp8 == (1, (("c.*.q", 1),))
    assert shown.gdn == (0, ())


@pytest.mark.parametrize(
    ("when", "why"),
    [
        (When(config=(("model_type", ("x", "y")),)), ""),
        (When(config=(("model_type", ()),)), ""),
        (When(config=(("deep.key", (4,)),)), ""),
        (When(config=(("list", ("b",)),)), ""),
        (When(tensors=(("*.A_log", ()),)), ""),
        (When(tensors=(("*.A_log", ("F16", "F32")),)), ""),
        (
            When(config=(("model_type", ("y", "z")),)),
            "config.json has 'x' for model_type, and the mod needs 'y' or 'z'",
        ),
        (
            When(config=(("none", ()),)),
            "config.json has nothing for none, and the mod needs something",
        ),
        (
            When(config=(("deep.key", (True,)), ("none", ()))),
            "config.json has 4 for deep.key, and the mod needs True",
        ),
        (
            When(config=(("long", ("x",)),)),
            f"config.json has '{'l' * 79} for long, and the mod needs 'x'",
        ),
        (When(tensors=(("*.B", ()),)), "the model has no tensor named *.B"),
        (
            When(tensors=(("*.A_log", ("F16", "BF16")),)),
            "the model has no F16 or BF16 tensor named *.A_log",
        ),
    ],
)
def test_what_of_a_mod_is_not_so_of_a_model(when: When, why: str) -> None:
    config = {"model_type": "x", "deep": {"key": 4}, "list": ["a", "b"], "long": "l" * 200}
    model = of(config, **{"a.A_log": ("F32", [1])})
    fit = fitting.of_mod(mod(when=(when._replace(fails="it dies"),)), model)
    assert fit == ("mod", not why, True, why, "" if why else "it dies")


def test_a_mod_is_for_a_model_if_one_of_its_cases_is() -> None:
    yes, no = When(config=(("model_type", ("x",)),)), When(config=(("a", ()),), fails="no")
    other = When(tensors=(("b", ()),))
    assert fitting.of_mod(mod(when=(no, yes)), of()) == ("mod", True, True, "", "")
    assert fitting.of_mod(mod(), of()) == ("mod", True, False, "", "")
    why = "config.json has nothing for a, and the mod needs something; or the model has no tensor named b"
    some = of(a=("F32", [1]))
    assert fitting.of_mod(mod(when=(no, other)), some) == ("mod", False, True, why, "")
    assert fitting.of_pairing(
        Pairing("pair", "s", "a/x", "image", "vllm serve"), [mod(when=(no,))], (), of()
    ) == ("pair", False, True, f"mod is not for this model: {why.partition(';')[0]}")
    with pytest.raises(Refused) as caught:
        fitting.demand([mod(when=(no,), name="one"), mod(when=(yes,))], of(), "pair", "/a b")
    assert caught.value.message == (
        f"pairing pair: its mods are not for its model org/x\n  one: {why.partition(';')[0]}"
    )
    assert caught.value.hint == "vllm-mods suggest '/a b'"


def test_whether_a_mod_is_for_unknown_tensors_is_unknown() -> None:
    needs = mod(when=(When(tensors=(("b", ()),)),), name="one")
    fit = fitting.of_pairing(Pairing("pair", "s", "a/x", "image", "vllm serve"), [needs], (), of())
    assert fit.why.startswith(
        "one is possibly not for this model: without safetensors files its tensors"
    )
    with pytest.raises(Refused, match="its mods are possibly not for its model org/x\n  one: with"):
        fitting.demand([needs], of(), "pair", "/a b")


def test_a_template_that_is_called_as_the_model_stands_before_others() -> None:
    yes = When(config=(("model_type", ("x",)),))
    brings = variant(templates=(TemplateFile("t", "t.jinja", source="", data=b""),))
    named = of()._replace(name="Org/Fast-7B")
    mods = [mod(brings, name=name, when=(yes,)) for name in ("other", "fast-chat")]
    needed = mod(name="needed", when=(yes._replace(fails="it dies"),))
    more = mod(name="more", when=(yes,))
    suggested = fitting.suggest(named, [*mods, more, needed, mod(name="silent")], ())
    assert [one.name for one in suggested.templates] == ["fast-chat", "other"]
    assert [one.name for one in suggested.mods] == ["needed", "more"]
    assert suggested.pairings == ()


def test_what_a_folder_lacks_is_told_with_what_helps(tmp_path: Path) -> None:
    with pytest.raises(TreeError) as caught:
        open_checkpoint(str(tmp_path))
    assert caught.value.message == (f"{tmp_path} has no config.json, so vLLM cannot serve it")
    hint = "name the folder that contains it, or an id on the Hub: ORGANISATION/NAME"
    assert caught.value.hint == hint
    (tmp_path / "config.json").write_bytes(CONFIG_BYTES)
    index = {"weight_map": {"a": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(TreeError) as caught:
        open_checkpoint(str(tmp_path))
    why = "1 of its 1 weight files are missing (a.safetensors)"
    assert caught.value.message == f"{tmp_path}: {why}"
    assert caught.value.hint == "run `hf download` again, which continues where it stopped"
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(TreeError) as caught:
        open_checkpoint(str(tmp_path))
    path = tmp_path / "a.safetensors"
    assert caught.value.message == f"{path}: not a regular file"
    assert caught.value.hint == f"namei -l {path}  # shows who may read it"


def test_all_tensors_of_a_model_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hybrid(tmp_path)
    count = len(open_checkpoint(place).tensors)
    lower(monkeypatch, "TENSORS", count)
    assert len(open_checkpoint(place).tensors) == count
    lower(monkeypatch, "TENSORS", count - 1)
    with pytest.raises(TreeError, match=f"has more than {count - 1}"):
        open_checkpoint(place)


@pytest.mark.parametrize(
    ("model", "is_one"),
    [
        *(("org/model", True), ("gpt2", True), ("a.b-c/_d.e", True)),
        *(("/org/model", False), ("org/model/x", False), ("./x", False), ("-x/y", False)),
        *(("org/", False), ("org/m\n", False), ("org/é", False), ("", False)),
    ],
)
def test_an_id_on_the_hub(model: str, *, is_one: bool) -> None:
    assert sources.is_hub_id(model) is is_one


@pytest.mark.parametrize("word", ["1", "on", "Yes", "TRUE"])
def test_a_hub_that_is_not_to_be_asked_is_not(word: str) -> None:
    with pytest.raises(Unreachable) as caught:
        open_checkpoint("org/model", environ={"HF_HUB_OFFLINE": word})
    assert caught.value.message == "org/model: the Hub was not asked (HF_HUB_OFFLINE)"
    assert caught.value.hint == "download it (`hf download`), and name the folder"


def test_what_fits_a_model_stands_first(tmp_path: Path) -> None:
    library = Library()
    checkpoint = open_checkpoint(hybrid(tmp_path))
    hybrid_mod = library.load("hybrid-int4-fp8")
    silent = library.load("qwen3.8-enhanced")._replace(when=())

    def named(name: str, model: str, *mods: Mod) -> tuple[Pairing, tuple[Mod, ...]]:
        return Pairing(name, "s", model, "image", "vllm serve {model}"), mods

    suggested = fitting.suggest(
        checkpoint,
        (hybrid_mod, silent),
        (
            named("silent", "a/model", silent),
            named("lacks", "a/other", library.load("qwen3.5-enhanced")),
            named("fits", "a/other", hybrid_mod),
            named("same", "a/Model/", hybrid_mod),
        ),
    )
    assert [(one.name, one.ok, one.same) for one in suggested.pairings] == [
        ("same", True, True),
        ("fits", True, False),
        ("silent", False, True),
        ("lacks", False, False),
    ]
    tight = Device("GPU", 1)
    empty = Pairing("empty", "s", "a/m", "image", "")
    held = [
        fitting.of_pairing(one, (hybrid_mod,), (), checkpoint, tight)
        for one in (empty, named("p", "m")[0])
    ]
    assert [one.ok for one in held] == [True, False]
    assert held[1].why.startswith(
        "the model needs 0.0 GiB for weights on the GPU, but vLLM may use only 0.0 GiB"
    )
    why = {one.name: one.why for one in suggested.pairings}
    assert why["lacks"] == "it lacks hybrid-int4-fp8"
    assert why["silent"] == "it lacks hybrid-int4-fp8; no mod of the pairing states its models"
    assert [one.name for one in suggested.mods] == ["hybrid-int4-fp8"]
