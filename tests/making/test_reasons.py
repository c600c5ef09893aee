"""What a refused recording says to do about it: the script's own reason, and never a network that nothing asked for."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.errors import Refused
from vllm_mods.making import recording, watching
from vllm_mods.making.recording import Limits
from vllm_mods.making.watching import WatchedCommand

TREE = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n"}, version="0.19.1")
IMAGE = "--image REF names an image that has it"
ANCHOR = "if the script was written for another vLLM, name that vLLM with --tree or --image; the script finds that vLLM at $VLLM_PACKAGE_DIR"
FOLDER = "put the files that the command downloads into the folder that the command runs in"


def lacked(*names: str) -> list[WatchedCommand]:
    return [WatchedCommand(1, "run.sh:2", (name, "x")) for name in names]


@pytest.mark.parametrize(
    ("output", "names", "hint"),
    [
        (
            "ModuleNotFoundError: No module named 'torch.nn'",
            (),
            f"the command needs the package torch: --also torch, with --with for the package's version; or {IMAGE}",
        ),
        (
            "run.sh: line 3: MODEL: unbound variable",
            (),
            "the command needs the variable MODEL: --env MODEL=VALUE",
        ),
        (
            "sh: 1: MODEL: parameter not set",
            (),
            "the command needs the variable MODEL: --env MODEL=VALUE",
        ),
        (
            "KeyError: 'VLLM_MODE'",
            (),
            "the command needs the variable VLLM_MODE: --env VLLM_MODE=VALUE",
        ),
        ("KeyError: 'scale'", (), ANCHOR),
        ("run.sh: line 3: jq: command not found", (), f"the command needs the program jq: {IMAGE}"),
        ("AssertionError: anchor", (), ANCHOR),
        ("", (), ANCHOR),
        ("curl: not found", ("curl",), FOLDER),
        ("curl: (6) Could not resolve host: x.test", ("curl",), FOLDER),
        ("OSError: [Errno 101] Network is unreachable", (), FOLDER),
        ("nvidia-smi: not found", ("nvidia-smi",), "the sandbox has no GPU"),
        ("nvidia-smi: not found", ("nvidia-smi", "curl"), FOLDER),
        # the last of them ended it
        (
            "jq: not found\nModuleNotFoundError: No module named 'numpy'",
            ("curl",),
            f"the command needs the package numpy: --also numpy, with --with for the package's version; or {IMAGE}",
        ),
    ],
)
def test_the_hint_names_what_the_script_lacked(
    output: str, names: tuple[str, ...], hint: str
) -> None:
    answer = watching.hint(output, lacked(*names), in_image=False)
    assert answer.startswith(hint) if hint.endswith("GPU") else answer == hint


def test_in_an_image_no_package_can_be_added() -> None:
    answer = watching.hint("No module named 'einops'", (), in_image=True)
    assert answer == f"the command needs the package einops: {IMAGE}"


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("set -u\necho $MODEL_OF_MINE", "the command needs the variable MODEL_OF_MINE"),
        (
            "python3 -c 'import os; os.environ[\"MODE_OF_MINE\"]'",
            "the command needs the variable MODE_OF_MINE",
        ),
        (
            "python3 -c 'import of_somebody.part'",
            "the command needs the package of_somebody: --also of_somebody",
        ),
        ("of-somebody --all", "the command needs the program of-somebody"),
        ("python3 -c 'assert 0, \"anchor\"'", "if the script was written for another vLLM"),
        ("grep -q gone $VLLM_PACKAGE_DIR/a.py", "if the script was written for another vLLM"),
    ],
)
def test_a_failed_script_says_its_own_reason(script: str, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        recording.record(
            ["bash", "run.sh"], "x", {"run.sh": script.encode()}, TREE, Limits(seconds=30)
        )
    assert (caught.value.hint or "").startswith(hint)
    assert "network" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_step_is_shown_by_its_first_line() -> None:
    script = b"python3 - <<'PY'\nimport sys\nsys.exit('no anchor')\nPY\nexit 3"
    with pytest.raises(Refused, match=r"the command ended at run.sh:5: `exit 3`\n  \| no anchor"):
        recording.record(["bash", "run.sh"], "x", {"run.sh": script}, TREE, Limits(seconds=30))
    shown = str(WatchedCommand(1, "run.sh:1", ("python3", "-c", "import sys\nsys.exit(1)")))
    assert shown == "run.sh:1: `python3 -c import sys...`"
