"""A launcher's script taken over: on which vLLM it is run, and the mod that is made of what it did there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from memory_tree import MemoryTree

import vllm_mods as vm
from vllm_mods.api import import_mod
from vllm_mods.api.import_mod import ImportTerms
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.making import recording
from vllm_mods.making.compose import ModEffect
from vllm_mods.making.recording import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.tree import Tree
    from vllm_mods.making.compose import NewMod

PATH = "vllm/a.py"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "My Mod"
    folder.mkdir()
    (folder / "run.sh").write_text("sed -i s/1/2/ vllm/a.py\n")
    return folder


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was run, instead of running it: the command, the mod's name, its limits, and the version."""
    calls: list[tuple[Any, ...]] = []

    def record(
        command: list[str], name: str, _files: object, tree: Tree, limits: Limits, **_: object
    ) -> ModEffect:
        calls.append((command, name, limits, tree.version))
        before = tree.read(PATH)
        if before is None:
            raise Refused("there is no vllm/a.py")
        change = FileChange(PATH, before, before.replace(b"1", b"2"))
        return ModEffect((change,), notes=("noted",))

    monkeypatch.setattr(recording, "record", record)
    return calls


class Shelf(NamedTuple):
    """An access to some releases alone, and which of them were opened, beside what."""

    access: vm.Access
    opened: list[tuple[str, Any]]


def shelf(**releases: bytes | None) -> Shelf:
    """Return releases by ``v0_20_0``, each with its file, or none."""
    files = {name[1:].replace("_", "."): data for name, data in releases.items()}
    opened: list[tuple[str, Any]] = []

    def open_one(version: str, named: object = None, **_: object) -> MemoryTree:
        opened.append((version, named))
        own = {} if files[version] is None else {PATH: files[version] or b""}
        return MemoryTree({"vllm/__init__.py": b"", **own}, version=version)

    named = [
        SimpleNamespace(
            version=version,
            yanked=None,
            kind="wheel",
            build=(),
            filename=f"vllm-{version}-cp38-abi3-x.whl",
            platforms=["manylinux1_x86_64"],
        )
        for version in files
    ]
    access = vm.Access(offline=True)
    access.__dict__["releases"] = SimpleNamespace(files=lambda: named, open=open_one)
    return Shelf(access, opened)


def imported(script: Path, access: vm.Access, said: list[str], **terms: Any) -> NewMod:
    return import_mod.import_mod(
        str(script), ImportTerms(**terms), library=None, progress=said.append, access=access
    )


THREE = {"v0_19_0": None, "v0_20_0": b"A = 1\n", "v0_21_0": b"B = 1\nA = 1\n"}


def test_over_a_range_it_is_run_on_each_release(
    script: Path, recorded: list[tuple[Any, ...]]
) -> None:
    there, said = shelf(**THREE, v0_22_0=b""), list[str]()
    limits = Limits(seconds=7)
    made = imported(script, there.access, said, vllm=">=0.19,<0.22", limits=limits)
    assert recorded == [
        (["./run.sh"], "My Mod", limits, version) for version in ("0.19.0", "0.20.0", "0.21.0")
    ]
    assert there.opened == [(version, None) for version in ("0.19.0", "0.20.0", "0.21.0")]
    assert said[:3] == [f"running the script on 0.{n}.0, {n - 18} of 3" for n in (19, 20, 21)]
    assert made.mod.name == "my-mod"
    assert [(row.version, row.variant is None) for row in made.releases] == [
        ("0.19.0", True),
        ("0.20.0", False),
        ("0.21.0", False),
    ]
    assert made.releases[0].why == "there is no vllm/a.py"
    assert made.notes == ("noted",)
    assert made.unknown
    assert made.planned is None
    assert {"mod.toml"} < set(made.files)


def test_on_one_tree_it_is_run_once(script: Path, recorded: list[tuple[Any, ...]]) -> None:
    there, said = shelf(**THREE), list[str]()
    made = imported(script, there.access, said, tree="pypi:0.20.0", name="other", summary="Sums.")
    assert [one[-1] for one in recorded] == ["0.20.0"]
    assert (made.mod.name, made.mod.summary) == ("other", "Sums.")
    assert made.planned is not None
    assert made.planned.verdict.ok


@pytest.mark.parametrize(
    ("terms", "why", "hint"),
    [
        (
            {},
            "{0} has a run.sh, which has to run on a vLLM; no vLLM was named",
            "--tree pypi:VERSION, --image REF, or --vllm SPEC for a variant per release",
        ),
        (
            {"tree": "pypi:0.20.0", "images": ("x",)},
            "--tree and --image both name the vLLM to run on",
            "omit one",
        ),
        (
            {"vllm": ">=0.30"},
            ">=0.30 contains no release of vLLM; the newest is 0.21.0",
            "such as --vllm '>=0.19,<0.22'",
        ),
    ],
)
def test_where_it_is_to_be_run_has_to_be_said(
    script: Path, recorded: list[tuple[Any, ...]], terms: dict[str, Any], why: str, hint: str
) -> None:
    with pytest.raises(vm.UsageError) as caught:
        imported(script, shelf(**THREE).access, [], **terms)
    assert (caught.value.message, caught.value.hint) == (why.format(script), hint)
    assert recorded == []


def test_what_it_does_nowhere_is_refused(script: Path, recorded: list[tuple[Any, ...]]) -> None:
    with pytest.raises(Refused, match="the script makes no mod on any of 1 releases"):
        imported(script, shelf(**THREE).access, [], vllm="==0.19.0")
    assert len(recorded) == 1
