"""What a recorded command is given, which trees it can be run on, and where the sandbox's programs are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from lowering import lower
from memory_tree import MemoryTree

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.making import recording
from vllm_mods.making.recording import Limits
from vllm_mods.trees.image import ImageTree

if TYPE_CHECKING:
    from vllm_mods.making.compose import ModEffect

FILES = {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n", "vllm/k.so.2": b"x", "b/x.py": b""}
TREE = MemoryTree(FILES, version="0.19.1")
SITE = "/usr/local/lib/python3.12/dist-packages"


def recorded(script: str, tree: MemoryTree = TREE, **limits: Any) -> ModEffect:
    files = {"run.sh": script.encode(), "q.jinja": b"{{ messages }}"}
    argv = ["bash", "run.sh"]
    return recording.record(argv, "mine", files, tree, Limits(**{"seconds": 30, **limits}))


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_command_has_a_launchers_variables() -> None:
    names = (
        *("HOME", "LANG", "WORKSPACE_DIR", "PYTHON_ROOT", "VLLM_SITE_PACKAGES"),
        *("VLLM_PACKAGE_DIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_RETRIES", "UV_OFFLINE"),
        *("PIP_DISABLE_PIP_VERSION_CHECK", "VLLM_MODS_VERSION", "MODE", "PWD"),
    )
    script = "".join(f'echo "{name}=${name}"\n' for name in names)
    effect = recorded(f'{{ {script}}} > "$VLLM_PACKAGE_DIR/seen"', environ=("MODE=a=b",))
    (change,) = effect.changes
    assert (change.path, change.before) == ("vllm/seen", None)
    assert dict(line.split("=", 1) for line in (change.after or b"").decode().splitlines()) == {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "WORKSPACE_DIR": "/workspace",
        "PYTHON_ROOT": SITE,
        "VLLM_SITE_PACKAGES": SITE,
        "VLLM_PACKAGE_DIR": f"{SITE}/vllm",
        "PYTHONPATH": f"/launcher:{SITE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_RETRIES": "0",
        "UV_OFFLINE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "VLLM_MODS_VERSION": "0.19.1",
        "MODE": "a=b",
        "PWD": "/workspace/mods/mine",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_what_it_changed_is_told_from_what_it_left_elsewhere() -> None:
    effect = recorded(
        'cd "$PYTHON_ROOT"; cp vllm/a.py vllm/a.py.orig; echo B=2 >> vllm/a.py; echo x > vllm/b.orig\n'
        "rm vllm/__init__.py; ls vllm b > /tmp/listed 2>&1; cat /workspace/mods/mine/q.jinja > /workspace/c.j2\n"
        "sleep 0.3; mkdir /workspace/d; echo > /workspace/d/e.jinja; ln -s x ~/link; echo new > /workspace/mods/mine/q.jinja\n"
    )
    assert effect.changes == (
        FileChange("vllm/__init__.py", b"", None),
        FileChange("vllm/a.py", b"A = 1\n", b"A = 1\nB=2\n"),
        FileChange("vllm/b.orig", None, b"x\n"),
    )
    assert effect.templates == {"c.j2": b"{{ messages }}"}
    assert effect.notes == (
        *(
            f"the command wrote {path}, which a mod cannot contain"
            for path in ("/root/link", "/tmp/listed", "/workspace/d/e.jinja")  # noqa: S108
        ),
        "left out vllm/a.py.orig: it looks like a backup of vllm/a.py",
    )


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_what_ends_a_script_is_said_with_the_last_lines_that_it_printed() -> None:
    with pytest.raises(Refused) as caught:
        recorded("for n in $(seq 20); do echo line $n; echo; done\nexit 7\n")
    lines = caught.value.message.splitlines()
    assert lines[0] == "the command failed with exit code 7; nothing was written"
    assert lines[-15:] == [f"  | line {n}" for n in range(6, 21)]


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("name", "most", "script", "why"),
    [
        ("RECORDED_FILES", 50, "for n in $(seq 99); do echo > /tmp/$n; done", "made more than 50"),
        ("RECORDED_OUTPUT", 1 << 10, "head -c 1M /dev/zero", "printed more than 1 KiB"),
    ],
)
def test_a_command_that_is_past_a_limit_makes_no_mod(
    name: str, most: int, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, name, most)
    with pytest.raises(Refused, match=rf"^the command {why}.*; no mod was made$"):
        recorded(f"{script}\n")


def test_variables_that_are_none_are_refused() -> None:
    for text in ("MODE", "=1"):
        with pytest.raises(UsageError, match=f"--env {text} is not NAME=VALUE") as caught:
            recorded("true", environ=(text,))
        assert caught.value.hint == "--env VLLM_USE_X=1"


def test_a_package_that_a_tree_has_not_got_cannot_be_seen() -> None:
    with pytest.raises(UsageError, match="memory has no package torch") as caught:
        recorded("true", also=("b", "torch"))
    assert caught.value.hint == "--also PACKAGE"
    with pytest.raises(UsageError, match="has no package vllm"):
        recorded("true", MemoryTree({"vllm/k.so": b"x"}))


def test_a_tree_that_is_read_in_parts_is_fetched_whole_or_refused() -> None:
    with pytest.raises(UsageError, match="memory is read in parts") as caught:
        recorded("true", MemoryTree(FILES, remote=True))
    assert caught.value.hint == "pip download --no-deps vllm==0.19.1, then --tree wheel:FILE"
    asked_for: list[str] = []

    def whole(name: str) -> MemoryTree:
        asked_for.append(name)
        return MemoryTree({})

    tree = MemoryTree(FILES, spec="pypi:0.19.1", remote=True)
    tree.releases = SimpleNamespace(whole=whole)
    with pytest.raises(UsageError, match="has no package torch"):
        recorded("true", tree, also=("torch",))
    assert asked_for == ["0.19.1"]


class Image(ImageTree):
    """A tree of an image of which nothing is read."""

    spec: ClassVar[str] = "image:x"  # type: ignore[misc]

    def __init__(self, where: str) -> None:
        self.base: Any = SimpleNamespace(where=where, reference="x@sha256:0")


def test_only_an_image_of_an_engine_here_can_be_run() -> None:
    engine = recording.container_of(Image("containerd"))
    assert (engine.engine, engine.image) == ("docker", "x@sha256:0")
    for tree, why in (
        (Image("registry"), "image:x is not an image of a container engine: it is in registry"),
        (TREE, "memory is not an image of a container engine"),
    ):
        with pytest.raises(UsageError) as caught:
            recording.container_of(tree)
        assert caught.value.message == why
        assert caught.value.hint == "docker pull IMAGE, then --image IMAGE"


@pytest.mark.parametrize(
    ("output", "lines"), [("", ""), ("a\n\n  \nb", "\n  | a\n  | b"), ("x\n" * 20, "\n  | x" * 15)]
)
def test_of_what_is_printed_the_last_lines_are_shown(output: str, lines: str) -> None:
    assert recording.last_lines(output) == lines
