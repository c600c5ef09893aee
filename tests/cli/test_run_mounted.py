"""What a container is started with where its image has no mods, or where their code notes that it runs: without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from paired import NAME, Caller
from test_lock_and_build import SITE, caller
from test_suggest import TOY

import vllm_mods as vm
from vllm_mods.api import run, serving_image
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.formats.safetensors import Tensor
from vllm_mods.images import engine_command
from vllm_mods.running import recording
from vllm_mods.running.service import StartOptions, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_mods.api.serving_image import ServedPairing

GONE = b"diff --git a/vllm/b.py b/vllm/b.py\ndeleted file mode 100644\n--- a/vllm/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-B = 1\n"


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    found = caller(tmp_path, capfd, monkeypatch)
    pairing = found.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("base:1", found.base) + '[env]\nX = "a\\nb"\n')
    found("lock", NAME)
    return found


def planned(call: Caller, image: str, *, mount: bool = False) -> ServedPairing:
    """Plan a start of what lies in a layout, as if that were an engine."""
    library, options = vm.Library(str(call.library)), StartOptions(image=image, gpus="none")
    return run.plan_service(library, NAME, options, ("--x",), note=print, mount=mount)


def mounted(call: Caller) -> ServedPairing:
    served = planned(call, call.base.removeprefix("oci:"), mount=True)
    return serving_image.of_base(vm.Library(str(call.library)), served, "oci", vm.Access())


def test_a_model_that_the_vllm_in_the_image_would_not_load_is_refused(call: Caller) -> None:
    served, config = planned(call, "x"), {"architectures": ["ToyForCausalLM"]}
    tensors = {"a.b.weight": Tensor("BF16", (1,))}
    served = served._replace(model=Checkpoint("m", None, config, tensors, "", None))
    tree = MemoryTree(TOY)
    with pytest.raises(
        Refused,
        match=r"would not load m: Toy .* has no part named a, but the model has tensors for it",
    ):
        served.demand(tree, None, print)


def test_a_plain_image_gets_all_that_a_layer_would_bring(call: Caller, tmp_path: Path) -> None:
    served = mounted(call)
    bound = {one.target: one for one in served.service.mounts if one.read_only}
    stale = [one for path, one in bound.items() if path.endswith(".pyc")]
    assert [Path(one.source).stat().st_size for one in stale] == [0] * len(stale) != []
    assert {path.removeprefix(f"/{SITE}/") for path in bound if not path.endswith(".pyc")} == {
        ".vllm-mods/templates/small.jinja",
        "vllm-0.19.1.dist-info/RECORD",
        "vllm/a.py",
    }
    source = bound[f"/{SITE}/vllm/a.py"].source
    assert source.startswith(f"{tmp_path}/cache/bound/")
    assert Path(source).read_text() == "A = 2\n"
    words = line("docker", served.service)
    assert words[-8:] == (
        *("--entrypoint", "vllm", call.base.removeprefix("oci:"), "serve", "org/small"),
        *("--chat-template", f"/{SITE}/.vllm-mods/templates/small.jinja", "--x"),
    )
    assert words[words.index("--env") + 1] == "X=a\nb"
    assert "vllm-mods.mods=patching@1.0.0 writing@1.0.0" in words
    assert not [word for word in words if word.startswith(("vllm-mods.lock", "PATH"))]
    assert (served.root, [one.mod.name for one in (served.plan or vm.plan((), "x")).mods]) == (
        f"/{SITE}",
        ["patching", "writing"],
    )


@pytest.mark.slow
def test_what_a_mod_removes_is_refused(call: Caller) -> None:
    patch = call.library / "patches/patching/x.patch"
    patch.write_bytes(patch.read_bytes() + GONE)
    with pytest.raises(Refused, match="no longer matches"):
        mounted(call)
    call("lock", NAME)
    with pytest.raises(Refused, match=f"a mod removes /{SITE}/vllm/b.py") as caught:
        mounted(call)
    assert caught.value.hint == f"vllm-mods build {NAME}"


@pytest.mark.slow
def test_of_a_built_image_the_mods_are_those_that_went_in(call: Caller, tmp_path: Path) -> None:
    call("build", NAME, "--output", f"oci:{tmp_path}/made")
    patch = call.library / "patches/patching/x.patch"
    patch.write_bytes(GONE)
    served = serving_image.of_image(planned(call, f"{tmp_path}/made"), "oci", vm.Access())
    assert served.plan is not None
    assert [one.path for one in served.plan.changes if one.path.endswith(".py")] == ["vllm/a.py"]
    assert served.variables["X"] == "a\nb"


@pytest.mark.slow
def test_a_container_writes_the_record_that_was_tried_once(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, record = mounted(call), tmp_path / "run.jsonl"
    asked: list[tuple[str, ...]] = []

    def answer(lines: str | None) -> Callable[..., str]:
        def call_engine(*words: str) -> str:
            asked.append(words)
            if lines is None:
                raise TreeError("no such program")
            with record.open("a") as file:
                file.write(lines)
            return ""

        return call_engine

    def begin() -> tuple[str, ...]:
        plan = served.plan
        assert plan is not None
        given = (str(record), "docker", served.service, served.root, plan)
        return line("docker", recording.record_service(*given, path="/own"))

    for lines, error in ((None, TreeError), ("", Refused)):
        monkeypatch.setattr(engine_command, "call", answer(lines))
        with pytest.raises(error):
            begin()
        assert not record.exists()
    monkeypatch.setattr(engine_command, "call", answer("x\n"))
    words = begin()
    assert record.stat().st_mode & 0o777 == 0o666
    assert json.loads(record.read_text().splitlines()[0])["root"] == f"/{SITE}"
    for option in (
        "PYTHONPATH=/vllm-mods/recorder:/own",
        "RECORD_OF_VLLM_MODS=/vllm-mods/record",
        f"{record}:/vllm-mods/record",
    ):
        assert option in words
        assert option in asked[-1]
    assert asked[-1][-3:] == (served.service.image, "-c", "")
    with pytest.raises(UsageError, match="File exists"):
        begin()
