"""What the functions behind the door demand before they go on, and of what they ask it."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from memory_tree import MemoryTree

import vllm_mods as vm
from vllm_mods.api import image_verify, matrix, serve_check
from vllm_mods.api.serve_check import ServeArguments, demand
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Level, Plan
from vllm_mods.building import inspection
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.formats.safetensors import Tensor
from vllm_mods.library.catalog import Library
from vllm_mods.matrices import locks
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.template import Serving

TREE = MemoryTree({}, version="0.20.0", spec="image:r")
WRONG = ServeFault(FindingCode.FLAG_UNKNOWN, "--x", "there is no such flag")
LATE = ServeFault(FindingCode.FLAG_UNUSED, "--y", "has no effect")
SERVING = Serving(("m", "--x", "a b"), brought=(("fast", "brings it"),))
ASKED = ServeArguments(SERVING, name="pair")


def answered(monkeypatch: pytest.MonkeyPatch, *faults: ServeFault) -> None:
    monkeypatch.setattr(serve_check, "answer", lambda *_: SimpleNamespace(faults=faults))


@pytest.mark.parametrize(
    ("library", "of"),
    [(Library(), "pair"), (None, "--command 'vllm serve m --x '\"'\"'a b'\"'\"''")],
)
def test_a_command_that_vllm_would_not_take_is_refused_with_how_to_see_why(
    monkeypatch: pytest.MonkeyPatch, library: Library | None, of: str
) -> None:
    answered(monkeypatch, WRONG._replace(level=Level.NOTE, subject="--z"), WRONG)
    notes: list[str] = []
    with pytest.raises(Refused) as caught:
        demand(ASKED._replace(serving=SERVING._replace(library=library)), TREE, note=notes.append)
    assert caught.value.message == (
        "vLLM 0.20.0 would reject the command of pairing pair\n"
        "  --x: there is no such flag [flag-unknown]"
    )
    assert caught.value.hint == f"vllm-mods serve-check {of} --target image:r"
    assert notes == ["fast brings it"]


def test_a_server_that_starts_all_the_same_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, LATE)
    notes: list[str] = []
    demand(ASKED, TREE, note=notes.append)
    assert notes == ["fast brings it", "--y: has no effect"]


MODEL = Checkpoint(
    "org/m", None, {"architectures": ["ToyForCausalLM"]},
    {"visual.a.weight": Tensor("BF16", (1,), 2, "model-2.safetensors")}, "", None,
)  # fmt: skip
CLASSES = MemoryTree(
    {
        "vllm/model_executor/models/registry.py": b'_M = {"ToyForCausalLM": ("toy", "Toy")}',
        "vllm/model_executor/models/toy.py": b"class Toy(nn.Module):\n    def load_weights(self, weights):\n"
        b"        loader = AutoWeightsLoader(self)\n        return loader.load_weights(weights)\n",
    },
    version="0.20.0",
)


def test_a_model_whose_tensors_vllm_would_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered(monkeypatch)
    notes: list[str] = []
    asked = ServeArguments(Serving(("m", "--load-format", "fastsafetensors")), model=MODEL)
    with pytest.raises(Refused) as caught:
        demand(asked, CLASSES, note=notes.append)
    assert caught.value.message == (
        "vLLM 0.20.0 would not load org/m: Toy (vllm/model_executor/models/toy.py:1) has no part named visual, but "
        "the model has tensors for it (1); the first is visual.a.weight in model-2.safetensors"
    )
    others = (
        ("--runner=pooling",),
        ("--hf_overrides", "{}"),
        ("--model-class-overrides", "{}"),
        ("--worker-cls=my.Worker",),
        ("--ignore-patterns", "adapter*"),
    )
    for argv in (("--load-format", "auto"), *others):
        demand(asked._replace(serving=Serving(("m", *argv))), CLASSES, note=notes.append)
    files = ("original/params.json", "modules.json")  # by these, it is a model that embeds
    demand(asked._replace(model=MODEL._replace(files=files)), CLASSES, note=notes.append)
    assert notes == []
    with pytest.raises(Refused):
        demand(asked._replace(model=MODEL._replace(files=files[:1])), CLASSES, note=notes.append)
    path = "vllm/model_executor/models/toy.py"
    patched = CLASSES.files[path].replace(b"(weights)", b"(f(weights))")
    plan = Plan("", None, (), (FileChange(path, None, patched),))
    demand(asked, CLASSES, plan, note=notes.append)
    assert notes == ["the names of the model's tensors were not checked: Toy loads them by itself"]


@pytest.mark.parametrize(
    ("argv", "file", "config", "refused"),
    [
        ((), "x", {}, True),
        (("-q", "fp8"), "x", {}, False),
        (("--model-loader-extra-config", "{}"), "x", {}, False),
        ((), "hf_quant_config.json", {}, False),
        ((), "x", {"quantization_config": {}}, False),
        ((), "x", {"block_configs": [{"attention": {"no_op": 1}}]}, False),
    ],
)
def test_a_layer_is_missed_in_a_model_that_is_not_quantised(
    monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...],
    file: str,
    config: dict[str, Any],
    *,
    refused: bool,
) -> None:
    answered(monkeypatch)
    path = "vllm/model_executor/models/toy.py"
    layers = b"    def __init__(self): self.start, self.end, self.h = make_layers(config.layers, Layer)\n"
    files = {**CLASSES.files, path: CLASSES.files[path].replace(b"):\n", b"):\n" + layers, 1)}
    tensors = {"h.0.norm.weight": MODEL.tensors["visual.a.weight"]}
    model = MODEL._replace(config={**MODEL.config, "layers": 2, **config}, tensors=tensors)
    asked = ASKED._replace(model=model._replace(files=(file,)), serving=Serving(("m", *argv)))
    with pytest.raises(Refused) if refused else contextlib.nullcontext():
        demand(asked, MemoryTree(files), note=lambda _text: None)


@pytest.mark.parametrize(
    ("config", "refused"),
    [({}, True), ({"vision_config": {}}, True), ({"vision_config": {"depth": 1}}, False)],
)
def test_a_text_model_that_vllm_makes_one_that_sees_of_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], *, refused: bool
) -> None:
    """MiMo-V2's architecture stays that of its text model (``MimoV2ModelArchConfigConvertor``)."""
    answered(monkeypatch)
    files = {path: text.replace(b"ToyFor", b"MiMoV2For") for path, text in CLASSES.files.items()}
    model = MODEL._replace(config={"architectures": ["MiMoV2ForCausalLM"], **config})
    with pytest.raises(Refused) if refused else contextlib.nullcontext():
        demand(ASKED._replace(model=model), MemoryTree(files), note=lambda _text: None)


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("model_executor/models/utils.py", False),
        ("model_executor/model_loader/default_loader.py", False),
        ("transformers_utils/config.py", False),
        ("model_executor/models/llama.py", True),
    ],
)
@pytest.mark.parametrize("applied", [True, False])
def test_a_mod_of_what_loads_may_load_what_the_class_alone_would_not(
    monkeypatch: pytest.MonkeyPatch, path: str, *, applied: bool, refused: bool
) -> None:
    answered(monkeypatch)
    path = f"vllm/{path}"
    saved = Receipt("0.20.0", (), (ReceiptFile(path, None, None),)) if applied else None
    monkeypatch.setattr(serve_check, "receipt_of", lambda _tree: saved)
    plan = None if applied else Plan("", None, (), (FileChange(path, None, b""),))
    with pytest.raises(Refused) if refused else contextlib.nullcontext():
        demand(ASKED._replace(model=MODEL), CLASSES, plan, note=lambda _text: None)


def test_a_plugin_that_the_environment_names_may_have_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered(monkeypatch)
    asked = ASKED._replace(serving=SERVING._replace(env={"VLLM_PLUGINS": "mine"}), model=MODEL)
    demand(asked, CLASSES, note=lambda _text: None)


def test_of_a_script_with_several_servers_the_first_is_checked_unless_one_is_asked_for() -> None:
    text = "if [ $GPUS = 2 ]\nthen\nvllm serve m -tp 2\nelse\nvllm serve m\nfi"
    assert serve_check.of_script(text, "it", "hint").serving.argv == ("m", "-tp", "2")
    with pytest.raises(UsageError, match="it starts several servers"):
        serve_check.of_script(text, "it", "hint", alone=True)


def test_a_command_that_cannot_be_checked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise TreeError("no metadata")

    monkeypatch.setattr(serve_check, "answer", fails)
    notes: list[str] = []
    demand(ASKED, TREE, note=notes.append)
    assert notes == ["the serve command is not checked: no metadata"]


@pytest.mark.parametrize("reference", ["r:1", "image:r:1"])
def test_an_image_is_named_with_its_kind_or_without(
    monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    opened: list[tuple[str, dict[str, Any]]] = []

    def opens(_access: vm.Access, spec: str, **named: Any) -> MemoryTree:
        opened.append((spec, named))
        return TREE

    monkeypatch.setattr(vm.Access, "open", opens)
    monkeypatch.setattr(inspection, "inspect", lambda tree: tree)
    seen: Any = image_verify.image_inspect(
        reference, vm.Access(), platform="linux/arm64", in_image="/s"
    )
    assert seen == TREE
    assert opened == [("image:r:1", {"platform": "linux/arm64", "in_image": "/s"})]


def test_a_lock_is_written_of_releases_without_a_hash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "news", lambda *_: ("pypi:0.20.0", "git:x@y", "pypi:0.21.0"))
    verified: list[tuple[str, bool]] = []
    access = vm.Access()
    access.__dict__["releases"] = SimpleNamespace(
        open=pytest.fail, verify=lambda name, *, unstated: verified.append((name, unstated))
    )
    assert matrix.write_locks((), (), access) == ()
    assert verified == [("0.20.0", True), ("0.21.0", True)]
